/* test_op_calls.c -- wrong ops and wrong calls: the measuring of op_case.h sees planted faults (on ref), and
 * the device argv[1] refuses calls that make no sense. The layers' ops: test_op_calls_nn.
 */
#include "op_calls.h"

/* ---- the measuring itself: devices with one wrong op must be caught ---- */

static unsigned char *entry(const pl_mat *m, int64_t b, int64_t i, int64_t j)
{
    return (unsigned char *)m->data + (size_t)(b * m->bs + i * m->rs + j) * polar_dtype_size(m->dtype);
}

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

static void gemm_on_factor(pl_queue *q, const pl_args_gemm *a)
{
    pl_ref_ops.gemm(q, a);
    *entry(&a->A, 0, 0, 0) ^= 1;
}

/* Forgets the last k. */
static void gemm_short(pl_queue *q, const pl_args_gemm *a)
{
    pl_args_gemm less = *a;
    less.A.cols -= 1;
    less.B.rows -= 1;
    pl_ref_ops.gemm(q, &less);
}

static void gemm_nan(pl_queue *q, const pl_args_gemm *a)
{
    pl_ref_ops.gemm(q, a);
    pl_store_f64(a->C.data, a->C.dtype, 0, NAN);
}

/* Rounds the accumulator to bf16 before the epilogue. */
static void gemm_rounds_twice(pl_queue *q, const pl_args_gemm *a)
{
    pl_ref_ops.gemm(q, a);
    for (int64_t i = 0; i < a->C.rows; i++)
        for (int64_t j = 0; j < a->C.cols; j++)
            pl_store_f64(
                entry(&a->C, 0, i, j), a->C.dtype, 0,
                (double)pl_round_to(pl_load_f64(entry(&a->C, 0, i, j), a->C.dtype, 0), POLAR_DTYPE_BF16));
}

static void frob_unscaled(pl_queue *q, const pl_args_frob *a)
{
    pl_ref_ops.frob(q, a);
    pl_store_f64(a->N.data, a->N.dtype, 0, 0.5 * pl_load_f64(a->N.data, a->N.dtype, 0));
}

static void polar_negative(pl_queue *q, const pl_args_polar_exact *a)
{
    pl_ref_ops.polar_exact(q, a);
    for (int64_t i = 0; i < a->Y.rows; i++)
        for (int64_t j = 0; j < a->Y.cols; j++)
            pl_store_f64(entry(&a->Y, 0, i, j), a->Y.dtype, 0,
                         -pl_load_f64(entry(&a->Y, 0, i, j), a->Y.dtype, 0));
}

/* 1e-13 off the sphere of orthogonal matrices. */
static void polar_scaled(pl_queue *q, const pl_args_polar_exact *a)
{
    pl_ref_ops.polar_exact(q, a);
    for (int64_t i = 0; i < a->Y.rows; i++)
        for (int64_t j = 0; j < a->Y.cols; j++)
            pl_store_f64(entry(&a->Y, 0, i, j), a->Y.dtype, 0,
                         (1 + 1e-13) * pl_load_f64(entry(&a->Y, 0, i, j), a->Y.dtype, 0));
}

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

/* The first matrix's live values for all. */
static void step_of_the_first(pl_queue *q, const pl_args_decay_step *a)
{
    pl_args_decay_step b = *a;
    b.live.batch = 1;
    pl_ref_ops.decay_step(q, &b);
}

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

/* A flag that somebody else has set is lowered. */
static void flag_lowered(pl_queue *q, const pl_args_nonfinite *a)
{
    for (int64_t b = 0; b < a->F.batch; b++) ((float *)a->F.data)[b * a->F.bs] = 0;
    pl_ref_ops.nonfinite(q, a);
}

/* A step that was left out is counted all the same. */
static void counts_all(pl_queue *q, const pl_args_advance *a)
{
    pl_ref_ops.advance(q, a);
    for (int64_t r = 0; r < a->T.batch; r++)
        if (((const double *)a->L.data)[r * a->L.bs + PL_LIVE_SKIP] != 0)
            ((double *)a->T.data)[r * a->T.bs] += 1;
}

