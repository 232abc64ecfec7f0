/* ns_large.cu -- Newton-Schulz products on one Hopper GPU: checked against a plain kernel in fp64, timed beside cuBLASLt.
 *
 *     nvcc -gencode=arch=compute_90a,code=sm_90a -O3 -std=c++17 -DPL_HOPPER_WATCH -o ns_large bench/cuda/ns_large.cu \
 *          src/backends/cuda/cuda_hopper.cu -ldl
 *     ./ns_large             every part, each in a process of its own (a trap in one leaves the others alone)
 *     ./ns_large sym1        one part
 *
 * Simplest first: sym1 and plain1 without clusters, sym2 and plain2 with, chain: whole iterations and early launch, then times.
 */
#include <cuda_bf16.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "lt_products.h"

typedef __nv_bfloat16 bf16;

#define CK(call) ck(call, #call, __LINE__)

static void ck(cudaError_t st, const char *call, int line)
{
    if (st == cudaSuccess) return;
    printf("%s:%d: %s: %s\n", __FILE__, line, call, cudaGetErrorString(st));
    fflush(stdout);
    _exit(9);
}

#define GUARD 4096    /* elements before and after every result */

static int multiprocessors, bad_parts;
static const float NS[3] = {3.4445f, -4.7750f, 2.0315f};

/* ---- plain kernels --------------------------------------------------------------------------------- */

__device__ static uint32_t mixed(uint64_t x)
{
    x ^= x >> 33, x *= 0xff51afd7ed558ccdull, x ^= x >> 33, x *= 0xc4ceb9fe1a85ec53ull, x ^= x >> 33;
    return (uint32_t)x;
}

/* Sum of four uniforms: about normal with variance scale^2; symmetric: (i, j) as (j, i). */
__global__ void fill(bf16 *x, int64_t rows, int64_t cols, int64_t total, float scale, uint64_t seed, int symmetric)
{
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < total; i += (int64_t)gridDim.x * blockDim.x) {
        int64_t b = i / (rows * cols), r = i % (rows * cols) / cols, c = i % cols;
        if (symmetric && r > c) { int64_t s = r; r = c; c = s; }
        float v = 0;
        for (int k = 0; k < 4; k++) v += (float)mixed(seed * 1000003 + ((b * rows + r) * cols + c) * 4 + k) * 2.3283064e-10f - 0.5f;
        x[i] = __float2bfloat16_rn(v * 1.7320508f * scale);
    }
}

/* R = alpha A op(B) + beta D in fp64 and S = the sum of the terms' sizes, 16 x 16 tiles. */
__global__ void reference(double *R, double *S, const bf16 *A, const bf16 *B, const bf16 *D, int m, int n, int k, int trans, float alpha,
                          float beta)
{
    __shared__ double a[16][17], b[16][17];
    int tx = threadIdx.x, ty = threadIdx.y, r = blockIdx.y * 16 + ty, c = blockIdx.x * 16 + tx;
    double sum = 0, size = 0;
    for (int k0 = 0; k0 < k; k0 += 16) {
        a[ty][tx] = r < m && k0 + tx < k ? (double)__bfloat162float(A[(int64_t)r * k + k0 + tx]) : 0;
        int cb = blockIdx.x * 16 + ty;
        if (trans) b[tx][ty] = cb < n && k0 + tx < k ? (double)__bfloat162float(B[(int64_t)cb * k + k0 + tx]) : 0;
        else b[ty][tx] = c < n && k0 + ty < k ? (double)__bfloat162float(B[(int64_t)(k0 + ty) * n + c]) : 0;
        __syncthreads();
        for (int i = 0; i < 16; i++) {
            double t = a[ty][i] * b[i][tx];
            sum += t, size += fabs(t);
        }
        __syncthreads();
    }
    if (r >= m || c >= n) return;
    double d = D ? (double)__bfloat162float(D[(int64_t)r * n + c]) : 0;
    R[(int64_t)r * n + c] = alpha * sum + beta * d;
    S[(int64_t)r * n + c] = fabs((double)alpha) * size + fabs(beta * d);
}

