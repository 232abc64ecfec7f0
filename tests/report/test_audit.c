/* test_audit.c -- audits of a made-up store: pairs worked out by hand, incomplete ones, the same bytes
 * whatever the order of writing, memory that runs out. */
#include <float.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/json_read.h"
#include "fixtures/audit_fixture.h"
#include "fixtures/fake_store.h"
#include "fixtures/folder.h"
#include "lab/run/testbed.h"
#include "lab/spec/spec.h"
#include "report/findings.h"

static char folder[64];

/* A fresh store of this name in the test's folder. */
static pl_store *new_store(const char *name)
{
    char path[128];
    pl_store *s;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    TEST_TRY(pl_store_open(&s, path, PL_STORE_WRITE));
    return s;
}

static polar_status load(loaded *l, pl_store *s, const char *spec, const char *metric)
{
    return load_audit(l, s, &(pl_audit_of){.spec = spec, .metric = metric, .schema = pl_testbed_so3.schema});
}

static const pl_audit_pair *pair_of(const pl_audit *a, const char *cell, const char *x, const char *y)
{
    for (int64_t i = 0; i < a->pair_count; i++)
        if (!strcmp(a->pairs[i].cell, cell) && !strcmp(a->pairs[i].a, x) && !strcmp(a->pairs[i].b, y))
            return &a->pairs[i];
    printf("no pair %s - %s in %s  FAIL\n", x, y, cell);
    exit(1);
}

/* ---- by hand
 * -----------------------------------------------------------------------------------------------------------
 *
 * adamw 4 5 6 7, muon 1 3 2 6, in 1024ths: muon - adamw is -3 -2 -4 -1, mean -5/2, squares about it 1/4 + 1/4
 * + 9/4 + 9/4 = 5, sd sqrt(5/3), t = -5/2 / (sqrt(5/3)/2) = -sqrt(15). With three degrees of freedom P(|T| >=
 * t) = 1 - 2/pi (atan u + u / (1 + u^2)), u = t/sqrt(3) = sqrt(5). Interval: t quantile 3.18244630528371
 * (scipy.stats.t.isf(0.025, 3)) times sqrt(5/3)/2. Wilcoxon: all four negative, 2 of 2^4. polaradamw: 2 4
 * diverged unfinished in the first cell; in the second not run for seed 3.
 */
static double by_hand(int cell, int seed, int arm)
{
    static const double values[2][3][4] = {{{4, 5, 6, 7}, {1, 3, 2, 6}, {2, 4, 0, 0}},
                                           {{4, 5, 6, 7}, {1, 3, 2, 6}, {3, 4, 7, 0}}};
    if (arm == 2 && cell == 0 && seed == 2) return NAN;
    if (arm == 2 && cell == 0 && seed == 3) return FAKE_UNFINISHED;
    if (arm == 2 && cell == 1 && seed == 3) return FAKE_NOT_RUN;
    return values[cell][arm][seed] / 1024;
}

static const fake_plan hand_plan = {.spec = "so3_capacity",
                                    .cells = {"model.width=16", "model.width=32"},
                                    .arms = {"adamw", "muon", "polaradamw"},
                                    .n_cells = 2,
                                    .n_arms = 3,
                                    .n_seeds = 4,
                                    .epochs = 6};

static double relative(double got, double want)
{
    return fabs(got - want) / fabs(want);
}

