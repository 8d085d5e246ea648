/* Plain C interface to the XRootD client, for dray's store of root:// URLs. The library is a
 * separate shared library over XrdCl. It is loaded when the first such URL is opened. So the
 * engine is built without XRootD's headers, and another release of XRootD requires only a new
 * build of this library. All calls block, may be made by many threads concurrently, and never
 * throw. Texts are UTF-8 and end with a zero byte. Functions return 0 or more for success. They
 * return -1 for a failure and fill `error`. */
#ifndef DRAY_XRDCL_H
#define DRAY_XRDCL_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Version of this interface. Every change of the interface increases it. */
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
	DRAY_XRDCL_EXISTS = 14, /* or the folder is not empty */
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

/* Callback that processes one entry of a folder. A result other than 0 ends the listing. The
 * name has `name_bytes` bytes and no zero byte at its end. */
typedef int32_t (*dray_xrdcl_entry)(void *context, const char *name, uint64_t name_bytes,
                                    const struct dray_xrdcl_state *state);

/* Returns DRAY_XRDCL_VERSION of the library. */
uint32_t dray_xrdcl_version(void);

/* Sets a numeric setting of XrdCl, such as SubStreamsPerChannel. Call it before the first URL is
 * used. */
int32_t dray_xrdcl_set(const char *name, int32_t value);

/* Modes of opening a file. UPDATE and NEW open the file for reading and writing. NEW requires
 * that the file does not exist. It creates the file with those bits of `mode` that the server
 * permits, and creates missing parent folders. A server permits either one writer or several
 * readers of a file, and refuses other clients with LOCKED. SHARED disables this rule for the
 * client. REPLICA means that another server has the file too and is read if this server fails. */
enum {
	DRAY_XRDCL_READ = 0,
	DRAY_XRDCL_UPDATE = 1,
	DRAY_XRDCL_NEW = 2,
	DRAY_XRDCL_SHARED = 4,
	DRAY_XRDCL_REPLICA = 8,
};

/* Opens a file. Close the handle with dray_xrdcl_close. After a lost connection a handle opened
 * for writing is not reopened, and all its calls fail. The same applies to a REPLICA, and to a
 * URL with the key of a third-party copy (tpc.key), which permits only one opening. In this and
 * other functions, `seconds` is the maximum duration of the call, with the resolution of XrdCl's
 * clock (TimeoutResolution). 0 means XrdCl's own settings. */
int32_t dray_xrdcl_open(const char *url, uint32_t how, uint32_t mode, uint32_t seconds,
                        struct dray_xrdcl_file **file, struct dray_xrdcl_error *error);

/* Closes a file. For a REPLICA, the call does not wait for the server's answer. */
void dray_xrdcl_close(struct dray_xrdcl_file *file);

/* Reads at an offset and returns the number of bytes read. The number is less than requested
 * only at the end of the file. If `pages` is not 0, the server sends a checksum with each page
 * of 4 KiB. The client compares it and requests a page again if the checksums differ. */
int64_t dray_xrdcl_read(struct dray_xrdcl_file *file, uint64_t offset, void *to, uint32_t bytes,
                        int32_t pages, uint32_t seconds, struct dray_xrdcl_error *error);

/* Returns the size and modification time of an open file. If `anew` is not 0, asks the server
 * again. */
int32_t dray_xrdcl_state_of(struct dray_xrdcl_file *file, int32_t anew, uint32_t seconds,
                            struct dray_xrdcl_state *state, struct dray_xrdcl_error *error);

/* Writes the server of the open file, as host and port, to `answer`, with a zero byte at the
 * end. */
int32_t dray_xrdcl_server_of(struct dray_xrdcl_file *file, char *answer, uint32_t answer_bytes,
                             struct dray_xrdcl_error *error);

/* Returns the state of a path on the server that `url` names. */
int32_t dray_xrdcl_look(const char *url, const char *path, struct dray_xrdcl_state *state,
                        struct dray_xrdcl_error *error);

/* Finds the servers of a cluster that have a file on disk now. Writes their addresses to
 * `answer`, as HOST:PORT, one on each line, with a zero byte at the end. Addresses that do not
 * fit are omitted. If a manager makes the client wait longer than `seconds`, the call fails with
 * DRAY_XRDCL_TIMED_OUT. */
int32_t dray_xrdcl_locate(const char *url, const char *path, uint32_t seconds, char *answer,
                          uint32_t answer_bytes, struct dray_xrdcl_error *error);

/* A path on a server, for dray_xrdcl_look_each. The `kind` of `error` is -1 if the request
 * succeeded. */
struct dray_xrdcl_looked {
	const char *url;
	const char *path;
	struct dray_xrdcl_state state; /* result */
	struct dray_xrdcl_error error; /* result */
};

/* Asks for the states of many paths concurrently. */
int32_t dray_xrdcl_look_each(struct dray_xrdcl_looked *each, uint64_t count, uint32_t seconds,
                             struct dray_xrdcl_error *error);

/* Lists one folder in the order of the server. If the call fails after it has returned entries,
 * some servers of a cluster have not answered. */
int32_t dray_xrdcl_list(const char *url, const char *path, dray_xrdcl_entry take, void *context,
                        struct dray_xrdcl_error *error);

