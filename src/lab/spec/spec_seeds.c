/* spec_seeds.c -- seeds as people write them, "7" and "0..99", in files and in --set. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json_read.h"
#include "lab/spec/spec_impl.h"

/* Digits only; stops behind them. */
static int read_seed(int64_t *out, const char **text)
{
    int64_t v = 0;
    const char *p = *text;
    for (; *p >= '0' && *p <= '9'; p++) {
        v = 10 * v + (*p - '0');
        if (v > PL_SPEC_MAX_SEED) return 0;
    }
    if (p == *text) return 0;
    *text = p;
    *out = v;
    return 1;
}

static polar_status append(pl_seed_list *l, int64_t first, int64_t last, int line)
{
    int64_t want = l->count + (last - first + 1);
    if (want > l->room) {
        int64_t room = 2 * want;
        void *items =
            pl_realloc(l->items, (size_t)l->room * sizeof *l->items, (size_t)room * sizeof *l->items);
        PL_NEED(items, POLAR_E_NOMEM, "a list of %lld seeds", (long long)want);
        l->items = items;
        l->room = room;
    }
    for (int64_t seed = first; seed <= last; seed++, l->count++)
        l->items[l->count] = (struct pl_seed_entry){seed, line, l->count};
    return POLAR_OK;
}

polar_status pl_seeds_add(pl_seed_list *l, char why[PL_WHY_CHARS], const char *text, int line)
{
    int64_t first = 0, last = 0;
    const char *p = text;
    int ok = read_seed(&first, &p);
    last = first;
    if (ok && !strncmp(p, "..", 2)) {
        p += 2;
        ok = read_seed(&last, &p);
    }
    if (!ok || *p) {
        snprintf(why, PL_WHY_CHARS, "seeds wants whole numbers from 0 to %lld: 7, 0..99 or [42, 7], got '%s'",
                 (long long)PL_SPEC_MAX_SEED, pl_text_shown(text).text);
        return POLAR_E_FORMAT;
    }
    if (last < first) {
        snprintf(why, PL_WHY_CHARS, "seeds '%s' ends before it begins", pl_text_shown(text).text);
        return POLAR_E_FORMAT;
    }
    if (last - first >= PL_SPEC_MAX_SEEDS - l->count) {
        snprintf(why, PL_WHY_CHARS, "more than %d seeds", PL_SPEC_MAX_SEEDS);
        return POLAR_E_FORMAT;
    }
    return append(l, first, last, line);
}

static int by_seed(const void *a, const void *b)
{
    const struct pl_seed_entry *x = a, *y = b;
    if (x->seed != y->seed) return x->seed < y->seed ? -1 : 1;
    return x->place < y->place ? -1 : 1;
}

polar_status pl_seeds_take(pl_spec *s, pl_seed_list *l, char why[PL_WHY_CHARS], int *line)
{
    int64_t *seeds = pl_calloc((size_t)l->count + 1, sizeof *seeds);
    PL_NEED(seeds, POLAR_E_NOMEM, "a list of %lld seeds", (long long)l->count);
    for (int64_t i = 0; i < l->count; i++) seeds[i] = l->items[i].seed;
    qsort(l->items, (size_t)l->count, sizeof *l->items, by_seed);
    for (int64_t i = 1; i < l->count; i++) {
        if (l->items[i].seed != l->items[i - 1].seed) continue;
        snprintf(why, PL_WHY_CHARS, "seed %lld is given twice", (long long)l->items[i].seed);
        *line = l->items[i].line;
        pl_free(seeds);
        return POLAR_E_FORMAT;
    }
    pl_free(s->seeds);
    s->seeds = seeds;
    s->seed_count = l->count;
    return POLAR_OK;
}
