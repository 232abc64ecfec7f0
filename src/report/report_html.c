/* report_html.c -- one page: for every spec what was found, tables, figures, what is missing, where it comes from. Nothing is loaded, no script runs. */
#include "report/report_html.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "base/alloc.h"
#include "report/audit_print.h"
#include "report/findings.h"
#include "report/paper_values.h"
#include "report/report_files.h"
#include "report/report_settings.h"
#include "report/svg_inline.h"

static const char style[] =
    ":root{--ink:#1b1b1b;--soft:#5a5a5a;--line:#d9d9d9;--tint:#f6f7f9;--link:#0060a0}\n"
    "*{box-sizing:border-box}\n"
    "body{margin:0;background:#fff;color:var(--ink);font:16px/1.55 \"Helvetica Neue\",Helvetica,Arial,\"Liberation Sans\",\"DejaVu Sans\",sans-serif}\n"
    "main{max-width:1120px;margin:0 auto;padding:2rem 1.25rem 4rem}\n"
    "h1{font-size:1.9rem;line-height:1.2;margin:0 0 .4rem}\n"
    "h2{font-size:1.45rem;line-height:1.25;margin:3rem 0 .3rem;padding-top:1.2rem;border-top:2px solid var(--ink)}\n"
    "h3{font-size:1.08rem;margin:2rem 0 .5rem}\n"
    "p{margin:.4rem 0 .8rem;max-width:72ch}\n"
    "a{color:var(--link)}\n"
    ".lead,.meta,.note,figcaption{color:var(--soft)}\n"
    ".meta,.note,figcaption{font-size:.88rem;line-height:1.45}\n"
    ".found{padding:.9rem 1.2rem .9rem 2rem;margin:.6rem 0 1.2rem;background:var(--tint);border-left:4px solid #0072b2;max-width:none}\n"
    ".found li{margin:.35rem 0}.found b{font-weight:600}.found span{color:var(--soft);font-size:.9rem}\n"
    ".wide{overflow-x:auto;margin:.4rem 0 .4rem}\n"
    "table{border-collapse:collapse;font-size:.82rem;font-variant-numeric:tabular-nums;white-space:nowrap}\n"
    "caption{text-align:left;color:var(--soft);padding:.3rem 0;white-space:normal}\n"
    "th,td{padding:.24rem .45rem;text-align:right;border-bottom:1px solid var(--line)}\n"
    "th.text,td.text{text-align:left}\n"
    "thead th{border-bottom:1px solid var(--ink);font-weight:600}\n"
    "th.group{text-align:center;border-bottom:0;color:var(--soft);font-weight:500}\n"
    "tbody tr:hover{background:var(--tint)}\n"
    "figure{margin:1.6rem 0 2.2rem}\n"
    "figure svg{display:block;width:100%;height:auto;max-width:1000px}\n"
    "figure svg text{font-family:\"Helvetica Neue\",Helvetica,Arial,\"Liberation Sans\",\"DejaVu Sans\",sans-serif}\n"
    "figcaption{max-width:100ch;margin-top:.3rem}\n"
    "figcaption b{color:var(--ink)}\n"
    "code,.id{font-family:ui-monospace,Menlo,Consolas,\"DejaVu Sans Mono\",monospace;font-size:.84em}\n"
    "dl{display:grid;grid-template-columns:max-content 1fr;gap:.15rem 1rem;font-size:.9rem}\n"
    "dt{color:var(--soft)}dd{margin:0;overflow-wrap:anywhere}\n"
    ".keys{columns:3 15rem;font-size:.86rem;padding-left:1.1rem}\n"
    "nav ul{padding-left:1.1rem}\n"
    "pre{font-size:.84rem;line-height:1.4;overflow-x:auto;white-space:pre-wrap}\n"
    "details{margin:.8rem 0}summary{cursor:pointer;color:var(--link)}\n"
    "@media print{html{font-size:11.5px}body{font-size:9.5pt}main{max-width:none;padding:0}h2{break-before:auto}figure,table{break-inside:avoid}.wide{overflow:visible}"
    "table{font-size:6.6pt}th,td{padding:.1rem .25rem}a{color:inherit;text-decoration:none}nav{display:none}tbody tr:hover{background:none}}\n"
    "@page{margin:14mm}\n";