static const fault faults[] = {
    FAULT("a copy one ulp off", "copy f32 3x7x13", copy, copy_one_ulp),
    FAULT("a last column left out", "copy f32 3x7x13", copy, copy_short),
    FAULT("a byte behind the last element", "copy f32 3x7x13", copy, copy_beside),
    FAULT("a factor written to", "gemm f32 3x33x17x64 1", gemm, gemm_on_factor),
    FAULT("the last of 300 terms left out", "gemm f32 1x9x21x300 1", gemm, gemm_short),
    FAULT("a NaN", "gemm f64 1x8x44x8 1", gemm, gemm_nan),
    FAULT("f32 results rounded to bf16", "gemm bf16->f32 1x8x44x8 1", gemm, gemm_rounds_twice),
    FAULT("a norm in the wrong unit", "frob bf16 3x7x13 1", frob, frob_unscaled),
    FAULT("minus the polar factor", "polar_exact f64 3x7x13", polar_exact, polar_negative),
    FAULT("a polar factor 1e-13 too long", "polar_exact f64 3x7x13", polar_exact, polar_scaled),
    FAULT("Adam without its epsilon", "direction f32 3x7x13 0.5,0.75", direction, adam_without_epsilon),
    FAULT("Nesterov's momentum without its second part", "direction f32 3x7x13 nesterov plain 0.95",
          direction, nesterov_forgotten),
    FAULT("one learning rate for all of a batch", "decay_step f32 3x7x13 per_matrix 2", decay_step,
          step_of_the_first),
    FAULT("a step of everybody, also where it is to be left out", "decay_step f32 3x7x13 per_matrix 2",
          decay_step, step_of_all),
    FAULT("a flag that is lowered", "nonfinite f32 3x7x13 per_matrix", nonfinite, flag_lowered),
    FAULT("a step left out and yet counted", "advance f64 6x1x9 0.9,0.999", advance, counts_all),
    FAULT("a decay that forgets wd", "adamw_step f32 3x7x13 0.9,0.999", adamw_step, adamw_decays_twice),
};

/* ---- bad calls ---- */

