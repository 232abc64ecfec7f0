/* op_expect_vectors.c -- what dot products, lengths and gates of vectors may be. */
#include "math/vectors_elem.h"
#include "op_calls.h"
#include "op_model_sums.h"

/* The vector of row `row` and channel c of operand o. */
static void get3(pl_iv out[3], const pl_op_run *r, int o, int64_t b, int64_t row, int64_t c)
{
    for (int d = 0; d < 3; d++) out[d] = at(r, o, b, 3 * row + d, c);
}

static pl_iv model_dot(const pl_op_run *r, int o, int64_t a, int p, int64_t c, int64_t b, int64_t row,
                       polar_dtype ct)
{
    running s = {.whole = 1};
    for (int d = 0; d < 3; d++)
        add_term(&s, pl_op_run_before(r, o, b, 3 * row + d, a), pl_op_run_before(r, p, b, 3 * row + d, c));
    return end_sum(&s, 3, ct);
}

static pl_iv model_vec_dots(const pl_op_run *r, int64_t b, int64_t row, int64_t ab, polar_dtype ct)
{
    int64_t i, j;
    points_of(&i, &j, r->c.cols, ab);
    return model_dot(r, 1, i, 1, j, b, row, ct);
}

MODEL(vec_dots)
{
    return model_vec_dots(r, b, i, j, ct);
}

static pl_iv model_vec_dots_back(const pl_op_run *r, int64_t b, int64_t row, int64_t c, polar_dtype ct)
{
    running a = {.whole = 1};
    int64_t h = r->c.cols;
    for (int64_t k = 0; k < h; k++)
        add_term(&a, (c == k ? 2 : 1) * pl_op_run_before(r, 2, b, row / 3, pair(h, c, k)),
                 pl_op_run_before(r, 1, b, row, k));
    return sum(at(r, 0, b, row, c), end_sum(&a, (long double)h, ct), ct);
}

MODEL(vec_dots_back)
{
    return model_vec_dots_back(r, b, i, j, ct);
}

/* R of row `row` and channel c of operand o. */
static pl_iv norm(const pl_op_run *r, int o, int64_t b, int64_t row, int64_t c, polar_dtype ct)
{
    pl_iv v[3];
    get3(v, r, o, b, row, c);
    return pl_iv_in(pl_iv_sqrt(sum(pl_square_sum(v, ct), scalar(r->c.how.eps, ct), ct)), ct);
}

MODEL(vec_norm)
{
    return norm(r, 1, b, i, j, ct);
}

static pl_iv model_vec_norm_back(const pl_op_run *r, int64_t b, int64_t i, int64_t c, polar_dtype ct)
{
    pl_iv along = pl_iv_in(pl_iv_div(at(r, 2, b, i / 3, c), norm(r, 1, b, i / 3, c, ct)), ct);
    return fused(along, at(r, 1, b, i, c), at(r, 0, b, i, c), ct);
}

MODEL(vec_norm_back)
{
    return model_vec_norm_back(r, b, i, j, ct);
}

/* g R + b, V and its gate being operands v, v + 1 and v + 2. */
static pl_iv gate_argument(const pl_op_run *r, int v, pl_iv R, int64_t b, int64_t c, polar_dtype ct)
{
    return fused(at(r, v + 1, r->mat[v + 1].batch == 1 ? 0 : b, 0, c), R,
                 at(r, v + 2, r->mat[v + 2].batch == 1 ? 0 : b, 0, c), ct);
}

static pl_iv model_vec_gate(const pl_op_run *r, int64_t b, int64_t i, int64_t c, polar_dtype ct)
{
    pl_iv s = pl_model_curve(SIGMOID, gate_argument(r, 1, norm(r, 1, b, i / 3, c, ct), b, c, ct), ct);
    return fused(at(r, 1, b, i, c), s, has(r, 4) ? at(r, 4, b, i, c) : pl_iv_point(0), ct);
}

MODEL(vec_gate)
{
    return model_vec_gate(r, b, i, j, ct);
}

