/* op_case_nn.c -- the cases of the layers' ops: formats, sizes, variants, shapes and calls.
 *
 * A case's rows and cols are those of: bias_act, bias_act_back, mse: the operands; row_sum, row_spread: the
 * fewer rows, K rows to each; pair_dist: the cloud, rows points; pair_sum, pair_grad: rows points of K
 * components; vec_*: rows of scalars, 3 rows of vectors.
 */
#include "op_case_impl.h"

#define D POLAR_DTYPE_F64
#define F POLAR_DTYPE_F32
#define H POLAR_DTYPE_BF16

/* ---- formats ---- */

static const pl_case_formats two[] = {{{D, D}}, {{F, F}}, {{H, H}}, {{F, H}}, {{H, F}}, {{D, F}}, {{F, D}}};
static const pl_case_formats bias_act[] = {{{D, D, D}}, {{F, F, F}}, {{H, H, H}}, {{H, F, F}},
                                           {{F, H, F}}, {{F, D, F}}, {{D, F, H}}};
static const pl_case_formats three[] = {{{D, D, D}}, {{F, F, F}}, {{H, H, H}},
                                        {{F, F, H}}, {{F, H, F}}, {{H, D, F}}};
static const pl_case_formats four[] = {{{D, D, D, D}}, {{F, F, F, F}}, {{H, H, H, H}},
                                       {{H, F, F, H}}, {{F, H, F, F}}, {{F, F, H, D}}};
static const pl_case_formats gate[] = {{{D, D, D, D, D}}, {{F, F, F, F, F}}, {{H, H, H, H, H}},
                                       {{H, F, F, F, H}}, {{F, H, F, H, F}}, {{F, F, D, F, F}}};
static const pl_case_formats gate_back[] = {{{D, D, D, D, D, D, D}}, {{F, F, F, F, F, F, F}},
                                            {{H, H, H, H, H, H, H}}, {{F, H, H, F, F, F, F}},
                                            {{H, F, F, H, F, F, H}}, {{F, F, D, F, F, D, F}}};
static const pl_case_formats loss[] = {
    {{D, D, D, D}}, {{D, F, F, F}}, {{D, H, H, H}}, {{D, H, F, F}}, {{D, F, F, D}}};

#undef D
#undef F
#undef H

/* ---- sizes: batch, rows, cols, K ---- */

#define LARGE PL_CASE_LARGE
static const pl_case_sizes plain[] = {{1, 1, 1, 0, 0},       {1, 1, 37, 0, 0},  {1, 37, 1, 0, 0},
                                      {3, 7, 13, 0, 0},      {3, 33, 17, 0, 0}, {4, 0, 5, 0, 0},
                                      {1, 64, 192, 0, LARGE}};
/* around one chunk of 64 rows, around a lane's second turn (32 chunks), groups of one and of none */
static const pl_case_sizes groups[] = {
    {1, 1, 1, 1, 0},    {2, 3, 5, 7, 0}, {1, 1, 37, 64, 0}, {3, 2, 17, 65, 0}, {1, 1, 3, 200, 0},
    {1, 1, 2, 2113, 0}, {2, 4, 6, 1, 0}, {3, 2, 5, 0, 0},   {1, 0, 5, 4, 0},   {1, 4, 48, 256, LARGE}};
static const pl_case_sizes spreads[] = {{1, 1, 1, 1, 0},       {2, 3, 5, 7, 0}, {3, 2, 17, 65, 0},
                                        {2, 4, 6, 1, 0},       {3, 2, 5, 0, 0}, {1, 0, 5, 4, 0},
                                        {1, 16, 48, 16, LARGE}};
static const pl_case_sizes clouds[] = {{1, 1, 3, 0, 0},  {2, 2, 3, 0, 0}, {3, 5, 3, 0, 0},
                                       {1, 17, 3, 0, 0}, {2, 0, 3, 0, 0}, {2, 64, 3, 0, LARGE}};
static const pl_case_sizes pairs[] = {{1, 1, 1, 1, 0},  {2, 2, 3, 3, 0},   {3, 5, 8, 1, 0},
                                      {2, 7, 13, 3, 0}, {1, 17, 16, 3, 0}, {1, 9, 33, 2, 0},
                                      {2, 11, 5, 4, 0}, {3, 4, 0, 1, 0},   {1, 32, 16, 3, LARGE}};
