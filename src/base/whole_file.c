/* whole_file.c -- open with O_EXCL, write, fsync, rename, fsync of the folder. */
#include "base/whole_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"

#define MOST_AT_ONCE ((size_t)1 << 30)    /* Linux takes less than 2^31 bytes in one call */

polar_status pl_write_all(int fd, const void *bytes, size_t n, const char *path)
{
    const char *from = bytes;
    while (n > 0) {
        ssize_t taken = write(fd, from, n < MOST_AT_ONCE ? n : MOST_AT_ONCE);
        if (taken < 0 && errno == EINTR) continue;
        PL_NEED(taken > 0, POLAR_E_IO, "write '%s': %s", path, taken ? strerror(errno) : "nothing was taken");
        from += taken, n -= (size_t)taken;
    }
    return POLAR_OK;
}

static polar_status open_temp(pl_whole_file *w)
{
    struct stat info;
    size_t room = strlen(w->path) + 48;
    int other = stat(w->path, &info) == 0 && !S_ISREG(info.st_mode);
    PL_NEED(!other, POLAR_E_ARG, "'%s' is there and not a regular file: a rename would replace it", w->path);
    w->temp = pl_alloc(room);
    PL_NEED(w->temp, POLAR_E_NOMEM, "the name of '%s'", w->path);
    for (int i = 0; i < 1000; i++) {
        snprintf(w->temp, room, "%s.tmp.%ld.%d", w->path, (long)getpid(), i);
        w->fd = open(w->temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (w->fd >= 0 || errno != EEXIST) break;
    }
    int lost = errno == ENOENT || errno == ENOTDIR, wrong = lost || errno == ENAMETOOLONG;
    PL_NEED(w->fd >= 0, wrong ? POLAR_E_ARG : POLAR_E_IO, "create '%s': %s%s", w->path, strerror(errno), lost ? " (there is no folder for it)" : "");
    return POLAR_OK;
}

polar_status pl_whole_file_begin(pl_whole_file *w, const char *path)
{
    *w = (pl_whole_file){.fd = -1, .path = path};
    polar_status st = open_temp(w);
    if (st != POLAR_OK) pl_free(w->temp);
    return st;
}

/* The new name outlives a power cut once its folder is synced. The file is whole either way: what cannot be synced is let be. */
static void sync_folder(char *path)
{
    char *slash = strrchr(path, '/');
    if (slash) slash[slash == path] = 0;
    int fd = open(slash ? path : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return;
    fsync(fd);
    close(fd);
}

polar_status pl_whole_file_end(pl_whole_file *w, polar_status st)
{
    if (st == POLAR_OK && fsync(w->fd) != 0) st = PL_FAIL(POLAR_E_IO, "sync '%s': %s", w->path, strerror(errno));
    if (close(w->fd) != 0 && st == POLAR_OK) st = PL_FAIL(POLAR_E_IO, "close '%s': %s", w->path, strerror(errno));
    if (st == POLAR_OK && rename(w->temp, w->path) != 0) st = PL_FAIL(POLAR_E_IO, "rename '%s' to '%s': %s", w->temp, w->path, strerror(errno));
    if (st == POLAR_OK) sync_folder(w->temp);
    else unlink(w->temp);
    pl_free(w->temp);
    return st;
}
