/* optim.h -- matrix optimisers as data: momentum -> precondition -> polar map -> post -> scale -> apply.
 *
 *     polar_param params[2] = {
 *         {.name = "blocks.0.attn.qkv.weight", .weight = polar_tensor_2d(w, POLAR_DTYPE_F32, 576, 192),
 *             .grad = polar_tensor_2d(gw, POLAR_DTYPE_F32, 576, 192), .row_blocks = 3},
 *         {.name = "blocks.0.attn.qkv.bias",   .weight = polar_tensor_1d(b, POLAR_DTYPE_F32, 576),
 *             .grad = polar_tensor_1d(gb, POLAR_DTYPE_F32, 576)},
 *     };
 *     polar_optim_opts o = POLAR_OPTIM_OPTS_INIT;           // the paper's PolarAdamW
 *     o.lr = 5e-3;  o.aux_lr = 5e-4;
 *     polar_optim_create(&opt, dev, params, 2, &o);
 *     puts(polar_optim_report(opt));                        // what went where
 *     for (...) { backward();  polar_optim_step(opt, q); }  // only enqueues
 *     polar_optim_destroy(opt);
 *
 * A parameter takes the matrix route (the rule) or the aux route (AdamW with its own lr and decay).
 * Gradients are never written. State is f32 (f64 for f64 weights); bf16 weights get an f32 master copy in
 * the state. A zero gradient gives a zero direction; a NaN stays in its own matrix.
 */
#ifndef POLAR_OPTIM_H
#define POLAR_OPTIM_H

#include "polar/comm.h"
#include "polar/map.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- rules -------------------------------------------------------------------------------------- */

typedef enum polar_momentum {
    POLAR_MOMENTUM_HEAVY_BALL = 0,       /* m = mu m + g;           u = m */
    POLAR_MOMENTUM_NESTEROV = 1,         /* m = mu m + g;           u = g + mu m */
    POLAR_MOMENTUM_EMA = 2,              /* m = b1 m + (1 - b1) g;  u = m / (1 - b1^t) */
    POLAR_MOMENTUM_AVERAGE = 3,          /* m = mu m + (1 - mu) g;  u = m */
    POLAR_MOMENTUM_AVERAGE_NESTEROV = 4, /* m = mu m + (1 - mu) g;  u = mu m + (1 - mu) g */
    /* m = m + g; the part `fraction` of m's rows, or of its columns where there are fewer of them, rounded
     * up, that has the largest sums of magnitudes is u, whose other lines are 0, and is multiplied by mu in
     * m. Not with ADAM and LAPROP */
    POLAR_MOMENTUM_PICKED = 5
} polar_momentum; /* an average's m is (1 - mu) times the heavy ball's: the buffer torch.optim.Muon keeps
                     (momentum_buffer.lerp_). A polar map does not see the factor, so the steps are the same
                     up to rounding; a saved m is not */

typedef enum polar_precondition {
    POLAR_PRECONDITION_NONE = 0,
    /* v = b2 v + (1 - b2) g^2;  u / (sqrt(v / (1 - b2^t)) + eps), entry by entry */
    POLAR_PRECONDITION_ADAM = 1,
    /* the same quotient of the gradient, before the momentum averages it: g / (sqrt(v / (1 - b2^t)) + eps) */
    POLAR_PRECONDITION_LAPROP = 2,
    /* equilibrated: row i of u times (sum_j u_ij^2 + eps)^-1/2 */
    POLAR_PRECONDITION_ROWS = 3,
    POLAR_PRECONDITION_COLUMNS = 4, /* the same of columns */
    POLAR_PRECONDITION_BOTH = 5,    /* rows and columns, both factors of the same u */
    POLAR_PRECONDITION_SIGN = 6,    /* the signs of u */
    /* Kronecker factors: L = b2 L + (1 - b2) g g^T, R = b2 R + (1 - b2) g^T g, seen anew every `refresh`
     * steps from the first on. L^ = L / (1 - b2^t), its least eigenvalue brought up to 0, + eps;
     * L^^-kron_power u R^^-kron_power */
    POLAR_PRECONDITION_KRON = 7,
    /* the same with L^ = rows L / trace L + eps, its least eigenvalue brought up to 0, + eps */
    POLAR_PRECONDITION_KRON_TRACE = 8,
    /* the same with L^ = L' / (1 - b2) + eps, L' = b2 L + (1 - b2) g g^T: a sum of all, the newest twice */
    POLAR_PRECONDITION_KRON_NESTEROV = 9,
    /* Adam in the eigenvectors of L and R as KRON averages them: p = Q_L^T u Q_R, v = b2 v + (1 - b2)
     * (Q_L^T g Q_R)^2; Q_L (p / (sqrt(v / (1 - b2^t)) + eps)) Q_R^T. A step uses the vectors of the steps
     * before it. The first ones come from `first_basis` gradients, until which nothing else moves (t counts
     * from there); every `refresh` steps after that one sweep of the QR iteration follows */
    POLAR_PRECONDITION_SOAP = 10,
    /* the same with v of p, the momentum's; steps before the first vectors go without */
    POLAR_PRECONDITION_SOAP_MOMENTUM = 11,
    /* SOAP with factors of least Kullback-Leibler divergence: L = b2 L + (1 - b2) g R^-1 g^T / cols, R = b2 R
     * + (1 - b2) g^T L^-1 g / rows, the inverses by the other factor's vectors and max(lambda, eps), lambda
     * as the last look at L / (1 - b2^t) found it; before the first vectors g g^T / cols, g^T g / rows */
    POLAR_PRECONDITION_KL_SOAP = 12,
    /* v = b2 v + (1 - b2) g^2;  u / sqrt(v + eps), entry by entry */
    POLAR_PRECONDITION_ROOT = 13
} polar_precondition;

