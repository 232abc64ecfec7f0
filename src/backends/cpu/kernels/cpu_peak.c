/* cpu_peak.c -- how many multiply-adds this instruction set can do: a loop that stays in registers, on every
 * thread at once. */
#include <stdatomic.h>

#include "base/clock.h"
#include "cpu_tiles.h"
#include "cpu_vec.h"

#define ROUNDS 20000 /* some 100 to 400 microseconds */

/* Twelve chains hide the latency of a multiply-add on every machine we know; the sums converge, so that no
 * number leaves the normal ones. */
#define CHAINS 12
#define LOOP(name, T, VEC, FMA)                                                               \
    static __attribute__((noinline)) void name(void)                                          \
    {                                                                                         \
        VEC c[CHAINS], x = (T)0.5 - (VEC){0}, y = (T)1 - (VEC){0};                            \
        for (int i = 0; i < CHAINS; i++) c[i] = (T)i - (VEC){0};                              \
        for (int r = 0; r < ROUNDS; r++)                                                      \
            _Pragma("GCC unroll 12") for (int i = 0; i < CHAINS; i++) c[i] = FMA(c[i], x, y); \
        for (int i = 1; i < CHAINS; i++) c[0] += c[i];                                        \
        y = c[0];                                                                             \
        __asm__ volatile("" ::"x"(y)); /* somebody wants it */                                \
    }
LOOP(round_f32, float, pl_vec_f32, pl_vec_fma_f32)
LOOP(round_f64, double, pl_vec_f64, pl_vec_fma_f64)

#ifdef PL_TILE_UNIT
static double tile_round(void)
{
    _Alignas(64) pl_bf16 ones[PL_TILE_SIZE];
    pl_tiles t;
    for (int i = 0; i < PL_TILE_SIZE; i++) ones[i] = 0x3f80;
    pl_tiles_begin(&t);
    pl_tile_zero(&t, 0);
    pl_tile_zero(&t, 1);
    pl_tile_zero(&t, 2);
    pl_tile_zero(&t, 3);
    PL_TILES_BARRIER();
    pl_tile_load(&t, 4, ones);
    pl_tile_load(&t, 5, ones);
    for (int r = 0; r < ROUNDS / 4; r++) {
        pl_tile_dot(&t, 0, 4, 5);
        pl_tile_dot(&t, 1, 4, 5);
        pl_tile_dot(&t, 2, 4, 5);
        pl_tile_dot(&t, 3, 4, 5);
    }
    pl_tiles_end(&t);
    return 4.0 * (ROUNDS / 4) * 2 * 16 * 16 * 32;
}
#elif defined(PL_TILES)
static double tile_round(void)
{
    __m512i one = _mm512_set1_epi32(0x3f803f80);
    __m512 c[CHAINS], sum = _mm512_setzero_ps();
    for (int i = 0; i < CHAINS; i++) c[i] = _mm512_set1_ps((float)i);
    for (int r = 0; r < ROUNDS; r++)
#pragma GCC unroll 12
        for (int i = 0; i < CHAINS; i++) c[i] = pl_dot(c[i], one, one);
    for (int i = 0; i < CHAINS; i++) sum = _mm512_add_ps(sum, c[i]);
    __asm__ volatile("" ::"x"(sum)); /* somebody wants it */
    return 2.0 * ROUNDS * CHAINS * 32;
}
#endif

/* FLOPs done. */
static __attribute__((noinline)) double one_round(polar_dtype dtype)
{
#ifdef PL_TILES
    if (dtype == POLAR_DTYPE_BF16) return tile_round();
#endif
    if (dtype == POLAR_DTYPE_F64) round_f64();
    else round_f32();
    return 2.0 * ROUNDS * CHAINS *
           (PL_VEC_BYTES / (dtype == POLAR_DTYPE_F64 ? sizeof(double) : sizeof(float)));
}

typedef struct {
    polar_dtype dtype;
    _Atomic int came; /* threads that took part */
    double flops;     /* of one of them */
} round_of;

static void share_round(void *arg, int me)
{
    round_of *o = arg;
    double flops = one_round(o->dtype);
    if (me == 0) o->flops = flops;
    atomic_fetch_add(&o->came, 1);
}

double PL_ISA_NAME(pl_cpu_peak)(pl_device *dev, polar_dtype dtype)
{
    double best = 0;
    for (int tries = 0; tries < 100; tries++) {
        round_of o = {.dtype = dtype};
        double t = pl_clock_seconds();
        pl_pool_run(dev->pool, dev->threads, share_round, &o);
        double rate = o.flops * atomic_load(&o.came) / (pl_clock_seconds() - t);
        if (rate > best) best = rate;
    }
    return best;
}
