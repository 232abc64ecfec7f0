/* test_store_merge.c -- stores joined: shards, overlaps and repeats give the store of one run; what disagrees
 * is named and nothing is joined; damage, lies, other versions, a busy run, no memory. */
#include "fixtures/fake_store.h" /* before the fixture, whose names it would hide */
#include "store_fixture.h"

#include <sqlite3.h>

#include "base/alloc.h"
#include "fixtures/store_resum.h"

#define SHARDS 3

static char one[128], shard[SHARDS][128], out[128];
static fake_plan fakes = {.spec = "so3_merge",
                          .cells = {"model.width=16", "model.width=32"},
                          .arms = {"adamw", "muon", "polaradamw"},
                          .n_cells = 2,
                          .n_arms = 3,
                          .n_seeds = 3,
                          .epochs = 4,
                          .gauge = 1,
                          .seconds = 0.5};
static int now; /* the shard that is filled; -1: all */

/* Every SHARDS-th run, as `polar run --shard` takes them; one that diverges, one that nobody finishes. */
static double value(int cell, int seed, int arm)
{
    int number = (cell * fakes.n_seeds + seed) * fakes.n_arms + arm;
    if (now >= 0 && number % SHARDS != now) return FAKE_NOT_RUN;
    if (number == 7) return (double)NAN;
    return number == 11 ? FAKE_UNFINISHED : 0.01 / (1 + number);
}

static void remove_store(const char *at)
{
    static const char *const tails[] = {"", "-wal", "-shm", ".lock"};
    char name[400];
    for (int i = 0; i < 4; i++) {
        snprintf(name, sizeof name, "%s%s", at, tails[i]);
        (void)unlink(name);
    }
}

static void make_store(const char *at, int which)
{
    pl_store *s = NULL;
    remove_store(at);
    TEST_TRY(pl_store_open(&s, at, PL_STORE_WRITE));
    now = which;
    fake_store_fill(s, &fakes, value);
    pl_store_close(s);
}

static void make_stores(void)
{
    clean();
    snprintf(one, sizeof one, "%s/one.db", folder);
    snprintf(out, sizeof out, "%s/out.db", folder);
    make_store(one, -1);
    for (int i = 0; i < SHARDS; i++) {
        snprintf(shard[i], sizeof shard[i], "%s/shard%d.db", folder, i);
        make_store(shard[i], i);
    }
}

static void remove_out(void)
{
    remove_store(out);
}

typedef struct heard {
    int64_t count;
    char run[PL_RUN_ID_CHARS], what[400];
} heard;

static int hear(void *arg, const char *run, const char *what)
{
    heard *h = arg;
    if (!h->count++) {
        snprintf(h->run, sizeof h->run, "%s", run);
        snprintf(h->what, sizeof h->what, "%s", what);
    }
    return 1;
}

static polar_status merge(pl_merge_count *did, heard *h, const char *const *paths, int64_t n)
{
    pl_store *s = NULL;
    *h = (heard){0};
    *did = (pl_merge_count){0};
    PL_TRY(pl_store_open(&s, out, PL_STORE_WRITE));
    polar_status st = pl_store_merge(did, s, paths, n, hear, h);
    pl_store_close(s);
    return st;
}

/* What `out` holds, and whether every row of it has its checksum. */
static char *dump(const char *at)
{
    char *text = NULL;
    if (store_dump(&text, at, fakes.spec) != POLAR_OK) return strdup(polar_error_message());
    return text;
}

static int64_t as_one(void)
{
    char *a = dump(one), *b = dump(out);
    int64_t wrong = strcmp(a, b) != 0 || strlen(a) < 1000;
    free(a);
    free(b);
    return wrong;
}

static void change(const char *at, const char *sql, int resum)
{
    sqlite3 *db = NULL;
    if (sqlite3_open(at, &db) != SQLITE_OK || sqlite3_exec(db, sql, NULL, NULL, NULL) != SQLITE_OK) {
        printf("%s: %s\n", sql, sqlite3_errmsg(db));
        exit(1);
    }
    if (resum) store_resum(db);
    sqlite3_close(db);
}

