/* optim_impl.h -- the optimiser's data, shared by the files of src/optim.
 *
 * Invariants
 *  1. After polar_optim_create nothing allocates in a step (a queue's scratch and the graph aside, which the
 *     first steps take).
 *  2. Everything that changes between steps is a live value (lr, decay, bias corrections), a gradient's
 *     address, which the captured graph follows, or a pointer whose change drops it.
 *  3. Gradients are never written; weights are written by the last op of the step only.
 *  4. A step that returns an error has changed nothing and is not counted (the exact map aside, which takes
 *     its work space as it goes).
 *  5. State files are checked whole before anything of them reaches the device.
 */
#ifndef PL_OPTIM_IMPL_H
#define PL_OPTIM_IMPL_H

#include "base/sha256.h"
#include "comm/comm.h"
#include "device/queue.h"
#include "optim/rule_names.h"
#include "optim/optim_layout.h"

#define PL_OPTIM_NAME_MAX    500           /* bytes of a parameter's name */
#define PL_OPTIM_STATE_ALIGN ((size_t)256) /* of what a batch begins with */

typedef struct pl_optim_group {
    polar_rule rule; /* of the matrix route; its map is resolved */
    polar_coef coefs[POLAR_MAX_STEPS];
    int64_t joined;       /* steps of the Gram form (pl_ns_joined) */
    polar_route route;    /* of parameters that say AUTO */
    polar_hyper given[2]; /* as the optimiser was made with: matrix route, aux route */
    int64_t map_set;      /* the first group with the same map */
} pl_optim_group;

/* A parameter as the caller gave it, or a part of one as the step sees it (optim_blocks.c). */
typedef struct pl_optim_param {
    char *name;
    polar_route route;  /* MATRIX or AUX */
    int ndim;           /* as the caller gave it, members not counted */
    int64_t rows, cols; /* as elementwise ops see it, per member; a vector is one row */
    int64_t row_blocks, schur_group, schur_dim;
    int64_t group;
    /* of a parameter: its list of blocks, if it has one that row_blocks does not say; its parts */
    polar_block *blocks;
    int64_t block_count, first_part, part_count;
    int64_t param, at, ld; /* of a part: whose it is, where it begins, elements from row to row */
    int64_t slot;          /* its live rows are slot * members and the following ones */
    double scale;
    pl_mat W, G; /* the caller's, (members, rows, cols), or the rows of it that are here */
    /* elements before those that are here, and here, of a parameter of which other ranks have other rows;
     * by_rows 0: all are here */
    int64_t here_first, here_count;
    int by_rows;
    pl_mat master; /* f32 copy of bf16 weights; no data otherwise */
    pl_mat M, V;   /* state: momentum, second moment (or none) */
    /* what follows up to B is a part's */
    pl_mat D; /* direction (or none) */
    pl_mat N; /* the direction's norm, where measured */
    pl_mat P; /* state: the moment of polar_post (or none) */
    pl_mat U; /* what the map was given, where the scale asks for it */
    /* of picked lines: which they are, (members row_blocks, 1, lines), and where they are mapped, those of D
     * side by side */
    pl_mat L, R;
    /* state of Kronecker rules, left and right: moments, eigenvectors, factors */
    pl_mat K[2], Q[2], F[2];
    /* products of gradient and direction, then of weight and direction, where a stage asks for norms:
     * (members row_blocks, 1, 4) */
    pl_mat B;
    /* (members, 1, 2): steps made, steps left out, where parameters count their own; a parameter's */
    pl_mat T;
    int whole; /* it goes from end to end (polar_step) in the step being enqueued */
} pl_optim_param;

/* What lies elsewhere than in the last step. The next step's graph follows its gradients where the device can
 * do that; else that step goes without the graph and drops it, not the call that moved them: it may come
 * inside a capture of the caller's, where nothing can be freed. */
enum { PL_MOVED_GRADS = 1, PL_MOVED_OTHERS = 2 /* flags, or a gradient is gone or new */ };

