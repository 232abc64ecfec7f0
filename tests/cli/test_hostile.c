/* test_hostile.c -- stores and specs that somebody wrote to get in: the program is run on each of them, and
 * canary files show that nothing was executed and nothing written outside of the report's folder.
 *
 * Every case begins with a store that `polar run` could have left, and changes it with SQLite as an attacker
 * would. `make asan` runs the same under the sanitisers.
 */
#include "cli_fixture.h"

#include <sqlite3.h>

#include "fixtures/fake_store.h"
#include "fixtures/store_resum.h"

#define CANARY "$D/canary"

static char store_path[128];

static double value_of(int cell, int seed, int arm)
{
    return 0.01 * (1 + cell) + 0.001 * arm + 1e-4 * (seed % 3);
}

/* A store of two specs with gauge rows, every run finished. */
static void make_store(void)
{
    fake_plan p = {.spec = "so3_capacity",
                   .cells = {"model.width=16"},
                   .arms = {"adamw", "muon"},
                   .n_cells = 1,
                   .n_arms = 2,
                   .n_seeds = 2,
                   .epochs = 4,
                   .gauge = 1};
    pl_store *s = NULL;
    TEST_TRY(pl_store_open(&s, store_path, PL_STORE_WRITE));
    fake_store_fill(s, &p, value_of);
    p.spec = "good";
    fake_store_fill(s, &p, value_of);
    pl_store_close(s);
}

/* A copy of it at $D/x.db; what earlier cases left is gone. */
static void fresh_store(void)
{
    snprintf(store_path, sizeof store_path, "%s/.whole.db", folder);
    if (access(store_path, F_OK) != 0) make_store();
    snprintf(store_path, sizeof store_path, "%s/x.db", folder);
    sh("rm -rf $D/*; cp $D/.whole.db $D/x.db");
}

/* The attacker's SQL on the store, ended by NULL; @ in it stands for the canary's path. */
static void tamper(const char *const *sql)
{
    sqlite3 *db = NULL;
    char canary[96], text[4096], *why = NULL;
    snprintf(canary, sizeof canary, "%s/canary", folder);
    if (sqlite3_open(store_path, &db) != SQLITE_OK) exit(1);
    for (; *sql; sql++) {
        size_t n = 0;
        for (const char *c = *sql; *c && n + sizeof canary < sizeof text; c++) {
            if (*c == '@') n += (size_t)sprintf(text + n, "%s", canary);
            else text[n++] = *c;
        }
        text[n] = 0;
        if (sqlite3_exec(db, text, NULL, NULL, &why) != SQLITE_OK) {
            printf("%s: %s  FAIL\n", *sql, why);
            exit(1);
        }
    }
    store_resum(db);
    sqlite3_close(db);
}

#define TAMPER(...) tamper((const char *const[]){__VA_ARGS__, NULL})

/* Bytes that would steer a terminal. */
static int control_bytes(const char *text)
{
    int n = 0;
    for (const unsigned char *c = (const unsigned char *)text; *c; c++)
        n += (*c < 0x20 && *c != '\n') || *c == 0x7f || (*c == 0xc2 && c[1] >= 0x80 && c[1] < 0xa0);
    return n;
}

/* Nothing was executed or written where it does not belong (a canary), the program ended by itself, and what
 * it printed is plain text. */
static void no_canary(const char *what)
{
    int n = count_files("canary"), steering = control_bytes(last.out) + control_bytes(last.err);
    test_true(what, !n && last.code < 100 && !steering,
              "%d canary file(s), %d control bytes, exit %d: %.100s", n, steering, last.code,
              first_line(last.err));
}

/* The number of files in $D/out that hold the text (a fixed string). */
static int files_with(const char *text)
{
    setenv("TEXT", text, 1);
    sh("grep -rlF -e \"$TEXT\" $D/out 2>/dev/null | wc -l");
    return atoi(last.out);
}

static int has_gnuplot(void)
{
    return sh("command -v gnuplot") == 0;
}

/* ---- commands in texts -------------------------------------------------------------------------- */

/* A store's texts where they reach a figure: in every one of them a command that leaves a canary, in
 * gnuplot's ways of writing one. */