static const bad_call bad_calls[] = {
    {PL_OP_copy, 0, ROWS, 0, POLAR_E_SHAPE},
    {PL_OP_copy, 1, COLS, 0, POLAR_E_SHAPE},
    {PL_OP_copy, 1, BATCH, 0, POLAR_E_SHAPE},
    {PL_OP_copy, 1, UNKNOWN_FORMAT, 0, POLAR_E_DTYPE},
    {PL_OP_copy, 1, NO_DATA, 0, POLAR_E_ARG},
    {PL_OP_copy, 0, NO_DATA, 0, POLAR_E_ARG},
    {PL_OP_copy, 0, ROW_STRIDE, 0, POLAR_E_SHAPE},
    {PL_OP_copy, 0, ONTO, 1, POLAR_E_ARG},
    {PL_OP_axpby, 1, ROWS, 0, POLAR_E_SHAPE},
    {PL_OP_axpby, 2, COLS, 0, POLAR_E_SHAPE},
    {PL_OP_axpby, 0, ONTO, 1, POLAR_E_ARG},
    {PL_OP_axpby, 0, ONTO, 2, POLAR_E_ARG},
    {PL_OP_axpby, 2, UNKNOWN_FORMAT, 0, POLAR_E_DTYPE},
    {PL_OP_axpby, 1, NO_DATA, 0, POLAR_E_ARG},
    {PL_OP_gemm, 0, ROWS, 0, POLAR_E_SHAPE},
    {PL_OP_gemm, 0, COLS, 0, POLAR_E_SHAPE},
    {PL_OP_gemm, 1, COLS, 0, POLAR_E_SHAPE},
    {PL_OP_gemm, 2, ROWS, 0, POLAR_E_SHAPE},
    {PL_OP_gemm, 1, BATCH, 0, POLAR_E_SHAPE},
    {PL_OP_gemm, 2, BATCH, 0, POLAR_E_SHAPE},
    {PL_OP_gemm, 3, ROWS, 0, POLAR_E_SHAPE},
    {PL_OP_gemm, 2, FORMAT, 0, POLAR_E_DTYPE},
    {PL_OP_gemm, 0, ONTO, 1, POLAR_E_ARG},
    {PL_OP_gemm, 0, ONTO, 2, POLAR_E_ARG},
    {PL_OP_gemm, 0, ONTO, 3, POLAR_E_ARG},
    {PL_OP_gemm, 1, NO_DATA, 0, POLAR_E_ARG},
    {PL_OP_gemm, 1, NEGATIVE, 0, POLAR_E_SHAPE},
    {PL_OP_frob, 0, FORMAT, 0, POLAR_E_DTYPE},
    {PL_OP_frob, 0, COLS, 0, POLAR_E_SHAPE},
    {PL_OP_frob, 1, BATCH, 0, POLAR_E_SHAPE},
    {PL_OP_frob, 1, SCALAR, 2, POLAR_E_ARG},
    {PL_OP_frob, 1, NO_DATA, 0, POLAR_E_ARG},
    {PL_OP_frob_join, 0, BATCH, 0, POLAR_E_SHAPE},
    {PL_OP_frob_join, 1, COLS, 0, POLAR_E_SHAPE},
    {PL_OP_frob_join, 1, FORMAT, 0, POLAR_E_DTYPE},
    {PL_OP_normalise, 1, ROWS, 0, POLAR_E_SHAPE},
    {PL_OP_normalise, 2, BATCH, 0, POLAR_E_SHAPE},
    {PL_OP_normalise, 2, FORMAT, 0, POLAR_E_DTYPE},
    {PL_OP_normalise, 0, ONTO, 1, POLAR_E_ARG},
    {PL_OP_polar_exact, 1, COLS, 0, POLAR_E_SHAPE},
    {PL_OP_polar_exact, 0, ONTO, 1, POLAR_E_ARG},
    {PL_OP_polar_exact, 1, UNKNOWN_FORMAT, 0, POLAR_E_DTYPE},
    {PL_OP_direction, 1, ROWS, 0, POLAR_E_SHAPE},
    {PL_OP_direction, 2, COLS, 0, POLAR_E_SHAPE},
    {PL_OP_direction, 3, BATCH, 0, POLAR_E_SHAPE},
    {PL_OP_direction, 4, COLS, 0, POLAR_E_SHAPE},
    {PL_OP_direction, 4, BATCH, 0, POLAR_E_SHAPE},
    {PL_OP_direction, 4, FORMAT, 0, POLAR_E_DTYPE},
    {PL_OP_direction, 2, NO_DATA, 0, POLAR_E_ARG},
    {PL_OP_direction, 0, PLAIN, 0, POLAR_E_ARG},
    {PL_OP_direction, 0, MODE, 0, POLAR_E_ARG},
    {PL_OP_direction, 0, MODE, 1, POLAR_E_ARG},
    {PL_OP_direction, 1, ONTO, 2, POLAR_E_ARG},
    {PL_OP_direction, 1, ONTO, 3, POLAR_E_ARG},
    {PL_OP_direction, 0, ONTO, 3, POLAR_E_ARG},
    {PL_OP_direction, 0, ONTO, 1, POLAR_E_ARG},
    {PL_OP_direction, 0, ONTO, 2, POLAR_E_ARG},
    {PL_OP_decay_step, 1, ROWS, 0, POLAR_E_SHAPE},
    {PL_OP_decay_step, 0, ONTO, 1, POLAR_E_ARG},
    {PL_OP_decay_step, 2, COLS, 0, POLAR_E_SHAPE},
    {PL_OP_decay_step, 2, BATCH, 0, POLAR_E_SHAPE},
    {PL_OP_decay_step, 2, FORMAT, 0, POLAR_E_DTYPE},
    {PL_OP_adamw_step, 1, ROWS, 0, POLAR_E_SHAPE},
    {PL_OP_adamw_step, 2, COLS, 0, POLAR_E_SHAPE},
    {PL_OP_adamw_step, 3, BATCH, 0, POLAR_E_SHAPE},
    {PL_OP_adamw_step, 4, COLS, 0, POLAR_E_SHAPE},
    {PL_OP_adamw_step, 4, BATCH, 0, POLAR_E_SHAPE},
    {PL_OP_adamw_step, 4, FORMAT, 0, POLAR_E_DTYPE},
    {PL_OP_adamw_step, 2, NO_DATA, 0, POLAR_E_ARG},
    {PL_OP_adamw_step, 0, ONTO, 1, POLAR_E_ARG},
    {PL_OP_adamw_step, 0, ONTO, 2, POLAR_E_ARG},
    {PL_OP_adamw_step, 0, ONTO, 3, POLAR_E_ARG},
    {PL_OP_adamw_step, 1, ONTO, 2, POLAR_E_ARG},
    {PL_OP_adamw_step, 2, ONTO, 3, POLAR_E_ARG},
    {PL_OP_adamw_step, 1, ONTO, 3, POLAR_E_ARG},
    {PL_OP_nonfinite, 0, COLS, 0, POLAR_E_SHAPE},
    {PL_OP_nonfinite, 0, BATCH, 0, POLAR_E_SHAPE},
    {PL_OP_nonfinite, 0, FORMAT, 0, POLAR_E_DTYPE},
    {PL_OP_nonfinite, 0, ONTO, 1, POLAR_E_ARG},
    {PL_OP_nonfinite, 1, NO_DATA, 0, POLAR_E_ARG},
    {PL_OP_advance, 0, COLS, 0, POLAR_E_SHAPE},
    {PL_OP_advance, 1, COLS, 0, POLAR_E_SHAPE},
    {PL_OP_advance, 1, BATCH, 0, POLAR_E_SHAPE},
    {PL_OP_advance, 1, FORMAT, 0, POLAR_E_DTYPE},
    {PL_OP_advance, 2, FORMAT, 0, POLAR_E_DTYPE},
    {PL_OP_advance, 3, FORMAT, 0, POLAR_E_DTYPE},
    {PL_OP_advance, 4, COLS, 0, POLAR_E_SHAPE},
    {PL_OP_advance, 1, ONTO, 0, POLAR_E_ARG},
    {PL_OP_advance, 1, NO_DATA, 0, POLAR_E_ARG},
};