static void check_hand(const pl_audit *a)
{
    const pl_audit_pair *p = pair_of(a, "model.width=16", "muon", "adamw");
    double half = 3.18244630528371 * sqrt(5.0 / 3) / 2, u = sqrt(5),
           want_p = 1 - 2 / M_PI * (atan(u) + u / (1 + u * u));
    test_true("by hand: n, means, signs",
              PART(p->s.n == 4) && PART(p->s.mean_a == 3.0 / 1024) && PART(p->s.mean_b == 5.5 / 1024) &&
                  PART(p->s.mean_diff == -2.5 / 1024) && PART(!p->s.positive) && PART(p->s.negative == 4),
              "n %lld, %g, %g, %g", (long long)p->s.n, p->s.mean_a, p->s.mean_b, p->s.mean_diff);
    /* four exact squares, one root, one division: 4 eps; the quantile above has 15 figures */
    test_bound("by hand: t", relative(p->s.t, -sqrt(15)), 4 * DBL_EPSILON, "4 eps");
    test_bound("by hand: p", relative(p->s.p, want_p), 200 * DBL_EPSILON,
               "1 - 0.97 loses a factor 30; 6 eps on either side");
    test_bound("by hand: ci95",
               fmax(relative(p->s.ci_lo, (-2.5 - half) / 1024), relative(p->s.ci_hi, (-2.5 + half) / 1024)),
               2e-14, "15 figures of the quantile, / (1 - 2.05/2.5)");
    test_true("by hand: Wilcoxon", p->s.wilcoxon_p == 0.125, "%g", p->s.wilcoxon_p);
    const pl_audit_arm *r = &a->arm_rows[0];
    test_true("by hand: an arm alone",
              PART(r->s.n == 4) && PART(r->s.mean == 5.5 / 1024) && PART(r->planned == 4) &&
                  PART(r->s.min == 4.0 / 1024) && PART(r->s.max == 7.0 / 1024),
              "mean %g", r->s.mean);
    /* 0.0093 + (0 + 1 + 2 + 3) 1e-5 / 4 */
    test_bound("by hand: the trace beside it", relative(r->reference[0], 0.009315), 4 * DBL_EPSILON,
               "a mean of four");
}

static void check_incomplete(const pl_audit *a)
{
    static const pl_audit_missing want[] = {{"model.width=16", "polaradamw", 2, PL_AUDIT_DIVERGED},
                                            {"model.width=16", "polaradamw", 3, PL_AUDIT_UNFINISHED},
                                            {"model.width=32", "polaradamw", 3, PL_AUDIT_NOT_RUN}};
    int64_t wrong = a->missing_count != 3;
    for (int64_t i = 0; i < a->missing_count && i < 3; i++)
        wrong += strcmp(a->missing[i].cell, want[i].cell) || strcmp(a->missing[i].arm, want[i].arm) ||
                 a->missing[i].seed != want[i].seed || a->missing[i].why != want[i].why;
    test_exact("incomplete: listed with the reason", wrong);
    const pl_audit_pair *p = pair_of(a, "model.width=16", "polaradamw", "muon"),
                        *q = pair_of(a, "model.width=32", "polaradamw", "adamw");
    test_true("incomplete: n of the pairs",
              PART(p->s.n == 2) && PART(p->incomplete == 2) && PART(q->s.n == 3) &&
                  PART(q->incomplete == 1) && PART(a->arm_rows[2].diverged == 1) &&
                  PART(a->arm_rows[2].planned == 4),
              "%lld of 4, %lld of 4", (long long)p->s.n, (long long)q->s.n);
    test_true("incomplete: the pair's own seeds",
              PART(p->seeds[0] == 0) && PART(p->seeds[1] == 1) && PART(p->values_a[1] == 4.0 / 1024) &&
                  PART(p->values_b[1] == 3.0 / 1024),
              "0, 1");
    test_true("incomplete: a difference that is always 1",
              p->s.mean_diff == 1.0 / 1024 && isnan(p->s.t) && isnan(p->s.p), "t is NaN");
}

