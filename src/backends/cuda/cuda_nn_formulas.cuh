/* cuda_nn_formulas.cuh -- math/nn_formulas_elem.h by type. */
#ifndef PL_CUDA_NN_FORMULAS_CUH
#define PL_CUDA_NN_FORMULAS_CUH

#include "math/nn_formulas_elem.h"

template <typename REAL> struct nn_formula;

template <> struct nn_formula<float> {
    static __device__ float fused(float a, float x, float y)
    {
        return fmaf(a, x, y);
    }
    static __device__ float activate(float x, int64_t act)
    {
        return pl_activate_f32(x, act);
    }
    static __device__ float activate_back(float dy, float x, int64_t act)
    {
        return pl_activate_back_f32(dy, x, act);
    }
    static __device__ float sigmoid(float x)
    {
        return pl_sigmoid_f32(x);
    }
    static __device__ float dot3(const float *a, const float *b)
    {
        return pl_dot3_f32(a[0], a[1], a[2], b[0], b[1], b[2]);
    }
    static __device__ float norm3(const float *v, float eps)
    {
        return pl_norm3_f32(v[0], v[1], v[2], eps);
    }
    static __device__ float sum_end(float s, float alpha, float z)
    {
        return pl_sum_end_f32(s, alpha, z);
    }
    static __device__ float gate_back(const float *v, const float *dy, float g, float b, float eps, float *s,
                                      float *along, float *tr)
    {
        return pl_gate_back_f32(v, dy, g, b, eps, s, along, tr);
    }
};

template <> struct nn_formula<double> {
    static __device__ double fused(double a, double x, double y)
    {
        return fma(a, x, y);
    }
    static __device__ double activate(double x, int64_t act)
    {
        return pl_activate_f64(x, act);
    }
    static __device__ double activate_back(double dy, double x, int64_t act)
    {
        return pl_activate_back_f64(dy, x, act);
    }
    static __device__ double sigmoid(double x)
    {
        return pl_sigmoid_f64(x);
    }
    static __device__ double dot3(const double *a, const double *b)
    {
        return pl_dot3_f64(a[0], a[1], a[2], b[0], b[1], b[2]);
    }
    static __device__ double norm3(const double *v, double eps)
    {
        return pl_norm3_f64(v[0], v[1], v[2], eps);
    }
    static __device__ double sum_end(double s, double alpha, double z)
    {
        return pl_sum_end_f64(s, alpha, z);
    }
    static __device__ double gate_back(const double *v, const double *dy, double g, double b, double eps,
                                       double *s, double *along, double *tr)
    {
        return pl_gate_back_f64(v, dy, g, b, eps, s, along, tr);
    }
};

#endif
