/* 05_ensemble.c -- eight runs side by side in one step, each with its own learning rate; one of them is
 * switched off.
 *
 *     05_ensemble [DEVICE]        # cpu unless told otherwise
 *
 * With members > 1 the first dimension of every weight and gradient counts the members. What a member does
 * depends on nobody else: its weights have the bits of a run of its own, and an inactive member (stopped
 * early, diverged) keeps its weights.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <polar/polar.h>

enum { MEMBERS = 8, ROWS = 16, COLS = 24, SIZE = ROWS * COLS, STEPS = 60, STOPPED = 3, ALONE = 5 };

static void must(polar_status st)
{
    if (st == POLAR_OK) return;
    fprintf(stderr, "%s: %s\n", polar_status_name(st), polar_error_message());
    exit(1);
}

static float target(int i)
{
    return (float)sin(0.1 * i * i);
}

static double loss(const float *W) /* ||W - C||^2 / 2 */
{
    double sum = 0;
    for (int i = 0; i < SIZE; i++) sum += 0.5 * ((double)W[i] - target(i)) * ((double)W[i] - target(i));
    return sum;
}

static double lr_of(int member)
{
    return 0.2 / (1 << member);
}

/* STEPS steps of Muon for n members from the weights W, (n, ROWS, COLS); member k of this call has the
 * learning rate of `first` + k. */
static void train(const char *device, float *W, int n, int first)
{
    polar_device *dev;
    polar_queue *q;
    polar_optim *opt;
    void *w, *g;
    size_t bytes = sizeof(float) * (size_t)n * SIZE;
    float *G = malloc(bytes);
    if (!G) exit(1);
    must(polar_device_open(&dev, device));
    must(polar_queue_create(&q, dev, NULL));
    must(polar_device_alloc(dev, &w, bytes));
    must(polar_device_alloc(dev, &g, bytes));
    polar_param param = {.name = "W",
                         .weight = polar_tensor_3d(w, POLAR_DTYPE_F32, n, ROWS, COLS),
                         .grad = polar_tensor_3d(g, POLAR_DTYPE_F32, n, ROWS, COLS)};
    if (n == 1) { /* one member: no dimension counts it */
        param.weight = polar_tensor_2d(w, POLAR_DTYPE_F32, ROWS, COLS);
        param.grad = polar_tensor_2d(g, POLAR_DTYPE_F32, ROWS, COLS);
    }
    polar_optim_opts o;
    must(polar_optim_opts_parse(&o, "muon"));
    o.members = n;
    must(polar_optim_create(&opt, dev, &param, 1, &o));
    for (int k = 0; k < n; k++)
        must(polar_optim_set_member(opt, k, lr_of(first + k), 0, 0, 0, first + k != STOPPED));

    polar_queue_upload(q, w, W, bytes);
    for (int step = 0; step < STEPS; step++) {
        for (int k = 0; k < n; k++)
            for (int i = 0; i < SIZE; i++) G[k * SIZE + i] = W[k * SIZE + i] - target(i);
        polar_queue_upload(q, g, G, bytes);
        must(polar_optim_step(opt, q)); /* one step for all */
        polar_queue_download(q, W, w, bytes);
        must(polar_queue_sync(q));
    }
    polar_optim_destroy(opt);
    polar_device_free(dev, w);
    polar_device_free(dev, g);
    polar_queue_destroy(q);
    polar_device_close(dev);
    free(G);
}

int main(int argc, char **argv)
{
    const char *device = argc > 1 ? argv[1] : "cpu";
    static float W[MEMBERS][SIZE], alone[1][SIZE];
    double start = loss(W[0]); /* everybody starts from zero */
    train(device, W[0], MEMBERS, 0);
    train(device, alone[0], 1, ALONE);

    int wrong = 0;
    for (int k = 0; k < MEMBERS; k++) {
        double end = loss(W[k]);
        printf("member %d  lr %.4f  loss %8.3f -> %8.3f%s\n", k, lr_of(k), start, end,
               k == STOPPED ? "   inactive" : "");
        wrong += k == STOPPED ? end != start : !(end < start);
    }
    for (int i = 0; i < SIZE; i++) wrong += W[STOPPED][i] != 0;
    int same = memcmp(W[ALONE], alone[0], sizeof alone[0]) == 0;
    printf("member %d trained alone: %s bits\n", ALONE, same ? "the same" : "OTHER");
    return wrong || !same ? 1 : 0;
}
