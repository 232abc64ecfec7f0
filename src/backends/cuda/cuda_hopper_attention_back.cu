/* cuda_hopper_attention_back.cu -- attention's gradient (cuda_attention.h): scores and weights are made again
 * from lse, in registers. Here for heads of more tokens than fit into shared memory.
 *
 *     D = rowsum(dO O)          P = e^(S - lse)               dS = P (dO v^T - D)
 *     dV = P^T dO               dQ = dS k / sqrt(d)           dK = dS^T q / sqrt(d)
 *
 * By rows: 64 queries against all keys give dQ. By columns: 64 keys against all queries, everything
 * transposed, give dK and dV. So S and dO v^T are made twice, and nothing is added across warps: P and dS
 * pass from the sums of one product to the factor of the next in a warpgroup's own registers, and the order
 * of every sum is fixed.
 */
#include "cuda_attention.cuh"

typedef struct {
    CUtensorMap QKV_tile, QKV_segment, dO_tile, dO_segment;
    __nv_bfloat16 *dQKV;
    const __nv_bfloat16 *O, *dO;
    const float *lse;
    int64_t g_rs, g_bs, o_rs, o_bs, do_rs, do_bs, lse_rs, lse_bs;
    int tokens, heads, d, segments;
    float scale, scale2; /* 1 / sqrt(d), and that times log2 e */
} backward_params;

#define BLOCKS 3  /* on a multiprocessor at a time */
#define CHUNK  64 /* keys or queries of a product */

template <int R> struct backward_size {
    static constexpr int ARRAY = R * ROW, OWN = TILE * ROW, STAT = 4 * TILE * 8;
    static constexpr int BYTES = 1024 + 2 * ARRAY + 2 * OWN + STAT + 16;
    static_assert(R % CHUNK % 16 == 0 && R <= 4 * TILE);
};

/* Statistics of queries [first, first + count): pairs (lse log2 e, D); beyond the last token weights of zero
 * come of them. Eight lanes a row. */
__device__ __forceinline__ void row_statistics(float2 *to, const backward_params &p, int image, int head,
                                               int first, int count)
{
    const int part = (int)threadIdx.x % 8;
    for (int r = (int)threadIdx.x / 8; r < count; r += (int)blockDim.x / 8) {
        const int row = first + r;
        float sum = 0;
        if (row < p.tokens && 8 * part < p.d) {
            const uint4 o =
                *reinterpret_cast<const uint4 *>(p.O + image * p.o_bs + row * p.o_rs + head * p.d + 8 * part);
            const uint4 g = *reinterpret_cast<const uint4 *>(p.dO + image * p.do_bs + row * p.do_rs +
                                                             head * p.d + 8 * part);
            sum = products_of_unit(o, g);
        }
        sum = sum_of_eight(sum);
        if (part == 0)
            to[r] = make_float2(
                row < p.tokens ? p.lse[image * p.lse_bs + head * p.lse_rs + row] * LOG2E : INFINITY, sum);
    }
}

/* S = A B^T and G = C E^T over the 64 channels, S first: each a group of its own. */
template <int N>
__device__ __forceinline__ void two_products(float (&S)[N / 2], float (&G)[N / 2], uint32_t a, uint32_t b,
                                             uint32_t c, uint32_t e)
{
    pl_wgmma_fence();
#pragma unroll
    for (int i = 0; i < 4; i++)
        pl_wgmma<N>::template product<0, 0>(S, pl_wgmma_desc(a) + 2 * i, pl_wgmma_desc(b) + 2 * i, i != 0);
    pl_wgmma_commit();
#pragma unroll
    for (int i = 0; i < 4; i++)
        pl_wgmma<N>::template product<0, 0>(G, pl_wgmma_desc(c) + 2 * i, pl_wgmma_desc(e) + 2 * i, i != 0);
    pl_wgmma_commit();
}

