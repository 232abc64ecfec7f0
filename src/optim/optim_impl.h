/* optim_impl.h -- the optimiser's data, shared by the files of src/optim.
 *
 * Invariants
 *  1. After polar_optim_create nothing allocates in a step (a queue's scratch aside, which the first step takes).
 *  2. Everything that changes between steps is a live value (lr, decay, bias corrections) or a pointer whose change drops the captured graph.
 *  3. Gradients are never written; weights are written by the last op of the step only.
 *  4. A step that returns an error has changed nothing and is not counted (the exact map aside, which takes its work space as it goes).
 *  5. State files are checked whole before anything of them reaches the device.
 */
#ifndef PL_OPTIM_IMPL_H
#define PL_OPTIM_IMPL_H

#include "device/queue.h"
#include "polar/optim.h"

#define PL_OPTIM_NAME_MAX 500    /* bytes of a parameter's name */

typedef struct pl_optim_param {
    char       *name;
    polar_route route;                /* MATRIX or AUX */
    int         ndim;                 /* as the caller gave it, members not counted */
    int64_t     rows, cols;           /* as elementwise ops see it, per member; a vector is one row */
    int64_t     row_blocks, schur_group, schur_dim;
    double      scale;
    pl_mat      W, G;                 /* the caller's, (members, rows, cols) */
    pl_mat      master;               /* f32 copy of bf16 weights; no data otherwise */
    pl_mat      M, V, D;              /* state: momentum, second moment (or none), direction (or none) */
    pl_mat      N;                    /* the direction's norm, where measured */
} pl_optim_param;

typedef struct pl_optim_member {
    double lr, aux_lr, decay, aux_decay;
    int    active;
} pl_optim_member;

struct polar_optim {
    pl_device       *dev;
    polar_optim_opts o;
    polar_coef       coefs[POLAR_MAX_STEPS];
    int64_t          n, members, t;
    pl_optim_param  *params;
    pl_optim_member *member;
    pl_mat          *maps;            /* directions as the polar map sees them: one batch per shape, then the Schur blocks group by group */
    int64_t         *map_dim, *map_group;
    int64_t          map_count;
    int64_t         *by_address;      /* numbers of the parameters in the order in which their weights lie in memory */
    void            *state;           /* device memory of all moments, directions, masters and norms */
    size_t           state_bytes;
    pl_live         *live;
    double          *live_host;       /* what prepare uploads */
    pl_graph        *graph;
    int              moved;           /* a gradient has moved since the last step */
    uint64_t         last_serial;     /* of the queue that was last given work */
    uint64_t         scratch_serial;  /* of the queue whose scratch is large enough for a step */
    char            *report;
};

int          pl_pattern_match(const char *patterns, const char *name);                                       /* one of the comma-separated patterns (* and ?) fits */
polar_status pl_optim_param_set(pl_optim_param *out, const polar_param *p, const polar_optim_opts *o);      /* route, view, checks; copies the name */
const char  *pl_scale_name(polar_scale scale);                                                               /* "paper", ... */
polar_status pl_optim_report_make(char **out, const polar_optim *opt);                                      /* the caller frees it */
int          pl_optim_keeps_direction(const polar_optim *opt, const pl_optim_param *p);                     /* it needs D: a map, a measure, or a rule that is not AdamW */
polar_status pl_optim_check_queue(polar_optim *opt, const pl_queue *q);                                      /* both are there, q is of the optimiser's device; it is about to get work */
void         pl_optim_live_begin(polar_optim *opt, pl_queue *q);                                             /* live values before the first prepare: they leave weights and moments as they are */
void         pl_optim_drop_graph(polar_optim *opt);                                                          /* the next step captures anew */
static inline pl_mat pl_optim_weight(const pl_optim_param *p)
{
    return p->master.data ? p->master : p->W;    /* what the step works on */
}

#endif
