/* test_store.c -- the store: what goes in comes out to the bit; upgrades; files that are damaged, foreign, newer, read-only; memory that runs out; many writers. */
#include "store_dump.h"
#include "test.h"

#include <fcntl.h>
#include <signal.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "store/store_impl.h"

static char folder[64], path[128];

#define ID_A "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define ID_B "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
#define ID_C "cccccccccccccccccccccccccccccccc"

static const pl_store_spec spec = {"so3_test", "5ha", "A title with 'quotes' and \xc3\xa9", "so3", "test_mse", "name: so3_test\n"};
static const pl_store_plan_row plan[] = {
    {ID_A, "model.width=16", "muon", "{\"model.width\":16}", 0},
    {ID_B, "model.width=16", "adamw", "{}", -7},
    {ID_C, "model.width=32", "muon", "{}", INT64_MAX},
};
static const pl_provenance where = {"v1-2-gabc", "cpu:isa=avx2,threads=2", "A processor", 2};

static void clean(void)
{
    char command[512];
    snprintf(command, sizeof command, "chmod -R u+rwx %s; rm -rf %s/*", folder, folder);
    if (system(command) != 0) exit(1);
}

static void write_file(const char *name, const void *bytes, size_t n)
{
    FILE *f = fopen(name, "w");
    if (!f || fwrite(bytes, 1, n, f) != n || fclose(f) != 0) exit(1);
}

/* A store with one finished, one begun and one planned run. */
static polar_status fill(pl_store *s)
{
    static const pl_result results[] = {{"test_mse", 0x1.fedcba9876543p-7}, {"best_epoch", 17}, {"nothing", (double)NAN}, {"infinite", -INFINITY}, {"tiny", 0x1p-1074}};
    static const pl_epoch_row epochs[] = {{1, 0.1, 0.3, 1e-3, 1, 12.5}, {2, (double)NAN, INFINITY, 0x1.23456789abcdep-10, 0, (double)NAN}};
    static const pl_gauge_row gauges[] = {{10, 1, "layers.0.W_00", "ns_fp32", 1e-7}, {10, 0, "layers.0.W_00", "exact", (double)NAN}};
    const pl_run_progress half = {epochs, 1, NULL, 0, 1.5}, all = {epochs, 2, gauges, 2, 4.25};
    PL_TRY(pl_store_put_spec(s, &spec, plan, 3));
    PL_TRY(pl_store_begin_run(s, ID_A, &where, 1));
    PL_TRY(pl_store_put_progress(s, ID_A, &half));
    PL_TRY(pl_store_begin_run(s, ID_A, &where, 0));
    PL_TRY(pl_store_finish(s, ID_A, PL_RUN_DIVERGED, results, 5, &all));
    PL_TRY(pl_store_begin_run(s, ID_B, &where, 1));
    return pl_store_put_progress(s, ID_B, &half);
}

