/* op_expect_elem.c -- what the elementwise ops and the steps of optimisers may return. */
#include "op_calls.h"
#include "op_model_impl.h"

#define F64  POLAR_DTYPE_F64
#define BF16 POLAR_DTYPE_BF16

MODEL(copy)
{
    return r->c.how.trans ? at(r, 1, b, j, i) : at(r, 1, b, i, j);
}

MODEL(axpby)
{
    pl_iv alpha = scalar(r->c.how.alpha, ct), beta = scalar(r->c.how.beta, ct), x = at(r, 1, b, i, j),
          z = has(r, 2) ? at(r, 2, b, i, j) : pl_iv_point(0);
    if (r->c.how.round_terms)
        return sum(pl_iv_round(product(alpha, x, ct), BF16), pl_iv_round(product(beta, z, ct), BF16), ct);
    return fused(alpha, x, product(beta, z, ct), ct);
}

MODEL(normalise)
{
    int64_t nb = r->mat[2].batch == 1 ? 0 : b;
    double unit = pl_op_run_before(r, 2, nb, 0, 0), norm = pl_op_run_before(r, 2, nb, 0, 1);
    pl_iv s = scalar(unit, ct), n = scalar(norm, ct), x = product(at(r, 1, b, i, j), s, ct),
          eps = product(scalar(r->c.how.eps, ct), s, ct);
    if (!r->c.how.reference) {
        if (n.lo < eps.lo) n = eps;
        return n.lo == 0 ? pl_iv_point(0) : pl_iv_in(pl_iv_div(x, n), ct);
    }
    pl_iv t = pl_iv_round(sum(pl_iv_round(n, BF16), eps, ct), BF16);
    if (t.lo == 0 && t.hi == 0) return pl_iv_point(0);
    return pl_iv_round(pl_iv_in(pl_iv_div(pl_iv_round(x, BF16), t), ct), BF16);
}

/* Live value j of matrix b, operand o. */
static double live(const pl_op_run *r, int o, int64_t b, int64_t j)
{
    return pl_op_run_before(r, o, r->mat[o].batch == 1 ? 0 : b, 0, j);
}

/* Result o of a direction: 0 D, 1 M, 2 V. */
MODEL(direction)
{
    const pl_op_case *c = &r->c;
    int64_t momentum = c->how.momentum;
    int average = momentum >= POLAR_MOMENTUM_EMA,
        nesterov = momentum == POLAR_MOMENTUM_NESTEROV || momentum == POLAR_MOMENTUM_AVERAGE_NESTEROV;
    pl_iv g = product(at(r, 3, b, i, j), scalar(live(r, 4, b, PL_LIVE_GRAD), ct), ct),
          part = average ? product(scalar(1 - c->how.alpha, ct), g, ct) : g, beta1 = scalar(c->how.alpha, ct),
          m = pl_iv_point(0), v = m;
    if (c->how.laprop) {
        v = fused(scalar(c->how.beta, ct), at(r, 2, b, i, j),
                  product(product(scalar(1 - c->how.beta, ct), g, ct), g, ct), ct);
        if (o == 2) return v;
        pl_iv root = pl_iv_in(pl_iv_sqrt(product(v, scalar(live(r, 4, b, PL_LIVE_C2), ct), ct)), ct);
        g = pl_iv_in(pl_iv_div(g, sum(root, scalar(c->how.eps, ct), ct)), ct);
        part = average ? product(scalar(1 - c->how.alpha, ct), g, ct) : g;
    }
    if (o != 2) m = fused(beta1, at(r, 1, b, i, j), part, ct);
    if (o == 1) return m;
    pl_iv u = momentum == POLAR_MOMENTUM_EMA ? product(m, scalar(live(r, 4, b, PL_LIVE_C1), ct), ct)
              : nesterov                     ? fused(beta1, m, part, ct)
                                             : m;
    if (!has(r, 2) || c->how.laprop) return u;
    v = fused(scalar(c->how.beta, ct), at(r, 2, b, i, j),
              product(product(scalar(1 - c->how.beta, ct), g, ct), g, ct), ct);
    if (o == 2) return v;
    pl_iv root = pl_iv_in(pl_iv_sqrt(product(v, scalar(live(r, 4, b, PL_LIVE_C2), ct), ct)), ct);
    return pl_iv_in(pl_iv_div(u, sum(root, scalar(c->how.eps, ct), ct)), ct);
}

/* A step from w along d at the learning rate lr; a frozen weight stays. */
static pl_iv model_step(pl_iv w, pl_iv d, double lr, double wd, double scale, polar_dtype ct)
{
    if (lr == 0) return w;
    pl_iv rate = scalar(lr, ct), keep = fused(negative(rate), scalar(wd, ct), pl_iv_point(1), ct);
    return fused(negative(product(rate, scalar(scale, ct), ct)), d, product(w, keep, ct), ct);
}