/* ---- what joins --------------------------------------------------------------------------------- */

static void test_shards(void)
{
    pl_merge_count did;
    heard h;
    const char *all[] = {shard[0], shard[1], shard[2]}, *mixed[] = {shard[2], one, shard[0], shard[2]};
    remove_out();
    TEST_TRY(merge(&did, &h, all, 3));
    test_exact("shards joined are one store", as_one());
    test_true("  counts", PART(did.runs == 18) && PART(did.finished == 17) && PART(did.put == 17),
              "%lld of %lld", (long long)did.finished, (long long)did.runs);
    TEST_TRY(merge(&did, &h, all, 3));
    test_true("the same stores again", as_one() == 0 && did.put == 0 && h.count == 0, "%lld put",
              (long long)did.put);
    remove_out();
    TEST_TRY(merge(&did, &h, mixed, 4));
    test_true("one store twice, and overlapping ones", as_one() == 0 && did.put == 17, "%lld put",
              (long long)did.put);
    remove_out();
    for (int i = 0; i < SHARDS; i++) TEST_TRY(merge(&did, &h, &all[i], 1));
    test_exact("one after the other", as_one());
    const char *self[] = {out};
    TEST_TRY(merge(&did, &h, self, 1));
    test_exact("a store into itself", as_one());
}

/* `out` has begun a run that another store has finished, and has a run and a spec of its own. */
static void test_progress(void)
{
    pl_merge_count did;
    heard h;
    char id[PL_RUN_ID_CHARS], *text = NULL;
    pl_store *s = NULL;
    const char *all[] = {shard[0], shard[1], shard[2]};
    const pl_epoch_row half[] = {{1, 9, 9, 9, 1, 9}, {77, 9, 9, 9, 1, 9}};
    remove_out();
    TEST_TRY(pl_store_open(&s, out, PL_STORE_WRITE));
    now = SHARDS; /* none of them */
    fake_store_fill(s, &fakes, value);
    fake_id(id, &fakes, 0, 0, 0);
    TEST_TRY(pl_store_begin_run(s, id, &where, 1));
    TEST_TRY(pl_store_put_progress(s, id, &(pl_run_progress){half, 2, NULL, 0, 3}));
    TEST_TRY(fill(s));
    pl_store_close(s);
    TEST_TRY(merge(&did, &h, all, 3));
    test_exact("a begun run is replaced by the finished one", as_one());
    TEST_TRY(store_dump(&text, out, "so3_test"));
    test_true("another spec of the store stays", strstr(text, "diverged") && did.runs == 21, "%lld runs",
              (long long)did.runs);
    free(text);
}

static void test_empty(void)
{
    pl_merge_count did;
    heard h;
    pl_store *s = NULL;
    char none[160];
    snprintf(none, sizeof none, "%s/none.db", folder);
    TEST_TRY(pl_store_open(&s, none, PL_STORE_WRITE));
    pl_store_close(s);
    const char *with[] = {none, one, none}, *only[] = {none};
    remove_out();
    TEST_TRY(merge(&did, &h, with, 3));
    test_exact("a store without runs adds none", as_one());
    remove_out();
    TEST_TRY(merge(&did, &h, only, 1));
    test_true("and alone makes one without runs", did.runs == 0 && did.put == 0, "%lld", (long long)did.runs);
    TEST_TRY(merge(&did, &h, NULL, 0));
}

/* ---- what does not ------------------------------------------------------------------------------ */

/* shard 1 changed by sql, joined after the whole: `says` is told, and the store is as before. */
static void disagree(const char *sql, const char *says, int64_t count)
{
    pl_merge_count did;
    heard h;
    const char *first[] = {one}, *then[] = {shard[0], shard[1]};
    remove_out();
    make_store(shard[1], 1);
    TEST_TRY(merge(&did, &h, first, 1));
    change(shard[1], sql, 1);
    polar_status st = merge(&did, &h, then, 2);
    test_true(sql,
              PART(st == POLAR_E_FORMAT) && PART(h.count == count) && PART(did.differ == count) &&
                  PART(strstr(h.what, says)) && PART(as_one() == 0) &&
                  PART(strstr(polar_error_message(), "nothing was joined")),
              "%lld told: %.12s: %s", (long long)h.count, h.run, h.what);
}

