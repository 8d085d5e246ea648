/* Copies a file into a pool by librados alone, one object for every 4 MiB, and prints the seconds
 * from the connection to the end. See ceph.py.
 *
 *   rados_copy CONF POOL NAME FILE DEPTH memory|file
 *
 * memory: read DEPTH objects before the clock starts, and write only these objects.
 * file: read every object from the file.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <rados/librados.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define OBJECT ((size_t)4 << 20)

static void fail(const char *what, int error) {
    fprintf(stderr, "rados_copy: %s: %s\n", what, strerror(error));
    exit(1);
}

static void check(const char *what, int answer) {
    if (answer < 0) fail(what, -answer);
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void fill(int file, char *buffer, size_t number) {
    if (pread(file, buffer, OBJECT, (off_t)(number * OBJECT)) != (ssize_t)OBJECT)
        fail("pread", errno ? errno : EIO);
}

static rados_ioctx_t open_pool(const char *conf, const char *pool) {
    rados_t cluster;
    rados_ioctx_t found;
    check("create", rados_create2(&cluster, "ceph", "client.admin", 0));
    check("read the configuration", rados_conf_read_file(cluster, conf));
    check("connect", rados_connect(cluster));
    check("open the pool", rados_ioctx_create(cluster, pool, &found));
    return found;
}

static void await(rados_completion_t *one) {
    if (!*one) return;
    rados_aio_wait_for_complete(*one);
    check("write", rados_aio_get_return_value(*one));
    rados_aio_release(*one);
    *one = NULL;
}

int main(int count, char **words) {
    if (count != 7) fail("six arguments are needed", EINVAL);
    size_t depth = strtoul(words[5], NULL, 10);
    int reads = strcmp(words[6], "file") == 0;
    int file = open(words[4], O_RDONLY | O_CLOEXEC);
    if (file < 0) fail("open", errno);
    size_t objects = (size_t)lseek(file, 0, SEEK_END) / OBJECT;
    if (depth == 0 || objects == 0) fail("the depth and the file must not be empty", EINVAL);
    if (depth > objects) depth = objects;
    char **buffers = calloc(depth, sizeof *buffers);
    rados_completion_t *flights = calloc(depth, sizeof *flights);
    if (!buffers || !flights) fail("calloc", errno);
    for (size_t each = 0; each < depth; each++) {
        buffers[each] = aligned_alloc(4096, OBJECT);
        if (!buffers[each]) fail("aligned_alloc", errno);
        fill(file, buffers[each], each);
    }
    double begin = now();
    rados_ioctx_t pool = open_pool(words[1], words[2]);
    for (size_t number = 0; number < objects; number++) {
        size_t slot = number % depth;
        char name[256];
        await(&flights[slot]);
        if (reads) fill(file, buffers[slot], number);
        snprintf(name, sizeof name, "%s.%016zx", words[3], number);
        check("aio_create_completion", rados_aio_create_completion2(NULL, NULL, &flights[slot]));
        check("write", rados_aio_write_full(pool, name, flights[slot], buffers[slot], OBJECT));
    }
    for (size_t slot = 0; slot < depth; slot++) await(&flights[slot]);
    printf("Total time run: %.3f\n", now() - begin);
    fflush(stdout);
    /* Threads of librados still run, so do not run exit handlers. */
    _exit(0);
}
