/* gauge.c -- theorem (polar maps are covariant), proposition (AdamW's direction is not), remark (linear maps
 * are, without spectral control). */
#include "verify/gauge.h"

#include <math.h>

#include "base/alloc.h"
#include "verify/conjugate.h"

#define RHO0_EPS 1e-30 /* the paper's */

/* ---- the theorem ---- */

#define THEOREM_SAMPLES 8

static const int64_t theorem_shapes[][2] = {{1, 1},  {8, 1},  {1, 9},   {4, 4},  {8, 8},
                                            {8, 44}, {16, 4}, {33, 17}, {48, 48}};

typedef struct theorem_work {
    pl_conj c;
    pl_conj_host host;
    pl_mat norms;
    double pairs[4 * THEOREM_SAMPLES];
} theorem_work;

/* *largest = max(*largest, Delta of this map over the batch). */
static polar_status theorem_map(double *largest, theorem_work *w, pl_queue *q, const polar_map_opts *map)
{
    PL_TRY(pl_conj_apply(&w->c, q, map));
    pl_conj_measure(&w->c, q, w->norms);
    polar_queue_download(q, w->pairs, w->norms.data, sizeof w->pairs);
    PL_TRY(polar_queue_sync(q));
    for (int64_t b = 0; b < THEOREM_SAMPLES; b++) {
        double delta = pl_conj_delta(w->pairs, THEOREM_SAMPLES, b);
        if (!(delta <= *largest)) *largest = delta; /* a NaN stays visible */
    }
    return POLAR_OK;
}

static polar_status theorem_shape(pl_theorem *out, theorem_work *w, pl_queue *q, int64_t n, int64_t m,
                                  uint64_t seed)
{
    polar_map_opts exact, ns;
    PL_TRY(polar_map_opts_parse(&exact, "exact"));
    PL_TRY(polar_map_opts_parse(&ns, "ns_fp64"));
    PL_TRY(pl_conj_create(&w->c, q->dev, POLAR_DTYPE_F64, THEOREM_SAMPLES, n, m));
    PL_TRY(pl_conj_host_create(&w->host, THEOREM_SAMPLES, n, m));
    PL_TRY(pl_mat_alloc(&w->norms, q->dev, POLAR_DTYPE_F64, 2 * THEOREM_SAMPLES, 1, 2));
    PL_TRY(pl_conj_draw(&w->c, q, seed, 0, &w->host));
    for (int64_t b = 0; b < THEOREM_SAMPLES; b++) {
        double largest, smallest;
        PL_TRY(pl_singular_range(&largest, &smallest, w->host.G + b * n * m, n, m));
        out->condition = fmax(out->condition, largest / smallest);
    }
    PL_TRY(theorem_map(&out->polar, w, q, &exact));
    for (int t = 0; t < PL_THEOREM_TABLES; t++)
        for (int k = 0; k < PL_THEOREM_STEPS; k++) {
            ns.table = out->table[t];
            ns.steps = k + 1;
            PL_TRY(theorem_map(&out->ns[t][k], w, q, &ns));
        }
    return POLAR_OK;
}

polar_status pl_theorem_measure(pl_theorem *out, polar_queue *q, uint64_t seed)
{
    polar_status st = POLAR_OK;
    *out = (pl_theorem){.shapes = sizeof theorem_shapes / sizeof *theorem_shapes,
                        .samples = THEOREM_SAMPLES,
                        .table = {"jordan", "polar_express"}};
    for (int64_t i = 0; i < out->shapes && st == POLAR_OK; i++) {
        theorem_work w = {0};
        st = theorem_shape(out, &w, q, theorem_shapes[i][0], theorem_shapes[i][1], seed);
        if (st != POLAR_OK) (void)polar_queue_sync(q); /* nothing may still use what is freed now */
        pl_conj_destroy(&w.c, q->dev);
        pl_conj_host_destroy(&w.host);
        pl_mat_free(&w.norms, q->dev);
    }
    return st;
}

/* ---- the proposition ---- */

