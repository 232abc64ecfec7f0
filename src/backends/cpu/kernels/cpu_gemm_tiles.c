/* cpu_gemm_tiles.c -- C = alpha op(A) op(B) + beta D for bf16 factors in blocks of 32 x 32: on the tile unit,
 * or by dot products (cpu_tiles.h).
 *
 * An entry of C is one chain over ascending k, zero beyond the end of the last 32, started at zero and
 * waiting in memory between slices of k: it depends on the operands alone, as in cpu_gemm.c, but is another
 * chain than there. Subnormal factors and sums count as zero.
 *
 * A part of C is some rows of blocks times some columns of them. A thread packs the columns' part of B, keeps
 * it in its second cache as long as its parts have the same columns, and takes the rows of A one panel of 32
 * at a time, which stays in the first. On the tile unit a block is ended, and what follows the product done,
 * between the tile instructions of the next block; so are the lines prefetched that the next block and the
 * next panel will want.
 *
 * Where k runs down A's rows and there are many of them (A^T B: gradients of weights), k is cut into short
 * slices: a slice of both factors' part of C is packed at once (cpu_gemm_pack.h), on the tile unit between
 * the tile instructions of the slice before, and meets all of it; the sums wait in the second cache
 * meanwhile.
 */
#include "base/alloc.h"
#include "base/work_share.h"
#include "cpu_gemm_prefetch.h"
#include "cpu_gemm_epilogue.h"
#include "cpu_gemm_pack.h"

#ifdef PL_TILES

#define KC 32 /* blocks of 32: a slice of k */
#ifdef PL_TILE_UNIT
#define RIGHT_MOST 600 /* packed blocks of B; CPUs with the tile unit have 2 MB */
/* panels of A that are multiplied with 32 columns of B, one after the other, while those are in the first
 * cache */
#define PANELS_AT_ONCE 2
#define SLOTS(steps)   (4 * (steps)) /* portions of work overlapped with a block of C */
/* slices of A^T B that lie packed: one is multiplied while the next is packed, */
#define BUFFERS    2
#define DOWN_FIRST 2        /* so the first one, which is packed without overlap, is short */
#define LEFT_ROWS  PL_BLOCK /* rows of A that are multiplied at a time */
#else
#define RIGHT_MOST     192
#define PANELS_AT_ONCE 1
#define SLOTS(steps)   1
#define BUFFERS        1
#define DOWN_FIRST     0 /* as long as the others */
#define LEFT_ROWS      PL_DOT_ROWS
#endif
#define MC        2  /* rows of a part where B is packed once for many parts */
#define SLICED_MC 16 /* and where it is packed for every part */
/* A^T B: a slice of k; the panels of A that are multiplied together stay in the first cache, */
#define DOWN_KC 8
/* the longer and the shorter side of a part of C; slices and sums stay in the second */
#define DOWN_LONG   12
#define DOWN_SHORT  8
#define STACK_BYTES (32 * 1024) /* work memory of a small product */
#define SMALL       (1 << 20)   /* multiply-adds below which one thread does it all */

