/* fuzz_checkpoint.c -- any bytes as a checkpoint of a run, of either testbed, and as a network's weights: a
 * run that takes it can be saved to the same bytes again and goes on. */
#include "fuzz_tensors.h"

#include <stdio.h>

#include "lab/run/testbed.h"
#include "models/deit.h"

enum { BEDS = 3, MEMBERS = 2 };

typedef struct rig {
    const pl_testbed *bed;
    const char *const *settings;
    int64_t members;
    pl_config *configs[MEMBERS];
    pl_train *t;
} rig;

static const char *const so3[] = {"model.width=2",  "model.layers=1",
                                  "data.points=3",  "data.train=4",
                                  "data.valid=3",   "data.test=3",
                                  "train.batch=4",  "train.epochs=4",
                                  "train.warmup=1", NULL},
                         *const deit[] = {"model.image=4",
                                          "model.patch=2",
                                          "model.width=4",
                                          "model.depth=1",
                                          "model.heads=1",
                                          "model.mlp_ratio=1",
                                          "data.set=synth:classes=2,train=2,test=2,size=4",
                                          "train.batch=2",
                                          "train.epochs=3",
                                          "train.warmup=1",
                                          "train.dtype=f32",
                                          NULL};

/* the second may read what is the first's */
static rig rigs[BEDS] = {{.bed = &pl_testbed_so3, .settings = so3, .members = 2},
                         {.bed = &pl_testbed_so3, .settings = so3, .members = 1},
                         {.bed = &pl_testbed_deit, .settings = deit, .members = 1}};
static polar_device *dev;
static polar_queue *q;
static pl_deit *model;

static void begin(rig *r)
{
    static const uint64_t seeds[MEMBERS] = {1, 2};
    if (r->t) r->bed->end(r->t);
    need(r->bed->begin(&r->t, dev, (const pl_config *const *)r->configs, seeds, r->members, NULL) ==
         POLAR_OK);
}

static void seed_rig(rig *r, const char *name)
{
    pl_epoch_row rows[MEMBERS];
    int active[MEMBERS];
    for (int64_t i = 0; i < r->members; i++) {
        need(pl_config_create(&r->configs[i], r->bed->schema) == POLAR_OK);
        for (int k = 0; r->settings[k]; k++)
            need(pl_config_assign(r->configs[i], r->settings[k]) == POLAR_OK);
    }
    begin(r);
    need(r->bed->epoch(r->t, rows, active) == POLAR_OK);
    need(r->bed->save(r->t, fuzz_path("seed")) == POLAR_OK);
    fuzz_seed_file(name, fuzz_path("seed"));
    begin(r);
}

void fuzz_begin(void)
{
    const pl_deit_shape shape = {.members = 1,
                                 .batch = 1,
                                 .image = 4,
                                 .patch = 2,
                                 .width = 4,
                                 .depth = 1,
                                 .heads = 1,
                                 .mlp_ratio = 1,
                                 .classes = 2,
                                 .dtype = POLAR_DTYPE_F32};
    const uint64_t seed = 0;
    need(polar_device_open(&dev, "ref") == POLAR_OK && polar_queue_create(&q, dev, NULL) == POLAR_OK);
    seed_rig(&rigs[0], "so3_two");
    seed_rig(&rigs[1], "so3_one");
    seed_rig(&rigs[2], "deit");
    need(pl_deit_create(&model, dev, &shape, 0) == POLAR_OK && pl_deit_init(model, q, &seed) == POLAR_OK);
    need(pl_deit_save(model, q, 0, fuzz_path("seed")) == POLAR_OK);
    fuzz_seed_file("weights", fuzz_path("seed"));
}

static void compare_files(const char *a, const char *b)
{
    size_t n, m;
    uint8_t *x = fuzz_read(a, &n), *y = fuzz_read(b, &m);
    need(n == m && !memcmp(x, y, n));
    free(x);
    free(y);
}

static void go_on(rig *r)
{
    const char *first = fuzz_path("first"), *second = fuzz_path("second");
    int64_t epochs[MEMBERS];
    int active[MEMBERS], count;
    pl_epoch_row rows[MEMBERS];
    pl_result results[PL_MAX_RESULTS];
    r->bed->where(r->t, epochs, active);
    for (int64_t i = 0; i < r->members; i++) need(epochs[i] >= 0 && epochs[i] <= 4);
    need(r->bed->save(r->t, first) == POLAR_OK && r->bed->load(r->t, first) == POLAR_OK);
    need(r->bed->save(r->t, second) == POLAR_OK);
    compare_files(first, second);
    if (active[0] || (r->members > 1 && active[1])) need(r->bed->epoch(r->t, rows, active) == POLAR_OK);
    for (int64_t i = 0; i < r->members; i++)
        if (!active[i]) need(r->bed->results(r->t, i, results, PL_MAX_RESULTS, &count) == POLAR_OK);
}

static void try_weights(const char *path)
{
    polar_status st = pl_deit_load(model, q, 0, path);
    need(st == POLAR_OK || st == POLAR_E_FORMAT);
    if (st != POLAR_OK) return;
    const char *first = fuzz_path("first"), *second = fuzz_path("second");
    need(pl_deit_save(model, q, 0, first) == POLAR_OK && pl_deit_load(model, q, 0, first) == POLAR_OK);
    need(pl_deit_save(model, q, 0, second) == POLAR_OK);
    compare_files(first, second);
}

void fuzz_try(const uint8_t *data, size_t size)
{
    pl_safetensors *f;
    if (pl_safetensors_open_bytes(&f, data, (int64_t)size, "fuzz") != POLAR_OK)
        return; /* fuzz_safetensors has these */
    pl_safetensors_close(f);
    const char *path = fuzz_file(0, data, size);
    for (int i = 0; i < BEDS; i++) {
        polar_status st = rigs[i].bed->load(rigs[i].t, path);
        need(st == POLAR_OK || st == POLAR_E_FORMAT || st == POLAR_E_ARG);
        if (st == POLAR_OK) go_on(&rigs[i]);
        if (st == POLAR_OK) begin(&rigs[i]);
    }
    try_weights(path);
}
