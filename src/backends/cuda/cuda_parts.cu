/* cuda_parts.cu -- see cuda_parts.h.
 *
 * A block makes 32 W x 64 results, a warp 32 x 32 of them. Slabs of 32 k of both factors come through
 * registers, the next one while the tensor cores are at this one, and are cut into parts on their way into
 * shared memory, once for all warps. There a part of a factor lies as the factor does:
 *
 *     ALONG   k along its rows: a row of 32 k is 64 bytes, its 16-byte units turned by the row, so that the
 *             eight rows of an ldmatrix meet no bank twice
 *     ACROSS  k across them: rows of 64 columns, panels of 32 k (unit_at), read transposed
 *
 * A result's 16 k are six mma.sync from zero on, the least products first; then they are added to its sum.
 */
#include "cuda_parts.h"

#include "cuda_bf16_parts.cuh"
#include "cuda_launch.cuh"
#include "cuda_mma.cuh"
#include "cuda_shared_limit.cuh"

#define DEPTH 32            /* k of a slab */
#define COLS  64            /* of a tile */
#define PANEL (DEPTH * 128) /* bytes of 64 columns of one part, across; of 64 rows along it is as much */

typedef struct {
    const float *A, *B, *D;
    float *C;
    int64_t lda, ldb, ldc, ldd, bsa, bsb, bsc, bsd;
    int m, n, k, n_tiles, sym;
    float alpha, beta;
} product;

template <int W> struct shape {
    static constexpr int ROWS = 32 * W, ALL = 64 * W, A_PART = ROWS / 64 * PANEL, B_PART = PANEL,
                         BUFFER = PARTS * (A_PART + B_PART), BYTES = 2 * BUFFER;
};

/* ---- into shared memory ------------------------------------------------------------------------- */

/* Fours of a slab that a thread brings: LINES rows, or columns, of the result. */
template <int LINES, int ALL> constexpr int fours = LINES *DEPTH / 4 / ALL;

/* Where the four e of a slab belongs: its line and its k. */
struct four_at {
    int line, k;
};

template <int LINES, bool ALONG> __device__ __forceinline__ four_at four_of(int e)
{
    if (ALONG) return {e / (DEPTH / 4), e % (DEPTH / 4) * 4};
    return {e % (LINES / 4) * 4, e / (LINES / 4)};
}

/* A factor on its way: a thread's first four of the next slab, and how far it is to its others there and to
 * the slab after it. */
struct stream {
    const float *from;
    int64_t step, slab;
    int line, lines, at, k; /* of the first four, and where they end */
};

template <int LINES, int ALL, bool ALONG>
__device__ __forceinline__ stream stream_of(const float *from, int64_t ld, int first, int lines, int k)
{
    const four_at f = four_of<LINES, ALONG>((int)threadIdx.x);
    const int line = first + f.line;
    if (ALONG) return {from + line * ld + f.k, ALL / (DEPTH / 4) * ld, DEPTH, line, lines, f.k, k};
    return {from + f.k * ld + line, ALL / (LINES / 4) * ld, DEPTH * ld, line, lines, f.k, k};
}

/* A thread's fours of the next slab, zeros beyond the factor's ends. */
template <int LINES, int ALL, bool ALONG>
__device__ __forceinline__ void fetch(float4 (&x)[fours<LINES, ALL>], stream &w)
{
    const float *p = w.from;
#pragma unroll
    for (int s = 0; s < fours<LINES, ALL>; s++) {
        const int line = w.line + (ALONG ? s * (ALL / (DEPTH / 4)) : 0),
                  at = w.at + (ALONG ? 0 : s * (ALL / (LINES / 4)));
        x[s] = line < w.lines && at < w.k ? *(const float4 *)p : make_float4(0, 0, 0, 0);
        p += w.step;
    }
    w.from += w.slab, w.at += DEPTH;
}

