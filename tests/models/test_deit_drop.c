/* test_deit_drop.c -- stochastic depth: its draws, and what a vision transformer makes of them.
 *
 *     ctest -R test_deit_drop
 */
#include "fixtures/deit_fixture.h"
#include "nn/transformer.h"

enum { CLASSES = 7 };

static pl_deit_shape tiny(int64_t batch, double drop_path)
{
    return (pl_deit_shape){.members = 1,
                           .batch = batch,
                           .image = 8,
                           .patch = 2,
                           .width = 12,
                           .depth = 2,
                           .heads = 3,
                           .mlp_ratio = 2.5,
                           .classes = CLASSES,
                           .dtype = POLAR_DTYPE_F64,
                           .drop_path = drop_path};
}

/* n draws at a rate: how many are left out within 5 sd of sqrt(n r (1 - r)), so is the mean, whose sd is
 * sqrt(r / ((1 - r) n)). Draws repeat; every coordinate matters. */
static void draws(void)
{
    enum { n = 4000 };
    const double rate = 0.1;
    int64_t left = 0, other[4] = {0}, wrong = 0;
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        double f = pl_drop_path_factor(9, 70 + (uint64_t)i / 100, i / 10 % 10, i % 10, rate);
        left += f == 0;
        sum += f;
        wrong += (f != 0 && f != 1 / (1 - rate)) ||
                 f != pl_drop_path_factor(9, 70 + (uint64_t)i / 100, i / 10 % 10, i % 10, rate);
        double h = pl_drop_path_factor(9, (uint64_t)i, 1, 2, 0.5);
        other[0] += h != pl_drop_path_factor(10, (uint64_t)i, 1, 2, 0.5),
            other[1] += h != pl_drop_path_factor(9, (uint64_t)i + 1, 1, 2, 0.5);
        other[2] += h != pl_drop_path_factor(9, (uint64_t)i, 2, 2, 0.5),
            other[3] += h != pl_drop_path_factor(9, (uint64_t)i, 1, 3, 0.5);
    }
    test_exact("factors are 0 or 1/(1 - rate), and repeat", wrong);
    test_bound("left out at 0.1", fabs((double)left - n * rate), 5 * sqrt(n * rate * (1 - rate)), "5 sd");
    test_bound("mean factor - 1", fabs(sum / n - 1), 5 * sqrt(rate / (1 - rate) / n), "5 sd");
    for (int k = 0; k < 4; k++)
        test_bound("another coordinate is another draw", fabs((double)other[k] - n / 2.0), 5 * sqrt(n) / 2,
                   "5 sd");
    test_true("rates as timm's linspace",
              PART(pl_drop_path_rate(0.1, 0, 12) == 0) && PART(pl_drop_path_rate(0.1, 11, 12) == 0.1) &&
                  PART(fabs(pl_drop_path_rate(0.1, 5, 12) - 0.05 / 1.1) < 1e-16) &&
                  PART(pl_drop_path_rate(0.3, 0, 1) == 0),
              "0 to 0.1 over 12 blocks");
}

/* An image that leaves out the last block has the logits of a model without it, bit for bit; one that keeps
 * it those of a model with twice the branch (rate 1/2). The same sums in another order: 1e-13 of the logits
 * is 500 roundings. */
