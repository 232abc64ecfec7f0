/* fuzz_blocks.c -- any numbers as a parameter's shape, row blocks, group and list of blocks: of an optimiser
 * that is made the parts are all of the parameter, each element once, and a step touches nothing else. */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "optim/optim_impl.h"
#include "polar/polar.h"

enum { MOST = 64, BLOCKS = 4, EDGE = 4 };

void fuzz_begin(void)
{
    static const uint8_t one[] = {2, 1, 8, 6, 0, 0, 0, 0, 2, 0, 2, 3, 6, 1, 3, 2, 3, 0, 2};
    fuzz_seed("blocks", one, sizeof one);
    fuzz_seed("rows", (const uint8_t[]){3, 2, 9, 4, 0, 3, 0, 0, 0}, 9);
}

/* The next number: a byte, from 250 on one that is far away. */
static int64_t take(const uint8_t **p, const uint8_t *end)
{
    static const int64_t far[] = {-1,           INT64_MAX, INT64_MIN, (int64_t)1 << 48, (int64_t)1 << 61,
                                  INT64_MAX / 2};
    if (*p == end) return 0;
    uint8_t x = *(*p)++;
    return x < 250 ? x : far[x - 250];
}

static void check_parts(const polar_optim *opt, int64_t elements)
{
    uint8_t seen[MOST] = {0};
    for (int64_t k = 0; k < opt->part_count; k++) {
        const pl_optim_param *p = &opt->parts[k];
        for (int64_t i = 0; elements && i < p->rows; i++)
            for (int64_t j = 0; j < p->cols; j++) {
                int64_t at = p->at + i * p->ld + j;
                need(at >= 0 && at < elements && !seen[at]++);
            }
    }
    for (int64_t i = 0; i < elements; i++) need(seen[i]);
}

static void try_step(polar_optim *opt, polar_device *dev, float *w, int64_t elements)
{
    polar_queue *q;
    need(polar_queue_create(&q, dev, NULL) == POLAR_OK);
    need(polar_optim_step(opt, q) == POLAR_OK && polar_queue_sync(q) == POLAR_OK);
    for (int i = 0; i < EDGE; i++) need(w[i] == 7 && w[EDGE + elements + i] == 7);
    for (int64_t i = 0; i < elements; i++) need(w[EDGE + i] - w[EDGE + i] == 0);
    need(strlen(polar_optim_report(opt)) > 0);
    polar_queue_destroy(q);
}

void fuzz_try(const uint8_t *data, size_t size)
{
    const uint8_t *p = data, *end = data + size;
    float w[MOST + 2 * EDGE], g[MOST];
    polar_block blocks[BLOCKS] = {{0}};
    polar_optim_opts o = POLAR_OPTIM_OPTS_INIT;
    polar_optim *opt;
    polar_device *dev;
    for (int i = 0; i < MOST; i++) g[i] = (float)(i % 7 - 3);
    for (int i = 0; i < MOST + 2 * EDGE; i++) w[i] = 7;
    int ndim = (int)((uint64_t)take(&p, end) % 4), rules = 0;
    while (polar_rule_name(rules)) rules++;
    int64_t rule = take(&p, end), elements = 1;
    polar_param a = {.name = "w", .weight = {.data = w + EDGE, .dtype = POLAR_DTYPE_F32, .ndim = ndim}};
    for (int i = 0; i < ndim; i++) a.weight.shape[i] = take(&p, end);
    int endless = 0; /* rows without columns: work goes through all of them */
    for (int i = ndim - 1; i >= 0; i--) {
        endless |= a.weight.shape[i] > MOST;
        a.weight.stride[i] = elements;
        if (__builtin_mul_overflow(elements, a.weight.shape[i], &elements)) elements = MOST + 1;
    }
    if (elements > MOST) a.weight.data = NULL; /* such memory is not there */
    a.grad = a.weight, a.grad.data = g;
    a.route = (polar_route)((uint64_t)take(&p, end) % 4);
    a.row_blocks = take(&p, end), a.schur_group = take(&p, end), a.schur_dim = take(&p, end);
    a.block_count = take(&p, end);
    if (a.block_count > BLOCKS) a.block_count = BLOCKS;
    for (int i = 0; i < BLOCKS; i++) {
        blocks[i].offset = take(&p, end), blocks[i].rows = take(&p, end), blocks[i].cols = take(&p, end);
        blocks[i].ld = take(&p, end), blocks[i].dim = take(&p, end);
    }
    a.blocks = blocks;
    need(polar_optim_opts_parse(&o, polar_rule_name((int)((uint64_t)rule % (uint64_t)rules))) == POLAR_OK);
    o.allow_no_matrix = 1;
    need(polar_device_open(&dev, "ref") == POLAR_OK);
    if (polar_optim_create(&opt, dev, &a, 1, &o) == POLAR_OK) {
        check_parts(opt, elements);
        if (!endless) try_step(opt, dev, w, elements);
        polar_optim_destroy(opt);
    }
    polar_device_close(dev);
}