static polar_status rho_of(double out[4], pl_queue *q, pl_mat *work, const pl_live *rho, const double in[4])
{
    PL_TRY(pl_mat_upload_f64(q, &work[0], in));
    pl_rho(q, work[1], work[0], work[2], work[3], rho);
    return pl_mat_download_f64(q, &work[1], out);
}

polar_status pl_proposition_measure(pl_proposition *out, polar_queue *q, double eps)
{
    PL_NEED(eps > 0, POLAR_E_ARG, "the proposition speaks of eps > 0, not of %g", eps);
    const double h = sqrt(0.5), P[4] = {h, -h, h, h}, I[4] = {1, 0, 0, 1};
    double rotated[4], plain[4], dot = 0, squares = 0;
    pl_mat work[4] = {0};
    pl_live *rho = NULL;
    polar_status st = pl_rho_live(&rho, q, eps);
    for (int i = 0; i < 4 && st == POLAR_OK; i++)
        st = pl_mat_alloc(&work[i], q->dev, POLAR_DTYPE_F64, 1, 2, 2);
    if (st != POLAR_OK) goto done;
    st = rho_of(rotated, q, work, rho, P);
    if (st == POLAR_OK) st = rho_of(plain, q, work, rho, I);
    if (st != POLAR_OK) goto done;
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 2; j++) {
            double back = P[2 * i] * plain[j] + P[2 * i + 1] * plain[2 + j]; /* (P rho(M))_ij */
            dot += rotated[2 * i + j] * P[2 * i + j];
            squares += (rotated[2 * i + j] - back) * (rotated[2 * i + j] - back);
        }
    *out = (pl_proposition){
        .eps = eps,
        .factor_rotated = dot / 2, /* ||P||_F^2 = 2 */
        .factor_rotated_paper = sqrt(2) / (1 + sqrt(2) * eps),
        .factor = (plain[0] + plain[3]) / 2,
        .factor_paper = 1 / (1 + eps),
        .deviation = sqrt(squares),
        .delta = sqrt(squares) /
                 sqrt(plain[0] * plain[0] + plain[1] * plain[1] + plain[2] * plain[2] + plain[3] * plain[3]),
    };
done:
    for (int i = 0; i < 4; i++) pl_mat_free(&work[i], q->dev);
    pl_live_destroy(rho);
    return st;
}

/* ---- linear maps ---- */

enum { LINEAR_N = 24, LINEAR_M = 40, LINEAR_HISTORY = 20 };

#define SGD_C    0.37
#define MOMENTUM 0.95

typedef struct linear_work {
    pl_conj c;
    pl_conj_host host;
    pl_mat norms;
    pl_live *rho; /* of pl_rho */
    double pairs[4], x[LINEAR_N * LINEAR_M], y[LINEAR_N * LINEAR_M];
} linear_work;

static polar_status linear_create(linear_work *w, pl_queue *q, uint64_t seed)
{
    PL_TRY(pl_conj_create(&w->c, q->dev, POLAR_DTYPE_F64, 1, LINEAR_N, LINEAR_M));
    PL_TRY(pl_conj_host_create(&w->host, 1, LINEAR_N, LINEAR_M));
    PL_TRY(pl_mat_alloc(&w->norms, q->dev, POLAR_DTYPE_F64, 2, 1, 2));
    PL_TRY(pl_rho_live(&w->rho, q, RHO0_EPS));
    return pl_conj_draw(&w->c, q, seed, 0, &w->host);
}

static void linear_destroy(linear_work *w, pl_device *dev)
{
    pl_conj_destroy(&w->c, dev);
    pl_conj_host_destroy(&w->host);
    pl_mat_free(&w->norms, dev);
    pl_live_destroy(w->rho);
}

static polar_status linear_delta(double *out, linear_work *w, pl_queue *q)
{
    pl_conj_measure(&w->c, q, w->norms);
    polar_queue_download(q, w->pairs, w->norms.data, sizeof w->pairs);
    PL_TRY(polar_queue_sync(q));
    *out = pl_conj_delta(w->pairs, 1, 0);
    return POLAR_OK;
}

/* Heavy ball over the history G_0, G_1, ... in F, and over the rotated history in H, one pair (P, Q) for all.
 */