/* After the map, D being what it returned. A moment of lines has one number a line and keeps the norm: the
 * result has D's Frobenius norm. */
typedef enum polar_post {
    POLAR_POST_NONE = 0,
    /* v_i = b2 v_i + (1 - b2) mean_j D_ij^2;  row i over sqrt(v_i) + eps */
    POLAR_POST_ROW_MOMENT = 1,
    POLAR_POST_COLUMN_MOMENT = 2, /* the same of columns */
    /* of the lines of the long side, rows where there are as many as columns: row or column i over
     * sqrt(max(v_i, eps)) */
    POLAR_POST_LONG_MOMENT = 3,
    /* v = b2 v + (1 - b2) D^2;  D / (sqrt(v / (1 - b2^t)) + eps), entry by entry */
    POLAR_POST_ENTRY_MOMENT = 4,
    /* of a POLAR_PRECONDITION_KRON...: L^^-kron_power D R^^-kron_power once more, D's norm kept */
    POLAR_POST_UNWHITEN = 5,
    /* one number a matrix: v = b2 v + (1 - b2) ||g||^2;  D ||u|| / (sqrt(v) + eps) */
    POLAR_POST_NORM_MOMENT = 6,
    /* h = min(||g||, clip);  v = v + h^2;  D max(eps / lr, h / sqrt(v + 1e-6)) */
    POLAR_POST_NORM_SUM = 7,
    /* no memory: the lines of the long side of u times (sum u^2 + eps)^-1/2 of each, then the map; those
     * lines times (sum D^2 + eps)^-1/2 of D's, then the map once more. A square matrix has no long side */
    POLAR_POST_BALANCE = 8
} polar_post;

/* of a (rows = out, cols = in) matrix */
typedef enum polar_scale {
    POLAR_SCALE_NONE = 0,       /* 1 */
    POLAR_SCALE_PAPER = 1,      /* sqrt(max / min) */
    POLAR_SCALE_JORDAN = 2,     /* sqrt(max(1, out / in)) */
    POLAR_SCALE_SPECTRAL = 3,   /* sqrt(out / in) */
    POLAR_SCALE_RMS = 4,        /* 0.2 sqrt(max) */
    POLAR_SCALE_FROBENIUS = 5,  /* 0.2 sqrt(out in) / ||D||_F */
    POLAR_SCALE_NUCLEAR = 6,    /* <u, D>, u what the map was given: nearly u's nuclear norm */
    POLAR_SCALE_TRANSPOSED = 7, /* sqrt(in / out) */
    /* sqrt(max(1, in / out)): JORDAN of weights that are kept as (in, out) */
    POLAR_SCALE_JORDAN_TRANSPOSED = 8
} polar_scale;

