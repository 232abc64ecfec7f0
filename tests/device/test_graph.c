/* test_graph.c -- graphs, dry runs, the queue's error and its scratch, two queues, the same on every device.
 *
 *     ./test_graph ref|guard|cpu|...
 */
#include "base/alloc.h"
#include "device/backend.h"
#include "test.h"

enum { ROWS = 6, COLS = 10, RUNS = 4 };

/* One optimiser step: D = Adam's direction, normalised, turned by its own Gram matrix; W steps along it.
 * Everything else is scratch. */
typedef struct {
    pl_mat W, M, V, G, N;
    pl_live *live; /* a row */
} state;

static void step(pl_queue *q, void *arg)
{
    state *s = arg;
    pl_scratch_mark mark = pl_scratch_begin(q);
    pl_mat D = pl_scratch_mat(q, POLAR_DTYPE_F32, 1, ROWS, COLS),
           X = pl_scratch_mat(q, POLAR_DTYPE_BF16, 1, ROWS, COLS);
    PL_CALL(direction, q, .D = D, .M = s->M, .V = s->V, .G = s->G,
            .live = pl_live_view(s->live, 0, PL_LIVE_COLS), .momentum = POLAR_MOMENTUM_EMA,
            .precondition = POLAR_PRECONDITION_ADAM);
    PL_CALL(frob, q, .N = s->N, .X = D, .weight = 1);
    PL_CALL(normalise, q, .Y = X, .X = D, .N = s->N);
    pl_scratch_mark inner = pl_scratch_begin(q);
    pl_mat A = pl_scratch_mat(q, POLAR_DTYPE_BF16, 1, ROWS, ROWS);
    PL_CALL(gemm, q, .C = A, .A = X, .B = X, .tb = 1, .alpha = 1);
    PL_CALL(gemm, q, .C = D, .A = A, .B = X, .alpha = -0.5, .D = X, .beta = 1.5);
    pl_scratch_end(q, inner);
    PL_CALL(decay_step, q, .W = s->W, .D = D, .live = pl_live_view(s->live, 0, PL_LIVE_COLS), .scale = 1.25);
    pl_scratch_end(q, mark);
}

static double fill(int64_t i, int salt)
{
    return (double)((i * 7919 + salt * 104729) % 2003) / 1001.0 - 1.0;
}

static void set(pl_queue *q, const pl_mat *m, int salt)
{
    double values[ROWS * COLS];
    for (int64_t i = 0; i < ROWS * COLS; i++) values[i] = salt ? fill(i, salt) : 0;
    TEST_TRY(pl_mat_upload_f64(q, m, values));
}

static void state_open(state *s, pl_device *dev, pl_queue *q)
{
    TEST_TRY(pl_mat_alloc(&s->W, dev, POLAR_DTYPE_F32, 1, ROWS, COLS));
    TEST_TRY(pl_mat_alloc(&s->M, dev, POLAR_DTYPE_F32, 1, ROWS, COLS));
    TEST_TRY(pl_mat_alloc(&s->V, dev, POLAR_DTYPE_F32, 1, ROWS, COLS));
    TEST_TRY(pl_mat_alloc(&s->G, dev, POLAR_DTYPE_F32, 1, ROWS, COLS));
    TEST_TRY(pl_mat_alloc(&s->N, dev, POLAR_DTYPE_F64, 1, 1, 2));
    TEST_TRY(pl_live_create(&s->live, dev, PL_LIVE_COLS));
    set(q, &s->W, 1);
    set(q, &s->M, 0);
    set(q, &s->V, 0);
}

static void state_close(state *s, pl_device *dev)
{
    pl_mat *all[] = {&s->W, &s->M, &s->V, &s->G, &s->N};
    for (int i = 0; i < 5; i++) pl_mat_free(all[i], dev);
    pl_live_destroy(s->live);
}

/* What changes between runs: the gradient's values and the live ones. */
static void next_run(state *s, pl_queue *q, int t)
{
    double live[PL_LIVE_COLS];
    pl_live_row(live, 1 / (1 - pow(0.9, t)), 1 / (1 - pow(0.999, t)), 0.1 / t, 0.01 * t, 0.9, 0.999, 1e-8);
    pl_live_set(s->live, q, 0, PL_LIVE_COLS, live);
    set(q, &s->G, 10 + t);
}

