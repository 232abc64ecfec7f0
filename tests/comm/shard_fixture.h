/* shard_fixture.h -- a small model with numbers that do not divide, gradients that follow its weights, and
 * runs of it over ranks.
 *
 * A gradient is a function of the weights that this rank sees, of the step and of the leaf: weights that
 * differ by one bit on one rank at one step end apart.
 */
#ifndef TESTS_SHARD_FIXTURE_H
#define TESTS_SHARD_FIXTURE_H

#include <string.h>

#include "polar/polar.h"

#include "base/alloc.h"
#include "device/mat.h"
#include "rank_threads.h"

enum { SHARD_PARAMS = 12, SHARD_MOST = 900, SHARD_LEAVES = 8 };

typedef struct shard_param {
    const char *name;
    int64_t rows, cols; /* rows 0: a vector */
    polar_dtype dtype;
    int64_t row_blocks, schur_group, schur_dim;
} shard_param;

/* seven matrices with an owner (two of them one job), five parameters without a map */
static const shard_param shard_model[SHARD_PARAMS] = {
    {"embed", 0, 37, POLAR_DTYPE_F32, 0, 0, 0},     {"b0.qkv", 24, 8, POLAR_DTYPE_F32, 3, 0, 0},
    {"b0.bias", 0, 24, POLAR_DTYPE_F32, 0, 0, 0},   {"b0.out", 8, 33, POLAR_DTYPE_F32, 0, 0, 0},
    {"b0.few", 3, 40, POLAR_DTYPE_F32, 0, 0, 0}, /* rows fewer than ranks */
    {"b0.half", 12, 20, POLAR_DTYPE_BF16, 0, 0, 0}, {"b0.gain", 0, 1, POLAR_DTYPE_F32, 0, 0, 0},
    {"b1.sum0", 6, 6, POLAR_DTYPE_F32, 0, 1, 1},    {"b1.sum1", 6, 4, POLAR_DTYPE_F32, 0, 1, 3},
    {"b1.tall", 29, 5, POLAR_DTYPE_F32, 0, 0, 0},   {"b1.scale", 0, 15, POLAR_DTYPE_BF16, 0, 0, 0},
    {"head", 0, 101, POLAR_DTYPE_F32, 0, 0, 0},
};

/* columns of an 8x33 matrix; matrices in a vector of 101 */
static const polar_block shard_columns[2] = {{0, 8, 16, 33, 0}, {17, 8, 16, 33, 0}};
static const polar_block shard_paths[3] = {{0, 5, 6, 0, 0}, {30, 5, 6, 0, 0}, {61, 4, 9, 0, 0}};

static inline int64_t shard_rows(int i)
{
    return shard_model[i].rows ? shard_model[i].rows : 1;
}

static inline int64_t shard_size(int i)
{
    return shard_rows(i) * shard_model[i].cols;
}

static inline float shard_start(int i, int64_t k)
{
    return (float)sin((double)(i * 71 + k * 13 + 1));
}

/* cos of whole numbers, which took three quarters of a test's time: those that gradients ask for are kept. */
enum { SHARD_COSINES = SHARD_PARAMS * 37 + SHARD_MOST * 7 + 100 * 3 + SHARD_LEAVES * 11 };
static double shard_cosines[SHARD_COSINES];

static __attribute__((constructor)) void shard_cosines_make(void)
{
    for (int n = 0; n < SHARD_COSINES; n++) shard_cosines[n] = cos((double)n);
}

/* Of leaf `leaf` of step `step`, where the weight is w. */
static inline float shard_slope(int i, int64_t k, int64_t step, int64_t leaf, float w)
{
    static const double powers[5] = {1, 3, 9, 27, 81};
    int64_t n = i * 37 + k * 7 + step * 3 + leaf * 11;
    return (float)((n < SHARD_COSINES ? shard_cosines[n] : cos((double)n)) * powers[leaf % 5] + 0.2 * w);
}

typedef enum shard_mode { SHARD_PLAIN, SHARD_LEAVES_OF, SHARD_SAME, SHARD_ROWS } shard_mode;

