/* op_case_norm.c -- cases of Frobenius norms; sizes are X's; of frob_join: batch parts. */
#include "op_case_impl.h"

static const pl_case_formats frob_formats[] = {{{D, D}}, {{D, F}}, {{D, H}}, {{D, E}}};
static const pl_case_variant frob_how[] = {{.large = 1, .alpha = 1},
                                           {.alpha = 3},
                                           {.large = 1, .rounded = 1, .alpha = 1},
                                           {.large = 1, .trans = 1, .alpha = 1},
                                           {.trans = 1, .rounded = 1, .alpha = 3}};

static pl_mat frob_shape(const pl_op_case *c, int i)
{
    return i == 0 ? pl_case_mat(c, i, 1, 2) : pl_case_mat(c, i, c->rows, c->cols);
}

static void frob_args(pl_op_args *a, const pl_op_case *c, const pl_mat *m)
{
    a->frob = (pl_args_frob){
        .N = m[0], .X = m[1], .weight = c->how.alpha, .rounded = c->how.rounded, .trans = c->how.trans};
}

const pl_case_family pl_cases_frob = {PL_CASES(frob_formats, pl_sizes_plain, frob_how), .shape = frob_shape,
                                      .args = frob_args, .in_double = 1, .values = 1 << 0};

static const pl_case_formats join_formats[] = {{{D, D}}};
static const pl_case_sizes parts[] = {{1, 1, 2, 0, 0}, {3, 1, 2, 0, 0}, {33, 1, 2, 0, 0}, {100, 1, 2, 0, 0}};
static const pl_case_variant join_how[] = {{0}};

static pl_mat join_shape(const pl_op_case *c, int i)
{
    return i == 0 ? pl_mat_dense(NULL, POLAR_DTYPE_F64, 1, 1, 2) : pl_case_mat(c, i, 1, 2);
}

static void join_args(pl_op_args *a, const pl_op_case *c, const pl_mat *m)
{
    (void)c;
    a->frob_join = (pl_args_frob_join){.N = m[0], .M = m[1]};
}

static void join_fill(double v[PL_LIVE_COLS], const pl_op_run *r, int o, int64_t b, uint64_t seed)
{
    (void)o;
    pl_fill_norm(v, r->fill, seed, b);
}

const pl_case_family pl_cases_frob_join = {PL_CASES(join_formats, parts, join_how),
                                           .shape = join_shape,
                                           .args = join_args,
                                           .in_double = 1,
                                           .values = 1 << 0 | 1 << 1,
                                           .fill = join_fill};