static int64_t differ(pl_queue *q, const pl_mat *a, const pl_mat *b)
{
    double x[ROWS * COLS], y[ROWS * COLS];
    int64_t wrong = 0;
    TEST_TRY(pl_mat_download_f64(q, a, x));
    TEST_TRY(pl_mat_download_f64(q, b, y));
    for (int64_t i = 0; i < a->rows * a->cols; i++) wrong += !(x[i] == y[i]); /* a NaN counts as wrong */
    return wrong;
}

static void test_replay(pl_device *dev, pl_queue *q)
{
    state plain, graphed;
    pl_graph *g;
    double w0[ROWS * COLS], w1[ROWS * COLS];
    state_open(&plain, dev, q);
    state_open(&graphed, dev, q);
    TEST_TRY(pl_graph_create(&g, q->dev));
    TEST_TRY(pl_mat_download_f64(q, &plain.W, w0));
    for (int t = 1; t <= RUNS; t++) {
        next_run(&plain, q, t);
        step(q, &plain);
        next_run(&graphed, q, t);
        TEST_TRY(pl_graph_run(g, q, step, &graphed));
    }
    test_exact("4 runs of a graph: W as by plain calls", differ(q, &plain.W, &graphed.W));
    test_exact("  M", differ(q, &plain.M, &graphed.M));
    test_exact("  V", differ(q, &plain.V, &graphed.V));
    TEST_TRY(pl_mat_download_f64(q, &graphed.W, w1));
    int64_t same = 0;
    for (int i = 0; i < ROWS * COLS; i++) same += w0[i] == w1[i];
    test_true("the steps moved the weights", same < 3, "%lld of %d entries unmoved", (long long)same,
              ROWS * COLS);
    pl_graph_destroy(g);
    state_close(&plain, dev);
    state_close(&graphed, dev);
}

/* ---- dry runs ----------------------------------------------------------------------------------- */

typedef struct {
    pl_mat A, B, C, N, T, live, W, M, V, D;
} priced;

static void known_work(pl_queue *q, void *arg)
{
    priced *p = arg;
    pl_scratch_mark mark = pl_scratch_begin(q);
    pl_scratch_take(q, 100); /* 256 */
    pl_scratch_mark inner = pl_scratch_begin(q);
    /* 512: 768 in use */
    pl_scratch_take(q, 300);
    pl_scratch_end(q, inner);
    /* 960 bytes, 1024: 1280 in use, the most */
    pl_mat E = pl_scratch_mat(q, POLAR_DTYPE_F64, 1, 4, 30);
    pl_scratch_end(q, mark);
    /*                                                                                           FLOPs bytes
     */
    /* 2*24*5 = 240   4*(24+40+30) = 376   */
    PL_CALL(gemm, q, .C = p->C, .A = p->A, .B = p->B, .alpha = 1);
    /* 240            376 + 4*24 = 472     */
    PL_CALL(gemm, q, .C = p->C, .A = p->A, .B = p->B, .alpha = 1, .D = p->C, .beta = 1);
    /* 3*24 = 72      8*4 + 4*24 = 128     */
    PL_CALL(frob, q, .N = p->N, .X = p->C, .weight = 1);
    /* 2*24 = 48      2*24 + 128 = 176     */
    PL_CALL(normalise, q, .Y = p->T, .X = p->C, .N = p->N);
    /* 0              4*24 + 2*24 = 144    */
    PL_CALL(copy, q, .Y = p->C, .X = p->T);
    /* 24             2*96 = 192           */
    PL_CALL(axpby, q, .Y = p->C, .X = p->C, .alpha = 2);
    /* 3*24 = 72      2*96 + 48 = 240      */
    PL_CALL(axpby, q, .Y = p->C, .X = p->C, .alpha = 2, .Z = p->T, .beta = 1);
    PL_CALL(direction, q, .D = p->D, .M = p->M, .V = p->V, .G = p->W, .live = p->live,
            .momentum = POLAR_MOMENTUM_EMA,
            /* 12*12 = 144    48*(1+2+2+1)+72 = 360 */
            .precondition = POLAR_PRECONDITION_ADAM);
    PL_CALL(direction, q, .D = p->D, .M = p->M, .G = p->W, .live = p->live,
            .momentum = POLAR_MOMENTUM_NESTEROV);
    /* 4*12 = 48      48*(1+2+1)+72 = 264  */
    /* 3*12 = 36      48*(2+1)+72 = 216    */
    PL_CALL(decay_step, q, .W = p->W, .D = p->D, .live = p->live, .scale = 1);
    /* 15*12 = 180    48*(2+2+2+1)+72 = 408 */
    PL_CALL(adamw_step, q, .W = p->W, .M = p->M, .V = p->V, .G = p->D, .live = p->live);
    E.rows = 0;
    /* nothing to write: not counted */
    PL_CALL(axpby, q, .Y = E, .X = E, .alpha = 1);
}