static const pl_case_sizes vectors[] = {{1, 1, 1, 0, 0},      {2, 3, 2, 0, 0},  {1, 5, 8, 0, 0},
                                        {3, 7, 13, 0, 0},     {1, 4, 33, 0, 0}, {2, 0, 5, 0, 0},
                                        {1, 16, 16, 0, LARGE}};
static const pl_case_sizes columns[] = {{1, 1, 1, 0, 0},  {3, 5, 1, 0, 0},   {2, 32, 1, 0, 0},
                                        {1, 33, 1, 0, 0}, {5, 100, 1, 0, 0}, {1, 512, 1, 0, LARGE}};

/* ---- variants: flags, alpha, beta, eps. LARGE: runs at large sizes too ---- */

#define ALL     PL_CASE_LARGE
#define ADD     PL_CASE_ADDEND
#define SILU    PL_CASE_SILU
#define SIGMOID PL_CASE_SIGMOID
#define GELU    PL_CASE_GELU
#define HERE    PL_CASE_IN_PLACE
#define EACH    PL_CASE_PER_MATRIX
#define APART   PL_CASE_STRIDED
static const pl_case_variant acts[] = {{ADD, 0, 0, 0},
                                       {ALL | SILU | ADD, 0, 0, 0},
                                       {SIGMOID | ADD, 0, 0, 0},
                                       {SILU, 0, 0, 0},
                                       {SILU | HERE, 0, 0, 0},
                                       {SILU | ADD | EACH, 0, 0, 0},
                                       {ADD | HERE | EACH, 0, 0, 0},
                                       {HERE, 0, 0, 0},
                                       {SIGMOID | APART, 0, 0, 0},
                                       {ALL | GELU | ADD, 0, 0, 0},
                                       {GELU | HERE, 0, 0, 0}};
static const pl_case_variant slopes[] = {{ADD, 0, 0, 0},
                                         {ALL | SILU | ADD, 0, 0, 0},
                                         {SIGMOID | ADD, 0, 0, 0},
                                         {SILU, 0, 0, 0},
                                         {SILU | HERE, 0, 0, 0},
                                         {SILU | ADD | EACH, 0, 0, 0},
                                         {HERE, 0, 0, 0},
                                         {SILU | ADD | PL_CASE_IN_PLACE_X, 0, 0, 0},
                                         {SIGMOID | APART, 0, 0, 0},
                                         {ALL | GELU | ADD, 0, 0, 0},
                                         {GELU | HERE, 0, 0, 0}};
static const pl_case_variant scaled[] = {
    {ALL, 1, 0, 0}, {0, -2, 0, 0}, {APART, 0.015625, 0, 0}, {0, 0.3, 0, 0}};
static const pl_case_variant distances[] = {{0, 0, 0, 0}, {ALL, 0, 0, 1e-8}, {APART, 0, 0, 0.25}};
static const pl_case_variant sums[] = {
    {ALL, 1, 0, 0}, {ALL | ADD, 0.015625, 0, 0}, {ADD | HERE, -2, 0, 0}, {APART, 0.3, 0, 0}};
static const pl_case_variant grads[] = {{ALL, 1, 0, 0}, {0, -2, 0, 0}, {APART, 0.3, 0, 0}};
static const pl_case_variant dots[] = {{ALL, 0, 0, 0}, {APART, 0, 0, 0}};
static const pl_case_variant norms[] = {{ALL, 0, 0, 1e-8}, {APART, 0, 0, 0.25}, {0, 0, 0, 0}};
static const pl_case_variant norms_back[] = {{ALL, 0, 0, 1e-8}, {APART, 0, 0, 0.25}};
static const pl_case_variant gates[] = {{ALL, 0, 0, 1e-8},  {ALL | ADD, 0, 0, 1e-8},
                                        {EACH, 0, 0, 1e-8}, {ADD | HERE, 0, 0, 0.25},
                                        {HERE, 0, 0, 0},    {ADD | EACH | PL_CASE_IN_PLACE_X, 0, 0, 0.25},
                                        {APART, 0, 0, 0.25}};
static const pl_case_variant gates_back[] = {
    {ALL, 0, 0, 1e-8}, {EACH, 0, 0, 1e-8}, {HERE, 0, 0, 0.25}, {APART | EACH, 0, 0, 0.25}};
