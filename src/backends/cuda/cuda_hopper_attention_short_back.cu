/* cuda_hopper_attention_short_back.cu -- attention's gradient for heads of at most 80 tokens
 * (cuda_attention_heads.cuh); the formulas are cuda_hopper_attention_back.cu's. Tiles of 64 rows would
 * multiply 65 tokens as 128.
 *
 * A block of five warps has a head, a warp a strip of keys, then of queries.
 */
#include "cuda_attention_heads.cuh"

#define KEYS    80
#define THREADS 160

typedef head_back<KEYS> Z;

struct short_head {
    uint32_t base;
    float *lse, *D; /* of all queries; lse times log2 e */
    __nv_bfloat16 *dQ, *dK, *dV;
};

/* Strip `warp` of the keys, then of the queries, by mma.sync. */
template <int TILES>
__device__ __forceinline__ void by_strip(const head_back_params &p, const short_head &at, uint32_t warp)
{
    const uint32_t lane = threadIdx.x % 32, own = 16 * warp * ROW, kept = dS_kept<KEYS>(at.base, warp),
                   turned = dS_turned<KEYS>(at.base, warp);
    const float2 *lse = reinterpret_cast<const float2 *>(at.lse) + lane % 4, /* of columns 2 t, 2 t + 1 */
        *D = reinterpret_cast<const float2 *>(at.D) + lane % 4;
    const int row = 16 * (int)warp;
    const bool busy = row < p.tokens;
    float S[4 * TILES], x[32];
    uint32_t P[KEYS / 16][4], dS[KEYS / 16][4], v[4][4];
    pl_mbar_wait(at.base + Z::HERE, 0);
    if (busy) {
        strip_scores<TILES>(S, at.base + Z::K + own, at.base);
#pragma unroll
        for (int j = 0; j < TILES; j++) {
            const float2 s = lse[4 * j];
#pragma unroll
            for (int i = 0; i < 4; i++)
                S[4 * j + i] = power2(fmaf(S[4 * j + i], p.scale2, i % 2 ? -s.y : -s.x));
        }
    }
    pl_mbar_wait(at.base + Z::HERE + 8, 0);
    head_sums<KEYS, THREADS>(at.D, at.base, 32 * warp + lane);
    __syncthreads();
    if (busy) {
#pragma unroll
        for (int i = 0; i < 4; i++) matrices_load(v[i], at.base + Z::V + own + strip_at(2 * i));
#pragma unroll
        for (int j = 0; j < KEYS / 8; j++) {
            if (j >= TILES) {
                P[j / 2][2] = P[j / 2][3] = dS[j / 2][2] = dS[j / 2][3] = 0;
                continue;
            }
            const float2 s = D[4 * j];
            float G[4] = {0, 0, 0, 0};
#pragma unroll
            for (int u = 0; u < 8; u += 4) {
                uint32_t g[4];
                matrices_load(g, at.base + Z::DO + tile_at(u) + (uint32_t)(8 * j * ROW));
                mma(G, v[u / 2], g[0], g[1]);
                mma(G, v[u / 2 + 1], g[2], g[3]);
            }
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const float p0 = S[4 * j + 2 * h], p1 = S[4 * j + 2 * h + 1];
                P[j / 2][j % 2 * 2 + h] = pl_pack(p0, p1);
                dS[j / 2][j % 2 * 2 + h] = pl_pack(p0 * (G[2 * h] - s.x), p1 * (G[2 * h + 1] - s.y)) &
                                           is_there(row + 8 * h, p.tokens);
            }
        }
    } else {
#pragma unroll
        for (int i = 0; i < KEYS / 16; i++)
#pragma unroll
            for (int w = 0; w < 4; w++) dS[i][w] = 0;
    }
#pragma unroll
    for (int i = 0; i < KEYS / 16; i++) matrices_store(kept + (uint32_t)(32 * i), dS[i]);
    if (busy) {
        clear(x);
#pragma unroll
        for (int i = 0; i < KEYS / 16; i++) strip_times(x, P[i], at.base + Z::DO + (uint32_t)(16 * i * ROW));
        store_strip(at.dV, p.g_rs, row, p.tokens, p.d, x, 1, 1);
        clear(x);
#pragma unroll
        for (int i = 0; i < KEYS / 16; i++) strip_times(x, dS[i], at.base + (uint32_t)(16 * i * ROW));
    }
    __syncthreads(); /* dS is there */
    if (!busy) return;
    store_strip(at.dK, p.g_rs, row, p.tokens, p.d, x, p.scale, p.scale);
    clear(x);
#pragma unroll
    for (int i = 0; i < KEYS / 16; i++) {
        uint32_t f[4];
        matrices_load_trans(f, turned + (uint32_t)(16 * i * Z::STRIDE));
        strip_times(x, f, at.base + Z::K + (uint32_t)(16 * i * ROW));
    }
    store_strip(at.dQ, p.g_rs, row, p.tokens, p.d, x, p.scale, p.scale);
}

template <int TILES>
__global__ void __launch_bounds__(THREADS, 3)
    short_attention_back_kernel(const __grid_constant__ head_back_params p)
{
    extern __shared__ uint8_t memory[];
    const int image = (int)blockIdx.x / p.heads, head = (int)blockIdx.x % p.heads;
    short_head at;
    at.base = (pl_smem(memory) + 1023) & ~1023u;
    at.lse = reinterpret_cast<float *>(memory + (at.base + Z::LSE - pl_smem(memory))), at.D = at.lse + KEYS;
    at.dQ = p.dQKV + image * p.g_bs + head * p.d;
    at.dK = at.dQ + p.heads * p.d, at.dV = at.dK + p.heads * p.d;
    if (threadIdx.x == 0) {
        const uint32_t here = at.base + Z::HERE;
        pl_mbar_init(here, 1);
        pl_mbar_init(here + 8, 1);
        pl_mbar_init_done();
        pl_kernel_begin();
        pl_mbar_expect(here, 2 * Z::ARRAY);
        load_rows(at.base + Z::K, &p.QKV, here, p.heads + head, 0, image);
        load_rows(at.base, &p.QKV, here, head, 0, image);
        pl_mbar_expect(here + 8, 3 * Z::ARRAY);
        load_rows(at.base + Z::DO, &p.dO, here + 8, head, 0, image);
        load_rows(at.base + Z::V, &p.QKV, here + 8, 2 * p.heads + head, 0, image);
        load_rows(at.base + Z::O, &p.O, here + 8, head, 0, image);
    } else pl_kernel_begin();
    if (threadIdx.x < KEYS) at.lse[threadIdx.x] = lse_of(p, (int)blockIdx.x, threadIdx.x);
    __syncthreads();
    by_strip<TILES>(p, at, threadIdx.x / 32);
}

/* ---- host ------------------------------------------------------------------------------------------ */

template <int TILES>
static cudaError_t launch_short(const pl_hopper_device *dev, cudaStream_t stream,
                                const pl_args_attention_back *a)
{
    head_back_params p = {};
    if (!head_back_params_of(&p, dev, a, KEYS)) return cudaErrorInvalidValue;
    return launch_early(short_attention_back_kernel<TILES>, dim3((unsigned)p.all), dim3(THREADS), Z::BYTES,
                        stream, p);
}

cudaError_t pl_hopper_attention_short_back(const pl_hopper_device *dev, cudaStream_t stream,
                                           const pl_args_attention_back *a)
{
    return a->QKV.rows <= 72 ? launch_short<9>(dev, stream, a) : launch_short<10>(dev, stream, a);
}
