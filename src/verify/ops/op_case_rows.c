/* op_case_rows.c -- cases of groups of rows: rows groups (row_sum, row_spread: the fewer rows), K rows to
 * each. */
#include "op_case_impl.h"

static const pl_case_formats four[] = {{{D, D, D, D}}, {{F, F, F, F}}, {{H, H, F, H}},
                                       {{H, F, F, H}}, {{F, H, H, F}}, {{F, F, D, H}}};
/* around one chunk of 64 rows, around a lane's second turn (32 chunks), groups of one and of none */
static const pl_case_sizes sums[] = {
    {1, 1, 1, 1, 0},    {2, 3, 5, 7, 0}, {1, 1, 37, 64, 0}, {3, 2, 17, 65, 0}, {1, 1, 3, 200, 0},
    {1, 1, 2, 2113, 0}, {2, 4, 6, 1, 0}, {3, 2, 5, 0, 0},   {1, 0, 5, 4, 0},   {1, 4, 48, 256, 1}};
static const pl_case_sizes spreads[] = {{1, 1, 1, 1, 0}, {2, 3, 5, 7, 0}, {3, 2, 17, 65, 0}, {2, 4, 6, 1, 0},
                                        {3, 2, 5, 0, 0}, {1, 0, 5, 4, 0}, {1, 16, 48, 16, 1}};
static const pl_case_sizes groups[] = {{1, 1, 1, 1, 0}, {2, 3, 5, 7, 0}, {3, 2, 17, 20, 0},
                                       {2, 4, 6, 1, 0}, {1, 0, 5, 4, 0}, {1, 4, 192, 17, 1}};
static const pl_case_variant scaled[] = {
    {.large = 1, .alpha = 1}, {.alpha = -2}, {.strided = 1, .alpha = 0.015625}, {.alpha = 0.3}};
static const pl_case_variant factors[] = {{.large = 1, .with = "Z"}, {0},
                                          {.with = "Z", .onto = 3},  {.onto = 1},
                                          {.with = "Z", .onto = 1},  {.with = "Z", .strided = 1}};

static pl_mat row_sum_shape(const pl_op_case *c, int i)
{
    return pl_case_mat(c, i, i == 0 ? c->rows : c->rows * c->K, c->cols);
}

static void row_sum_args(pl_op_args *a, const pl_op_case *c, const pl_mat *m)
{
    a->row_sum = (pl_args_row_sum){.Y = m[0], .X = m[1], .alpha = c->how.alpha};
}

static pl_mat row_spread_shape(const pl_op_case *c, int i)
{
    return pl_case_mat(c, i, i == 1 ? c->rows : c->rows * c->K, c->cols);
}

static void row_spread_args(pl_op_args *a, const pl_op_case *c, const pl_mat *m)
{
    a->row_spread = (pl_args_row_spread){.Y = m[0], .X = m[1], .alpha = c->how.alpha};
}

static pl_mat scale_rows_shape(const pl_op_case *c, int i)
{
    return i == 2 ? pl_case_mat(c, i, c->rows, 1) : pl_case_mat(c, i, c->rows * c->K, c->cols);
}

static void scale_rows_args(pl_op_args *a, const pl_op_case *c, const pl_mat *m)
{
    (void)c;
    a->scale_rows = (pl_args_scale_rows){.Y = m[0], .X = m[1], .s = m[2], .Z = m[3]};
}

const pl_case_family pl_cases_row_sum = {PL_CASES(pl_formats_two, sums, scaled), .shape = row_sum_shape,
                                         .args = row_sum_args};
const pl_case_family pl_cases_row_spread = {PL_CASES(pl_formats_two, spreads, scaled),
                                            .shape = row_spread_shape, .args = row_spread_args};
const pl_case_family pl_cases_scale_rows = {PL_CASES(four, groups, factors), .shape = scale_rows_shape,
                                            .args = scale_rows_args};
