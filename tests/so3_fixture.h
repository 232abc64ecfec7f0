/* so3_fixture.h -- small SO(3) runs from their first epoch to their results, kept as numbers that can be compared bit by bit. */
#ifndef POLAR_SO3_FIXTURE_H
#define POLAR_SO3_FIXTURE_H

#include "base/alloc.h"
#include "base/safetensors.h"
#include "lab/testbed.h"
#include "place.h"

#define MAX_MEMBERS 4
#define MAX_EPOCHS  16
#define MAX_GAUGE   4096

static const char *const tiny[] = {"model.width=3", "model.layers=2", "data.points=5",  "data.train=13",     "data.valid=6",
                                   "data.test=7",   "train.batch=4",  "train.epochs=4", "train.warmup=1", "optim.lr=0.01", NULL};

static char folder[] = "/tmp/polar_test_XXXXXX";

static inline void folder_open(void)
{
    if (!mkdtemp(folder)) exit(1);
}

static inline void folder_close(void)
{
    test_true("the folder is empty at the end", remove(folder) == 0, "%s", folder);
}

static inline const char *in_folder(const char *name)
{
    static char path[4][128];
    static int turn;
    char *p = path[turn++ % 4];
    snprintf(p, sizeof path[0], "%s/%s", folder, name);
    return p;
}

/* The tiny run with changes: "key=value key=value". */
static inline pl_config *config_of(const char *changes)
{
    pl_config *c;
    char text[512];
    TEST_TRY(pl_config_create(&c, pl_testbed_so3.schema));
    for (int i = 0; tiny[i]; i++) TEST_TRY(pl_config_assign(c, tiny[i]));
    snprintf(text, sizeof text, "%s", changes);
    for (char *save = NULL, *word = strtok_r(text, " ", &save); word; word = strtok_r(NULL, " ", &save)) TEST_TRY(pl_config_assign(c, word));
    return c;
}

typedef struct {
    const char *changes;
    uint64_t    seed;
} so3_arm;

/* An ensemble on a device of its own. */
typedef struct {
    polar_device *dev;
    pl_train     *t;
    int64_t       n;
    pl_config    *config[MAX_MEMBERS];
    uint64_t      seed[MAX_MEMBERS];
} so3_rig;

static inline polar_status so3_open(so3_rig *r, const char *device, const so3_arm *arms, int64_t n)
{
    *r = (so3_rig){.n = n};
    TEST_TRY(polar_device_open(&r->dev, device));
    for (int64_t i = 0; i < n; i++) {
        r->config[i] = config_of(arms[i].changes);
        r->seed[i] = arms[i].seed;
    }
    return pl_testbed_so3.begin(&r->t, r->dev, (const pl_config *const *)r->config, r->seed, n);
}

static inline void so3_close(so3_rig *r)
{
    pl_testbed_so3.end(r->t);
    for (int64_t i = 0; i < r->n; i++) pl_config_destroy(r->config[i]);
    polar_device_close(r->dev);
}

/* What a run left. No padding counts: compare with story_differs. */
typedef struct {
    int64_t       epochs;
    pl_epoch_row  row[MAX_EPOCHS];    /* by epoch - 1 */
    int           results;
    pl_result     result[PL_MAX_RESULTS];
    int           gauges;
    pl_gauge_row *gauge;
    char         *weights;            /* the file of the best ones; NULL where there are none */
    int64_t       weight_bytes;
} so3_story;

static inline int64_t so3_file(char **out, const char *path)
{
    FILE *f = fopen(path, "rb");
    if (!f) return -1;
    fseek(f, 0, SEEK_END);
    long n = ftell(f);
    rewind(f);
    *out = malloc((size_t)n + 1);
    n = (long)fread(*out, 1, (size_t)n, f);
    fclose(f);
    return n;
}

/* One epoch of the ensemble; the rows of its members are kept. */
static inline int so3_epoch(so3_rig *r, so3_story *s)
{
    pl_epoch_row rows[MAX_MEMBERS] = {0};
    int before[MAX_MEMBERS], active[MAX_MEMBERS], any = 0;
    int64_t made[MAX_MEMBERS];
    pl_testbed_so3.where(r->t, made, before);
    TEST_TRY(pl_testbed_so3.epoch(r->t, rows, active));
    for (int64_t i = 0; i < r->n; i++) {
        any |= active[i];
        if (!before[i]) continue;
        s[i].row[rows[i].epoch - 1] = rows[i];
        s[i].epochs = rows[i].epoch;
        for (int count = MAX_GAUGE; s[i].gauge && count;) {
            TEST_TRY(pl_testbed_so3.gauge(r->t, i, s[i].gauge + s[i].gauges, 7, &count));    /* in small bites */
            s[i].gauges += count;
        }
    }
    return any;
}

