/* op_case_softmax.c -- cases of softmax and its gradient; sizes are the operands'. */
#include "op_case_impl.h"

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

const pl_case_family pl_cases_softmax = {PL_CASES(pl_formats_two, pl_sizes_rows, forward_how), .shape = shape,
                                         .args = forward_args};
const pl_case_family pl_cases_softmax_back = {PL_CASES(pl_formats_three, pl_sizes_rows, backward_how),
                                              .shape = shape, .args = backward_args};
