/* store_read.c -- columns of a row, read as what a stranger wrote: of the right type, of the right length,
 * and text that a terminal, a file name and a page can take. A row that polar could not have written is
 * refused with a sentence; nothing is cut or guessed.
 */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/json_read.h"
#include "base/text_visible.h"
#include "store/store_impl.h"

#define WORD_CHARS "abcdefghijklmnopqrstuvwxyz0123456789_"

/* What is wrong with the text, or NULL. */
static const char *text_fault(const pl_text_rule *rule, const char *text, size_t size)
{
    size_t begin = 0;
    if (size > rule->most) return "is too long";
    switch (rule->kind) {
    case PL_TEXT_WORD:
        return size && strspn(text, WORD_CHARS) == size ? NULL : "is no word of a-z, 0-9 and _";
    case PL_TEXT_ID:
        return size == rule->most && strspn(text, "0123456789abcdef") == size
                   ? NULL
                   : "is not made of 32 hexadecimal digits";
    case PL_TEXT_LINE: return pl_text_is_plain(text, size) ? NULL : "is not one line of text";
    case PL_TEXT_LINES: break;
    }
    if (memchr(text, 0, size)) return "has a zero byte inside";
    for (size_t i = 0; i <= size; i++) { /* spec files have line ends and tabs */
        if (i < size && text[i] != '\n' && text[i] != '\r' && text[i] != '\t') continue;
        if (!pl_utf8_valid(text + begin, (int64_t)(i - begin))) return "is no UTF-8";
        begin = i + 1;
    }
    return NULL;
}

static polar_status refuse(pl_store *s, const char *what, const char *text, const char *fault)
{
    return PL_FAIL(POLAR_E_FORMAT,
                   "the store '%s': %s '%s' %s, which polar never writes: the file was changed or is damaged",
                   pl_text_shown(s->path).text, what, pl_text_shown(text).text, fault);
}

polar_status pl_text_check(pl_store *s, const pl_text_rule *rule, const char *text)
{
    const char *fault = text ? text_fault(rule, text, strlen(text)) : rule->maybe ? NULL : "is missing";
    return fault ? refuse(s, rule->what, text ? text : "", fault) : POLAR_OK;
}

/* Borrowed until the next step; NULL for a null that may be. */
static polar_status view_text(const char **out, pl_store *s, sqlite3_stmt *st, int column,
                              const pl_text_rule *rule)
{
    int type = sqlite3_column_type(st, column);
    *out = NULL;
    if (type == SQLITE_NULL && rule->maybe) return POLAR_OK;
    if (type != SQLITE_TEXT) return refuse(s, rule->what, "", "is no text");
    const char *text = (const char *)sqlite3_column_text(st, column);
    PL_NEED(text, POLAR_E_NOMEM, "a text of the store '%s'", pl_text_shown(s->path).text);
    const char *fault = text_fault(rule, text, (size_t)sqlite3_column_bytes(st, column));
    if (fault) return refuse(s, rule->what, text, fault);
    *out = text;
    return POLAR_OK;
}

polar_status pl_read_text(const char **out, pl_pool **pool, pl_store *s, sqlite3_stmt *st, int column,
                          const pl_text_rule *rule)
{
    const char *text;
    *out = NULL;
    PL_TRY(view_text(&text, s, st, column, rule));
    return text ? pl_pool_copy(out, pool, text) : POLAR_OK;
}

polar_status pl_read_chars(char *out, size_t room, pl_store *s, sqlite3_stmt *st, int column,
                           const pl_text_rule *rule)
{
    const char *text;
    PL_TRY(view_text(&text, s, st, column, rule));
    if (strlen(text) >= room) return refuse(s, rule->what, text, "is too long");
    strcpy(out, text);
    return POLAR_OK;
}

polar_status pl_read_integer(int64_t *out, pl_store *s, sqlite3_stmt *st, int column, const char *what,
                             int64_t least, int64_t most)
{
    *out = sqlite3_column_int64(st, column);
    PL_NEED(sqlite3_column_type(st, column) == SQLITE_INTEGER && *out >= least && *out <= most,
            POLAR_E_FORMAT,
            "the store '%s': %s is %" PRId64 ", where polar writes a whole number from %" PRId64
            " to %" PRId64 ": the file was changed or is damaged",
            pl_text_shown(s->path).text, what, *out, least, most);
    return POLAR_OK;
}

polar_status pl_read_real(double *out, pl_store *s, sqlite3_stmt *st, int column, const char *what)
{
    int type = sqlite3_column_type(st, column);
    *out = type == SQLITE_NULL ? (double)NAN : sqlite3_column_double(st, column);
    PL_NEED(type == SQLITE_NULL || type == SQLITE_FLOAT || type == SQLITE_INTEGER, POLAR_E_FORMAT,
            "the store '%s': %s is no number: the file was changed or is damaged",
            pl_text_shown(s->path).text, what);
    return POLAR_OK;
}
