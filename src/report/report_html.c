/* report_html.c -- one page: for every spec what was found, tables, figures, what is missing, where it comes
 * from. Nothing is loaded, no script runs. */
#include "report/report_html.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "base/alloc.h"
#include "report/audit/audit_print.h"
#include "report/findings.h"
#include "report/table/section_tables.h"
#include "report/report_files.h"
#include "report/report_origin.h"
#include "report/figure/svg_inline.h"

#define COMPARISONS_TITLE "Specs compared with each other"

static const char style[] =
    ":root{--ink:#1b1b1b;--soft:#5a5a5a;--line:#d9d9d9;--tint:#f6f7f9;--link:#0060a0}\n"
    "*{box-sizing:border-box}\n"
    "body{margin:0;background:#fff;color:var(--ink);font:16px/1.55 \"Helvetica "
    "Neue\",Helvetica,Arial,\"Liberation Sans\",\"DejaVu Sans\",sans-serif}\n"
    "main{max-width:1120px;margin:0 auto;padding:2rem 1.25rem 4rem;overflow-wrap:break-word}\n"
    "h1{font-size:1.9rem;line-height:1.2;margin:0 0 .4rem}\n"
    "h2{font-size:1.45rem;line-height:1.25;margin:3rem 0 .3rem;padding-top:1.2rem;border-top:2px solid "
    "var(--ink)}\n"
    "h3{font-size:1.08rem;margin:2rem 0 .5rem}\n"
    "p{margin:.4rem 0 .8rem;max-width:72ch}\n"
    "a{color:var(--link)}\n"
    ".lead,.meta,.note,figcaption{color:var(--soft)}\n"
    ".meta,.note,figcaption{font-size:.88rem;line-height:1.45}\n"
    ".found{padding:.9rem 1.2rem .9rem 2rem;margin:.6rem 0 1.2rem;background:var(--tint);border-left:4px "
    "solid #0072b2;max-width:none}\n"
    ".found li{margin:.35rem 0}.found b{font-weight:600}.found span{color:var(--soft);font-size:.9rem}\n"
    /* a shadow at the side where there is more to scroll to */
    ".wide{overflow-x:auto;margin:.4rem 0 .4rem;"
    "background:linear-gradient(90deg,#fff 40%,#fff0) left/40px 100% no-repeat "
    "local,linear-gradient(270deg,#fff 40%,#fff0) right/40px 100% no-repeat local,"
    "linear-gradient(90deg,#0002,#0000) left/12px 100% no-repeat scroll,linear-gradient(270deg,#0002,#0000) "
    "right/12px 100% no-repeat scroll}\n"
    "table{border-collapse:collapse;font-size:.82rem;font-variant-numeric:tabular-nums;white-space:nowrap}\n"
    "caption{text-align:left;color:var(--soft);padding:.3rem 0;white-space:normal}\n"
    "th,td{padding:.24rem .45rem;text-align:right;border-bottom:1px solid var(--line)}\n"
    "th.text,td.text{text-align:left}\n"
    "thead th{border-bottom:1px solid var(--ink);font-weight:600}\n"
    "th.group{text-align:center;border-bottom:0;color:var(--soft);font-weight:500}\n"
    "tbody tr:hover{background:var(--tint)}\n"
    "figure{margin:1.6rem 0 2.2rem;min-width:0}\n"
    "figure svg{display:block;width:100%;height:auto;max-width:1000px}\n"
    "figure svg text{font-family:\"Helvetica Neue\",Helvetica,Arial,\"Liberation Sans\",\"DejaVu "
    "Sans\",sans-serif}\n"
    "figcaption{max-width:100ch;margin-top:.3rem}\n"
    "figcaption b{color:var(--ink)}\n"
    "code,.id{font-family:ui-monospace,Menlo,Consolas,\"DejaVu Sans Mono\",monospace;font-size:.84em}\n"
    "dl{display:grid;grid-template-columns:max-content 1fr;gap:.15rem 1rem;font-size:.9rem}\n"
    "dt{color:var(--soft)}dd{margin:0;overflow-wrap:anywhere}\n"
    ".keys{columns:3 15rem;font-size:.86rem;padding-left:1.1rem}\n"
    "nav ul{padding-left:1.1rem}\n"
    "pre{font-size:.84rem;line-height:1.4;overflow-x:auto;white-space:pre-wrap}\n"
    "details{margin:.8rem 0}summary{cursor:pointer;color:var(--link)}\n"
    "@media "
    "print{html{font-size:11.5px}body{font-size:9.5pt}main{max-width:none;padding:0}h2{break-before:auto}"
    "figure,table{break-inside:avoid}.wide{overflow:visible}"
    "table{font-size:6.6pt}th,td{padding:.1rem "
    ".25rem}a{color:inherit;text-decoration:none}nav{display:none}tbody tr:hover{background:none}}\n"
    "@page{margin:14mm}\n";

