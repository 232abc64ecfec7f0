/* op_check_vit.c -- what the transformer's ops demand of their operands, and their nominal FLOPs (e^x, a
 * logarithm, a root and a quotient count as one each). */
#include "op_check.h"

/* Statistics of rows: f32 or f64. */
static polar_status need_wide(const char *op, const char *name, const pl_mat *m)
{
    PL_NEED(m->dtype != POLAR_DTYPE_BF16, POLAR_E_DTYPE, "%s wants %s in f32 or f64", op, name);
    return POLAR_OK;
}

static polar_status need_scale(const char *op, double scale)
{
    PL_NEED(scale > 0, POLAR_E_ARG, "%s wants a positive scale, got %g", op, scale);
    return POLAR_OK;
}

/* Z, where there is one, is as large as the result and stands apart from it or in its place. */
static polar_status need_addend(const char *op, const pl_mat *Y, const pl_mat *Z)
{
    if (!Z->data) return POLAR_OK;
    PL_TRY(need_same_shape(op, "Z", Y, Z));
    return need_apart(op, "Z", Y, Z);
}

polar_status pl_check_layernorm(const pl_args_layernorm *a)
{
    PL_TRY(need_eps("layernorm", a->eps, 0));
    PL_TRY(need_same_shape("layernorm", "X", &a->Y, &a->X));
    PL_TRY(need_shape("layernorm", "S", &a->S, a->X.batch, a->X.rows, 2));
    PL_TRY(need_wide("layernorm", "S", &a->S));
    PL_TRY(need_row("layernorm", "g", &a->g, a->X.batch, a->X.cols));
    PL_TRY(need_row("layernorm", "b", &a->b, a->X.batch, a->X.cols));
    PL_TRY(need_apart("layernorm", "X", &a->Y, &a->X));
    NEED_DISJOINT("layernorm", 2, &a->Y, &a->S, &a->g, &a->b);
    NEED_DISJOINT("layernorm", 1, &a->S, &a->X);
    return POLAR_OK;
}

polar_status pl_check_layernorm_back(const pl_args_layernorm_back *a)
{
    PL_TRY(need_same_shape("layernorm_back", "X", &a->dX, &a->X));
    PL_TRY(need_same_shape("layernorm_back", "dY", &a->dX, &a->dY));
    PL_TRY(need_shape("layernorm_back", "S", &a->S, a->X.batch, a->X.rows, 2));
    PL_TRY(need_wide("layernorm_back", "S", &a->S));
    PL_TRY(need_row("layernorm_back", "g", &a->g, a->X.batch, a->X.cols));
    PL_TRY(need_shape("layernorm_back", "dg", &a->dg, a->X.batch, 1, a->X.cols));
    PL_TRY(need_shape("layernorm_back", "db", &a->db, a->X.batch, 1, a->X.cols));
    PL_TRY(need_apart("layernorm_back", "dY", &a->dX, &a->dY));
    PL_TRY(need_addend("layernorm_back", &a->dX, &a->Z));
    if (a->dL.data) {
        PL_TRY(need_same_shape("layernorm_back", "dL", &a->dX, &a->dL));
        PL_TRY(need_apart("layernorm_back", "dY", &a->dL, &a->dY));
    }
    NEED_DISJOINT("layernorm_back", 4, &a->dX, &a->dg, &a->db, &a->dL, &a->X, &a->S, &a->g);
    NEED_DISJOINT("layernorm_back", 2, &a->dg, &a->db, &a->dY, &a->Z);
    NEED_DISJOINT("layernorm_back", 1, &a->dL, &a->Z);
    return POLAR_OK;
}

polar_status pl_check_softmax(const pl_args_softmax *a)
{
    PL_TRY(need_scale("softmax", a->scale));
    PL_TRY(need_same_shape("softmax", "X", &a->Y, &a->X));
    return need_apart("softmax", "X", &a->Y, &a->X);
}

polar_status pl_check_softmax_back(const pl_args_softmax_back *a)
{
    PL_TRY(need_scale("softmax_back", a->scale));
    PL_TRY(need_same_shape("softmax_back", "Y", &a->dX, &a->Y));
    PL_TRY(need_same_shape("softmax_back", "dY", &a->dX, &a->dY));
    PL_TRY(need_apart("softmax_back", "dY", &a->dX, &a->dY));
    NEED_DISJOINT("softmax_back", 1, &a->dX, &a->Y);
    return POLAR_OK;
}

polar_status pl_check_cross_entropy(const pl_args_cross_entropy *a)
{
    PL_TRY(need_values("cross_entropy", "L", &a->L, 1));
    PL_NEED(a->Z.rows > 0 && a->Z.cols > 0, POLAR_E_SHAPE,
            "cross_entropy wants rows of logits, got " SHAPE_FMT, SHAPE(a->Z));
    PL_NEED(a->L.batch == a->Z.batch, POLAR_E_SHAPE, "cross_entropy: %lld losses for %lld matrices of logits",
            (long long)a->L.batch, (long long)a->Z.batch);
    PL_TRY(need_shape("cross_entropy", "T", &a->T, a->Z.batch, a->Z.rows, a->Z.cols));
    if (a->dZ.data) PL_TRY(need_shape("cross_entropy", "dZ", &a->dZ, a->Z.batch, a->Z.rows, a->Z.cols));
    NEED_DISJOINT("cross_entropy", 2, &a->L, &a->dZ, &a->Z, &a->T);
    return POLAR_OK;
}

