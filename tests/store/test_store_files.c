/* test_store_files.c -- stores that are damaged, foreign, newer, older, read-only. */
#include "store_fixture.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <sys/wait.h>

static void write_file(const char *name, const void *bytes, size_t n)
{
    FILE *f = fopen(name, "w");
    if (!f || fwrite(bytes, 1, n, f) != n || fclose(f) != 0) exit(1);
}

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
    if (sqlite3_open(path, &db) != SQLITE_OK || sqlite3_exec(db, text, NULL, NULL, NULL) != SQLITE_OK)
        exit(1);
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
    test_true("  is not touched",
              before.st_size == after.st_size && before.st_mtim.tv_sec == after.st_mtim.tv_sec &&
                  before.st_mtim.tv_nsec == after.st_mtim.tv_nsec,
              "%lld bytes", (long long)after.st_size);
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

/* Bytes of a good store overwritten, its middle and its end cut off: an error with a sentence or the right
 * table, never another and never a crash. */
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
            /* the head of each page */
            if (kind == 0) memset(bad + page * 4096 + (page ? 0 : 100), 0xa5, 512);
            if (kind == 1) memset(bad + page * 4096 + (page ? 0 : 100), 0, 3996);
            clean();
            write_file(path, bad, kind == 2 ? page * 4096 + 2000 : n);
            polar_status st = store_dump(&dump, path, "so3_test");
            int known = st == POLAR_E_FORMAT || st == POLAR_E_IO;
            refused += known;
            unharmed += st == POLAR_OK && !strcmp(dump, good);
            if (!(known && *polar_error_message()) && !(st == POLAR_OK && !strcmp(dump, good))) {
                printf("page %zu kind %d: %s\n", page, kind,
                       st == POLAR_OK ? "another table" : polar_error_message());
                wrong++;
            }
            free(dump);
            st = pl_store_open(&s, path, PL_STORE_WRITE);
            wrong += st != POLAR_OK && st != POLAR_E_FORMAT && st != POLAR_E_IO;
            pl_store_close(s);
        }
    test_exact("damaged stores", wrong);
    test_true("  figures", refused > 10, "%lld refused, %lld unharmed (a page without content)",
              (long long)refused, (long long)unharmed);
    clean();
    write_file(path, bytes, n / 2);
    refuse("half a store", PL_STORE_WRITE, POLAR_E_FORMAT, "damaged");
    free(good);
}

static void expect_table(const char *what, const char *name)
{
    char *dump = NULL;
    polar_status st = store_dump(&dump, name, "so3_test");
    test_true(what, st == POLAR_OK, "%zu bytes %s", dump ? strlen(dump) : 0,
              st == POLAR_OK ? "" : polar_error_message());
    free(dump);
}

/* A filled store, and what is done to it by somebody else in a child: permissions do not bind root. */
static void as_somebody(const char *what, void (*prepare)(void), void (*use)(void))
{
    pl_store *s = NULL;
    clean();
    TEST_TRY(pl_store_open(&s, path, PL_STORE_WRITE));
    TEST_TRY(fill(s));
    pl_store_close(s);
    fflush(stdout);
    pid_t pid = fork();
    if (!pid) {
        test_failed = test_passed = 0;
        prepare();
        if (geteuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0)) _exit(9);
        use();
        _exit(test_failed);
    }
    int status = -1;
    waitpid(pid, &status, 0);
    test_true(what, WIFEXITED(status) && WEXITSTATUS(status) == 0, "child ended with %d",
              WEXITSTATUS(status));
    if (chmod(folder, 0700) != 0) exit(1);
    clean();
}

static void lock_file(void)
{
    if (chmod(path, 0444) != 0 || chmod(folder, 0777) != 0) _exit(9);
}

static void use_locked_file(void)
{
    refuse("  a read-only file", PL_STORE_WRITE, POLAR_E_IO, "read-only");
    expect_table("  is read", path);
}

/* A name that an address would misread. */
static const char *odd_name(char out[160])
{
    snprintf(out, 160, "%s/a?b%%41#.db", folder);
    return out;
}

static void lock_folder(void)
{
    char odd[160];
    if (chmod(path, 0666) != 0 || link(path, odd_name(odd)) != 0 || chmod(folder, 0555) != 0) _exit(9);
}

static void use_locked_folder(void)
{
    char odd[160];
    expect_table("  is read from", path);
    expect_table("  whatever its name", odd_name(odd));
    refuse("  no store is opened to write in it", PL_STORE_WRITE, POLAR_E_IO, "");
    snprintf(path, sizeof path, "%s/new.db", folder);
    refuse("  no store is made in it", PL_STORE_WRITE, POLAR_E_IO, "may not write in its folder");
}