static void commands_in_figures(void)
{
    static const char *const attacks[] = {
        "`touch @`",     "$(touch @)",  "\"; system(\"touch @\"); \"", "''; system(''touch @''); ''",
        "\\`touch @\\`", "%`touch @`s",
    };
    char arm[256], cell[256], title[256], what[80];
    for (size_t i = 0; i < sizeof attacks / sizeof *attacks; i++) {
        fresh_store();
        snprintf(arm, sizeof arm, "UPDATE member SET arm = '%s' WHERE arm = 'muon'", attacks[i]);
        snprintf(cell, sizeof cell, "UPDATE member SET cell = '%s'", attacks[i]);
        snprintf(title, sizeof title, "UPDATE spec SET title = '%s'", attacks[i]);
        TAMPER("DELETE FROM spec WHERE name = 'good'", arm, cell, title);
        sh("cd $D && $P report --store x.db -o out");
        snprintf(what, sizeof what, "report: %.30s", attacks[i]);
        test_true(what, last.code == 0, "the report is written: %s", first_line(last.err));
        no_canary(what);
    }
    fresh_store(); /* short ones, relative to where gnuplot runs: out/figures */
    TAMPER("UPDATE gauge SET map = '`touch ../../canary`' WHERE map = 'exact'",
           "UPDATE result SET name = '`touch ../../canary`' WHERE name = 'test_mse'",
           "UPDATE spec SET metric = '`touch ../../canary`'");
    sh("cd $D && $P report --store x.db -o out");
    no_canary("report: short commands in maps and metrics");
}

/* ---- the schema --------------------------------------------------------------------------------- */

/* Versions that are no place in the table of steps; below it, in the program's memory, stood whatever stood
 * there. */
static void versions(void)
{
    static const char *const numbers[] = {"-1", "-2", "-17", "-2147483648", "2147483647", "99", "0"};
    char sql[96], what[96];
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        fresh_store();
        snprintf(sql, sizeof sql, "PRAGMA user_version = %s", numbers[i]);
        TAMPER(sql);
        snprintf(what, sizeof what, "user_version %s", numbers[i]);
        refused("$P run specs/demo/so3_tiny.yaml --store $D/x.db", 2, "version");
        no_canary(what);
        refused("$P report --store $D/x.db -o $D/out", 2, "version");
        no_canary(what);
    }
}

/* Whatever the schema holds that is not ours would be executed by our own statements: the store is not
 * opened, and not changed. */
static void schemas(void)
{
    static const char *const additions[][2] = {
        {"CREATE TRIGGER evil AFTER INSERT ON member BEGIN UPDATE result SET value = 0; END",
         "trigger 'evil'"},
        {"CREATE TRIGGER evil AFTER UPDATE ON run BEGIN DELETE FROM epoch; END", "trigger 'evil'"},
        {"CREATE VIEW evil AS SELECT * FROM run", "view 'evil'"},
        {"ALTER TABLE epoch RENAME TO epoch_; CREATE VIEW epoch AS SELECT * FROM epoch_", "epoch_"},
        {"ALTER TABLE result ADD COLUMN evil TEXT AS (hex(zeroblob(100000000)))", "table 'result'"},
        {"CREATE INDEX evil ON run(abs(seed))", "index 'evil'"},
        {"CREATE TABLE evil(x CHECK(x > 0))", "table 'evil'"},
        {"DROP TABLE gauge", ""},
        {"PRAGMA writable_schema = 1; UPDATE sqlite_schema SET sql = replace(sql, 'wall REAL', 'wall REAL "
         "CHECK(wall < 1e9)') WHERE name = 'run'",
         "table 'run'"},
    };
    for (size_t i = 0; i < sizeof additions / sizeof *additions; i++) {
        fresh_store();
        TAMPER(additions[i][0]);
        sh("cksum < $D/x.db");
        char before[64];
        snprintf(before, sizeof before, "%.60s", last.out);
        refused("$P run specs/demo/so3_tiny.yaml --store $D/x.db", 2, additions[i][1]);
        refused("$P plan specs/demo/so3_tiny.yaml --store $D/x.db", 2, "is not as polar makes it");
        refused("$P audit good --store $D/x.db", 2, "is not as polar makes it");
        refused("$P report --store $D/x.db -o $D/out", 2, "is not as polar makes it");
        sh("cksum < $D/x.db");
        test_true(additions[i][0], !strncmp(before, last.out, strlen(before)), "the file is as it was");
    }
}

