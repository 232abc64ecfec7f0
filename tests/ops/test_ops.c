/* test_ops.c -- every op, format, size and fill of op_case.h on the device argv[1]: against the enclosure
 * from the op's definition (op_model.h, which holds the derivations of all bounds) and, bit for bit, against
 * the oracle; then thread counts, matrices alone and in a batch, failing allocations.
 *
 *     test_ops cpu:isa=avx2            one line per op and formats: the case that uses most of its tolerance
 *     test_ops cpu gemm                only this op
 *
 * 0 % is the rounding of the exact result; elementwise formulas reach the ends of their enclosures, so there
 * 100 % is usual. Returns 77 (skipped) where the CPU lacks the instruction set asked for.
 */
#include "base/alloc.h"
#include "test.h"
#include "op_calls.h"

#define MAX_GROUPS 400

typedef struct {
    char name[64];
    char worst[PL_OP_CASE_NAME + 24];
    double err, tol, max_abs;
    int64_t runs, failed, elements, excused, bits;
} group;

static void print_failure(const char *name, pl_fill fill, const pl_op_result *r)
{
    printf("    %s, %s: err %.3e tol %.3e  outside %lld  nan %lld  unwritten %lld  padding %lld  const %lld  "
           "of %lld; oracle: bits %lld, |d| %.2e  "
           "FAIL\n",
           name, pl_fill_name(fill), r->err, r->tol, (long long)r->outside, (long long)r->nan_mismatch,
           (long long)r->unwritten, (long long)r->padding_touched, (long long)r->const_changed,
           (long long)r->elements, (long long)r->bits_differ, r->max_abs);
}

static void add(group *g, const char *name, pl_fill fill, const pl_op_result *r)
{
    if (r->err * g->tol > g->err * r->tol || !g->runs) {
        g->err = r->err;
        g->tol = r->tol;
        snprintf(g->worst, sizeof g->worst, "%s, %s", name, pl_fill_name(fill));
    }
    g->max_abs = fmax(g->max_abs, r->max_abs);
    g->runs++;
    g->elements += r->elements;
    g->excused += r->excused;
    g->bits += r->bits_differ;
    if (pl_op_result_good(r)) return;
    if (++g->failed <= 8) print_failure(name, fill, r);
    if (g->failed == 9) printf("    ... and more of %s\n", g->name);
}

static int chosen(const pl_op_case *c, const char *only)
{
    return !*only || !strcmp(pl_op_describe(c->op)->name, only);
}

static void every_case(pl_device *dev, pl_device *oracle, const char *only)
{
    group *groups = calloc(MAX_GROUPS, sizeof *groups);
    int n = 0;
    pl_op_case c;
    if (!groups) exit(1);
    for (int64_t i = 0; pl_op_case_at(&c, i); i++) {
        char name[PL_OP_CASE_NAME], label[PL_OP_CASE_NAME];
        int g = 0;
        if (!chosen(&c, only)) continue;
        pl_op_case_name(name, sizeof name, &c);
        pl_op_case_group(label, sizeof label, &c);
        while (g < n && strcmp(groups[g].name, label)) g++;
        if (g == MAX_GROUPS) exit(1); /* raise it */
        if (g == n) snprintf(groups[n++].name, sizeof groups[0].name, "%.63s", label);
        for (int f = 0; f < PL_FILL_COUNT; f++) {
            pl_op_result r;
            /* nearly everything there is NaN */
            if (f == PL_FILL_SPECIAL && c.large) continue;
            TEST_TRY(pl_op_case_measure(&r, &c, (pl_fill)f, dev, oracle));
            add(&groups[g], name, (pl_fill)f, &r);
        }
    }
    for (int g = 0; g < n; g++) {
        group *p = &groups[g];
        double share = p->tol > 0 ? 100 * p->err / p->tol : 0;
        test_true(p->name, p->failed == 0,
                  "%4lld runs %7lld elements%s  err %.1e tol %.1e  %3.0f%%  bits!=ref %.2f%% |d| %.1e  (%s)",
                  (long long)p->runs, (long long)p->elements,
                  p->excused * 2 > p->elements ? " (most excused)" : "", p->err, p->tol, share,
                  100.0 * (double)p->bits / (double)(p->elements ? p->elements : 1), p->max_abs, p->worst);
    }
    free(groups);
}

