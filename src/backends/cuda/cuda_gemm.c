/* cuda_gemm.c -- products by cuBLASLt, the algorithm pinned per shape; large symmetric ones (cuda_hopper.h),
 * those of many rows with a small matrix (cuda_gemm_act.h), large and middling ones in f32 (cuda_split.h,
 * cuda_parts.h; cuda_hopper_parts.h where calls are put off) by our own kernels.
 *
 * A row-major C = op(A) op(B) is the column-major C^T = op(B)^T op(A)^T on the same memory. The algorithm is
 * looked up once per (formats, sizes, transposes, row strides) with a nominal batch that depends on the
 * shape, never with the batch at hand, and reductions that split K are ruled out: a matrix's product does not
 * depend on what else is in its batch. What cuBLASLt refuses goes to cuda_gemm_plain.cu, by the same key.
 * Which symmetric products are halved is a matter of the shape, too. In tf32 cuBLASLt rounds the factors on
 * their way to the tensor cores: NVIDIA does not say how.
 */
#include <cublasLt.h>
#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

#include "base/alloc.h"
#include "cuda_hopper.h"
#include "cuda_hopper_parts.h"
#include "cuda_kernels.h"
#include "cuda_parts.h"
#include "cuda_split.h"
#include "cuda_state.h"

#define MAX_BATCH      65535
#define ALONE_ELEMENTS (1 << 19) /* results at least this large come alone, ... */
/* ... smaller ones in numbers: what the heuristic is told, whatever the real batch */
#define NOMINAL_BATCH 12

/* The functions of cuBLASLt that are used, loaded by name. */
/* clang-format off */
#define LT_FUNCTIONS(X) \
    X(cublasLtCreate) X(cublasLtDestroy) X(cublasLtMatmul) X(cublasLtMatmulDescCreate) \
    X(cublasLtMatmulDescDestroy) X(cublasLtMatmulDescSetAttribute) X(cublasLtMatrixLayoutCreate) \
    X(cublasLtMatrixLayoutDestroy) X(cublasLtMatrixLayoutSetAttribute) X(cublasLtMatmulPreferenceCreate) \
    X(cublasLtMatmulPreferenceDestroy) X(cublasLtMatmulPreferenceSetAttribute) \
    X(cublasLtMatmulAlgoGetHeuristic)
/* clang-format on */

typedef struct {
    int32_t ab, c; /* formats of the factors and of the result */
    int32_t ta, tb, addend;
    int32_t tf32;
    int64_t m, n, k, lda, ldb, ldc, ldd;
} gemm_key;

typedef struct gemm_plan {
    gemm_key key;
    int plain; /* cuBLASLt has nothing: use our own kernel */
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t a, b, c, d;
    cublasLtMatmulAlgo_t algo;
    struct gemm_plan *next;
} gemm_plan;

struct pl_cuda_lt {
    void *library;
    cublasLtHandle_t handle;
    pthread_mutex_t lock; /* of the list: queues of one device may be driven by several threads */
    gemm_plan *plans;
    pl_hopper_device hopper; /* no multiprocessors: not for this device */
#define X(f) __typeof__(f) *f;
    LT_FUNCTIONS(X)
#undef X
};

static void plan_free(pl_cuda_lt *lt, gemm_plan *p)
{
    if (p->desc) lt->cublasLtMatmulDescDestroy(p->desc);
    if (p->a) lt->cublasLtMatrixLayoutDestroy(p->a);
    if (p->b) lt->cublasLtMatrixLayoutDestroy(p->b);
    if (p->c) lt->cublasLtMatrixLayoutDestroy(p->c);
    if (p->d) lt->cublasLtMatrixLayoutDestroy(p->d);
    pl_free(p);
}

