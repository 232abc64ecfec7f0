/* cpu_gemm_act.c -- gemm_act: a product by cpu_gemm.c or cpu_gemm_tiles.c, and bias, activation, slope,
 * factor or the sum with a stream on every part of it while it is in the cache.
 *
 * Element by element from the product's stored value, so the bits are those of the ops one after the other,
 * gelu in bf16 apart (gelu_bf16_elem.h).
 */
#include "cpu_convert.h"
#include "cpu_scalars.h"
#include "cpu_vec.h"
#include "math/gelu_bf16_elem.h"
#include "math/activation_elem.h"

#define CHUNK 512 /* elements of a row at a time */

#include "cpu_as_f32.inc"
#include "cpu_gemm_act.inc"
#include "cpu_as_f64.inc"
#include "cpu_gemm_act.inc"

/* RESIDUAL: times a row's factor to D, which is f32, after a bias in f32; RESIDUAL_LOW: rounded to bf16
 * before and after the bias */
typedef enum { FACTOR, BIAS, GELU, GELU_ONLY, RESIDUAL, RESIDUAL_LOW } plain_kind;

/* n <= PL_ROUNDED elements of a row as floats and back. Whole rows of bf16 are taken as pairs where vectors
 * have 16 of them: even columns, then odd ones, and so is the bias. */
#ifdef __AVX512BW__
#define PAIRS(dtype, n) ((dtype) == POLAR_DTYPE_BF16 && (n) == PL_ROUNDED)
#endif

PL_INLINE void row_in(float *v, const void *x, const polar_dtype dtype, const int n)
{
#ifdef __AVX512BW__
    if (PAIRS(dtype, n)) {
        const pl_pairs_f32 p = pl_widened16(_mm512_loadu_si512(x));
        _mm512_storeu_ps(v, p.low), _mm512_storeu_ps(v + 16, p.high);
        return;
    }
#endif
    pl_row_load_f32(v, x, dtype, 0, n);
}

PL_INLINE void bias_in(float *b, const float *bias, const polar_dtype dtype, const int n)
{
#ifdef __AVX512BW__
    if (PAIRS(dtype, n)) {
        const pl_pairs_f32 p = pl_by_twos(_mm512_loadu_ps(bias), _mm512_loadu_ps(bias + 16));
        _mm512_storeu_ps(b, p.low), _mm512_storeu_ps(b + 16, p.high);
        return;
    }
#endif
    (void)dtype;
    memcpy(b, bias, (size_t)n * sizeof(float));
}

PL_INLINE void row_out(void *y, const float *v, const polar_dtype dtype, const int n, const int nontemporal)
{
#ifdef __AVX512BW__
    if (PAIRS(dtype, n)) {
        pl_store_nontemporal(y, pl_pairs16(_mm512_loadu_ps(v), _mm512_loadu_ps(v + 16)), nontemporal);
        return;
    }
#endif
    if (n == PL_ROUNDED) pl_store_some(y, dtype, v, nontemporal);
    else pl_row_store_f32(y, dtype, 0, v, n);
}

/* What the layers of a transformer do: some rows of Y from the product's at x, and what lies beside them,
 * factors, room for slopes or an addend, in Y's format; the bias is f32. Steps in bytes. */
typedef struct {
    char *y, *operand;
    const char *x;
    int64_t rows, y_step, x_step, overlap_step;
    int nontemporal, operand_nontemporal;
    const float *s;           /* RESIDUAL: the factor of the first row's group, */
    int64_t s_step, each, at; /* the next one's place, rows of a group, the first row's place among them */
} plain;

/* n <= PL_ROUNDED columns. */
PL_INLINE void plain_some(plain k, const float *bias, const plain_kind kind, const polar_dtype dtype,
                          const int n)
{
    float b[PL_ROUNDED];
    if (kind != FACTOR) bias_in(b, bias, dtype, n);
    for (int64_t r = 0; r < k.rows; r++, k.y += k.y_step, k.x += k.x_step, k.operand += k.overlap_step) {
        float v[PL_ROUNDED], f[PL_ROUNDED]; /* f: factors, slopes or the addend */
        row_in(v, k.x, dtype, n);
        if (kind == RESIDUAL || kind == RESIDUAL_LOW) {
            const float s = *k.s;
            row_in(f, k.operand, dtype, n);
#pragma omp simd
            for (int p = 0; p < n; p++) {
                const float u = kind == RESIDUAL ? v[p] + b[p] : pl_bf16_round(pl_bf16_round(v[p]) + b[p]);
                v[p] = pl_fused_f32(s, u, f[p]);
            }
            if (++k.at == k.each) k.at = 0, k.s += k.s_step;
        } else if (kind == FACTOR) {
            row_in(f, k.operand, dtype, n);
#pragma omp simd
            for (int p = 0; p < n; p++) v[p] *= f[p];
        } else if (kind == BIAS) {
#pragma omp simd
            for (int p = 0; p < n; p++) v[p] += b[p];
        } else {
#pragma omp simd
            for (int p = 0; p < n; p++) v[p] = pl_gelu_bf16(v[p] + b[p], &f[p]);
        }
        row_out(k.y, v, dtype, n, k.nontemporal);
        if (kind == GELU) row_out(k.operand, f, dtype, n, k.operand_nontemporal);
    }
}

