/* lt_products.h -- the same products by cuBLASLt, loaded by name, for comparison. */
#ifndef LT_PRODUCTS_H
#define LT_PRODUCTS_H

#include <cublasLt.h>
#include <dlfcn.h>
#include <string.h>

#include "../../src/backends/cuda/cuda_hopper.h"

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

/* A product's descriptors and its algorithm, found once. */
struct lt_plan {
    int64_t m, k, batch;
    int half, addend, valid;
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t a, b, c;
    cublasLtMatmulAlgo_t algo;
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

/* Row-major C = A B^T is column-major C^T = B A^T. */
static lt_plan lt_plan_make(lt_library *lt, const pl_hopper_product *p)
{
    lt_plan r = {p->m, p->k, p->batch, p->half, p->D != nullptr};
    cublasOperation_t first = CUBLAS_OP_T, second = CUBLAS_OP_N;
    cublasLtMatmulPreference_t pref;
    cublasLtMatmulHeuristicResult_t found = {};
    size_t workspace = LT_WORKSPACE;
    uint32_t no_split = CUBLASLT_REDUCTION_SCHEME_NONE;
    int count = 0;
    lt->cublasLtMatmulDescCreate(&r.desc, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    lt->cublasLtMatmulDescSetAttribute(r.desc, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first);
    lt->cublasLtMatmulDescSetAttribute(r.desc, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof second);
    r.a = lt_layout(lt, p->half, p->m, p->k, p->ldb, p->bsb, p->batch);
    r.b = lt_layout(lt, p->half, p->m, p->k, p->lda, p->bsa, p->batch);
    r.c = lt_layout(lt, p->half, p->m, p->m, p->ldc, p->bsc, p->batch);
    lt->cublasLtMatmulPreferenceCreate(&pref);
    lt->cublasLtMatmulPreferenceSetAttribute(pref, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                                             sizeof workspace);
    lt->cublasLtMatmulPreferenceSetAttribute(pref, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &no_split,
                                             sizeof no_split);
    r.valid = lt->cublasLtMatmulAlgoGetHeuristic(lt->handle, r.desc, r.a, r.b, r.c, r.c, pref, 1, &found,
                                                 &count) == CUBLAS_STATUS_SUCCESS &&
              count == 1;
    r.algo = found.algo;
    return r;
}

static int lt_multiply(lt_library *lt, cudaStream_t stream, const pl_hopper_product *p)
{
    static lt_plan plans[64];
    static int made;
    lt_plan *r = nullptr;
    float alpha = p->alpha, beta = p->D ? p->beta : 0;
    for (int i = 0; i < made && !r; i++)
        if (plans[i].m == p->m && plans[i].k == p->k && plans[i].batch == p->batch &&
            plans[i].half == p->half && plans[i].addend == (p->D != nullptr))
            r = &plans[i];
    if (!r) {
        if (made == 64) return 0;
        plans[made] = lt_plan_make(lt, p);
        r = &plans[made++];
    }
    return r->valid && lt->cublasLtMatmul(lt->handle, r->desc, &alpha, p->B, r->a, p->A, r->b, &beta,
                                          p->D ? p->D : p->C, r->c, p->C, r->c, &r->algo, lt->workspace,
                                          LT_WORKSPACE, stream) == CUBLAS_STATUS_SUCCESS;
}

#endif
