/* The XRootD client as dray's store of root:// URLs uses it: a plain C interface over XrdCl, in
 * a shared library of its own that is loaded when the first such URL is opened. The engine is
 * built without XRootD's headers; another release of XRootD needs only this library compiled
 * anew.  All calls block, may come from many threads at once, and never throw. Texts are UTF-8
 * and end in a zero. What a call returns: 0 or more is success, -1 is failure with `error`
 * filled in. */
#ifndef DRAY_XRDCL_H
#define DRAY_XRDCL_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Raised with every change of what stands below. */
#define DRAY_XRDCL_VERSION 4

enum dray_xrdcl_kind {
	DRAY_XRDCL_OTHER = 0,
	DRAY_XRDCL_NOT_FOUND = 1,
	DRAY_XRDCL_PERMISSION_DENIED = 2,
	DRAY_XRDCL_IS_A_DIRECTORY = 3,
	DRAY_XRDCL_NOT_A_DIRECTORY = 4,
	DRAY_XRDCL_UNAUTHORIZED = 5,
	DRAY_XRDCL_UNREACHABLE = 6,
	DRAY_XRDCL_TIMED_OUT = 7,
	DRAY_XRDCL_UNSUPPORTED = 8,
	DRAY_XRDCL_IO = 9,
	DRAY_XRDCL_BUSY = 10,
	DRAY_XRDCL_CHECKSUM = 11,
	DRAY_XRDCL_INVALID = 12,
	DRAY_XRDCL_INTERNAL = 13,
	DRAY_XRDCL_EXISTS = 14, /* or a folder that is not empty */
	DRAY_XRDCL_NO_SPACE = 15,
	DRAY_XRDCL_READ_ONLY = 16,
	DRAY_XRDCL_LOCKED = 17, /* others have the file open */
	DRAY_XRDCL_NO_ATTRIBUTE = 18,
	DRAY_XRDCL_NAME_TOO_LONG = 19,
};

struct dray_xrdcl_error {
	int32_t kind; /* one of dray_xrdcl_kind */
	char words[1020]; /* XrdCl's own, cut at the end */
};

enum { DRAY_XRDCL_DIRECTORY = 1, DRAY_XRDCL_SPECIAL = 2 };

struct dray_xrdcl_state {
	uint64_t size; /* bytes */
	int64_t modified; /* seconds since 1970 */
	uint32_t flags;
	uint32_t zero;
	uint64_t id; /* which file it is, at that server; 0: not told */
};

struct dray_xrdcl_file;

/* Takes one entry of a folder; not 0: no more of them. The name is `name_bytes` long, without a
 * zero. */
typedef int32_t (*dray_xrdcl_entry)(void *context, const char *name, uint64_t name_bytes,
                                    const struct dray_xrdcl_state *state);

/* DRAY_XRDCL_VERSION of the library. */
uint32_t dray_xrdcl_version(void);

/* Sets a number of XrdCl's environment (as SubStreamsPerChannel); before the first URL is used. */
int32_t dray_xrdcl_set(const char *name, int32_t value);

/* How a file is opened. UPDATE and NEW: to be read and written; NEW: it is made and must not be
 * there, with `mode` of its permission bits that the server lets stand, and the folders above it
 * as needed. A server lets a file have one writer or readers, and answers LOCKED to others,
 * unless they say SHARED. REPLICA: another server has the file too, and is read when this one fails. */
enum {
	DRAY_XRDCL_READ = 0,
	DRAY_XRDCL_UPDATE = 1,
	DRAY_XRDCL_NEW = 2,
	DRAY_XRDCL_SHARED = 4,
	DRAY_XRDCL_REPLICA = 8,
};

/* Opens a file. The handle is given back by dray_xrdcl_close. One that is written to is not
 * opened anew when its connection is lost: all calls fail then; nor is a REPLICA, nor a URL with the
 * key of a third-party copy (tpc.key), which is good for one opening. `seconds`, here and below: how
 * long the call may take, at the step of XrdCl's clock (TimeoutResolution); 0: as long as XrdCl's own
 * settings say. */
