/* map.h -- polar maps: send a matrix U S V^T to (nearly) its orthogonal polar factor U V^T, or to U f(S) V^T.
 *
 *     polar_map_opts o = POLAR_MAP_OPTS_INIT;       // Newton-Schulz, 5 steps, Jordan's table, fused bf16
 *     o.precision = POLAR_DTYPE_F32;
 *     polar_map_apply(q, outs, ins, n, &o);         // any mixture of shapes, tall or wide
 *
 * Newton-Schulz brings singular values near 1 (about 0.68 to 1.2 with Jordan's table), the exact map to 1; a
 * zero singular value stays zero, a zero matrix gives zero. The result is the same whatever else is in the
 * call.
 */
#ifndef POLAR_MAP_H
#define POLAR_MAP_H

#include "polar/device.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum polar_map_kind {
    POLAR_MAP_NONE = 0, /* the identity */
    POLAR_MAP_NEWTON_SCHULZ = 1,
    POLAR_MAP_EXACT = 2, /* by singular value decomposition, in double */
    /* by the same decomposition: U S^p V^T, p = power: 0 the polar factor, 1 the matrix itself */
    POLAR_MAP_POWER = 3,
    /* sigma -> t sigma / sqrt((t sigma)^2 + r^2), t = power, r = ||X||_F / sqrt(min(rows, cols)): nearly the
       polar factor of what is larger than r / t, nearly linear below */
    POLAR_MAP_SOFT = 4
} polar_map_kind;

typedef enum polar_rounding {
    /* each product rounded once, in its epilogue; no epsilon unless asked (the default) */
    POLAR_ROUND_FUSED = 0,
    /* the public Muon code's roundings and its eps, bf16 only: what the paper ran */
    POLAR_ROUND_REFERENCE = 1,
    /* as fused, bf16 and f16 only; of matrices 1.5 times as long as wide some steps on X X^T alone: a third
       fewer products, roundings like the reference's */
    POLAR_ROUND_GRAM = 2
} polar_rounding;

typedef struct polar_coef {
    double a, b, c; /* X <- a X + (b A + c A A) X,  A = X X^T */
} polar_coef;

#define POLAR_MAX_STEPS 32

typedef struct polar_map_opts {
    size_t struct_size;
    polar_map_kind kind;
    polar_dtype precision; /* of the Newton-Schulz iterates */
    polar_rounding rounding;
    int steps; /* 0 to POLAR_MAX_STEPS */
    /* "jordan", "polar_express", ... (polar_coef_table_name); used when coefs is NULL */
    const char *table;
    const polar_coef *coefs; /* the caller's own, `steps` of them */
    double eps;   /* Newton-Schulz: divides by max(norm, eps), as torch.optim.Muon; by norm + eps with the
                     reference rounding; 0: the rounding's own, which is none, or the public code's 1e-7 with
                     the reference rounding */
    double power; /* POLAR_MAP_POWER: p, from -1 to 1; POLAR_MAP_SOFT: t, more than 0 */
} polar_map_opts;

#define POLAR_MAP_OPTS_INIT                                                                                \
    {                                                                                                      \
        sizeof(polar_map_opts), POLAR_MAP_NEWTON_SCHULZ, POLAR_DTYPE_BF16, POLAR_ROUND_FUSED, 5, "jordan", \
            NULL, 0, 0                                                                                     \
    }

/* out[i] = map(in[i]) for i < n. A tensor has two dimensions, or three with the batch first. out[i] may be
 * in[i] itself but must not overlap any other tensor of the call. Enqueues only; errors of use are returned
 * at once. */
POLAR_API polar_status polar_map_apply(polar_queue *q, const polar_tensor *out, const polar_tensor *in,
                                       int64_t n, const polar_map_opts *opts);

/* The map of the direct sum of in[i] (x) I_{dim[i]}, block by block: Newton-Schulz blocks share one Frobenius
 * norm, that of the whole. */
POLAR_API polar_status polar_map_apply_blocks(polar_queue *q, const polar_tensor *out, const polar_tensor *in,
                                              const int64_t *dim, int64_t n, const polar_map_opts *opts);

/* the first `steps` rows; the last row repeats */
POLAR_API polar_status polar_coef_table(polar_coef *out, int steps, const char *name);
/* names of the tables; NULL past the end */
POLAR_API const char *polar_coef_table_name(int i);
/* size: sizeof *out */
POLAR_API polar_status polar_map_opts_parse_sized(polar_map_opts *out, size_t size, const char *name);

#ifndef POLAR_ENTRIES_OF_0_1
/* "exact", "ns_fp64", "ns_fp32", "ns_bf16_reference", "ns_bf16_fused", "ns_bf16_gram", "ns_fp16_fused",
 * "ns_fp16_gram", "none", "power" (of 0.5), "soft" (of 1) */
static inline polar_status polar_map_opts_parse(polar_map_opts *out, const char *name)
{
    return polar_map_opts_parse_sized(out, sizeof *out, name);
}
#else /* within the library: what programs compiled against 0.1 call */
POLAR_API polar_status polar_map_opts_parse(polar_map_opts *out, const char *name); /* as of 0.1 */
#endif

#ifdef __cplusplus
}
#endif
#endif
