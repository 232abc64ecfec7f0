/* interval.c -- see interval.h. Rounding to bf16 and f16 is written from the definition of the formats and
 * shares nothing with bf16_elem.h and f16_elem.h. */
#include "interval.h"

#include <float.h>
#include <math.h>
#include <string.h>

typedef struct {
    int bits;  /* of the significand, the leading one included */
    int least; /* the smallest denormal is 2^least */
    int most;  /* finite numbers are below 2^most */
} format;

static format format_of(polar_dtype dtype)
{
    switch (dtype) {
    case POLAR_DTYPE_F64: return (format){53, -1074, 1024};
    case POLAR_DTYPE_F32: return (format){24, -149, 128};
    case POLAR_DTYPE_F16: return (format){11, -24, 16};
    default: return (format){8, -133, 128};
    }
}

#if LDBL_MANT_DIG == 64 && defined(__x86_64__) /* the usual case, quickly: 64 bits, then sign and exponent \
                                                */
/* As frexp has it; x is not 0 and normal in long double. */
static int exponent_of(long double x)
{
    uint16_t top;
    memcpy(&top, (const char *)&x + 8, sizeof top);
    return (top & 0x7fff) - 16382;
}

static long double power_of_2(int e)
{
    long double x = 1;
    uint16_t top = (uint16_t)(e + 16383);
    memcpy((char *)&x + 8, &top, sizeof top);
    return x;
}
#endif

/* The exponent of the last place of x in the format. */
static int last_place(long double x, format f)
{
    int e;
    frexpl(x, &e);
    return x != 0 && e - f.bits > f.least ? e - f.bits : f.least;
}

long double pl_round_to(long double x, polar_dtype dtype)
{
    if (dtype == POLAR_DTYPE_F64) return (double)x;
    if (dtype == POLAR_DTYPE_F32) return (float)x;
    if (x == 0 || !isfinite(x)) return x;
    format f = format_of(dtype);
#if LDBL_MANT_DIG == 64 && defined(__x86_64__)
    /* 3 2^62 last places and x have their last bit there, too: the sum is rounded to it, half to even */
    int first = exponent_of(x), last = first - f.bits > f.least ? first - f.bits : f.least;
    long double large = power_of_2(last + 62) * 3, y = fabsl(x) + large - large;
    return copysignl(y < power_of_2(f.most) ? y : INFINITY, x);
#endif
    int e = last_place(x, f);
    long double r = ldexpl(rintl(ldexpl(x, -e)), e); /* rintl: half to even */
    return fabsl(r) < ldexpl(1, f.most) ? r : copysignl(INFINITY, x);
}

long double pl_half_gap(long double y, polar_dtype dtype, int up)
{
    format f = format_of(dtype);
    int e, place = last_place(y, f), outward = up ? y >= 0 : y <= 0;
    int power = y != 0 && fabsl(frexpl(y, &e)) == 0.5L;
    /* below a power of two numbers lie twice as dense */
    return ldexpl(1, place - (!outward && power && place > f.least ? 2 : 1));
}

long double pl_unit_roundoff(polar_dtype dtype)
{
    return ldexpl(1, -format_of(dtype).bits);
}

long double pl_least_half(polar_dtype dtype)
{
    return ldexpl(1, format_of(dtype).least - 1);
}

long double pl_largest(polar_dtype dtype)
{
    format f = format_of(dtype);
    return ldexpl(1 - ldexpl(1, -f.bits), f.most);
}

/* ---- exactness: x = odd * 2^last with |x| < 2^first ---- */

typedef struct {
    int first, last;
} span;

static span span_of(long double x)
{
    span s;
#if LDBL_MANT_DIG == 64 && defined(__x86_64__)
    uint64_t m64;
    memcpy(&m64, &x, sizeof m64);
    s.first = exponent_of(x);
    s.last = s.first - 64 + (m64 ? __builtin_ctzll(m64) : 0);
    return s;
#endif
    long double m = ldexpl(frexpl(fabsl(x), &s.first), 64);
    uint64_t bits = m < 0x1p64L ? (uint64_t)m : 0;
    /* a wider long double: take the worst */
    if (!bits || (long double)bits != m) s.last = s.first - LDBL_MANT_DIG;
    else s.last = s.first - 64 + __builtin_ctzll(bits);
    return s;
}

static int product_exact(long double a, long double b)
{
    if (a == 0 || b == 0 || !isfinite(a) || !isfinite(b)) return 1;
    span p = span_of(a), q = span_of(b);
    return p.first - p.last + q.first - q.last <= LDBL_MANT_DIG;
}

static int sum_exact(long double a, long double b)
{
    if (a == 0 || b == 0 || !isfinite(a) || !isfinite(b)) return 1;
    span p = span_of(a), q = span_of(b);
    return (p.first > q.first ? p.first : q.first) + 1 - (p.last < q.last ? p.last : q.last) <= LDBL_MANT_DIG;
}