/* The list leaves nothing out. */
static void coverage(void)
{
    int64_t seen[PL_OP_COUNT] = {0}, missing = 0, one_sided = 0, unnamed = 0, twice = 0;
    int formats[PL_OP_COUNT] = {0};
    uint32_t with[PL_OP_COUNT] = {0}, without[PL_OP_COUNT] = {0}; /* bit i: operand i in some case */
    pl_op_case c, d;
    for (int64_t i = 0; pl_op_case_at(&c, i); i++) {
        char name[PL_OP_CASE_NAME], next[PL_OP_CASE_NAME];
        seen[c.op]++;
        for (int o = 0; o < PL_MAX_OPERANDS; o++)
            if (pl_op_case_data_operand(&c, o)) formats[c.op] |= 1 << c.dtype[o];
        with[c.op] |= c.present, without[c.op] |= ~c.present;
        unnamed += strlen(pl_op_case_name(name, sizeof name, &c)) + 1 >= sizeof name;
        if (pl_op_case_at(&d, i + 1)) twice += !strcmp(name, pl_op_case_name(next, sizeof next, &d));
    }
    for (int op = 0; op < PL_OP_COUNT; op++) {
        /* held against its composition elsewhere: test_amx */
        if (pl_op_describe((pl_op_id)op)->fused) continue;
        int all =
            ((1 << POLAR_DTYPE_COUNT) - 1) & ~(pl_op_takes_f16((pl_op_id)op) ? 0 : 1 << POLAR_DTYPE_F16);
        /* of norms and live rows alone, which are never bf16 */
        int numbers = op == PL_OP_frob_join || op == PL_OP_advance || op == PL_OP_norm_moment;
        missing += !seen[op] || (!numbers && formats[op] != all);
        for (int o = 0; o < pl_op_operand_count(pl_op_describe((pl_op_id)op)); o++)
            one_sided += pl_op_or_none((pl_op_id)op, o) && !(with[op] & without[op] & 1u << o);
    }
    test_exact("every op has cases in every format", missing);
    test_exact("operands that may be absent are there in some cases and not in others", one_sided);
    test_true("names of cases are whole and distinct", unnamed == 0 && twice == 0, "%lld cases",
              (long long)pl_op_case_count());
    test_true("past the end there is no case",
              !pl_op_case_at(&c, pl_op_case_count()) && !pl_op_case_at(&c, -1), "0");
}

/* ---- the same bits whatever the number of threads, and in the element tier whatever the instruction set
 * ---- */

/* Sums of products by fma, which the baseline has not. */
static int sums_products(pl_op_id op)
{
    return op == PL_OP_gemm || op == PL_OP_pair_sum || op == PL_OP_pair_grad || op == PL_OP_vec_dots_back ||
           op == PL_OP_kron_sweep; /* by the device's gemm */
}

static void same_bits(const char *what, pl_device *dev, const char *other_name, int products,
                      const char *only)
{
    pl_device *other;
    pl_op_case c;
    int64_t differ = 0, cases = 0;
    TEST_TRY(polar_device_open(&other, other_name));
    for (int64_t i = 0; pl_op_case_at(&c, i); i++) {
        pl_op_result r;
        char name[PL_OP_CASE_NAME];
        if (!chosen(&c, only) || (!products && sums_products(c.op))) continue;
        TEST_TRY(pl_op_case_compare(&r, &c, PL_FILL_NORMAL, dev, other));
        cases++;
        differ += r.bits_differ != 0;
        if (r.bits_differ && differ <= 8)
            printf("    %s: %lld of %lld differ, by up to %.2e  FAIL\n",
                   pl_op_case_name(name, sizeof name, &c), (long long)r.bits_differ, (long long)r.elements,
                   r.max_abs);
    }
    test_true(what, differ == 0, "%s: %lld of %lld cases differ", other_name, (long long)differ,
              (long long)cases);
    polar_device_close(other);
}

/* Operand o's matrix b alone, or the one for all; 0 where it is neither. */
static int matrix_alone(pl_mat *m, const pl_op_run *r, int o, int64_t b)
{
    if (!m->data) return 1;
    if (m->batch == r->c.batch) *m = pl_mat_at(*m, b, 1);
    else if (m->batch != 1 || o < r->results) return 0;
    return 1;
}

/* Where result o has other bits in matrix b than `whole`, an image of its buffer. */
static int64_t bits_changed(const pl_op_run *r, int o, int64_t b, const unsigned char *whole)
{
    const pl_op_buffer *buffer = &r->buffers[r->buffer_of[o]];
    const pl_mat *m = &r->mat[o];
    int64_t differ = 0;
    for (int64_t i = 0; i < m->rows; i++) {
        const unsigned char *row = pl_op_run_bits(r, o, b, i, 0);
        if (m->cols)
            differ +=
                memcmp(row, whole + (row - buffer->after), (size_t)m->cols * polar_dtype_size(m->dtype)) != 0;
    }
    return differ;
}

/* Rows of results that differ where each matrix of the batch is given alone; -1: its matrices belong
 * together. */
