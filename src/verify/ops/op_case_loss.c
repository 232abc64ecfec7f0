/* op_case_loss.c -- cases of the losses; sizes are the predictions'. */
#include "op_case_impl.h"

static const pl_case_formats mse_formats[] = {
    {{D, D, D, D}}, {{D, F, F, F}}, {{D, H, H, H}}, {{D, H, F, F}}, {{D, F, F, D}}};
static const pl_case_formats entropy_formats[] = {
    {{D, D, D, D}}, {{D, F, F, F}}, {{D, H, H, H}}, {{D, H, F, F}}, {{D, F, H, D}}};
static const pl_case_sizes columns[] = {{1, 1, 1, 0, 0},  {3, 5, 1, 0, 0},   {2, 32, 1, 0, 0},
                                        {1, 33, 1, 0, 0}, {5, 100, 1, 0, 0}, {1, 512, 1, 0, 1}};
static const pl_case_variant mse_how[] = {{.large = 1, .with = "dP"}, {0}, {.with = "dP", .strided = 1}};
static const pl_case_variant entropy_how[] = {{.large = 1, .with = "dZ"}, {0}, {.with = "dZ", .strided = 1}};

static pl_mat shape(const pl_op_case *c, int i)
{
    return i == 0 ? pl_case_mat(c, i, 1, 1) : pl_case_mat(c, i, c->rows, c->cols);
}

static void mse_args(pl_op_args *a, const pl_op_case *c, const pl_mat *m)
{
    (void)c;
    a->mse = (pl_args_mse){.L = m[0], .dP = m[1], .P = m[2], .Y = m[3]};
}

static void cross_entropy_args(pl_op_args *a, const pl_op_case *c, const pl_mat *m)
{
    (void)c;
    a->cross_entropy = (pl_args_cross_entropy){.L = m[0], .dZ = m[1], .Z = m[2], .T = m[3]};
}

const pl_case_family pl_cases_mse = {PL_CASES(mse_formats, columns, mse_how), .shape = shape,
                                     .args = mse_args, .in_double = 1, .values = 1 << 0};
const pl_case_family pl_cases_cross_entropy = {PL_CASES(entropy_formats, pl_sizes_rows, entropy_how),
                                               .shape = shape, .args = cross_entropy_args, .in_double = 1,
                                               .values = 1 << 0};
