/* op_case_polar.c -- cases of the exact polar factor; the fused maps are held against their composition. */
#include "op_case_impl.h"

static const pl_case_formats formats[] = {{{D, D}}, {{F, F}}, {{H, H}}, {{D, F}},
                                          {{D, H}}, {{H, D}}, {{F, H}}};
static const pl_case_sizes sizes[] = {{1, 1, 1, 0, 0},   {1, 1, 37, 0, 0}, {1, 37, 1, 0, 0},
                                      {3, 7, 13, 0, 0},  {3, 13, 7, 0, 0}, {2, 8, 8, 0, 0},
                                      {3, 33, 17, 0, 0}, {1, 32, 96, 0, 1}};
static const pl_case_variant how[] = {{.large = 1}, {.onto = 1}};

static pl_mat shape(const pl_op_case *c, int i)
{
    return pl_case_mat(c, i, c->rows, c->cols);
}

static void args(pl_op_args *a, const pl_op_case *c, const pl_mat *m)
{
    (void)c;
    a->polar_exact = (pl_args_polar_exact){.Y = m[0], .X = m[1]};
}

const pl_case_family pl_cases_polar_exact = {PL_CASES(formats, sizes, how), .shape = shape, .args = args,
                                             .in_double = 1};
