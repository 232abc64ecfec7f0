/* fuzz_tables.c -- tables of `polar store import`: parts between bytes 1, that of runs, then that of epochs.
 * What is taken goes into a store, comes out of it as it was, and agrees with itself when it is put again. */
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "lab/run/testbed.h"
#include "report/table/tables_read.h"

static const char spec_text[] =
    "name: small\ntestbed: so3\nseeds: 0..1\narms: [adamw, muon]\nset: {model.layers: 1, "
    "train.epochs: 3}\n";
static pl_schema schemas[PL_TESTBED_MAX];
static pl_spec *spec;
static pl_plan *plan;
static pl_plan_rows rows;

void fuzz_begin(void)
{
    char *text = NULL;
    size_t size = 0;
    int n = pl_testbed_schemas(schemas);
    need(pl_spec_read_text(&spec, "small", spec_text, schemas, n) == POLAR_OK);
    need(pl_plan_create(&plan, spec) == POLAR_OK);
    need(pl_plan_rows_create(&rows, plan->runs, plan->count) == POLAR_OK);
    FILE *f = open_memstream(&text, &size);
    fprintf(f, "cell,arm,seed,state,best_valid,diverged,epochs,test_mse,wall,code,device,cpu,id\n");
    for (int64_t i = 0; i < plan->count; i++)
        fprintf(f, "%s,%s,%d,%s,0.5,%d,2,%s,1.5,c0de,\"cpu:isa=avx2,threads=1\",x,%s\n", plan->runs[i].cell,
                plan->runs[i].arm, (int)plan->runs[i].seed, i ? "done" : "diverged", !i, i ? "0.125" : "nan",
                plan->runs[i].id);
    fprintf(f, "\1cell,arm,seed,epoch,train_loss,valid,lr,seconds\n");
    for (int64_t i = 0; i < plan->count; i++)
        for (int e = 1; e < 3; e++)
            fprintf(f, "%s,%s,%d,%d,0.75,0.%d,1e-3,2.5\n", plan->runs[i].cell, plan->runs[i].arm,
                    (int)plan->runs[i].seed, e, 7 - e);
    fclose(f);
    fuzz_seed("tables", text, size);
    free(text);
}

static int hear(void *arg, const char *run, const char *what)
{
    (void)run, (void)what;
    ++*(int *)arg;
    return 1;
}

/* Two rows of one run may differ: then nothing is put. */
static void try_store(const pl_tables *t)
{
    const char *tails[] = {"", "-wal", "-shm", ".lock"};
    const pl_store_spec row = pl_spec_row(spec);
    pl_merge_count did;
    pl_store_epochs e;
    pl_store_members m;
    pl_store *s;
    int told = 0;
    need(pl_store_open(&s, fuzz_path("store"), PL_STORE_WRITE) == POLAR_OK);
    polar_status st = pl_store_import(&did, s, &row, rows.rows, rows.count, t->runs, t->count, hear, &told);
    need(st == POLAR_OK || (st == POLAR_E_FORMAT && told));
    if (st == POLAR_OK) {
        need(pl_store_verify(s) == POLAR_OK);
        need(pl_store_import(&did, s, &row, rows.rows, rows.count, t->runs, t->count, hear, &told) ==
             POLAR_OK);
        need(!did.put && !told);
        need(pl_store_select_members(&m, s, spec->name) == POLAR_OK && m.count == plan->count);
        pl_store_members_free(&m);
    }
    for (int64_t i = 0; i < t->count && st == POLAR_OK; i++) {
        need(pl_store_select_epochs(&e, s, t->runs[i].run.id) == POLAR_OK);
        need(e.count >= t->runs[i].epoch_count);
        pl_store_epochs_free(&e);
    }
    pl_store_close(s);
    for (int i = 0; i < 4; i++) {
        char name[16];
        snprintf(name, sizeof name, "store%s", tails[i]);
        unlink(fuzz_path(name));
    }
}

static void check_row(const pl_tables_row *r)
{
    for (int64_t i = 1; i < r->epoch_count; i++) need(r->epochs[i].epoch > r->epochs[i - 1].epoch);
    for (int64_t i = 1; i < r->result_count; i++)
        need(strcmp(r->results[i - 1].name, r->results[i].name) < 0);
    need(r->wall >= 0 && r->line > 1);
}

void fuzz_try(const uint8_t *data, size_t size)
{
    char *runs = fuzz_part(data, size, 0), *epochs = fuzz_part(data, size, 1);
    pl_tables *t;
    need(pl_tables_create(&t, plan, &rows) == POLAR_OK);
    polar_status st = pl_tables_read_runs(t, fuzz_file(0, runs, strlen(runs)));
    if (st == POLAR_OK && epochs) st = pl_tables_read_epochs(t, fuzz_file(1, epochs, strlen(epochs)));
    if (st == POLAR_OK) st = pl_tables_match(t, size % 2);
    need(st == POLAR_OK || (st == POLAR_E_FORMAT && strstr(polar_error_message(), "/proc/self/fd/")));
    if (st == POLAR_OK) {
        for (int64_t i = 0; i < t->row_count; i++) check_row(&t->rows[i]);
        if (t->count) try_store(t);
    }
    pl_tables_destroy(t);
    free(runs);
    free(epochs);
}