/* Result o: 0 dV (i a row of vectors), 1 T, 2 TR (i a row of scalars). */
static pl_iv model_vec_gate_back(const pl_op_run *r, int o, int64_t b, int64_t i, int64_t c, polar_dtype ct)
{
    int64_t row = o == 0 ? i / 3 : i;
    pl_iv R = norm(r, 3, b, row, c, ct), u = gate_argument(r, 3, R, b, c, ct);
    pl_iv t = product(model_dot(r, 6, c, 3, c, b, row, ct), pl_model_curve(SIGMOID_SLOPE, u, ct), ct);
    if (o == 1) return t;
    if (o == 2) return product(t, R, ct);
    pl_iv along = pl_iv_in(pl_iv_div(product(t, at(r, 4, r->mat[4].batch == 1 ? 0 : b, 0, c), ct), R), ct);
    return fused(along, at(r, 3, b, i, c), product(at(r, 6, b, i, c), pl_model_curve(SIGMOID, u, ct), ct),
                 ct);
}

MODEL(vec_gate_back)
{
    return model_vec_gate_back(r, o, b, i, j, ct);
}

/* ---- wrong ops that must be caught, wrong calls that must be refused ---- */

static void dots_swapped(pl_queue *q, const pl_args_vec_dots *a)
{
    pl_ref_ops.vec_dots(q, a);
    double x = get(&a->Q, 0, 0, 1);
    put(&a->Q, 0, 0, 1, get(&a->Q, 0, 0, 2));
    put(&a->Q, 0, 0, 2, x);
}

static const fault vec_dots_faults[] = {
    {"two dot products swapped", "vec_dots f32 2x3x2", (op_fn)dots_swapped},
};

static const bad_call vec_dots_bad[] = {
    {0, COLS, 0, POLAR_E_SHAPE},
    {0, ROWS, 0, POLAR_E_SHAPE},
    {1, BATCH, 0, POLAR_E_SHAPE},
    {0, ONTO, 1, POLAR_E_ARG},
};

const op_calls pl_calls_vec_dots = {"vec_dots f32 3x7x13", LIST(vec_dots_bad), LIST(vec_dots_faults)};

/* dv_a += sum_b dQ_ab v_b with the diagonal once. */
static void square_slope_once(pl_queue *q, const pl_args_vec_dots_back *a)
{
    pl_ref_ops.vec_dots_back(q, a);
    for (int64_t i = 0; i < a->dV.rows; i++)
        put(&a->dV, 0, i, 0, get(&a->dV, 0, i, 0) - get(&a->dQ, 0, i / 3, 0) * get(&a->V, 0, i, 0));
}

static const fault vec_dots_back_faults[] = {
    {"the slope of a square once", "vec_dots_back f32 2x3x2", (op_fn)square_slope_once},
};

static const bad_call vec_dots_back_bad[] = {
    {1, ROWS, 0, POLAR_E_SHAPE}, {2, COLS, 0, POLAR_E_SHAPE}, {2, ROWS, 0, POLAR_E_SHAPE},
    {0, ONTO, 1, POLAR_E_ARG},   {0, ONTO, 2, POLAR_E_ARG},
};

const op_calls pl_calls_vec_dots_back = {"vec_dots_back f32 3x7x13", LIST(vec_dots_back_bad),
                                         LIST(vec_dots_back_faults)};

static void norm_of_two(pl_queue *q, const pl_args_vec_norm *a)
{
    (void)q;
    for (int64_t b = 0; b < a->R.batch; b++)
        for (int64_t r = 0; r < a->R.rows; r++)
            for (int64_t c = 0; c < a->R.cols; c++)
                put(&a->R, b, r, c,
                    sqrt(pow(get(&a->V, b, 3 * r, c), 2) + pow(get(&a->V, b, 3 * r + 1, c), 2) + a->eps));
}

static const fault vec_norm_faults[] = {
    {"a norm of two components", "vec_norm f32 3x7x13 eps 1e-08", (op_fn)norm_of_two},
};

static const bad_call vec_norm_bad[] = {
    {0, ROWS, 0, POLAR_E_SHAPE},
    {1, COLS, 0, POLAR_E_SHAPE},
    {0, ONTO, 1, POLAR_E_ARG},
    {0, SCALAR, 0, POLAR_E_ARG},
};

const op_calls pl_calls_vec_norm = {"vec_norm f32 3x7x13 eps 1e-08", LIST(vec_norm_bad),
                                    LIST(vec_norm_faults)};

static void norm_back_overwrites(pl_queue *q, const pl_args_vec_norm_back *a)
{
    for (int64_t b = 0; b < a->dV.batch; b++)
        for (int64_t i = 0; i < a->dV.rows; i++)
            for (int64_t c = 0; c < a->dV.cols; c++) put(&a->dV, b, i, c, 0);
    pl_ref_ops.vec_norm_back(q, a);
}

