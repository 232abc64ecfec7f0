/* op_case_vectors.c -- cases of vectors: rows of scalars, 3 rows of vectors. */
#include "op_case_impl.h"

static const pl_case_formats gates[] = {{{D, D, D, D, D}}, {{F, F, F, F, F}}, {{H, H, H, H, H}},
                                        {{H, F, F, F, H}}, {{F, H, F, H, F}}, {{F, F, D, F, F}}};
static const pl_case_formats gates_back[] = {{{D, D, D, D, D, D, D}}, {{F, F, F, F, F, F, F}},
                                             {{H, H, H, H, H, H, H}}, {{F, H, H, F, F, F, F}},
                                             {{H, F, F, H, F, F, H}}, {{F, F, D, F, F, D, F}}};
static const pl_case_sizes sizes[] = {{1, 1, 1, 0, 0},  {2, 3, 2, 0, 0}, {1, 5, 8, 0, 0},  {3, 7, 13, 0, 0},
                                      {1, 4, 33, 0, 0}, {2, 0, 5, 0, 0}, {1, 16, 16, 0, 1}};
static const pl_case_variant dots_how[] = {{.large = 1}, {.strided = 1}};
static const pl_case_variant norm_how[] = {{.large = 1, .eps = 1e-8}, {.strided = 1, .eps = 0.25}, {0}};
static const pl_case_variant norm_back_how[] = {{.large = 1, .eps = 1e-8}, {.strided = 1, .eps = 0.25}};
static const pl_case_variant gate_how[] = {{.large = 1, .eps = 1e-8},
                                           {.large = 1, .with = "Z", .eps = 1e-8},
                                           {.per_matrix = 1, .eps = 1e-8},
                                           {.with = "Z", .onto = 4, .eps = 0.25},
                                           {.onto = 1},
                                           {.with = "Z", .per_matrix = 1, .onto = 1, .eps = 0.25},
                                           {.strided = 1, .eps = 0.25}};
static const pl_case_variant gate_back_how[] = {{.large = 1, .eps = 1e-8},
                                                {.per_matrix = 1, .eps = 1e-8},
                                                {.onto = 6, .eps = 0.25},
                                                {.strided = 1, .per_matrix = 1, .eps = 0.25}};

static pl_mat scalars(const pl_op_case *c, int i)
{
    return pl_case_mat(c, i, c->rows, c->cols);
}

static pl_mat vectors(const pl_op_case *c, int i)
{
    return pl_case_mat(c, i, 3 * c->rows, c->cols);
}

static pl_mat dots(const pl_op_case *c, int i)
{
    return pl_case_mat(c, i, c->rows, c->cols * (c->cols + 1) / 2);
}

static pl_mat vec_dots_shape(const pl_op_case *c, int i)
{
    return i == 0 ? dots(c, i) : vectors(c, i);
}

static void vec_dots_args(pl_op_args *a, const pl_op_case *c, const pl_mat *m)
{
    (void)c;
    a->vec_dots = (pl_args_vec_dots){.Q = m[0], .V = m[1]};
}

static pl_mat vec_dots_back_shape(const pl_op_case *c, int i)
{
    return i == 2 ? dots(c, i) : vectors(c, i);
}

static void vec_dots_back_args(pl_op_args *a, const pl_op_case *c, const pl_mat *m)
{
    (void)c;
    a->vec_dots_back = (pl_args_vec_dots_back){.dV = m[0], .V = m[1], .dQ = m[2]};
}

static pl_mat vec_norm_shape(const pl_op_case *c, int i)
{
    return i == 0 ? scalars(c, i) : vectors(c, i);
}

static void vec_norm_args(pl_op_args *a, const pl_op_case *c, const pl_mat *m)
{
    a->vec_norm = (pl_args_vec_norm){.R = m[0], .V = m[1], .eps = c->how.eps};
}

static pl_mat vec_norm_back_shape(const pl_op_case *c, int i)
{
    return i == 2 ? scalars(c, i) : vectors(c, i);
}

static void vec_norm_back_args(pl_op_args *a, const pl_op_case *c, const pl_mat *m)
{
    a->vec_norm_back = (pl_args_vec_norm_back){.dV = m[0], .V = m[1], .dR = m[2], .eps = c->how.eps};
}

static pl_mat vec_gate_shape(const pl_op_case *c, int i)
{
    return i == 2 || i == 3 ? pl_case_values(c, i, c->cols) : vectors(c, i);
}

static void vec_gate_args(pl_op_args *a, const pl_op_case *c, const pl_mat *m)
{
    a->vec_gate =
        (pl_args_vec_gate){.Y = m[0], .V = m[1], .g = m[2], .b = m[3], .Z = m[4], .eps = c->how.eps};
}

static pl_mat vec_gate_back_shape(const pl_op_case *c, int i)
{
    if (i == 4 || i == 5) return pl_case_values(c, i, c->cols);
    return i == 1 || i == 2 ? scalars(c, i) : vectors(c, i);
}

static void vec_gate_back_args(pl_op_args *a, const pl_op_case *c, const pl_mat *m)
{
    a->vec_gate_back = (pl_args_vec_gate_back){
        .dV = m[0], .T = m[1], .TR = m[2], .V = m[3], .g = m[4], .b = m[5], .dY = m[6], .eps = c->how.eps};
}

const pl_case_family pl_cases_vec_dots = {PL_CASES(pl_formats_two, sizes, dots_how), .shape = vec_dots_shape,
                                          .args = vec_dots_args};
const pl_case_family pl_cases_vec_dots_back = {PL_CASES(pl_formats_three, sizes, dots_how),
                                               .shape = vec_dots_back_shape, .args = vec_dots_back_args};
const pl_case_family pl_cases_vec_norm = {PL_CASES(pl_formats_two, sizes, norm_how), .shape = vec_norm_shape,
                                          .args = vec_norm_args};
const pl_case_family pl_cases_vec_norm_back = {PL_CASES(pl_formats_three, sizes, norm_back_how),
                                               .shape = vec_norm_back_shape, .args = vec_norm_back_args};
const pl_case_family pl_cases_vec_gate = {PL_CASES(gates, sizes, gate_how), .shape = vec_gate_shape,
                                          .args = vec_gate_args};
const pl_case_family pl_cases_vec_gate_back = {PL_CASES(gates_back, sizes, gate_back_how),
                                               .shape = vec_gate_back_shape, .args = vec_gate_back_args};
