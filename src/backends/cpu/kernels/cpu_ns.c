/* cpu_ns.c -- X <- a X + (b A + c A A) X, A = X X^T, in bf16 on the tile unit, one packed matrix in the
 * second cache of one core (cpu_ns.h).
 *
 *     A = R(X X^T)          lower half of the blocks, mirrored
 *     P = R(b A + c A A)    the same
 *     X = R(a X + P X)
 *
 * In a chain (Z = a I + P of one step, Q = q I + P of those before it):
 *
 *     W = R(a A + P A),  A = R(a W + W P),  P' = R(b A + c A A),  P = R(a P + q P' + P' P)
 *         commuting, so symmetric: lower half, mirrored
 *
 * What ends a product writes the forms that the next one reads, and is done between the tile instructions
 * of the blocks after it. An entry is one chain over ascending k, that of cpu_gemm_tiles.c; X X^T and A A
 * are their mirror images to the bit, so without a chain the result is that of three gemms a step.
 */
#include "cpu_ns.h"
#include "cpu_ns_dots.h"
#include "cpu_ns_pipeline.h"

#ifdef PL_TILES

static int64_t blocks_of(int64_t n)
{
    return (n + PL_BLOCK - 1) / PL_BLOCK;
}

size_t PL_ISA_NAME(pl_ns_point)(pl_ns *w, char *base, int64_t rows, int64_t cols, int64_t chain)
{
    int tall = rows > cols;
    *w = (pl_ns){.tall = tall, .m = tall ? cols : rows, .n = tall ? rows : cols};
    w->mb = blocks_of(w->m), w->nb = blocks_of(w->n);
    size_t block = PL_BLOCK_SIZE * sizeof(pl_bf16), x = (size_t)(w->mb * w->nb) * block,
           a = (size_t)(w->mb * w->mb) * block, used = 0;
#define TAKE(field, bytes) (w->field = base ? (void *)(base + used) : NULL, used += (bytes))
    for (int i = 0; i <= PL_NS_SUMS; i++) TAKE(sums[i], PL_BLOCK_SIZE * sizeof(float));
    TAKE(unused, block);
    TAKE(left, x);
    TAKE(transposed, x);
    TAKE(right, x + (size_t)w->mb * block);
    TAKE(gram.left, a);
    TAKE(gram.right, a);
    TAKE(poly[0].left, a);
    if (chain) {
        TAKE(poly[0].right, a);
        for (int i = 1; i < PL_NS_POLYS; i++) {
            TAKE(poly[i].left, a);
            TAKE(poly[i].right, a);
        }
    }
#undef TAKE
    return used;
}

/* ---- the products ------------------------------------------------------------------------------- */

/* C = R(left right), R(alpha left right + beta D) or R(alpha left right + (beta D + gamma E)), symmetric:
 * block (i, j) with i >= j, and its mirror image. Right panels after the first may have to be made from the
 * left ones: panel i is wanted at (i, i), and is transposed while the blocks before it in its row are
 * multiplied.
 */
typedef struct {
    pl_bf16 *left, *right; /* panels of K blocks */
    int transpose;         /* all right panels but the first are to be made */
    /* a matrix and its transpose: symmetric to the bit, within the blocks on the diagonal too */
    int itself;
    int64_t K, depth; /* blocks of k; how much of them lies inside the matrix */
    pl_ns_square out; /* right or NULL */
    pl_bf16 *D, *E;   /* like out.right, or NULL */
    float alpha, beta, gamma;
} symmetric;

static void multiply_symmetric(pl_ns *w, const symmetric *c)
{
    pipeline l;
    unsigned now = 0;
    pipeline_begin(&l, w, c->depth);
    for (int64_t i = 0; i < w->mb; i++) {
        if (c->transpose && i)
            l.side = (side_panel){.from = pl_ns_at(c->left, i * c->K),
                                  .to = pl_ns_at(c->right, i * c->K),
                                  .transposes = 4 * c->K};
        for (int64_t j = 0; j <= i; j++) {
            while (j == i && l.side.transposed < l.side.transposes) side_panel_transpose(&l.side);
            float *sums = w->sums[now = now == 2 ? 0 : now + 1];
            int64_t at = i * w->mb + j, mirror = j * w->mb + i;
            multiply(&l, sums, pl_ns_at(c->left, i * c->K), pl_ns_at(c->right, j * c->K), c->K);
            epilogue *p = pipeline_epilogue(&l);
            p->left = pl_ns_at(c->out.left, at);
            p->right = c->out.right ? pl_ns_at(c->out.right, mirror) : w->unused;
            p->sums = sums;
            p->alpha = c->alpha;
            p->beta = c->beta;
            p->gamma = c->gamma;
            p->D = c->D ? pl_ns_at(c->D, mirror) : NULL;
            p->E = c->E ? pl_ns_at(c->E, mirror) : NULL;
            p->transposed_left = i != j ? pl_ns_at(c->out.left, mirror) : NULL;
            p->transposed_right = i != j && c->out.right ? pl_ns_at(c->out.right, at) : NULL;
            p->diagonal = c->itself && i == j;
            epilogue_set(p, w->m - PL_BLOCK * i, w->m - PL_BLOCK * j);
        }
    }
    pipeline_end(&l);
}

