/* op_calls.h -- calls that make no sense, for test_op_calls, test_op_calls_nn and test_op_calls_vit: each is
 * a valid case with one field of one operand spoilt; it must be refused at the next sync with a sentence that
 * names the op.
 */
#ifndef POLAR_TEST_OP_CALLS_H
#define POLAR_TEST_OP_CALLS_H

#include "device/backend.h"
#include "test.h"
#include "verify/ops/op_case_impl.h"
#include "op_model.h"

static int good(const pl_op_result *r)
{
    return !r->outside && !r->nan_mismatch && !r->unwritten && !r->padding_touched && !r->const_changed &&
           r->err <= r->tol;
}

/* ---- what wrong ops are made of ---- */

static inline double get(const pl_mat *m, int64_t b, int64_t i, int64_t j)
{
    return pl_load_f64(m->data, m->dtype, b * m->bs + i * m->rs + j);
}

static inline void put(const pl_mat *m, int64_t b, int64_t i, int64_t j, double x)
{
    pl_store_f64(m->data, m->dtype, b * m->bs + i * m->rs + j, x);
}

/* Every entry times a factor. */
static inline void scale_all(const pl_mat *m, double factor)
{
    for (int64_t b = 0; b < m->batch; b++)
        for (int64_t i = 0; i < m->rows; i++)
            for (int64_t j = 0; j < m->cols; j++) put(m, b, i, j, factor * get(m, b, i, j));
}

typedef struct {
    const char *what, *name; /* the fault, and the case in which it must be seen */
    size_t at;               /* of the op in pl_ops */
    void (*op)(void);
} fault;

#define FAULT(what, name, op, fn)                            \
    {                                                        \
        what, name, offsetof(pl_ops, op), (void (*)(void))fn \
    }

/* The measuring itself: devices with one wrong op must be caught. The faulty ops read host memory, so they
 * sit on ref's device. */
static void planted_faults(const fault *faults, size_t n)
{
    pl_device *ref;
    pl_ops ops = pl_ref_ops;
    TEST_TRY(polar_device_open(&ref, "ref"));
    for (size_t i = 0; i < n; i++) {
        pl_op_case c;
        pl_op_result r = {0};
        int found = pl_op_case_named(&c, faults[i].name);
        ref->ops = ops;
        memcpy((char *)&ref->ops + faults[i].at, &faults[i].op, sizeof faults[i].op);
        if (found) TEST_TRY(pl_op_case_measure(&r, &c, PL_FILL_NORMAL, ref, NULL));
        char what[80];
        snprintf(what, sizeof what, "planted: %s", faults[i].what);
        test_true(what, found && !good(&r),
                  "%s: err %.1e tol %.1e outside %lld nan %lld unwritten %lld padding %lld const %lld",
                  found ? faults[i].name : "no such case", r.err, r.tol, (long long)r.outside,
                  (long long)r.nan_mismatch, (long long)r.unwritten, (long long)r.padding_touched,
                  (long long)r.const_changed);
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
}; /* ONTO: moved one element behind the start of operand `other`; SCALAR: the scalar `other` from the end
      becomes -1; MODE: whole number `other` behind the operands becomes 99, which none of its names is;
      PLAIN: a direction's V with nothing to do */

typedef struct {
    pl_op_id op;
    int operand, kind, other;
    polar_status want;
} bad_call;

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
    case SCALAR:
        *(double *)((char *)&r->args + pl_op_describe(bad->op)->args_bytes - 8 * (size_t)(1 + bad->other)) =
            -1;
        break;
    case MODE: ((int64_t *)((pl_mat *)&r->args + r->operands))[bad->other] = 99; break;
    case PLAIN: r->args.direction.precondition = POLAR_PRECONDITION_NONE; break;
    }
}

/* Each of the n calls spoils the case that `valid` names for its op; every op of a kind (0: the first ones,
 * 1: the layers', 2: the transformer's) must have some. */
static void bad_use(pl_device *dev, const bad_call *bad_calls, int n, const char *const *valid, int kind)
{
    int64_t accepted = 0, misnamed = 0, touched = 0, stuck = 0;
    int tried[PL_OP_COUNT] = {0};
    for (int i = 0; i < n; i++) {
        const bad_call *bad = &bad_calls[i];
        const char *op = pl_op_describe(bad->op)->name;
        pl_op_case c;
        pl_op_run *r;
        if (!pl_op_case_named(&c, valid[bad->op])) {
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
            printf("    %s, operand %d, fault %d: status %d for %d, \"%s\"  FAIL\n", op, bad->operand,
                   bad->kind, st, bad->want, st ? polar_error_message() : "");
        accepted += st != bad->want;
        misnamed += !named;
        TEST_TRY(pl_op_run_fetch(r));
        for (int o = 0; o < r->operands; o++)
            touched += r->buffers[o].bytes &&
                       memcmp(r->buffers[o].before, r->buffers[o].after, r->buffers[o].bytes) != 0;
        r->args = right; /* the error is over: the queue works again */
        pl_op_run_enqueue(r);
        stuck += polar_queue_sync(pl_op_run_queue(r)) != POLAR_OK;
        pl_op_run_destroy(r);
    }
    int untried = 0;
    for (int op = 0; op < PL_OP_COUNT; op++) /* refusals of fused ops: test_amx, test_pair_message */
        untried += !tried[op] &&
                   (pl_nn_case((pl_op_id)op)    ? 1
                    : pl_vit_case((pl_op_id)op) ? 2
                                                : 0) == kind &&
                   !pl_op_describe((pl_op_id)op)->fused;
    test_true("bad calls are refused at the next sync", accepted == 0 && untried == 0,
              "%d calls, %lld accepted or with another status", n, (long long)accepted);
    test_exact("... with a sentence that names the op", misnamed);
    test_exact("... and touch nothing", touched);
    test_exact("... and the queue works on after", stuck);
}

#endif