typedef struct {
    int64_t M, N, K, mb, nb, kb;         /* in elements; in blocks */
    int64_t mc, nc, kc;                  /* a part of C, a slice of k, in blocks, at most */
    int64_t row_parts, col_parts, items; /* items: parts over the whole batch */
    int threads;
    int down;                    /* A^T B by slices */
    size_t left, right, work;    /* bytes: panels of A, blocks of B, all of a thread's memory */
    const pl_epilogue *epilogue; /* or NULL */
    int nontemporal;             /* C is stored non-temporally (cpu_convert.h) */
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

/* Parts of C as large as the caches like, then smaller while threads would idle; cores differ in speed, so of
 * long items, as A^T B's are, there are at least two a thread. */
static tile_plan plan_tiles(const pl_args_gemm *g, int threads)
{
    tile_plan p = {.M = g->C.rows, .N = g->C.cols, .K = g->ta ? g->A.rows : g->A.cols};
    p.mb = ceil_div(p.M, PL_BLOCK), p.nb = ceil_div(p.N, PL_BLOCK), p.kb = ceil_div(p.K, PL_BLOCK);
    p.down = g->ta && p.kb > DOWN_KC;
    p.kc = p.down ? DOWN_KC : part(p.kb, KC);
    int64_t most_m = p.kc < p.kb ? SLICED_MC : MC, most_n = RIGHT_MOST / p.kc;
    if (p.down) most_m = p.mb < p.nb ? DOWN_SHORT : DOWN_LONG, most_n = p.mb < p.nb ? DOWN_LONG : DOWN_SHORT;
    if ((double)g->C.batch * (double)p.M * (double)p.N * (double)p.K < SMALL) threads = 1;
    int64_t each = p.down && threads > 1 ? 2 : 1;
    for (;;) {
        p.mc = part(p.mb, most_m), p.nc = part(p.nb, most_n);
        p.row_parts = ceil_div(p.mb, p.mc), p.col_parts = ceil_div(p.nb, p.nc);
        p.items = g->C.batch * p.row_parts * p.col_parts;
        if ((p.items % threads == 0 && p.items >= each * threads) || p.items >= 4 * (int64_t)threads) break;
        if (p.nc >= 4 && p.nc >= p.mc) most_n = p.nc / 2;
        else if (p.mc >= 4) most_m = p.mc / 2;
        else break;
    }
    p.threads = p.items < threads ? (int)p.items : threads;
    p.left = (size_t)((p.down ? BUFFERS * p.mc : PANELS_AT_ONCE) * p.kc) * PL_BLOCK_SIZE * sizeof(pl_bf16);
    p.right = (size_t)((p.down ? BUFFERS * p.nc : p.nc) * p.kc) * PL_BLOCK_SIZE * sizeof(pl_bf16);
    p.work = p.left + p.right + (size_t)(p.kc < p.kb ? p.mc * p.nc : 2) * PL_BLOCK_SIZE * sizeof(float);
    return p;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Blocks of the slice of k from block k0. */
static int64_t slice_steps(const tile_plan *p, int64_t k0)
{
    return DOWN_FIRST > 0 && p->down && k0 == 0 ? DOWN_FIRST : least(p->kb - k0, part(p->kb - k0, p->kc));
}

/* ---- panels of A -------------------------------------------------------------------------------- */

/* Panel i of A as it lies in memory: its rows or, of A^T, its columns, `step` from block to block of k. */
static pl_left panel_lies(const pl_args_gemm *g, int64_t b, int64_t i, int64_t k0)
{
    const pl_mat *x = &g->A;
    const pl_bf16 *base = (const pl_bf16 *)x->data + b * x->bs;
    return g->ta ? (pl_left){base + PL_BLOCK * (k0 * x->rs + i), x->rs, PL_BLOCK * x->rs}
                 : (pl_left){base + PL_BLOCK * (i * x->rs + k0), x->rs, PL_BLOCK};
}

/* Panel i of A, packed into `room` where it does not lie as it is wanted: whole blocks along k, as many rows
 * as are multiplied at a time. */
static pl_left left_panel(pl_bf16 *room, const pl_args_gemm *g, int64_t b, int64_t i, int64_t k0,
                          int64_t steps)
{
    const pl_mat *x = &g->A;
    if (g->ta) {
        for (int64_t k = 0; k < steps; k++) pack_transposed(room, x, b, i, k0 + k, k, steps);
        return left_transposed(room);
    }
    if (PL_BLOCK * (k0 + steps) <= x->cols && least(x->rows - PL_BLOCK * i, PL_BLOCK) % LEFT_ROWS == 0)
        return panel_lies(g, b, i, k0);
    pack(LEFT, room, x, 1, b, i, 1, k0, steps);
    return pl_left_packed(room);
}

/* ---- a block ------------------------------------------------------------------------------------ */

/* A thread's own: work memory, which part of B, counted over batch and columns, lies packed there, and (on
 * the tile unit) a block whose sums wait for their epilogue and what is prefetched for the next panels. */
typedef struct {
    pl_tiles tiles;
    pl_bf16 *left, *right;
    float *acc;
    int64_t packed;
    slice next; /* of A^T B, being packed */
#ifdef PL_TILE_UNIT
    prefetch next_a, next_d, next_operand; /* of the next panels: A; the addend; what the epilogue reads */
#endif
    c_block last;      /* rows = 0: none waits */
    const float *sums; /* of it */
} gemm_own;

/* Some panels of A and a slice of k of the part of C that is being made. */
typedef struct {
    int64_t b, i0, j0, m, n; /* the part: its first block, its blocks */
    int64_t k0, steps;       /* the slice: its first block of k, its blocks, */
    int64_t depth;           /* how much of them lies inside the matrix */
    int more, last;          /* sums of slices before wait in acc; no slice comes after */
} gemm_slice;

/* A block of C: where its sums are added up, and its factors. */
typedef struct {
    c_block c;
    float *acc;
    pl_left left;
    const pl_bf16 *right;
} gemm_block;

/* block_product: the sums of a block of C over a slice, added to those in acc if there are `more`; then its
 * epilogue or, if this slice is not the last, acc again. */
#ifdef PL_TILE_UNIT

#define OVERLAP_ROWS 8 /* at a time */

/* Overlapped with the tile unit: rows r to r + 7 of the block that waits are ended, those of `now`, which is
 * being multiplied, prefetched. */
static __attribute__((noinline)) void
overlap_rows(gemm_own *w, const pl_args_gemm *g, const pl_epilogue *epilogue, const c_block *now, unsigned r)
{
    const c_block *e = &w->last;
    if (r < e->rows) {
        __m512 even[OVERLAP_ROWS], odd[OVERLAP_ROWS];
        const float *sums = PL_SUMS_ROW(w->sums, r);
        for (int i = 0; i < OVERLAP_ROWS; i++)
            even[i] = _mm512_load_ps(sums + 16 * i), odd[i] = _mm512_load_ps(sums + 16 * i + 256);
        epilogue_rows(g, epilogue, e, r, OVERLAP_ROWS, even, odd);
    }
    if (now) {
        prefetch_c(g, now, r, OVERLAP_ROWS);
        if (epilogue && epilogue->operand)
            pl_prefetch_operand(epilogue, now->b, now->i + r, now->j, OVERLAP_ROWS);
    }
}

/* The rows of a block, overlapped with the tile instructions of the next one: a portion every `apart` slots,
 * of which there are four to a step of k. */
typedef struct {
    unsigned row;
    int64_t slot, at, apart;
} row_portions;

PL_INLINE void overlap_some(row_portions *o, gemm_own *w, const pl_args_gemm *g, const pl_epilogue *epilogue,
                            const c_block *now)
{
    if (o->row < PL_BLOCK && o->slot++ >= o->at) {
        overlap_rows(w, g, epilogue, now, o->row);
        o->row += OVERLAP_ROWS, o->at += o->apart;
    }
}

/* Where k goes on in another slice, whose packing overlaps. */
static void multiply_and_pack(gemm_own *w, const gemm_block *x, int64_t steps, int more)
{
    pl_tiles *t = &w->tiles;
    pl_left left = x->left;
    const pl_bf16 *right = x->right;
    (void)t;
    PL_TILES_BARRIER();
    pl_tiles_start(t, more ? x->acc : NULL);
    for (int64_t k = 0; k < steps; k++, left.at += left.step, right += PL_BLOCK_SIZE)
        PL_TILES_ADD(t, left.at, left.row, right, slice_overlap(&w->next));
    pl_tiles_store(t, x->acc);
    PL_TILES_BARRIER();
}

static void multiply(gemm_own *w, const pl_args_gemm *g, const pl_epilogue *epilogue, const gemm_block *x,
                     const gemm_slice *s)
{
    pl_tiles *t = &w->tiles;
    pl_left left = x->left;
    const pl_bf16 *right = x->right;
    const int64_t steps = ceil_div(s->depth, PL_BLOCK);
    row_portions rows = {.apart = 4 * steps * OVERLAP_ROWS / PL_BLOCK};
    (void)t;
    PL_TILES_BARRIER();
    pl_tiles_start(t, s->more ? x->acc : NULL);
    for (int64_t k = 0; k < steps; k++, left.at += left.step, right += PL_BLOCK_SIZE) {
        PL_TILES_ADD(t, left.at, left.row, right, overlap_some(&rows, w, g, epilogue, &x->c));
        prefetch_some(&w->next_a);
        prefetch_some(&w->next_d);
        prefetch_some(&w->next_operand);
    }
    for (; rows.row < PL_BLOCK; rows.row += OVERLAP_ROWS) overlap_rows(w, g, epilogue, &x->c, rows.row);
    pl_tiles_store(t, x->acc);
    PL_TILES_BARRIER();
    w->last.rows = 0;
    if (s->last) w->last = x->c, w->sums = x->acc;
}

static void block_product(gemm_own *w, const pl_args_gemm *g, const tile_plan *p, const gemm_block *x,
                          const gemm_slice *s)
{
    if (p->down && !s->last) multiply_and_pack(w, x, s->steps, s->more);
    else multiply(w, g, p->epilogue, x, s);
}

/* Before the panels of rows [i - rows, i) are multiplied: rows [i, i + rows) will be next, for the same
 * columns of C and slice of k. */
static void panels_begin(gemm_own *w, const pl_args_gemm *g, const tile_plan *p, const gemm_slice *s,
                         int64_t i, int64_t rows)
{
    const int64_t times = s->steps > 0 ? s->n * rows / PL_BLOCK * s->steps : 1; /* k may be empty */
    const int64_t col = PL_BLOCK * s->j0, cols = PL_BLOCK * s->n;
    const pl_mat *f = p->epilogue && !p->epilogue->operand_written ? p->epilogue->operand : NULL;
    w->next_a = w->next_d = w->next_operand = (prefetch){0};
    if (!g->ta) w->next_a = prefetch_of(&g->A, s->b, i, rows, PL_BLOCK * s->k0, PL_BLOCK * s->steps, times);
    if (s->last) w->next_d = prefetch_of(&g->D, s->b, i, rows, col, cols, times);
    if (s->last && f) w->next_operand = prefetch_of(f, s->b, i, rows, col, cols, times);
}

/* After them: the block that waits. */
static void panels_end(gemm_own *w, const pl_args_gemm *g, const pl_epilogue *epilogue)
{
    for (unsigned r = 0; r < w->last.rows; r += OVERLAP_ROWS) overlap_rows(w, g, epilogue, NULL, r);
    w->last.rows = 0;
}

#else

PL_INLINE void multiply_as(const pl_args_gemm *g, const pl_epilogue *epilogue, const gemm_block *x,
                           const gemm_slice *s, const pl_dot_form as)
{
    const c_block *e = &x->c;
    const int64_t pairs = pl_dot_pairs(s->depth);
    pl_left left = x->left;
    const int64_t eight = as == PL_DOT_AS_PAIRS ? (pairs + 15) / 16 * left.step : PL_DOT_ROWS * left.row;
    for (unsigned r = 0; r < e->rows; r += PL_DOT_ROWS, left.at += eight) {
        float *row = PL_SUMS_ROW(x->acc, r);
        __m512 even[PL_DOT_ROWS], odd[PL_DOT_ROWS];
        if (s->more) pl_dot_load(even, odd, row);
        else pl_dot_zero(even, odd);
        if (s->last) prefetch_c(g, e, r, PL_DOT_ROWS);
        if (s->last && epilogue && epilogue->operand)
            pl_prefetch_operand(epilogue, e->b, e->i + r, e->j, PL_DOT_ROWS);
        pl_dot_more(even, odd, left, x->right, pairs, as);
        if (s->last) epilogue_rows(g, epilogue, e, r, PL_DOT_ROWS, even, odd);
        else pl_dot_store(row, even, odd);
    }
}

static __attribute__((noinline)) void block_product(gemm_own *w, const pl_args_gemm *g, const tile_plan *p,
                                                    const gemm_block *x, const gemm_slice *s)
{
    if (g->ta) multiply_as(g, p->epilogue, x, s, PL_DOT_AS_PAIRS);
    else multiply_as(g, p->epilogue, x, s, PL_DOT_AS_ROWS);
    if (p->down && !s->last) slice_prefetch(&w->next, w->next.fetch_some);
}

static void panels_begin(gemm_own *w, const pl_args_gemm *g, const tile_plan *p, const gemm_slice *s,
                         int64_t i, int64_t rows)
{
    (void)w, (void)g, (void)p, (void)s, (void)i, (void)rows;
}

static void panels_end(gemm_own *w, const pl_args_gemm *g, const pl_epilogue *epilogue)
{
    (void)w, (void)g, (void)epilogue;
}

#endif

/* ---- parts -------------------------------------------------------------------------------------- */

/* The slice of A^T B from block k0 is the next to be packed, overlapped with other work in `slots` portions.
 */
static void next_slice(gemm_own *w, const tile_plan *p, int64_t k0, int64_t slots)
{
    int64_t other = BUFFERS > 1 && w->next.left == w->left ? p->kc * PL_BLOCK_SIZE : 0;
    slice_next(&w->next, w->left + p->mc * other, w->right + p->nc * other, k0, slice_steps(p, k0), slots);
}

/* Panels [i, i + panels) of the part, packed or as they lie, times the slice's columns. Where k takes several
 * slices the sums wait in w->acc, block after block; otherwise room for two serves all. */
static void gemm_panels(gemm_own *w, const pl_args_gemm *g, const tile_plan *p, const gemm_slice *s,
                        const pl_bf16 *packed_left, const pl_bf16 *packed_right, int64_t i, int64_t panels)
{
    const int64_t row = PL_BLOCK * (s->i0 + i), panel = s->steps * PL_BLOCK_SIZE;
    const int sliced = p->kc < p->kb;
    pl_left left[PANELS_AT_ONCE];
    for (int64_t h = 0; h < panels; h++)
        left[h] = p->down ? left_transposed(packed_left + (i + h) * panel)
                          : left_panel(w->left + h * panel, g, s->b, s->i0 + i + h, s->k0, s->steps);
    panels_begin(w, g, p, s, row + PL_BLOCK * panels, PL_BLOCK * panels);
    for (int64_t j = 0; j < s->n; j++)
        for (int64_t h = 0; h < panels; h++) {
            const int64_t at = sliced ? (i + h) * s->n + j : (j * panels + h) % 2;
            const gemm_block x = {
                .c = c_block_at(g, s->b, row + PL_BLOCK * h, PL_BLOCK * (s->j0 + j), p->nontemporal),
                .acc = w->acc + at * PL_BLOCK_SIZE,
                .left = left[h],
                .right = packed_right + j * panel};
            block_product(w, g, p, &x, s);
        }
    panels_end(w, g, p->epilogue);
}

/* One part of C, slice of k after slice of k. */
static void gemm_part(gemm_own *w, const pl_args_gemm *g, const tile_plan *p, int64_t item)
{
    const int64_t columns = item / p->row_parts;
    gemm_slice s = {
        .b = columns / p->col_parts, .i0 = item % p->row_parts * p->mc, .j0 = columns % p->col_parts * p->nc};
    s.m = least(p->mb - s.i0, p->mc), s.n = least(p->nb - s.j0, p->nc);
    if (p->down) {
        w->next = slice_begin(g, s.b, s.i0, s.m, s.j0, s.n);
        next_slice(w, p, 0, 0);
        slice_rest(&w->next);
    }
    do { /* once where K = 0 */
        s.steps = slice_steps(p, s.k0), s.depth = least(p->K - PL_BLOCK * s.k0, PL_BLOCK * s.steps);
        s.more = s.k0 > 0, s.last = s.k0 + s.steps == p->kb;
        const pl_bf16 *packed_left = w->next.left, *packed_right = p->down ? w->next.right : w->right;
        if (p->down && !s.last) next_slice(w, p, s.k0 + s.steps, s.m * s.n * SLOTS(s.steps));
        if (!p->down && (p->kc < p->kb || w->packed != columns))
            pack(RIGHT, w->right, &g->B, g->tb != 0, s.b, s.j0, s.n, s.k0, s.steps);
        w->packed = columns;
        for (int64_t i = 0; i < s.m; i += PANELS_AT_ONCE)
            gemm_panels(w, g, p, &s, packed_left, packed_right, i, least(s.m - i, PANELS_AT_ONCE));
        if (p->down && !s.last) slice_rest(&w->next);
        s.k0 += s.steps;
    } while (s.k0 < p->kb);
}

/* A product in the making, over the threads. */
typedef struct {
    const pl_args_gemm *g;
    const tile_plan *p;
    char *heap;     /* work memory of every thread, or NULL: on their stacks */
    pl_share share; /* of the parts */
} gemm_shared;

/* One thread's share. */
static void gemm_share(void *arg, int me)
{
    gemm_shared *o = arg;
    const tile_plan *p = o->p;
    _Alignas(64) char stack[STACK_BYTES];
    char *work = o->heap ? o->heap + (size_t)me * p->work : stack;
    gemm_own w = {.left = (pl_bf16 *)work,
                  .right = (pl_bf16 *)(work + p->left),
                  .acc = (float *)(work + p->left + p->right),
                  .packed = -1};
    pl_tiles_begin(&w.tiles);
    PL_SHARE(item, &o->share, me) gemm_part(&w, o->g, p, item);
    pl_tiles_end(&w.tiles);
    if (p->nontemporal || (p->epilogue && p->epilogue->operand_nontemporal)) pl_nontemporal_end();
}

void PL_ISA_NAME(pl_cpu_gemm_tiles)(pl_queue *q, const pl_args_gemm *g, const pl_epilogue *epilogue)
{
    tile_plan p = plan_tiles(g, q->dev->threads);
    gemm_shared o = {.g = g, .p = &p};
    p.epilogue = epilogue;
    p.nontemporal = epilogue ? epilogue->nontemporal : pl_nontemporal_result(&g->C, &g->D);
    if (p.work > STACK_BYTES) {
        o.heap = pl_alloc(p.work * (size_t)p.threads);
        if (!o.heap) {
            PL_QUEUE_FAIL(q, POLAR_E_NOMEM, "gemm: %zu bytes to pack %lldx%lldx%lld on %d threads",
                          p.work * (size_t)p.threads, (long long)p.M, (long long)p.N, (long long)p.K,
                          p.threads);
            return;
        }
    }
    pl_share_begin(&o.share, p.items, 1, p.threads);
    pl_pool_run(q->dev->pool, p.threads, gemm_share, &o);
    pl_free(o.heap);
}

#endif