void pl_html_say(FILE *f, const char *fmt, ...)
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
    int64_t imported, bare; /* from tables; of these, without epochs */
} tally;

static tally count_states(const pl_section *p)
{
    tally t = {0};
    for (int64_t i = 0; i < p->members.count; i++) {
        const pl_store_member *m = &p->members.rows[i];
        if (m->state == PL_RUN_DONE) t.done++;
        else if (m->state == PL_RUN_DIVERGED) t.diverged++;
        else if (m->started) t.unfinished++;
        else t.not_run++;
    }
    const pl_audit *a = p->audit;
    for (int64_t i = 0; i < a->cell_count * a->seed_count * a->arm_count; i++) {
        int imported = a->runs[i] && pl_store_is_imported(a->runs[i]->run);
        t.imported += imported;
        t.bare += imported && !p->epochs[i].count;
    }
    return t;
}

static void put_imported(FILE *f, const tally *t)
{
    if (!t->imported) return;
    fputs("<p class=\"note\">", f);
    pl_html_say(f, "%" PRId64 " of the finished runs were imported from tables of another report",
                t->imported);
    if (t->bare)
        pl_html_say(f, ", %" PRId64 " of them without their epochs: what follows over epochs is without them",
                    t->bare);
    fputs(".</p>\n", f);
}

/* ---- what was found, tables, figures ---- */

static polar_status put_findings(FILE *f, const pl_section *p)
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
        for (char *line = sentence + first + 1; more && line;
             line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
            if (line > sentence + first + 1) fputs("<br>", f);
            pl_html_say(f, "%.*s", (int)strcspn(line, "\n"), line);
        }
        fputs(more ? "</span></li>\n" : "</li>\n", f);
        pl_free(sentence);
    }
    fputs("</ul>\n", f);
    return POLAR_OK;
}

static polar_status put_tables(FILE *f, const pl_section *p, const pl_audit *a, const char *name)
{
    int wall = a == p->wall;
    fprintf(f, "<h3>%s</h3>\n<div class=\"wide\">\n", wall ? "Wall time, seconds" : "Results");
    PL_TRY(pl_audit_arm_table(a, f, PL_TABLE_HTML));
    fputs("</div>\n<p class=\"note\">", f);
    pl_html_say(f,
                "%s per arm and cell: n finished runs of those planned, mean, 95 %% interval of the mean by "
                "Student's t, standard deviation over seeds. ",
                a->metric);
    if (*pl_audit_better(a))
        pl_html_say(f, "%s is better. ", *pl_audit_better(a) == 'h' ? "Higher" : "Lower");
    if (pl_audit_has_references(a) && a->schema->reference_note)
        pl_html_say(f, "%s ", a->schema->reference_note);
    if (pl_published_has(a->published, a->metric) && a->published->note) pl_html_text(f, a->published->note);
    pl_html_say(f, " Files: tables/%s_%s.txt, .csv, .tex.", p->spec->name, name);
    fprintf(f, "</p>\n<h3>%s</h3>\n<div class=\"wide\">\n",
            wall ? "Wall time, paired differences" : "Paired differences");
    PL_TRY(pl_audit_pair_table(a, f, PL_TABLE_HTML));
    fputs("</div>\n<p class=\"note\">", f);
    pl_html_say(
        f,
        "Differences a - b over the n seeds that both arms finished (lacking: seeds where one did not): "
        "mean, 95 %% interval and paired t with its two-sided p, Wilcoxon's "
        "signed-rank p (exact up to 50 pairs without ties), signs. Files: tables/%s_%s.txt, .csv, .tex.",
        p->spec->name, wall ? "wall_pairs" : "pairs");
    fputs("</p>\n", f);
    return POLAR_OK;
}