typedef struct shard_run {
    const char *device, *rule;
    shard_mode mode;
    int64_t steps;
    int blocks;           /* "b0.out" and "head" are seen as blocks, with weights that no block covers */
    int64_t bucket_bytes; /* not 0: the option, and gradients are added one by one, from the last */
    int skip; /* opts.skip_missing, opts.skip_nonfinite: with gradients that are missing or not finite */
    const char *load, *save;         /* state files; or NULL */
    int64_t begin;                   /* the first step's number */
    const float (*from)[SHARD_MOST]; /* weights to go on from; NULL: the beginning */
    float (*out)[SHARD_MOST];        /* (SHARD_PARAMS), the weights; by rows each rank fills in its own */
    _Atomic int64_t *unlike;         /* weights of a rank that differ from want, where given */
    const float (*want)[SHARD_MOST];
    _Atomic int64_t *sent, *in_formula; /* bytes of the last step, of all ranks; what they should be */
} shard_run;

/* What rank r of n holds of parameter i by rows: as torch.chunk cuts them. */
static inline int64_t shard_rows_of(int i, int rank, int ranks, int64_t *first)
{
    int64_t rows = shard_model[i].rows ? shard_model[i].rows : shard_model[i].cols,
            each = (rows + ranks - 1) / ranks;
    *first = each * rank < rows ? each * rank : rows;
    return each < rows - *first ? each : rows - *first;
}

typedef struct shard_place { /* a rank at work */
    const shard_run *run;
    polar_comm *comm;
    polar_device *dev;
    polar_queue *q;
    polar_optim *opt;
    void *weight[SHARD_PARAMS], *grad[SHARD_PARAMS];
    int64_t first[SHARD_PARAMS], count[SHARD_PARAMS]; /* elements here */
    float now[SHARD_PARAMS][SHARD_MOST];              /* the weights that are here */
} shard_place;

static inline size_t shard_item(int i)
{
    return polar_dtype_size(shard_model[i].dtype);
}

static inline void shard_upload(shard_place *p, int i, void *to, const float *x, polar_dtype dtype)
{
    char raw[SHARD_MOST * 4];
    for (int64_t k = 0; k < p->count[i]; k++) pl_store_f64(raw, dtype, k, (double)x[k]);
    polar_queue_upload(p->q, to, raw, (size_t)p->count[i] * polar_dtype_size(dtype));
}

static inline void shard_look(shard_place *p)
{
    char raw[SHARD_PARAMS][SHARD_MOST * 4];
    for (int i = 0; i < SHARD_PARAMS; i++)
        polar_queue_download(p->q, raw[i], p->weight[i], (size_t)p->count[i] * shard_item(i));
    TEST_TRY(polar_queue_sync(p->q));
    for (int i = 0; i < SHARD_PARAMS; i++)
        for (int64_t k = 0; k < p->count[i]; k++)
            p->now[i][k] = (float)pl_load_f64(raw[i], shard_model[i].dtype, k);
}

/* The rule takes blocks of a direct sum, which share one norm. */
static inline int shard_sums(const char *rule)
{
    polar_rule r;
    TEST_TRY(polar_rule_parse(&r, rule));
    return r.momentum != POLAR_MOMENTUM_PICKED && r.precondition < POLAR_PRECONDITION_ROWS &&
           r.post == POLAR_POST_NONE && r.scale < POLAR_SCALE_FROBENIUS && r.apply < POLAR_APPLY_HYPERBALL &&
           r.map.kind != POLAR_MAP_SOFT;
}

