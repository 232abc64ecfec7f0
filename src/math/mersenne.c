/* mersenne.c -- MT19937 and CPython's sample.
 *
 * The twister keeps 624 words x_k with x_{k+624} = x_{k+397} ^ A(upper bit of x_k, lower bits of x_{k+1}),
 * and gives each out through four shifts
 * ("tempering"). Python seeds it by the absolute value of the integer, cut into 32-bit words, least first.
 *
 * sample(range(n), k) has two ways, and which one is taken decides the numbers: a pool from which the drawn
 * one is replaced by the last, when a list of n is smaller than a set of k would be (n <= 21, or 21 +
 * 4^ceil(log_4(3 k)) for k > 5); otherwise drawing until the number is new. ctest -R test_mersenne
 */
#include "math/mersenne.h"

#define N PL_MERSENNE_WORDS
#define M 397

static void seed_word(pl_mersenne *m, uint32_t seed)
{
    m->word[0] = seed;
    for (uint32_t i = 1; i < N; i++) m->word[i] = 1812433253u * (m->word[i - 1] ^ m->word[i - 1] >> 30) + i;
    m->next = N;
}

void pl_mersenne_seed_words(pl_mersenne *m, const uint32_t *key, int n)
{
    uint32_t *x = m->word;
    int i = 1, j = 0;
    seed_word(m, 19650218u);
    for (int k = N > n ? N : n; k > 0; k--) {
        x[i] = (x[i] ^ (x[i - 1] ^ x[i - 1] >> 30) * 1664525u) + key[j] + (uint32_t)j;
        if (++i == N) x[0] = x[N - 1], i = 1;
        if (++j == n) j = 0;
    }
    for (int k = N - 1; k > 0; k--) {
        x[i] = (x[i] ^ (x[i - 1] ^ x[i - 1] >> 30) * 1566083941u) - (uint32_t)i;
        if (++i == N) x[0] = x[N - 1], i = 1;
    }
    x[0] = 0x80000000u;
}

void pl_mersenne_seed(pl_mersenne *m, uint64_t seed)
{
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    pl_mersenne_seed_words(m, key, key[1] ? 2 : 1);
}

static void twist(pl_mersenne *m)
{
    uint32_t *x = m->word;
    for (int k = 0; k < N; k++) {
        uint32_t y = (x[k] & 0x80000000u) | (x[(k + 1) % N] & 0x7fffffffu);
        x[k] = x[(k + M) % N] ^ y >> 1 ^ (y & 1u ? 0x9908b0dfu : 0u);
    }
    m->next = 0;
}

uint32_t pl_mersenne_next(pl_mersenne *m)
{
    if (m->next >= N) twist(m);
    uint32_t y = m->word[m->next++];
    y ^= y >> 11;
    y ^= y << 7 & 0x9d2c5680u;
    y ^= y << 15 & 0xefc60000u;
    return y ^ y >> 18;
}

uint32_t pl_mersenne_below(pl_mersenne *m, uint32_t n)
{
    int bits = 0;
    for (uint32_t rest = n; rest; rest >>= 1) bits++;
    uint32_t r;
    do r = pl_mersenne_next(m) >> (32 - bits);
    while (r >= n);
    return r;
}

void pl_mersenne_sample(int64_t *out, int64_t *work, pl_mersenne *m, int64_t n, int64_t k)
{
    int64_t set = 21, power = 1;
    /* 3 k is no power of 4: what a rounded logarithm would make of one is no question */
    while (power < 3 * k) power *= 4;
    if (k > 5) set += power;
    for (int64_t i = 0; i < n; i++) work[i] = n <= set ? i : 0;
    for (int64_t i = 0; i < k; i++) {
        if (n <= set) { /* work is the pool of those left */
            int64_t j = pl_mersenne_below(m, (uint32_t)(n - i));
            out[i] = work[j];
            work[j] = work[n - i - 1];
        } else { /* work marks those taken */
            do out[i] = pl_mersenne_below(m, (uint32_t)n);
            while (work[out[i]]);
            work[out[i]] = 1;
        }
    }
}
