/* cpu_attention.h -- the memory of the fused attention of `cpu`: one head of one image per thread at a time.
 *
 * T tokens, d columns of a head, a block of n queries (two vectors). Scores stand transposed, S^T (T, n): a
 * query is a column, so that maxima, sums and e^x run down the columns n at a time, and S^T is the factor of
 * the products that follow as it stands:
 *
 *     S^T = K Q^T            (T, n): k^T is read by rows of columns, q^T is made for each block
 *     P^T = e^(scale S^T - lse)
 *     O   = P V              (n, d)                 dQ = dS K          (n, d)
 *     dP^T = V dO^T          (T, n)                 dV += P^T dO       (T, d),   dK += dS^T Q    (T, d)
 *
 * Every product is one chain of multiply-adds over ascending k; those over queries wait in memory between
 * blocks.
 */
#ifndef PL_CPU_ATTENTION_H
#define PL_CPU_ATTENTION_H

#include "device/backend.h"
#include "math/bf16_elem.h"

/* Sizes, from the shapes. */
typedef struct pl_attention_plan {
    int64_t images, heads, tokens, d;
    /* tokens and d rounded up to 32: whole vectors of every format and instruction set, whole blocks */
    int64_t tp, dp;
    int f64, back, threads;
} pl_attention_plan;

/* One thread's memory, in the format computed in. */
typedef struct pl_attention_work {
    void *kt, *vt; /* (dp, tp): k and v transposed; v only by the backward */
    void *k, *v;   /* (tp, dp): k only by the backward */
    void *dk, *dv; /* (tp, dp) */
    /* (dp, 32) twice, (32, dp) twice: a block of queries and of the gradient of O */
    void *qt, *gt, *q, *g;
    void *o;      /* (32, dp): a block of results */
    void *s, *ds; /* (tp, 32) */
} pl_attention_work;

/* One thread's memory on the tile unit (cpu_attention_tiles.c), in blocks of 32 x 32: tb of tokens, db of
 * columns. */
typedef struct pl_attention_tiles {
    pl_bf16 *kt, *vt;        /* (tb, db): right forms of K^T, V^T; the latter only by the backward */
    pl_bf16 *v, *k;          /* (db, tb): right forms of V (forward), K (backward) */
    pl_bf16 *qt, *gt;        /* (db, tb): left forms of Q^T and dO^T, backward */
    pl_bf16 *q;              /* (2, db): 32 rows of Q and, backward, of dO, left form */
    pl_bf16 *p;              /* (2, tb): 32 rows of P (forward) or dS (backward), left form, by transposes */
    pl_bf16 *all_p, *all_ds; /* (tb, tb): right forms of P, dS, keys by queries, backward */
    float *s, *ds, *sum;     /* (2, tb), (2, tb), (2, db): sums, by transposes */
} pl_attention_tiles;

/* from shapes alone */
pl_attention_plan pl_attention_plan_make(const pl_mat *QKV, int64_t heads, int f64, int back, int threads);
/* bytes; with base NULL only those */
size_t pl_attention_work_point(pl_attention_work *w, char *base, const pl_attention_plan *p);
/* the same for the tile unit */
size_t pl_attention_tiles_point(pl_attention_tiles *w, char *base, const pl_attention_plan *p);
/* scratch of a call, on any instruction set */
size_t pl_cpu_attention_scratch(pl_op_id id, const void *args, int threads);

#endif