static void by_hand_tests(void)
{
    pl_store *s = new_store("hand.db");
    loaded l, wall;
    fake_store_fill(s, &hand_plan, by_hand);
    TEST_TRY(load(&l, s, "so3_capacity", "test_mse"));
    test_true("the pairs and their order",
              PART(l.audit->pair_count == 6) && PART(!strcmp(l.audit->pairs[0].a, "muon")) &&
                  PART(!strcmp(l.audit->pairs[0].b, "adamw")) &&
                  PART(!strcmp(l.audit->pairs[2].a, "polaradamw")) &&
                  PART(!strcmp(l.audit->pairs[2].b, "muon")) &&
                  PART(!strcmp(l.audit->pairs[3].cell, "model.width=32")),
              "a is the later arm");
    check_hand(l.audit);
    check_incomplete(l.audit);
    char *text = printed(l.audit, PL_TABLE_TEXT), *sentence;
    test_true("text: incomplete pairs in words",
              strstr(text, "model.width=16, seed 2 (1): polaradamw diverged\nmodel.width=16, seed 3 (1): "
                           "polaradamw unfinished\n"
                           "model.width=32, seed 3 (1): polaradamw not run\n") != NULL,
              "three lines");
    free(text);
    TEST_TRY(pl_findings_cell(&sentence, l.audit, 0));
    test_true("findings: the order of the means",
              strstr(sentence, "model.width=16: muon 0.002930 = polaradamw 0.002930 < adamw 0.005371") ==
                  sentence,
              "%.*s", (int)strcspn(sentence, "\n"), sentence);
    test_true("findings: the larger minus the smaller", strstr(sentence, "\nadamw - polaradamw = ") != NULL,
              "%zu bytes", strlen(sentence));
    pl_free(sentence);
    TEST_TRY(load(&wall, s, "so3_capacity", "wall"));
    const pl_audit_pair *p = pair_of(wall.audit, "model.width=16", "muon", "adamw");
    test_true("wall: seconds of the runs", p->s.n == 4 && p->s.mean_diff == 1 && p->s.mean_b == 20.375,
              "%g - %g", p->s.mean_a, p->s.mean_b);
    unload(&wall);
    unload(&l);
    pl_store_close(s);
}

/* ---- metrics ---- */

static void metrics(void)
{
    pl_store *s = new_store("metrics.db");
    loaded l;
    fake_store_fill(s, &hand_plan, by_hand);
    TEST_TRY(load(&l, s, "so3_capacity", "mse"));
    test_true("metric: mse means test_mse", !strcmp(l.audit->metric, "test_mse"), "%s", l.audit->metric);
    unload(&l);
    TEST_TRY(load(&l, s, "so3_capacity", "epochs"));
    test_true("metric: any result",
              l.audit->pairs[0].s.n == 4 && l.audit->pairs[0].s.mean_diff == 0 &&
                  l.audit->pairs[0].s.wilcoxon_p == 1,
              "%s", l.audit->metric);
    unload(&l);
    polar_status st = load(&l, s, "so3_capacity", "accuracy");
    test_true("metric: none of that name",
              st == POLAR_E_ARG && strstr(polar_error_message(), "test_mse") &&
                  strstr(polar_error_message(), "wall"),
              "%s", polar_error_message());
    pl_store_close(s);
}

/* ---- bytes ---- */

static int same_output(const pl_audit *a, const pl_audit *b)
{
    static const pl_table_format formats[] = {PL_TABLE_TEXT, PL_TABLE_CSV, PL_TABLE_JSON, PL_TABLE_TEX};
    int same = 1;
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        char *x = printed(a, formats[i]), *y = printed(b, formats[i]);
        same = same && !strcmp(x, y);
        free(x);
        free(y);
    }
    return same;
}

/* Whether the text is JSON, and how many "n" its pairs have. */
static int64_t parse_json(const char *text)
{
    pl_json p = pl_json_view(text, (int64_t)strlen(text), "the audit");
    int64_t keys = 0;
    for (;;) {
        TEST_TRY(pl_json_next(&p));
        if (p.token == PL_JSON_END) return keys;
        keys += p.token == PL_JSON_KEY && pl_json_is(&p, "mean_diff");
    }
}

