/* image_file.c -- open, fstat, read. Folders, pipes and devices are refused: reading them might never end. */
#include "data/codec/image_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"

static polar_status read_all(pl_file_bytes *b, int fd, const char *path, size_t most)
{
    struct stat s;
    PL_NEED(fstat(fd, &s) == 0, POLAR_E_IO, "%s: %s", path, strerror(errno));
    PL_NEED(S_ISREG(s.st_mode), POLAR_E_FORMAT, "%s: not a regular file", path);
    PL_NEED(s.st_size <= PL_FILE_MAX_BYTES, POLAR_E_FORMAT,
            "%s: %lld bytes are too many for a picture (at most %lld)", path, (long long)s.st_size,
            (long long)PL_FILE_MAX_BYTES);
    size_t want = (size_t)s.st_size;
    b->whole = !most || want <= most;
    if (!b->whole) want = most;
    if (want > b->room) {
        size_t room = want + want / 2 + 4096;
        uint8_t *data = pl_alloc(room);
        PL_NEED(data, POLAR_E_NOMEM, "%s: a buffer of %zu bytes", path, room);
        pl_free(b->data);
        b->data = data;
        b->room = room;
    }
    while (b->size < want) {
        ssize_t n = read(fd, b->data + b->size, want - b->size);
        if (n < 0 && errno == EINTR) continue;
        PL_NEED(n >= 0, POLAR_E_IO, "%s: %s", path, strerror(errno));
        if (n == 0) break; /* became shorter meanwhile: the decoder will say so */
        b->size += (size_t)n;
    }
    return POLAR_OK;
}

polar_status pl_file_bytes_read(pl_file_bytes *b, const char *path, size_t most)
{
    b->size = 0;
    /* of a pipe without a writer, open would wait */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return PL_FAIL(errno == ENOENT || errno == ENOTDIR ? POLAR_E_ARG : POLAR_E_IO, "%s: %s", path,
                       strerror(errno));
    polar_status st = read_all(b, fd, path, most);
    close(fd);
    return st;
}

void pl_file_bytes_drop(pl_file_bytes *b)
{
    pl_free(b->data);
    *b = (pl_file_bytes){0};
}
