/* test_map.c -- polar maps against golden vectors, and the exact invariants of Newton-Schulz.
 *
 * Exact, in every precision of the fused rounding: input scaled by a power of two, the transpose of a
 * non-square matrix, zero padding, sign flip, batch mates, other shapes in the call, the number of threads.
 * Padding makes another shape, for which cuBLASLt may sum in another order: on cuda that one is bounded
 * instead.
 */
#include "base/safetensors.h"
#include "fixtures/map_fixture.h"

static const char *const fused_maps[] = {"ns_fp64",      "ns_fp32",       "ns_bf16_fused",
                                         "ns_bf16_gram", "ns_fp16_fused", "ns_fp16_gram"};

#define MAPS (int)(sizeof fused_maps / sizeof *fused_maps)

static void load(double *out, const pl_safetensors_entry *e)
{
    for (int64_t i = 0; i < e->shape[0] * e->shape[1]; i++)
        out[i] = pl_load_f64(e->data, (polar_dtype)e->dtype, i);
}

/* fp32, derived: with u = 2^-24 a product of length K errs by about u sqrt(K) of its operands' norms; a step
 * has three products of length at most n, the long side, so it errs by u sqrt(3 n), and five steps by at most
 * five times that, each amplified as an error of the input would be or less. That amplification depends on
 * the singular values and is measured here: NS5 in fp64 of the input and of the input moved by u. */
static double tol_fp32(const char *device, const double *x, int64_t rows, int64_t cols)
{
    int64_t n = rows * cols;
    double *y = map_new(n), *moved = map_new(n), *ym = map_new(n), *noise = map_new(n), u = ldexp(1, -24);
    polar_map_opts o;
    TEST_TRY(polar_map_opts_parse(&o, "ns_fp64"));
    map_fill(noise, n, 12);
    for (int64_t i = 0; i < n; i++) moved[i] = x[i] + u * noise[i];
    map_item items[] = {{1, rows, cols, POLAR_DTYPE_F64, x, y, POLAR_DTYPE_F64},
                        {1, rows, cols, POLAR_DTYPE_F64, moved, ym, POLAR_DTYPE_F64}};
    TEST_TRY(map_run(device, items, 2, NULL, &o));
    double amplification = fmax(1, map_distance(ym, y, n) / map_distance(moved, x, n));
    free(y);
    free(moved);
    free(ym);
    free(noise);
    return 5 * amplification * u * sqrt(3.0 * (double)(rows > cols ? rows : cols));
}

/* fp64: ns_fp64 by the same reasoning with u = 2^-53 and an amplification of at most 3.4445^5 = 485, the
 * slope of five steps at zero: 5 x 485 u sqrt(3 x 192) = 6.5e-12 for the longest side here, on each of two
 * sides that round independently, sqrt(2) times that: 9.2e-12. The polar factor of a matrix changed by E
 * differs by at most 2 ||E|| / (s + s'), s and s' the least singular values before and after; an SVD's E is
 * some 8 n u of the largest (n the short side), so two of them part by at most 16 n u s_max / s_min,
 * relatively. The largest of that over the golden matrices is 7e-13 (8x8). */
static void check_golden(const char *device, const pl_safetensors *f, const pl_safetensors_entry *in)
{
    char stem[64], name[96], line[128];
    snprintf(stem, sizeof stem, "%.*s", (int)(strlen(in->name) - 3), in->name); /* without ".in" */
    int64_t rows = in->shape[0], cols = in->shape[1], n = rows * cols;
    double *x = map_new(n), *y = map_new(n), *want = map_new(n);
    load(x, in);
    const struct {
        const char *map, *key, *why;
        double tol;
    } wanted[] = {
        {"exact", "polar", "16 n u s_max / s_min", 1e-12},
        {"ns_fp64", "ns5_fp64", "sqrt(2) 5 485 u sqrt(3 192)", 1e-11},
        {"ns_fp32", "ns5_fp64", "5 amp u sqrt(3 n)", tol_fp32(device, x, rows, cols)},
        {"ns_bf16_reference", "ns5_bf16_reference", "one bf16 ulp moves NS5 by 1-3 %", 0.05},
    };
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        snprintf(name, sizeof name, "%s.%s", stem, wanted[i].key);
        const pl_safetensors_entry *e = pl_safetensors_find(f, name);
        if (!e && !test_true(name, 0, "is not in the golden file")) continue;
        load(want, e);
        map_one(device, wanted[i].map, y, x, rows, cols);
        snprintf(line, sizeof line, "golden %s %lldx%lld", wanted[i].map, (long long)rows, (long long)cols);
        test_bound(line, map_distance(y, want, n), wanted[i].tol, wanted[i].why);
    }
    free(x);
    free(y);
    free(want);
}