#define FIRST "(SELECT min(id) FROM run WHERE state = 'done')"

static void test_disagreements(void)
{
    disagree("UPDATE result SET value = value + 1e-18 WHERE name = 'test_mse' AND run = " FIRST,
             "its result test_mse is 0.005", 1);
    disagree("UPDATE result SET value = value * 1.5 WHERE name = 'test_mse' AND value IS NOT NULL",
             "its result test_mse", 5);
    disagree("UPDATE result SET name = 'test_msf' WHERE name = 'test_mse' AND run = " FIRST,
             "it has a result test_msf, and test_mse before", 1);
    disagree("DELETE FROM result WHERE name = 'epochs'", "it has 5 results, and 6 before", 6);
    disagree("UPDATE epoch SET valid = valid * 1.0000000001 WHERE epoch = 2 AND run = " FIRST,
             "its epoch 2: validation 0.0078", 1);
    disagree("UPDATE epoch SET lr = 0 WHERE epoch = 3 AND run = " FIRST, "its epoch 3: learning rate 0, and",
             1);
    disagree("DELETE FROM epoch WHERE epoch = 1 AND run = " FIRST, "epochs, and ", 1);
    disagree("UPDATE gauge SET deviation = 0 WHERE step = 10 AND run = " FIRST,
             "its gauge row of step 10 is 0", 1);
    disagree("DELETE FROM gauge WHERE step = 10 AND run = " FIRST, "it has 12 gauge rows, and 16 before", 1);
    disagree("UPDATE run SET state = 'diverged' WHERE id = " FIRST, "it is diverged, and done before", 1);
    disagree("UPDATE run SET seed = 99 WHERE id = " FIRST, "its testbed or its seed", 1);
    disagree("UPDATE run SET testbed = 'deit' WHERE id = " FIRST, "its testbed or its seed", 1);
    disagree("UPDATE spec SET text = text || '#'", "the spec so3_merge: its text is another", 1);
    disagree("UPDATE member SET run = " FIRST " WHERE ord = 0", "model.width=16 adamw seed 0 is this run", 1);
}

/* Clocks and machines are no disagreement. */
static void test_clocks(void)
{
    pl_merge_count did;
    heard h;
    const char *then[] = {one, shard[1]};
    remove_out();
    make_store(shard[1], 1);
    change(shard[1],
           "UPDATE run SET wall = 1e6, started = '1999-01-01T00:00:00Z', finished = '1999-01-02T00:00:00Z', "
           "code = 'x', "
           "device = 'y', cpu = 'z', threads = 3 WHERE state <> 'planned'; UPDATE epoch SET seconds = 4",
           1);
    TEST_TRY(merge(&did, &h, then, 2));
    test_true("clocks and machines may differ", as_one() == 0 && h.count == 0, "%lld told",
              (long long)h.count);
}

