/* config_key.c -- a row of a testbed's key table: finding it by name, reading a value for it into its
 * canonical form. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_read.h"
#include "base/json_write.h"
#include "base/nearest.h"
#include "base/text_visible.h"
#include "lab/spec/config.h"

/* ---- keys --------------------------------------------------------------------------------------- */

const pl_key *pl_schema_key(const pl_schema *s, const char *name)
{
    for (int i = 0; i < s->key_count; i++)
        if (!strcmp(s->keys[i].name, name)) return &s->keys[i];
    return NULL;
}

#define MAX_KEYS 256 /* among which the nearest is looked for */

const pl_key *pl_schema_find_key(char why[PL_WHY_CHARS], const pl_schema *s, const char *name)
{
    const char *known[MAX_KEYS + 1];
    int n = 0;
    const pl_key *k = pl_schema_key(s, name);
    if (k) return k;
    for (; n < s->key_count && n < MAX_KEYS; n++) known[n] = s->keys[n].name;
    known[n] = NULL;
    const char *near = pl_nearest(name, known);
    for (int i = 0; i < n && !near; i++) { /* "width" for model.width */
        const char *dot = strrchr(known[i], '.');
        if (dot && !strcmp(dot + 1, name)) near = known[i];
    }
    if (near)
        snprintf(why, PL_WHY_CHARS, "no key '%s' in testbed %s (did you mean %s?)", pl_text_shown(name).text,
                 s->name, near);
    else
        snprintf(why, PL_WHY_CHARS, "no key '%s' in testbed %s (`polar plan --keys %s` lists them)",
                 pl_text_shown(name).text, s->name, s->name);
    return NULL;
}

int pl_schema_has_result(const pl_schema *s, const char *name)
{
    for (int i = 0; s->results && s->results[i].name; i++)
        if (!strcmp(s->results[i].name, name)) return 1;
    return !s->results;
}

void pl_schema_result_names(const char *out[PL_SCHEMA_MAX_RESULTS + 1], const pl_schema *s)
{
    int n = 0;
    for (; s->results && s->results[n].name && n < PL_SCHEMA_MAX_RESULTS; n++) out[n] = s->results[n].name;
    out[n] = NULL;
}

pl_metric pl_schema_metric(const pl_schema *s, const char *name)
{
    pl_metric m = {.name = name};
    if (!strcmp(name, PL_METRIC_WALL)) return (pl_metric){.name = name, .title = "seconds", .better = -1};
    for (int i = 0; s && s->results && s->results[i].name; i++)
        if (!strcmp(s->results[i].name, name)) m = s->results[i];
    if (!m.title) m.title = m.name;
    return m;
}

const char *pl_key_type_name(pl_key_type type)
{
    static const char *const names[] = {"int", "real", "bool", "text", "choice"};
    return names[type];
}

void pl_key_range(char out[PL_WHY_CHARS], const pl_key *k)
{
    size_t used = 0;
    *out = 0;
    if (k->type == PL_KEY_INT) snprintf(out, PL_WHY_CHARS, "%.0f to %.0f", k->min, k->max);
    else if (k->type == PL_KEY_REAL) snprintf(out, PL_WHY_CHARS, "%g to %g", k->min, k->max);
    else if (k->type == PL_KEY_BOOL) snprintf(out, PL_WHY_CHARS, "false, true");
    else if (k->type == PL_KEY_TEXT) snprintf(out, PL_WHY_CHARS, "one line");
    for (int i = 0; k->type == PL_KEY_CHOICE && k->choices[i] && used < PL_WHY_CHARS; i++)
        used += (size_t)snprintf(out + used, PL_WHY_CHARS - used, "%s%s", i ? ", " : "", k->choices[i]);
}

/* ---- values ------------------------------------------------------------------------------------- */

static int read_int(char *out, char *why, const pl_key *k, const char *text)
{
    char *end;
    errno = 0;
    long long v = strtoll(text, &end, 10);
    int number = *text && strspn(text, "+-0123456789") == strlen(text) && !*end;
    if (number && !errno && (double)v >= k->min && (double)v <= k->max) {
        snprintf(out, PL_VALUE_CHARS, "%lld", v);
        return 1;
    }
    snprintf(why, PL_WHY_CHARS, "%s wants a whole number from %.0f to %.0f, got '%s'", k->name, k->min,
             k->max, pl_text_shown(text).text);
    return 0;
}

static int read_real(char *out, char *why, const pl_key *k, const char *text)
{
    char *end;
    double v = strtod(text, &end) + 0.0; /* -0 is 0 */
    int number = *text && strspn(text, "+-.0123456789eE") == strlen(text) && !*end && isfinite(v);
    if (number && v >= k->min && v <= k->max) {
        pl_double_print(out, v);
        return 1;
    }
    snprintf(why, PL_WHY_CHARS, "%s wants a number from %g to %g, got '%s'", k->name, k->min, k->max,
             pl_text_shown(text).text);
    return 0;
}

static int read_text(char *out, char *why, const pl_key *k, const char *text)
{
    size_t n = strlen(text);
    if (n < PL_VALUE_CHARS && pl_text_is_plain(text, n)) {
        memcpy(out, text, n + 1);
        return 1;
    }
    snprintf(why, PL_WHY_CHARS, "%s wants one line of at most %d bytes, got '%s'", k->name,
             PL_VALUE_CHARS - 1, pl_text_shown(text).text);
    return 0;
}

static int read_word(char *out, char *why, const pl_key *k, const char *text)
{
    static const char *const truth[] = {"false", "true", NULL};
    const char *const *choices = k->type == PL_KEY_BOOL ? truth : k->choices;
    size_t used = (size_t)snprintf(why, PL_WHY_CHARS, "%s wants one of ", k->name);
    for (int i = 0; choices[i]; i++) {
        if (!strcmp(choices[i], text)) {
            snprintf(out, PL_VALUE_CHARS, "%s", text);
            return 1;
        }
        if (used < PL_WHY_CHARS)
            used += (size_t)snprintf(why + used, PL_WHY_CHARS - used, "%s%s", i ? ", " : "", choices[i]);
    }
    if (used < PL_WHY_CHARS)
        snprintf(why + used, PL_WHY_CHARS - used, ", got '%s'", pl_text_shown(text).text);
    return 0;
}

int pl_key_read(char out[PL_VALUE_CHARS], char why[PL_WHY_CHARS], const pl_key *k, const char *text)
{
    switch (k->type) {
    case PL_KEY_INT: return read_int(out, why, k, text);
    case PL_KEY_REAL: return read_real(out, why, k, text);
    case PL_KEY_TEXT: return read_text(out, why, k, text);
    case PL_KEY_BOOL:
    case PL_KEY_CHOICE: return read_word(out, why, k, text);
    }
    return 0;
}