static void gram(pl_ns *w)
{
    multiply_symmetric(w, &(symmetric){.left = w->left,
                                       .right = w->transposed,
                                       .transpose = !w->transposed_all,
                                       .itself = 1,
                                       .K = w->nb,
                                       .depth = w->n,
                                       .out = w->gram});
}

/* b A + c A A; `itself`: A is symmetric to the bit, as gram leaves it, and not as a chain does. */
static void square(pl_ns *w, pl_ns_square out, const double *k, int itself)
{
    multiply_symmetric(w, &(symmetric){.left = w->gram.left,
                                       .right = w->gram.right,
                                       .itself = itself,
                                       .K = w->mb,
                                       .depth = w->m,
                                       .out = out,
                                       .D = w->gram.right,
                                       .alpha = (float)k[2],
                                       .beta = (float)k[1]});
}

/* l r + beta d + gamma e (e or NULL). */
static void multiply_squares(pl_ns *w, pl_ns_square out, pl_ns_square l, pl_ns_square r, double beta,
                             pl_ns_square d, double gamma, pl_bf16 *e)
{
    multiply_symmetric(w, &(symmetric){.left = l.left,
                                       .right = r.right,
                                       .K = w->mb,
                                       .depth = w->m,
                                       .out = out,
                                       .D = d.right,
                                       .E = e,
                                       .alpha = 1,
                                       .beta = (float)beta,
                                       .gamma = (float)gamma});
}

static pl_ns_square left_only(pl_ns_square s)
{
    return (pl_ns_square){s.left, NULL};
}

/* The polynomial in A that X is to be multiplied by, but for factor I: that of one step, or of all that are
 * joined to it. Returns its left form; coef is left at the last of them. */
static const pl_bf16 *polynomial(pl_ns *w, double *factor, const double **coef, int64_t joined)
{
    const double *k = *coef;
    pl_ns_square A = w->gram, P = w->poly[0], B = P, other = w->poly[1];
    *factor = k[0];
    square(w, joined ? P : left_only(P), k, 1);
    for (int64_t s = 0; s < joined; s++) {
        multiply_squares(w, other, B, A, k[0], A, 0, NULL);
        multiply_squares(w, A, other, B, k[0], other, 0, NULL);
        k += 3, B = w->poly[2];
        square(w, B, k, 0);
        multiply_squares(w, s + 1 < joined ? other : left_only(other), B, P, k[0], P, *factor, B.right);
        pl_ns_square t = P;
        P = other, other = t;
        *factor *= k[0];
    }
    *coef = k;
    return P.left;
}

/* The next X; of the last one only the form is wanted that the caller's is made of: the left one, for a tall
 * matrix the right one. */
static void iterate(pl_ns *w, const pl_bf16 *poly, float a, int last)
{
    pipeline l;
    unsigned now = 0;
    pipeline_begin(&l, w, w->m);
    for (int64_t j = 0; j < w->nb; j++) {
        pl_bf16 *right = pl_ns_right(w, j, 0), *next = pl_ns_right(w, j, 1);
        for (int64_t i = 0; i < w->mb; i++) {
            float *sums = w->sums[now = now == 2 ? 0 : now + 1];
            multiply(&l, sums, poly + i * w->mb * PL_BLOCK_SIZE, right, w->mb);
            epilogue *p = pipeline_epilogue(&l);
            p->left = pl_ns_at(w->left, i * w->nb + j);
            p->right = last && !w->tall ? w->unused : pl_ns_at(next, i);
            p->sums = sums;
            p->alpha = 1;
            p->beta = a;
            p->D = pl_ns_at(right, i);
            p->E = NULL;
            p->transposed_right = last || i ? NULL : pl_ns_at(w->transposed, j);
            p->transposed_left = NULL;
            p->diagonal = 0;
            epilogue_set(p, w->m - PL_BLOCK * i, w->n - PL_BLOCK * j);
        }
    }
    pipeline_end(&l);
    w->first = (w->first + w->nb) % (w->nb + 1);
    w->transposed_all = 0;
}

void PL_ISA_NAME(pl_ns_steps)(pl_ns *w, const double *coef, int64_t steps, int64_t chain)
{
    for (int64_t s = 0, joined; s < steps; s += 1 + joined, coef += 3) {
        double factor;
        joined = pl_chain_joined(chain, s);
        gram(w);
        const pl_bf16 *poly = polynomial(w, &factor, &coef, joined);
        iterate(w, poly, (float)factor, s + 1 + joined == steps);
    }
}

#endif
