/* 08_ranks.c -- one model trained by one rank and by three: every matrix has an owner, and the weights have
 * the same bits.
 *
 *     08_ranks [DEVICE]        # cpu unless told otherwise
 *
 * The batch is always cut into eight leaves; a rank makes the gradients of its share of them. Here ranks are
 * threads; with polar_comm_open(&comm, "auto") they would be the processes that mpirun started.
 */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <polar/polar.h>

enum { MATRICES = 5, ROWS = 12, COLS = 20, SIZE = ROWS * COLS, STEPS = 40, LEAVES = 8, RANKS = 3 };

static void must(polar_status st)
{
    if (st == POLAR_OK) return;
    fprintf(stderr, "%s: %s\n", polar_status_name(st), polar_error_message());
    exit(1);
}

/* A leaf's target: the mean over leaves is what the weights should become. */
static float target(int matrix, int leaf, int i)
{
    return (float)(sin(0.3 * i * (matrix + 1)) + 0.5 * cos(7.0 * leaf + i));
}

typedef struct rank {
    polar_comm *comm;
    const char *device;
    float weights[MATRICES][SIZE]; /* at the end */
} rank;

static void *train(void *arg)
{
    rank *r = arg;
    polar_device *dev;
    polar_queue *q;
    polar_optim *opt;
    polar_param params[MATRICES];
    void *w[MATRICES], *g[MATRICES];
    char names[MATRICES][16];
    float G[SIZE];
    int64_t first, count;
    must(polar_device_open(&dev, r->device));
    must(polar_queue_create(&q, dev, NULL));
    memset(params, 0, sizeof params);
    for (int m = 0; m < MATRICES; m++) {
        must(polar_device_alloc(dev, &w[m], sizeof G));
        must(polar_device_alloc(dev, &g[m], sizeof G));
        polar_queue_upload(q, w[m], r->weights[m], sizeof G);
        snprintf(names[m], sizeof names[m], "blocks.%d", m);
        params[m].name = names[m];
        params[m].weight = polar_tensor_2d(w[m], POLAR_DTYPE_F32, ROWS, COLS);
        params[m].grad = polar_tensor_2d(g[m], POLAR_DTYPE_F32, ROWS, COLS);
    }
    must(polar_queue_sync(q));
    polar_optim_opts o = POLAR_OPTIM_OPTS_INIT;
    o.lr = 0.05, o.weight_decay = 0;
    o.comm = r->comm;
    o.leaves = LEAVES;
    must(polar_optim_create(&opt, dev, params, MATRICES, &o));
    if (polar_comm_size(r->comm) == RANKS && polar_comm_rank(r->comm) == 0) puts(polar_optim_report(opt));
    must(polar_comm_share(r->comm, LEAVES, &first, &count));
    for (int step = 0; step < STEPS; step++) {
        for (int64_t leaf = first; leaf < first + count; leaf++) {
            for (int m = 0; m < MATRICES; m++) {
                for (int i = 0; i < SIZE; i++) G[i] = r->weights[m][i] - target(m, (int)leaf, i);
                polar_queue_upload(q, g[m], G, sizeof G);
            }
            must(polar_optim_add_grads(opt, q, leaf));
        }
        must(polar_optim_step(opt, q)); /* to the owners, their steps, and back */
        for (int m = 0; m < MATRICES; m++) polar_queue_download(q, r->weights[m], w[m], sizeof G);
        must(polar_queue_sync(q));
    }
    polar_optim_destroy(opt);
    for (int m = 0; m < MATRICES; m++) polar_device_free(dev, w[m]), polar_device_free(dev, g[m]);
    polar_queue_destroy(q);
    polar_device_close(dev);
    polar_comm_close(r->comm);
    return NULL;
}

int main(int argc, char **argv)
{
    static rank alone, all[RANKS];
    polar_comm *comms[RANKS];
    pthread_t threads[RANKS];
    int differ = 0;
    alone.device = argc > 1 ? argv[1] : "cpu";
    must(polar_comm_open(&alone.comm, "self"));
    train(&alone);
    must(polar_comm_open_threads(comms, RANKS, 60));
    for (int k = 0; k < RANKS; k++) {
        all[k] = (rank){.comm = comms[k], .device = alone.device};
        if (pthread_create(&threads[k], NULL, train, &all[k])) return 1;
    }
    for (int k = 0; k < RANKS; k++) {
        pthread_join(threads[k], NULL);
        differ += memcmp(all[k].weights, alone.weights, sizeof alone.weights) != 0;
    }
    printf("%d of %d ranks have other weights than one rank by itself\n", differ, RANKS);
    return differ ? 1 : 0;
}