static int cost_is(const polar_cost *c, int64_t ops, double flops, double bytes, size_t scratch)
{
    return c->ops == ops && c->flops == flops && c->bytes == bytes && c->scratch_bytes == scratch;
}

static void test_dry(pl_device *dev, pl_queue *q)
{
    priced p;
    polar_cost plain, graphed;
    pl_graph *g;
    double w[12];
    const struct {
        pl_mat *m;
        polar_dtype dtype;
        int64_t batch, rows, cols;
    } want[] = {{&p.A, POLAR_DTYPE_F32, 2, 4, 5},  {&p.B, POLAR_DTYPE_F32, 2, 5, 3},
                {&p.C, POLAR_DTYPE_F32, 2, 4, 3},  {&p.N, POLAR_DTYPE_F64, 2, 1, 2},
                {&p.T, POLAR_DTYPE_BF16, 2, 4, 3}, {&p.live, POLAR_DTYPE_F64, 1, 1, PL_LIVE_COLS},
                {&p.W, POLAR_DTYPE_F32, 1, 4, 3},  {&p.M, POLAR_DTYPE_F32, 1, 4, 3},
                {&p.V, POLAR_DTYPE_F32, 1, 4, 3},  {&p.D, POLAR_DTYPE_F32, 1, 4, 3}};
    const int n = sizeof want / sizeof *want;
    for (int i = 0; i < n; i++)
        TEST_TRY(pl_mat_alloc(want[i].m, dev, want[i].dtype, want[i].batch, want[i].rows, want[i].cols));
    set(q, &p.W, 3);
    TEST_TRY(pl_graph_create(&g, q->dev));
    TEST_TRY(polar_queue_dry_begin(q));
    test_true("one dry run at a time", polar_queue_dry_begin(q) == POLAR_E_STATE, "%s",
              polar_error_message());
    known_work(q, &p);
    polar_queue_upload(q, p.W.data, w, sizeof w); /* of rubbish: a dry run copies nothing */
    TEST_TRY(polar_queue_dry_end(q, &plain));
    test_true("the cost of known work", cost_is(&plain, 11, 1104, 3040, 1280),
              "%lld ops, %g FLOP, %g bytes, %zu of scratch", (long long)plain.ops, plain.flops, plain.bytes,
              plain.scratch_bytes);
    TEST_TRY(polar_queue_dry_begin(q));
    TEST_TRY(pl_graph_run(g, q, known_work, &p));
    TEST_TRY(polar_queue_dry_end(q, &graphed));
    test_true("  and of a graph of it", cost_is(&graphed, 11, 1104, 3040, 1280), "%lld ops, %zu of scratch",
              (long long)graphed.ops, graphed.scratch_bytes);
    test_true("  and twice of none", polar_queue_dry_end(q, &graphed) == POLAR_E_STATE, "%s",
              polar_error_message());
    TEST_TRY(pl_mat_download_f64(q, &p.W, w));
    int64_t wrong = 0;
    for (int i = 0; i < 12; i++) wrong += w[i] != (double)(float)fill(i, 3);
    test_exact("a dry run touches nothing", wrong);
    pl_graph_destroy(g);
    for (int i = 0; i < n; i++) pl_mat_free(want[i].m, dev);
}

/* ---- errors and scratch ------------------------------------------------------------------------- */

