/* test_csv.c -- files of comma-separated values: what is taken, what is refused and with which line, and that
 * no bytes make the reader go astray. */
#include "test.h"

#include <unistd.h>

#include "base/alloc.h"
#include "base/csv_read.h"
#include "base/json_read.h"
#include "base/json_write.h"

static char path[64];

static void write_file(const char *bytes, size_t n)
{
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(bytes, 1, n, f) != n) exit(1);
    fclose(f);
}

/* The records as "a|b\n", until the end or the first error. */
static polar_status walk(char *out, size_t room)
{
    pl_csv *c;
    int more = 1;
    int64_t line = 0;
    *out = 0;
    PL_TRY(pl_csv_open(&c, path));
    polar_status st = POLAR_OK;
    while ((st = pl_csv_next(c, &more)) == POLAR_OK && more) {
        if (c->count < 1 || c->count > PL_CSV_MAX_FIELDS || c->line <= line) st = POLAR_E_STATE;
        line = c->line;
        for (int i = 0; i < c->count; i++) {
            size_t used = strlen(out);
            snprintf(out + used, room - used, "%s%s", c->fields[i], i + 1 < c->count ? "|" : "\n");
        }
    }
    pl_csv_close(c);
    return st;
}

static void test_accepts(void)
{
    static const struct {
        const char *text, *records;
    } good[] = {{"", ""},
                {"a\n", "a\n"},
                {"\n", "\n"},
                {"a,b\r\nc,d\r\n", "a|b\nc|d\n"},
                {"a,b\nc,d\r\n", "a|b\nc|d\n"},
                {",,\n", "||\n"},
                {"\"\",\"\"\n", "|\n"},
                {"\"a,b\",\"c\"\"d\",\"\"\"\"\n", "a,b|c\"d|\"\n"},
                {"\"two\nlines\",x\ny,z\n", "two\nlines|x\ny|z\n"},
                {"\xef\xbb\xbf\"id\"\n1\n", "id\n1\n"},
                {" a , 'b'\n", " a | 'b'\n"},
                {"\xc3\xa9,\xe2\x82\xac\n", "\xc3\xa9|\xe2\x82\xac\n"}};
    char out[400];
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        write_file(good[i].text, strlen(good[i].text));
        polar_status st = walk(out, sizeof out);
        test_true(pl_text_shown(good[i].text).text, st == POLAR_OK && !strcmp(out, good[i].records), "'%s'",
                  pl_text_shown(out).text);
    }
}

static void refuse(const char *bytes, size_t n, const char *says)
{
    char out[4000];
    write_file(bytes, n);
    polar_status st = walk(out, sizeof out);
    test_true(says, st == POLAR_E_FORMAT && strstr(polar_error_message(), says), "%s",
              st == POLAR_OK ? "accepted" : polar_error_message());
}

static void test_refuses(void)
{
    refuse("a,b\nc,d", 7, ":2: the last line has no end");
    refuse("a\nb\n\"c", 6, ":3: a quote has no end");
    refuse("\"a\n\nb\n", 6, ":4: a quote has no end");
    refuse("a\n\"b\"c\n", 7, ":2: more text after a quoted field");
    refuse("a\nb\"c\n", 6, ":2: a quote within a field");
    refuse("a\rb\n", 4, ":1: a carriage return within a line");
    refuse("a\nb\0c\n", 6, ":2: a zero byte");
    refuse("a\nb\n\xff\n", 6, ":3: not UTF-8");
    refuse("\"a\"", 3, ":1: the last line has no end");
    char wide[2 * PL_CSV_MAX_FIELDS + 2];
    memset(wide, ',', sizeof wide);
    wide[sizeof wide - 1] = '\n';
    refuse(wide, sizeof wide, ":1: too many columns");
    unlink(path);
    pl_csv *c;
    test_true("no file", pl_csv_open(&c, path) == POLAR_E_ARG && !c, "%s", polar_error_message());
    test_true("a folder", pl_csv_open(&c, "/") == POLAR_E_ARG && !c, "%s", polar_error_message());
    test_true("no end of bytes", pl_csv_open(&c, "/dev/zero") == POLAR_E_FORMAT && !c, "%s",
              polar_error_message());
}

