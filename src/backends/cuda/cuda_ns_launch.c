/* cuda_ns_launch.c -- which kernel and which layout of shared memory a shape has, and the launches of a list.
 */
#include "cuda_ns_table.h"

#include <string.h>

#define SHARED_MAX (227 * 1024)

typedef struct {
    int warp;   /* a warp's matrix: its blocks of 16 columns; else 0 */
    int mb, c;  /* row blocks, thread blocks */
    int stages; /* the tasks have some */
    int panels; /* of a thread block */
    int per_round, stage, overlay, bytes;
} plan;

/* Shared memory for mb row blocks, c thread blocks and so many panels each; 0 when it does not fit. */
static int layout(plan *p)
{
    static const int units_of[PL_NS_MAX_MB + 1] = {0, 4, 6, 8, 10};
    int panel = p->mb * 64 * 128, x = p->panels * panel, a = p->mb * panel, threads = 128 * p->mb,
        units = units_of[p->mb];
    int room = SHARED_MAX - PL_NS_CONTROL - x, stage = units * 16 * threads;
    if (room < a || room < x) return 0;
    p->bytes = PL_NS_CONTROL + x + (a > x ? a : x);
    if (p->c == 1) return 1;
    for (int rounds = 1; rounds <= units; rounds++) {
        int per = (units + rounds - 1) / rounds, slots = (per + p->c - 1) / p->c;
        int sums = slots * (p->c - 1) * 32 * threads;
        if (sums > room || stage > room) continue;
        p->per_round = per;
        p->overlay = rounds > 1 || sums + stage > room;
        p->stage = p->overlay ? 0 : sums;
        int need = p->overlay ? (sums > stage ? sums : stage) : sums + stage;
        if (PL_NS_CONTROL + x + need > p->bytes) p->bytes = PL_NS_CONTROL + x + need;
        return 1;
    }
    return 0;
}

/* Of the shape alone, so that a matrix's bits are. */
static int plan_of(plan *p, int64_t rows, int64_t cols)
{
    static const int sizes[] = {1, 2, 3, 4, 6, 8};
    /* panels that one thread block may well have */
    static const int wanted[PL_NS_MAX_MB + 1] = {0, 8, 6, 4, 3};
    int64_t m = rows < cols ? rows : cols, n = rows < cols ? cols : rows;
    memset(p, 0, sizeof *p);
    if (m < 1 || m > 64 * PL_NS_MAX_MB || n > 64 * 16 * PL_NS_RANKS) return 0;
    if (m <= 16 && n <= 256) {
        p->warp = (int)(n + 15) / 16;
        return 1;
    }
    p->mb = (int)(m + 63) / 64;
    int panels = (int)(n + 63) / 64;
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < (int)(sizeof sizes / sizeof *sizes); i++) {
            p->c = sizes[i];
            p->panels = (panels + p->c - 1) / p->c;
            if ((pass || p->panels <= wanted[p->mb]) && layout(p)) return 1;
        }
    return 0;
}

int pl_cuda_ns_fits(pl_cuda_ns_kind kind, int64_t rows, int64_t cols)
{
    plan p;
    return plan_of(&p, rows, cols) && !(kind == PL_CUDA_NS_STEP && p.warp);
}

int pl_cuda_ns_usable(int ordinal)
{
    int major = 0, minor = 0;
    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, ordinal);
    cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, ordinal);
    return major == 9 && minor == 0; /* sm_90a code runs nowhere else */
}

/* ---- launches ----------------------------------------------------------------------------------- */

static cudaError_t launch_warps(cudaStream_t stream, pl_ns_table *table, int blocks)
{
    const void *kernel = pl_ns_warp_kernel(blocks <= 1 ? 1 : blocks <= 4 ? 4 : blocks <= 10 ? 10 : 16);
    void *args[] = {table};
    dim3 grid = {.x = (unsigned)((table->matrices + PL_NS_WARPS - 1) / PL_NS_WARPS), .y = 1, .z = 1};
    dim3 block = {.x = 32 * PL_NS_WARPS, .y = 1, .z = 1};
    return cudaLaunchKernel(kernel, grid, block, args, 0, stream);
}

static cudaError_t launch_blocks(cudaStream_t stream, pl_ns_table *table, const plan *p)
{
    const void *kernel = pl_ns_block_kernel(p->mb, p->stages);
    int singles = table->matrices - table->clusters, clusters = table->clusters + (singles + p->c - 1) / p->c;
    cudaLaunchAttribute cluster = {.id = cudaLaunchAttributeClusterDimension};
    cluster.val.clusterDim.x = (unsigned)p->c;
    cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
    cudaLaunchConfig_t config = {
        .stream = stream, .dynamicSmemBytes = (size_t)p->bytes, .attrs = &cluster, .numAttrs = 1};
    config.gridDim = (dim3){.x = (unsigned)(clusters * p->c), .y = 1, .z = 1};
    config.blockDim = (dim3){.x = 128 * (unsigned)p->mb, .y = 1, .z = 1};
    cudaError_t e = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED_MAX);
    void *args[] = {table};
    return e == cudaSuccess ? cudaLaunchKernelExC(&config, kernel, args) : e;
}

