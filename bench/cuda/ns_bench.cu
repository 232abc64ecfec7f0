/* ns_bench.cu -- the kernels of cuda_ns.h on their own: results against a reference in double that rounds
 * where the kernels do, and times.
 *
 *     nvcc -gencode=arch=compute_90a,code=sm_90a -O3 -std=c++17 -fmad=false -Isrc -Iinclude
 *         bench/cuda/ns_bench.cu \
 *          src/backends/cuda/cuda_hopper_ns_*.cu src/backends/cuda/cuda_ns_launch.c -o build/ns_bench
 *     build/ns_bench            exit code 0: everything right
 *     build/ns_bench check | time
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

#include "../../src/backends/cuda/cuda_ns.h"
#include "device/ops.h"
#include "math/formulas_elem.h"
#include "math/norm_elem.h"
#include "bench_cuda.h"

typedef std::vector<float> floats;
typedef std::vector<double> doubles;

static int failures;

static const double JORDAN[15] = {3.4445, -4.7750, 2.0315,  3.4445, -4.7750, 2.0315,  3.4445, -4.7750,
                                  2.0315, 3.4445,  -4.7750, 2.0315, 3.4445,  -4.7750, 2.0315};
static const double LIVE[PL_LIVE_COLS] = {
    1 / (1 - 0.9 * 0.9), 1 / (1 - 0.999 * 0.999), 0.02, 0.1, 0.9, 0.999, 1e-8, 1, 0};
static const float BETA1 = 0.9f, OTHER1 = (float)(1 - 0.9), BETA2 = 0.999f, OTHER2 = (float)(1 - 0.999),
                   EPS = 1e-8f;

static uint64_t seed = 88172645463325252ull;

static float normal(void)
{
    double s = 0;
    for (int i = 0; i < 12; i++) {
        seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
        s += (double)(seed >> 11) * 0x1p-53;
    }
    return (float)(s - 6);
}

/* ---- the reference ------------------------------------------------------------------------------ */

template <class F> static void parallel(int n, F f)
{
    int k = std::min(n, (int)std::max(1u, std::min(16u, std::thread::hardware_concurrency())));
    std::vector<std::thread> all;
    for (int t = 0; t < k; t++)
        all.emplace_back([=] {
            for (int i = t; i < n; i += k) f(i);
        });
    for (auto &t : all) t.join();
}

static double R(double x)
{
    return pl_bf16_round_f64(x);
}

/* C (m x n) = A (m x k) B (k x n), in double. */
static doubles product(const doubles &A, const doubles &B, int m, int k, int n)
{
    doubles C((size_t)m * n, 0.0);
    double *c = C.data();
    const double *a = A.data(), *b = B.data();
    parallel(m, [=](int i) {
        for (int q = 0; q < k; q++)
            for (int j = 0; j < n; j++) c[(size_t)i * n + j] += a[(size_t)i * k + q] * b[(size_t)q * n + j];
    });
    return C;
}

static void reference_steps(doubles &X, int m, int n, const double *coef, int steps)
{
    for (int s = 0; s < steps; s++) {
        double a = (float)coef[3 * s], b = (float)coef[3 * s + 1], c = (float)coef[3 * s + 2];
        doubles T((size_t)m * n);
        for (int i = 0; i < m; i++)
            for (int j = 0; j < n; j++) T[(size_t)j * m + i] = X[(size_t)i * n + j];
        doubles A = product(X, T, m, n, m);
        for (auto &x : A) x = R(x);
        doubles P = product(A, A, m, m, m);
        for (size_t i = 0; i < P.size(); i++) P[i] = R(b * A[i] + c * P[i]);
        doubles Y = product(P, X, m, m, n);
        for (size_t i = 0; i < Y.size(); i++) X[i] = R(a * X[i] + Y[i]);
    }
}

/* Of a dense rows x cols matrix D: newton_schulz(D / norm), in D's own orientation. */
static doubles reference(const floats &D, int rows, int cols, const double *coef, int steps, bool normalise)
{
    int tall = rows > cols, m = std::min(rows, cols), n = std::max(rows, cols);
    double sum = 0;
    float top = 0;
    for (float x : D) sum += (double)x * x, top = fmaxf(top, fabsf(x));
    double s = pl_norm_scale(top, PL_SCALE_EXP_F32), norm = sqrt(sum) * s;
    doubles X((size_t)m * n), out((size_t)m * n);
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            float x = tall ? D[(size_t)j * cols + i] : D[(size_t)i * cols + j];
            X[(size_t)i * n + j] = normalise ? pl_bf16_round(pl_normalise_f32(x, (float)s, (float)norm)) : x;
        }
    reference_steps(X, m, n, coef, steps);
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++)
            out[tall ? (size_t)j * cols + i : (size_t)i * cols + j] = X[(size_t)i * n + j];
    return out;
}

