/* op_case_layernorm.c -- cases of normalised rows; sizes are the operands'. Statistics are f32 or f64. */
#include "op_case_impl.h"

static const pl_case_formats forward[] = {{{D, D, D, D, D}}, {{F, F, F, F, F}}, {{H, F, H, H, H}},
                                          {{H, F, H, F, F}}, {{F, D, F, F, F}}, {{F, F, H, D, F}}};
static const pl_case_formats backward[] = {
    {{D, D, D, D, D, D, D, D, D, D}}, {{F, F, F, F, F, F, F, F, F, F}}, {{H, H, H, H, H, F, H, H, H, H}},
    {{H, F, F, F, H, F, F, H, H, F}}, {{F, H, F, H, F, D, F, H, F, F}}, {{F, F, F, H, F, F, F, H, F, F}}};
/* around the 64 rows of a chunk */
static const pl_case_sizes tall[] = {{1, 1, 1, 0, 0},  {3, 7, 13, 0, 0},   {2, 3, 32, 0, 0}, {1, 65, 5, 0, 0},
                                     {1, 4, 33, 0, 0}, {1, 2113, 2, 0, 0}, {1, 8, 100, 0, 1}};
static const pl_case_variant forward_how[] = {
    {.large = 1, .eps = 1e-6}, {.per_matrix = 1, .eps = 1e-6}, {.onto = 2, .eps = 0.25}, {.strided = 1}};
static const pl_case_variant backward_how[] = {
    {.large = 1, .with = "Z"},       {0},
    {.per_matrix = 1, .onto = 7},    {.with = "Z", .onto = 8},
    {.with = "Z", .strided = 1},     {.large = 1, .with = "dL Z", .onto = 8, .last_onto = 7},
    {.with = "dL", .onto = 7},       {.with = "dL Z", .strided = 1},
    {.with = "dL s", .onto = 7},     {.large = 1, .with = "dL Z s", .onto = 8, .last_onto = 7},
    {.with = "dL Z s", .strided = 1}};

static pl_mat forward_shape(const pl_op_case *c, int i)
{
    if (i > 2) return pl_case_values(c, i, c->cols);
    return pl_case_mat(c, i, c->rows, i == 1 ? 2 : c->cols);
}

static void forward_args(pl_op_args *a, const pl_op_case *c, const pl_mat *m)
{
    a->layernorm =
        (pl_args_layernorm){.Y = m[0], .S = m[1], .X = m[2], .g = m[3], .b = m[4], .eps = c->how.eps};
}

/* Factors for groups of as many rows as the least divisor of all of them; one for each of a prime number. */
static int64_t groups_of(int64_t rows)
{
    for (int64_t each = 2; each < rows; each++)
        if (rows % each == 0) return rows / each;
    return rows;
}

static pl_mat backward_shape(const pl_op_case *c, int i)
{
    if (i == 1 || i == 2) return pl_case_mat(c, i, 1, c->cols);
    if (i == 6) return pl_case_values(c, i, c->cols);
    if (i == 9) return pl_case_mat(c, i, groups_of(c->rows), 1);
    return pl_case_mat(c, i, c->rows, i == 5 ? 2 : c->cols);
}

static void backward_args(pl_op_args *a, const pl_op_case *c, const pl_mat *m)
{
    (void)c;
    a->layernorm_back = (pl_args_layernorm_back){.dX = m[0],
                                                 .dg = m[1],
                                                 .db = m[2],
                                                 .dL = m[3],
                                                 .X = m[4],
                                                 .S = m[5],
                                                 .g = m[6],
                                                 .dY = m[7],
                                                 .Z = m[8],
                                                 .s = m[9]};
}

const pl_case_family pl_cases_layernorm = {PL_CASES(forward, pl_sizes_rows, forward_how),
                                           .shape = forward_shape, .args = forward_args};
const pl_case_family pl_cases_layernorm_back = {PL_CASES(backward, tall, backward_how),
                                                .shape = backward_shape, .args = backward_args};