struct verdict {
    unsigned long long bad, asym, first;
    unsigned worst;    /* error over tolerance in thousandths */
};

/* Tolerance: half a unit of bf16 (2^-9 of the result), and for sums in f32 of k terms, 16 at a time, k/16 roundings of 2^-22 of the
 * sum of sizes (the tensor cores cut, they do not round). */
__global__ void compare(verdict *v, const bf16 *C, const double *R, const double *S, int m, int n, int k, int symmetric)
{
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < (int64_t)m * n; i += (int64_t)gridDim.x * blockDim.x) {
        double got = __bfloat162float(C[i]), tol = ldexp(fabs(R[i]), -9) * 1.004 + (k / 16 + 2) * ldexp(S[i], -22) + 1e-30;
        double ratio = fabs(got - R[i]) / tol;
        if (!(ratio <= 1)) {
            atomicAdd(&v->bad, 1ull);
            atomicMin(&v->first, (unsigned long long)i);
        }
        atomicMax(&v->worst, ratio < 1e6 ? (unsigned)(ratio * 1000) : 1000000000u);
        if (symmetric) {
            int64_t r = i / n, c = i % n;
            const unsigned short *u = (const unsigned short *)C;
            if (u[i] != u[c * n + r]) atomicAdd(&v->asym, 1ull);
        }
    }
}

__global__ void differ(unsigned long long *count, const uint32_t *a, const uint32_t *b, int64_t n)
{
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < n; i += (int64_t)gridDim.x * blockDim.x)
        if (a[i] != b[i]) atomicAdd(count, 1ull);
}

__global__ void not_poison(unsigned long long *count, const uint32_t *a, int64_t n)
{
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < n; i += (int64_t)gridDim.x * blockDim.x)
        if (a[i] != 0xFFFFFFFFu) atomicAdd(count, 1ull);
}

__global__ void round_to(bf16 *Y, const double *R, int64_t n)
{
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < n; i += (int64_t)gridDim.x * blockDim.x)
        Y[i] = __double2bfloat16(R[i]);
}

/* sums[0] += (x - y)^2, sums[1] += y^2 */
__global__ void distance(double *sums, const bf16 *x, const bf16 *y, int64_t n)
{
    double d = 0, s = 0;
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < n; i += (int64_t)gridDim.x * blockDim.x) {
        double a = __bfloat162float(x[i]), b = __bfloat162float(y[i]);
        d += (a - b) * (a - b), s += b * b;
    }
    atomicAdd(&sums[0], d);
    atomicAdd(&sums[1], s);
}

/* ---- helpers --------------------------------------------------------------------------------------- */

template <class T> static T *device(int64_t count)
{
    void *p;
    CK(cudaMalloc(&p, (size_t)count * sizeof(T)));
    return (T *)p;
}

static bf16 *random_matrix(int64_t batch, int64_t rows, int64_t cols, float scale, int symmetric, uint64_t seed)
{
    bf16 *x = device<bf16>(batch * rows * cols);
    fill<<<1024, 256>>>(x, rows, cols, batch * rows * cols, scale, seed, symmetric);
    CK(cudaGetLastError());
    return x;
}

/* A result with guards around it, all of it poisoned. */
static bf16 *result(int64_t count)
{
    bf16 *x = device<bf16>(count + 2 * GUARD);
    CK(cudaMemset(x, 0xFF, (size_t)(count + 2 * GUARD) * 2));
    return x + GUARD;
}

static void result_free(bf16 *x)
{
    CK(cudaFree(x - GUARD));
}

static unsigned long long differences(const void *a, const void *b, int64_t bytes)
{
    unsigned long long *c = device<unsigned long long>(1), host;
    CK(cudaMemset(c, 0, 8));
    differ<<<1024, 256>>>(c, (const uint32_t *)a, (const uint32_t *)b, bytes / 4);
    CK(cudaMemcpy(&host, c, 8, cudaMemcpyDeviceToHost));
    CK(cudaFree(c));
    return host;
}