static cudaError_t launch(cudaStream_t stream, const std::vector<pl_cuda_ns_task> &tasks, const double *coef,
                          int steps)
{
    static pl_cuda_ns_list list;
    cudaError_t e = cudaSuccess;
    list.steps = steps;
    for (int i = 0; i < 3 * steps; i++) list.coef[i] = (float)coef[i];
    for (size_t i = 0; i < tasks.size() && e == cudaSuccess; i += PL_CUDA_NS_TASKS) {
        list.tasks = (int)std::min(tasks.size() - i, (size_t)PL_CUDA_NS_TASKS);
        std::copy(tasks.begin() + i, tasks.begin() + i + list.tasks, list.task);
        e = pl_cuda_ns_launch(stream, &list);
    }
    return e;
}

/* ---- one matrix on the device ------------------------------------------------------------------- */

template <class T> struct buffer {
    T *at = NULL;
    size_t n = 0;
    void put(const std::vector<T> &v)
    {
        if (!at) CK(cudaMalloc(&at, v.size() * sizeof(T)));
        n = v.size();
        CK(cudaMemcpy(at, v.data(), n * sizeof(T), cudaMemcpyHostToDevice));
    }
    std::vector<T> get() const
    {
        std::vector<T> v(n);
        CK(cudaMemcpy(v.data(), at, n * sizeof(T), cudaMemcpyDeviceToHost));
        return v;
    }
};

static const int MARGIN = 5; /* extra columns of a pitched matrix: must stay as they are */

struct test_case {
    int rows, cols, kind, momentum, precondition, g_bf16, w_bf16, pitch;
    floats G, M, V, W; /* pitched */
    buffer<float> dG, dM, dV, dW;
    buffer<pl_bf16> hG, hW;
    buffer<double> live;
    pl_cuda_ns_task task;
};

static floats pitched(const test_case &c, float scale, bool positive)
{
    floats v((size_t)c.rows * c.pitch, 12345.0f);
    for (int i = 0; i < c.rows; i++)
        for (int j = 0; j < c.cols; j++)
            v[(size_t)i * c.pitch + j] = (positive ? fabsf(normal()) + 0.1f : normal()) * scale;
    return v;
}

static std::vector<pl_bf16> halves(const floats &v)
{
    std::vector<pl_bf16> h(v.size());
    for (size_t i = 0; i < v.size(); i++) h[i] = pl_bf16_from_f32(v[i]);
    return h;
}

static void upload(test_case &c)
{
    if (c.w_bf16) c.hW.put(halves(c.W));
    else c.dW.put(c.W);
    if (c.kind != PL_CUDA_NS_ITERATE) {
        if (c.g_bf16) c.hG.put(halves(c.G));
        else c.dG.put(c.G);
    }
    if (c.kind == PL_CUDA_NS_STEP) {
        c.dM.put(c.M);
        if (c.precondition) c.dV.put(c.V);
        c.live.put(doubles(LIVE, LIVE + PL_LIVE_COLS));
    }
    pl_cuda_ns_task t;
    memset(&t, 0, sizeof t);
    t.W = c.w_bf16 ? (void *)c.hW.at : (void *)c.dW.at;
    t.G = c.g_bf16 ? (const void *)c.hG.at : (const void *)c.dG.at;
    t.M = c.dM.at, t.V = c.precondition ? c.dV.at : NULL, t.live = c.live.at;
    t.w_rs = t.m_rs = t.v_rs = t.g_rs = c.pitch;
    t.rows = c.rows, t.cols = c.cols, t.batch = 1, t.kind = (uint8_t)c.kind, t.momentum = (uint8_t)c.momentum;
    t.w_bf16 = (uint8_t)c.w_bf16, t.g_bf16 = (uint8_t)c.g_bf16;
    t.scale = 0.2f;
    c.task = t;
}

