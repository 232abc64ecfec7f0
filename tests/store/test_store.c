/* test_store.c -- the store: what goes in comes out to the bit; claims; memory that runs out; many writers.
 */
#include "store_fixture.h"

#include <signal.h>
#include <sqlite3.h>
#include <sys/wait.h>

#include "base/alloc.h"

/* ---- round trips -------------------------------------------------------------------------------- */

static void test_round_trip(void)
{
    pl_store *s = NULL;
    pl_store_members m;
    pl_store_specs specs;
    pl_store_epochs e;
    pl_store_gauges g;
    clean();
    TEST_TRY(pl_store_open(&s, path, PL_STORE_WRITE));
    TEST_TRY(fill(s));
    pl_store_close(s);
    TEST_TRY(pl_store_open(&s, path, PL_STORE_READ));
    TEST_TRY(pl_store_select_specs(&specs, s));
    test_true("spec",
              PART(specs.count == 1) && PART(!strcmp(specs.rows[0].title, spec.title)) &&
                  PART(!strcmp(specs.rows[0].text, spec.text)) &&
                  PART(!strcmp(specs.rows[0].metric, "test_mse")),
              "%s", specs.rows[0].title);
    TEST_TRY(pl_store_select_members(&m, s, "so3_test"));
    const pl_store_member *a = &m.rows[0], *b = &m.rows[1], *c = &m.rows[2];
    test_true("members in order, states",
              PART(m.count == 3) && PART(a->state == PL_RUN_DIVERGED) && PART(b->state == PL_RUN_PLANNED) &&
                  PART(c->state == PL_RUN_PLANNED) && PART(a->ord == 0) && PART(c->ord == 2) &&
                  PART(c->seed == INT64_MAX) && PART(b->seed == -7),
              "%s %s %s", pl_run_state_name(a->state), pl_run_state_name(b->state),
              pl_run_state_name(c->state));
    const double *mse = pl_store_result(a, "test_mse"), *nan = pl_store_result(a, "nothing"),
                 *inf = pl_store_result(a, "infinite"), *tiny = pl_store_result(a, "tiny");
    test_true("results to the bit, NaN and infinity",
              PART(a->result_count == 5) && PART(mse) && PART(*mse == 0x1.fedcba9876543p-7) && PART(nan) &&
                  PART(isnan(*nan)) && PART(inf) && PART(*inf == -INFINITY) && PART(tiny) &&
                  PART(*tiny == 0x1p-1074) && PART(!pl_store_result(a, "no such")),
              "%a", mse ? *mse : 0);
    test_true("provenance and seconds",
              PART(a->wall == 4.25) && PART(b->wall == 1.5) && PART(!c->code) &&
                  PART(!strcmp(a->code, where.code)) && PART(!strcmp(a->device, where.device)) &&
                  PART(!strcmp(a->cpu, where.cpu)) && PART(a->threads == 2) && PART(a->started) &&
                  PART(a->finished) && PART(strlen(a->finished) == 20) && PART(b->started) &&
                  PART(!b->finished) && PART(!c->started),
              "%s to %s", a->started, a->finished);
    TEST_TRY(pl_store_select_epochs(&e, s, ID_A));
    test_true("epochs",
              PART(e.count == 2) && PART(e.rows[0].train_loss == 0.1) && PART(isnan(e.rows[1].train_loss)) &&
                  PART(e.rows[1].valid == INFINITY) && PART(e.rows[1].lr == 0x1.23456789abcdep-10) &&
                  PART(e.rows[0].improved) && PART(!e.rows[1].improved) && PART(e.rows[0].seconds == 12.5) &&
                  PART(isnan(e.rows[1].seconds)),
              "%lld rows", (long long)e.count);
    TEST_TRY(pl_store_select_gauges(&g, s, ID_A));
    test_true("gauge rows",
              PART(g.count == 2) && PART(!strcmp(g.rows[0].map, "exact")) &&
                  PART(isnan(g.rows[0].deviation)) && PART(g.rows[1].shadow == 1) &&
                  PART(g.rows[1].deviation == 1e-7),
              "%lld rows", (long long)g.count);
    pl_store_specs_free(&specs);
    pl_store_members_free(&m);
    pl_store_epochs_free(&e);
    pl_store_gauges_free(&g);
    const char *ids[] = {ID_C, ID_A}, *unknown[] = {ID_C, "no such run"};
    TEST_TRY(pl_store_select_runs(&m, s, ids, 2));
    test_true("runs by id", m.count == 2 && !strcmp(m.rows[0].id, ID_C) && m.rows[1].result_count == 5, "%s",
              m.rows[1].id);
    pl_store_members_free(&m);
    polar_status st = pl_store_select_runs(&m, s, unknown, 2);
    test_true("an unknown run", st == POLAR_E_ARG && !m.rows, "%s", polar_error_message());
    st = pl_store_select_members(&m, s, "no_such_spec");
    test_true("an unknown spec", st == POLAR_E_ARG && !m.rows, "%s", polar_error_message());
    st = pl_store_put_spec(s, &spec, plan, 3);
    test_true("a reader does not write", st == POLAR_E_STATE, "%s", polar_error_message());
    pl_store_close(s);
}

