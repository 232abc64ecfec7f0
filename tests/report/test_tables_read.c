/* test_tables_read.c -- tables of runs and epochs read back and put into a store: what is taken, what is
 * refused with its line, bytes changed at random, runs that disagree, no memory.
 */
#include "test.h"

#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "fixtures/folder.h"
#include "lab/run/testbed.h"
#include "report/table/tables_read.h"

static const char spec_text[] =
    "name: small\ntestbed: so3\nseeds: 0..1\narms: [adamw, muon]\ngrid: {model.width: "
    "[2, 3]}\nset: {model.layers: 1, train.epochs: 3}\n";

static char folder[64], runs_path[96], epochs_path[96], store_path[96];
static char runs_text[8192], epochs_text[8192];
static pl_schema schemas[PL_TESTBED_MAX];
static pl_spec *spec;
static pl_plan *plan;
static pl_plan_rows rows;

static void add(char *text, const char *fmt, ...) PL_PRINTF(2, 3);
static void add(char *text, const char *fmt, ...)
{
    size_t used = strlen(text);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text + used, 8192 - used, fmt, ap);
    va_end(ap);
}

/* The tables of the eight runs as a report has them; the last one diverged in its second epoch. */
static void make_texts(void)
{
    add(runs_text,
        "cell,arm,seed,state,best_valid,diverged,epochs,plateau_epoch,test_mse,wall,code,device,id\n");
    add(epochs_text, "cell,arm,seed,epoch,train_loss,valid,lr,seconds\n");
    for (int64_t i = 0; i < plan->count; i++) {
        const pl_plan_run *r = &plan->runs[i];
        int lost = i == plan->count - 1;
        add(runs_text, "%s,%s,%d,%s,0.5,%d,%d,nan,%s,1.%d,c0de,\"cpu:isa=avx2,threads=1\",%s\n", r->cell,
            r->arm, (int)r->seed, lost ? "diverged" : "done", lost, lost ? 2 : 3,
            lost ? "nan" : "0.1234567890123456", (int)i, r->id);
        for (int e = 1; e <= (lost ? 2 : 3); e++)
            add(epochs_text, "%s,%s,%d,%d,%s,0.%d,0.001,%s\n", r->cell, r->arm, (int)r->seed, e,
                lost && e == 2 ? "" : "0.75", e == 2 ? 4 : 5, e == 3 ? "" : "2.5");
    }
}

static void write_file(const char *path, const char *text, size_t n)
{
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(text, 1, n, f) != n) exit(1);
    fclose(f);
}

