/* test_pair_weight.c -- one number a pair from its distance (pair_weight) and the gradients of its MLP
 * (pair_weight_back) on the device argv[1], which has them, in f32 alone or in f64 too: against a model in
 * long double with its bounds; members alone and together, other instruction sets and numbers of threads,
 * a cloud alone, no clouds, gaps between rows, refusals.
 *
 * The bounds, to first order in the unit roundoff u (hence 1.02), a = w0 d + b0, z = silu(a), f32 by the
 * table of math/message_pieces.h:
 *
 *     e(a)  = 3u (|w0 d| + |b0|)       e(z) = 1.1 e(a) + 8u |z| + i        |silu'| <= 1.1; i the
 * interpolation's 1.6e-8 and, of a piece's other coefficients, at most 0.3 in all, 4 roundings: 1.2u; 0 in
 * f64 u     (h + 2) u sum |w2 z| + sum |w2| e(z) dW2   sum |g| e(z)               db2 none, and for each (n +
 * 2) u sum |terms|, n pairs of a member da    = g w2 silu'(a): |g w2| (e(a) / 2 + 16u + 3.1e-8) silu' is good
 * to 16u, |silu''| <= 1/2 dw0   d e(da), and for d silu' in place of silu' 6 r^5 (delta / 2) 1.5 / 23040 |g
 * w2|, r = 1/4: 1.9e-7 delta
 */
#include <math.h>

#include "base/alloc.h"
#include "base/philox.h"
#include "device/backend.h"
#include "op_gaps.h"
#include "test.h"

typedef long double real;

enum { D, W0, B0, W2, G, INPUTS, U = INPUTS, DW0, DB0, DW2, DB2, ALL };

static const char *const names[ALL] = {"D", "w0", "b0", "W2", "dU", "U", "dw0", "db0", "dW2", "db2"};

typedef struct {
    int64_t E, B, P, h, gap; /* members, clouds of each, pairs, channels; elements between rows */
    double reach;            /* distances of every other cloud times this; 0: as they are */
    polar_dtype dtype;
} shape;

typedef struct {
    shape s;
    pl_device *dev;
    pl_queue *q;
    pl_mat m[ALL];
    unsigned char *host[ALL];
    size_t bytes[ALL];
} weights;

static int64_t offset(const weights *t, int i, int64_t b, int64_t r, int64_t c)
{
    return b * t->m[i].bs + r * t->m[i].rs + c;
}

static real get(const weights *t, int i, int64_t b, int64_t r, int64_t c)
{
    return (real)pl_load_f64(t->host[i], t->s.dtype, offset(t, i, b, r, c));
}

/* By coordinates, so that a member alone has the same. */
static double entry(const shape *s, int i, int64_t member, int64_t cloud, int64_t at)
{
    double z = pl_normal(505, PL_STREAM_TEST, (uint64_t)(i * 64 + member), (uint64_t)((cloud << 40) + at)).a;
    if (i != D) return z;
    return (fabs(z) * 1.5 + 1e-4) * (s->reach != 0 && cloud % 2 ? s->reach : 1);
}

static void weights_open(weights *t, const char *device, const shape *s, int64_t first)
{
    *t = (weights){.s = *s};
    polar_status st = polar_device_open(&t->dev, device);
    if (st == POLAR_E_UNSUPPORTED) exit(77); /* an instruction set that this CPU lacks */
    TEST_TRY(st);
    TEST_TRY(polar_queue_create(&t->q, t->dev, NULL));
    for (int i = 0; i < ALL; i++) {
        int pairs = i == D || i == G || i == U, column = i == W0 || i == DW0;
        int64_t rows = pairs ? s->P : column ? s->h : 1, cols = pairs || column || i == DB2 ? 1 : s->h;
        pl_mat *m = &t->m[i];
        *m = pl_mat_dense(NULL, s->dtype, pairs ? s->E * s->B : s->E, rows, cols);
        m->rs += s->gap;
        m->bs = m->rows * m->rs + (s->gap ? 5 : 0);
        t->bytes[i] = (size_t)(m->batch * m->bs) * polar_dtype_size(s->dtype);
        t->host[i] = pl_alloc(t->bytes[i]);
        memset(t->host[i], 0x7f, t->bytes[i]); /* a large number, where a result stays unwritten */
        int64_t per = pairs ? s->B : 1;
        for (int64_t b = 0; i < INPUTS && b < m->batch; b++)
            for (int64_t k = 0; k < rows * cols; k++)
                pl_store_f64(t->host[i], s->dtype, offset(t, i, b, k / cols, k % cols),
                             entry(s, i, first + b / per, b % per, k));
        TEST_TRY(polar_device_alloc(t->dev, &m->data, t->bytes[i]));
        polar_queue_upload(t->q, m->data, t->host[i], t->bytes[i]);
    }
}

