/* test_map_edge.c -- what the polar maps do with awkward input, wrong use and no memory. */
#include "base/alloc.h"
#include "fixtures/map_fixture.h"

static const char *const all_maps[] = {"exact",         "ns_fp64",           "ns_fp32",
                                       "ns_bf16_fused", "ns_bf16_reference", "ns_bf16_gram",
                                       "ns_fp16_fused", "ns_fp16_gram"};

#define MAPS (int)(sizeof all_maps / sizeof *all_maps)

static int all_finite(const double *y, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (y[i] - y[i] != 0) return 0;
    return 1;
}

static int all_zero(const double *y, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (y[i] != 0) return 0;
    return 1;
}

/* Finite in, finite out: zero, tiny, huge, denormal, one entry, rank one. */
static void finite_inputs(const char *device)
{
    enum { R = 9, C = 14, N = R * C };
    static const double scales[] = {1e-44, 1e-38, 1e-30, 1e-23, 1, 1e23, 1e30, 1e37};
    double x[N], base[N], y[N], y1[N];
    char line[96];
    map_fill(base, N, 3);
    for (int m = 0; m < MAPS; m++) {
        memset(x, 0, sizeof x);
        map_one(device, all_maps[m], y, x, R, C);
        snprintf(line, sizeof line, "%s of zero is zero", all_maps[m]);
        test_true(line, all_zero(y, N), "%s", "");
        map_one(device, all_maps[m], y1, base, R, C);
        double worst = 0;
        int finite = 1;
        for (size_t s = 0; s < sizeof scales / sizeof *scales; s++) {
            for (int i = 0; i < N; i++) x[i] = base[i] * scales[s];
            map_one(device, all_maps[m], y, x, R, C);
            finite &= all_finite(y, N);
            if (scales[s] >= 1e-30) worst = fmax(worst, map_distance(y, y1, N));
        }
        snprintf(line, sizeof line, "%s is finite at 1e-44 ... 1e37", all_maps[m]);
        test_true(line, finite, "%s", "");
        snprintf(line, sizeof line, "%s is scale-free, 1e-30 ... 1e37", all_maps[m]);
        /* The scaled input is rounded to f32 anew (relative 6e-8, amplified 485 times at most by five steps);
         * in bf16 that flips some roundings. */
        if (strcmp(all_maps[m], "ns_bf16_reference"))
            test_bound(line, worst,
                       strstr(all_maps[m], "bf16")   ? 0.05
                       : strstr(all_maps[m], "fp16") ? 0.05 / 8
                                                     : 485 * 6e-8,
                       strstr(all_maps[m], "16") ? "ulp flips; f16 has three bits more" : "485 u32");
    }
}

static void rank_deficient(const char *device)
{
    enum { R = 6, C = 9, N = R * C };
    double x[N], y[N], u[R], v[C], nu = 0, nv = 0, worst = 0;
    map_fill(u, R, 21);
    map_fill(v, C, 22);
    for (int i = 0; i < R; i++) nu += u[i] * u[i];
    for (int j = 0; j < C; j++) nv += v[j] * v[j];
    for (int i = 0; i < N; i++) x[i] = u[i / C] * v[i % C];
    polar_map_opts o;
    TEST_TRY(polar_map_opts_parse(&o, "exact"));
    map_item item = {1, R, C, POLAR_DTYPE_F64, x, y, POLAR_DTYPE_F64};
    TEST_TRY(map_run(device, &item, 1, NULL, &o));
    for (int i = 0; i < N; i++) worst = fmax(worst, fabs(y[i] - u[i / C] * v[i % C] / sqrt(nu * nv)));
    /* The kept singular pair is well separated (gap 1): the SVD's backward error max(n,m) eps, a small factor
     * 8 for norms. */
    test_bound("exact polar of u v^T is u v^T / |u||v|", worst, 8 * C * 2.2e-16, "8 max(n,m) eps64");
}

/* Z = X^T Y, both (R, C). */
static void cross(double *Z, const double *X, const double *Y, int R, int C)
{
    for (int i = 0; i < C; i++)
        for (int j = 0; j < C; j++) {
            Z[i * C + j] = 0;
            for (int k = 0; k < R; k++) Z[i * C + j] += X[k * C + i] * Y[k * C + j];
        }
}

/* With D_p = U S^p V^T, D_p^T D_q = V S^(p+q) V^T: pairs of one sum agree, whatever U and V. Rank one:
 * sigma^p u v^T / |u||v|, and soft's 1 / sqrt(1 + 1 / (t^2 k)), k the short side; t large is polar. */
