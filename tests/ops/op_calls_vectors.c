/* op_calls_vectors.c -- vectors: wrong ops that must be caught, wrong calls that must be refused. */
#include "math/vectors_elem.h"
#include "op_calls.h"

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