/* ---- rows --------------------------------------------------------------------------------------- */

/* Rows that polar could not have written: the spec they belong to is left out of the report with a reason,
 * the other is reported. */
static void rows(void)
{
    static const char *const of_spec[] = {
        /* changes to the spec's own row or its members */
        "UPDATE spec SET name = '../../canary' WHERE name = 'so3_capacity'; UPDATE member SET spec = "
        "'../../canary' WHERE spec = 'so3_capacity'",
        "UPDATE spec SET name = '/tmp/../@' WHERE name = 'so3_capacity'; UPDATE member SET spec = "
        "'/tmp/../@' WHERE spec = 'so3_capacity'",
        "UPDATE spec SET name = 'a' || char(27) || '[2Jb' WHERE name = 'so3_capacity'; UPDATE member SET "
        "spec = 'a' || char(27) || '[2Jb' WHERE spec = 'so3_capacity'",
        "UPDATE spec SET name = replace(hex(zeroblob(500000)), '0', 'a') WHERE name = 'so3_capacity'; UPDATE "
        "member SET spec = replace(hex(zeroblob(500000)), '0', 'a') WHERE spec = 'so3_capacity'",
        "UPDATE spec SET name = x'2e2e2f2e2e2f63616e617279' WHERE name = 'so3_capacity'",
        "UPDATE spec SET name = '' WHERE name = 'so3_capacity'",
        "UPDATE spec SET title = 'a' || char(10) || 'b' WHERE name = 'so3_capacity'",
        "UPDATE spec SET title = CAST(x'ff' AS TEXT) WHERE name = 'so3_capacity'",
        "UPDATE spec SET title = char(155) || '31m' WHERE name = 'so3_capacity'",
        "UPDATE spec SET title = char(8238) || 'gpj.exe' WHERE name = 'so3_capacity'",
        "UPDATE spec SET metric = 'test_msee' WHERE name = 'so3_capacity'",
        "UPDATE spec SET metric = '../x' WHERE name = 'so3_capacity'",
        "UPDATE spec SET testbed = 7.5 WHERE name = 'so3_capacity'",
        "UPDATE member SET arm = 'a' || char(0) || 'b' WHERE spec = 'so3_capacity' AND arm = 'muon'",
        "UPDATE member SET arm = 'a' || char(27) || ']0;x' || char(7) WHERE spec = 'so3_capacity' AND arm = "
        "'muon'",
        "UPDATE member SET arm = x'ff00' WHERE spec = 'so3_capacity' AND arm = 'muon'",
        "UPDATE member SET cell = replace(hex(zeroblob(250000)), '0', 'a') WHERE spec = 'so3_capacity'",
        "UPDATE member SET ord = -1 WHERE spec = 'so3_capacity'",
        "UPDATE member SET ord = 'first' WHERE spec = 'so3_capacity'",
        "UPDATE member SET run = '../../canary' WHERE spec = 'so3_capacity'",
    };
    for (size_t i = 0; i < sizeof of_spec / sizeof *of_spec; i++) {
        char what[80];
        fresh_store();
        TAMPER(of_spec[i]);
        sh("cd $D && $P report --store x.db -o out");
        snprintf(what, sizeof what, "%.60s", of_spec[i]);
        no_canary(what);
        test_true("  left out, with a reason",
                  last.code == 0 && strstr(last.err, "is left out: ") && last.err_lines == 1,
                  "exit %d: %.160s", last.code, first_line(last.err));
        test_true("  the other is reported",
                  exists("out/tables/good_results.csv") && exists("out/index.html"), "%d file(s) of it",
                  exists("out/tables/good_results.csv"));
    }
}