/* Byte of a part where the four begins. */
template <bool ALONG> __device__ __forceinline__ int byte_of(four_at f)
{
    if (ALONG) return f.line * 64 + ((f.k / 8 ^ (f.line >> 1 & 3)) << 4) + (f.k & 4) * 2;
    return f.line / 64 * PANEL + (int)unit_at(f.k, f.line % 64 / 8) + (f.line & 4) * 2;
}

template <int LINES, int ALL, bool ALONG>
__device__ __forceinline__ void put(uint8_t *to, int part_bytes, const float4 (&x)[fours<LINES, ALL>])
{
#pragma unroll
    for (int s = 0; s < fours<LINES, ALL>; s++) {
        const int at = byte_of<ALONG>(four_of<LINES, ALONG>((int)threadIdx.x + ALL * s));
        float4 v = x[s];
#pragma unroll
        for (int part = 0; part < PARTS; part++) {
            const uint32_t low = cut(v.x, v.y), high = cut(v.z, v.w);
            *(uint2 *)(to + part * part_bytes + at) = make_uint2(low, high);
        }
    }
}

/* ---- products ----------------------------------------------------------------------------------- */

/* Lines [first, first + 16) and k [16 j, 16 j + 16) of a part, as two times two blocks of 8 x 8: the lines
 * fastest, as an `a` has them, or k, as two `b` side by side. */
template <bool ALONG, bool LINES_FIRST>
__device__ __forceinline__ void blocks(uint32_t (&r)[4], uint32_t part, int first, int j)
{
    const int lane = (int)threadIdx.x % 32, one = lane >> 3 & 1, two = lane >> 4;
    const int line = first + 8 * (LINES_FIRST ? one : two), k = 16 * j + 8 * (LINES_FIRST ? two : one);
    if (ALONG) {
        const int row = line + (lane & 7);
        matrices_load(r, part + (uint32_t)(row * 64 + ((k / 8 ^ (row >> 1 & 3)) << 4)));
    } else
        matrices_load_trans(r, part + (uint32_t)(line / 64 * PANEL) + unit_at(k + (lane & 7), line % 64 / 8));
}

/* mma of cuda_mma.cuh from zero on. */
__device__ __forceinline__ void mma_first(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %10, %10, %10};"
                 : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(0.0f));
}

/* sum += 16 k of a warp's 32 x 32. */
template <bool A_ALONG, bool B_ALONG>
__device__ __forceinline__ void multiply(float (&sum)[2][4][4], uint32_t A, int a_part, int row, uint32_t B,
                                         int b_part, int column, int j)
{
    uint32_t a[2][PARTS][4];
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
        for (int part = 0; part < PARTS; part++)
            blocks<A_ALONG, true>(a[i][part], A + (uint32_t)(part * a_part), row + 16 * i, j);
#pragma unroll
    for (int pair = 0; pair < 2; pair++) {
        uint32_t b[PARTS][4];
        float d[2][2][4];
#pragma unroll
        for (int part = 0; part < PARTS; part++)
            blocks<B_ALONG, false>(b[part], B + (uint32_t)(part * b_part), column + 16 * pair, j);
#pragma unroll
        for (int k = 0; k < PRODUCTS; k++)
#pragma unroll
            for (int i = 0; i < 2; i++)
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    const uint32_t b0 = b[second_part(k)][2 * h], b1 = b[second_part(k)][2 * h + 1];
                    if (k == 0) mma_first(d[i][h], a[i][first_part(k)], b0, b1);
                    else mma(d[i][h], a[i][first_part(k)], b0, b1);
                }
#pragma unroll
        for (int i = 0; i < 2; i++)
#pragma unroll
            for (int h = 0; h < 2; h++)
#pragma unroll
                for (int e = 0; e < 4; e++) sum[i][2 * pair + h][e] += d[i][h][e];
    }
}