static void make(test_case &c, int rows, int cols, int kind, int variant, float scale)
{
    c.rows = rows, c.cols = cols, c.kind = kind;
    c.pitch = cols + (variant % 2 ? MARGIN : 0);
    c.g_bf16 = kind != PL_CUDA_NS_ITERATE && variant / 2 % 2;
    c.w_bf16 = kind == PL_CUDA_NS_ITERATE || (kind == PL_CUDA_NS_MAP && variant / 2 % 2);
    c.momentum = variant % 3;
    c.precondition = variant % 4 != 3;
    c.G = pitched(c, scale, false), c.M = pitched(c, 0.1f * scale, false), c.V = pitched(c, 0.01f, true),
    c.W = pitched(c, kind == PL_CUDA_NS_ITERATE ? 1.0f : 1e-3f, false);
    if (kind == PL_CUDA_NS_ITERATE)
        for (auto &w : c.W) w = pl_bf16_round(w / sqrtf((float)(rows * cols)));
    if (c.g_bf16)
        for (auto &g : c.G) g = pl_bf16_round(g);
    if (c.w_bf16)
        for (auto &w : c.W) w = pl_bf16_round(w);
    if (kind == PL_CUDA_NS_MAP)
        for (int i = 0; i < rows; i++)
            for (int j = 0; j < cols; j++) c.W[(size_t)i * c.pitch + j] = NAN; /* poison */
}

static floats output(const test_case &c)
{
    if (!c.w_bf16) return c.dW.get();
    std::vector<pl_bf16> h = c.hW.get();
    floats v(h.size());
    for (size_t i = 0; i < v.size(); i++) v[i] = pl_bf16_to_f32(h[i]);
    return v;
}

/* Error of the map, relative; -1 where M, V or what lies beside the matrix is wrong. */
static double error_of(test_case &c, const double *coef, int steps)
{
    floats D((size_t)c.rows * c.cols), out = output(c), m2, v2;
    if (c.kind == PL_CUDA_NS_STEP) {
        m2 = c.dM.get();
        if (c.precondition) v2 = c.dV.get();
    }
    const pl_cuda_ns_task &t = c.task;
    int wrong = 0;
    for (int i = 0; i < c.rows; i++)
        for (int j = 0; j < c.pitch; j++) {
            size_t at = (size_t)i * c.pitch + j;
            if (j >= c.cols) {
                if (out[at] != c.W[at]) wrong++;
                if (c.kind == PL_CUDA_NS_STEP && m2[at] != c.M[at]) wrong++;
                continue;
            }
            float d = c.kind == PL_CUDA_NS_ITERATE ? c.W[at] : c.G[at], m = c.M[at], v = c.V[at];
            if (c.kind == PL_CUDA_NS_STEP) {
                float g = d;
                d = pl_momentum_f32(g, &m, t.momentum, BETA1, OTHER1, (float)LIVE[0]);
                if (c.precondition) d = pl_precondition_f32(d, g, &v, BETA2, OTHER2, (float)LIVE[1], EPS);
                if (memcmp(&m, &m2[at], 4)) wrong++;
                if (c.precondition && memcmp(&v, &v2[at], 4)) wrong++;
            }
            D[(size_t)i * c.cols + j] = d;
        }
    if (wrong) return -1;
    doubles O = reference(D, c.rows, c.cols, coef, steps, c.kind != PL_CUDA_NS_ITERATE);
    double e = 0, n = 0;
    for (int i = 0; i < c.rows; i++)
        for (int j = 0; j < c.cols; j++) {
            size_t at = (size_t)i * c.pitch + j;
            double o = O[(size_t)i * c.cols + j], got = out[at];
            if (c.kind == PL_CUDA_NS_STEP) {
                double lr = LIVE[2], f = lr * (double)t.scale;
                /* the O that was stepped by; W's own rounding comes to 1e-5 of it, W being small */
                got = ((double)c.W[at] * (1 - lr * LIVE[3]) - got) / f;
            }
            e += (got - o) * (got - o), n += o * o;
        }
    return n == 0 ? sqrt(e) : sqrt(e / n);
}

static void run(std::vector<test_case *> &cases, const double *coef, int steps)
{
    std::vector<pl_cuda_ns_task> tasks;
    for (auto c : cases) {
        upload(*c);
        tasks.push_back(c->task);
    }
    CK(launch(0, tasks, coef, steps));
    CK(cudaGetLastError());
    CK(cudaDeviceSynchronize());
}

static const char *kinds[] = {"ns", "map", "step"};

/* Bounds: one step differs from the reference by entries of A and P that fall to the other side of a
 * rounding, and by the last rounding, 2^-9 of an entry where it does; five steps multiply such differences by
 * up to a^4 on small singular values, docs/NUMERICS.md, 2, gives 5 %. */
