/* mersenne.h -- Python's random.Random(seed): the Mersenne Twister MT19937 (Matsumoto, Nishimura 1998), and
 * `sample` as CPython 3.11 and later draw it.
 *
 * Only for what has to agree with Python: the paper chose its classes by
 * random.Random(seed).sample(range(1000), 100). Everything else here draws by Philox.
 *
 *     pl_mersenne m;
 *     pl_mersenne_seed(&m, 42);
 *     pl_mersenne_sample(classes, work, &m, 1000, 100);      // classes: 100 numbers, work: room for 1000
 */
#ifndef PL_MATH_MERSENNE_H
#define PL_MATH_MERSENNE_H

#include <stdint.h>

#define PL_MERSENNE_WORDS 624

typedef struct pl_mersenne {
    uint32_t word[PL_MERSENNE_WORDS];
    int next; /* of the words that are ready, the next; PL_MERSENNE_WORDS: none is left */
} pl_mersenne;

/* the published init_by_array; n >= 1 */
void pl_mersenne_seed_words(pl_mersenne *m, const uint32_t *key, int n);
/* random.Random(seed) for 0 <= seed < 2^64 */
void pl_mersenne_seed(pl_mersenne *m, uint64_t seed);
uint32_t pl_mersenne_next(pl_mersenne *m); /* 32 random bits */
/* randrange(n), n >= 1: the top bits until they are below n */
uint32_t pl_mersenne_below(pl_mersenne *m, uint32_t n);
/* sample(range(n), k), 0 <= k <= n < 2^32; work: n numbers, overwritten */
void pl_mersenne_sample(int64_t *out, int64_t *work, pl_mersenne *m, int64_t n, int64_t k);

#endif
