/* conjugate.c -- a batch of triples (G, P, Q) on a device, and the deviation from covariance. */
#include "verify/conjugate.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>

#include "base/alloc.h"
#include "device/backend.h"

#define DENOMINATOR_EPS 1e-12 /* the paper's */
/* below so many cubic operations waking threads costs more than they bring */
#define SMALL 100000

polar_status pl_conj_create(pl_conj *c, pl_device *dev, polar_dtype dtype, int64_t batch, int64_t n,
                            int64_t m)
{
    *c = (pl_conj){.batch = batch, .n = n, .m = m};
    pl_mat *square[] = {&c->P, &c->Q}, *wide[] = {&c->G, &c->R, &c->F, &c->H, &c->D, &c->T};
    polar_status st = POLAR_OK;
    for (int i = 0; i < 2 && st == POLAR_OK; i++)
        st = pl_mat_alloc(square[i], dev, dtype, batch, i ? m : n, i ? m : n);
    for (int i = 0; i < 6 && st == POLAR_OK; i++) st = pl_mat_alloc(wide[i], dev, dtype, batch, n, m);
    if (st != POLAR_OK) pl_conj_destroy(c, dev);
    return st;
}

void pl_conj_destroy(pl_conj *c, pl_device *dev)
{
    pl_mat *all[] = {&c->P, &c->Q, &c->G, &c->R, &c->F, &c->H, &c->D, &c->T};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) pl_mat_free(all[i], dev);
}

polar_status pl_conj_host_create(pl_conj_host *h, int64_t batch, int64_t n, int64_t m)
{
    *h = (pl_conj_host){.G = pl_alloc((size_t)(batch * n * m) * sizeof(double)),
                        .P = pl_alloc((size_t)(batch * n * n) * sizeof(double)),
                        .Q = pl_alloc((size_t)(batch * m * m) * sizeof(double))};
    if (h->G && h->P && h->Q) return POLAR_OK;
    pl_conj_host_destroy(h);
    return PL_FAIL(POLAR_E_NOMEM, "%lld draws of %lldx%lld", (long long)batch, (long long)n, (long long)m);
}

void pl_conj_host_destroy(pl_conj_host *h)
{
    pl_free(h->G);
    pl_free(h->P);
    pl_free(h->Q);
    *h = (pl_conj_host){0};
}

pl_conj pl_conj_at(const pl_conj *c, int64_t batch)
{
    pl_conj s = *c;
    pl_mat *all[] = {&s.P, &s.Q, &s.G, &s.R, &s.F, &s.H, &s.D, &s.T};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) *all[i] = pl_mat_at(*all[i], 0, batch);
    s.batch = batch;
    return s;
}

static polar_status draw_one(const pl_conj *c, uint64_t seed, int64_t sample, int64_t b,
                             const pl_conj_host *h)
{
    double *G = h->G + b * c->n * c->m;
    pl_draw draw = {.seed = seed, .kind = PL_DRAW_GRADIENT, .rows = c->n, .cols = c->m, .sample = sample};
    pl_draw_normal(G, c->n * c->m, &draw);
    if (h->values.rank) PL_TRY(pl_spectrum_put(G, c->n, c->m, &h->values));
    for (int64_t i = 0; i < c->n * c->m; i++) G[i] = (double)(float)G[i];
    draw.kind = PL_DRAW_LEFT;
    PL_TRY(pl_haar_draw(h->P + b * c->n * c->n, c->n, &draw));
    draw.kind = PL_DRAW_RIGHT;
    return pl_haar_draw(h->Q + b * c->m * c->m, c->m, &draw);
}

typedef struct {
    const pl_conj *c;
    const pl_conj_host *h;
    uint64_t seed;
    int64_t first;
    pthread_mutex_t lock; /* of the first error: */
    polar_status st;
    char message[512];
} draws_of;

static void draw_item(void *arg, int me, int64_t b)
{
    draws_of *o = arg;
    (void)me;
    polar_status st = draw_one(o->c, o->seed, o->first + b, b, o->h);
    if (st == POLAR_OK) return;
    pthread_mutex_lock(&o->lock);
    if (o->st == POLAR_OK) snprintf(o->message, sizeof o->message, "%s", polar_error_message());
    o->st = o->st == POLAR_OK ? st : o->st;
    pthread_mutex_unlock(&o->lock);
}

