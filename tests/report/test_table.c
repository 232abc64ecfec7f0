/* test_table.c -- the JSON writer against the JSON reader, and a table in its four formats against what it
 * must print, byte for byte. */
#include "base/alloc.h"
#include "base/json_read.h"
#include "base/json_write.h"
#include "base/philox.h"
#include "report/table/table.h"
#include "test.h"

/* A stream into memory; text_of ends it and gives the text, which the caller frees. */
typedef struct {
    FILE *f;
    char *text;
    size_t size;
} memory;

static memory *memory_begin(memory *m)
{
    *m = (memory){0};
    m->f = open_memstream(&m->text, &m->size);
    return m;
}

static char *text_of(memory *m)
{
    fclose(m->f);
    return m->text;
}

static void same_text(const char *what, memory *m, const char *want)
{
    char *got = text_of(m);
    int same = !strcmp(got, want);
    test_true(what, same, "%zu bytes", strlen(got));
    if (!same) printf("got:\n%s\nwant:\n%s\n", got, want);
    free(got);
}

/* ---- JSON ---- */

static void json_layout(void)
{
    memory m;
    pl_json_writer w = pl_json_writer_begin(memory_begin(&m)->f, 1);
    pl_json_object(&w);
    pl_json_key(&w, "a");
    pl_json_array(&w);
    pl_json_integer(&w, INT64_MIN);
    pl_json_bool(&w, 1);
    pl_json_null(&w);
    pl_json_array_end(&w);
    pl_json_key(&w, "empty");
    pl_json_object(&w);
    pl_json_object_end(&w);
    pl_json_put(&w, "x", 0.1);
    pl_json_put(&w, "nan", NAN);
    pl_json_put(&w, "inf", -INFINITY);
    pl_json_key(&w, "none");
    pl_json_string(&w, NULL);
    pl_json_object_end(&w);
    TEST_TRY(pl_json_writer_end(&w));
    same_text("json: layout", &m,
              "{\n  \"a\": [-9223372036854775808, true, null],\n  \"empty\": {},\n  \"x\": 0.1,\n  \"nan\": "
              "null,\n  \"inf\": null,\n  \"none\": null\n}\n");
}

/* Strings go out and come back; a byte that is no UTF-8 comes back as U+FFFD. */
static void json_strings(void)
{
    static const char *const cases[][2] = {
        {"plain", "plain"},
        {"", ""},
        {"a\"b\\c/d", "a\"b\\c/d"},
        {"tab\tline\nbell\a\x7f", "tab\tline\nbell\a\x7f"},
        {"\xc3\xa9 \xe2\x82\xac", "\xc3\xa9 \xe2\x82\xac"},
        {"bad\xff", "bad\xef\xbf\xbd"},
    };
    int64_t wrong = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        memory m;
        pl_json_writer w = pl_json_writer_begin(memory_begin(&m)->f, 0);
        pl_json_string(&w, cases[i][0]);
        TEST_TRY(pl_json_writer_end(&w));
        char *text = text_of(&m), back[128];
        pl_json p = pl_json_view(text, (int64_t)strlen(text), "the test");
        TEST_TRY(pl_json_need(&p, PL_JSON_STRING));
        pl_json_decode(back, &p);
        wrong += strcmp(back, cases[i][1]) != 0;
        free(text);
    }
    test_exact("json: strings come back", wrong);
}

/* Random bits as doubles, and the usual suspects: each must read back to the same bits. */
static void json_numbers(void)
{
    static const double special[] = {0,
                                     -0.0,
                                     1,
                                     -1,
                                     0.1,
                                     1e-300,
                                     5e-324,
                                     2.2250738585072014e-308,
                                     1.7976931348623157e308,
                                     1e22,
                                     123456789012345678.0,
                                     1.0 / 3};
    int64_t wrong = 0, n = 0;
    for (int64_t i = 0; i < 20000; i++) {
        pl_u4 r = pl_philox(1, PL_STREAM_TEST, 0, (uint64_t)i);
        uint64_t bits = (uint64_t)r.x << 32 | r.y;
        double x, back;
        char text[PL_DOUBLE_CHARS];
        memcpy(&x, &bits, sizeof x);
        if (i < (int64_t)(sizeof special / sizeof *special)) x = special[i];
        if (!isfinite(x)) continue;
        pl_double_print(text, x);
        pl_json p = pl_json_view(text, (int64_t)strlen(text), "the test");
        if (pl_json_next(&p) != POLAR_OK) wrong++;
        back = strtod(text, NULL);
        wrong += memcmp(&x, &back, sizeof x) != 0;
        n++;
    }
    test_true("json: numbers come back", !wrong && n > 19000, "%lld numbers, %lld wrong", (long long)n,
              (long long)wrong);
    char text[PL_DOUBLE_CHARS];
    test_true("json: the shortest text",
              !strcmp(pl_double_print(text, 0.1), "0.1") && !strcmp(pl_double_print(text, 5.4e-2), "0.054"),
              "%s", text);
}

/* ---- tables ---- */

static const pl_table_column columns[] = {
    {"name", "name", NULL, PL_CELL_TEXT, 0},      {"n", "n", NULL, PL_CELL_INTEGER, 0},
    {"err", "error", "measured", PL_CELL_SCI, 1}, {"rho", "rho", "measured", PL_CELL_FIXED, 2},
    {"paper", "rho", "paper", PL_CELL_FIXED, 2},
};