static polar_status linear_momentum(linear_work *w, pl_queue *q, uint64_t seed)
{
    const pl_conj *c = &w->c;
    for (int64_t t = 0; t < LINEAR_HISTORY; t++) {
        pl_draw_normal(
            w->x, LINEAR_N * LINEAR_M,
            &(pl_draw){.seed = seed, .kind = PL_DRAW_OTHER, .rows = LINEAR_N, .cols = LINEAR_M, .sample = t});
        PL_TRY(pl_mat_upload_f64(q, &c->G, w->x));
        pl_conj_rotate(c, q, c->R, c->G);
        PL_CALL(axpby, q, .Y = c->F, .X = c->G, .Z = t ? c->F : (pl_mat){0}, .alpha = 1, .beta = MOMENTUM);
        PL_CALL(axpby, q, .Y = c->H, .X = c->R, .Z = t ? c->H : (pl_mat){0}, .alpha = 1, .beta = MOMENTUM);
    }
    return POLAR_OK;
}

/* The sizes of three updates for inputs of growing size: G scaled to ||G||_2 = 10^(i-3). */
static polar_status linear_norms(pl_linear_maps *out, linear_work *w, pl_queue *q)
{
    const pl_conj *c = &w->c;
    polar_map_opts ns;
    polar_tensor in = pl_mat_tensor(&c->G), ns_out = pl_mat_tensor(&c->F);
    double norm;
    PL_TRY(pl_singular_range(&norm, NULL, w->host.G, LINEAR_N, LINEAR_M));
    PL_TRY(polar_map_opts_parse(&ns, "ns_fp64"));
    for (int i = 0; i < PL_LINEAR_SCALES; i++) {
        double scale = pow(10, i - PL_LINEAR_SCALES / 2) / norm;
        for (int64_t j = 0; j < LINEAR_N * LINEAR_M; j++) w->x[j] = scale * w->host.G[j];
        PL_TRY(pl_singular_range(&out->input_norm[i], NULL, w->x, LINEAR_N, LINEAR_M));
        PL_TRY(pl_mat_upload_f64(q, &c->G, w->x));
        PL_CALL(copy, q, .Y = c->H, .X = c->G); /* SGD at learning rate 1 */
        PL_TRY(pl_mat_download_f64(q, &c->H, w->y));
        PL_TRY(pl_singular_range(&out->sgd_norm[i], NULL, w->y, LINEAR_N, LINEAR_M));
        PL_TRY(polar_map_apply(q, &ns_out, &in, 1, &ns));
        PL_TRY(pl_mat_download_f64(q, &c->F, w->y));
        PL_TRY(pl_singular_range(&out->ns5_norm[i], NULL, w->y, LINEAR_N, LINEAR_M));
        pl_rho(q, c->F, c->G, c->T, c->D, w->rho);
        PL_TRY(pl_mat_download_f64(q, &c->F, w->y));
        PL_TRY(pl_singular_range(&out->adamw_norm[i], NULL, w->y, LINEAR_N, LINEAR_M));
    }
    return POLAR_OK;
}

polar_status pl_linear_maps_measure(pl_linear_maps *out, polar_queue *q, uint64_t seed)
{
    linear_work *w = pl_calloc(1, sizeof *w);
    PL_NEED(w, POLAR_E_NOMEM, "work space for linear maps");
    *out = (pl_linear_maps){.n = LINEAR_N, .m = LINEAR_M, .history = LINEAR_HISTORY};
    polar_status st = linear_create(w, q, seed);
    if (st == POLAR_OK) {
        PL_CALL(axpby, q, .Y = w->c.F, .X = w->c.G, .alpha = SGD_C);
        PL_CALL(axpby, q, .Y = w->c.H, .X = w->c.R, .alpha = SGD_C);
        st = linear_delta(&out->sgd, w, q);
    }
    if (st == POLAR_OK) st = linear_momentum(w, q, seed);
    if (st == POLAR_OK) st = linear_delta(&out->momentum, w, q);
    if (st == POLAR_OK) st = linear_norms(out, w, q);
    if (st != POLAR_OK) (void)polar_queue_sync(q); /* nothing may still use what is freed now */
    linear_destroy(w, q->dev);
    pl_free(w);
    return st;
}
