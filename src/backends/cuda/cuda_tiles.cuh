/* cuda_tiles.cuh -- what the kernels of a transformer's layers share: tiles of 64 rows of 64 bf16 in shared
 * memory, tensor maps, launches that begin while the kernel before them ends.
 */
#ifndef PL_CUDA_TILES_CUH
#define PL_CUDA_TILES_CUH

#include "cuda_hopper.h"

#include "cuda_hopper.cuh"
#include "cuda_shared_limit.cuh"
#include "device/mat.h"

#define TILE       64     /* rows of a warpgroup's product */
#define ROW        128    /* bytes of a row: 64 columns */
#define SMEM_LIMIT 232448 /* bytes of shared memory that a block can have */

__device__ __forceinline__ float power2(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* ---- fragments ------------------------------------------------------------------------------------- */

__device__ __forceinline__ uint32_t pl_pack(float low, float high)
{
    __nv_bfloat162 r = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<uint32_t *>(&r);
}

__device__ __forceinline__ float pl_low(uint32_t v)
{
    return __uint_as_float(v << 16);
}

__device__ __forceinline__ float pl_high(uint32_t v)
{
    return __uint_as_float(v & 0xFFFF0000u);
}

/* Four words of each of a quad's lanes, transposed: lane t gets word t of the lanes 0 to 3. Of a row's words
 * for j = 0 .. 3 it makes the 16 bytes of unit j = t. Its own inverse. */
__device__ __forceinline__ uint4 pl_quad_transpose(uint32_t r0, uint32_t r1, uint32_t r2, uint32_t r3)
{
    const bool odd = threadIdx.x & 1, upper = threadIdx.x & 2;
    uint32_t from0 = __shfl_xor_sync(0xffffffffu, odd ? r0 : r1, 1),
             from1 = __shfl_xor_sync(0xffffffffu, odd ? r2 : r3, 1);
    uint32_t low0 = odd ? from0 : r0, high0 = odd ? r1 : from0, low1 = odd ? from1 : r2,
             high1 = odd ? r3 : from1;
    uint32_t low = __shfl_xor_sync(0xffffffffu, upper ? low0 : low1, 2),
             high = __shfl_xor_sync(0xffffffffu, upper ? high0 : high1, 2);
    return upper ? make_uint4(low, high, low1, high1) : make_uint4(low0, high0, low, high);
}

/* ---- host --------------------------------------------------------------------------------------- */

typedef CUresult (*pl_encode_function)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *,
                                       const cuuint64_t *, const cuuint64_t *, const cuuint32_t *,
                                       const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle,
                                       CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

/* A batch of matrices, bf16 or f32, in boxes of `across` columns by `down` rows: rows of 64 bytes are
 * swizzled as such, all others, of at most 128, as rows of 128. */
static inline int map_matrix(CUtensorMap *map, const pl_hopper_device *dev, const pl_mat &m, int across,
                             int down)
{
    pl_encode_function encode = (pl_encode_function)dev->encode;
    const int many = m.batch > 1 && m.bs > 0;
    const int wide = m.dtype == POLAR_DTYPE_F32;
    const int64_t rs = m.rows > 1 ? m.rs : m.cols, bytes = wide ? 4 : 2;
    cuuint64_t size[3] = {(cuuint64_t)m.cols, (cuuint64_t)m.rows, many ? (cuuint64_t)m.batch : 1};
    cuuint64_t stride[2] = {(cuuint64_t)(rs * bytes), (cuuint64_t)((many ? m.bs : m.rows * rs) * bytes)};
    cuuint32_t extent[3] = {(cuuint32_t)across, (cuuint32_t)down, 1}, step[3] = {1, 1, 1};
    return encode(map, wide ? CU_TENSOR_MAP_DATA_TYPE_FLOAT32 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, m.data,
                  size, stride, extent, step, CU_TENSOR_MAP_INTERLEAVE_NONE,
                  across * bytes == 64 ? CU_TENSOR_MAP_SWIZZLE_64B : CU_TENSOR_MAP_SWIZZLE_128B,
                  CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

/* A kernel that waits for the one before it by itself (pl_kernel_begin). */
template <class PARAMS>
static inline cudaError_t launch_early(void (*kernel)(PARAMS), dim3 grid, dim3 block, int bytes,
                                       cudaStream_t stream, const PARAMS &p)
{
    cudaError_t st = allow_all_shared((const void *)kernel);
    if (st != cudaSuccess) return st;
    cudaLaunchAttribute early = {};
    cudaLaunchConfig_t config = {};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    config.gridDim = grid, config.blockDim = block, config.dynamicSmemBytes = (size_t)bytes;
    config.stream = stream, config.attrs = &early, config.numAttrs = 1;
    return cudaLaunchKernelEx(&config, kernel, p);
}

#endif