/* A heading, the table, what it says. */
static void put_note(FILE *f, const char *note, const char *stem)
{
    fputs("</div>\n<p class=\"note\">", f);
    pl_html_say(f, "%s Files: tables/%s.txt, .csv, .tex.", note, stem);
    fputs("</p>\n", f);
}

static void put_heading(FILE *f, const char *heading)
{
    fputs("<h3>", f);
    pl_html_say(f, "%s", heading);
    fputs("</h3>\n<div class=\"wide\">\n", f);
}

static polar_status put_section_tables(FILE *f, const pl_section *p)
{
    for (const pl_section_table *t = pl_section_tables; t->name; t++) {
        char stem[140];
        if (!t->wanted(p)) continue;
        snprintf(stem, sizeof stem, "%.100s_%s", p->spec->name, t->name);
        put_heading(f, t->heading);
        PL_TRY(t->print(p, f, PL_TABLE_HTML));
        put_note(f, t->note, stem);
    }
    return POLAR_OK;
}

static polar_status put_comparison(FILE *f, const pl_comparison *x)
{
    char title[256], heading[320], stem[160];
    pl_comparison_title(title, x);
    for (const pl_compare_table *t = pl_compare_tables; t->name; t++) {
        if (!pl_comparison_wants(x, t)) continue;
        pl_comparison_stem(stem, x, t);
        snprintf(heading, sizeof heading, "%s: %s", title, t->heading);
        put_heading(f, heading);
        PL_TRY(t->print(x, f, PL_TABLE_HTML));
        fputs("</div>\n<p class=\"note\">", f);
        pl_html_say(f, "First: %s, second: %s. %s ", x->from->spec->name, x->to->spec->name, t->note);
        if (x->how->note) pl_html_text(f, x->how->note);
        pl_html_say(f, " Files: tables/%s.txt, .csv, .tex.", stem);
        fputs("</p>\n", f);
    }
    return POLAR_OK;
}

static int has_comparison_tables(const pl_page *page)
{
    for (int64_t i = 0; i < page->comparison_count; i++)
        for (const pl_compare_table *t = pl_compare_tables; t->name; t++)
            if (pl_comparison_wants(&page->comparisons[i], t)) return 1;
    return 0;
}

static polar_status put_comparisons(FILE *f, const pl_page *page)
{
    fputs("<section id=\"comparisons\">\n<h2>" COMPARISONS_TITLE "</h2>\n", f);
    for (int64_t i = 0; i < page->comparison_count; i++) PL_TRY(put_comparison(f, &page->comparisons[i]));
    fputs("</section>\n", f);
    return POLAR_OK;
}

static polar_status put_figure(FILE *f, const pl_page *page, const pl_section_figure *g, int number)
{
    char name[128], *path;
    int found = 0;
    snprintf(name, sizeof name, "%s.svg", g->name);
    PL_TRY(pl_path_join(&path, page->figures, name));
    fputs("<figure>\n<div class=\"wide\">\n", f);
    polar_status st = *page->note ? POLAR_OK : pl_svg_inline(f, path, g->name, g->heading, &found);
    pl_free(path);
    if (!found) pl_html_say(f, "(not drawn: %s)", *page->note ? page->note : "the file is gone");
    fprintf(f, "\n</div>\n<figcaption><b>Figure %d. ", number);
    pl_html_say(f, "%s.", g->heading);
    fputs("</b> ", f);
    pl_html_say(f, "%s", g->caption);
    pl_html_say(f, " File: figures/%s.svg, .png, .gp.", g->name);
    fputs("</figcaption>\n</figure>\n", f);
    return st;
}

/* ---- what is missing ---- */

static polar_status put_missing(FILE *f, const pl_section *p)
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

/* ---- the page ---- */