static unsigned long long guard_harm(const bf16 *x, int64_t count)
{
    unsigned long long *c = device<unsigned long long>(1), host;
    CK(cudaMemset(c, 0, 8));
    not_poison<<<16, 256>>>(c, (const uint32_t *)(x - GUARD), GUARD / 2);
    not_poison<<<16, 256>>>(c, (const uint32_t *)(x + count), GUARD / 2);
    CK(cudaMemcpy(&host, c, 8, cudaMemcpyDeviceToHost));
    CK(cudaFree(c));
    return host;
}

static pl_hopper_product product_of(bf16 *C, const bf16 *A, const bf16 *B, const bf16 *D, int64_t m, int64_t n, int64_t k, int64_t batch,
                                    int symmetric, float alpha, float beta)
{
    pl_hopper_product p = {C, A, B, D, m, n, k, batch};
    p.ldc = p.ldd = n, p.lda = k, p.ldb = symmetric ? k : n;
    p.bsc = p.bsd = m * n, p.bsa = m * k, p.bsb = n * k;
    p.alpha = alpha, p.beta = beta, p.symmetric = symmetric;
    return p;
}

/* ---- checks ---------------------------------------------------------------------------------------- */

static const pl_hopper_plan all_plans[2][16] = {
    {{64, 1}, {128, 1}, {192, 1}, {256, 1}, {128, 2}, {256, 2}},
    {{64, 1}, {96, 1}, {128, 1}, {160, 1}, {192, 1}, {256, 1}, {128, 2}, {152, 2}, {184, 2}, {256, 2}}};

/* Where the wrong elements are: a map of 64 x 64 blocks, '.' none, digits tenths of them wrong. */
static void show_wrong(const bf16 *C, const double *R, const double *S, int m, int n)
{
    std::vector<unsigned short> c((size_t)m * n);
    std::vector<double> r((size_t)m * n), s((size_t)m * n);
    CK(cudaMemcpy(c.data(), C, c.size() * 2, cudaMemcpyDeviceToHost));
    CK(cudaMemcpy(r.data(), R, r.size() * 8, cudaMemcpyDeviceToHost));
    CK(cudaMemcpy(s.data(), S, s.size() * 8, cudaMemcpyDeviceToHost));
    auto value = [&](size_t i) { uint32_t b = (uint32_t)c[i] << 16; float f; memcpy(&f, &b, 4); return (double)f; };
    int shown = 0;
    for (int i = 0; i < m && i < 1024; i += 64) {
        printf("      ");
        for (int j = 0; j < n && j < 2048; j += 64) {
            int wrong = 0, all = 0;
            for (int y = i; y < i + 64 && y < m; y++)
                for (int x = j; x < j + 64 && x < n; x++) {
                    size_t at = (size_t)y * n + x;
                    double e = fabs(value(at) - r[at]);
                    all++, wrong += !(e <= 0.004 * fabs(r[at]) + 1e-3 * s[at]);
                }
            putchar(wrong ? '0' + 9 * wrong / all : '.');
        }
        putchar('\n');
    }
    for (size_t i = 0; i < c.size() && shown < 6; i++)
        if (!(fabs(value(i) - r[i]) <= 0.004 * fabs(r[i]) + 1e-3 * s[i]))
            shown++, printf("      (%zu, %zu): got %.6g, expected %.6g\n", i / (size_t)n, i % (size_t)n, value(i), r[i]);
}

