/* op_expect_layernorm.c -- what normalised rows and their gradients may be. */
#include "op_calls.h"
#include "op_model_sums.h"

/* Column j of a row of values: one for all matrices, or one each. */
static pl_iv value(const pl_op_run *r, int o, int64_t b, int64_t j)
{
    return at(r, o, r->mat[o].batch == 1 ? 0 : b, 0, j);
}

static pl_iv square(pl_iv d)
{
    pl_iv s = pl_iv_mul(d, d);
    if (!s.any && s.lo < 0) s.lo = 0;
    return s;
}

/* Result o: 0 Y, 1 S. */
MODEL(layernorm)
{
    int64_t n = r->c.cols;
    total x = {0}, var = {0};
    for (int64_t k = 0; k < n; k++) add(&x, at(r, 2, b, i, k));
    pl_iv mean = mean_of(&x, along_row(n), n, ct);
    if (o == 1 && j == 0) return mean;
    for (int64_t k = 0; k < n; k++)
        add(&var, pl_iv_in(square(sum(at(r, 2, b, i, k), negative(mean), ct)), ct));
    pl_iv v = mean_of(&var, along_row(n), n, ct);
    if (!v.any && v.lo < 0) v.lo = 0;
    pl_iv root = pl_iv_in(pl_iv_sqrt(sum(v, scalar(r->c.how.eps, ct), ct)), ct);
    pl_iv rs = root.lo <= 0 && root.hi > 0 ? anything : pl_iv_in(pl_iv_div(pl_iv_point(1), root), ct);
    if (o == 1) return rs;
    return fused(product(sum(at(r, 2, b, i, j), negative(mean), ct), rs, ct), value(r, 3, b, j),
                 value(r, 4, b, j), ct);
}

/* x^ */
static pl_iv unit(const pl_op_run *r, int64_t b, int64_t i, int64_t k, polar_dtype ct)
{
    return product(sum(at(r, 4, b, i, k), negative(at(r, 5, b, i, 0)), ct), at(r, 5, b, i, 1), ct);
}

/* Result o: 0 dX, 1 dg, 2 db, 3 dL. */
MODEL(layernorm_back)
{
    int64_t n = r->c.cols, rows = r->c.rows;
    total h = {0}, along = {0};
    if (o == 3) {
        pl_iv dx = pl_iv_round(pl_model_layernorm_back(r, 0, b, i, j, ct), r->mat[0].dtype);
        return has(r, 9) ? product(at(r, 9, b, i / (rows / r->mat[9].rows), 0), dx, ct) : dx;
    }
    if (o > 0) {
        for (int64_t k = 0; k < rows; k++)
            add(&h, o == 2 ? at(r, 7, b, k, j) : pl_iv_mul(at(r, 7, b, k, j), unit(r, b, k, j, ct)));
        return end(&h, down_rows(rows) + (o == 1), ct);
    }
    for (int64_t k = 0; k < n; k++) {
        pl_iv hk = product(at(r, 7, b, i, k), value(r, 6, b, k), ct);
        add(&h, hk);
        add(&along, pl_iv_mul(hk, unit(r, b, i, k, ct)));
    }
    pl_iv m = mean_of(&h, along_row(n), n, ct), c = mean_of(&along, along_row(n) + 1, n, ct),
          hj = product(at(r, 7, b, i, j), value(r, 6, b, j), ct);
    pl_iv inner = fused(negative(unit(r, b, i, j, ct)), c, sum(hj, negative(m), ct), ct);
    return fused(at(r, 5, b, i, 1), inner, has(r, 8) ? at(r, 8, b, i, j) : pl_iv_point(0), ct);
}

/* ---- wrong ops that must be caught, wrong calls that must be refused ---- */

static void norm_without_epsilon(pl_queue *q, const pl_args_layernorm *a)
{
    pl_args_layernorm wrong = *a;
    wrong.eps = 0;
    pl_ref_ops.layernorm(q, &wrong);
}

/* The variance over n - 1. */
static void norm_unbiased(pl_queue *q, const pl_args_layernorm *a)
{
    pl_ref_ops.layernorm(q, a);
    for (int64_t i = 0; i < a->S.rows; i++)
        put(&a->S, 0, i, 1, get(&a->S, 0, i, 1) * sqrt((double)(a->X.cols - 1) / (double)a->X.cols));
}