/* Specs of the store that could not be reported, each with its reason. */
static void put_left_out(FILE *f, const pl_page *p)
{
    if (!p->left_count) return;
    fputs("<h3>Left out</h3>\n<ul class=\"note\">\n", f);
    for (int64_t i = 0; i < p->left_count; i++) {
        fputs("<li>", f);
        pl_html_say(f, "%s: %s", p->left[i].name, p->left[i].why);
        fputs("</li>\n", f);
    }
    fputs("</ul>\n", f);
}

static polar_status put_section(FILE *f, const pl_page *page, const pl_section *p, int *figure)
{
    tally t = count_states(p);
    fputs("<section id=\"", f);
    pl_html_say(f, "%s", p->spec->name);
    fputs("\">\n<h2>", f);
    pl_html_say(f, "%s", p->spec->title && *p->spec->title ? p->spec->title : p->spec->name);
    fputs("</h2>\n<p class=\"meta\">", f);
    pl_html_say(f,
                "Spec %s, testbed %s, metric %s. Runs: %" PRId64 " planned, %" PRId64 " done, %" PRId64
                " diverged, %" PRId64 " unfinished, %" PRId64 " not run.",
                p->spec->name, p->spec->testbed, p->audit->metric, p->members.count, t.done, t.diverged,
                t.unfinished, t.not_run);
    fputs("</p>\n", f);
    put_imported(f, &t);
    if (*p->unread) {
        fputs("<p class=\"note\">", f);
        pl_html_say(f, "This build cannot read the spec, so its published values are not here: %s",
                    p->unread);
        fputs("</p>\n", f);
    }
    PL_TRY(put_findings(f, p));
    PL_TRY(put_tables(f, p, p->audit, "results"));
    PL_TRY(put_section_tables(f, p));
    if (*p->no_figures) {
        fputs("<p class=\"note\">", f);
        pl_html_say(f, "%s", p->no_figures);
        fputs("</p>\n", f);
    }
    for (int i = 0; i < p->figure_count; i++) PL_TRY(put_figure(f, page, &p->figures[i], ++*figure));
    if (strcmp(p->audit->metric, PL_METRIC_WALL)) PL_TRY(put_tables(f, p, p->wall, "wall"));
    PL_TRY(put_missing(f, p));
    PL_TRY(pl_origin_html(f, page->store, p));
    fputs("</section>\n", f);
    return POLAR_OK;
}

polar_status pl_page_write(FILE *f, const pl_page *p)
{
    int figure = 0;
    fprintf(f,
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" "
            "content=\"width=device-width, initial-scale=1\">\n<title>polar report</title>\n"
            "<style>\n%s</style>\n</head>\n<body>\n<main>\n<h1>polar: paired audits of matrix "
            "optimisers</h1>\n<p class=\"lead\">",
            style);
    pl_html_say(f,
                "Every number here comes from the store '%s'; the arms of a spec are compared on the same "
                "seeds, so that data and initial weights are the same on both sides of a difference. "
                "Published values stand beside ours where a spec has them. Written by polar %s.",
                p->store, p->code);
    fputs("</p>\n", f);
    if (*p->note) {
        fputs("<p class=\"note\">", f);
        pl_html_say(f, "%s.", p->note);
        fputs("</p>\n", f);
    }
    put_left_out(f, p);
    if (p->section_count > 1) {
        fputs("<nav><ul>\n", f);
        if (has_comparison_tables(p))
            fputs("<li><a href=\"#comparisons\">" COMPARISONS_TITLE "</a></li>\n", f);
        for (int64_t i = 0; i < p->section_count; i++) {
            fputs("<li><a href=\"#", f);
            pl_html_say(f, "%s", p->sections[i].spec->name);
            fputs("\">", f);
            pl_html_say(f, "%s",
                        p->sections[i].spec->title && *p->sections[i].spec->title
                            ? p->sections[i].spec->title
                            : p->sections[i].spec->name);
            fputs("</a></li>\n", f);
        }
        fputs("</ul></nav>\n", f);
    }
    if (has_comparison_tables(p)) PL_TRY(put_comparisons(f, p));
    for (int64_t i = 0; i < p->section_count; i++) PL_TRY(put_section(f, p, &p->sections[i], &figure));
    fputs("</main>\n</body>\n</html>\n", f);
    return POLAR_OK;
}
