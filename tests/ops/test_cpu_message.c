/* test_cpu_message.c -- what `cpu` promises about its fused messages, pair_message and pair_message_back
 * (backends/cpu/cpu_message.h):
 *
 *     any number of threads        the same bits
 *     batch mates, positions       a cloud's results are the same alone, in a batch, and elsewhere in it
 *     instruction sets             avx2 = avx512 (the baseline has no fma)
 *     the definition in double     bounded: clouds through the table, the direct way, and both in one call
 */
#include "backends/cpu/cpu_message.h"
#include "cpu_bits.h"

typedef struct {
    int64_t members, clouds, points, h; /* clouds: of all members */
    polar_dtype dtype;
    /* |w0| at most; one distance of the last cloud, 0: like the others */
    double w0, far;
} message_shape;

typedef struct {
    message_shape s;
    matrix S, V, D, w0, b0, W2, b2, gs, gv;    /* read */
    matrix Ys, Yv, dS, dV, dw0, db0, dW2, db2; /* written */
} message;

#define RESULTS 8
static matrix *message_result(message *m, int i)
{
    matrix *all[RESULTS] = {&m->Ys, &m->Yv, &m->dS, &m->dV, &m->dw0, &m->db0, &m->dW2, &m->db2};
    return all[i];
}

static double at(const matrix *x, int64_t b, int64_t i, int64_t j)
{
    return pl_load_f64(x->m.data, x->m.dtype, b * x->m.bs + i * x->m.rs + j);
}

static void set(matrix *x, int64_t b, int64_t i, int64_t j, double v)
{
    pl_store_f64(x->m.data, x->m.dtype, b * x->m.bs + i * x->m.rs + j, v);
}

static message message_create(message_shape s, uint64_t seed)
{
    int64_t n = s.points, P = n * (n + 1) / 2, h = s.h;
    message m = {.s = s};
    m.S = matrix_create(s.dtype, s.clouds, n, h, 3, NORMAL, seed + 1);
    m.V = matrix_create(s.dtype, s.clouds, 3 * n, h, 1, NORMAL, seed + 2);
    m.D = matrix_create(s.dtype, s.clouds, P, 1, 0, NORMAL, seed + 3);
    m.w0 = matrix_create(s.dtype, s.members, h, 1, 0, NORMAL, seed + 4);
    m.b0 = matrix_create(s.dtype, s.members, 1, h, 0, NORMAL, seed + 5);
    m.W2 = matrix_create(s.dtype, s.members, 2 * h, h, 2, NORMAL, seed + 6);
    m.b2 = matrix_create(s.dtype, s.members, 1, 2 * h, 0, NORMAL, seed + 7);
    m.gs = matrix_create(s.dtype, s.clouds, n, h, 5, NORMAL, seed + 8);
    m.gv = matrix_create(s.dtype, s.clouds, 3 * n, h, 0, NORMAL, seed + 9);
    for (int64_t c = 0; c < s.clouds; c++)
        for (int64_t p = 0; p < P; p++) set(&m.D, c, p, 0, 6 * fabs(at(&m.D, c, p, 0)));
    if (s.far != 0) set(&m.D, s.clouds - 1, P / 2, 0, s.far);
    for (int64_t e = 0; e < s.members; e++)
        for (int64_t k = 0; k < h; k++) set(&m.w0, e, k, 0, s.w0 * at(&m.w0, e, k, 0));
    m.Ys = matrix_create(s.dtype, s.clouds, n, h, 7, NORMAL, 0);
    m.Yv = matrix_create(s.dtype, s.clouds, 3 * n, h, 0, NORMAL, 0);
    m.dS = matrix_create(s.dtype, s.clouds, n, h, 2, NORMAL, 0);
    m.dV = matrix_create(s.dtype, s.clouds, 3 * n, h, 1, NORMAL, 0);
    m.dw0 = matrix_create(s.dtype, s.members, h, 1, 0, NORMAL, 0);
    m.db0 = matrix_create(s.dtype, s.members, 1, h, 0, NORMAL, 0);
    m.dW2 = matrix_create(s.dtype, s.members, 2 * h, h, 1, NORMAL, 0);
    m.db2 = matrix_create(s.dtype, s.members, 1, 2 * h, 0, NORMAL, 0);
    return m;
}