/* sums += F X, F of N columns rounded to bf16, X the N rows at x. */
template <int N>
__device__ __forceinline__ void times_rows(float (&sums)[32], const uint32_t (&F)[N / 16][4], uint32_t x)
{
    pl_wgmma_fence();
#pragma unroll
    for (int i = 0; i < N / 16; i++)
        pl_wgmma<64>::template mixed<1>(sums, F[i], pl_wgmma_desc(x + (uint32_t)i * 2048, 0), 1);
    pl_wgmma_commit();
}

/* dQ of 64 queries from N keys, of which `valid` are there. stat: of rows g and g + 8. */
template <int N>
__device__ __forceinline__ void by_rows(float (&dQ)[32], uint32_t q, uint32_t g, uint32_t k, uint32_t v,
                                        const float2 (&stat)[2], float scale2, int valid)
{
    float S[N / 2], G[N / 2];
    uint32_t F[N / 16][4];
    const int t = (int)threadIdx.x % 4;
    two_products<N>(S, G, q, k, g, v);
    pl_wgmma_wait<1>();
#pragma unroll
    for (int i = 0; i < N / 2; i++) S[i] = power2(fmaf(S[i], scale2, -stat[i / 2 % 2].x));
    if (valid < N) {
#pragma unroll
        for (int i = 0; i < N / 2; i++)
            if (8 * (i / 4) + 2 * t + i % 2 >= valid) S[i] = 0;
    }
    pl_wgmma_wait<0>();
#pragma unroll
    for (int i = 0; i < N / 16; i++)
#pragma unroll
        for (int w = 0; w < 4; w++) {
            const int at = 8 * i + 2 * w;
            const float d = stat[w % 2].y;
            F[i][w] = pl_pack(S[at] * (G[at] - d), S[at + 1] * (G[at + 1] - d));
        }
    times_rows<N>(dQ, F, k);
    pl_wgmma_wait<0>();
}

/* dK and dV of 64 keys from N queries, whose statistics are stat. */
template <int N>
__device__ __forceinline__ void by_columns(float (&dK)[32], float (&dV)[32], uint32_t k, uint32_t v,
                                           uint32_t q, uint32_t g, const float2 *stat, float scale2)
{
    float S[N / 2], G[N / 2];
    uint32_t F[N / 16][4], E[N / 16][4];
    const float4 *pairs = reinterpret_cast<const float4 *>(stat) +
                          threadIdx.x % 4; /* of columns 2 t and 2 t + 1: lse, D, lse, D */
    two_products<N>(S, G, k, q, v, g);
    pl_wgmma_wait<1>();
#pragma unroll
    for (int j = 0; j < N / 8; j++) {
        const float4 x = pairs[4 * j];
#pragma unroll
        for (int h = 0; h < 2; h++) {
            S[4 * j + 2 * h] = power2(fmaf(S[4 * j + 2 * h], scale2, -x.x));
            S[4 * j + 2 * h + 1] = power2(fmaf(S[4 * j + 2 * h + 1], scale2, -x.z));
        }
    }
    pl_wgmma_wait<0>();
#pragma unroll
    for (int j = 0; j < N / 8; j++) {
        const float4 x = pairs[4 * j];
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const float p0 = S[4 * j + 2 * h], p1 = S[4 * j + 2 * h + 1];
            F[j / 2][j % 2 * 2 + h] = pl_pack(p0, p1);
            E[j / 2][j % 2 * 2 + h] =
                pl_pack(p0 * (G[4 * j + 2 * h] - x.y), p1 * (G[4 * j + 2 * h + 1] - x.w));
        }
    }
    times_rows<N>(dV, F, g);
    times_rows<N>(dK, E, q);
    pl_wgmma_wait<0>();
}

