/* philox.h -- random numbers as a function of their coordinates: Philox4x32-10 (Salmon, Moraes, Dror, Shaw,
 * SC 2011).
 *
 * There is no generator to carry about: draw (seed, stream, step, index) is the same on one thread or many,
 * on host and device.
 *
 *     pl_u4  r = pl_philox(seed, PL_STREAM_AUGMENT, epoch, image);       // 4 x 32 random bits
 *     double u = pl_uniform_f64(r.x, r.y);                               // in (0, 1)
 *     pl_n2  z = pl_normal(seed, PL_STREAM_INIT, layer, pair);           // two independent N(0, 1)
 *
 * Packing of the 64-bit key and the 128-bit counter, low word first:
 *
 *     key     = seed[0:32], seed[32:64]
 *     counter = index[0:32], index[32:64], step[0:32], step[32:48] | stream << 16
 *
 * so any seed and index, steps below 2^48 and streams below 2^16 give distinct draws.
 *
 * Integers and uniforms have the same bits everywhere. The normals (Box-Muller in double) call libm's log,
 * sin and cos and sqrt; the first three may differ in the last bit between libraries, so data that must agree
 * across machines is drawn on one.
 */
#ifndef PL_BASE_PHILOX_H
#define PL_BASE_PHILOX_H

#include <math.h>
#include <stdint.h>

#ifdef __CUDACC__
#define PL_PHILOX_FN static __host__ __device__ __forceinline__
#else
#define PL_PHILOX_FN static inline
#endif

/* Who draws. A number once given stays: it decides the bits of every run. */
typedef enum pl_stream {
    PL_STREAM_TEST = 0,      /* operands of tests and benchmarks */
    PL_STREAM_VERIFY = 1,    /* matrices of `polar verify` */
    PL_STREAM_GAUGE = 2,     /* Haar orthogonal P, Q and rotations */
    PL_STREAM_INIT = 3,      /* initial weights */
    PL_STREAM_DATA = 4,      /* synthetic data: point clouds, images */
    PL_STREAM_ORDER = 5,     /* the order of examples */
    PL_STREAM_AUGMENT = 6,   /* per image: crops, flips, erasing */
    PL_STREAM_MIX = 7,       /* per batch: Mixup and CutMix */
    PL_STREAM_DROP = 8,      /* dropout, stochastic depth */
    PL_STREAM_BOOTSTRAP = 9, /* resampling in statistics */
    PL_STREAM_ERASE = 10,    /* noise of erased rectangles */
    PL_STREAM_DISTURB = 11   /* noise on updates, and their turns */
} pl_stream;

typedef struct pl_u4 {
    uint32_t x, y, z, w;
} pl_u4;

typedef struct pl_n2 {
    double a, b;
} pl_n2;

/* The published function: ten rounds over a counter and a key. */
PL_PHILOX_FN pl_u4 pl_philox4x32(pl_u4 counter, uint32_t key0, uint32_t key1)
{
    for (int round = 0; round < 10; round++) {
        uint64_t p = (uint64_t)0xD2511F53u * counter.x, q = (uint64_t)0xCD9E8D57u * counter.z;
        pl_u4 next = {(uint32_t)(q >> 32) ^ counter.y ^ key0, (uint32_t)q,
                      (uint32_t)(p >> 32) ^ counter.w ^ key1, (uint32_t)p};
        counter = next;
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
    return counter;
}

/* The draw at (seed, stream, step, index). */
PL_PHILOX_FN pl_u4 pl_philox(uint64_t seed, uint32_t stream, uint64_t step, uint64_t index)
{
    pl_u4 counter = {(uint32_t)index, (uint32_t)(index >> 32), (uint32_t)step,
                     ((uint32_t)(step >> 32) & 0xffffu) | stream << 16};
    return pl_philox4x32(counter, (uint32_t)seed, (uint32_t)(seed >> 32));
}

/* An odd multiple of 2^-53: strictly inside (0, 1), exact, symmetric about 1/2. */
PL_PHILOX_FN double pl_uniform_f64(uint32_t hi, uint32_t lo)
{
    uint64_t bits = (uint64_t)hi << 32 | lo;
    return ((double)(bits >> 12) + 0.5) * 0x1p-52;
}

/* An odd multiple of 2^-24: the same in float. */
PL_PHILOX_FN float pl_uniform_f32(uint32_t bits)
{
    return ((float)(bits >> 9) + 0.5f) * 0x1p-23f;
}

/* A whole number in [0, n): the high word of a product, uneven by at most n 2^-32. */
PL_PHILOX_FN uint32_t pl_uniform_below(uint32_t bits, uint32_t n)
{
    return (uint32_t)((uint64_t)bits * n >> 32);
}

/* Two independent standard normals from one draw (Box-Muller); at most sqrt(106 log 2) = 8.58 in magnitude.
 */
PL_PHILOX_FN pl_n2 pl_normal_from(pl_u4 r)
{
    double radius = sqrt(-2 * log(pl_uniform_f64(r.x, r.y))),
           angle = 6.283185307179586 * pl_uniform_f64(r.z, r.w);
    pl_n2 z = {radius * cos(angle), radius * sin(angle)};
    return z;
}

/* Two independent standard normals at (seed, stream, step, index). */
PL_PHILOX_FN pl_n2 pl_normal(uint64_t seed, uint32_t stream, uint64_t step, uint64_t index)
{
    return pl_normal_from(pl_philox(seed, stream, step, index));
}

#endif
