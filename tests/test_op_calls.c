/* test_op_calls.c -- wrong ops and wrong calls: the measuring of op_case.h sees planted faults (on ref), and the device argv[1] refuses calls that
 * make no sense.
 *
 * Each bad call is a valid case with one field of one operand spoilt; it must be refused at the next sync with a sentence that names the op.
 */
#include "device/backend.h"
#include "test.h"
#include "verify/op_model.h"

static int good(const pl_op_result *r)
{
    return !r->outside && !r->nan_mismatch && !r->unwritten && !r->padding_touched && !r->const_changed && r->err <= r->tol;
}

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
            pl_store_f64(entry(&a->C, 0, i, j), a->C.dtype, 0,
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
            pl_store_f64(entry(&a->Y, 0, i, j), a->Y.dtype, 0, -pl_load_f64(entry(&a->Y, 0, i, j), a->Y.dtype, 0));
}

/* 1e-13 off the sphere of orthogonal matrices. */
static void polar_scaled(pl_queue *q, const pl_args_polar_exact *a)
{
    pl_ref_ops.polar_exact(q, a);
    for (int64_t i = 0; i < a->Y.rows; i++)
        for (int64_t j = 0; j < a->Y.cols; j++)
            pl_store_f64(entry(&a->Y, 0, i, j), a->Y.dtype, 0, (1 + 1e-13) * pl_load_f64(entry(&a->Y, 0, i, j), a->Y.dtype, 0));
}

static void adam_without_epsilon(pl_queue *q, const pl_args_direction *a)
{
    pl_args_direction b = *a;
    b.eps = 0;
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
    double live[4];
    memcpy(live, a->live.data, sizeof live);
    live[3] = 1;
    b.live.data = live;
    pl_ref_ops.adamw_step(q, &b);
}

static int case_named(pl_op_case *out, const char *name)
{
    char other[PL_OP_CASE_NAME];
    for (int64_t i = 0; pl_op_case_at(out, i); i++)
        if (!strcmp(name, pl_op_case_name(other, sizeof other, out))) return 1;
    return 0;
}

/* The faulty ops read host memory, so they sit on ref's device. */
static void planted_faults(void)
{
    pl_device *ref;
    pl_ops ops = pl_ref_ops;
    static const struct {
        const char *what, *name;
        size_t at;
        void (*op)(void);
    } faults[] = {
#define FAULT(what, name, op, fn) {what, name, offsetof(pl_ops, op), (void (*)(void))fn}
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
        FAULT("Nesterov's momentum without its second part", "direction f32 3x7x13 nesterov plain 0.95", direction, nesterov_forgotten),
        FAULT("one learning rate for all of a batch", "decay_step f32 3x7x13 per_matrix 2", decay_step, step_of_the_first),
        FAULT("a decay that forgets wd", "adamw_step f32 3x7x13 0.9,0.999", adamw_step, adamw_decays_twice),
#undef FAULT
    };
    TEST_TRY(polar_device_open(&ref, "ref"));
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        pl_op_case c;
        pl_op_result r = {0};
        int found = case_named(&c, faults[i].name);
        ref->ops = ops;
        memcpy((char *)&ref->ops + faults[i].at, &faults[i].op, sizeof faults[i].op);
        if (found) TEST_TRY(pl_op_case_measure(&r, &c, PL_FILL_NORMAL, ref, NULL));
        char what[80];
        snprintf(what, sizeof what, "planted: %s", faults[i].what);
        test_true(what, found && !good(&r), "%s: err %.1e tol %.1e outside %lld nan %lld unwritten %lld padding %lld const %lld",
                  found ? faults[i].name : "no such case", r.err, r.tol, (long long)r.outside, (long long)r.nan_mismatch, (long long)r.unwritten,
                  (long long)r.padding_touched, (long long)r.const_changed);
    }
    polar_device_close(ref);
}

/* ---- bad calls ---- */

enum {
    ROWS,
    COLS,
    BATCH,
    FORMAT,
    UNKNOWN_FORMAT,
    NO_DATA,
    ROW_STRIDE,
    NEGATIVE,
    ONTO,
    SCALAR,
    MODE,
    PLAIN
}; /* ONTO: moved one element behind the start of operand `other`; MODE: a momentum (other 0) or preconditioner (1) that is none; PLAIN: V with nothing to do */

typedef struct {
    pl_op_id op;
    int operand, kind, other;
    polar_status want;
} bad_call;

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
    {PL_OP_frob, 1, SCALAR, 0, POLAR_E_ARG},
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
};