/* The same for rows of runs, which both specs share: nothing is reported, with one sentence. */
static void runs(void)
{
    static const char *const of_runs[] = {
        "UPDATE member SET run = '../../canary' || run; UPDATE run SET id = '../../canary' || id",
        "UPDATE run SET state = 'ready'",
        "UPDATE config SET json = '{\"a\": ' || replace(hex(zeroblob(100000)), '0', '[') || '}'",
        "UPDATE config SET json = replace(hex(zeroblob(520000)), '0', 'a')",
        "UPDATE run SET started = '<script>' || char(27) || '</script>'",
        "UPDATE run SET code = CAST(x'c0af' AS TEXT)",
        "UPDATE run SET wall = 'long'",
        "UPDATE run SET threads = -1",
        "UPDATE run SET seed = 'x'",
        "UPDATE result SET name = 'test_mse' || char(10) || 'x' WHERE name = 'test_mse'",
        "UPDATE result SET value = x'00'",
        "UPDATE epoch SET epoch = -epoch",
        "UPDATE epoch SET epoch = epoch + 9223372036854775000",
        "UPDATE epoch SET improved = 7",
        "UPDATE epoch SET valid = 'best'",
        "UPDATE gauge SET step = -step",
        "UPDATE gauge SET map = map || replace(hex(zeroblob(50)), '0', 'm')",
        "UPDATE gauge SET block = block || char(13)",
        "UPDATE gauge SET shadow = 4294967296 + shadow",
    };
    for (size_t i = 0; i < sizeof of_runs / sizeof *of_runs; i++) {
        char what[80];
        fresh_store();
        TAMPER("PRAGMA ignore_check_constraints = 1", of_runs[i]);
        snprintf(what, sizeof what, "%.60s", of_runs[i]);
        sh("cd $D && $P report --store x.db -o out");
        no_canary(what);
        test_true("  refused, with a reason",
                  last.code == 2 &&
                      (strstr(last.err, "damaged") || strstr(last.err, "configuration of a run")),
                  "exit %d: %.160s", last.code, first_line(last.err));
        sh("cd $D && $P audit good --store x.db");
        no_canary("  audit");
        sh("cd $D && $P audit good --store x.db --run 0");
        no_canary("  audit --run");
    }
}

/* A number in place of thousands: what is asked for is bounded before it is taken. */
static void sizes(void)
{
    fresh_store();
    TAMPER("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3000) INSERT INTO "
           "member(spec, cell, arm, seed, ord, run) SELECT 'so3_capacity', 'c' || i, 'a' || i, i, i, (SELECT "
           "min(id) FROM run) FROM n");
#ifdef __SANITIZE_ADDRESS__ /* its shadow alone is larger */
    sh("cd $D && $P report --store x.db -o out");
#else
    sh("cd $D && ulimit -v 4000000; $P report --store x.db -o out");
#endif
    no_canary("3000 cells x 3000 seeds x 3000 arms");
    test_true("  left out, with a reason", last.code == 0 && strstr(last.err, "too many to compare"),
              "exit %d: %.160s", last.code, first_line(last.err));
    fresh_store();
    TAMPER("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 500) INSERT INTO "
           "member(spec, cell, arm, seed, ord, run) SELECT 'good', 'c' || i, 'muon', i, i, (SELECT min(id) "
           "FROM run) FROM n");
    accepted("cd $D && $P report good --store x.db -o out", "0 figures");
    test_true("500 cells: tables, no figures", files_with("No figures: more than 64 cells") == 1,
              "the page says why");
}

/* Values that no axis can hold: the figures are left out, not the report. */
static void values(void)
{
    fresh_store();
    TAMPER("UPDATE result SET value = 1.7e308 WHERE name = 'test_mse'", "UPDATE epoch SET valid = 1.7e308",
           "UPDATE run SET wall = 1e308");
    sh("cd $D && $P report --store x.db -o out");
    test_true("values at the end of the numbers", last.code == 0 && exists("out/index.html"), "exit %d: %s",
              last.code, first_line(last.err));
    fresh_store();
    TAMPER("UPDATE result SET value = 9e999", "UPDATE epoch SET valid = -9e999, train_loss = NULL",
           "UPDATE run SET wall = -1e308");
    sh("cd $D && $P report --store x.db -o out");
    test_true("infinities", last.code == 0 && exists("out/index.html"), "exit %d: %s", last.code,
              first_line(last.err));
}

