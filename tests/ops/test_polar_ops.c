/* test_polar_ops.c -- newton_schulz, polar_map and polar_step where a device has them: what ops.def
 * promises of them.
 *
 * Exact: polar_map is frob, normalise, newton_schulz and copy; polar_step is direction, polar_map and
 * decay_step, with stages their ops in between; a matrix's bits do not depend on its mates, its batch or on
 * being put off; scaling by a power of two changes nothing, a sign changes signs, the transpose of a matrix
 * that is not square has the transposed bits; SKIP writes nothing. Bounded: the map against the oracle's.
 * Shapes that a device does not serve end in a sentence, and the map of them in the composition. (On cpu the
 * kernels' own tests are in test_amx.c.)
 *
 *     test_polar_ops DEVICE few    each kernel, but fewer calls and no large shapes: for slow checkers
 *         of races
 */
#include <string.h>

#include "fixtures/machine.h"

#define STEPS    5
#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

static const struct {
    int64_t rows, cols;
} shapes[] = {{16, 16},   {16, 152},  {152, 16}, {9, 250},   {1, 1},      {1, 300},   {300, 1},
              {7, 3},     {40, 250},  {64, 64},  {100, 130}, {128, 128},  {128, 512}, {192, 192},
              {576, 192}, {192, 768}, {200, 65}, {256, 256}, {256, 1024}, {1000, 250}};

#define FEW_ENTRIES (128 * 512) /* a cluster of two thread blocks is among them */

static int few; /* asked for by the second argument */

static int left_out(int c)
{
    return few && shapes[c].rows * shapes[c].cols > FEW_ENTRIES;
}

static void coefs(double coef[3 * PL_FUSED_STEPS])
{
    for (int s = 0; s < STEPS; s++)
        coef[3 * s] = 3.4445 - 0.01 * s, coef[3 * s + 1] = -4.7750, coef[3 * s + 2] = 2.0315;
}

static pl_args_polar_map map_args(pl_mat Y, pl_mat X, const pl_mat *N)
{
    pl_args_polar_map a = {.Y = Y, .X = X, .steps = STEPS};
    if (N) a.N = *N;
    coefs(a.coef);
    return a;
}

/* The map of x, rows x cols, in f32. */
static double *map_of(machine *at, const double *x, int64_t rows, int64_t cols)
{
    pl_mat X = put(at, POLAR_DTYPE_F32, 1, rows, cols, x);
    pl_args_polar_map a = map_args(X, X, NULL);
    pl_call_polar_map(at->q, &a);
    double *y = get(at, &X);
    pl_mat_free(&X, at->dev);
    return y;
}

static int64_t unlike(const double *x, const double *y, int64_t n, double factor)
{
    int64_t bad = 0;
    for (int64_t i = 0; i < n; i++) bad += x[i] != factor * y[i];
    return bad;
}

static void symmetries(machine *at)
{
    int64_t scaled = 0, sign = 0, transposed = 0;
    for (int c = 0; c < COUNT(shapes); c++) {
        int64_t rows = shapes[c].rows, cols = shapes[c].cols, n = rows * cols;
        double *x = numbers(n, (uint64_t)(10 + c)), *z = numbers(n, 1), *y = map_of(at, x, rows, cols), *w;
        for (int64_t i = 0; i < n; i++) z[i] = ldexp(x[i], -90);
        w = map_of(at, z, rows, cols);
        scaled += unlike(y, w, n, 1);
        free(w);
        for (int64_t i = 0; i < n; i++) z[i] = -x[i];
        w = map_of(at, z, rows, cols);
        sign += unlike(y, w, n, -1);
        free(w);
        for (int64_t i = 0; i < n; i++) z[i % cols * rows + i / cols] = x[i];
        w = map_of(at, z, cols, rows);
        for (int64_t i = 0; i < n && rows != cols; i++) transposed += w[i % cols * rows + i / cols] != y[i];
        free(x), free(y), free(z), free(w);
    }
    test_exact("scaling by a power of two", scaled);
    test_exact("sign", sign);
    test_exact("transpose, not square", transposed);
}

