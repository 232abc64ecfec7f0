/* op_case_gemm.c -- cases of products; sizes are the result's, K the inner dimension. */
#include "op_case_impl.h"

static const pl_case_formats formats[] = {{{D, D, D, D}}, {{F, F, F, F}}, {{H, H, H, H}}, {{F, H, H, F}},
                                          {{H, F, F, H}}, {{H, D, D, H}}, {{F, D, D, F}}, {{D, F, F, D}},
                                          {{D, H, H, D}}, {{H, H, H, F}}, {{F, H, H, H}}, {{E, E, E, E}},
                                          {{F, E, E, F}}, {{E, E, E, F}}, {{D, E, E, D}}};
static const pl_case_sizes sizes[] = {{1, 1, 1, 1, 0},    {1, 1, 37, 5, 0},    {1, 37, 1, 5, 0},
                                      {3, 7, 13, 1, 0},   {1, 8, 44, 8, 0},    {3, 33, 17, 64, 0},
                                      {2, 5, 9, 0, 0},    {1, 9, 21, 300, 0},  {2, 24, 24, 40, 0},
                                      {1, 7, 13, 700, 0}, {1, 64, 192, 64, 1}, {1, 192, 64, 64, 1}};
static const pl_case_variant how[] = {{.alpha = 1},
                                      {.large = 1, .tb = 1, .alpha = 1},
                                      {.ta = 1, .alpha = 2},
                                      {.ta = 1, .tb = 1, .alpha = -0.3},
                                      {.with = "D", .alpha = 2, .beta = -3},
                                      {.large = 1, .with = "D", .alpha = 2.0315, .beta = -4.775},
                                      {.tb = 1, .with = "D", .onto = 3, .alpha = 1, .beta = 3.4445},
                                      {.with = "D", .strided = 1, .alpha = 1, .beta = 1},
                                      {.tb = 1, .with = "D", .shared = 1, .alpha = 1, .beta = -1},
                                      {.tf32 = 1, .alpha = 1},
                                      {.large = 1, .tb = 1, .tf32 = 1, .with = "D", .alpha = 2, .beta = -3},
                                      {.ta = 1, .tf32 = 1, .strided = 1, .alpha = 1},
                                      {.tb = 1, .sym = 1, .alpha = 1},
                                      {.tb = 1, .sym = 1, .with = "D", .alpha = 2.0315, .beta = -4.775}};

static pl_mat shape(const pl_op_case *c, int i)
{
    if (i == 1) return c->how.ta ? pl_case_mat(c, i, c->K, c->rows) : pl_case_mat(c, i, c->rows, c->K);
    if (i == 2) return c->how.tb ? pl_case_mat(c, i, c->cols, c->K) : pl_case_mat(c, i, c->K, c->cols);
    return pl_case_mat(c, i, c->rows, c->cols);
}

static void args(pl_op_args *a, const pl_op_case *c, const pl_mat *m)
{
    a->gemm = (pl_args_gemm){.C = m[0],
                             .A = m[1],
                             .B = m[2],
                             .D = m[3],
                             .ta = c->how.ta,
                             .tb = c->how.tb,
                             .sym = c->how.sym,
                             .tf32 = c->how.tf32,
                             .alpha = c->how.alpha,
                             .beta = c->how.beta};
}

const pl_case_family pl_cases_gemm = {PL_CASES(formats, sizes, how), .shape = shape, .args = args};
