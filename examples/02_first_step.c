/* 02_first_step.c -- PolarAdamW on the smallest least-squares problem, ||W - C||^2 / 2 with the gradient W -
 * C. The loss falls.
 *
 *     02_first_step [DEVICE]        # cpu unless told otherwise
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <polar/polar.h>

enum { ROWS = 16, COLS = 32, SIZE = ROWS * COLS, STEPS = 100 };

static void must(polar_status st)
{
    if (st == POLAR_OK) return;
    fprintf(stderr, "%s\n", polar_error_message());
    exit(1);
}

int main(int argc, char **argv)
{
    static float W[SIZE], C[SIZE], G[SIZE];
    for (int i = 0; i < SIZE; i++) C[i] = (float)sin(i * (double)i);

    polar_device *dev;
    polar_queue *q;
    polar_optim *opt;
    void *w, *g; /* W and G in the memory of the device */
    must(polar_device_open(&dev, argc > 1 ? argv[1] : "cpu"));
    must(polar_queue_create(&q, dev, NULL));
    must(polar_device_alloc(dev, &w, sizeof W));
    must(polar_device_alloc(dev, &g, sizeof G));
    polar_queue_upload(q, w, W, sizeof W);

    polar_param param = {.name = "W",
                         .weight = polar_tensor_2d(w, POLAR_DTYPE_F32, ROWS, COLS),
                         .grad = polar_tensor_2d(g, POLAR_DTYPE_F32, ROWS, COLS)};
    polar_optim_opts o = POLAR_OPTIM_OPTS_INIT; /* PolarAdamW */
    o.lr = 0.1;
    o.weight_decay = 0;
    o.schedule.total = STEPS; /* a cosine to zero */
    must(polar_optim_create(&opt, dev, &param, 1, &o));

    double loss = 0, first = 0;
    for (int step = 0;; step++) {
        loss = 0;
        for (int i = 0; i < SIZE; i++) {
            G[i] = W[i] - C[i];
            loss += 0.5 * G[i] * G[i];
        }
        if (step == 0) first = loss;
        if (step % 20 == 0) printf("step %3d  loss %9.5f\n", step, loss);
        if (step == STEPS) break;
        polar_queue_upload(q, g, G, sizeof G);
        must(polar_optim_step(opt, q)); /* only enqueues */
        polar_queue_download(q, W, w, sizeof W);
        must(polar_queue_sync(q));
    }

    polar_optim_destroy(opt);
    polar_device_free(dev, w);
    polar_device_free(dev, g);
    polar_queue_destroy(q);
    polar_device_close(dev);
    return loss < 0.01 * first ? 0 : 1;
}