template <int R>
__device__ __forceinline__ void rows_of_segment(float (&dQ)[32], uint32_t q, uint32_t g, uint32_t k,
                                                uint32_t v, const float2 (&stat)[2], float scale2, int valid)
{
    constexpr int WHOLE = R / CHUNK * CHUNK, REST = R - WHOLE;
#pragma unroll 1
    for (int c = 0; c < WHOLE && c < valid; c += CHUNK)
        by_rows<CHUNK>(dQ, q, g, k + (uint32_t)(c * ROW), v + (uint32_t)(c * ROW), stat, scale2, valid - c);
    if constexpr (REST > 0)
        if (valid > WHOLE)
            by_rows<REST>(dQ, q, g, k + WHOLE * ROW, v + WHOLE * ROW, stat, scale2, valid - WHOLE);
}

template <int R>
__device__ __forceinline__ void columns_of_segment(float (&dK)[32], float (&dV)[32], uint32_t k, uint32_t v,
                                                   uint32_t q, uint32_t g, const float2 *stat, float scale2,
                                                   int valid)
{
    constexpr int WHOLE = R / CHUNK * CHUNK, REST = R - WHOLE;
#pragma unroll 1
    for (int c = 0; c < WHOLE && c < valid; c += CHUNK)
        by_columns<CHUNK>(dK, dV, k, v, q + (uint32_t)(c * ROW), g + (uint32_t)(c * ROW), stat + c, scale2);
    if constexpr (REST > 0)
        if (valid > WHOLE)
            by_columns<REST>(dK, dV, k, v, q + WHOLE * ROW, g + WHOLE * ROW, stat + WHOLE, scale2);
}

/* Statistics of the thread's rows g and g + 8 of a tile. */
__device__ __forceinline__ void own_statistics(float2 (&out)[2], const float2 *tile)
{
    const int row = 16 * ((int)threadIdx.x / 32 % 4) + (int)threadIdx.x % 32 / 4;
    out[0] = tile[row], out[1] = tile[row + 8];
}

/* Two arrays of a segment stand in shared memory, q and dO against tiles of keys (blockIdx.z 0) or k and v
 * against tiles of queries (1), and beside them a tile of 64 rows of the other two. */
template <int R>
__global__ void __launch_bounds__(128, BLOCKS)
    attention_back_kernel(const __grid_constant__ backward_params p)
{
    using Z = backward_size<R>;
    extern __shared__ uint8_t memory[];
    const uint32_t a = (pl_smem(memory) + 1023) & ~1023u, b = a + Z::ARRAY, own_a = b + Z::ARRAY,
                   own_b = own_a + Z::OWN, segment_here = own_b + Z::OWN + Z::STAT,
                   own_here = segment_here + 8;
    float2 *stat = reinterpret_cast<float2 *>(memory + (own_b + Z::OWN - pl_smem(memory)));
    const int image = (int)blockIdx.x / p.heads, head = (int)blockIdx.x % p.heads;
    const bool columns = blockIdx.z == 0;
    const int row = (int)blockIdx.y * TILE;
    __nv_bfloat16 *out = p.dQKV + image * p.g_bs + head * p.d;
    if (threadIdx.x == 0) {
        pl_mbar_init(segment_here, 1);
        pl_mbar_init(own_here, 1);
        pl_mbar_init_done();
    }
    __syncthreads();
    pl_kernel_begin();
    if (threadIdx.x == 0) {
        pl_mbar_expect(own_here, 2 * Z::OWN);
        load_rows(own_a, &p.QKV_tile, own_here, columns ? p.heads + head : head, row, image);
        if (columns) load_rows(own_b, &p.QKV_tile, own_here, 2 * p.heads + head, row, image);
        else load_rows(own_b, &p.dO_tile, own_here, head, row, image);
    }
    if (!columns) row_statistics(stat, p, image, head, row, TILE);
    float x[32], y[32];
    clear(x), clear(y);
    for (int s = 0; s < p.segments; s++) {
        const int valid = p.tokens - s * R;
        if (s) __syncthreads(); /* nobody works on the segment before any more */
        if (threadIdx.x == 0) {
            pl_mbar_expect(segment_here, 2 * Z::ARRAY);
            load_rows(a, &p.QKV_segment, segment_here, columns ? head : p.heads + head, s * R, image);
            if (columns) load_rows(b, &p.dO_segment, segment_here, head, s * R, image);
            else load_rows(b, &p.QKV_segment, segment_here, 2 * p.heads + head, s * R, image);
        }
        if (columns) row_statistics(stat, p, image, head, s * R, R);
        __syncthreads();
        pl_mbar_wait(segment_here, (uint32_t)s & 1);
        if (s == 0) pl_mbar_wait(own_here, 0);
        if (columns) columns_of_segment<R>(x, y, own_a, own_b, a, b, stat, p.scale2, valid);
        else {
            float2 own[2];
            own_statistics(own, stat);
            rows_of_segment<R>(x, own_a, own_b, a, b, own, p.scale2, valid);
        }
    }
    const int64_t part = (int64_t)p.heads * p.d;
    store_tile(columns ? out + part : out, p.g_rs, row, p.tokens, p.d, x, p.scale, p.scale);
    if (columns) store_tile(out + 2 * part, p.g_rs, row, p.tokens, p.d, y, 1, 1);
}

