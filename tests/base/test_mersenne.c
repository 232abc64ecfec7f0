/* test_mersenne.c -- MT19937 against the published outputs, Python's seeds and samples, and the class
 * overlaps that the paper prints. */
#include "math/mersenne.h"

#include "base/alloc.h"
#include "test.h"

#define COUNT(list) ((int)(sizeof(list) / sizeof *(list)))

static void published(void)
{
    static const uint32_t key[4] = {0x123, 0x234, 0x345, 0x456},
                          want[5] = {1067595299u, 955945823u, 477289528u, 4107218783u, 4228976476u};
    pl_mersenne m;
    int64_t wrong = 0;
    pl_mersenne_seed_words(&m, key, 4);
    for (int i = 0; i < 5; i++) wrong += pl_mersenne_next(&m) != want[i];
    test_exact("the first outputs of mt19937ar.out", wrong);
    for (int i = 5; i < 999; i++) (void)pl_mersenne_next(&m);
    test_exact("the thousandth", pl_mersenne_next(&m) != 3460025646u);
}

/* r = random.Random(2**40 + 5); [r.getrandbits(32) for _ in range(4)] */
static void wide_seed(void)
{
    static const uint32_t want[4] = {2166296868u, 2220160828u, 1153647273u, 2850991874u};
    pl_mersenne m;
    int64_t wrong = 0;
    pl_mersenne_seed(&m, ((uint64_t)1 << 40) + 5);
    for (int i = 0; i < 4; i++) wrong += pl_mersenne_next(&m) != want[i];
    test_exact("random.Random(2**40 + 5)", wrong);
    /* all 32 bits, and no bit */
    pl_mersenne_seed(&m, 1);
    for (int i = 0; i < 1000; i++)
        wrong += pl_mersenne_below(&m, 0xffffffffu) == 0xffffffffu || pl_mersenne_below(&m, 1) != 0;
    test_exact("below(2^32 - 1), below(1)", wrong);
}

/* Hash of random.Random(seed).sample(range(n), k): h = (h ^ x) * 1099511628211 over the numbers, from
 * 14695981039346656037. */
static const struct {
    uint64_t seed;
    int64_t n, k;
    uint64_t hash;
} samples[] = {
    {42, 1000, 100, 0x3f2e292338b4b403u}, {0, 21, 21, 0x2eba9af7c9bee955u},
    {1, 22, 3, 0xb669f818583b38c3u},      {7, 100000, 20, 0xc37024185482923fu},
    {5, 1046, 100, 0xf31d248f90a7a968u}, /* one more than a pool would hold: by rejection */
    {5, 1045, 100, 0xa6b5340eab098bcbu},  {9, 278, 20, 0xc74bcf4813d40294u},
    {9, 277, 20, 0xc74bcf4813d40294u},    {((uint64_t)1 << 40) + 5, 4096, 6, 0x947db24e5871747au},
    {3, 1, 1, 0xaf63bd4c8601b7dfu},
};

static void against_python(void)
{
    char what[80];
    int64_t *work = pl_alloc(100000 * sizeof *work), out[100];
    if (!work) exit(1);
    for (int i = 0; i < COUNT(samples); i++) {
        pl_mersenne m;
        uint64_t hash = 14695981039346656037u;
        pl_mersenne_seed(&m, samples[i].seed);
        pl_mersenne_sample(out, work, &m, samples[i].n, samples[i].k);
        for (int64_t k = 0; k < samples[i].k; k++) hash = (hash ^ (uint64_t)out[k]) * 1099511628211u;
        snprintf(what, sizeof what, "Random(%llu).sample(range(%lld), %lld)",
                 (unsigned long long)samples[i].seed, (long long)samples[i].n, (long long)samples[i].k);
        test_exact(what, hash != samples[i].hash);
    }
    pl_free(work);
}

/* The paper, appendix "Per-seed class subsets and overlap matrix". */
static void overlaps(void)
{
    static const uint64_t seeds[4] = {42, 7, 123, 2024};
    static const int want[4][4] = {{100, 10, 17, 9}, {10, 100, 9, 4}, {17, 9, 100, 6}, {9, 4, 6, 100}};
    static int chosen[4][1000];
    int64_t out[100], work[1000], wrong = 0;
    for (int s = 0; s < 4; s++) {
        pl_mersenne m;
        pl_mersenne_seed(&m, seeds[s]);
        pl_mersenne_sample(out, work, &m, 1000, 100);
        for (int i = 0; i < 100; i++) chosen[s][out[i]]++;
    }
    for (int a = 0; a < 4; a++)
        for (int b = 0; b < 4; b++) {
            int both = 0;
            for (int c = 0; c < 1000; c++) both += chosen[a][c] && chosen[b][c];
            wrong += both != want[a][b];
        }
    test_exact("the paper's overlap matrix: 10, 17, 9, 9, 4, 6", wrong);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    published();
    wide_seed();
    against_python();
    overlaps();
    return test_end();
}