static int64_t alone_differs(const pl_op_case *c, pl_device *dev)
{
    pl_op_run *r;
    unsigned char *whole[PL_MAX_OPERANDS] = {0};
    int64_t differ = 0;
    TEST_TRY(pl_op_run_create(&r, c, PL_FILL_NORMAL, dev));
    const pl_op_args args = r->args;
    TEST_TRY(pl_op_run_upload(r));
    pl_op_run_enqueue(r);
    TEST_TRY(pl_op_run_fetch(r));
    for (int o = 0; o < r->results; o++) {
        if (r->buffer_of[o] < 0) continue;
        const pl_op_buffer *buffer = &r->buffers[r->buffer_of[o]];
        whole[o] = malloc(buffer->bytes + 1);
        if (!whole[o]) exit(1);
        memcpy(whole[o], buffer->after, buffer->bytes);
    }
    for (int64_t b = 0; differ >= 0 && b < c->batch; b++) {
        int apart = 1;
        r->args = args;
        for (int o = 0; o < r->operands; o++) apart &= matrix_alone((pl_mat *)&r->args + o, r, o, b);
        if (!apart) {
            differ = -1;
            break;
        }
        TEST_TRY(pl_op_run_upload(r));
        pl_op_run_enqueue(r);
        TEST_TRY(pl_op_run_fetch(r));
        for (int o = 0; o < r->results; o++)
            if (whole[o]) differ += bits_changed(r, o, b, whole[o]);
    }
    for (int o = 0; o < r->results; o++) free(whole[o]);
    pl_op_run_destroy(r);
    return differ;
}

static void alone_in_batch(pl_device *dev, const char *only)
{
    pl_op_case c;
    int64_t differ = 0, cases = 0, ops = 0;
    int seen[PL_OP_COUNT] = {0};
    for (int64_t i = 0; pl_op_case_at(&c, i); i++) {
        char name[PL_OP_CASE_NAME];
        if (!chosen(&c, only) || c.batch < 2) continue;
        int64_t rows = alone_differs(&c, dev);
        if (rows < 0) continue;
        cases++;
        ops += !seen[c.op]++;
        differ += rows != 0;
        if (rows && differ <= 8)
            printf("    %s: %lld rows differ  FAIL\n", pl_op_case_name(name, sizeof name, &c),
                   (long long)rows);
    }
    test_true("alone and in a batch: the same bits", differ == 0 && (ops > 0 || *only),
              "%lld of %lld cases of %lld ops differ", (long long)differ, (long long)cases, (long long)ops);
}

static void cpu_invariants(pl_device *dev, const char *only)
{
    char name[128], isa[96];
    snprintf(isa, sizeof isa, "%s", polar_device_name(dev));
    if (strncmp(isa, "cpu:isa=", 8) || !strchr(isa, ',')) return;
    *strchr(isa, ',') = 0;
    snprintf(name, sizeof name, "%s,threads=1", isa);
    same_bits("1 thread: the same bits", dev, name, 1, only);
    snprintf(name, sizeof name, "%s,threads=3", isa);
    same_bits("3 threads: the same bits", dev, name, 1, only);
    alone_in_batch(dev, only);
    if (strcmp(isa, "cpu:isa=scalar"))
        same_bits("all but sums of products: the scalar bits", dev, "cpu:isa=scalar", 0, only);
}

/* ---- the n-th allocation fails, n = 1, 2, ... ---- */

static void fault_loop(pl_device *dev, pl_device *oracle, const char *only)
{
    int64_t leaks = 0, wrong = 0, faults = 0;
    for (int op = 0; op < PL_OP_COUNT; op++) {
        const op_calls *calls = pl_op_calls((pl_op_id)op);
        pl_op_case c;
        pl_op_result r;
        polar_status st = POLAR_E_NOMEM;
        if (!calls) continue;
        if (!pl_op_case_named(&c, calls->valid)) {
            test_true("a case for the fault loop", 0, "%s", calls->valid);
            continue;
        }
        if (!chosen(&c, only)) continue;
        /* what a device keeps for good is there now */
        TEST_TRY(pl_op_case_measure(&r, &c, PL_FILL_NORMAL, dev, oracle));
        for (int64_t n = 1; st != POLAR_OK && n < 1000; n++) {
            int64_t live = pl_alloc_live();
            pl_alloc_fail_at(n);
            st = pl_op_case_measure(&r, &c, PL_FILL_NORMAL, dev, oracle);
            pl_alloc_fail_at(0);
            leaks += pl_alloc_live() != live;
            wrong += st != POLAR_OK && (st != POLAR_E_NOMEM || !*polar_error_message());
            faults += st != POLAR_OK;
        }
        wrong += st != POLAR_OK || !pl_op_result_good(&r);
    }
    test_true("the n-th allocation fails: no leak", leaks == 0 && (faults > 0 || *only),
              "%lld failures, %lld leaks", (long long)faults, (long long)leaks);
    test_exact("... and each is reported as such", wrong);
}

int main(int argc, char **argv)
{
    const char *name = test_begin(argc, argv), *only = argc > 2 ? argv[2] : "";
    pl_device *dev, *ref = NULL;
    polar_status st = polar_device_open(&dev, name);
    if (st == POLAR_E_UNSUPPORTED) {
        printf("skipped: %s\n", polar_error_message());
        return 77;
    }
    TEST_TRY(st);
    /* ref itself is held against the definition alone */
    if (strcmp(name, "ref")) TEST_TRY(polar_device_open(&ref, "ref"));
    every_case(dev, ref, only);
    coverage();
    cpu_invariants(dev, only);
    fault_loop(dev, ref, only);
    polar_device_close(ref);
    polar_device_close(dev);
    return test_end();
}