static void map_by_ops(machine *at)
{
    int64_t bad = 0;
    for (int c = 0; c < COUNT(shapes); c++) {
        if (left_out(c)) continue;
        int64_t rows = shapes[c].rows, cols = shapes[c].cols, n = 3 * rows * cols;
        double *x = numbers(n, (uint64_t)(50 + c)), zero[6] = {0};
        /* signed zeros, and entries whose quotients' remainders may underflow */
        for (int64_t i = 0; i < n && n > 64; i += 7)
            x[i] = i % 4 == 0 ? 0.0 : i % 4 == 1 ? -0.0 : ldexp(x[i], i % 4 == 2 ? -70 : -110);
        polar_dtype in = c % 2 ? POLAR_DTYPE_BF16 : POLAR_DTYPE_F32,
                    out = c % 3 ? POLAR_DTYPE_F32 : POLAR_DTYPE_BF16;
        pl_mat X = put(at, in, 3, rows, cols, x), Y = put(at, out, 3, rows, cols, x),
               Z = put(at, out, 3, rows, cols, x);
        pl_mat H = put(at, POLAR_DTYPE_BF16, 3, rows, cols, x), N = put(at, POLAR_DTYPE_F64, 3, 1, 2, zero);
        pl_args_polar_map a = map_args(Y, X, &N);
        pl_args_newton_schulz s = {.X = H, .steps = STEPS};
        coefs(s.coef);
        PL_CALL(frob, at->q, .N = N, .X = X, .weight = 1, .trans = rows > cols);
        pl_call_polar_map(at->q, &a);
        PL_CALL(normalise, at->q, .Y = H, .X = X, .N = N);
        pl_call_newton_schulz(at->q, &s);
        PL_CALL(copy, at->q, .Y = Z, .X = H);
        double *y = get(at, &Y), *z = get(at, &Z);
        bad += unlike(y, z, n, 1);
        free(x), free(y), free(z);
        pl_mat_free(&X, at->dev), pl_mat_free(&Y, at->dev), pl_mat_free(&Z, at->dev);
        pl_mat_free(&H, at->dev), pl_mat_free(&N, at->dev);
    }
    test_exact("polar_map: frob, normalise, newton_schulz, copy", bad);
}

typedef struct {
    pl_mat W, M, V, G, live, P;
    int64_t steps; /* of its map */
} parameter;

static parameter parameter_put(machine *at, int c, int64_t batch)
{
    int64_t rows = shapes[c].rows, cols = shapes[c].cols, n = batch * rows * cols;
    double *x = numbers(n, (uint64_t)(100 + c)), row[PL_LIVE_COLS];
    parameter p = {.W = put(at, POLAR_DTYPE_F32, batch, rows, cols, x), .steps = STEPS};
    p.M = put(at, POLAR_DTYPE_F32, batch, rows, cols, x);
    for (int64_t i = 0; i < n; i++) x[i] = fabs(x[i]);
    p.V = put(at, POLAR_DTYPE_F32, batch, rows, cols, x);
    map_fill(x, n, (uint64_t)(200 + c));
    p.G = put(at, c % 2 ? POLAR_DTYPE_BF16 : POLAR_DTYPE_F32, batch, rows, cols, x);
    pl_live_row(row, 1.9, 3.1, 0.02, 0.1, 0.9, 0.999, 1e-8);
    row[PL_LIVE_GRAD] = 0.3;
    p.live = put(at, POLAR_DTYPE_F64, 1, 1, PL_LIVE_COLS, row);
    for (int64_t i = 0; i < n; i++) x[i] = fabs(x[i]);
    p.P = put(at, POLAR_DTYPE_F32, batch, 1, rows > cols ? rows : cols, x); /* n entries or more are there */
    free(x);
    return p;
}

static void parameter_free(machine *at, parameter *p)
{
    pl_mat_free(&p->W, at->dev), pl_mat_free(&p->M, at->dev), pl_mat_free(&p->V, at->dev);
    pl_mat_free(&p->G, at->dev), pl_mat_free(&p->live, at->dev), pl_mat_free(&p->P, at->dev);
}

static pl_args_polar_step step_args(const parameter *p, int64_t momentum, int64_t precondition)
{
    pl_args_polar_step a = {.W = p->W,
                            .M = p->M,
                            .G = p->G,
                            .live = p->live,
                            .momentum = momentum,
                            .precondition = precondition,
                            .steps = p->steps,
                            .scale = 1.7};
    if (precondition) a.V = p->V;
    coefs(a.coef);
    return a;
}