void pl_cuda_lt_close(pl_cuda_lt *lt)
{
    if (!lt) return;
    while (lt->plans) {
        gemm_plan *p = lt->plans;
        lt->plans = p->next;
        plan_free(lt, p);
    }
    if (lt->handle) lt->cublasLtDestroy(lt->handle);
    if (lt->library) dlclose(lt->library);
    pthread_mutex_destroy(&lt->lock);
    pl_free(lt);
}

static polar_status lt_load(pl_cuda_lt *lt, const pl_device *dev)
{
    lt->library = pl_cuda_library("libcublasLt", 12, CUBLAS_VER_MAJOR);
    PL_NEED(
        lt->library, POLAR_E_DEVICE,
        "%s: libcublasLt.so.12 to %d of the CUDA toolkit is not found (put its folder into LD_LIBRARY_PATH)",
        dev->name, CUBLAS_VER_MAJOR);
#define X(f)                                   \
    *(void **)&lt->f = dlsym(lt->library, #f); \
    PL_NEED(lt->f, POLAR_E_DEVICE, "%s: cuBLASLt lacks " #f, dev->name);
    LT_FUNCTIONS(X)
#undef X
    PL_NEED(lt->cublasLtCreate(&lt->handle) == CUBLAS_STATUS_SUCCESS, POLAR_E_DEVICE,
            "%s: cuBLASLt does not start (out of device memory?)", dev->name);
    return POLAR_OK;
}

polar_status pl_cuda_lt_open(pl_cuda_lt **out, const pl_device *dev)
{
    pl_cuda_lt *lt = pl_calloc(1, sizeof *lt);
    *out = NULL;
    PL_NEED(lt, POLAR_E_NOMEM, "cuBLASLt's data");
    pthread_mutex_init(&lt->lock, NULL);
    lt->hopper = pl_hopper_open();
    polar_status st = lt_load(lt, dev);
    if (st != POLAR_OK) pl_cuda_lt_close(lt);
    else *out = lt;
    return st;
}

const pl_hopper_device *pl_cuda_hopper(const pl_device *dev)
{
    return &pl_cuda_dev(dev)->lt->hopper;
}

/* ---- plans -------------------------------------------------------------------------------------- */

static cudaDataType_t data_type(int32_t dtype)
{
    switch (dtype) {
    case POLAR_DTYPE_F64: return CUDA_R_64F;
    case POLAR_DTYPE_F32: return CUDA_R_32F;
    case POLAR_DTYPE_F16: return CUDA_R_16F;
    default: return CUDA_R_16BF;
    }
}

/* A stored row-major matrix seen column-major: rows and columns change places. */
static int layout_make(pl_cuda_lt *lt, cublasLtMatrixLayout_t *out, int32_t batch, int32_t dtype,
                       int64_t rows, int64_t cols, int64_t ld)
{
    int64_t stride = rows * ld;
    return lt->cublasLtMatrixLayoutCreate(out, data_type(dtype), (uint64_t)cols, (uint64_t)rows, ld) ==
               CUBLAS_STATUS_SUCCESS &&
           lt->cublasLtMatrixLayoutSetAttribute(*out, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch,
                                                sizeof batch) == CUBLAS_STATUS_SUCCESS &&
           lt->cublasLtMatrixLayoutSetAttribute(*out, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride,
                                                sizeof stride) == CUBLAS_STATUS_SUCCESS;
}

/* The alignment that a row stride leaves to every row, in bytes, at most 16. */
static uint32_t alignment(int32_t dtype, int64_t ld)
{
    uint64_t bytes = (uint64_t)ld * polar_dtype_size((polar_dtype)dtype);
    return bytes % 16 == 0 ? 16 : (uint32_t)(bytes & (~bytes + 1));
}

static int plan_search(pl_cuda_lt *lt, gemm_plan *p)
{
    const gemm_key *k = &p->key;
    cublasLtMatmulPreference_t pref = NULL;
    cublasLtMatmulHeuristicResult_t found = {0};
    size_t workspace = PL_CUDA_WORKSPACE;
    uint32_t no_split = CUBLASLT_REDUCTION_SCHEME_NONE, align_b = alignment(k->ab, k->ldb),
             align_a = alignment(k->ab, k->lda);
    uint32_t align_c = alignment(k->c, k->addend ? k->ldd : k->ldc), align_d = alignment(k->c, k->ldc);
    int count = 0;
    if (lt->cublasLtMatmulPreferenceCreate(&pref) != CUBLAS_STATUS_SUCCESS) return 0;
    lt->cublasLtMatmulPreferenceSetAttribute(pref, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                                             sizeof workspace);
    lt->cublasLtMatmulPreferenceSetAttribute(pref, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &no_split,
                                             sizeof no_split);
    /* their A is our B */
    lt->cublasLtMatmulPreferenceSetAttribute(pref, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &align_b,
                                             sizeof align_b);
    lt->cublasLtMatmulPreferenceSetAttribute(pref, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &align_a,
                                             sizeof align_a);
    lt->cublasLtMatmulPreferenceSetAttribute(pref, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &align_c,
                                             sizeof align_c);
    lt->cublasLtMatmulPreferenceSetAttribute(pref, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &align_d,
                                             sizeof align_d);
    cublasStatus_t st = lt->cublasLtMatmulAlgoGetHeuristic(lt->handle, p->desc, p->a, p->b, p->c, p->d, pref,
                                                           1, &found, &count);
    lt->cublasLtMatmulPreferenceDestroy(pref);
    p->algo = found.algo;
    return st == CUBLAS_STATUS_SUCCESS && count == 1 && found.state == CUBLAS_STATUS_SUCCESS;
}

static int plan_describe(pl_cuda_lt *lt, gemm_plan *p)
{
    const gemm_key *k = &p->key;
    int f64 = k->ab == POLAR_DTYPE_F64;
    int32_t batch = k->m * k->n >= ALONE_ELEMENTS ? 1 : NOMINAL_BATCH;
    cublasOperation_t first = k->tb ? CUBLAS_OP_T : CUBLAS_OP_N, second = k->ta ? CUBLAS_OP_T : CUBLAS_OP_N;
    int64_t a_rows = k->ta ? k->k : k->m, a_cols = k->ta ? k->m : k->k, b_rows = k->tb ? k->n : k->k,
            b_cols = k->tb ? k->k : k->n;
    cublasComputeType_t compute = f64       ? CUBLAS_COMPUTE_64F
                                  : k->tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32
                                            : CUBLAS_COMPUTE_32F;
    return lt->cublasLtMatmulDescCreate(&p->desc, compute, f64 ? CUDA_R_64F : CUDA_R_32F) ==
               CUBLAS_STATUS_SUCCESS &&
           lt->cublasLtMatmulDescSetAttribute(p->desc, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first) ==
               CUBLAS_STATUS_SUCCESS &&
           lt->cublasLtMatmulDescSetAttribute(p->desc, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof second) ==
               CUBLAS_STATUS_SUCCESS &&
           layout_make(lt, &p->a, batch, k->ab, b_rows, b_cols, k->ldb) &&
           layout_make(lt, &p->b, batch, k->ab, a_rows, a_cols, k->lda) &&
           layout_make(lt, &p->c, batch, k->c, k->m, k->n, k->addend ? k->ldd : k->ldc) &&
           layout_make(lt, &p->d, batch, k->c, k->m, k->n, k->ldc) && plan_search(lt, p);
}

/* The plan of a key, made at its first use; NULL when memory is short. Call with the lock held. */
static gemm_plan *plan_find(pl_cuda_lt *lt, const gemm_key *key)
{
    for (gemm_plan *p = lt->plans; p; p = p->next)
        if (!memcmp(&p->key, key, sizeof *key)) return p;
    gemm_plan *p = pl_calloc(1, sizeof *p);
    if (!p) return NULL;
    p->key = *key;
    p->plain = !plan_describe(lt, p);
    p->next = lt->plans;
    lt->plans = p;
    return p;
}

/* ---- the op ------------------------------------------------------------------------------------- */

static int64_t row_stride(const pl_mat *m)
{
    return m->rows > 1 ? m->rs : m->cols; /* one row has no stride of its own */
}

static gemm_key key_of(const pl_args_gemm *a)
{
    gemm_key k = {.ab = a->A.dtype,
                  .c = a->C.dtype,
                  .ta = a->ta != 0,
                  .tb = a->tb != 0,
                  .addend = a->D.data != NULL,
                  .tf32 = a->tf32 != 0};
    k.m = a->C.rows;
    k.n = a->C.cols;
    k.k = a->ta ? a->A.rows : a->A.cols;
    k.lda = row_stride(&a->A);
    k.ldb = row_stride(&a->B);
    k.ldc = row_stride(&a->C);
    k.ldd = a->D.data ? row_stride(&a->D) : 0;
    return k;
}

/* Formats that cuBLASLt mixes, and pointers as aligned as the row strides promise. */
static int suits(const pl_args_gemm *a, const gemm_key *k)
{
    const pl_mat *m[] = {&a->A, &a->B, &a->C, &a->D};
    if (a->A.dtype != a->B.dtype || (a->D.data && a->D.dtype != a->C.dtype)) return 0;
    if (a->C.dtype != a->A.dtype && !(a->A.dtype == POLAR_DTYPE_BF16 && a->C.dtype == POLAR_DTYPE_F32))
        return 0;
    if (!k->k || k->m > INT32_MAX || k->n > INT32_MAX || k->k > INT32_MAX) return 0;
    for (int i = 0; i < 4; i++) {
        if (!m[i]->data) continue;
        uint32_t align = alignment(m[i]->dtype, row_stride(m[i]));
        if ((uintptr_t)m[i]->data % align ||
            (m[i]->batch > 1 && (uint64_t)m[i]->bs * polar_dtype_size(m[i]->dtype) % align))
            return 0;
    }
    return 1;
}

static void set_batch(pl_cuda_lt *lt, cublasLtMatrixLayout_t layout, const pl_mat *m, int64_t batch)
{
    int32_t count = (int32_t)batch;
    int64_t stride = m->batch > 1 ? m->bs : 0;
    lt->cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count);
    lt->cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride,
                                         sizeof stride);
}

