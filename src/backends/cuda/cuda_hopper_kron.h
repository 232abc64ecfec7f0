/* cuda_hopper_kron.h -- kron_sweep by a cluster a matrix, on Hopper (cuda_hopper_kron.cu). */
#ifndef PL_CUDA_HOPPER_KRON_H
#define PL_CUDA_HOPPER_KRON_H

#include <cuda_runtime.h>

#include "device/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* it serves sides of n */
int pl_hopper_sweeps(int64_t n);
size_t pl_hopper_sweep_scratch(const pl_args_kron_sweep *a); /* bytes */
void pl_hopper_sweep(cudaStream_t stream, const pl_args_kron_sweep *a, double *scratch);

#ifdef __cplusplus
}
#endif
#endif
