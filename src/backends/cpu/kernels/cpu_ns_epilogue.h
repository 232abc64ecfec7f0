/* cpu_ns_epilogue.h -- what ends a product of cpu_ns.c: sums of a block to bf16, in the forms that the next
 * product reads.
 *
 * Entries beyond the matrix are zero and stay zero. Rounding needs no case for NaN: every NaN here comes from
 * bf16 or from an instruction, its lower half is zero and its quiet bit set, and so it rounds to itself.
 */
#ifndef PL_CPU_NS_EPILOGUE_H
#define PL_CPU_NS_EPILOGUE_H

#include "cpu_ns.h"

#ifdef PL_TILES

#define PAIRS (PL_BLOCK / 2) /* of rows of a block */

typedef struct {
    unsigned rows;       /* of the block, inside the matrix */
    __mmask16 even, odd; /* columns inside the matrix */
} extent;

/* A block whose sums are made and wait to become R(sums), R(alpha sums + beta D) or R(alpha sums + (beta D +
 * gamma E)). */
typedef struct {
    int waits;
    int full;              /* all of it lies inside the matrix */
    int diagonal;          /* symmetric to the bit */
    pl_bf16 *left, *right; /* the forms to write */
    const float *sums;
    float alpha, beta, gamma;
    const pl_bf16 *D, *E;      /* in the right form, or NULL */
    pl_bf16 *transposed_right; /* of left transposed, or NULL */
    pl_bf16 *transposed_left;  /* of right transposed, or NULL */
    extent e;
} epilogue;

/* 16 entries with their addends, `addends` of them; the factors. Without any the sum; minus zero becomes
 * zero, as in the long form. */
typedef struct {
    __m512 alpha, beta, gamma;
} factors;

PL_INLINE __m512 ended(__m512 x, const factors *f, __m512 d, __m512 e, int addends)
{
    if (!addends) return _mm512_add_ps(x, _mm512_setzero_ps());
    __m512 added = _mm512_mul_ps(f->beta, d);
    return _mm512_fmadd_ps(f->alpha, x, addends == 2 ? _mm512_fmadd_ps(f->gamma, e, added) : added);
}

static int addends_of(const epilogue *p)
{
    return (p->D != NULL) + (p->E != NULL);
}

/* To bf16 in the upper halves; for NaN see above. */
PL_INLINE __m512i rounded(__m512 x)
{
    __m512i u = _mm512_castps_si512(x);
    __mmask16 odd = _mm512_test_epi32_mask(u, _mm512_set1_epi32(0x10000));
    return _mm512_mask_add_epi32(_mm512_add_epi32(u, _mm512_set1_epi32(0x7fff)), odd, u,
                                 _mm512_set1_epi32(0x8000));
}

/* Sums of a pair of rows, even and odd columns. */
typedef struct {
    __m512 even0, odd0, even1, odd1;
} pair_sums;