/* One product by every plan of that cluster size. The inputs of batch b are reference()d one by one. */
static int check_product(const char *what, int64_t m, int64_t n, int64_t k, int64_t batch, int symmetric, const bf16 *A, const bf16 *B,
                         const bf16 *D, float alpha, float beta, int cluster, int early)
{
    int64_t picked[2] = {0, batch - 1};    /* the matrices that are compared */
    int pickeds = batch > 1 ? 2 : 1;
    double *R[2], *S[2];
    bf16 *C = result(batch * m * n), *again = result(batch * m * n), *alone = result(m * n);
    verdict *v = device<verdict>(1);
    int failed = 0;
    for (int i = 0; i < pickeds; i++) {
        int64_t b = picked[i];
        const bf16 *Ab = A + b * m * k, *Bb = B + b * n * k, *Db = D ? D + b * m * n : nullptr;
        dim3 grid((unsigned)((n + 15) / 16), (unsigned)((m + 15) / 16));
        R[i] = device<double>(m * n), S[i] = device<double>(m * n);
        reference<<<grid, dim3(16, 16)>>>(R[i], S[i], Ab, Bb, Db, (int)m, (int)n, (int)k, symmetric, alpha, beta);
        CK(cudaGetLastError());
    }
    for (int i = 0; i < 16 && all_plans[symmetric][i].width; i++) {
        pl_hopper_plan plan = all_plans[symmetric][i];
        if (plan.cluster != cluster) continue;
        plan.early = early;
        pl_hopper_product p = product_of(C, A, B, D, m, n, k, batch, symmetric, alpha, beta);
        if (!pl_hopper_suits(&p)) { printf("  does not suit\n"); return 1; }
        CK(cudaMemset(C - GUARD, 0xFF, (size_t)(batch * m * n + 2 * GUARD) * 2));
        CK(cudaMemset(again - GUARD, 0xFF, (size_t)(batch * m * n + 2 * GUARD) * 2));
        CK(cudaMemset(alone - GUARD, 0xFF, (size_t)(m * n + 2 * GUARD) * 2));
        CK(cudaDeviceSynchronize());
        CK(pl_hopper_multiply(0, &p, plan, multiprocessors));
        CK(cudaDeviceSynchronize());
        p.C = again;
        CK(pl_hopper_multiply(0, &p, plan, multiprocessors));
        CK(cudaDeviceSynchronize());
        verdict all = {0, 0, ~0ull, 0}, h;
        int shown = 0;
        for (int o = 0; o < pickeds; o++) {
            int64_t b = picked[o];
            h = {0, 0, ~0ull, 0};
            CK(cudaMemcpy(v, &h, sizeof h, cudaMemcpyHostToDevice));
            compare<<<1024, 256>>>(v, C + b * m * n, R[o], S[o], (int)m, (int)n, (int)k, symmetric);
            CK(cudaMemcpy(&h, v, sizeof h, cudaMemcpyDeviceToHost));
            all.bad += h.bad, all.asym += h.asym, all.worst = std::max(all.worst, h.worst);
            if (h.bad && !shown++ && !failed) show_wrong(C + b * m * n, R[o], S[o], (int)m, (int)n);
        }
        unsigned long long moved = differences(C, again, batch * m * n * 2), harm = guard_harm(C, batch * m * n), mates = 0;
        if (batch > 1) {    /* the last matrix without its mates */
            int64_t b = batch - 1;
            pl_hopper_product q = product_of(alone, A + b * m * k, B + b * n * k, D ? D + b * m * n : nullptr, m, n, k, 1, symmetric,
                                             alpha, beta);
            CK(pl_hopper_multiply(0, &q, pl_hopper_plan_for(&q, multiprocessors), multiprocessors));
            mates = differences(C + b * m * n, alone, m * n * 2);
        }
        int wrong = all.bad || all.asym || moved || harm || mates;
        failed |= wrong;
        if (wrong)
            printf("  WRONG %-10s %lldx%lldx%lld batch %lld by %d/%d: bad %llu asym %llu moved %llu guards %llu mates %llu, error/tol %.3f\n",
                   what, (long long)m, (long long)n, (long long)k, (long long)batch, plan.width, plan.cluster, all.bad, all.asym, moved,
                   harm, mates, all.worst * 1e-3);
        else
            printf("  ok    %-10s %lldx%lldx%lld batch %lld by %d/%d: error/tol %.3f\n", what, (long long)m, (long long)n, (long long)k,
                   (long long)batch, plan.width, plan.cluster, all.worst * 1e-3);
        fflush(stdout);
    }
    result_free(C), result_free(again), result_free(alone);
    for (int i = 0; i < pickeds; i++) CK(cudaFree(R[i])), CK(cudaFree(S[i]));
    CK(cudaFree(v));
    return failed;
}

