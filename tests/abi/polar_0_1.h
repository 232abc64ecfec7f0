/* polar_0_1.h -- the public headers of version 0.1, all in one, as programs in the field were compiled with them. Never edited: test_abi_0_1.c holds the
 * library to them. */
#ifndef POLAR_0_1_H
#define POLAR_0_1_H

#define POLAR_STATUS_H    /* the headers of today stay out */
#define POLAR_TENSOR_H
#define POLAR_DEVICE_H
#define POLAR_MAP_H
#define POLAR_OPTIM_H

#include <stddef.h>
#include <stdint.h>

/* ==== polar/status.h ==== */

#if defined(__GNUC__)
#define POLAR_API __attribute__((visibility("default")))
#else
#define POLAR_API
#endif

#define POLAR_VERSION_MAJOR 0
#define POLAR_VERSION_MINOR 1
#define POLAR_VERSION_PATCH 0
#define POLAR_VERSION "0.1.0"

typedef enum polar_status {
    POLAR_OK = 0,
    POLAR_E_ARG,            /* the caller asked for something that does not exist or makes no sense */
    POLAR_E_SHAPE,          /* sizes that do not fit together */
    POLAR_E_DTYPE,          /* a number format this call does not take */
    POLAR_E_FORMAT,         /* a file that does not hold what it claims */
    POLAR_E_UNSUPPORTED,    /* right, but not on this device or in this build */
    POLAR_E_NOMEM,          /* out of memory, host or device */
    POLAR_E_IO,             /* the operating system could not read or write */
    POLAR_E_DEVICE,         /* the device failed or is missing */
    POLAR_E_STATE           /* right call, wrong moment */
} polar_status;

POLAR_API const char *polar_status_name(polar_status status);   /* two or three words, e.g. "shape mismatch" */
POLAR_API const char *polar_error_message(void);                /* the last sentence of this thread, "" if none; borrowed */
POLAR_API const char *polar_version(void);                      /* of the library that is loaded, e.g. "0.1.0" */

/* ==== polar/tensor.h ==== */

typedef enum polar_dtype {
    POLAR_DTYPE_F64 = 0,
    POLAR_DTYPE_F32 = 1,
    POLAR_DTYPE_BF16 = 2,
    POLAR_DTYPE_COUNT = 3
} polar_dtype;

#define POLAR_MAX_DIMS 8

typedef struct polar_tensor {
    void       *data;                      /* in the memory of the device that will work on it */
    polar_dtype dtype;
    int         ndim;
    int64_t     shape[POLAR_MAX_DIMS];
    int64_t     stride[POLAR_MAX_DIMS];    /* in elements */
} polar_tensor;

POLAR_API size_t      polar_dtype_size(polar_dtype dtype);                             /* bytes per element, 0 for an unknown one */
POLAR_API const char *polar_dtype_name(polar_dtype dtype);                             /* "f64", "f32", "bf16" */
POLAR_API polar_status polar_dtype_parse(polar_dtype *out, const char *name);          /* the reverse; also "fp64", "float32", ... */
POLAR_API polar_tensor polar_tensor_1d(void *data, polar_dtype dtype, int64_t n);                                    /* a vector */
POLAR_API polar_tensor polar_tensor_2d(void *data, polar_dtype dtype, int64_t rows, int64_t cols);                   /* dense row-major */
POLAR_API polar_tensor polar_tensor_3d(void *data, polar_dtype dtype, int64_t batch, int64_t rows, int64_t cols);    /* a batch of dense matrices */

/* ==== polar/device.h ==== */

typedef struct polar_device polar_device;
typedef struct polar_queue polar_queue;

/* What a piece of work costs, summed by a dry run: no memory is touched and nothing is computed. */
typedef struct polar_cost {
    int64_t ops;              /* calls of device operations */
    double  flops;            /* nominal: 2 M N K for a product */
    double  bytes;            /* every operand read or written once per operation */
    size_t  scratch_bytes;    /* the most scratch memory in use at one time */
} polar_cost;