static void bytes(void)
{
    fake_plan other = hand_plan;
    other.backwards = 1;
    pl_store *s = new_store("forwards.db"), *t = new_store("backwards.db");
    loaded x, y;
    fake_store_fill(s, &hand_plan, by_hand);
    fake_store_fill(t, &other, by_hand);
    TEST_TRY(load(&x, s, "so3_capacity", "test_mse"));
    TEST_TRY(load(&y, t, "so3_capacity", "test_mse"));
    test_true("the same bytes, runs written backwards", same_output(x.audit, y.audit),
              "text, csv, json, tex");
    char *json = printed(x.audit, PL_TABLE_JSON);
    test_true("json: well formed", parse_json(json) == 6, "%zu bytes", strlen(json));
    test_true("json: no run id, no clock",
              !strstr(json, x.members.rows[0].id) && !strstr(json, x.members.rows[0].started) &&
                  !strstr(json, "wall"),
              "%s", x.members.rows[0].started);
    test_true("json: what is incomplete",
              strstr(json, "{\"cell\": \"model.width=16\", \"seed\": 2, \"missing\": [{\"arm\": "
                           "\"polaradamw\", \"why\": \"diverged\"}]}") != NULL,
              "by seed");
    test_true("json: null where nothing can be said",
              strstr(json, "\"ci95\": [null, null], \"t\": null, \"p\": null") != NULL, "equal differences");
    free(json);
    unload(&x);
    unload(&y);
    pl_store_close(s);
    pl_store_close(t);
}

/* ---- corners ---- */

static void corners(void)
{
    pl_audit *a;
    const pl_audit_run unknown[] = {{.cell = "all", .arm = "adamw", .seed = 7},
                                    {.cell = "all", .arm = "muon", .seed = 7},
                                    {.cell = "all", .arm = "adamw", .seed = 8}};
    pl_audit_of of = {.spec = "x", .metric = "test_mse", .schema = pl_testbed_so3.schema};
    TEST_TRY(pl_audit_create(&a, &of, NULL, 0));
    char *json = printed(a, PL_TABLE_JSON);
    test_true("no runs at all",
              !strcmp(json, "{\n  \"spec\": \"x\",\n  \"metric\": \"test_mse\",\n  \"better\": \"lower\",\n  "
                            "\"pairs\": [],\n  \"arms\": [],\n  \"incomplete\": []\n}\n"),
              "%zu bytes", strlen(json));
    free(json);
    pl_audit_destroy(a);
    TEST_TRY(pl_audit_create(&a, &of, unknown, 3));
    test_true("runs the store does not know",
              PART(a->pair_count == 1) && PART(a->pairs[0].s.n == 0) && PART(a->pairs[0].incomplete == 2) &&
                  PART(a->missing_count == 4) && PART(a->missing[0].why == PL_AUDIT_NOT_RUN) &&
                  PART(a->missing[3].why == PL_AUDIT_NOT_PLANNED) && PART(isnan(a->pairs[0].s.mean_diff)),
              "not run, not planned");
    char *text = printed(a, PL_TABLE_TEXT);
    test_true("runs the store does not know: in words",
              strstr(text, "all, seed 7 (1): adamw not run, muon not run\nall, seed 8 (1): adamw not run, "
                           "muon not planned\n") != NULL,
              "text");
    free(text);
    pl_audit_destroy(a);
}

/* The paper's numbers are in the specs. */
static void published(void)
{
    static const char *const names[] = {"paper/so3_capacity", "demo/so3_small", "paper/so3_timing"};
    pl_schema schemas[PL_TESTBED_MAX];
    int count = pl_testbed_schemas(schemas);
    const pl_published *p[3];
    pl_spec *specs[3];
    for (int i = 0; i < 3; i++) {
        char path[512];
        snprintf(path, sizeof path, SOURCE_DIR "/specs/%s.yaml", names[i]);
        TEST_TRY(pl_spec_read(&specs[i], path, schemas, count, NULL, 0));
        p[i] = specs[i]->published;
    }
    test_true(
        "published, either way round",
        PART(pl_published_pair_of(p[0], "model.width=16", "polaradamw", "muon", "test_mse").mean == 0.0007) &&
            PART(pl_published_pair_of(p[1], "model.width=16", "muon", "polaradamw", "test_mse").mean ==
                 -0.0007) &&
            PART(isnan(pl_published_value(p[0], "model.width=8", "muon", "test_mse"))) &&
            PART(pl_published_value(p[2], "model.width=128", "muon", "wall") == 23025),
        "+0.0007");
    test_true("published: nothing, of a spec without",
              isnan(pl_published_value(NULL, "all", "muon", "wall")) && !pl_published_has(NULL, "wall"),
              "NaN");
    const pl_audit_run runs[] = {{.cell = "model.width=16", .arm = "muon"},
                                 {.cell = "model.width=16", .arm = "polaradamw"}};
    pl_audit_of of = {.spec = "x", .metric = "test_mse", .schema = pl_testbed_so3.schema, .published = p[0]};
    pl_audit *a;
    TEST_TRY(pl_audit_create(&a, &of, runs, 2));
    char *json = printed(a, PL_TABLE_JSON), *text = printed(a, PL_TABLE_TEXT);
    test_true("published: in JSON and text",
              PART(strstr(json, "\"published\": {\"mean_diff\": 0.0007, \"t\": 4.97, \"n\": 100}")) &&
                  PART(strstr(json, "\"published\": 0.0067")) && PART(strstr(text, "the paper")) &&
                  PART(strstr(text, "0.0067")),
              "+0.0007, 0.0067");
    free(json);
    free(text);
    pl_audit_destroy(a);
    for (int i = 0; i < 3; i++) pl_spec_destroy(specs[i]);
}