MODEL(decay_step)
{
    return model_step(at(r, 0, b, i, j), at(r, 1, b, i, j), live(r, 2, b, PL_LIVE_LR),
                      live(r, 2, b, PL_LIVE_WD), r->c.how.alpha, ct);
}

MODEL(adamw_step)
{
    pl_iv x = pl_model_direction(r, o, b, i, j, ct); /* for o = 0 the direction, which is not stored */
    return o ? x
             : model_step(at(r, 0, b, i, j), x, live(r, 4, b, PL_LIVE_LR), live(r, 4, b, PL_LIVE_WD), 1, ct);
}

/* The flag b: what it was, or 1 where an entry it stands for is not finite. */
MODEL(nonfinite)
{
    const pl_mat *G = &r->mat[1];
    int one = r->mat[0].batch == 1;
    for (int64_t k = one ? 0 : b; k < (one ? G->batch : b + 1); k++)
        for (int64_t row = 0; row < G->rows; row++)
            for (int64_t col = 0; col < G->cols; col++)
                if (!isfinite(pl_op_run_before(r, 1, k, row, col))) return pl_iv_point(1);
    return at(r, 0, b, 0, 0);
}

/* 1 / (1 - beta^t). A power by squares doubles its error with every square and adds one rounding with every
 * product: at most 2 t of them. */
static pl_iv model_correction(double beta, double t)
{
    long double power = powl(beta, t);
    pl_iv p = pl_iv_around(power, power * 2 * t * pl_unit_roundoff(F64) * 1.01L);
    return pl_iv_in(pl_iv_div(pl_iv_point(1), sum(pl_iv_point(1), negative(p), F64)), F64);
}

/* Result o of advance: 0 L, 1 T, 2 F. */
MODEL(advance)
{
    if (o == 2) return pl_iv_point(0);
    int found = has(r, 3) && pl_op_run_before(r, 3, 0, 0, 0) != 0;
    int flagged = found || (has(r, 2) && pl_op_run_before(r, 2, b % r->mat[2].batch, 0, 0) != 0),
        host = pl_op_run_before(r, 0, b, 0, PL_LIVE_SKIP) == 1;
    double steps = pl_op_run_before(r, 1, b, 0, 0) + (!flagged && !host);
    if (o == 1) return pl_iv_point(j == 0 ? steps : pl_op_run_before(r, 1, b, 0, 1) + (flagged && !host));
    double t = steps - pl_op_run_before(r, 0, b, 0, PL_LIVE_WAIT);
    if (j == PL_LIVE_SKIP) return pl_iv_point(host ? 1 : flagged ? PL_SKIP_FLAG : t < 1 ? PL_SKIP_WAIT : 0);
    if (j == PL_LIVE_STEP && !flagged && !host) return pl_iv_point(steps);
    if (t < 1) t = 1;
    if (j == PL_LIVE_GRAD && has(r, 4)) return pl_iv_point(1 / pl_op_run_before(r, 4, 0, 0, 0));
    if (j == PL_LIVE_C1 && !flagged && !host) return model_correction(r->c.how.alpha, t);
    if (j == PL_LIVE_C2 && !flagged && !host) return model_correction(r->c.how.beta, t);
    return at(r, 0, b, 0, j);
}

/* ---- wrong ops that must be caught, wrong calls that must be refused ---- */

static void copy_one_ulp(pl_queue *q, const pl_args_copy *a)
{
    pl_ref_ops.copy(q, a);
    *entry(&a->Y, 0, 0, 0) ^= 1;
}

static void copy_short(pl_queue *q, const pl_args_copy *a)
{
    pl_args_copy less = *a;
    less.Y.cols = less.X.cols = a->Y.cols - 1;
    pl_ref_ops.copy(q, &less);
}

static void copy_beside(pl_queue *q, const pl_args_copy *a)
{
    pl_ref_ops.copy(q, a);
    *entry(&a->Y, a->Y.batch - 1, a->Y.rows - 1, a->Y.cols) = 0;
}

static const fault copy_faults[] = {
    {"a copy one ulp off", "copy f32 3x7x13", (op_fn)copy_one_ulp},
    {"a last column left out", "copy f32 3x7x13", (op_fn)copy_short},
    {"a byte behind the last element", "copy f32 3x7x13", (op_fn)copy_beside},
};