static void spectral(const char *device)
{
    enum { R = 9, C = 14, N = R * C };
    static const double powers[] = {0, 0.25, 0.5, 0.75, 1};
    static double x[N], y[5][N], soft[N], a[C * C], b[C * C];
    double worst = 0;
    polar_map_opts o;
    TEST_TRY(polar_map_opts_parse(&o, "power"));
    test_true("power is one of 1/2", o.kind == POLAR_MAP_POWER && o.power == 0.5, "%g", o.power);
    map_fill(x, N, 61);
    for (int p = 0; p < 5; p++) {
        map_item item = {1, R, C, POLAR_DTYPE_F64, x, y[p], POLAR_DTYPE_F64};
        o.power = powers[p];
        TEST_TRY(map_run(device, &item, 1, NULL, &o));
    }
    cross(a, y[2], y[2], R, C);
    for (int p = 0; p < 2; p++) {
        cross(b, y[p], y[4 - p], R, C);
        worst = fmax(worst, map_distance(b, a, C * C));
    }
    /* roundings of the decomposition, max(n, m) eps of S each, of two factors and their product */
    test_bound("1/2 with 1/2, 0 with 1, 1/4 with 3/4", worst, 8 * C * 2.2e-16, "8 max(n,m) eps64");
    test_exact("the power 1 is the matrix", memcmp(y[4], x, sizeof x) != 0);
    map_item exact = {1, R, C, POLAR_DTYPE_F64, x, soft, POLAR_DTYPE_F64};
    TEST_TRY(polar_map_opts_parse(&o, "exact"));
    TEST_TRY(map_run(device, &exact, 1, NULL, &o));
    test_exact("the power 0 is the polar factor", memcmp(y[0], soft, sizeof soft) != 0);
    TEST_TRY(polar_map_opts_parse(&o, "soft"));
    o.power = 1e9;
    TEST_TRY(map_run(device, &exact, 1, NULL, &o));
    test_bound("soft of a large t is polar", map_distance(soft, y[0], N), 1e-13, "1 / (2 t^2)");

    double u[R], v[C], nu = 0, nv = 0;
    map_fill(u, R, 62);
    map_fill(v, C, 63);
    for (int i = 0; i < R; i++) nu += u[i] * u[i];
    for (int j = 0; j < C; j++) nv += v[j] * v[j];
    const double size = sqrt(nu * nv);
    for (int i = 0; i < N; i++) x[i] = u[i / C] * v[i % C];
    TEST_TRY(map_run(device, &exact, 1, NULL, (o.power = 2, &o)));
    TEST_TRY(polar_map_opts_parse(&o, "power"));
    map_item one = {1, R, C, POLAR_DTYPE_F64, x, y[0], POLAR_DTYPE_F64};
    TEST_TRY(map_run(device, &one, 1, NULL, (o.power = -0.5, &o)));
    worst = 0;
    for (int i = 0; i < N; i++) {
        worst = fmax(worst, fabs(y[0][i] - x[i] / size / sqrt(size)) * sqrt(size));
        worst = fmax(worst, fabs(soft[i] - x[i] / size / sqrt(1 + 1 / (4. * R))));
    }
    test_bound("rank one: null directions stay zero", worst, 8 * C * 2.2e-16, "8 max(n,m) eps64");
}

static void small_shapes(const char *device)
{
    static const int64_t shapes[][2] = {{1, 1}, {1, 7}, {7, 1}, {2, 2}, {1, 300}};
    double x[300], y[300];
    char line[96];
    for (int s = 0; s < 5; s++)
        for (int m = 0; m < MAPS; m++) {
            int64_t rows = shapes[s][0], cols = shapes[s][1], n = rows * cols;
            double norm = 0;
            map_fill(x, n, 40 + (uint64_t)s);
            map_one(device, all_maps[m], y, x, rows, cols);
            for (int64_t i = 0; i < n; i++) norm += y[i] * y[i];
            snprintf(line, sizeof line, "%s %lldx%lld", all_maps[m], (long long)rows, (long long)cols);
            double k = (double)(rows < cols ? rows : cols);
            test_true(line, all_finite(y, n) && sqrt(norm / k) > 0.3 && sqrt(norm / k) < 1.21,
                      "rms singular value %.3f", sqrt(norm / k));
        }
    double none = 0;
    map_item empty[] = {{1, 0, 5, POLAR_DTYPE_F32, &none, &none, POLAR_DTYPE_F32},
                        {0, 4, 5, POLAR_DTYPE_F32, &none, &none, POLAR_DTYPE_F32},
                        {1, 3, 0, POLAR_DTYPE_F32, &none, &none, POLAR_DTYPE_F32}};
    for (int m = 0; m < MAPS; m++) {
        polar_map_opts o;
        TEST_TRY(polar_map_opts_parse(&o, all_maps[m]));
        snprintf(line, sizeof line, "%s of empty matrices", all_maps[m]);
        test_true(line, map_run(device, empty, 3, NULL, &o) == POLAR_OK, "%s", "nothing to do");
    }
}

