/* cuda_launch.cuh -- grids for batches of matrices: entries over x (columns), y (rows) and z (matrices);
 * every loop strides, so any size fits. */
#ifndef PL_CUDA_LAUNCH_CUH
#define PL_CUDA_LAUNCH_CUH

#include "cuda_access.cuh"

#define THREADS  256
#define MAX_GRID 65535

#define FOR_MATRICES(m, b) for (int64_t b = blockIdx.z; b < (m).batch; b += gridDim.z)
#define FOR_ROWS(rows, i)                                                        \
    for (int64_t i = (int64_t)blockIdx.y * blockDim.y + threadIdx.y; i < (rows); \
         i += (int64_t)gridDim.y * blockDim.y)
#define FOR_COLS(cols, j)                                                        \
    for (int64_t j = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; j < (cols); \
         j += (int64_t)gridDim.x * blockDim.x)

static inline unsigned pl_cuda_grid(int64_t n, int64_t per_block, int64_t most)
{
    int64_t blocks = (n + per_block - 1) / per_block;
    return (unsigned)(blocks < 1 ? 1 : blocks < most ? blocks : most);
}

/* A block for rows of `cols` columns: as many threads along a row as it needs, the rest of them on further
 * rows. */
static inline dim3 pl_cuda_row_block(int64_t cols, int most)
{
    unsigned x = 1;
    while (x < cols && x < (unsigned)most) x *= 2;
    return dim3(x, (unsigned)most / x);
}

static inline dim3 pl_cuda_row_grid(int64_t batch, int64_t rows, int64_t cols, dim3 block)
{
    return dim3(pl_cuda_grid(cols, block.x, 4096), pl_cuda_grid(rows, block.y, MAX_GRID),
                pl_cuda_grid(batch, 1, MAX_GRID));
}

static inline bool pl_cuda_any_f64(pl_mat *const *mats, int n)
{
    for (int k = 0; k < n; k++)
        if (mats[k]->data && mats[k]->dtype == POLAR_DTYPE_F64) return true;
    return false;
}

/* Operands whose rows can be taken four elements at a time (pl_cuda_get4), the absent ones aside. */
static inline bool pl_cuda_in_fours(pl_mat *const *mats, int n)
{
    for (int k = 0; k < n; k++) {
        const pl_mat &m = *mats[k];
        if (!m.data) continue;
        if (m.dtype == POLAR_DTYPE_F64 || m.cols % 4 || (m.rows > 1 && m.rs % 4) || (m.batch > 1 && m.bs % 4))
            return false;
        if ((uintptr_t)m.data % (m.dtype == POLAR_DTYPE_F32 ? 16 : 8)) return false;
    }
    return true;
}

/* Element (i, j) of matrix b. */
template <typename REAL>
__device__ __forceinline__ REAL pl_cuda_at(const pl_mat &m, int64_t b, int64_t i, int64_t j)
{
    return pl_cuda_get<REAL>(m, pl_cuda_base(m, b) + i * m.rs + j);
}

template <typename REAL>
__device__ __forceinline__ void pl_cuda_set(const pl_mat &m, int64_t b, int64_t i, int64_t j, REAL x)
{
    pl_cuda_put<REAL>(m, pl_cuda_base(m, b) + i * m.rs + j, x);
}

/* ---- kernels that begin while the one before them ends (Hopper and newer) ------------------------- */

/* What a kernel launched so waits for before it touches memory: the end of those it depends on. */
__device__ __forceinline__ void wait_for_those_before(void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* From where all blocks have come here on, the next kernel's are placed where there is room. */
__device__ __forceinline__ void let_next_begin(void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

__device__ __forceinline__ void begin_early(void)
{
    wait_for_those_before();
    let_next_begin();
}

template <class... PARAMS, class... ARGS>
static inline void start_early(void (*kernel)(PARAMS...), dim3 grid, dim3 block, int bytes,
                               cudaStream_t stream, const ARGS &...args)
{
    cudaLaunchAttribute early = {};
    cudaLaunchConfig_t config = {};
    int device = 0, major = 0;
    if (cudaGetDevice(&device) == cudaSuccess)
        cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    config.gridDim = grid, config.blockDim = block, config.dynamicSmemBytes = (size_t)bytes;
    config.stream = stream, config.attrs = &early, config.numAttrs = major >= 9;
    cudaLaunchKernelEx(&config, kernel, PARAMS(args)...);
}

/* Launches kernel<double> where one of the n operands is f64, else kernel<float>. */
#define LAUNCH_ROWS(kernel, mats, n, batch, rows, cols, args)                                                \
    do {                                                                                                     \
        dim3 block_ = pl_cuda_row_block(cols, THREADS), grid_ = pl_cuda_row_grid(batch, rows, cols, block_); \
        if (pl_cuda_any_f64(mats, n)) kernel<double><<<grid_, block_, 0, stream>>>(args);                    \
        else kernel<float><<<grid_, block_, 0, stream>>>(args);                                              \
    } while (0)

#endif
