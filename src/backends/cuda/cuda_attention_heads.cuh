/* cuda_attention_heads.cuh -- attention and its gradient where a head's arrays fit into shared memory whole:
 * what their kernels share.
 *
 * A warp has strips of 16 rows (cuda_mma.cuh). A head's bits depend on its own numbers alone: who works on
 * it, and when, does not matter.
 *
 * The gradient, by strips of 16 keys: S^T and dP^T = v dO^T are a warp's sums, P^T and dS^T in the same
 * registers, rounded to bf16, its factors of dO and q: dV and dK. dS^T goes to shared memory, and after a
 * barrier comes back transposed as the factor of k for the warp's 16 queries: dQ. So every product is made
 * once, and no sum crosses warps.
 */
#ifndef PL_CUDA_ATTENTION_HEADS_CUH
#define PL_CUDA_ATTENTION_HEADS_CUH

#include "cuda_attention.cuh"
#include "cuda_mma.cuh"

/* Where this lane points ldmatrix in a strip of 16 rows for units u and u + 1 (u even): the factor a, or b
 * where the strip's rows are summed over. */
__device__ __forceinline__ uint32_t strip_at(int u)
{
    const uint32_t lane = threadIdx.x % 32;
    return (lane % 16 * ROW + ((lane / 16 ^ lane % 8) << 4)) ^ (uint32_t)(u << 4);
}

/* In 8 rows for units u to u + 3 (u 0 or 4): the factor b of a product with the rows' transpose. */
__device__ __forceinline__ uint32_t tile_at(int u)
{
    const uint32_t lane = threadIdx.x % 32;
    return (lane % 8 * ROW + ((lane / 8 ^ lane % 8) << 4)) ^ (uint32_t)(u << 4);
}

/* S = A B^T over the 64 channels: A a strip, B 8 TILES rows. */
template <int TILES>
__device__ __forceinline__ void strip_scores(float (&S)[4 * TILES], uint32_t a, uint32_t b)
{
#pragma unroll
    for (int i = 0; i < 4 * TILES; i++) S[i] = 0;
#pragma unroll
    for (int u = 0; u < 8; u += 4) {
        uint32_t f[2][4];
        matrices_load(f[0], a + strip_at(u));
        matrices_load(f[1], a + strip_at(u + 2));
#pragma unroll
        for (int j = 0; j < TILES; j++) {
            uint32_t g[4];
            matrices_load(g, b + tile_at(u) + (uint32_t)(8 * j * ROW));
            mma(S + 4 * j, f[0], g[0], g[1]);
            mma(S + 4 * j, f[1], g[2], g[3]);
        }
    }
}

/* x += f B, B a strip of 64 channels. */
__device__ __forceinline__ void strip_times(float (&x)[32], const uint32_t (&f)[4], uint32_t b)
{
#pragma unroll
    for (int u = 0; u < 8; u += 2) {
        uint32_t g[4];
        matrices_load_trans(g, b + strip_at(u));
        mma(x + 4 * u, f, g[0], g[1]);
        mma(x + 4 * u + 4, f, g[2], g[3]);
    }
}

/* ---- the gradient ---------------------------------------------------------------------------------- */

typedef struct {
    CUtensorMap QKV, O, dO;
    __nv_bfloat16 *dQKV;
    const float *lse;
    int64_t g_rs, g_bs, lse_rs, lse_bs;
    int tokens, heads, d, all; /* all: heads of all images */
    float scale, scale2;       /* 1 / sqrt(d), and that times log2 e */
} head_back_params;

/* What a head of up to R tokens has in shared memory: q first; lse log2 e and behind it D; two barriers last.
 */
