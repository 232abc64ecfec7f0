/* cuda_attention.cuh -- what attention and its gradient share: tensor maps of heads, sizes of a segment,
 * stores of a tile.
 *
 * Rows of a head lie in shared memory as rows of 64 channels (128 bytes, swizzled), a segment of R rows an
 * array; missing rows and channels are zero. Where all tokens fit into one segment a block has a whole head
 * of an image; otherwise a block has one tile of 64 rows and walks over the segments.
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

/* A tile of 64 x d sums, times factor, to rows [row, rows) of an array: `to` is its row 0, the head's first
 * channel. */
__device__ __forceinline__ void store_tile(__nv_bfloat16 *to, int64_t stride, int row, int rows, int d,
                                           const float (&x)[32], float factor0, float factor1)
{
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32 % 4;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const int r = row + 16 * warp + lane / 4 + 8 * h;
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
