/* so3_shadow.c -- gauge shadows of a run: one per slot over its matrix-route blocks, rows kept until the
 * laboratory takes them. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/pattern.h"
#include "lab/so3/so3_train.h"

/* What this slot's optimiser puts on the matrix route, as far as gauge.blocks names it. */
static int shadowed(const pl_so3_slot *s, const pl_param *p)
{
    return p->ndim >= 2 && pl_pattern_match(s->set.optim.matrix_names, p->name) &&
           pl_pattern_match(s->set.gauge_blocks, p->name);
}

static int64_t find_blocks(pl_gauge_block *out, const pl_train *t, const pl_so3_slot *s, int64_t slot)
{
    int64_t n = 0;
    for (int64_t i = 0; i < t->param_count; i++) {
        const pl_param *p = &t->params[i];
        if (shadowed(s, p)) out[n++] = (pl_gauge_block){.name = p->name, .G = pl_mat_at(p->G, slot, 1)};
    }
    return n;
}

int64_t pl_so3_shadow_rotations(const pl_train *t)
{
    int64_t count = 0;
    for (int64_t i = 0; i < t->members; i++) {
        const pl_so3_slot *s = &t->slots[i];
        for (int64_t k = 0; s->set.shadows && k < t->param_count; k++)
            count += shadowed(s, &t->params[k]) ? 2 * s->set.shadows : 0;
    }
    return count;
}

polar_status pl_so3_shadow_create(pl_train *t, pl_so3_slot *s)
{
    if (!s->set.shadows) return POLAR_OK;
    pl_gauge_opts o = {.rule = s->set.optim.rule,
                       .maps = s->set.gauge_maps,
                       .seed = s->seed,
                       .shadows = s->set.shadows,
                       .dtype = s->set.gauge_dtype,
                       .drawn = pl_so3_rotation_drawn,
                       .drawn_arg = t};
    pl_gauge_block *blocks = pl_calloc((size_t)t->param_count, sizeof *blocks);
    PL_NEED(blocks, POLAR_E_NOMEM, "a list of blocks to shadow");
    s->shadow_blocks = find_blocks(blocks, t, s, s - t->slots);
    polar_status st =
        s->shadow_blocks
            ? POLAR_OK
            : PL_FAIL(POLAR_E_ARG,
                      "gauge.blocks '%s' names no parameter of the matrix route (route.matrix '%s')",
                      s->set.gauge_blocks, s->set.optim.matrix_names);
    if (st == POLAR_OK) st = pl_gauge_shadow_create(&s->shadow, t->dev, t->q, blocks, s->shadow_blocks, &o);
    pl_free(blocks);
    if (st != POLAR_OK) return st;
    s->deviation = pl_calloc((size_t)(pl_gauge_shadow_maps(s->shadow) * s->shadow_blocks * s->set.shadows),
                             sizeof *s->deviation);
    PL_NEED(s->deviation, POLAR_E_NOMEM, "a measurement of %lld blocks", (long long)s->shadow_blocks);
    return POLAR_OK;
}

void pl_so3_shadow_destroy(pl_so3_slot *s)
{
    pl_gauge_shadow_destroy(s->shadow);
    pl_free(s->deviation);
    pl_free(s->rows);
}

static polar_status make_room(pl_so3_slot *s, int64_t more)
{
    if (s->count + more <= s->room) return POLAR_OK;
    int64_t room = 2 * (s->count + more);
    pl_gauge_row *rows = pl_realloc(s->rows, (size_t)s->room * sizeof *rows, (size_t)room * sizeof *rows);
    PL_NEED(rows, POLAR_E_NOMEM, "%lld rows of gauge deviations", (long long)room);
    s->rows = rows;
    s->room = room;
    return POLAR_OK;
}

static polar_status keep_rows(pl_so3_slot *s, int64_t step)
{
    int64_t maps = pl_gauge_shadow_maps(s->shadow);
    const double *from = s->deviation;
    PL_TRY(make_room(s, maps * s->shadow_blocks * s->set.shadows));
    for (int64_t k = 0; k < maps; k++)
        for (int64_t b = 0; b < s->shadow_blocks; b++)
            for (int64_t j = 0; j < s->set.shadows; j++) {
                pl_gauge_row *r = &s->rows[s->count++];
                *r = (pl_gauge_row){.step = step, .shadow = j, .deviation = *from++};
                snprintf(r->block, sizeof r->block, "%s", pl_gauge_shadow_block(s->shadow, b));
                snprintf(r->map, sizeof r->map, "%s", pl_gauge_shadow_map(s->shadow, k));
            }
    return POLAR_OK;
}

/* Singular values of gradients and directions, in the place of a map's deviations. */
static polar_status keep_spectra(pl_train *t, pl_so3_slot *s, int64_t step)
{
    static const char *const names[] = {
        [PL_GAUGE_GRADIENT] = PL_SPECTRUM "gradient", [PL_GAUGE_DIRECTION] = PL_SPECTRUM "direction"};
    for (int64_t b = 0; b < s->shadow_blocks; b++)
        for (int of = PL_GAUGE_GRADIENT; of <= PL_GAUGE_DIRECTION; of++) {
            int64_t rank = pl_gauge_shadow_rank(s->shadow, b);
            double *values = pl_alloc((size_t)rank * sizeof *values);
            PL_NEED(values, POLAR_E_NOMEM, "%lld singular values", (long long)rank);
            polar_status st = pl_gauge_shadow_values(values, s->shadow, t->q, b, (pl_gauge_spectrum)of);
            if (st == POLAR_OK) st = make_room(s, rank);
            for (int64_t k = 0; k < rank && st == POLAR_OK; k++) {
                pl_gauge_row *r = &s->rows[s->count++];
                *r = (pl_gauge_row){.step = step, .shadow = k, .deviation = values[k]};
                snprintf(r->block, sizeof r->block, "%s", pl_gauge_shadow_block(s->shadow, b));
                snprintf(r->map, sizeof r->map, "%s", names[of]);
            }
            pl_free(values);
            PL_TRY(st);
        }
    return POLAR_OK;
}

polar_status pl_so3_shadow_step(pl_train *t, pl_so3_slot *s, int64_t step)
{
    if (!s->shadow || s->stop.end != PL_END_NOT) return POLAR_OK;
    PL_TRY(pl_gauge_shadow_step(s->shadow, t->q));
    if (!pl_gauge_step_wanted(step, s->set.gauge_every)) return POLAR_OK;
    PL_TRY(pl_gauge_shadow_measure(s->deviation, s->shadow, t->q));
    PL_TRY(keep_rows(s, step));
    return s->set.spectra ? keep_spectra(t, s, step) : POLAR_OK;
}

polar_status pl_so3_shadow_take(pl_train *t, int64_t member, pl_gauge_row *out, int max, int *count)
{
    pl_so3_slot *s = &t->slots[t->slot_of[member]];
    int64_t n = s->count - s->taken < max ? s->count - s->taken : max;
    if (n > 0) memcpy(out, s->rows + s->taken, (size_t)n * sizeof *out);
    s->taken += n;
    if (s->taken == s->count) s->taken = s->count = 0;
    *count = (int)n;
    return POLAR_OK;
}
