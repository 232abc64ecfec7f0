/* cpu_gemm.c -- C = alpha op(A) op(B) + beta D: packed panels, a tile of C in registers, blocks of C over the
 * threads.
 *
 * An entry of C is one chain of fused multiply-adds over ascending k, started at zero: in the first tile or
 * the last, in a full tile or on the edge, with k in one slice or several (the chain waits in memory between
 * slices), alone or in a batch, on one thread or many. So bits depend on the operands alone, zero padding
 * adds fma(0, 0, c) = c, and (A B)^T = B^T A^T holds bit for bit.
 *
 * bf16 becomes float while it is packed, and a float tf32 where that is wanted; f64 anywhere makes it double.
 * A block packs its part of B once (it stays in the second cache) and A panel by panel (12 rows, in the
 * first); where a panel would meet few columns it is read where it lies. The mirror half of a symmetric
 * product is not exploited.
 */
#include "base/alloc.h"
#include "base/work_share.h"
#include "cpu_convert.h"
#include "cpu_tiles.h"
#include "cpu_vec.h"
#include "math/tf32_elem.h"

#define MAX_MC      384 /* rows of a block of C */
#define MAX_NC      384 /* its columns */
#define MAX_KC      384 /* a slice of k */
#define MIN_MC      48  /* smaller blocks are not worth their packing */
#define MIN_NC      64
#define STACK_BYTES (64 * 1024) /* work memory of a small product */
#define SETS        4096        /* bytes after which addresses come to the same set of the first cache */
#define SMALL       (1 << 18)   /* multiply-adds below which one thread does it all: a few microseconds */

typedef struct {
    int64_t M, N, K;
    int64_t mc, nc, kc;                    /* a block of C, a slice of k */
    int64_t row_blocks, col_blocks, items; /* items: blocks over the whole batch */
    int threads, grain;                    /* grain: items a thread takes at a time */
    /* elements: a panel of A, a block of B, all of a thread's memory */
    size_t a_size, b_size, work;
    const pl_epilogue *epilogue; /* or NULL */
} gemm_plan;

/* A product in the making, over the threads. */
typedef struct {
    const pl_args_gemm *g;
    const gemm_plan *p;
    void *heap;     /* work memory of every thread, or NULL: on their stacks */
    pl_share share; /* of the blocks */
} gemm_shared;

static int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* Equal parts of at most `most`, each a multiple of `unit`. */
static int64_t part(int64_t n, int64_t most, int64_t unit)
{
    return n ? ceil_div(ceil_div(n, ceil_div(n, most)), unit) * unit : unit;
}

static void count_items(gemm_plan *p, int64_t batch)
{
    p->row_blocks = ceil_div(p->M, p->mc);
    p->col_blocks = ceil_div(p->N, p->nc);
    p->items = batch * p->row_blocks * p->col_blocks;
}

/* Blocks as large as the caches like, then smaller while threads would idle. mr x nr is the register tile. */
static gemm_plan plan_gemm(const pl_args_gemm *g, int threads, int mr, int nr)
{
    gemm_plan p = {.M = g->C.rows, .N = g->C.cols, .K = g->ta ? g->A.rows : g->A.cols};
    int64_t most_m = MAX_MC, most_n = MAX_NC;
    double work = (double)g->C.batch * (double)p.M * (double)p.N * (double)p.K;
    if (work < SMALL) threads = 1;
    p.kc = part(p.K, MAX_KC, 1);
    for (;;) {
        p.mc = part(p.M, most_m, mr);
        p.nc = part(p.N, most_n, nr);
        count_items(&p, g->C.batch);
        if (p.items % threads == 0 || p.items >= 4 * (int64_t)threads) break;
        if (p.nc / 2 >= MIN_NC && p.nc >= p.mc) most_n = p.nc / 2;
        else if (p.mc / 2 >= MIN_MC) most_m = p.mc / 2;
        else if (p.nc / 2 >= MIN_NC) most_n = p.nc / 2;
        else break;
    }
    p.threads = p.items < threads ? (int)p.items : threads;
    int64_t grain = p.items / (8 * (int64_t)p.threads);
    p.grain = grain < 1 ? 1 : grain > 64 ? 64 : (int)grain;
    int64_t waiting = p.kc < p.K ? p.mc * p.nc : (int64_t)mr * nr;
    p.a_size = (size_t)(ceil_div(mr * p.kc, 16) * 16); /* whole cache lines */
    p.b_size = (size_t)(p.kc * p.nc);
    p.work = p.a_size + p.b_size + (size_t)waiting;
    p.work = (p.work + 15) / 16 * 16;
    return p;
}

#include "cpu_as_f32.inc"
#include "cpu_gemm.inc"
#include "cpu_as_f64.inc"
#include "cpu_gemm.inc"

void PL_ISA_NAME(pl_cpu_gemm)(pl_queue *q, const pl_args_gemm *g)
{
    PL_ISA_NAME(pl_cpu_gemm_then)(q, g, NULL);
}

void PL_ISA_NAME(pl_cpu_gemm_then)(pl_queue *q, const pl_args_gemm *g, const pl_epilogue *epilogue)
{
    int f64 = pl_any_f64(pl_op_operands(g), 4);
#ifdef PL_TILES
    if (!f64 && g->A.dtype == POLAR_DTYPE_BF16) {
        PL_ISA_NAME(pl_cpu_gemm_tiles)(q, g, epilogue);
        return;
    }
#endif
    size_t real = f64 ? sizeof(double) : sizeof(float);
    gemm_plan p = plan_gemm(g, q->dev->threads, PL_TILE_ROWS, PL_TILE_VECS * (int)(PL_VEC_BYTES / real));
    size_t bytes = p.work * real;
    p.epilogue = epilogue;
    gemm_shared o = {.g = g, .p = &p};
    if (bytes > STACK_BYTES) {
        o.heap = pl_alloc(bytes * (size_t)p.threads);
        if (!o.heap) {
            PL_QUEUE_FAIL(q, POLAR_E_NOMEM, "gemm: %zu bytes to pack %lldx%lldx%lld on %d threads",
                          bytes * (size_t)p.threads, (long long)p.M, (long long)p.N, (long long)p.K,
                          p.threads);
            return;
        }
    }
    pl_share_begin(&o.share, p.items, p.grain, p.threads);
    pl_pool_run(q->dev->pool, p.threads, f64 ? gemm_share_f64 : gemm_share_f32, &o);
    pl_free(o.heap);
}