static const struct { int64_t m, n, batch; } check_shapes[] = {{512, 512, 1},   {640, 768, 1},   {1000, 1504, 1}, {72, 200, 3},
                                                               {1024, 1024, 12}, {2048, 2048, 1}, {2048, 8192, 1}};

static int check_all(int symmetric, int cluster, int early)
{
    int failed = 0;
    for (auto s : check_shapes) {
        bf16 *X = random_matrix(s.batch, s.m, s.n, 1.0f / sqrtf((float)s.n), 0, 7 + (uint64_t)s.m);
        bf16 *A = random_matrix(s.batch, s.m, s.m, 1.0f / sqrtf((float)s.m), 1, 11 + (uint64_t)s.n);
        if (symmetric) {
            failed |= check_product("XX'", s.m, s.m, s.n, s.batch, 1, X, X, nullptr, 1, 0, cluster, early);
            failed |= check_product("bA+cAA", s.m, s.m, s.m, s.batch, 1, A, A, A, NS[2], NS[1], cluster, early);
        } else failed |= check_product("aX+PX", s.m, s.n, s.m, s.batch, 0, A, X, X, 1, NS[0], cluster, early);
        CK(cudaFree(X)), CK(cudaFree(A));
        if (failed && s.m > 1024) break;
    }
    return failed;
}

/* ---- whole iterations ------------------------------------------------------------------------------ */

struct ns_set {
    bf16 *X, *Y, *A, *P;
    int64_t m, n, batch;
};

static ns_set ns_make(int64_t m, int64_t n, int64_t batch, uint64_t seed)
{
    ns_set s = {random_matrix(batch, m, n, 1.0f / sqrtf((float)m * (float)n), 0, seed), device<bf16>(batch * m * n),
                device<bf16>(batch * m * m), device<bf16>(batch * m * m), m, n, batch};
    return s;
}

static void ns_free(ns_set *s)
{
    CK(cudaFree(s->X)), CK(cudaFree(s->Y)), CK(cudaFree(s->A)), CK(cudaFree(s->P));
}

static void ns_products(pl_hopper_product out[3], const ns_set *s)
{
    out[0] = product_of(s->A, s->X, s->X, nullptr, s->m, s->m, s->n, s->batch, 1, 1, 0);
    out[1] = product_of(s->P, s->A, s->A, s->A, s->m, s->m, s->m, s->batch, 1, NS[2], NS[1]);
    out[2] = product_of(s->Y, s->P, s->X, s->X, s->m, s->n, s->m, s->batch, 0, 1, NS[0]);
}

/* The result is in X. plans NULL: by cuBLASLt. */
static void ns_run(cudaStream_t stream, ns_set *s, int steps, const pl_hopper_plan *plans, lt_library *lt)
{
    for (int i = 0; i < steps; i++) {
        pl_hopper_product p[3];
        ns_products(p, s);
        for (int j = 0; j < 3; j++) {
            if (plans) CK(pl_hopper_multiply(stream, &p[j], plans[j], multiprocessors));
            else if (!lt_multiply(lt, stream, &p[j])) { printf("cuBLASLt refuses\n"); _exit(8); }
        }
        std::swap(s->X, s->Y);
    }
}

static void model_plans(pl_hopper_plan plans[3], const ns_set *s, int early)
{
    pl_hopper_product p[3];
    ns_products(p, s);
    for (int j = 0; j < 3; j++) plans[j] = pl_hopper_plan_for(&p[j], multiprocessors), plans[j].early = early;
}