static int same_kernel(const plan *a, const plan *b)
{
    return a->mb == b->mb && a->c == b->c && a->stages == b->stages; /* 0 and 0: warps */
}

static void add(pl_ns_table *table, const pl_cuda_ns_task *task)
{
    pl_cuda_ns_task *t = &table->task[table->tasks++];
    *t = *task;
    t->first = table->matrices;
    if (t->kind == PL_CUDA_NS_ITERATE)
        t->G = t->W, t->g_bf16 = t->w_bf16, t->g_rs = t->w_rs, t->g_bs = t->w_bs;
    table->matrices += task->batch;
}

/* The tasks of use's kernel in one launch; split matrices first, then, where along, those with a block each.
 */
static cudaError_t launch_group(cudaStream_t stream, pl_ns_table *table, const pl_cuda_ns_list *list,
                                const plan *plans, const plan *use, int along)
{
    int widest = 0;
    table->tasks = table->matrices = table->clusters = 0;
    table->panels = use->panels, table->per_round = use->per_round;
    table->stage = use->stage, table->overlay = use->overlay;
    for (int pass = 0; pass <= along; pass++) {
        plan like = *use;
        if (pass) like.c = 1;
        for (int i = 0; i < list->tasks; i++) {
            if (!same_kernel(&plans[i], &like)) continue;
            add(table, &list->task[i]);
            widest = plans[i].warp > widest ? plans[i].warp : widest;
        }
        if (!pass && use->c > 1) table->clusters = table->matrices;
    }
    return use->mb ? launch_blocks(stream, table, use) : launch_warps(stream, table, widest);
}

/* One layout for a launch: room for the largest share of X, and for whatever exchange is left beside that. */
static int widen(plan *use, const plan *plans, int n, int along)
{
    for (int i = 0; i < n; i++) {
        int goes_along = along && plans[i].mb == use->mb && plans[i].c == 1 && plans[i].stages == use->stages;
        if (!same_kernel(&plans[i], use) && !goes_along) continue;
        use->panels = plans[i].panels > use->panels ? plans[i].panels : use->panels;
    }
    return use->mb == 0 || layout(use);
}

cudaError_t pl_cuda_ns_launch(cudaStream_t stream, const pl_cuda_ns_list *list)
{
    pl_ns_table table;
    plan plans[PL_CUDA_NS_TASKS];
    /* the clustered kernel with which single blocks of that height go along, without stages and with them */
    plan joint[2][PL_NS_MAX_MB + 1];
    int n = list->tasks;
    memcpy(table.coef, list->coef, sizeof table.coef);
    table.steps = list->steps;
    memset(joint, 0, sizeof joint);
    for (int i = 0; i < n; i++)
        if (!plan_of(&plans[i], list->task[i].rows, list->task[i].cols)) return cudaErrorInvalidValue;
    for (int i = 0; i < n; i++) plans[i].stages = list->task[i].stages != 0;
    for (int i = 0; i < n; i++) {
        plan *j = &joint[plans[i].stages][plans[i].mb];
        if (plans[i].c <= 1 || j->c) continue;
        *j = plans[i];
        if (!widen(j, plans, n, 1)) j->c = 0;
    }
    for (int i = 0; i < n; i++) {
        plan use = plans[i], *j = &joint[use.stages][use.mb];
        int leads = 1, along = j->c && j->c == use.c;
        for (int k = 0; k < i && leads; k++) leads = !same_kernel(&plans[i], &plans[k]);
        if (!leads || (use.c == 1 && j->c)) continue;
        if (along) use = *j;
        else if (!widen(&use, plans, n, 0)) return cudaErrorInvalidValue;
        cudaError_t e = launch_group(stream, &table, list, plans, &use, along);
        if (e != cudaSuccess) return e;
    }
    return cudaSuccess;
}

/* ---- what a captured graph may change ------------------------------------------------------------ */

size_t pl_cuda_ns_bytes(const void *kernel)
{
    static const int widths[] = {1, 4, 10, 16}; /* of pl_ns_warp_kernel */
    int ours = 0;
    for (int mb = 1; mb <= PL_NS_MAX_MB; mb++)
        ours |= kernel == pl_ns_block_kernel(mb, 0) || kernel == pl_ns_block_kernel(mb, 1);
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++)
        ours |= kernel == pl_ns_warp_kernel(widths[i]);
    return ours ? sizeof(pl_ns_table) : 0;
}

int pl_cuda_ns_grads(void *table, const void ***out)
{
    pl_ns_table *t = table;
    int n = 0;
    for (int i = 0; i < t->tasks; i++)
        if (t->task[i].kind == PL_CUDA_NS_STEP) out[n++] = &t->task[i].G;
    return n;
}
