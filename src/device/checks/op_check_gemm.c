/* op_check_gemm.c -- products, and products with what follows them: what the ops demand of their operands,
 * and their nominal FLOPs. */
#include "op_check.h"

polar_status pl_check_gemm(const pl_args_gemm *a)
{
    int64_t ar = a->ta ? a->A.cols : a->A.rows, ak = a->ta ? a->A.rows : a->A.cols;
    int64_t bk = a->tb ? a->B.cols : a->B.rows, bc = a->tb ? a->B.rows : a->B.cols;
    PL_NEED(ar == a->C.rows && bc == a->C.cols && ak == bk, POLAR_E_SHAPE,
            "gemm: (" SHAPE_FMT ")%s times (" SHAPE_FMT ")%s is no " SHAPE_FMT, SHAPE(a->A),
            a->ta ? "^T" : "", SHAPE(a->B), a->tb ? "^T" : "", SHAPE(a->C));
    PL_NEED(!a->sym || a->C.rows == a->C.cols, POLAR_E_SHAPE,
            "gemm: a symmetric result is square, got " SHAPE_FMT, SHAPE(a->C));
    PL_NEED(a->A.batch == a->C.batch && a->B.batch == a->C.batch, POLAR_E_SHAPE,
            "gemm: batches of %lld and %lld for %lld results", (long long)a->A.batch, (long long)a->B.batch,
            (long long)a->C.batch);
    PL_NEED(a->A.dtype == a->B.dtype, POLAR_E_DTYPE, "gemm wants both factors in one format, got %s and %s",
            polar_dtype_name(a->A.dtype), polar_dtype_name(a->B.dtype));
    PL_NEED(!a->tf32 || (a->A.dtype == POLAR_DTYPE_F32 && a->C.dtype == POLAR_DTYPE_F32), POLAR_E_DTYPE,
            "gemm in tf32 is of factors and a result in f32, got %s and %s", polar_dtype_name(a->A.dtype),
            polar_dtype_name(a->C.dtype));
    PL_NEED(!pl_mat_overlap(&a->C, &a->A) && !pl_mat_overlap(&a->C, &a->B), POLAR_E_ARG,
            "gemm: the result overlaps a factor");
    if (!a->D.data) return POLAR_OK;
    PL_TRY(need_same_shape("gemm", "D", &a->C, &a->D));
    return need_apart("gemm", "D", &a->C, &a->D);
}

double pl_flops_gemm(const pl_args_gemm *a)
{
    return 2 * elements(&a->C) * (double)(a->ta ? a->A.rows : a->A.cols);
}

/* What gemm_act with factors of rows demands beside its other operands' shapes: U in A's format is between
 * the sums and Y, so Y is no narrower, and what is computed in double is so throughout. */
static polar_status check_row_factors(const pl_args_gemm_act *a)
{
    const pl_mat *mats[] = {&a->Y, &a->A, &a->D, &a->s, &a->b};
    int f64 = 0, there = 0;
    PL_NEED(a->D.data && !a->S.data && !a->F.data && a->act == PL_ACT_NONE, POLAR_E_ARG,
            "gemm_act: factors s of rows are of what is added to a D, without F, activation and slope");
    PL_TRY(need_row_factors("gemm_act", &a->Y, &a->s));
    NEED_DISJOINT("gemm_act", 1, &a->Y, &a->D, &a->s);
    for (size_t i = 0; i < sizeof mats / sizeof *mats; i++) {
        there += mats[i]->data != NULL;
        f64 += mats[i]->data && mats[i]->dtype == POLAR_DTYPE_F64;
    }
    PL_NEED(f64 == 0 || f64 == there, POLAR_E_DTYPE, "gemm_act: with factors s of rows f64 is all or none");
    PL_NEED(a->Y.dtype == a->A.dtype || polar_dtype_size(a->Y.dtype) > polar_dtype_size(a->A.dtype),
            POLAR_E_DTYPE, "gemm_act: with factors s of rows the result, %s, is no narrower than A, %s",
            polar_dtype_name(a->Y.dtype), polar_dtype_name(a->A.dtype));
    return POLAR_OK;
}

polar_status pl_check_gemm_act(const pl_args_gemm_act *a)
{
    const pl_args_gemm product = {.C = a->Y, .A = a->A, .B = a->B, .D = a->D, .tb = a->tb};
    PL_TRY(need_act("gemm_act", a->act));
    PL_TRY(pl_check_gemm(&product));
    NEED_DISJOINT("gemm_act", 1, &a->Y, &a->S, &a->b, &a->F);
    NEED_DISJOINT("gemm_act", 1, &a->S, &a->A, &a->B, &a->D, &a->b);
    if (a->S.data) PL_TRY(need_same_shape("gemm_act", "S", &a->Y, &a->S));
    if (a->b.data) PL_TRY(need_row("gemm_act", "b", &a->b, a->Y.batch, a->Y.cols));
    if (a->s.data) return check_row_factors(a);
    if (!a->F.data) return POLAR_OK;
    PL_NEED(!a->S.data && !a->b.data && a->act == PL_ACT_NONE, POLAR_E_ARG,
            "gemm_act: with a factor F there is neither bias nor activation");
    return need_same_shape("gemm_act", "F", &a->Y, &a->F);
}

polar_status pl_check_weight_grad(const pl_args_weight_grad *a)
{
    const pl_args_gemm product = {.C = a->dW, .A = a->dY, .B = a->X, .ta = 1};
    PL_TRY(pl_check_gemm(&product));
    if (!a->db.data) return POLAR_OK;
    PL_TRY(need_shape("weight_grad", "db", &a->db, a->dW.batch, 1, a->dW.rows));
    NEED_DISJOINT("weight_grad", 1, &a->db, &a->dW, &a->dY, &a->X);
    return POLAR_OK;
}

double pl_flops_gemm_act(const pl_args_gemm_act *a)
{
    const pl_args_gemm product = {.C = a->Y, .A = a->A, .B = a->B, .D = a->D, .alpha = 1, .beta = 1};
    const pl_args_bias_act rest = {.Y = a->Y, .b = a->b, .act = a->act};
    return pl_flops_gemm(&product) +
           (a->F.data ? elements(&a->Y) : (a->S.data ? 2 : 1) * pl_flops_bias_act(&rest)) +
           (a->s.data ? 2 * elements(&a->Y) : 0);
}

double pl_flops_weight_grad(const pl_args_weight_grad *a)
{
    const pl_args_gemm product = {.C = a->dW, .A = a->dY, .B = a->X, .ta = 1, .alpha = 1};
    return pl_flops_gemm(&product) + (a->db.data ? elements(&a->dY) : 0);
}
