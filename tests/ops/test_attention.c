/* test_attention.c -- attention composed of products and softmax: against the formula in double, in slabs of
 * a few images, and against the fused op where a device has it.
 *
 *     ctest -R test_attention
 *     test_attention DEVICE few    the fused op alone, at a few shapes
 */
#include "compose/attention.h"
#include "fixtures/deit_fixture.h"

#define U32 0x1p-24
#define U64 0x1p-53

typedef struct {
    int64_t images, tokens, heads, d;
} dims;

typedef struct {
    pl_device *dev;
    pl_queue *q;
    pl_mat QKV, O, lse, dO, dQKV;
} rig;

static pl_mat mat(rig *r, polar_dtype dtype, int64_t batch, int64_t rows, int64_t cols, uint64_t what,
                  double scale)
{
    pl_mat m;
    TEST_TRY(pl_mat_alloc(&m, r->dev, dtype, batch, rows, cols));
    double *x = model_new(batch * rows * cols);
    for (int64_t i = 0; i < batch * rows * cols; i++) x[i] = what ? (float)(scale * vit_normal(what, i)) : 7;
    TEST_TRY(pl_mat_upload_f64(r->q, &m, x));
    free(x);
    return m;
}

static rig rig_open(const char *device, dims s, polar_dtype dtype)
{
    rig r = {0};
    polar_dtype wide = dtype == POLAR_DTYPE_F64 ? POLAR_DTYPE_F64 : POLAR_DTYPE_F32;
    polar_status st = polar_device_open(&r.dev, device);
    if (st == POLAR_E_UNSUPPORTED) exit(77);
    TEST_TRY(st);
    TEST_TRY(polar_queue_create(&r.q, r.dev, NULL));
    int64_t C = s.heads * s.d;
    r.QKV = mat(&r, dtype, s.images, s.tokens, 3 * C, 1, 1);
    r.O = mat(&r, dtype, s.images, s.tokens, C, 0, 0);
    r.lse = mat(&r, wide, s.images, s.heads, s.tokens, 0, 0);
    r.dO = mat(&r, dtype, s.images, s.tokens, C, 2, 1);
    r.dQKV = mat(&r, dtype, s.images, s.tokens, 3 * C, 0, 0);
    return r;
}

static void rig_close(rig *r)
{
    pl_mat *all[] = {&r->QKV, &r->O, &r->lse, &r->dO, &r->dQKV};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) pl_mat_free(all[i], r->dev);
    polar_queue_destroy(r->q);
    polar_device_close(r->dev);
}

static double *values(rig *r, pl_mat m)
{
    double *x = model_new(m.batch * m.rows * m.cols);
    TEST_TRY(pl_mat_download_f64(r->q, &m, x));
    return x;
}

/* The formula on one image and head, all in double: O and the three parts of dQKV, at their places. */
static void by_hand(dims s, double *O, double *dQKV, const double *QKV, const double *dO)
{
    int64_t C = s.heads * s.d, T = s.tokens;
    double *P = model_new(T), *dP = model_new(T);
    for (int64_t i = 0; i < s.images * T * C; i++) O[i] = dQKV[3 * i] = dQKV[3 * i + 1] = dQKV[3 * i + 2] = 0;
    for (int64_t b = 0; b < s.images; b++)
        for (int64_t h = 0; h < s.heads; h++)
            for (int64_t r = 0; r < T; r++) {
                const double *Q = QKV + b * T * 3 * C + h * s.d, *K = Q + C, *V = Q + 2 * C,
                             *q = Q + r * 3 * C, *dy = dO + (b * T + r) * C + h * s.d;
                double *o = O + (b * T + r) * C + h * s.d, *g = dQKV + b * T * 3 * C + h * s.d,
                       most = -INFINITY, sum = 0, dot = 0, scale = 1 / sqrt((double)s.d);
                for (int64_t c = 0; c < T; c++) {
                    P[c] = 0;
                    for (int64_t k = 0; k < s.d; k++) P[c] += scale * q[k] * K[c * 3 * C + k];
                    most = fmax(most, P[c]);
                }
                for (int64_t c = 0; c < T; c++) sum += P[c] = exp(P[c] - most);
                for (int64_t c = 0; c < T; c++) {
                    P[c] /= sum, dP[c] = 0;
                    for (int64_t k = 0; k < s.d; k++)
                        o[k] += P[c] * V[c * 3 * C + k], dP[c] += dy[k] * V[c * 3 * C + k],
                            g[2 * C + c * 3 * C + k] += P[c] * dy[k];
                    dot += P[c] * dP[c];
                }
                for (int64_t c = 0; c < T; c++)
                    for (int64_t k = 0; k < s.d; k++) {
                        double dS = scale * P[c] * (dP[c] - dot);
                        g[r * 3 * C + k] += dS * K[c * 3 * C + k];
                        g[C + c * 3 * C + k] += dS * q[k];
                    }
            }
    free(P), free(dP);
}

