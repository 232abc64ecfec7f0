/* cuda_hopper_kron.cu -- kron_sweep of all but small sides on Hopper (cuda_kron_cholesky.cuh): a cluster of
 * four blocks a matrix, from sides of 257 on of eight; two blocks to a multiprocessor. */
#include "cuda_hopper_kron.h"

#include "cuda_kron_cholesky.cuh"
#include "cuda_shared_limit.cuh"

int pl_hopper_sweeps(int64_t n)
{
    return n > 64;
}

size_t pl_hopper_sweep_scratch(const pl_args_kron_sweep *a)
{
    return (size_t)(a->Q.batch * quick_room(a)) * sizeof(double);
}

static int is_large(const pl_args_kron_sweep *a)
{
    return a->Q.rows > 256;
}

/* What call i does with V's lines; *with is the other call of the same V, or -1. */
static int lines_of(int *with, const pl_hopper_sweep_list *list, int i)
{
    *with = -1;
    for (int k = 0; k < list->calls; k++)
        if (k != i && list->call[k].V.data == list->call[i].V.data) *with = k;
    if (*with < 0) return LINES_MOVE;
    return *with > i ? LINES_KEEP : LINES_LEAVE;
}

int pl_hopper_sweeps_agree(const pl_args_kron_sweep *a, const pl_args_kron_sweep *b)
{
    const pl_mat *V = &a->V, *W = &b->V;
    const int same = V->data == W->data && V->dtype == W->dtype && V->rs == W->rs && V->bs == W->bs &&
                     V->rows == W->rows && V->cols == W->cols && V->batch == W->batch;
    return same && a->trans != b->trans && a->live.data == b->live.data && a->live.bs == b->live.bs &&
           a->every == b->every && a->after == b->after;
}

/* Large or small sides of the list, the longest first; returns how many matrices have gone before and now. */
template <int NT, int RANKS>
static int64_t launch(cudaStream_t stream, const pl_hopper_sweep_list *list, int large, int64_t before)
{
    sweep_table<PL_HOPPER_SWEEPS> table = {};
    int order[PL_HOPPER_SWEEPS];
    int64_t matrices = 0;
    for (int i = 0; i < list->calls; i++) {
        if (is_large(&list->call[i]) != large) continue;
        int at = table.count++;
        for (; at > 0 && list->call[order[at - 1]].Q.rows < list->call[i].Q.rows; at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
    for (int i = 0; i < table.count; i++) {
        table.first[i] = (uint32_t)(RANKS * matrices);
        int with;
        table.call[i] = list->call[order[i]], table.scratch[i] = list->scratch[order[i]];
        table.lines[i] = (uint8_t)lines_of(&with, list, order[i]);
        matrices += table.call[i].Q.batch;
    }
    table.first[table.count] = (uint32_t)(RANKS * matrices);
    if (!matrices) return before;
    cudaLaunchAttribute with[2] = {};
    cudaLaunchConfig_t config = {};
    const auto kernel = quick_sweep_kernel<NT, RANKS, PL_HOPPER_SWEEPS>;
    if (allow_all_shared((const void *)kernel) != cudaSuccess) return before; /* the caller asks */
    with[0].id = cudaLaunchAttributeClusterDimension;
    with[0].val.clusterDim.x = RANKS, with[0].val.clusterDim.y = with[0].val.clusterDim.z = 1;
    with[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    with[1].val.programmaticStreamSerializationAllowed = 1;
    config.gridDim = dim3(table.first[table.count]), config.blockDim = dim3(CREW);
    config.dynamicSmemBytes = 8 * (size_t)quick_shared<NT>();
    config.stream = stream, config.attrs = with, config.numAttrs = before > 0 ? 2 : 1;
    cudaLaunchKernelEx(&config, kernel, table);
    return before + matrices;
}

static void move_both(cudaStream_t stream, const pl_hopper_sweep_list *list)
{
    sweep_table<PL_HOPPER_SWEEPS> table = {};
    int64_t blocks = 0;
    for (int i = 0; i < list->calls; i++) {
        int with, at = 2 * table.count;
        if (lines_of(&with, list, i) != LINES_KEEP) continue;
        table.call[at] = list->call[i], table.scratch[at] = list->scratch[i];
        table.call[at + 1] = list->call[with], table.scratch[at + 1] = list->scratch[with];
        table.first[table.count++] = (uint32_t)blocks;
        blocks += list->call[i].V.batch * ((list->call[i].V.rows + MOVED_ROWS - 1) / MOVED_ROWS);
    }
    table.first[table.count] = (uint32_t)blocks;
    if (blocks) move_both_kernel<PL_HOPPER_SWEEPS><<<(unsigned)blocks, CREW, 0, stream>>>(table);
}

/* The second launch begins in the tail of the first: they share nothing. */
void pl_hopper_sweep(cudaStream_t stream, const pl_hopper_sweep_list *list)
{
    const int64_t large = launch<3, 8>(stream, list, 1, 0);
    launch<2, 4>(stream, list, 0, large);
    move_both(stream, list);
}