/* ---- round trips ----------------------------------------------------------------------------------------------------------- */

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
    test_true("spec", specs.count == 1 && !strcmp(specs.rows[0].title, spec.title) && !strcmp(specs.rows[0].text, spec.text) && !strcmp(specs.rows[0].metric, "test_mse"), "%s", specs.rows[0].title);
    TEST_TRY(pl_store_select_members(&m, s, "so3_test"));
    const pl_store_member *a = &m.rows[0], *b = &m.rows[1], *c = &m.rows[2];
    test_true("members in order, states", m.count == 3 && a->state == PL_RUN_DIVERGED && b->state == PL_RUN_PLANNED && c->state == PL_RUN_PLANNED && a->ord == 0 && c->ord == 2 && c->seed == INT64_MAX && b->seed == -7,
              "%s %s %s", pl_run_state_name(a->state), pl_run_state_name(b->state), pl_run_state_name(c->state));
    const double *mse = pl_store_result(a, "test_mse"), *nan = pl_store_result(a, "nothing"), *inf = pl_store_result(a, "infinite"), *tiny = pl_store_result(a, "tiny");
    test_true("results to the bit, NaN and infinity", a->result_count == 5 && mse && *mse == 0x1.fedcba9876543p-7 && nan && isnan(*nan) && inf && *inf == -INFINITY && tiny && *tiny == 0x1p-1074 && !pl_store_result(a, "no such"),
              "%a", mse ? *mse : 0);
    test_true("provenance and seconds", a->wall == 4.25 && b->wall == 1.5 && !c->code && !strcmp(a->code, where.code) && !strcmp(a->device, where.device) && !strcmp(a->cpu, where.cpu) && a->threads == 2
              && a->started && a->finished && strlen(a->finished) == 20 && b->started && !b->finished && !c->started, "%s to %s", a->started, a->finished);
    TEST_TRY(pl_store_select_epochs(&e, s, ID_A));
    test_true("epochs", e.count == 2 && e.rows[0].train_loss == 0.1 && isnan(e.rows[1].train_loss) && e.rows[1].valid == INFINITY && e.rows[1].lr == 0x1.23456789abcdep-10 && e.rows[0].improved && !e.rows[1].improved && e.rows[0].seconds == 12.5 && isnan(e.rows[1].seconds), "%lld rows", (long long)e.count);
    TEST_TRY(pl_store_select_gauges(&g, s, ID_A));
    test_true("gauge rows", g.count == 2 && !strcmp(g.rows[0].map, "exact") && isnan(g.rows[0].deviation) && g.rows[1].shadow == 1 && g.rows[1].deviation == 1e-7, "%lld rows", (long long)g.count);
    pl_store_specs_free(&specs);
    pl_store_members_free(&m);
    pl_store_epochs_free(&e);
    pl_store_gauges_free(&g);
    const char *ids[] = {ID_C, ID_A}, *unknown[] = {ID_C, "no such run"};
    TEST_TRY(pl_store_select_runs(&m, s, ids, 2));
    test_true("runs by id", m.count == 2 && !strcmp(m.rows[0].id, ID_C) && m.rows[1].result_count == 5, "%s", m.rows[1].id);
    pl_store_members_free(&m);
    polar_status st = pl_store_select_runs(&m, s, unknown, 2);
    test_true("an unknown run", st == POLAR_E_ARG && !m.rows, "%s", polar_error_message());
    st = pl_store_select_members(&m, s, "no_such_spec");
    test_true("an unknown spec", st == POLAR_E_ARG && !m.rows, "%s", polar_error_message());
    st = pl_store_put_spec(s, &spec, plan, 3);
    test_true("a reader does not write", st == POLAR_E_STATE, "%s", polar_error_message());
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
    for (int64_t i = 0; i < m.count; i++) points += !strcmp(m.rows[i].arm, "adamw") && !strcmp(m.rows[i].id, ID_C);
    pl_store_members_free(&m);
    pl_store_spec edited = spec;
    edited.text = "name: so3_test\n# edited\n";
    TEST_TRY(pl_store_put_spec(s, &edited, plan, 2));
    TEST_TRY(pl_store_run_state(s, ID_A, &state, NULL));
    test_true("the same text adds, a changed one replaces", narrowed == 3 && points == 1 && member_count(s) == 2 && state == PL_RUN_DIVERGED, "%lld, then %lld members", (long long)narrowed, (long long)member_count(s));
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
    test_true("an SQL error undoes the whole call", st == POLAR_E_STATE && after == PL_RUN_PLANNED, "%s", polar_error_message());
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
    test_true("claims exclude connections of one process", mine[0] && !mine[1] && mine[2] && mine[3], "%d %d %d %d", mine[0], mine[1], mine[2], mine[3]);
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

/* ---- files that are not as they should be ------------------------------------------------------------------------------------ */

static void refuse(const char *what, pl_store_mode mode, polar_status want, const char *word)
{
    pl_store *s = NULL;
    polar_status st = pl_store_open(&s, path, mode);
    test_true(what, st == want && !s && strstr(polar_error_message(), word), "%s", polar_error_message());
    pl_store_close(s);
}

static void sql(const char *text)
{
    sqlite3 *db = NULL;
    if (sqlite3_open(path, &db) != SQLITE_OK || sqlite3_exec(db, text, NULL, NULL, NULL) != SQLITE_OK) exit(1);
    sqlite3_close(db);
}