POLAR_API polar_status polar_device_open(polar_device **out, const char *name);    /* the caller closes it */
POLAR_API void         polar_device_close(polar_device *dev);                      /* after its queues; NULL is fine */
POLAR_API const char  *polar_device_name(const polar_device *dev);                 /* the full name, e.g. "cpu:isa=avx512,threads=2"; borrowed */
POLAR_API polar_status polar_device_alloc(polar_device *dev, void **out, size_t bytes);    /* device memory, 64-byte aligned or better */
POLAR_API void         polar_device_free(polar_device *dev, void *data);           /* NULL is fine */
POLAR_API int          polar_backend_count(void);                                  /* backends in this build */
POLAR_API const char  *polar_backend_name(int i);                                  /* "ref", "guard", "cpu", ...; NULL past the end */
POLAR_API const char  *polar_backend_summary(int i);                               /* one line for people */

POLAR_API polar_status polar_queue_create(polar_queue **out, polar_device *dev, void *stream);    /* stream: the caller's CUDA stream, or NULL for one of its own */
POLAR_API void         polar_queue_destroy(polar_queue *q);                        /* waits for its work; NULL is fine */
POLAR_API polar_status polar_queue_sync(polar_queue *q);                           /* waits; returns and clears the first error of the work */
POLAR_API void         polar_queue_upload(polar_queue *q, void *dst, const void *src, size_t bytes);      /* src may be reused at once */
POLAR_API void         polar_queue_download(polar_queue *q, void *dst, const void *src, size_t bytes);    /* dst is filled after the next sync */
POLAR_API polar_status polar_queue_dry_begin(polar_queue *q);                      /* from here on calls only count */
POLAR_API polar_status polar_queue_dry_end(polar_queue *q, polar_cost *out);       /* ... until here */
POLAR_API polar_status polar_queue_reserve(polar_queue *q, size_t scratch_bytes);  /* so that later work allocates nothing */

/* ==== polar/map.h ==== */

typedef enum polar_map_kind {
    POLAR_MAP_NONE = 0,            /* the identity */
    POLAR_MAP_NEWTON_SCHULZ = 1,
    POLAR_MAP_EXACT = 2            /* by singular value decomposition, in double */
} polar_map_kind;

typedef enum polar_rounding {
    POLAR_ROUND_FUSED = 0,         /* each product rounded once, in its epilogue; no epsilon (the default) */
    POLAR_ROUND_REFERENCE = 1,     /* the public Muon code's roundings and its 1e-7, bf16 only: what the paper ran */
    POLAR_ROUND_GRAM = 2           /* as fused, bf16 only; of matrices twice as long as wide some steps on X X^T alone: a third fewer products, roundings like the reference's */
} polar_rounding;

typedef struct polar_coef {
    double a, b, c;                /* X <- a X + (b A + c A A) X,  A = X X^T */
} polar_coef;

#define POLAR_MAX_STEPS 32

typedef struct polar_map_opts {
    size_t         struct_size;
    polar_map_kind kind;
    polar_dtype    precision;      /* of the Newton-Schulz iterates */
    polar_rounding rounding;
    int            steps;          /* 0 to POLAR_MAX_STEPS */
    const char    *table;          /* "jordan", "polar_express", "classical"; used when coefs is NULL */
    const polar_coef *coefs;       /* the caller's own, `steps` of them */
} polar_map_opts;

#define POLAR_MAP_OPTS_INIT                                                                       \
    { sizeof(polar_map_opts), POLAR_MAP_NEWTON_SCHULZ, POLAR_DTYPE_BF16, POLAR_ROUND_FUSED, 5, "jordan", NULL }

/* out[i] = map(in[i]) for i < n. A tensor has two dimensions, or three with the batch first. out[i] may be in[i]
 * itself but must not overlap any other tensor of the call. Enqueues only; errors of use are returned at once. */
POLAR_API polar_status polar_map_apply(polar_queue *q, const polar_tensor *out, const polar_tensor *in, int64_t n, const polar_map_opts *opts);

/* The map of the direct sum of in[i] (x) I_{dim[i]}, block by block: Newton-Schulz blocks share one Frobenius norm, that of the whole. */
POLAR_API polar_status polar_map_apply_blocks(polar_queue *q, const polar_tensor *out, const polar_tensor *in, const int64_t *dim, int64_t n, const polar_map_opts *opts);

POLAR_API polar_status polar_coef_table(polar_coef *out, int steps, const char *name);    /* the first `steps` rows; the last row repeats */
POLAR_API const char  *polar_coef_table_name(int i);                                      /* names of the tables; NULL past the end */
POLAR_API polar_status polar_map_opts_parse(polar_map_opts *out, const char *name);       /* "exact", "ns_fp64", "ns_fp32", "ns_bf16_reference", "ns_bf16_fused", "ns_bf16_gram", "none" */

