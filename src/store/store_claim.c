/* store_claim.c -- who works on a run (locks in "<store>.lock") and where its checkpoint lies ("<store>.d/").
 *
 * A claim is a lock of one byte of the lock file, at an offset made of the run's id. It belongs to the open
 * file of this connection (Linux: F_OFD_SETLK), so two connections of one process exclude each other like two
 * processes, and the kernel drops it with the last descriptor, whatever ends the process.
 *
 * Invariants:
 *  1. The lock file is never removed or renamed: two processes always lock the same file.
 *  2. A claim says nothing about the run's state: who claims reads the state afterwards.
 *  3. Files in "<store>.d/" that begin with a run's id are written and removed only by who has claimed it.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/json_read.h"
#include "store/store_impl.h"

/* ---- claims ------------------------------------------------------------------------------------- */

/* The id's first 60 bits: of a million runs two meet with a chance of 1 in 2 million, and then only wait for
 * each other. */
static int64_t offset_of(const char *id)
{
    int64_t offset = 0;
    for (int i = 0; i < 15 && id[i]; i++) {
        int c = (unsigned char)id[i];
        offset = offset * 16 + (c <= '9' ? c - '0' : (c | 32) - 'a' + 10);
    }
    return offset & INT64_C(0x0fffffffffffffff);
}

polar_status pl_store_claim(pl_store *s, const char *id, int *mine)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = offset_of(id), .l_len = 1};
    *mine = 0;
    PL_NEED(s->lock_fd >= 0, POLAR_E_STATE, "the store '%s' was opened for reading",
            pl_text_shown(s->path).text);
    while (fcntl(s->lock_fd, F_OFD_SETLK, &lock) != 0) {
        if (errno == EAGAIN || errno == EACCES) return POLAR_OK;
        if (errno != EINTR)
            return PL_FAIL(POLAR_E_IO, "lock in '%s.lock': %s (keep the store on a local disk)",
                           pl_text_shown(s->path).text, strerror(errno));
    }
    *mine = 1;
    return POLAR_OK;
}

void pl_store_release(pl_store *s, const char *id)
{
    struct flock lock = {.l_type = F_UNLCK, .l_whence = SEEK_SET, .l_start = offset_of(id), .l_len = 1};
    if (s->lock_fd >= 0) (void)fcntl(s->lock_fd, F_OFD_SETLK, &lock);
}

/* ---- checkpoints -------------------------------------------------------------------------------- */

/* "<store>.d", and "/<name><tail>" where there is a name. */
static polar_status place(char **out, const pl_store *s, const char *name, const char *tail)
{
    size_t bytes = strlen(s->path) + strlen(name) + strlen(tail) + 8;
    *out = pl_alloc(bytes);
    PL_NEED(*out, POLAR_E_NOMEM, "a path");
    snprintf(*out, bytes, "%s.d%s%s%s", s->path, *name ? "/" : "", name, tail);
    return POLAR_OK;
}

polar_status pl_store_checkpoint_path(char **out, pl_store *s, const char *name)
{
    char *folder = NULL;
    *out = NULL;
    PL_TRY(place(&folder, s, "", ""));
    polar_status st = mkdir(folder, 0777) == 0 || errno == EEXIST
                          ? POLAR_OK
                          : PL_FAIL(POLAR_E_IO, "make the folder '%s' for checkpoints: %s",
                                    pl_text_shown(folder).text, strerror(errno));
    pl_free(folder);
    return st == POLAR_OK ? place(out, s, name, PL_STORE_CHECKPOINT) : st;
}

/* A file that belongs to the checkpoint `name`: "<name>.safetensors", "<name>.safetensors.tmp.7.0",
 * "<name>-..." */
static int belongs(const char *file, const char *name)
{
    size_t n = strlen(name);
    return !strncmp(file, name, n) &&
           (file[n] == '-' || !strncmp(file + n, PL_STORE_CHECKPOINT, strlen(PL_STORE_CHECKPOINT)));
}

polar_status pl_store_remove_checkpoints(pl_store *s, const char *name)
{
    char *folder = NULL;
    polar_status st = POLAR_OK;
    PL_TRY(place(&folder, s, "", ""));
    DIR *dir = opendir(folder);
    if (!dir && errno != ENOENT)
        st = PL_FAIL(POLAR_E_IO, "read the folder '%s': %s", pl_text_shown(folder).text, strerror(errno));
    for (struct dirent *e; st == POLAR_OK && dir && (e = readdir(dir));)
        if (belongs(e->d_name, name) && unlinkat(dirfd(dir), e->d_name, 0) != 0 && errno != ENOENT)
            st = PL_FAIL(POLAR_E_IO, "remove the checkpoint '%s' in '%s': %s", pl_text_shown(e->d_name).text,
                         pl_text_shown(folder).text, strerror(errno));
    if (dir) closedir(dir);
    pl_free(folder);
    return st;
}

static polar_status sweep_one(pl_store *s, const char *id)
{
    pl_run_state state = PL_RUN_PLANNED;
    int mine = 0;
    /* no run of ours: leave it */
    if (pl_store_run_state(s, id, &state, NULL) != POLAR_OK || state == PL_RUN_PLANNED) return POLAR_OK;
    PL_TRY(pl_store_claim(s, id, &mine));
    if (!mine) return POLAR_OK;
    polar_status st = pl_store_remove_checkpoints(s, id);
    pl_store_release(s, id);
    return st;
}

polar_status pl_store_sweep(pl_store *s)
{
    char *folder = NULL, id[PL_RUN_ID_CHARS];
    polar_status st = POLAR_OK;
    PL_TRY(place(&folder, s, "", ""));
    DIR *dir = opendir(folder);
    for (struct dirent *e; st == POLAR_OK && dir && (e = readdir(dir));) {
        if (strlen(e->d_name) < sizeof id) continue;
        memcpy(id, e->d_name, sizeof id - 1);
        id[sizeof id - 1] = 0;
        if (belongs(e->d_name, id)) st = sweep_one(s, id);
    }
    if (dir) closedir(dir);
    pl_free(folder);
    return st;
}
