/* cuda_rows_finish.cuh -- what follows a product of many rows (cuda_hopper_gemm_act.cu), from a warpgroup's
 * sums of 64 rows and WIDTH columns to memory, by one of two ways:
 *
 *     pads       results are put together in shared memory and leave by bulk stores, while the next tile is
 *                multiplied; what is added or multiplied has come to the same place by bulk loads, and the
 *                results take its place, each thread's where it read
 *     registers  the same from registers, 16 bytes a lane (pl_quad_transpose) or, in f32, whole sectors a
 *                quad: where op(B) leaves no room for pads
 *
 * A pad is made of panels of 64 rows by 128 bytes, 64 columns of bf16 or 32 of f32, swizzled as
 * cuda_wgmma.cuh has it; where WIDTH is no multiple of 64 those of bf16 have 32 columns, 64 bytes a row, and
 * unit u of row r stands at r * 64 + ((u ^ (r / 2 & 3)) << 4). No eight rows of one unit share a bank.
 */
#ifndef PL_CUDA_ROWS_FINISH_CUH
#define PL_CUDA_ROWS_FINISH_CUH

#include "cuda_mma.cuh"
#include "cuda_tiles.cuh"

#include "math/gelu_bf16_elem.h"

enum { PLAIN, ADD, GELU, FACTOR, SCALED };
/* what follows: a bias or nothing; D and a bias or none; gelu of the biased, its slopes or not; F; factors of
 * rows, and D */

typedef struct {
    CUtensorMap A, B, Y, S, D; /* the last three of pads */
    void *y, *s;
    const void *d, *bias; /* D: or F */
    const float *scale;   /* SCALED: of each group of `each` rows */
    int64_t ldy, lds, ldd, ld_scale, bsy, bss, bsd, bsb, bs_scale;
    int m, n, tiles, slices, teams, total, k_blocks, stages, a_many, b_many, d_many, bias_bf16, each;
} rows_params;

/* Something is added, in f32. */
__host__ __device__ constexpr bool adds(int kind)
{
    return kind == ADD || kind == SCALED;
}

/* Columns of a panel of bf16. */
__host__ __device__ constexpr int panel_of(int width)
{
    return width % 64 ? 32 : 64;
}

/* Columns that are finished at a time: with slopes two results are on their way, so that a whole tile of them
 * would leave no room. */
__host__ __device__ constexpr int chunk_of(int width, int kind)
{
    return kind == GELU && width % 64 == 0 ? 64 : width;
}

__host__ __device__ constexpr int buffers_of(int width, int kind)
{
    return chunk_of(width, kind) < width ? 2 : 1;
}

__host__ __device__ constexpr int pad_bytes(int width, int kind, int f32)
{
    return TILE * chunk_of(width, kind) * (f32 || kind == GELU ? 4 : 2) * buffers_of(width, kind);
}

/* ---- shared memory --------------------------------------------------------------------------------- */

__device__ __forceinline__ float2 lds8(uint32_t at)
{
    float2 v;
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(at) : "memory");
    return v;
}

__device__ __forceinline__ void sts8(uint32_t at, float2 v)
{
    asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(at), "f"(v.x), "f"(v.y) : "memory");
}

/* ---- elements -------------------------------------------------------------------------------------- */

/* gelu_bf16_elem.h with the unit's own power of 2, which is exact to 2^-22. With t = |x| and the tail
 * Phi(-t):
 *
 *     x Phi(x) = max(x, 0) - t tail        slope = -w where x < 0, else 1 + w,   w = t bell / sqrt(2 pi) -
 * tail
 *
 * Beyond 16 the bell is zero in float, and infinity must not meet it; a NaN passes. */
__device__ __forceinline__ float gelu_of(float x, float *slope)
{
    float t;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(t) : "f"(fabsf(x)), "f"(16.0f));
    const float bell = power2(t * t * -0x1.715476p-1f), tail = bell * pl_gelu_bf16_tail(fminf(t, 5.0f));
    const float w = fmaf(t * bell, 0x1.988454p-2f, -tail);
    *slope = x < 0 ? -w : 1.0f + w;
    return fmaf(-t, tail, fmaxf(x, 0.0f));
}