static cublasStatus_t multiply(pl_queue *q, pl_cuda_lt *lt, gemm_plan *p, const pl_args_gemm *a)
{
    pl_cuda_queue *c = pl_cuda_q(q);
    double alpha = a->alpha, beta = a->D.data ? a->beta : 0;
    float alpha32 = (float)alpha, beta32 = (float)beta;
    int f64 = a->A.dtype == POLAR_DTYPE_F64;
    const pl_mat *addend = a->D.data ? &a->D : &a->C;
    set_batch(lt, p->a, &a->B, a->C.batch);
    set_batch(lt, p->b, &a->A, a->C.batch);
    set_batch(lt, p->c, addend, a->C.batch);
    set_batch(lt, p->d, &a->C, a->C.batch);
    return lt->cublasLtMatmul(lt->handle, p->desc, f64 ? (void *)&alpha : (void *)&alpha32, a->B.data, p->a,
                              a->A.data, p->b, f64 ? (void *)&beta : (void *)&beta32, addend->data, p->c,
                              a->C.data, p->d, &p->algo, c->workspace, PL_CUDA_WORKSPACE, c->stream);
}

/* A symmetric product by halves, where that is known to be faster; 0 where it is not done. */
static int multiply_half(pl_queue *q, const pl_cuda_lt *lt, const pl_args_gemm *a)
{
    const pl_mat *D = a->D.data ? &a->D : NULL;
    int wide = D && D->dtype == POLAR_DTYPE_F32; /* cuBLASLt has nothing for that */
    if (!a->sym || a->ta || !a->tb || !lt->hopper.multiprocessors ||
        (!wide && !pl_hopper_pays(a->C.rows, a->A.cols)))
        return 0;
    if (polar_dtype_size(a->A.dtype) != 2 || a->B.dtype != a->A.dtype || a->C.dtype != a->A.dtype) return 0;
    if (D && D->dtype != a->C.dtype && !wide) return 0;
    pl_hopper_product p = {
        .C = a->C.data,
        .A = a->A.data,
        .B = a->B.data,
        .D = D ? D->data : NULL,
        .m = a->C.rows,
        .k = a->A.cols,
        .batch = a->C.batch,
        .ldc = a->C.rs,
        .lda = a->A.rs,
        .ldb = a->B.rs,
        .ldd = D ? D->rs : 0,
        .bsc = a->C.bs,
        .bsa = a->A.bs,
        .bsb = a->B.bs,
        .bsd = D ? D->bs : 0,
        .alpha = (float)a->alpha,
        .beta = (float)a->beta,
        .half = a->A.dtype == POLAR_DTYPE_F16,
        .d_f32 = wide,
    };
    if (!pl_hopper_suits(&p)) return 0;
    cudaError_t e =
        pl_hopper_multiply(&lt->hopper, pl_cuda_q(q)->stream, &p, pl_hopper_plan_for(&lt->hopper, &p));
    if (e != cudaSuccess) pl_queue_keep(q, pl_cuda_fail(e, "launching a symmetric product", q->dev));
    return 1;
}

