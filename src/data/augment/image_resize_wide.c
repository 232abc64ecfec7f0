/* image_resize_wide.c -- both passes of resizing by dot products of bytes (AVX-512 VNNI), see
 * image_resize_impl.h.
 *
 * Along a row, a group of up to five outputs is 15 sums of four taps at once: 64 bytes of the row, one
 * permutation of bytes that brings the four taps of each output and channel together, three dot products.
 * What the permutation and the digits are depends on the column only: a plan, made once and used for all
 * rows. Down the columns four rows are interleaved byte by byte, which the packing of the sums undoes.
 */
#include "data/augment/image_resize_impl.h"

#include <string.h>

#if defined(__x86_64__) && defined(__GNUC__)

#include <immintrin.h>

#define WIDE   __attribute__((target("avx512f,avx512bw,avx512vl,avx512vbmi,avx512vnni,bmi2")))
#define LANES  16
#define WINDOW 64          /* bytes of a row that a permutation sees */
#define QUAD   4           /* taps of a dot product */
#define BLOCK  4           /* rows at a time */
#define TOP    (127 << 16) /* a weight below it has three signed digits */
#define HALF   (1 << (PL_RESIZE_BITS - 1))

typedef uint32_t digits[3][LANES]; /* four signed bytes each, for the four taps of a lane */

/* A group of outputs: which bytes of its window go where; then `quads` times digits follow. */
typedef struct group {
    uint32_t place[LANES];
    /* the window's first byte in the row, bytes that count from there, outputs */
    int64_t at, bytes, n, room;
    int64_t pad[4];
} group;

_Static_assert(sizeof(group) % 64 == 0 && sizeof(digits) % 64 == 0, "vectors are aligned");

int pl_resize_wide_here(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vbmi") &&
           __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("bmi2");
}

static int64_t most_quads(const pl_taps *t)
{
    int64_t most = 0;
    for (int64_t i = 0; i < t->n; i++) most = t->count[i] > most ? t->count[i] : most;
    return (most + QUAD - 1) / QUAD;
}

int64_t pl_resize_wide_plan_bytes(const pl_taps *t)
{
    for (int64_t i = 0; i < t->n; i++)
        for (int64_t k = 0; k < t->count[i]; k++)
            if (t->weight[i * t->width + k] >= TOP || t->weight[i * t->width + k] <= -TOP) return 0;
    return t->n * (int64_t)sizeof(group) + t->n * most_quads(t) * (int64_t)sizeof(digits);
}

/* The digits of up to four weights as bytes of d[0 .. 2]. */
static void digits_of(uint32_t d[3], const int32_t *w, int64_t n)
{
    d[0] = d[1] = d[2] = 0;
    for (int64_t k = 0; k < n && k < QUAD; k++) {
        int32_t v = w[k], low = (int8_t)v, middle;
        v = (v - low) / 256;
        middle = (int8_t)v;
        v = (v - middle) / 256;
        d[0] |= (uint32_t)(uint8_t)low << 8 * k, d[1] |= (uint32_t)(uint8_t)middle << 8 * k,
            d[2] |= (uint32_t)(uint8_t)v << 8 * k;
    }
}

/* As many outputs from i on, at most five, as four taps of each fit one window; their pixels are [*from,
 * *to). */
static int64_t group_size(int64_t *from, int64_t *to, const pl_taps *t, int64_t i)
{
    int64_t n = 0;
    for (; n < 5 && i + n < t->n; n++) {
        int64_t first = t->first[i + n], end = first + t->count[i + n],
                lo = n && *from < first ? *from : first, last = first + QUAD;
        for (int64_t k = 0; k < n; k++) last = t->first[i + k] + QUAD > last ? t->first[i + k] + QUAD : last;
        if (n && 3 * (last - lo) > WINDOW) break;
        *from = lo, *to = n && *to > end ? *to : end;
    }
    return n;
}