polar_status pl_check_scale_rows(const pl_args_scale_rows *a)
{
    PL_TRY(need_same_shape("scale_rows", "X", &a->Y, &a->X));
    PL_NEED(a->s.batch == a->Y.batch && a->s.cols == 1 &&
                (a->s.rows ? a->Y.rows % a->s.rows == 0 : a->Y.rows == 0),
            POLAR_E_SHAPE,
            "scale_rows: the rows of " SHAPE_FMT " do not fall into the groups of " SHAPE_FMT " factors",
            SHAPE(a->Y), SHAPE(a->s));
    PL_TRY(need_apart("scale_rows", "X", &a->Y, &a->X));
    PL_TRY(need_addend("scale_rows", &a->Y, &a->Z));
    NEED_DISJOINT("scale_rows", 1, &a->Y, &a->s);
    return POLAR_OK;
}

polar_status pl_check_patches(const pl_args_patches *a)
{
    int64_t p = a->patch;
    PL_NEED(p > 0 && a->height > 0 && a->width > 0 && a->height % p == 0 && a->width % p == 0, POLAR_E_SHAPE,
            "patches: a picture of %lldx%lld does not fall into patches of %lldx%lld", (long long)a->height,
            (long long)a->width, (long long)p, (long long)p);
    PL_NEED(a->X.cols == a->width && a->X.rows % a->height == 0, POLAR_E_SHAPE,
            "patches: " SHAPE_FMT " holds no channels of %lldx%lld", SHAPE(a->X), (long long)a->height,
            (long long)a->width);
    PL_TRY(need_shape("patches", "Y", &a->Y, a->X.batch, a->height / p * (a->width / p),
                      a->X.rows / a->height * p * p));
    NEED_DISJOINT("patches", 1, &a->Y, &a->X);
    return POLAR_OK;
}

/* ---- attention in one ---- */

static polar_status need_heads(const char *op, const pl_mat *QKV, const pl_mat *O, const pl_mat *lse,
                               int64_t heads)
{
    PL_NEED(heads > 0 && QKV->cols % (3 * heads) == 0, POLAR_E_SHAPE,
            "%s: %lld columns are no q, k and v of %lld heads", op, (long long)QKV->cols, (long long)heads);
    PL_TRY(need_shape(op, "O", O, QKV->batch, QKV->rows, QKV->cols / 3));
    if (!lse->data) return POLAR_OK;
    PL_TRY(need_shape(op, "lse", lse, QKV->batch, heads, QKV->rows));
    return need_wide(op, "lse", lse);
}

polar_status pl_check_attention(const pl_args_attention *a)
{
    PL_TRY(need_heads("attention", &a->QKV, &a->O, &a->lse, a->heads));
    NEED_DISJOINT("attention", 2, &a->O, &a->lse, &a->QKV);
    return POLAR_OK;
}

polar_status pl_check_attention_back(const pl_args_attention_back *a)
{
    PL_TRY(need_heads("attention_back", &a->QKV, &a->O, &a->lse, a->heads));
    PL_TRY(need_same_shape("attention_back", "QKV", &a->dQKV, &a->QKV));
    PL_TRY(need_same_shape("attention_back", "dO", &a->O, &a->dO));
    NEED_DISJOINT("attention_back", 1, &a->dQKV, &a->QKV, &a->O, &a->lse, &a->dO);
    return POLAR_OK;
}

/* ---- FLOPs ---- */

double pl_flops_layernorm(const pl_args_layernorm *a)
{
    return 8 * elements(&a->X); /* the mean 1, the variance 3, the result 4 */
}

double pl_flops_layernorm_back(const pl_args_layernorm_back *a)
{
    return (a->Z.data ? 14 : 13) * elements(&a->X);
}

double pl_flops_softmax(const pl_args_softmax *a)
{
    return 6 * elements(&a->Y);
}

double pl_flops_softmax_back(const pl_args_softmax_back *a)
{
    return 5 * elements(&a->dX);
}

double pl_flops_cross_entropy(const pl_args_cross_entropy *a)
{
    return (a->dZ.data ? 9 : 6) * elements(&a->Z);
}

double pl_flops_scale_rows(const pl_args_scale_rows *a)
{
    return (a->Z.data ? 2 : 1) * elements(&a->Y);
}

double pl_flops_patches(const pl_args_patches *a)
{
    (void)a;
    return 0;
}

/* Two products of tokens x tokens x cols, and a softmax per head. */
double pl_flops_attention(const pl_args_attention *a)
{
    double pairs = (double)a->O.batch * (double)a->O.rows * (double)a->O.rows;
    return pairs * (4 * (double)a->O.cols + 6 * (double)a->heads);
}

/* The first product again, four more, the softmax and its gradient. */
double pl_flops_attention_back(const pl_args_attention_back *a)
{
    double pairs = (double)a->O.batch * (double)a->O.rows * (double)a->O.rows;
    return pairs * (10 * (double)a->O.cols + 9 * (double)a->heads);
}