/* A large f32 product in bf16 parts; 0 where it is not done. */
static int multiply_split(pl_queue *q, const pl_cuda_lt *lt, const pl_args_gemm *a)
{
    if (!lt->hopper.multiprocessors || !pl_hopper_split_suits(a)) return 0;
    pl_scratch_mark mark = pl_scratch_begin(q);
    void *scratch = pl_scratch_take(q, pl_hopper_split_scratch(a));
    if (scratch) {
        cudaError_t e = pl_hopper_split(&lt->hopper, pl_cuda_q(q)->stream, a, scratch);
        if (e != cudaSuccess) pl_queue_keep(q, pl_cuda_fail(e, "launching an f32 product", q->dev));
    }
    pl_scratch_end(q, mark);
    return 1;
}

void pl_cuda_parts_flush(pl_queue *q)
{
    pl_cuda_queue *c = pl_cuda_q(q);
    pl_hopper_parts_list *list = c->parts;
    if (!list->calls) return;
    cudaError_t e = pl_hopper_parts(&pl_cuda_dev(q->dev)->lt->hopper, c->stream, list, c->counters);
    if (e != cudaSuccess) pl_queue_keep(q, pl_cuda_fail(e, "launching f32 products", q->dev));
    else pl_cuda_check_op(q, PL_OP_gemm, &list->call[0]);
    list->calls = 0;
}