/* ---- upgrades ----------------------------------------------------------------------------------- */

static void test_upgrade(void)
{
    enum { NEXT = PL_STORE_VERSION + 1 };
    const char *next[NEXT] =
        {[PL_STORE_VERSION] = "ALTER TABLE run ADD COLUMN colour TEXT DEFAULT 'grey'; CREATE TABLE extra(x)"},
               *broken[NEXT] = {[PL_STORE_VERSION] = "CREATE TABLE extra(x); CREATE nonsense"};
    for (int i = 0; i < PL_STORE_VERSION; i++) next[i] = broken[i] = pl_store_steps[i];
    pl_store *s = NULL;
    int64_t value = 0;
    char *before = NULL, *after = NULL;
    clean();
    sql("VACUUM"); /* a database of version 0 with nothing in it */
    TEST_TRY(pl_store_open(&s, path, PL_STORE_WRITE));
    TEST_TRY(fill(s));
    TEST_TRY(pl_sql_integer(s, "PRAGMA user_version", &value));
    test_true("from version 0", value == PL_STORE_VERSION, "to %lld", (long long)value);
    TEST_TRY(store_dump(&before, path, "so3_test"));
    polar_status st = pl_store_upgrade(s, broken, NEXT);
    TEST_TRY(pl_sql_integer(s, "SELECT count(*) FROM sqlite_schema WHERE name = 'extra'", &value));
    test_true("a step that fails changes nothing", st == POLAR_E_STATE && value == 0, "%s",
              polar_error_message());
    TEST_TRY(pl_store_upgrade(s, next, NEXT));
    TEST_TRY(pl_store_upgrade(s, next, NEXT)); /* nothing to do */
    TEST_TRY(pl_sql_integer(s, "SELECT count(*) FROM run WHERE colour = 'grey'", &value));
    int64_t version = 0;
    TEST_TRY(pl_sql_integer(s, "PRAGMA user_version", &version));
    char back[64];
    snprintf(back, sizeof back, "PRAGMA user_version = %d", PL_STORE_VERSION);
    sqlite3_exec(s->db, "ALTER TABLE run DROP COLUMN colour; DROP TABLE extra", NULL, NULL, NULL);
    sqlite3_exec(s->db, back, NULL, NULL, NULL);
    TEST_TRY(store_dump(&after, path, "so3_test"));
    test_true("a step to a later version keeps the rows",
              version == NEXT && value == 3 && !strcmp(before, after), "version %lld", (long long)version);
    sqlite3_exec(s->db, "PRAGMA user_version = 0", NULL, NULL, NULL);
    refuse("a store of version 0 to read", PL_STORE_READ, POLAR_E_FORMAT, "its version is 0");
    pl_store_close(s);
    free(before);
    free(after);
}

/* A store as the first version left it: to read it wants the upgrade, to write it gets it, and the rows stay
 * with no seconds. */
static void test_version_1(void)
{
    pl_store *s = NULL;
    pl_store_epochs e = {0};
    int64_t version = 0;
    clean();
    sql(pl_store_steps[0]);
    sql("PRAGMA application_id = 1886350450"); /* "polr" */
    sql("PRAGMA user_version = 1");
    sql("INSERT INTO run(id, testbed, seed, config, state) VALUES('" ID_A "', 'so3', 3, '{}', 'done')");
    sql("INSERT INTO epoch(run, epoch, train_loss, valid, lr, improved) VALUES('" ID_A
        "', 1, 0.5, 0.25, 0.001, 1)");
    refuse("a store of version 1 to read", PL_STORE_READ, POLAR_E_FORMAT, "older version 1");
    TEST_TRY(pl_store_open(&s, path, PL_STORE_WRITE));
    TEST_TRY(pl_sql_integer(s, "PRAGMA user_version", &version));
    TEST_TRY(pl_store_select_epochs(&e, s, ID_A));
    test_true("from version 1",
              PART(version == PL_STORE_VERSION) && PART(e.count == 1) && PART(e.rows[0].valid == 0.25) &&
                  PART(e.rows[0].improved) && PART(isnan(e.rows[0].seconds)),
              "version %lld, %lld epochs", (long long)version, (long long)e.count);
    pl_store_epochs_free(&e);
    pl_store_close(s);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    store_folder_open();
    test_files();
    test_damage();
    test_upgrade();
    test_version_1();
    as_somebody("read-only files and folders", lock_file, use_locked_file);
    as_somebody("a read-only folder", lock_folder, use_locked_folder);
    store_folder_close();
    return test_end();
}
