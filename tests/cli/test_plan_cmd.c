/* test_plan_cmd.c -- `polar plan` on a device: its table against shapes worked out by hand, a store beside
 * it, memory running out. */
#include "test.h"

#include <dirent.h>
#include <unistd.h>

#include "base/alloc.h"
#include "fixtures/store_faults.h"
#include "lab/spec/plan.h"
#include "lab/run/testbed.h"

#include "../../cli/cli.h"

static char folder[64] = "/tmp/polar_test_plan.XXXXXX", store_path[128], tiny[4096];
static char *device;

/* The command's output, to be freed; NULL when it failed. */
static char *plan(int argc, char **argv)
{
    char *text = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&text, &n), *null = fopen("/dev/null", "w");
    cli_context ctx = {.program = "polar", .out = out, .log = null};
    polar_status st = cli_cmd_plan.run(&ctx, argc, argv);
    fclose(out);
    fclose(null);
    if (st == POLAR_OK) return text;
    free(text);
    return NULL;
}

static int lines(const char *text)
{
    int n = 0;
    for (; text && (text = strchr(text, '\n')); text++) n++;
    return n;
}

/* Matrices under layers.* of the reference: W_00 and W_11 (h, i), message.0 (h, 1), message.2 (2h, h),
 * cg_proj (h, h + h(h+1)/2), i = 1 in the first layer and h later. */
static void test_estimate(void)
{
    polar_device *dev;
    pl_config *c;
    pl_estimate e;
    TEST_TRY(polar_device_open(&dev, device));
    TEST_TRY(pl_config_create(&c, pl_testbed_so3.schema));
    TEST_TRY(pl_config_assign(c, "model.width=6"));
    TEST_TRY(pl_config_assign(c, "model.layers=2"));
    TEST_TRY(pl_config_assign(c, "data.train=80"));
    TEST_TRY(pl_testbed_so3.estimate(&e, dev, c));
    int64_t h = 6, matrix = 2 * (h + h * h) + 2 * (h + 2 * h * h + h * (h + h * (h + 1) / 2));
    /* biases and gates; the readout */
    int64_t aux = 2 * (h + h + 2 * h + h + 2 * h) + (h * 2 * h + h) + (h + 1);
    int ok = e.matrix_weights == matrix && e.aux_weights == aux && e.matrix_arrays == 10 && e.steps == 2 &&
             e.epochs == 100;
    test_true("weights by route", ok, "%lld matrix, %lld aux", (long long)e.matrix_weights,
              (long long)e.aux_weights);
    /* a pass over a batch is at least the merge's products, forward, to its input and to its weights: 3 x 2 B
     * N h (h + h(h+1)/2) in each layer */
    double least = 2 * 3 * 2.0 * 32 * 64 * (double)(h * (h + h * (h + 1) / 2));
    double all = 200 * (e.pass.flops + e.step.flops) + (100 * 8 + 16) * e.look.flops;
    test_true("counted and multiplied",
              PART(e.pass.flops > least) && PART(e.look.flops < e.pass.flops) && PART(e.step.flops > 0) &&
                  PART(fabs(e.flops - all) < 1e-9 * all),
              "%.3g MFLOP a pass, %.3g a step", e.pass.flops / 1e6, e.step.flops / 1e6);
    test_true("routes are told", strstr(e.routes, "layers.1.cg_proj.weight") != NULL, "%zu bytes",
              strlen(e.routes));
    pl_free(e.routes);
    pl_config_destroy(c);
    polar_device_close(dev);
}

static void test_output(void)
{
    char *cells[] = {tiny, "--device", device, "--format", "csv"},
         *runs[] = {tiny, "--runs", "--format", "csv", "--set", "seeds=0..9"},
         *keys[] = {"--keys", "so3", "--format", "csv"};
    char *text = plan(5, cells);
    test_true("a line per cell and arm", lines(text) == 1 + 2 * 3, "%d lines", lines(text));
    free(text);
    text = plan(6, runs);
    test_true("a line per run", lines(text) == 1 + 2 * 3 * 10, "%d lines", lines(text));
    free(text);
    text = plan(4, keys);
    test_true("a line per key", lines(text) == 1 + pl_testbed_so3.schema->key_count, "%d lines", lines(text));
    free(text);
    char *routes[] = {tiny, "--device", device, "--routes", "--set", "arms=muon"};
    text = plan(6, routes);
    test_true("routes",
              text && strstr(text, "Routes of muon in cell model.width=4") && strstr(text, "layers.0.W_11"),
              "%d lines", lines(text));
    free(text);
    char *wrong[][4] = {{tiny, "--set", "model.width=5"},
                        {tiny, "--set", "train.batch=1000"},
                        {"--keys", "vgg"},
                        {"--runs"},
                        {tiny, "--store", "/tmp/polar_no_such_store.db"}};
    int counts[] = {3, 3, 2, 1, 3}, told = 0;
    for (int i = 0; i < 5; i++) {
        text = plan(counts[i], wrong[i]);
        told += !text && *polar_error_message();
        free(text);
    }
    test_true("what is wrong is told", told == 5, "%s", polar_error_message());
}

