/* cusolverDn.h -- stands in for cuSOLVER's header where kernels run on the host (cuda_host.h); the library
 * made of it (host_libraries.c) has singular values by one-sided Jacobi rotations. */
#ifndef CUDA_HOST_CUSOLVER_H
#define CUDA_HOST_CUSOLVER_H

#include "cuda_runtime.h"

#define CUSOLVER_VER_MAJOR 12

typedef enum cusolverStatus_t { CUSOLVER_STATUS_SUCCESS = 0 } cusolverStatus_t;
typedef enum cusolverEigMode_t { CUSOLVER_EIG_MODE_NOVECTOR, CUSOLVER_EIG_MODE_VECTOR } cusolverEigMode_t;
typedef void *cusolverDnHandle_t;
typedef void *gesvdjInfo_t;

cusolverStatus_t cusolverDnCreate(cusolverDnHandle_t *out);
cusolverStatus_t cusolverDnDestroy(cusolverDnHandle_t handle);
cusolverStatus_t cusolverDnSetStream(cusolverDnHandle_t handle, cudaStream_t stream);
cusolverStatus_t cusolverDnCreateGesvdjInfo(gesvdjInfo_t *out);
cusolverStatus_t cusolverDnDestroyGesvdjInfo(gesvdjInfo_t info);
cusolverStatus_t cusolverDnDgesvdj_bufferSize(cusolverDnHandle_t handle, cusolverEigMode_t mode, int econ,
                                              int m, int n, const double *a, int lda, const double *s,
                                              const double *u, int ldu, const double *v, int ldv, int *lwork,
                                              gesvdjInfo_t params);
cusolverStatus_t cusolverDnDgesvdj(cusolverDnHandle_t handle, cusolverEigMode_t mode, int econ, int m, int n,
                                   double *a, int lda, double *s, double *u, int ldu, double *v, int ldv,
                                   double *work, int lwork, int *info, gesvdjInfo_t params);

#endif
