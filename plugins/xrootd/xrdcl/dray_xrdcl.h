/* The XRootD client for dray's store of root:// URLs: a plain C interface over XrdCl, in a shared
 * library of its own that is loaded when the first such URL is opened. The engine is built without
 * XRootD's headers; another release of XRootD requires only a rebuild of this library. All calls
 * block, may come from many threads concurrently, and never throw. Texts are UTF-8 and end in a
 * zero. Return values: 0 or more is success, -1 is failure with `error` filled in. */
#ifndef DRAY_XRDCL_H
#define DRAY_XRDCL_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Increased with every change of this interface. */
#define DRAY_XRDCL_VERSION 5

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
	DRAY_XRDCL_LOCKED = 17, /* other clients have the file open */
	DRAY_XRDCL_NO_ATTRIBUTE = 18,
	DRAY_XRDCL_NAME_TOO_LONG = 19,
};

struct dray_xrdcl_error {
	int32_t kind; /* one of dray_xrdcl_kind */
	char words[1020]; /* XrdCl's message, truncated */
};

enum { DRAY_XRDCL_DIRECTORY = 1, DRAY_XRDCL_SPECIAL = 2 };

struct dray_xrdcl_state {
	uint64_t size; /* bytes */
	int64_t modified; /* seconds since 1970 */
	uint32_t flags;
	uint32_t zero;
	uint64_t id; /* number of the file at that server; 0 if unknown */
};

struct dray_xrdcl_file;

/* Takes one entry of a folder; returns other than 0 to end the listing. The name is `name_bytes`
 * long, without a zero. */
typedef int32_t (*dray_xrdcl_entry)(void *context, const char *name, uint64_t name_bytes,
                                    const struct dray_xrdcl_state *state);

/* Returns DRAY_XRDCL_VERSION of the library. */
uint32_t dray_xrdcl_version(void);

/* Sets a number in XrdCl's environment (such as SubStreamsPerChannel); call it before the first URL
 * is used. */
int32_t dray_xrdcl_set(const char *name, int32_t value);

/* Modes of opening a file. UPDATE and NEW: for reading and writing. NEW: the file must not exist;
 * it is created with the bits of `mode` that the server permits, and with missing parent folders. A
 * server lets a file have one writer or readers, and refuses others with LOCKED, unless they use
 * SHARED. REPLICA: another server has the file too, and is read if this one fails. */
enum {
	DRAY_XRDCL_READ = 0,
	DRAY_XRDCL_UPDATE = 1,
	DRAY_XRDCL_NEW = 2,
	DRAY_XRDCL_SHARED = 4,
	DRAY_XRDCL_REPLICA = 8,
};

/* Opens a file. Close the handle with dray_xrdcl_close. After a lost connection a handle opened for
 * writing is not reopened, and all its calls fail. The same applies to a REPLICA, and to a URL with
 * the key of a third-party copy (tpc.key), which permits one opening. `seconds`, here and below:
 * maximum duration of the call, with the resolution of XrdCl's clock (TimeoutResolution); 0:
 * XrdCl's own settings. */
int32_t dray_xrdcl_open(const char *url, uint32_t how, uint32_t mode, uint32_t seconds,
                        struct dray_xrdcl_file **file, struct dray_xrdcl_error *error);

/* Closes a file. For a REPLICA does not wait for the server's answer. */
void dray_xrdcl_close(struct dray_xrdcl_file *file);

/* Reads at an offset and returns the number of bytes; fewer than requested only at the end of the
 * file. With `pages` each page of 4 KiB comes with a checksum, is compared, and requested again if
 * it differs. */
int64_t dray_xrdcl_read(struct dray_xrdcl_file *file, uint64_t offset, void *to, uint32_t bytes,
                        int32_t pages, uint32_t seconds, struct dray_xrdcl_error *error);

/* Returns size and time of an open file; `anew`: from a new query to the server. */
int32_t dray_xrdcl_state_of(struct dray_xrdcl_file *file, int32_t anew, uint32_t seconds,
                            struct dray_xrdcl_state *state, struct dray_xrdcl_error *error);

/* Writes the server of the open file, as host and port, to `answer`, with a zero. */
int32_t dray_xrdcl_server_of(struct dray_xrdcl_file *file, char *answer, uint32_t answer_bytes,
                             struct dray_xrdcl_error *error);

/* Returns the state of a path on the server that `url` names. */
int32_t dray_xrdcl_look(const char *url, const char *path, struct dray_xrdcl_state *state,
                        struct dray_xrdcl_error *error);

/* Finds the servers of a cluster that have a file and offer it now. Writes their addresses, as
 * HOST:PORT, one a line, to `answer`, with a zero; omits those that do not fit. If a manager makes
 * the client wait longer than `seconds`, the call fails with DRAY_XRDCL_TIMED_OUT. */
int32_t dray_xrdcl_locate(const char *url, const char *path, uint32_t seconds, char *answer,
                          uint32_t answer_bytes, struct dray_xrdcl_error *error);

/* One of many paths to query, each at a server. `kind` of `error` is -1 without a failure. */
struct dray_xrdcl_looked {
	const char *url;
	const char *path;
	struct dray_xrdcl_state state; /* set */
	struct dray_xrdcl_error error; /* set */
};

