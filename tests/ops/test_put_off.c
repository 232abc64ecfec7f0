/* test_put_off.c -- ops of an optimiser's step put off together (pl_queue_overlap_begin), each by itself, and
 * each on cpu: the same bits. Matrices small enough for one launch of many, and larger ones; live rows of
 * their own and one for all, some of which SKIP; more calls than a table holds.
 *
 *     test_put_off DEVICE
 */
#include <string.h>

#include "fixtures/machine.h"

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))
#define BEHIND   3 /* numbers between what belongs to one matrix and what to the next, which nobody writes */
#define CALLS    816 /* each kind of each shape with both kinds of live rows, twice */

static const struct {
    int64_t batch, rows, cols;
} shapes[] = {{1, 16, 16},  {5, 16, 16},  {3, 1, 16},  {4, 16, 1},   {3, 32, 16},
              {2, 16, 152}, {2, 7, 3},    {3, 70, 40}, {1, 1, 1},    {2, 512, 16},
              {1, 16, 512}, {2, 513, 15}, {1, 96, 96}, {1, 40, 300}, {2, 33, 67}};

enum {
    CAUTIOUS,
    BALL,
    FLOOR,
    BRAKE,
    DECAY,
    INNER,
    ROWS,
    COLUMNS,
    LONG_ROWS,
    EQUAL,
    SCALE_ROWS,
    SCALE_BOTH,
    KINDS
};

typedef struct {
    pl_mat W, D, E, R, C, V, N, live;
    int kind;
} call;

static double *spread(int64_t n, uint64_t seed)
{
    double *x = numbers(n, seed);
    for (int64_t i = 0; i < n; i++) x[i] = ldexp(x[i], (int)(i * 7 % 5) - 2);
    return x;
}

static pl_mat filled(machine *at, polar_dtype dtype, int64_t batch, int64_t rows, int64_t cols, uint64_t seed,
                     int positive)
{
    double *x = spread(batch * rows * cols, seed);
    for (int64_t i = 0; i < batch * rows * cols && positive; i++) x[i] = fabs(x[i]);
    pl_mat m = put(at, dtype, batch, rows, cols, x);
    free(x);
    return m;
}

static call call_put(machine *at, int k)
{
    const int s = k % COUNT(shapes), own = k / (COUNT(shapes) * KINDS) % 2;
    const int64_t batch = shapes[s].batch, rows = shapes[s].rows, cols = shapes[s].cols;
    const uint64_t seed = (uint64_t)(1000 + 10 * k);
    double row[5][PL_LIVE_COLS];
    call c = {.kind = k / COUNT(shapes) % KINDS};
    c.W = filled(at, POLAR_DTYPE_F32, batch, rows, cols, seed, 0);
    c.D = filled(at, POLAR_DTYPE_F32, batch, rows, cols, seed + 1, 0);
    c.E = filled(at, POLAR_DTYPE_F32, batch, rows, cols, seed + 2, 0);
    c.R = filled(at, POLAR_DTYPE_F64, batch, 1, rows + BEHIND, seed + 3, 0);
    c.C = filled(at, POLAR_DTYPE_F64, batch, 1, cols + BEHIND, seed + 4, 0);
    c.V = filled(at, POLAR_DTYPE_F32, batch, 1, (c.kind == COLUMNS ? cols : rows) + BEHIND, seed + 5, 1);
    c.N = filled(at, POLAR_DTYPE_F64, batch, 1, 4 + BEHIND, seed + 6, 1);
    for (int64_t b = 0; b < batch; b++) {
        pl_live_row(row[b], 1.9, 3.1, 0.02 + 0.01 * (double)b, 0.1, 0.9, 0.99, 1e-8);
        row[b][PL_LIVE_SKIP] = own && (k + b) % 4 == 3;
    }
    c.live = put(at, POLAR_DTYPE_F64, own ? batch : 1, 1, PL_LIVE_COLS, row[0]);
    return c;
}

static void call_free(machine *at, call *c)
{
    pl_mat *all[] = {&c->W, &c->D, &c->E, &c->R, &c->C, &c->V, &c->N, &c->live};
    for (int i = 0; i < COUNT(all); i++) pl_mat_free(all[i], at->dev);
}

static void apply(machine *at, const call *c, int64_t how, double strength)
{
    PL_CALL(apply_step, at->q, .W = c->W, .D = c->D, .N = how == POLAR_APPLY_CAUTIOUS ? (pl_mat){0} : c->N,
            .live = c->live, .scale = 1.7, .apply = how, .strength = strength);
}