/* Results (r, c) and (r, c + 1); of a symmetric product those on and below the diagonal, here and there. */
__device__ __forceinline__ void store(const product &p, float *C, const float *D, int r, int c, float x,
                                      float y)
{
    if (r >= p.m || c >= p.n || (p.sym && c > r)) return;
    float2 v = make_float2(p.alpha * x, p.alpha * y);
    if (D) {
        const float2 d = *(const float2 *)(D + r * p.ldd + c);
        v.x = fmaf(p.beta, d.x, v.x), v.y = fmaf(p.beta, d.y, v.y);
    }
    if (!p.sym || c < r) *(float2 *)(C + r * p.ldc + c) = v; /* c and r are even or c + 1 is r: all below */
    else C[r * p.ldc + c] = v.x;
    if (!p.sym) return;
    if (c < r) C[c * p.ldc + r] = v.x;
    if (c + 1 < r) C[(c + 1) * p.ldc + r] = v.y;
}

template <int W, bool A_ALONG, bool B_ALONG>
static __global__ void __launch_bounds__(64 * W, W == 2 ? 3 : 2) parts_kernel(const product p)
{
    using S = shape<W>;
    extern __shared__ __align__(128) uint8_t memory[];
    const int row0 = (int)blockIdx.x / p.n_tiles * S::ROWS, column0 = (int)blockIdx.x % p.n_tiles * COLS;
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, row = warp / 2 * 32,
              column = warp % 2 * 32;
    const int64_t b = blockIdx.y;
    float4 next_a[fours<S::ROWS, S::ALL>], next_b[fours<COLS, S::ALL>];
    float sum[2][4][4] = {};
    begin_early();
    if (p.sym && row0 + S::ROWS <= column0) return;
    stream from_a = stream_of<S::ROWS, S::ALL, A_ALONG>(p.A + b * p.bsa, p.lda, row0, p.m, p.k),
           from_b = stream_of<COLS, S::ALL, B_ALONG>(p.B + b * p.bsb, p.ldb, column0, p.n, p.k);
    fetch<S::ROWS, S::ALL, A_ALONG>(next_a, from_a);
    fetch<COLS, S::ALL, B_ALONG>(next_b, from_b);
    for (int k0 = 0, side = 0; k0 < p.k; k0 += DEPTH, side ^= 1) {
        uint8_t *here = memory + side * S::BUFFER;
        const uint32_t at = (uint32_t)__cvta_generic_to_shared(here);
        put<S::ROWS, S::ALL, A_ALONG>(here, S::A_PART, next_a);
        put<COLS, S::ALL, B_ALONG>(here + PARTS * S::A_PART, S::B_PART, next_b);
        __syncthreads(); /* and all are done with the other side */
        if (k0 + DEPTH < p.k) {
            fetch<S::ROWS, S::ALL, A_ALONG>(next_a, from_a);
            fetch<COLS, S::ALL, B_ALONG>(next_b, from_b);
        }
#pragma unroll 1
        for (int j = 0; j < DEPTH / 16; j++)
            multiply<A_ALONG, B_ALONG>(sum, at, S::A_PART, row, at + PARTS * S::A_PART, S::B_PART, column, j);
    }
    float *C = p.C + b * p.bsc;
    const float *D = p.D ? p.D + b * p.bsd : NULL;
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
        for (int h = 0; h < 2; h++)
#pragma unroll
            for (int c = 0; c < 4; c++)
                store(p, C, D, row0 + row + 16 * i + 8 * h + lane / 4,
                      column0 + column + 8 * c + 2 * (lane % 4), sum[i][c][2 * h], sum[i][c][2 * h + 1]);
}

/* ---- host --------------------------------------------------------------------------------------- */

#define LEAST_WORK (1ll << 21) /* multiplications of a matrix: below it few tiles are whole */
#define LEAST_SIDE 64
#define MOST_SIDE  (1ll << 20) /* so that an int counts tiles */

