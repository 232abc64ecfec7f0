/* test_op_calls.c -- wrong ops and wrong calls: the measuring of op_case.h sees planted faults (on ref), and
 * the device argv[1] refuses calls that make no sense. Which: op_expect_<noun>.c.
 */
#include "op_calls.h"
#include "test.h"

/* ---- the measuring itself: devices with one wrong op must be caught ---- */

/* The faulty ops read host memory, so they sit on ref's device. */
static void planted_faults(pl_op_id op)
{
    pl_device *ref;
    pl_ops ops = pl_ref_ops;
    _Static_assert(sizeof ops == PL_OP_COUNT * sizeof(op_fn), "a slot for each op, in their order");
    TEST_TRY(polar_device_open(&ref, "ref"));
    const op_calls *calls = pl_op_calls(op);
    for (const fault *f = calls->faults; f < calls->faults + calls->fault_count; f++) {
        pl_op_case c;
        pl_op_result r = {0};
        int found = pl_op_case_named(&c, f->name);
        ref->ops = ops;
        memcpy((char *)&ref->ops + (size_t)op * sizeof f->op, &f->op, sizeof f->op);
        if (found) TEST_TRY(pl_op_case_measure(&r, &c, PL_FILL_NORMAL, ref, NULL));
        char what[80];
        snprintf(what, sizeof what, "planted: %s", f->what);
        test_true(what, found && !pl_op_result_good(&r),
                  "%s: err %.1e tol %.1e outside %lld nan %lld unwritten %lld padding %lld const %lld",
                  found ? f->name : "no such case", r.err, r.tol, (long long)r.outside,
                  (long long)r.nan_mismatch, (long long)r.unwritten, (long long)r.padding_touched,
                  (long long)r.const_changed);
    }
    polar_device_close(ref);
}

/* ---- bad calls ---- */

static void spoil(pl_op_run *r, const bad_call *bad)
{
    pl_mat *m = (pl_mat *)&r->args + bad->operand;
    const pl_op_info *info = pl_op_describe(r->c.op);
    switch (bad->kind) {
    case ROWS: m->rows -= 1; break;
    case COLS: m->cols -= 1; break;
    case BATCH: m->batch += r->c.op == PL_OP_frob_join ? 1 : -1; break;
    case FORMAT: m->dtype = m->dtype == POLAR_DTYPE_F32 ? POLAR_DTYPE_BF16 : POLAR_DTYPE_F32; break;
    case UNKNOWN_FORMAT: m->dtype = (polar_dtype)7; break;
    case NO_DATA: m->data = NULL; break;
    case ROW_STRIDE: m->rs = m->cols - 1; break;
    case NEGATIVE: m->bs = -1; break;
    case ONTO: m->data = (char *)((pl_mat *)&r->args)[bad->other].data + polar_dtype_size(m->dtype); break;
    case SCALAR: *(double *)((char *)&r->args + info->args_bytes - 8 * (size_t)(1 + bad->other)) = -1; break;
    case MODE: ((int64_t *)((pl_mat *)&r->args + r->operands))[bad->other] = 99; break;
    case PLAIN: r->args.direction.precondition = POLAR_PRECONDITION_NONE; break;
    }
}

typedef struct {
    int64_t calls, accepted, misnamed, touched, stuck, untried;
} tally;

/* One bad call, then the right one. */
static void refused(tally *t, pl_device *dev, const pl_op_case *c, const bad_call *bad)
{
    const char *op = pl_op_describe(c->op)->name;
    pl_op_run *r;
    TEST_TRY(pl_op_run_create(&r, c, PL_FILL_NORMAL, dev));
    pl_op_args right = r->args;
    TEST_TRY(pl_op_run_upload(r));
    spoil(r, bad);
    pl_op_run_enqueue(r);
    polar_status st = polar_queue_sync(pl_op_run_queue(r));
    int named = strstr(polar_error_message(), op) != NULL;
    if (st != bad->want || !named)
        printf("    %s, operand %d, fault %d: status %d for %d, \"%s\"  FAIL\n", op, bad->operand, bad->kind,
               st, bad->want, st ? polar_error_message() : "");
    t->calls++;
    t->accepted += st != bad->want;
    t->misnamed += !named;
    TEST_TRY(pl_op_run_fetch(r));
    for (int o = 0; o < r->operands; o++)
        t->touched += r->buffers[o].bytes &&
                      memcmp(r->buffers[o].before, r->buffers[o].after, r->buffers[o].bytes) != 0;
    r->args = right; /* the error is over: the queue works again */
    pl_op_run_enqueue(r);
    t->stuck += polar_queue_sync(pl_op_run_queue(r)) != POLAR_OK;
    pl_op_run_destroy(r);
}

static void bad_use(tally *t, pl_device *dev, pl_op_id op)
{
    const op_calls *calls = pl_op_calls(op);
    pl_op_case c;
    t->untried += calls->bad_count == 0;
    if (!pl_op_case_named(&c, calls->valid)) {
        test_true("a valid case to spoil", 0, "%s", calls->valid);
        return;
    }
    for (int i = 0; i < calls->bad_count; i++) refused(t, dev, &c, &calls->bad[i]);
}

int main(int argc, char **argv)
{
    const char *name = test_begin(argc, argv);
    pl_device *dev;
    tally t = {0};
    TEST_TRY(polar_device_open(&dev, name));
    for (int op = 0; op < PL_OP_COUNT; op++) {
        if (!pl_op_calls((pl_op_id)op)) continue;
        if (!strcmp(name, "ref")) planted_faults((pl_op_id)op);
        bad_use(&t, dev, (pl_op_id)op);
    }
    test_true("bad calls are refused at the next sync", t.accepted == 0 && t.untried == 0,
              "%lld calls, %lld accepted or with another status", (long long)t.calls, (long long)t.accepted);
    test_exact("... with a sentence that names the op", t.misnamed);
    test_exact("... and touch nothing", t.touched);
    test_exact("... and the queue works on after", t.stuck);
    test_exact("attention: what makes no sense is refused", pl_calls_attention_accepted(dev));
    polar_device_close(dev);
    return test_end();
}
