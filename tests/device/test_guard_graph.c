/* test_guard_graph.c -- graphs on the guard: what a replay would get wrong is caught, what is right gives the
 * inner device's bits; and no memory.
 *
 *     ./test_guard_graph guard
 *     ./test_guard_graph guard:on=cpu
 */
#include "guard_fixture.h"

enum {
    RIGHT,
    SCALE_BY_VALUE,
    ALPHA_BY_VALUE,
    OTHER_OP,
    ONE_MORE,
    UPLOADS,
    ALLOCATES,
    READS_SCRATCH,
    READS_OLD_SCRATCH
};

/* Y = 2 X; W <- (1 - lr wd) W - lr Y. The variants are the mistakes. */
static void step(pl_queue *q, void *arg)
{
    bench *t = arg;
    void *p = NULL;
    pl_scratch_mark mark = pl_scratch_begin(q);
    pl_mat S = pl_scratch_mat(q, POLAR_DTYPE_F32, 1, N, N);
    /* what the last run left there */
    if (t->variant == READS_OLD_SCRATCH)
        PL_CALL(axpby, q, .Y = t->W, .X = t->W, .alpha = 1, .Z = S, .beta = 1);
    if (t->variant != READS_SCRATCH)
        PL_CALL(axpby, q, .Y = S, .X = t->X, .alpha = t->variant == ALPHA_BY_VALUE ? t->lr : 2);
    if (t->variant == OTHER_OP && t->lr < 0.05) PL_CALL(copy, q, .Y = t->Y, .X = S);
    else PL_CALL(axpby, q, .Y = t->Y, .X = S, .alpha = 1);
    if (t->variant == UPLOADS) pl_live_set(t->live, q, 0, 1, &t->lr);
    if (t->variant == ALLOCATES) {
        polar_status st = polar_device_alloc(t->dev, &p, 64);
        if (st != POLAR_OK) pl_queue_keep(q, st);
    }
    PL_CALL(decay_step, q, .W = t->W, .D = t->Y, .live = pl_live_view(t->live, 0, PL_LIVE_COLS),
            .scale = t->variant == SCALE_BY_VALUE ? t->lr : 1);
    if (t->variant == ONE_MORE && t->lr < 0.05) PL_CALL(copy, q, .Y = t->Y, .X = t->X);
    pl_scratch_end(q, mark);
    polar_device_free(t->dev, p);
}

/* Five runs with a falling lr; the first failure, of a call or of the queue. */
static polar_status five_runs(bench *t)
{
    pl_graph *g = NULL;
    polar_status st = pl_graph_create(&g, t->q->dev);
    for (int i = 0; i < 5 && st == POLAR_OK; i++) {
        double live[PL_LIVE_COLS];
        pl_live_row(live, 0, 0, t->lr = 0.1 / (1 + i), 0.5, 0, 0, 0);
        pl_live_set(t->live, t->q, 0, PL_LIVE_COLS, live);
        st = pl_graph_run(g, t->q, step, t);
    }
    pl_graph_destroy(g); /* launches not yet run keep what they need */
    polar_status after = polar_queue_sync(t->q);
    return after == POLAR_OK ? st : after;
}

static void test_graph_caught(const char *what, const char *name, int variant, const char *expect)
{
    bench t;
    TEST_TRY(bench_open(&t, name));
    t.variant = variant;
    polar_status st = five_runs(&t);
    test_true(what, st != POLAR_OK && strstr(polar_error_message(), expect), "%s",
              st == POLAR_OK ? "passed unseen" : polar_error_message());
    bench_close(&t);
}

