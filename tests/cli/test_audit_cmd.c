/* test_audit_cmd.c -- `polar audit` and `polar report` on the plan of specs/demo/so3_tiny.yaml, with made-up
 * results in the store: nothing is trained here. */
#include <unistd.h>

#include "base/alloc.h"
#include "fixtures/folder.h"
#include "fixtures/store_faults.h"
#include "lab/spec/plan.h"
#include "lab/run/testbed.h"
#include "test.h"

#include "../../cli/cli.h"

static char folder[64], store[128], spec_path[512], last_id[PL_RUN_ID_CHARS], text[1 << 16];

/* Runs the command; what it printed is in `text`. */
static polar_status call(const cli_command *c, int argc, char **argv)
{
    FILE *out = fmemopen(text, sizeof text - 1, "w"), *log = fopen("/dev/null", "w");
    cli_context ctx = {.program = "polar", .out = out, .log = log};
    memset(text, 0, sizeof text);
    polar_status st = c->run(&ctx, argc, argv);
    fclose(out);
    fclose(log);
    return st;
}

#define WORDS(...)                                                      \
    (int)(sizeof((char *[]){__VA_ARGS__}) / sizeof(char *)), (char *[]) \
    {                                                                   \
        __VA_ARGS__                                                     \
    }

/* Every run of the plan but muon's last seed in the last cell, as a value that depends on its place only. */
static void fill(void)
{
    pl_schema schemas[PL_TESTBED_MAX];
    pl_spec *spec;
    pl_plan *plan;
    pl_store *s;
    TEST_TRY(pl_spec_read(&spec, spec_path, schemas, pl_testbed_schemas(schemas), NULL, 0));
    TEST_TRY(pl_plan_create(&plan, spec));
    TEST_TRY(pl_store_open(&s, store, PL_STORE_WRITE));
    pl_store_plan_row rows[64];
    for (int64_t i = 0; i < plan->count; i++)
        rows[i] = (pl_store_plan_row){plan->runs[i].id, plan->runs[i].cell, plan->runs[i].arm,
                                      "{\"model.width\": 4}", plan->runs[i].seed};
    pl_store_spec row = {.name = spec->name,
                         .sha = spec->sha,
                         .title = spec->title,
                         .testbed = spec->schema.name,
                         .metric = spec->metric,
                         .text = spec->text};
    TEST_TRY(pl_store_put_spec(s, &row, rows, plan->count));
    for (int64_t i = 0; i < plan->count; i++) {
        const pl_plan_run *r = &plan->runs[i];
        pl_result results[] = {
            {"test_mse", (double)(32 - 8 * r->arm_index + r->seed * (1 + r->arm_index)) / 1024},
            {"epochs", 12}};
        pl_run_progress progress = {.wall = 2.5};
        if (!strcmp(r->arm, "muon") && r->seed == 3 && r->cell_index == 1) continue;
        TEST_TRY(pl_store_begin_run(
            s, r->id,
            &(pl_provenance){.code = "0.1.0-test", .device = "cpu", .cpu = "a processor", .threads = 2}, 1));
        TEST_TRY(pl_store_finish(s, r->id, PL_RUN_DONE, results, 2, &progress));
        memcpy(last_id, r->id, sizeof last_id);
    }
    pl_store_close(s);
    pl_plan_destroy(plan);
    pl_spec_destroy(spec);
}

static void audits(void)
{
    TEST_TRY(call(&cli_cmd_audit, WORDS(spec_path, "--store", store)));
    test_true("audit: text",
              strstr(text, "so3_tiny: test_mse") && strstr(text, "model.width=8, seed 3 (1): muon not run\n"),
              "%zu bytes", strlen(text));
    TEST_TRY(call(&cli_cmd_audit, WORDS(spec_path, "--store", store, "--format", "json")));
    /* in 1024ths muon 24 26 28 30 and adamw 32 33 34 35: means 27 and 33.5 */
    test_true("audit: json",
              strstr(text, "{\"cell\": \"model.width=4\", \"a\": \"muon\", \"b\": \"adamw\", \"n\": 4, "
                           "\"mean_a\": 0.0263671875, \"mean_b\": 0.03271484375, "
                           "\"mean_diff\": -0.00634765625, ") != NULL,
              "%zu bytes", strlen(text));
    char *whole = strdup(text);
    TEST_TRY(call(&cli_cmd_audit, WORDS("so3_tiny", "--store", store, "--format", "json")));
    test_true("audit: by the spec's name in the store", !strcmp(whole, text), "%zu bytes", strlen(text));
    free(whole);
    TEST_TRY(call(&cli_cmd_audit, WORDS(spec_path, "--store", store, "--set", "seeds=0..1", "--set",
                                        "model.width=8", "--format", "csv")));
    test_true("audit: narrowed", strstr(text, "\nmodel.width=8,muon,adamw,2,0,") && !strstr(text, "width=4"),
              "%.60s", strchr(text, '\n') + 1);
    TEST_TRY(call(&cli_cmd_audit, WORDS(spec_path, "--store", store, "--set", "train.epochs=11")));
    test_true(
        "audit: runs the store has never heard of",
        strstr(text, "model.width=4, seed 0..3 (4): adamw not run, muon not run, polaradamw not run\n") !=
            NULL,
        "listed");
    TEST_TRY(call(&cli_cmd_audit, WORDS(spec_path, "--store", store, "--metric", "wall", "--format", "csv")));
    test_true("audit: seconds", strstr(text, "model.width=4,muon,adamw,4,0,2.5,2.5,0,") != NULL,
              "2.5 s each");
}

