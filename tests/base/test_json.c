/* test_json.c -- the JSON pull-parser: what it takes, what it refuses, and that no text makes it read past
 * the end. ctest -R test_json
 */
#include "test.h"

#include "base/alloc.h"
#include "base/json_read.h"

/* Texts are copied to blocks of exactly their size, with plain malloc, so that the address sanitizer sees one
 * byte too far. */
static char *exact_copy(const char *s, size_t n)
{
    char *p = malloc(n ? n : 1);
    if (!p) exit(1);
    memcpy(p, s, n);
    return p;
}

/* Walks all tokens; counts them, and decoded strings that are not UTF-8 or longer than they may be. */
static polar_status walk(const char *text, size_t size, int64_t *tokens, int64_t *wrong)
{
    polar_status st;
    char *exact = exact_copy(text, size);
    pl_json p = pl_json_view(exact, (int64_t)size, "'text'");
    for (*tokens = 0; (st = pl_json_next(&p)) == POLAR_OK && p.token != PL_JSON_END; ++*tokens) {
        if (p.depth < 0 || p.depth > PL_JSON_MAX_DEPTH) ++*wrong;
        if (p.token != PL_JSON_KEY && p.token != PL_JSON_STRING) continue;
        char *out = malloc((size_t)p.raw_size + 1);
        if (!out) exit(1);
        int64_t n = pl_json_decode(out, &p);
        *wrong += n > p.raw_size || out[n] || !pl_utf8_valid(out, n) ||
                  (strlen(out) == (size_t)n && !pl_json_is(&p, out));
        free(out);
    }
    if (st == POLAR_OK && p.depth != 0) ++*wrong;
    if (st != POLAR_OK && pl_json_next(&p) == POLAR_OK) ++*wrong; /* a failure stays */
    free(exact);
    return st;
}

static void test_accepts(void)
{
    static const struct {
        const char *text;
        int tokens;
    } good[] = {{"null", 1},
                {"true", 1},
                {" false\n", 1},
                {"0", 1},
                {"-0", 1},
                {"-1.5e+3", 1},
                {"1E-2", 1},
                {"\"\"", 1},
                {"[]", 2},
                {"{}", 2},
                {"[ ]", 2},
                {"[1,[2,[3]]]", 9},
                {"{\"a\":{\"b\":[null,true]},\"c\":\"\"}", 12},
                {"\t{ \"a\" :\r\n1 , \"a\":2 }", 6},
                {"\"\\u0000\"", 1},
                {"\"\xf0\x9f\x98\x80\"", 1}};
    int64_t tokens, wrong = 0;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        if (walk(good[i].text, strlen(good[i].text), &tokens, &wrong) != POLAR_OK || tokens != good[i].tokens)
            printf("refused or miscounted: %s: %s\n", good[i].text, (wrong++, polar_error_message()));
    test_exact("valid texts", wrong);
}

static void test_refuses(void)
{
    static const char *const bad[] = {"",
                                      " ",
                                      "nul",
                                      "tru",
                                      "True",
                                      "NaN",
                                      "Infinity",
                                      "-Infinity",
                                      "-",
                                      "01",
                                      "-01",
                                      "1.",
                                      ".5",
                                      "+1",
                                      "1e",
                                      "1e+",
                                      "0x10",
                                      "1 2",
                                      "1,",
                                      "1e999",
                                      "'a'",
                                      "[",
                                      "]",
                                      "{",
                                      "}",
                                      "[1,]",
                                      "[,1]",
                                      "[1 2]",
                                      "[1;2]",
                                      "{\"a\"=1}",
                                      "[1}",
                                      "{]",
                                      "{\"a\":1,}",
                                      "{,}",
                                      "{a:1}",
                                      "{\"a\" 1}",
                                      "{\"a\"}",
                                      "{\"a\":}",
                                      "{1:2}",
                                      "{\"a\":1 \"b\":2}",
                                      "// c\n1",
                                      "[1]]",
                                      "{}{}",
                                      "\"",
                                      "\"a",
                                      "\"\\\"",
                                      "\"\\x\"",
                                      "\"\\u12\"",
                                      "\"\\u12g4\"",
                                      "\"\\ud800\"",
                                      "\"\\udc00\"",
                                      "\"\\ud800\\u0041\"",
                                      "\"\\ud800\\ud800\"",
                                      "\"\\ud83d",
                                      "\"a\nb\"",
                                      "\"\x01\"",
                                      "\"\xff\"",
                                      "\"\x80\"",
                                      "\"\xc3\"",
                                      "\"\xc3(\"",
                                      "\"\xe2\x82(\"",
                                      "\"\xc0\x80\"",
                                      "\"\xe0\x80\x80\"",
                                      "\"\xed\xa0\x80\"",
                                      "\"\xf0\x80\x80\x80\"",
                                      "\"\xf4\x90\x80\x80\"",
                                      "\"\xf5\x80\x80\x80\"",
                                      "\xef\xbb\xbf{}"};
    int64_t tokens, wrong = 0;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (walk(bad[i], strlen(bad[i]), &tokens, &wrong) != POLAR_E_FORMAT)
            printf("taken: %s\n", (wrong++, bad[i]));
    if (walk("[1,\0]", 5, &tokens, &wrong) != POLAR_E_FORMAT) wrong++;
    test_exact("malformed texts", wrong);
}

