/* image_jpeg_block.c -- coefficients to samples, samples to colours, as libjpeg's "islow" transform and
 * "fancy" upsampling do it, in AVX2.
 *
 * The transform is that of Loeffler, Ligtenberg and Moschytz in whole numbers, 13 bits after the point,
 * columns first, two bits kept between the passes. Every product is one of 16-bit numbers and every sum one
 * of 32 bits: nothing is lost as long as what goes into a pass is below PL_JPEG_LIMIT, which is watched. A
 * vector holds one row of two neighbouring blocks. ctest -R "test_image_(decode|crop|fuzz)"
 */
#include "data/codec/image_jpeg_scan.h"

#include <string.h>

#if defined(__x86_64__) && defined(__GNUC__)

#include <immintrin.h>

#define FAST   __attribute__((target("avx2,bmi2")))
#define INLINE static inline __attribute__((always_inline)) FAST

typedef struct rows {
    __m256i r0, r1, r2, r3, r4, r5, r6, r7;
} rows;

typedef struct wide { /* 32 bits: the lower and the upper four columns of each block */
    __m256i lo, hi;
} wide;

int pl_jpeg_blocks_here(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2");
}

/* ---- the transform ------------------------------------------------------------------------------ */

INLINE wide dot(__m256i a, __m256i b, int by_a, int by_b) /* a by_a + b by_b */
{
    __m256i k = _mm256_set1_epi32((int)((uint32_t)by_b << 16 | (uint16_t)by_a));
    return (wide){_mm256_madd_epi16(_mm256_unpacklo_epi16(a, b), k),
                  _mm256_madd_epi16(_mm256_unpackhi_epi16(a, b), k)};
}

INLINE wide sum(wide a, wide b)
{
    return (wide){_mm256_add_epi32(a.lo, b.lo), _mm256_add_epi32(a.hi, b.hi)};
}

INLINE wide less(wide a, wide b)
{
    return (wide){_mm256_sub_epi32(a.lo, b.lo), _mm256_sub_epi32(a.hi, b.hi)};
}

INLINE __m256i narrow(wide a, int shift)
{
    return _mm256_packs_epi32(_mm256_srai_epi32(a.lo, shift), _mm256_srai_epi32(a.hi, shift));
}

/* One pass, along the rows' index; results divided by 2^shift and rounded. The constants are the usual ones
 * times 8192, added up in pairs. */
INLINE rows pass(rows a, int shift)
{
    __m256i half = _mm256_set1_epi32(1 << (shift - 1));
    wide even0 = dot(a.r0, a.r4, 8192, 8192), even1 = dot(a.r0, a.r4, 8192, -8192),
         even2 = dot(a.r2, a.r6, 4433, -10704), even3 = dot(a.r2, a.r6, 10703, 4433);
    even0 = sum(even0, (wide){half, half}), even1 = sum(even1, (wide){half, half});
    wide t0 = sum(even0, even3), t3 = less(even0, even3), t1 = sum(even1, even2), t2 = less(even1, even2);
    __m256i z3 = _mm256_add_epi16(a.r7, a.r3), z4 = _mm256_add_epi16(a.r5, a.r1);
    wide s3 = dot(z3, z4, -6436, 9633), s4 = dot(z3, z4, 9633, 6437);
    wide odd0 = sum(dot(a.r7, a.r1, -4927, -7373), s3), odd3 = sum(dot(a.r7, a.r1, -7373, 4926), s4);
    wide odd1 = sum(dot(a.r5, a.r3, -4176, -20995), s4), odd2 = sum(dot(a.r5, a.r3, -20995, 4177), s3);
    return (rows){narrow(sum(t0, odd3), shift),  narrow(sum(t1, odd2), shift),  narrow(sum(t2, odd1), shift),
                  narrow(sum(t3, odd0), shift),  narrow(less(t3, odd0), shift), narrow(less(t2, odd1), shift),
                  narrow(less(t1, odd2), shift), narrow(less(t0, odd3), shift)};
}

