/* store_checkpoint.c -- the checkpoints beside a store, and whose they are.
 *
 * A file is named after one run, its bearer, and says in its metadata (polar.runs) which runs it holds. One
 * that cannot be read, or whose bearer is not among its runs, counts as its bearer's alone, who will find
 * out. Headers only are read: what is damaged behind them is found when a run goes on from it.
 */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json_read.h"
#include "base/safetensors.h"
#include "store/store_impl.h"

int pl_store_is_checkpoint(char id[PL_RUN_ID_CHARS], const char *file)
{
    size_t n = strlen(file), tail = strlen(PL_STORE_CHECKPOINT);
    if (n < PL_RUN_ID_CHARS - 1 + tail || strcmp(file + n - tail, PL_STORE_CHECKPOINT)) return 0;
    snprintf(id, PL_RUN_ID_CHARS, "%.*s", PL_RUN_ID_CHARS - 1, file);
    return strspn(id, "0123456789abcdef") == PL_RUN_ID_CHARS - 1;
}

/* The runs of the file at path, by blanks. */
static polar_status runs_of(char **out, const char *path, const char *bearer)
{
    pl_safetensors *f = NULL;
    polar_status st = pl_safetensors_open_header(&f, path);
    const char *runs = st == POLAR_OK ? pl_safetensors_meta_find(f, "polar.runs") : NULL;
    *out = NULL;
    if (st != POLAR_E_NOMEM) {
        *out = pl_strdup(runs && strstr(runs, bearer) ? runs : bearer);
        st = *out ? POLAR_OK : PL_FAIL(POLAR_E_NOMEM, "the runs of a checkpoint");
    }
    pl_safetensors_close(f);
    return st;
}

static polar_status add(void *arg, const char *path, const char *bearer, int *more_files)
{
    pl_store_checkpoints *list = arg;
    (void)more_files;
    size_t bytes = sizeof *list->rows, n = (size_t)list->count;
    void *more = pl_realloc(list->rows, n * bytes, (n + 1) * bytes);
    PL_NEED(more, POLAR_E_NOMEM, "a list of checkpoints");
    list->rows = more;
    pl_store_checkpoint *c = &list->rows[list->count++];
    *c = (pl_store_checkpoint){.path = pl_strdup(path)};
    snprintf(c->bearer, sizeof c->bearer, "%s", bearer);
    PL_NEED(c->path, POLAR_E_NOMEM, "a list of checkpoints");
    PL_TRY(runs_of(&c->runs, path, bearer));
    c->count = (int64_t)(strlen(c->runs) + 1) / PL_RUN_ID_CHARS;
    return POLAR_OK;
}

polar_status pl_store_each_checkpoint(pl_store *s, pl_checkpoint_fn fn, void *arg)
{
    size_t room = strlen(s->path) + 300;
    char *path = pl_alloc(room), bearer[PL_RUN_ID_CHARS];
    int more = 1;
    PL_NEED(path, POLAR_E_NOMEM, "a path");
    snprintf(path, room, "%s.d", s->path);
    DIR *dir = opendir(path);
    polar_status st = dir || errno == ENOENT ? POLAR_OK
                                             : PL_FAIL(POLAR_E_IO, "read the folder '%s': %s",
                                                       pl_text_shown(path).text, strerror(errno));
    for (struct dirent *e; st == POLAR_OK && more && dir && (e = readdir(dir));) {
        if (!pl_store_is_checkpoint(bearer, e->d_name)) continue;
        snprintf(path, room, "%s.d/%s", s->path, e->d_name);
        st = fn(arg, path, bearer, &more);
    }
    if (dir) closedir(dir);
    pl_free(path);
    return st;
}

polar_status pl_store_list_checkpoints(pl_store_checkpoints *out, pl_store *s)
{
    *out = (pl_store_checkpoints){0};
    polar_status st = pl_store_each_checkpoint(s, add, out);
    if (st != POLAR_OK) pl_store_checkpoints_free(out);
    return st;
}

void pl_store_checkpoints_free(pl_store_checkpoints *x)
{
    for (int64_t i = 0; i < x->count; i++) {
        pl_free(x->rows[i].path);
        pl_free(x->rows[i].runs);
    }
    pl_free(x->rows);
    *x = (pl_store_checkpoints){0};
}

const pl_store_checkpoint *pl_store_checkpoint_of(const pl_store_checkpoints *list, const char *id)
{
    const pl_store_checkpoint *best = NULL;
    for (int64_t i = 0; i < list->count; i++) {
        const pl_store_checkpoint *c = &list->rows[i];
        if (strstr(c->runs, id) && (!best || c->count < best->count)) best = c;
    }
    return best;
}