/* ---- host ------------------------------------------------------------------------------------------ */

int pl_hopper_attention_back_suits(const pl_args_attention_back *a)
{
    const pl_mat *heads[] = {&a->O, &a->dO};
    if (a->lse.dtype != POLAR_DTYPE_F32 || a->QKV.batch * a->heads >= INT32_MAX / 2) return 0;
    for (int i = 0; i < 2; i++)
        if (!suits_heads(*heads[i], a->heads)) return 0;
    return suits_heads(a->QKV, 3 * a->heads) && suits_heads(a->dQKV, 3 * a->heads);
}

template <int R>
static cudaError_t launch(const pl_hopper_device *dev, cudaStream_t stream, const pl_args_attention_back *a)
{
    using Z = backward_size<R>;
    backward_params p = {};
    p.dQKV = (__nv_bfloat16 *)a->dQKV.data, p.lse = (const float *)a->lse.data;
    p.O = (const __nv_bfloat16 *)a->O.data, p.dO = (const __nv_bfloat16 *)a->dO.data;
    p.g_rs = a->dQKV.rs, p.g_bs = a->dQKV.bs, p.o_rs = a->O.rs, p.o_bs = a->O.bs, p.do_rs = a->dO.rs,
    p.do_bs = a->dO.bs;
    p.lse_rs = a->lse.rs, p.lse_bs = a->lse.bs;
    p.tokens = (int)a->QKV.rows, p.heads = (int)a->heads, p.d = (int)(a->O.cols / a->heads);
    p.segments = (p.tokens + R - 1) / R;
    p.scale = 1 / sqrtf((float)p.d), p.scale2 = p.scale * LOG2E;
    if (!map_heads(&p.QKV_tile, dev, a->QKV, 3 * a->heads, TILE) ||
        !map_heads(&p.QKV_segment, dev, a->QKV, 3 * a->heads, R))
        return cudaErrorInvalidValue;
    if (!map_heads(&p.dO_tile, dev, a->dO, a->heads, TILE) ||
        !map_heads(&p.dO_segment, dev, a->dO, a->heads, R))
        return cudaErrorInvalidValue;
    const dim3 grid((unsigned)(a->QKV.batch * a->heads), (unsigned)((p.tokens + TILE - 1) / TILE), 2);
    return launch_early(attention_back_kernel<R>, grid, dim3(128), Z::BYTES, stream, p);
}

cudaError_t pl_hopper_attention_back(const pl_hopper_device *dev, cudaStream_t stream,
                                     const pl_args_attention_back *a)
{
    const int64_t n = a->QKV.rows;
    if (n <= PL_ATTENTION_SHORT) return pl_hopper_attention_short_back(dev, stream, a);
    if (n <= PL_ATTENTION_WHOLE) return pl_hopper_attention_groups_back(dev, stream, a);
    return launch<MOST>(dev, stream, a);
}