static void rows_plan(group *g, const pl_taps *t, int64_t quads)
{
    for (int64_t i = 0; i < t->n; i += g->n, g = (group *)((digits *)(g + 1) + quads)) {
        int64_t from = 0, to = 0;
        digits *d = (digits *)(g + 1);
        *g = (group){.n = group_size(&from, &to, t, i)};
        g->at = 3 * (from - t->begin), g->bytes = 3 * (to - from);
        memset(d, 0, (size_t)quads * sizeof *d);
        for (int64_t o = 0; o < g->n; o++) {
            uint32_t start = (uint32_t)(3 * (t->first[i + o] - from));
            for (int64_t q = 0; q < quads; q++) {
                uint32_t w[3];
                digits_of(w, t->weight + (i + o) * t->width + q * QUAD, t->count[i + o] - q * QUAD);
                for (int c = 0; c < 3; c++)
                    for (int k = 0; k < 3; k++) d[q][k][3 * o + c] = w[k];
            }
            for (uint32_t c = 0; c < 3; c++) g->place[3 * o + c] = (start + c) * 0x01010101u + 0x09060300u;
        }
    }
}

/* The three sums of 16 outputs. (Variables, not arrays: gcc keeps those in memory.) */
typedef struct sums {
    __m512i s0, s1, s2;
} sums;

#define INLINE static inline __attribute__((always_inline)) WIDE

INLINE sums sums_begin(void)
{
    return (sums){_mm512_set1_epi32(HALF), _mm512_setzero_si512(), _mm512_setzero_si512()};
}

INLINE sums sums_add(sums s, __m512i p, __m512i w0, __m512i w1, __m512i w2)
{
    return (sums){_mm512_dpbusd_epi32(s.s0, p, w0), _mm512_dpbusd_epi32(s.s1, p, w1),
                  _mm512_dpbusd_epi32(s.s2, p, w2)};
}

INLINE __m512i sums_end(sums s) /* pixels, before they are cut to 0 .. 255 */
{
    return _mm512_srai_epi32(
        _mm512_add_epi32(_mm512_add_epi32(s.s0, _mm512_slli_epi32(s.s1, 8)), _mm512_slli_epi32(s.s2, 16)),
        PL_RESIZE_BITS);
}

INLINE __mmask64 first_bytes(int64_t n)
{
    return n >= WINDOW ? ~(__mmask64)0 : n > 0 ? _bzhi_u64(~(uint64_t)0, (unsigned)n) : 0;
}

INLINE void group_rows(uint8_t *const out[BLOCK], const uint8_t *const src[BLOCK], int64_t at, const group *g,
                       int64_t quads)
{
    const digits *d = (const digits *)(g + 1);
    __m512i place = _mm512_load_si512(g->place);
    int64_t from = g->at, bytes = g->bytes;
    for (int r = 0; r < BLOCK; r++) {
        sums s = sums_begin();
        for (int64_t q = 0; q < quads; q++) {
            __m512i p =
                _mm512_maskz_loadu_epi8(first_bytes(bytes - 3 * QUAD * q), src[r] + from + 3 * QUAD * q);
            s = sums_add(s, _mm512_permutexvar_epi8(place, p), _mm512_load_si512(d[q][0]),
                         _mm512_load_si512(d[q][1]), _mm512_load_si512(d[q][2]));
        }
        _mm_storeu_si128((__m128i *)(out[r] + at),
                         _mm512_cvtusepi32_epi8(_mm512_max_epi32(sums_end(s), _mm512_setzero_si512())));
    }
}

WIDE void pl_resize_wide_rows(uint8_t *out, int64_t out_stride, const uint8_t *src, int64_t stride,
                              const pl_taps *t, int64_t rows, void *plan)
{
    int64_t quads = most_quads(t);
    rows_plan(plan, t, quads);
    for (int64_t y = 0; y < rows; y += BLOCK) {
        const uint8_t *from[BLOCK];
        uint8_t *to[BLOCK];
        for (int64_t r = 0; r < BLOCK; r++) { /* what is missing to a block is the last row again */
            int64_t row = y + r < rows ? y + r : rows - 1;
            from[r] = src + row * stride, to[r] = out + row * out_stride;
        }
        const group *g = plan;
        for (int64_t i = 0; i < t->n; i += g->n, g = (const group *)((const digits *)(g + 1) + quads)) {
            if (quads == 1) group_rows(to, from, 3 * i, g, 1);
            else if (quads == 2) group_rows(to, from, 3 * i, g, 2);
            else group_rows(to, from, 3 * i, g, quads);
        }
    }
}