/* What becomes of a weight, D scaled */
typedef enum polar_apply {
    POLAR_APPLY_DECOUPLED = 0,   /* W = (1 - lr wd) W - lr D */
    POLAR_APPLY_CAUTIOUS = 1,    /* the same, but only entries with D W > 0 decay */
    POLAR_APPLY_CONSTRAINED = 2, /* W = (1 - lr) W - lr D; the weight decay is not used */
    /* W' = W - lr R D / ||D||, R = ||W||;  W = R W' / ||W'||; neither scale nor weight decay are used; W = 0
     * stays */
    POLAR_APPLY_HYPERBALL = 3,
    /* DECOUPLED with D max(1, strength ||W|| / ||D||) in the place of D */
    POLAR_APPLY_UPDATE_FLOOR = 4,
    /* DECOUPLED, and where that made ||W|| grow only the part `strength` of the growth stays: W is shortened
     */
    POLAR_APPLY_RADIAL_BRAKE = 5
} polar_apply;

typedef struct polar_rule { /* an optimiser is a row */
    polar_momentum momentum;
    polar_precondition precondition;
    polar_scale scale;
    double beta1; /* mu of the heavy ball, b1 of the EMA */
    /* eps at least the smallest normal float: it keeps zero over zero from happening */
    double beta2, eps;
    polar_map_opts map; /* kind POLAR_MAP_NONE: no polar map */
    polar_post post;    /* its moment's b2 and eps are those above */
    polar_apply apply;
    double radius;     /* a factor of the scale; 0 means 1 */
    double kron_power; /* of Kronecker factors, above 0, at most 1 */
    /* steps from one look at Kronecker factors to the next; 0 means 1 */
    int64_t refresh;
    double clip;         /* of POLAR_POST_NORM_SUM, more than 0 */
    double strength;     /* of POLAR_APPLY_UPDATE_FLOOR, and of POLAR_APPLY_RADIAL_BRAKE, 0 to 1 */
    int64_t first_basis; /* gradients of which the first vectors of POLAR_PRECONDITION_SOAP are; 0 means 1 */
    double fraction;     /* of POLAR_MOMENTUM_PICKED, above 0, at most 1 */
} polar_rule;

/* polar_rule_parse: see "calls that carry sizes" below */
/* names of the rules; NULL past the end */
POLAR_API const char *polar_rule_name(int i);
/* "none", "paper", "jordan", "spectral", "rms", "frobenius", "nuclear", "transposed", "jordan_transposed" */
POLAR_API polar_status polar_scale_parse(polar_scale *out, const char *name);
/* the factor for one matrix; FROBENIUS: of a direction of norm 1, NUCLEAR: 1 */
POLAR_API double polar_scale_value(polar_scale scale, int64_t rows, int64_t cols);

/* ---- schedules ---------------------------------------------------------------------------------- */

/* linear warm-up from warmup_from, then a cosine to zero; total 0: constant 1, no warm-up */
typedef struct polar_schedule {
    int64_t warmup, total; /* steps */
    double warmup_from;    /* of the full lr, 1e-3 in the paper */
} polar_schedule;

/* step counts from 0; a negative one: NaN and a sentence; s NULL: 1 */
POLAR_API double polar_schedule_factor(const polar_schedule *s, int64_t step);

/* ---- parameters --------------------------------------------------------------------------------- */

typedef enum polar_route {
    POLAR_ROUTE_AUTO = 0, /* by shape and name, see polar_optim_opts */
    POLAR_ROUTE_MATRIX = 1,
    POLAR_ROUTE_AUX = 2
} polar_route;

/* A matrix within a parameter's memory: entry (i, j) is element offset + i ld + j, of each member. */
typedef struct polar_block {
    int64_t offset, rows, cols;
    int64_t ld;  /* elements from row to row; 0: cols */
    int64_t dim; /* schur_dim of this block; 0 means 1 */
} polar_block;

