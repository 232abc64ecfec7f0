/* so3_turned.c -- training in rotated coordinates (model.coordinates: rotated).
 *
 * Of every block W of the matrix route the optimiser sees W' and its gradient,
 *
 *     W = P^T W' Q,    dL/dW' = P (dL/dW) Q^T,    W'_0 = P W_0 Q^T,
 *
 * with P, Q orthogonal, Haar, one pair per block, the same for every run of one model.rotation. Network,
 * data, loss and initial function are those of the plain run. A rule whose update is equivariant, U(P G Q^T)
 * = P U(G) Q^T, moves W as it would without; what another rule gains or loses is the price of its
 * coordinates.
 *
 * The model's weights are made from the optimiser's at the beginning of each pass, the gradients turned at
 * its end, both inside the captured graph. t->params is the optimiser's view: what is saved, kept as best and
 * stepped are the W'.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/pattern.h"
#include "lab/so3/so3_train.h"
#include "verify/haar.h"

/* One orthogonal matrix for all members. */
static polar_status draw(pl_mat *out, pl_train *t, int64_t n, pl_draw d)
{
    const pl_so3_settings *s = &t->slots[0].set;
    double *q = pl_alloc((size_t)(n * n) * sizeof *q);
    PL_NEED(q, POLAR_E_NOMEM, "a rotation of %lld sides", (long long)n);
    polar_status st = pl_haar_draw(q, n, &d);
    if (st == POLAR_OK) st = pl_mat_alloc(out, t->dev, s->dtype, 1, n, n);
    if (st == POLAR_OK) st = pl_mat_upload_f64(t->q, out, q);
    if (st == POLAR_OK) st = polar_queue_sync(t->q);
    pl_free(q);
    PL_TRY(st);
    PL_NEED(!pl_so3_rotation_drawn(t), POLAR_E_STATE, "stopped while rotations were drawn");
    return POLAR_OK;
}

static int turned(const pl_train *t, const pl_param *p)
{
    const pl_so3_settings *s = &t->slots[0].set;
    return s->rotated && p->ndim == 2 && pl_pattern_match(s->optim.matrix_names, p->name);
}

int64_t pl_so3_turned_rotations(const pl_train *t)
{
    int64_t count = 0;
    for (int64_t i = 0; i < t->param_count; i++) count += turned(t, &t->params[i]) ? 2 : 0;
    return count;
}

/* X <- L op(X) R for every member: P^T X Q, or P X Q^T. */
static void turn(pl_queue *q, pl_mat Y, pl_mat X, const pl_so3_turn *r, int back)
{
    pl_scratch_mark mark = pl_scratch_begin(q);
    pl_mat P = r->P, Q = r->Q, T = pl_scratch_mat(q, X.dtype, X.batch, X.rows, X.cols);
    P.batch = Q.batch = X.batch; /* one serves all */
    P.bs = Q.bs = 0;
    PL_CALL(gemm, q, .C = T, .A = P, .B = X, .ta = back, .alpha = 1);
    PL_CALL(gemm, q, .C = Y, .A = T, .B = Q, .tb = !back, .alpha = 1);
    pl_scratch_end(q, mark);
}

static polar_status turn_create(pl_train *t, int64_t i)
{
    const pl_so3_settings *s = &t->slots[0].set;
    pl_param *p = &t->params[i];
    pl_so3_turn *r = &t->turns[t->turn_count++];
    *r = (pl_so3_turn){.param = i, .W = p->W, .G = p->G};
    pl_draw d = {(uint64_t)s->rotation, PL_DRAW_LEFT, p->rows, p->cols, i};
    PL_TRY(draw(&r->P, t, p->rows, d));
    d.kind = PL_DRAW_RIGHT;
    PL_TRY(draw(&r->Q, t, p->cols, d));
    PL_TRY(pl_mat_alloc(&r->turned_W, t->dev, p->W.dtype, p->W.batch, p->W.rows, p->W.cols));
    PL_TRY(pl_mat_alloc(&r->turned_G, t->dev, p->G.dtype, p->G.batch, p->G.rows, p->G.cols));
    p->W = r->turned_W;
    p->G = r->turned_G;
    turn(t->q, p->W, r->W, r, 0);
    return POLAR_OK;
}

polar_status pl_so3_turned_create(pl_train *t)
{
    const pl_so3_settings *s = &t->slots[0].set;
    if (!s->rotated) return POLAR_OK;
    pl_param *view = pl_calloc((size_t)t->param_count, sizeof *view);
    t->turns = pl_calloc((size_t)t->param_count, sizeof *t->turns);
    PL_NEED(view && t->turns, POLAR_E_NOMEM, "rotated coordinates of %lld parameters",
            (long long)t->param_count);
    memcpy(view, t->params, (size_t)t->param_count * sizeof *view);
    t->params = t->turned_params = view;
    for (int64_t i = 0; i < t->param_count; i++)
        PL_NEED(!turned(t, &view[i]) ||
                    (view[i].rows <= PL_HAAR_MAX_SIDE && view[i].cols <= PL_HAAR_MAX_SIDE),
                POLAR_E_ARG,
                "model.coordinates rotated: %s is %lld x %lld, and a rotation may have %d sides (try a "
                "smaller model.width)",
                view[i].name, (long long)view[i].rows, (long long)view[i].cols, PL_HAAR_MAX_SIDE);
    for (int64_t i = 0; i < t->param_count; i++)
        if (turned(t, &view[i])) PL_TRY(turn_create(t, i));
    PL_NEED(t->turn_count, POLAR_E_ARG,
            "model.coordinates rotated: route.matrix '%s' names no matrix to be turned",
            s->optim.matrix_names);
    return polar_queue_sync(t->q);
}

void pl_so3_turned_destroy(pl_train *t)
{
    for (int64_t i = 0; i < t->turn_count; i++) {
        pl_mat *mats[] = {&t->turns[i].P, &t->turns[i].Q, &t->turns[i].turned_W, &t->turns[i].turned_G};
        for (size_t k = 0; k < sizeof mats / sizeof *mats; k++) pl_mat_free(mats[k], t->dev);
    }
    pl_free(t->turns);
    pl_free(t->turned_params);
}

void pl_so3_turned_weights(pl_train *t, pl_queue *q)
{
    for (int64_t i = 0; i < t->turn_count; i++) turn(q, t->turns[i].W, t->turns[i].turned_W, &t->turns[i], 1);
}

void pl_so3_turned_gradients(pl_train *t, pl_queue *q)
{
    for (int64_t i = 0; i < t->turn_count; i++) turn(q, t->turns[i].turned_G, t->turns[i].G, &t->turns[i], 0);
}

pl_mat pl_so3_turned_back(pl_train *t, pl_queue *q, int64_t param, pl_mat X)
{
    for (int64_t i = 0; i < t->turn_count; i++) {
        if (t->turns[i].param != param) continue;
        pl_mat Y = pl_scratch_mat(q, X.dtype, X.batch, X.rows, X.cols);
        turn(q, Y, X, &t->turns[i], 1);
        return Y;
    }
    return X;
}
