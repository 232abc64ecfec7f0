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
 * A case is an op with the formats, sizes, flags and scalars of one call; its operands are made in op_run.h,
 * what a right implementation may return in op_model.h. A new row of ops.def needs a family in op_case.c;
 * test_ops fails without one.
 */
#ifndef PL_VERIFY_OP_CASE_H
#define PL_VERIFY_OP_CASE_H

#include "device/ops.h"
#include "verify/ops/op_fill.h"

#define PL_OP_CASE_NAME 160

typedef enum pl_case_flag {
    PL_CASE_TA = 1 << 0,          /* gemm: A stands transposed */
    PL_CASE_TB = 1 << 1,          /* gemm: B stands transposed */
    PL_CASE_TRANS = 1 << 2,       /* copy, frob */
    PL_CASE_ROUND_TERMS = 1 << 3, /* axpby */
    PL_CASE_REFERENCE = 1 << 4,   /* normalise */
    PL_CASE_ROUNDED = 1 << 5,     /* frob */
    /* gemm has D, axpby, pair_sum and vec_gate have Z, bias_act and bias_act_back b, layernorm_back and
       scale_rows Z, mse dP, cross_entropy dZ */
    PL_CASE_ADDEND = 1 << 6,
    /* the result stands where D (gemm), G (direction), Z (pair_sum, vec_gate), dY (backward) or X stands */
    PL_CASE_IN_PLACE = 1 << 7,
    PL_CASE_IN_PLACE_Z = 1 << 8,  /* axpby: where Z stands; layernorm_back: dL where dY stands */
    PL_CASE_STRIDED = 1 << 9,     /* rows and matrices are further apart than they are long */
    PL_CASE_SHARED = 1 << 10,     /* gemm: one B for the batch (stride 0); normalise: one norm for all */
    PL_CASE_LARGE = 1 << 11,      /* a size that blocking sees; not every variant runs at it */
    PL_CASE_HEAVY_BALL = 1 << 12, /* direction: this momentum, */
    PL_CASE_NESTEROV = 1 << 13,   /* or this one; an EMA where neither */
    PL_CASE_PLAIN = 1 << 14,      /* direction: no preconditioner, so no V */
    /* live values: a row for each matrix; the second one's lr is 0, the third one is left out, gradients have
       factors; biases, gates: a row for each matrix */
    PL_CASE_PER_MATRIX = 1 << 15,
    PL_CASE_SILU = 1 << 16,    /* bias_act, bias_act_back: this activation, */
    PL_CASE_SIGMOID = 1 << 17, /* or this one; none where neither */
    /* bias_act_back, scale_rows with Z: where X stands; vec_gate with Z: where V stands; layernorm_back:
       where Z stands */
    PL_CASE_IN_PLACE_X = 1 << 18,
    PL_CASE_GELU = 1 << 19,    /* bias_act, bias_act_back: this activation */
    PL_CASE_LOW = 1 << 20,     /* layernorm_back has dL */
    PL_CASE_AVERAGE = 1 << 21, /* direction: the momentum is an average, with NESTEROV too */
    PL_CASE_SYM = 1 << 22      /* gemm: B is A, transposed, and D symmetric; C is promised to be */
} pl_case_flag;

typedef struct pl_op_case {
    pl_op_id op;
    polar_dtype dtype[PL_MAX_OPERANDS]; /* in the order of ops.def; norms and live values are f64 */
    /* of the result; frob: of X; frob_join: batch parts; the layers' ops: see op_case_nn.c, op_case_vit.c */
    int64_t batch, rows, cols;
    /* gemm's inner dimension; rows of a group (row_sum, row_spread), components of a point (pair_sum,
     * pair_grad) */
    int64_t K;
    uint32_t flags; /* pl_case_flag */
    /* gemm, axpby: as named; frob: alpha the weight; direction, adamw_step: the betas; decay_step: alpha the
     * scale; eps as named */
    double alpha, beta, eps;
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
int64_t pl_op_case_momentum(const pl_op_case *c); /* direction: its polar_momentum */

/* Runs the case on dev from the same bits as on the oracle (or NULL) and measures. Errors are those of the
 * machine and of the op's use. */
polar_status pl_op_case_measure(pl_op_result *out, const pl_op_case *c, pl_fill fill, pl_device *dev,
                                pl_device *oracle);

/* The same without the bounds: only elements, bits_differ and max_abs of the result are set. */
polar_status pl_op_case_compare(pl_op_result *out, const pl_op_case *c, pl_fill fill, pl_device *dev,
                                pl_device *oracle);

#endif