/* Both blocks transposed: three rounds of interleaving row i with row i + 4. */
INLINE rows shuffled(rows a)
{
    return (rows){_mm256_unpacklo_epi16(a.r0, a.r4), _mm256_unpackhi_epi16(a.r0, a.r4),
                  _mm256_unpacklo_epi16(a.r1, a.r5), _mm256_unpackhi_epi16(a.r1, a.r5),
                  _mm256_unpacklo_epi16(a.r2, a.r6), _mm256_unpackhi_epi16(a.r2, a.r6),
                  _mm256_unpacklo_epi16(a.r3, a.r7), _mm256_unpackhi_epi16(a.r3, a.r7)};
}

INLINE rows transposed(rows a)
{
    return shuffled(shuffled(shuffled(a)));
}

INLINE __m256i largest(rows a) /* bits that some absolute value has */
{
    __m256i x = _mm256_or_si256(_mm256_or_si256(_mm256_abs_epi16(a.r0), _mm256_abs_epi16(a.r1)),
                                _mm256_or_si256(_mm256_abs_epi16(a.r2), _mm256_abs_epi16(a.r3)));
    __m256i y = _mm256_or_si256(_mm256_or_si256(_mm256_abs_epi16(a.r4), _mm256_abs_epi16(a.r5)),
                                _mm256_or_si256(_mm256_abs_epi16(a.r6), _mm256_abs_epi16(a.r7)));
    return _mm256_or_si256(x, y);
}

INLINE void put(uint8_t *out, int64_t stride, __m256i a, __m256i b) /* two rows of 16 samples */
{
    __m256i v =
        _mm256_xor_si256(_mm256_permute4x64_epi64(_mm256_packs_epi16(a, b), 0xd8), _mm256_set1_epi8(-128));
    _mm_storeu_si128((__m128i *)out, _mm256_castsi256_si128(v));
    _mm_storeu_si128((__m128i *)(out + stride), _mm256_extracti128_si256(v, 1));
}

#define ROW(i)                                                       \
    _mm256_mullo_epi16(_mm256_load_si256((const __m256i *)coef + i), \
                       _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)quant + i)))

FAST int pl_jpeg_blocks_transform(const pl_jpeg_part *p, int64_t row)
{
    int64_t stride = 16 * p->pairs;
    const int16_t *coef = p->coef, *quant = p->quant;
    __m256i seen = _mm256_setzero_si256();
    for (int v = 0; v < p->v; v++) {
        uint8_t *out = p->plane + (row * p->v + v) * 8 * stride;
        for (int64_t i = 0; i < p->pairs; i++, coef += 128, out += 16) {
            rows a =
                transposed(pass((rows){ROW(0), ROW(1), ROW(2), ROW(3), ROW(4), ROW(5), ROW(6), ROW(7)}, 11));
            seen = _mm256_or_si256(seen, largest(a));
            a = transposed(pass(a, 18));
            put(out, stride, a.r0, a.r1), put(out + 2 * stride, stride, a.r2, a.r3),
                put(out + 4 * stride, stride, a.r4, a.r5), put(out + 6 * stride, stride, a.r6, a.r7);
        }
    }
    return _mm256_testz_si256(seen, _mm256_set1_epi16((int16_t)-PL_JPEG_LIMIT));
}

/* ---- colours ------------------------------------------------------------------------------------ */

