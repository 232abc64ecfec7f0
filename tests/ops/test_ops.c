/* test_ops.c -- every op, format, size and fill of op_case.h on the devices named: against the enclosure from
 * the op's definition (op_model.h, which holds the derivations of all bounds) and, bit for bit, against the
 * oracle; then thread counts, matrices alone and in a batch, failing allocations.
 *
 *     test_ops cpu:isa=avx2            one line per op and formats: the case that uses most of its tolerance
 *     test_ops cpu gemm                only this op
 *     test_ops ref guard cpu           one after the other
 *     test_ops part=2/3 ref guard cpu  the second third of the ops
 *
 * Nine tenths of the time go into operands and enclosures, which are the same on every device: several
 * devices in one call share them, and nothing is left out on any.
 *
 * 0 % is the rounding of the exact result; elementwise formulas reach the ends of their enclosures, so there
 * 100 % is usual. A device whose instruction set this CPU lacks is left out; 77 (skipped) where no other was
 * named.
 */
#include "base/alloc.h"
#include "test.h"
#include "op_calls.h"

#define MAX_GROUPS  400
#define MAX_DEVICES 16

/* What was asked for. */
typedef struct {
    const char *only; /* an op; "": all */
    int part, parts;  /* of the ops, every parts-th beginning with number part - 1 */
    int64_t n_cases;  /* of these ops */
    pl_op_case *cases;
    int count;
    const char *names[MAX_DEVICES];
    pl_device *devs[MAX_DEVICES];
} request;

typedef struct {
    char name[64];
    char worst[PL_OP_CASE_NAME + 24];
    double err, tol, max_abs;
    int64_t runs, failed, elements, excused, bits;
} group;