/* Queries many paths concurrently. */
int32_t dray_xrdcl_look_each(struct dray_xrdcl_looked *each, uint64_t count, uint32_t seconds,
                             struct dray_xrdcl_error *error);

/* Lists one folder in the server's order. A failure after entries means that some servers of a
 * cluster have not answered. */
int32_t dray_xrdcl_list(const char *url, const char *path, dray_xrdcl_entry take, void *context,
                        struct dray_xrdcl_error *error);

/* Requests a file's checksum; `query` is a path, with ?cks.type=NAME. Writes the answer, "NAME
 * VALUE", to `answer`, with a zero. */
int32_t dray_xrdcl_checksum(const char *url, const char *query, char *answer, uint32_t answer_bytes,
                            struct dray_xrdcl_error *error);

/* Sends the server a question about an open file for one of its plug-ins; a server without such a
 * plug-in answers DRAY_XRDCL_UNSUPPORTED. Waits at most `seconds`. Writes the answer to `answer`,
 * with a zero; fails if it does not fit. */
int32_t dray_xrdcl_ask(struct dray_xrdcl_file *file, const char *question, uint32_t seconds, char *answer,
                       uint32_t answer_bytes, struct dray_xrdcl_error *error);

/* Writes all `bytes` at an offset. With `pages` each page of 4 KiB carries a checksum that the
 * server compares. */
int32_t dray_xrdcl_write(struct dray_xrdcl_file *file, uint64_t offset, const void *from, uint32_t bytes,
                         int32_t pages, struct dray_xrdcl_error *error);

/* Makes durable all writes of this handle. Without a write the server does nothing. */
int32_t dray_xrdcl_sync(struct dray_xrdcl_file *file, struct dray_xrdcl_error *error);

/* Sets the length of the file. */
int32_t dray_xrdcl_truncate(struct dray_xrdcl_file *file, uint64_t bytes, struct dray_xrdcl_error *error);

/* Makes a folder; `above`: also makes missing parents, and accepts an existing folder. */
int32_t dray_xrdcl_make_dir(const char *url, const char *path, uint32_t mode, int32_t above,
                            struct dray_xrdcl_error *error);

/* Removes a file; `folder`: an empty folder. */
int32_t dray_xrdcl_remove(const char *url, const char *path, int32_t folder,
                          struct dray_xrdcl_error *error);

/* Sets the permission bits. */
int32_t dray_xrdcl_set_mode(const char *url, const char *path, uint32_t mode,
                            struct dray_xrdcl_error *error);

/* Set an attribute of a file, and read it into `value`, which must be longer than the attribute.
 * Reading returns the attribute's length. */
int32_t dray_xrdcl_set_attribute(const char *url, const char *path, const char *name, const char *value,
                                 struct dray_xrdcl_error *error);
int64_t dray_xrdcl_attribute(const char *url, const char *path, const char *name, char *value,
                             uint64_t value_bytes, struct dray_xrdcl_error *error);

/* Request a configuration value of the server, and the space beneath a path. Write the answer to
 * `answer`, with a zero. */
int32_t dray_xrdcl_config(const char *url, const char *what, char *answer, uint32_t answer_bytes,
                          struct dray_xrdcl_error *error);
int32_t dray_xrdcl_space(const char *url, const char *path, char *answer, uint32_t answer_bytes,
                         struct dray_xrdcl_error *error);

/* One of many small files: written, given an attribute, synced and closed. `kind` of `error` is -1
 * without a failure; after a failure the remaining steps are skipped. */
struct dray_xrdcl_small {
	const char *url; /* must not exist */
	const void *bytes;
	uint64_t size;
	const char *attribute; /* name of the attribute */
	const char *value; /* the library appends a blank and the file's time at the server, in seconds */
	uint32_t mode;
	uint32_t is_made; /* set once a new file exists under the name */
	uint64_t id; /* set as in dray_xrdcl_state; 0 if it could not be queried */
	uint32_t is_plain; /* set if the server has no page writes, so that it compared no checksum */
	uint32_t zero;
	struct dray_xrdcl_error error;
};

/* Writes many small files concurrently, each over its own URL's connection. A server without
 * attributes is not an error. */
int32_t dray_xrdcl_write_small(struct dray_xrdcl_small *files, uint64_t count,
                               struct dray_xrdcl_error *error);

/* Makes durable the writes to each of these files over all connections, concurrently. Each is first
 * truncated to its length in `bytes`, so that the server syncs it even after a recent sync.
 * `errors` has an element for each file, whose `kind` is -1 without a failure. */
int32_t dray_xrdcl_sync_each(struct dray_xrdcl_file *const *files, const uint64_t *bytes,
                             struct dray_xrdcl_error *errors, uint64_t count,
                             struct dray_xrdcl_error *error);

/* One of many renamings. */
struct dray_xrdcl_renaming {
	const char *from;
	const char *to;
	uint64_t id; /* the file's number must have this upper half, or the result is NOT_FOUND; 0: any file */
	int32_t if_absent; /* true: an existing entry stays, and the result is EXISTS */
	struct dray_xrdcl_error error; /* as above */
};

/* Renames many files of the server that `url` names. An existing entry of a new name is replaced,
 * unless it is a folder. */
int32_t dray_xrdcl_move_each(const char *url, struct dray_xrdcl_renaming *each, uint64_t count,
                             struct dray_xrdcl_error *error);

#ifdef __cplusplus
}
#endif

#endif
