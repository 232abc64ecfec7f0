/* elem_function.h -- for test_elem_*: a function of the element tier in both formats, its exact value, its
 * derived bound; what holds at its ends; a hash of its bits. */
#ifndef PL_TESTS_ELEM_FUNCTION_H
#define PL_TESTS_ELEM_FUNCTION_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>

#include "test.h"

typedef struct {
    const char *name;
    double (*f64)(double);
    float (*f32)(float);
    long double (*exact)(long double x);
    long double (*bound)(long double x, long double u, long double eta);
} function;

/* Of the infinities, and of the largest negative numbers, which stand for -infinity: how many are wrong. */
static inline int64_t function_limits(const function *f, double at_minus, double at_plus)
{
    int64_t wrong = f->f32(-INFINITY) != at_minus || f->f64(-INFINITY) != at_minus ||
                    f->f32(INFINITY) != at_plus || f->f64(INFINITY) != at_plus;
    return wrong + (f->f32(-3e38f) != at_minus || f->f64(-1e308) != at_minus);
}

static inline int function_loses_nan(const function *f)
{
    return !isnan(f->f32(NAN)) || !isnan(f->f64(NAN));
}

#define HASH_BEGIN 0xcbf29ce484222325ull

/* FNV-1a: every compiler, instruction set and device gives the same bits. */
static inline uint64_t hash_bytes(uint64_t h, const void *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) h = (h ^ ((const unsigned char *)data)[i]) * 0x100000001b3ull;
    return h;
}

static inline void same_hashes(uint64_t h32, uint64_t want32, uint64_t h64, uint64_t want64)
{
    test_true("f32: the bits of every compiler", h32 == want32, "%016llx", (unsigned long long)h32);
    test_true("f64: the bits of every compiler", h64 == want64, "%016llx", (unsigned long long)h64);
}

#endif