static void test_errors(pl_device *dev, pl_queue *q)
{
    pl_mat X, Y, Z;
    double x[6] = {1, 2, 3, 4, 5, 6}, y[6];
    TEST_TRY(pl_mat_alloc(&X, dev, POLAR_DTYPE_F32, 1, 2, 3));
    TEST_TRY(pl_mat_alloc(&Y, dev, POLAR_DTYPE_F32, 1, 2, 3));
    TEST_TRY(pl_mat_alloc(&Z, dev, POLAR_DTYPE_F32, 1, 3, 3));
    TEST_TRY(pl_mat_upload_f64(q, &X, x));
    PL_CALL(axpby, q, .Y = Y, .X = X, .alpha = 2);
    PL_CALL(gemm, q, .C = Z, .A = X, .B = X, .alpha = 1); /* wrong: 2x3 times 2x3 */
    PL_CALL(axpby, q, .Y = Z, .X = X, .alpha = 1);        /* wrong too, but later */
    /* right, but after an error */
    PL_CALL(axpby, q, .Y = Y, .X = X, .alpha = 100);
    polar_status st = polar_queue_sync(q);
    test_true("the first error, with op and shapes",
              st == POLAR_E_SHAPE && strstr(polar_error_message(), "gemm: (1x2x3) times (1x2x3) is no 1x3x3"),
              "%s", polar_error_message());
    TEST_TRY(polar_queue_sync(q));
    TEST_TRY(pl_mat_download_f64(q, &Y, y));
    int64_t wrong = 0;
    for (int i = 0; i < 6; i++) wrong += y[i] != 2 * x[i];
    test_exact("calls before it count, calls after do not", wrong);
    PL_CALL(frob, q, .N = Y, .X = X, .weight = 1);
    st = polar_queue_sync(q);
    test_true("a cleared queue keeps the next error",
              st == POLAR_E_DTYPE && strstr(polar_error_message(), "frob wants N in f64"), "%s",
              polar_error_message());
    PL_CALL(axpby, q, .Y = Y, .X = X, .alpha = 3);
    TEST_TRY(pl_mat_download_f64(q, &Y, y));
    for (int i = 0; i < 6; i++) wrong += y[i] != 3 * x[i];
    test_exact("and works on", wrong);
    pl_mat_free(&X, dev);
    pl_mat_free(&Y, dev);
    pl_mat_free(&Z, dev);
}

static void test_scratch(pl_device *dev)
{
    pl_queue *q;
    TEST_TRY(polar_queue_create(&q, dev, NULL));
    pl_scratch_mark outer = pl_scratch_begin(q);
    char *a = pl_scratch_take(q, 1000);
    pl_scratch_mark inner = pl_scratch_begin(q);
    char *b = pl_scratch_take(q, 5);
    pl_scratch_end(q, inner);
    char *c = pl_scratch_take(q, 700), *d = pl_scratch_take(q, 1);
    test_true("scratch is a stack", b == a + 1024 && c == b && d == c + 768, "+%lld, +%lld, +%lld",
              (long long)(b - a), (long long)(c - a), (long long)(d - a));
    char *large = pl_scratch_take(q, (size_t)3 << 20);
    pl_scratch_end(q, outer);
    char *again = pl_scratch_take(q, 1000);
    test_true("a larger chunk leaves the old one in place", large && again == a, "%d chunks",
              q->scratch.count);
    int64_t off = 0;
    for (size_t n = 1; n < 5000; n = 2 * n + 1) off += (uintptr_t)pl_scratch_take(q, n) % 64 != 0;
    test_exact("scratch is 64-byte aligned", off);
    pl_scratch_end(q, outer);
    int chunks = q->scratch.count;
    TEST_TRY(polar_queue_reserve(q, 1 << 20));
    test_exact("reserving what is there takes nothing", q->scratch.count - chunks);
    polar_queue_destroy(q);
}

static void test_nested(pl_device *dev, pl_queue *q)
{
    state s;
    pl_graph *g;
    state_open(&s, dev, q);
    next_run(&s, q, 1);
    TEST_TRY(pl_graph_create(&g, q->dev));
    pl_scratch_mark mark = pl_scratch_begin(q);
    /* the caller's own scratch is safe from the graph's */
    pl_mat held = pl_scratch_mat(q, POLAR_DTYPE_F32, 1, ROWS, COLS);
    PL_CALL(axpby, q, .Y = held, .X = s.G, .alpha = 1);
    TEST_TRY(pl_graph_run(g, q, step, &s));
    TEST_TRY(pl_graph_run(g, q, step, &s));
    test_exact("scratch held round a graph is left alone", differ(q, &held, &s.G));
    pl_scratch_end(q, mark);
    pl_graph_destroy(g);
    state_close(&s, dev);
}