static const pl_case_variant losses[] = {{ALL | ADD, 0, 0, 0}, {0, 0, 0, 0}, {ADD | APART, 0, 0, 0}};

const pl_case_family pl_nn_families[] = {
    PL_CASE_FAMILY(bias_act, bias_act, plain, acts),
    PL_CASE_FAMILY(bias_act_back, four, plain, slopes),
    PL_CASE_FAMILY(row_sum, two, groups, scaled),
    PL_CASE_FAMILY(row_spread, two, spreads, scaled),
    PL_CASE_FAMILY(pair_dist, two, clouds, distances),
    PL_CASE_FAMILY(pair_sum, four, pairs, sums),
    PL_CASE_FAMILY(pair_grad, three, pairs, grads),
    PL_CASE_FAMILY(vec_dots, two, vectors, dots),
    PL_CASE_FAMILY(vec_dots_back, three, vectors, dots),
    PL_CASE_FAMILY(vec_norm, two, vectors, norms),
    PL_CASE_FAMILY(vec_norm_back, three, vectors, norms_back),
    PL_CASE_FAMILY(vec_gate, gate, vectors, gates),
    PL_CASE_FAMILY(vec_gate_back, gate_back, vectors, gates_back),
    PL_CASE_FAMILY(mse, loss, columns, losses),
};
const int pl_nn_family_count = PL_CASE_OF(pl_nn_families);

int pl_nn_case(pl_op_id op)
{
    for (int m = 0; m < pl_nn_family_count; m++)
        if (pl_nn_families[m].op == op) return 1;
    return 0;
}

int pl_nn_case_data_operand(const pl_op_case *c, int i)
{
    int addend = !!(c->flags & PL_CASE_ADDEND);
    switch (c->op) {
    case PL_OP_bias_act: return i < 2 || (i == 2 && addend);
    case PL_OP_bias_act_back: return i < 4 && (i != 2 || addend);
    case PL_OP_pair_sum: return i < 3 || (i == 3 && addend);
    case PL_OP_vec_gate: return i < 4 || (i == 4 && addend);
    case PL_OP_mse: return i == 2 || i == 3 || (i == 1 && addend);
    default: return i < pl_op_operand_count(pl_op_describe(c->op));
    }
}

int pl_nn_case_in_place_on(const pl_op_case *c)
{
    int on_x = !!(c->flags & PL_CASE_IN_PLACE_X);
    if (!(c->flags & PL_CASE_IN_PLACE) && !on_x) return -1;
    switch (c->op) {
    case PL_OP_bias_act: return 1;
    case PL_OP_bias_act_back: return on_x ? 1 : 3;
    case PL_OP_pair_sum: return 3;
    case PL_OP_vec_gate: return c->flags & PL_CASE_ADDEND && !on_x ? 4 : 1;
    case PL_OP_vec_gate_back: return 6;
    default: return -1;
    }
}

int64_t pl_nn_case_act(const pl_op_case *c)
{
    return c->flags & PL_CASE_SILU      ? PL_ACT_SILU
           : c->flags & PL_CASE_SIGMOID ? PL_ACT_SIGMOID
           : c->flags & PL_CASE_GELU    ? PL_ACT_GELU
                                        : PL_ACT_NONE;
}

