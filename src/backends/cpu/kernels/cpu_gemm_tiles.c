/* cpu_gemm_tiles.c -- C = alpha op(A) op(B) + beta D for bf16 factors on the tile unit: packed blocks, 32 x 32 sums in four tiles.
 *
 * An entry of C is one chain over ascending steps of 32 k, zero beyond the end, started at zero and waiting in memory between slices of k: it depends on the
 * operands alone, as in cpu_gemm.c, but is another chain than there. Subnormal factors and sums count as zero (cpu_tiles.h).
 */
#include <omp.h>

#include "base/alloc.h"
#include "cpu_rows.h"
#include "cpu_tiles.h"

#ifdef PL_TILES

#define MC          8               /* blocks of 32: rows of a part of C */
#define NC          12              /* its columns */
#define KC          16              /* a slice of k */
#define STACK_BYTES (32 * 1024)     /* work memory of a small product */
#define SMALL       (1 << 20)       /* multiply-adds below which one thread does it all */

typedef struct {
    int64_t M, N, K, mb, nb, kb;              /* in elements; in blocks */
    int64_t mc, nc, kc;                       /* a part of C, a slice of k, in blocks */
    int64_t row_parts, col_parts, items;      /* items: parts over the whole batch */
    int     threads;
    size_t  left, right, work;                /* bytes: blocks of A, of B, all of a thread's memory */
} tile_plan;

static int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* Equal parts of at most `most`. */
static int64_t part(int64_t n, int64_t most)
{
    return n ? ceil_div(n, ceil_div(n, most)) : 1;
}