#define DIGITS "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcde" /* 63 of 64 */

/* What runs were trained on: finished ones of the same name with other digits are found, and no others. */
static void test_data(void)
{
    static const struct {
        const char *data, *found;
    } asked[] = {{"tiny, all classes, " DIGITS "f", ""},
                 {"tiny, all classes, " DIGITS "0", ID_A},
                 {"tiny, 10 classes of seed 0, " DIGITS "0", ""},
                 {"begun, " DIGITS "0", ""}};
    pl_provenance from = where;
    pl_store *s = NULL;
    pl_store_members m;
    char id[PL_RUN_ID_CHARS];
    clean();
    TEST_TRY(pl_store_open(&s, path, PL_STORE_WRITE));
    TEST_TRY(pl_store_put_spec(s, &spec, plan, 3));
    from.data = asked[0].data;
    TEST_TRY(pl_store_begin_run(s, ID_A, &from, 1));
    TEST_TRY(pl_store_other_data(id, s, asked[1].data));
    test_true("an unfinished run may yet be begun anew with other data", !*id, "'%s'", id);
    TEST_TRY(pl_store_finish(s, ID_A, PL_RUN_DONE, NULL, 0, &(pl_run_progress){0}));
    from.data = "begun, " DIGITS "f";
    TEST_TRY(pl_store_begin_run(s, ID_B, &from, 1));
    TEST_TRY(pl_store_begin_run(s, ID_C, &where, 1));
    TEST_TRY(pl_store_finish(s, ID_C, PL_RUN_DONE, NULL, 0, &(pl_run_progress){0}));
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
        TEST_TRY(pl_store_other_data(id, s, asked[i].data));
        test_true("other data of a name", !strcmp(id, asked[i].found), "%.32s...: '%s'", asked[i].data, id);
    }
    TEST_TRY(pl_store_select_members(&m, s, "so3_test"));
    test_true("data come back", m.rows[0].data && !strcmp(m.rows[0].data, asked[0].data) && !m.rows[2].data,
              "%s", m.rows[0].data);
    pl_store_members_free(&m);
    pl_store_close(s);
}

static int64_t member_count(pl_store *s)
{
    pl_store_members m;
    TEST_TRY(pl_store_select_members(&m, s, "so3_test"));
    int64_t n = m.count;
    pl_store_members_free(&m);
    return n;
}