static void weights_close(weights *t)
{
    TEST_TRY(polar_queue_sync(t->q));
    for (int i = 0; i < ALL; i++) {
        polar_device_free(t->dev, t->m[i].data);
        pl_free(t->host[i]);
    }
    polar_queue_destroy(t->q);
    polar_device_close(t->dev);
}

static pl_args_pair_weight forward_of(const weights *t)
{
    const pl_mat *m = t->m;
    return (pl_args_pair_weight){.U = m[U], .D = m[D], .w0 = m[W0], .b0 = m[B0], .W2 = m[W2]};
}

static pl_args_pair_weight_back backward_of(const weights *t)
{
    const pl_mat *m = t->m;
    return (pl_args_pair_weight_back){.dw0 = m[DW0],
                                      .db0 = m[DB0],
                                      .dW2 = m[DW2],
                                      .db2 = m[DB2],
                                      .dU = m[G],
                                      .D = m[D],
                                      .w0 = m[W0],
                                      .b0 = m[B0],
                                      .W2 = m[W2]};
}

static int served(const weights *t)
{
    const pl_args_pair_weight forward = forward_of(t);
    const pl_args_pair_weight_back backward = backward_of(t);
    return pl_queue_serves(t->q, PL_OP_pair_weight, &forward) &&
           pl_queue_serves(t->q, PL_OP_pair_weight_back, &backward);
}

static void enqueue(weights *t)
{
    const pl_args_pair_weight forward = forward_of(t);
    const pl_args_pair_weight_back backward = backward_of(t);
    pl_call_pair_weight(t->q, &forward);
    pl_call_pair_weight_back(t->q, &backward);
}

static void weights_run(weights *t)
{
    enqueue(t);
    for (int i = INPUTS; i < ALL; i++) polar_queue_download(t->q, t->host[i], t->m[i].data, t->bytes[i]);
    TEST_TRY(polar_queue_sync(t->q));
}

/* ---- the model ---------------------------------------------------------------------------------- */

typedef struct {
    real x, e; /* a number, and how far a right implementation may be from it */
} bounded;

static real sigmoid(real a)
{
    return 1 / (1 + expl(-a));
}

static double share_of(const weights *t, int i, int64_t b, int64_t r, int64_t c, bounded want)
{
    return (double)(fabsl(get(t, i, b, r, c) - want.x) / (1.02L * want.e));
}

static void worse(double *worst, int *where, double share, int i)
{
    if (!(share <= *worst)) *worst = share, *where = i;
}

/* Member e: every number of it against the model. */
static void member_against_model(const weights *t, int64_t e, double *worst, int *where)
{
    const shape *s = &t->s;
    const int f32 = s->dtype == POLAR_DTYPE_F32;
    const real u = f32 ? 0x1p-24L : 0x1p-53L, per = (real)(s->B * s->P + 2) * u;
    real most = 0, delta = 1, i_z = f32 ? 1.6e-8L + 1.2L * u : 0, i_slope = f32 ? 3.1e-8L : 0;
    for (int64_t k = 0; k < s->h; k++) most = fmaxl(most, fabsl(get(t, W0, e, k, 0)));
    while (delta * most > 0.5L) delta /= 2;
    bounded *sums = pl_alloc((size_t)(3 * s->h + 1) * sizeof *sums); /* dw0, db0, dW2 by channel; db2 */
    for (int64_t k = 0; k < 3 * s->h + 1; k++) sums[k] = (bounded){0, 0};
    for (int64_t b = e * s->B; b < (e + 1) * s->B; b++)
        for (int64_t p = 0; p < s->P; p++) {
            real d = get(t, D, b, p, 0), g = get(t, G, b, p, 0);
            bounded out = {0, 0};
            for (int64_t k = 0; k < s->h; k++) {
                real w0 = get(t, W0, e, k, 0), b0 = get(t, B0, e, 0, k), w2 = get(t, W2, e, 0, k);
                real a = w0 * d + b0, z = a * sigmoid(a), slope = sigmoid(a) * (1 + a * sigmoid(-a));
                real ea = 3 * u * (fabsl(w0 * d) + fabsl(b0)), ez = 1.1L * ea + 8 * u * fabsl(z) + i_z;
                real da = g * w2 * slope, eda = fabsl(g * w2) * (ea / 2 + 16 * u + i_slope);
                out.x += w2 * z;
                out.e += (real)(s->h + 2) * u * fabsl(w2 * z) + fabsl(w2) * ez;
                bounded *dw0 = &sums[k], *db0 = &sums[s->h + k], *dw2 = &sums[2 * s->h + k];
                dw0->x += da * d, db0->x += da, dw2->x += g * z;
                dw0->e += eda * d + per * fabsl(da * d) + (f32 ? 1.9e-7L * delta * fabsl(g * w2) : 0);
                db0->e += eda + per * fabsl(da);
                dw2->e += fabsl(g) * ez + per * fabsl(g * z);
            }
            sums[3 * s->h].x += g, sums[3 * s->h].e += per * fabsl(g);
            worse(worst, where, share_of(t, U, b, p, 0, out), U);
        }
    for (int64_t k = 0; k < s->h; k++) {
        worse(worst, where, share_of(t, DW0, e, k, 0, sums[k]), DW0);
        worse(worst, where, share_of(t, DB0, e, 0, k, sums[s->h + k]), DB0);
        worse(worst, where, share_of(t, DW2, e, 0, k, sums[2 * s->h + k]), DW2);
    }
    worse(worst, where, share_of(t, DB2, e, 0, 0, sums[3 * s->h]), DB2);
    pl_free(sums);
}