static const char *const valid[PL_OP_COUNT] = {
    [PL_OP_copy] = "copy f32 3x7x13",
    [PL_OP_axpby] = "axpby f32 3x7x13 Z 2,-3",
    [PL_OP_gemm] = "gemm f32 3x33x17x64 D 2,-3",
    [PL_OP_frob] = "frob f32 3x7x13 1",
    [PL_OP_frob_join] = "frob_join f64 3x1x2",
    [PL_OP_normalise] = "normalise f32 3x7x13",
    [PL_OP_polar_exact] = "polar_exact f32 3x7x13",
    [PL_OP_direction] = "direction f32 3x7x13 per_matrix 0.9,0.999",
    [PL_OP_decay_step] = "decay_step f32 3x7x13 per_matrix 2",
    [PL_OP_adamw_step] = "adamw_step f32 3x7x13 per_matrix 0.9,0.999",
    [PL_OP_nonfinite] = "nonfinite f32 3x7x13 per_matrix",
    [PL_OP_advance] = "advance f64 6x1x9 found scale 0.95,0.75"};

int main(int argc, char **argv)
{
    const char *name = test_begin(argc, argv);
    pl_device *dev;
    TEST_TRY(polar_device_open(&dev, name));
    if (!strcmp(name, "ref")) planted_faults(faults, sizeof faults / sizeof *faults);
    bad_use(dev, bad_calls, (int)(sizeof bad_calls / sizeof *bad_calls), valid, 0);
    polar_device_close(dev);
    return test_end();
}