static inline void shard_begin(shard_place *p, const shard_run *run, polar_comm *comm)
{
    polar_param params[SHARD_PARAMS];
    polar_optim_opts o;
    int rank = polar_comm_rank(comm), ranks = polar_comm_size(comm);
    memset(p, 0, sizeof *p);
    p->run = run;
    p->comm = comm;
    TEST_TRY(polar_device_open(&p->dev, run->device));
    TEST_TRY(polar_queue_create(&p->q, p->dev, NULL));
    memset(params, 0, sizeof params);
    for (int i = 0; i < SHARD_PARAMS; i++) {
        const shard_param *s = &shard_model[i];
        int64_t first = 0, rows = s->rows ? s->rows : s->cols;
        if (run->mode == SHARD_ROWS) {
            params[i].whole_rows = rows;
            rows = shard_rows_of(i, rank, ranks, &first);
            params[i].first_row = first;
        }
        p->first[i] = first * (s->rows ? s->cols : 1);
        p->count[i] = rows * (s->rows ? s->cols : 1);
        TEST_TRY(polar_device_alloc(p->dev, &p->weight[i], SHARD_MOST * 4));
        TEST_TRY(polar_device_alloc(p->dev, &p->grad[i], SHARD_MOST * 4));
        params[i].name = s->name;
        params[i].weight = s->rows ? polar_tensor_2d(p->weight[i], s->dtype, rows, s->cols)
                                   : polar_tensor_1d(p->weight[i], s->dtype, rows);
        params[i].grad = s->rows ? polar_tensor_2d(p->grad[i], POLAR_DTYPE_F32, rows, s->cols)
                                 : polar_tensor_1d(p->grad[i], POLAR_DTYPE_F32, rows);
        params[i].row_blocks = s->row_blocks;
        params[i].schur_group = shard_sums(run->rule) ? s->schur_group : 0;
        params[i].schur_dim = shard_sums(run->rule) ? s->schur_dim : 0;
        if (run->blocks && !strcmp(s->name, "b0.out"))
            params[i].blocks = shard_columns, params[i].block_count = 2;
        if (run->blocks && !strcmp(s->name, "head"))
            params[i].blocks = shard_paths, params[i].block_count = 3;
        for (int64_t k = 0; k < p->count[i]; k++) {
            int64_t at = p->first[i] + k;
            p->now[i][k] = run->from ? run->from[i][at] : shard_start(i, at);
        }
        shard_upload(p, i, p->weight[i], p->now[i], s->dtype);
    }
    TEST_TRY(polar_queue_sync(p->q));
    TEST_TRY(polar_optim_opts_parse(&o, run->rule));
    o.lr = 0.03, o.aux_lr = 0.01;
    o.allow_no_matrix = 1;
    o.schedule = (polar_schedule){.warmup = 3, .total = 60, .warmup_from = 0.1};
    o.skip_missing = run->skip;
    o.skip_nonfinite = run->skip ? POLAR_SKIP_NONFINITE : POLAR_SKIP_NEVER;
    if (run->mode != SHARD_PLAIN) o.comm = comm;
    if (run->mode == SHARD_LEAVES_OF) o.leaves = SHARD_LEAVES, o.bucket_bytes = run->bucket_bytes;
    if (run->mode == SHARD_SAME) o.grads = POLAR_GRADS_SAME;
    TEST_TRY(polar_optim_create(&p->opt, p->dev, params, SHARD_PARAMS, &o));
    if (run->load) TEST_TRY(polar_optim_load(p->opt, p->q, run->load));
}

/* b0.out is missing in every third step; b1.tall in leaves 2 to 5 of every fourth: it is not, then. */
static inline int shard_missing(const shard_run *run, int i, int64_t step, int64_t leaf)
{
    return run->skip && ((i == 3 && step % 3 == 2) || (i == 9 && step % 4 == 1 && leaf >= 2 && leaf <= 5));
}

static inline float shard_leaf(const shard_run *run, int i, int64_t k, int64_t step, int64_t leaf, float w)
{
    if (shard_missing(run, i, step, leaf)) return 0;
    if (run->skip && step == 6 && leaf == 5 && i == 1 && k == 9) return INFINITY;
    return shard_slope(i, k, step, leaf, w);
}

/* The mean over all leaves in the order of polar/comm.h, for eight of them. */
static inline float shard_mean(const shard_run *run, int i, int64_t k, int64_t step, float w)
{
    float x[SHARD_LEAVES];
    for (int64_t leaf = 0; leaf < SHARD_LEAVES; leaf++) x[leaf] = shard_leaf(run, i, k, step, leaf, w);
    for (int n = SHARD_LEAVES; n > 1; n /= 2)
        for (int j = 0; j < n / 2; j++) x[j] = x[2 * j] + x[2 * j + 1];
    return x[0] * (1.0f / SHARD_LEAVES);
}

static inline void shard_grads(shard_place *p, int64_t step, int64_t leaf)
{
    for (int i = 0; i < SHARD_PARAMS; i++) {
        float g[SHARD_MOST];
        int missing =
            leaf < 0 ? i == 3 && shard_missing(p->run, i, step, 0) : shard_missing(p->run, i, step, leaf);
        for (int64_t k = 0; k < p->count[i]; k++) {
            int64_t at = p->first[i] + k;
            g[k] = leaf < 0 ? shard_mean(p->run, i, at, step, p->now[i][k])
                            : shard_leaf(p->run, i, at, step, leaf, p->now[i][k]);
        }
        shard_upload(p, i, p->grad[i], g, POLAR_DTYPE_F32);
        TEST_TRY(polar_optim_set_grad(p->opt, i, missing ? NULL : p->grad[i]));
    }
}