static void message_destroy(message *m)
{
    matrix *read[] = {&m->S, &m->V, &m->D, &m->w0, &m->b0, &m->W2, &m->b2, &m->gs, &m->gv};
    for (int i = 0; i < COUNT(read); i++) matrix_destroy(read[i]);
    for (int i = 0; i < RESULTS; i++) matrix_destroy(message_result(m, i));
}

#define ALPHA 0.125

static void message_run(machine *on, message *m)
{
    PL_CALL(pair_message, on->q, .Ys = m->Ys.m, .Yv = m->Yv.m, .S = m->S.m, .V = m->V.m, .D = m->D.m,
            .w0 = m->w0.m, .b0 = m->b0.m, .W2 = m->W2.m, .b2 = m->b2.m, .points = m->s.points,
            .alpha = ALPHA);
    PL_CALL(pair_message_back, on->q, .dS = m->dS.m, .dV = m->dV.m, .dw0 = m->dw0.m, .db0 = m->db0.m,
            .dW2 = m->dW2.m, .db2 = m->db2.m, .dYs = m->gs.m, .dYv = m->gv.m, .S = m->S.m, .V = m->V.m,
            .D = m->D.m, .w0 = m->w0.m, .b0 = m->b0.m, .W2 = m->W2.m, .b2 = m->b2.m, .points = m->s.points,
            .alpha = ALPHA);
    TEST_TRY(polar_queue_sync(on->q));
}

static int64_t message_differences(message *a, message *b)
{
    int64_t bad = 0;
    for (int i = 0; i < RESULTS; i++)
        bad += differences(&message_result(a, i)->m, &message_result(b, i)->m, 0);
    return bad;
}

/* The clouds one at a time, in calls of their own, give what they gave together; one member only. */
static int64_t alone_errors(machine *on, message *m)
{
    int64_t bad = 0;
    for (int64_t c = 0; c < m->s.clouds; c++) {
        message one = *m;
        int64_t e = c / (m->s.clouds / m->s.members);
        matrix *cut[] = {&one.S, &one.V, &one.D, &one.gs, &one.gv},
               *weights[] = {&one.w0, &one.b0, &one.W2, &one.b2};
        for (int i = 0; i < COUNT(cut); i++) cut[i]->m = pl_mat_at(cut[i]->m, c, 1);
        for (int i = 0; i < COUNT(weights); i++) weights[i]->m = pl_mat_at(weights[i]->m, e, 1);
        message_shape s = m->s;
        s.clouds = s.members = 1;
        message out = message_create(s, 0);
        for (int i = 0; i < RESULTS; i++) *message_result(&one, i) = *message_result(&out, i);
        message_run(on, &one);
        for (int i = 0; i < 4; i++) {
            pl_mat whole = pl_mat_at(message_result(m, i)->m, c, 1);
            bad += differences(&message_result(&one, i)->m, &whole, 0);
        }
        message_destroy(&out);
    }
    return bad;
}

/* ---- the definition in double ------------------------------------------------------------------- */

typedef struct {
    double v, m; /* a value, and the sum of the magnitudes of what it is made of */
} sized;

static void add(sized *s, double v, double m)
{
    s->v += v, s->m += m;
}

/* What a result may be off by, in units of the format's rounding u, times the magnitude:
 *   a weight w   12 u: Horner's rule in 6 terms (10), its rounded coefficients (1), the interpolation
 *       (1.6e-8 = 0.27 u); its magnitude is |b2| + sum_k |W2| (|z| + 1), since the
 *                polynomial's coefficients sum to at most |z| + 1 (|silu'| <= 1.1, half a piece is 1/4
 *                    wide). The direct way: a chain of h fma in double, then one rounding.
 *   sums         2 sqrt(n) u for n roundings of one sign as likely as the other; over N points, P pairs of
 *                every cloud of the member
 *   the rest     4 u: alpha, the end of a sum, a stored result; bf16 stores with 2^-8 instead, relative
 *       to the value */
