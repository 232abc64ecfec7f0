/* cuda_hopper_attention_short.cu -- O = softmax(q k^T / sqrt(d)) v and lse of heads of at most 80 tokens
 * (cuda_attention_heads.cuh): tiles of 64 rows would multiply 65 tokens as 128.
 *
 * A team of five warps has a head; a block has three teams, which know nothing of each other.
 * A warp's scores, 16 queries against all keys, are its sums, P their powers in the same registers, rounded
 * to bf16 as the factor of v. The next head's q, k and v are fetched into the other half of the team's
 * shared memory while this one is worked on.
 */
#include "cuda_attention_heads.cuh"

typedef struct {
    CUtensorMap QKV;
    __nv_bfloat16 *O;
    float *lse;
    int64_t o_rs, o_bs, lse_rs, lse_bs;
    int tokens, heads, d, all; /* all: heads of all images */
    float scale, scale2;       /* 1 / sqrt(d), and that times log2 e */
} short_params;

#define KEYS    80
#define THREADS 160 /* of a team */
#define TEAMS   3   /* of a block */

enum { ARRAY = KEYS * ROW, STAGE = 3 * ARRAY, TEAM = 2 * STAGE };
enum { BARRIERS = TEAMS * TEAM, BYTES = 1024 + BARRIERS + TEAMS * 16 };

/* Among the threads of a team. */
__device__ __forceinline__ void team_sync(int team)
{
    asm volatile("bar.sync %0, %1;" ::"r"(team + 1), "n"(THREADS) : "memory");
}

__global__ void __launch_bounds__(THREADS *TEAMS, 1)
    short_attention_kernel(const __grid_constant__ short_params p)
{
    extern __shared__ uint8_t memory[];
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x % THREADS / 32,
              team = (int)threadIdx.x / THREADS;
    const bool leads = warp == 0 && lane == 0;
    const uint32_t begin = (pl_smem(memory) + 1023) & ~1023u, base = begin + (uint32_t)(team * TEAM),
                   here = begin + BARRIERS + (uint32_t)(team * 16);
    const int step = (int)gridDim.x * TEAMS;
    auto fetch = [&](int which, int stage) {
        const uint32_t to = base + (uint32_t)(stage * STAGE), bar = here + 8 * (uint32_t)stage;
        const int image = which / p.heads, head = which % p.heads;
        pl_mbar_expect(bar, STAGE);
#pragma unroll
        for (int part = 0; part < 3; part++)
            load_rows(to + (uint32_t)(part * ARRAY), &p.QKV, bar, part * p.heads + head, 0, image);
    };
    if (leads) {
        pl_mbar_init(here, 1);
        pl_mbar_init(here + 8, 1);
        pl_mbar_init_done();
    }
    __syncthreads();
    pl_kernel_begin();
    int which = (int)blockIdx.x + (int)gridDim.x * team;
    if (leads && which < p.all) fetch(which, 0);
    for (int turn = 0; which < p.all; which += step, turn++) {
        const int stage = turn % 2, image = which / p.heads, head = which % p.heads;
        const uint32_t q = base + (uint32_t)(stage * STAGE), k = q + ARRAY, v = k + ARRAY;
        float S[KEYS / 2], O[32], m[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0};
        uint32_t P[KEYS / 16][4];
        team_sync(team); /* nobody works on the head before any more */
        if (leads && which + step < p.all) fetch(which + step, stage ^ 1);
        pl_mbar_wait(here + 8 * (uint32_t)stage, (uint32_t)(turn / 2 & 1));
        strip_scores<KEYS / 8>(S, q + (uint32_t)(16 * warp * ROW), k);
        clear(O);
        weigh<KEYS>(S, O, m, sum, p.tokens, p.scale2, true);
#pragma unroll
        for (int i = 0; i < KEYS / 16; i++)
#pragma unroll
            for (int w = 0; w < 4; w++) P[i][w] = pl_pack(S[8 * i + 2 * w], S[8 * i + 2 * w + 1]);
#pragma unroll
        for (int i = 0; i < KEYS / 16; i++) strip_times(O, P[i], v + (uint32_t)(16 * i * ROW));
        sum[0] = quad_sum(sum[0]), sum[1] = quad_sum(sum[1]);
        store_strip(p.O + image * p.o_bs + head * p.d, p.o_rs, 16 * warp, p.tokens, p.d, O, 1 / sum[0],
                    1 / sum[1]);
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int r = 16 * warp + lane / 4 + 8 * h;
            if (p.lse && lane % 4 == 0 && r < p.tokens)
                p.lse[image * p.lse_bs + head * p.lse_rs + r] = fmaf(p.scale, m[h], logf(sum[h]));
        }
    }
}

/* ---- host ------------------------------------------------------------------------------------------ */

cudaError_t pl_hopper_attention_short(const pl_hopper_device *dev, cudaStream_t stream,
                                      const pl_args_attention *a)
{
    short_params p = {};
    p.O = (__nv_bfloat16 *)a->O.data, p.lse = (float *)a->lse.data;
    p.o_rs = a->O.rs, p.o_bs = a->O.bs, p.lse_rs = a->lse.rs, p.lse_bs = a->lse.bs;
    p.tokens = (int)a->QKV.rows, p.heads = (int)a->heads, p.d = (int)(a->O.cols / a->heads);
    p.all = (int)(a->QKV.batch * a->heads);
    p.scale = 1 / sqrtf((float)p.d), p.scale2 = p.scale * LOG2E;
    if (!map_heads(&p.QKV, dev, a->QKV, 3 * a->heads, KEYS)) return cudaErrorInvalidValue;
    return launch_early(short_attention_kernel, heads_grid(dev, p.all), dim3(THREADS * TEAMS), BYTES, stream,
                        p);
}