static inline void shard_step(shard_place *p, int64_t step)
{
    int64_t first, count;
    TEST_TRY(polar_comm_share(p->comm, SHARD_LEAVES, &first, &count));
    if (p->run->mode != SHARD_LEAVES_OF) shard_grads(p, step, -1);
    for (int64_t leaf = first; leaf < first + count && p->run->mode == SHARD_LEAVES_OF; leaf++) {
        shard_grads(p, step, leaf);
        for (int i = SHARD_PARAMS - 1; i >= 0 && p->run->bucket_bytes; i--)
            if (i != 2) TEST_TRY(polar_optim_add_grad(p->opt, p->q, leaf, i)); /* it stays for the rest */
        TEST_TRY(polar_optim_add_grads(p->opt, p->q, leaf));
    }
    TEST_TRY(polar_optim_step(p->opt, p->q));
    shard_look(p);
}

static inline void shard_end(shard_place *p)
{
    polar_optim_destroy(p->opt);
    for (int i = 0; i < SHARD_PARAMS; i++) {
        polar_device_free(p->dev, p->weight[i]);
        polar_device_free(p->dev, p->grad[i]);
    }
    polar_queue_destroy(p->q);
    polar_device_close(p->dev);
}

/* Vectors into which leaves [a, b) of eight add up: as many as blocks of 1, 2, 4 or 8 leaves that begin at a
 * multiple of their length cover them. */
static inline int64_t shard_blocks(int64_t a, int64_t b)
{
    int64_t n = 0;
    for (; a < b; n++) {
        int64_t length = 1;
        while (a % (2 * length) == 0 && a + 2 * length <= b) length *= 2;
        a += length;
    }
    return n;
}

/* What this rank should send in a step: gradients of each of its blocks of leaves to every other owner, its
 * weights to everybody. All from public calls. */
static inline int64_t shard_formula(const shard_place *p)
{
    int64_t grads = 0, weights = 0, leaf, leaves;
    int rank = polar_comm_rank(p->comm), ranks = polar_comm_size(p->comm);
    TEST_TRY(polar_comm_share(p->comm, SHARD_LEAVES, &leaf, &leaves));
    for (int i = 0; i < SHARD_PARAMS; i++)
        for (int r = 0; r < ranks; r++) {
            int64_t first, count;
            TEST_TRY(polar_optim_get_part(p->opt, i, r, &first, &count));
            if (r == rank) weights += count * (int64_t)shard_item(i);
            else grads += count * 4 * shard_blocks(leaf, leaf + leaves);
        }
    return grads + (weights + 7) / 8 * 8 * (ranks - 1);
}

/* Runs it on one rank and hands over the weights. */
static inline void shard_work(polar_comm *comm, void *arg)
{
    const shard_run *run = arg;
    shard_place *p = pl_alloc(sizeof *p);
    int64_t before = 0, unlike = 0;
    shard_begin(p, run, comm);
    for (int64_t step = run->begin; step < run->begin + run->steps; step++) {
        before = polar_comm_bytes_sent(comm);
        shard_step(p, step);
    }
    if (run->sent) *run->sent += polar_comm_bytes_sent(comm) - before;
    if (run->in_formula) *run->in_formula += shard_formula(p);
    if (run->save) TEST_TRY(polar_optim_save(p->opt, p->q, run->save));
    for (int i = 0; i < SHARD_PARAMS; i++)
        for (int64_t k = 0; k < p->count[i]; k++) {
            int64_t at = p->first[i] + k;
            if (run->want) unlike += memcmp(&p->now[i][k], &run->want[i][at], sizeof(float)) != 0;
            if (run->out && (run->mode == SHARD_ROWS || polar_comm_rank(comm) == 0))
                run->out[i][at] = p->now[i][k];
        }
    if (run->unlike) *run->unlike += unlike;
    shard_end(p);
    pl_free(p);
}

/* On one rank, by itself. */
static inline void shard_alone(const shard_run *run)
{
    polar_comm *self;
    TEST_TRY(polar_comm_open(&self, "self"));
    shard_work(self, (void *)run);
    polar_comm_close(self);
}

#endif
