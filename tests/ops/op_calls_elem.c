/* op_calls_elem.c -- the elementwise ops and the steps of optimisers: wrong ops that must be caught, wrong
 * calls that must be refused. */
#include "op_calls.h"

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
    {"a step left out and yet counted", "advance f64 6x1x9 F 0.9,0.999", (op_fn)counts_all},
};

static const bad_call advance_bad[] = {
    {0, COLS, 0, POLAR_E_SHAPE},   {1, COLS, 0, POLAR_E_SHAPE},   {1, BATCH, 0, POLAR_E_SHAPE},
    {1, FORMAT, 0, POLAR_E_DTYPE}, {2, FORMAT, 0, POLAR_E_DTYPE}, {3, FORMAT, 0, POLAR_E_DTYPE},
    {4, COLS, 0, POLAR_E_SHAPE},   {1, ONTO, 0, POLAR_E_ARG},     {1, NO_DATA, 0, POLAR_E_ARG},
};

const op_calls pl_calls_advance = {"advance f64 6x1x9 F found scale 0.95,0.75", LIST(advance_bad),
                                   LIST(advance_faults)};
