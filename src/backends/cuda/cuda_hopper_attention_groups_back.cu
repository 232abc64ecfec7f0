/* cuda_hopper_attention_groups_back.cu -- attention's gradient for heads of 81 to 208 tokens by wgmma
 * (cuda_attention_heads.cuh); the formulas are cuda_hopper_attention_back.cu's.
 *
 * A block has a head, a warpgroup four strips of its keys, and walks over the queries, 32 at a time.
 */
#include "cuda_attention_heads.cuh"

/* S = A B^T over the 64 channels, A's fragments a, B the N rows at b. */
template <int N>
__device__ __forceinline__ void times_queries(float (&S)[N / 2], const uint32_t (&a)[4][4], uint32_t b)
{
#pragma unroll
    for (int i = 0; i < 4; i++) pl_wgmma<N>::template mixed<0>(S, a[i], pl_wgmma_desc(b) + 2 * i, i != 0);
    pl_wgmma_commit();
}

/* dV += P^T dO of N queries, from q and dO at `at`; dS^T of them to `kept`. stat: their lse, D R
 * numbers on. */
template <int N, int R>
__device__ __forceinline__ void by_queries(float (&dV)[32], const uint32_t (&k)[4][4],
                                           const uint32_t (&v)[4][4], uint32_t at, uint32_t kept,
                                           const float2 *stat, float scale2, int row, int tokens, bool stores)
{
    float S[N / 2], G[N / 2];
    uint32_t P[N / 16][4];
    pl_wgmma_fence();
    times_queries<N>(S, k, at);
    times_queries<N>(G, v, at + head_back<R>::DO);
    pl_wgmma_wait<1>();
#pragma unroll
    for (int j = 0; j < N / 8; j++) {
        const float2 s = stat[4 * j];
#pragma unroll
        for (int i = 0; i < 4; i++) S[4 * j + i] = power2(fmaf(S[4 * j + i], scale2, i % 2 ? -s.y : -s.x));
    }
    pl_wgmma_wait<0>();
#pragma unroll
    for (int i = 0; i < N / 16; i++) {
        uint32_t dS[4];
#pragma unroll
        for (int w = 0; w < 4; w++) {
            const int x = 8 * i + 2 * w;
            const float2 s = stat[R / 2 + 8 * i + 4 * (w / 2)];
            P[i][w] = pl_pack(S[x], S[x + 1]);
            dS[w] = pl_pack(S[x] * (G[x] - s.x), S[x + 1] * (G[x + 1] - s.y)) &
                    is_there(row + 8 * (w % 2), tokens);
        }
        if (stores) matrices_store(kept + (uint32_t)(32 * i), dS);
    }
    pl_wgmma_fence();
#pragma unroll
    for (int i = 0; i < N / 16; i++)
        pl_wgmma<64>::template mixed<1>(
            dV, P[i], pl_wgmma_desc(at + head_back<R>::DO + (uint32_t)(16 * i * ROW), 0), 1);
    pl_wgmma_commit();
    pl_wgmma_wait<0>();
}

/* x = F X: 16 COUNT columns of F are in shared memory, `step` bytes from 16 to 16, as they are or transposed.
 */
template <int COUNT, bool TRANS>
__device__ __forceinline__ void times_strips(float (&x)[32], uint32_t from, uint32_t step, uint32_t rows,
                                             bool first)
{
    uint32_t F[COUNT][4];
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        if constexpr (TRANS) matrices_load_trans(F[i], from + (uint32_t)i * step);
        else matrices_load(F[i], from + (uint32_t)i * step);
    pl_wgmma_fence();
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        pl_wgmma<64>::template mixed<1>(x, F[i], pl_wgmma_desc(rows + (uint32_t)(16 * i * ROW), 0),
                                        !first || i != 0);
    pl_wgmma_commit();
    pl_wgmma_wait<0>();
}

template <int R, bool TRANS>
__device__ __forceinline__ void times_all(float (&x)[32], uint32_t from, uint32_t step, uint32_t rows)
{
    constexpr int FIRST = (R / 16 + 1) / 2;
    times_strips<FIRST, TRANS>(x, from, step, rows, true);
    times_strips<R / 16 - FIRST, TRANS>(x, from + FIRST * step, step, rows + FIRST * 16 * ROW, false);
}

/* Two barriers: q, k, dO and O; v, which comes last. k and v change places from head to head, for k is needed
 * until the end and v is not. */