/* As many empty matrices as there are numbers, and one that is not, share a norm: that of the one. */
static void empty_blocks(const char *device)
{
    enum { R = 3, C = 4 };
    double x[R * C], y[R * C], alone[R * C];
    pl_device *dev;
    pl_queue *q;
    pl_mat m;
    polar_map_opts o;
    const int64_t dim[] = {2, 1};
    map_fill(x, R * C, 77);
    map_one(device, "ns_fp32", alone, x, R, C);
    TEST_TRY(polar_map_opts_parse(&o, "ns_fp32"));
    TEST_TRY(polar_device_open(&dev, device));
    TEST_TRY(polar_queue_create(&q, dev, NULL));
    TEST_TRY(pl_mat_alloc(&m, dev, POLAR_DTYPE_F32, 1, R, C));
    TEST_TRY(pl_mat_upload_f64(q, &m, x));
    polar_tensor t[] = {polar_tensor_3d(m.data, POLAR_DTYPE_F32, INT64_MAX / 2, 0, C), map_tensor(&m)};
    t[0].stride[0] = 0;
    polar_status st = polar_map_apply_blocks(q, t, t, dim, 1, &o); /* nothing but these */
    if (st == POLAR_OK) st = polar_map_apply_blocks(q, t, t, dim, 2, &o);
    if (st == POLAR_OK) st = polar_queue_sync(q);
    if (st == POLAR_OK) st = pl_mat_download_f64(q, &m, y);
    int64_t bad = 0;
    for (int i = 0; i < R * C && st == POLAR_OK; i++) bad += (float)y[i] != (float)alone[i];
    test_true("any number of empty blocks", st == POLAR_OK && !bad, "%s, %lld differ", polar_status_name(st),
              (long long)bad);
    pl_mat_free(&m, dev);
    polar_queue_destroy(q);
    polar_device_close(dev);
}

static void not_finite(const char *device)
{
    enum { R = 5, C = 8, N = R * C };
    double x[N], y[N], good[2 * N], both[2 * N], alone[N];
    for (int m = 0; m < MAPS; m++)
        for (int k = 0; k < 2; k++) {
            char line[96];
            map_fill(x, N, 50);
            x[11] = k ? INFINITY : NAN;
            map_one(device, all_maps[m], y, x, R, C);
            int nan = 0;
            for (int i = 0; i < N; i++) nan |= y[i] != y[i];
            snprintf(line, sizeof line, "%s of %s", all_maps[m], k ? "infinity" : "NaN");
            test_true(line, nan, "gives NaN");
            /* and its batch mate never hears of it */
            map_fill(good, 2 * N, 51);
            map_one(device, all_maps[m], alone, good + N, R, C);
            memcpy(good, x, sizeof x);
            polar_map_opts o;
            TEST_TRY(polar_map_opts_parse(&o, all_maps[m]));
            map_item item = {2, R, C, POLAR_DTYPE_F32, good, both, POLAR_DTYPE_F64};
            TEST_TRY(map_run(device, &item, 1, NULL, &o));
            snprintf(line, sizeof line, "%s beside %s", all_maps[m], k ? "infinity" : "NaN");
            test_exact(line, map_mismatches(both + N, alone, N));
        }
}