static void test_files(void)
{
    char text[20000];
    struct stat before, after;
    clean();
    refuse("no store to read", PL_STORE_READ, POLAR_E_ARG, "polar run");
    write_file(path, "", 0);
    refuse("an empty file to read", PL_STORE_READ, POLAR_E_FORMAT, "empty");
    memset(text, 'x', sizeof text);
    write_file(path, text, sizeof text);
    refuse("no database, to write", PL_STORE_WRITE, POLAR_E_FORMAT, "not an SQLite database");
    refuse("no database, to read", PL_STORE_READ, POLAR_E_FORMAT, "not an SQLite database");
    write_file(path, "hello\n", 6);
    refuse("a short text file", PL_STORE_WRITE, POLAR_E_FORMAT, "not an SQLite database");
    clean();
    sql("CREATE TABLE bookmark(url TEXT); INSERT INTO bookmark VALUES('x')");
    stat(path, &before);
    refuse("another program's database, to write", PL_STORE_WRITE, POLAR_E_FORMAT, "another program");
    refuse("another program's database, to read", PL_STORE_READ, POLAR_E_FORMAT, "another program");
    stat(path, &after);
    test_true("  is not touched", before.st_size == after.st_size && before.st_mtim.tv_sec == after.st_mtim.tv_sec && before.st_mtim.tv_nsec == after.st_mtim.tv_nsec, "%lld bytes", (long long)after.st_size);
    clean();
    pl_store *s = NULL;
    TEST_TRY(pl_store_open(&s, path, PL_STORE_WRITE));
    pl_store_close(s);
    sql("PRAGMA user_version = 99");
    refuse("a newer store, to write", PL_STORE_WRITE, POLAR_E_FORMAT, "newer");
    refuse("a newer store, to read", PL_STORE_READ, POLAR_E_FORMAT, "newer");
    clean();
    if (mkdir(path, 0777) != 0) exit(1);
    refuse("a folder", PL_STORE_WRITE, POLAR_E_ARG, "regular file");
    clean();
    char deep[128];
    snprintf(deep, sizeof deep, "%s", path);
    snprintf(path, sizeof path, "%s/no/such/folder.db", folder);
    refuse("a folder that is not there", PL_STORE_WRITE, POLAR_E_ARG, "no folder");
    snprintf(path, sizeof path, "%s", deep);
}

/* Bytes of a good store overwritten, its middle and its end cut off: an error with a sentence or the right table, never another and never a crash. */
static void test_damage(void)
{
    pl_store *s = NULL;
    char *good = NULL;
    int64_t wrong = 0, refused = 0, unharmed = 0;
    clean();
    TEST_TRY(pl_store_open(&s, path, PL_STORE_WRITE));
    TEST_TRY(fill(s));
    pl_store_close(s);
    TEST_TRY(store_dump(&good, path, "so3_test"));
    FILE *f = fopen(path, "r");
    static char bytes[1 << 20], bad[1 << 20];
    size_t n = f ? fread(bytes, 1, sizeof bytes, f) : 0;
    if (f) fclose(f);
    for (size_t page = 0; page < n / 4096; page++)
        for (int kind = 0; kind < 3; kind++) {
            char *dump = NULL;
            memcpy(bad, bytes, n);
            if (kind == 0) memset(bad + page * 4096 + (page ? 0 : 100), 0xa5, 512);    /* the head of each page */
            if (kind == 1) memset(bad + page * 4096 + (page ? 0 : 100), 0, 3996);
            clean();
            write_file(path, bad, kind == 2 ? page * 4096 + 2000 : n);
            polar_status st = store_dump(&dump, path, "so3_test");
            int known = st == POLAR_E_FORMAT || st == POLAR_E_IO;
            refused += known;
            unharmed += st == POLAR_OK && !strcmp(dump, good);
            if (!(known && *polar_error_message()) && !(st == POLAR_OK && !strcmp(dump, good))) {
                printf("page %zu kind %d: %s\n", page, kind, st == POLAR_OK ? "another table" : polar_error_message());
                wrong++;
            }
            free(dump);
            st = pl_store_open(&s, path, PL_STORE_WRITE);
            wrong += st != POLAR_OK && st != POLAR_E_FORMAT && st != POLAR_E_IO;
            pl_store_close(s);
        }
    test_exact("damaged stores", wrong);
    test_true("  figures", refused > 10, "%lld refused, %lld unharmed (a page without content)", (long long)refused, (long long)unharmed);
    clean();
    write_file(path, bytes, n / 2);
    refuse("half a store", PL_STORE_WRITE, POLAR_E_FORMAT, "damaged");
    free(good);
}

static void expect_table(const char *what, const char *name)
{
    char *dump = NULL;
    polar_status st = store_dump(&dump, name, "so3_test");
    test_true(what, st == POLAR_OK, "%zu bytes %s", dump ? strlen(dump) : 0, st == POLAR_OK ? "" : polar_error_message());
    free(dump);
}