static void print_failure(const char *name, pl_fill fill, const pl_op_result *r)
{
    printf("    %s: %s, %s: err %.3e tol %.3e  outside %lld  nan %lld  unwritten %lld  padding %lld  const "
           "%lld  "
           "of %lld; oracle: bits %lld, |d| %.2e  "
           "FAIL\n",
           test_device, name, pl_fill_name(fill), r->err, r->tol, (long long)r->outside,
           (long long)r->nan_mismatch, (long long)r->unwritten, (long long)r->padding_touched,
           (long long)r->const_changed, (long long)r->elements, (long long)r->bits_differ, r->max_abs);
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

static int chosen(const request *q, pl_op_id op)
{
    return (!*q->only || !strcmp(pl_op_describe(op)->name, q->only)) && (int)op % q->parts == q->part - 1;
}

static int everything(const request *q)
{
    return !*q->only && q->parts == 1;
}

static void print_groups(const group *groups, int n)
{
    for (const group *p = groups; p < groups + n; p++) {
        double share = p->tol > 0 ? 100 * p->err / p->tol : 0;
        test_true(p->name, p->failed == 0,
                  "%4lld runs %7lld elements%s  err %.1e tol %.1e  %3.0f%%  bits!=ref %.2f%% |d| %.1e  (%s)",
                  (long long)p->runs, (long long)p->elements,
                  p->excused * 2 > p->elements ? " (most excused)" : "", p->err, p->tol, share,
                  100.0 * (double)p->bits / (double)(p->elements ? p->elements : 1), p->max_abs, p->worst);
    }
}

static void every_case(const request *q, pl_device *oracle)
{
    group(*groups)[MAX_GROUPS] = calloc((size_t)q->count, sizeof *groups); /* of each device */
    int n = 0;
    if (!groups) exit(1);
    for (const pl_op_case *c = q->cases; c < q->cases + q->n_cases; c++) {
        char name[PL_OP_CASE_NAME], label[PL_OP_CASE_NAME];
        int g = 0;
        pl_op_case_name(name, sizeof name, c);
        pl_op_case_group(label, sizeof label, c);
        while (g < n && strcmp(groups[0][g].name, label)) g++;
        if (g == MAX_GROUPS) exit(1); /* raise it */
        if (g == n) {
            n++;
            for (int k = 0; k < q->count; k++)
                snprintf(groups[k][g].name, sizeof groups[k][g].name, "%.63s", label);
        }
        for (int f = 0; f < PL_FILL_COUNT; f++) {
            pl_op_result r[MAX_DEVICES];
            /* nearly everything there is NaN */
            if (f == PL_FILL_SPECIAL && c->large) continue;
            TEST_TRY(pl_op_case_measure_on(r, c, (pl_fill)f, q->devs, q->count, oracle));
            for (int k = 0; k < q->count; k++) {
                test_device = q->names[k];
                add(&groups[k][g], name, (pl_fill)f, &r[k]);
            }
        }
    }
    for (int k = 0; k < q->count; k++) {
        test_device = q->names[k];
        print_groups(groups[k], n);
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
           op == PL_OP_kron_eigen || op == PL_OP_kron_sweep; /* by the device's gemm */
}

/* dev against itself with other thread counts and, but for sums of products, against scalar code. */
static void same_bits(pl_device *dev, const char *isa, const request *q)
{
    enum { ONE, THREE, BASELINE, OTHERS };
    static const char *const what[OTHERS] = {"1 thread: the same bits", "3 threads: the same bits",
                                             "all but sums of products: the scalar bits"};
    char names[OTHERS][128];
    pl_device *others[OTHERS];
    int64_t differ[OTHERS] = {0}, cases[OTHERS] = {0};
    const int n = strcmp(isa, "cpu:isa=scalar") ? OTHERS : BASELINE;
    snprintf(names[ONE], sizeof names[0], "%s,threads=1", isa);
    snprintf(names[THREE], sizeof names[0], "%s,threads=3", isa);
    snprintf(names[BASELINE], sizeof names[0], "cpu:isa=scalar");
    for (int k = 0; k < n; k++) TEST_TRY(polar_device_open(&others[k], names[k]));
    for (const pl_op_case *c = q->cases; c < q->cases + q->n_cases; c++) {
        pl_op_result r[OTHERS];
        char name[PL_OP_CASE_NAME];
        const int held = sums_products(c->op) ? BASELINE : n;
        TEST_TRY(pl_op_case_compare(r, c, PL_FILL_NORMAL, dev, others, held));
        for (int k = 0; k < held; k++) {
            cases[k]++;
            differ[k] += r[k].bits_differ != 0;
            if (r[k].bits_differ && differ[k] <= 8)
                printf("    %s: %s: %lld of %lld differ, by up to %.2e  FAIL\n", names[k],
                       pl_op_case_name(name, sizeof name, c), (long long)r[k].bits_differ,
                       (long long)r[k].elements, r[k].max_abs);
        }
    }
    for (int k = 0; k < n; k++) {
        test_true(what[k], differ[k] == 0, "%s: %lld of %lld cases differ", names[k], (long long)differ[k],
                  (long long)cases[k]);
        polar_device_close(others[k]);
    }
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

static void alone_in_batch(pl_device *dev, const request *q)
{
    int64_t differ = 0, cases = 0, ops = 0;
    int seen[PL_OP_COUNT] = {0};
    for (const pl_op_case *c = q->cases; c < q->cases + q->n_cases; c++) {
        char name[PL_OP_CASE_NAME];
        if (c->batch < 2) continue;
        int64_t rows = alone_differs(c, dev);
        if (rows < 0) continue;
        cases++;
        ops += !seen[c->op]++;
        differ += rows != 0;
        if (rows && differ <= 8)
            printf("    %s: %lld rows differ  FAIL\n", pl_op_case_name(name, sizeof name, c),
                   (long long)rows);
    }
    test_true("alone and in a batch: the same bits", differ == 0 && (ops > 0 || !everything(q)),
              "%lld of %lld cases of %lld ops differ", (long long)differ, (long long)cases, (long long)ops);
}

static void cpu_invariants(pl_device *dev, const request *q)
{
    char isa[96];
    snprintf(isa, sizeof isa, "%s", polar_device_name(dev));
    if (strncmp(isa, "cpu:isa=", 8) || !strchr(isa, ',')) return;
    *strchr(isa, ',') = 0;
    same_bits(dev, isa, q);
    alone_in_batch(dev, q);
}

/* ---- the n-th allocation fails, n = 1, 2, ... ---- */

static void fault_loop(pl_device *dev, pl_device *oracle, const request *q)
{
    int64_t leaks = 0, wrong = 0, faults = 0;
    for (int op = 0; op < PL_OP_COUNT; op++) {
        const op_calls *calls = pl_op_calls((pl_op_id)op);
        pl_op_case c;
        pl_op_result r;
        polar_status st = POLAR_E_NOMEM;
        if (!calls || !chosen(q, (pl_op_id)op)) continue;
        if (!pl_op_case_named(&c, calls->valid)) {
            test_true("a case for the fault loop", 0, "%s", calls->valid);
            continue;
        }
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
    test_true("the n-th allocation fails: no leak", leaks == 0 && (faults > 0 || !everything(q)),
              "%lld failures, %lld leaks", (long long)faults, (long long)leaks);
    test_exact("... and each is reported as such", wrong);
}

/* ---- devices, an op, a part: in any order ---- */

static int is_op(const char *word)
{
    for (int op = 0; op < PL_OP_COUNT; op++)
        if (!strcmp(pl_op_describe((pl_op_id)op)->name, word)) return 1;
    return 0;
}

/* A device that this CPU can be and that, under POLAR_TEST_ONCE, is not `cpu` by another name. */
static void add_device(request *q, const char *name)
{
    pl_device *dev;
    if (getenv("POLAR_TEST_ONCE") && test_is_plain_cpu(name)) {
        printf("%s is cpu here: left out\n", name);
        return;
    }
    polar_status st = polar_device_open(&dev, name);
    if (st == POLAR_E_UNSUPPORTED) {
        printf("skipped: %s\n", polar_error_message());
        return;
    }
    TEST_TRY(st);
    if (q->count == MAX_DEVICES) exit(1); /* raise it */
    q->names[q->count] = name;
    q->devs[q->count++] = dev;
}

static void read_request(request *q, int argc, char **argv)
{
    pl_op_case c;
    for (int i = 1; i < argc; i++) {
        if (sscanf(argv[i], "part=%d/%d", &q->part, &q->parts) == 2) {
            if (q->part < 1 || q->part > q->parts) exit(2);
        } else if (is_op(argv[i])) q->only = argv[i];
        else add_device(q, argv[i]);
    }
    q->cases = calloc((size_t)pl_op_case_count(), sizeof *q->cases);
    if (!q->cases) exit(1);
    for (int64_t i = 0; pl_op_case_at(&c, i); i++)
        if (chosen(q, c.op)) q->cases[q->n_cases++] = c;
}

int main(int argc, char **argv)
{
    request q = {.only = "", .part = 1, .parts = 1};
    pl_device *ref = NULL;
    setvbuf(stdout, NULL, _IOLBF, 0);
    read_request(&q, argc, argv);
    if (q.count == 0) return 77;
    for (int k = 0; k < q.count; k++)
        if (!strcmp(q.names[k], "ref")) ref = q.devs[k]; /* held against the definition alone */
    const int own = !ref;
    if (own) TEST_TRY(polar_device_open(&ref, "ref"));
    coverage();
    every_case(&q, ref);
    for (int k = 0; k < q.count; k++) {
        test_device = q.names[k];
        cpu_invariants(q.devs[k], &q);
        fault_loop(q.devs[k], q.devs[k] == ref ? NULL : ref, &q);
    }
    if (own) polar_device_close(ref);
    for (int k = 0; k < q.count; k++) polar_device_close(q.devs[k]);
    free(q.cases);
    return test_end();
}
