/* 03_routing.c -- which parameter of a vision transformer goes where: routes by name, the fused qkv as three
 * matrices, a report to read.
 *
 *     03_routing [DEVICE]        # cpu unless told otherwise
 *
 * The shapes and names are DeiT-Tiny's (timm), one block of twelve. Matrices of the blocks take the rule,
 * everything else (embeddings, norms, biases, the head) takes AdamW with a learning rate of its own.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <polar/polar.h>

enum { C = 192 };

static const struct {
    const char *name;
    int ndim;
    int64_t shape[4];
    int64_t row_blocks;
    polar_route expect;
} model[] = {
    {"cls_token", 3, {1, 1, C}, 0, POLAR_ROUTE_AUX},
    {"pos_embed", 3, {1, 197, C}, 0, POLAR_ROUTE_AUX},
    {"patch_embed.proj.weight", 4, {C, 3, 16, 16}, 0, POLAR_ROUTE_AUX},
    {"patch_embed.proj.bias", 1, {C}, 0, POLAR_ROUTE_AUX},
    {"blocks.0.norm1.weight", 1, {C}, 0, POLAR_ROUTE_AUX},
    /* queries, keys and values: three maps, not one */
    {"blocks.0.attn.qkv.weight", 2, {3 * C, C}, 3, POLAR_ROUTE_MATRIX},
    {"blocks.0.attn.qkv.bias", 1, {3 * C}, 0, POLAR_ROUTE_AUX},
    {"blocks.0.attn.proj.weight", 2, {C, C}, 0, POLAR_ROUTE_MATRIX},
    {"blocks.0.mlp.fc1.weight", 2, {4 * C, C}, 0, POLAR_ROUTE_MATRIX},
    {"blocks.0.mlp.fc2.weight", 2, {C, 4 * C}, 0, POLAR_ROUTE_MATRIX},
    {"head.weight", 2, {1000, C}, 0, POLAR_ROUTE_AUX},
    {"head.bias", 1, {1000}, 0, POLAR_ROUTE_AUX},
};
enum { COUNT = sizeof model / sizeof model[0] };

static void must(polar_status st)
{
    if (st == POLAR_OK) return;
    fprintf(stderr, "%s: %s\n", polar_status_name(st), polar_error_message());
    exit(1);
}

/* A packed tensor of the parameter's shape in new device memory, its entries about as large as x. */
static polar_tensor new_tensor(polar_device *dev, polar_queue *q, int i, double x)
{
    polar_tensor t = {.dtype = POLAR_DTYPE_F32, .ndim = model[i].ndim};
    int64_t n = 1;
    for (int d = t.ndim - 1; d >= 0; d--) {
        t.shape[d] = model[i].shape[d];
        t.stride[d] = n;
        n *= t.shape[d];
    }
    float *host = malloc(sizeof(float) * (size_t)n);
    if (!host) exit(1);
    for (int64_t k = 0; k < n; k++) host[k] = (float)(x * sin((double)k * (double)k));
    must(polar_device_alloc(dev, &t.data, sizeof(float) * (size_t)n));
    polar_queue_upload(q, t.data, host, sizeof(float) * (size_t)n);
    free(host); /* an upload is done with its source at once */
    return t;
}

int main(int argc, char **argv)
{
    polar_device *dev;
    polar_queue *q;
    polar_optim *opt;
    polar_param params[COUNT] = {0};
    must(polar_device_open(&dev, argc > 1 ? argv[1] : "cpu"));
    must(polar_queue_create(&q, dev, NULL));
    for (int i = 0; i < COUNT; i++) {
        params[i].name = model[i].name;
        params[i].weight = new_tensor(dev, q, i, 0);
        params[i].grad = new_tensor(dev, q, i, 1e-3);
        params[i].row_blocks = model[i].row_blocks;
    }

    polar_optim_opts o = POLAR_OPTIM_OPTS_INIT;
    o.lr = 5e-3;
    o.aux_lr = 5e-4;
    /* biases fit too, but a vector never takes the matrix route */
    o.matrix_names = "blocks.*.attn.*,blocks.*.mlp.*";
    o.measure = 1; /* update norms, see below */
    must(polar_optim_create(&opt, dev, params, COUNT, &o));
    fputs(polar_optim_report(opt), stdout);
    must(polar_optim_step(opt, q));

    int wrong = 0;
    polar_param_stats stats[COUNT];
    must(polar_optim_stats(opt, q, stats));
    printf("\n%-28s %-7s %9s  %-8s %s\n", "after one step", "route", "lr", "scale", "update norm");
    for (int i = 0; i < COUNT; i++) {
        int matrix = stats[i].route == POLAR_ROUTE_MATRIX;
        printf("%-28s %-7s %9.1e  %-8.3g %.3g\n", stats[i].name, matrix ? "matrix" : "aux",
               stats[i].effective_lr, stats[i].scale, stats[i].update_norm);
        wrong += strcmp(stats[i].name, model[i].name) != 0 || stats[i].route != model[i].expect ||
                 !(stats[i].update_norm > 0);
        if (matrix) wrong += stats[i].blocks != (model[i].row_blocks ? model[i].row_blocks : 1);
        /* 192 x 192, not 576 x 192 */
        if (strstr(stats[i].name, "qkv.weight"))
            wrong += stats[i].rows != C || stats[i].cols != C || stats[i].scale != 1;
    }

    /* A pattern that fits nothing would train everything with AdamW; it is an error instead, and says so. */
    polar_optim *none;
    o.matrix_names = "block.*";
    polar_status st = polar_optim_create(&none, dev, params, COUNT, &o);
    printf("\nwith matrix_names \"block.*\": %s\n", polar_error_message());
    wrong += st == POLAR_OK;

    polar_optim_destroy(opt);
    for (int i = 0; i < COUNT; i++) {
        polar_device_free(dev, params[i].weight.data);
        polar_device_free(dev, params[i].grad.data);
    }
    polar_queue_destroy(q);
    polar_device_close(dev);
    return wrong ? 1 : 0;
}