static void test_again(void)
{
    pl_store *s = NULL;
    pl_run_state state = PL_RUN_PLANNED;
    pl_store_epochs e;
    clean();
    TEST_TRY(pl_store_open(&s, path, PL_STORE_WRITE));
    TEST_TRY(fill(s));
    polar_status st = pl_store_begin_run(s, ID_A, &where, 1);
    test_true("a finished run does not begin again", st == POLAR_E_STATE, "%s", polar_error_message());
    const pl_result other = {"test_mse", 1};
    const pl_run_progress none = {0};
    TEST_TRY(pl_store_finish(s, ID_A, PL_RUN_DONE, &other, 1, &none));
    TEST_TRY(pl_store_run_state(s, ID_A, &state, NULL));
    test_true("a finished run stays as it is", state == PL_RUN_DIVERGED, "%s", pl_run_state_name(state));
    TEST_TRY(pl_store_put_spec(s, &spec, plan, 1));
    int64_t narrowed = member_count(s);
    pl_store_plan_row moved = plan[1];
    moved.id = ID_C;
    TEST_TRY(pl_store_put_spec(s, &spec, &moved, 1));
    pl_store_members m;
    TEST_TRY(pl_store_select_members(&m, s, "so3_test"));
    int64_t points = 0;
    for (int64_t i = 0; i < m.count; i++)
        points += !strcmp(m.rows[i].arm, "adamw") && !strcmp(m.rows[i].id, ID_C);
    pl_store_members_free(&m);
    pl_store_spec edited = spec;
    edited.text = "name: so3_test\n# edited\n";
    TEST_TRY(pl_store_put_spec(s, &edited, plan, 2));
    TEST_TRY(pl_store_run_state(s, ID_A, &state, NULL));
    test_true("the same text adds, a changed one replaces",
              PART(narrowed == 3) && PART(points == 1) && PART(member_count(s) == 2) &&
                  PART(state == PL_RUN_DIVERGED),
              "%lld, then %lld members", (long long)narrowed, (long long)member_count(s));
    TEST_TRY(pl_store_begin_run(s, ID_B, &where, 1));
    TEST_TRY(pl_store_select_epochs(&e, s, ID_B));
    test_true("a fresh begin drops the epochs", e.count == 0, "%lld rows", (long long)e.count);
    pl_store_epochs_free(&e);
    TEST_TRY(pl_store_forget(s, ID_A));
    TEST_TRY(pl_store_run_state(s, ID_A, &state, NULL));
    TEST_TRY(pl_store_begin_run(s, ID_A, &where, 1));
    test_true("forget", state == PL_RUN_PLANNED, "%s", pl_run_state_name(state));
    const pl_result twice[] = {{"test_mse", 1}, {"test_mse", 2}};
    st = pl_store_finish(s, ID_A, PL_RUN_DONE, twice, 2, &none);
    pl_run_state after = PL_RUN_DONE;
    TEST_TRY(pl_store_run_state(s, ID_A, &after, NULL));
    test_true("an SQL error undoes the whole call", st == POLAR_E_STATE && after == PL_RUN_PLANNED, "%s",
              polar_error_message());
    pl_store_close(s);
}

static void test_claims(void)
{
    pl_store *a = NULL, *b = NULL;
    int mine[4];
    clean();
    TEST_TRY(pl_store_open(&a, path, PL_STORE_WRITE));
    TEST_TRY(pl_store_open(&b, path, PL_STORE_WRITE));
    TEST_TRY(pl_store_claim(a, ID_A, &mine[0]));
    TEST_TRY(pl_store_claim(b, ID_A, &mine[1]));
    TEST_TRY(pl_store_claim(b, ID_B, &mine[2]));
    pl_store_release(a, ID_A);
    TEST_TRY(pl_store_claim(b, ID_A, &mine[3]));
    test_true("claims exclude connections of one process",
              PART(mine[0]) && PART(!mine[1]) && PART(mine[2]) && PART(mine[3]), "%d %d %d %d", mine[0],
              mine[1], mine[2], mine[3]);
    pl_store_close(b);
    pl_store_close(a);
    fflush(stdout);
    int pipe_fd[2];
    if (pipe(pipe_fd) != 0) exit(1);
    pid_t pid = fork();
    if (!pid) {
        TEST_TRY(pl_store_open(&a, path, PL_STORE_WRITE));
        TEST_TRY(pl_store_claim(a, ID_A, &mine[0]));
        if (write(pipe_fd[1], "x", 1) != 1) _exit(1);
        for (;;) pause();
    }
    char byte;
    if (read(pipe_fd[0], &byte, 1) != 1) exit(1);
    TEST_TRY(pl_store_open(&b, path, PL_STORE_WRITE));
    TEST_TRY(pl_store_claim(b, ID_A, &mine[1]));
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    TEST_TRY(pl_store_claim(b, ID_A, &mine[2]));
    test_true("kill -9 releases a claim", !mine[1] && mine[2], "%d, then %d", mine[1], mine[2]);
    pl_store_close(b);
    close(pipe_fd[0]);
    close(pipe_fd[1]);
}