/* Every step count and table; classical and polar_express converge to orthogonal. */
static void steps_and_tables(const char *device)
{
    enum { R = 6, C = 20, N = R * C };
    double x[N], y[N];
    polar_map_opts o;
    map_fill(x, N, 60);
    const struct {
        const char *table;
        int steps;
        double tol;
        const char *why;
    } runs[] = {{"classical", 24, 1e-13, "converged: 24 u64 sqrt(n)"},
                {"polar_express", 12, 1e-13, "converged: 12 u64 sqrt(n)"},
                {"jordan", 5, 0.54, "sigma in [0.68, 1.202]"}};
    for (int r = 0; r < 3; r++) {
        double worst = 0;
        TEST_TRY(polar_map_opts_parse(&o, "ns_fp64"));
        o.table = runs[r].table;
        o.steps = runs[r].steps;
        map_item item = {1, R, C, POLAR_DTYPE_F64, x, y, POLAR_DTYPE_F64};
        TEST_TRY(map_run(device, &item, 1, NULL, &o));
        for (int i = 0; i < R; i++)
            for (int k = 0; k < R; k++) {
                double s = 0;
                for (int j = 0; j < C; j++) s += y[i * C + j] * y[k * C + j];
                worst = fmax(worst, fabs(s - (i == k)));
            }
        char line[96];
        snprintf(line, sizeof line, "max |Y Y^T - I|, %s, %d steps", runs[r].table, runs[r].steps);
        test_bound(line, worst, runs[r].tol, runs[r].why);
    }
    polar_coef own[2] = {{1, 0, 0}, {1, 0, 0}};
    TEST_TRY(polar_map_opts_parse(&o, "ns_fp64"));
    o.coefs = own;
    o.steps = 2;
    double z[N], norm = 0;
    map_item item = {1, R, C, POLAR_DTYPE_F64, x, z, POLAR_DTYPE_F64};
    TEST_TRY(map_run(device, &item, 1, NULL, &o));
    for (int i = 0; i < N; i++) norm += x[i] * x[i];
    double worst = 0;
    for (int i = 0; i < N; i++) worst = fmax(worst, fabs(z[i] - x[i] / sqrt(norm)));
    test_bound("the caller's (1, 0, 0) only normalises", worst, 4 * 1.2e-16, "two divisions and roundings");
}

/* A diagonal matrix shows what a table does to singular values: s / norm goes through the polynomials one by
 * one. */
static void tables_on_diagonals(const char *device)
{
    enum { N = 8 };
    static const double sigma[N] = {1, 0.7, 0.4, 0.2, 0.1, 0.05, 0.02, 0.01};
    static const struct {
        const char *table;
        int steps;
        /* from singular values in [7e-3, 1]; a grid of 400,000 points, one unit more each way */
        double least, most;
    } promise[] = {{"jordan", 5, 0.6817, 1.1345},
                   {"polar_express", 8, 0.9999, 1.0001},
                   {"classical", 12, 0.9998, 1.0001},
                   {"quintic5", 5, 0.9777, 1.0319},
                   {"cans5", 5, 0.8843, 1.1199},
                   {"cubic5", 5, 0.7740, 1.3001},
                   {"polar_express_long", 5, 0.8703, 1.1237},
                   {"classical12", 12, 0.9999, 1.0001}};
    double norm = 0, x[N * N] = {0}, y[N * N];
    for (int i = 0; i < N; i++) norm += sigma[i] * sigma[i];
    norm = sqrt(norm);
    for (int i = 0; i < N; i++) x[i * N + i] = sigma[i];
    test_true("every table has its promise",
              !polar_coef_table_name(sizeof promise / sizeof *promise) &&
                  polar_coef_table_name(sizeof promise / sizeof *promise - 1),
              "%s", device);
    for (size_t t = 0; t < sizeof promise / sizeof *promise; t++) {
        polar_coef k[POLAR_MAX_STEPS];
        polar_map_opts o;
        double worst = 0, least = 10, most = 0, slope = 1;
        TEST_TRY(polar_coef_table(k, promise[t].steps, promise[t].table));
        TEST_TRY(polar_map_opts_parse(&o, "ns_fp64"));
        o.table = promise[t].table;
        o.steps = promise[t].steps;
        map_item item = {1, N, N, POLAR_DTYPE_F64, x, y, POLAR_DTYPE_F64};
        TEST_TRY(map_run(device, &item, 1, NULL, &o));
        for (int r = 0; r < o.steps; r++) slope *= k[r].a;
        for (int i = 0; i < N; i++) {
            double s = sigma[i] / norm;
            for (int r = 0; r < o.steps; r++) s = k[r].a * s + (k[r].b + k[r].c * s * s) * s * s * s;
            worst = fmax(worst, fabs(y[i * N + i] - s));
            if (sigma[i] / norm >= 7e-3) least = fmin(least, s), most = fmax(most, s);
        }
        char line[96];
        snprintf(line, sizeof line, "singular values by %s, %d steps", promise[t].table, o.steps);
        test_bound(line, worst, 4 * o.steps * slope * 2.2e-16,
                   "four roundings a step, grown by the slope at 0 at most");
        test_true(line, least >= promise[t].least && most <= promise[t].most, "in [%.4f, %.4f]", least, most);
    }
}