static const fault vec_norm_back_faults[] = {
    {"a gradient that replaces", "vec_norm_back f32 3x7x13 eps 1e-08", (op_fn)norm_back_overwrites},
};

static const bad_call vec_norm_back_bad[] = {
    {1, ROWS, 0, POLAR_E_SHAPE}, {2, ROWS, 0, POLAR_E_SHAPE}, {0, ONTO, 1, POLAR_E_ARG},
    {0, ONTO, 2, POLAR_E_ARG},   {0, SCALAR, 0, POLAR_E_ARG},
};

const op_calls pl_calls_vec_norm_back = {"vec_norm_back f32 3x7x13 eps 1e-08", LIST(vec_norm_back_bad),
                                         LIST(vec_norm_back_faults)};

static void gate_without_bias(pl_queue *q, const pl_args_vec_gate *a)
{
    pl_args_vec_gate wrong = *a;
    wrong.b = wrong.g;
    pl_ref_ops.vec_gate(q, &wrong);
}

static const fault vec_gate_faults[] = {
    {"a gate with another bias", "vec_gate f32 3x7x13 eps 1e-08", (op_fn)gate_without_bias},
};

static const bad_call vec_gate_bad[] = {
    {1, ROWS, 0, POLAR_E_SHAPE}, {2, COLS, 0, POLAR_E_SHAPE}, {3, BATCH, 0, POLAR_E_SHAPE},
    {4, COLS, 0, POLAR_E_SHAPE}, {0, ONTO, 1, POLAR_E_ARG},   {0, ONTO, 2, POLAR_E_ARG},
    {0, ONTO, 4, POLAR_E_ARG},   {0, SCALAR, 0, POLAR_E_ARG}, {3, NO_DATA, 0, POLAR_E_ARG},
};

const op_calls pl_calls_vec_gate = {"vec_gate f32 3x7x13 per_matrix Z Y on V eps 0.25", LIST(vec_gate_bad),
                                    LIST(vec_gate_faults)};

static void gate_back_without_norm(pl_queue *q, const pl_args_vec_gate_back *a)
{
    pl_ref_ops.vec_gate_back(q, a);
    for (int64_t c = 0; c < a->T.cols; c++) put(&a->TR, 0, 0, c, get(&a->T, 0, 0, c));
}

static void gate_back_straight_only(pl_queue *q, const pl_args_vec_gate_back *a)
{
    (void)q;
    pl_ref_ops.vec_gate_back(q, a);
    for (int64_t c = 0; c < a->T.cols; c++) {
        double v[3], r;
        for (int d = 0; d < 3; d++) v[d] = get(&a->V, 0, d, c);
        r = pl_norm3_f64(v[0], v[1], v[2], a->eps);
        put(&a->dV, 0, 0, c,
            get(&a->dY, 0, 0, c) * pl_sigmoid_f64(get(&a->g, 0, 0, c) * r + get(&a->b, 0, 0, c)));
    }
}

static const fault vec_gate_back_faults[] = {
    {"T for T R", "vec_gate_back f32 3x7x13 eps 1e-08", (op_fn)gate_back_without_norm},
    {"a gate's gradient without its norm's", "vec_gate_back f32 3x7x13 eps 1e-08",
     (op_fn)gate_back_straight_only},
};

static const bad_call vec_gate_back_bad[] = {
    {1, ROWS, 0, POLAR_E_SHAPE}, {2, COLS, 0, POLAR_E_SHAPE},  {3, ROWS, 0, POLAR_E_SHAPE},
    {4, COLS, 0, POLAR_E_SHAPE}, {5, BATCH, 0, POLAR_E_SHAPE}, {6, ROWS, 0, POLAR_E_SHAPE},
    {0, ONTO, 6, POLAR_E_ARG},   {0, ONTO, 3, POLAR_E_ARG},    {1, ONTO, 2, POLAR_E_ARG},
    {1, ONTO, 6, POLAR_E_ARG},   {2, NO_DATA, 0, POLAR_E_ARG}, {0, SCALAR, 0, POLAR_E_ARG},
};

const op_calls pl_calls_vec_gate_back = {"vec_gate_back f32 3x7x13 per_matrix eps 1e-08",
                                         LIST(vec_gate_back_bad), LIST(vec_gate_back_faults)};