pl_mat pl_nn_case_shape(const pl_op_case *c, int i)
{
    int64_t b = c->batch, r = c->rows, n = c->cols, each = c->flags & PL_CASE_PER_MATRIX ? b : 1;
    polar_dtype t = c->dtype[i];
    pl_mat plain_one = pl_mat_dense(NULL, t, b, r, n), long_one = pl_mat_dense(NULL, t, b, r * c->K, n),
           values = pl_mat_dense(NULL, t, each, 1, n);
    pl_mat of_pairs = pl_mat_dense(NULL, t, b, r * (r + 1) / 2, n),
           of_vectors = pl_mat_dense(NULL, t, b, 3 * r, n);
    pl_mat of_dots = pl_mat_dense(NULL, t, b, r, n * (n + 1) / 2);
    if (!pl_nn_case_data_operand(c, i) && !(c->op == PL_OP_mse && i == 0))
        return pl_mat_dense(NULL, t, -1, 0, 0);
    switch (c->op) {
    case PL_OP_bias_act:
    case PL_OP_bias_act_back: return i == 2 ? values : plain_one;
    case PL_OP_row_sum: return i == 0 ? plain_one : long_one;
    case PL_OP_row_spread: return i == 0 ? long_one : plain_one;
    case PL_OP_pair_dist:
        return i == 0 ? pl_mat_dense(NULL, t, b, r * (r + 1) / 2, 1) : pl_mat_dense(NULL, t, b, r, 3);
    case PL_OP_pair_sum: return i == 2 ? of_pairs : long_one;
    case PL_OP_pair_grad: return i == 0 ? of_pairs : long_one;
    case PL_OP_vec_dots: return i == 0 ? of_dots : of_vectors;
    case PL_OP_vec_dots_back: return i == 2 ? of_dots : of_vectors;
    case PL_OP_vec_norm: return i == 0 ? plain_one : of_vectors;
    case PL_OP_vec_norm_back: return i == 2 ? plain_one : of_vectors;
    case PL_OP_vec_gate: return i == 2 || i == 3 ? values : of_vectors;
    case PL_OP_vec_gate_back: return i == 1 || i == 2 ? plain_one : i == 4 || i == 5 ? values : of_vectors;
    case PL_OP_mse: return i == 0 ? pl_mat_dense(NULL, POLAR_DTYPE_F64, b, 1, 1) : plain_one;
    default: return plain_one;
    }
}

void pl_nn_case_args(pl_op_args *a, const pl_op_case *c, const pl_mat *m)
{
    switch (c->op) {
    case PL_OP_bias_act:
        a->bias_act = (pl_args_bias_act){.Y = m[0], .X = m[1], .b = m[2], .act = pl_nn_case_act(c)};
        break;
    case PL_OP_bias_act_back:
        a->bias_act_back =
            (pl_args_bias_act_back){.dX = m[0], .X = m[1], .b = m[2], .dY = m[3], .act = pl_nn_case_act(c)};
        break;
    case PL_OP_row_sum: a->row_sum = (pl_args_row_sum){.Y = m[0], .X = m[1], .alpha = c->alpha}; break;
    case PL_OP_row_spread:
        a->row_spread = (pl_args_row_spread){.Y = m[0], .X = m[1], .alpha = c->alpha};
        break;
    case PL_OP_pair_dist: a->pair_dist = (pl_args_pair_dist){.D = m[0], .X = m[1], .eps = c->eps}; break;
    case PL_OP_pair_sum:
        a->pair_sum = (pl_args_pair_sum){
            .Y = m[0], .X = m[1], .W = m[2], .Z = m[3], .points = c->rows, .alpha = c->alpha};
        break;
    case PL_OP_pair_grad:
        a->pair_grad =
            (pl_args_pair_grad){.dW = m[0], .dY = m[1], .X = m[2], .points = c->rows, .alpha = c->alpha};
        break;
    case PL_OP_vec_dots: a->vec_dots = (pl_args_vec_dots){.Q = m[0], .V = m[1]}; break;
    case PL_OP_vec_dots_back:
        a->vec_dots_back = (pl_args_vec_dots_back){.dV = m[0], .V = m[1], .dQ = m[2]};
        break;
    case PL_OP_vec_norm: a->vec_norm = (pl_args_vec_norm){.R = m[0], .V = m[1], .eps = c->eps}; break;
    case PL_OP_vec_norm_back:
        a->vec_norm_back = (pl_args_vec_norm_back){.dV = m[0], .V = m[1], .dR = m[2], .eps = c->eps};
        break;
    case PL_OP_vec_gate:
        a->vec_gate =
            (pl_args_vec_gate){.Y = m[0], .V = m[1], .g = m[2], .b = m[3], .Z = m[4], .eps = c->eps};
        break;
    case PL_OP_vec_gate_back:
        a->vec_gate_back = (pl_args_vec_gate_back){
            .dV = m[0], .T = m[1], .TR = m[2], .V = m[3], .g = m[4], .b = m[5], .dY = m[6], .eps = c->eps};
        break;
    case PL_OP_mse: a->mse = (pl_args_mse){.L = m[0], .dP = m[1], .P = m[2], .Y = m[3]}; break;
    default: break;
    }
}