typedef struct polar_param {
    const char *name; /* unique, UTF-8 of at most 500 bytes; copied */
    /* packed; with members > 1, and only then, the first dimension counts them */
    polar_tensor weight;
    /* the same shape, f32, bf16 or f64, packed; its data may be NULL until polar_optim_set_grad */
    polar_tensor grad;
    polar_route route;
    /* matrix route: split into so many equal blocks of rows, each mapped by itself (qkv: 3); 0 or 1: whole */
    int64_t row_blocks;
    /* matrix route: parameters of one group > 0 are blocks of one direct sum and share a norm */
    int64_t schur_group;
    /* the block stands (x) I_dim in it; 0 means 1; more only with a schur_group */
    int64_t schur_dim;
    int64_t group; /* 0: the options' own numbers; i > 0: those of opts.groups[i - 1] */
    /* with opts.comm: weight and grad are rows [first_row, first_row + their own) of a tensor of whole_rows
     * (first dimension), the rest lies with other ranks, as FSDP has it; 0: the whole tensor is here */
    int64_t whole_rows, first_row;
    /* matrix route: block_count matrices that lie in this parameter, of any shape (a flat vector of weights,
     * heads within a matrix), each with a map and a scale of its own, as if it were a parameter of its own;
     * they do not meet. A vector may have them, and AUTO then sends it by names alone. Weights that no block
     * covers take the aux route. Not with row_blocks or schur_dim, which are such lists in short, nor with
     * rows on other ranks. Read by polar_optim_create and not kept */
    const polar_block *blocks;
    int64_t block_count;
} polar_param; /* more than two dimensions: seen as (first, all others), and scaled so too */

/* Parameters with a rule and numbers of their own in one optimiser, as torch's param_groups. polar_group_of
 * fills one from options. */
typedef struct polar_group {
    /* of the matrix route; NULL: that of the options; read by polar_optim_create and not kept */
    const polar_rule *rule;
    double lr, weight_decay; /* of the matrix route */
    double aux_lr, aux_weight_decay, aux_beta1, aux_beta2, aux_eps;
    polar_route route; /* of its parameters that say AUTO; AUTO: by the options */
    int reserved;      /* 0 */
} polar_group;

/* steps that change nothing: no weight, no moment, no count. Decided on the device; the host does not wait */
typedef enum polar_skip {
    POLAR_SKIP_NEVER = 0,
    /* a gradient holds an infinity or a NaN (one more pass over the gradients), or the caller's flag is set;
       by member */
    POLAR_SKIP_NONFINITE = 1,
    POLAR_SKIP_FLAGGED = 2 /* the caller's flag is set, see polar_optim_set_scaler */
} polar_skip;

/* what the gradients of a rank are, with opts.comm */
typedef enum polar_grads {
    POLAR_GRADS_MEAN = 0, /* those of its part of the batch: the step takes the mean over all parts */
    POLAR_GRADS_SAME = 1  /* those of all of it, alike on every rank: an all-reduce went before (DDP) */
} polar_grads;

typedef struct polar_optim_opts {
    size_t struct_size;
    polar_rule rule;         /* of the matrix route */
    double lr, weight_decay; /* of the matrix route */
    double aux_lr, aux_weight_decay, aux_beta1, aux_beta2, aux_eps;
    polar_schedule schedule; /* on every route */
    /* patterns (* and ?), by commas: POLAR_ROUTE_AUTO takes the matrix route if one fits, ... */
    const char *matrix_names;
    /* ... none of these does, and there are two dimensions or more; NULL: every / none */
    const char *aux_names;
    int allow_no_matrix; /* otherwise an empty matrix route is an error */
    /* keep update norms, see polar_optim_stats (one more pass over the directions) */
    int measure;
    /* parameter sets trained side by side, each with its own lr, decay and on/off; 0 means 1 */
    int64_t members;
    /* group_count further groups, for polar_param.group; read by polar_optim_create and not kept */
    const polar_group *groups;
    int64_t group_count;
    /* a parameter whose gradient is NULL stays as it is, its moments and its step count too; otherwise that
     * is an error */
    int skip_missing;
    polar_skip skip_nonfinite;
    /* the ranks that share the work, see "several ranks" below; borrowed while the optimiser lives; NULL:
     * this process alone */
    polar_comm *comm;
    polar_grads grads; /* with comm */
    /* 1: weights and state lie where polar_optim_place says, the data of polar_param are not read; with
     * skip_missing or skip_nonfinite, without comm */
    int placed;
    /* with comm and POLAR_GRADS_MEAN: the parts into which a step's batch is always cut, each added by
     * polar_optim_add_grads; 0: one of each rank, added by the step */
    int64_t leaves;
    /* with leaves: gradients go to the owners in parts of about so many bytes, the last parameters first,
     * each as soon as polar_optim_add_grad has all of it; 0: an eighth of all, 256 KiB at least */
    int64_t bucket_bytes;
    /* 1: of rules with Kronecker factors, products with their vectors and those that their moments average
     * take factors in tf32 (10 bits of mantissa, sums in f32); matrices in f64 have theirs as without */
    int kron_tf32;
    int reserved; /* 0 */
} polar_optim_opts;

