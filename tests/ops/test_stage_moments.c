/* test_stage_moments.c -- kron_moment and entry_stage of sizes that a device may take several entries at a
 * time, and of sizes and places that it may not: put off together (pl_queue_overlap_begin) and each by
 * itself, against cpu: the same bits. Live rows of their own, some of which SKIP or wait; with and without
 * what may be absent; f32 and f64; views of something wider.
 *
 *     test_stage_moments DEVICE
 */
#include <string.h>

#include "fixtures/machine.h"

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

/* wider: entries between rows that belong to nobody; late: entries that the first one lies behind where a
 * matrix could begin */
static const struct {
    int64_t batch, rows, cols, wider, late;
} shapes[] = {{1, 1, 1, 0, 0},    {3, 2, 2, 0, 0},   {2, 7, 7, 0, 0},   {5, 16, 16, 0, 0},
              {2, 64, 64, 0, 0},  {3, 46, 46, 0, 0}, {1, 96, 96, 0, 0}, {2, 33, 33, 0, 0},
              {2, 24, 24, 4, 0},  {3, 20, 20, 0, 1}, {2, 20, 20, 0, 2}, {2, 10, 36, 0, 0},
              {1, 3, 2052, 0, 0}, {2, 64, 20, 8, 0}, {1, 5, 1023, 0, 0}};

enum { MOMENT, MOMENT_TWICE, ENTRY, ENTRY_OF_G, ROOT, SIGN, KINDS };

#define CALLS (COUNT(shapes) * KINDS * 2 * 2) /* both kinds of live rows, both formats */

typedef struct {
    pl_mat A, K, T, N, X, V, G, live; /* where there are any: views of what lies behind them */
    pl_mat all[7];
    int count, kind;
    int64_t after;
} call;

/* Matrices whose numbers outside of the view are there too. */
static pl_mat room(machine *at, call *c, polar_dtype dtype, int s, uint64_t seed, int positive)
{
    const int64_t batch = shapes[s].batch, rows = shapes[s].rows, cols = shapes[s].cols + shapes[s].wider,
                  n = batch * rows * cols + shapes[s].late;
    double *x = numbers(n, seed);
    for (int64_t i = 0; i < n && positive; i++) x[i] = fabs(x[i]);
    pl_mat m = c->all[c->count++] = put(at, dtype, 1, 1, n, x);
    m.data = (char *)m.data + (size_t)shapes[s].late * polar_dtype_size(dtype);
    m.batch = batch, m.rows = rows, m.cols = shapes[s].cols, m.rs = cols, m.bs = rows * cols;
    free(x);
    return m;
}

/* Moments of factors are of squares. */
static int is_there(int k)
{
    const int s = k % COUNT(shapes), kind = k / COUNT(shapes) % KINDS;
    return kind > MOMENT_TWICE || shapes[s].rows == shapes[s].cols;
}

static call call_put(machine *at, int k)
{
    const int s = k % COUNT(shapes), own = k / (COUNT(shapes) * KINDS) % 2,
              f64 = k / (COUNT(shapes) * KINDS * 2);
    const polar_dtype dtype = f64 ? POLAR_DTYPE_F64 : POLAR_DTYPE_F32;
    const int64_t batch = shapes[s].batch;
    const uint64_t seed = (uint64_t)(1000 + 10 * k);
    double row[5][PL_LIVE_COLS], *x = numbers(2 * batch, seed + 9);
    call c = {.kind = k / COUNT(shapes) % KINDS};
    for (int64_t b = 0; b < batch; b++) {
        pl_live_row(row[b], 1.9, 3.1, 0.02, 0.1, 0.9, 0.99 - 0.01 * (double)b, 1e-8);
        row[b][PL_LIVE_STEP] = 7 + (double)b;
        row[b][PL_LIVE_GRAD] = 0.5;
        if (own) row[b][PL_LIVE_SKIP] = (k + b) % 4 == 3 ? PL_SKIP_FLAG : (k + b) % 4 == 2 ? PL_SKIP_WAIT : 0;
        x[2 * b] = 0.25, x[2 * b + 1] = fabs(x[2 * b + 1]);
    }
    c.after = k % 3 == 1 ? 7 : 0;
    c.live = put(at, POLAR_DTYPE_F64, own ? batch : 1, 1, PL_LIVE_COLS, row[0]);
    c.N = put(at, POLAR_DTYPE_F64, batch, 1, 2, x);
    free(x);
    if (c.kind <= MOMENT_TWICE) {
        c.K = room(at, &c, POLAR_DTYPE_F64, s, seed, 0);
        c.T = room(at, &c, dtype, s, seed + 1, 0);
        if (c.kind == MOMENT_TWICE) c.A = room(at, &c, POLAR_DTYPE_F64, s, seed + 2, 0);
        return c;
    }
    c.X = room(at, &c, dtype, s, seed + 3, 0);
    if (c.kind != SIGN) c.V = room(at, &c, dtype, s, seed + 4, 1);
    if (c.kind == ENTRY_OF_G || c.kind == ROOT) c.G = room(at, &c, dtype, s, seed + 5, 0);
    return c;
}