static void golden(const char *device)
{
    pl_safetensors *f;
    int found = 0;
    TEST_TRY(pl_safetensors_open(&f, test_golden_path("optim.safetensors")));
    for (int64_t i = 0; i < pl_safetensors_count(f); i++) {
        const pl_safetensors_entry *e = pl_safetensors_view(f, i);
        size_t n = strlen(e->name);
        if (strncmp(e->name, "map.", 4) || strcmp(e->name + n - 3, ".in")) continue;
        check_golden(device, f, e);
        found++;
    }
    test_true("golden matrices", found == 8, "%d of 8", found);
    pl_safetensors_close(f);
}

static void exact_scale(const char *device, const char *map, const double *x, const double *y, int64_t rows,
                        int64_t cols)
{
    static const int exponents[] = {-100, -40, -7, 1, 60, 100};
    int64_t n = rows * cols, bad = 0;
    double *xs = map_new(n), *ys = map_new(n);
    char line[96];
    for (size_t e = 0; e < sizeof exponents / sizeof *exponents; e++) {
        for (int64_t i = 0; i < n; i++) xs[i] = ldexp(x[i], exponents[e]);
        map_one(device, map, ys, xs, rows, cols);
        bad += map_mismatches(ys, y, n);
    }
    snprintf(line, sizeof line, "%s %lldx%lld times 2^k", map, (long long)rows, (long long)cols);
    test_exact(line, bad);
    for (int64_t i = 0; i < n; i++) xs[i] = -x[i];
    map_one(device, map, ys, xs, rows, cols);
    for (int64_t i = 0; i < n; i++) ys[i] = -ys[i];
    snprintf(line, sizeof line, "%s %lldx%lld sign flip", map, (long long)rows, (long long)cols);
    test_exact(line, map_mismatches(ys, y, n));
    free(xs);
    free(ys);
}

static void exact_transpose(const char *device, const char *map, const double *x, const double *y,
                            int64_t rows, int64_t cols)
{
    int64_t n = rows * cols;
    double *xt = map_new(n), *yt = map_new(n), *back = map_new(n);
    char line[96];
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++) xt[j * rows + i] = x[i * cols + j];
    map_one(device, map, yt, xt, cols, rows);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++) back[i * cols + j] = yt[j * rows + i];
    snprintf(line, sizeof line, "%s %lldx%lld transpose", map, (long long)rows, (long long)cols);
    test_exact(line, map_mismatches(back, y, n));
    free(xt);
    free(yt);
    free(back);
}

static void exact_padding(const char *device, const char *map, const double *x, const double *y, int64_t rows,
                          int64_t cols)
{
    /* keeps tall tall and wide wide for the shapes used */
    int64_t R = rows + 9, C = cols + 7, bad = 0, n = rows * cols;
    double *xp = map_new(R * C), *yp = map_new(R * C), *inner = map_new(n);
    char line[96];
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++) xp[i * C + j] = x[i * cols + j];
    map_one(device, map, yp, xp, R, C);
    for (int64_t i = 0; i < R; i++)
        for (int64_t j = 0; j < C; j++) {
            if (i < rows && j < cols) inner[i * cols + j] = yp[i * C + j];
            else bad += yp[i * C + j] != 0;
        }
    snprintf(line, sizeof line, "%s %lldx%lld zero padding", map, (long long)rows, (long long)cols);
    if (strncmp(device, "cuda", 4) || bad) test_exact(line, bad + map_mismatches(inner, y, n));
    else
        test_bound(line, map_distance(inner, y, n),
                   strstr(map, "bf16")   ? 0.05
                   : strstr(map, "fp16") ? 0.05 / 8
                                         : tol_fp32(device, x, rows, cols),
                   "another order of summation");
    free(xp);
    free(yp);
    free(inner);
}