/* Permissions do not bind root: as somebody else in a child. */
static void test_read_only(void)
{
    pl_store *s = NULL;
    clean();
    TEST_TRY(pl_store_open(&s, path, PL_STORE_WRITE));
    TEST_TRY(fill(s));
    pl_store_close(s);
    fflush(stdout);
    pid_t pid = fork();
    if (pid) {
        int status = -1;
        waitpid(pid, &status, 0);
        test_true("read-only files and folders", WIFEXITED(status) && WEXITSTATUS(status) == 0, "child ended with %d", WEXITSTATUS(status));
        clean();
        return;
    }
    test_failed = test_passed = 0;
    if (chmod(path, 0444) != 0 || chmod(folder, 0777) != 0) _exit(9);
    if (geteuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0)) _exit(9);
    refuse("  a read-only file", PL_STORE_WRITE, POLAR_E_IO, "read-only");
    expect_table("  is read", path);
    _exit(test_failed);
}

static void test_read_only_folder(void)
{
    pl_store *s = NULL;
    clean();
    TEST_TRY(pl_store_open(&s, path, PL_STORE_WRITE));
    TEST_TRY(fill(s));
    pl_store_close(s);
    fflush(stdout);
    pid_t pid = fork();
    if (pid) {
        int status = -1;
        waitpid(pid, &status, 0);
        test_true("a read-only folder", WIFEXITED(status) && WEXITSTATUS(status) == 0, "child ended with %d", WEXITSTATUS(status));
        if (chmod(folder, 0700) != 0) exit(1);
        clean();
        return;
    }
    test_failed = test_passed = 0;
    char odd[160];
    snprintf(odd, sizeof odd, "%s/a?b%%41#.db", folder);    /* a name that an address would misread */
    if (chmod(path, 0666) != 0 || link(path, odd) != 0 || chmod(folder, 0555) != 0) _exit(9);
    if (geteuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0)) _exit(9);
    expect_table("  is read from", path);
    expect_table("  whatever its name", odd);
    refuse("  no store is opened to write in it", PL_STORE_WRITE, POLAR_E_IO, "");
    snprintf(path, sizeof path, "%s/new.db", folder);
    refuse("  no store is made in it", PL_STORE_WRITE, POLAR_E_IO, "may not write in its folder");
    _exit(test_failed);
}

/* ---- upgrades ---------------------------------------------------------------------------------------------------------------- */

static void test_upgrade(void)
{
    enum { NEXT = PL_STORE_VERSION + 1 };
    const char *next[NEXT] = {[PL_STORE_VERSION] = "ALTER TABLE run ADD COLUMN colour TEXT DEFAULT 'grey'; CREATE TABLE extra(x)"}, *broken[NEXT] = {[PL_STORE_VERSION] = "CREATE TABLE extra(x); CREATE nonsense"};
    for (int i = 0; i < PL_STORE_VERSION; i++) next[i] = broken[i] = pl_store_steps[i];
    pl_store *s = NULL;
    int64_t value = 0;
    char *before = NULL, *after = NULL;
    clean();
    sql("VACUUM");    /* a database of version 0 with nothing in it */
    TEST_TRY(pl_store_open(&s, path, PL_STORE_WRITE));
    TEST_TRY(fill(s));
    TEST_TRY(pl_sql_integer(s, "PRAGMA user_version", &value));
    test_true("from version 0", value == PL_STORE_VERSION, "to %lld", (long long)value);
    TEST_TRY(store_dump(&before, path, "so3_test"));
    polar_status st = pl_store_upgrade(s, broken, NEXT);
    TEST_TRY(pl_sql_integer(s, "SELECT count(*) FROM sqlite_schema WHERE name = 'extra'", &value));
    test_true("a step that fails changes nothing", st == POLAR_E_STATE && value == 0, "%s", polar_error_message());
    TEST_TRY(pl_store_upgrade(s, next, NEXT));
    TEST_TRY(pl_store_upgrade(s, next, NEXT));    /* nothing to do */
    TEST_TRY(pl_sql_integer(s, "SELECT count(*) FROM run WHERE colour = 'grey'", &value));
    int64_t version = 0;
    TEST_TRY(pl_sql_integer(s, "PRAGMA user_version", &version));
    sqlite3_exec(s->db, "PRAGMA user_version = 2", NULL, NULL, NULL);
    TEST_TRY(store_dump(&after, path, "so3_test"));
    test_true("a step to a later version keeps the rows", version == NEXT && value == 3 && !strcmp(before, after), "version %lld", (long long)version);
    sqlite3_exec(s->db, "PRAGMA user_version = 0", NULL, NULL, NULL);
    refuse("a store of version 0 to read", PL_STORE_READ, POLAR_E_FORMAT, "empty");
    pl_store_close(s);
    free(before);
    free(after);
}