/* 16 pixels. */
INLINE void put_rgb(uint8_t *out, __m128i r, __m128i g, __m128i b)
{
    static const int8_t place[3][3][16] = {
        {{0, -1, -1, 1, -1, -1, 2, -1, -1, 3, -1, -1, 4, -1, -1, 5},
         {-1, 0, -1, -1, 1, -1, -1, 2, -1, -1, 3, -1, -1, 4, -1, -1},
         {-1, -1, 0, -1, -1, 1, -1, -1, 2, -1, -1, 3, -1, -1, 4, -1}},
        {{-1, -1, 6, -1, -1, 7, -1, -1, 8, -1, -1, 9, -1, -1, 10, -1},
         {5, -1, -1, 6, -1, -1, 7, -1, -1, 8, -1, -1, 9, -1, -1, 10},
         {-1, 5, -1, -1, 6, -1, -1, 7, -1, -1, 8, -1, -1, 9, -1, -1}},
        {{-1, 11, -1, -1, 12, -1, -1, 13, -1, -1, 14, -1, -1, 15, -1, -1},
         {-1, -1, 11, -1, -1, 12, -1, -1, 13, -1, -1, 14, -1, -1, 15, -1},
         {10, -1, -1, 11, -1, -1, 12, -1, -1, 13, -1, -1, 14, -1, -1, 15}}};
    for (int i = 0; i < 3; i++) {
        __m128i x = _mm_shuffle_epi8(r, _mm_loadu_si128((const __m128i *)place[i][0])),
                y = _mm_shuffle_epi8(g, _mm_loadu_si128((const __m128i *)place[i][1])),
                z = _mm_shuffle_epi8(b, _mm_loadu_si128((const __m128i *)place[i][2]));
        _mm_storeu_si128((__m128i *)(out + 16 * i), _mm_or_si128(_mm_or_si128(x, y), z));
    }
}

INLINE __m128i bytes_of(__m256i v)
{
    return _mm_packus_epi16(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
}

INLINE __m256i centred(const uint8_t *p)
{
    return _mm256_sub_epi16(_mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)p)),
                            _mm256_set1_epi16(128));
}

/* With c = cr - 128 and d = cb - 128, times 65536 and rounded: 1.402 c, -0.34414 d - 0.71414 c, 1.772 d, less
 * whole multiples of c and d so that 16 bits hold the constants. */
INLINE void colour_16(uint8_t *out, const uint8_t *luma, const uint8_t *cb, const uint8_t *cr)
{
    const __m256i two = _mm256_set1_epi16(2), half = _mm256_set1_epi32(32768);
    __m256i y = _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)luma)), c = centred(cr),
            d = centred(cb);
    __m256i red = narrow(dot(c, two, 26345, 16384), 16), blue = narrow(dot(d, two, -14942, 16384), 16),
            green = narrow(sum(dot(d, c, -22554, 18734), (wide){half, half}), 16);
    red = _mm256_add_epi16(_mm256_add_epi16(y, c), red);
    green = _mm256_add_epi16(_mm256_sub_epi16(y, c), green);
    blue = _mm256_add_epi16(_mm256_add_epi16(y, _mm256_add_epi16(d, d)), blue);
    put_rgb(out, bytes_of(red), bytes_of(green), bytes_of(blue));
}

/* A row of n pixels from lines that may be read up to 16 samples beyond their end. */
FAST static void colour_row(uint8_t *out, const uint8_t *luma, const uint8_t *cb, const uint8_t *cr,
                            int64_t n)
{
    uint8_t last[48];
    int64_t x = 0;
    for (; x + 16 <= n; x += 16) colour_16(out + 3 * x, luma + x, cb + x, cr + x);
    if (x == n) return;
    colour_16(last, luma + x, cb + x, cr + x);
    memcpy(out + 3 * x, last, (size_t)(3 * (n - x)));
}

FAST static void grey_row(uint8_t *out, const uint8_t *luma, int64_t n)
{
    uint8_t last[48];
    for (int64_t x = 0; x < n; x += 16) {
        __m128i v = _mm_loadu_si128((const __m128i *)(luma + x));
        if (n - x >= 16) put_rgb(out + 3 * x, v, v, v);
        else {
            put_rgb(last, v, v, v);
            memcpy(out + 3 * x, last, (size_t)(3 * (n - x)));
        }
    }
}

/* ---- smoothing ---------------------------------------------------------------------------------- */