/* A device may take a shape's map and leave its step to several ops. */
static int takes_step(machine *at, const parameter *p)
{
    pl_args_polar_step a = step_args(p, POLAR_MOMENTUM_EMA, 1);
    return pl_queue_serves(at->q, PL_OP_polar_step, &a);
}

static void step_by_op(machine *at, const parameter *p, int64_t momentum, int64_t precondition)
{
    pl_args_polar_step a = step_args(p, momentum, precondition);
    pl_call_polar_step(at->q, &a);
}

/* A step, or else the gradient's map in the weight's place. */
static void work_by_op(machine *at, const parameter *p)
{
    pl_args_polar_map a = map_args(p->W, p->G, NULL);
    if (takes_step(at, p)) step_by_op(at, p, POLAR_MOMENTUM_EMA, 1);
    else pl_call_polar_map(at->q, &a);
}

static void step_by_ops(machine *at, const parameter *p, int64_t momentum, int64_t precondition)
{
    pl_mat D, none = {0};
    TEST_TRY(pl_mat_alloc(&D, at->dev, POLAR_DTYPE_F32, p->W.batch, p->W.rows, p->W.cols));
    PL_CALL(direction, at->q, .D = D, .M = p->M, .V = precondition ? p->V : none, .G = p->G, .live = p->live,
            .momentum = momentum, .precondition = precondition);
    pl_args_polar_map a = map_args(D, D, NULL);
    pl_call_polar_map(at->q, &a);
    PL_CALL(decay_step, at->q, .W = p->W, .D = D, .live = p->live, .scale = 1.7);
    TEST_TRY(polar_queue_sync(at->q));
    pl_mat_free(&D, at->dev);
}

static int64_t parameter_unlike(machine *at, const parameter *p, const parameter *r, int64_t first)
{
    const pl_mat *a[] = {&p->W, &p->M, &p->V}, *b[] = {&r->W, &r->M, &r->V};
    int64_t bad = 0, n = r->W.batch * r->W.rows * r->W.cols;
    for (int i = 0; i < 3; i++) {
        double *x = get(at, a[i]), *y = get(at, b[i]);
        bad += unlike(x + first, y, n, 1);
        free(x), free(y);
    }
    return bad;
}

/* ---- steps with stages after the map ---- */

static const struct {
    int64_t post, apply;
    double strength;
} stages[] = {{POLAR_POST_ROW_MOMENT, POLAR_APPLY_DECOUPLED, 0},
              {POLAR_POST_COLUMN_MOMENT, POLAR_APPLY_DECOUPLED, 0},
              {POLAR_POST_LONG_MOMENT, POLAR_APPLY_CONSTRAINED, 0},
              {POLAR_POST_NONE, POLAR_APPLY_CAUTIOUS, 0},
              {POLAR_POST_NONE, POLAR_APPLY_HYPERBALL, 0},
              {POLAR_POST_NONE, POLAR_APPLY_UPDATE_FLOOR, 3},
              {POLAR_POST_NONE, POLAR_APPLY_RADIAL_BRAKE, 0.25},
              {POLAR_POST_ROW_MOMENT, POLAR_APPLY_CAUTIOUS, 0},
              {POLAR_POST_COLUMN_MOMENT, POLAR_APPLY_HYPERBALL, 0},
              {POLAR_POST_ROW_MOMENT, POLAR_APPLY_HYPERBALL, 0}};

static pl_mat lines_of(const parameter *p, int s)
{
    pl_mat P = p->P;
    P.cols = pl_post_columns(stages[s].post, p->W.rows, p->W.cols) ? p->W.cols : p->W.rows;
    return P;
}

static pl_args_polar_step stages_args(const parameter *p, int s)
{
    pl_args_polar_step a = step_args(p, POLAR_MOMENTUM_AVERAGE_NESTEROV, s % 2);
    a.post = stages[s].post, a.apply = stages[s].apply, a.strength = stages[s].strength;
    if (a.post) a.P = lines_of(p, s);
    return a;
}