polar_status pl_conj_draw(const pl_conj *c, pl_queue *q, uint64_t seed, int64_t first, const pl_conj_host *h)
{
    draws_of o = {.c = c, .h = h, .seed = seed, .first = first, .lock = PTHREAD_MUTEX_INITIALIZER};
    int parallel = c->batch * (c->n * c->n * c->n + c->m * c->m * c->m) > SMALL;
    pl_pool_items(q->dev->pool, parallel ? q->dev->threads : 1, c->batch, 1, draw_item, &o);
    if (o.st != POLAR_OK) return pl_fail_again(o.st, o.message);
    PL_TRY(pl_mat_upload_f64(q, &c->G, h->G));
    PL_TRY(pl_mat_upload_f64(q, &c->P, h->P));
    PL_TRY(pl_mat_upload_f64(q, &c->Q, h->Q));
    pl_conj_rotate(c, q, c->R, c->G);
    return POLAR_OK;
}

void pl_conj_copy_inputs(const pl_conj *dst, const pl_conj *src, pl_queue *q)
{
    PL_CALL(copy, q, .Y = dst->G, .X = src->G);
    PL_CALL(copy, q, .Y = dst->P, .X = src->P);
    PL_CALL(copy, q, .Y = dst->Q, .X = src->Q);
    pl_conj_rotate(dst, q, dst->R, dst->G);
}

void pl_conj_rotate(const pl_conj *c, pl_queue *q, pl_mat Y, pl_mat X)
{
    PL_CALL(gemm, q, .C = c->T, .A = c->P, .B = X, .alpha = 1);          /* T = P X    (n, m) */
    PL_CALL(gemm, q, .C = Y, .A = c->T, .B = c->Q, .tb = 1, .alpha = 1); /* Y = T Q^T  (n, m) */
}

polar_tensor pl_mat_tensor(const pl_mat *m)
{
    return polar_tensor_3d(m->data, m->dtype, m->batch, m->rows, m->cols);
}

polar_status pl_conj_apply(const pl_conj *c, pl_queue *q, const polar_map_opts *map)
{
    polar_tensor out[] = {pl_mat_tensor(&c->F), pl_mat_tensor(&c->H)},
                 in[] = {pl_mat_tensor(&c->G), pl_mat_tensor(&c->R)};
    return polar_map_apply(q, out, in, 2, map);
}

void pl_conj_measure(const pl_conj *c, pl_queue *q, pl_mat norms)
{
    pl_conj_rotate(c, q, c->D, c->F);
    PL_CALL(axpby, q, .Y = c->D, .X = c->H, .Z = c->D, .alpha = 1, .beta = -1);
    PL_CALL(frob, q, .N = pl_mat_at(norms, 0, c->batch), .X = c->D, .weight = 1);
    PL_CALL(frob, q, .N = pl_mat_at(norms, c->batch, c->batch), .X = c->F, .weight = 1);
}

/* frob leaves (s, ||s X||). */
static double norm_of(const double *pair)
{
    return pair[1] / pair[0];
}

double pl_conj_delta(const double *norms, int64_t batch, int64_t b)
{
    return norm_of(norms + 2 * b) / (norm_of(norms + 2 * (batch + b)) + DENOMINATOR_EPS);
}

polar_status pl_rho_live(pl_live **out, pl_queue *q, double eps)
{
    double row[PL_LIVE_COLS];
    pl_live_row(row, 1, 1, 0, 0, 0, 0, eps);
    PL_TRY(pl_live_create(out, q->dev, PL_LIVE_COLS));
    pl_live_set(*out, q, 0, PL_LIVE_COLS, row);
    return POLAR_OK;
}

void pl_rho(pl_queue *q, pl_mat Y, pl_mat X, pl_mat M, pl_mat V, const pl_live *rho)
{
    PL_CALL(axpby, q, .Y = M, .X = X, .Z = X, .alpha = 1, .beta = -1); /* zero */
    PL_CALL(axpby, q, .Y = V, .X = X, .Z = X, .alpha = 1, .beta = -1);
    PL_CALL(direction, q, .D = Y, .M = M, .V = V, .G = X, .live = pl_live_view(rho, 0, PL_LIVE_COLS),
            .momentum = POLAR_MOMENTUM_EMA, .precondition = POLAR_PRECONDITION_ADAM);
}
