/* cuda_attention.cuh -- what attention and its gradient share: tensor maps of heads, sizes of a segment,
 * stores of a tile, sums along rows.
 *
 * Rows of a head lie in shared memory as rows of 64 channels (128 bytes, swizzled), a segment of R rows an
 * array; missing rows and channels are zero. Where a head's tokens do not fit into one segment a block has
 * one tile of 64 rows and walks over the segments.
 */
#ifndef PL_CUDA_ATTENTION_CUH
#define PL_CUDA_ATTENTION_CUH

#include "cuda_attention.h"
#include "cuda_tiles.cuh"

#define MOST  208 /* tokens of the largest segment */
#define LOG2E 1.4426950408889634f

/* Rows [row, row + box) of head `head` of an image. */
__device__ __forceinline__ void load_rows(uint32_t to, const CUtensorMap *map, uint32_t bar, int head,
                                          int row, int image)
{
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, "
                 "{%3, %4, %5, %6}], [%2];" ::"r"(to),
                 "l"(map), "r"(bar), "r"(0), "r"(head), "r"(row), "r"(image)
                 : "memory");
}

__device__ __forceinline__ void clear(float (&x)[32])
{
#pragma unroll
    for (int i = 0; i < 32; i++) x[i] = 0;
}

/* A warp's 16 x d sums, times a factor for rows g and one for rows g + 8, to rows [row, rows) of an array:
 * `to` is its row 0, the head's first channel. */
__device__ __forceinline__ void store_strip(__nv_bfloat16 *to, int64_t stride, int row, int rows, int d,
                                            const float (&x)[32], float factor0, float factor1)
{
    const int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const int r = row + lane / 4 + 8 * h;
        const float f = h ? factor1 : factor0;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            uint32_t w[4];
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const float *at = x + 4 * (4 * half + j) + 2 * h;
                w[j] = pl_pack(at[0] * f, at[1] * f);
            }
            const uint4 unit = pl_quad_transpose(w[0], w[1], w[2], w[3]);
            const int c = 32 * half + 8 * (lane % 4);
            if (r < rows && c < d) *reinterpret_cast<uint4 *>(to + r * stride + c) = unit;
        }
    }
}

/* A warpgroup's 64 x d sums: a strip a warp. */
__device__ __forceinline__ void store_tile(__nv_bfloat16 *to, int64_t stride, int row, int rows, int d,
                                           const float (&x)[32], float factor0, float factor1)
{
    store_strip(to, stride, row + 16 * ((int)threadIdx.x / 32 % 4), rows, d, x, factor0, factor1);
}

/* ---- rows' sums ------------------------------------------------------------------------------------ */

/* Over the four lanes that share a row. */
__device__ __forceinline__ float quad_max(float x)
{
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
    return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}

__device__ __forceinline__ float quad_sum(float x)
{
    x += __shfl_xor_sync(0xffffffffu, x, 1);
    return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

/* Scores become powers of 2 relative to the largest of their rows, m; rows' sums and O are scaled to it
 * first. */
template <int R>
__device__ __forceinline__ void weigh(float (&S)[R / 2], float (&O)[32], float (&m)[2], float (&sum)[2],
                                      int valid, float scale2, bool first)
{
    const int t = (int)threadIdx.x % 4;
    float most[2] = {m[0], m[1]};
    if (valid < R) {
#pragma unroll
        for (int j = 0; j < R / 8; j++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                if (8 * j + 2 * t + i % 2 >= valid) S[4 * j + i] = -INFINITY;
    }
#pragma unroll
    for (int i = 0; i < R / 2; i++) most[i / 2 % 2] = fmaxf(most[i / 2 % 2], S[i]);
#pragma unroll
    for (int h = 0; h < 2; h++) {
        most[h] = quad_max(most[h]);
        if (!first) {
            const float factor = power2((m[h] - most[h]) * scale2);
            sum[h] *= factor;
#pragma unroll
            for (int j = 0; j < 8; j++) O[4 * j + 2 * h] *= factor, O[4 * j + 2 * h + 1] *= factor;
        }
        m[h] = most[h];
        most[h] *= -scale2;
    }
#pragma unroll
    for (int i = 0; i < R / 2; i++) {
        S[i] = power2(fmaf(S[i], scale2, most[i / 2 % 2]));
        sum[i / 2 % 2] += S[i];
    }
}

/* Of rows of 64 products by eight lanes, a unit of 8 each: a lane's sum, then the eight lanes'. */
__device__ __forceinline__ float products_of_unit(uint4 o, uint4 g)
{
    const uint32_t a[4] = {o.x, o.y, o.z, o.w}, b[4] = {g.x, g.y, g.z, g.w};
    float sum = 0;
#pragma unroll
    for (int i = 0; i < 4; i++)
        sum = fmaf(pl_low(a[i]), pl_low(b[i]), fmaf(pl_high(a[i]), pl_high(b[i]), sum));
    return sum;
}

__device__ __forceinline__ float sum_of_eight(float sum)
{
#pragma unroll
    for (int half = 4; half > 0; half /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, half);
    return sum;
}

/* ---- host ------------------------------------------------------------------------------------------ */

/* An array of heads, (images, tokens, parts d), in boxes of `box` rows of one head. */
static inline int map_heads(CUtensorMap *map, const pl_hopper_device *dev, const pl_mat &m, int64_t parts,
                            int box)
{
    pl_encode_function encode = (pl_encode_function)dev->encode;
    const int64_t d = m.cols / parts, rs = m.rows > 1 ? m.rs : m.cols, bs = m.batch > 1 ? m.bs : m.rows * rs;
    cuuint64_t size[4] = {(cuuint64_t)d, (cuuint64_t)parts, (cuuint64_t)m.rows, (cuuint64_t)m.batch};
    cuuint64_t stride[3] = {(cuuint64_t)d * 2, (cuuint64_t)rs * 2, (cuuint64_t)bs * 2};
    cuuint32_t extent[4] = {64, 1, (cuuint32_t)box, 1}, step[4] = {1, 1, 1, 1};
    return encode(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 4, m.data, size, stride, extent, step,
                  CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                  CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

static inline int suits_heads(const pl_mat &m, int64_t parts)
{
    const int64_t d = m.cols / parts, most = INT32_MAX / 4;
    if (m.dtype != POLAR_DTYPE_BF16 || d % 8 || d > 64 || m.rows > most || m.batch > 65535 || parts > 65535)
        return 0;
    return (uintptr_t)m.data % 16 == 0 && (m.rows <= 1 || m.rs % 8 == 0) &&
           (m.batch <= 1 || (m.bs % 8 == 0 && m.bs > 0));
}

#endif