static double rounding(polar_dtype dtype, int64_t terms)
{
    return (16 + 2 * sqrt((double)terms)) * (dtype == POLAR_DTYPE_F64 ? 0x1p-53 : 0x1p-24);
}

/* The largest error of a result in units of its tolerance. */
static double worst(double most, double got, sized want, polar_dtype dtype, int64_t terms)
{
    double tol = rounding(dtype, terms) * want.m + (dtype == POLAR_DTYPE_BF16 ? 0x1p-8 * fabs(want.v) : 0);
    double share = fabs(got - want.v) / tol;
    return share <= most ? most : share; /* a NaN stays */
}

typedef struct {
    double *z, *slope; /* (P, h) of a cloud */
    sized *w, *dw;     /* (P, 2h) */
} pair_values;

static void pair_weights(const message *m, int64_t c, pair_values *x)
{
    int64_t n = m->s.points, P = n * (n + 1) / 2, h = m->s.h, e = c / (m->s.clouds / m->s.members);
    for (int64_t p = 0; p < P; p++) {
        for (int64_t k = 0; k < h; k++) {
            double u = fma(at(&m->w0, e, k, 0), at(&m->D, c, p, 0), at(&m->b0, e, 0, k)),
                   s = 1 / (1 + exp(-u));
            x->z[p * h + k] = u * s;
            x->slope[p * h + k] = s * (1 + u * (1 - s));
        }
        for (int64_t o = 0; o < 2 * h; o++) {
            sized w = {at(&m->b2, e, 0, o), fabs(at(&m->b2, e, 0, o))};
            for (int64_t k = 0; k < h; k++)
                add(&w, at(&m->W2, e, o, k) * x->z[p * h + k],
                    fabs(at(&m->W2, e, o, k)) * (fabs(x->z[p * h + k]) + 1));
            x->w[p * 2 * h + o] = w;
        }
    }
}

static int64_t pair_at(int64_t n, int64_t i, int64_t j)
{
    return i <= j ? i * n - i * (i - 1) / 2 + (j - i) : pair_at(n, j, i);
}

/* Sums from `from` to `to` with the weights' half; k rows a point. */
static double sum_errors(double most, const message *m, const pair_values *x, int64_t c, const matrix *to,
                         const matrix *from, int half, int k)
{
    int64_t n = m->s.points, h = m->s.h;
    for (int64_t i = 0; i < n * k; i++)
        for (int64_t o = 0; o < h; o++) {
            sized s = {0, 0};
            for (int64_t j = 0; j < n; j++) {
                sized w = x->w[pair_at(n, i / k, j) * 2 * h + half * h + o];
                double v = at(from, c, j * k + i % k, o);
                add(&s, ALPHA * w.v * v, ALPHA * w.m * fabs(v));
            }
            add(&s, at(from, c, i, o), fabs(at(from, c, i, o)));
            most = worst(most, at(to, c, i, o), s, m->s.dtype, n + (m->s.dtype == POLAR_DTYPE_F64 ? h : 0));
        }
    return most;
}

static void pair_gradients(const message *m, int64_t c, pair_values *x)
{
    int64_t n = m->s.points, h = m->s.h;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = i; j < n; j++)
            for (int64_t o = 0; o < 2 * h; o++) {
                int half = o >= h, k = half ? 3 : 1;
                const matrix *g = half ? &m->gv : &m->gs, *v = half ? &m->V : &m->S;
                sized s = {0, 0};
                for (int d = 0; d < k; d++) {
                    double a = at(g, c, i * k + d, o % h) * at(v, c, j * k + d, o % h),
                           b = i == j ? 0 : at(g, c, j * k + d, o % h) * at(v, c, i * k + d, o % h);
                    add(&s, ALPHA * (a + b), ALPHA * (fabs(a) + fabs(b)));
                }
                x->dw[pair_at(n, i, j) * 2 * h + o] = s;
            }
}