/* ---- pages and tables --------------------------------------------------------------------------- */

static void markup(void)
{
    fresh_store();
    TAMPER("UPDATE spec SET title = '</title><script>alert(1)</script>', sha = '<script>\"''', text = "
           "'</pre><script>alert(2)</script>' || char(27) || '[2J'",
           "UPDATE member SET arm = '<script>x</script>' WHERE arm = 'muon'",
           "UPDATE member SET cell = '\" onload=\"alert(1)'",
           "UPDATE run SET started = '<script>s', finished = '<script>f', code = '<script>c', device = "
           "'<script>d', cpu = '<script>p'",
           "UPDATE config SET json = '{\"<script>k\": \"<script>v\\u001b\"}'",
           "UPDATE gauge SET map = '<script>m' WHERE map = 'exact'", "UPDATE gauge SET block = '<script>b'");
    accepted("cd $D && $P report --store x.db -o out", "2 specs");
    no_canary("markup in every text");
    sh("grep -ciE '<script|<[^>]* onload=\"' $D/out/index.html");
    test_true("the page: no script", atoi(last.out) == 0, "%d line(s)", atoi(last.out));
    sh("grep -cP '\\x1b' $D/out/index.html");
    test_true("the page: no control bytes", atoi(last.out) == 0, "%d line(s)", atoi(last.out));
    fresh_store();
    TAMPER("UPDATE member SET arm = '=cmd|''/C calc''!A0' WHERE arm = 'muon'",
           "UPDATE member SET cell = '\\input{/etc/passwd} ^^5c $x$ %'");
    accepted("cd $D && $P report --store x.db -o out", "2 specs");
    sh("grep -hE '(^|,)\"?=cmd' $D/out/tables/*.csv | wc -l");
    test_true("CSV: no cell begins a formula", atoi(last.out) == 0 && files_with("'=cmd|'/C calc'!A0") > 0,
              "%d line(s)", atoi(last.out));
    sh("grep -hE '[\\\\]input|[^\\\\]%$|\\^\\^' $D/out/tables/*.tex | grep -v '^%' | wc -l");
    test_true("TeX: no command of theirs", atoi(last.out) == 0, "%d line(s)", atoi(last.out));
}

/* ---- specs -------------------------------------------------------------------------------------- */

#define HEAD "name: x\ntestbed: so3\nseeds: 0..1\n"

static void write_spec(const char *text)
{
    FILE *f = fopen(in_folder("s.yaml"), "wb");
    if (!f) exit(1);
    fputs(text, f);
    fclose(f);
}