int32_t dray_xrdcl_open(const char *url, uint32_t how, uint32_t mode, uint32_t seconds,
                        struct dray_xrdcl_file **file, struct dray_xrdcl_error *error);

/* Of a REPLICA the server's answer is not waited for. */
void dray_xrdcl_close(struct dray_xrdcl_file *file);

/* Reads at an offset and returns how many bytes came; fewer than asked only at the end of the
 * file. With `pages` each page of 4 KiB comes with a checksum, is compared, and asked for again
 * when it differs. */
int64_t dray_xrdcl_read(struct dray_xrdcl_file *file, uint64_t offset, void *to, uint32_t bytes,
                        int32_t pages, uint32_t seconds, struct dray_xrdcl_error *error);

/* Size and time of an open file; `anew`: as the server knows them now. */
int32_t dray_xrdcl_state_of(struct dray_xrdcl_file *file, int32_t anew, uint32_t seconds,
                            struct dray_xrdcl_state *state, struct dray_xrdcl_error *error);

/* Writes the server that has the open file, as host and port, to `answer`, with a zero. */
int32_t dray_xrdcl_server_of(struct dray_xrdcl_file *file, char *answer, uint32_t answer_bytes,
                             struct dray_xrdcl_error *error);

/* Looks at a path of the server that `url` names. */
int32_t dray_xrdcl_look(const char *url, const char *path, struct dray_xrdcl_state *state,
                        struct dray_xrdcl_error *error);

/* Asks a cluster which of its servers have a file and would give it out now. Their addresses, as
 * HOST:PORT, one a line, are written to `answer`, with a zero; those that do not fit are left out. A
 * manager that would have the client wait beyond `seconds` is not waited for: DRAY_XRDCL_TIMED_OUT. */
int32_t dray_xrdcl_locate(const char *url, const char *path, uint32_t seconds, char *answer,
                          uint32_t answer_bytes, struct dray_xrdcl_error *error);

/* One of many servers to be asked about a path. `kind` of `error` is -1 where nothing failed. */
struct dray_xrdcl_looked {
	const char *url;
	struct dray_xrdcl_state state; /* set */
	struct dray_xrdcl_error error; /* set */
};

/* Looks at a path of many servers at once. */
int32_t dray_xrdcl_look_each(struct dray_xrdcl_looked *each, uint64_t count, const char *path,
                             uint32_t seconds, struct dray_xrdcl_error *error);

/* Lists one folder in the server's order. A failure after entries were given: of a cluster some
 * servers have not answered. */
int32_t dray_xrdcl_list(const char *url, const char *path, dray_xrdcl_entry take, void *context,
                        struct dray_xrdcl_error *error);

/* Asks for a file's checksum; `query` is a path, with ?cks.type=NAME. The answer, "NAME VALUE",
 * is written to `answer`, with a zero. */
int32_t dray_xrdcl_checksum(const char *url, const char *query, char *answer, uint32_t answer_bytes,
                            struct dray_xrdcl_error *error);

/* Asks the server something about an open file that only a plug-in of it understands; one that understands
 * nothing of it says DRAY_XRDCL_UNSUPPORTED. Waits for so many seconds at the most. The answer is written to
 * `answer`, with a zero; one that does not fit is a failure. */
int32_t dray_xrdcl_ask(struct dray_xrdcl_file *file, const char *question, uint32_t seconds, char *answer,
                       uint32_t answer_bytes, struct dray_xrdcl_error *error);

/* Writes all of it at an offset. With `pages` each page of 4 KiB goes with a checksum that the
 * server compares. */
int32_t dray_xrdcl_write(struct dray_xrdcl_file *file, uint64_t offset, const void *from, uint32_t bytes,
                         int32_t pages, struct dray_xrdcl_error *error);

