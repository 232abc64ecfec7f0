/* cuda_hopper_attention.cu -- O = softmax(q k^T / sqrt(d)) v of every image and head, and lse
 * (cuda_attention.h).
 *
 * A block is one warpgroup; the scores of 64 queries and a segment of keys are its sums, P their powers in
 * the same registers, rounded to bf16 as the factor of v. Keys and values of a segment stand in shared
 * memory, the next 64 queries are fetched while these are worked on. Over more than one segment the largest
 * score so far is subtracted and sums made with a smaller one are scaled down.
 */
#include "cuda_attention.cuh"

typedef struct {
    CUtensorMap QKV_tile, QKV_segment;
    __nv_bfloat16 *O;
    float *lse;
    int64_t o_rs, o_bs, lse_rs, lse_bs;
    int tokens, heads, d, tiles, segments, whole; /* whole: a block has all tiles */
    float scale, scale2;                          /* 1 / sqrt(d), and that times log2 e */
} forward_params;

template <int R> struct forward_size {
    static constexpr int SEGMENT = R * ROW, QUERIES = TILE * ROW;
    static constexpr int BYTES = 1024 + 2 * SEGMENT + 2 * QUERIES + 3 * 8;
};

template <int R>
__global__ void __launch_bounds__(128, 3) attention_kernel(const __grid_constant__ forward_params p)
{
    using Z = forward_size<R>;
    extern __shared__ uint8_t memory[];
    const uint32_t keys = (pl_smem(memory) + 1023) & ~1023u, values = keys + Z::SEGMENT,
                   queries = values + Z::SEGMENT;
    const uint32_t segment_here = queries + 2 * Z::QUERIES, queries_here = segment_here + 8;
    const int image = (int)blockIdx.x / p.heads, head = (int)blockIdx.x % p.heads,
              lane = (int)threadIdx.x % 32;
    const int from = p.whole ? 0 : (int)blockIdx.y, to = p.whole ? p.tiles : from + 1;
    uint32_t loads = 0;
    if (threadIdx.x == 0) {
        pl_mbar_init(segment_here, 1);
        pl_mbar_init(queries_here, 1);
        pl_mbar_init(queries_here + 8, 1);
        pl_mbar_init_done();
    }
    __syncthreads();
    pl_kernel_begin();
    if (threadIdx.x == 0) {
        pl_mbar_expect(queries_here, Z::QUERIES);
        load_rows(queries, &p.QKV_tile, queries_here, head, from * TILE, image);
    }
    for (int tile = from; tile < to; tile++) {
        const int side = (tile - from) % 2;
        float O[32], m[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0};
        __syncthreads(); /* nobody works on the tile before any more */
        if (threadIdx.x == 0 && tile + 1 < to) {
            pl_mbar_expect(queries_here + 8 * (side ^ 1), Z::QUERIES);
            load_rows(queries + (side ^ 1) * Z::QUERIES, &p.QKV_tile, queries_here + 8 * (side ^ 1), head,
                      (tile + 1) * TILE, image);
        }
#pragma unroll
        for (int i = 0; i < 32; i++) O[i] = 0;
        for (int s = 0; s < p.segments; s++) {
            if (s || tile == from || p.segments > 1) {
                if (s) __syncthreads();
                if (threadIdx.x == 0) {
                    pl_mbar_expect(segment_here, 2 * Z::SEGMENT);
                    load_rows(keys, &p.QKV_segment, segment_here, p.heads + head, s * R, image);
                    load_rows(values, &p.QKV_segment, segment_here, 2 * p.heads + head, s * R, image);
                }
                pl_mbar_wait(segment_here, loads++ & 1);
            }
            if (s == 0) pl_mbar_wait(queries_here + 8 * side, (uint32_t)((tile - from) / 2 & 1));
            float S[R / 2];
            const uint64_t q = pl_wgmma_desc(queries + (uint32_t)(side * Z::QUERIES)),
                           k = pl_wgmma_desc(keys);
            pl_wgmma_fence();
#pragma unroll
            for (int i = 0; i < 4; i++) pl_wgmma<R>::template product<0, 0>(S, q + 2 * i, k + 2 * i, i != 0);
            pl_wgmma_commit();
            pl_wgmma_wait<0>();
            weigh<R>(S, O, m, sum, p.tokens - s * R, p.scale2, s == 0);
            uint32_t P[R / 16][4];
#pragma unroll
            for (int i = 0; i < R / 16; i++)
#pragma unroll
                for (int w = 0; w < 4; w++) P[i][w] = pl_pack(S[8 * i + 2 * w], S[8 * i + 2 * w + 1]);
            pl_wgmma_fence();
#pragma unroll
            for (int i = 0; i < R / 16; i++)
                pl_wgmma<64>::template mixed<1>(O, P[i], pl_wgmma_desc(values + (uint32_t)i * 2048, 0), 1);
            pl_wgmma_commit();
            pl_wgmma_wait<0>();
        }
        sum[0] = quad_sum(sum[0]), sum[1] = quad_sum(sum[1]);
        store_tile(p.O + image * p.o_bs + head * p.d, p.o_rs, tile * TILE, p.tokens, p.d, O, 1 / sum[0],
                   1 / sum[1]);
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int r = tile * TILE + 16 * ((int)threadIdx.x / 32) + lane / 4 + 8 * h;
            if (p.lse && lane % 4 == 0 && r < p.tokens)
                p.lse[image * p.lse_bs + head * p.lse_rs + r] = fmaf(p.scale, m[h], logf(sum[h]));
        }
    }
}

/* ---- host ------------------------------------------------------------------------------------------ */

int pl_hopper_attention_suits(const pl_args_attention *a)
{
    if (a->lse.data && a->lse.dtype != POLAR_DTYPE_F32) return 0;
    return suits_heads(a->QKV, 3 * a->heads) && suits_heads(a->O, a->heads) &&
           a->QKV.batch * a->heads < INT32_MAX / 2;
}

template <int R>
static cudaError_t launch(const pl_hopper_device *dev, cudaStream_t stream, const pl_args_attention *a)
{
    forward_params p = {};
    p.O = (__nv_bfloat16 *)a->O.data, p.lse = (float *)a->lse.data;
    p.o_rs = a->O.rs, p.o_bs = a->O.bs, p.lse_rs = a->lse.rs, p.lse_bs = a->lse.bs;
    p.tokens = (int)a->QKV.rows, p.heads = (int)a->heads, p.d = (int)(a->O.cols / a->heads);
    p.tiles = (p.tokens + TILE - 1) / TILE, p.segments = (p.tokens + R - 1) / R, p.whole = p.segments == 1;
    p.scale = 1 / sqrtf((float)p.d), p.scale2 = p.scale * LOG2E;
    if (!map_heads(&p.QKV_tile, dev, a->QKV, 3 * a->heads, TILE) ||
        !map_heads(&p.QKV_segment, dev, a->QKV, 3 * a->heads, R))
        return cudaErrorInvalidValue;
    dim3 grid((unsigned)(a->QKV.batch * a->heads), p.whole ? 1 : (unsigned)p.tiles);
    return launch_early(attention_kernel<R>, grid, dim3(128), forward_size<R>::BYTES, stream, p);
}

cudaError_t pl_hopper_attention(const pl_hopper_device *dev, cudaStream_t stream, const pl_args_attention *a)
{
    const int64_t n = a->QKV.rows;
    if (n <= PL_ATTENTION_SHORT) return pl_hopper_attention_short(dev, stream, a);
    return n <= 144 ? launch<144>(dev, stream, a) : launch<MOST>(dev, stream, a);
}