/* Pair k of a block's rows. */
PL_INLINE void epilogue_sums(const epilogue *p, pair_sums s, int addends, int full, unsigned k)
{
    const factors f = {_mm512_set1_ps(p->alpha), _mm512_set1_ps(p->beta), _mm512_set1_ps(p->gamma)};
    const __m512i zero = _mm512_setzero_si512();
    pl_pairs_f32 d0 = pl_widened16(addends ? _mm512_load_si512(p->D + 32 * k) : zero),
                 d1 = pl_widened16(addends ? _mm512_load_si512(p->D + PL_TILE_SIZE + 32 * k) : zero);
    pl_pairs_f32 e0 = pl_widened16(addends == 2 ? _mm512_load_si512(p->E + 32 * k) : zero),
                 e1 = pl_widened16(addends == 2 ? _mm512_load_si512(p->E + PL_TILE_SIZE + 32 * k) : zero);
    __m512 even0 = ended(s.even0, &f, d0.low, e0.low, addends),
           odd0 = ended(s.odd0, &f, d1.low, e1.low, addends);
    __m512 even1 = ended(s.even1, &f, d0.high, e0.high, addends),
           odd1 = ended(s.odd1, &f, d1.high, e1.high, addends);
    if (!full) {
        __mmask16 in0 = 2 * k < p->e.rows ? 0xffff : 0, in1 = 2 * k + 1 < p->e.rows ? 0xffff : 0;
        even0 = _mm512_maskz_mov_ps(p->e.even & in0, even0), odd0 = _mm512_maskz_mov_ps(p->e.odd & in0, odd0);
        even1 = _mm512_maskz_mov_ps(p->e.even & in1, even1), odd1 = _mm512_maskz_mov_ps(p->e.odd & in1, odd1);
    }
#ifndef PL_TILE_UNIT
    /* sums alone never are */
    if (!addends ||
        !(pl_subnormal16(even0) | pl_subnormal16(odd0) | pl_subnormal16(even1) | pl_subnormal16(odd1))) {
        _mm512_store_si512(p->left + 64 * k, pl_normal_pairs16(even0, odd0));
        _mm512_store_si512(p->left + 64 * k + 32, pl_normal_pairs16(even1, odd1));
        _mm512_store_si512(p->right + 32 * k, pl_normal_pairs16(even0, even1));
        _mm512_store_si512(p->right + PL_TILE_SIZE + 32 * k, pl_normal_pairs16(odd0, odd1));
        return;
    }
#endif
    const __m512i r0 = rounded(even0), o0 = rounded(odd0), r1 = rounded(even1), o1 = rounded(odd1);
    _mm512_store_si512(p->left + 64 * k, pl_high_pairs(r0, o0));
    _mm512_store_si512(p->left + 64 * k + 32, pl_high_pairs(r1, o1));
    _mm512_store_si512(p->right + 32 * k, pl_high_pairs(r0, r1));
    _mm512_store_si512(p->right + PL_TILE_SIZE + 32 * k, pl_high_pairs(o0, o1));
}

PL_INLINE void epilogue_pair(const epilogue *p, int addends, int full, unsigned k)
{
    const float *s = p->sums + k / 8 * 512 + k % 8 * 32;
    epilogue_sums(p,
                  (pair_sums){_mm512_load_ps(s), _mm512_load_ps(s + 256), _mm512_load_ps(s + 16),
                              _mm512_load_ps(s + 272)},
                  addends, full, k);
}

static int transposes_of(const epilogue *p)
{
    return 4 * ((p->transposed_right != NULL) + (p->transposed_left != NULL));
}

/* A quarter of turning a block; n counts to transposes_of. */
static __attribute__((noinline)) void epilogue_transpose(const epilogue *p, int n)
{
    int tile = n / 2 % 2, half = n % 2;
    /* as pl_transpose_left */
    if (p->transposed_right && n < 4)
        pl_transpose8(p->transposed_right + tile * PL_TILE_SIZE, 32, p->left + tile * 32, 64, half);
    else
        pl_transpose8(p->transposed_left + tile * 32, 64, p->right + tile * PL_TILE_SIZE, 32,
                      half); /* as pl_transpose_right */
}

/* How much of a block lies inside the matrix. */
static void epilogue_set(epilogue *p, int64_t rows, int64_t cols)
{
    uint32_t c = cols >= PL_BLOCK ? 32 : (uint32_t)cols;
    p->e = (extent){rows >= PL_BLOCK ? 32 : (unsigned)rows, (__mmask16)((1u << (c + 1) / 2) - 1),
                    (__mmask16)((1u << c / 2) - 1)};
    p->full = rows >= PL_BLOCK && cols >= PL_BLOCK;
    p->waits = 1;
}

/* A left panel to be transposed to `to`, beside the products, in quarters of blocks. */
typedef struct {
    const pl_bf16 *from;
    pl_bf16 *to;
    int64_t transposed, transposes;
} side_panel;

static __attribute__((noinline)) void side_panel_transpose(side_panel *s)
{
    int64_t n = s->transposed++, at = n / 4 * PL_BLOCK_SIZE, tile = n / 2 % 2;
    /* as pl_transpose_left */
    pl_transpose8(s->to + at + tile * PL_TILE_SIZE, 32, s->from + at + tile * 32, 64, n % 2);
}

#endif
#endif
