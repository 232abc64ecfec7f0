/* op_case_vit.c -- the cases of the transformer's ops: formats, sizes, variants, shapes and calls.
 *
 * A case's rows and cols are those of: layernorm, softmax, their backwards, cross_entropy: the operands;
 * scale_rows: groups of K rows; patches: rows x cols squares of side K, three channels.
 */
#include "op_case_impl.h"

#define D POLAR_DTYPE_F64
#define F POLAR_DTYPE_F32
#define H POLAR_DTYPE_BF16

/* ---- formats; statistics are f32 or f64 ---- */

static const pl_case_formats two[] = {{{D, D}}, {{F, F}}, {{H, H}}, {{F, H}}, {{H, F}}, {{D, F}}, {{F, D}}};
static const pl_case_formats three[] = {{{D, D, D}}, {{F, F, F}}, {{H, H, H}},
                                        {{F, F, H}}, {{F, H, F}}, {{H, D, F}}};
static const pl_case_formats four[] = {{{D, D, D, D}}, {{F, F, F, F}}, {{H, H, F, H}},
                                       {{H, F, F, H}}, {{F, H, H, F}}, {{F, F, D, H}}};
static const pl_case_formats norm[] = {{{D, D, D, D, D}}, {{F, F, F, F, F}}, {{H, F, H, H, H}},
                                       {{H, F, H, F, F}}, {{F, D, F, F, F}}, {{F, F, H, D, F}}};
static const pl_case_formats norm_back[] = {{{D, D, D, D, D, D, D, D, D}}, {{F, F, F, F, F, F, F, F, F}},
                                            {{H, H, H, H, H, F, H, H, H}}, {{H, F, F, F, H, F, F, H, H}},
                                            {{F, H, F, H, F, D, F, H, F}}, {{F, F, F, H, F, F, F, H, F}}};
static const pl_case_formats loss[] = {
    {{D, D, D, D}}, {{D, F, F, F}}, {{D, H, H, H}}, {{D, H, F, F}}, {{D, F, H, D}}};

#undef D
#undef F
#undef H

/* ---- sizes: batch, rows, cols, K: around the 32 lanes of a row's sum, and around the 64 rows of a chunk
 * ---- */

#define LARGE PL_CASE_LARGE
static const pl_case_sizes rows[] = {{1, 1, 1, 0, 0},      {1, 3, 2, 0, 0},  {3, 7, 13, 0, 0},
                                     {2, 3, 32, 0, 0},     {1, 5, 33, 0, 0}, {1, 2, 100, 0, 0},
                                     {1, 3, 192, 0, LARGE}};
static const pl_case_sizes tall[] = {{1, 1, 1, 0, 0},      {3, 7, 13, 0, 0}, {2, 3, 32, 0, 0},
                                     {1, 65, 5, 0, 0},     {1, 4, 33, 0, 0}, {1, 2113, 2, 0, 0},
                                     {1, 8, 100, 0, LARGE}};
static const pl_case_sizes groups[] = {{1, 1, 1, 1, 0}, {2, 3, 5, 7, 0}, {3, 2, 17, 20, 0},
                                       {2, 4, 6, 1, 0}, {1, 0, 5, 4, 0}, {1, 4, 192, 17, LARGE}};
static const pl_case_sizes squares[] = {
    {1, 1, 1, 1, 0}, {2, 3, 2, 4, 0}, {3, 1, 5, 3, 0}, {1, 2, 2, 16, LARGE}};

/* ---- variants: flags, alpha (the scale), beta, eps ---- */

#define ALL   PL_CASE_LARGE
#define ADD   PL_CASE_ADDEND
#define HERE  PL_CASE_IN_PLACE
#define ON_X  PL_CASE_IN_PLACE_X
#define EACH  PL_CASE_PER_MATRIX
#define APART PL_CASE_STRIDED
#define LOW   PL_CASE_LOW
#define ON_DY PL_CASE_IN_PLACE_Z
static const pl_case_variant norms[] = {
    {ALL, 0, 0, 1e-6}, {EACH, 0, 0, 1e-6}, {HERE, 0, 0, 0.25}, {APART, 0, 0, 0}};
static const pl_case_variant norms_back[] = {
    {ALL | ADD, 0, 0, 0},   {0, 0, 0, 0},
    {EACH | HERE, 0, 0, 0}, {ADD | ON_X, 0, 0, 0},
    {ADD | APART, 0, 0, 0}, {ALL | ADD | LOW | ON_X | ON_DY, 0, 0, 0},
    {LOW | HERE, 0, 0, 0},  {ADD | LOW | APART, 0, 0, 0}};
static const pl_case_variant scaled[] = {
    {ALL, 1, 0, 0}, {0, 0.125, 0, 0}, {HERE, 3, 0, 0}, {APART, 0.3, 0, 0}};
static const pl_case_variant losses[] = {{ALL | ADD, 0, 0, 0}, {0, 0, 0, 0}, {ADD | APART, 0, 0, 0}};
static const pl_case_variant factors[] = {{ALL | ADD, 0, 0, 0},  {0, 0, 0, 0},
                                          {ADD | HERE, 0, 0, 0}, {HERE, 0, 0, 0},
                                          {ADD | ON_X, 0, 0, 0}, {ADD | APART, 0, 0, 0}};
static const pl_case_variant cuts[] = {{ALL, 0, 0, 0}, {APART, 0, 0, 0}};