/* The direct sum of G_k (x) I_d, mapped whole and by blocks, in fp64. */
static void blocks(const char *device)
{
    enum { M0 = 3, N0 = 5, M1 = 4, N1 = 2, D1 = 3, R = M0 + M1 * D1, C = N0 + N1 * D1 };
    double g0[M0 * N0], g1[M1 * N1], y0[M0 * N0], y1[M1 * N1], full[R * C] = {0}, yf[R * C],
                                                                        want[R * C] = {0};
    static const int64_t dim[] = {1, D1};
    map_fill(g0, M0 * N0, 70);
    map_fill(g1, M1 * N1, 71);
    for (int i = 0; i < M0 * N0; i++) full[i / N0 * C + i % N0] = g0[i];
    for (int i = 0; i < M1 * N1; i++)
        for (int d = 0; d < D1; d++) full[(M0 + i / N1 * D1 + d) * C + N0 + i % N1 * D1 + d] = g1[i];
    static const char *const maps[] = {"exact", "ns_fp64"};
    for (int m = 0; m < 2; m++) {
        polar_map_opts o;
        TEST_TRY(polar_map_opts_parse(&o, maps[m]));
        map_item parts[] = {{1, M0, N0, POLAR_DTYPE_F64, g0, y0, POLAR_DTYPE_F64},
                            {1, M1, N1, POLAR_DTYPE_F64, g1, y1, POLAR_DTYPE_F64}};
        map_item whole = {1, R, C, POLAR_DTYPE_F64, full, yf, POLAR_DTYPE_F64};
        TEST_TRY(map_run(device, parts, 2, dim, &o));
        TEST_TRY(map_run(device, &whole, 1, NULL, &o));
        for (int i = 0; i < M0 * N0; i++) want[i / N0 * C + i % N0] = y0[i];
        for (int i = 0; i < M1 * N1; i++)
            for (int d = 0; d < D1; d++) want[(M0 + i / N1 * D1 + d) * C + N0 + i % N1 * D1 + d] = y1[i];
        char line[96];
        snprintf(line, sizeof line, "%s by blocks equals the whole", maps[m]);
        /* The whole has rank 3 + 6 of 11: the exact map's zero directions are exactly zero in both. Rounding:
         * u64 sqrt(3 n) a step, amplified by at most the quintic's slope at zero, 1 + a + ... + a^4 = 198
         * over five steps. */
        test_bound(line, map_distance(want, yf, R * C), 198 * 1.1e-16 * sqrt(3.0 * R), "198 u64 sqrt(3 n)");
    }
}

static polar_status try_map(const char *device, polar_map_opts o, const char *overlap)
{
    float buffer[64] = {1};
    pl_device *dev;
    pl_queue *q;
    TEST_TRY(polar_device_open(&dev, device));
    TEST_TRY(polar_queue_create(&q, dev, NULL));
    polar_tensor a = polar_tensor_2d(buffer, POLAR_DTYPE_F32, 4, 4),
                 b = polar_tensor_2d(buffer + 32, POLAR_DTYPE_F32, 4, 4);
    if (!strcmp(overlap, "shift")) b.data = buffer + 3;
    if (!strcmp(overlap, "shape")) b.shape[0] = 3;
    if (!strcmp(overlap, "dtype")) b.dtype = (polar_dtype)9;
    if (!strcmp(overlap, "ndim")) b.ndim = 1;
    if (!strcmp(overlap, "stride")) b.stride[1] = 2;
    if (!strcmp(overlap, "huge")) b.shape[0] = a.shape[0] = INT64_MAX / 2;
    if (!strcmp(overlap, "null")) b.data = NULL;
    polar_status st = polar_map_apply(q, &b, &a, 1, &o);
    polar_queue_destroy(q);
    polar_device_close(dev);
    return st;
}