/* ---- memory, writers ---------------------------------------------------------------------------- */

static polar_status everything(void)
{
    pl_store *s = NULL;
    char *name = NULL;
    int mine = 0;
    pl_store_members m = {0};
    pl_store_specs specs = {0};
    pl_store_epochs e = {0};
    pl_store_gauges g = {0};
    polar_status st = pl_store_open(&s, path, PL_STORE_WRITE);
    if (st == POLAR_OK) st = fill(s);
    if (st == POLAR_OK) st = pl_store_claim(s, ID_A, &mine);
    if (st == POLAR_OK) st = pl_store_checkpoint_path(&name, s, ID_A);
    if (st == POLAR_OK) st = pl_store_remove_checkpoints(s, ID_A);
    if (st == POLAR_OK) st = pl_store_sweep(s);
    if (st == POLAR_OK) st = pl_store_select_members(&m, s, "so3_test");
    if (st == POLAR_OK) st = pl_store_select_specs(&specs, s);
    if (st == POLAR_OK) st = pl_store_select_epochs(&e, s, ID_A);
    if (st == POLAR_OK) st = pl_store_select_gauges(&g, s, ID_A);
    if (st == POLAR_OK &&
        (m.count != 3 || m.rows[0].result_count != 5 || specs.count != 1 || e.count != 2 || g.count != 2))
        st = POLAR_E_SHAPE;
    pl_store_members_free(&m);
    pl_store_specs_free(&specs);
    pl_store_epochs_free(&e);
    pl_store_gauges_free(&g);
    pl_free(name);
    pl_store_close(s);
    return st;
}

static void remove_store(void)
{
    static const char *const tails[] = {"", "-wal", "-shm", ".lock", ".d"};
    for (int i = 0; i < 5; i++) {
        char name[160];
        snprintf(name, sizeof name, "%s%s", path, tails[i]);
        remove(name);
    }
}

static void test_faults(void)
{
    clean();
    TEST_TRY(everything()); /* SQLite keeps what it takes the first time */
    polar_status st = POLAR_E_NOMEM;
    int64_t n = 0, leaks = 0, wrong = 0;
    for (; st != POLAR_OK && n < 1000000; n += 1 + n / 200) {
        remove_store();
        int64_t live = pl_alloc_live();
        pl_alloc_fail_at(n + 1);
        st = everything();
        pl_alloc_fail_at(0);
        leaks += pl_alloc_live() != live;
        wrong += st != POLAR_OK && (st != POLAR_E_NOMEM || !*polar_error_message());
    }
    test_true("memory runs out", PART(st == POLAR_OK) && PART(n > 100) && PART(!leaks) && PART(!wrong),
              "%lld allocations, %lld leaks, %lld other errors", (long long)n, (long long)leaks,
              (long long)wrong);
}

/* One connection lives through every failure: a select that ran out of memory leaves no transaction behind,
 * in which later ones would see an old moment. */