static inline void so3_finish(so3_rig *r, so3_story *s)
{
    for (int64_t i = 0; i < r->n; i++) {
        TEST_TRY(pl_testbed_so3.results(r->t, i, s[i].result, PL_MAX_RESULTS, &s[i].results));
        const char *path = in_folder("weights");
        if (pl_testbed_so3.weights(r->t, i, path) != POLAR_OK) continue;
        s[i].weight_bytes = so3_file(&s[i].weights, path);
        remove(path);
    }
}

static inline void so3_begin_story(so3_story *s, int64_t n)
{
    for (int64_t i = 0; i < n; i++) s[i] = (so3_story){.gauge = calloc(MAX_GAUGE, sizeof(pl_gauge_row))};
}

/* All of it in one go. */
static inline void so3_run(so3_story *s, const char *device, const so3_arm *arms, int64_t n)
{
    so3_rig r;
    TEST_TRY(so3_open(&r, device, arms, n));
    so3_begin_story(s, n);
    while (so3_epoch(&r, s)) {}
    so3_finish(&r, s);
    so3_close(&r);
}

static inline void so3_free(so3_story *s, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        free(s[i].gauge);
        free(s[i].weights);
    }
}

static inline double so3_result(const so3_story *s, const char *name)
{
    for (int i = 0; i < s->results; i++)
        if (!strcmp(s->result[i].name, name)) return s->result[i].value;
    printf("no result '%s'  FAIL\n", name);
    exit(1);
}

static inline int bits_differ(double a, double b)
{
    return memcmp(&a, &b, sizeof a) != 0 && !(isnan(a) && isnan(b));
}

/* Tensors of the best weights that differ in a bit; with `list`, their names one after the other by commas. */
static inline int64_t weights_differ(const so3_story *a, const so3_story *b, char *list, size_t bytes)
{
    if (!a->weights || !b->weights) return a->weights != b->weights;
    pl_safetensors *x, *y;
    int64_t bad = 0;
    TEST_TRY(pl_safetensors_open_bytes(&x, a->weights, a->weight_bytes, "a"));
    TEST_TRY(pl_safetensors_open_bytes(&y, b->weights, b->weight_bytes, "b"));
    if (list) list[0] = 0;
    for (int64_t i = 0; i < pl_safetensors_count(x); i++) {
        const pl_safetensors_entry *e = pl_safetensors_view(x, i), *f = pl_safetensors_find(y, e->name);
        if (f && f->bytes == e->bytes && !memcmp(e->data, f->data, (size_t)e->bytes)) continue;
        bad++;
        if (list) snprintf(list + strlen(list), bytes - strlen(list), "%s%s", *list ? "," : "", e->name);
    }
    bad += pl_safetensors_count(x) != pl_safetensors_count(y);
    pl_safetensors_close(x);
    pl_safetensors_close(y);
    return bad;
}

/* Numbers that differ: epochs, results, gauge rows where both have some, the best weights. */
static inline int64_t story_differs(const so3_story *a, const so3_story *b)
{
    int64_t bad = (a->epochs != b->epochs) + (a->results != b->results) + (a->gauges && b->gauges && a->gauges != b->gauges);
    if (bad) return bad;
    for (int64_t i = 0; i < a->epochs; i++) {
        const pl_epoch_row *x = &a->row[i], *y = &b->row[i];
        bad += (x->epoch != y->epoch) + bits_differ(x->train_loss, y->train_loss) + bits_differ(x->valid, y->valid) + bits_differ(x->lr, y->lr) + (x->improved != y->improved);
    }
    for (int i = 0; i < a->results; i++) bad += strcmp(a->result[i].name, b->result[i].name) || bits_differ(a->result[i].value, b->result[i].value);
    for (int i = 0; i < a->gauges && i < b->gauges; i++) {
        const pl_gauge_row *x = &a->gauge[i], *y = &b->gauge[i];
        bad += x->step != y->step || x->shadow != y->shadow || strcmp(x->block, y->block) || strcmp(x->map, y->map) || bits_differ(x->deviation, y->deviation);
    }
    return bad + weights_differ(a, b, NULL, 0);
}

#endif