static bool aligned(const pl_mat &m, int64_t unit)
{
    return !m.data || ((uintptr_t)m.data % (size_t)(4 * unit) == 0 && m.cols % unit == 0 &&
                       m.rs % unit == 0 && (m.batch <= 1 || m.bs % unit == 0));
}

int pl_cuda_parts_suits(const pl_args_gemm *a)
{
    const pl_mat *all[] = {&a->C, &a->A, &a->B, &a->D};
    const int64_t m = a->C.rows, n = a->C.cols, k = a->ta ? a->A.rows : a->A.cols;
    for (int i = 0; i < 4; i++)
        if (all[i]->data && all[i]->dtype != POLAR_DTYPE_F32) return 0;
    if (a->tf32 || (a->ta && a->tb)) return 0;
    if (m < LEAST_SIDE || n < LEAST_SIDE || k < LEAST_SIDE || m * n * k < LEAST_WORK) return 0;
    if (m > MOST_SIDE || n > MOST_SIDE || k > MOST_SIDE) return 0;
    return aligned(a->A, 4) && aligned(a->B, 4) && aligned(a->C, 2) && aligned(a->D, 2);
}

static int64_t tiles_of(const pl_args_gemm *a, int rows)
{
    return (a->C.rows + rows - 1) / rows * ((a->C.cols + COLS - 1) / COLS);
}

template <int W, bool A_ALONG, bool B_ALONG>
static cudaError_t launch(cudaStream_t stream, const pl_args_gemm *a, const product &p)
{
    const dim3 grid((unsigned)tiles_of(a, shape<W>::ROWS), (unsigned)a->C.batch);
    cudaError_t st = allow_all_shared((const void *)parts_kernel<W, A_ALONG, B_ALONG>);
    if (st != cudaSuccess) return st;
    start_early(parts_kernel<W, A_ALONG, B_ALONG>, grid, dim3(shape<W>::ALL), shape<W>::BYTES, stream, p);
    return cudaGetLastError();
}

template <int W>
static cudaError_t launch_by_layout(cudaStream_t stream, const pl_args_gemm *a, const product &p)
{
    if (a->ta) return launch<W, false, false>(stream, a, p);
    return a->tb ? launch<W, true, true>(stream, a, p) : launch<W, true, false>(stream, a, p);
}

/* From matrix to matrix; one may serve all. */
static int64_t stride_of(const pl_mat &m)
{
    return m.batch > 1 ? m.bs : 0;
}

cudaError_t pl_cuda_parts(cudaStream_t stream, const pl_args_gemm *a)
{
    int device = 0, processors = 1;
    cudaError_t st = cudaGetDevice(&device);
    if (st == cudaSuccess) st = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
    if (st != cudaSuccess) return st;
    product p = {};
    p.A = (const float *)a->A.data, p.B = (const float *)a->B.data, p.D = (const float *)a->D.data;
    p.C = (float *)a->C.data;
    p.lda = a->A.rs, p.ldb = a->B.rs, p.ldc = a->C.rs, p.ldd = a->D.rs;
    p.bsa = stride_of(a->A), p.bsb = stride_of(a->B), p.bsc = stride_of(a->C), p.bsd = stride_of(a->D);
    p.m = (int)a->C.rows, p.n = (int)a->C.cols, p.k = (int)(a->ta ? a->A.rows : a->A.cols);
    p.n_tiles = (int)((a->C.cols + COLS - 1) / COLS), p.sym = a->sym != 0;
    p.alpha = (float)a->alpha, p.beta = (float)a->beta;
    /* tiles of 128 rows read less; of 64 rows they are shared out more evenly */
    const int64_t few = (tiles_of(a, 128) * a->C.batch + processors - 1) / processors,
                  many = (tiles_of(a, 64) * a->C.batch + processors - 1) / processors;
    return 2 * few <= many ? launch_by_layout<4>(stream, a, p) : launch_by_layout<2>(stream, a, p);
}
