/* cpu_gemm_tiles.c -- C = alpha op(A) op(B) + beta D for bf16 factors in blocks of 32 x 32: on the tile unit, or by dot products (cpu_tiles.h).
 *
 * An entry of C is one chain over ascending k, zero beyond the end of the last 32, started at zero and waiting in memory between slices of k: it depends on the
 * operands alone, as in cpu_gemm.c, but is another chain than there. Subnormal factors and sums count as zero.
 *
 * A part of C is some rows of blocks times some columns of them. A thread packs the columns' part of B, keeps it in its second cache as long as its parts have the same
 * columns, and takes the rows of A one panel of 32 at a time, which stays in the first.
 */
#include <omp.h>

#include "base/alloc.h"
#include "cpu_gemm_end.h"

#ifdef PL_TILES

#define KC          32              /* blocks of 32: a slice of k */
#define RIGHT_MOST  192             /* packed blocks of B */
#define MC          2               /* rows of a part where B is packed once for many parts */
#define SLICED_MC   16              /* and where it is packed for every part */
#define STACK_BYTES (32 * 1024)     /* work memory of a small product */
#define SMALL       (1 << 20)       /* multiply-adds below which one thread does it all */

typedef struct {
    int64_t M, N, K, mb, nb, kb;              /* in elements; in blocks */
    int64_t mc, nc, kc;                       /* a part of C, a slice of k, in blocks */
    int64_t row_parts, col_parts, items;      /* items: parts over the whole batch */
    int     threads, grain;                   /* grain: items a thread takes at a time */
    size_t  left, right, work;                /* bytes: a panel of A, blocks of B, all of a thread's memory */
    const pl_gemm_tail *tail;                 /* or NULL */
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
    p.mb = ceil_div(p.M, PL_BLOCK), p.nb = ceil_div(p.N, PL_BLOCK), p.kb = ceil_div(p.K, PL_BLOCK);
    p.kc = part(p.kb, KC);
    int64_t most_m = p.kc < p.kb ? SLICED_MC : MC, most_n = RIGHT_MOST / p.kc;
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
    p.grain = p.items / p.row_parts >= 4 * (int64_t)p.threads ? (int)p.row_parts : 1;
    p.left = (size_t)p.kc * PL_BLOCK_SIZE * sizeof(pl_bf16);
    p.right = (size_t)(p.nc * p.kc) * PL_BLOCK_SIZE * sizeof(pl_bf16);
    p.work = p.left + p.right + (size_t)(p.kc < p.kb ? p.mc * p.nc : 1) * PL_BLOCK_SIZE * sizeof(float);
    return p;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* ---- packing ------------------------------------------------------------------------------------------------------------ */

/* `panels` panels of op(X) from row or column 32 `first`, over `steps` blocks of k from block k0. along: k runs along X's rows; as: the form wanted. */
typedef enum { LEFT, RIGHT } form;

static void pack(form as, pl_bf16 *dst, const pl_mat *x, int along, int64_t b, int64_t first, int64_t panels, int64_t k0, int64_t steps)
{
    const pl_bf16 *base = (const pl_bf16 *)x->data + b * x->bs;
    _Alignas(64) pl_bf16 turned[PL_BLOCK_SIZE];
    for (int64_t n = 0; n < panels * steps; n++) {    /* along the rows of X, as memory likes it */
        int64_t p = along ? n / steps : n % panels, k = along ? n % steps : n / panels;
        int64_t i = PL_BLOCK * (along ? first + p : k0 + k), j = PL_BLOCK * (along ? k0 + k : first + p);
        const pl_bf16 *at = base + i * x->rs + j;
        pl_bf16 *to = dst + (p * steps + k) * PL_BLOCK_SIZE;
        if (along) pl_block_left(as == LEFT ? to : turned, at, x->rs, x->rows - i, x->cols - j);
        else pl_block_right(as == RIGHT ? to : turned, at, x->rs, x->rows - i, x->cols - j);
        if (along && as == RIGHT) pl_turn_left(to, turned);
        if (!along && as == LEFT) pl_turn_right(to, turned);
    }
}

/* Panel i of A, packed into `room` where it does not lie as it is wanted: whole blocks along k, as many rows as are multiplied at a time. */
static pl_left left_panel(pl_bf16 *room, const pl_args_gemm *g, int64_t b, int64_t i, int64_t k0, int64_t steps)
{
    const pl_mat *x = &g->A;
    const pl_bf16 *base = (const pl_bf16 *)x->data + b * x->bs;
#ifdef PL_TILE_UNIT
    int64_t rows = PL_BLOCK;
#else
    int64_t rows = PL_DOT_ROWS;
    if (g->ta) {
        for (int64_t k = 0; k < steps; k++)
            pl_dot_pack_turned(room, k, steps, base + PL_BLOCK * ((k0 + k) * x->rs + i), x->rs, x->rows - PL_BLOCK * (k0 + k), x->cols - PL_BLOCK * i);
        return (pl_left){room, 0, PL_BLOCK_SIZE / 4};
    }
#endif
    if (!g->ta && PL_BLOCK * (k0 + steps) <= x->cols && least(x->rows - PL_BLOCK * i, PL_BLOCK) % rows == 0) return (pl_left){base + PL_BLOCK * (i * x->rs + k0), x->rs, PL_BLOCK};
    pack(LEFT, room, x, !g->ta, b, i, 1, k0, steps);
    return pl_left_packed(room);
}

/* ---- a block -------------------------------------------------------------------------------------------------------------- */

/* The sums of a block of C over `depth` of k, added to those in acc if `more`; its end or, if there is more to come, acc again. */
#ifdef PL_TILE_UNIT
static void multiply(pl_tiles *t, const pl_args_gemm *g, const block_end *e, float *acc, pl_left left, const pl_bf16 *right, int64_t depth, int more, int last)
{
    pl_tiles_multiply_left(t, acc, left, right, ceil_div(depth, PL_BLOCK), more);
    for (unsigned r = 0; last && r < e->rows; r++) {
        const float *row = acc + r / 16 * 512 + r % 16 * 16;
        __m512 even = _mm512_loadu_ps(row), odd = _mm512_loadu_ps(row + 256);
        end_rows(g, e, r, 1, &even, &odd);
    }
}
#else
PL_INLINE void multiply_as(const pl_args_gemm *g, const block_end *e, float *acc, pl_left left, const pl_bf16 *right, int64_t pairs, int more, int last, const pl_dot_form as)
{
    const int64_t eight = as == PL_DOT_AS_PAIRS ? (pairs + 15) / 16 * left.step : PL_DOT_ROWS * left.row;
    for (unsigned r = 0; r < e->rows; r += PL_DOT_ROWS, left.at += eight) {
        float *row = acc + r / 16 * 512 + r % 16 * 16;
        __m512 even[PL_DOT_ROWS], odd[PL_DOT_ROWS];
        if (more) pl_dot_load(even, odd, row);
        else pl_dot_zero(even, odd);
        if (last) end_fetch(g, e, r, PL_DOT_ROWS);
        pl_dot_more(even, odd, left, right, pairs, as);
        if (last) end_rows(g, e, r, PL_DOT_ROWS, even, odd);
        else pl_dot_store(row, even, odd);
    }
}

static __attribute__((noinline)) void multiply(pl_tiles *t, const pl_args_gemm *g, const block_end *e, float *acc, pl_left left, const pl_bf16 *right, int64_t depth, int more, int last)
{
    (void)t;
    if (g->ta) multiply_as(g, e, acc, left, right, pl_dot_pairs(depth), more, last, PL_DOT_AS_PAIRS);
    else multiply_as(g, e, acc, left, right, pl_dot_pairs(depth), more, last, PL_DOT_AS_ROWS);
}
#endif

/* ---- parts ---------------------------------------------------------------------------------------------------------------- */

/* A thread's own: work memory, and which part of B, counted over batch and columns, lies packed there. */
typedef struct {
    pl_tiles tiles;
    pl_bf16 *left, *right;
    float   *acc;
    int64_t  packed;
} gemm_own;

/* One part of C. Where k takes several slices the sums wait in `acc`, block after block; otherwise one block's room serves all. */
static void gemm_part(gemm_own *w, const pl_args_gemm *g, const tile_plan *p, int64_t item)
{
    int64_t columns = item / p->row_parts, b = columns / p->col_parts, i0 = item % p->row_parts * p->mc, j0 = columns % p->col_parts * p->nc;
    int64_t m = least(p->mb - i0, p->mc), n = least(p->nb - j0, p->nc), k0 = 0;
    do {    /* once where K = 0 */
        int64_t steps = least(p->kb - k0, p->kc), sliced = p->kc < p->kb, last = k0 + steps == p->kb;
        if (sliced || w->packed != columns) pack(RIGHT, w->right, &g->B, g->tb != 0, b, j0, n, k0, steps);
        w->packed = columns;
        for (int64_t i = 0; i < m; i++) {
            pl_left left = left_panel(w->left, g, b, i0 + i, k0, steps);
            for (int64_t j = 0; j < n; j++) {
                const block_end e = block_end_at(g, b, PL_BLOCK * (i0 + i), PL_BLOCK * (j0 + j));
                multiply(&w->tiles, g, &e, w->acc + (sliced ? i * n + j : 0) * PL_BLOCK_SIZE, left, w->right + j * steps * PL_BLOCK_SIZE, least(p->K - PL_BLOCK * k0, PL_BLOCK * steps), k0 > 0,
                         (int)last);
            }
            int64_t row = PL_BLOCK * (i0 + i), col = PL_BLOCK * j0;
            if (p->tail && last) p->tail->fn(p->tail->arg, b, row, col, least(p->M - row, PL_BLOCK), least(p->N - col, PL_BLOCK * n));
        }
        k0 += steps;
    } while (k0 < p->kb);
}

/* One thread's share; `work` is its own memory, or NULL for the stack. */
static void gemm_share(const pl_args_gemm *g, const tile_plan *p, char *work)
{
    _Alignas(64) char stack[STACK_BYTES];
    if (!work) work = stack;
    gemm_own w = {.left = (pl_bf16 *)work, .right = (pl_bf16 *)(work + p->left), .acc = (float *)(work + p->left + p->right), .packed = -1};
    pl_tiles_begin(&w.tiles);
    if (p->threads == 1)
        for (int64_t item = 0; item < p->items; item++) gemm_part(&w, g, p, item);
    else
#pragma omp for schedule(dynamic, p->grain) nowait
        for (int64_t item = 0; item < p->items; item++) gemm_part(&w, g, p, item);
    pl_tiles_end(&w.tiles);
}

void PL_ISA_NAME(pl_cpu_gemm_tiles)(pl_queue *q, const pl_args_gemm *g, const pl_gemm_tail *tail)
{
    tile_plan p = plan_tiles(g, q->dev->threads);
    char *heap = NULL;
    p.tail = tail;
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
