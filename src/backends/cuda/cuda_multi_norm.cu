/* cuda_multi_norm.cu -- matrices over their own norms, Y = X / ||X||, of several calls in two launches: sums
 * of rows; then the pass that divides, each of whose blocks folds its matrix's sums. The bits of
 * cuda_norm.cu, whose functions these are.
 */
#include "cuda_multi_norm.h"

#include "cuda_norm.cuh"
#include "cuda_table.cuh"

#define FOURS 4                         /* that a thread has under way */
#define CHUNK (4 * FOURS * OWN_THREADS) /* entries of a block */

struct norm_call {
    pl_mat X;
    float *Y;
    double *N, *sums, *tops;
    int64_t y_stride, n_stride;
    float eps;
    int blocks; /* of a matrix's rows */
};

struct norm_table {
    int count;
    uint32_t rows[PL_CUDA_NORM_CALLS + 1], chunks[PL_CUDA_NORM_CALLS + 1]; /* first block of each call */
    norm_call call[PL_CUDA_NORM_CALLS];
};

static __global__ void __launch_bounds__(THREADS) rows_kernel(const __grid_constant__ norm_table table)
{
    const int i = call_of_block(table.rows, table.count);
    const norm_call &c = table.call[i];
    const int64_t at = blockIdx.x - table.rows[i], b = at / c.blocks, block = at % c.blocks;
    wait_for_those_before();
    rows_of_block<POLAR_DTYPE_F32>(c.X, b, block, c.blocks, c.sums, c.tops + at);
}

/* X has come when this begins, and is read before the wait for the sums (cuda_norm.cu). */
static __global__ void __launch_bounds__(OWN_THREADS, 2)
    divide_kernel(const __grid_constant__ norm_table table)
{
    __shared__ fold_room room;
    const int i = call_of_block(table.chunks, table.count);
    const norm_call &c = table.call[i];
    const int64_t each = c.X.rows * c.X.cols, chunks = (each + CHUNK - 1) / CHUNK,
                  at = blockIdx.x - table.chunks[i], b = at / chunks,
                  mine = at % chunks * CHUNK + 4 * threadIdx.x;
    pl_mat Y = c.X;
    float x[FOURS][4];
    Y.data = c.Y, Y.bs = c.y_stride;
#pragma unroll
    for (int k = 0; k < FOURS; k++)
        if (mine + 4 * OWN_THREADS * k < each)
            get_fresh4<POLAR_DTYPE_F32>(x[k], c.X, pl_cuda_base(c.X, b) + mine + 4 * OWN_THREADS * k);
    begin_early();
    fold(room, {c.sums, c.tops, c.X.rows, c.blocks, 1, PL_SCALE_EXP_F32, 1}, b);
    const float s = (float)room.s;
    const divisor by = divisor_of(s, pl_norm_or_eps_f32(s, (float)room.n, c.eps));
    if (c.N && at % chunks == 0 && threadIdx.x == 0)
        c.N[b * c.n_stride] = room.s, c.N[b * c.n_stride + 1] = room.n;
#pragma unroll
    for (int k = 0; k < FOURS; k++)
        if (mine + 4 * OWN_THREADS * k < each)
            put_quotients(Y, pl_cuda_base(Y, b) + mine + 4 * OWN_THREADS * k, x[k], by);
}

/* ---- host --------------------------------------------------------------------------------------- */

static bool is_packed_f32(const pl_mat &m)
{
    return m.dtype == POLAR_DTYPE_F32 && (m.rows <= 1 || m.rs == m.cols);
}

int pl_cuda_norm_suits(const pl_args_frob_normalise *a)
{
    pl_mat Y = a->Y, X = a->X, *mats[] = {&Y, &X};
    return !a->trans && is_packed_f32(Y) && is_packed_f32(X) && pl_cuda_in_fours(mats, 2) &&
           a->X.batch <= MAX_GRID && a->X.rows <= 8192 && a->X.cols <= 8192;
}

static int blocks_of(const pl_args_frob_normalise *a)
{
    return (int)((a->X.rows + WARPS - 1) / WARPS);
}

size_t pl_cuda_multi_norm_scratch(const pl_args_frob_normalise *a)
{
    return (size_t)(a->X.batch * (a->X.rows + blocks_of(a))) * sizeof(double);
}

void pl_cuda_launch_norms(cudaStream_t stream, const pl_cuda_multi_norm *list, void *scratch)
{
    norm_table t = {};
    double *room = (double *)scratch;
    int64_t rows = 0, chunks = 0;
    t.count = list->count;
    for (int i = 0; i < list->count; i++) {
        const pl_args_frob_normalise *a = &list->call[i];
        norm_call &c = t.call[i];
        c.X = a->X, c.Y = (float *)a->Y.data, c.N = (double *)a->N.data;
        c.y_stride = a->Y.bs, c.n_stride = a->N.bs, c.eps = (float)a->eps, c.blocks = blocks_of(a);
        c.sums = room, c.tops = c.sums + a->X.batch * a->X.rows, room = c.tops + a->X.batch * c.blocks;
        t.rows[i] = (uint32_t)rows, t.chunks[i] = (uint32_t)chunks;
        rows += a->X.batch * c.blocks;
        chunks += a->X.batch * ((a->X.rows * a->X.cols + CHUNK - 1) / CHUNK);
    }
    t.rows[list->count] = (uint32_t)rows, t.chunks[list->count] = (uint32_t)chunks;
    start_early(rows_kernel, dim3((unsigned)rows), dim3(THREADS), 0, stream, t);
    start_early(divide_kernel, dim3((unsigned)chunks), dim3(OWN_THREADS), 0, stream, t);
}