static void check_shape(int rows, int cols, int kind, int variant, float scale)
{
    static const double part[4][3] = {{1, 0, 0}, {0, 1, 0}, {0, 0, 1}, {3.4445, -4.7750, 2.0315}};
    test_case c;
    std::vector<test_case *> one = {&c};
    make(c, rows, cols, kind, variant, scale);
    floats W = c.W;
    double e[5];
    int bad = 0;
    for (int k = 0; k < 5; k++) {
        /* A step is seen through W, whose own rounding must not drown it: A A X of a matrix of norm 1 is as
         * small as X / m^2, so that W has to be. */
        c.W = W;
        if (kind == PL_CUDA_NS_STEP && k < 3)
            for (auto &w : c.W) w *= 0x1p-20f;
        run(one, k < 4 ? part[k] : JORDAN, k < 4 ? 1 : 5);
        e[k] = error_of(c, k < 4 ? part[k] : JORDAN, k < 4 ? 1 : 5);
        double most = k == 0 ? 1e-4 : k < 4 ? 4e-3 : 0.05;
        if (!(e[k] >= 0 && e[k] <= most)) bad = 1;
    }
    if (bad) failures++;
    printf("%-5s %4dx%-4d %-4s v%-2d aX %.1e  AX %.1e  AAX %.1e  1 step %.1e  5 steps %.1e\n",
           bad ? "FAIL" : "ok", rows, cols, kinds[kind], variant, e[0], e[1], e[2], e[3], e[4]);
    fflush(stdout);
}

static void check(void)
{
    static const int shapes[][2] = {{16, 16},   {16, 152},   {64, 64},    {192, 192}, {192, 576}, {576, 192},
                                    {768, 192}, {192, 768},  {100, 130},  {1, 1},     {1, 300},   {300, 1},
                                    {256, 256}, {256, 1024}, {1000, 250}, {7, 3},     {160, 16},  {40, 250},
                                    {128, 128}, {128, 512},  {200, 65}};
    int n = (int)(sizeof shapes / sizeof *shapes);
    for (int i = 0; i < n; i++) {
        check_shape(shapes[i][0], shapes[i][1], PL_CUDA_NS_MAP, i % 4, 1);
        if (pl_cuda_ns_fits(PL_CUDA_NS_STEP, shapes[i][0], shapes[i][1]))
            check_shape(shapes[i][0], shapes[i][1], PL_CUDA_NS_STEP, (i + 1) % 12, 1);
        if (i % 3 == 0) check_shape(shapes[i][0], shapes[i][1], PL_CUDA_NS_ITERATE, i % 2, 1);
    }
    check_shape(192, 768, PL_CUDA_NS_MAP, 0, 1e-30f);
    check_shape(16, 16, PL_CUDA_NS_MAP, 0, 1e-30f);
    check_shape(576, 192, PL_CUDA_NS_MAP, 1, 1e30f);

    /* All at once, twice, and each alone: the same bits; zeros stay zeros, a NaN stays in its matrix. */
    std::vector<test_case> cases((size_t)n + 4);
    std::vector<test_case *> all;
    for (int i = 0; i < n; i++) {
        int step = i % 2 == 0 && pl_cuda_ns_fits(PL_CUDA_NS_STEP, shapes[i][0], shapes[i][1]);
        make(cases[i], shapes[i][0], shapes[i][1], step ? PL_CUDA_NS_STEP : PL_CUDA_NS_MAP, i % 12, 1);
    }
    make(cases[n], 192, 768, PL_CUDA_NS_MAP, 0, 0);
    make(cases[n + 1], 192, 768, PL_CUDA_NS_MAP, 0, 1);
    make(cases[n + 2], 16, 16, PL_CUDA_NS_MAP, 0, 0);
    make(cases[n + 3], 16, 152, PL_CUDA_NS_MAP, 0, 1);
    cases[n + 1].G[1234] = NAN;
    cases[n + 3].G[77] = NAN;
    for (auto &c : cases) all.push_back(&c);
    run(all, JORDAN, 5);
    std::vector<floats> first;
    for (auto c : all) first.push_back(output(*c));
    run(all, JORDAN, 5);
    int twice = 0, alone = 0;
    for (size_t i = 0; i < all.size(); i++) {
        floats o = output(*all[i]);
        if (memcmp(o.data(), first[i].data(), o.size() * 4)) twice++;
    }
    for (size_t i = 0; i < all.size(); i++) {
        std::vector<test_case *> one = {all[i]};
        run(one, JORDAN, 5);
        floats o = output(*all[i]);
        if (memcmp(o.data(), first[i].data(), o.size() * 4)) alone++;
    }
    int zero = 0, not_nan = 0;
    for (int k = 0; k < 4; k++)
        for (float x : first[n + k]) {
            if (k % 2 == 0 && x != 0) zero++;
            if (k % 2 == 1 && x == x) not_nan++;
        }
    for (int i = 0; i < n; i++)
        for (float x : first[i])
            if (x != x) not_nan++;
    printf("%-5s twice: %d differ; alone: %d differ; entries of zero matrices not zero: %d; NaN where none "
           "belongs or none where one does: %d\n",
           twice || alone || zero || not_nan ? "FAIL" : "ok", twice, alone, zero, not_nan);
    if (twice || alone || zero || not_nan) failures++;

    /* SKIP leaves everything alone; lr = 0 leaves W alone. */
    test_case c;
    doubles row(LIVE, LIVE + PL_LIVE_COLS);
    make(c, 192, 576, PL_CUDA_NS_STEP, 0, 1);
    upload(c);
    row[PL_LIVE_SKIP] = 1;
    c.live.put(row);
    CK(launch(0, {c.task}, JORDAN, 5));
    int skipped = c.dW.get() == c.W && c.dM.get() == c.M;
    row[PL_LIVE_SKIP] = 0, row[PL_LIVE_LR] = 0;
    c.live.put(row);
    CK(launch(0, {c.task}, JORDAN, 5));
    int kept = c.dW.get() == c.W && c.dM.get() != c.M;
    printf("%-5s skip %d, lr 0 %d\n", skipped && kept ? "ok" : "FAIL", skipped, kept);
    if (!skipped || !kept) failures++;
}