/* ==== polar/optim.h ==== */

/* ---- rules ----------------------------------------------------------------------------------------- */

typedef enum polar_momentum {
    POLAR_MOMENTUM_HEAVY_BALL = 0,    /* m = mu m + g;           u = m */
    POLAR_MOMENTUM_NESTEROV = 1,      /* m = mu m + g;           u = g + mu m */
    POLAR_MOMENTUM_EMA = 2            /* m = b1 m + (1 - b1) g;  u = m / (1 - b1^t) */
} polar_momentum;

typedef enum polar_precondition {
    POLAR_PRECONDITION_NONE = 0,
    POLAR_PRECONDITION_ADAM = 1       /* v = b2 v + (1 - b2) g^2;  u / (sqrt(v / (1 - b2^t)) + eps), entry by entry */
} polar_precondition;

typedef enum polar_scale {            /* of a (rows = out, cols = in) matrix */
    POLAR_SCALE_NONE = 0,             /* 1 */
    POLAR_SCALE_PAPER = 1,            /* sqrt(max / min) */
    POLAR_SCALE_JORDAN = 2,           /* sqrt(max(1, out / in)) */
    POLAR_SCALE_SPECTRAL = 3,         /* sqrt(out / in) */
    POLAR_SCALE_RMS = 4               /* 0.2 sqrt(max) */
} polar_scale;

typedef struct polar_rule {           /* an optimiser is a row */
    polar_momentum     momentum;
    polar_precondition precondition;
    polar_scale        scale;
    double             beta1;         /* mu of the heavy ball, b1 of the EMA */
    double             beta2, eps;    /* eps at least the smallest normal float: it keeps zero over zero from happening */
    polar_map_opts     map;           /* kind POLAR_MAP_NONE: no polar map */
} polar_rule;

POLAR_API polar_status polar_rule_parse(polar_rule *out, const char *name);     /* "sgdm", "adamw", "muon", "polaradamw", "muon_v", "polar_ema" */
POLAR_API const char  *polar_rule_name(int i);                                  /* names of the rules; NULL past the end */
POLAR_API polar_status polar_scale_parse(polar_scale *out, const char *name);   /* "none", "paper", "jordan", "spectral", "rms" */
POLAR_API double       polar_scale_value(polar_scale scale, int64_t rows, int64_t cols);    /* the factor for one matrix */

/* ---- schedules ------------------------------------------------------------------------------------- */

typedef struct polar_schedule {       /* linear warm-up from warmup_from, then a cosine to zero; total 0: constant 1, no warm-up */
    int64_t warmup, total;            /* steps */
    double  warmup_from;              /* of the full lr, 1e-3 in the paper */
} polar_schedule;

POLAR_API double polar_schedule_factor(const polar_schedule *s, int64_t step);    /* step counts from 0 */

/* ---- parameters ------------------------------------------------------------------------------------ */

typedef enum polar_route {
    POLAR_ROUTE_AUTO = 0,             /* by shape and name, see polar_optim_opts */
    POLAR_ROUTE_MATRIX = 1,
    POLAR_ROUTE_AUX = 2
} polar_route;

typedef struct polar_param {
    const char  *name;                /* unique, UTF-8 of at most 500 bytes; copied */
    polar_tensor weight;              /* packed; with members > 1, and only then, the first dimension counts them */
    polar_tensor grad;                /* the same shape, f32, bf16 or f64, packed; its data may be NULL until polar_optim_set_grad */
    polar_route  route;
    int64_t      row_blocks;          /* matrix route: split into so many equal blocks of rows, each mapped by itself (qkv: 3); 0 or 1: whole */
    int64_t      schur_group;         /* matrix route: parameters of one group > 0 are blocks of one direct sum and share a norm */
    int64_t      schur_dim;           /* the block stands (x) I_dim in it; 0 means 1 */
} polar_param;                        /* more than two dimensions: seen as (first, all others), and scaled so too */

