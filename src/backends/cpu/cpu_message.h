/* cpu_message.h -- the fused messages of `cpu`: what is laid out where, the same for every instruction set.
 *
 * The weights of a pair are functions of its distance: they come from a table, and the MLP's gradients from
 * moments (math/message_pieces.h); f64 takes the direct way always.
 */
#ifndef PL_CPU_MESSAGE_H
#define PL_CPU_MESSAGE_H

#include "device/backend.h"
#include "math/message_pieces.h"

#define PL_MESSAGE_PARTS 32 /* groups of a member's clouds whose gradients are summed first */
#define PL_MESSAGE_CHUNK 48 /* distances that go through the MLP together: a multiple of the terms */

/* The operands of both directions: sums go from the source (S, V or dYs, dYv) to the sink (Ys, Yv or dS, dV).
 */
typedef struct pl_message_args {
    const pl_mat *sink_s, *sink_v, *source_s, *source_v, *D, *w0, *b0, *W2, *b2;
    const pl_mat *S, *V, *dw0, *db0, *dW2, *db2; /* the backward's, else NULL */
    int64_t points;
    double alpha;
} pl_message_args;

/* Sizes, from the shapes and the number of threads. */
typedef struct pl_message_plan {
    int64_t members, clouds, points, pairs, h; /* clouds: of one member */
    int64_t hp;                                /* h rounded up to whole cache lines of float */
    int64_t parts;                             /* of the clouds of a member, equal but for the last */
    int64_t strip;                             /* pairs worked on together at most: whole rows i */
    int f64, back, threads;
    size_t real; /* bytes of the format computed in */
} pl_message_plan;

/* One member's memory, shared by the threads. Doubles first. */
typedef struct pl_message_member {
    double *w0, *b0, *b2; /* (hp), (hp), (2hp): zero beyond h */
    double *Wt, *Wr;      /* W2 as (hp, 2hp) and as (2hp, hp) */
    double *zc, *slope;   /* (ROWS * TERMS, hp): coefficients of z, silu' at the nodes */
    double *total, *du;   /* (ROWS * TERMS, 2hp), (ROWS * TERMS, hp): moments, gradients at the nodes */
    /* (parts, hp * 2hp + 4hp): dW2 transposed, db2, dw0, db0 of clouds that took the direct way, ... */
    double *direct;
    int32_t *directs; /* (parts): ... and how many those are; 0: not even zeroed */
    void *table;      /* (hp / lanes, rows, 2 TERMS, lanes) */
    void *moments;    /* (parts), each as the table */
} pl_message_member;

/* One thread's memory. */
typedef struct pl_message_work {
    void *source, *other, *sums;    /* (hp / lanes, points, 4, lanes): s, v0, v1, v2 of a point */
    void *t, *dw, *w;               /* (strip), (hp / lanes, strip, 2, lanes) twice */
    int32_t *piece, *order, *start; /* (strip), (strip), (ROWS + 1) */
    double *d, *z, *slope, *g;      /* (CHUNK), (CHUNK, hp), (CHUNK, hp), (CHUNK, 2hp) */
} pl_message_work;

/* pair_weight and pair_weight_back, one number a pair: the same table and moments, of one channel. */
typedef struct pl_weight_args {
    const pl_mat *U, *D, *w0, *b0, *W2;  /* U written by the forward, read by the backward */
    const pl_mat *dw0, *db0, *dW2, *db2; /* the backward's, else NULL */
} pl_weight_args;

typedef struct pl_weight_plan {
    int64_t members, clouds, pairs, h, hp, parts; /* as above */
    int f64, back, threads;
} pl_weight_plan;

typedef struct pl_weight_member {
    double *w0, *b0, *w2; /* (hp): zero beyond h */
    double *moments;      /* (parts, ROWS * TERMS) */
    double *direct;       /* (parts, 3hp + 1): dW2, dw0, db0, db2 of clouds that took the direct way */
    float *table;         /* (ROWS, 8): TERMS coefficients of a piece */
} pl_weight_member;

typedef struct pl_weight_work {
    double *d, *g, *z, *slope; /* (CHUNK), (CHUNK), (CHUNK, hp), (CHUNK, hp) */
} pl_weight_work;

/* borrows a */
pl_message_args pl_message_args_forward(const pl_args_pair_message *a);
/* borrows a */
pl_message_args pl_message_args_back(const pl_args_pair_message_back *a);
/* from shapes alone */
pl_message_plan pl_message_plan_make(const pl_message_args *a, int f64, int threads);
/* bytes; with base NULL only those */
size_t pl_message_member_point(pl_message_member *m, char *base, const pl_message_plan *p);
/* the same for one thread */
size_t pl_message_work_point(pl_message_work *w, char *base, const pl_message_plan *p);
/* scratch of a call */
size_t pl_message_bytes(const pl_message_plan *p);
/* the same from the op's args, for dry runs */
size_t pl_cpu_message_scratch(pl_op_id id, const void *args, int threads);

/* as those of a message; borrows a */
pl_weight_args pl_weight_args_forward(const pl_args_pair_weight *a);
pl_weight_args pl_weight_args_back(const pl_args_pair_weight_back *a);
pl_weight_plan pl_weight_plan_make(const pl_weight_args *a, int f64, int threads);
size_t pl_weight_member_point(pl_weight_member *m, char *base, const pl_weight_plan *p);
size_t pl_weight_work_point(pl_weight_work *w, char *base, const pl_weight_plan *p);
size_t pl_weight_bytes(const pl_weight_plan *p);
size_t pl_cpu_pair_weight_scratch(pl_op_id id, const void *args, int threads);

#endif
