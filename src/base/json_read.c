/* json_read.c -- the pull-parser of json_read.h.
 *
 * Invariants:
 *  1. text[pos] is read only after pos < size was seen: the text need not end in a zero.
 *  2. open[0 .. depth) holds '{' or '[' of the containers around pos; depth never passes PL_JSON_MAX_DEPTH.
 *  3. A raw string that left this file was walked by text_char: decoding it cannot fail.
 *     ctest -R test_json
 */
#include "base/json_read.h"

#include <locale.h>
#include <stdlib.h>
#include <string.h>

/* value | after a comma | item or close | comma, close or end | failed */
enum { WANT_VALUE, WANT_ITEM, WANT_FIRST, WANT_MORE, WANT_NOTHING };

static polar_status broken(pl_json *p, const char *what)
{
    p->want = WANT_NOTHING;
    return PL_FAIL(POLAR_E_FORMAT, "%s: JSON byte %lld: %s", p->where, (long long)p->pos, what);
}

static int peek(const pl_json *p)
{
    return p->pos < p->size ? (unsigned char)p->text[p->pos] : -1;
}

static void skip_space(pl_json *p)
{
    for (int c = peek(p); c == ' ' || c == '\n' || c == '\r' || c == '\t'; c = peek(p)) p->pos++;
}

/* ---- characters --------------------------------------------------------------------------------- */

/* Bytes of the UTF-8 character at s, 0 if it is cut, overlong, a surrogate or above U+10FFFF. */
static int utf8_bytes(const char *s, int64_t left)
{
    const unsigned char *u = (const unsigned char *)s;
    int n = u[0] < 0x80                   ? 1
            : u[0] >= 0xc2 && u[0] < 0xe0 ? 2
            : u[0] >= 0xe0 && u[0] < 0xf0 ? 3
            : u[0] >= 0xf0 && u[0] < 0xf5 ? 4
                                          : 0;
    if (n > left) return 0;
    for (int i = 1; i < n; i++)
        if ((u[i] & 0xc0) != 0x80) return 0;
    if ((u[0] == 0xe0 && u[1] < 0xa0) || (u[0] == 0xf0 && u[1] < 0x90)) return 0; /* overlong */
    /* surrogate, too large */
    if ((u[0] == 0xed && u[1] >= 0xa0) || (u[0] == 0xf4 && u[1] >= 0x90)) return 0;
    return n;
}

static int utf8_put(char out[4], long code)
{
    if (code < 0x80) return out[0] = (char)code, 1;
    int n = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (int i = n - 1; i > 0; i--, code >>= 6) out[i] = (char)(0x80 | (code & 0x3f));
    out[0] = (char)((0xf00 >> n) | code); /* 110..., 1110..., 11110... */
    return n;
}

/* The number after \u at s, or -1. */
static long hex4(const char *s, int64_t left)
{
    long code = 0;
    if (left < 6 || s[0] != '\\' || s[1] != 'u') return -1;
    for (int i = 2; i < 6; i++) {
        char c = s[i];
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0) return -1;
        code = code * 16 + digit;
    }
    return code;
}

/* One character of a string: how many bytes it takes as written (0: malformed) and its UTF-8 in out[0 ..
 * *made). */
static int text_char(char out[4], int *made, const char *s, int64_t left)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    if ((unsigned char)s[0] < 0x20) return 0;
    if (s[0] != '\\') {
        *made = utf8_bytes(s, left);
        memcpy(out, s, (size_t)*made);
        return *made;
    }
    if (left < 2) return 0;
    const char *simple = s[1] ? strchr(from, s[1]) : NULL;
    if (simple) return out[0] = to[simple - from], *made = 1, 2;
    long code = hex4(s, left);
    if (code < 0 || (code >= 0xdc00 && code < 0xe000)) return 0;
    if (code < 0xd800 || code >= 0xe000) return *made = utf8_put(out, code), 6;
    long low = hex4(s + 6, left - 6);
    if (low < 0xdc00 || low >= 0xe000) return 0;
    *made = utf8_put(out, 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00));
    return 12;
}

int pl_utf8_valid(const char *s, int64_t size)
{
    for (int64_t i = 0, n; i < size; i += n)
        if (!(n = utf8_bytes(s + i, size - i))) return 0;
    return 1;
}

