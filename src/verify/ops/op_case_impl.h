/* op_case_impl.h -- how the list of cases is written down: each op's family is the product of its formats,
 * sizes and variants, less what makes no sense (op_case_<noun>.c). */
#ifndef PL_VERIFY_OP_CASE_IMPL_H
#define PL_VERIFY_OP_CASE_IMPL_H

#include "verify/ops/op_run.h"

/* formats in the tables */
enum { D = POLAR_DTYPE_F64, F = POLAR_DTYPE_F32, H = POLAR_DTYPE_BF16, E = POLAR_DTYPE_F16 };

typedef struct pl_case_formats {
    int dtype[PL_MAX_OPERANDS]; /* in the order of the operands in ops.def */
} pl_case_formats;

typedef struct pl_case_sizes {
    int64_t batch, rows, cols, K;
    int large; /* only variants that say so run at it */
} pl_case_sizes;

typedef struct pl_case_family {
    int n_formats, n_sizes, n_variants;
    const pl_case_formats *formats;
    const pl_case_sizes *sizes;
    const pl_case_variant *variants;
    /* the packed shape of operand i, which is there */
    pl_mat (*shape)(const pl_op_case *c, int i);
    /* the call, with its operands m */
    void (*args)(pl_op_args *a, const pl_op_case *c, const pl_mat *m);
    int in_double; /* computed in double whatever the formats */
    /* bit i: operand i holds norms, live values, flags or losses: no data that formats are told of */
    uint32_t values;
    /* what row b of operand o, one of `values` that is read, begins with */
    void (*fill)(double v[PL_LIVE_COLS], const pl_op_run *r, int o, int64_t b, uint64_t seed);
    int live;         /* the operand of live rows; 0: none */
    uint32_t squares; /* bit i: operand i is a mean of squares, not negative */
} pl_case_family;

#define PL_CASE_OF(a) (int)(sizeof(a) / sizeof *(a))
#define PL_CASES(fs, ss, vs)                                                                             \
    .n_formats = PL_CASE_OF(fs), .n_sizes = PL_CASE_OF(ss), .n_variants = PL_CASE_OF(vs), .formats = fs, \
    .sizes = ss, .variants = vs

/* the families, one for each op that is not fused */
#define PL_OP(name, out, inout, in, ...)    extern const pl_case_family pl_cases_##name;
#define PL_FUSED(name, out, inout, in, ...) /* held against its composition elsewhere */
#include "device/ops.def"

const pl_case_family *pl_op_case_family(pl_op_id op); /* NULL of a fused op */

/* shapes of operands: as the result, and a row of values for all matrices or for each */
pl_mat pl_case_mat(const pl_op_case *c, int i, int64_t rows, int64_t cols);
pl_mat pl_case_values(const pl_op_case *c, int i, int64_t cols);

/* formats and sizes that several families share; rows: around the 32 lanes of a row's sum */
extern const pl_case_formats pl_formats_two[7], pl_formats_three[6];
extern const pl_case_sizes pl_sizes_plain[9], pl_sizes_rows[7];

#endif