typedef struct polar_optim_opts {
    size_t         struct_size;
    polar_rule     rule;              /* of the matrix route */
    double         lr, weight_decay;  /* of the matrix route */
    double         aux_lr, aux_weight_decay, aux_beta1, aux_beta2, aux_eps;
    polar_schedule schedule;          /* on every route */
    const char    *matrix_names;      /* patterns (* and ?), by commas: POLAR_ROUTE_AUTO takes the matrix route if one fits, ... */
    const char    *aux_names;         /* ... none of these does, and there are two dimensions or more; NULL: every / none */
    int            allow_no_matrix;   /* otherwise an empty matrix route is an error */
    int            measure;           /* keep update norms, see polar_optim_stats (one more pass over the directions) */
    int64_t        members;           /* parameter sets trained side by side, each with its own lr, decay and on/off; 0 means 1 */
} polar_optim_opts;

/* PolarAdamW as in the paper; set lr and aux_lr. Muon's matrices do not decay unless asked: polar_optim_opts_parse sees to that. */
#define POLAR_OPTIM_OPTS_INIT                                                                                                                       \
    {                                                                                                                                               \
        sizeof(polar_optim_opts), {POLAR_MOMENTUM_EMA, POLAR_PRECONDITION_ADAM, POLAR_SCALE_PAPER, 0.9, 0.999, 1e-8, POLAR_MAP_OPTS_INIT}, 5e-3, 0.05, \
            5e-4, 0.05, 0.9, 0.999, 1e-8, {0, 0, 1e-3}, NULL, NULL, 0, 0, 1                                                                        \
    }

POLAR_API polar_status polar_optim_opts_parse(polar_optim_opts *out, const char *rule);    /* the defaults of a rule by name, the paper's lr and decay */

/* ---- the optimiser --------------------------------------------------------------------------------- */

typedef struct polar_optim polar_optim;

typedef struct polar_param_stats {
    const char *name;                 /* borrowed from the optimiser */
    polar_route route;                /* MATRIX or AUX */
    int64_t     rows, cols, blocks;   /* as the map sees it; blocks counts row blocks of all members */
    double      scale;                /* s of the step */
    double      effective_lr;         /* lr s at the last step, of member 0 */
    double      update_norm;          /* ||lr s D||_F over all members at member 0's lr; NaN unless opts.measure */
} polar_param_stats;

POLAR_API polar_status polar_optim_create(polar_optim **out, polar_device *dev, const polar_param *params, int64_t n, const polar_optim_opts *opts);
POLAR_API void         polar_optim_destroy(polar_optim *opt);                       /* NULL is fine */
POLAR_API polar_status polar_optim_step(polar_optim *opt, polar_queue *q);          /* prepare, then enqueue (captured and replayed where the device has graphs) */
POLAR_API polar_status polar_optim_prepare(polar_optim *opt, polar_queue *q);       /* counts the step and sets its live values; not inside a capture */
POLAR_API polar_status polar_optim_enqueue(polar_optim *opt, polar_queue *q);       /* the step's work and nothing else: may be captured by the caller */

POLAR_API polar_status polar_optim_set_lr(polar_optim *opt, double lr, double aux_lr);                        /* live: from the next step on */
POLAR_API polar_status polar_optim_set_weight_decay(polar_optim *opt, double decay, double aux_decay);        /* live */
POLAR_API polar_status polar_optim_set_member(polar_optim *opt, int64_t member, double lr, double aux_lr, double decay, double aux_decay, int active);    /* live; inactive: its weights stay as they are */
POLAR_API polar_status polar_optim_set_grad(polar_optim *opt, int64_t param, void *data);                     /* the gradient moved */
POLAR_API int64_t      polar_optim_get_step(const polar_optim *opt);                                          /* steps made */
POLAR_API int64_t      polar_optim_param_count(const polar_optim *opt);                                       /* parameters */
POLAR_API polar_status polar_optim_stats(polar_optim *opt, polar_queue *q, polar_param_stats *out);           /* one per parameter; synchronises */
POLAR_API const char  *polar_optim_report(const polar_optim *opt);                                            /* a table of routes, for people; borrowed */
POLAR_API size_t       polar_optim_state_bytes(const polar_optim *opt);                                       /* device memory held */

POLAR_API polar_status polar_optim_save(polar_optim *opt, polar_queue *q, const char *path);                  /* a safetensors file; a resumed run has the same bits */
POLAR_API polar_status polar_optim_load(polar_optim *opt, polar_queue *q, const char *path);                  /* all or nothing: a file of another model changes nothing */
POLAR_API polar_status polar_optim_reload_weights(polar_optim *opt, polar_queue *q);                          /* after the caller wrote bf16 weights: renew the master copy */

#endif