static void stages_by_ops(machine *at, const parameter *p, int s)
{
    pl_mat D, N, F, none = {0};
    const int cols = pl_post_columns(stages[s].post, p->W.rows, p->W.cols), looks = stages[s].apply >= 3;
    TEST_TRY(pl_mat_alloc(&D, at->dev, POLAR_DTYPE_F32, p->W.batch, p->W.rows, p->W.cols));
    TEST_TRY(pl_mat_alloc(&N, at->dev, POLAR_DTYPE_F64, p->W.batch, 1, 4));
    TEST_TRY(pl_mat_alloc(&F, at->dev, POLAR_DTYPE_F64, p->W.batch, 1, cols ? p->W.cols : p->W.rows));
    PL_CALL(direction, at->q, .D = D, .M = p->M, .V = s % 2 ? p->V : none, .G = p->G, .live = p->live,
            .momentum = POLAR_MOMENTUM_AVERAGE_NESTEROV, .precondition = s % 2);
    pl_args_polar_map a = map_args(D, D, NULL);
    a.steps = p->steps;
    pl_call_polar_map(at->q, &a);
    if (stages[s].post) {
        PL_CALL(line_factors, at->q, .F = F, .V = lines_of(p, s), .X = D, .live = p->live, .trans = cols,
                .kind = stages[s].post == POLAR_POST_LONG_MOMENT ? PL_LINE_CLAMPED : PL_LINE_MOMENT);
        PL_CALL(scale_lines, at->q, .Y = D, .X = D, .R = cols ? none : F, .C = cols ? F : none);
    }
    if (looks) PL_CALL(inner, at->q, .N = N, .X = p->W, .Y = D);
    if (looks || stages[s].apply == POLAR_APPLY_CAUTIOUS)
        PL_CALL(apply_step, at->q, .W = p->W, .D = D, .N = looks ? N : none, .live = p->live, .scale = 1.7,
                .apply = stages[s].apply, .strength = stages[s].strength);
    else PL_CALL(decay_step, at->q, .W = p->W, .D = D, .live = p->live, .scale = 1.7);
    TEST_TRY(polar_queue_sync(at->q));
    pl_mat_free(&D, at->dev), pl_mat_free(&N, at->dev), pl_mat_free(&F, at->dev);
}

static int64_t moments_unlike(machine *at, const parameter *p, const parameter *r)
{
    double *x = get(at, &p->P), *y = get(at, &r->P);
    int64_t bad = unlike(x, y, p->P.batch * p->P.cols, 1);
    free(x), free(y);
    return bad;
}

/* Where a plain step of a shape is taken, so are all of these. */
static void stages_are_their_ops(machine *at)
{
    const double skip[PL_LIVE_COLS] = {[PL_LIVE_SKIP] = 1};
    int64_t bad = 0, moments = 0, skipped = 0, taken = 0, asked = 0;
    for (int c = 0; c < COUNT(shapes); c++)
        for (int s = 0; s < COUNT(stages) && !left_out(c); s++) {
            parameter p = parameter_put(at, c, 2), r = parameter_put(at, c, 2);
            pl_args_polar_step a = stages_args(&p, s);
            asked += takes_step(at, &p);
            if (takes_step(at, &p) && pl_queue_serves(at->q, PL_OP_polar_step, &a)) {
                taken++;
                pl_call_polar_step(at->q, &a);
                stages_by_ops(at, &r, s);
                bad += parameter_unlike(at, &p, &r, 0);
                moments += moments_unlike(at, &p, &r);
                TEST_TRY(pl_mat_upload_f64(at->q, &p.live, skip));
                pl_call_polar_step(at->q, &a);
                skipped += parameter_unlike(at, &p, &r, 0) + moments_unlike(at, &p, &r);
            }
            parameter_free(at, &p), parameter_free(at, &r);
        }
    test_true("polar_step with stages: all are taken", taken > 0 && taken == asked, "%d of %d", (int)taken,
              (int)asked);
    test_exact("... direction, polar_map, stages and step", bad);
    test_exact("... and the moments of lines", moments);
    test_exact("... SKIP writes nothing", skipped);
}

