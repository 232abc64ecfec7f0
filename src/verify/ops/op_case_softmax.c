/* op_case_softmax.c -- cases of softmax and its gradient; sizes are the operands'. */
#include "op_case_impl.h"

/* around the 32 lanes of a row's sum */
static const pl_case_sizes rows[] = {{1, 1, 1, 0, 0},  {1, 3, 2, 0, 0},   {3, 7, 13, 0, 0}, {2, 3, 32, 0, 0},
                                     {1, 5, 33, 0, 0}, {1, 2, 100, 0, 0}, {1, 3, 192, 0, 1}};
static const pl_case_variant forward_how[] = {
    {.large = 1, .alpha = 1}, {.alpha = 0.125}, {.onto = 1, .alpha = 3}, {.strided = 1, .alpha = 0.3}};
static const pl_case_variant backward_how[] = {
    {.large = 1, .alpha = 1}, {.alpha = 0.125}, {.onto = 2, .alpha = 3}, {.strided = 1, .alpha = 0.3}};

static pl_mat shape(const pl_op_case *c, int i)
{
    return pl_case_mat(c, i, c->rows, c->cols);
}

static void forward_args(pl_op_args *a, const pl_op_case *c, const pl_mat *m)
{
    a->softmax = (pl_args_softmax){.Y = m[0], .X = m[1], .scale = c->how.alpha};
}

static void backward_args(pl_op_args *a, const pl_op_case *c, const pl_mat *m)
{
    a->softmax_back = (pl_args_softmax_back){.dX = m[0], .Y = m[1], .dY = m[2], .scale = c->how.alpha};
}

const pl_case_family pl_cases_softmax = {PL_CASES(pl_formats_two, rows, forward_how), .shape = shape,
                                         .args = forward_args};
const pl_case_family pl_cases_softmax_back = {PL_CASES(pl_formats_three, rows, backward_how), .shape = shape,
                                              .args = backward_args};
