/* shard.h -- one optimiser over several ranks (polar/optim.h, "several ranks"): who steps what, and what goes
 * from whom to whom.
 *
 * The optimiser that the caller holds has all parameters and no device memory of its own. What this rank
 * steps, its pieces, are the parameters of a second optimiser, `inner`, which is an ordinary one.
 *
 * Gradients that are added up leaf by leaf (polar_optim_add_grads) leave in buckets, parameters from the last
 * to the first, as a backward finishes them: a bucket goes when the last leaf of this rank has all of its
 * parameters (polar_optim_add_grad), carried by a thread (shard_courier.c) while the rest is computed. What
 * is added to what is the same for every cut into buckets, and so are the bytes.
 *
 * Invariants
 *  1. pieces, segments and owners are the same on every rank: they follow from names, shapes, options and
 *     the number of ranks alone. Rows that a rank holds are gathered once, at the beginning.
 *  2. Pieces stand by rank, then by size of element, so that a rank's part of a bucket is one stretch and
 *     every piece is aligned to its elements.
 *  3. Between steps `tree` is empty: every leaf of the step was added.
 *  4. Buckets go out in ascending order on every rank. The courier reads slots and writes got of the buckets
 *     that were posted, and nobody else touches these until pl_courier_wait.
 */
#ifndef PL_OPTIM_SHARD_H
#define PL_OPTIM_SHARD_H

#include "comm/tree_sum.h"
#include "optim/optim_impl.h"

typedef struct pl_piece {
    int64_t param;
    int rank;             /* who steps it */
    int64_t first, count; /* elements of the whole tensor */
    int64_t at;           /* its place in a vector of all gradients, in elements; by rows: it has none */
    size_t weight_at;     /* in that of all weights, in bytes; the same */
    int64_t inner;        /* its number among this rank's own, or -1 */
} pl_piece;

typedef struct pl_courier pl_courier;

typedef struct pl_shard {
    polar_comm *comm;
    int rank, size;
    polar_optim *inner; /* NULL: this rank steps nothing */
    pl_piece *pieces;
    int64_t piece_count;
    int *owner;             /* (n): of a matrix with a polar map; -1: cut in ranges, or stepped where it is */
    double *load;           /* (size): work of the matrices of a rank, in FLOPs */
    int64_t *segment;       /* (size + 1): of gradients, in elements */
    size_t *weight_segment; /* (size + 1): of weights, in bytes */
    int64_t *rows;          /* (n, size, 2): first element and count of those that rank r holds */
    int any_rows, any_whole;       /* parameters with an owner by rows; exchanged ones that are whole */
    int64_t *piece_of, *pieces_at; /* pieces by parameter: piece_of[pieces_at[i] .. pieces_at[i + 1]) of i */
    /* buckets */
    pl_courier *courier; /* NULL: all goes at the step */
    int64_t buckets, posted;
    int64_t *bucket_of;      /* (n): of a parameter */
    int64_t *bucket_at;      /* (size, buckets), and the end: where a rank's part of a bucket begins */
    int64_t *bucket_missing; /* (buckets): parameters that this rank's last leaf has not yet */
    unsigned char *added;    /* (n): to the leaf under way */
    /* the sum */
    int64_t leaves, first_leaf, leaf_count;
    pl_tree tree; /* of the leaves added so far */
    int64_t next_leaf;
    polar_dtype sum_dtype;
    unsigned char *present; /* (n): a leaf of this rank, or of any rank, had a gradient */
    /* device memory */
    char *slots; /* partial sums of all pieces, one vector each */
    char *got;   /* (pieces of all ranks' trees, this rank's segment) */
    char *zeros; /* the gradient that a leaf lacks; of skip_missing */
    char *weights, *homes, *rows_in, *rows_out;
    size_t bytes;            /* of all these */
    float *flag;             /* (2) on the device: found here; found anywhere */
    char **home_w, **home_g; /* (n): whole weight and gradient of matrices owned by rows; or NULL */
    size_t *part;            /* (4, size): tables of an exchange */
} pl_shard;

/* the rest of polar_optim_create; collective */
polar_status pl_shard_create(polar_optim *opt);
void pl_shard_destroy(polar_optim *opt); /* safe where there is none */

/* where the inner optimiser finds a gradient, and its format */
void *pl_shard_grad_of(const polar_optim *opt, const pl_piece *piece, polar_dtype *dtype);

/* owner and load of every parameter (shard_owner.c): longest processing time first */
polar_status pl_shard_owners(int *owner, double *load, const polar_optim *opt, int ranks);
double pl_shard_cost(const polar_optim *opt, const pl_optim_param *p); /* FLOPs of its map, nominal */
/* the line for the report */
void pl_shard_describe(char *text, size_t bytes, const pl_shard *s);

/* buckets (shard_courier.c) */
polar_status pl_courier_begin(pl_shard *s); /* where every rank can: s->courier; otherwise there is none */
void pl_courier_end(pl_courier *c);         /* after the exchange under way; NULL is fine */
void pl_courier_post(pl_courier *c, int64_t buckets); /* those before this number may go */
polar_status pl_courier_wait(pl_courier *c); /* until all that were posted are here; anew with bucket 0 */
int64_t pl_courier_done(pl_courier *c);      /* buckets that are here */
/* bytes that this rank sends to others for bucket b */
int64_t pl_shard_bucket_bytes(const pl_shard *s, int64_t bucket);
/* tables of the exchange of subtree number k of every rank, of buckets [first, first + count) */
void pl_shard_round(const pl_shard *s, size_t *part, int64_t first, int64_t count, int k);
int pl_shard_rounds(const pl_shard *s);

/* exchanges (shard_exchange.c); all ranks together */
polar_status pl_shard_add(polar_optim *opt, pl_queue *q, int64_t leaf);
polar_status pl_shard_check(polar_optim *opt); /* all leaves were added; gradients are there */
polar_status pl_shard_grads_in(polar_optim *opt, pl_queue *q);    /* to the owners, added */
polar_status pl_shard_weights_out(polar_optim *opt, pl_queue *q); /* from the owners to everybody */
polar_status pl_shard_weights_in(polar_optim *opt, pl_queue *q);  /* rows to the owners' copies */
void pl_shard_settings(polar_optim *opt);                         /* the inner one takes lr, decay, ... */

/* state (shard_state.c); all ranks together */
polar_status pl_shard_state_gather(polar_optim *opt, pl_queue *q, char *bytes); /* filled on rank 0 */
polar_status pl_shard_state_apply(polar_optim *opt, pl_queue *q, const char *bytes, int64_t step);
polar_status pl_shard_stats(polar_optim *opt, pl_queue *q, polar_param_stats *all); /* (n) of ours */

#endif
