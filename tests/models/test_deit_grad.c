/* test_deit_grad.c -- the vision transformer's gradients against differences of its loss, with and without
 * stochastic depth.
 *
 *     ctest -R test_deit_grad
 */
#include "fixtures/deit_fixture.h"
#include "nn/transformer.h"

#define U64 0x1p-53

/* Along a random direction v in one array the loss is a function f(t), and f'(0) = <gradient, v>; v has no
 * zero, so that every entry counts. The derivative by the five-point rule at step t is exact up to t^4 f5 /
 * 30 and rounding. Two steps, t and t/2, are taken by eight members of one model, each moved by its own
 * amount. The finer value's truncation error is 1/15 of the difference of the two to leading order; the whole
 * difference is granted. Rounding: a loss carries a relative error of a few u sqrt(K) (K = 64 terms at most
 * here); 16 u is granted for each of the four losses, whose coefficients sum to 18/12 over the step. */
static double stencil(const double f[4], double t) /* f at -2t, -t, t, 2t */
{
    return (f[0] - 8 * f[1] + 8 * f[2] - f[3]) / (12 * t);
}

enum { members = 8, B = 3, DIRECTIONS = 3 };

/* An odd shape: 5 tokens, 3 heads of 2 channels, 9 hidden channels, 7 classes. */
static pl_deit_shape odd(int64_t E, double drop_path)
{
    return (pl_deit_shape){.members = E,
                           .batch = B,
                           .image = 6,
                           .patch = 3,
                           .width = 6,
                           .depth = 3,
                           .heads = 3,
                           .mlp_ratio = 1.5,
                           .classes = 7,
                           .dtype = POLAR_DTYPE_F64,
                           .drop_path = drop_path};
}

static void count_draws(const pl_deit_shape *s, uint64_t seed, uint64_t when)
{
    int64_t kept = 0, left = 0;
    for (int64_t branch = 2; branch < 2 * s->depth; branch++)
        for (int64_t i = 0; i < B; i++)
            *(pl_drop_path_factor(seed, when, branch, i,
                                  pl_drop_path_rate(s->drop_path, branch / 2, s->depth)) > 0
                  ? &kept
                  : &left) += 1;
    test_true("some branches are kept and some left out", kept > 2 && left > 2, "%lld and %lld",
              (long long)kept, (long long)left);
}

/* Members' arrays in one model: the same weights in all, array k of member m moved by at[m] * step * v. */
static void differences(const char *device, double drop_path)
{
    static const double at[members] = {-2, -1, 1, 2, -1, -0.5, 0.5, 1};
    const double step = 4e-3;
    const uint64_t seeds[members] = {4, 4, 4, 4, 4, 4, 4, 4}, when = 5;
    pl_deit_shape one = odd(1, drop_path), many = odd(members, drop_path);
    vit_net a = vit_open(device, &one, 1), e = vit_open(device, &many, 0);
    int64_t nx = B * vit_pixels(&one), nt = B * one.classes;
    double *x = model_new(members * nx), *t = model_new(members * nt), *w = model_new(a.total),
           *g = model_new(a.total), *all = model_new(members * a.total), *v = model_new(a.total),
           loss[members];
    vit_images(x, nx, 1);
    vit_targets(t, B, one.classes, 2);
    for (int64_t i = 1; i < members; i++)
        memcpy(x + i * nx, x, (size_t)nx * sizeof *x), memcpy(t + i * nt, t, (size_t)nt * sizeof *t);
    vit_weights(&a, w, 3);
    vit_set_weights(&a, w);
    if (drop_path > 0) {
        count_draws(&one, 4, when);
        pl_deit_set_drop(a.m, a.q, seeds, when, B);
        pl_deit_set_drop(e.m, e.q, seeds, when, B);
    }
    vit_run(&a, B, x, t, NULL, NULL, g);
    for (int64_t k = 0, first = 0; k < a.count; first += a.params[k].rows * a.params[k].cols, k++)
        for (int64_t m = 0, n = a.params[k].rows * a.params[k].cols; m < members; m++)
            memcpy(all + members * first + m * n, w + first, (size_t)n * sizeof *w);
    vit_set_weights(&e, all);
    double share = -1, err = 0, tol = 1, least = INFINITY;
    char line[128] = "";
    for (int64_t k = 0, first = 0; k < a.count; first += a.params[k].rows * a.params[k].cols, k++) {
        int64_t n = a.params[k].rows * a.params[k].cols;
        double *p = all + members * first;
        for (int64_t d = 0; d < DIRECTIONS; d++) {
            double size = 0, want = 0;
            for (int64_t i = 0; i < n; i++)
                v[i] = vit_normal(100 + (uint64_t)(DIRECTIONS * k + d), i), size += v[i] * v[i];
            for (int64_t i = 0; i < n; i++) v[i] /= sqrt(size), want += g[first + i] * v[i];
            for (int64_t m = 0; m < members; m++)
                for (int64_t i = 0; i < n; i++) p[m * n + i] = w[first + i] + at[m] * step * v[i];
            TEST_TRY(pl_mat_upload_f64(e.q, &e.params[k].W, p));
            vit_run(&e, B, x, t, loss, NULL, NULL);
            double coarse = stencil(loss, step), fine = stencil(loss + 4, step / 2),
                   biggest = fmax(fmax(loss[0], loss[3]), fmax(loss[1], loss[2]));
            double granted = fabs(coarse - fine) + 16 * U64 * biggest * 1.5 / (step / 2),
                   off = fabs(want - fine);
            if (!(off / granted <= share))
                share = off / granted, err = off, tol = granted,
                snprintf(line, sizeof line, "drop_path %.1f, worst %s", drop_path, a.params[k].name);
        }
        least = fmin(least, model_norm(g + first, NULL, n));
        for (int64_t m = 0; m < members; m++) memcpy(p + m * n, w + first, (size_t)n * sizeof *w);
        TEST_TRY(pl_mat_upload_f64(e.q, &e.params[k].W, p));
    }
    test_bound(line, err, tol, "two five-point rules");
    test_true("every array has a gradient to get wrong", least > 1e-4, "the smallest norm is %.1e", least);
    vit_close(&a);
    vit_close(&e);
    free(x), free(t), free(w), free(g), free(all), free(v);
}

int main(int argc, char **argv)
{
    const char *device = test_begin(argc, argv);
    differences(device, 0);
    differences(device, 0.6);
    return test_end();
}