/* PolarAdamW as in the paper; set lr and aux_lr. Muon's matrices do not decay unless asked:
 * polar_optim_opts_parse sees to that. */
#define POLAR_OPTIM_OPTS_INIT                                                                        \
    {                                                                                                \
        sizeof(polar_optim_opts),                                                                    \
            {POLAR_MOMENTUM_EMA,                                                                     \
             POLAR_PRECONDITION_ADAM,                                                                \
             POLAR_SCALE_PAPER,                                                                      \
             0.9,                                                                                    \
             0.999,                                                                                  \
             1e-8,                                                                                   \
             POLAR_MAP_OPTS_INIT,                                                                    \
             POLAR_POST_NONE,                                                                        \
             POLAR_APPLY_DECOUPLED,                                                                  \
             0,                                                                                      \
             0,                                                                                      \
             0,                                                                                      \
             0,                                                                                      \
             0,                                                                                      \
             0,                                                                                      \
             0},                                                                                     \
            5e-3, 0.05, 5e-4, 0.05, 0.9, 0.999, 1e-8, {0, 0, 1e-3}, NULL, NULL, 0, 0, 1, NULL, 0, 0, \
            POLAR_SKIP_NEVER, NULL, POLAR_GRADS_MEAN, 0, 0, 0, 0, 0                                  \
    }

/* A group with the options' numbers, to be changed. */
static inline polar_group polar_group_of(const polar_optim_opts *o)
{
    polar_group g = {&o->rule,     o->lr,        o->weight_decay, o->aux_lr,        o->aux_weight_decay,
                     o->aux_beta1, o->aux_beta2, o->aux_eps,      POLAR_ROUTE_AUTO, 0};
    return g;
}

/* ---- the optimiser ------------------------------------------------------------------------------ */

typedef struct polar_optim polar_optim;

typedef struct polar_param_stats {
    const char *name;  /* borrowed from the optimiser */
    polar_route route; /* MATRIX or AUX */
    /* as the map sees it; blocks counts those of all members; of polar_param.blocks that are not alike the
     * first one's shape, scale and rate */
    int64_t rows, cols, blocks;
    double scale;        /* s of the step */
    double effective_lr; /* lr s at the last step, of member 0 */
    /* ||lr s D||_F over all members at member 0's lr; NaN unless opts.measure, and with a hyperball */
    double update_norm;
    int64_t group;          /* polar_param.group */
    int64_t steps, skipped; /* steps made with it, steps left out by a flag, of member 0 */
    /* matrices of it that a polar map was applied to: so far, and in the last step; all members */
    int64_t maps, last_maps;
} polar_param_stats;

typedef struct polar_hyper { /* torch's names; never grows */
    double lr, beta1, beta2, eps, weight_decay;
} polar_hyper;

/* polar_optim_create, polar_optim_stats: see "calls that carry sizes" below */
/* waits for its work, if the queue is still there; NULL is fine */
POLAR_API void polar_optim_destroy(polar_optim *opt);
/* prepare, then enqueue (captured and replayed where the device has graphs) */
POLAR_API polar_status polar_optim_step(polar_optim *opt, polar_queue *q);
/* counts the step and sets its live values; not inside a capture */
POLAR_API polar_status polar_optim_prepare(polar_optim *opt, polar_queue *q);
/* the step's work and nothing else: may be captured by the caller; before the first prepare it changes
 * nothing */
POLAR_API polar_status polar_optim_enqueue(polar_optim *opt, polar_queue *q);

/* live: from the next step on; all groups */
POLAR_API polar_status polar_optim_set_lr(polar_optim *opt, double lr, double aux_lr);
/* live; all groups */
POLAR_API polar_status polar_optim_set_weight_decay(polar_optim *opt, double decay, double aux_decay);
/* live; all groups; inactive: its weights stay as they are */
POLAR_API polar_status polar_optim_set_member(polar_optim *opt, int64_t member, double lr, double aux_lr,
                                              double decay, double aux_decay, int active);
/* live; member -1: all; route: MATRIX or AUX */
POLAR_API polar_status polar_optim_set_hyper(polar_optim *opt, int64_t member, int64_t group,
                                             polar_route route, const polar_hyper *h);
/* what was set last */
POLAR_API polar_status polar_optim_get_hyper(const polar_optim *opt, int64_t member, int64_t group,
                                             polar_route route, polar_hyper *out);