static void against_model(const weights *t)
{
    double worst = 0;
    int where = U;
    char what[120], why[64];
    for (int64_t e = 0; e < t->s.E; e++) member_against_model(t, e, &worst, &where);
    snprintf(what, sizeof what, "%s %lldx%lld clouds of %lld pairs, h %lld%s%s", polar_dtype_name(t->s.dtype),
             (long long)t->s.E, (long long)t->s.B, (long long)t->s.P, (long long)t->s.h,
             t->s.gap ? ", strided" : "", t->s.reach != 0 ? ", far" : "");
    snprintf(why, sizeof why, "share of the bound; %s", names[where]);
    test_bound(what, worst, 1, why);
}

/* ---- bits --------------------------------------------------------------------------------------- */

/* Numbers of member `e`'s results before `end` in t that differ from those of the member `of` of another. */
static int64_t member_differs(const weights *t, int64_t e, const weights *other, int64_t of, int end)
{
    int64_t differ = 0;
    for (int i = INPUTS; i < end; i++) {
        int64_t per = t->m[i].batch / t->s.E;
        for (int64_t b = 0; b < per; b++)
            for (int64_t r = 0; r < t->m[i].rows; r++)
                for (int64_t c = 0; c < t->m[i].cols; c++) {
                    size_t n = polar_dtype_size(t->s.dtype);
                    differ +=
                        memcmp(t->host[i] + (size_t)offset(t, i, e * per + b, r, c) * n,
                               other->host[i] + (size_t)offset(other, i, of * per + b, r, c) * n, n) != 0;
                }
    }
    return differ;
}

/* Numbers of t's first cloud that differ from those of the same cloud alone. */
static int64_t cloud_differs(const weights *t, const char *device)
{
    int64_t differ = 0;
    size_t n = polar_dtype_size(t->s.dtype);
    shape first = t->s;
    weights one;
    first.E = first.B = 1;
    weights_open(&one, device, &first, 0);
    weights_run(&one);
    for (int64_t r = 0; r < t->s.P; r++)
        differ += memcmp(t->host[U] + (size_t)offset(t, U, 0, r, 0) * n,
                         one.host[U] + (size_t)offset(&one, U, 0, r, 0) * n, n) != 0;
    weights_close(&one);
    return differ;
}