/* out[2 i], out[2 i + 1] from s[i]: three quarters of it and a quarter of the neighbour on that side. */
FAST static void smooth_across(uint16_t *restrict out, const uint16_t *restrict s, int64_t n, unsigned before,
                               unsigned after, int shift)
{
    for (int64_t i = 0; i < n; i++) {
        unsigned left = (3u * s[i] + s[i - 1] + before) >> shift,
                 right = (3u * s[i] + s[i + 1] + after) >> shift;
        out[i] = (uint16_t)(left | right << 8);
    }
}

FAST static void weigh_rows(uint16_t *restrict s, const uint8_t *restrict near, const uint8_t *restrict far,
                            int64_t n)
{
    for (int64_t i = 0; i < n; i++) s[i] = (uint16_t)(3u * near[i] + far[i]);
}

FAST static void widen_row(uint16_t *restrict s, const uint8_t *restrict near, int64_t n)
{
    for (int64_t i = 0; i < n; i++) s[i] = near[i];
}

static const uint8_t *plane_row(const pl_jpeg_part *p, int64_t y)
{
    return p->plane + (y - p->y0) * 16 * p->pairs;
}

/* The samples of row y of the picture for the columns from x on, n of them, at the luma's resolution (h, v);
 * in `line`, or where they are. */
static const uint8_t *smooth_row(const pl_jpeg_part *p, int h, int v, int64_t y, int64_t x, int64_t n,
                                 uint8_t *line, uint16_t *s)
{
    if (h == 1) return plane_row(p, y) + (x - p->x0);
    int64_t from = x / 2, count = (x + n - 1) / 2 + 1 - from, row = v == 2 ? y / 2 : y,
            other = y % 2 ? row + 1 : row - 1;
    int64_t lo = from > 0 ? 1 : 0, hi = from + count < p->across ? 1 : 0; /* neighbours that exist */
    const uint8_t *near = plane_row(p, row) + (from - lo - p->x0);
    if (v == 2) {
        other = other < 0 ? 0 : other >= p->down ? p->down - 1 : other;
        weigh_rows(s + 1 - lo, near, plane_row(p, other) + (from - lo - p->x0), lo + count + hi);
    } else widen_row(s + 1 - lo, near, lo + count + hi);
    if (!lo) s[0] = s[1];
    if (!hi) s[count + 1] = s[count];
    if (v == 2) smooth_across((uint16_t *)line, s + 1, count, 8, 7, 4);
    else smooth_across((uint16_t *)line, s + 1, count, 1, 2, 2);
    return line + x % 2;
}

void pl_jpeg_blocks_colour(pl_image *out, const pl_jpeg_part *p, int parts, const pl_box *box, uint8_t *lines)
{
    int64_t room = (box->width + 127) / 64 * 64;
    uint8_t *line[2] = {lines, lines + room};
    uint16_t *s = (uint16_t *)(lines + 2 * room);
    for (int64_t y = box->y; y < box->y + box->height; y++) {
        uint8_t *to = pl_image_at(out, 0, y - box->y);
        const uint8_t *luma = plane_row(&p[0], y) + (box->x - p[0].x0), *colour[2];
        for (int i = 1; i < parts; i++)
            colour[i - 1] = smooth_row(&p[i], p[0].h, p[0].v, y, box->x, box->width, line[i - 1], s);
        if (parts == 1) grey_row(to, luma, box->width);
        else colour_row(to, luma, colour[0], colour[1], box->width);
    }
}

#else

int pl_jpeg_blocks_here(void)
{
    return 0;
}

int pl_jpeg_blocks_transform(const pl_jpeg_part *p, int64_t row)
{
    (void)p, (void)row;
    return 0;
}

void pl_jpeg_blocks_colour(pl_image *out, const pl_jpeg_part *p, int parts, const pl_box *box, uint8_t *lines)
{
    (void)out, (void)p, (void)parts, (void)box, (void)lines;
}

#endif