static void norm_ten_ulps_off(pl_queue *q, const pl_args_layernorm *a)
{
    pl_ref_ops.layernorm(q, a);
    scale_all(&a->S, 1 + 10 * 0x1p-23);
}

static void gain_of_the_first(pl_queue *q, const pl_args_layernorm *a)
{
    pl_args_layernorm wrong = *a;
    wrong.g.batch = 1;
    pl_ref_ops.layernorm(q, &wrong);
}

static const fault layernorm_faults[] = {
    {"rows normalised without the epsilon", "layernorm f32 3x7x13 eps 1e-06", (op_fn)norm_without_epsilon},
    {"a variance over n - 1", "layernorm f32 3x7x13 eps 1e-06", (op_fn)norm_unbiased},
    {"statistics 10 ulps off", "layernorm f32 3x7x13 eps 1e-06", (op_fn)norm_ten_ulps_off},
    {"one gain for all of a batch", "layernorm f32 3x7x13 per_matrix eps 1e-06", (op_fn)gain_of_the_first},
};

static const bad_call layernorm_bad[] = {
    {2, ROWS, 0, POLAR_E_SHAPE},   {1, ROWS, 0, POLAR_E_SHAPE}, {1, COLS, 0, POLAR_E_SHAPE},
    {1, FORMAT, 0, POLAR_E_DTYPE}, {3, COLS, 0, POLAR_E_SHAPE}, {4, BATCH, 0, POLAR_E_SHAPE},
    {0, ONTO, 2, POLAR_E_ARG},     {0, ONTO, 3, POLAR_E_ARG},   {1, ONTO, 2, POLAR_E_ARG},
    {1, ONTO, 0, POLAR_E_ARG},     {0, SCALAR, 0, POLAR_E_ARG}, {1, NO_DATA, 0, POLAR_E_ARG},
};

const op_calls pl_calls_layernorm = {"layernorm f32 3x7x13 per_matrix eps 1e-06", LIST(layernorm_bad),
                                     LIST(layernorm_faults)};

static void back_without_z(pl_queue *q, const pl_args_layernorm_back *a)
{
    pl_args_layernorm_back wrong = *a;
    wrong.Z.data = NULL;
    pl_ref_ops.layernorm_back(q, &wrong);
}

/* dx = r h: the statistics' own gradients left out. */
static void back_straight_only(pl_queue *q, const pl_args_layernorm_back *a)
{
    pl_ref_ops.layernorm_back(q, a);
    for (int64_t j = 0; j < a->dX.cols; j++)
        put(&a->dX, 0, 0, j, get(&a->S, 0, 0, 1) * get(&a->dY, 0, 0, j) * get(&a->g, 0, 0, j));
}

/* Of 2113 rows the last is left out of dg and db. */
static void back_sums_short(pl_queue *q, const pl_args_layernorm_back *a)
{
    pl_args_layernorm_back less = *a;
    pl_ref_ops.layernorm_back(q, a);
    less.dX.rows -= 1, less.X.rows -= 1, less.S.rows -= 1, less.dY.rows -= 1, less.Z.rows -= 1;
    pl_ref_ops.layernorm_back(q, &less);
}

/* dX is right, dL is not: as if there were no Z, */
static void low_without_z(pl_queue *q, const pl_args_layernorm_back *a)
{
    pl_args_layernorm_back wrong = *a;
    wrong.dX = a->dL;
    wrong.Z.data = wrong.dL.data = NULL;
    pl_ref_ops.layernorm_back(q, a);
    pl_ref_ops.layernorm_back(q, &wrong);
}

/* or cut to bf16 instead of rounded. */
static void low_cut(pl_queue *q, const pl_args_layernorm_back *a)
{
    pl_ref_ops.layernorm_back(q, a);
    for (int64_t i = 0; i < a->dL.rows; i++)
        for (int64_t j = 0; j < a->dL.cols; j++) {
            float x = (float)get(&a->dX, 0, i, j);
            uint32_t bits;
            memcpy(&bits, &x, sizeof bits);
            bits &= 0xffff0000u;
            memcpy(&x, &bits, sizeof x);
            put(&a->dL, 0, i, j, x);
        }
}