/* Two runs of the tiny spec are in the store, one of them finished. */
static void test_store(void)
{
    pl_schema schemas[PL_TESTBED_MAX];
    pl_spec *s;
    pl_plan *p;
    pl_store *store;
    TEST_TRY(pl_spec_read(&s, tiny, schemas, pl_testbed_schemas(schemas), NULL, 0));
    TEST_TRY(pl_plan_create(&p, s));
    TEST_TRY(pl_store_open(&store, store_path, PL_STORE_WRITE));
    pl_store_spec row = {.name = s->name,
                         .sha = s->sha,
                         .title = s->title,
                         .testbed = "so3",
                         .metric = s->metric,
                         .text = s->text};
    pl_store_plan_row rows[2];
    for (int i = 0; i < 2; i++)
        rows[i] = (pl_store_plan_row){p->runs[i].id, p->runs[i].cell, p->runs[i].arm, "{}", p->runs[i].seed};
    pl_provenance from = {"test", device, "none", 1, NULL};
    pl_result result = {"test_mse", 0.5};
    pl_run_progress progress = {.wall = 12.5};
    TEST_TRY(pl_store_put_spec(store, &row, rows, 2));
    TEST_TRY(pl_store_begin_run(store, p->runs[1].id, &from, 1));
    TEST_TRY(pl_store_finish(store, p->runs[1].id, PL_RUN_DONE, &result, 1, &progress));
    pl_store_close(store);
    char *args[] = {tiny, "--device", device, "--store", store_path, "--format", "csv"},
         *list[] = {tiny, "--runs", "--store", store_path, "--format", "csv"};
    char *text = plan(7, args), *runs = plan(6, list);
    const char *muon = text ? strstr(text, "model.width=4,muon,4,") : NULL;
    char line[512] = "";
    if (muon) snprintf(line, sizeof line, "%.*s", (int)strcspn(muon, "\n"), muon);
    size_t n = strlen(line);
    test_true("finished runs and their time", n > 9 && !strcmp(line + n - 9, ",1,0,12.5"), "%s", line);
    int done = 0;
    for (const char *q = runs ? runs : ""; (q = strstr(q, ",done\n")); q++) done++;
    test_true("state of every run", done == 1 && lines(runs) == 25, "%d done", done);
    free(text);
    free(runs);
    pl_plan_destroy(p);
    pl_spec_destroy(s);
}

/* --time: a column and a line more; how long is not judged. */
static void test_time(void)
{
    char *args[] = {tiny, "--device", device, "--set", "arms=muon,adamw", "--time"},
         *csv[] = {tiny, "--device", device, "--set", "arms=muon,adamw", "--time", "--format", "csv"};
    char *text = plan(6, args), *table = plan(8, csv);
    const char *row = table ? strstr(table, "model.width=8,muon,") : NULL;
    for (int i = 0; row && i < 11; i++) row = strchr(row, ',') + 1;
    test_true("minutes of a run", row && strtod(row, NULL) > 0 && strstr(table, ",aux_weights,run_minutes\n"),
              "%.8s", row ? row : "none");
    test_true("time of the whole, and how it was found",
              text && strstr(text, "for one job alone on ") && strstr(text, "a few steps of the smallest"),
              "said");
    free(text);
    free(table);
}

/* opening: how many allocations a store takes that is opened (store_faults.h); 0: none is */
static void test_faults(const char *what, int64_t opening, int argc, char **argv)
{
    FILE *null = fopen("/dev/null", "w");
    cli_context ctx = {.program = "polar", .out = null, .log = null};
    polar_status st = POLAR_E_NOMEM;
    int64_t n = 0, leaks = 0, wrong = 0;
    for (; st != POLAR_OK && n < 100000; n = store_next_fault(n, opening)) {
        int64_t live = pl_alloc_live();
        pl_alloc_fail_at(n + 1);
        st = cli_cmd_plan.run(&ctx, argc, argv);
        pl_alloc_fail_at(0);
        leaks += pl_alloc_live() != live;
        wrong += st != POLAR_OK && (st != POLAR_E_NOMEM || !*polar_error_message());
    }
    test_true(what, PART(st == POLAR_OK) && PART(n > 50) && PART(!leaks) && PART(!wrong),
              "%lld allocations, %lld leaks, %lld other errors", (long long)n - 1, (long long)leaks,
              (long long)wrong);
    fclose(null);
}

int main(int argc, char **argv)
{
    device = (char *)test_begin(argc, argv);
    if (!mkdtemp(folder)) return 1;
    if (chdir(folder)) return 1; /* where no polar.db lies */
    snprintf(store_path, sizeof store_path, "%s/test.db", folder);
    snprintf(tiny, sizeof tiny, "%s/specs/demo/so3_tiny.yaml", SOURCE_DIR);
    test_estimate();
    test_output();
    test_store();
    test_time();
    char *cells[] = {tiny, "--device", device, "--set", "arms=muon", "--set", "model.width=4", "--routes"},
         *runs[] = {tiny, "--runs", "--store", store_path};
    test_faults("memory runs out", 0, 8, cells);
    test_faults("memory runs out, with a store", store_opening(store_path), 4, runs);
    DIR *d = opendir(folder);
    for (struct dirent *e; d && (e = readdir(d));)
        if (strcmp(e->d_name, ".") && strcmp(e->d_name, "..")) remove(e->d_name);
    if (d) closedir(d);
    rmdir(folder);
    return test_end();
}