/* groups, the options' own among them; of NULL 0 */
POLAR_API int64_t polar_optim_group_count(const polar_optim *opt);
/* the gradient moved; NULL: there is none (opts.skip_missing) */
POLAR_API polar_status polar_optim_set_grad(polar_optim *opt, int64_t param, void *data);
/* all gradients at once: pointers as polar_optim_set_grad takes them, polar_optim_param_count of them; all or
 * none are taken */
POLAR_API polar_status polar_optim_set_grads(polar_optim *opt, void *const *data, int64_t n);
/* With opts.skip_nonfinite: floats in device memory that every step reads, as torch's GradScaler has them;
 * NULL: none. A step is left out where *found_inf is not 0; gradients are divided by *grad_scale on their
 * way. */
POLAR_API polar_status polar_optim_set_scaler(polar_optim *opt, const float *found_inf,
                                              const float *grad_scale);
/* With opts.skip_missing or opts.skip_nonfinite: n learning rates, floats in device memory that every step
 * reads in the place of all numbers lr, of the schedule and of the members' on/off: of each parameter, then
 * of each rest that no block covers; of each member of these. NULL: the numbers again. Not with comm. */
POLAR_API polar_status polar_optim_set_rates(polar_optim *opt, const float *rates, int64_t n);
/* steps made; with opts.skip_nonfinite as of the last polar_optim_stats, save or load; of NULL 0 */
POLAR_API int64_t polar_optim_get_step(const polar_optim *opt);
/* steps left out by a flag, of member 0, as of the same moment; of NULL 0 */
POLAR_API int64_t polar_optim_skipped(const polar_optim *opt);
/* parameters; of NULL 0 */
POLAR_API int64_t polar_optim_param_count(const polar_optim *opt);
/* a table of routes, for people; borrowed; of NULL "" */
POLAR_API const char *polar_optim_report(const polar_optim *opt);
/* device memory held; of NULL 0 */
POLAR_API size_t polar_optim_state_bytes(const polar_optim *opt);

/* ---- weights and state that come and go ----------------------------------------------------------
 *
 * With opts.placed the optimiser has no state of its own: everything that is kept from step to step (moments,
 * master copies, factors, counts of steps) lies in one piece of the caller's device memory, as opaque bytes
 * of one layout for given parameters and options. A step is then a function of weights, gradients, state and
 * rates, as functional frameworks have it (python/xla/polar_xla.c). */

/* Where they are for the steps to come: n, polar_optim_param_count, weights and gradients, as
 * polar_optim_set_grads takes them, and polar_optim_placed_bytes of state, its address a multiple of 64. Only
 * pointers move. After a refusal no step is made before the next place. */
POLAR_API polar_status polar_optim_place(polar_optim *opt, void *const *weights, void *const *grads,
                                         int64_t n, void *state);
/* bytes of state that is kept from step to step; of NULL 0 */
POLAR_API size_t polar_optim_placed_bytes(const polar_optim *opt);
/* the state as polar_optim_create leaves it, with the weights as they are now; not with comm */
POLAR_API polar_status polar_optim_restart(polar_optim *opt, polar_queue *q);

/* ---- several ranks -------------------------------------------------------------------------------
 *
 * With opts.comm every rank makes the same optimiser (names, shapes and options are compared) and calls
 * create, step, save, load, stats and reload_weights together with the others. Every matrix has an owner,
 * who alone keeps its moments and steps it: of all matrices, most work first, ties by name, each goes to
 * the rank with the least work so far; then the busiest gives one away, or takes a smaller one for it, while
 * that helps. The work is n^3 T (4 a + 2) for T steps of Newton-Schulz on a matrix of short side n and long
 * side a n. What has no polar map is cut into contiguous ranges, one for each rank. polar_optim_report says
 * who has what.
 *
 *     whole tensors:  gradients go to the owners and are added there in the order of polar/comm.h, the
 *                     owners step, the new weights go to everybody: the bytes of an all-reduce
 *     rows (FSDP):    the rows of a gradient go to the matrix's owner, who keeps a copy of the weights; the
 *                     new rows come back. Without a map every rank steps its own rows. Whoever writes such
 *                     weights himself calls polar_optim_reload_weights
 *
 * A matrix is whole on its owner and its step depends on nothing else, so the weights have the same bits
 * for every number of ranks, given the same leaves (rows and POLAR_GRADS_SAME: given the same gradients).
 * State files are those of one rank, written by rank 0 and read by every rank: saved by 4, loaded by 2 or
 * by a program without a communicator. A step that fails on one rank leaves the ranks unlike: go on from a
 * file. Not with members; f64 beside other weights is refused. */