/* What a run from a table lacks is no disagreement, whichever comes first; what it has is. */
static void test_imported(void)
{
#define FROM_TABLE \
    "UPDATE run SET started = NULL, finished = NULL WHERE state <> 'planned'; DELETE FROM gauge; "
    pl_merge_count did;
    heard h;
    const char *after[] = {one, shard[1]}, *first[] = {shard[1], one};
    make_store(shard[1], 1);
    change(shard[1], FROM_TABLE "DELETE FROM epoch; DELETE FROM result WHERE name = 'epochs'", 1);
    remove_out();
    TEST_TRY(merge(&did, &h, after, 2));
    test_true("imported runs may lack rows", as_one() == 0 && h.count == 0, "%lld told", (long long)h.count);
    remove_out();
    TEST_TRY(merge(&did, &h, first, 2));
    test_true("... and come first", h.count == 0 && did.finished == 17 && did.put == 17, "%lld finished",
              (long long)did.finished);
    disagree(FROM_TABLE "UPDATE result SET value = value * 2 WHERE name = 'test_mse' AND run = " FIRST,
             "its result test_mse is", 1);
    disagree(FROM_TABLE "UPDATE result SET name = 'test_zzz' WHERE name = 'test_mse' AND run = " FIRST,
             "it has a result test_zzz, and none before", 1);
    disagree(FROM_TABLE "UPDATE epoch SET valid = 7 WHERE epoch = 2 AND run = " FIRST,
             "its epoch 2: validation 7", 1);
    disagree(FROM_TABLE "DELETE FROM epoch WHERE epoch = 2 AND run = " FIRST, "it has 3 epochs, and 4 before",
             1);
}

static void refuse(const char *what, const char *in, polar_status want, const char *word)
{
    pl_merge_count did;
    heard h;
    const char *paths[] = {shard[0], in};
    remove_out();
    TEST_TRY(merge(&did, &h, paths, 1));
    char *before = dump(out);
    polar_status st = merge(&did, &h, paths, 2);
    int said = strstr(polar_error_message(), word) != NULL;
    test_true(what, PART(st == want) && PART(said), "%s", polar_error_message());
    char *after = dump(out);
    test_exact("  and the store is as before", strcmp(before, after) != 0);
    free(before);
    free(after);
}

static void broken(const char *sql, int resum, const char *word)
{
    make_store(shard[1], 1);
    change(shard[1], sql, resum);
    pl_merge_count did;
    heard h;
    const char *paths[] = {shard[1]};
    remove_out();
    polar_status st = merge(&did, &h, paths, 1);
    test_true(sql, PART(st == POLAR_E_FORMAT) && PART(strstr(polar_error_message(), word)), "%s",
              polar_error_message());
    refuse("  nor into a store with runs", shard[1], POLAR_E_FORMAT, word);
}

/* As an older polar made it. */
static void make_older(const char *at, int version)
{
    char marks[100];
    pl_store s = {.path = (char *)at};
    remove_store(at);
    TEST_TRY(pl_sql_open(&s, at, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE));
    for (int v = 0; v < version; v++) (void)sqlite3_exec(s.db, pl_store_steps[v], NULL, NULL, NULL);
    pl_sql_close(&s);
    snprintf(marks, sizeof marks, "PRAGMA application_id = %d; PRAGMA user_version = %d",
             PL_STORE_APPLICATION, version);
    change(at, marks, 0);
}

static void test_broken(void)
{
    broken("UPDATE result SET value = 1 WHERE name = 'test_mse' AND run = " FIRST, 0, "is damaged (");
    broken("DELETE FROM epoch WHERE epoch = 1 AND run = " FIRST, 0, "is damaged (");
    broken("UPDATE member SET ord = 5 WHERE ord = 1", 0, "is damaged (");
    broken("UPDATE result SET name = 'a' || char(10) || 'b' WHERE name = 'test_mse' AND run = " FIRST, 1,
           "polar never writes");
    broken("UPDATE run SET code = 'a' || char(27) || '[2J' WHERE id = " FIRST, 1, "polar never writes");
    broken("UPDATE member SET cell = char(10) WHERE ord = 0", 1, "polar never writes");
    broken("UPDATE spec SET title = 'a' || char(10)", 1, "polar never writes");
    broken("UPDATE epoch SET epoch = -1 WHERE epoch = 1 AND run = " FIRST, 1, "an epoch's number");
    broken("CREATE TRIGGER t AFTER INSERT ON run BEGIN DELETE FROM run; END", 0, "not as polar makes it");
    broken("PRAGMA user_version = 99", 0, "newer");
    make_older(shard[1], 3);
    refuse("a store of an older version", shard[1], POLAR_E_FORMAT, "has the older version 3");
    refuse("no such store", "/nowhere/at/all.db", POLAR_E_ARG, "no store at");
    refuse("a folder", "/tmp", POLAR_E_ARG, "not a regular file");
    refuse("a file without rows", "/dev/null", POLAR_E_ARG, "not a regular file");
}