template <int R> struct head_back {
    static constexpr int ARRAY = R * ROW;
    static constexpr int STRIDE = 2 * R + 16; /* of dS: 8 rows are in 8 different units of 128 bytes */
    static constexpr int K = ARRAY, V = 2 * ARRAY, DO = 3 * ARRAY, O = 4 * ARRAY, DS = 5 * ARRAY;
    static constexpr int LSE = DS + R * STRIDE, HERE = LSE + 8 * R, BYTES = 1024 + HERE + 16;
    static_assert(R % 16 == 0 && BYTES <= SMEM_LIMIT);
};

/* Of query `row`, times log2 e; infinite beyond the last, so that weights are zero. */
__device__ __forceinline__ float lse_of(const head_back_params &p, int which, uint32_t row)
{
    const int image = which / p.heads, head = which % p.heads;
    return which < p.all && row < (uint32_t)p.tokens ? p.lse[image * p.lse_bs + head * p.lse_rs + row] * LOG2E
                                                     : INFINITY;
}

/* All bits where the lane's row of a strip that begins at `row`, a key, is there: a missing one adds to no
 * dQ. */
__device__ __forceinline__ uint32_t is_there(int row, int tokens)
{
    return row + (int)threadIdx.x % 32 / 4 < tokens ? ~0u : 0;
}

/* D of all queries, by THREADS threads, eight lanes a row. */
template <int R, int THREADS>
__device__ __forceinline__ void head_sums(float *D, uint32_t base, uint32_t thread)
{
    using Z = head_back<R>;
    static_assert(THREADS >= R);
#pragma unroll
    for (int i = 0; i < R; i += THREADS / 8) {
        const int row = i + (int)thread / 8;
        if (R % (THREADS / 8) && row >= R) break; /* of a whole warp: 4 rows */
        const uint32_t at = unit_at(row, (int)thread % 8);
        const float sum =
            sum_of_eight(products_of_unit(pl_lds16(base + Z::O + at), pl_lds16(base + Z::DO + at)));
        if (thread % 8 == 0) D[row] = sum;
    }
}

/* Where a lane of the warp with strip `own` points in dS: at its own keys, as they are, and at its own
 * queries, transposed. */
template <int R> __device__ __forceinline__ uint32_t dS_kept(uint32_t base, uint32_t own)
{
    const uint32_t lane = threadIdx.x % 32;
    return base + head_back<R>::DS + (16 * own + lane % 16) * head_back<R>::STRIDE + lane / 16 * 16;
}

template <int R> __device__ __forceinline__ uint32_t dS_turned(uint32_t base, uint32_t own)
{
    const uint32_t lane = threadIdx.x % 32;
    return base + head_back<R>::DS + (lane % 8 + lane / 16 * 8) * head_back<R>::STRIDE +
           (2 * own + lane / 8 % 2) * 16;
}

/* ---- host ------------------------------------------------------------------------------------------ */

static inline int head_back_params_of(head_back_params *p, const pl_hopper_device *dev,
                                      const pl_args_attention_back *a, int rows)
{
    p->dQKV = (__nv_bfloat16 *)a->dQKV.data, p->lse = (const float *)a->lse.data;
    p->g_rs = a->dQKV.rs, p->g_bs = a->dQKV.bs, p->lse_rs = a->lse.rs, p->lse_bs = a->lse.bs;
    p->tokens = (int)a->QKV.rows, p->heads = (int)a->heads, p->d = (int)(a->O.cols / a->heads);
    p->all = (int)(a->QKV.batch * a->heads);
    p->scale = 1 / sqrtf((float)p->d), p->scale2 = p->scale * LOG2E;
    return map_heads(&p->QKV, dev, a->QKV, 3 * a->heads, rows) &&
           map_heads(&p->O, dev, a->O, a->heads, rows) && map_heads(&p->dO, dev, a->dO, a->heads, rows);
}

/* Blocks for so many heads, one a multiprocessor at a time. */
static inline dim3 heads_grid(const pl_hopper_device *dev, int64_t heads)
{
    return dim3((unsigned)(heads < dev->multiprocessors ? heads : dev->multiprocessors));
}

#endif