static void test_numbers(void)
{
    static const struct {
        const char *text;
        pl_json_token token;
        int64_t integer;
        double number;
    } n[] = {{"9223372036854775807", PL_JSON_INTEGER, INT64_MAX, 9223372036854775807.0},
             {"-9223372036854775808", PL_JSON_INTEGER, INT64_MIN, -9223372036854775808.0},
             {"9223372036854775808", PL_JSON_NUMBER, 0, 9223372036854775808.0},
             {"-9223372036854775809", PL_JSON_NUMBER, 0, -9223372036854775808.0},
             {"9007199254740993", PL_JSON_INTEGER, 9007199254740993, 9007199254740992.0},
             {"0", PL_JSON_INTEGER, 0, 0},
             {"1.0", PL_JSON_NUMBER, 0, 1},
             {"0.1", PL_JSON_NUMBER, 0, 0.1},
             {"-2.5e-3", PL_JSON_NUMBER, 0, -2.5e-3},
             {"4.9e-324", PL_JSON_NUMBER, 0, 4.9e-324}};
    int64_t wrong = 0;
    for (size_t i = 0; i < sizeof n / sizeof *n; i++) {
        pl_json p = pl_json_view(n[i].text, (int64_t)strlen(n[i].text), "'number'");
        int ok = pl_json_next(&p) == POLAR_OK && p.token == n[i].token && p.number == n[i].number;
        if (!ok || (p.token == PL_JSON_INTEGER && p.integer != n[i].integer))
            printf("misread: %s\n", (wrong++, n[i].text));
    }
    pl_json p = pl_json_view("-0", 2, "'number'");
    if (pl_json_next(&p) != POLAR_OK || p.token != PL_JSON_NUMBER || !signbit(p.number)) wrong++;
    test_exact("numbers, int64 exact", wrong);
    char digits[128];
    int64_t tokens;
    memset(digits, '1', sizeof digits);
    digits[1] = '.', wrong = 0;
    if (walk(digits, 127, &tokens, &wrong) != POLAR_OK ||
        walk(digits, 128, &tokens, &wrong) != POLAR_E_FORMAT)
        wrong++;
    test_exact("127 characters make a number, 128 none", wrong);
}

static void test_strings(void)
{
    const char *text = "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u0041\\u00e9\\u20AC\\ud83d\\ude00\xe2\x82\xac\"";
    const char *want = "\"\\/\b\f\n\r\tA\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\xe2\x82\xac";
    char out[128];
    pl_json p = pl_json_view(text, (int64_t)strlen(text), "'string'");
    TEST_TRY(pl_json_next(&p));
    int64_t n = pl_json_decode(out, &p);
    test_exact("escapes and surrogates decode", n != (int64_t)strlen(want) || strcmp(out, want) ||
                                                    !pl_json_is(&p, want) || pl_json_is(&p, "\"\\/") ||
                                                    pl_json_is(&p, ""));
    char longer[200];
    memset(longer, 'x', sizeof longer);
    longer[10] = '\033', longer[199] = 0;
    pl_shown shown = pl_text_shown(longer);
    test_true("outside text is made fit for a sentence",
              strlen(shown.text) == 87 && shown.text[10] == '?' && !strcmp(shown.text + 84, "..."), "%s",
              shown.text);
}