/* Forward and backward, by the ops or by their composition. */
static void both_ways(const rig *r, int64_t heads, int composed)
{
    if (composed) {
        pl_attention_forward_composed(r->q, r->O, r->QKV, heads, 0);
        pl_attention_backward_composed(r->q, r->dQKV, r->QKV, r->dO, heads, 0);
    } else {
        pl_attention_forward(r->q, r->O, r->lse, r->QKV, heads);
        pl_attention_backward(r->q, r->dQKV, r->QKV, r->O, r->lse, r->dO, heads);
    }
}

/* Every entry is a sum over T tokens (or d channels) of products of numbers of size about 1 and probabilities
 * that sum to 1; scores up to about 5 are off by 5 u sqrt(d), which moves e^s relatively by as much. So
 * entries of O and dQKV, of norm about that of their arrays, are off by 8 u sqrt(T + d) of it: products
 * before and after, and the exponential's scores. Mixed: P and dS are rounded to bf16, u = 2^-9 each, O and
 * dQKV once more: 4 u. */
static void against_formula(const char *device, dims s, polar_dtype dtype, int composed)
{
    rig r = rig_open(device, s, dtype);
    char line[128];
    double *x = values(&r, r.QKV), *dy = values(&r, r.dO),
           *o = model_new(s.images * s.tokens * s.heads * s.d),
           *g = model_new(3 * s.images * s.tokens * s.heads * s.d);
    int64_t n = s.images * s.tokens * s.heads * s.d;
    by_hand(s, o, g, x, dy);
    int fused = pl_attention_fused(r.q, r.QKV, s.heads);
    if (composed || fused) {
        both_ways(&r, s.heads, composed);
        double *O = values(&r, r.O), *G = values(&r, r.dQKV);
        double tol = dtype == POLAR_DTYPE_BF16
                         ? 4 * 0x1p-9
                         : 8 * (dtype == POLAR_DTYPE_F64 ? U64 : U32) * sqrt((double)(s.tokens + s.d));
        const char *why = dtype == POLAR_DTYPE_BF16 ? "4 u" : "8 u sqrt(T + d)";
        snprintf(line, sizeof line, "%s %s %lldx%lldx%lldx%lld", composed ? "composed" : "fused",
                 polar_dtype_name(dtype), (long long)s.images, (long long)s.tokens, (long long)s.heads,
                 (long long)s.d);
        test_bound(line, model_norm(O, o, n) / model_norm(o, NULL, n), tol, why);
        test_bound("... and its gradient", model_norm(G, g, 3 * n) / model_norm(g, NULL, 3 * n), tol, why);
        free(O), free(G);
    }
    rig_close(&r);
    free(x), free(dy), free(o), free(g);
}

/* Two images at a time, then one alone: the bits of all five at once. */
static void slabs(const char *device, polar_dtype dtype)
{
    dims s = {5, 9, 2, 4};
    rig r = rig_open(device, s, dtype);
    int64_t n = s.images * s.tokens * s.heads * s.d,
            slab = 2 * 9 * 9 * 3 * (dtype == POLAR_DTYPE_F64 ? 8 : 4);
    pl_attention_forward_composed(r.q, r.O, r.QKV, s.heads, 0);
    pl_attention_backward_composed(r.q, r.dQKV, r.QKV, r.dO, s.heads, 0);
    double *o = values(&r, r.O), *g = values(&r, r.dQKV);
    polar_cost whole, part;
    for (int i = 0; i < 2; i++) {
        TEST_TRY(polar_queue_dry_begin(r.q));
        pl_attention_backward_composed(r.q, r.dQKV, r.QKV, r.dO, s.heads, i ? slab : 0);
        TEST_TRY(polar_queue_dry_end(r.q, i ? &part : &whole));
    }
    pl_attention_forward_composed(r.q, r.O, r.QKV, s.heads, slab);
    pl_attention_backward_composed(r.q, r.dQKV, r.QKV, r.dO, s.heads, slab);
    double *o1 = values(&r, r.O), *g1 = values(&r, r.dQKV);
    test_exact("two images at a time", model_mismatches(o, o1, n) + model_mismatches(g, g1, 3 * n));
    test_true("... in less scratch", part.scratch_bytes < whole.scratch_bytes && part.ops == 3 * whole.ops,
              "%zu bytes for %zu", part.scratch_bytes, whole.scratch_bytes);
    rig_close(&r);
    free(o), free(g), free(o1), free(g1);
}

/* A NaN in the query of the last token of the first image and head: in that row of O and dQ, in all of the
 * head's dK and dV, and nowhere else. */
static void nan_stays(const char *device, dims s, polar_dtype dtype, int composed)
{
    rig r = rig_open(device, s, dtype);
    int64_t C = s.heads * s.d, T = s.tokens, bad = 0;
    if (composed || pl_attention_fused(r.q, r.QKV, s.heads)) {
        double *x = values(&r, r.QKV);
        x[(T - 1) * 3 * C + s.d - 1] = NAN;
        TEST_TRY(pl_mat_upload_f64(r.q, &r.QKV, x));
        both_ways(&r, s.heads, composed);
        double *o = values(&r, r.O), *g = values(&r, r.dQKV);
        for (int64_t i = 0; i < s.images * T * 3 * C; i++) {
            int64_t row = i / (3 * C), part = i / C % 3, head = i % C / s.d;
            bad += (isnan(g[i]) != 0) != (!head && row < T && (part || row == T - 1));
            if (!part) bad += (isnan(o[row * C + i % C]) != 0) != (!head && row == T - 1);
        }
        free(x), free(o), free(g);
        char line[64];
        snprintf(line, sizeof line, "%s %s: a NaN stays one", composed ? "composed" : "fused",
                 polar_dtype_name(dtype));
        test_exact(line, bad);
    }
    rig_close(&r);
}