pl_shown pl_text_shown(const char *s)
{
    pl_shown shown = {{0}};
    size_t room = sizeof shown.text - 4, n = strnlen(s, room + 1);
    int cut = n > room;
    for (n = cut ? room : n; cut && n > 0 && (s[n] & 0xc0) == 0x80;) n--; /* not inside a character */
    for (size_t i = 0; i < n; i++) shown.text[i] = (unsigned char)s[i] < 0x20 || s[i] == 0x7f ? '?' : s[i];
    if (cut) memcpy(shown.text + n, "...", 3);
    return shown;
}

/* ---- tokens ------------------------------------------------------------------------------------- */

static polar_status scan_string(pl_json *p, pl_json_token token)
{
    char made[4];
    int n_made;
    int64_t begin = ++p->pos;
    while (peek(p) != '"') {
        if (p->pos >= p->size) return broken(p, "the text ends inside a string");
        int n = text_char(made, &n_made, p->text + p->pos, p->size - p->pos);
        if (!n) return broken(p, "a control byte, a wrong escape or bytes that are not UTF-8 in a string");
        p->pos += n;
    }
    p->raw = p->text + begin;
    p->raw_size = p->pos++ - begin;
    p->token = token;
    return POLAR_OK;
}

static int skip_digits(pl_json *p)
{
    int64_t begin = p->pos;
    while (peek(p) >= '0' && peek(p) <= '9') p->pos++;
    return p->pos > begin;
}

/* Whether raw, a JSON number without fraction and exponent, is an int64 (counted downwards: the negative side
 * is longer). */
static int exact_integer(int64_t *out, const char *raw, int64_t size)
{
    int negative = raw[0] == '-';
    int64_t v = 0;
    for (int64_t i = negative; i < size; i++)
        if (__builtin_mul_overflow(v, 10, &v) || __builtin_sub_overflow(v, raw[i] - '0', &v)) return 0;
    if ((negative && v == 0) || (!negative && v == INT64_MIN)) return 0;
    *out = negative ? v : -v;
    return 1;
}

/* raw as a double, under the C locale whatever the program's own is (newlocale("C") takes no memory in glibc
 * and musl). */
static polar_status to_double(pl_json *p)
{
    char copy[128];
    if (p->raw_size >= (int64_t)sizeof copy) return broken(p, "a number of more than 127 characters");
    memcpy(copy, p->raw, (size_t)p->raw_size);
    copy[p->raw_size] = 0;
    locale_t c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (!c_locale) return PL_FAIL(POLAR_E_NOMEM, "%s: the C locale, to read a number", p->where);
    p->number = strtod_l(copy, NULL, c_locale);
    freelocale(c_locale);
    return p->number - p->number == 0 ? POLAR_OK : broken(p, "a number that does not fit a double");
}

static polar_status scan_number(pl_json *p)
{
    int64_t begin = p->pos;
    int whole = 1;
    if (peek(p) == '-') p->pos++;
    if (peek(p) == '0') p->pos++;
    else if (!skip_digits(p)) return broken(p, "a minus without a number");
    if (peek(p) == '.') {
        p->pos++, whole = 0;
        if (!skip_digits(p)) return broken(p, "a number without digits after the point");
    }
    if (peek(p) == 'e' || peek(p) == 'E') {
        p->pos++, whole = 0;
        if (peek(p) == '+' || peek(p) == '-') p->pos++;
        if (!skip_digits(p)) return broken(p, "a number without digits in the exponent");
    }
    p->raw = p->text + begin;
    p->raw_size = p->pos - begin;
    p->token = whole && exact_integer(&p->integer, p->raw, p->raw_size) ? PL_JSON_INTEGER : PL_JSON_NUMBER;
    if (p->token == PL_JSON_NUMBER) return to_double(p);
    p->number = (double)p->integer;
    return POLAR_OK;
}

static polar_status scan_word(pl_json *p)
{
    static const struct {
        const char *text;
        int64_t size;
        pl_json_token token;
    } words[] = {{"true", 4, PL_JSON_TRUE}, {"false", 5, PL_JSON_FALSE}, {"null", 4, PL_JSON_NULL}};
    for (int i = 0; i < 3; i++)
        if (p->size - p->pos >= words[i].size &&
            !memcmp(p->text + p->pos, words[i].text, (size_t)words[i].size)) {
            p->pos += words[i].size;
            p->token = words[i].token;
            return POLAR_OK;
        }
    return broken(p, p->pos < p->size ? "not a JSON value" : "the text ends where a value should stand");
}

/* ---- structure ---------------------------------------------------------------------------------- */