/* Of a gradient with an infinite entry: without Newton-Schulz steps D has zeros and one NaN. */
static void stages_of_infinity(machine *at)
{
    int64_t bad = 0, numbers_left = 0;
    for (int c = 0; c < COUNT(shapes); c++)
        for (int s = 0; s < COUNT(stages) && !left_out(c); s++) {
            const int64_t n = shapes[c].rows * shapes[c].cols;
            parameter p = parameter_put(at, c, 1), r = parameter_put(at, c, 1);
            p.steps = r.steps = 0;
            pl_args_polar_step a = stages_args(&p, s);
            if (takes_step(at, &p) && pl_queue_serves(at->q, PL_OP_polar_step, &a)) {
                double *g = get(at, &p.G);
                g[n / 2] = INFINITY;
                TEST_TRY(pl_mat_upload_f64(at->q, &p.G, g));
                TEST_TRY(pl_mat_upload_f64(at->q, &r.G, g));
                free(g);
                pl_call_polar_step(at->q, &a);
                stages_by_ops(at, &r, s);
                double *x = get(at, &p.W), *y = get(at, &r.W);
                for (int64_t i = 0; i < n; i++) bad += x[i] != y[i] && (x[i] == x[i] || y[i] == y[i]);
                for (int64_t i = 0; i < n; i++) numbers_left += y[i] == y[i];
                free(x), free(y);
            }
            parameter_free(at, &p), parameter_free(at, &r);
        }
    test_exact("... of an infinite gradient", bad);
    test_true("... where some weights stay numbers", numbers_left > 0, "%d", (int)numbers_left);
}

/* Plain steps and steps with stages of all shapes put off together, and each alone. */
static void stages_mates(machine *at)
{
    enum { N = COUNT(shapes) };
    int64_t bad = 0;
    parameter all[2][N];
    for (int k = 0; k < 2 * N; k++)
        if (!left_out(k % N)) all[k / N][k % N] = parameter_put(at, k % N, 2);
    for (int first = 0; first < COUNT(stages); first++) {
        pl_queue_overlap_begin(at->q);
        for (int k = 0; k < 2 * N; k++) {
            parameter *p = &all[k / N][k % N];
            if (left_out(k % N) || !takes_step(at, p)) continue;
            pl_args_polar_step a = stages_args(p, (first + k % N) % COUNT(stages));
            if (k < N) pl_call_polar_step(at->q, &a);
            else step_by_op(at, p, POLAR_MOMENTUM_EMA, 1);
        }
        pl_queue_overlap_end(at->q);
    }
    for (int c = 0; c < N; c++) {
        if (left_out(c)) continue;
        parameter p = parameter_put(at, c, 2), r = parameter_put(at, c, 2);
        for (int first = 0; first < COUNT(stages) && takes_step(at, &p); first++) {
            pl_args_polar_step a = stages_args(&p, (first + c) % COUNT(stages));
            pl_call_polar_step(at->q, &a);
            step_by_op(at, &r, POLAR_MOMENTUM_EMA, 1);
        }
        bad += parameter_unlike(at, &all[0][c], &p, 0) + moments_unlike(at, &all[0][c], &p);
        bad += parameter_unlike(at, &all[1][c], &r, 0);
        parameter_free(at, &p), parameter_free(at, &all[0][c]);
        parameter_free(at, &r), parameter_free(at, &all[1][c]);
    }
    test_exact("with stages and without, put off together, and alone", bad);
}

static void step_is_its_ops(machine *at)
{
    int64_t bad = 0, skipped = 0, taken = 0;
    for (int c = 0; c < COUNT(shapes); c++)
        for (int64_t mode = 0; mode < 2 * PL_MOMENTUM_COUNT; mode += c % 3 + 1) {
            parameter p = parameter_put(at, c, 2), r = parameter_put(at, c, 2);
            if (!takes_step(at, &p)) {
                parameter_free(at, &p), parameter_free(at, &r);
                break;
            }
            taken++;
            step_by_op(at, &p, mode / 2, mode % 2);
            step_by_ops(at, &r, mode / 2, mode % 2);
            bad += parameter_unlike(at, &p, &r, 0);
            double row[PL_LIVE_COLS] = {[PL_LIVE_SKIP] = 1};
            TEST_TRY(pl_mat_upload_f64(at->q, &p.live, row));
            step_by_op(at, &p, mode / 2, mode % 2);
            skipped += parameter_unlike(at, &p, &r, 0);
            parameter_free(at, &p), parameter_free(at, &r);
        }
    test_true("polar_step is taken by some shapes", taken > 0, "%d steps", (int)taken);
    test_exact("polar_step: direction, polar_map, decay_step", bad);
    test_exact("polar_step: SKIP writes nothing", skipped);
}