/* The largest error of every kind of result, in units of its tolerance. */
static void message_errors(const message *m, double most[RESULTS])
{
    int64_t n = m->s.points, P = n * (n + 1) / 2, h = m->s.h, each = m->s.clouds / m->s.members;
    int64_t sums = 2 * h * h + 4 * h;
    pair_values x = {calloc((size_t)(P * h), 8), calloc((size_t)(P * h), 8),
                     calloc((size_t)(P * 2 * h), sizeof(sized)), calloc((size_t)(P * 2 * h), sizeof(sized))};
    sized *g = calloc((size_t)sums, sizeof *g);
    for (int i = 0; i < RESULTS; i++) most[i] = 0;
    for (int64_t c = 0; c < m->s.clouds; c++) {
        sized *dW2 = g, *db2 = g + 2 * h * h, *dw0 = db2 + 2 * h, *db0 = dw0 + h;
        int64_t e = c / each;
        if (c % each == 0) memset(g, 0, (size_t)sums * sizeof *g);
        pair_weights(m, c, &x);
        most[0] = sum_errors(most[0], m, &x, c, &m->Ys, &m->S, 0, 1);
        most[1] = sum_errors(most[1], m, &x, c, &m->Yv, &m->V, 1, 3);
        most[2] = sum_errors(most[2], m, &x, c, &m->dS, &m->gs, 0, 1);
        most[3] = sum_errors(most[3], m, &x, c, &m->dV, &m->gv, 1, 3);
        pair_gradients(m, c, &x);
        for (int64_t p = 0; p < P; p++)
            for (int64_t k = 0; k < h; k++) {
                double z = x.z[p * h + k], slope = x.slope[p * h + k], d = at(&m->D, c, p, 0);
                sized dz = {0, 0};
                for (int64_t o = 0; o < 2 * h; o++) {
                    sized dw = x.dw[p * 2 * h + o];
                    double w = at(&m->W2, e, o, k);
                    add(&dW2[o * h + k], dw.v * z, dw.m * (fabs(z) + 1));
                    if (k == 0) add(&db2[o], dw.v, dw.m);
                    add(&dz, dw.v * w, dw.m * fabs(w));
                }
                add(&dw0[k], dz.v * slope * d, dz.m * (fabs(slope) + 1) * (d + 1));
                add(&db0[k], dz.v * slope, dz.m * (fabs(slope) + 1));
            }
        if (c % each != each - 1) continue;
        for (int64_t k = 0; k < h; k++) {
            most[4] = worst(most[4], at(&m->dw0, e, k, 0), dw0[k], m->s.dtype, P * each);
            most[5] = worst(most[5], at(&m->db0, e, 0, k), db0[k], m->s.dtype, P * each);
            for (int64_t o = 0; o < 2 * h; o++)
                most[6] = worst(most[6], at(&m->dW2, e, o, k), dW2[o * h + k], m->s.dtype, P * each);
        }
        for (int64_t o = 0; o < 2 * h; o++)
            most[7] = worst(most[7], at(&m->db2, e, 0, o), db2[o], m->s.dtype, P * each);
    }
    free(x.z), free(x.slope), free(x.w), free(x.dw), free(g);
}

static const message_shape messages[] = {
    {1, 3, 9, 16, POLAR_DTYPE_F32, 1, 0},   {2, 4, 13, 5, POLAR_DTYPE_F32, 1, 0},
    {1, 1, 1, 1, POLAR_DTYPE_F32, 1, 0},    {1, 2, 40, 24, POLAR_DTYPE_F32, 3, 0},
    {1, 40, 5, 8, POLAR_DTYPE_F32, 1, 0},   {1, 3, 10, 33, POLAR_DTYPE_F32, 1, 2000},
    {3, 6, 7, 16, POLAR_DTYPE_F32, 1, -1},  {1, 2, 12, 16, POLAR_DTYPE_F32, 0, 0},
    {1, 2, 8, 16, POLAR_DTYPE_F32, 1e5, 0}, {1, 3, 9, 12, POLAR_DTYPE_F64, 1, 0},
    {2, 4, 35, 17, POLAR_DTYPE_F64, 2, 0},  {1, 3, 9, 16, POLAR_DTYPE_BF16, 1, 0},
};