/* dL is dX, not s dX; */
static void low_unscaled(pl_queue *q, const pl_args_layernorm_back *a)
{
    pl_args_layernorm_back wrong = *a;
    wrong.s.data = NULL;
    pl_ref_ops.layernorm_back(q, &wrong);
}

/* or its rows have the factors by turns. */
static void low_by_turns(pl_queue *q, const pl_args_layernorm_back *a)
{
    pl_ref_ops.layernorm_back(q, a);
    for (int64_t b = 0; b < a->dL.batch; b++)
        for (int64_t i = 0; i < a->dL.rows; i++)
            for (int64_t j = 0; j < a->dL.cols; j++)
                put(&a->dL, b, i, j, get(&a->s, b, i % a->s.rows, 0) * get(&a->dX, b, i, j));
}

static void gains_swapped(pl_queue *q, const pl_args_layernorm_back *a)
{
    pl_args_layernorm_back wrong = *a;
    wrong.dg = a->db, wrong.db = a->dg;
    pl_ref_ops.layernorm_back(q, &wrong);
}

static const fault layernorm_back_faults[] = {
    {"a gradient without Z", "layernorm_back f32 3x7x13 Z", (op_fn)back_without_z},
    {"a gradient without the statistics'", "layernorm_back f32 3x7x13", (op_fn)back_straight_only},
    {"the last of 2113 rows left out", "layernorm_back f32 1x2113x2", (op_fn)back_sums_short},
    {"the gradient's copy without Z", "layernorm_back f32 3x7x13 strided dL Z", (op_fn)low_without_z},
    {"the gradient's copy cut", "layernorm_back f32,bf16,f32->f32,bf16 3x7x13 strided dL Z", (op_fn)low_cut},
    {"the gradient's copy without its factors", "layernorm_back f32 3x7x13 strided dL Z s",
     (op_fn)low_unscaled},
    {"factors of the gradient's copy by turns", "layernorm_back f32 1x65x5 strided dL Z s",
     (op_fn)low_by_turns},
    {"gains for shifts", "layernorm_back f32 3x7x13", (op_fn)gains_swapped},
};

static const bad_call layernorm_back_bad[] = {
    {4, ROWS, 0, POLAR_E_SHAPE}, {1, COLS, 0, POLAR_E_SHAPE},   {2, BATCH, 0, POLAR_E_SHAPE},
    {5, ROWS, 0, POLAR_E_SHAPE}, {5, FORMAT, 0, POLAR_E_DTYPE}, {6, COLS, 0, POLAR_E_SHAPE},
    {7, ROWS, 0, POLAR_E_SHAPE}, {8, COLS, 0, POLAR_E_SHAPE},   {0, ONTO, 4, POLAR_E_ARG},
    {0, ONTO, 7, POLAR_E_ARG},   {0, ONTO, 8, POLAR_E_ARG},     {1, ONTO, 2, POLAR_E_ARG},
    {1, ONTO, 7, POLAR_E_ARG},   {2, ONTO, 8, POLAR_E_ARG},     {7, NO_DATA, 0, POLAR_E_ARG},
    {3, ROWS, 0, POLAR_E_SHAPE}, {3, COLS, 0, POLAR_E_SHAPE},   {3, ONTO, 0, POLAR_E_ARG},
    {3, ONTO, 4, POLAR_E_ARG},   {3, ONTO, 7, POLAR_E_ARG},     {3, ONTO, 8, POLAR_E_ARG},
    {9, ROWS, 0, POLAR_E_SHAPE}, {9, COLS, 0, POLAR_E_SHAPE},   {9, BATCH, 0, POLAR_E_SHAPE},
    {3, ONTO, 9, POLAR_E_ARG},   {3, NO_DATA, 0, POLAR_E_ARG},
};

const op_calls pl_calls_layernorm_back = {"layernorm_back f32 3x7x13 strided dL Z s",
                                          LIST(layernorm_back_bad), LIST(layernorm_back_faults)};
