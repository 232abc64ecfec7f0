/* op_case_activation.c -- cases of activations with their bias; sizes are the operands'. */
#include "op_case_impl.h"

static const pl_case_formats forward[] = {{{D, D, D}}, {{F, F, F}}, {{H, H, H}}, {{H, F, F}},
                                          {{F, H, F}}, {{F, D, F}}, {{D, F, H}}};
static const pl_case_formats backward[] = {{{D, D, D, D}}, {{F, F, F, F}}, {{H, H, H, H}},
                                           {{H, F, F, H}}, {{F, H, F, F}}, {{F, F, H, D}}};
static const pl_case_sizes sizes[] = {{1, 1, 1, 0, 0},   {1, 1, 37, 0, 0},  {1, 37, 1, 0, 0},
                                      {3, 7, 13, 0, 0},  {3, 33, 17, 0, 0}, {4, 0, 5, 0, 0},
                                      {1, 64, 192, 0, 1}};

#define SILU    .act = PL_ACT_SILU
#define SIGMOID .act = PL_ACT_SIGMOID
#define GELU    .act = PL_ACT_GELU
static const pl_case_variant forward_how[] = {{.with = "b"},
                                              {SILU, .large = 1, .with = "b"},
                                              {SIGMOID, .with = "b"},
                                              {SILU},
                                              {SILU, .onto = 1},
                                              {SILU, .with = "b", .per_matrix = 1},
                                              {.with = "b", .onto = 1, .per_matrix = 1},
                                              {.onto = 1},
                                              {SIGMOID, .strided = 1},
                                              {GELU, .large = 1, .with = "b"},
                                              {GELU, .onto = 1}};
static const pl_case_variant backward_how[] = {{.with = "b"},
                                               {SILU, .large = 1, .with = "b"},
                                               {SIGMOID, .with = "b"},
                                               {SILU},
                                               {SILU, .onto = 3},
                                               {SILU, .with = "b", .per_matrix = 1},
                                               {.onto = 3},
                                               {SILU, .with = "b", .onto = 1},
                                               {SIGMOID, .strided = 1},
                                               {GELU, .large = 1, .with = "b"},
                                               {GELU, .onto = 3}};

static pl_mat shape(const pl_op_case *c, int i)
{
    return i == 2 ? pl_case_values(c, i, c->cols) : pl_case_mat(c, i, c->rows, c->cols);
}

static void forward_args(pl_op_args *a, const pl_op_case *c, const pl_mat *m)
{
    a->bias_act = (pl_args_bias_act){.Y = m[0], .X = m[1], .b = m[2], .act = c->how.act};
}

static void backward_args(pl_op_args *a, const pl_op_case *c, const pl_mat *m)
{
    a->bias_act_back =
        (pl_args_bias_act_back){.dX = m[0], .X = m[1], .b = m[2], .dY = m[3], .act = c->how.act};
}

const pl_case_family pl_cases_bias_act = {PL_CASES(forward, sizes, forward_how), .shape = shape,
                                          .args = forward_args};
const pl_case_family pl_cases_bias_act_back = {PL_CASES(backward, sizes, backward_how), .shape = shape,
                                               .args = backward_args};
