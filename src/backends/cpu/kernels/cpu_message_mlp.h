/* cpu_message_mlp.h -- the radial MLP of a message in double: distances -> hidden values, and the products
 * around them (cpu_message_mlp.c). */
#ifndef PL_CPU_MESSAGE_MLP_H
#define PL_CPU_MESSAGE_MLP_H

#include "../cpu_kernels.h"
#include "../cpu_message.h"

/* The weights of member e as doubles, padded with zeros; returns the largest |w0|; *usable: none is too large
 * for a table, or not finite. */
double PL_ISA_NAME(pl_message_mlp_load)(pl_message_member *m, const pl_message_args *a,
                                        const pl_message_plan *p, int64_t e, int *usable);

/* z = silu(w0 d + b0) and, where slope is not NULL, silu' there: (n, hp). */
void PL_ISA_NAME(pl_message_mlp_hidden)(const double *w0, const double *b0, int64_t hp, const double *d,
                                        int64_t n, double *z, double *slope);

/* C (rows, cols) += A B, A's entry (i, k) at A[i ar + k ac], cols a multiple of 16: one chain of fma per
 * entry, k ascending. */
void PL_ISA_NAME(pl_message_mlp_multiply)(double *C, int64_t ldc, const double *A, int64_t ar, int64_t ac,
                                          const double *B, int64_t ldb, int64_t rows, int64_t inner,
                                          int64_t cols);

#endif