/* A store as the first version left it: to read it wants the upgrade, to write it gets it, and the rows stay with no seconds. */
static void test_version_1(void)
{
    pl_store *s = NULL;
    pl_store_epochs e = {0};
    int64_t version = 0;
    clean();
    sql(pl_store_steps[0]);
    sql("PRAGMA application_id = 1886350450");    /* "polr" */
    sql("PRAGMA user_version = 1");
    sql("INSERT INTO run(id, testbed, seed, config, state) VALUES('" ID_A "', 'so3', 3, '{}', 'done')");
    sql("INSERT INTO epoch(run, epoch, train_loss, valid, lr, improved) VALUES('" ID_A "', 1, 0.5, 0.25, 0.001, 1)");
    refuse("a store of version 1 to read", PL_STORE_READ, POLAR_E_FORMAT, "older version 1");
    TEST_TRY(pl_store_open(&s, path, PL_STORE_WRITE));
    TEST_TRY(pl_sql_integer(s, "PRAGMA user_version", &version));
    TEST_TRY(pl_store_select_epochs(&e, s, ID_A));
    test_true("from version 1", version == 2 && e.count == 1 && e.rows[0].valid == 0.25 && e.rows[0].improved && isnan(e.rows[0].seconds), "version %lld, %lld epochs", (long long)version,
              (long long)e.count);
    pl_store_epochs_free(&e);
    pl_store_close(s);
}

/* ---- memory, writers ------------------------------------------------------------------------------------------------------------ */

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
    if (st == POLAR_OK && (m.count != 3 || m.rows[0].result_count != 5 || specs.count != 1 || e.count != 2 || g.count != 2)) st = POLAR_E_SHAPE;
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
    TEST_TRY(everything());    /* SQLite keeps what it takes the first time */
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
    test_true("memory runs out", st == POLAR_OK && n > 100 && !leaks && !wrong, "%lld allocations, %lld leaks, %lld other errors", (long long)n, (long long)leaks, (long long)wrong);
}

/* One connection lives through every failure: a select that ran out of memory leaves no transaction behind, in which later ones would see an old moment. */
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
        wrong += pl_store_select_epochs(&e, s, ID_B) != POLAR_OK || e.count == 0 || e.rows[e.count - 1].epoch != n + 10;    /* of now */
        wrong += pl_store_put_progress(s, ID_B, &more) != POLAR_OK;
        pl_store_epochs_free(&e);
    }
    pl_store_close(other);
    pl_store_close(s);
    test_true("a connection outlives it", st == POLAR_OK && n > 10 && !wrong, "%lld allocations, %lld wrong", (long long)n - 1, (long long)wrong);
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
        polar_status st = pl_store_open(&s, path, PL_STORE_WRITE);    /* all of them make the store at once */
        if (st == POLAR_OK) st = pl_store_put_spec(s, &spec, &row, 1);
        if (st == POLAR_OK) st = pl_store_begin_run(s, id, &where, 1);
        for (int k = 1; st == POLAR_OK && k <= ROUNDS; k++) {
            pl_epoch_row e = {.epoch = k, .train_loss = k, .valid = w};
            pl_run_progress p = {&e, 1, NULL, 0, k};
            pl_result r = {"test_mse", w};
            st = k < ROUNDS ? pl_store_put_progress(s, id, &p) : pl_store_finish(s, id, PL_RUN_DONE, &r, 1, &p);
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
        done += m.rows[i].state == PL_RUN_DONE && m.rows[i].result_count == 1 && m.rows[i].results[0].value == (double)m.rows[i].seed;
        pl_store_epochs_free(&e);
    }
    test_true("4 processes write at once", !failed && m.count == WRITERS && done == WRITERS && epochs == WRITERS * ROUNDS, "%lld runs, %lld epochs", (long long)done, (long long)epochs);
    pl_store_members_free(&m);
    pl_store_close(s);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    snprintf(folder, sizeof folder, "%s/polar_test_store.XXXXXX", access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");    /* syncing a real disk is slow */
    if (!mkdtemp(folder)) return 1;
    snprintf(path, sizeof path, "%s/test.db", folder);
    pl_store *s = NULL;
    TEST_TRY(pl_store_open(&s, path, PL_STORE_WRITE));    /* before any other use of SQLite: it shall take our memory */
    pl_store_close(s);
    test_round_trip();
    test_again();
    test_claims();
    test_files();
    test_damage();
    test_upgrade();
    test_version_1();
    test_faults();
    test_faults_of_one_connection();
    test_writers();
    test_read_only();
    test_read_only_folder();
    clean();
    rmdir(folder);
    return test_end();
}