template <int GROUPS, int R>
__global__ void __launch_bounds__(128 * GROUPS, 1)
    attention_groups_back_kernel(const __grid_constant__ head_back_params p)
{
    using Z = head_back<R>;
    extern __shared__ uint8_t memory[];
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const uint32_t base = (pl_smem(memory) + 1023) & ~1023u, here = base + Z::HERE;
    const bool stores = 16 * warp < R;
    const uint32_t own = stores ? warp : 0; /* a warp beyond the rows works for nobody, on any strip */
    /* such a warp reads q where the others read their dS, which warp 0 would still be writing */
    const uint32_t kept = dS_kept<R>(stores ? base : base - Z::DS, own), turned = dS_turned<R>(base, own);
    float *lses = reinterpret_cast<float *>(memory + (base + Z::LSE - pl_smem(memory)));
    const float2 *stat = reinterpret_cast<const float2 *>(lses) + lane % 4; /* of columns 2 t and 2 t + 1 */
    const int row = 16 * (int)warp;
    uint32_t key = base + Z::K, value = base + Z::V;
    auto load = [&](uint32_t to, const CUtensorMap *map, uint32_t bar, int part, int which) {
        load_rows(to, map, bar, part * p.heads + which % p.heads, 0, which / p.heads);
    };
    if (threadIdx.x == 0) {
        pl_mbar_init(here, 1);
        pl_mbar_init(here + 8, 1);
        pl_mbar_init_done();
    }
    __syncthreads();
    pl_kernel_begin();
    int which = (int)blockIdx.x;
    if (threadIdx.x == 0) {
        pl_mbar_expect(here, 4 * Z::ARRAY);
        pl_mbar_expect(here + 8, Z::ARRAY);
        load(base + Z::O, &p.O, here, 0, which);
        load(base + Z::DO, &p.dO, here, 0, which);
        load(key, &p.QKV, here, 1, which);
        load(base, &p.QKV, here, 0, which);
        load(value, &p.QKV, here + 8, 2, which);
    }
    float lse = lse_of(p, which, threadIdx.x);
    for (uint32_t turn = 0; which < p.all; which += (int)gridDim.x, turn ^= 1) {
        const int next = which + (int)gridDim.x;
        const int64_t part = (int64_t)p.heads * p.d;
        const bool fetches = threadIdx.x == 0 && next < p.all;
        __nv_bfloat16 *out = p.dQKV + which / p.heads * p.g_bs + which % p.heads * p.d;
        float x[32];
        uint32_t k[4][4], v[4][4];
        if (threadIdx.x < R) lses[threadIdx.x] = lse;
        pl_mbar_wait(here, turn);
        head_sums<R, 128 * GROUPS>(lses + R, base, threadIdx.x);
#pragma unroll
        for (int i = 0; i < 4; i++) matrices_load(k[i], key + 16 * own * ROW + strip_at(2 * i));
        pl_mbar_wait(here + 8, turn);
#pragma unroll
        for (int i = 0; i < 4; i++) matrices_load(v[i], value + 16 * own * ROW + strip_at(2 * i));
        __syncthreads(); /* nobody needs v and O any more */
        if (fetches) {
            pl_mbar_expect(here, 4 * Z::ARRAY);
            load(value, &p.QKV, here, 1, next);
            load(base + Z::O, &p.O, here, 0, next);
        }
        clear(x);
#pragma unroll 1
        for (int c = 0; c + 32 <= R; c += 32)
            by_queries<32, R>(x, k, v, base + (uint32_t)(c * ROW), kept + (uint32_t)(2 * c), stat + c / 2,
                              p.scale2, row, p.tokens, stores);
        if constexpr (R % 32)
            by_queries<16, R>(x, k, v, base + (R - 16) * ROW, kept + 2 * (R - 16), stat + (R - 16) / 2,
                              p.scale2, row, p.tokens, stores);
        __syncwarp();
        store_strip(out + 2 * part, p.g_rs, row, p.tokens, p.d, x, 1, 1);
        times_all<R, false>(x, kept, 32, base);
        __syncthreads(); /* dS is there; nobody needs q and dO any more */
        if (fetches) {
            load(base, &p.QKV, here, 0, next);
            load(base + Z::DO, &p.dO, here, 0, next);
        }
        lse = lse_of(p, next, threadIdx.x);
        store_strip(out + part, p.g_rs, row, p.tokens, p.d, x, p.scale, p.scale);
        times_all<R, true>(x, turned, 16 * Z::STRIDE, key);
        __syncthreads(); /* nobody needs k and dS any more */
        if (fetches) {
            pl_mbar_expect(here + 8, Z::ARRAY);
            load(key, &p.QKV, here + 8, 2, next);
        }
        const uint32_t other = key;
        key = value, value = other;
        store_strip(out, p.g_rs, row, p.tokens, p.d, x, p.scale, p.scale);
    }
}

/* ---- host ------------------------------------------------------------------------------------------ */

template <int GROUPS, int R>
static cudaError_t launch_groups(const pl_hopper_device *dev, cudaStream_t stream,
                                 const pl_args_attention_back *a)
{
    head_back_params p = {};
    if (!head_back_params_of(&p, dev, a, R)) return cudaErrorInvalidValue;
    return launch_early(attention_groups_back_kernel<GROUPS, R>, heads_grid(dev, p.all), dim3(128 * GROUPS),
                        head_back<R>::BYTES, stream, p);
}

cudaError_t pl_hopper_attention_groups_back(const pl_hopper_device *dev, cudaStream_t stream,
                                            const pl_args_attention_back *a)
{
    return a->QKV.rows <= 144 ? launch_groups<3, 144>(dev, stream, a) : launch_groups<4, 208>(dev, stream, a);
}
