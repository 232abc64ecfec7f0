/* cpu_ns.c -- X <- a X + (b A + c A A) X, A = X X^T, in bf16 on the tile unit, one packed matrix in the second cache of one core (cpu_ns.h).
 *
 *     A = R(X X^T)          lower half of the blocks, mirrored
 *     P = R(b A + c A A)    the same
 *     X = R(a X + P X)
 *
 * What ends a product writes the forms that the next one reads, and is done between the tile instructions of the blocks after it. An entry is one chain over
 * ascending k, that of cpu_gemm_tiles.c; a product and its mirror image have the same bits, so the result is that of three gemms a step.
 */
#include "cpu_ns.h"
#include "cpu_ns_dots.h"
#include "cpu_ns_line.h"

#ifdef PL_TILES

static int64_t blocks_of(int64_t n)
{
    return (n + PL_BLOCK - 1) / PL_BLOCK;
}

size_t PL_ISA_NAME(pl_ns_point)(pl_ns *w, char *base, int64_t rows, int64_t cols)
{
    int tall = rows > cols;
    *w = (pl_ns){.tall = tall, .m = tall ? cols : rows, .n = tall ? rows : cols};
    w->mb = blocks_of(w->m), w->nb = blocks_of(w->n);
    size_t block = PL_BLOCK_SIZE * sizeof(pl_bf16), x = (size_t)(w->mb * w->nb) * block, a = (size_t)(w->mb * w->mb) * block, used = 0;
#define TAKE(field, bytes) (w->field = base ? (void *)(base + used) : NULL, used += (bytes))
    for (int i = 0; i <= PL_NS_SUMS; i++) TAKE(sums[i], PL_BLOCK_SIZE * sizeof(float));
    TAKE(unused, block);
    TAKE(left, x);
    TAKE(turned, x);
    TAKE(right, x + (size_t)w->mb * block);
    TAKE(gram_left, a);
    TAKE(gram_right, a);
    TAKE(poly, a);
#undef TAKE
    return used;
}

/* ---- the products ---------------------------------------------------------------------------------------------------------- */

/* C = R(left right) or R(alpha left right + beta D), symmetric: block (i, j) with i >= j, and its mirror image. Right panels after the first may have to be made
 * from the left ones: panel i is wanted at (i, i), and is turned while the blocks before it in its row are multiplied. */
typedef struct {
    pl_bf16 *left, *right;             /* panels of K blocks */
    int      turn;                     /* all right panels but the first are to be made */
    int64_t  K, depth;                 /* blocks of k; how much of them lies inside the matrix */
    pl_bf16 *out_left, *out_right;     /* block (i, j) at i mb + j; in panel j, row block i, or NULL */
    pl_bf16 *D;                        /* like out_right, or NULL */
    float    alpha, beta;
} symmetric;

static void multiply_symmetric(pl_ns *w, const symmetric *c)
{
    line l;
    unsigned now = 0;
    line_begin(&l, w, c->depth);
    for (int64_t i = 0; i < w->mb; i++) {
        if (c->turn && i) l.side = (aside){.from = pl_ns_at(c->left, i * c->K), .to = pl_ns_at(c->right, i * c->K), .turns = 4 * c->K};
        for (int64_t j = 0; j <= i; j++) {
            while (j == i && l.side.turned < l.side.turns) aside_turn(&l.side);
            float *sums = w->sums[now = now == 2 ? 0 : now + 1];
            int64_t at = i * w->mb + j, mirror = j * w->mb + i;
            multiply(&l, sums, pl_ns_at(c->left, i * c->K), pl_ns_at(c->right, j * c->K), c->K);
            ending *p = line_ending(&l);
            p->left = pl_ns_at(c->out_left, at);
            p->right = c->out_right ? pl_ns_at(c->out_right, mirror) : w->unused;
            p->sums = sums;
            p->alpha = c->alpha;
            p->beta = c->beta;
            p->D = c->D ? pl_ns_at(c->D, mirror) : NULL;
            p->turned_left = i != j ? pl_ns_at(c->out_left, mirror) : NULL;
            p->turned_right = i != j && c->out_right ? pl_ns_at(c->out_right, at) : NULL;
            p->diagonal = i == j;
            ending_set(p, w->m - PL_BLOCK * i, w->m - PL_BLOCK * j);
        }
    }
    line_end(&l);
}

static void gram(pl_ns *w)
{
    multiply_symmetric(w, &(symmetric){.left = w->left, .right = w->turned, .turn = !w->turned_all, .K = w->nb, .depth = w->n, .out_left = w->gram_left, .out_right = w->gram_right});
}

static void polynomial(pl_ns *w, float b, float c)
{
    multiply_symmetric(w, &(symmetric){.left = w->gram_left, .right = w->gram_right, .K = w->mb, .depth = w->m, .out_left = w->poly, .D = w->gram_right, .alpha = c, .beta = b});
}

/* The next X; of the last one only the form is wanted that the caller's is made of: the left one, for a tall matrix the right one. */
static void iterate(pl_ns *w, float a, int last)
{
    line l;
    unsigned now = 0;
    line_begin(&l, w, w->m);
    for (int64_t j = 0; j < w->nb; j++) {
        pl_bf16 *right = pl_ns_right(w, j, 0), *next = pl_ns_right(w, j, 1);
        for (int64_t i = 0; i < w->mb; i++) {
            float *sums = w->sums[now = now == 2 ? 0 : now + 1];
            multiply(&l, sums, pl_ns_at(w->poly, i * w->mb), right, w->mb);
            ending *p = line_ending(&l);
            p->left = pl_ns_at(w->left, i * w->nb + j);
            p->right = last && !w->tall ? w->unused : pl_ns_at(next, i);
            p->sums = sums;
            p->alpha = 1;
            p->beta = a;
            p->D = pl_ns_at(right, i);
            p->turned_right = last || i ? NULL : pl_ns_at(w->turned, j);
            p->turned_left = NULL;
            p->diagonal = 0;
            ending_set(p, w->m - PL_BLOCK * i, w->n - PL_BLOCK * j);
        }
    }
    line_end(&l);
    w->first = (w->first + w->nb) % (w->nb + 1);
    w->turned_all = 0;
}

void PL_ISA_NAME(pl_ns_steps)(pl_ns *w, const double *coef, int64_t steps)
{
    for (int64_t s = 0; s < steps; s++, coef += 3) {
        gram(w);
        polynomial(w, (float)coef[1], (float)coef[2]);
        iterate(w, (float)coef[0], s + 1 == steps);
    }
}

#endif