/* The same in fp64, rounded where the kernels round. */
static void ns_reference(bf16 *X, int64_t m, int64_t n, int steps)
{
    double *R = device<double>(m * n), *S = device<double>(m * n);
    bf16 *A = device<bf16>(m * m), *P = device<bf16>(m * m), *Y = device<bf16>(m * n);
    dim3 t(16, 16), sq((unsigned)((m + 15) / 16), (unsigned)((m + 15) / 16)), wide((unsigned)((n + 15) / 16), (unsigned)((m + 15) / 16));
    for (int i = 0; i < steps; i++) {
        reference<<<sq, t>>>(R, S, X, X, nullptr, (int)m, (int)m, (int)n, 1, 1, 0);
        round_to<<<1024, 256>>>(A, R, m * m);
        reference<<<sq, t>>>(R, S, A, A, A, (int)m, (int)m, (int)m, 0, NS[2], NS[1]);
        round_to<<<1024, 256>>>(P, R, m * m);
        reference<<<wide, t>>>(R, S, P, X, X, (int)m, (int)n, (int)m, 0, 1, NS[0]);
        round_to<<<1024, 256>>>(Y, R, m * n);
        CK(cudaMemcpy(X, Y, (size_t)(m * n) * 2, cudaMemcpyDeviceToDevice));
    }
    CK(cudaGetLastError());
    CK(cudaFree(R)), CK(cudaFree(S)), CK(cudaFree(A)), CK(cudaFree(P)), CK(cudaFree(Y));
}

static double relative_distance(const bf16 *x, const bf16 *y, int64_t n)
{
    double *s = device<double>(2), h[2];
    CK(cudaMemset(s, 0, 16));
    distance<<<256, 256>>>(s, x, y, n);
    CK(cudaMemcpy(h, s, 16, cudaMemcpyDeviceToHost));
    CK(cudaFree(s));
    return sqrt(h[0] / h[1]);
}

static int check_chain(void)
{
    int failed = 0;
    static const struct { int64_t m, n, batch; } shapes[] = {{512, 512, 1}, {640, 768, 1}, {1000, 1504, 1}, {1024, 1024, 12}, {2048, 2048, 1}};
    for (auto s : shapes)
        for (int early = 0; early < 2; early++) {
            ns_set w = ns_make(s.m, s.n, s.batch, 5), one = ns_make(s.m, s.n, s.batch, 5);
            bf16 *ref = device<bf16>(s.m * s.n), *start = device<bf16>(s.m * s.n);
            double d[2];
            pl_hopper_plan plans[3];
            int64_t last = (s.batch - 1) * s.m * s.n;
            model_plans(plans, &w, early);
            CK(cudaMemcpy(start, w.X + last, (size_t)(s.m * s.n) * 2, cudaMemcpyDeviceToDevice));
            ns_run(0, &one, 1, plans, nullptr);
            ns_run(0, &w, 5, plans, nullptr);
            CK(cudaDeviceSynchronize());
            CK(cudaMemcpy(ref, start, (size_t)(s.m * s.n) * 2, cudaMemcpyDeviceToDevice));
            ns_reference(ref, s.m, s.n, 1);
            d[0] = relative_distance(one.X + last, ref, s.m * s.n);
            ns_reference(ref, s.m, s.n, 4);
            d[1] = relative_distance(w.X + last, ref, s.m * s.n);
            int wrong = !(d[0] < 4e-3 && d[1] < 0.05);
            failed |= wrong;
            printf("  %s NS of %lld x %lldx%lld%s: one step %.2e (< 4e-3), five %.2e (< 5e-2); plans %d/%d %d/%d %d/%d\n",
                   wrong ? "WRONG" : "ok   ", (long long)s.batch, (long long)s.m, (long long)s.n, early ? ", early launch" : "", d[0], d[1],
                   plans[0].width, plans[0].cluster, plans[1].width, plans[1].cluster, plans[2].width, plans[2].cluster);
            fflush(stdout);
            ns_free(&w), ns_free(&one);
            CK(cudaFree(ref)), CK(cudaFree(start));
        }
    return failed;
}

/* ---- times ----------------------------------------------------------------------------------------- */

