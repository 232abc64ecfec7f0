/* cuda_tiles.cuh -- what the kernels of a transformer's layers share: tiles of 64 rows of 64 bf16 in shared
 * memory, tensor maps, launches that begin while the kernel before them ends.
 */
#ifndef PL_CUDA_TILES_CUH
#define PL_CUDA_TILES_CUH

#include "cuda_hopper.h"
#include "cuda_warpgroup.cuh"
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

/* ---- host --------------------------------------------------------------------------------------- */

typedef CUresult (*pl_encode_function)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *,
                                       const cuuint64_t *, const cuuint64_t *, const cuuint32_t *,
                                       const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle,
                                       CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

/* A batch of matrices in boxes of `across` columns by `down` rows. */
static inline int map_matrix(CUtensorMap *map, const pl_hopper_device *dev, const pl_mat &m, int across,
                             int down)
{
    pl_encode_function encode = (pl_encode_function)dev->encode;
    const int many = m.batch > 1 && m.bs > 0;
    const int64_t rs = m.rows > 1 ? m.rs : m.cols;
    cuuint64_t size[3] = {(cuuint64_t)m.cols, (cuuint64_t)m.rows, many ? (cuuint64_t)m.batch : 1};
    cuuint64_t stride[2] = {(cuuint64_t)rs * 2, (cuuint64_t)(many ? m.bs : m.rows * rs) * 2};
    cuuint32_t extent[3] = {(cuuint32_t)across, (cuuint32_t)down, 1}, step[3] = {1, 1, 1};
    return encode(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, m.data, size, stride, extent, step,
                  CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                  CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

/* A kernel that waits for the one before it by itself (pl_kernel_begin). */
template <class PARAMS>
static inline cudaError_t launch_early(void (*kernel)(PARAMS), dim3 grid, dim3 block, int bytes,
                                       cudaStream_t stream, const PARAMS &p)
{
    cudaError_t st = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
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