/* With others of the list, at overlap_end; by itself where a watch wants each op's time. Products of other
 * kinds, those in tf32 among them, are launched at once, before those put off ahead of them: by the contract
 * of pl_queue_overlap_begin neither reads what the other writes. */
static void put_parts(pl_queue *q, const pl_args_gemm *a)
{
    pl_hopper_parts_list *list = pl_cuda_q(q)->parts;
    if (list->calls == PL_HOPPER_PARTS_CALLS) pl_cuda_parts_flush(q);
    list->call[list->calls++] = *a;
    if (q->watch) pl_cuda_parts_flush(q);
}

/* A middling one, symmetric or not; 0 where it is not done. The kernel for many calls is slower than the one
 * for a call where it has one only, so which of them it is goes by whether the caller puts calls off,
 * whatever their number: the bits of a matrix in the one or the other do not depend on what else is there. */
static int multiply_parts(pl_queue *q, const pl_cuda_lt *lt, const pl_args_gemm *a)
{
    if (q->overlap && lt->hopper.multiprocessors && pl_hopper_parts_suits(a)) {
        put_parts(q, a);
        return 1;
    }
    if (!pl_cuda_parts_suits(a)) return 0;
    cudaError_t e = pl_cuda_parts(pl_cuda_q(q)->stream, a);
    if (e != cudaSuccess) pl_queue_keep(q, pl_cuda_fail(e, "launching an f32 product", q->dev));
    return 1;
}

