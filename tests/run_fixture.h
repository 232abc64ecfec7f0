/* run_fixture.h -- small runs of a testbed from their first epoch to their results, kept as numbers that can be compared bit by bit.
 *
 *     static const pl_testbed *const bed = &pl_testbed_so3;                 // before the include
 *     static const char *const tiny[] = {"model.width=3", ..., NULL};       // the settings of a small run
 */
#ifndef POLAR_RUN_FIXTURE_H
#define POLAR_RUN_FIXTURE_H

#include "base/alloc.h"
#include "base/safetensors.h"
#include "lab/testbed.h"
#include "place.h"

#define MAX_MEMBERS 4
#define MAX_EPOCHS  16
#define MAX_GAUGE   4096

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
    TEST_TRY(pl_config_create(&c, bed->schema));
    for (int i = 0; tiny[i]; i++) TEST_TRY(pl_config_assign(c, tiny[i]));
    snprintf(text, sizeof text, "%s", changes);
    for (char *save = NULL, *word = strtok_r(text, " ", &save); word; word = strtok_r(NULL, " ", &save)) TEST_TRY(pl_config_assign(c, word));
    return c;
}

typedef struct {
    const char *changes;
    uint64_t    seed;
} run_arm;

/* An ensemble on a device of its own. */
typedef struct {
    polar_device *dev;
    pl_train     *t;
    int64_t       n;
    pl_config    *config[MAX_MEMBERS];
    uint64_t      seed[MAX_MEMBERS];
} run_rig;

static inline polar_status run_open(run_rig *r, const char *device, const run_arm *arms, int64_t n)
{
    *r = (run_rig){.n = n};
    TEST_TRY(polar_device_open(&r->dev, device));
    for (int64_t i = 0; i < n; i++) {
        r->config[i] = config_of(arms[i].changes);
        r->seed[i] = arms[i].seed;
    }
    return bed->begin(&r->t, r->dev, (const pl_config *const *)r->config, r->seed, n);
}

static inline void run_close(run_rig *r)
{
    bed->end(r->t);
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
} run_story;

static inline int64_t run_file(char **out, const char *path)
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
static inline int run_epoch(run_rig *r, run_story *s)
{
    pl_epoch_row rows[MAX_MEMBERS] = {0};
    int before[MAX_MEMBERS], active[MAX_MEMBERS], any = 0;
    int64_t made[MAX_MEMBERS];
    bed->where(r->t, made, before);
    TEST_TRY(bed->epoch(r->t, rows, active));
    for (int64_t i = 0; i < r->n; i++) {
        any |= active[i];
        if (!before[i] || !rows[i].epoch) continue;    /* ended, or in the middle of an epoch */
        s[i].row[rows[i].epoch - 1] = rows[i];
        s[i].epochs = rows[i].epoch;
        for (int count = MAX_GAUGE; bed->gauge && s[i].gauge && count;) {
            TEST_TRY(bed->gauge(r->t, i, s[i].gauge + s[i].gauges, 7, &count));    /* in small bites */
            s[i].gauges += count;
        }
    }
    return any;
}

static inline void run_finish(run_rig *r, run_story *s)
{
    for (int64_t i = 0; i < r->n; i++) {
        TEST_TRY(bed->results(r->t, i, s[i].result, PL_MAX_RESULTS, &s[i].results));
        const char *path = in_folder("weights");
        if (bed->weights(r->t, i, path) != POLAR_OK) continue;
        s[i].weight_bytes = run_file(&s[i].weights, path);
        remove(path);
    }
}

static inline void run_begin_story(run_story *s, int64_t n)
{
    for (int64_t i = 0; i < n; i++) s[i] = (run_story){.gauge = calloc(MAX_GAUGE, sizeof(pl_gauge_row))};
}

/* All of it in one go. */
static inline void run_run(run_story *s, const char *device, const run_arm *arms, int64_t n)
{
    run_rig r;
    TEST_TRY(run_open(&r, device, arms, n));
    run_begin_story(s, n);
    while (run_epoch(&r, s)) {}
    run_finish(&r, s);
    run_close(&r);
}

static inline void run_free(run_story *s, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        free(s[i].gauge);
        free(s[i].weights);
    }
}

static inline double run_result(const run_story *s, const char *name)
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
static inline int64_t weights_differ(const run_story *a, const run_story *b, char *list, size_t bytes)
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
static inline int64_t story_differs(const run_story *a, const run_story *b)
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

static inline void put_file(const char *path, const char *bytes, int64_t n)
{
    FILE *f = fopen(path, "wb");
    if (!f || (n && fwrite(bytes, 1, (size_t)n, f) != (size_t)n) || fclose(f)) exit(1);
}

static inline polar_status load_into(const char *device, const run_arm *arm, int64_t n, const char *path)
{
    run_rig r;
    TEST_TRY(run_open(&r, device, arm, n));
    polar_status st = bed->load(r.t, path);
    run_close(&r);
    return st;
}

/* begin, an epoch, save and load. */
static inline polar_status whole_life(polar_device *dev, const pl_config *const *c, const uint64_t *seed, const char *path)
{
    pl_train *t = NULL;
    pl_epoch_row row;
    int active;
    polar_status st = bed->begin(&t, dev, c, seed, 1);
    if (st == POLAR_OK) st = bed->epoch(t, &row, &active);
    if (st == POLAR_OK) st = bed->save(t, path);
    if (st == POLAR_OK) st = bed->load(t, path);
    pl_alloc_fail_at(0);
    bed->end(t);
    return st;
}

/* Memory running out in each of these: one sentence, nothing kept. */
static inline void run_fault(const char *device, const run_arm *arm)
{
    polar_device *dev;
    pl_config *c = config_of(arm->changes);
    const char *path = in_folder("checkpoint");
    int64_t tries = 0, bad = 0, live, stride = strncmp(device, "guard", 5) ? 1 : 7;    /* guard maps and unmaps pages at every turn */
    TEST_TRY(polar_device_open(&dev, device));
    TEST_TRY(whole_life(dev, (const pl_config *const *)&c, &arm->seed, path));    /* a device may remember shapes it has met */
    live = pl_alloc_live();
    for (polar_status st = POLAR_E_NOMEM; st != POLAR_OK; tries += stride) {
        pl_alloc_fail_at(tries + 1);
        st = whole_life(dev, (const pl_config *const *)&c, &arm->seed, path);
        bad += (st != POLAR_OK && st != POLAR_E_NOMEM) + (pl_alloc_live() != live);
        if (tries > 20000) break;
    }
    test_true("memory running out at every allocation", !bad && tries > 50 && tries < 20000, "%lld allocations", (long long)(tries - stride));
    remove(path);
    pl_config_destroy(c);
    polar_device_close(dev);
}

#endif
