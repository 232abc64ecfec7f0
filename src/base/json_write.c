/* json_write.c -- the JSON writer; where a comma, a break or an indent stands is decided in before_value
 * alone. */
#include "base/json_write.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_read.h"

const char *pl_double_print(char out[PL_DOUBLE_CHARS], double x)
{
    if (isnan(x)) return strcpy(out, "nan");
    if (isinf(x)) return strcpy(out, x > 0 ? "inf" : "-inf");
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(out, PL_DOUBLE_CHARS, "%.*g", digits, x);
        if (strtod(out, NULL) == x) break;
    }
    char *comma = strchr(out, ','); /* a locale's decimal point */
    if (comma) *comma = '.';
    return out;
}

pl_json_writer pl_json_writer_begin(FILE *f, int break_depth)
{
    return (pl_json_writer){.f = f, .break_depth = break_depth};
}

static void new_line(pl_json_writer *w)
{
    fprintf(w->f, "\n%*s", 2 * w->depth, "");
}

static void before_value(pl_json_writer *w)
{
    if (w->after_key) {
        w->after_key = 0;
        return;
    }
    if (!w->depth) return;
    if (w->level[w->depth - 1].count++) fputs(w->depth > w->break_depth ? ", " : ",", w->f);
    if (w->depth <= w->break_depth) new_line(w);
}

static void container_begin(pl_json_writer *w, char open, char close)
{
    before_value(w);
    assert(w->depth < PL_JSON_WRITER_DEPTH);
    fputc(open, w->f);
    w->level[w->depth].close = close;
    w->level[w->depth].count = 0;
    w->depth++;
}

static void container_end(pl_json_writer *w, char close)
{
    assert(w->depth > 0 && w->level[w->depth - 1].close == close && !w->after_key);
    w->depth--;
    if (w->depth < w->break_depth && w->level[w->depth].count) new_line(w);
    fputc(close, w->f);
}

void pl_json_object(pl_json_writer *w)
{
    container_begin(w, '{', '}');
}

void pl_json_object_end(pl_json_writer *w)
{
    container_end(w, '}');
}

void pl_json_array(pl_json_writer *w)
{
    container_begin(w, '[', ']');
}

void pl_json_array_end(pl_json_writer *w)
{
    container_end(w, ']');
}

/* The string in quotes; bytes above 127 pass where the whole is UTF-8. */
static void put_quoted(FILE *f, const char *s)
{
    int utf8 = pl_utf8_valid(s, (int64_t)strlen(s));
    fputc('"', f);
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        if (c == '"' || c == '\\') fprintf(f, "\\%c", c);
        else if (c == '\n') fputs("\\n", f);
        else if (c == '\t') fputs("\\t", f);
        else if (c < 32 || c == 127) fprintf(f, "\\u%04x", c);
        else if (c > 127 && !utf8) fputs("\\ufffd", f);
        else fputc(c, f);
    }
    fputc('"', f);
}

void pl_json_key(pl_json_writer *w, const char *key)
{
    assert(w->depth > 0 && w->level[w->depth - 1].close == '}' && !w->after_key);
    before_value(w);
    put_quoted(w->f, key);
    fputs(": ", w->f);
    w->after_key = 1;
}

void pl_json_string(pl_json_writer *w, const char *s)
{
    before_value(w);
    if (s) put_quoted(w->f, s);
    else fputs("null", w->f);
}

void pl_json_number(pl_json_writer *w, double x)
{
    char text[PL_DOUBLE_CHARS];
    before_value(w);
    fputs(isfinite(x) ? pl_double_print(text, x) : "null", w->f);
}

void pl_json_integer(pl_json_writer *w, int64_t x)
{
    before_value(w);
    fprintf(w->f, "%lld", (long long)x);
}

void pl_json_bool(pl_json_writer *w, int x)
{
    before_value(w);
    fputs(x ? "true" : "false", w->f);
}

void pl_json_null(pl_json_writer *w)
{
    before_value(w);
    fputs("null", w->f);
}

void pl_json_put(pl_json_writer *w, const char *key, double x)
{
    pl_json_key(w, key);
    pl_json_number(w, x);
}

polar_status pl_json_writer_end(pl_json_writer *w)
{
    assert(!w->depth && !w->after_key);
    fputc('\n', w->f);
    PL_NEED(!ferror(w->f), POLAR_E_IO, "the JSON could not be written in full");
    return POLAR_OK;
}