/* The matrix alone, in the middle of a batch, and in a call with other shapes and formats. */
static void exact_mates(const char *device, const char *map, const double *x, const double *y, int64_t rows,
                        int64_t cols)
{
    int64_t n = rows * cols;
    double *bx = map_new(3 * n), *by = map_new(3 * n), *ox = map_new(24 * 40), *oy = map_new(24 * 40),
           *ty = map_new(n);
    polar_map_opts o;
    char line[96];
    TEST_TRY(polar_map_opts_parse(&o, map));
    map_fill(bx, 3 * n, 77);
    map_fill(ox, 24 * 40, 78);
    memcpy(bx + n, x, (size_t)n * sizeof *x);
    map_item items[] = {{1, 24, 40, POLAR_DTYPE_F64, ox, oy, POLAR_DTYPE_F32},
                        {3, rows, cols, POLAR_DTYPE_F32, bx, by, POLAR_DTYPE_F64},
                        {1, rows, cols, POLAR_DTYPE_F32, x, ty, POLAR_DTYPE_F64},
                        {2, 12, 40, POLAR_DTYPE_BF16, ox, oy, POLAR_DTYPE_BF16}};
    TEST_TRY(map_run(device, items, 4, NULL, &o));
    snprintf(line, sizeof line, "%s %lldx%lld batch mates", map, (long long)rows, (long long)cols);
    test_exact(line, map_mismatches(by + n, y, n) + map_mismatches(ty, y, n));
    free(bx);
    free(by);
    free(ox);
    free(oy);
    free(ty);
}

static void invariants(const char *device)
{
    /* the last one, and it padded, long enough for the Gram form */
    static const int64_t shapes[][2] = {{17, 33}, {40, 24}, {8, 44}, {7, 64}, {70, 170}};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (int m = 0; m < MAPS; m++) {
            int64_t rows = shapes[s][0], cols = shapes[s][1], n = rows * cols;
            double *x = map_new(n), *y = map_new(n);
            map_fill(x, n, 5 + s);
            map_one(device, fused_maps[m], y, x, rows, cols);
            exact_scale(device, fused_maps[m], x, y, rows, cols);
            exact_transpose(device, fused_maps[m], x, y, rows, cols);
            exact_padding(device, fused_maps[m], x, y, rows, cols);
            exact_mates(device, fused_maps[m], x, y, rows, cols);
            free(x);
            free(y);
        }
}

static void threads(const char *device)
{
    static const char *const maps[] = {"exact",         "ns_fp64",           "ns_fp32",
                                       "ns_bf16_fused", "ns_bf16_reference", "ns_bf16_gram",
                                       "ns_fp16_fused", "ns_fp16_gram"};
    char one[64], two[64], line[96];
    if (strncmp(device, "cpu", 3)) return;
    snprintf(one, sizeof one, "%s%sthreads=1", device, strchr(device, ':') ? "," : ":");
    snprintf(two, sizeof two, "%s%sthreads=2", device, strchr(device, ':') ? "," : ":");
    int64_t rows = 130, cols = 270, n = rows * cols;
    double *x = map_new(n), *y1 = map_new(n), *y2 = map_new(n);
    map_fill(x, n, 9);
    for (int m = 0; m < (int)(sizeof maps / sizeof *maps); m++) {
        map_one(one, maps[m], y1, x, rows, cols);
        map_one(two, maps[m], y2, x, rows, cols);
        snprintf(line, sizeof line, "%s 130x270 on 1 and 2 threads", maps[m]);
        test_exact(line, map_mismatches(y1, y2, n));
    }
    free(x);
    free(y1);
    free(y2);
}

/* A diagonal matrix: Newton-Schulz is the scalar polynomial on each entry; and the paper's constants of the
 * quintic. fp64: each of 5 steps errs by a few 1e-16 and amplifies by at most 3.45: 198 * 8 * 1.1e-16 <
 * 2e-13. */
static void scalar_polynomial(const char *device)
{
    enum { N = 12 };
    double x[N * N] = {0}, y[N * N], worst = 0, top = 0, low = 2, norm = 0;
    for (int i = 0; i < N; i++)
        x[i * N + i] = (double)(float)pow(10, -0.25 * i), norm += x[i * N + i] * x[i * N + i];
    map_one(device, "ns_fp64", y, x, N, N);
    for (int i = 0; i < N; i++) {
        double s = x[i * N + i] / sqrt(norm);
        for (int k = 0; k < 5; k++) s = 3.4445 * s - 4.7750 * s * s * s + 2.0315 * s * s * s * s * s;
        worst = fmax(worst, fabs(s - y[i * N + i]));
    }
    test_bound("NS5 of a diagonal is the polynomial", worst, 2e-13, "198 * 8 u64");
    for (double s = 0.01; s <= 1; s += 1e-5) {
        double p = s;
        for (int k = 0; k < 5; k++) p = 3.4445 * p - 4.7750 * p * p * p + 2.0315 * p * p * p * p * p;
        top = fmax(top, p);
        low = fmin(low, p);
    }
    test_true("five quintics send [0.01, 1] into", top <= 1.1345 && low >= 0.6815, "[%.3f, %.3f]", low, top);
}

/* Spectral norm of Y by power iteration on Y^T Y (a lower bound that 200 steps bring to about 1e-3 of it at
 * worst). */
