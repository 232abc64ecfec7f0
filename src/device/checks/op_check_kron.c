/* op_check_kron.c -- Kronecker factors: what the ops demand of their operands, and their nominal FLOPs. */
#include "op_check.h"

#include "math/kron_elem.h"

static polar_status need_square(const char *op, const char *name, const pl_mat *m)
{
    PL_NEED(m->rows == m->cols, POLAR_E_SHAPE, "%s wants a square %s, got " SHAPE_FMT, op, name, SHAPE(*m));
    return POLAR_OK;
}

static polar_status need_steps(const char *op, int64_t every, int64_t after)
{
    PL_NEED(every >= 1 && after >= 0, POLAR_E_ARG, "%s: every %lld steps, after %lld", op, (long long)every,
            (long long)after);
    return POLAR_OK;
}

static polar_status need_factors(const char *op, int64_t kind, const pl_mat *F, const pl_mat *Q)
{
    PL_NEED(kind >= 0 && kind < PL_KRON_COUNT, POLAR_E_ARG, "%s: no kind has the number %lld", op,
            (long long)kind);
    if (!F->data) return POLAR_OK;
    PL_TRY(need_values(op, "F", F, Q->cols));
    return need_shape(op, "F", F, Q->batch, 1, Q->cols);
}

polar_status pl_check_kron_moment(const pl_args_kron_moment *a)
{
    PL_TRY(need_square("kron_moment", "K", &a->K));
    PL_TRY(need_same_shape("kron_moment", "T", &a->K, &a->T));
    if (a->A.data) PL_TRY(need_same_shape("kron_moment", "A", &a->K, &a->A));
    PL_NEED(a->K.dtype == POLAR_DTYPE_F64 && (!a->A.data || a->A.dtype == POLAR_DTYPE_F64), POLAR_E_DTYPE,
            "kron_moment wants K and A in f64");
    PL_TRY(need_values("kron_moment", "N", &a->N, 2));
    PL_NEED(a->N.batch == a->K.batch, POLAR_E_SHAPE, "kron_moment: %lld norms for %lld matrices",
            (long long)a->N.batch, (long long)a->K.batch);
    NEED_DISJOINT("kron_moment", 2, &a->A, &a->K, &a->T, &a->N, &a->live);
    return need_live("kron_moment", &a->K, &a->live);
}

double pl_flops_kron_moment(const pl_args_kron_moment *a)
{
    return (a->A.data ? 6 : 3) * elements(&a->K);
}

polar_status pl_check_kron_eigen(const pl_args_kron_eigen *a)
{
    PL_TRY(need_factors("kron_eigen", a->kind, &a->F, &a->Q));
    PL_TRY(need_steps("kron_eigen", a->every, a->after));
    PL_TRY(need_square("kron_eigen", "Q", &a->Q));
    PL_TRY(need_same_shape("kron_eigen", "K", &a->Q, &a->K));
    NEED_DISJOINT("kron_eigen", 2, &a->Q, &a->F, &a->K, &a->live);
    return need_live("kron_eigen", &a->Q, &a->live);
}

/* Tridiagonal form, divide and conquer, back: about 9 n^3, where the step is one that makes the basis. */
double pl_flops_kron_eigen(const pl_args_kron_eigen *a)
{
    return 9 * elements(&a->Q) * (double)a->Q.rows / (double)(a->after ? 1 : a->every);
}

polar_status pl_check_kron_sweep(const pl_args_kron_sweep *a)
{
    PL_TRY(need_factors("kron_sweep", a->kind, &a->F, &a->Q));
    PL_TRY(need_steps("kron_sweep", a->every, a->after));
    PL_TRY(need_square("kron_sweep", "Q", &a->Q));
    PL_TRY(need_same_shape("kron_sweep", "K", &a->Q, &a->K));
    PL_NEED(a->V.batch == a->Q.batch && (a->trans ? a->V.cols : a->V.rows) == a->Q.rows, POLAR_E_SHAPE,
            "kron_sweep wants %lld %s in V, got " SHAPE_FMT, (long long)a->Q.rows,
            a->trans ? "columns" : "rows", SHAPE(a->V));
    NEED_DISJOINT("kron_sweep", 3, &a->Q, &a->V, &a->F, &a->K, &a->live);
    return need_live("kron_sweep", &a->Q, &a->live);
}

/* A product, a QR decomposition and its Q: 2 + 8/3 n^3. */
double pl_flops_kron_sweep(const pl_args_kron_sweep *a)
{
    return 14 * elements(&a->Q) * (double)a->Q.rows / 3 / (double)a->every;
}
