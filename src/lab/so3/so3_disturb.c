/* so3_disturb.c -- see so3_disturb.h; and the updates of a training, disturbed.
 *
 * The optimiser steps W to W + U. We add what is missing to W + D', D' the disturbed U, on the host: numbers
 * depend on the run's seed and step alone, not on its mates or the device's order of draws. Without weight
 * decay, which is no part of the update, W + U - W is U but for the rounding of W.
 */
#include "lab/so3/so3_disturb.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/pattern.h"
#include "base/philox.h"
#include "lab/so3/so3_train.h"

#define NUMBERS 4096 /* more than there are parameters: a step's draws have coordinates of their own */

/* ---- one update --------------------------------------------------------------------------------- */

/* The rows in a random order: neighbours are turned together. */
static void pair_rows(int64_t *order, int64_t rows, uint64_t seed, uint64_t at)
{
    for (int64_t i = 0; i < rows; i++) order[i] = i;
    for (int64_t i = rows - 1; i > 0; i--) {
        pl_u4 r = pl_philox(seed, PL_STREAM_DISTURB, at, (uint64_t)i);
        int64_t j = (int64_t)((((uint64_t)r.x << 32) | r.y) % (uint64_t)(i + 1)), swap = order[i];
        order[i] = order[j];
        order[j] = swap;
    }
}

static void turn_rows(double *D, int64_t rows, int64_t cols, double angle, const int64_t *order,
                      uint64_t seed, uint64_t at)
{
    double c = cos(angle), s = sin(angle);
    for (int64_t i = 0; i + 1 < rows; i += 2) {
        double *x = D + order[i] * cols, *y = D + order[i + 1] * cols;
        double way = pl_philox(seed, PL_STREAM_DISTURB, at, (uint64_t)(rows + i)).x & 1 ? s : -s;
        for (int64_t k = 0; k < cols; k++) {
            double a = x[k], b = y[k];
            x[k] = c * a - way * b;
            y[k] = way * a + c * b;
        }
    }
}

static void add_signs(double *D, int64_t n, double size, uint64_t seed, uint64_t at)
{
    for (int64_t i = 0; i < n; i += 32) {
        uint32_t bits = pl_philox(seed, PL_STREAM_DISTURB, at, (uint64_t)(i / 32) | UINT64_C(1) << 62).x;
        for (int64_t k = 0; k < 32 && i + k < n; k++) D[i + k] += bits >> k & 1 ? size : -size;
    }
}

polar_status pl_disturb_update(double *D, int64_t rows, int64_t cols, const pl_disturb *how, uint64_t seed,
                               int64_t number, int64_t step)
{
    double sum = 0;
    for (int64_t i = 0; i < rows * cols; i++) sum += D[i] * D[i];
    if (how->turn != 0) {
        int64_t drawn = how->redraw ? (step - 1) / how->redraw : 0;
        uint64_t at = (uint64_t)(drawn * NUMBERS + number);
        int64_t *order = pl_alloc((size_t)rows * sizeof *order);
        PL_NEED(order, POLAR_E_NOMEM, "the rows of an update");
        pair_rows(order, rows, seed, at);
        turn_rows(D, rows, cols, how->turn, order, seed, at);
        pl_free(order);
    }
    if (how->noise != 0)
        add_signs(D, rows * cols, how->noise * sqrt(sum / (double)(rows * cols)), seed,
                  (uint64_t)(step * NUMBERS + number));
    return POLAR_OK;
}

/* ---- a training --------------------------------------------------------------------------------- */

static int is_disturbed(const pl_so3_slot *s)
{
    return s->set.disturb.noise != 0 || s->set.disturb.turn != 0;
}

static int any_disturbed(const pl_train *t)
{
    int any = 0;
    for (int64_t i = 0; i < t->members; i++)
        any |= is_disturbed(&t->slots[i]) && t->slots[i].stop.end == PL_END_NOT;
    return any;
}

/* The matrices of some slot's route, of all members: (members, rows, cols). */
static polar_status copy_all(pl_train *t, int up)
{
    char *at = t->disturbed;
    for (int64_t i = 0; i < t->param_count; i++) {
        const pl_param *p = &t->params[i];
        size_t bytes = pl_mat_bytes(&p->W);
        if (p->ndim < 2) continue;
        if (up) polar_queue_upload(t->q, p->W.data, at, bytes);
        else polar_queue_download(t->q, at, p->W.data, bytes);
        at += bytes;
    }
    return polar_queue_sync(t->q);
}

polar_status pl_so3_disturb_begin(pl_train *t)
{
    size_t bytes = 0, most = 0;
    if (!any_disturbed(t)) return POLAR_OK;
    for (int64_t i = 0; i < t->param_count; i++) {
        const pl_param *p = &t->params[i];
        if (p->ndim < 2) continue;
        bytes += pl_mat_bytes(&p->W);
        most = (size_t)(p->rows * p->cols) > most ? (size_t)(p->rows * p->cols) : most;
    }
    if (!t->disturbed) {
        t->disturbed = pl_alloc(bytes);
        t->before = pl_alloc(bytes);
        t->update = pl_alloc(most * sizeof *t->update);
    }
    PL_NEED(t->disturbed && t->before && t->update, POLAR_E_NOMEM, "%zu bytes of weights", bytes);
    if (!t->before_good) PL_TRY(copy_all(t, 0));
    memcpy(t->before, t->disturbed, bytes);
    return POLAR_OK;
}

/* Numbers [first, first + n) of the image: the slot's matrix before and after the step. */
static polar_status disturb_one(pl_train *t, const pl_so3_slot *s, const pl_param *p, int64_t number,
                                char *after, const char *before, int64_t step)
{
    int64_t n = p->rows * p->cols;
    int wide = p->W.dtype == POLAR_DTYPE_F64;
    const float *from = (const float *)(const void *)before;
    const double *from_wide = (const double *)(const void *)before;
    float *to = (float *)(void *)after;
    double *to_wide = (double *)(void *)after;
    for (int64_t k = 0; k < n; k++)
        t->update[k] = wide ? to_wide[k] - from_wide[k] : (double)to[k] - (double)from[k];
    PL_TRY(pl_disturb_update(t->update, p->rows, p->cols, &s->set.disturb, s->seed, number, step));
    for (int64_t k = 0; k < n; k++) {
        if (wide) to_wide[k] = from_wide[k] + t->update[k];
        else to[k] = (float)((double)from[k] + t->update[k]);
    }
    return POLAR_OK;
}

polar_status pl_so3_disturb_end(pl_train *t, int64_t step)
{
    if (!any_disturbed(t)) return POLAR_OK;
    PL_TRY(copy_all(t, 0));
    char *after = t->disturbed;
    const char *before = t->before;
    for (int64_t i = 0; i < t->param_count; i++) {
        const pl_param *p = &t->params[i];
        if (p->ndim < 2) continue;
        size_t each = pl_mat_bytes(&p->W) / (size_t)t->members;
        for (int64_t k = 0; k < t->members; k++, after += each, before += each) {
            const pl_so3_slot *s = &t->slots[k];
            if (is_disturbed(s) && s->stop.end == PL_END_NOT &&
                pl_pattern_match(s->set.optim.matrix_names, p->name))
                PL_TRY(disturb_one(t, s, p, i, after, before, step));
        }
    }
    t->before_good = 1;
    return copy_all(t, 1);
}