/* Nesting costs no stack: 64 levels pass, one more or a million are refused. */
static void test_depth(void)
{
    enum { MANY = 1000000 };
    char *text = malloc(MANY);
    int64_t tokens, wrong = 0;
    if (!text) exit(1);
    memset(text, '[', MANY);
    if (walk(text, MANY, &tokens, &wrong) != POLAR_E_FORMAT || tokens != PL_JSON_MAX_DEPTH) wrong++;
    memset(text + PL_JSON_MAX_DEPTH, ']', PL_JSON_MAX_DEPTH);
    if (walk(text, 2 * PL_JSON_MAX_DEPTH, &tokens, &wrong) != POLAR_OK || tokens != 2 * PL_JSON_MAX_DEPTH)
        wrong++;
    free(text);
    test_exact("depth limit", wrong);
}

static void test_skip(void)
{
    const char *text = "{\"a\":{\"x\":[1,{\"y\":[]}]},\"b\":[[],[]],\"c\":\"}\",\"n\":7}";
    pl_json p = pl_json_view(text, (int64_t)strlen(text), "'skip'");
    int64_t n = 0;
    TEST_TRY(pl_json_need(&p, PL_JSON_OBJECT));
    for (;;) {
        TEST_TRY(pl_json_next(&p));
        if (p.token == PL_JSON_OBJECT_END) break;
        if (!pl_json_is(&p, "n")) TEST_TRY(pl_json_skip(&p));
        else {
            TEST_TRY(pl_json_need(&p, PL_JSON_INTEGER));
            n = p.integer;
        }
    }
    TEST_TRY(pl_json_need(&p, PL_JSON_END));
    test_true("skip any value", n == 7, "n = %lld", (long long)n);
    p = pl_json_view("[1]", 3, "'skip'");
    polar_status st = pl_json_need(&p, PL_JSON_OBJECT);
    test_true("need says what was wanted",
              st == POLAR_E_FORMAT && strstr(polar_error_message(), "'skip': JSON byte 1: an object wanted"),
              "%s", polar_error_message());
}

static uint64_t draw(uint64_t *x)
{
    *x ^= *x << 13, *x ^= *x >> 7, *x ^= *x << 17; /* xorshift64 */
    return *x;
}

/* Every prefix is refused, and 50000 mutations neither crash nor decode to something that is not UTF-8. */
static void test_mutations(void)
{
    static const char text[] = "{\"dtype\":\"F32\",\"shape\":[1,-2.5e3,{\"\\ud83d\\ude00\\n\xc3\xa9\":null}],"
                               "\"data_offsets\":[0,24],\"m\":{\"k\":true}}";
    static const char salt[] = "{}[]\",:\\u0d8+-.eE1 \n\x80\xe2\xf0tn";
    enum { SIZE = sizeof text - 1, ROUNDS = 50000 };
    char copy[SIZE];
    uint64_t x = 20240607;
    int64_t tokens, wrong = 0, taken = 0;
    for (size_t n = 0; n < SIZE; n++)
        if (walk(text, n, &tokens, &wrong) != POLAR_E_FORMAT) wrong++;
    test_exact("every prefix is refused", wrong);
    for (int round = 0; round < ROUNDS; round++) {
        memcpy(copy, text, SIZE);
        for (uint64_t n = 1 + draw(&x) % 3; n > 0; n--) {
            size_t at = draw(&x) % SIZE;
            copy[at] =
                draw(&x) % 2 ? salt[draw(&x) % (sizeof salt - 1)] : (char)(copy[at] ^ 1 << draw(&x) % 8);
        }
        polar_status st = walk(copy, SIZE - (draw(&x) % 8 ? 0 : draw(&x) % SIZE), &tokens, &wrong);
        taken += st == POLAR_OK;
        wrong += st != POLAR_OK && st != POLAR_E_FORMAT;
    }
    test_exact("mutations", wrong);
    test_true("some of them are still JSON, most are not", taken > ROUNDS / 100 && taken < ROUNDS / 2,
              "%lld of %d", (long long)taken, ROUNDS);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    int64_t live = pl_alloc_live();
    test_accepts();
    test_refuses();
    test_numbers();
    test_strings();
    test_depth();
    test_skip();
    test_mutations();
    test_exact("blocks left behind", pl_alloc_live() - live);
    return test_end();
}