/* 64 bytes of one output row: `from` is the first of its rows, which are `count`. */
INLINE __m512i strip(const uint8_t *from, int64_t stride, int64_t count, const uint32_t (*w)[3])
{
    sums x0 = sums_begin(), x1 = x0, x2 = x0, x3 = x0;
    for (int64_t k = 0; k < count; k += QUAD, w++, from += QUAD * stride) {
        int64_t left = count - k;
        __m512i a = _mm512_loadu_si512(from), b = _mm512_loadu_si512(left > 1 ? from + stride : from),
                c = _mm512_loadu_si512(left > 2 ? from + 2 * stride : from),
                d = _mm512_loadu_si512(left > 3 ? from + 3 * stride : from);
        __m512i ab0 = _mm512_unpacklo_epi8(a, b), ab1 = _mm512_unpackhi_epi8(a, b),
                cd0 = _mm512_unpacklo_epi8(c, d), cd1 = _mm512_unpackhi_epi8(c, d);
        __m512i w0 = _mm512_set1_epi32((int)(*w)[0]), w1 = _mm512_set1_epi32((int)(*w)[1]),
                w2 = _mm512_set1_epi32((int)(*w)[2]);
        x0 = sums_add(x0, _mm512_unpacklo_epi16(ab0, cd0), w0, w1, w2),
        x1 = sums_add(x1, _mm512_unpackhi_epi16(ab0, cd0), w0, w1, w2);
        x2 = sums_add(x2, _mm512_unpacklo_epi16(ab1, cd1), w0, w1, w2),
        x3 = sums_add(x3, _mm512_unpackhi_epi16(ab1, cd1), w0, w1, w2);
    }
    return _mm512_packus_epi16(_mm512_packs_epi32(sums_end(x0), sums_end(x1)),
                               _mm512_packs_epi32(sums_end(x2), sums_end(x3)));
}

WIDE void pl_resize_wide_columns(uint8_t *out, const uint8_t *rows, int64_t stride, int64_t bytes,
                                 const pl_taps *t, void *plan)
{
    uint32_t(*w)[3] = plan;
    for (int64_t y = 0; y < t->n; y++, out += bytes) {
        const uint8_t *from = rows + (t->first[y] - t->begin) * stride;
        for (int64_t k = 0; k < t->count[y]; k += QUAD)
            digits_of(w[k / QUAD], t->weight + y * t->width + k, t->count[y] - k);
        int64_t x = 0;
        for (; x + WINDOW <= bytes; x += WINDOW)
            _mm512_storeu_si512(out + x, strip(from + x, stride, t->count[y], (const uint32_t(*)[3])w));
        if (x < bytes)
            _mm512_mask_storeu_epi8(out + x, first_bytes(bytes - x),
                                    strip(from + x, stride, t->count[y], (const uint32_t(*)[3])w));
    }
}

#else

int pl_resize_wide_here(void)
{
    return 0;
}

int64_t pl_resize_wide_plan_bytes(const pl_taps *t)
{
    (void)t;
    return 0;
}

void pl_resize_wide_rows(uint8_t *out, int64_t out_stride, const uint8_t *src, int64_t stride,
                         const pl_taps *t, int64_t rows, void *plan)
{
    (void)out, (void)out_stride, (void)src, (void)stride, (void)t, (void)rows, (void)plan;
}

void pl_resize_wide_columns(uint8_t *out, const uint8_t *rows, int64_t stride, int64_t bytes,
                            const pl_taps *t, void *plan)
{
    (void)out, (void)rows, (void)stride, (void)bytes, (void)t, (void)plan;
}

#endif
