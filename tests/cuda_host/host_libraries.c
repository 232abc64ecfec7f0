/* host_libraries.c -- what stands in for cuBLASLt and cuSOLVER where kernels run on the host, built once for
 * each name: no product is served; singular values by one-sided Jacobi rotations. */
#include <math.h>
#include <string.h>

#ifdef HOST_CUBLASLT
#include <cublasLt.h>

static int something; /* what handles point at */

cublasStatus_t cublasLtCreate(cublasLtHandle_t *out)
{
    *out = &something;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
    (void)handle;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *out, cublasComputeType_t compute,
                                        cudaDataType_t scale)
{
    (void)compute, (void)scale;
    *out = NULL;
    return CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc)
{
    (void)desc;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t which,
                                              const void *value, size_t bytes)
{
    (void)desc, (void)which, (void)value, (void)bytes;
    return CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *out, cudaDataType_t type, uint64_t rows,
                                          uint64_t cols, int64_t ld)
{
    (void)type, (void)rows, (void)cols, (void)ld;
    *out = NULL;
    return CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout)
{
    (void)layout;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t which, const void *value,
                                                size_t bytes)
{
    (void)layout, (void)which, (void)value, (void)bytes;
    return CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *out)
{
    *out = NULL;
    return CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference)
{
    (void)preference;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t which,
                                                    const void *value, size_t bytes)
{
    (void)preference, (void)which, (void)value, (void)bytes;
    return CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t *out, int *count)
{
    (void)handle, (void)desc, (void)a, (void)b, (void)c, (void)d, (void)preference, (void)wanted, (void)out;
    *count = 0;
    return CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha,
                              const void *a, cublasLtMatrixLayout_t la, const void *b,
                              cublasLtMatrixLayout_t lb, const void *beta, const void *c,
                              cublasLtMatrixLayout_t lc, void *d, cublasLtMatrixLayout_t ld,
                              const cublasLtMatmulAlgo_t *algo, void *workspace, size_t bytes,
                              cudaStream_t stream)
{
    (void)handle, (void)desc, (void)alpha, (void)a, (void)la, (void)b, (void)lb, (void)beta, (void)c;
    (void)lc, (void)d, (void)ld, (void)algo, (void)workspace, (void)bytes, (void)stream;
    return CUBLAS_STATUS_NOT_SUPPORTED;
}

#else
#include <cusolverDn.h>

static int something;

cusolverStatus_t cusolverDnCreate(cusolverDnHandle_t *out)
{
    *out = &something;
    return CUSOLVER_STATUS_SUCCESS;
}

cusolverStatus_t cusolverDnDestroy(cusolverDnHandle_t handle)
{
    (void)handle;
    return CUSOLVER_STATUS_SUCCESS;
}

cusolverStatus_t cusolverDnSetStream(cusolverDnHandle_t handle, cudaStream_t stream)
{
    (void)handle, (void)stream;
    return CUSOLVER_STATUS_SUCCESS;
}

cusolverStatus_t cusolverDnCreateGesvdjInfo(gesvdjInfo_t *out)
{
    *out = &something;
    return CUSOLVER_STATUS_SUCCESS;
}

cusolverStatus_t cusolverDnDestroyGesvdjInfo(gesvdjInfo_t info)
{
    (void)info;
    return CUSOLVER_STATUS_SUCCESS;
}

cusolverStatus_t cusolverDnDgesvdj_bufferSize(cusolverDnHandle_t handle, cusolverEigMode_t mode, int econ,
                                              int m, int n, const double *a, int lda, const double *s,
                                              const double *u, int ldu, const double *v, int ldv, int *lwork,
                                              gesvdjInfo_t params)
{
    (void)handle, (void)mode, (void)econ, (void)m, (void)n, (void)a, (void)lda, (void)s, (void)u, (void)ldu;
    (void)v, (void)ldv, (void)params;
    *lwork = 1;
    return CUSOLVER_STATUS_SUCCESS;
}

/* Columns p and q of u made orthogonal; v turned with them. 0: they were. */
static int turn(double *u, int ldu, int m, double *v, int ldv, int n, int p, int q)
{
    double pp = 0, qq = 0, pq = 0;
    for (int i = 0; i < m; i++) {
        double x = u[i + (size_t)p * ldu], y = u[i + (size_t)q * ldu];
        pp += x * x, qq += y * y, pq += x * y;
    }
    if (fabs(pq) <= 1e-15 * sqrt(pp * qq)) return 0;
    double zeta = (qq - pp) / (2 * pq), t = (zeta >= 0 ? 1 : -1) / (fabs(zeta) + sqrt(1 + zeta * zeta));
    double c = 1 / sqrt(1 + t * t), s = c * t;
    for (int i = 0; i < m; i++) {
        double *x = &u[i + (size_t)p * ldu], *y = &u[i + (size_t)q * ldu], old = *x;
        *x = c * old - s * *y, *y = s * old + c * *y;
    }
    for (int i = 0; i < n; i++) {
        double *x = &v[i + (size_t)p * ldv], *y = &v[i + (size_t)q * ldv], old = *x;
        *x = c * old - s * *y, *y = s * old + c * *y;
    }
    return 1;
}

static void swap_columns(double *x, int ld, int rows, int p, int q)
{
    for (int i = 0; i < rows; i++) {
        double old = x[i + (size_t)p * ld];
        x[i + (size_t)p * ld] = x[i + (size_t)q * ld];
        x[i + (size_t)q * ld] = old;
    }
}

cusolverStatus_t cusolverDnDgesvdj(cusolverDnHandle_t handle, cusolverEigMode_t mode, int econ, int m, int n,
                                   double *a, int lda, double *s, double *u, int ldu, double *v, int ldv,
                                   double *work, int lwork, int *info, gesvdjInfo_t params)
{
    (void)handle, (void)mode, (void)econ, (void)work, (void)lwork, (void)params;
    for (int j = 0; j < n; j++) {
        memcpy(u + (size_t)j * ldu, a + (size_t)j * lda, sizeof *a * (size_t)m);
        for (int i = 0; i < n; i++) v[i + (size_t)j * ldv] = i == j;
    }
    for (int sweep = 0, left = 1; left && sweep < 60; sweep++) {
        left = 0;
        for (int p = 0; p < n; p++)
            for (int q = p + 1; q < n; q++) left += turn(u, ldu, m, v, ldv, n, p, q);
    }
    for (int j = 0; j < n; j++) {
        double sum = 0;
        for (int i = 0; i < m; i++) sum += u[i + (size_t)j * ldu] * u[i + (size_t)j * ldu];
        s[j] = sqrt(sum);
        for (int i = 0; i < m && s[j] > 0; i++) u[i + (size_t)j * ldu] /= s[j];
    }
    for (int j = 0; j < n; j++) { /* the largest first */
        int top = j;
        for (int i = j + 1; i < n; i++)
            if (s[i] > s[top]) top = i;
        swap_columns(s, 1, 1, j, top);
        swap_columns(u, ldu, m, j, top);
        swap_columns(v, ldv, n, j, top);
    }
    *info = 0;
    return CUSOLVER_STATUS_SUCCESS;
}
#endif