static void test_faults_of_one_connection(void)
{
    pl_store *s, *other;
    polar_status st = POLAR_E_NOMEM;
    int64_t n = 0, wrong = 0;
    clean();
    TEST_TRY(pl_store_open(&s, path, PL_STORE_WRITE));
    TEST_TRY(fill(s));
    TEST_TRY(pl_store_open(&other, path, PL_STORE_WRITE));
    for (; st != POLAR_OK && n < 1000 && !wrong; n++) {
        pl_store_members m = {0};
        pl_store_epochs e = {0};
        const pl_epoch_row row = {.epoch = n + 10, .valid = 1};
        const pl_run_progress more = {.epochs = &row, .epoch_count = 1};
        pl_alloc_fail_at(n + 1);
        st = pl_store_select_members(&m, s, "so3_test");
        pl_alloc_fail_at(0);
        pl_store_members_free(&m);
        wrong += pl_store_put_progress(other, ID_B, &more) != POLAR_OK;
        /* of now */
        wrong += pl_store_select_epochs(&e, s, ID_B) != POLAR_OK || e.count == 0 ||
                 e.rows[e.count - 1].epoch != n + 10;
        wrong += pl_store_put_progress(s, ID_B, &more) != POLAR_OK;
        pl_store_epochs_free(&e);
    }
    pl_store_close(other);
    pl_store_close(s);
    test_true("a connection outlives it", st == POLAR_OK && n > 10 && !wrong, "%lld allocations, %lld wrong",
              (long long)n - 1, (long long)wrong);
}

#define WRITERS 4
#define ROUNDS  40

static void test_writers(void)
{
    pid_t pid[WRITERS];
    int64_t failed = 0, epochs = 0, done = 0;
    clean();
    fflush(stdout);
    for (int w = 0; w < WRITERS; w++) {
        pid[w] = fork();
        if (pid[w]) continue;
        char id[PL_RUN_ID_CHARS];
        pl_store *s = NULL;
        snprintf(id, sizeof id, "%032x", w);
        pl_store_plan_row row = {id, "all", "muon", "{}", w};
        polar_status st = pl_store_open(&s, path, PL_STORE_WRITE); /* all of them make the store at once */
        if (st == POLAR_OK) st = pl_store_put_spec(s, &spec, &row, 1);
        if (st == POLAR_OK) st = pl_store_begin_run(s, id, &where, 1);
        for (int k = 1; st == POLAR_OK && k <= ROUNDS; k++) {
            pl_epoch_row e = {.epoch = k, .train_loss = k, .valid = w};
            pl_run_progress p = {&e, 1, NULL, 0, k};
            pl_result r = {"test_mse", w};
            st = k < ROUNDS ? pl_store_put_progress(s, id, &p)
                            : pl_store_finish(s, id, PL_RUN_DONE, &r, 1, &p);
        }
        if (st != POLAR_OK) fprintf(stderr, "%s\n", polar_error_message());
        pl_store_close(s);
        _exit(st != POLAR_OK);
    }
    for (int w = 0; w < WRITERS; w++) {
        int status = 0;
        waitpid(pid[w], &status, 0);
        failed += status != 0;
    }
    pl_store *s = NULL;
    pl_store_members m;
    TEST_TRY(pl_store_open(&s, path, PL_STORE_READ));
    TEST_TRY(pl_store_select_members(&m, s, "so3_test"));
    for (int64_t i = 0; i < m.count; i++) {
        pl_store_epochs e;
        TEST_TRY(pl_store_select_epochs(&e, s, m.rows[i].id));
        epochs += e.count;
        done += m.rows[i].state == PL_RUN_DONE && m.rows[i].result_count == 1 &&
                m.rows[i].results[0].value == (double)m.rows[i].seed;
        pl_store_epochs_free(&e);
    }
    test_true("4 processes write at once",
              PART(!failed) && PART(m.count == WRITERS) && PART(done == WRITERS) &&
                  PART(epochs == WRITERS * ROUNDS),
              "%lld runs, %lld epochs", (long long)done, (long long)epochs);
    pl_store_members_free(&m);
    pl_store_close(s);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    store_folder_open();
    test_round_trip();
    test_again();
    test_claims();
    test_data();
    test_faults();
    test_faults_of_one_connection();
    test_writers();
    store_folder_close();
    return test_end();
}