/* Every key but its own is so far from a query that its weight, e^-(w^2 / 8), is subnormal in float (w
 * = 27.5: 2^-136.4) or zero (40): O is V and dV is dO, odd integers up to 15, to the bit. dP - D is 0 for its
 * own key and at most 2 64 15^2 < 2^15 for the others, so that entries of dQ and dK, sums of 37 products of
 * such a weight with 2^15 / 8 and w, are below 2^-136.4 2^12 2^10 < 2^-114. */
static void out_of_reach(const char *device, polar_dtype dtype, double w)
{
    dims s = {2, 37, 2, 64};
    rig r = rig_open(device, s, dtype);
    int64_t C = s.heads * s.d, T = s.tokens, bad = 0;
    if (pl_attention_fused(r.q, r.QKV, s.heads)) {
        double *x = values(&r, r.QKV), *dy = values(&r, r.dO), most = 0;
        char line[64];
        for (int64_t i = 0; i < s.images * T * 3 * C; i++)
            x[i] = i / C % 3 == 2 ? (double)(i * 7 % 16 * 2 - 15) : i % s.d == i / (3 * C) % T ? w : 0;
        for (int64_t i = 0; i < s.images * T * C; i++) dy[i] = (double)(i * 5 % 16 * 2 - 15);
        TEST_TRY(pl_mat_upload_f64(r.q, &r.QKV, x));
        TEST_TRY(pl_mat_upload_f64(r.q, &r.dO, dy));
        pl_attention_forward(r.q, r.O, r.lse, r.QKV, s.heads);
        pl_attention_backward(r.q, r.dQKV, r.QKV, r.O, r.lse, r.dO, s.heads);
        double *o = values(&r, r.O), *g = values(&r, r.dQKV);
        for (int64_t i = 0; i < s.images * T * C; i++) {
            int64_t at = i / C * 3 * C + i % C;
            bad += (o[i] != x[at + 2 * C]) + (g[at + 2 * C] != dy[i]);
            most = fmax(most, fmax(fabs(g[at]), fabs(g[at + C])));
        }
        snprintf(line, sizeof line, "fused %s: keys out of reach, w = %g", polar_dtype_name(dtype), w);
        test_exact(line, bad);
        test_bound("... dQ and dK", most, 0x1p-114, "37 w 2^12 e^-(w^2/8)");
        free(x), free(dy), free(o), free(g);
    }
    rig_close(&r);
}

int main(int argc, char **argv)
{
    const char *device = test_begin(argc, argv);
    static const dims shapes[] = {{2, 7, 3, 5},   {1, 1, 1, 1},   {3, 17, 2, 16},
                                  {1, 65, 1, 64}, {2, 40, 1, 40}, {1, 101, 2, 72}};
    static const dims long_ones[] = {{3, 197, 3, 64}, {1, 209, 2, 64}, {1, 500, 1, 48}, {2, 144, 2, 32},
                                     {2, 81, 1, 8},   {1, 80, 3, 64},  {2, 72, 1, 64},  {1, 73, 1, 56},
                                     {2, 112, 1, 64}, {2, 65, 3, 64}, /* at the edges of cuda's segments */
                                     {1200, 9, 1, 8}}; /* more heads than a GPU has at a time */
    static const polar_dtype formats[] = {POLAR_DTYPE_F64, POLAR_DTYPE_F32, POLAR_DTYPE_BF16};
    if (test_few(argc, argv)) {
        for (size_t i = 0; i < sizeof long_ones / sizeof *long_ones; i++)
            if (long_ones[i].heads == 1 || i == 1) against_formula(device, long_ones[i], POLAR_DTYPE_BF16, 0);
        nan_stays(device, (dims){2, 205, 2, 8}, POLAR_DTYPE_BF16, 0);
        return test_end();
    }
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int f = 0; f < 3; f++)
            for (int composed = 0; composed < 2; composed++)
                against_formula(device, shapes[i], formats[f], composed);
    for (int f = 0; f < 3; f++) slabs(device, formats[f]);
    for (size_t i = 0; i < sizeof long_ones / sizeof *long_ones; i++)
        against_formula(device, long_ones[i], POLAR_DTYPE_BF16, 0);
    for (int f = 0; f < 6; f++) nan_stays(device, (dims){2, 33, 2, 5}, formats[f / 2], f % 2);
    for (int f = 0; f < 3; f++) nan_stays(device, (dims){2, 205, 2, 8}, formats[f], 0);
    for (int f = 1; f < 3; f++) out_of_reach(device, formats[f], 27.5), out_of_reach(device, formats[f], 40);
    return test_end();
}