static tile_plan plan_tiles(const pl_args_gemm *g, int threads)
{
    tile_plan p = {.M = g->C.rows, .N = g->C.cols, .K = g->ta ? g->A.rows : g->A.cols};
    int64_t most_m = MC, most_n = NC;
    p.mb = ceil_div(p.M, PL_BLOCK), p.nb = ceil_div(p.N, PL_BLOCK), p.kb = ceil_div(p.K, PL_BLOCK);
    p.kc = part(p.kb, KC);
    if ((double)g->C.batch * (double)p.M * (double)p.N * (double)p.K < SMALL) threads = 1;
    for (;;) {
        p.mc = part(p.mb, most_m), p.nc = part(p.nb, most_n);
        p.row_parts = ceil_div(p.mb, p.mc), p.col_parts = ceil_div(p.nb, p.nc);
        p.items = g->C.batch * p.row_parts * p.col_parts;
        if (p.items % threads == 0 || p.items >= 4 * (int64_t)threads) break;
        if (p.nc >= 4 && p.nc >= p.mc) most_n = p.nc / 2;
        else if (p.mc >= 4) most_m = p.mc / 2;
        else break;
    }
    p.threads = p.items < threads ? (int)p.items : threads;
    p.left = (size_t)(p.mc * p.kc) * PL_BLOCK_SIZE * sizeof(pl_bf16);
    p.right = (size_t)(p.nc * p.kc) * PL_BLOCK_SIZE * sizeof(pl_bf16);
    p.work = p.left + p.right + (size_t)(p.kc < p.kb ? p.mc * p.nc : 1) * PL_BLOCK_SIZE * sizeof(float);
    return p;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* `panels` panels of op(X) from row or column 32 `first`, over `steps` blocks of k from block k0. along: k runs along X's rows; as: the form wanted. */
typedef enum { LEFT, RIGHT } form;

static void pack(form as, pl_bf16 *dst, const pl_mat *x, int along, int64_t b, int64_t first, int64_t panels, int64_t k0, int64_t steps)
{
    const pl_bf16 *base = (const pl_bf16 *)x->data + b * x->bs;
    _Alignas(64) pl_bf16 turned[PL_BLOCK_SIZE];
    for (int64_t p = 0; p < panels; p++)
        for (int64_t k = 0; k < steps; k++, dst += PL_BLOCK_SIZE) {
            int64_t i = PL_BLOCK * (along ? first + p : k0 + k), j = PL_BLOCK * (along ? k0 + k : first + p);
            const pl_bf16 *at = base + i * x->rs + j;
            if (along) pl_block_left(as == LEFT ? dst : turned, at, x->rs, x->rows - i, x->cols - j);
            else pl_block_right(as == RIGHT ? dst : turned, at, x->rs, x->rows - i, x->cols - j);
            if (along && as == RIGHT) pl_turn_left(dst, turned);
            if (!along && as == LEFT) pl_turn_right(dst, turned);
        }
}

/* n entries of a row of C from their sums. */
PL_INLINE void finish_row(const pl_args_gemm *g, int64_t b, int64_t i, int64_t j, const float *even, const float *odd, int n)
{
    float c[PL_BLOCK], d[PL_BLOCK];
    const float alpha = (float)g->alpha, beta = (float)g->beta;
    for (int p = 0; p < PL_BLOCK; p++) d[p] = 0;
    if (g->D.data) pl_row_load_f32(d, g->D.data, g->D.dtype, b * g->D.bs + i * g->D.rs + j, n);
    for (int p = 0; p < PL_BLOCK / 2; p++) c[2 * p] = even[p], c[2 * p + 1] = odd[p];
    for (int p = 0; p < PL_BLOCK; p++) c[p] = pl_gemm_epilogue_f32(c[p], alpha, beta, d[p]);
    pl_row_store_f32(g->C.data, g->C.dtype, b * g->C.bs + i * g->C.rs + j, c, n);
}

static __attribute__((noinline)) void finish(const pl_args_gemm *g, int64_t b, int64_t i, int64_t j, const float *acc, int rows, int cols)
{
    for (int r = 0; r < rows; r++) {
        const float *even = acc + r / 16 * 512 + r % 16 * 16, *odd = even + 256;
        if (cols == PL_BLOCK) finish_row(g, b, i + r, j, even, odd, PL_BLOCK);
        else finish_row(g, b, i + r, j, even, odd, cols);
    }
}

/* One part of C. Where k takes several slices the sums wait in `acc`, block after block; otherwise one block's room serves all. */
static void gemm_part(pl_tiles *t, const pl_args_gemm *g, const tile_plan *p, int64_t item, char *work)
{
    int64_t parts = p->row_parts * p->col_parts, b = item / parts, in_batch = item % parts;
    int64_t i0 = in_batch % p->row_parts * p->mc, j0 = in_batch / p->row_parts * p->nc;
    int64_t m = least(p->mb - i0, p->mc), n = least(p->nb - j0, p->nc), k0 = 0;
    pl_bf16 *left = (pl_bf16 *)work, *right = (pl_bf16 *)(work + p->left);
    float *acc = (float *)(work + p->left + p->right);
    do {    /* once where K = 0 */
        int64_t steps = least(p->kb - k0, p->kc);
        pack(LEFT, left, &g->A, !g->ta, b, i0, m, k0, steps);
        pack(RIGHT, right, &g->B, g->tb != 0, b, j0, n, k0, steps);
        float *sums = acc;
        for (int64_t j = 0; j < n; j++)
            for (int64_t i = 0; i < m; i++) {
                pl_tiles_multiply(t, sums, left + i * steps * PL_BLOCK_SIZE, right + j * steps * PL_BLOCK_SIZE, steps, k0 > 0);
                int64_t row = PL_BLOCK * (i0 + i), col = PL_BLOCK * (j0 + j);
                if (k0 + steps == p->kb) finish(g, b, row, col, sums, (int)least(p->M - row, PL_BLOCK), (int)least(p->N - col, PL_BLOCK));
                if (p->kc < p->kb) sums += PL_BLOCK_SIZE;
            }
        k0 += steps;
    } while (k0 < p->kb);
}

/* One thread's share; `work` is its own memory, or NULL for the stack. */
static void gemm_share(const pl_args_gemm *g, const tile_plan *p, char *work)
{
    _Alignas(64) char stack[STACK_BYTES];
    pl_tiles t;
    if (!work) work = stack;
    pl_tiles_begin(&t);
    if (p->threads == 1)
        for (int64_t item = 0; item < p->items; item++) gemm_part(&t, g, p, item, work);
    else
#pragma omp for schedule(dynamic) nowait
        for (int64_t item = 0; item < p->items; item++) gemm_part(&t, g, p, item, work);
    pl_tiles_end(&t);
}

void PL_ISA_NAME(pl_cpu_gemm_tiles)(pl_queue *q, const pl_args_gemm *g)
{
    tile_plan p = plan_tiles(g, q->dev->threads);
    char *heap = NULL;
    if (p.work > STACK_BYTES) {
        heap = pl_alloc(p.work * (size_t)p.threads);
        if (!heap) {
            PL_QUEUE_FAIL(q, POLAR_E_NOMEM, "gemm: %zu bytes to pack %lldx%lldx%lld on %d threads", p.work * (size_t)p.threads, (long long)p.M, (long long)p.N,
                          (long long)p.K, p.threads);
            return;
        }
    }
    if (p.threads == 1) gemm_share(g, &p, heap);
    else
#pragma omp parallel num_threads(p.threads)
        gemm_share(g, &p, heap ? heap + (size_t)omp_get_thread_num() * p.work : NULL);
    pl_free(heap);
}

#endif