static const bad_call copy_bad[] = {
    {0, ROWS, 0, POLAR_E_SHAPE},           {1, COLS, 0, POLAR_E_SHAPE},  {1, BATCH, 0, POLAR_E_SHAPE},
    {1, UNKNOWN_FORMAT, 0, POLAR_E_DTYPE}, {1, NO_DATA, 0, POLAR_E_ARG}, {0, NO_DATA, 0, POLAR_E_ARG},
    {0, ROW_STRIDE, 0, POLAR_E_SHAPE},     {0, ONTO, 1, POLAR_E_ARG},
};

const op_calls pl_calls_copy = {"copy f32 3x7x13", LIST(copy_bad), LIST(copy_faults)};

static const bad_call axpby_bad[] = {
    {1, ROWS, 0, POLAR_E_SHAPE}, {2, COLS, 0, POLAR_E_SHAPE},           {0, ONTO, 1, POLAR_E_ARG},
    {0, ONTO, 2, POLAR_E_ARG},   {2, UNKNOWN_FORMAT, 0, POLAR_E_DTYPE}, {1, NO_DATA, 0, POLAR_E_ARG},
};

const op_calls pl_calls_axpby = {"axpby f32 3x7x13 Z 2,-3", LIST(axpby_bad), NULL, 0};

static const bad_call normalise_bad[] = {
    {1, ROWS, 0, POLAR_E_SHAPE},
    {2, BATCH, 0, POLAR_E_SHAPE},
    {2, FORMAT, 0, POLAR_E_DTYPE},
    {0, ONTO, 1, POLAR_E_ARG},
};

const op_calls pl_calls_normalise = {"normalise f32 3x7x13", LIST(normalise_bad), NULL, 0};

static void adam_without_epsilon(pl_queue *q, const pl_args_direction *a)
{
    pl_args_direction b = *a;
    double live[PL_LIVE_COLS];
    memcpy(live, a->live.data, sizeof live);
    live[PL_LIVE_EPS] = 0;
    b.live.data = live;
    pl_ref_ops.direction(q, &b);
}

static void nesterov_forgotten(pl_queue *q, const pl_args_direction *a)
{
    pl_args_direction b = *a;
    b.momentum = POLAR_MOMENTUM_HEAVY_BALL;
    pl_ref_ops.direction(q, &b);
}

static const fault direction_faults[] = {
    {"Adam without its epsilon", "direction f32 3x7x13 ema V 0.5,0.75 eps 0.125",
     (op_fn)adam_without_epsilon},
    {"Nesterov's momentum without its second part", "direction f32 3x7x13 nesterov 0.95",
     (op_fn)nesterov_forgotten},
};

static const bad_call direction_bad[] = {
    {1, ROWS, 0, POLAR_E_SHAPE},  {2, COLS, 0, POLAR_E_SHAPE},  {3, BATCH, 0, POLAR_E_SHAPE},
    {4, COLS, 0, POLAR_E_SHAPE},  {4, BATCH, 0, POLAR_E_SHAPE}, {4, FORMAT, 0, POLAR_E_DTYPE},
    {2, NO_DATA, 0, POLAR_E_ARG}, {0, PLAIN, 0, POLAR_E_ARG},   {0, MODE, 0, POLAR_E_ARG},
    {0, MODE, 1, POLAR_E_ARG},    {1, ONTO, 2, POLAR_E_ARG},    {1, ONTO, 3, POLAR_E_ARG},
    {0, ONTO, 3, POLAR_E_ARG},    {0, ONTO, 1, POLAR_E_ARG},    {0, ONTO, 2, POLAR_E_ARG},
};

const op_calls pl_calls_direction = {"direction f32 3x7x13 ema per_matrix V 0.9,0.999 eps 1e-08",
                                     LIST(direction_bad), LIST(direction_faults)};

/* The first matrix's live values for all. */
static void step_of_the_first(pl_queue *q, const pl_args_decay_step *a)
{
    pl_args_decay_step b = *a;
    b.live.batch = 1;
    pl_ref_ops.decay_step(q, &b);
}

/* Whoever is to be left out is not. */
static void step_of_all(pl_queue *q, const pl_args_decay_step *a)
{
    pl_args_decay_step b = *a;
    double live[PL_LIVE_COLS];
    for (int64_t k = 0; k < a->W.batch; k++) {
        memcpy(live, (const double *)a->live.data + k * a->live.bs, sizeof live);
        live[PL_LIVE_SKIP] = 0;
        b.W = pl_mat_at(a->W, k, 1), b.D = pl_mat_at(a->D, k, 1),
        b.live = pl_mat_dense(live, POLAR_DTYPE_F64, 1, 1, PL_LIVE_COLS);
        pl_ref_ops.decay_step(q, &b);
    }
}

static const fault decay_step_faults[] = {
    {"one learning rate for all of a batch", "decay_step f32 3x7x13 per_matrix 2", (op_fn)step_of_the_first},
    {"a step of everybody, also where it is to be left out", "decay_step f32 3x7x13 per_matrix 2",
     (op_fn)step_of_all},
};