static void test_numbers(void)
{
    static const char *const bad[] = {"",    " 1",     "1 ",  "0x1p3", "1e999", "-1e999",
                                      "NaN", "nan(1)", "1,5", "inf2",  "+inf",  "1e",
                                      "--1", "1.2.3",  "e5",  ".",     "-"};
    static const double good[] = {0, -0.0, 1, -1.5, 0x1p-1074, 0x1.fffffffffffffp1023, 0x1.23456789abcdep-9};
    static const char *const no_integer[] = {"",    "-", "+1", " 1", "1.0", "1e3", "9223372036854775808",
                                             "0x10"};
    char text[PL_DOUBLE_CHARS];
    int64_t taken = 0, wrong = 0, n;
    double x;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) taken += pl_csv_real(&x, bad[i]);
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        wrong += !pl_csv_real(&x, pl_double_print(text, good[i])) || memcmp(&x, &good[i], 8) != 0;
    wrong += !pl_csv_real(&x, "nan") || x == x;
    wrong += !pl_csv_real(&x, "-inf") || x > -1e308;
    for (size_t i = 0; i < sizeof no_integer / sizeof *no_integer; i++)
        taken += pl_csv_integer(&n, no_integer[i]);
    wrong += !pl_csv_integer(&n, "-9223372036854775808") || n != INT64_MIN;
    test_exact("texts that are no numbers", taken);
    test_exact("numbers as polar writes them", wrong);
}

/* Bytes of a table changed, cut and doubled at random: a sentence, or records. */
static void test_fuzz(void)
{
    static const char seed[] =
        "cell,arm,\"se\"\"ed\",id\r\n\"a,b\",muon,1,00ff\n\"x\ny\",,nan,\"\"\n1,2,3,4\n";
    static const char marks[] = "\",\r\n\0a\xff\xc3";
    uint64_t x = 88172645463325252ull;
    int64_t wrong = 0, refused = 0, live = pl_alloc_live();
    char text[sizeof seed + 8], out[4000];
    for (int round = 0; round < 1000; round++) {
        size_t n = sizeof seed - 1;
        memcpy(text, seed, n);
        for (int k = 0; k < 3; k++) {
            x ^= x << 13, x ^= x >> 7, x ^= x << 17;
            text[x % n] = marks[(x >> 20) % (sizeof marks - 1)];
            if ((x >> 40) % 8 == 0) n = 1 + (x >> 44) % n;
        }
        write_file(text, n);
        polar_status st = walk(out, sizeof out);
        wrong += st != POLAR_OK && (st != POLAR_E_FORMAT || !strstr(polar_error_message(), ":"));
        refused += st != POLAR_OK;
    }
    test_true("1000 changed tables", wrong == 0 && refused > 100 && refused < 1000, "%lld refused",
              (long long)refused);
    test_exact("  blocks that were not freed", pl_alloc_live() - live);
}

static void test_memory(void)
{
    char *text = malloc(200000), out[64] = "";
    if (!text) exit(1);
    memset(text, 'a', 200000); /* of several reads */
    text[199999] = '\n';
    write_file(text, 200000);
    free(text);
    polar_status st = POLAR_E_NOMEM;
    int64_t n = 0, live = pl_alloc_live(), wrong = 0;
    for (; st != POLAR_OK && n < 100; n++) {
        pl_alloc_fail_at(n + 1);
        st = walk(out, sizeof out);
        pl_alloc_fail_at(0);
        wrong += (st != POLAR_OK && st != POLAR_E_NOMEM) || pl_alloc_live() != live;
    }
    test_true("without memory it fails, then works", !wrong && n > 3 && n < 100, "%lld tries", (long long)n);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    snprintf(path, sizeof path, "%s/polar_test_csv.XXXXXX", access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
    int fd = mkstemp(path);
    if (fd < 0) return 1;
    close(fd);
    test_accepts();
    test_refuses();
    test_numbers();
    test_fuzz();
    test_memory();
    unlink(path);
    return test_end();
}