static void test_messages(pl_isa isa)
{
    static const char *const kinds[RESULTS] = {"Ys", "Yv", "dS", "dV", "dw0", "db0", "dW2", "db2"};
    int64_t threads = 0, alone = 0, fused = 0, guards = 0;
    double most[POLAR_DTYPE_COUNT][RESULTS] = {{0}};
    machine *one = &machines[isa][1];
    for (int i = 0; i < COUNT(messages); i++) {
        message m = message_create(messages[i], 100), other = message_create(messages[i], 100);
        double err[RESULTS];
        message_run(one, &m);
        for (int n = 2; n <= MAX_THREADS; n++) {
            message_run(&machines[isa][n], &other);
            threads += message_differences(&m, &other);
        }
        if (isa == PL_ISA_AVX512) {
            message_run(&machines[PL_ISA_AVX2][1], &other);
            fused += message_differences(&m, &other);
        }
        for (int k = 0; k < RESULTS; k++) guards += guards_broken(message_result(&m, k));
        alone += alone_errors(one, &m);
        message_errors(&m, err);
        double *of = most[messages[i].dtype];
        for (int k = 0; k < RESULTS; k++) of[k] = err[k] <= of[k] ? of[k] : err[k];
        message_destroy(&m), message_destroy(&other);
    }
    test_exact("messages: 1, 2 and 3 threads", threads);
    test_exact("messages: a cloud alone and among others", alone);
    test_exact("messages: nothing written outside", guards);
    if (isa == PL_ISA_AVX512) test_exact("messages: avx2 and avx512", fused);
    for (int t = 0; t < POLAR_DTYPE_COUNT; t++)
        for (int k = 0; k < RESULTS; k++) {
            char what[64];
            snprintf(what, sizeof what, "messages: %s %s, in units of its bound", kinds[k],
                     polar_dtype_name((polar_dtype)t));
            test_bound(what, most[t][k], 1, "12 u a weight, 2 sqrt(n) u a sum of n");
        }
}

/* The two ways, both forced by a distance that the table has and that it has not, next to each other: no step
 * in the result. */
static void test_seam(pl_isa isa)
{
    message_shape s = {1, 1, 6, 16, POLAR_DTYPE_F32, 1, 0};
    message in = message_create(s, 7), out = message_create(s, 7);
    double limit = PL_MESSAGE_ROWS * 0.5, err[2][RESULTS]; /* |w0| <= 1: pieces of 1/2 */
    set(&in.w0, 0, 0, 0, 1), set(&out.w0, 0, 0, 0, 1);
    set(&in.D, 0, 3, 0, nextafterf((float)limit, 0)), set(&out.D, 0, 3, 0, limit);
    message_run(&machines[isa][1], &in), message_run(&machines[isa][1], &out);
    message_errors(&in, err[0]), message_errors(&out, err[1]);
    for (int way = 0; way < 2; way++) {
        double most = 0;
        for (int k = 0; k < RESULTS; k++) most = err[way][k] <= most ? most : err[way][k];
        test_bound(way ? "messages: one distance beyond the table" : "messages: the table's last distance",
                   most, 1, "12 u a weight, 2 sqrt(n) u a sum of n");
    }
    test_true("messages: the two ways differ", message_differences(&in, &out) > 0, "so both were taken");
    message_destroy(&in), message_destroy(&out);
}

static void test_all(pl_isa isa)
{
    test_messages(isa);
    test_seam(isa);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    machines_run(test_all);
    return test_end();
}