/* the gradients are those of part `leaf` of the batch: each of this rank's polar_comm_share of opts.leaves,
 * in ascending order, before the step */
POLAR_API polar_status polar_optim_add_grads(polar_optim *opt, polar_queue *q, int64_t leaf);
/* the same of one parameter, which a backward has finished before the others (from the last to the first, as
 * it goes); polar_optim_add_grads then adds the rest. With the last of its parts a rank sends what it has
 * while the rest is computed: same bits, same bytes. By transports of ours between host memories; elsewhere
 * it waits for the step */
POLAR_API polar_status polar_optim_add_grad(polar_optim *opt, polar_queue *q, int64_t leaf, int64_t param);
/* [*first, *first + *count): the elements of a parameter (the whole tensor, row by row) whose state is with
 * that rank */
POLAR_API polar_status polar_optim_get_part(const polar_optim *opt, int64_t param, int rank, int64_t *first,
                                            int64_t *count);

/* a safetensors file; a resumed run has the same bits */
POLAR_API polar_status polar_optim_save(polar_optim *opt, polar_queue *q, const char *path);
/* polar_load flags, below */
POLAR_API polar_status polar_optim_load_with(polar_optim *opt, polar_queue *q, const char *path,
                                             unsigned what);
/* after the caller wrote bf16 weights: renew the master copy */
POLAR_API polar_status polar_optim_reload_weights(polar_optim *opt, polar_queue *q);

/* The state where it lies, in device memory, for those who keep or exchange it in a form of their own.
 * Between steps it may be written, too: the next step goes on from it. */
typedef enum polar_state {
    POLAR_STATE_MOMENTUM = 0,      /* (members, rows, cols); a vector is one row */
    POLAR_STATE_SECOND_MOMENT = 1, /* the same; of AdamW and preconditioned rules */
    POLAR_STATE_MASTER = 2,        /* the same, f32; of bf16 weights */
    /* (members, 2), f64: steps made, steps left out; with opts.skip_missing or opts.skip_nonfinite */
    POLAR_STATE_STEPS = 3,
    /* of polar_post: (members, 1, rows), (members, row_blocks, cols) or, of entries, (members, rows, cols) */
    POLAR_STATE_POST = 4,
    /* of Kronecker factors: L (members, rows, rows of a block), R (members, row_blocks cols, cols), */
    POLAR_STATE_LEFT = 5,
    POLAR_STATE_RIGHT = 6,
    POLAR_STATE_LEFT_BASIS = 7, /* their eigenvectors, in columns, */
    POLAR_STATE_RIGHT_BASIS = 8,
    POLAR_STATE_LEFT_FACTORS = 9,  /* what becomes of their eigenvalues, f64: (members, 1, rows), */
    POLAR_STATE_RIGHT_FACTORS = 10 /* (members, row_blocks, cols) */
} polar_state;

/* borrowed from the optimiser; data NULL and ndim 0: it has none */
POLAR_API polar_status polar_optim_state_view(polar_tensor *out, const polar_optim *opt, int64_t param,
                                              polar_state which);
/* The parts of a parameter with blocks: its blocks in their order, neighbours of one shape in one part, then
 * what no block covers; 1 of any other, 0 of one that is not there. */
POLAR_API int64_t polar_optim_part_count(const polar_optim *opt, int64_t param);
/* polar_optim_state_view of what each part keeps for itself: POLAR_STATE_POST and those behind it */
POLAR_API polar_status polar_optim_part_view(polar_tensor *out, const polar_optim *opt, int64_t param,
                                             int64_t part, polar_state which);

/* What a load replaces: momenta, second moments, master copies and the count of steps; bf16 weights are then
 * written from their master copies. The caller's lr, decay and on/off of the members, and the numbers of his
 * groups, stay unless asked for; the schedule stays. All or nothing: a file of another model, rule (momentum,
 * preconditioner, betas, eps), number format, map, scale, route or row blocks is refused, by name, and
 * changes nothing. */
