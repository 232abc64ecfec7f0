/* csv_read.c -- see csv_read.h. The text is read once; fields are cut out of it where they lie, a quoted one
 * moved together over its quotes, so that a record needs no memory of its own. */
#include "base/csv_read.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json_read.h"

#define UTF8_BOM "\xef\xbb\xbf"

/* ---- the file ----------------------------------------------------------------------------------- */

static polar_status read_stream(pl_csv *c, FILE *f)
{
    size_t room = 0, used = 0;
    for (;;) {
        size_t more = room ? 2 * room : 1 << 16;
        if (more > PL_CSV_MAX_BYTES + 2) more = PL_CSV_MAX_BYTES + 2;
        char *text = pl_realloc(c->text, room, more);
        PL_NEED(text, POLAR_E_NOMEM, "a file of %zu bytes", more);
        c->text = text;
        room = more;
        used += fread(c->text + used, 1, room - 1 - used, f);
        PL_NEED(!ferror(f), errno == EISDIR ? POLAR_E_ARG : POLAR_E_IO, "read '%s': %s",
                pl_text_shown(c->path).text, strerror(errno));
        if (used < room - 1) break; /* the end */
        PL_NEED(used <= PL_CSV_MAX_BYTES, POLAR_E_FORMAT, "%s: a table has at most %d MiB",
                pl_text_shown(c->path).text, PL_CSV_MAX_BYTES >> 20);
    }
    c->text[used] = 0;
    c->at = c->text;
    c->end = c->text + used;
    if (used >= 3 && !memcmp(c->text, UTF8_BOM, 3)) c->at += 3; /* spreadsheets write one */
    return POLAR_OK;
}

/* The line of the first byte that is no text. */
static polar_status check_text(const pl_csv *c)
{
    int64_t line = 1;
    for (const char *at = c->at; at < c->end; line++) {
        const char *end = memchr(at, '\n', (size_t)(c->end - at));
        if (!end) end = c->end;
        PL_NEED(!memchr(at, 0, (size_t)(end - at)), POLAR_E_FORMAT, "%s:%lld: a zero byte in a table",
                pl_text_shown(c->path).text, (long long)line);
        PL_NEED(pl_utf8_valid(at, (int64_t)(end - at)), POLAR_E_FORMAT, "%s:%lld: not UTF-8",
                pl_text_shown(c->path).text, (long long)line);
        at = end + 1;
    }
    return POLAR_OK;
}

polar_status pl_csv_open(pl_csv **out, const char *path)
{
    *out = NULL;
    FILE *f = fopen(path, "rb");
    PL_NEED(f, errno == ENOENT || errno == ENOTDIR ? POLAR_E_ARG : POLAR_E_IO, "open '%s': %s",
            pl_text_shown(path).text, strerror(errno));
    pl_csv *c = pl_calloc(1, sizeof *c);
    polar_status st = c ? POLAR_OK : PL_FAIL(POLAR_E_NOMEM, "a table");
    if (st == POLAR_OK) {
        c->path = path;
        c->next_line = 1;
        st = read_stream(c, f);
    }
    if (st == POLAR_OK) st = check_text(c);
    fclose(f);
    if (st == POLAR_OK) *out = c;
    else pl_csv_close(c);
    return st;
}

void pl_csv_close(pl_csv *c)
{
    if (!c) return;
    pl_free(c->text);
    pl_free(c);
}

/* ---- records ------------------------------------------------------------------------------------ */

static polar_status wrong(const pl_csv *c, const char *what)
{
    return PL_FAIL(POLAR_E_FORMAT, "%s:%lld: %s", pl_text_shown(c->path).text, (long long)c->next_line, what);
}

/* A field that begins after its first quote; c->at behind the last one. */
static polar_status cut_quoted(pl_csv *c)
{
    char *to = c->at;
    c->fields[c->count++] = to;
    for (;; c->at++) {
        if (c->at == c->end) return wrong(c, "a quote has no end");
        if (*c->at == '"' && c->at[1] != '"') break;
        if (*c->at == '"') c->at++; /* two are one */
        c->next_line += *c->at == '\n';
        *to++ = *c->at;
    }
    c->at++;
    char after = *c->at;
    if (after && !strchr(",\r\n", after)) return wrong(c, "more text after a quoted field");
    *to = 0; /* at the closing quote, or before it */
    return POLAR_OK;
}

static polar_status cut_plain(pl_csv *c)
{
    c->fields[c->count++] = c->at;
    c->at += strcspn(c->at, ",\"\r\n");
    return *c->at == '"' ? wrong(c, "a quote within a field that does not begin with one") : POLAR_OK;
}

polar_status pl_csv_next(pl_csv *c, int *more)
{
    c->count = 0;
    c->line = c->next_line;
    *more = c->at < c->end;
    while (*more) {
        if (c->count == PL_CSV_MAX_FIELDS) return wrong(c, "too many columns (at most 128)");
        int quoted = *c->at == '"';
        c->at += quoted;
        PL_TRY(quoted ? cut_quoted(c) : cut_plain(c));
        if (c->at == c->end) return wrong(c, "the last line has no end: was the file cut short?");
        char mark = *c->at;
        *c->at++ = 0;
        if (mark == ',') continue;
        if (mark == '\r' && *c->at != '\n') return wrong(c, "a carriage return within a line");
        c->at += mark == '\r';
        c->next_line++;
        return POLAR_OK;
    }
    return POLAR_OK;
}

/* ---- numbers ------------------------------------------------------------------------------------ */

int pl_csv_integer(int64_t *out, const char *text)
{
    const char *digits = text + (*text == '-');
    if (!*digits || strspn(digits, "0123456789") != strlen(digits)) return 0;
    errno = 0;
    *out = strtoll(text, NULL, 10);
    return errno == 0;
}

int pl_csv_real(double *out, const char *text)
{
    char *end;
    int nan = !strcmp(text, "nan"), infinite = !strcmp(text, "inf") || !strcmp(text, "-inf");
    if (nan || infinite) {
        *out = nan ? (double)NAN : *text == '-' ? -(double)INFINITY : (double)INFINITY;
        return 1;
    }
    if (!*text || strspn(text, "+-.0123456789eE") != strlen(text)) return 0;
    *out = strtod(text, &end);
    return !*end && isfinite(*out);
}