static void one_run(void)
{
    char prefix[9];
    snprintf(prefix, sizeof prefix, "%.8s", last_id);
    TEST_TRY(call(&cli_cmd_audit, WORDS(spec_path, "--store", store, "--run", prefix)));
    test_true("audit --run: where it comes from",
              PART(strstr(text, last_id)) &&
                  PART(strstr(text, "cell model.width=8  arm polaradamw  seed 3")) &&
                  PART(strstr(text, "code   0.1.0-test")) && PART(strstr(text, "test_mse = 0.0244140625")) &&
                  PART(strstr(text, "pair   polaradamw - muon: muon not run")),
              "%.40s", text);
    polar_status st = call(&cli_cmd_audit, WORDS(spec_path, "--store", store, "--run", "xyz"));
    test_true("audit --run: none",
              st == POLAR_E_ARG && strstr(polar_error_message(), "--run xyz: no run of so3_tiny"), "%s",
              polar_error_message());
    int twice = -1; /* 23 ids, 16 first digits: two begin alike */
    for (int d = 0; d < 16 && twice < 0; d++) {
        char digit[2] = {"0123456789abcdef"[d], 0};
        st = call(&cli_cmd_audit, WORDS(spec_path, "--store", store, "--run", digit));
        if (st == POLAR_E_ARG && strstr(polar_error_message(), "more than one run begins so")) twice = d;
    }
    test_true("audit --run: more than one", twice >= 0, "%s", polar_error_message());
}

static void mistakes(void)
{
    polar_status st = call(&cli_cmd_audit, WORDS(spec_path, "--store", "no/such.db"));
    test_true("audit: no store", st == POLAR_E_ARG && strstr(polar_error_message(), "no/such.db"), "%s",
              polar_error_message());
    st = call(&cli_cmd_audit, WORDS("no_such_spec", "--store", store));
    test_true("audit: no spec",
              st == POLAR_E_ARG && strstr(polar_error_message(), "no spec file 'no_such_spec'") &&
                  strstr(polar_error_message(), "so3_tiny"),
              "%s", polar_error_message());
    st = call(&cli_cmd_audit, WORDS("so3_tiny", "--store", store, "--set", "seeds=0"));
    test_true("audit: --set with a name",
              st == POLAR_E_ARG && strstr(polar_error_message(), "--set narrows a spec file"), "%s",
              polar_error_message());
    st = call(&cli_cmd_audit, WORDS(spec_path, "--store", store, "--metric", "l10"));
    test_true("audit: no such metric",
              st == POLAR_E_ARG && strstr(polar_error_message(), "epochs, test_mse, wall"), "%s",
              polar_error_message());
    st = call(&cli_cmd_report, WORDS("-q", "x"));
    test_true("report: no such letter", st == POLAR_E_ARG && strstr(polar_error_message(), "'-q'"), "%s",
              polar_error_message());
    st = call(&cli_cmd_report, WORDS("-o"));
    test_true("report: -o without a folder",
              st == POLAR_E_ARG && strstr(polar_error_message(), "-o wants a value: -o DIR"), "%s",
              polar_error_message());
}

static void reports(void)
{
    char dir[128], page[160];
    snprintf(dir, sizeof dir, "%s/a/b", folder);
    snprintf(page, sizeof page, "%s/a/b/index.html", folder);
    TEST_TRY(call(&cli_cmd_report, WORDS(spec_path, "--store", store, "-o", dir)));
    test_true("report: by the spec's file, -o", strstr(text, page) && access(page, F_OK) == 0, "%s", text);
    polar_status st = call(&cli_cmd_report, WORDS("so3_tinny", "--store", store, "-o", dir));
    test_true("report: no such spec", st == POLAR_E_ARG && strstr(polar_error_message(), "it has: so3_tiny"),
              "%s", polar_error_message());
}

/* Every allocation fails once, of the store's opening some (store_faults.h): out of memory is said, nothing
 * is left over. */
static void faults(void)
{
    polar_status st = POLAR_E_NOMEM;
    const int64_t opening = store_opening(store);
    int64_t n = 0, wrong = 0;
    for (; st != POLAR_OK && n < 20000; n = store_next_fault(n, opening)) {
        int64_t live = pl_alloc_live();
        pl_alloc_fail_at(n + 1);
        st = call(&cli_cmd_audit, WORDS(spec_path, "--store", store, "--set", "model.width=4"));
        pl_alloc_fail_at(0);
        wrong += (st != POLAR_OK && st != POLAR_E_NOMEM) || pl_alloc_live() != live;
    }
    test_true("audit: the n-th allocation fails", st == POLAR_OK && !wrong && n > 100,
              "%lld allocations, %lld wrong", (long long)n - 1, (long long)wrong);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    snprintf(folder, sizeof folder, "/tmp/polar_audit_cmd_XXXXXX");
    if (!mkdtemp(folder)) return 1;
    snprintf(store, sizeof store, "%s/polar.db", folder);
    snprintf(spec_path, sizeof spec_path, "%s/specs/demo/so3_tiny.yaml", SOURCE_DIR);
    fill();
    audits();
    one_run();
    mistakes();
    reports();
    setenv("PATH", "/dev/null", 1); /* from here on nothing is drawn */
    faults();
    folder_remove(folder);
    return test_end();
}
