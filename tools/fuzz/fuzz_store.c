/* fuzz_store.c -- a store that a stranger changed: parts between bytes 1, each a change of a cell (table,
 * column, row, type, value), after which all checksums are made right; with 'D' before them they are not.
 * 'R': bytes of the file; 'L': the log beside it. What opens is read whole, and its report is a page that
 * loads nothing. */
#include "fuzz.h"

#include <sys/stat.h>
#include <unistd.h>
#include <utime.h>

#include "base/json_read.h"
#include "report/report_fixture.h"
#include "fixtures/store_dump.h"
#include "fixtures/store_resum.h"

static const char *const tables[][3] = {
    /* name, columns, primary key */
    {"spec", "name sha title testbed metric text members", "name"},
    {"config", "key json", "key"},
    {"run", "id testbed seed config state wall started finished code device cpu threads data", "id"},
    {"member", "spec cell arm seed ord run", "spec, cell, arm, seed"},
    {"epoch", "run epoch train_loss valid lr improved seconds", "run, epoch"},
    {"result", "run name value", "run, name"},
    {"gauge", "run step block shadow map deviation", "run, step, block, shadow, map"}};
enum { TABLES = sizeof tables / sizeof *tables, MOST_CHANGES = 8 };

static uint8_t *base;
static size_t base_size;

static double value(int cell, int seed, int arm)
{
    return 0.01 * (1 + cell + seed + arm);
}

static double accuracy(int seed, int arm, int epoch)
{
    return 10 * epoch + seed - arm;
}

/* Three specs: curves of errors with a target, gauge rows and a comparison, its other side, and accuracies.
 */
static void fill(pl_store *s)
{
    fake_plan p = {.spec = "small",
                   .cells = {"model.width=16"},
                   .arms = {"adamw", "muon"},
                   .n_cells = 1,
                   .n_arms = 2,
                   .n_seeds = 2,
                   .epochs = 3,
                   .gauge = 1,
                   .seconds = 1,
                   .text =
                       "name: small\ntestbed: so3\nseeds: 0..1\narms: [adamw, muon]\n"
                       "grid: {model.width: [16]}\npublished: {by: x, values: [{model.width: 16, muon: 1}]}\n"
                       "compare: [{with: others}]\ntests: {target: 0.02, equivalence: 1e-3}\n"};
    fake_store_fill(s, &p, value);
    p.spec = "others", p.gauge = 0, p.text = NULL;
    fake_store_fill(s, &p, value);
    p.spec = "pictures", p.cells[0] = "all", p.accuracy = accuracy, p.epochs = 12;
    fake_store_fill(s, &p, value);
}

void fuzz_begin(void)
{
    static const char cells[] =
        "\2\4\1tdone\1\5\2\2n1e-3\1\1\1\1t{\"a\": [1], \"b\": \"c\"}\1\0\5\0tname: t\n",
                      rotten[] = "D\5\2\2n1e-3\1\4\2\2n5", bytes[] = "R\0\0\x12\x01\x10\x00\x05";
    pl_store *s;
    size_t size;
    setenv("PATH", "/nowhere", 1); /* no gnuplot */
    need(pl_store_open(&s, fuzz_path("base"), PL_STORE_WRITE) == POLAR_OK);
    fill(s);
    pl_store_close(s);
    base = fuzz_read(fuzz_path("base"), &base_size);
    need(pl_store_open(&s, fuzz_path("base"), PL_STORE_WRITE) == POLAR_OK);
    fake_store_fill(
        s,
        &(fake_plan){
            .spec = "more", .cells = {"all"}, .arms = {"a"}, .n_cells = 1, .n_arms = 1, .n_seeds = 1},
        value);
    uint8_t *log = fuzz_read(fuzz_path("base-wal"), &size);
    pl_store_close(s);
    memmove(log + 1, log, size); /* over the zero behind it */
    *log = 'L';
    fuzz_seed("cells", cells, sizeof cells - 1);
    fuzz_seed("rotten", rotten, sizeof rotten - 1);
    fuzz_seed("bytes", bytes, sizeof bytes - 1);
    fuzz_seed("log", log, size + 1);
    free(log);
}

/* The k-th word of a list by blanks, counted in a circle. */
static void word_of(char out[32], const char *list, unsigned k)
{
    unsigned words = 1;
    for (const char *p = list; *p; p++) words += *p == ' ';
    for (k %= words; k; k--) list = strchr(list, ' ') + 1;
    snprintf(out, 32, "%.*s", (int)strcspn(list, " "), list);
}

static void change_cell(sqlite3 *db, const uint8_t *p, size_t n)
{
    char sql[400], column[32];
    sqlite3_stmt *st = NULL;
    if (n < 4) return;
    const char *const *t = tables[p[0] % TABLES];
    word_of(column, t[1], p[1]);
    snprintf(
        sql, sizeof sql,
        "UPDATE OR REPLACE %s SET %s = ?1 WHERE (%s) IN (SELECT %s FROM %s ORDER BY %s LIMIT 1 OFFSET ?2)",
        t[0], column, t[2], t[2], t[0], t[2]);
    need(sqlite3_prepare_v2(db, sql, -1, &st, NULL) == SQLITE_OK);
    const char *text = (const char *)p + 4;
    char *copy = strndup(text, n - 4);
    sqlite3_bind_int(st, 2, p[2] % 8);
    if (p[3] == 't') sqlite3_bind_text(st, 1, text, (int)(n - 4), SQLITE_STATIC);
    else if (p[3] == 'i') sqlite3_bind_int64(st, 1, strtoll(copy, NULL, 10));
    else if (p[3] == 'n') sqlite3_bind_double(st, 1, strtod(copy, NULL));
    else if (p[3] == 'b') sqlite3_bind_blob(st, 1, text, (int)(n - 4), SQLITE_STATIC);
    (void)sqlite3_step(st); /* NOT NULL may refuse it */
    sqlite3_finalize(st);
    free(copy);
}