static void spoil(pl_op_run *r, const bad_call *bad)
{
    pl_mat *m = (pl_mat *)&r->args + bad->operand;
    switch (bad->kind) {
    case ROWS: m->rows -= 1; break;
    case COLS: m->cols -= 1; break;
    case BATCH: m->batch += bad->op == PL_OP_frob_join ? 1 : -1; break;
    case FORMAT: m->dtype = m->dtype == POLAR_DTYPE_F32 ? POLAR_DTYPE_BF16 : POLAR_DTYPE_F32; break;
    case UNKNOWN_FORMAT: m->dtype = (polar_dtype)7; break;
    case NO_DATA: m->data = NULL; break;
    case ROW_STRIDE: m->rs = m->cols - 1; break;
    case NEGATIVE: m->bs = -1; break;
    case ONTO: m->data = (char *)((pl_mat *)&r->args)[bad->other].data + polar_dtype_size(m->dtype); break;
    case SCALAR: r->args.frob.weight = 0; break;
    case MODE: *(bad->other ? &r->args.direction.precondition : &r->args.direction.momentum) = 3; break;
    case PLAIN: r->args.direction.precondition = POLAR_PRECONDITION_NONE; break;
    }
}

static void bad_use(pl_device *dev)
{
    static const char *const valid[PL_OP_COUNT] = {[PL_OP_copy] = "copy f32 3x7x13",
                                                   [PL_OP_axpby] = "axpby f32 3x7x13 Z 2,-3",
                                                   [PL_OP_gemm] = "gemm f32 3x33x17x64 D 2,-3",
                                                   [PL_OP_frob] = "frob f32 3x7x13 1",
                                                   [PL_OP_frob_join] = "frob_join f64 3x1x2",
                                                   [PL_OP_normalise] = "normalise f32 3x7x13",
                                                   [PL_OP_polar_exact] = "polar_exact f32 3x7x13",
                                                   [PL_OP_direction] = "direction f32 3x7x13 per_matrix 0.9,0.999",
                                                   [PL_OP_decay_step] = "decay_step f32 3x7x13 per_matrix 2",
                                                   [PL_OP_adamw_step] = "adamw_step f32 3x7x13 per_matrix 0.9,0.999"};
    int64_t accepted = 0, misnamed = 0, touched = 0, stuck = 0;
    int n = (int)(sizeof bad_calls / sizeof *bad_calls), tried[PL_OP_COUNT] = {0};
    for (int i = 0; i < n; i++) {
        const bad_call *bad = &bad_calls[i];
        const char *op = pl_op_describe(bad->op)->name;
        pl_op_case c;
        pl_op_run *r;
        if (!case_named(&c, valid[bad->op])) {
            test_true("a valid case to spoil", 0, "%s", valid[bad->op]);
            continue;
        }
        tried[bad->op]++;
        TEST_TRY(pl_op_run_create(&r, &c, PL_FILL_NORMAL, dev));
        pl_op_args right = r->args;
        TEST_TRY(pl_op_run_upload(r));
        spoil(r, bad);
        pl_op_run_enqueue(r);
        polar_status st = polar_queue_sync(pl_op_run_queue(r));
        int named = strstr(polar_error_message(), op) != NULL;
        if (st != bad->want || !named)
            printf("    %s, operand %d, fault %d: status %d for %d, \"%s\"  FAIL\n", op, bad->operand, bad->kind, st, bad->want,
                   st ? polar_error_message() : "");
        accepted += st != bad->want;
        misnamed += !named;
        TEST_TRY(pl_op_run_fetch(r));
        for (int o = 0; o < r->operands; o++)
            touched += r->buffers[o].bytes && memcmp(r->buffers[o].before, r->buffers[o].after, r->buffers[o].bytes) != 0;
        r->args = right; /* the error is over: the queue works again */
        pl_op_run_enqueue(r);
        stuck += polar_queue_sync(pl_op_run_queue(r)) != POLAR_OK;
        pl_op_run_destroy(r);
    }
    int untried = 0;
    for (int op = 0; op < PL_OP_COUNT; op++) untried += !tried[op] && !pl_op_describe((pl_op_id)op)->fused;    /* refusals of fused ops: test_amx */
    test_true("bad calls are refused at the next sync", accepted == 0 && untried == 0, "%d calls, %lld accepted or with another status", n,
              (long long)accepted);
    test_exact("... with a sentence that names the op", misnamed);
    test_exact("... and touch nothing", touched);
    test_exact("... and the queue works on after", stuck);
}

int main(int argc, char **argv)
{
    const char *name = test_begin(argc, argv);
    pl_device *dev;
    TEST_TRY(polar_device_open(&dev, name));
    if (!strcmp(name, "ref")) planted_faults();
    bad_use(dev);
    polar_device_close(dev);
    return test_end();
}