PL_INLINE void plain_rows(const pl_epilogue *t, const pl_gemm_rows *p, const plain_kind kind,
                          const polar_dtype dtype)
{
    const pl_args_gemm_act *a = t->arg;
    const int64_t size = dtype == POLAR_DTYPE_BF16 ? 2 : 4, cols = p->cols;
    const int residual = kind == RESIDUAL || kind == RESIDUAL_LOW;
    const pl_mat *m = kind == FACTOR ? &a->F : kind == GELU ? &a->S : residual ? &a->D : &a->Y;
    /* Y: not used */
    const float *bias =
        kind == FACTOR ? NULL : (const float *)a->b.data + (a->b.batch == 1 ? 0 : p->b * a->b.bs) + p->j;
    plain k = {.y = (char *)a->Y.data + (p->b * a->Y.bs + p->i * a->Y.rs + p->j) * size,
               .operand = (char *)m->data + (p->b * m->bs + p->i * m->rs + p->j) * size,
               .rows = p->rows,
               .y_step = a->Y.rs * size,
               .x_step = (p->staged ? p->step : a->Y.rs) * size,
               .overlap_step = m->rs * size,
               .nontemporal = p->staged && t->nontemporal,
               .operand_nontemporal = p->staged && t->operand_nontemporal};
    k.x = p->staged ? p->staged : k.y;
    if (residual) {
        k.each = a->Y.rows / a->s.rows, k.at = p->i % k.each, k.s_step = a->s.rs;
        k.s = (const float *)a->s.data + p->b * a->s.bs + p->i / k.each * k.s_step;
    }
    int64_t c = 0;
    for (; c + PL_ROUNDED <= cols;
         c += PL_ROUNDED, k.y += PL_ROUNDED * size, k.x += PL_ROUNDED * size, k.operand += PL_ROUNDED * size)
        plain_some(k, bias ? bias + c : NULL, kind, dtype, PL_ROUNDED);
    if (c < cols) plain_some(k, bias ? bias + c : NULL, kind, dtype, (int)(cols - c));
}

#define PLAIN_TAIL(name, kind, dtype)                             \
    static void name(const pl_epilogue *t, const pl_gemm_rows *p) \
    {                                                             \
        plain_rows(t, p, kind, dtype);                            \
    }
PLAIN_TAIL(factor_tail, FACTOR, POLAR_DTYPE_BF16)
PLAIN_TAIL(bias_tail, BIAS, POLAR_DTYPE_BF16)
PLAIN_TAIL(bias_f32_tail, BIAS, POLAR_DTYPE_F32)
PLAIN_TAIL(gelu_tail, GELU, POLAR_DTYPE_BF16)
PLAIN_TAIL(gelu_only_tail, GELU_ONLY, POLAR_DTYPE_BF16)
PLAIN_TAIL(residual_tail, RESIDUAL, POLAR_DTYPE_F32)
PLAIN_TAIL(residual_low_tail, RESIDUAL_LOW, POLAR_DTYPE_F32)

static int is(const pl_mat *m, polar_dtype dtype)
{
    return m->data && m->dtype == dtype;
}

/* What follows the product of these operands. */
static void (*epilogue_of(const pl_args_gemm_act *a))(const pl_epilogue *, const pl_gemm_rows *)
{
    int narrow = is(&a->Y, POLAR_DTYPE_BF16), bias = is(&a->b, POLAR_DTYPE_F32);
    if (a->s.data) {
        int wide =
            bias && is(&a->Y, POLAR_DTYPE_F32) && is(&a->D, POLAR_DTYPE_F32) && is(&a->s, POLAR_DTYPE_F32);
        if (wide && is(&a->A, POLAR_DTYPE_F32)) return residual_tail;
        if (wide && is(&a->A, POLAR_DTYPE_BF16)) return residual_low_tail;
        return is(&a->Y, POLAR_DTYPE_F64) ? act_epilogue_f64 : act_epilogue_f32;
    }
    if (narrow && is(&a->F, POLAR_DTYPE_BF16)) return factor_tail;
    if (bias && !a->S.data && a->act == PL_ACT_NONE && narrow) return bias_tail;
    if (bias && !a->S.data && a->act == PL_ACT_NONE && is(&a->Y, POLAR_DTYPE_F32)) return bias_f32_tail;
    if (bias && narrow && a->act == PL_ACT_GELU && !a->S.data) return gelu_only_tail;
    if (bias && narrow && a->act == PL_ACT_GELU && is(&a->S, POLAR_DTYPE_BF16)) return gelu_tail;
    return pl_any_f64(pl_op_operands(a), 7) ? act_epilogue_f64 : act_epilogue_f32;
}

void PL_ISA_NAME(pl_cpu_gemm_act)(pl_queue *q, const pl_args_gemm_act *a)
{
    pl_args_gemm g = {
        .C = a->Y, .A = a->A, .B = a->B, .D = a->D, .tb = a->tb, .alpha = 1, .beta = a->D.data ? 1 : 0};
    pl_epilogue epilogue = {.fn = epilogue_of(a),
                            .arg = a,
                            .operand = a->F.data   ? &a->F
                                       : a->S.data ? &a->S
                                                   : NULL,
                            .operand_written = !a->F.data};
    if (a->s.data) { /* D waits for what follows */
        g.D = (pl_mat){0}, g.beta = 0;
        epilogue.operand = &a->D, epilogue.operand_written = 0;
    }
    if (epilogue.fn != act_epilogue_f32 && epilogue.fn != act_epilogue_f64) {
        epilogue.nontemporal = pl_nontemporal_result(&a->Y, &a->D);
        epilogue.operand_nontemporal = pl_nontemporal(&a->S);
        if (epilogue.operand_nontemporal) epilogue.operand = NULL;
    }
    PL_ISA_NAME(pl_cpu_gemm_then)(q, &g, &epilogue);
}