static void wrong_use(const char *device)
{
    polar_map_opts ok = POLAR_MAP_OPTS_INIT, o;
    polar_coef c[4];
    polar_dtype d;
    pl_device *dev;
#define REFUSED(what, call, code) test_true(what, (call) == (code), "%s", polar_error_message())
    REFUSED("unknown map", polar_map_opts_parse(&o, "ns_fp8"), POLAR_E_ARG);
    REFUSED("unknown table", polar_coef_table(c, 4, "jordon"), POLAR_E_ARG);
    REFUSED("unknown dtype", polar_dtype_parse(&d, "int7"), POLAR_E_DTYPE);
    REFUSED("unknown device", polar_device_open(&dev, "tpu:0"), POLAR_E_ARG);
    REFUSED("unknown option of a device", polar_device_open(&dev, "cpu:cores=3"), POLAR_E_ARG);
    REFUSED("threads=0", polar_device_open(&dev, "cpu:threads=0"), POLAR_E_ARG);
    REFUSED("unknown instruction set", polar_device_open(&dev, "cpu:isa=mmx"), POLAR_E_ARG);
    o = ok, o.steps = POLAR_MAX_STEPS + 1;
    REFUSED("too many steps", try_map(device, o, ""), POLAR_E_ARG);
    o = ok, o.steps = -1;
    REFUSED("negative steps", try_map(device, o, ""), POLAR_E_ARG);
    o = ok, o.rounding = POLAR_ROUND_REFERENCE, o.precision = POLAR_DTYPE_F32;
    REFUSED("reference rounding in fp32", try_map(device, o, ""), POLAR_E_ARG);
    o = ok, o.rounding = POLAR_ROUND_GRAM, o.precision = POLAR_DTYPE_F64;
    REFUSED("the Gram form in fp64", try_map(device, o, ""), POLAR_E_ARG);
    o = ok, o.rounding = (polar_rounding)3;
    REFUSED("a rounding that is none", try_map(device, o, ""), POLAR_E_ARG);
    o = ok, o.struct_size = 8;
    REFUSED("options of another size", try_map(device, o, ""), POLAR_E_ARG);
    o = ok, o.kind = (polar_map_kind)7;
    REFUSED("a map that is none", try_map(device, o, ""), POLAR_E_ARG);
    o = ok, o.table = NULL;
    REFUSED("no coefficients", try_map(device, o, ""), POLAR_E_ARG);
    REFUSED("result overlaps input", try_map(device, ok, "shift"), POLAR_E_ARG);
    REFUSED("another shape", try_map(device, ok, "shape"), POLAR_E_SHAPE);
    REFUSED("a dtype that is none", try_map(device, ok, "dtype"), POLAR_E_DTYPE);
    REFUSED("a vector", try_map(device, ok, "ndim"), POLAR_E_SHAPE);
    REFUSED("columns not contiguous", try_map(device, ok, "stride"), POLAR_E_SHAPE);
    REFUSED("more elements than memory", try_map(device, ok, "huge"), POLAR_E_SHAPE);
    REFUSED("no data", try_map(device, ok, "null"), POLAR_E_ARG);
}

/* Fail the Nth allocation, N = 1, 2, ... until the whole call passes: never a crash, never a leak, always a
 * sentence. */
static void no_memory(const char *device)
{
    enum { R = 12, C = 9, N = R * C };
    double x[N], y[N];
    map_fill(x, N, 80);
    for (int m = 0; m < MAPS; m++) {
        polar_map_opts o;
        TEST_TRY(polar_map_opts_parse(&o, all_maps[m]));
        map_item items[] = {{1, R, C, POLAR_DTYPE_F32, x, y, POLAR_DTYPE_F32},
                            {1, C, R, POLAR_DTYPE_F32, x, y, POLAR_DTYPE_F32}};
        int64_t before = pl_alloc_live(), n = 0, leaked = 0, silent = 0;
        polar_status st;
        do {
            pl_alloc_fail_at(++n);
            st = map_run(device, items, 2, NULL, &o);
            pl_alloc_fail_at(0);
            leaked += pl_alloc_live() != before;
            silent += st != POLAR_OK && (st != POLAR_E_NOMEM || !*polar_error_message());
        } while (st != POLAR_OK && n < 100000);
        char line[96];
        snprintf(line, sizeof line, "%s: allocation 1 ... %lld fails", all_maps[m], (long long)n - 1);
        test_true(line, PART(!leaked) && PART(!silent) && PART(st == POLAR_OK) && PART(n > 1),
                  "%lld leaks, %lld without a sentence", (long long)leaked, (long long)silent);
    }
}

int main(int argc, char **argv)
{
    const char *device = test_begin(argc, argv);
    finite_inputs(device);
    rank_deficient(device);
    spectral(device);
    small_shapes(device);
    empty_blocks(device);
    not_finite(device);
    steps_and_tables(device);
    tables_on_diagonals(device);
    blocks(device);
    wrong_use(device);
    no_memory(device);
    return test_end();
}
