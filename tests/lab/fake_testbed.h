/* fake_testbed.h -- a testbed without a model: a hash stands for the weights, some runs stop early, some
 * diverge. For tests of the runner.
 *
 * FAKE_LOG (environment): a file to which every begin appends a line. FAKE_DELAY: microseconds that an epoch
 * takes. FAKE_STEPS: steps of an epoch, within which it can be left, FAKE_BEGIN: steps before the first one,
 * as well; the fake_stop_after-th step from now on sets *fake_stop. fake_places counts the places of
 * ensembles over all epochs, whether or not somebody who goes on has them.
 */
#ifndef POLAR_FAKE_TESTBED_H
#define POLAR_FAKE_TESTBED_H

#include <fcntl.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/safetensors.h"
#include "lab/run/testbed.h"

static const char *const fake_rules[] = {"slow", "fast", "odd", NULL};

static const pl_key fake_keys[] = {
    {"train.epochs", PL_KEY_INT, "8", .min = 1, .max = 1000, .help = "epochs"},
    {"fake.width", PL_KEY_INT, "4", .min = 1, .max = 64, .help = "changes the shape"},
    {"fake.shadows", PL_KEY_INT, "0", .min = 0, .max = 300, .help = "gauge rows per epoch"},
    {"optim.rule", PL_KEY_CHOICE, "slow", .choices = fake_rules, .help = "changes the numbers"},
};

static const pl_schema fake_schema = {
    .name = "fake", .version = 1, .metric = "mse", .keys = fake_keys, .key_count = 4};

typedef struct fake_member {
    uint64_t key, state;        /* what it is; where it is */
    int64_t epochs, most, stop; /* made, allowed, and where it ends early (0: nowhere) */
    int64_t best, diverged, active, shadows, told;
    int64_t step; /* of the epoch under way; the first member's counts */
    double best_valid;
} fake_member;

struct pl_train {
    int64_t n;
    fake_member *m;
    char *ids; /* by blanks */
    pl_step_watch watch;
};

static atomic_int *fake_stop;
static int64_t fake_stop_after;
static atomic_llong fake_places;

