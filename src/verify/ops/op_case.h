/* op_case.h -- the one list of cases of every op: tests compare them with the oracle, `polar bench` times
 * them.
 *
 *     for (int64_t i = 0; i < pl_op_case_count(); i++) {
 *         pl_op_case c;  char name[PL_OP_CASE_NAME];  pl_op_result r;
 *         pl_op_case_at(&c, i);
 *         pl_op_case_measure(&r, &c, PL_FILL_NORMAL, dev, ref);
 *         printf("%s: %g of %g\n", pl_op_case_name(name, sizeof name, &c), r.err, r.tol);
 *     }
 *
 * A case is an op with the formats, sizes and variant of one call; its operands are made in op_run.h, what a
 * right implementation may return in op_model.h. A new row of ops.def needs a family pl_cases_<op> in
 * op_case_<noun>.c: without one nothing links.
 */
#ifndef PL_VERIFY_OP_CASE_H
#define PL_VERIFY_OP_CASE_H

#include "device/ops.h"
#include "verify/ops/op_fill.h"

#define PL_OP_CASE_NAME 160

/* How a call differs from the plainest one of its op; what is zero is not so. */
typedef struct pl_case_variant {
    int large; /* runs at large sizes too: those that blocking sees */
    /* whole numbers of the call, named as in its row of ops.def */
    int64_t ta, tb, sym, tf32, trans, round_terms, reference, rounded, momentum, act, kind, apply, every,
        after, root, back;
    /* the OR_NONE operands that are there, in the order of the row: "D", "dL Z"; NULL: none of them */
    const char *with;
    /* the operand on which the first result stands; on which the last written one does; 0: on none */
    int onto, last_onto;
    int strided; /* rows and matrices are further apart than they are long */
    int shared;  /* gemm: one B for the batch (stride 0); normalise: one norm for all */
    /* rows of values (live values, flags, biases, gains): one for each matrix. Of live values the second
     * one's lr is 0, the third one is left out, gradients have factors */
    int per_matrix;
    int laprop; /* direction: with V, LaProp's order */
    /* gemm, axpby, row_*, pair_*: as named; frob: alpha the weight; decay_step, softmax, apply_step: alpha
     * the scale; direction, adamw_step, advance, line_factors, entry_stage: the betas; kron_eigen,
     * kron_sweep: the power, beta2 */
    double alpha, beta;
    double eps;
} pl_case_variant;

typedef struct pl_op_case {
    pl_op_id op;
    polar_dtype dtype[PL_MAX_OPERANDS]; /* in the order of ops.def; norms and live values are f64 */
    int64_t batch, rows, cols, K;       /* what they are the sizes of: op_case_<noun>.c */
    int large;                          /* a large size */
    pl_case_variant how;
    uint32_t present; /* bit i: operand i is there */
} pl_op_case;

/* What was measured; whether it is good enough is for the caller to say. */
typedef struct pl_op_result {
    int64_t elements;     /* elements of results looked at */
    int64_t excused;      /* of these: the compute format may overflow on the way, so any value goes */
    int64_t outside;      /* values that no right implementation returns (op_model.h) */
    int64_t nan_mismatch; /* NaN where a number belongs, or the reverse */
    int64_t unwritten;    /* elements that still hold the poison put there */
    /* bytes changed beside the results: between rows, between matrices, before and after */
    int64_t padding_touched;
    int64_t const_changed; /* bytes changed in operands that are only read */
    /* elements whose bits differ from the oracle's, all NaNs being alike; 0 without an oracle */
    int64_t bits_differ;
    /* largest distance from the oracle where both are finite; 0 without an oracle */
    double max_abs;
    /* of the element that uses most of its tolerance: the least error of the arithmetic that explains the
     * value, and its bound */
    double err, tol;
} pl_op_result;

int64_t pl_op_case_count(void);                /* cases in the list */
int pl_op_case_at(pl_op_case *out, int64_t i); /* case i; 0 past the end */
/* the case of this name; 0 where there is none */
int pl_op_case_named(pl_op_case *out, const char *name);
/* "gemm bf16->f32 3x33x17x64 tb D"; returns out */
char *pl_op_case_name(char *out, size_t bytes, const pl_op_case *c);
/* the name's beginning: "gemm bf16->f32" */
char *pl_op_case_group(char *out, size_t bytes, const pl_op_case *c);
/* f64 where a data operand is f64, else f32 */
polar_dtype pl_op_case_compute(const pl_op_case *c);
/* operand i is present and neither norms nor live values */
int pl_op_case_data_operand(const pl_op_case *c, int i);
/* the operand that result i stands on; -1 where none */
int pl_op_case_in_place_on(const pl_op_case *c, int i);

/* Runs the case on dev from the same bits as on the oracle (or NULL) and measures. Errors are those of the
 * machine and of the op's use. */
polar_status pl_op_case_measure(pl_op_result *out, const pl_op_case *c, pl_fill fill, pl_device *dev,
                                pl_device *oracle);

/* The same of n devices, out[k] of devs[k]; what may come out, which takes longest to say, is said once for
 * all. A device that is the oracle is not held against itself. */
polar_status pl_op_case_measure_on(pl_op_result *out, const pl_op_case *c, pl_fill fill,
                                   pl_device *const *devs, int n, pl_device *oracle);

/* The same without the bounds: only elements, bits_differ and max_abs of the results are set; out[k]: of
 * others[k] and dev. */
polar_status pl_op_case_compare(pl_op_result *out, const pl_op_case *c, pl_fill fill, pl_device *dev,
                                pl_device *const *others, int n);

#endif
