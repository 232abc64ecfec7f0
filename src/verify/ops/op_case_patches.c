/* op_case_patches.c -- cases of pictures cut into squares: rows x cols squares of side K, three channels. */
#include "op_case_impl.h"

static const pl_case_sizes squares[] = {{1, 1, 1, 1, 0}, {2, 3, 2, 4, 0}, {3, 1, 5, 3, 0}, {1, 2, 2, 16, 1}};
static const pl_case_variant how[] = {{.large = 1}, {.strided = 1}};

static pl_mat shape(const pl_op_case *c, int i)
{
    return i == 0 ? pl_case_mat(c, i, c->rows * c->cols, 3 * c->K * c->K)
                  : pl_case_mat(c, i, 3 * c->rows * c->K, c->cols * c->K);
}

static void args(pl_op_args *a, const pl_op_case *c, const pl_mat *m)
{
    a->patches = (pl_args_patches){
        .Y = m[0], .X = m[1], .height = c->rows * c->K, .width = c->cols * c->K, .patch = c->K};
}

const pl_case_family pl_cases_patches = {PL_CASES(pl_formats_two, squares, how), .shape = shape,
                                         .args = args};