static polar_status small_table(FILE *f, pl_table_format format)
{
    pl_table *t;
    PL_TRY(pl_table_create(&t, "A title", columns, 5));
    pl_table_row(t);
    pl_table_text(t, "a_1, \"q\" & \xc3\xa9");
    pl_table_integer(t, 50);
    pl_table_number(t, 0.0541);
    pl_table_number(t, 0.861);
    pl_table_number(t, 0.86);
    pl_table_row(t);
    pl_table_text(t, "b");
    pl_table_none(t);
    pl_table_number(t, NAN);
    pl_table_number(t, -12.5);
    polar_status st = pl_table_print(t, f, format);
    pl_table_destroy(t);
    return st;
}

static void tables(void)
{
    static const struct {
        const char *what;
        pl_table_format format;
        const char *want;
    } cases[] = {
        {"table: text", PL_TABLE_TEXT,
         "A title\n"
         "                  -- measured ---  paper\n"
         "name           n    error     rho    rho\n"
         "a_1, \"q\" & \xc3\xa9  50  5.4e-02    0.86   0.86\n"
         "b              -      nan  -12.50      -\n"},
        {"table: csv", PL_TABLE_CSV,
         "name,n,err,rho,paper\n\"a_1, \"\"q\"\" & \xc3\xa9\",50,0.0541,0.861,0.86\nb,,nan,-12.5,\n"},
        {"table: json", PL_TABLE_JSON,
         "[\n  {\"name\": \"a_1, \\\"q\\\" & \xc3\xa9\", \"n\": 50, \"err\": 0.0541, \"rho\": 0.861, "
         "\"paper\": 0.86},\n"
         "  {\"name\": \"b\", \"n\": null, \"err\": null, \"rho\": -12.5, \"paper\": null}\n]\n"},
        {"table: tex", PL_TABLE_TEX,
         "% A title\n\\begin{tabular}{lrrrr}\n\\toprule\n &  & \\multicolumn{2}{c}{measured} & "
         "\\multicolumn{1}{c}{paper} \\\\\nname & n & error & rho & rho \\\\\n\\midrule\n"
         "a\\_1, \"q\" \\& \xc3\xa9 & 50 & 5.4e-02 & 0.86 & 0.86 \\\\\nb &  & nan & -12.50 &  "
         "\\\\\n\\bottomrule\n\\end{tabular}\n"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        memory m;
        TEST_TRY(small_table(memory_begin(&m)->f, cases[i].format));
        same_text(cases[i].what, &m, cases[i].want);
    }
}

/* A newline, a tab, the begin of a terminal's command and a delete in a name (folders may be called so) break
 * no row, and columns stay where they are. */
static void control_bytes(void)
{
    static const char *const want[] = {
        [PL_TABLE_TEXT] =
            "a\\nb\nname                  n\nx\\ny\\tz\\x1b[2J\\x7f\\r  1\nxyz                   2\n",
        [PL_TABLE_CSV] = "name,n\n\"x\ny\tz\\x1b[2J\\x7f\\r\",1\nxyz,2\n",
        [PL_TABLE_JSON] = NULL,
        [PL_TABLE_TEX] = "% a\\nb\n\\begin{tabular}{lr}\n\\toprule\nname & n "
                         "\\\\\n\\midrule\nx\\textbackslash{}ny\\textbackslash{}tz\\textbackslash{}x1b["
                         "2J\\textbackslash{}x7f\\textbackslash{}r & 1 \\\\\n"
                         "xyz & 2 \\\\\n\\bottomrule\n\\end{tabular}\n"};
    for (pl_table_format k = PL_TABLE_TEXT; k <= PL_TABLE_TEX; k++) {
        if (!want[k]) continue; /* strings of JSON: above */
        pl_table *t;
        memory m;
        TEST_TRY(pl_table_create(&t, "a\nb", columns, 2));
        pl_table_row(t), pl_table_text(t, "x\ny\tz\x1b[2J\x7f\r"), pl_table_integer(t, 1);
        pl_table_row(t), pl_table_text(t, "xyz"), pl_table_integer(t, 2);
        TEST_TRY(pl_table_print(t, memory_begin(&m)->f, k));
        same_text("table: control bytes", &m, want[k]);
        pl_table_destroy(t);
    }
}

/* Every allocation fails once; the table says so and leaks nothing. */
static void table_memory(void)
{
    FILE *f = fopen("/dev/null", "w");
    int64_t before = pl_alloc_live(), n = 0, wrong = 0;
    polar_status st = POLAR_E_NOMEM;
    while (st != POLAR_OK && n < 100) {
        pl_alloc_fail_at(++n);
        st = small_table(f, PL_TABLE_TEXT);
        pl_alloc_fail_at(0);
        wrong += (st != POLAR_OK && st != POLAR_E_NOMEM) || pl_alloc_live() != before;
    }
    fclose(f);
    test_true("table: the n-th allocation fails", !wrong && st == POLAR_OK && n > 3, "%lld allocations",
              (long long)n);
}

/* A stream that cannot be written to is an error, not silence. */
static void table_full_disk(void)
{
    FILE *f = fopen("/dev/full", "w");
    if (!f) return; /* not on this system */
    setvbuf(f, NULL, _IONBF, 0);
    test_true("table: a full disk",
              small_table(f, PL_TABLE_CSV) == POLAR_E_IO && small_table(f, PL_TABLE_JSON) == POLAR_E_IO, "%s",
              polar_error_message());
    fclose(f);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    json_layout();
    json_strings();
    json_numbers();
    tables();
    control_bytes();
    table_memory();
    table_full_disk();
    return test_end();
}