typedef enum polar_load {
    POLAR_LOAD_STATE = 0, /* the above */
    /* lr, betas, eps, decay of every group and member and their on/off as saved, too */
    POLAR_LOAD_SETTINGS = 1,
    /* map, scale, routes and row blocks may be others than the saved ones */
    POLAR_LOAD_OTHER_MAP = 2
} polar_load;

/* ---- calls that carry sizes --------------------------------------------------------------------- */

/* The sizes of the structs as the caller was compiled. All of them may grow at their tails, those inside
 * others too; the library finds its way in older and newer ones by these numbers (docs/abi.md). */
typedef struct polar_optim_layout {
    size_t struct_size;
    size_t map_opts, rule, schedule, param, optim_opts;
    size_t group, block;
} polar_optim_layout;

#define POLAR_OPTIM_LAYOUT_INIT                                                                         \
    {                                                                                                   \
        sizeof(polar_optim_layout), sizeof(polar_map_opts), sizeof(polar_rule), sizeof(polar_schedule), \
            sizeof(polar_param), sizeof(polar_optim_opts), sizeof(polar_group), sizeof(polar_block)     \
    }

/* polar_rule_parse with sizes */
POLAR_API polar_status polar_rule_parse_sized(polar_rule *out, const char *name,
                                              const polar_optim_layout *layout);
/* polar_optim_opts_parse with sizes */
POLAR_API polar_status polar_optim_opts_parse_sized(polar_optim_opts *out, const char *rule,
                                                    const polar_optim_layout *layout);
/* polar_optim_create with sizes */
POLAR_API polar_status polar_optim_create_sized(polar_optim **out, polar_device *dev,
                                                const polar_param *params, int64_t n,
                                                const polar_optim_opts *opts,
                                                const polar_optim_layout *layout);
/* polar_optim_stats; size: sizeof *out */
POLAR_API polar_status polar_optim_stats_sized(polar_optim *opt, polar_queue *q, polar_param_stats *out,
                                               size_t size);

#ifndef POLAR_ENTRIES_OF_0_1
/* A rule by its name, one of polar_rule_name's. */
static inline polar_status polar_rule_parse(polar_rule *out, const char *name)
{
    const polar_optim_layout layout = POLAR_OPTIM_LAYOUT_INIT;
    return polar_rule_parse_sized(out, name, &layout);
}

/* The defaults of a rule by name, the paper's lr and decay. */
static inline polar_status polar_optim_opts_parse(polar_optim_opts *out, const char *rule)
{
    const polar_optim_layout layout = POLAR_OPTIM_LAYOUT_INIT;
    return polar_optim_opts_parse_sized(out, rule, &layout);
}

/* An optimiser of n parameters; opts NULL: POLAR_OPTIM_OPTS_INIT. */
static inline polar_status polar_optim_create(polar_optim **out, polar_device *dev, const polar_param *params,
                                              int64_t n, const polar_optim_opts *opts)
{
    const polar_optim_layout layout = POLAR_OPTIM_LAYOUT_INIT;
    return polar_optim_create_sized(out, dev, params, n, opts, &layout);
}

/* What the last step did, one entry per parameter; synchronises. */
static inline polar_status polar_optim_stats(polar_optim *opt, polar_queue *q, polar_param_stats *out)
{
    return polar_optim_stats_sized(opt, q, out, sizeof *out);
}

/* polar_optim_load_with and POLAR_LOAD_STATE. */
static inline polar_status polar_optim_load(polar_optim *opt, polar_queue *q, const char *path)
{
    return polar_optim_load_with(opt, q, path, POLAR_LOAD_STATE);
}
#else /* within the library: what programs compiled against 0.1 call */
/* as of 0.1 */
POLAR_API polar_status polar_optim_load(polar_optim *opt, polar_queue *q, const char *path);
/* as of 0.1 */
POLAR_API polar_status polar_rule_parse(polar_rule *out, const char *name);
/* as of 0.1 */
POLAR_API polar_status polar_optim_opts_parse(polar_optim_opts *out, const char *rule);
/* as of 0.1 */
POLAR_API polar_status polar_optim_create(polar_optim **out, polar_device *dev, const polar_param *params,
                                          int64_t n, const polar_optim_opts *opts);
/* as of 0.1 */
POLAR_API polar_status polar_optim_stats(polar_optim *opt, polar_queue *q, polar_param_stats *out);
#endif

#ifdef __cplusplus
}
#endif
#endif