/* Two neighbours of a product that is already rounded: y and, with GELU, slopes s. */
template <int KIND>
__device__ __forceinline__ void follow(uint32_t &y, uint32_t &s, uint32_t factor, bool biased, float2 b)
{
    if constexpr (KIND == FACTOR) y = pl_pack(pl_low(y) * pl_low(factor), pl_high(y) * pl_high(factor));
    else if (biased || KIND == GELU) {
        float low = pl_low(y) + b.x, high = pl_high(y) + b.y;
        if constexpr (KIND == GELU) {
            float slope[2];
            low = gelu_of(low, &slope[0]), high = gelu_of(high, &slope[1]);
            s = pl_pack(slope[0], slope[1]);
        }
        y = pl_pack(low, high);
    }
}

/* Two neighbours of a product in f32, with those of D; SCALED: the branch as gemm_act leaves it in bf16, then
 * as scale_rows does. */
template <int KIND>
__device__ __forceinline__ float2 follow_f32(float2 y, float2 d, float scale, bool biased, float2 b)
{
    if constexpr (KIND == SCALED) {
        uint32_t u = pl_pack(y.x, y.y), none = 0;
        follow<PLAIN>(u, none, 0, biased, b);
        return make_float2(fmaf(scale, pl_low(u), d.x), fmaf(scale, pl_high(u), d.y));
    }
    if constexpr (KIND == ADD) y.x += d.x, y.y += d.y;
    if (biased) y.x += b.x, y.y += b.y;
    return y;
}

/* The factors of a thread's two rows, fetched before the product. */
template <int KIND> struct row_scales {
    float of[2];
    __device__ __forceinline__ void fetch(const rows_params &p, int matrix, int row)
    {
        if constexpr (KIND == SCALED)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const int r = row + 8 * h < p.m ? row + 8 * h : p.m - 1;
                of[h] = p.scale[matrix * p.bs_scale + r / p.each * p.ld_scale];
            }
        else of[0] = of[1] = 0;
    }
};

__device__ __forceinline__ float2 bias_at(const rows_params &p, const float *bias, int at)
{
    return p.bias ? *reinterpret_cast<const float2 *>(bias + at) : make_float2(0, 0);
}

/* ---- by pads --------------------------------------------------------------------------------------- */

/* A warpgroup's pad and how it is synchronised. */
struct pad_place {
    uint32_t at, full, empty; /* the barriers: what is added has come; its place is free again */
    int group, turn;          /* the how manieth of the group's tiles */
};

template <int WIDTH, int KIND>
__device__ __forceinline__ void put_bf16(const rows_params &p, const float (&acc)[WIDTH / 2],
                                         const float *bias, const pad_place &pad, int matrix, int row,
                                         int column)
{
    constexpr int PANEL = panel_of(WIDTH), PITCH = PANEL * 2, CHUNK = chunk_of(WIDTH, KIND),
                  CHUNKS = WIDTH / CHUNK, BUFFERS = buffers_of(WIDTH, KIND),
                  BYTES = pad_bytes(WIDTH, KIND, 0) / BUFFERS;
    const int thread = (int)threadIdx.x % 128, lane = thread % 32, t = lane % 4;
    /* the place of a lane's row for stmatrix: block lane / 8 is 8 rows down (odd), a unit to the right */
    const uint32_t r = (uint32_t)(thread / 32 * 16 + lane % 16), right = (uint32_t)lane / 16,
                   turned = PANEL == 64 ? right ^ (r & 7) : right ^ (r / 2 & 3),
                   place = pad.at + r * PITCH + (turned << 4);
    if constexpr (KIND == FACTOR) pl_mbar_wait(pad.full, pad.turn & 1);
#pragma unroll
    for (int c = 0; c < CHUNKS; c++) {
        const uint32_t buffer = (uint32_t)((pad.turn * CHUNKS + c) % BUFFERS * BYTES);
        if constexpr (KIND != FACTOR) {
            if (thread == 0) pl_bulk_wait_read<BUFFERS - 1>();
            pl_group_sync(1 + pad.group);
        }
#pragma unroll
        for (int u = 0; u < CHUNK / 16; u++) {
            const int j = c * CHUNK / 8 + 2 * u;
            const uint32_t to = (place ^ (uint32_t)(2 * u % (PANEL / 8) << 4)) +
                                (uint32_t)(16 * u / PANEL * TILE * PITCH) + buffer;
            uint32_t y[4], s[4] = {0, 0, 0, 0}, f[4] = {0, 0, 0, 0};
            if constexpr (KIND == FACTOR) matrices_load(f, to);
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const float2 b = KIND == FACTOR ? make_float2(0, 0) : bias_at(p, bias, 8 * (j + i) + 2 * t);
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    const int at = 2 * i + h;
                    y[at] = pl_pack(acc[4 * (j + i) + 2 * h], acc[4 * (j + i) + 2 * h + 1]);
                    follow<KIND>(y[at], s[at], f[at], p.bias != NULL, b);
                }
            }
            matrices_store(to, y);
            if constexpr (KIND == GELU) matrices_store(to + BYTES / 2, s);
        }
        pl_async_fence();
        pl_group_sync(1 + pad.group);
        if (thread == 0) {
            for (int k = 0; k < CHUNK / PANEL; k++) {
                const int x = column + c * CHUNK + k * PANEL;
                const uint32_t from = pad.at + buffer + (uint32_t)(k * TILE * PITCH);
                if (x >= p.n) break;
                pl_tma_store(&p.Y, from, x, row, matrix);
                if (KIND == GELU && p.s) pl_tma_store(&p.S, from + BYTES / 2, x, row, matrix);
            }
            pl_bulk_commit();
        }
    }
    if (KIND == FACTOR && thread == 0) {
        pl_bulk_wait_read<0>();
        pl_mbar_arrive(pad.empty);
    }
}

