/* op_case_pairs.c -- cases of pairs of points: rows points of K components (pair_dist: of the cloud). */
#include "op_case_impl.h"

static const pl_case_formats four[] = {{{D, D, D, D}}, {{F, F, F, F}}, {{H, H, H, H}},
                                       {{H, F, F, H}}, {{F, H, F, F}}, {{F, F, H, D}}};
static const pl_case_sizes clouds[] = {{1, 1, 3, 0, 0},  {2, 2, 3, 0, 0}, {3, 5, 3, 0, 0},
                                       {1, 17, 3, 0, 0}, {2, 0, 3, 0, 0}, {2, 64, 3, 0, 1}};
static const pl_case_sizes pairs[] = {{1, 1, 1, 1, 0},  {2, 2, 3, 3, 0},   {3, 5, 8, 1, 0},
                                      {2, 7, 13, 3, 0}, {1, 17, 16, 3, 0}, {1, 9, 33, 2, 0},
                                      {2, 11, 5, 4, 0}, {3, 4, 0, 1, 0},   {1, 32, 16, 3, 1}};
static const pl_case_variant distances[] = {{0}, {.large = 1, .eps = 1e-8}, {.strided = 1, .eps = 0.25}};
static const pl_case_variant sums[] = {{.large = 1, .alpha = 1},
                                       {.large = 1, .with = "Z", .alpha = 0.015625},
                                       {.with = "Z", .onto = 3, .alpha = -2},
                                       {.strided = 1, .alpha = 0.3}};
static const pl_case_variant grads[] = {
    {.large = 1, .alpha = 1}, {.alpha = -2}, {.strided = 1, .alpha = 0.3}};

static const pl_case_variant squares[] = {{.large = 1}, {.strided = 1}};

static int64_t pairs_of(const pl_op_case *c)
{
    return c->rows * (c->rows + 1) / 2;
}

static pl_mat pair_dist_shape(const pl_op_case *c, int i)
{
    return i == 0 ? pl_case_mat(c, i, pairs_of(c), 1) : pl_case_mat(c, i, c->rows, 3);
}

static void pair_dist_args(pl_op_args *a, const pl_op_case *c, const pl_mat *m)
{
    a->pair_dist = (pl_args_pair_dist){.D = m[0], .X = m[1], .eps = c->how.eps};
}

static pl_mat pair_sum_shape(const pl_op_case *c, int i)
{
    return pl_case_mat(c, i, i == 2 ? pairs_of(c) : c->rows * c->K, c->cols);
}

static void pair_sum_args(pl_op_args *a, const pl_op_case *c, const pl_mat *m)
{
    a->pair_sum = (pl_args_pair_sum){
        .Y = m[0], .X = m[1], .W = m[2], .Z = m[3], .points = c->rows, .alpha = c->how.alpha};
}

static pl_mat pair_grad_shape(const pl_op_case *c, int i)
{
    return pl_case_mat(c, i, i == 0 ? pairs_of(c) : c->rows * c->K, c->cols);
}

static void pair_grad_args(pl_op_args *a, const pl_op_case *c, const pl_mat *m)
{
    a->pair_grad =
        (pl_args_pair_grad){.dW = m[0], .dY = m[1], .X = m[2], .points = c->rows, .alpha = c->how.alpha};
}

static pl_mat pair_square_shape(const pl_op_case *c, int i)
{
    return i == 0 ? pl_case_mat(c, i, c->rows, c->rows) : pl_case_mat(c, i, pairs_of(c), 1);
}

static void pair_square_args(pl_op_args *a, const pl_op_case *c, const pl_mat *m)
{
    (void)c;
    a->pair_square = (pl_args_pair_square){.Y = m[0], .W = m[1]};
}

static pl_mat pair_fold_shape(const pl_op_case *c, int i)
{
    return i == 0 ? pl_case_mat(c, i, pairs_of(c), 1) : pl_case_mat(c, i, c->rows, c->rows);
}

static void pair_fold_args(pl_op_args *a, const pl_op_case *c, const pl_mat *m)
{
    (void)c;
    a->pair_fold = (pl_args_pair_fold){.W = m[0], .Y = m[1]};
}

const pl_case_family pl_cases_pair_dist = {PL_CASES(pl_formats_two, clouds, distances),
                                           .shape = pair_dist_shape, .args = pair_dist_args};
const pl_case_family pl_cases_pair_sum = {PL_CASES(four, pairs, sums), .shape = pair_sum_shape,
                                          .args = pair_sum_args};
const pl_case_family pl_cases_pair_grad = {PL_CASES(pl_formats_three, pairs, grads), .shape = pair_grad_shape,
                                           .args = pair_grad_args};
const pl_case_family pl_cases_pair_square = {PL_CASES(pl_formats_two, clouds, squares),
                                             .shape = pair_square_shape, .args = pair_square_args};
const pl_case_family pl_cases_pair_fold = {PL_CASES(pl_formats_two, clouds, squares),
                                           .shape = pair_fold_shape, .args = pair_fold_args};
