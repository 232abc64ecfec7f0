/* hd.h -- marks a function of the element tier: compiled by cc for the host and by nvcc for both. */
#ifndef PL_MATH_HD_H
#define PL_MATH_HD_H

#ifdef __CUDACC__
#define PL_HD static __host__ __device__ __forceinline__
#else
#define PL_HD static inline __attribute__((always_inline))
#endif

#endif
