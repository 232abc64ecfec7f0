/* whole_file.c -- open with O_EXCL, write, fsync, rename, fsync of the folder. */
#include "base/whole_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"

#define MOST_AT_ONCE ((size_t)1 << 30) /* Linux takes less than 2^31 bytes in one call */

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

#define MOST_LINKS 40 /* as the kernel follows */

/* One link on: *path becomes what it says, seen from its folder. *link: it was one. */
static polar_status follow(char **path, int *link)
{
    struct stat info;
    char to[4096];
    *link = lstat(*path, &info) == 0 && S_ISLNK(info.st_mode);
    if (!*link) return POLAR_OK;
    ssize_t n = readlink(*path, to, sizeof to - 1);
    PL_NEED(n > 0, POLAR_E_IO, "read the link '%s': %s", *path, strerror(errno));
    to[n] = 0;
    const char *slash = strrchr(*path, '/');
    size_t folder = to[0] == '/' || !slash ? 0 : (size_t)(slash + 1 - *path);
    char *next = pl_alloc(folder + (size_t)n + 1);
    PL_NEED(next, POLAR_E_NOMEM, "a path");
    memcpy(next, *path, folder);
    memcpy(next + folder, to, (size_t)n + 1);
    pl_free(*path);
    *path = next;
    return POLAR_OK;
}

polar_status pl_whole_file_target(char **out, const char *path)
{
    int link = 1;
    char *at = pl_strdup(path);
    polar_status st = at ? POLAR_OK : PL_FAIL(POLAR_E_NOMEM, "a path");
    for (int i = 0; st == POLAR_OK && link; i++)
        st = i < MOST_LINKS ? follow(&at, &link)
                            : PL_FAIL(POLAR_E_ARG, "'%s': its links lead in a circle", path);
    *out = st == POLAR_OK ? at : NULL;
    if (st != POLAR_OK) pl_free(at);
    return st;
}

/* The new file gets the old one's mode and owner. Where we may not give it away, it is ours, and runs as
 * nobody else. */
static polar_status take_over(const pl_whole_file *w, const struct stat *old)
{
    mode_t mode = old->st_mode & 07777;
    struct stat now;
    PL_NEED(fstat(w->fd, &now) == 0, POLAR_E_IO, "look at '%s': %s", w->temp, strerror(errno));
    int same_owner = now.st_uid == old->st_uid && now.st_gid == old->st_gid;
    if (!same_owner && fchown(w->fd, old->st_uid, old->st_gid) != 0) mode &= 0777;
    /* some file systems have one mode for all */
    int fits = (now.st_mode & 07777) == mode || fchmod(w->fd, mode) == 0;
    PL_NEED(fits, POLAR_E_IO, "give '%s' the mode of the old file: %s", w->path, strerror(errno));
    return POLAR_OK;
}

static polar_status open_temp(pl_whole_file *w)
{
    struct stat info;
    PL_TRY(pl_whole_file_target(&w->target, w->path));
    size_t room = strlen(w->target) + 48;
    int there = stat(w->target, &info) == 0;
    PL_NEED(!there || S_ISREG(info.st_mode), POLAR_E_ARG,
            "'%s' is there and not a regular file: a rename would replace it", w->path);
    w->temp = pl_alloc(room);
    PL_NEED(w->temp, POLAR_E_NOMEM, "the name of '%s'", w->path);
    for (int i = 0; i < 1000; i++) {
        snprintf(w->temp, room, "%s.tmp.%ld.%d", w->target, (long)getpid(), i);
        w->fd = open(w->temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, there ? 0600 : 0666);
        if (w->fd >= 0 || errno != EEXIST) break;
    }
    int lost = errno == ENOENT || errno == ENOTDIR, wrong = lost || errno == ENAMETOOLONG;
    PL_NEED(w->fd >= 0, wrong ? POLAR_E_ARG : POLAR_E_IO, "create '%s': %s%s", w->path, strerror(errno),
            lost ? " (there is no folder for it)" : "");
    polar_status st = there ? take_over(w, &info) : POLAR_OK;
    if (st == POLAR_OK) return POLAR_OK;
    close(w->fd);
    unlink(w->temp);
    return st;
}

polar_status pl_whole_file_begin(pl_whole_file *w, const char *path)
{
    *w = (pl_whole_file){.fd = -1, .path = path};
    polar_status st = open_temp(w);
    if (st != POLAR_OK) {
        pl_free(w->temp);
        pl_free(w->target);
    }
    return st;
}

/* The new name outlives a power cut once its folder is synced. The file is whole either way: what cannot be
 * synced is let be. */
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
    if (st == POLAR_OK && fsync(w->fd) != 0)
        st = PL_FAIL(POLAR_E_IO, "sync '%s': %s", w->path, strerror(errno));
    if (close(w->fd) != 0 && st == POLAR_OK)
        st = PL_FAIL(POLAR_E_IO, "close '%s': %s", w->path, strerror(errno));
    if (st == POLAR_OK && rename(w->temp, w->target) != 0)
        st = PL_FAIL(POLAR_E_IO, "rename '%s' to '%s': %s", w->temp, w->target, strerror(errno));
    if (st == POLAR_OK) sync_folder(w->temp);
    else unlink(w->temp);
    pl_free(w->temp);
    pl_free(w->target);
    return st;
}