template <int WIDTH, int KIND>
__device__ __forceinline__ void put_f32(const rows_params &p, const float (&acc)[WIDTH / 2],
                                        const row_scales<KIND> &scale, const float *bias,
                                        const pad_place &pad, int matrix, int row, int column)
{
    const int thread = (int)threadIdx.x % 128, lane = thread % 32, t = lane % 4, g = lane / 4;
    const uint32_t place = pad.at + (uint32_t)((thread / 32 * 16 + g) * 128 + ((t / 2 ^ g) << 4) + t % 2 * 8);
    if constexpr (adds(KIND)) pl_mbar_wait(pad.full, pad.turn & 1);
    else {
        if (thread == 0) pl_bulk_wait_read<0>();
        pl_group_sync(1 + pad.group);
    }
#pragma unroll
    for (int j = 0; j < WIDTH / 8; j++) {
        const float2 b = bias_at(p, bias, 8 * j + 2 * t);
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const uint32_t at = (place ^ (uint32_t)(j % 4 << 5)) + (uint32_t)(j / 4 * 8192 + h * 1024);
            const float2 y = make_float2(acc[4 * j + 2 * h], acc[4 * j + 2 * h + 1]);
            float2 d = make_float2(0, 0);
            if constexpr (adds(KIND)) d = lds8(at);
            sts8(at, follow_f32<KIND>(y, d, scale.of[h], p.bias != NULL, b));
        }
    }
    pl_async_fence();
    pl_group_sync(1 + pad.group);
    if (thread) return;
    for (int k = 0; k < WIDTH / 32 && column + 32 * k < p.n; k++)
        pl_tma_store(&p.Y, pad.at + (uint32_t)k * 8192, column + 32 * k, row, matrix);
    pl_bulk_commit();
    if (adds(KIND)) {
        pl_bulk_wait_read<0>();
        pl_mbar_arrive(pad.empty);
    }
}

/* ---- from registers -------------------------------------------------------------------------------- */

/* Words of a tile in the layout of the sums, fetched as units of 16 bytes and kept so until they are wanted.
 */
template <int WIDTH> struct factor_words {
    uint4 unit[2][WIDTH / 32];
    __device__ __forceinline__ void fetch(const rows_params &p, int matrix, int row, int column)
    {
        const __nv_bfloat16 *from = (const __nv_bfloat16 *)p.d + matrix * p.bsd;
#pragma unroll
        for (int h = 0; h < 2; h++)
#pragma unroll
            for (int u = 0; u < WIDTH / 32; u++) {
                const int r = row + 8 * h, c = column + 32 * u + 8 * ((int)threadIdx.x % 4);
                unit[h][u] = make_uint4(0, 0, 0, 0);
                if (r < p.m && c < p.n) unit[h][u] = *reinterpret_cast<const uint4 *>(from + r * p.ldd + c);
            }
    }
};