/* Outward by one or two units in the last place, where long double itself rounded. */
static long double down(long double x, int exact)
{
    return exact || !isfinite(x) ? x : x - (fabsl(x) * LDBL_EPSILON + LDBL_MIN);
}

static long double up(long double x, int exact)
{
    return exact || !isfinite(x) ? x : x + (fabsl(x) * LDBL_EPSILON + LDBL_MIN);
}

/* ---- intervals ---- */

static pl_iv anything(void)
{
    return (pl_iv){-INFINITY, INFINITY, 1};
}

pl_iv pl_iv_point(long double x)
{
    return (pl_iv){x, x, 0};
}

pl_iv pl_iv_around(long double x, long double e)
{
    return e == 0 ? pl_iv_point(x) : (pl_iv){down(x - e, 0), up(x + e, 0), 0};
}

int pl_iv_is_nan(pl_iv x)
{
    return !x.any && isnan(x.lo);
}

pl_iv pl_iv_in(pl_iv x, polar_dtype dtype)
{
    if (x.any || isnan(x.lo)) return x;
    pl_iv r = x;
    for (int f = POLAR_DTYPE_F64; f <= (int)dtype; f++) { /* the formats go from wide to narrow */
        long double lo = pl_round_to(x.lo, (polar_dtype)f),
                    hi = x.hi == x.lo ? lo : pl_round_to(x.hi, (polar_dtype)f);
        if (lo < r.lo) r.lo = lo;
        if (hi > r.hi) r.hi = hi;
    }
    return r;
}

pl_iv pl_iv_round(pl_iv x, polar_dtype dtype)
{
    if (x.any || isnan(x.lo)) return x;
    return (pl_iv){pl_round_to(x.lo, dtype), pl_round_to(x.hi, dtype), 0};
}

/* The hull of the four combinations of ends; all NaN: NaN, some: anything. */
static pl_iv hull(pl_iv a, pl_iv b, int divide)
{
    pl_iv r = {INFINITY, -INFINITY, 0};
    int nans = 0, lo_exact = 1, hi_exact = 1, ends = a.lo == a.hi && b.lo == b.hi ? 1 : 4;
    for (int k = 0; k < ends; k++) {
        long double x = k & 1 ? a.hi : a.lo, y = k & 2 ? b.hi : b.lo, z = divide ? x / y : x * y;
        int exact = divide ? x == 0 || isinf(x) || isinf(y) : 2; /* 2: not known yet */
        if (z != z) {
            nans++;
            continue;
        }
        if (z < r.lo || k == nans) {
            r.lo = z;
            lo_exact = exact == 2 ? product_exact(x, y) : exact;
        }
        if (z > r.hi || k == nans) {
            r.hi = z;
            hi_exact = exact == 2 ? product_exact(x, y) : exact;
        }
    }
    if (nans) return nans == ends ? pl_iv_point(NAN) : anything();
    return (pl_iv){down(r.lo, lo_exact), up(r.hi, hi_exact), 0};
}

pl_iv pl_iv_mul(pl_iv a, pl_iv b)
{
    if (pl_iv_is_nan(a) || pl_iv_is_nan(b)) return pl_iv_point(NAN);
    return a.any || b.any ? anything() : hull(a, b, 0);
}

pl_iv pl_iv_div(pl_iv a, pl_iv b)
{
    if (pl_iv_is_nan(a) || pl_iv_is_nan(b)) return pl_iv_point(NAN);
    if (a.any || b.any || (b.lo <= 0 && b.hi >= 0 && b.lo != b.hi)) return anything();
    return hull(a, b, 1);
}

pl_iv pl_iv_add(pl_iv a, pl_iv b)
{
    if (pl_iv_is_nan(a) || pl_iv_is_nan(b)) return pl_iv_point(NAN);
    if (a.any || b.any) return anything();
    if (a.lo == a.hi && b.lo == b.hi && isfinite(a.lo) && isfinite(b.lo)) { /* points: one sum, once */
        long double s = a.lo + b.lo;
        int exact = sum_exact(a.lo, b.lo);
        return (pl_iv){down(s, exact), up(s, exact), 0};
    }
    if ((a.hi == INFINITY && b.lo == -INFINITY) || (a.lo == -INFINITY && b.hi == INFINITY))
        return a.lo == a.hi && b.lo == b.hi ? pl_iv_point(NAN) : anything();
    return (pl_iv){down(a.lo + b.lo, sum_exact(a.lo, b.lo)), up(a.hi + b.hi, sum_exact(a.hi, b.hi)), 0};
}

pl_iv pl_iv_sqrt(pl_iv a)
{
    if (pl_iv_is_nan(a)) return a;
    if (a.any || a.hi < 0) return a.any ? anything() : pl_iv_point(NAN);
    long double lo = a.lo > 0 ? sqrtl(a.lo) : 0, hi = sqrtl(a.hi);
    return (pl_iv){down(lo, lo * lo == a.lo && product_exact(lo, lo)),
                   up(hi, hi * hi == a.hi && product_exact(hi, hi)), 0};
}
