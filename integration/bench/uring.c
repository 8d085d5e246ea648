/* Makes, fills, dates and closes small files: by one system call after the other, or by io_uring in
 * batches of linked requests. Prints the seconds it took. See uring.py.
 *
 *   uring calls|ring FOLDER FILES BYTES BATCH
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static const struct timespec modified[2] = {{1, 0}, {1, 0}};

static void fail(const char *what, int error) {
    fprintf(stderr, "uring: %s: %s\n", what, strerror(error));
    exit(1);
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void by_calls(int folder, int files, const char *bytes, size_t length) {
    char name[32];
    for (int file = 0; file < files; file++) {
        snprintf(name, sizeof name, "f%d", file);
        int opened = openat(folder, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
        if (opened < 0) fail("openat", errno);
        if (pwrite(opened, bytes, length, 0) != (ssize_t)length) fail("pwrite", errno);
        if (futimens(opened, modified)) fail("futimens", errno);
        close(opened);
    }
}

/* io_uring has no request to set a file's times, so this function calls utimensat with the name. */
static void by_ring(int folder, int files, const char *bytes, size_t length, int batch) {
    struct io_uring ring;
    char(*names)[32] = calloc((size_t)batch, sizeof *names);
    if (!names) fail("calloc", ENOMEM);
    int error = io_uring_queue_init((unsigned)batch * 3, &ring, 0);
    if (error) fail("io_uring_queue_init", -error);
    error = io_uring_register_files_sparse(&ring, (unsigned)batch);
    if (error) fail("io_uring_register_files_sparse", -error);
    for (int file = 0; file < files; file += batch) {
        int count = files - file < batch ? files - file : batch;
        for (int each = 0; each < count; each++) {
            snprintf(names[each], sizeof names[each], "f%d", file + each);
            struct io_uring_sqe *request = io_uring_get_sqe(&ring);
            io_uring_prep_openat_direct(request, folder, names[each], O_RDWR | O_CREAT | O_EXCL,
                                        0644, (unsigned)each);
            request->flags |= IOSQE_IO_LINK;
            request = io_uring_get_sqe(&ring);
            io_uring_prep_write(request, each, bytes, (unsigned)length, 0);
            request->flags |= IOSQE_IO_LINK | IOSQE_FIXED_FILE;
            request = io_uring_get_sqe(&ring);
            io_uring_prep_close_direct(request, (unsigned)each);
        }
        error = io_uring_submit_and_wait(&ring, (unsigned)count * 3);
        if (error < 0) fail("io_uring_submit_and_wait", -error);
        for (int left = count * 3; left > 0; left--) {
            struct io_uring_cqe *answer;
            error = io_uring_wait_cqe(&ring, &answer);
            if (error) fail("io_uring_wait_cqe", -error);
            if (answer->res < 0) fail("a request", -answer->res);
            io_uring_cqe_seen(&ring, answer);
        }
        for (int each = 0; each < count; each++) {
            if (utimensat(folder, names[each], modified, 0)) fail("utimensat", errno);
        }
    }
    io_uring_queue_exit(&ring);
    free(names);
}

int main(int count, char **words) {
    if (count != 6) fail("calls|ring FOLDER FILES BYTES BATCH", EINVAL);
    int folder = open(words[2], O_DIRECTORY | O_CLOEXEC);
    if (folder < 0) fail(words[2], errno);
    int files = atoi(words[3]), batch = atoi(words[5]);
    size_t length = (size_t)atol(words[4]);
    char *bytes = malloc(length);
    if (!bytes || batch < 1) fail("arguments", EINVAL);
    memset(bytes, 7, length);
    double began = now();
    if (!strcmp(words[1], "ring"))
        by_ring(folder, files, bytes, length, batch);
    else
        by_calls(folder, files, bytes, length);
    printf("%.6f\n", now() - began);
    return 0;
}