const pl_case_family pl_vit_families[] = {
    PL_CASE_FAMILY(layernorm, norm, rows, norms),
    PL_CASE_FAMILY(layernorm_back, norm_back, tall, norms_back),
    PL_CASE_FAMILY(softmax, two, rows, scaled),
    PL_CASE_FAMILY(softmax_back, three, rows, scaled),
    PL_CASE_FAMILY(cross_entropy, loss, rows, losses),
    PL_CASE_FAMILY(scale_rows, four, groups, factors),
    PL_CASE_FAMILY(patches, two, squares, cuts),
};
const int pl_vit_family_count = PL_CASE_OF(pl_vit_families);

int pl_vit_case(pl_op_id op)
{
    for (int m = 0; m < pl_vit_family_count; m++)
        if (pl_vit_families[m].op == op) return 1;
    return 0;
}

int pl_vit_case_data_operand(const pl_op_case *c, int i)
{
    int addend = !!(c->flags & PL_CASE_ADDEND);
    switch (c->op) {
    case PL_OP_layernorm_back: return i == 3 ? !!(c->flags & PL_CASE_LOW) : i < 8 || (i == 8 && addend);
    case PL_OP_cross_entropy: return i == 2 || i == 3 || (i == 1 && addend);
    case PL_OP_scale_rows: return i < 3 || (i == 3 && addend);
    default: return i < pl_op_operand_count(pl_op_describe(c->op));
    }
}

int pl_vit_case_in_place_on(const pl_op_case *c, int i)
{
    int on_x = !!(c->flags & PL_CASE_IN_PLACE_X);
    if (c->op == PL_OP_layernorm_back && i == 3) return c->flags & PL_CASE_IN_PLACE_Z ? 7 : -1;
    if (i > 0 || (!(c->flags & PL_CASE_IN_PLACE) && !on_x)) return -1;
    switch (c->op) {
    case PL_OP_layernorm: return 2;
    case PL_OP_layernorm_back: return on_x ? 8 : 7;
    case PL_OP_softmax: return 1;
    case PL_OP_softmax_back: return 2;
    case PL_OP_scale_rows: return c->flags & PL_CASE_ADDEND && !on_x ? 3 : 1;
    default: return -1;
    }
}

pl_mat pl_vit_case_shape(const pl_op_case *c, int i)
{
    int64_t b = c->batch, r = c->rows, n = c->cols, K = c->K, each = c->flags & PL_CASE_PER_MATRIX ? b : 1;
    polar_dtype t = c->dtype[i];
    pl_mat plain = pl_mat_dense(NULL, t, b, r, n), values = pl_mat_dense(NULL, t, each, 1, n),
           statistics = pl_mat_dense(NULL, t, b, r, 2);
    if (c->op == PL_OP_cross_entropy && i == 0) return pl_mat_dense(NULL, POLAR_DTYPE_F64, b, 1, 1);
    if (!pl_vit_case_data_operand(c, i)) return pl_mat_dense(NULL, t, -1, 0, 0);
    switch (c->op) {
    case PL_OP_layernorm: return i == 1 ? statistics : i > 2 ? values : plain;
    case PL_OP_layernorm_back:
        return i == 1 || i == 2 ? pl_mat_dense(NULL, t, b, 1, n)
               : i == 5         ? statistics
               : i == 6         ? values
                                : plain;
    case PL_OP_scale_rows:
        return i == 2 ? pl_mat_dense(NULL, t, b, r, 1) : pl_mat_dense(NULL, t, b, r * K, n);
    case PL_OP_patches:
        return i == 0 ? pl_mat_dense(NULL, t, b, r * n, 3 * K * K)
                      : pl_mat_dense(NULL, t, b, 3 * r * K, n * K);
    default: return plain;
    }
}

void pl_vit_case_args(pl_op_args *a, const pl_op_case *c, const pl_mat *m)
{
    switch (c->op) {
    case PL_OP_layernorm:
        a->layernorm =
            (pl_args_layernorm){.Y = m[0], .S = m[1], .X = m[2], .g = m[3], .b = m[4], .eps = c->eps};
        break;
    case PL_OP_layernorm_back:
        a->layernorm_back = (pl_args_layernorm_back){.dX = m[0],
                                                     .dg = m[1],
                                                     .db = m[2],
                                                     .dL = m[3],
                                                     .X = m[4],
                                                     .S = m[5],
                                                     .g = m[6],
                                                     .dY = m[7],
                                                     .Z = m[8]};
        break;
    case PL_OP_softmax: a->softmax = (pl_args_softmax){.Y = m[0], .X = m[1], .scale = c->alpha}; break;
    case PL_OP_softmax_back:
        a->softmax_back = (pl_args_softmax_back){.dX = m[0], .Y = m[1], .dY = m[2], .scale = c->alpha};
        break;
    case PL_OP_cross_entropy:
        a->cross_entropy = (pl_args_cross_entropy){.L = m[0], .dZ = m[1], .Z = m[2], .T = m[3]};
        break;
    case PL_OP_scale_rows:
        a->scale_rows = (pl_args_scale_rows){.Y = m[0], .X = m[1], .s = m[2], .Z = m[3]};
        break;
    case PL_OP_patches:
        a->patches = (pl_args_patches){
            .Y = m[0], .X = m[1], .height = c->rows * c->K, .width = c->cols * c->K, .patch = c->K};
        break;
    default: break;
    }
}