struct polar_optim {
    pl_device *dev;
    polar_optim_opts o;
    int64_t n, members, groups;
    int64_t t;       /* steps prepared: the schedule's count */
    int64_t skipped; /* steps left out, of member 0, when somebody last looked */
    /* of live rows: one per parameter and one more per rest that no block covers where they count their own
     * steps, else two per group, matrix and aux */
    int64_t slots;
    /* steps may be left out, so every parameter counts its own, on the device */
    int own_counts;
    int stepped; /* live_host is that of a step */
    pl_optim_param *params;
    pl_optim_param *parts; /* of all parameters, in their order; what a step works on */
    int64_t part_count, part_room;
    int64_t *rest_of, rests; /* parameters with parts on both routes */
    pl_mat rest_counts;      /* (rests members, 1, 2), right behind the parameters' T, which they follow */
    pl_optim_group *group;   /* the options' own first */
    polar_hyper *hyper;      /* pl_optim_hyper */
    unsigned char *active;   /* by member */
    /* parts with a map in the order in which their directions lie: by map set and shape, then the Schur
     * blocks group by group */
    int64_t *order;
    int64_t order_count;
    /* what the polar map sees in a step: one batch per shape, or more where a gradient is missing */
    pl_mat *maps;
    int64_t *map_dim, *map_group, *map_set;
    pl_mat flags;        /* (members, 1, 1): a gradient of this step is not finite */
    pl_mat found, scale; /* polar_optim_set_scaler */
    pl_mat rates;        /* polar_optim_set_rates, (slots members, 1, 1) */
    /* numbers of the parameters in the order in which their weights lie in memory */
    int64_t *by_address;
    void *memory; /* device memory of ours: the state, unless the caller places it, and what is at work */
    void *state;  /* all that is kept from step to step: moments, masters, factors, counts */
    void *work;   /* what a step works with: directions, products, norms */
    size_t state_bytes, work_bytes;
    int ready; /* with opts.placed: weights and state have a place */
    pl_live *live;
    double *live_host; /* what prepare uploads */
    pl_graph *graph;
    pl_moved *grads;         /* the gradients as the last launch of the graph read them, and as they are */
    unsigned moved;          /* PL_MOVED_..., since the last step */
    int rigid;               /* a graph could not follow its gradients */
    int64_t calm, patience;  /* steps without such a move; how many before a graph is captured (again) */
    uint64_t last_serial;    /* of the queue that was last given work */
    uint64_t scratch_serial; /* of the queue whose scratch is large enough for a step */
    char *report;
    /* over several ranks: all parameters are here, their state and live values are in the optimiser of this
     * rank's pieces, and `state` is a base for offsets only; NULL: this process alone */
    struct pl_shard *shard;
};

static inline const polar_rule *pl_optim_rule(const polar_optim *opt, const pl_optim_param *p)
{
    return &opt->group[p->group].rule;
}

static inline polar_hyper *pl_optim_hyper(const polar_optim *opt, int64_t group, int aux, int64_t member)
{
    return &opt->hyper[(2 * group + aux) * opt->members + member];
}

/* all but the groups */
polar_status pl_optim_check_opts(const polar_optim_opts *o);
/* opt->group, hyper and active from opt->o */
polar_status pl_optim_groups_read(polar_optim *opt, const polar_optim_layout *layout);
/* from the T of all parameters: how many were left out */
void pl_optim_step_count(polar_optim *opt, const double *counts);
/* route, view, checks; copies the name */
polar_status pl_optim_param_set(pl_optim_param *out, const polar_param *p, const polar_optim *opt,
                                const polar_optim_layout *layout);
/* polar_param.blocks, checked one by one; rows and cols are known */
polar_status pl_optim_blocks_read(pl_optim_param *out, const polar_param *p,
                                  const polar_optim_layout *layout);
