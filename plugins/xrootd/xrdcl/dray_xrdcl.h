/* The XRootD client as dray's store of root:// URLs uses it: a plain C interface over XrdCl, in a shared
 * library of its own that is loaded when the first such URL is opened. The engine is built without
 * XRootD's headers; another release of XRootD needs only this library compiled anew.
 *
 * All calls block, may come from many threads at once, and never throw. Texts are UTF-8 and end in a zero.
 * What a call returns: 0 or more is success, -1 is failure with `error` filled in.
 */
#ifndef DRAY_XRDCL_H
#define DRAY_XRDCL_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Raised with every change of what stands below. */
#define DRAY_XRDCL_VERSION 1

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
};

struct dray_xrdcl_file;

/* Takes one entry of a folder; not 0: no more of them. The name is `name_bytes` long, without a zero. */
typedef int32_t (*dray_xrdcl_entry)(void *context, const char *name, uint64_t name_bytes,
                                    const struct dray_xrdcl_state *state);

/* DRAY_XRDCL_VERSION of the library. */
uint32_t dray_xrdcl_version(void);

/* Sets a number of XrdCl's environment (as SubStreamsPerChannel); before the first URL is used. */
int32_t dray_xrdcl_set(const char *name, int32_t value);

/* Opens a file for reading. The handle is given back by dray_xrdcl_close. */
int32_t dray_xrdcl_open(const char *url, struct dray_xrdcl_file **file, struct dray_xrdcl_error *error);

void dray_xrdcl_close(struct dray_xrdcl_file *file);

/* Reads at an offset and returns how many bytes came; fewer than asked only at the end of the file. With
 * `pages` each page of 4 KiB comes with a checksum, is compared, and asked for again when it differs. */
int64_t dray_xrdcl_read(struct dray_xrdcl_file *file, uint64_t offset, void *to, uint32_t bytes,
                        int32_t pages, struct dray_xrdcl_error *error);

/* Size and time of an open file; `anew`: as the server knows them now. */
int32_t dray_xrdcl_state_of(struct dray_xrdcl_file *file, int32_t anew, struct dray_xrdcl_state *state,
                            struct dray_xrdcl_error *error);

/* Looks at a path of the server that `url` names. */
int32_t dray_xrdcl_look(const char *url, const char *path, struct dray_xrdcl_state *state,
                        struct dray_xrdcl_error *error);

/* Lists one folder in the server's order. A failure after entries were given: of a cluster some servers have
 * not answered. */
int32_t dray_xrdcl_list(const char *url, const char *path, dray_xrdcl_entry take, void *context,
                        struct dray_xrdcl_error *error);

/* Asks for a file's checksum; `query` is a path, with ?cks.type=NAME. The answer, "NAME VALUE", is written to
 * `answer`, with a zero. */
int32_t dray_xrdcl_checksum(const char *url, const char *query, char *answer, uint32_t answer_bytes,
                            struct dray_xrdcl_error *error);

#ifdef __cplusplus
}
#endif

#endif