/* text with its first `from` after the first line's end (or, of the header, in it) as `to` */
static char *changed(const char *text, const char *from, const char *to)
{
    static char out[8192];
    const char *at = strstr(text, from);
    if (!at) {
        printf("no '%s' in the table\n", from);
        exit(1);
    }
    snprintf(out, sizeof out, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    return out;
}

static int told;
static char what_told[512];

static int hear(void *arg, const char *run, const char *what)
{
    (void)arg, (void)run;
    if (!told++) snprintf(what_told, sizeof what_told, "%s", what);
    return 1;
}

/* Both files, or the first alone; put: into the store, too. */
static polar_status read_all(pl_merge_count *did, pl_store *put, int with_epochs, int skip)
{
    pl_tables *t;
    const pl_store_spec row = pl_spec_row(spec);
    *did = (pl_merge_count){0};
    PL_TRY(pl_tables_create(&t, plan, &rows));
    polar_status st = pl_tables_read_runs(t, runs_path);
    if (st == POLAR_OK && with_epochs) st = pl_tables_read_epochs(t, epochs_path);
    if (st == POLAR_OK) st = pl_tables_match(t, skip);
    if (st == POLAR_OK && put)
        st = pl_store_import(did, put, &row, rows.rows, rows.count, t->runs, t->count, hear, NULL);
    pl_tables_destroy(t);
    return st;
}

static void remove_store(void)
{
    static const char *const tails[] = {"", "-wal", "-shm", ".lock"};
    for (int i = 0; i < 4; i++) {
        char name[128];
        snprintf(name, sizeof name, "%s%s", store_path, tails[i]);
        unlink(name);
    }
}

static pl_store *new_store(void)
{
    pl_store *s = NULL;
    remove_store();
    TEST_TRY(pl_store_open(&s, store_path, PL_STORE_WRITE));
    return s;
}

/* ---- what is there again ------------------------------------------------------------------------ */

static int64_t wrong_epochs(pl_store *s, const pl_store_member *m, int lost)
{
    pl_store_epochs e;
    TEST_TRY(pl_store_select_epochs(&e, s, m->id));
    int64_t wrong = e.count != (lost ? 2 : 3);
    for (int64_t i = 0; i < e.count && !wrong; i++) {
        const pl_epoch_row *r = &e.rows[i];
        /* the second epoch is the best, and nobody knows the seconds of the third */
        wrong += r->epoch != i + 1 || r->lr != 0.001 || r->improved != (i == 0 || (i == 1 && !lost)) ||
                 r->valid != (i == 1 ? 0.4 : 0.5) || isnan(r->seconds) != (i == 2) ||
                 isnan(r->train_loss) != (lost && i == 1);
    }
    pl_store_epochs_free(&e);
    return wrong;
}

static void test_back(void)
{
    pl_store *s = new_store();
    pl_store_members m;
    pl_merge_count did;
    int64_t wrong = 0, epochs = 0;
    TEST_TRY(read_all(&did, s, 1, 0));
    TEST_TRY(pl_store_select_members(&m, s, "small"));
    test_true("all runs are put", did.put == 8 && did.finished == 8 && m.count == 8, "%lld",
              (long long)did.put);
    for (int64_t i = 0; i < m.count; i++) {
        const pl_store_member *r = &m.rows[i];
        int lost = i == m.count - 1;
        const double *mse = pl_store_result(r, "test_mse"), *plateau = pl_store_result(r, "plateau_epoch");
        wrong += r->state != (lost ? PL_RUN_DIVERGED : PL_RUN_DONE) || r->result_count != 5 || !mse ||
                 (lost ? !isnan(*mse) : *mse != 0.1234567890123456) || !plateau || !isnan(*plateau) ||
                 strcmp(r->code, "c0de") || strcmp(r->device, "cpu:isa=avx2,threads=1") ||
                 strcmp(r->cpu, "not known: imported from runs.csv") || !pl_store_is_imported(r) || r->data ||
                 r->wall != 1 + (double)i / 10 || r->started;
        epochs += wrong_epochs(s, r, lost);
    }
    test_exact("  with what the table says", wrong);
    test_exact("  and their epochs", epochs);
    pl_store_members_free(&m);
    TEST_TRY(read_all(&did, s, 1, 0));
    test_true("the same tables again", did.put == 0 && did.differ == 0, "%lld put", (long long)did.put);
    TEST_TRY(read_all(&did, s, 0, 0));
    test_true("... without epochs", did.put == 0 && did.differ == 0, "%lld put", (long long)did.put);
    pl_store_close(s);
    TEST_TRY(pl_store_open(&s, store_path, PL_STORE_READ));
    pl_store_close(s); /* every row has its checksum */
}

/* What a spreadsheet or another hand makes of the same table. */
static void test_other_forms(void)
{
    static char text[8192];
    pl_merge_count did;
    size_t n = 0;
    text[n++] = '\xef', text[n++] = '\xbb', text[n++] = '\xbf';
    for (const char *c = runs_text; *c && n < sizeof text - 3; c++) {
        if (*c == '\n') text[n++] = '\r';
        text[n++] = *c;
    }
    write_file(runs_path, text, n);
    pl_store *s = new_store();
    TEST_TRY(read_all(&did, s, 0, 0));
    test_true("a mark of UTF-8 and CRLF", did.put == 8, "%lld", (long long)did.put);
    pl_store_close(s);
    /* columns in another order, only the metric, an axis, no state */
    *text = 0;
    add(text, "id,width,test_mse,seed\n");
    for (int i = 0; i < 7; i++) add(text, "%s,2,0.5,%d\n", plan->runs[i].id, (int)plan->runs[i].seed);
    write_file(runs_path, text, strlen(text));
    s = new_store();
    TEST_TRY(read_all(&did, s, 0, 0));
    test_true("a table with fewer columns", did.put == 7, "%lld", (long long)did.put);
    write_file(runs_path, runs_text, strlen(runs_text));
    told = 0;
    polar_status st = read_all(&did, s, 0, 0);
    test_true("... disagrees with the whole one", st == POLAR_E_FORMAT && did.differ == 7 && told == 7, "%s",
              what_told);
    pl_store_close(s);
}

/* ---- what is refused ---------------------------------------------------------------------------- */

static void refuse(const char *path, const char *text, const char *from, const char *to, const char *says)
{
    pl_merge_count did;
    const char *other = changed(text, from, to);
    write_file(path, other, strlen(other));
    polar_status st = read_all(&did, NULL, path == epochs_path, 0);
    test_true(says, st == POLAR_E_FORMAT && strstr(polar_error_message(), says), "%s",
              st == POLAR_OK ? "accepted" : polar_error_message());
    write_file(path, text, strlen(text));
}

static void refuse_runs(const char *from, const char *to, const char *says)
{
    refuse(runs_path, runs_text, from, to, says);
}

static void refuse_epochs(const char *from, const char *to, const char *says)
{
    refuse(epochs_path, epochs_text, from, to, says);
}

static void test_refuses(void)
{
    char id[40], other[40], line[400], twice[800];
    snprintf(id, sizeof id, "%s", plan->runs[0].id);
    snprintf(other, sizeof other, "%s", id);
    other[0] = id[0] == 'f' ? '0' : 'f';
    refuse_runs("cell,arm", "arm,arm", ":1: the column 'arm' comes twice");
    refuse_runs(",id\n", ",ie\n", ":1: no column 'id' in the first line");
    refuse_runs(",seed,", ",sead,", ":1: no column 'seed'");
    refuse_runs("test_mse", "test_mes", ":1: no column 'test_mse'");
    refuse_runs("done", "finished", ":2: the state 'finished' is none of");
    refuse_runs("done", "", ":2: the state '' is none of");
    refuse_runs("done", "diverged", ":2: the state 'diverged' contradicts the result");
    refuse_runs("0.1234567890123456", "0.12x", ":2: test_mse '0.12x' is no number");
    refuse_runs("0.1234567890123456", "", ":2: test_mse '' is empty, and the run is finished");
    refuse_runs("0.1234567890123456", "1e400", ":2: test_mse '1e400' is no number");
    refuse_runs(",1.0,", ",-1,", ":2: wall '-1' is no time");
    refuse_runs(",1.0,", ",inf,", ":2: wall 'inf' is no time");
    refuse_runs("c0de", "c0\x1b[2Jde", ":2: code ");
    refuse_runs("c0de", "\"c0\nde\"", ":2: code ");
    refuse_runs(",0,done", ",zero,done", ":2: the seed 'zero' is no whole number");
    refuse_runs(",0,done", ",1,done", ":2: the seed of run");
    refuse_runs(",c0de,", ",", ":2: 12 fields, where the first line has 13");
    refuse_runs("\"cpu", "cpu", ":2: a quote within a field");
    refuse_runs(id, "0123", ":2: the id '0123' is not made of 32");
    refuse_runs(id, "", ":2: the id '' is not made of 32");
    refuse_runs(id, other, "is none of the 8 planned of small: give the --set");
    refuse_runs("device", "data", ":2: the data 'cpu:isa=avx2,threads=1' do not end with 64");
    refuse_runs(",state,", ",stat,", ":9: test_mse 'nan' of a table without a column 'state'");
    refuse_runs(runs_text, "", ":1: the file is empty");
    snprintf(line, sizeof line, "%s\n", plan->runs[7].id);
    refuse_runs(line, plan->runs[7].id, ":9: the last line has no end");
    refuse_epochs("lr", "rl", ":1: no column 'lr'");
    refuse_epochs("valid", "epoch", ":1: the column 'epoch' comes twice");
    refuse_epochs("adamw", "sgd", ":2: the run 'sgd' of this cell and seed is in none");
    refuse_epochs(",0,1,0.75", ",0,0,0.75", ":2: the epoch '0' is no whole number from 1 on");
    refuse_epochs(",0,2,0.75", ",0,1,0.75", ":3: the epoch '1' does not come after");
    refuse_epochs("0.75", "NaN", ":2: train_loss 'NaN' is no number");
    snprintf(twice, sizeof twice, "%s", strstr(epochs_text, "\n") + 1);
    *(strchr(twice, '\n') + 1) = 0;
    refuse_epochs(twice, "", "2 epochs of run");
}

/* Epochs that a second table has, too: the same, or refused. */
static void second_table(const char *what, const char *from, const char *to, const char *says)
{
    static char more_path[112];
    const char *other = changed(epochs_text, from, to);
    pl_tables *t;
    snprintf(more_path, sizeof more_path, "%s/more.csv", folder);
    write_file(more_path, other, strlen(other));
    TEST_TRY(pl_tables_create(&t, plan, &rows));
    TEST_TRY(pl_tables_read_runs(t, runs_path));
    TEST_TRY(pl_tables_read_epochs(t, epochs_path));
    polar_status st = pl_tables_read_epochs(t, more_path);
    int right = *says ? st == POLAR_E_FORMAT && strstr(polar_error_message(), says) : st == POLAR_OK;
    test_true(what, right, "%s", st == POLAR_OK ? "accepted" : polar_error_message());
    pl_tables_destroy(t);
    unlink(more_path);
}

/* The same of a run without a name: one row, one epoch, no arm in either. */
static void test_no_arm(void)
{
    static char runs[8192], epochs[8192];
    pl_tables *t;
    const char *end = strchr(strchr(runs_text, '\n') + 1, '\n') + 1;
    snprintf(runs, sizeof runs, "%.*s", (int)(end - runs_text), changed(runs_text, ",adamw,", ",,"));
    *(strrchr(runs, '\n') + 1) = 0;
    end = strchr(strchr(epochs_text, '\n') + 1, '\n') + 1;
    snprintf(epochs, sizeof epochs, "%.*s", (int)(end - epochs_text) - 5,
             changed(epochs_text, ",adamw,", ",,"));
    write_file(runs_path, changed(runs, "0,3,nan", "0,1,nan"), strlen(runs));
    write_file(epochs_path, epochs, strlen(epochs));
    TEST_TRY(pl_tables_create(&t, plan, &rows));
    TEST_TRY(pl_tables_read_runs(t, runs_path));
    TEST_TRY(pl_tables_read_epochs(t, epochs_path));
    const char *other = changed(epochs, "0.75", "0.76");
    char again[112];
    snprintf(again, sizeof again, "%s/again.csv", folder);
    write_file(again, other, strlen(other));
    polar_status st = pl_tables_read_epochs(t, again);
    test_true("... of a run without an arm",
              st == POLAR_E_FORMAT && strstr(polar_error_message(), "otherwise"), "%s",
              st == POLAR_OK ? "accepted" : polar_error_message());
    pl_tables_destroy(t);
    unlink(again);
    write_file(runs_path, runs_text, strlen(runs_text));
    write_file(epochs_path, epochs_text, strlen(epochs_text));
}

static void test_second_table(void)
{
    second_table("epochs once more", "lr", "lr", "");
    second_table("... with another number", "0.75", "0.76", "more.csv:2: the run");
    second_table("... of an epoch that was not there", ",0,2,0.75", ",0,200,0.75",
                 "otherwise in another table");
}

/* text with the names of its two arms exchanged */
static char *exchanged(const char *text)
{
    static char out[8192];
    *out = 0;
    while (*text) {
        const int adamw = !strncmp(text, ",adamw,", 7), muon = !strncmp(text, ",muon,", 6);
        if (adamw || muon) add(out, adamw ? ",muon," : ",adamw,");
        else add(out, "%c", *text);
        text += adamw ? 7 : muon ? 6 : 1;
    }
    return out;
}

/* Two reports that give their names to each other's runs: each table of epochs goes with the runs beside it.
 */
static void test_names_of_two(void)
{
    char more_runs[112], more_epochs[112];
    pl_tables *t;
    snprintf(more_runs, sizeof more_runs, "%s/more_runs.csv", folder);
    snprintf(more_epochs, sizeof more_epochs, "%s/more_epochs.csv", folder);
    const char *other = exchanged(runs_text);
    write_file(more_runs, other, strlen(other));
    other = exchanged(epochs_text);
    write_file(more_epochs, other, strlen(other));
    TEST_TRY(pl_tables_create(&t, plan, &rows));
    TEST_TRY(pl_tables_read_runs(t, runs_path));
    TEST_TRY(pl_tables_read_runs(t, more_runs));
    polar_status st = pl_tables_read_epochs(t, epochs_path);
    test_true("a name of two runs, without runs beside the epochs",
              st == POLAR_E_FORMAT && strstr(polar_error_message(), "one run in one table"), "%s",
              st == POLAR_OK ? "accepted" : polar_error_message());
    st = pl_tables_read_epochs(t, more_epochs);
    if (st == POLAR_OK) st = pl_tables_match(t, 0);
    test_true("... with them", st == POLAR_OK, "%s", st == POLAR_OK ? "accepted" : polar_error_message());
    int64_t wrong = t->count != 16; /* each by both names, of which one has the epochs */
    for (int64_t i = 0; i < t->count; i++) {
        const pl_store_import_run *r = &t->runs[i];
        const int lost = !strcmp(r->run.id, plan->runs[plan->count - 1].id);
        wrong += r->epoch_count != (!strstr(r->where, "more_runs") ? 0 : lost ? 2 : 3);
    }
    test_exact("    each run has its own", wrong);
    pl_tables_destroy(t);
    unlink(more_runs);
    unlink(more_epochs);
}

/* ---- what disagrees ----------------------------------------------------------------------------- */

static void disagree(pl_store *s, const char *from, const char *to, const char *says)
{
    pl_merge_count did;
    const char *text = changed(runs_text, from, to);
    write_file(runs_path, text, strlen(text));
    told = 0;
    polar_status st = read_all(&did, s, 0, 0);
    int64_t put = did.put;
    test_true(says,
              st == POLAR_E_FORMAT && told == 1 && strstr(what_told, says) && strstr(what_told, ".csv:2: "),
              "%s", told ? what_told : polar_error_message());
    write_file(runs_path, runs_text, strlen(runs_text));
    TEST_TRY(read_all(&did, s, 0, 0));
    test_true("... and nothing was put", did.put == 0 && put == 0, "%lld", (long long)did.put);
}

static void test_disagree(void)
{
    pl_store *s = new_store();
    pl_merge_count did;
    static char text[8192];
    TEST_TRY(read_all(&did, s, 0, 0));
    disagree(s, "0.1234567890123456", "0.1234567890123457",
             "its result test_mse is 0.12345678901234571, and");
    disagree(s, ",0.5,", ",0.25,", "its result best_valid is 0.25, and 0.5 before");
    pl_store_close(s);
    /* one id twice, with other numbers, in one table */
    snprintf(text, sizeof text, "%s%.*s", runs_text, (int)strcspn(strchr(runs_text, '\n') + 1, "\n") + 1,
             strchr(runs_text, '\n') + 1);
    write_file(runs_path, text, strlen(text));
    s = new_store();
    TEST_TRY(read_all(&did, s, 0, 0));
    test_true("a run that comes twice", did.put == 8, "%lld", (long long)did.put);
    pl_store_close(s);
    char *last = strrchr(text, 'm'); /* of the last line's test_mse there is none: its cell's */
    while (last > text && strncmp(last, "model", 5)) last--;
    memcpy(strstr(last, "0.5"), "0.6", 3);
    write_file(runs_path, text, strlen(text));
    s = new_store();
    told = 0;
    polar_status st = read_all(&did, s, 0, 0);
    test_true("... with other numbers", st == POLAR_E_FORMAT && told == 1 && strstr(what_told, ".csv:10: "),
              "%s", what_told);
    pl_store_members m;
    st = pl_store_select_members(&m, s, "small");
    test_true("... not even the plan is put", st == POLAR_E_ARG, "%lld runs", (long long)m.count);
    pl_store_members_free(&m);
    write_file(runs_path, runs_text, strlen(runs_text));
    pl_store_close(s);
}

/* ---- bytes at random, and no memory ------------------------------------------------------------- */

static void test_fuzz(void)
{
    static const char marks[] = "0123456789012345678901234567890123456789.e-,\"\r\n\xff";
    static char text[8192];
    uint64_t x = 88172645463325252ull;
    int64_t wrong = 0, taken = 0, refused = 0, live = pl_alloc_live();
    pl_store *s = new_store();
    for (int round = 0; round < 1000; round++) {
        const char *base = round % 2 ? epochs_text : runs_text;
        size_t n = strlen(base);
        pl_merge_count did;
        memcpy(text, base, n);
        for (int k = 0; k < 1 + round % 3; k++) {
            x ^= x << 13, x ^= x >> 7, x ^= x << 17;
            text[x % n] = marks[(x >> 20) % (sizeof marks - 1)];
        }
        write_file(round % 2 ? epochs_path : runs_path, text, n);
        polar_status st = read_all(&did, NULL, 1, 1), put = read_all(&did, s, 1, 1);
        taken += st == POLAR_OK;
        refused += st != POLAR_OK;
        wrong += (st != POLAR_OK && st != POLAR_E_FORMAT) || (put != POLAR_OK && put != POLAR_E_FORMAT);
        write_file(runs_path, runs_text, strlen(runs_text));
        write_file(epochs_path, epochs_text, strlen(epochs_text));
    }
    pl_store_close(s);
    TEST_TRY(pl_store_open(&s, store_path, PL_STORE_READ)); /* reads and verifies every row */
    pl_store_members m;
    TEST_TRY(pl_store_select_members(&m, s, "small"));
    pl_store_members_free(&m);
    pl_store_close(s);
    test_true("1000 changed tables", wrong == 0 && taken > 100 && refused > 100, "%lld taken, %lld refused",
              (long long)taken, (long long)refused);
    test_exact("  blocks that were not freed", pl_alloc_live() - live);
}

/* The same run in every row, and epochs of two runs in turn: each looks for its rows once, whatever their
 * number. 80000 lines and some 20 comparisons of each, by bisection, are 0.1 s; all against all would
 * be 10 s. */
static void test_many_rows(void)
{
    enum { ROWS = 40000 };
    FILE *f = fopen(runs_path, "wb");
    const pl_plan_run *r = plan->runs;
    if (!f) exit(1);
    fprintf(f, "cell,arm,seed,test_mse,id\n");
    for (int i = 0; i < ROWS; i++)
        fprintf(f, "c,a,%d,0.5,%s\n", (int)r[i % 2 ? 0 : 3].seed, r[i % 2 ? 0 : 3].id);
    fclose(f);
    if (!(f = fopen(epochs_path, "wb"))) exit(1);
    fprintf(f, "cell,arm,seed,epoch,train_loss,valid,lr\n");
    for (int i = 0; i < ROWS; i++) fprintf(f, "c,a,%d,%d,1,1,1\n", (int)r[i % 2 ? 0 : 3].seed, i / 2 + 1);
    fclose(f);
    pl_merge_count did;
    clock_t begun = clock();
    polar_status st = read_all(&did, NULL, 1, 0);
    double seconds = (double)(clock() - begun) / CLOCKS_PER_SEC;
    test_true("many rows of two runs", st == POLAR_OK && r[0].seed != r[3].seed && seconds < 2, "%.2f s",
              seconds);
    write_file(runs_path, runs_text, strlen(runs_text));
    write_file(epochs_path, epochs_text, strlen(epochs_text));
}

static void test_memory(void)
{
    pl_store *s = new_store();
    pl_merge_count did;
    polar_status st = POLAR_E_NOMEM;
    TEST_TRY(read_all(&did, NULL, 1, 0));
    int64_t n = 0, wrong = 0;
    for (; st != POLAR_OK && n < 20000; n++) {
        pl_store_specs specs;
        pl_alloc_fail_at(n + 1);
        st = read_all(&did, s, 1, 0);
        pl_alloc_fail_at(0);
        wrong += st != POLAR_OK && st != POLAR_E_NOMEM;
        if (st == POLAR_OK) break;
        TEST_TRY(pl_store_select_specs(&specs, s));
        wrong += specs.count != 0;
        pl_store_specs_free(&specs);
    }
    test_true("without memory it fails and puts nothing", wrong == 0 && n > 50 && did.put == 8,
              "%lld of %lld tries wrong", (long long)wrong, (long long)n);
    pl_store_close(s);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    snprintf(folder, sizeof folder, "%s/polar_test_tables.XXXXXX",
             access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
    if (!mkdtemp(folder)) return 1;
    snprintf(runs_path, sizeof runs_path, "%s/runs.csv", folder);
    snprintf(epochs_path, sizeof epochs_path, "%s/epochs.csv", folder);
    snprintf(store_path, sizeof store_path, "%s/s.db", folder);
    pl_store_close(new_store()); /* before any other use of SQLite: it shall take our memory */
    int known = pl_testbed_schemas(schemas);
    TEST_TRY(pl_spec_read_text(&spec, "small.yaml", spec_text, schemas, known));
    TEST_TRY(pl_plan_create(&plan, spec));
    TEST_TRY(pl_plan_rows_create(&rows, plan->runs, plan->count));
    make_texts();
    write_file(runs_path, runs_text, strlen(runs_text));
    write_file(epochs_path, epochs_text, strlen(epochs_text));
    test_back();
    test_other_forms();
    test_refuses();
    test_second_table();
    test_names_of_two();
    test_no_arm();
    test_disagree();
    test_fuzz();
    test_many_rows();
    test_memory();
    pl_plan_rows_free(&rows);
    pl_plan_destroy(plan);
    pl_spec_destroy(spec);
    folder_remove(folder);
    return test_end();
}