void pl_optim_blocks_drop(pl_optim_param *p);
/* what tells two lists of blocks apart */
void pl_optim_blocks_digest(char hex[PL_SHA256_HEX], const pl_optim_param *p);
/* parts of parameter i, behind those of the ones before it; its slot is known */
polar_status pl_optim_parts_add(polar_optim *opt, int64_t i);
/* a parameter's weights, gradients and state, seen by its parts; the gradients alone */
void pl_optim_parts_point(polar_optim *opt, const pl_optim_param *p);
void pl_optim_parts_grad(polar_optim *opt, const pl_optim_param *p);
/* of one member, on the parameter's route */
int64_t pl_optim_matrices(const polar_optim *opt, const pl_optim_param *p);
/* name, route, shape and scale of parameter i; the rest 0 */
polar_param_stats pl_optim_stats_of(const polar_optim *opt, int64_t i);
/* it has V */
int pl_optim_second_moment(const polar_optim *opt, const pl_optim_param *p);
/* "paper", ... */
const char *pl_scale_name(polar_scale scale);
/* the caller frees it */
polar_status pl_optim_report_make(char **out, const polar_optim *opt);
/* a polar map is applied to its directions */
int pl_optim_mapped(const polar_optim *opt, const pl_optim_param *p);
/* the rule does something between direction and step that is no map (optim_stage.c) */
int pl_optim_staged(const polar_optim *opt, const pl_optim_param *p);
/* its momentum is that of picked lines, which is a stage */
int pl_optim_picks(const polar_optim *opt, const pl_optim_param *p);
/* of each block: the lines of its short side, how many of them are picked, whether they are columns */
int64_t pl_optim_lines(const pl_optim_param *p);
int64_t pl_optim_picked(const polar_optim *opt, const pl_optim_param *p);
int pl_optim_picks_columns(const pl_optim_param *p);
/* its rule looks at more than one entry at a time: one rank has all of it */
int pl_optim_uncut(const polar_optim *opt, const pl_optim_param *p);
/* nothing but momentum, Adam's preconditioner, a map and a decoupled step */
int pl_optim_plain(const polar_optim *opt, const pl_optim_param *p);
/* its stages are those that some device's polar_step knows */
int pl_optim_fused(const polar_optim *opt, const pl_optim_param *p);
/* the moments of polar_post, a matrix's in one piece */
pl_mat pl_optim_moments(const polar_optim *opt, const pl_optim_param *p);
/* the step looks at norms of W and D */
static inline int pl_apply_looks(const polar_rule *r)
{
    return r->apply >= POLAR_APPLY_HYPERBALL;
}
/* a scale that looks at the direction */
static inline int pl_scale_looks(polar_scale scale)
{
    return scale == POLAR_SCALE_FROBENIUS || scale == POLAR_SCALE_NUCLEAR;
}
/* the stage after the map has one number a matrix, from its gradient's norm */
static inline int pl_post_norms(const polar_rule *r)
{
    return r->post == POLAR_POST_NORM_MOMENT || r->post == POLAR_POST_NORM_SUM;
}
/* the lines of a block whose moment polar_post keeps: its rows (0) or its columns (1) */
int pl_optim_post_columns(const polar_rule *r, int64_t rows, int64_t cols);
/* its rule has Kronecker factors (optim_kron.c) */
int pl_optim_kron(const polar_optim *opt, const pl_optim_param *p);
/* its direction is divided by the root of the gradient's moment (POLAR_PRECONDITION_ROOT) */
int pl_optim_rooted(const polar_optim *opt, const pl_optim_param *p);
/* polar_post keeps a moment */
int pl_optim_post_moment(const polar_rule *r);
/* Kronecker factors before the map, and after it */
void pl_optim_kron_before(polar_optim *opt, pl_queue *q);
void pl_optim_kron_after(polar_optim *opt, pl_queue *q);
/* picked lines to where they are mapped, and back; `again`: of those that are mapped twice */
void pl_optim_lines_move(polar_optim *opt, pl_queue *q, int again, int back);
/* before the map: equilibration, signs, a copy for the scale */
void pl_optim_stages_before(polar_optim *opt, pl_queue *q);
/* it is mapped twice */
int pl_optim_again(const polar_optim *opt, const pl_optim_param *p);
/* between the two maps; 0: nothing is mapped again */
int pl_optim_stages_again(polar_optim *opt, pl_queue *q);
/* after the map: moments of what it returned, scales that look at it, a hyperball's products */
void pl_optim_stages_after(polar_optim *opt, pl_queue *q);
/* the step of a parameter as its rule applies it */
void pl_optim_apply(polar_optim *opt, pl_queue *q, const pl_optim_param *p);
/* the live rows of a parameter, one per member */
pl_mat pl_optim_live_of(const polar_optim *opt, const pl_optim_param *p);
/* every block of rows a matrix of its own */
pl_mat pl_optim_blocks(pl_mat m, const pl_optim_param *p);
/* it needs D: a map, a measure, or a rule that is not AdamW */
int pl_optim_keeps_direction(const polar_optim *opt, const pl_optim_param *p);
typedef struct pl_optim_bytes {
    size_t state, work;
} pl_optim_bytes;
/* where everything lies in the two pieces, and opt->order; both NULL: returns how large they are */
pl_optim_bytes pl_optim_point_memory(polar_optim *opt, void *state, void *work);
/* moments begin at zero, bases as identities, masters as their weights */
polar_status pl_optim_fill_memory(polar_optim *opt);
/* in a host's image of a state of zeros */
void pl_optim_fill_bases(const polar_optim *opt, char *image);
/* opt->by_address */
void pl_optim_sort_weights(polar_optim *opt);
/* a gradient there meets no weight */
polar_status pl_optim_check_grad(const polar_optim *opt, const pl_optim_param *p, void *data);
/* its weights and state have a place */
polar_status pl_optim_check_ready(const polar_optim *opt);
/* both are there, q is of the optimiser's device; it is about to get work */
polar_status pl_optim_check_queue(polar_optim *opt, const pl_queue *q);
/* live values before the first prepare: they leave weights and moments as they are */
void pl_optim_live_begin(polar_optim *opt, pl_queue *q);
/* the next step captures anew */
void pl_optim_drop_graph(polar_optim *opt);
static inline int pl_optim_missing(const pl_optim_param *p)
{
    return !p->G.data && p->rows * p->cols > 0; /* it has no gradient */
}

static inline pl_mat pl_optim_weight(const pl_optim_param *p)
{
    return p->master.data ? p->master : p->W; /* what the step works on */
}

#endif