static double spectral_norm(const double *y, int64_t rows, int64_t cols)
{
    double *v = map_new(cols), *w = map_new(rows), s = 0;
    for (int64_t j = 0; j < cols; j++) v[j] = 1 + 0.01 * (double)j;
    for (int it = 0; it < 200; it++) {
        double nv = 0, nw = 0;
        for (int64_t j = 0; j < cols; j++) nv += v[j] * v[j];
        for (int64_t i = 0; i < rows; i++) {
            w[i] = 0;
            for (int64_t j = 0; j < cols; j++) w[i] += y[i * cols + j] * v[j] / sqrt(nv);
            nw += w[i] * w[i];
        }
        s = sqrt(nw);
        for (int64_t j = 0; j < cols; j++) {
            v[j] = 0;
            for (int64_t i = 0; i < rows; i++) v[j] += y[i * cols + j] * w[i];
        }
    }
    free(v);
    free(w);
    return s;
}

/* Distance of a map of a random matrix, its rows scaled by (i + 1)^-decay, from the same in fp64. */
static double from_fp64(const char *device, const char *map, int64_t rows, int64_t cols, double decay,
                        double *top)
{
    int64_t n = rows * cols;
    double *x = map_new(n), *y = map_new(n), *want = map_new(n);
    map_fill(x, n, 41);
    for (int64_t i = 0; i < n; i++) x[i] = (double)(float)(x[i] * pow((double)(i / cols + 1), -decay));
    map_one(device, map, y, x, rows, cols);
    map_one(device, "ns_fp64", want, x, rows, cols);
    double d = map_distance(y, want, n);
    *top = fmax(*top, spectral_norm(y, rows, cols));
    free(x), free(y), free(want);
    return d;
}

/* A chain's third step meets roundings of A, at most 2^-9 of its norm, which is 1 at most, that two steps
 * have let grow by a^2 each; in the directions of small singular values it adds b times that to its a. Where
 * the form does not pay it is the fused map. */
static void gram_form(const char *device)
{
    static const int64_t shapes[][2] = {{96, 144}, {300, 100}, {128, 600}},
                         others[][2] = {{63, 200}, {100, 149}, {64, 64}};
    double worst = 0, steep = 0, top = 0;
    int64_t bad = 0;
    for (int s = 0; s < 3; s++) {
        worst = fmax(worst, from_fp64(device, "ns_bf16_gram", shapes[s][0], shapes[s][1], 0, &top));
        steep = fmax(steep, from_fp64(device, "ns_bf16_gram", shapes[s][0], shapes[s][1], 2, &top));
        int64_t n = others[s][0] * others[s][1];
        double *x = map_new(n), *y = map_new(n), *z = map_new(n);
        map_fill(x, n, 42);
        map_one(device, "ns_bf16_gram", y, x, others[s][0], others[s][1]);
        map_one(device, "ns_bf16_fused", z, x, others[s][0], others[s][1]);
        bad += map_mismatches(y, z, n);
        free(x), free(y), free(z);
    }
    test_bound("ns_bf16_gram: from fp64, normal entries", worst, 0.05, "one bf16 ulp moves NS5 by 1-3 %");
    test_bound("ns_bf16_gram: from fp64, singular values down to 1e-4", steep,
               4.775 * pow(3.4445, 3) * 0x1p-9, "b a^3 2^-9");
    test_bound("ns_bf16_gram: largest singular value", top, 1.23,
               "1.202 in exact arithmetic + bf16, two chains of roundings");
    test_exact("ns_bf16_gram: short matrices are the fused map's", bad);
}

static void spectral_bound(const char *device)
{
    static const int64_t shapes[][2] = {{8, 8}, {1, 30}, {16, 64}, {48, 48}, {60, 20}};
    static const char *const maps[] = {"ns_fp32", "ns_bf16_fused", "ns_bf16_reference"};
    double worst = 0;
    for (int s = 0; s < 5; s++)
        for (int m = 0; m < 3; m++) {
            int64_t rows = shapes[s][0], cols = shapes[s][1];
            double *x = map_new(rows * cols), *y = map_new(rows * cols);
            map_fill(x, rows * cols, 31 + (uint64_t)s);
            map_one(device, maps[m], y, x, rows, cols);
            worst = fmax(worst, spectral_norm(y, rows, cols));
            free(x);
            free(y);
        }
    test_bound("largest singular value after NS5", worst, 1.21, "1.202 in exact arithmetic + bf16");
}

int main(int argc, char **argv)
{
    const char *device = test_begin(argc, argv);
    map_need_device(device);
    golden(device);
    invariants(device);
    threads(device);
    scalar_polynomial(device);
    spectral_bound(device);
    gram_form(device);
    return test_end();
}
