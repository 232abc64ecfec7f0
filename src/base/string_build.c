/* string_build.c -- the growing string of string_build.h. */
#include "base/string_build.h"

#include <stdio.h>

#include "base/alloc.h"

void pl_string_add(pl_string *s, const char *fmt, ...)
{
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    size_t want = s->used + (n > 0 ? (size_t)n : 0) + 1;
    if (!s->failed && want > s->size) {
        size_t size = 2 * want + 64;
        char *text = pl_realloc(s->text, s->size, size);
        if (text) s->text = text, s->size = size;
        else s->failed = 1;
    }
    if (!s->failed) {
        vsnprintf(s->text + s->used, s->size - s->used, fmt, again);
        s->used = want - 1;
    }
    va_end(again);
    va_end(ap);
}

polar_status pl_string_take(char **out, pl_string *s, const char *what)
{
    *out = NULL;
    pl_string_add(s, "%s", "");
    if (s->failed) {
        pl_string_drop(s);
        return PL_FAIL(POLAR_E_NOMEM, "%s", what);
    }
    *out = s->text;
    *s = (pl_string){0};
    return POLAR_OK;
}

void pl_string_drop(pl_string *s)
{
    pl_free(s->text);
    *s = (pl_string){0};
}