/* Makes durable what was written by this handle. A server does nothing where nothing was. */
int32_t dray_xrdcl_sync(struct dray_xrdcl_file *file, struct dray_xrdcl_error *error);

/* Makes the file so long. */
int32_t dray_xrdcl_truncate(struct dray_xrdcl_file *file, uint64_t bytes, struct dray_xrdcl_error *error);

/* Makes a folder; `above`: and those above it, and one that is there is fine. */
int32_t dray_xrdcl_make_dir(const char *url, const char *path, uint32_t mode, int32_t above,
                            struct dray_xrdcl_error *error);

/* Removes a file; `folder`: an empty folder. */
int32_t dray_xrdcl_remove(const char *url, const char *path, int32_t folder,
                          struct dray_xrdcl_error *error);

/* Sets the permission bits. */
int32_t dray_xrdcl_set_mode(const char *url, const char *path, uint32_t mode,
                            struct dray_xrdcl_error *error);

/* An attribute of a file: set, and read into `value`, which must be longer than it. Its length
 * is returned. */
int32_t dray_xrdcl_set_attribute(const char *url, const char *path, const char *name, const char *value,
                                 struct dray_xrdcl_error *error);
int64_t dray_xrdcl_attribute(const char *url, const char *path, const char *name, char *value,
                             uint64_t value_bytes, struct dray_xrdcl_error *error);

/* What the server says of itself under this name, and of the space beneath a path; written to
 * `answer`, with a zero. */
int32_t dray_xrdcl_config(const char *url, const char *what, char *answer, uint32_t answer_bytes,
                          struct dray_xrdcl_error *error);
int32_t dray_xrdcl_space(const char *url, const char *path, char *answer, uint32_t answer_bytes,
                         struct dray_xrdcl_error *error);

/* One of many small files: written, given an attribute, synced and closed. `kind` of `error` is
 * -1 until something fails; its other calls are not made then. */
struct dray_xrdcl_small {
	const char *url; /* must not be there */
	const void *bytes;
	uint64_t size;
	const char *attribute; /* its name */
	const char *value; /* a blank and the file's time at the server, in seconds, follow it there */
	uint32_t mode;
	uint32_t is_made; /* set once there is a file under the name that was not there before */
	uint64_t id; /* set as in dray_xrdcl_state; 0 when it could not be asked for */
	uint32_t is_plain; /* set when its server takes no pages, so that nobody has summed it */
	uint32_t zero;
	struct dray_xrdcl_error error;
};

/* Many small files at once, each by its own URL's connection; a server that keeps no attributes
 * is fine. */
int32_t dray_xrdcl_write_small(struct dray_xrdcl_small *files, uint64_t count,
                               struct dray_xrdcl_error *error);

/* Makes durable what was written to each of these files by whatever connection, all at once. Each is
 * made so many `bytes` long first, which has its server sync it whatever was synced a moment ago.
 * There is room for an error of each, whose `kind` is -1 where nothing failed. */
int32_t dray_xrdcl_sync_each(struct dray_xrdcl_file *const *files, const uint64_t *bytes,
                             struct dray_xrdcl_error *errors, uint64_t count,
                             struct dray_xrdcl_error *error);

/* One of many names to be given. */
struct dray_xrdcl_renaming {
	const char *from;
	const char *to;
	uint64_t id; /* whose upper half the file must have, or it is NOT_FOUND; 0: any file */
	int32_t if_absent; /* whether what has the name already stays, and EXISTS is said */
	struct dray_xrdcl_error error; /* as above */
};

/* Many names at once, of files of the server that `url` names. What has a name already is replaced,
 * unless it is a folder. */
int32_t dray_xrdcl_move_each(const char *url, struct dray_xrdcl_renaming *each, uint64_t count,
                             struct dray_xrdcl_error *error);

#ifdef __cplusplus
}
#endif

#endif
