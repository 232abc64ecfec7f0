/* report_origin.c -- see report_origin.h. */
#include "report/report_origin.h"

#include <inttypes.h>
#include <string.h>

#include "report/report_html.h"
#include "report/report_settings.h"

typedef const char *(*word_of)(const pl_store_member *m, char room[64]);

/* Whether git described it: 4d0e1a7 or 0.2-14-g4d0e1a7; a version without git says nothing about changes. */
static int is_commit(const char *code)
{
    static const char hex[] = "0123456789abcdef";
    const char *mark = strstr(code, "-g");
    if (mark) code = mark + 2;
    return strspn(code, hex) >= 7 &&
           (!code[strspn(code, hex)] || !strcmp(code + strspn(code, hex), "-dirty"));
}

/* With a word about whether files differed from the commit ("-dirty"). */
static const char *code_of(const pl_store_member *m, char room[64])
{
    const char *dirty = m->code ? strstr(m->code, "-dirty") : NULL;
    if (!m->code || !is_commit(m->code)) return m->code;
    if (dirty)
        snprintf(room, 64, "%.*s and changes of its own", (int)(dirty - m->code < 32 ? dirty - m->code : 32),
                 m->code);
    else snprintf(room, 64, "%.48s, clean", m->code);
    return room;
}

static const char *device_of(const pl_store_member *m, char room[64])
{
    (void)room;
    return m->device;
}

static const char *cpu_of(const pl_store_member *m, char room[64])
{
    (void)room;
    return m->cpu;
}

static const char *threads_of(const pl_store_member *m, char room[64])
{
    if (pl_store_is_imported(m)) return "not known";
    snprintf(room, 64, "%" PRId64, m->threads);
    return m->code ? room : NULL;
}

#define MOST_WORDS 20

/* Each different word of the runs once, with how many have it. */
static void put_words(FILE *f, const pl_section *p, const char *what, word_of get)
{
    char room[64], other[64];
    int said = 0;
    fprintf(f, "<dt>%s</dt><dd>", what);
    for (int64_t i = 0; i < p->members.count && said < MOST_WORDS; i++) {
        const char *word = get(&p->members.rows[i], room);
        int64_t same = 0, earlier = 0;
        for (int64_t j = 0; word && j < p->members.count; j++) {
            const char *w = get(&p->members.rows[j], other);
            if (!w || strcmp(w, word)) continue;
            earlier += j < i;
            same++;
            if (earlier) break;
        }
        if (!word || earlier) continue;
        pl_html_say(f, "%s%s (%" PRId64 " runs)", said ? "; " : "", word, same);
        if (++said == MOST_WORDS) fputs("; and perhaps others", f);
    }
    fputs(said ? "</dd>\n" : "none yet</dd>\n", f);
}

static void put_runs(FILE *f, const pl_section *p)
{
    fprintf(f,
            "<details%s><summary>The %" PRId64
            " runs, with their ids</summary>\n<div class=\"wide\"><table><thead><tr><th "
            "class=\"text\">cell</th><th class=\"text\">arm</th><th>seed</th>"
            "<th class=\"text\">run id</th><th class=\"text\">state</th><th>",
            p->members.count <= 24 ? " open" : "", p->members.count);
    pl_html_say(f, "%s", p->audit->metric);
    fputs("</th><th>wall, s</th><th class=\"text\">started</th></tr></thead>\n<tbody>\n", f);
    for (int64_t i = 0; i < p->members.count; i++) {
        const pl_store_member *m = &p->members.rows[i];
        double value;
        pl_audit_why why = pl_audit_value(&value, &p->runs[i], p->audit->metric);
        fputs("<tr><td class=\"text\">", f);
        pl_html_say(f, "%s", m->cell);
        fputs("</td><td class=\"text\">", f);
        pl_html_say(f, "%s", m->arm);
        fprintf(f, "</td><td>%" PRId64 "</td><td class=\"text id\">%s</td><td class=\"text\">", m->seed,
                m->id);
        pl_html_say(f, "%s",
                    why == PL_AUDIT_HAS_VALUE ? pl_run_state_name(m->state) : pl_audit_why_text(why));
        fputs("</td><td>", f);
        if (why == PL_AUDIT_HAS_VALUE) fprintf(f, "%.6g", value);
        fputs("</td><td>", f);
        if (m->wall > 0 || !pl_store_is_imported(m)) fprintf(f, "%.1f", m->wall);
        fputs("</td><td class=\"text\">", f);
        pl_html_say(f, "%s", m->started ? m->started : "");
        fputs("</td></tr>\n", f);
    }
    fputs("</tbody></table></div></details>\n", f);
}

polar_status pl_origin_html(FILE *f, const char *store, const pl_section *p)
{
    fputs("<h3>Where it comes from</h3>\n<dl>\n<dt>query</dt><dd>", f);
    pl_html_say(f, "all runs planned for the spec '%s' in the store '%s', by cell, seed and arm",
                p->spec->name, store);
    fputs("</dd>\n<dt>spec SHA-256</dt><dd class=\"id\">", f);
    pl_html_say(f, "%s", p->spec->sha);
    fputs("</dd>\n", f);
    put_words(f, p, "code of the runs", code_of);
    put_words(f, p, "device", device_of);
    put_words(f, p, "processor", cpu_of);
    put_words(f, p, "threads per run", threads_of);
    fputs("</dl>\n", f);
    PL_TRY(pl_settings_html(f, p));
    put_runs(f, p);
    if (p->spec->text && *p->spec->text) {
        fputs("<details><summary>The spec as it was read</summary><pre>", f);
        pl_html_text(f, p->spec->text);
        fputs("</pre></details>\n", f);
    }
    return POLAR_OK;
}