static void call_free(machine *at, call *c)
{
    for (int i = 0; i < c->count; i++) pl_mat_free(&c->all[i], at->dev);
    pl_mat_free(&c->N, at->dev), pl_mat_free(&c->live, at->dev);
}

static void enqueue(machine *at, const call *c)
{
    if (c->kind <= MOMENT_TWICE)
        PL_CALL(kron_moment, at->q, .A = c->A, .K = c->K, .T = c->T, .N = c->N, .live = c->live);
    else
        PL_CALL(entry_stage, at->q, .Y = c->X, .V = c->V, .X = c->X, .G = c->G, .live = c->live,
                .after = c->after, .root = c->kind == ROOT);
}

/* Numbers that differ, of all that lies there. */
static int64_t differ(machine *at, const call *a, machine *there, const call *b)
{
    int64_t bad = 0;
    for (int i = 0; i < a->count; i++) {
        double *u = get(at, &a->all[i]), *v = get(there, &b->all[i]);
        for (int64_t k = 0; k < a->all[i].cols; k++) bad += memcmp(&u[k], &v[k], sizeof *u) != 0;
        free(u), free(v);
    }
    return bad;
}

int main(int argc, char **argv)
{
    static call together[CALLS], alone[CALLS], before[CALLS], cpu[CALLS];
    machine at, host;
    int64_t bad = 0, elsewhere = 0;
    int moved = 0, calls = 0;
    const char *device = test_begin(argc, argv);
    map_need_device(device);
    at = machine_open(device);
    host = machine_open("cpu:threads=1");
    for (int k = 0; k < CALLS; k++) {
        if (!is_there(k)) continue;
        together[k] = call_put(&at, k), alone[k] = call_put(&at, k), before[k] = call_put(&at, k);
        cpu[k] = call_put(&host, k);
        enqueue(&at, &alone[k]), enqueue(&host, &cpu[k]);
    }
    pl_queue_overlap_begin(at.q);
    for (int k = 0; k < CALLS; k++)
        if (is_there(k)) enqueue(&at, &together[k]);
    pl_queue_overlap_end(at.q);
    TEST_TRY(polar_queue_sync(at.q));
    TEST_TRY(polar_queue_sync(host.q));
    for (int k = 0; k < CALLS; k++) {
        if (!is_there(k)) continue;
        bad += differ(&at, &together[k], &at, &alone[k]);
        elsewhere += differ(&at, &alone[k], &host, &cpu[k]);
        moved += differ(&at, &together[k], &at, &before[k]) > 0, calls++;
        call_free(&at, &together[k]), call_free(&at, &alone[k]), call_free(&at, &before[k]);
        call_free(&host, &cpu[k]);
    }
    test_exact("put off together, and each by itself", bad);
    test_exact("each by itself, and on cpu", elsewhere);
    test_true("calls that wrote something", moved > calls * 2 / 3, "%d of %d", moved, calls);
    polar_queue_destroy(at.q), polar_queue_destroy(host.q);
    polar_device_close(at.dev), polar_device_close(host.dev);
    return test_end();
}
