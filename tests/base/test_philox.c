/* test_philox.c -- Philox4x32-10 against the published vectors; the packing of coordinates; moments of what
 * is made of its bits.
 *
 * Statistical bounds: with n independent draws a mean has standard deviation sd/sqrt(n); the bound is 6 of
 * them, which a right generator passes with probability 1 - 2e-9 per line. The seed is fixed, so a line
 * passes always or never.
 */
#include "base/philox.h"

#include "test.h"

#define N    ((int64_t)1 << 18)
#define SEED 0x0123456789abcdefull

static int same(pl_u4 a, uint32_t x, uint32_t y, uint32_t z, uint32_t w)
{
    return a.x == x && a.y == y && a.z == z && a.w == w;
}

static void published(void)
{
    static const struct {
        pl_u4 counter;
        uint32_t key[2];
        pl_u4 want;
    } rows[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    int64_t wrong = 0;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        pl_u4 w = rows[i].want;
        wrong += !same(pl_philox4x32(rows[i].counter, rows[i].key[0], rows[i].key[1]), w.x, w.y, w.z, w.w);
    }
    test_exact("three published vectors", wrong);
}

/* The third vector again, through the coordinates. */
static void packing(void)
{
    uint64_t seed = 0x299f31d0a4093822ull, index = 0x85a308d3243f6a88ull, step = 0x734413198a2eull;
    pl_u4 r = pl_philox(seed, 0x0370, step, index);
    test_exact("(seed, stream, step, index) -> key, counter",
               !same(r, 0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1));

    /* every coordinate, at its low and high end, changes the draw */
    pl_u4 base = pl_philox(SEED, 1, 2, 3);
    pl_u4 other[] = {pl_philox(SEED ^ 1, 1, 2, 3), pl_philox(SEED ^ 1ull << 63, 1, 2, 3),
                     pl_philox(SEED, 0, 2, 3),     pl_philox(SEED, 0x8001, 2, 3),
                     pl_philox(SEED, 1, 3, 3),     pl_philox(SEED, 1, 2 | 1ull << 47, 3),
                     pl_philox(SEED, 1, 2, 2),     pl_philox(SEED, 1, 2, 3 | 1ull << 63),
                     pl_philox(SEED, 2, 1, 3),     pl_philox(SEED, 1, 3, 2)};
    int64_t equal = 0;
    for (size_t i = 0; i < sizeof other / sizeof *other; i++)
        equal += same(other[i], base.x, base.y, base.z, base.w);
    test_exact("each coordinate counts", equal);
}

static void ends(void)
{
    test_true("uniform f64 stays inside (0, 1)",
              pl_uniform_f64(0, 0) == 0x1p-53 && pl_uniform_f64(~0u, ~0u) == 1 - 0x1p-53, "ends %a, 1 - %a",
              pl_uniform_f64(0, 0), 1 - pl_uniform_f64(~0u, ~0u));
    test_true("uniform f32 stays inside (0, 1)",
              pl_uniform_f32(0) == 0x1p-24f && pl_uniform_f32(~0u) == 1 - 0x1p-24f, "ends %a, 1 - %a",
              (double)pl_uniform_f32(0), (double)(1 - pl_uniform_f32(~0u)));
    test_true("below(n) stays below n",
              pl_uniform_below(~0u, 7) == 6 && pl_uniform_below(0, 7) == 0 && pl_uniform_below(~0u, 1) == 0,
              "0 to %u", pl_uniform_below(~0u, 7));
    pl_n2 z = pl_normal_from((pl_u4){0, 0, 0, 0});
    test_true("normals are finite at the ends", fabs(z.a) < 8.58 && fabs(z.b) < 8.58, "%.4f %.1e", z.a, z.b);
}

static void uniform_moments(void)
{
    double mean = 0, square = 0, lag = 0, mean32 = 0, before = 0;
    int64_t bucket[256] = {0}, bit[32] = {0};
    for (int64_t i = 0; i < N; i++) {
        pl_u4 r = pl_philox(SEED, PL_STREAM_TEST, 0, (uint64_t)i);
        double u = pl_uniform_f64(r.x, r.y) - 0.5;
        mean += u;
        square += u * u;
        lag += u * before;
        before = u;
        mean32 += (double)pl_uniform_f32(r.z) - 0.5;
        bucket[pl_uniform_below(r.w, 256)]++;
        for (int b = 0; b < 32; b++) bit[b] += r.w >> b & 1;
    }
    double n = (double)N, chi = 0, bits = 0;
    for (int i = 0; i < 256; i++)
        chi += ((double)bucket[i] - n / 256) * ((double)bucket[i] - n / 256) / (n / 256);
    for (int b = 0; b < 32; b++) bits = fmax(bits, fabs((double)bit[b] - n / 2));
    test_bound("uniform: mean - 1/2", fabs(mean / n), 6 * sqrt(1 / 12.0 / n), "6 sd, var u = 1/12");
    test_bound("uniform: variance - 1/12", fabs(square / n - 1 / 12.0), 6 * sqrt(1 / 180.0 / n),
               "6 sd, var (u-1/2)^2 = 1/80 - 1/144 = 1/180");
    test_bound("uniform: neighbours are uncorrelated", fabs(lag / n), 6 / 12.0 / sqrt(n),
               "6 sd, var u u' = 1/144");
    test_bound("uniform f32: mean - 1/2", fabs(mean32 / n), 6 * sqrt(1 / 12.0 / n), "6 sd");
    test_bound("uniform: chi^2 over 256 buckets - 255", fabs(chi - 255), 6 * sqrt(2 * 255.0),
               "6 sd, var chi^2_k = 2k");
    test_bound("uniform: each bit is set half the time", bits, 6 * sqrt(n / 4), "6 sd of a fair coin");
}

static void normal_moments(void)
{
    double s[5] = {0}, ab = 0, steps = 0, streams = 0;
    for (int64_t i = 0; i < N; i++) {
        pl_n2 z = pl_normal(SEED, PL_STREAM_TEST, 1, (uint64_t)i),
              t = pl_normal(SEED, PL_STREAM_TEST, 2, (uint64_t)i),
              v = pl_normal(SEED, PL_STREAM_VERIFY, 1, (uint64_t)i);
        double p = z.a, q = z.b;
        for (int k = 1; k <= 4; k++, p *= z.a, q *= z.b) s[k] += p + q;
        ab += z.a * z.b;
        steps += z.a * t.a;
        streams += z.a * v.a;
    }
    double n = (double)N, n2 = 2 * n;
    test_bound("normal: mean", fabs(s[1] / n2), 6 / sqrt(n2), "6 sd, var z = 1");
    test_bound("normal: second moment - 1", fabs(s[2] / n2 - 1), 6 * sqrt(2 / n2), "6 sd, var z^2 = 2");
    test_bound("normal: third moment", fabs(s[3] / n2), 6 * sqrt(15 / n2), "6 sd, var z^3 = 15");
    test_bound("normal: fourth moment - 3", fabs(s[4] / n2 - 3), 6 * sqrt(96 / n2),
               "6 sd, var z^4 = 105 - 9");
    test_bound("normal: the two of a pair are uncorrelated", fabs(ab / n), 6 / sqrt(n), "6 sd, var = 1");
    test_bound("normal: steps are uncorrelated", fabs(steps / n), 6 / sqrt(n), "6 sd, var = 1");
    test_bound("normal: streams are uncorrelated", fabs(streams / n), 6 / sqrt(n), "6 sd, var = 1");
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    published();
    packing();
    ends();
    uniform_moments();
    normal_moments();
    return test_end();
}