static const bad_call decay_step_bad[] = {
    {1, ROWS, 0, POLAR_E_SHAPE},  {0, ONTO, 1, POLAR_E_ARG},     {2, COLS, 0, POLAR_E_SHAPE},
    {2, BATCH, 0, POLAR_E_SHAPE}, {2, FORMAT, 0, POLAR_E_DTYPE},
};

const op_calls pl_calls_decay_step = {"decay_step f32 3x7x13 per_matrix 2", LIST(decay_step_bad),
                                      LIST(decay_step_faults)};

/* Decays by lr, not by lr wd. */
static void adamw_decays_twice(pl_queue *q, const pl_args_adamw_step *a)
{
    pl_args_adamw_step b = *a;
    double live[PL_LIVE_COLS];
    memcpy(live, a->live.data, sizeof live);
    live[PL_LIVE_WD] = 1;
    b.live.data = live;
    pl_ref_ops.adamw_step(q, &b);
}

static const fault adamw_step_faults[] = {
    {"a decay that forgets wd", "adamw_step f32 3x7x13 0.9,0.999 eps 1e-08", (op_fn)adamw_decays_twice},
};

static const bad_call adamw_step_bad[] = {
    {1, ROWS, 0, POLAR_E_SHAPE},  {2, COLS, 0, POLAR_E_SHAPE},  {3, BATCH, 0, POLAR_E_SHAPE},
    {4, COLS, 0, POLAR_E_SHAPE},  {4, BATCH, 0, POLAR_E_SHAPE}, {4, FORMAT, 0, POLAR_E_DTYPE},
    {2, NO_DATA, 0, POLAR_E_ARG}, {0, ONTO, 1, POLAR_E_ARG},    {0, ONTO, 2, POLAR_E_ARG},
    {0, ONTO, 3, POLAR_E_ARG},    {1, ONTO, 2, POLAR_E_ARG},    {2, ONTO, 3, POLAR_E_ARG},
    {1, ONTO, 3, POLAR_E_ARG},
};

const op_calls pl_calls_adamw_step = {"adamw_step f32 3x7x13 per_matrix 0.9,0.999 eps 1e-08",
                                      LIST(adamw_step_bad), LIST(adamw_step_faults)};

/* A flag that somebody else has set is lowered. */
static void flag_lowered(pl_queue *q, const pl_args_nonfinite *a)
{
    for (int64_t b = 0; b < a->F.batch; b++) ((float *)a->F.data)[b * a->F.bs] = 0;
    pl_ref_ops.nonfinite(q, a);
}

static const fault nonfinite_faults[] = {
    {"a flag that is lowered", "nonfinite f32 3x7x13 per_matrix", (op_fn)flag_lowered},
};

static const bad_call nonfinite_bad[] = {
    {0, COLS, 0, POLAR_E_SHAPE}, {0, BATCH, 0, POLAR_E_SHAPE}, {0, FORMAT, 0, POLAR_E_DTYPE},
    {0, ONTO, 1, POLAR_E_ARG},   {1, NO_DATA, 0, POLAR_E_ARG},
};

const op_calls pl_calls_nonfinite = {"nonfinite f32 3x7x13 per_matrix", LIST(nonfinite_bad),
                                     LIST(nonfinite_faults)};

/* A step that was left out is counted all the same. */
static void counts_all(pl_queue *q, const pl_args_advance *a)
{
    pl_ref_ops.advance(q, a);
    for (int64_t r = 0; r < a->T.batch; r++)
        if (((const double *)a->L.data)[r * a->L.bs + PL_LIVE_SKIP] != 0)
            ((double *)a->T.data)[r * a->T.bs] += 1;
}

static const fault advance_faults[] = {
    {"a step left out and yet counted", "advance f64 6x1x11 F 0.9,0.999", (op_fn)counts_all},
};

static const bad_call advance_bad[] = {
    {0, COLS, 0, POLAR_E_SHAPE},   {1, COLS, 0, POLAR_E_SHAPE},   {1, BATCH, 0, POLAR_E_SHAPE},
    {1, FORMAT, 0, POLAR_E_DTYPE}, {2, FORMAT, 0, POLAR_E_DTYPE}, {3, FORMAT, 0, POLAR_E_DTYPE},
    {4, COLS, 0, POLAR_E_SHAPE},   {1, ONTO, 0, POLAR_E_ARG},     {1, NO_DATA, 0, POLAR_E_ARG},
};

const op_calls pl_calls_advance = {"advance f64 6x1x11 F found scale 0.95,0.75", LIST(advance_bad),
                                   LIST(advance_faults)};