static polar_status open_container(pl_json *p, char c)
{
    if (p->depth == PL_JSON_MAX_DEPTH) return broken(p, "nested deeper than 64 levels");
    p->open[p->depth++] = c;
    p->pos++;
    p->want = WANT_FIRST;
    p->token = c == '{' ? PL_JSON_OBJECT : PL_JSON_ARRAY;
    return POLAR_OK;
}

static polar_status close_container(pl_json *p)
{
    p->token = p->open[--p->depth] == '{' ? PL_JSON_OBJECT_END : PL_JSON_ARRAY_END;
    p->pos++;
    p->want = WANT_MORE;
    return POLAR_OK;
}

static polar_status scan_key(pl_json *p)
{
    if (peek(p) != '"') return broken(p, "a key in quotes wanted");
    PL_TRY(scan_string(p, PL_JSON_KEY));
    skip_space(p);
    if (peek(p) != ':') return broken(p, "a colon wanted after the key");
    p->pos++;
    p->want = WANT_VALUE;
    return POLAR_OK;
}

static polar_status scan_value(pl_json *p)
{
    int c = peek(p);
    if (c == '{' || c == '[') return open_container(p, (char)c);
    p->want = WANT_MORE;
    if (c == '"') return scan_string(p, PL_JSON_STRING);
    if (c == '-' || (c >= '0' && c <= '9')) return scan_number(p);
    return scan_word(p);
}

pl_json pl_json_view(const char *text, int64_t size, const char *where)
{
    return (pl_json){.text = text, .size = size, .where = where, .want = WANT_VALUE};
}

polar_status pl_json_next(pl_json *p)
{
    char top = p->depth > 0 ? p->open[p->depth - 1] : 0;
    int closer = top == '{' ? '}' : ']';
    if (p->want == WANT_NOTHING) return broken(p, "read on after a failure");
    skip_space(p);
    if (p->want == WANT_MORE && !top)
        return p->pos < p->size ? broken(p, "more text after the end") : (p->token = PL_JSON_END, POLAR_OK);
    if (p->want >= WANT_FIRST && peek(p) == closer) return close_container(p);
    if (p->want == WANT_MORE) {
        if (peek(p) != ',') return broken(p, top == '{' ? "a comma or } wanted" : "a comma or ] wanted");
        p->pos++;
        p->want = WANT_ITEM;
        skip_space(p);
    }
    return top == '{' && p->want != WANT_VALUE ? scan_key(p) : scan_value(p);
}

polar_status pl_json_need(pl_json *p, pl_json_token token)
{
    static const char *const wanted[] = {[PL_JSON_END] = "the end of the text wanted",
                                         [PL_JSON_OBJECT] = "an object wanted",
                                         [PL_JSON_OBJECT_END] = "the end of the object wanted",
                                         [PL_JSON_ARRAY] = "an array wanted",
                                         [PL_JSON_ARRAY_END] = "the end of the array wanted",
                                         [PL_JSON_KEY] = "a key wanted",
                                         [PL_JSON_STRING] = "a string wanted",
                                         [PL_JSON_INTEGER] = "an integer wanted",
                                         [PL_JSON_NUMBER] = "a number wanted",
                                         [PL_JSON_TRUE] = "true wanted",
                                         [PL_JSON_FALSE] = "false wanted",
                                         [PL_JSON_NULL] = "null wanted"};
    PL_TRY(pl_json_next(p));
    return p->token == token ? POLAR_OK : broken(p, wanted[token]);
}

polar_status pl_json_skip(pl_json *p)
{
    int depth = p->depth;
    do PL_TRY(pl_json_next(p));
    while (p->depth > depth);
    return POLAR_OK;
}

int64_t pl_json_decode(char *out, const pl_json *p)
{
    char made[4];
    int n_made = 0;
    int64_t size = 0;
    for (int64_t i = 0; i < p->raw_size; size += n_made) {
        i += text_char(made, &n_made, p->raw + i, p->raw_size - i);
        memcpy(out + size, made, (size_t)n_made);
    }
    out[size] = 0;
    return size;
}

int pl_json_is(const pl_json *p, const char *s)
{
    char made[4];
    int n_made = 0;
    size_t left = strlen(s);
    for (int64_t i = 0; i < p->raw_size; s += n_made, left -= (size_t)n_made) {
        i += text_char(made, &n_made, p->raw + i, p->raw_size - i);
        if ((size_t)n_made > left || memcmp(s, made, (size_t)n_made)) return 0;
    }
    return left == 0;
}