static void left_out(const char *device)
{
    enum { N = 24 };
    pl_deit_shape two = tiny(N, 0.5), without = two, twice = two;
    two.depth = twice.depth = 2, without.depth = 1, twice.drop_path = without.drop_path = 0;
    vit_net a = vit_open(device, &two, 1), s = vit_open(device, &without, 0), d = vit_open(device, &twice, 0);
    double *x = model_new(N * vit_pixels(&two)), *w = model_new(a.total), z[N * CLASSES], z0[N * CLASSES],
           z2[N * CLASSES], worst = 0;
    int64_t at = 0, bad = 0, none = 0, both = 0;
    const uint64_t seed = 3;
    vit_images(x, N * vit_pixels(&two), 27);
    vit_weights(&a, w, 28);
    vit_set_weights(&a, w);
    for (int64_t i = 0; i < a.count; at += a.params[i].rows * a.params[i].cols, i++) {
        const char *name = a.params[i].name;
        for (int64_t k = 0; k < s.count; k++)
            if (!strcmp(s.params[k].name, name)) TEST_TRY(pl_mat_upload_f64(s.q, &s.params[k].W, w + at));
        for (int64_t k = 0;
             (!strncmp(name, "blocks.1.attn.proj", 18) || !strncmp(name, "blocks.1.mlp.fc2", 16)) &&
             k < a.params[i].rows * a.params[i].cols;
             k++)
            w[at + k] *= 2;
    }
    vit_set_weights(&d, w);
    pl_deit_set_drop(a.m, a.q, &seed, 1, N);
    vit_run(&a, N, x, NULL, NULL, z, NULL);
    vit_run(&s, N, x, NULL, NULL, z0, NULL);
    vit_run(&d, N, x, NULL, NULL, z2, NULL);
    for (int64_t i = 0; i < N; i++) {
        double f1 = pl_drop_path_factor(seed, 1, 2, i, 0.5), f2 = pl_drop_path_factor(seed, 1, 3, i, 0.5);
        if (f1 == 0 && f2 == 0) none++, bad += model_mismatches(z + i * CLASSES, z0 + i * CLASSES, CLASSES);
        if (f1 > 0 && f2 > 0)
            both++, worst = fmax(worst, model_norm(z + i * CLASSES, z2 + i * CLASSES, CLASSES) /
                                            model_norm(z2 + i * CLASSES, NULL, CLASSES));
    }
    test_true("images that leave out the last block", none > 0 && both > 0 && !bad,
              "%lld and %lld that keep it, %lld logits differ", (long long)none, (long long)both,
              (long long)bad);
    test_bound("images that keep it twice as large", worst, 1e-13, "another order of the sums");
    pl_deit_set_drop(a.m, a.q, NULL, 0, 0);
    vit_run(&a, N, x, NULL, NULL, z, NULL);
    int64_t differs = model_mismatches(z, z0, N * CLASSES) && model_mismatches(z, z2, N * CLASSES);
    test_true("without draws nothing is left out", differs, "other logits than both");
    vit_close(&a);
    vit_close(&s);
    vit_close(&d);
    free(x), free(w);
}

/* What it costs DeiT-Tiny in mixed precision, by a dry run: 11 blocks, two branches each. Where the device
 * takes factors of rows in the product that ends a branch there is no op more than without them, and the
 * bytes are the factors, read once forward and once backward; elsewhere there is an op more a branch. */
static void cost(const char *device)
{
    enum { BRANCHES = 22 };
    pl_deit_shape plain = PL_DEIT_TINY, dropped;
    pl_device *dev;
    pl_queue *q;
    polar_cost without, with;
    plain.dtype = POLAR_DTYPE_BF16, dropped = plain, dropped.drop_path = 0.1;
    const int64_t B = plain.batch, C = plain.width, rows = B * 197;
    void *somewhere = (void *)4096; /* of the right alignment; a dry run looks at no data */
    const pl_mat stream = pl_mat_dense(somewhere, POLAR_DTYPE_F32, 1, rows, C);
    const pl_args_gemm_act end = {.Y = stream,
                                  .A = pl_mat_dense(somewhere, POLAR_DTYPE_BF16, 1, rows, C),
                                  .B = pl_mat_dense(somewhere, POLAR_DTYPE_BF16, 1, C, C),
                                  .D = stream,
                                  .b = pl_mat_dense(somewhere, POLAR_DTYPE_F32, 1, 1, C),
                                  .s = pl_mat_dense(somewhere, POLAR_DTYPE_F32, 1, B, 1),
                                  .tb = 1};
    TEST_TRY(polar_device_open(&dev, device));
    TEST_TRY(polar_queue_create(&q, dev, NULL));
    TEST_TRY(pl_deit_cost(&without, NULL, dev, &plain, 1));
    TEST_TRY(pl_deit_cost(&with, NULL, dev, &dropped, 1));
    const int fused = pl_queue_serves(q, PL_OP_gemm_act, &end);
    const double more = with.bytes - without.bytes, read = 2 * BRANCHES * (double)(B * 4);
    test_true("what it costs a step",
              PART(with.ops - without.ops == (fused ? 0 : BRANCHES)) &&
                  PART(fused ? more == read : more >= read),
              "%lld ops and %.0f bytes more, factors %s", (long long)(with.ops - without.ops), more,
              fused ? "in the products" : "apart");
    polar_queue_destroy(q);
    polar_device_close(dev);
}

int main(int argc, char **argv)
{
    const char *device = test_begin(argc, argv);
    draws();
    left_out(device);
    cost(device);
    return test_end();
}