/* A product in 16 bits that is added to what stands in its own place has other bits by cuBLASLt, as if it
 * were rounded twice; so a copy of that is added, and the bits are those of an addend elsewhere. */
static int in_place(const pl_args_gemm *a)
{
    return a->D.data && a->D.data == a->C.data && polar_dtype_size(a->C.dtype) == 2;
}

size_t pl_cuda_gemm_scratch(const pl_args_gemm *a)
{
    if (pl_hopper_split_suits(a))
        return pl_hopper_split_scratch(a); /* on Hopper; elsewhere it stays unused */
    return in_place(a) ? pl_mat_bytes(&a->C) : 0;
}

static void gemm_piece(pl_queue *q, const pl_args_gemm *a)
{
    pl_cuda_lt *lt = pl_cuda_dev(q->dev)->lt;
    gemm_key key = key_of(a);
    char line[400];
    int done = multiply_half(q, lt, a) || (!a->tf32 && pl_cuda_gemm_rows(q, a)) || multiply_split(q, lt, a) ||
               multiply_parts(q, lt, a);
    if (!done && suits(a, &key)) {
        pthread_mutex_lock(&lt->lock);
        gemm_plan *p = plan_find(lt, &key);
        cublasStatus_t st = p && !p->plain ? multiply(q, lt, p, a) : CUBLAS_STATUS_SUCCESS;
        done = p && !p->plain;
        pthread_mutex_unlock(&lt->lock);
        if (!p) PL_QUEUE_FAIL(q, POLAR_E_NOMEM, "a product's plan");
        if (st != CUBLAS_STATUS_SUCCESS)
            PL_QUEUE_FAIL(q, POLAR_E_DEVICE, "%s: %s: cuBLASLt status %d", q->dev->name,
                          pl_op_print(line, sizeof line, PL_OP_gemm, a), (int)st);
    }
    if (!done) pl_cuda_launch_gemm(pl_cuda_q(q)->stream, a);
    pl_cuda_check_op(q, PL_OP_gemm, a);
}

/* A matrix of the batch that serves all stays where it is. */
static pl_mat piece_of(const pl_mat *m, int64_t first, int64_t batch)
{
    return m->batch == 1 || !m->data ? *m : pl_mat_at(*m, first, batch);
}

/* In pieces that a grid's third dimension can count. */
void pl_cuda_gemm(pl_queue *q, const pl_args_gemm *given)
{
    pl_args_gemm own = *given, *a = &own;
    pl_scratch_mark mark = pl_scratch_begin(q);
    if (in_place(given)) {
        own.D = pl_scratch_mat(q, given->D.dtype, given->D.batch, given->D.rows, given->D.cols);
        if (own.D.data) pl_cuda_copy(q, &(pl_args_copy){.Y = own.D, .X = given->D});
    }
    for (int64_t first = 0; first < a->C.batch && q->error == POLAR_OK; first += MAX_BATCH) {
        int64_t batch = a->C.batch - first < MAX_BATCH ? a->C.batch - first : MAX_BATCH;
        pl_args_gemm piece = *a;
        piece.A = piece_of(&a->A, first, batch);
        piece.B = piece_of(&a->B, first, batch);
        piece.C = piece_of(&a->C, first, batch);
        piece.D = piece_of(&a->D, first, batch);
        gemm_piece(q, &piece);
    }
    pl_scratch_end(q, mark);
}