static void test_busy(void)
{
    pl_merge_count did;
    heard h;
    char id[PL_RUN_ID_CHARS];
    int mine = 0;
    pl_store *s = NULL;
    const char *first[] = {shard[0]}, *then[] = {one};
    remove_out();
    TEST_TRY(merge(&did, &h, first, 1));
    TEST_TRY(pl_store_open(&s, out, PL_STORE_WRITE));
    fake_id(id, &fakes, 0, 0, 1); /* of shard 1: planned */
    TEST_TRY(pl_store_claim(s, id, &mine));
    char *before = dump(out);
    polar_status st = merge(&did, &h, then, 1);
    test_true("a run that another process is at",
              mine && st == POLAR_E_STATE && strstr(polar_error_message(), "another process is at run"), "%s",
              polar_error_message());
    char *after = dump(out);
    test_exact("  nothing was joined", strcmp(before, after) != 0);
    pl_store_close(s);
    TEST_TRY(merge(&did, &h, then, 1));
    test_exact("  and all of it when it has ended", as_one());
    free(before);
    free(after);
}

/* ---- copies, memory ----------------------------------------------------------------------------- */

static void test_copy(void)
{
    char *a = dump(one), *b;
    pl_store *s = NULL;
    remove_out();
    TEST_TRY(pl_store_copy(out, one));
    b = dump(out);
    test_exact("a copy is the store", strcmp(a, b) != 0);
    TEST_TRY(pl_store_open(&s, one, PL_STORE_WRITE));
    TEST_TRY(fill(s));
    polar_status from = pl_store_copy(out, one), to = pl_store_copy(one, out);
    test_true("neither of nor over one that is open", from == POLAR_E_STATE && to == POLAR_E_STATE, "%s",
              polar_error_message());
    pl_store_close(s);
    test_true("no folder for it", pl_store_copy("/nowhere/at/all.db", one) == POLAR_E_ARG, "%s",
              polar_error_message());
    test_true("nothing to copy", pl_store_copy(out, "/nowhere/at/all.db") == POLAR_E_ARG, "%s",
              polar_error_message());
    free(a);
    free(b);
}

/* Every allocation of a merge fails once (after the first hundred every 41st): `out` stays as it
 * was. */
static void test_faults(void)
{
    pl_merge_count did;
    heard h;
    pl_store *s = NULL;
    const char *first[] = {shard[0]}, *then[] = {shard[2]};
    int64_t wrong = 0, tried = 0, live = 0, lost = 0;
    remove_out();
    TEST_TRY(merge(&did, &h, first, 1));
    char *before = dump(out);
    for (int64_t n = 0;; n += n < 100 ? 1 : 41, tried++) {
        live = pl_alloc_live();
        TEST_TRY(pl_store_open(&s, out, PL_STORE_WRITE));
        pl_alloc_fail_at(n + 1);
        polar_status st = pl_store_merge(&did, s, then, 1, hear, &h);
        pl_alloc_fail_at(0);
        pl_store_close(s);
        lost += pl_alloc_live() - live;
        if (st == POLAR_OK) break;
        char *after = tried % 16 ? NULL : dump(out);
        wrong += st != POLAR_E_NOMEM || (after && strcmp(before, after)) || h.count;
        free(after);
    }
    test_true("without memory it fails and leaves the store", wrong == 0 && tried > 50,
              "%lld of %lld tries wrong", (long long)wrong, (long long)tried);
    test_exact("  blocks that were not freed", lost);
    test_true("  and then it joins", did.put > 0, "%lld put", (long long)did.put);
    free(before);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    store_folder_open();
    make_stores();
    test_shards();
    test_progress();
    test_empty();
    test_disagreements();
    test_clocks();
    test_imported();
    test_busy();
    test_broken();
    test_copy();
    test_faults();
    store_folder_close();
    return test_end();
}