/* Median seconds of one call of f(stream, i), i = 0 .. calls - 1 captured as one graph, 7 launches. */
template <class F> static double time_calls(F f, int calls)
{
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaEvent_t begin, end;
    std::vector<double> times;
    CK(cudaStreamCreate(&stream));
    CK(cudaEventCreate(&begin));
    CK(cudaEventCreate(&end));
    f(stream, 0), f(stream, 0);    /* code is loaded, algorithms are found; twice, since iterations swap buffers */
    CK(cudaStreamSynchronize(stream));
    CK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < calls; i++) f(stream, i);
    CK(cudaStreamEndCapture(stream, &graph));
    CK(cudaGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < 8; i++) {
        float ms;
        CK(cudaEventRecord(begin, stream));
        CK(cudaGraphLaunch(exec, stream));
        CK(cudaEventRecord(end, stream));
        CK(cudaStreamSynchronize(stream));
        CK(cudaEventElapsedTime(&ms, begin, end));
        if (i >= 1) times.push_back(ms * 1e-3 / calls);
    }
    CK(cudaGraphExecDestroy(exec)), CK(cudaGraphDestroy(graph)), CK(cudaStreamDestroy(stream));
    CK(cudaEventDestroy(begin)), CK(cudaEventDestroy(end));
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
}

/* Sets of buffers enough to outgrow the cache. */
static std::vector<ns_set> sets_of(int64_t m, int64_t n, int64_t batch)
{
    int64_t bytes = batch * (2 * m * n + 2 * m * m) * 2, count = std::max<int64_t>(1, std::min<int64_t>(12, 200000000 / bytes + 1));
    std::vector<ns_set> sets;
    for (int64_t i = 0; i < count; i++) sets.push_back(ns_make(m, n, batch, 100 + (uint64_t)i));
    return sets;
}

static int calls_for(double flop, int sets)
{
    int calls = (int)(3e-3 / (flop / 500e12 + 5e-6)) + 1;
    return std::max(2 * sets, calls / (2 * sets) * 2 * sets);
}

static const struct { int64_t m, n, batch; } time_shapes[] = {{512, 512, 1},   {1024, 1024, 1}, {1024, 1024, 12}, {2048, 2048, 1}, {4096, 4096, 1},
                                                              {8192, 8192, 1}, {1024, 4096, 1}, {4096, 16384, 1}};

