/* optim_state_file.h -- an optimiser's state files in a test: compared entry by entry, and made older than
 * they are. */
#ifndef POLAR_OPTIM_STATE_FILE_H
#define POLAR_OPTIM_STATE_FILE_H

#include <unistd.h>

#include "base/safetensors.h"
#include "fixtures/optim_fixture.h"

#define STATE_MOST 64 /* entries of a file */

static inline const char *state_path(int which)
{
    static char path[2][96];
    snprintf(path[which], sizeof path[which], "/tmp/polar_state_%ld_%d.safetensors", (long)getpid(), which);
    return path[which];
}

static inline void state_files_remove(void)
{
    for (int i = 0; i < 2; i++) remove(state_path(i));
}

static inline int ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n >= m && !strcmp(text + n - m, end);
}

/* Bytes of moments, masters and (unless `moments` only) step counts that differ; -1: other entries. */
static inline int64_t state_mismatches(optim_rig *a, optim_rig *b, int moments)
{
    pl_safetensors *x, *y;
    int64_t bad = 0;
    TEST_TRY(polar_optim_save(a->opt, a->q, state_path(0)));
    TEST_TRY(polar_optim_save(b->opt, b->q, state_path(1)));
    TEST_TRY(pl_safetensors_open(&x, state_path(0)));
    TEST_TRY(pl_safetensors_open(&y, state_path(1)));
    for (int64_t i = 0; i < pl_safetensors_count(x); i++) {
        const pl_safetensors_entry *e = pl_safetensors_view(x, i), *f = pl_safetensors_find(y, e->name);
        if (moments && ends_with(e->name, ".step")) continue;
        if (!f || f->bytes != e->bytes) bad = -1;
        for (int64_t k = 0; bad >= 0 && k < e->bytes; k++)
            bad += ((const char *)e->data)[k] != ((const char *)f->data)[k];
    }
    pl_safetensors_close(x);
    pl_safetensors_close(y);
    state_files_remove();
    return bad;
}

/* The file as a library without groups and step counts would have written it. */
static inline void state_file_age(const char *path)
{
    static const char *const keys[] = {"polar.optim", "polar.rule", "polar.step", "polar.members"};
    pl_safetensors *f;
    pl_safetensors_entry entries[STATE_MOST];
    pl_safetensors_meta meta[4];
    int64_t n = 0;
    TEST_TRY(pl_safetensors_open(&f, path));
    for (int64_t i = 0; i < pl_safetensors_count(f) && n < STATE_MOST; i++)
        if (!ends_with(pl_safetensors_view(f, i)->name, ".step")) entries[n++] = *pl_safetensors_view(f, i);
    for (int i = 0; i < 4; i++)
        meta[i] = (pl_safetensors_meta){.key = keys[i], .value = pl_safetensors_meta_find(f, keys[i])};
    TEST_TRY(pl_safetensors_write(state_path(1), entries, n, meta, 4));
    pl_safetensors_close(f);
    if (rename(state_path(1), path)) exit(1);
}

#endif