/* Requests the checksum of a file. `query` is a path, optionally with ?cks.type=NAME. Writes the
 * answer, "NAME VALUE", to `answer`, with a zero byte at the end. */
int32_t dray_xrdcl_checksum(const char *url, const char *query, char *answer, uint32_t answer_bytes,
                            struct dray_xrdcl_error *error);

/* Sends a question about an open file to a plug-in of the server. If the server has no such
 * plug-in, the call fails with DRAY_XRDCL_UNSUPPORTED. Waits at most `seconds`. Writes the
 * answer to `answer`, with a zero byte at the end. Fails if the answer does not fit. */
int32_t dray_xrdcl_ask(struct dray_xrdcl_file *file, const char *question, uint32_t seconds, char *answer,
                       uint32_t answer_bytes, struct dray_xrdcl_error *error);

/* Writes `bytes` bytes at an offset. If `pages` is not 0, each page of 4 KiB is sent with a
 * checksum, which the server compares. */
int32_t dray_xrdcl_write(struct dray_xrdcl_file *file, uint64_t offset, const void *from, uint32_t bytes,
                         int32_t pages, struct dray_xrdcl_error *error);

/* Makes all writes of this handle durable. If the handle has written nothing, the server does
 * nothing. */
int32_t dray_xrdcl_sync(struct dray_xrdcl_file *file, struct dray_xrdcl_error *error);

/* Sets the length of the file. */
int32_t dray_xrdcl_truncate(struct dray_xrdcl_file *file, uint64_t bytes, struct dray_xrdcl_error *error);

/* Creates a folder. If `above` is not 0, also creates missing parents and accepts an existing
 * folder. */
int32_t dray_xrdcl_make_dir(const char *url, const char *path, uint32_t mode, int32_t above,
                            struct dray_xrdcl_error *error);

/* Deletes a file, or an empty folder if `folder` is not 0. */
int32_t dray_xrdcl_remove(const char *url, const char *path, int32_t folder,
                          struct dray_xrdcl_error *error);

/* Sets the permission bits of an entry. */
int32_t dray_xrdcl_set_mode(const char *url, const char *path, uint32_t mode,
                            struct dray_xrdcl_error *error);

/* Sets an extended attribute of a file. */
int32_t dray_xrdcl_set_attribute(const char *url, const char *path, const char *name, const char *value,
                                 struct dray_xrdcl_error *error);
/* Reads an extended attribute of a file into `value`, and returns its length in bytes. The buffer
 * must be longer than the attribute. */
int64_t dray_xrdcl_attribute(const char *url, const char *path, const char *name, char *value,
                             uint64_t value_bytes, struct dray_xrdcl_error *error);

/* Writes a configuration value of the server to `answer`, with a zero byte at the end. */
int32_t dray_xrdcl_config(const char *url, const char *what, char *answer, uint32_t answer_bytes,
                          struct dray_xrdcl_error *error);
/* Writes the server's answer about the free space below a path to `answer`, with a zero byte at
 * the end. */
int32_t dray_xrdcl_space(const char *url, const char *path, char *answer, uint32_t answer_bytes,
                         struct dray_xrdcl_error *error);

/* A small file for dray_xrdcl_write_small. The steps are: write the file, set the attribute,
 * sync and close the file. The `kind` of `error` is -1 if all steps succeeded. After a failed
 * step the remaining steps are skipped. */
struct dray_xrdcl_small {
	const char *url; /* the file must not exist */
	const void *bytes;
	uint64_t size;
	const char *attribute; /* name of the attribute */
	const char *value; /* the library appends a space and the file's time at the server, in seconds */
	uint32_t mode;
	uint32_t is_made; /* result: 1 if the call has created the file */
	uint64_t id; /* result: as in dray_xrdcl_state; 0 if unknown */
	uint32_t is_plain; /* result: 1 if the server compared no checksums, because it has no page writes */
	uint32_t zero;
	struct dray_xrdcl_error error;
};

/* Writes many small files concurrently. Each file uses the connection of its own URL. A server
 * without extended attributes is not an error. */
int32_t dray_xrdcl_write_small(struct dray_xrdcl_small *files, uint64_t count,
                               struct dray_xrdcl_error *error);

/* Makes the writes to each of these files durable, over all connections and concurrently. Each
 * file is first truncated to its length in `bytes`, so that the server syncs the file even after
 * a recent sync. `errors` has an element for each file. Its `kind` is -1 if the sync succeeded. */
int32_t dray_xrdcl_sync_each(struct dray_xrdcl_file *const *files, const uint64_t *bytes,
                             struct dray_xrdcl_error *errors, uint64_t count,
                             struct dray_xrdcl_error *error);

/* A file to rename with dray_xrdcl_move_each. */
struct dray_xrdcl_renaming {
	const char *from;
	const char *to;
	uint64_t id; /* if the upper half of the file's number differs, the error is NOT_FOUND; 0: any file */
	int32_t if_absent; /* if not 0, an existing entry is kept, and the error is EXISTS */
	struct dray_xrdcl_error error; /* `kind` is -1 if the rename succeeded */
};

/* Renames many files of the server that `url` names. An existing entry with the new name is
 * replaced, unless it is a folder. */
int32_t dray_xrdcl_move_each(const char *url, struct dray_xrdcl_renaming *each, uint64_t count,
                             struct dray_xrdcl_error *error);

#ifdef __cplusplus
}
#endif

#endif
