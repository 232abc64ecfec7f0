/* lt_products.h -- the same products by cuBLASLt, loaded by name, for comparison. */
#ifndef LT_PRODUCTS_H
#define LT_PRODUCTS_H

#include <cublasLt.h>
#include <dlfcn.h>
#include <string.h>

#define LT_WORKSPACE (32u << 20)

struct lt_library {
    cublasLtHandle_t handle;
    void *workspace;
/* clang-format off */
#define LT_FUNCTIONS(X) \
    X(cublasLtCreate) X(cublasLtMatmul) X(cublasLtMatmulDescCreate) X(cublasLtMatmulDescSetAttribute) \
    X(cublasLtMatrixLayoutCreate) X(cublasLtMatrixLayoutSetAttribute) X(cublasLtMatmulPreferenceCreate) \
    X(cublasLtMatmulPreferenceSetAttribute) X(cublasLtMatmulAlgoGetHeuristic)
/* clang-format on */
#define X(f) decltype(&::f) f;
    LT_FUNCTIONS(X)
#undef X
};

/* A product's descriptors and its algorithm. */
struct lt_plan {
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t a, b, c;
    cublasLtMatmulAlgo_t algo;
    int valid;
};

static int lt_open(lt_library *lt)
{
    void *lib = dlopen("libcublasLt.so.13", RTLD_NOW);
    if (!lib) lib = dlopen("/usr/local/cuda/lib64/libcublasLt.so.13", RTLD_NOW);
    if (!lib) lib = dlopen("libcublasLt.so", RTLD_NOW);
    if (!lib) return 0;
#define X(f)                                \
    lt->f = (decltype(&::f))dlsym(lib, #f); \
    if (!lt->f) return 0;
    LT_FUNCTIONS(X)
#undef X
    return cudaMalloc(&lt->workspace, LT_WORKSPACE) == cudaSuccess &&
           lt->cublasLtCreate(&lt->handle) == CUBLAS_STATUS_SUCCESS;
}

static cublasLtMatrixLayout_t lt_layout(lt_library *lt, int half, int64_t rows, int64_t cols, int64_t ld,
                                        int64_t bs, int64_t batch)
{
    cublasLtMatrixLayout_t l = nullptr;
    int32_t count = (int32_t)batch;
    lt->cublasLtMatrixLayoutCreate(&l, half ? CUDA_R_16F : CUDA_R_16BF, (uint64_t)cols, (uint64_t)rows, ld);
    lt->cublasLtMatrixLayoutSetAttribute(l, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count);
    lt->cublasLtMatrixLayoutSetAttribute(l, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &bs, sizeof bs);
    return l;
}

/* Row-major C (m, n) = A B^T is column-major C^T = B A^T; turned: B is (k, n) and C = A B. The heuristic is
 * told 1 or 12 matrices, by the size of C (cuda_gemm.c). */
static lt_plan lt_plan_make(lt_library *lt, int64_t m, int64_t n, int64_t k, int turned, int64_t batch)
{
    lt_plan r = {};
    int32_t nominal = m * n >= 1 << 19 ? 1 : 12, real = (int32_t)batch;
    cublasOperation_t first = turned ? CUBLAS_OP_N : CUBLAS_OP_T, second = CUBLAS_OP_N;
    cublasLtMatmulPreference_t pref;
    cublasLtMatmulHeuristicResult_t found = {};
    size_t workspace = LT_WORKSPACE;
    uint32_t no_split = CUBLASLT_REDUCTION_SCHEME_NONE;
    int count = 0;
    lt->cublasLtMatmulDescCreate(&r.desc, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    lt->cublasLtMatmulDescSetAttribute(r.desc, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first);
    lt->cublasLtMatmulDescSetAttribute(r.desc, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof second);
    r.a = turned ? lt_layout(lt, 0, k, n, n, n * k, nominal) : lt_layout(lt, 0, n, k, k, n * k, nominal);
    r.b = lt_layout(lt, 0, m, k, k, m * k, nominal);
    r.c = lt_layout(lt, 0, m, n, n, m * n, nominal);
    lt->cublasLtMatmulPreferenceCreate(&pref);
    lt->cublasLtMatmulPreferenceSetAttribute(pref, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                                             sizeof workspace);
    lt->cublasLtMatmulPreferenceSetAttribute(pref, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &no_split,
                                             sizeof no_split);
    r.valid = lt->cublasLtMatmulAlgoGetHeuristic(lt->handle, r.desc, r.a, r.b, r.c, r.c, pref, 1, &found,
                                                 &count) == CUBLAS_STATUS_SUCCESS &&
              count == 1;
    for (cublasLtMatrixLayout_t x : {r.a, r.b, r.c})
        lt->cublasLtMatrixLayoutSetAttribute(x, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &real, sizeof real);
    r.algo = found.algo;
    return r;
}

static int lt_multiply(lt_library *lt, const lt_plan *r, cudaStream_t stream, void *C, const void *A,
                       const void *B, const void *D, float alpha, float beta)
{
    return r->valid &&
           lt->cublasLtMatmul(lt->handle, r->desc, &alpha, B, r->a, A, r->b, &beta, D ? D : C, r->c, C, r->c,
                              &r->algo, lt->workspace, LT_WORKSPACE, stream) == CUBLAS_STATUS_SUCCESS;
}

#endif
