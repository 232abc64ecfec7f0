/* 04_resume.c -- ten steps, a checkpoint, a fresh optimiser, ten more: the same bits as twenty steps in one
 * go.
 *
 *     04_resume [DEVICE]        # cpu unless told otherwise
 *
 * polar_optim_save writes the optimiser's state (momenta, step count); the weights are the caller's and are
 * kept by the caller.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <polar/polar.h>

enum { ROWS = 24, COLS = 16, BIAS = 24, SIZE = ROWS * COLS + BIAS };

static void must(polar_status st)
{
    if (st == POLAR_OK) return;
    fprintf(stderr, "%s: %s\n", polar_status_name(st), polar_error_message());
    exit(1);
}

/* one training: a matrix and a bias in one piece of device memory, their gradients in another */
typedef struct {
    polar_device *dev;
    polar_queue *q;
    polar_optim *opt;
    float *w, *g;
} training;

static void training_begin(training *t, const char *device)
{
    void *w, *g;
    must(polar_device_open(&t->dev, device));
    must(polar_queue_create(&t->q, t->dev, NULL));
    must(polar_device_alloc(t->dev, &w, sizeof(float) * SIZE));
    must(polar_device_alloc(t->dev, &g, sizeof(float) * SIZE));
    t->w = w;
    t->g = g;
    polar_param params[2] = {
        {.name = "fc.weight",
         .weight = polar_tensor_2d(t->w, POLAR_DTYPE_F32, ROWS, COLS),
         .grad = polar_tensor_2d(t->g, POLAR_DTYPE_F32, ROWS, COLS)},
        {.name = "fc.bias",
         .weight = polar_tensor_1d(t->w + ROWS * COLS, POLAR_DTYPE_F32, BIAS),
         .grad = polar_tensor_1d(t->g + ROWS * COLS, POLAR_DTYPE_F32, BIAS)},
    };
    polar_optim_opts o = POLAR_OPTIM_OPTS_INIT;
    o.schedule = (polar_schedule){.warmup = 5, .total = 20, .warmup_from = 1e-3};
    must(polar_optim_create(&t->opt, t->dev, params, 2, &o));
}

static void training_end(training *t)
{
    polar_optim_destroy(t->opt);
    polar_device_free(t->dev, t->w);
    polar_device_free(t->dev, t->g);
    polar_queue_destroy(t->q);
    polar_device_close(t->dev);
}

/* So many steps from the weights W, which are left there again. The loss is sum (w - c)^4 / 4 with c_i = i
 * mod 7, its gradient (w - c)^3. */
static void training_run(training *t, float *W, int steps)
{
    float G[SIZE];
    polar_queue_upload(t->q, t->w, W, sizeof G);
    for (int step = 0; step < steps; step++) {
        for (int i = 0; i < SIZE; i++) {
            float d = W[i] - (float)(i % 7);
            G[i] = d * d * d;
        }
        polar_queue_upload(t->q, t->g, G, sizeof G);
        must(polar_optim_step(t->opt, t->q));
        polar_queue_download(t->q, W, t->w, sizeof G);
        must(polar_queue_sync(t->q));
    }
}

int main(int argc, char **argv)
{
    const char *device = argc > 1 ? argv[1] : "cpu";
    char path[] = "/tmp/polar_resume_XXXXXX";
    int file = mkstemp(path);
    if (file < 0) return 1;
    close(file);

    static float straight[SIZE], resumed[SIZE], half[SIZE];
    training t;
    training_begin(&t, device);
    training_run(&t, straight, 20);
    training_end(&t);

    training_begin(&t, device);
    training_run(&t, resumed, 10);
    must(polar_optim_save(t.opt, t.q, path));
    training_end(&t);
    memcpy(half, resumed, sizeof half);

    training_begin(&t, device); /* as another process would, hours later */
    must(polar_optim_load(t.opt, t.q, path));
    long long step = (long long)polar_optim_get_step(t.opt);
    training_run(&t, resumed, 10);
    training_end(&t);

    training_begin(&t, device); /* and without the state: the weights alone do not do it */
    training_run(&t, half, 10);
    training_end(&t);
    unlink(path);

    int same = memcmp(straight, resumed, sizeof straight) == 0,
        other = memcmp(straight, half, sizeof straight) != 0;
    printf("resumed at step %lld: the weights have %s bits as 20 steps in one go\n", step,
           same ? "the same" : "OTHER");
    printf("with a fresh state instead: %s bits\n", other ? "other" : "THE SAME");
    return same && other && step == 10 ? 0 : 1;
}