/* printf whose words are made safe for HTML. */
static void say(FILE *f, const char *fmt, ...) PL_PRINTF(2, 3);
static void say(FILE *f, const char *fmt, ...)
{
    char text[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    pl_html_text(f, text);
}

typedef struct {
    int64_t done, diverged, unfinished, not_run;
} tally;

static tally count_states(const pl_part *p)
{
    tally t = {0};
    for (int64_t i = 0; i < p->members.count; i++) {
        const pl_store_member *m = &p->members.rows[i];
        if (m->state == PL_RUN_DONE) t.done++;
        else if (m->state == PL_RUN_DIVERGED) t.diverged++;
        else if (m->started) t.unfinished++;
        else t.not_run++;
    }
    return t;
}

/* ---- what was found, tables, figures ---- */

static polar_status put_findings(FILE *f, const pl_part *p)
{
    fputs("<ul class=\"found\">\n", f);
    for (int64_t c = 0; c < p->audit->cell_count; c++) {
        char *sentence;
        PL_TRY(pl_findings_cell(&sentence, p->audit, c));
        size_t first = strcspn(sentence, "\n");
        int more = sentence[first] != 0;
        sentence[first] = 0;
        fputs("<li><b>", f);
        pl_html_text(f, sentence);
        fputs(more ? "</b><br><span>" : "</b>", f);
        for (char *line = sentence + first + 1; more && line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
            if (line > sentence + first + 1) fputs("<br>", f);
            say(f, "%.*s", (int)strcspn(line, "\n"), line);
        }
        fputs(more ? "</span></li>\n" : "</li>\n", f);
        pl_free(sentence);
    }
    fputs("</ul>\n", f);
    return POLAR_OK;
}

static polar_status put_tables(FILE *f, const pl_part *p, const pl_audit *a, const char *name)
{
    int wall = a == p->wall;
    fprintf(f, "<h3>%s</h3>\n<div class=\"wide\">\n", wall ? "Wall time, seconds" : "Results");
    PL_TRY(pl_audit_arm_table(a, f, PL_TABLE_HTML));
    fputs("</div>\n<p class=\"note\">", f);
    say(f, "%s per arm and cell: n finished runs of those planned, mean, 95 %% interval of the mean by Student's t, standard deviation over seeds. ", a->metric);
    if (strcmp(a->metric, PL_METRIC_WALL)) say(f, "Least squares: test error of predictors that see only the trace of X^T X / N, or the trace and the anisotropy, fitted to each seed's training clouds. ");
    say(f, "%s Files: tables/%s_%s.txt, .csv, .tex.", pl_paper_has(a->spec, a->metric) ? pl_paper_note(a->spec) : "", p->spec->name, name);
    fprintf(f, "</p>\n<h3>%s</h3>\n<div class=\"wide\">\n", wall ? "Wall time, paired differences" : "Paired differences");
    PL_TRY(pl_audit_pair_table(a, f, PL_TABLE_HTML));
    fputs("</div>\n<p class=\"note\">", f);
    say(f, "Differences a - b over the n seeds that both arms finished (lacking: seeds where one did not): mean, 95 %% interval and paired t with its two-sided p, Wilcoxon's "
           "signed-rank p (exact up to 50 pairs without ties), signs. Files: tables/%s_%s.txt, .csv, .tex.", p->spec->name, wall ? "wall_pairs" : "pairs");
    fputs("</p>\n", f);
    return POLAR_OK;
}

static polar_status put_figure(FILE *f, const pl_page *page, const pl_part_figure *g, int number)
{
    char name[128], *path;
    int found = 0;
    snprintf(name, sizeof name, "%s.svg", g->name);
    PL_TRY(pl_path_join(&path, page->figures, name));
    fputs("<figure>\n", f);
    polar_status st = *page->note ? POLAR_OK : pl_svg_inline(f, path, g->name, g->heading, &found);
    pl_free(path);
    if (!found) say(f, "(not drawn: %s)", *page->note ? page->note : "the file is gone");
    fprintf(f, "\n<figcaption><b>Figure %d. ", number);
    say(f, "%s.", g->heading);
    fputs("</b> ", f);
    say(f, "%s", g->caption);
    say(f, " File: figures/%s.svg, .png, .gp.", g->name);
    fputs("</figcaption>\n</figure>\n", f);
    return st;
}

/* ---- what is missing ---- */

static polar_status put_missing(FILE *f, const pl_part *p)
{
    fputs("<h3>Incomplete pairs</h3>\n", f);
    if (!p->audit->missing_count) {
        fputs("<p>None: every planned run is finished and has a finite value.</p>\n", f);
        return POLAR_OK;
    }
    char *text;
    PL_TRY(pl_audit_missing_text(&text, p->audit));
    fputs("<pre>", f);
    pl_html_text(f, text);
    fputs("</pre>\n", f);
    pl_free(text);
    return POLAR_OK;
}

/* ---- where it comes from ---- */

typedef const char *(*word_of)(const pl_store_member *m, char room[64]);

static const char *code_of(const pl_store_member *m, char room[64])
{
    (void)room;
    return m->code;
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
    snprintf(room, 64, "%" PRId64, m->threads);
    return m->code ? room : NULL;
}

/* Each different word of the runs once, with how many have it. */
static void put_words(FILE *f, const pl_part *p, const char *what, word_of get)
{
    char room[64], other[64];
    int said = 0;
    fprintf(f, "<dt>%s</dt><dd>", what);
    for (int64_t i = 0; i < p->members.count; i++) {
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
        say(f, "%s%s (%" PRId64 " runs)", said ? "; " : "", word, same);
        said = 1;
    }
    fputs(said ? "</dd>\n" : "none yet</dd>\n", f);
}

static void put_runs(FILE *f, const pl_part *p)
{
    fprintf(f, "<details%s><summary>The %" PRId64 " runs, with their ids</summary>\n<div class=\"wide\"><table><thead><tr><th class=\"text\">cell</th><th class=\"text\">arm</th><th>seed</th>"
               "<th class=\"text\">run id</th><th class=\"text\">state</th><th>", p->members.count <= 24 ? " open" : "", p->members.count);
    say(f, "%s", p->audit->metric);
    fputs("</th><th>wall, s</th><th class=\"text\">started</th></tr></thead>\n<tbody>\n", f);
    for (int64_t i = 0; i < p->members.count; i++) {
        const pl_store_member *m = &p->members.rows[i];
        double value;
        pl_audit_why why = pl_audit_value(&value, &p->runs[i], p->audit->metric);
        fputs("<tr><td class=\"text\">", f);
        say(f, "%s", m->cell);
        fputs("</td><td class=\"text\">", f);
        say(f, "%s", m->arm);
        fprintf(f, "</td><td>%" PRId64 "</td><td class=\"text id\">%s</td><td class=\"text\">", m->seed, m->id);
        say(f, "%s", why == PL_AUDIT_HAS_VALUE ? pl_run_state_name(m->state) : pl_audit_why_text(why));
        fputs("</td><td>", f);
        if (why == PL_AUDIT_HAS_VALUE) fprintf(f, "%.6g", value);
        fprintf(f, "</td><td>%.1f</td><td class=\"text\">%s</td></tr>\n", m->wall, m->started ? m->started : "");
    }
    fputs("</tbody></table></div></details>\n", f);
}

static polar_status put_provenance(FILE *f, const pl_page *page, const pl_part *p)
{
    fputs("<h3>Where it comes from</h3>\n<dl>\n<dt>query</dt><dd>", f);
    say(f, "all runs planned for the spec '%s' in the store '%s', by cell, seed and arm", p->spec->name, page->store);
    fputs("</dd>\n<dt>spec SHA-256</dt><dd class=\"id\">", f);
    say(f, "%s", p->spec->sha);
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

/* ---- the page ---- */

static polar_status put_part(FILE *f, const pl_page *page, const pl_part *p, int *figure)
{
    tally t = count_states(p);
    fputs("<section id=\"", f);
    say(f, "%s", p->spec->name);
    fputs("\">\n<h2>", f);
    say(f, "%s", p->spec->title && *p->spec->title ? p->spec->title : p->spec->name);
    fputs("</h2>\n<p class=\"meta\">", f);
    say(f, "Spec %s, testbed %s, metric %s. Runs: %" PRId64 " planned, %" PRId64 " done, %" PRId64 " diverged, %" PRId64 " unfinished, %" PRId64 " not run.", p->spec->name, p->spec->testbed,
        p->audit->metric, p->members.count, t.done, t.diverged, t.unfinished, t.not_run);
    fputs("</p>\n", f);
    PL_TRY(put_findings(f, p));
    PL_TRY(put_tables(f, p, p->audit, "results"));
    for (int i = 0; i < p->figure_count; i++) PL_TRY(put_figure(f, page, &p->figures[i], ++*figure));
    if (strcmp(p->audit->metric, PL_METRIC_WALL)) PL_TRY(put_tables(f, p, p->wall, "wall"));
    PL_TRY(put_missing(f, p));
    PL_TRY(put_provenance(f, page, p));
    fputs("</section>\n", f);
    return POLAR_OK;
}

polar_status pl_page_write(FILE *f, const pl_page *p)
{
    int figure = 0;
    fprintf(f, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>polar report</title>\n"
               "<style>\n%s</style>\n</head>\n<body>\n<main>\n<h1>polar: paired audits of matrix optimisers</h1>\n<p class=\"lead\">", style);
    say(f, "Every number here comes from the store '%s'; the arms of a spec are compared on the same seeds, so that data and initial weights are the same on both sides of a difference. "
           "The paper's values stand beside ours. Written by polar %s.", p->store, p->code);
    fputs("</p>\n", f);
    if (*p->note) {
        fputs("<p class=\"note\">", f);
        say(f, "%s.", p->note);
        fputs("</p>\n", f);
    }
    if (p->part_count > 1) {
        fputs("<nav><ul>\n", f);
        for (int64_t i = 0; i < p->part_count; i++) {
            fputs("<li><a href=\"#", f);
            say(f, "%s", p->parts[i].spec->name);
            fputs("\">", f);
            say(f, "%s", p->parts[i].spec->title && *p->parts[i].spec->title ? p->parts[i].spec->title : p->parts[i].spec->name);
            fputs("</a></li>\n", f);
        }
        fputs("</ul></nav>\n", f);
    }
    for (int64_t i = 0; i < p->part_count; i++) PL_TRY(put_part(f, p, &p->parts[i], &figure));
    fputs("</main>\n</body>\n</html>\n", f);
    return POLAR_OK;
}
