/* report_settings.c -- the configurations of a part's runs, compared key by key. See report_settings.h. */
#include "report/report_settings.h"

#include <string.h>

#include "base/alloc.h"
#include "base/json_read.h"
#include "base/string_build.h"

#define MOST_KEYS  128
#define MOST_CHARS 400 /* of the values of a slot together: a table is no list of everything */

typedef struct {
    char *name;
    char **values; /* (cells x arms): what its runs have, distinct values by " | " */
    int varies;
} setting;

typedef struct {
    setting keys[MOST_KEYS];
    int count;
    int64_t slots; /* cells x arms */
} settings;

/* Whether `value` is one of "a | b". */
static int is_listed(const char *list, const char *value)
{
    size_t n = strlen(value);
    for (const char *at = strstr(list, value); at; at = strstr(at + 1, value))
        if ((at == list || (at >= list + 3 && !strncmp(at - 3, " | ", 3))) &&
            (!at[n] || !strncmp(at + n, " | ", 3)))
            return 1;
    return 0;
}

static polar_status put_value(settings *s, const char *name, const char *value, int64_t slot)
{
    int i = 0;
    while (i < s->count && strcmp(s->keys[i].name, name)) i++;
    if (i == MOST_KEYS) return POLAR_OK;
    setting *k = &s->keys[i];
    if (i == s->count) {
        *k = (setting){.name = pl_strdup(name), .values = pl_calloc((size_t)s->slots, sizeof *k->values)};
        s->count++;
        PL_NEED(k->name && k->values, POLAR_E_NOMEM, "a setting");
    }
    char **to = &k->values[slot];
    if (*to && (is_listed(*to, value) || strlen(*to) > MOST_CHARS)) return POLAR_OK;
    pl_string joined = {0};
    pl_string_add(&joined, "%s%s%s", *to ? *to : "", *to ? " | " : "", value);
    if (joined.used > MOST_CHARS) pl_string_add(&joined, " | ...");
    pl_free(*to);
    *to = NULL;
    return pl_string_take(to, &joined, "a setting");
}

/* A flat object; what else might be in it is left out. */
static polar_status read_config(settings *s, const char *text, int64_t slot)
{
    pl_json p = pl_json_view(text, (int64_t)strlen(text), "the configuration of a run");
    char name[128], value[512];
    PL_TRY(pl_json_need(&p, PL_JSON_OBJECT));
    for (;;) {
        PL_TRY(pl_json_next(&p));
        if (p.token == PL_JSON_OBJECT_END) return POLAR_OK;
        if (p.raw_size >= (int64_t)sizeof name) {
            PL_TRY(pl_json_skip(&p));
            continue;
        }
        pl_json_decode(name, &p);
        pl_json before = p;
        PL_TRY(pl_json_next(&p));
        if (p.token == PL_JSON_OBJECT || p.token == PL_JSON_ARRAY) {
            p = before;
            PL_TRY(pl_json_skip(&p));
            continue;
        }
        if (p.token == PL_JSON_STRING && p.raw_size < (int64_t)sizeof value) pl_json_decode(value, &p);
        else
            snprintf(value, sizeof value, "%s",
                     p.token == PL_JSON_TRUE    ? "true"
                     : p.token == PL_JSON_FALSE ? "false"
                     : p.token == PL_JSON_NULL  ? "null"
                                                : "");
        if (p.token == PL_JSON_INTEGER || p.token == PL_JSON_NUMBER)
            snprintf(value, sizeof value, "%.*s", (int)p.raw_size, p.raw);
        PL_TRY(put_value(s, name, *value ? value : "\"\"", slot));
    }
}

static polar_status collect(settings *s, const pl_section *p)
{
    const pl_audit *a = p->audit;
    s->slots = a->cell_count * a->arm_count;
    for (int64_t slot = 0; slot < s->slots; slot++)
        for (int64_t k = 0; k < a->seed_count; k++) {
            const pl_audit_run *r = pl_section_run(p, slot / a->arm_count, k, slot % a->arm_count);
            if (r && r->run && r->run->config && *r->run->config)
                PL_TRY(read_config(s, r->run->config, slot));
        }
    for (int i = 0; i < s->count; i++)
        for (int64_t slot = 0; slot < s->slots; slot++) {
            const char *x = s->keys[i].values[0], *y = s->keys[i].values[slot];
            s->keys[i].varies |= !x || !y || strcmp(x, y) || strstr(y, " | ") != NULL;
        }
    return POLAR_OK;
}

static void free_settings(settings *s)
{
    for (int i = 0; i < s->count; i++) {
        for (int64_t k = 0; s->keys[i].values && k < s->slots; k++) pl_free(s->keys[i].values[k]);
        pl_free(s->keys[i].values);
        pl_free(s->keys[i].name);
    }
    pl_free(s);
}

static void print_varying(FILE *f, const settings *s, const pl_audit *a)
{
    fputs("<div class=\"wide\"><table><caption>Settings that differ between arms or "
          "cells</caption>\n<thead><tr><th class=\"text\">cell</th><th class=\"text\">arm</th>",
          f);
    for (int i = 0; i < s->count; i++) {
        if (!s->keys[i].varies) continue;
        fputs("<th class=\"text\">", f);
        pl_html_text(f, s->keys[i].name);
        fputs("</th>", f);
    }
    fputs("</tr></thead>\n<tbody>\n", f);
    for (int64_t slot = 0; slot < s->slots; slot++) {
        fputs("<tr><td class=\"text\">", f);
        pl_html_text(f, a->arm_rows[slot].cell);
        fputs("</td><td class=\"text\">", f);
        pl_html_text(f, a->arm_rows[slot].arm);
        fputs("</td>", f);
        for (int i = 0; i < s->count; i++) {
            if (!s->keys[i].varies) continue;
            fputs("<td class=\"text\">", f);
            pl_html_text(f, s->keys[i].values[slot] ? s->keys[i].values[slot] : "");
            fputs("</td>", f);
        }
        fputs("</tr>\n", f);
    }
    fputs("</tbody></table></div>\n", f);
}

polar_status pl_settings_html(FILE *f, const pl_section *p)
{
    settings *s = pl_calloc(1, sizeof *s);
    PL_NEED(s, POLAR_E_NOMEM, "a list of settings");
    polar_status st = collect(s, p);
    int varying = 0;
    for (int i = 0; i < s->count; i++) varying += s->keys[i].varies;
    if (st == POLAR_OK && varying) print_varying(f, s, p->audit);
    if (st == POLAR_OK && s->count > varying) {
        fputs("<p class=\"note\">Settings that all runs share:</p>\n<ul class=\"keys\">\n", f);
        for (int i = 0; i < s->count; i++) {
            if (s->keys[i].varies) continue;
            fputs("<li><code>", f);
            pl_html_text(f, s->keys[i].name);
            fputs(" = ", f);
            pl_html_text(f, s->keys[i].values[0]);
            fputs("</code></li>\n", f);
        }
        fputs("</ul>\n", f);
    }
    free_settings(s);
    return st;
}
