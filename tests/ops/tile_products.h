/* tile_products.h -- for test_amx.c: products of bf16 against their order of sums, written down once more. */
#ifndef POLAR_TEST_TILE_PRODUCTS_H
#define POLAR_TEST_TILE_PRODUCTS_H

#include "base/alloc.h"
#include "cpu_bits.h"
#include "math/bf16_elem.h"

#define BF16 POLAR_DTYPE_BF16
#define F32  POLAR_DTYPE_F32

static inline float flush(float x)
{
    return fabsf(x) < 0x1p-126f ? copysignf(0, x) : x;
}

static inline float entry_of(const pl_mat *m, int64_t b, int64_t i, int64_t j, int trans)
{
    const char *at = trans ? element(m, b, j, i) : element(m, b, i, j);
    return (float)pl_load_f64(at, m->dtype, 0);
}

/* The sum of the tile unit: in steps of 32, even k and odd k apart. */
static inline float tile_sum(const pl_mat *A, const pl_mat *B, int ta, int tb, int64_t b, int64_t i,
                             int64_t j, int64_t K)
{
    float sum = 0;
    for (int64_t k0 = 0; k0 < K; k0 += 32) {
        float half[2] = {0, 0};
        for (int64_t k = k0; k < k0 + 32 && k < K; k++) {
            float x = flush(entry_of(A, b, i, k, ta)), y = flush(entry_of(B, b, k, j, tb));
            half[k % 2] = flush(fmaf(x, y, half[k % 2]));
        }
        sum = flush(sum + flush(half[0] + half[1]));
    }
    return sum;
}

/* The sum of dot products: pairs of k ascending, in each the odd one first. */
static inline float dot_sum(const pl_mat *A, const pl_mat *B, int ta, int tb, int64_t b, int64_t i, int64_t j,
                            int64_t K)
{
    float sum = 0;
    for (int64_t k0 = 0; k0 < K; k0 += 2)
        for (int64_t k = k0 + 1; k >= k0; k--)
            if (k < K)
                sum = flush(fmaf(flush(entry_of(A, b, i, k, ta)), flush(entry_of(B, b, k, j, tb)), sum));
    return sum;
}

typedef float sum_of(const pl_mat *A, const pl_mat *B, int ta, int tb, int64_t b, int64_t i, int64_t j,
                     int64_t K);

static inline int64_t product_errors(machine *at, sum_of *sum, shape s, int ta, int tb, polar_dtype out,
                                     polar_dtype d, int has_d, fill how, int64_t pad)
{
    matrix A = ta ? matrix_create(BF16, s.batch, s.K, s.M, pad, how, 1)
                  : matrix_create(BF16, s.batch, s.M, s.K, pad, how, 1);
    matrix B = tb ? matrix_create(BF16, s.batch, s.N, s.K, pad, how, 2)
                  : matrix_create(BF16, s.batch, s.K, s.N, pad, how, 2);
    matrix C = matrix_create(out, s.batch, s.M, s.N, pad, NORMAL, 3),
           D = matrix_create(d, s.batch, s.M, s.N, pad, NORMAL, 4);
    const double alpha = 2.0315, beta = -4.775;
    int64_t bad = 0;
    PL_CALL(gemm, at->q, .C = C.m, .A = A.m, .B = B.m, .D = has_d ? D.m : (pl_mat){0}, .ta = ta, .tb = tb,
            .alpha = alpha, .beta = beta);
    TEST_TRY(polar_queue_sync(at->q));
    for (int64_t b = 0; b < s.batch; b++)
        for (int64_t i = 0; i < s.M; i++)
            for (int64_t j = 0; j < s.N; j++) {
                float x = fmaf((float)alpha, sum(&A.m, &B.m, ta, tb, b, i, j, s.K),
                               (float)beta * (has_d ? entry_of(&D.m, b, i, j, 0) : 0)),
                      y = entry_of(&C.m, b, i, j, 0);
                if (out == BF16) x = pl_bf16_round(x);
                bad += !(x == y || (x != x && y != y));
            }
    bad += guards_broken(&C);
    matrix_destroy(&A), matrix_destroy(&B), matrix_destroy(&C), matrix_destroy(&D);
    return bad;
}

static inline void test_products(machine *one, machine *three, sum_of *sum)
{
    static const shape shapes[] = {{1, 1, 1, 1},
                                   {2, 1, 17, 3},
                                   {3, 13, 33, 7},
                                   {1, 32, 32, 32},
                                   {2, 5, 3, 0},
                                   {1, 150, 40, 0},
                                   {1, 33, 65, 31},
                                   {1, 70, 40, 97},
                                   {1, 20, 30, 1100},
                                   {1, 290, 40, 33},
                                   {1, 40, 430, 33},
                                   {2, 40, 33, 64},
                                   {1, 64, 8, 1056},
                                   /* A^T B: some slices of k, the last one ragged, and parts of C */
                                   {2, 70, 45, 275},
                                   {1, 420, 40, 300},
                                   {1, 33, 400, 290},
                                   {3, 90, 200, 263}};
    int64_t bad = 0, wild = 0, small = 0;
    for (int s = 0; s < COUNT(shapes); s++)
        for (int t = 0; t < 4; t++)
            for (int f = 0; f < 6; f++) {
                if ((double)shapes[s].M * (double)shapes[s].N * (double)shapes[s].K > 200000 && f != t)
                    continue;
                bad += product_errors(s % 2 ? one : three, sum, shapes[s], t & 1, t >> 1, f & 1 ? F32 : BF16,
                                      f & 2 ? F32 : BF16, f < 4, NORMAL, (s + f) % 3);
                if (f < 2)
                    wild += product_errors(one, sum, shapes[s], t & 1, t >> 1, f & 1 ? F32 : BF16, BF16, 0,
                                           WILD, f);
            }
    test_exact("gemm: sums in their order", bad);
    test_exact("gemm: the same, any exponents", wild);
    matrix x = matrix_create(BF16, 50, 16, 16, 0, NORMAL, 5),
           y = matrix_create(BF16, 50, 16, 16, 0, NORMAL, 6);
    pl_alloc_fail_at(1);
    PL_CALL(gemm, one->q, .C = y.m, .A = x.m, .B = x.m, .tb = 1, .alpha = 1);
    small = polar_queue_sync(one->q) != POLAR_OK;
    pl_alloc_fail_at(0);
    test_exact("gemm: small products allocate nothing", small);
    matrix_destroy(&x), matrix_destroy(&y);
}

#endif
