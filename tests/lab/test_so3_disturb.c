/* test_so3_disturb.c -- disturbed updates: noise of exactly the size asked for, turns of exactly the angle
 * that leave the singular values; runs that do not feel their mates, and go on where they were saved. */
#include <math.h>

#include "lab/so3/so3_disturb.h"
#include "base/philox.h"
#include "fixtures/so3_fixture.h"

#define ROWS 6
#define COLS 11
#define N    (ROWS * COLS)

static void draw(double *D)
{
    for (int i = 0; i < N; i++) D[i] = pl_normal(5, PL_STREAM_TEST, 1, (uint64_t)i).a;
}

static double norm(const double *a, const double *b, int n)
{
    double s = 0;
    for (int i = 0; i < n; i++) s += (a[i] - (b ? b[i] : 0)) * (a[i] - (b ? b[i] : 0));
    return sqrt(s);
}

/* D^T D: what a rotation of the rows leaves as it is. */
static void gram(double *out, const double *D)
{
    for (int i = 0; i < COLS; i++)
        for (int j = 0; j < COLS; j++) {
            out[i * COLS + j] = 0;
            for (int r = 0; r < ROWS; r++) out[i * COLS + j] += D[r * COLS + i] * D[r * COLS + j];
        }
}

static void apply(double *out, const pl_disturb *how, uint64_t seed, int64_t number, int64_t step)
{
    draw(out);
    TEST_TRY(pl_disturb_update(out, ROWS, COLS, how, seed, number, step));
}

/* Sums of N squares: N u / 2 relative, and what was rounded on the way. */
#define TOL (4 * N * 0x1p-53)

static void test_sizes(void)
{
    double D[N], E[N], F[N], G[COLS * COLS], H[COLS * COLS];
    draw(D);
    static const double sizes[] = {1e-3, 0.03, 0.7, 20};
    for (int i = 0; i < 4; i++) {
        const pl_disturb noise = {.noise = sizes[i], .redraw = 1};
        apply(E, &noise, 1, 2, 3);
        test_bound("noise has the size asked for", fabs(norm(E, D, N) / norm(D, NULL, N) / sizes[i] - 1),
                   TOL + 0x1p-52 / sizes[i] * 4, "rounding of the sum and of D + noise");
    }
    static const double angles[] = {1e-3, 0.3, 1.5707963267948966, 3.14};
    for (int i = 0; i < 4; i++) {
        const pl_disturb turn = {.turn = angles[i], .redraw = 1};
        apply(E, &turn, 1, 2, 3);
        test_bound("a turn has its angle",
                   fabs(norm(E, D, N) / norm(D, NULL, N) / (2 * sin(angles[i] / 2)) - 1),
                   TOL + 0x1p-52 / angles[i] * 4, "rounding of the sum and of R D - D");
        gram(G, D);
        gram(H, E);
        test_bound("... and leaves D^T D", norm(G, H, COLS * COLS) / norm(G, NULL, COLS * COLS), TOL,
                   "rounding");
    }
    const pl_disturb noise = {.noise = 1, .redraw = 1}, turn = {.turn = 1, .redraw = 1},
                     fixed = {.turn = 1, .redraw = 0}, slow = {.turn = 1, .redraw = 5};
    int64_t same = 0, differ = 0;
    const pl_disturb *both[] = {&noise, &turn};
    for (int i = 0; i < 2; i++) {
        apply(E, both[i], 1, 2, 3);
        apply(F, both[i], 1, 2, 3);
        differ += memcmp(E, F, sizeof E) != 0;
        apply(F, both[i], 2, 2, 3), same += !memcmp(E, F, sizeof E);
        apply(F, both[i], 1, 3, 3), same += !memcmp(E, F, sizeof E);
        apply(F, both[i], 1, 2, 4), same += !memcmp(E, F, sizeof E);
    }
    test_exact("other draws for another seed, parameter, step; the same for the same", same + differ);
    apply(E, &fixed, 1, 2, 1);
    apply(F, &fixed, 1, 2, 1000);
    differ = memcmp(E, F, sizeof E) != 0;
    apply(E, &slow, 1, 2, 1);
    apply(F, &slow, 1, 2, 5), differ += memcmp(E, F, sizeof E) != 0;
    apply(F, &slow, 1, 2, 6), differ += memcmp(E, F, sizeof E) == 0;
    test_exact("one turn for the run, or for five steps", differ);
}

static void test_runs(const char *device)
{
    const run_arm arms[] = {{"optim.rule=muon update.noise=0.5", 1},
                            {"optim.rule=muon", 1},
                            {"optim.rule=muon update.turn=0.8 update.redraw=0", 1},
                            {"optim.rule=muon update.noise=1e-12 train.patience=1", 1}};
    run_story together[4], alone, resumed[4];
    run_rig r;
    const char *path = in_folder("checkpoint");
    int more = 1;
    run_run(together, device, arms, 4);
    for (int i = 0; i < 4; i++) {
        run_run(&alone, device, &arms[i], 1);
        test_exact("a disturbed member of four, and alone", story_differs(&together[i], &alone));
        run_free(&alone, 1);
    }
    test_true("noise and turns change a run",
              together[0].row[3].valid != together[1].row[3].valid &&
                  together[2].row[3].valid != together[1].row[3].valid,
              "%.6f, %.6f beside %.6f", together[0].row[3].valid, together[2].row[3].valid,
              together[1].row[3].valid);
    TEST_TRY(run_open(&r, device, arms, 4));
    run_begin_story(resumed, 4);
    for (int i = 0; i < 2; i++) more = run_epoch(&r, resumed);
    TEST_TRY(pl_testbed_so3.save(r.t, path));
    run_close(&r);
    TEST_TRY(run_open(&r, device, arms, 4));
    TEST_TRY(pl_testbed_so3.load(r.t, path));
    while (more) more = run_epoch(&r, resumed);
    run_finish(&r, resumed);
    run_close(&r);
    remove(path);
    int64_t bad = 0;
    for (int i = 0; i < 4; i++) bad += story_differs(&together[i], &resumed[i]);
    test_exact("saved and loaded", bad);
    run_free(together, 4);
    run_free(resumed, 4);
}

static void test_refusal(void)
{
    pl_config *c = config_of("optim.rule=muon update.noise=1 optim.weight_decay=0.1");
    polar_status st = bed->schema->check(c);
    test_true("noise with weight decay is refused",
              st == POLAR_E_ARG && strstr(polar_error_message(), "weight_decay"), "%s",
              polar_error_message());
    pl_config_destroy(c);
}

int main(int argc, char **argv)
{
    const char *device = test_begin(argc, argv);
    folder_open();
    test_sizes();
    test_runs(device);
    test_refusal();
    folder_close();
    return test_end();
}