static int time_all(void)
{
    lt_library lt;
    int have_lt = lt_open(&lt), failed = 0;
    static const char *names[3] = {"XX'", "bA+cAA", "aX+PX"};
    static char table[8192];
    size_t used = 0;
    double single = 0, single_lt = 0;
    if (!have_lt) printf("  no cuBLASLt\n"), failed = 1;
    for (auto s : time_shapes) {
        std::vector<ns_set> sets = sets_of(s.m, s.n, s.batch);
        int count = (int)sets.size();
        pl_hopper_plan model[3], best[3];
        double alone[3] = {}, alone_lt[3] = {};
        model_plans(model, &sets[0], 1);
        for (auto &set : sets) ns_run(0, &set, 5, model, nullptr);    /* warm, and numbers as they are later */
        for (int j = 0; j < 3; j++) {
            int64_t n = j == 2 ? s.n : s.m, k = j ? s.m : s.n;
            double flop = 2.0 * (double)s.batch * (double)s.m * (double)n * (double)k;
            int calls = calls_for(flop, count);
            printf("  %-7s %2lld x %lldx%lld us:", names[j], (long long)s.batch, (long long)s.m, (long long)s.n);
            for (int i = 0; i < 16 && all_plans[j < 2][i].width; i++) {
                pl_hopper_plan plan = all_plans[j < 2][i];
                plan.early = 1;
                double t = time_calls([&](cudaStream_t stream, int c) {
                    pl_hopper_product p[3];
                    ns_products(p, &sets[(size_t)(c % count)]);
                    CK(pl_hopper_multiply(stream, &p[j], plan, multiprocessors));
                }, calls);
                printf(" %d/%d %.1f", plan.width, plan.cluster, t * 1e6);
                if (!alone[j] || t < alone[j]) alone[j] = t, best[j] = plan;
            }
            if (have_lt) alone_lt[j] = time_calls([&](cudaStream_t stream, int c) {
                pl_hopper_product p[3];
                ns_products(p, &sets[(size_t)(c % count)]);
                if (!lt_multiply(&lt, stream, &p[j])) _exit(8);
            }, calls);
            printf(" | cublasLt %.1f | best %d/%d (model %d/%d) TFLOP/s useful %.0f nominal %.0f, cublasLt %.0f\n", alone_lt[j] * 1e6, best[j].width,
                   best[j].cluster, model[j].width, model[j].cluster, flop / (j < 2 ? 2 : 1) / alone[j] * 1e-12, flop / alone[j] * 1e-12,
                   have_lt ? flop / alone_lt[j] * 1e-12 : 0);
            fflush(stdout);
        }
        double flop = 5 * 2.0 * (double)s.batch * (double)s.m * (2.0 * (double)s.m * (double)s.n + (double)s.m * (double)s.m), t[4] = {};
        int calls = calls_for(flop, count);
        for (int variant = 0; variant < 4; variant++) {    /* model, model without early launch, best, cuBLASLt */
            pl_hopper_plan plans[3];
            for (int j = 0; j < 3; j++) plans[j] = variant == 2 ? best[j] : model[j], plans[j].early = variant != 1;
            if (variant == 3 && !have_lt) continue;
            t[variant] = time_calls([&](cudaStream_t stream, int c) {
                ns_run(stream, &sets[(size_t)(c % count)], 5, variant == 3 ? nullptr : plans, &lt);
            }, calls);
        }
        if (s.batch == 1 && s.m == 1024 && s.n == 1024) single = t[2], single_lt = t[3];
        used += (size_t)snprintf(table + used, sizeof table - used,
                                 "  %2lld x %5lldx%-5lld  model %8.4f  late launch %8.4f  best plans %8.4f  cuBLASLt %8.4f ms   x%.2f  (%.0f TFLOP/s useful)\n",
                                 (long long)s.batch, (long long)s.m, (long long)s.n, t[0] * 1e3, t[1] * 1e3, t[2] * 1e3, t[3] * 1e3, t[3] / t[2],
                                 5 * (double)s.batch * (double)s.m * (double)s.m * (3.0 * (double)s.n + (double)s.m) / t[2] * 1e-12);
        if (s.batch == 12)
            used += (size_t)snprintf(table + used, sizeof table - used, "       twelve calls one by one: %.4f ms, cuBLASLt %.4f; one call is x%.2f faster\n",
                                     12e3 * single, 12e3 * single_lt, 12 * single / t[2]);
        for (auto &set : sets) ns_free(&set);
    }
    printf("NS5, ms (median of 7, graphs, rotating buffers):\n%s", table);
    return failed;
}

/* ---- parts ----------------------------------------------------------------------------------------- */

static int run_part(const char *part)
{
    multiprocessors = pl_hopper_open();
    if (!multiprocessors) {
        printf("no Hopper GPU here\n");
        return 7;
    }
    if (!strcmp(part, "sym1")) return check_all(1, 1, 0);
    if (!strcmp(part, "plain1")) return check_all(0, 1, 0);
    if (!strcmp(part, "sym2")) return check_all(1, 2, 0);
    if (!strcmp(part, "plain2")) return check_all(0, 2, 0);
    if (!strcmp(part, "chain")) return check_chain();
    if (!strcmp(part, "times")) return time_all();
    printf("no part %s\n", part);
    return 2;
}

int main(int argc, char **argv)
{
    static const char *parts[] = {"sym1", "plain1", "sym2", "plain2", "chain", "times"};
    char summary[512] = "";
    if (argc > 1) return run_part(argv[1]);
    for (const char *part : parts) {
        time_t begin = time(nullptr);
        int st = 0, code;
        printf("%s\n", part);
        fflush(stdout);
        pid_t child = fork();
        if (!child) {
            alarm(60);
            execl("/proc/self/exe", argv[0], part, (char *)nullptr);
            _exit(127);
        }
        waitpid(child, &st, 0);
        code = WIFEXITED(st) ? WEXITSTATUS(st) : 1000 + WTERMSIG(st);
        if (code) bad_parts++;
        snprintf(summary + strlen(summary), sizeof summary - strlen(summary), " %s: %s (%d, %d s)", part, code ? "FAILED" : "ok", code,
                 (int)(time(nullptr) - begin));
        if (code == 7) break;
    }
    printf("parts:%s\n", summary);
    return bad_parts != 0;
}