static void put(const char *path, const uint8_t *bytes, size_t n)
{
    const struct utimbuf old = {1, 1}; /* a log that was just written is looked at again and again */
    FILE *f = fopen(path, "wb");
    need(f && fwrite(bytes, 1, n, f) == n && !fclose(f) && !utime(path, &old));
}

static void change_cells(const char *path, const uint8_t *data, const uint8_t *end, int right)
{
    const uint8_t *cut;
    sqlite3 *db;
    need(sqlite3_open(path, &db) == SQLITE_OK);
    (void)sqlite3_exec(
        db, "PRAGMA synchronous = OFF; PRAGMA journal_mode = MEMORY; PRAGMA ignore_check_constraints = 1",
        NULL, NULL, NULL);
    (void)sqlite3_exec(db, "BEGIN", NULL, NULL, NULL);
    for (int i = 0; i < MOST_CHANGES && data < end; i++, data = cut + 1) {
        cut = end - data > 4 ? memchr(data + 4, 1, (size_t)(end - data) - 4) : NULL;
        if (!cut) cut = end;
        change_cell(db, data, (size_t)(cut - data));
    }
    if (right) store_resum(db);
    (void)sqlite3_exec(db, "COMMIT", NULL, NULL, NULL);
    sqlite3_close(db);
}

/* The store with all changes. */
static void make_store(const char *path, const uint8_t *data, size_t size)
{
    const char how = size ? (char)*data : 0;
    uint8_t *copy = malloc(base_size);
    memcpy(copy, base, base_size);
    for (size_t i = 1; how == 'R' && i + 4 <= size; i += 4)
        copy[((size_t)data[i] << 16 | (size_t)data[i + 1] << 8 | data[i + 2]) % base_size] = data[i + 3];
    put(path, copy, base_size);
    free(copy);
    if (how == 'L') put(fuzz_path("store-wal"), data + 1, size - 1);
    else if (how == 'D') change_cells(path, data + 1, data + size, 0);
    else if (how != 'R') change_cells(path, data, data + size, 1);
}

static void try_page(const char *path)
{
    static const char *const words[] = {"<script", "<link", "<img", "<iframe", "<object", "<embed", "<base"};
    static xml x;
    char *page = text_of(path);
    need(page && !check_xml(&x, page, 1) && pl_utf8_valid(page, (int64_t)strlen(page)));
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) need(!strcasestr(page, words[i]));
    free(page);
}

static void try_report(pl_store *s)
{
    pl_schema schemas[PL_TESTBED_MAX];
    pl_report_outcome out;
    pl_report_opts o = {.dir = fuzz_path("report"), .schemas = schemas, .code = "fuzz"};
    char dir[512];
    snprintf(dir, sizeof dir, "%s", o.dir);
    o.dir = dir;
    o.schema_count = pl_testbed_schemas(schemas);
    if (pl_report_write(&out, s, &o) == POLAR_OK) try_page(out.page);
    folder_remove(dir);
}

static void try_store(pl_store *s)
{
    pl_store_specs specs;
    pl_store_members all;
    if (pl_store_select_all(&all, s) == POLAR_OK) {
        for (int64_t i = 0; i < all.count; i++) need(strlen(all.rows[i].id) == PL_RUN_ID_CHARS - 1);
        pl_store_members_free(&all);
    }
    if (pl_store_select_specs(&specs, s) != POLAR_OK) return;
    for (int64_t i = 0; i < specs.count; i++) {
        char *text = NULL;
        (void)store_dump_open(&text, s, specs.rows[i].name);
        free(text);
    }
    pl_store_specs_free(&specs);
    try_report(s);
}

static int count_damage(void *arg, const char *run, const char *what)
{
    need(strlen(run) < PL_RUN_ID_CHARS && *what);
    ++*(int *)arg;
    return 1;
}

/* Everything wrong with it; then what of it is sound. */
static void try_damaged(const char *path, int whole)
{
    pl_store *s;
    int64_t aside = 0;
    int told = 0;
    if (pl_store_open(&s, path, PL_STORE_EXAMINE) == POLAR_OK) {
        polar_status st = pl_store_examine(s, count_damage, &told);
        need(!whole || (st == POLAR_OK && !told));
    }
    pl_store_close(s);
    polar_status st = pl_store_open(&s, path, PL_STORE_SOUND);
    need(!whole || st == POLAR_OK);
    if (st == POLAR_OK) (void)pl_store_damaged(s, &aside);
    need(!whole || !aside);
    if (st == POLAR_OK && aside) try_store(s);
    pl_store_close(s);
}

void fuzz_try(const uint8_t *data, size_t size)
{
    static const char *const tails[] = {"store", "store-wal", "store-shm", "store.lock"};
    char path[512];
    pl_store *s;
    snprintf(path, sizeof path, "%s", fuzz_path("store"));
    make_store(path, data, size);
    polar_status st = pl_store_open(&s, path, PL_STORE_READ);
    need(st == POLAR_OK || st == POLAR_E_FORMAT);
    if (st == POLAR_OK) try_store(s);
    pl_store_close(s);
    try_damaged(path, st == POLAR_OK);
    for (int i = 0; i < 4; i++) unlink(fuzz_path(tails[i]));
}