/* ---- times -------------------------------------------------------------------------------------- */

struct shape_count {
    int rows, cols, batch, times;
};

/* Tasks over fresh memory: the shapes `times` over, `batch` matrices each. */
static std::vector<pl_cuda_ns_task> list_of(std::vector<shape_count> shapes, int kind, int momentum,
                                            int precondition)
{
    std::vector<pl_cuda_ns_task> tasks;
    static double *live;
    if (!live) {
        CK(cudaMalloc(&live, sizeof LIVE));
        CK(cudaMemcpy(live, LIVE, sizeof LIVE, cudaMemcpyHostToDevice));
    }
    for (auto &s : shapes)
        for (int k = 0; k < s.times; k++) {
            size_t one = (size_t)s.rows * s.cols, n = one * s.batch;
            floats v(n);
            float *p[4];
            for (int q = 0; q < 4; q++) {
                for (size_t i = 0; i < n; i++)
                    v[i] = q == 2 ? 0.01f + (float)(i % 13) * 0.001f
                                  : (float)((i * 2654435761u >> 9 & 0xffff) / 65536.0 - 0.5);
                if (q == 0 && kind == PL_CUDA_NS_ITERATE) /* pairs of bf16 */
                    for (size_t i = 0; i < n; i++) {
                        uint32_t pair = pl_bf16_from_f32(v[i] / sqrtf((float)one)) * 0x10001u;
                        memcpy(&v[i], &pair, 4);
                    }
                CK(cudaMalloc(&p[q], n * 4));
                CK(cudaMemcpy(p[q], v.data(), n * 4, cudaMemcpyHostToDevice));
            }
            pl_cuda_ns_task t;
            memset(&t, 0, sizeof t);
            t.W = p[0], t.M = p[1], t.V = precondition ? p[2] : NULL, t.G = p[3], t.live = live;
            t.w_bs = t.m_bs = t.v_bs = t.g_bs = (int64_t)one;
            t.w_rs = t.m_rs = t.v_rs = t.g_rs = s.cols;
            t.rows = s.rows, t.cols = s.cols, t.batch = s.batch, t.kind = (uint8_t)kind,
            t.momentum = (uint8_t)momentum;
            t.w_bf16 = kind == PL_CUDA_NS_ITERATE;
            t.scale = 0.2f;
            tasks.push_back(t);
        }
    return tasks;
}

#define CALLS 10