/* ---- two queues --------------------------------------------------------------------------------- */

/* One queue counts in X, with work enough before each count that the other would be early; the other keeps
 * every count. Neither host nor queues wait for more than that. */
static void test_two_queues(pl_device *dev, pl_queue *q)
{
    enum { SIDE = 96, ROUNDS = 12, WORK = 20 };
    pl_queue *other;
    pl_mat X, A, B, kept;
    double *values = pl_calloc(ROUNDS, SIDE * SIDE * sizeof *values);
    int64_t wrong = 0;
    TEST_TRY(polar_queue_create(&other, dev, NULL));
    TEST_TRY(pl_mat_alloc(&X, dev, POLAR_DTYPE_F32, 1, SIDE, SIDE));
    TEST_TRY(pl_mat_alloc(&A, dev, POLAR_DTYPE_F32, 1, SIDE, SIDE));
    TEST_TRY(pl_mat_alloc(&B, dev, POLAR_DTYPE_F32, 1, SIDE, SIDE));
    TEST_TRY(pl_mat_alloc(&kept, dev, POLAR_DTYPE_F32, ROUNDS, SIDE, SIDE));
    TEST_TRY(pl_mat_upload_f64(q, &kept, values));
    TEST_TRY(pl_mat_upload_f64(q, &A, values));
    for (int64_t i = 0; i < SIDE * SIDE; i++) values[i] = i % (SIDE + 1) == 0;
    TEST_TRY(pl_mat_upload_f64(q, &X, values));
    TEST_TRY(pl_mat_upload_f64(q, &B, values));
    for (int64_t round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < WORK; i++) PL_CALL(gemm, q, .C = A, .A = X, .B = B, .alpha = 1);
        PL_CALL(axpby, q, .Y = X, .X = A, .Z = B, .alpha = 1, .beta = 1);
        pl_queue_after(other, q);
        PL_CALL(copy, other, .Y = pl_mat_at(kept, round, 1), .X = X);
        pl_queue_after(q, other);
        PL_CALL(axpby, q, .Y = X, .X = X, .alpha = 2);
        PL_CALL(axpby, q, .Y = X, .X = X, .alpha = 0.5);
    }
    pl_queue_after(q, other);
    TEST_TRY(pl_mat_download_f64(q, &kept, values));
    for (int64_t i = 0; i < ROUNDS * SIDE * SIDE; i++)
        wrong += values[i] != (i % (SIDE * SIDE) % (SIDE + 1) == 0 ? (double)(i / (SIDE * SIDE)) + 2 : 0);
    test_exact("a queue after another sees what that one made", wrong);
    PL_CALL(gemm, other, .C = A, .A = X, .B = kept, .alpha = 1); /* wrong: 1 matrix times ROUNDS */
    pl_queue_after(q, other);
    polar_status st = polar_queue_sync(q);
    test_true("and its first error", st == POLAR_E_SHAPE && strstr(polar_error_message(), "gemm"), "%s",
              polar_error_message());
    TEST_TRY(polar_queue_sync(other));
    pl_mat *all[] = {&X, &A, &B, &kept};
    for (int i = 0; i < 4; i++) pl_mat_free(all[i], dev);
    polar_queue_destroy(other);
    pl_free(values);
}

int main(int argc, char **argv)
{
    const char *name = test_begin(argc, argv);
    int64_t live = pl_alloc_live();
    pl_device *dev;
    pl_queue *q;
    TEST_TRY(polar_device_open(&dev, name));
    TEST_TRY(polar_queue_create(&q, dev, NULL));
    test_replay(dev, q);
    test_nested(dev, q);
    test_dry(dev, q);
    test_errors(dev, q);
    test_scratch(dev);
    test_two_queues(dev, q);
    polar_queue_destroy(q);
    polar_device_close(dev);
    test_exact("blocks left behind", pl_alloc_live() - live);
    return test_end();
}