static void every_shape(const char *device)
{
    /* around a strip of 512 and a chunk of 48 pairs, more clouds than parts, distances beyond any table */
    static const shape shapes[] = {{1, 1, 1, 1, 0, 0, 0},     {2, 3, 15, 4, 0, 0, 0},
                                   {1, 40, 45, 16, 0, 0, 0},  {2, 2, 513, 5, 3, 0, 0},
                                   {3, 1, 528, 33, 1, 0, 0},  {1, 4, 97, 8, 0, 60, 0},
                                   {2, 5, 36, 17, 2, 1e6, 0}, {1, 2, 2080, 16, 0, 0, 0}};
    static const char *const others[] = {"cpu:isa=scalar,threads=1", "cpu:threads=3"};
    const int cuda = !strncmp(device, "cuda", 4),
              end = cuda ? U + 1 : ALL; /* its sums have their own order */
    int64_t mates = 0, touched = 0, differ = 0, absent = 0;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int wide = 0; wide < 2; wide++) {
            shape s = shapes[i], alone = s;
            weights t, one;
            s.dtype = alone.dtype = wide ? POLAR_DTYPE_F64 : POLAR_DTYPE_F32;
            weights_open(&t, device, &s, 0);
            if (!served(&t)) {
                absent += !(cuda && wide);
                weights_close(&t);
                continue;
            }
            weights_run(&t);
            against_model(&t);
            touched += gaps_touched(t.m, t.host, INPUTS, ALL);
            alone.E = 1;
            for (int64_t e = 0; s.E > 1 && e < s.E; e++) {
                weights_open(&one, device, &alone, e);
                weights_run(&one);
                mates += member_differs(&t, e, &one, 0, ALL);
                weights_close(&one);
            }
            if (s.B > 1) mates += cloud_differs(&t, device);
            for (size_t k = 0; k < sizeof others / sizeof *others; k++) {
                weights_open(&one, others[k], &s, 0);
                weights_run(&one);
                for (int64_t e = 0; e < s.E; e++) differ += member_differs(&t, e, &one, e, end);
                weights_close(&one);
            }
            weights_close(&t);
        }
    test_exact("the device has them", absent);
    test_exact("a member alone, and a cloud alone, has the same bits", mates);
    test_exact(cuda ? "the numbers of a pair have the bits of cpu"
                    : "the baseline and three threads have the same bits",
               differ);
    test_exact("nothing is written between rows", touched);
}

/* Gradients of members without clouds are written, and zero. */
static void no_clouds(const char *device)
{
    shape s = {2, 1, 15, 4, 0, 0, POLAR_DTYPE_F32};
    weights t;
    int64_t bad = 0;
    weights_open(&t, device, &s, 0);
    t.m[D].batch = t.m[G].batch = t.m[U].batch = 0;
    weights_run(&t);
    for (int i = DW0; i < ALL; i++)
        for (int64_t e = 0; e < s.E; e++)
            for (int64_t k = 0; k < t.m[i].rows * t.m[i].cols; k++)
                bad += get(&t, i, e, k / t.m[i].cols, k % t.m[i].cols) != 0;
    test_exact("no clouds: gradients of zero", bad);
    weights_close(&t);
}

/* What is no number a pair is refused, by a sentence that names the op. */
static void refusals(const char *device)
{
    enum { ROWS, COLS, BATCH, ONTO };
    static const struct {
        int operand, kind;
    } wrong[] = {{U, ROWS}, {D, COLS},    {D, BATCH}, {W0, ROWS},  {B0, COLS},   {W2, COLS},
                 {G, ROWS}, {DW0, BATCH}, {U, ONTO},  {DW2, COLS}, {DB2, BATCH}, {DB0, ONTO}};
    shape s = {2, 3, 15, 4, 0, 0, POLAR_DTYPE_F32};
    weights t;
    int64_t accepted = 0, unnamed = 0, n = (int64_t)(sizeof wrong / sizeof *wrong);
    weights_open(&t, device, &s, 0);
    for (int64_t i = 0; i < n; i++) {
        pl_mat *m = &t.m[wrong[i].operand], right = *m;
        switch (wrong[i].kind) {
        case ROWS: m->rows -= 1; break;
        case COLS: m->cols -= 1; break;
        case BATCH: m->batch += 1; break;
        default: m->data = (char *)t.m[D].data + 4; break;
        }
        enqueue(&t);
        accepted += polar_queue_sync(t.q) != (wrong[i].kind == ONTO ? POLAR_E_ARG : POLAR_E_SHAPE);
        unnamed += !strstr(polar_error_message(), "pair_weight");
        *m = right;
    }
    test_true("wrong shapes and overlaps are refused", accepted == 0 && unnamed == 0,
              "%lld calls, %lld accepted, %lld unnamed", (long long)n, (long long)accepted,
              (long long)unnamed);
    weights_close(&t);
}

int main(int argc, char **argv)
{
    const char *device = test_begin(argc, argv);
    every_shape(device);
    no_clouds(device);
    refusals(device);
    return test_end();
}