/* Ranges of seeds: 0..4 without a run, 6 apart. */
static double gaps(int cell, int seed, int arm)
{
    (void)cell;
    return arm && (seed < 5 || seed == 6) ? FAKE_NOT_RUN : 0.01 + 0.001 * seed;
}

static void ranges(void)
{
    fake_plan p = {.spec = "gaps",
                   .cells = {"all"},
                   .arms = {"adamw", "muon"},
                   .n_cells = 1,
                   .n_arms = 2,
                   .n_seeds = 8,
                   .epochs = 5};
    pl_store *s = new_store("gaps.db");
    loaded l;
    fake_store_fill(s, &p, gaps);
    TEST_TRY(load(&l, s, "gaps", "test_mse"));
    char *text = printed(l.audit, PL_TABLE_TEXT);
    test_true("seeds as ranges", strstr(text, "all, seed 0..4, 6 (6): muon not run\n") != NULL, "%s",
              strstr(text, "Incomplete") ? strstr(text, "Incomplete") + 12 : "none");
    free(text);
    unload(&l);
    pl_store_close(s);
}

/* Opens the store, audits, prints, closes. */
static polar_status audit_once(const char *path, FILE *out)
{
    pl_store *s;
    loaded l = {0};
    PL_TRY(pl_store_open(&s, path, PL_STORE_READ));
    polar_status st = load(&l, s, "so3_capacity", "test_mse");
    if (st == POLAR_OK) {
        st = pl_audit_print(l.audit, out, PL_TABLE_TEXT);
        unload(&l);
    }
    pl_store_close(s);
    return st;
}

/* Every allocation fails once (the store's among them): out of memory is said, nothing is left over. */
static void faults(void)
{
    char path[128];
    pl_store *s = new_store("faults.db");
    FILE *null = fopen("/dev/null", "w");
    polar_status st = POLAR_E_NOMEM;
    int64_t n = 0, wrong = 0;
    fake_store_fill(s, &hand_plan, by_hand);
    pl_store_close(s);
    snprintf(path, sizeof path, "%s/faults.db", folder);
    TEST_TRY(audit_once(path, null)); /* what is set up once, once */
    for (; st != POLAR_OK && n < 10000; n++) {
        int64_t live = pl_alloc_live();
        pl_alloc_fail_at(n + 1);
        st = audit_once(path, null);
        pl_alloc_fail_at(0);
        wrong += (st != POLAR_OK && st != POLAR_E_NOMEM) || pl_alloc_live() != live;
    }
    fclose(null);
    test_true("the n-th allocation fails", st == POLAR_OK && !wrong && n > 10, "%lld allocations, %lld wrong",
              (long long)n - 1, (long long)wrong);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    snprintf(folder, sizeof folder, "/tmp/polar_audit_XXXXXX");
    if (!mkdtemp(folder)) return 1;
    by_hand_tests();
    metrics();
    bytes();
    corners();
    published();
    ranges();
    faults();
    folder_remove(folder);
    return test_end();
}