template <int WIDTH> struct addend_floats {
    float2 pair[2][WIDTH / 8];
    __device__ __forceinline__ void fetch(const rows_params &p, int matrix, int row, int column)
    {
        const float *from = (const float *)p.d + matrix * p.bsd;
#pragma unroll
        for (int h = 0; h < 2; h++)
#pragma unroll
            for (int j = 0; j < WIDTH / 8; j++) {
                const int r = row + 8 * h, c = column + 8 * j + 2 * ((int)threadIdx.x % 4);
                pair[h][j] = make_float2(0, 0);
                if (r < p.m && c < p.n) pair[h][j] = *reinterpret_cast<const float2 *>(from + r * p.ldd + c);
            }
    }
};

struct nothing {
    __device__ __forceinline__ void fetch(const rows_params &, int, int, int)
    {
    }
};

template <int KIND, int WIDTH, int PADS> struct fetched_of {
    typedef nothing type;
};
template <int WIDTH> struct fetched_of<ADD, WIDTH, 0> {
    typedef addend_floats<WIDTH> type;
};
template <int WIDTH> struct fetched_of<SCALED, WIDTH, 0> {
    typedef addend_floats<WIDTH> type;
};
template <int WIDTH> struct fetched_of<FACTOR, WIDTH, 0> {
    typedef factor_words<WIDTH> type;
};

/* A word of four neighbouring j of a row, stored as the quad's units. */
__device__ __forceinline__ void store_units(const rows_params &p, __nv_bfloat16 *to, int64_t ld, int row,
                                            int column, const uint32_t (&w)[4])
{
    const uint4 unit = pl_quad_transpose(w[0], w[1], w[2], w[3]);
    const int c = column + 8 * ((int)threadIdx.x % 4);
    if (row < p.m && c < p.n) *reinterpret_cast<uint4 *>(to + row * ld + c) = unit;
}

/* row: the thread's first; column: the tile's. Results in bf16: the product is rounded before anything
 * follows, as gemm leaves it. */
template <int WIDTH, int KIND, class FETCHED>
__device__ __forceinline__ void finish_bf16(const rows_params &p, const float (&acc)[WIDTH / 2],
                                            const FETCHED &with, const float *bias, int matrix, int row,
                                            int column)
{
    __nv_bfloat16 *Y = (__nv_bfloat16 *)p.y + matrix * p.bsy, *S = (__nv_bfloat16 *)p.s + matrix * p.bss;
    const int t = (int)threadIdx.x % 4;
#pragma unroll
    for (int h = 0; h < 2; h++)
#pragma unroll
        for (int u = 0; u < WIDTH / 32; u++) {
            uint32_t y[4], s[4] = {0, 0, 0, 0};
            uint4 f = make_uint4(0, 0, 0, 0);
            if constexpr (KIND == FACTOR)
                f = pl_quad_transpose(with.unit[h][u].x, with.unit[h][u].y, with.unit[h][u].z,
                                      with.unit[h][u].w);
            const uint32_t factor[4] = {f.x, f.y, f.z, f.w};
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int j = 4 * u + i;
                y[i] = pl_pack(acc[4 * j + 2 * h], acc[4 * j + 2 * h + 1]);
                follow<KIND>(y[i], s[i], factor[i], p.bias != NULL,
                             KIND == FACTOR ? make_float2(0, 0) : bias_at(p, bias, 8 * j + 2 * t));
            }
            store_units(p, Y, p.ldy, row + 8 * h, column + 32 * u, y);
            if (KIND == GELU && p.s) store_units(p, S, p.lds, row + 8 * h, column + 32 * u, s);
        }
}

template <int WIDTH, int KIND, class FETCHED>
__device__ __forceinline__ void finish_f32(const rows_params &p, const float (&acc)[WIDTH / 2],
                                           const FETCHED &with, const row_scales<KIND> &scale,
                                           const float *bias, int matrix, int row, int column)
{
    float *Y = (float *)p.y + matrix * p.bsy;
    const int t = (int)threadIdx.x % 4;
#pragma unroll
    for (int h = 0; h < 2; h++)
#pragma unroll
        for (int j = 0; j < WIDTH / 8; j++) {
            const int r = row + 8 * h, c = column + 8 * j + 2 * t;
            float2 y = make_float2(acc[4 * j + 2 * h], acc[4 * j + 2 * h + 1]), d = make_float2(0, 0);
            if constexpr (adds(KIND)) d = with.pair[h][j];
            y = follow_f32<KIND>(y, d, scale.of[h], p.bias != NULL, bias_at(p, bias, 8 * j + 2 * t));
            if (r < p.m && c < p.n) *reinterpret_cast<float2 *>(Y + r * p.ldy + c) = y;
        }
}

#endif