static double time_of(const std::vector<pl_cuda_ns_task> &tasks, int steps)
{
    cudaStream_t s;
    cudaGraph_t g;
    cudaGraphExec_t x;
    cudaEvent_t a, b;
    CK(cudaStreamCreate(&s));
    CK(cudaEventCreate(&a));
    CK(cudaEventCreate(&b));
    CK(launch(s, tasks, JORDAN, steps));
    CK(cudaStreamSynchronize(s));
    CK(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < CALLS; i++) CK(launch(s, tasks, JORDAN, steps));
    CK(cudaStreamEndCapture(s, &g));
    CK(cudaGraphInstantiate(&x, g, 0));
    std::vector<float> ms;
    for (int i = 0; i < 43; i++) {
        float t;
        CK(cudaEventRecord(a, s));
        CK(cudaGraphLaunch(x, s));
        CK(cudaEventRecord(b, s));
        CK(cudaEventSynchronize(b));
        CK(cudaEventElapsedTime(&t, a, b));
        if (i >= 3) ms.push_back(t);
    }
    std::sort(ms.begin(), ms.end());
    cudaGraphExecDestroy(x);
    cudaGraphDestroy(g);
    cudaStreamDestroy(s);
    return ms[ms.size() / 2] * 1000 / CALLS;
}

static void time_list(const char *name, const std::vector<pl_cuda_ns_task> &tasks)
{
    auto t0 = std::chrono::steady_clock::now();
    for (int i = 0; i < 20; i++) CK(launch(0, tasks, JORDAN, 0));
    auto t1 = std::chrono::steady_clock::now();
    CK(cudaDeviceSynchronize());
    double host = std::chrono::duration<double>(t1 - t0).count() / 20 * 1e6;
    double w0 = time_of(tasks, 0), w1 = time_of(tasks, 1), w5 = time_of(tasks, 5), again = time_of(tasks, 5);
    printf("%-34s steps 0: %7.1f  1: %7.1f  5: %7.1f (again %7.1f) us   host %5.1f us\n", name, w0, w1, w5,
           again, host);
    fflush(stdout);
    for (auto &t : tasks) cudaFree(t.W), cudaFree(t.M), cudaFree(t.V), cudaFree((void *)t.G);
}

static void times(void)
{
    std::vector<shape_count> deit = {
        {576, 192, 1, 12}, {192, 192, 1, 12}, {768, 192, 1, 12}, {192, 768, 1, 12}};
    std::vector<shape_count> so3 = {{16, 16, 100, 6}, {16, 1, 100, 3}, {32, 16, 100, 3}, {16, 152, 100, 3}};
    time_list("DeiT-Tiny 48, PolarAdamW", list_of(deit, PL_CUDA_NS_STEP, POLAR_MOMENTUM_EMA, 1));
    time_list("DeiT-Tiny 48, Muon", list_of(deit, PL_CUDA_NS_STEP, POLAR_MOMENTUM_NESTEROV, 0));
    time_list("DeiT-Tiny 48, map f32", list_of(deit, PL_CUDA_NS_MAP, 0, 0));
    time_list("DeiT-Tiny 48, NS bf16", list_of(deit, PL_CUDA_NS_ITERATE, 0, 0));
    time_list("SO(3), 1500 tiny ones, map", list_of(so3, PL_CUDA_NS_MAP, 0, 0));
    time_list("12 of 192x768, map", list_of({{192, 768, 12, 1}}, PL_CUDA_NS_MAP, 0, 0));
    time_list("192x192, map", list_of({{192, 192, 1, 1}}, PL_CUDA_NS_MAP, 0, 0));
    time_list("192x768, map", list_of({{192, 768, 1, 1}}, PL_CUDA_NS_MAP, 0, 0));
    time_list("256x256, map", list_of({{256, 256, 1, 1}}, PL_CUDA_NS_MAP, 0, 0));
    time_list("256x1024, map", list_of({{256, 1024, 1, 1}}, PL_CUDA_NS_MAP, 0, 0));
    time_list("128x512, map", list_of({{128, 512, 1, 1}}, PL_CUDA_NS_MAP, 0, 0));
    time_list("64x64, map", list_of({{64, 64, 1, 1}}, PL_CUDA_NS_MAP, 0, 0));
    time_list("16x16, map", list_of({{16, 16, 1, 1}}, PL_CUDA_NS_MAP, 0, 0));
}

int main(int argc, char **argv)
{
    alarm(90); /* a barrier that nobody reaches must not hold the machine */
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc < 2 || !strcmp(argv[1], "check")) check();
    if (argc < 2 || !strcmp(argv[1], "time")) times();
    printf("%s: %d failures\n", failures ? "FAILED" : "PASSED", failures);
    return failures != 0;
}