static void specs(void)
{
    static const char *const texts[] = {
        "name: ../../canary\ntestbed: so3\nseeds: 0\narms: [muon]\n",
        "name: `touch canary`\ntestbed: so3\nseeds: 0\narms: [muon]\n",
        "name: \"x\\u001b[2J\"\ntestbed: so3\nseeds: 0\narms: [muon]\n",
        HEAD "title: \"\\u001b]0;x\\u0007\"\narms: [muon]\n",
        HEAD "title: \"\\u009b31m\"\narms: [muon]\n",
        HEAD "title: \"\\u202egpj.exe\"\narms: [muon]\n",
        HEAD "title: \"a\\0b\"\narms: [muon]\n",
        HEAD "arms: {\"`touch canary`\": {optim.rule: muon}}\n",
        HEAD "arms: {\"a\\u001b\": {optim.rule: muon}}\n",
        HEAD "arms: [muon, muon]\n",
        HEAD "arms: [muon]\nseeds: 0..99999999999\n",
        HEAD "arms: [muon]\nset: {model.width: 99999999999999999999}\n",
        HEAD "arms: [muon]\nset: {model.width: -1}\n",
        HEAD "arms: [muon]\nset: {optim.lr: 1e999}\n",
        HEAD "arms: [muon]\nset: {optim.lr: nan}\n",
        HEAD "arms: [muon]\nset: {\"\\u001b[31m\": 1}\n",
        HEAD "arms: [muon]\nmetric: ../x\n",
        HEAD "arms: [muon]\nmetric: test_msee\n",
        HEAD "arms: &a [muon]\ngrid: {model.width: *a}\n",
        "a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\n",
        HEAD "arms: [[[[[[[[[[[[[[[[muon]]]]]]]]]]]]]]]]\n",
        HEAD "arms: !!python/object/apply:os.system [touch canary]\n",
        "\xff\xfe\x00x",
        "name: \x1b[2J\n",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        char what[64];
        sh("rm -rf $D/*");
        write_spec(texts[i]);
        snprintf(what, sizeof what, "spec %zu", i + 1);
        sh("cd $D && $P plan s.yaml");
        no_canary(what);
        test_true("  plan: refused in one line",
                  last.code == 2 && last.err_lines == 1 && strstr(last.err, "s.yaml"), "exit %d: %.160s",
                  last.code, first_line(last.err));
        sh("cd $D && $P run s.yaml --store x.db");
        no_canary(what);
        test_true("  run: refused, no store made", last.code == 2 && !exists("x.db"), "exit %d: %.160s",
                  last.code, first_line(last.err));
    }
    sh("rm -rf $D/*; { printf 'name: '; head -c 1000000 /dev/zero | tr '\\0' a; } > $D/s.yaml");
    refused("cd $D && $P plan s.yaml", 2, "at most 256 KiB");
    sh("rm -rf $D/*; { printf 'name: '; head -c 200000 /dev/zero | tr '\\0' a; printf '\\ntestbed: "
       "so3\\nseeds: 0\\narms: [muon]\\n'; } > $D/s.yaml");
    refused("cd $D && $P plan s.yaml", 2, "name wants a word");
}

/* Words of the command line come back in sentences. */
static void words(void)
{
    static const char *const commands[] = {
        "$P plan \"$E\"",
        "$P run \"$E.yaml\"",
        "$P audit \"$E\" --store $D/x.db",
        "$P report \"$E\" --store $D/x.db -o $D/out",
        "$P report --store \"$D/$E\"",
        "$P \"$E\"",
        "$P map \"$E\"",
        "$P report --\"$E\"=1",
        "$P plan specs/demo/so3_tiny.yaml --set \"$E=1\"",
        "$P plan specs/demo/so3_tiny.yaml --set \"model.width=$E\"",
        "$P info --device \"$E\"",
        "$P audit good --store $D/x.db --metric \"$E\"",
        "$P audit good --store $D/x.db --run \"$E\"",
    };
    fresh_store();
    setenv("E",
           "x\033[2J\x9b\xc2\x9b"
           "31m\a",
           1);
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        sh(commands[i]);
        no_canary(commands[i]);
        test_true("  refused in one line", last.code == 2 && last.err_lines == 1, "exit %d: %.160s",
                  last.code, first_line(last.err));
    }
}

/* Names in a safetensors file, written by hand: the header's length, the header, the data. */
static void tensors(void)
{
    static const char header[] =
        "{\"a\\u001b[2J\\u009b\":{\"dtype\":\"F32\",\"shape\":[1,1],\"data_offsets\":[0,4]},\"../../"
        "canary\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[4,20]}}";
    uint64_t n = sizeof header - 1;
    float data[5] = {1, 1, 0, 0, 1};
    sh("rm -rf $D/*");
    FILE *f = fopen(in_folder("t.safetensors"), "wb");
    if (!f) exit(1);
    fwrite(&n, 8, 1, f);
    fwrite(header, 1, (size_t)n, f);
    fwrite(data, sizeof data, 1, f);
    fclose(f);
    sh("cd $D && $P map t.safetensors out.safetensors --device ref");
    no_canary("map: names of tensors");
    test_true("  they are shown", last.code == 0, "exit %d: %.160s", last.code, first_line(last.err));
}

int main(int argc, char **argv)
{
    if (!cli_begin(argc, argv)) return 1;
    if (chdir(SOURCE_DIR) != 0) return 1;
    if (!has_gnuplot())
        printf("    no gnuplot here: figures are not drawn, so what reaches them is not tested\n");
    versions();
    schemas();
    rows();
    runs();
    sizes();
    values();
    markup();
    specs();
    words();
    tensors();
    commands_in_figures();
    return cli_end();
}