static void factors(machine *at, const call *c, pl_mat F, pl_mat V, int trans, int64_t kind)
{
    PL_CALL(line_factors, at->q, .F = F, .V = V, .X = c->D, .live = c->live, .trans = trans, .kind = kind);
}

static void enqueue(machine *at, const call *whole)
{
    const pl_mat none = {0};
    call view = *whole, *c = &view;
    c->R.cols -= BEHIND, c->C.cols -= BEHIND, c->V.cols -= BEHIND, c->N.cols -= BEHIND;
    switch (c->kind) {
    case CAUTIOUS: apply(at, c, POLAR_APPLY_CAUTIOUS, 0); break;
    case BALL: apply(at, c, POLAR_APPLY_HYPERBALL, 0); break;
    case FLOOR: apply(at, c, POLAR_APPLY_UPDATE_FLOOR, 3); break;
    case BRAKE: apply(at, c, POLAR_APPLY_RADIAL_BRAKE, 0.3); break;
    case DECAY: PL_CALL(decay_step, at->q, .W = c->W, .D = c->D, .live = c->live, .scale = 1.7); break;
    case INNER: PL_CALL(inner, at->q, .N = c->N, .X = c->W, .Y = c->D); break;
    case ROWS: factors(at, c, c->R, c->V, 0, PL_LINE_MOMENT); break;
    case COLUMNS: factors(at, c, c->C, c->V, 1, PL_LINE_MOMENT); break;
    case LONG_ROWS: factors(at, c, c->R, c->V, 0, PL_LINE_CLAMPED); break;
    case EQUAL: factors(at, c, c->C, none, 1, PL_LINE_EQUILIBRATE); break;
    case SCALE_ROWS: PL_CALL(scale_lines, at->q, .Y = c->D, .X = c->D, .R = c->R); break;
    default: PL_CALL(scale_lines, at->q, .Y = c->E, .X = c->D, .R = c->R, .C = c->C); break;
    }
}

/* Numbers that differ, of everything that some op writes. */
static int64_t differ(machine *at, const call *a, machine *there, const call *b)
{
    const pl_mat *x[] = {&a->W, &a->D, &a->E, &a->R, &a->C, &a->V, &a->N},
                 *y[] = {&b->W, &b->D, &b->E, &b->R, &b->C, &b->V, &b->N};
    int64_t bad = 0;
    for (int i = 0; i < COUNT(x); i++) {
        double *u = get(at, x[i]), *v = get(there, y[i]);
        for (int64_t k = 0; k < x[i]->batch * x[i]->rows * x[i]->cols; k++)
            bad += memcmp(&u[k], &v[k], sizeof *u) != 0;
        free(u), free(v);
    }
    return bad;
}

int main(int argc, char **argv)
{
    static call together[CALLS], alone[CALLS], before[CALLS], cpu[CALLS];
    machine at, host;
    int64_t bad = 0, moved = 0, elsewhere = 0;
    const char *device = test_begin(argc, argv);
    map_need_device(device);
    at = machine_open(device);
    host = machine_open("cpu:threads=1");
    for (int k = 0; k < CALLS; k++) {
        together[k] = call_put(&at, k), alone[k] = call_put(&at, k), before[k] = call_put(&at, k);
        cpu[k] = call_put(&host, k);
        enqueue(&at, &alone[k]), enqueue(&host, &cpu[k]);
    }
    pl_queue_overlap_begin(at.q);
    for (int k = 0; k < CALLS; k++) enqueue(&at, &together[k]);
    pl_queue_overlap_end(at.q);
    TEST_TRY(polar_queue_sync(at.q));
    TEST_TRY(polar_queue_sync(host.q));
    for (int k = 0; k < CALLS; k++) {
        bad += differ(&at, &together[k], &at, &alone[k]);
        elsewhere += differ(&at, &alone[k], &host, &cpu[k]);
        moved += differ(&at, &together[k], &at, &before[k]) > 0;
        call_free(&at, &together[k]), call_free(&at, &alone[k]), call_free(&at, &before[k]);
        call_free(&host, &cpu[k]);
    }
    test_exact("put off together, and each by itself", bad);
    test_exact("each by itself, and on cpu", elsewhere);
    test_true("calls that wrote something", moved > CALLS * 3 / 4, "%d of %d", (int)moved, CALLS);
    polar_queue_destroy(at.q), polar_queue_destroy(host.q);
    polar_device_close(at.dev), polar_device_close(host.dev);
    return test_end();
}
