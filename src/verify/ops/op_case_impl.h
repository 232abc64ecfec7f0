/* op_case_impl.h -- how the list of cases is written down (op_case.c, op_case_nn.c, op_case_vit.c), and what
 * op_run.c asks about the ops of the layers. */
#ifndef PL_VERIFY_OP_CASE_IMPL_H
#define PL_VERIFY_OP_CASE_IMPL_H

#include "verify/ops/op_run.h"

typedef struct pl_case_formats {
    polar_dtype dtype[PL_MAX_OPERANDS]; /* in the order of the operands in ops.def */
} pl_case_formats;

typedef struct pl_case_sizes {
    int64_t batch, rows, cols, K;
    uint32_t flags;
} pl_case_sizes;

typedef struct pl_case_variant {
    uint32_t flags;
    double alpha, beta, eps;
} pl_case_variant;

typedef struct pl_case_family { /* the product of the three, less what makes no sense */
    pl_op_id op;
    int n_formats, n_sizes, n_variants;
    const pl_case_formats *f;
    const pl_case_sizes *s;
    const pl_case_variant *v;
} pl_case_family;

#define PL_CASE_OF(a) (int)(sizeof(a) / sizeof *(a))
#define PL_CASE_FAMILY(op, fs, ss, vs)                                         \
    {                                                                          \
        PL_OP_##op, PL_CASE_OF(fs), PL_CASE_OF(ss), PL_CASE_OF(vs), fs, ss, vs \
    }

/* The ops of the layers: */
extern const pl_case_family pl_nn_families[];
extern const int pl_nn_family_count;

int pl_nn_case(pl_op_id op);                             /* the op is one of them */
int pl_nn_case_data_operand(const pl_op_case *c, int i); /* as pl_op_case_data_operand */
/* where the first result stands in an IN_PLACE case */
int pl_nn_case_in_place_on(const pl_op_case *c);
/* an operand's packed shape; absent: batch -1 */
pl_mat pl_nn_case_shape(const pl_op_case *c, int i);
void pl_nn_case_args(pl_op_args *a, const pl_op_case *c, const pl_mat *m); /* the call */
/* bias_act, bias_act_back: the pl_act */
int64_t pl_nn_case_act(const pl_op_case *c);

/* The transformer's, with the same meanings: */
extern const pl_case_family pl_vit_families[];
extern const int pl_vit_family_count;

int pl_vit_case(pl_op_id op);
int pl_vit_case_data_operand(const pl_op_case *c, int i);
int pl_vit_case_in_place_on(const pl_op_case *c, int i); /* of result i */
pl_mat pl_vit_case_shape(const pl_op_case *c, int i);
void pl_vit_case_args(pl_op_args *a, const pl_op_case *c, const pl_mat *m);

#endif