static inline uint64_t fake_hash(uint64_t x)
{
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

static inline int fake_same_shape(const pl_config *a, const pl_config *b)
{
    return pl_config_int(a, "fake.width") == pl_config_int(b, "fake.width") &&
           pl_config_int(a, "train.epochs") == pl_config_int(b, "train.epochs");
}

static inline void fake_log(const char *line)
{
    const char *path = getenv("FAKE_LOG");
    int fd = path ? open(path, O_WRONLY | O_CREAT | O_APPEND, 0666) : -1;
    if (fd < 0) return;
    if (write(fd, line, strlen(line)) < 0) abort();
    close(fd);
}

static inline void fake_end(pl_train *t)
{
    if (t) pl_free(t->m), pl_free(t->ids);
    pl_free(t);
}

static inline polar_status fake_prepare(const pl_step_watch *w)
{
    const char *steps = getenv("FAKE_BEGIN");
    int64_t n = steps ? atoll(steps) : 0;
    for (int64_t k = 1; k <= n; k++) {
        pl_step_view v = {"stones laid", k, n, (double)NAN};
        if (fake_stop && --fake_stop_after == 0) atomic_store(fake_stop, 1);
        PL_NEED(!w->step(w->arg, &v), POLAR_E_STATE, "stopped after %lld of %lld stones", (long long)k,
                (long long)n);
    }
    return POLAR_OK;
}

static inline polar_status fake_begin(pl_train **out, polar_device *dev, const pl_config *const *configs,
                                      const uint64_t *seeds, int64_t members, const pl_step_watch *w)
{
    (void)dev;
    *out = NULL;
    PL_TRY(fake_prepare(w));
    pl_train *t = pl_calloc(1, sizeof *t);
    if (t) t->m = pl_calloc((size_t)members, sizeof *t->m);
    if (t) t->ids = pl_calloc((size_t)members, PL_RUN_ID_CHARS);
    if (!t || !t->m || !t->ids) {
        fake_end(t);
        return PL_FAIL(POLAR_E_NOMEM, "a fake ensemble");
    }
    t->n = members;
    for (int64_t i = 0; i < members; i++) {
        const pl_config *c = configs[i];
        char line[96];
        int rule = pl_config_choice(c, "optim.rule");
        uint64_t key =
            fake_hash(seeds[i] * 1000003 + (uint64_t)rule * 101 + (uint64_t)pl_config_int(c, "fake.width"));
        t->m[i] = (fake_member){.key = key,
                                .state = key,
                                .most = pl_config_int(c, "train.epochs"),
                                .shadows = pl_config_int(c, "fake.shadows"),
                                .active = 1,
                                .best_valid = 1e9};
        t->m[i].stop = key % 3 ? 0 : 1 + (int64_t)((key >> 8) % (uint64_t)t->m[i].most);
        polar_status st = pl_config_run_id(t->ids + i * PL_RUN_ID_CHARS, c, (int64_t)seeds[i]);
        if (i) t->ids[i * PL_RUN_ID_CHARS - 1] = ' ';
        if (st != POLAR_OK) {
            fake_end(t);
            return st;
        }
        snprintf(line, sizeof line, "%d %lld %lld\n", rule, (long long)seeds[i],
                 (long long)pl_config_int(c, "fake.width"));
        fake_log(line);
    }
    *out = t;
    return POLAR_OK;
}

static inline void fake_where(const pl_train *t, int64_t *epochs, int *active)
{
    for (int64_t i = 0; i < t->n; i++) {
        epochs[i] = t->m[i].epochs;
        active[i] = (int)t->m[i].active;
    }
}

static inline double fake_unit(uint64_t x)
{
    return (double)(x >> 11) * 0x1p-53;
}

static inline void fake_watch(pl_train *t, const pl_step_watch *w)
{
    t->watch = *w;
}

/* The steps of an epoch; 1: left within it. */
static inline int fake_steps(pl_train *t)
{
    const char *steps = getenv("FAKE_STEPS");
    int64_t n = steps ? atoll(steps) : 0;
    while (t->m[0].step < n) {
        pl_step_view v = {"steps", ++t->m[0].step, n, 0.5};
        if (fake_stop && --fake_stop_after == 0) atomic_store(fake_stop, 1);
        if (t->watch.step && t->watch.step(t->watch.arg, &v)) return 1;
    }
    t->m[0].step = 0;
    return 0;
}

static inline polar_status fake_epoch(pl_train *t, pl_epoch_row *rows, int *active)
{
    const char *delay = getenv("FAKE_DELAY");
    if (fake_steps(t)) return POLAR_OK;
    if (delay) usleep((useconds_t)atoi(delay));
    atomic_fetch_add(&fake_places, t->n);
    for (int64_t i = 0; i < t->n; i++) {
        fake_member *m = &t->m[i];
        if (!m->active) continue;
        m->epochs++;
        m->state = fake_hash(m->state ^ (uint64_t)m->epochs);
        double loss = fake_unit(m->state), valid = fake_unit(fake_hash(m->state));
        if (m->key % 5 == 3 && m->epochs == 3) {
            m->diverged = 1;
            loss = valid = (double)NAN;
        }
        int improved = valid < m->best_valid;
        if (improved) m->best_valid = valid, m->best = m->epochs;
        m->active = !m->diverged && m->epochs < m->most && m->epochs != m->stop;
        rows[i] = (pl_epoch_row){.epoch = m->epochs,
                                 .train_loss = loss,
                                 .valid = valid,
                                 .lr = 1.0 / (double)m->epochs,
                                 .improved = improved};
        active[i] = (int)m->active;
    }
    return POLAR_OK;
}

static inline polar_status fake_save(pl_train *t, const char *path)
{
    pl_safetensors_entry e = {.name = "members",
                              .dtype_name = "I64",
                              .ndim = 2,
                              .shape = {t->n, (int64_t)(sizeof *t->m / 8)},
                              .data = t->m,
                              .bytes = t->n * (int64_t)sizeof *t->m};
    return pl_safetensors_write(path, &e, 1, &(pl_safetensors_meta){"polar.runs", t->ids}, 1);
}

/* Any of the file's members. */
static inline polar_status fake_load(pl_train *t, const char *path)
{
    pl_safetensors *f = NULL;
    PL_TRY(pl_safetensors_open(&f, path));
    const pl_safetensors_entry *e = pl_safetensors_find(f, "members");
    int good = e != NULL;
    for (int64_t i = 0; good && i < t->n; i++) {
        const fake_member *there = e->data, *end = there + e->shape[0];
        while (there < end && there->key != t->m[i].key) there++;
        good = there < end;
        if (good) t->m[i] = *there;
    }
    pl_safetensors_close(f);
    return good ? POLAR_OK : PL_FAIL(POLAR_E_FORMAT, "'%s' is of another run", path);
}

static inline polar_status fake_results(pl_train *t, int64_t i, pl_result *out, int max, int *count)
{
    const fake_member *m = &t->m[i];
    pl_result all[] = {{"mse", m->diverged ? (double)NAN : m->best_valid / 3},
                       {"best_epoch", (double)m->best},
                       {"epochs", (double)m->epochs},
                       {"diverged", (double)m->diverged}};
    *count = 4;
    PL_NEED(max >= 4, POLAR_E_ARG, "room for 4 results");
    memcpy(out, all, sizeof all);
    return POLAR_OK;
}

/* `shadows` rows for every epoch since the last call. */
static inline polar_status fake_gauge(pl_train *t, int64_t i, pl_gauge_row *out, int max, int *count)
{
    fake_member *m = &t->m[i];
    for (*count = 0; *count < max && m->told < m->epochs * m->shadows; ++*count, m->told++) {
        out[*count] = (pl_gauge_row){.step = 1 + m->told / m->shadows,
                                     .shadow = m->told % m->shadows,
                                     .map = "exact",
                                     .deviation = fake_unit(fake_hash(m->key + (uint64_t)m->told))};
        snprintf(out[*count].block, sizeof out->block, "layers.%lld", (long long)(m->told % 2));
    }
    return POLAR_OK;
}

static inline polar_status fake_weights(pl_train *t, int64_t i, const char *path)
{
    pl_safetensors_entry e = {.name = "best",
                              .dtype = POLAR_DTYPE_F64,
                              .ndim = 1,
                              .shape = {1},
                              .data = &t->m[i].best_valid,
                              .bytes = 8};
    return pl_safetensors_write(path, &e, 1, NULL, 0);
}

/* What is wide is cheap here, so that the order of costs is not the plan's. */
static inline polar_status fake_estimate(pl_estimate *out, polar_device *dev, const pl_config *c)
{
    (void)dev;
    *out = (pl_estimate){.pass.flops = 1e9 / (double)pl_config_int(c, "fake.width"), .epochs = 8, .steps = 1};
    return POLAR_OK;
}

static const pl_testbed fake_testbed = {
    .schema = &fake_schema,
    .estimate = fake_estimate,
    .same_shape = fake_same_shape,
    .begin = fake_begin,
    .where = fake_where,
    .epoch = fake_epoch,
    .watch = fake_watch,
    .save = fake_save,
    .load = fake_load,
    .results = fake_results,
    .gauge = fake_gauge,
    .weights = fake_weights,
    .end = fake_end,
};

#endif