/* All shapes put off together, in batches of two, and each alone. */
static void mates(machine *at)
{
    enum { N = COUNT(shapes) };
    int64_t bad = 0, batch = 0;
    parameter all[N];
    for (int c = 0; c < N; c++)
        if (!left_out(c)) all[c] = parameter_put(at, c, 2);
    pl_queue_overlap_begin(at->q);
    for (int c = 0; c < N; c++)
        if (!left_out(c)) work_by_op(at, &all[c]);
    pl_queue_overlap_end(at->q);
    for (int c = 0; c < N; c++) {
        if (left_out(c)) continue;
        parameter p = parameter_put(at, c, 2), one = parameter_put(at, c, 2), r = one;
        work_by_op(at, &p);
        bad += parameter_unlike(at, &all[c], &p, 0);
        r.W = pl_mat_at(one.W, 1, 1), r.M = pl_mat_at(one.M, 1, 1), r.V = pl_mat_at(one.V, 1, 1),
        r.G = pl_mat_at(one.G, 1, 1);
        work_by_op(at, &r);
        batch += parameter_unlike(at, &p, &r, r.W.rows * r.W.cols);
        parameter_free(at, &p), parameter_free(at, &one), parameter_free(at, &all[c]);
    }
    test_exact("put off together, and alone", bad);
    test_exact("in a batch, and alone", batch);
}

/* Another order of sums may put an entry of A or P on the other side of a rounding: NS5 moves by 1-3 %
 * (docs/NUMERICS.md, 2). */
static void oracle(machine *at)
{
    double worst = 0;
    for (int c = 0; c < COUNT(shapes); c++) {
        int64_t rows = shapes[c].rows, cols = shapes[c].cols, n = rows * cols;
        if (n > 40000) continue;
        double *x = numbers(n, (uint64_t)(300 + c)), *y = numbers(n, 1), *z = numbers(n, 1), e = 0, s = 0;
        map_one("ref", "ns_bf16_fused", y, x, rows, cols);
        map_one(polar_device_name(at->dev), "ns_bf16_fused", z, x, rows, cols);
        for (int64_t i = 0; i < n; i++) e += (y[i] - z[i]) * (y[i] - z[i]), s += y[i] * y[i];
        if (sqrt(e / s) > worst) worst = sqrt(e / s);
        free(x), free(y), free(z);
    }
    test_bound("ns_bf16_fused: against ref", worst, 0.05, "another order of sums moves NS5 by 1-3 %");
}

static void not_served(machine *at)
{
    enum { R = 300, C = 320 };
    double *x = numbers(R * C, 400), *y = numbers(R * C, 1), *z = numbers(R * C, 1), e = 0, s = 0;
    pl_mat X = put(at, POLAR_DTYPE_F32, 1, R, C, x);
    pl_args_polar_map a = map_args(X, X, NULL);
    int serves = pl_queue_serves(at->q, PL_OP_polar_map, &a);
    pl_call_polar_map(at->q, &a);
    polar_status st = polar_queue_sync(at->q);
    test_true("300 x 320 is served, or refused", st == (serves ? POLAR_OK : POLAR_E_UNSUPPORTED), "%s",
              st ? polar_error_message() : "served");
    map_one("ref", "ns_bf16_fused", y, x, R, C);
    map_one(polar_device_name(at->dev), "ns_bf16_fused", z, x, R, C);
    for (int64_t i = 0; i < R * C; i++) e += (y[i] - z[i]) * (y[i] - z[i]), s += y[i] * y[i];
    test_bound("300 x 320, whoever does it: against ref", sqrt(e / s), 0.05, "as above");
    pl_mat_free(&X, at->dev);
    free(x), free(y), free(z);
}

int main(int argc, char **argv)
{
    machine at;
    const char *device = test_begin(argc, argv);
    map_need_device(device);
    at = machine_open(device);
    if (!pl_queue_has(at.q, PL_OP_polar_step)) return 77;
    few = test_few(argc, argv);
    map_by_ops(&at);
    mates(&at);
    stages_are_their_ops(&at);
    stages_of_infinity(&at);
    stages_mates(&at);
    if (!few) {
        symmetries(&at);
        step_is_its_ops(&at);
        oracle(&at);
        not_served(&at);
    }
    polar_queue_destroy(at.q);
    polar_device_close(at.dev);
    return test_end();
}