static void test_graphs(const char *name)
{
    bench t, plain;
    double a[N * N], b[N * N];
    TEST_TRY(bench_open(&t, name));
    TEST_TRY(bench_open(&plain, strstr(name, "on=cpu") ? "cpu" : "ref"));
    TEST_TRY(five_runs(&t));
    TEST_TRY(five_runs(&plain));
    TEST_TRY(pl_mat_download_f64(t.q, &t.W, a));
    TEST_TRY(pl_mat_download_f64(plain.q, &plain.W, b));
    int64_t wrong = 0, moved = 0;
    for (int i = 0; i < N * N; i++) wrong += !(a[i] == b[i]), moved += a[i] != i - 20;
    test_exact("lr as a live value: 5 replays as the inner device", wrong);
    /* a zero stays */
    test_true("  and they moved the weights", moved >= N * N - 1, "%lld of %d", (long long)moved, N * N);
    bench_close(&plain);
    test_graph_caught("lr captured by value, as decay_step's scale", name, SCALE_BY_VALUE,
                      "graph: op #2 decay_step differs from its capture at byte 168 of its arguments (scalar "
                      "0): a value that changes between runs must be a live value");
    test_graph_caught("lr captured by value, as axpby's alpha", name, ALPHA_BY_VALUE,
                      "graph: op #0 axpby differs from its capture at byte 168 of its arguments (scalar 0)");
    test_graph_caught("other work than was captured", name, OTHER_OP,
                      "graph: op #1 is copy now and was axpby when captured");
    test_graph_caught("more work than was captured", name, ONE_MORE, "graph: 4 ops now and 3 when captured");
    test_graph_caught("an upload inside a graph", name, UPLOADS,
                      "an upload inside a graph would freeze today's value");
    test_graph_caught("device memory taken inside a graph", name, ALLOCATES,
                      "device memory was asked for while a graph is captured");
    test_graph_caught("scratch read and never written", name, READS_SCRATCH,
                      "graph: two runs from the same state differ (buffer ");
    test_graph_caught("scratch read before it is written", name, READS_OLD_SCRATCH,
                      "something reads memory that nothing wrote");
    pl_graph *g;
    TEST_TRY(pl_graph_create(&g, t.q->dev));
    TEST_TRY(pl_graph_run(g, t.q, step, &t));
    pl_scratch_mark mark = pl_scratch_begin(t.q);
    pl_scratch_take(t.q, 100);
    polar_status st = pl_graph_run(g, t.q, step, &t);
    test_true("a launch that would overwrite held scratch",
              st == POLAR_E_STATE &&
                  strstr(polar_error_message(), "256 bytes of scratch are held and 0 were"),
              "%s", polar_error_message());
    test_caught("  the queue keeps it too", &t, "256 bytes of scratch are held");
    pl_scratch_end(t.q, mark);
    pl_graph_destroy(g);
    bench_close(&t);
}

/* ---- no memory ---------------------------------------------------------------------------------- */

static polar_status whole_story(const char *name, double *w)
{
    bench t;
    polar_status st = bench_open(&t, name);
    if (st == POLAR_OK) st = five_runs(&t);
    /* takes host memory while it runs */
    if (st == POLAR_OK) PL_CALL(polar_exact, t.q, .Y = t.Y, .X = t.W);
    if (st == POLAR_OK) st = pl_mat_download_f64(t.q, &t.W, w);
    bench_close(&t);
    return st;
}

static void test_no_memory(const char *name)
{
    double want[N * N], got[N * N];
    TEST_TRY(whole_story(name, want));
    int64_t before = pl_alloc_live(), leaks = 0, odd = 0, n = 0;
    polar_status st = POLAR_E_NOMEM;
    while (st != POLAR_OK && n < 10000) {
        pl_alloc_fail_at(++n);
        st = whole_story(name, got);
        pl_alloc_fail_at(0);
        leaks += pl_alloc_live() != before;
        odd += st != POLAR_OK && st != POLAR_E_NOMEM;
    }
    test_exact("the Nth allocation fails: blocks leaked", leaks);
    test_exact("  other errors than out of memory", odd);
    test_exact("  wrong results in the end", st != POLAR_OK || memcmp(want, got, sizeof got));
    test_true("  N", n > 20, "%lld allocations in the story", (long long)n - 1);
}

int main(int argc, char **argv)
{
    const char *name = test_begin(argc, argv);
    int64_t live = pl_alloc_live();
    test_graphs(name);
    test_no_memory(name);
    test_exact("blocks left behind", pl_alloc_live() - live);
    return test_end();
}
