/* report.c -- the folder of a report: loads every spec, writes the tables and draws the figures of each, then
 * the tables across them and the page. See report.h. */
#include "report/report.h"

#include <string.h>

#include "base/alloc.h"
#include "base/string_build.h"
#include "report/table/compare_tables.h"
#include "report/audit/audit_print.h"
#include "report/table/section_tables.h"
#include "report/figure/report_figures.h"
#include "report/report_files.h"
#include "report/report_html.h"
#include "report/table/run_tables.h"
#include "report/table/spectrum_table.h"

typedef struct {
    const pl_report_opts *opts;
    pl_report_outcome *out;
    char *tables, *figures; /* folders */
    pl_store_specs specs;
    pl_section *sections;
    int64_t wanted, count; /* specs asked for; sections of them */
    pl_comparison *comparisons;
    int64_t comparison_count;
    pl_left_out *left; /* the others */
    int64_t left_count;
} report;

/* ---- which specs ---- */

static polar_status find_spec(const pl_store_spec **out, const pl_store_specs *all, const char *name,
                              const char *store)
{
    pl_string known = {0};
    for (int64_t i = 0; i < all->count; i++) {
        *out = &all->rows[i];
        if (!strcmp(all->rows[i].name, name)) return POLAR_OK;
    }
    for (int64_t i = 0; i < all->count; i++) pl_string_add(&known, "%s%s", i ? ", " : "", all->rows[i].name);
    polar_status st = PL_FAIL(POLAR_E_ARG, "the store '%s' has no spec '%.80s' (it has: %s)", store, name,
                              known.text ? known.text : "none");
    pl_string_drop(&known);
    return st;
}

static void tell(const report *r, const char *what)
{
    if (r->opts->progress) r->opts->progress(r->opts->progress_arg, what);
}

/* ---- tables ---- */

typedef struct { /* one of the four kinds of tables with its subject */
    polar_status (*audit)(const pl_audit *a, FILE *f, pl_table_format format);
    const pl_audit *of;
    const pl_section_table *table;
    const pl_section *p;
    const pl_compare_table *compare;
    const pl_comparison *x;
} subject;

static polar_status print_subject(const subject *s, FILE *f, pl_table_format format)
{
    if (s->audit) return s->audit(s->of, f, format);
    return s->table ? s->table->print(s->p, f, format) : s->compare->print(s->x, f, format);
}

/* tables/<stem>.txt, .csv, .tex */
static polar_status write_table(report *r, const char *stem, subject s)
{
    static const struct {
        const char *ending;
        pl_table_format format;
    } kinds[] = {{"txt", PL_TABLE_TEXT}, {"csv", PL_TABLE_CSV}, {"tex", PL_TABLE_TEX}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        char file[192];
        pl_out_file o;
        snprintf(file, sizeof file, "%.160s.%s", stem, kinds[i].ending);
        PL_TRY(pl_out_begin(&o, r->tables, file));
        PL_TRY(pl_out_end(&o, print_subject(&s, o.f, kinds[i].format)));
    }
    r->out->tables++;
    return POLAR_OK;
}

static polar_status write_spec_table(report *r, const pl_section *p, const char *name, subject s)
{
    char stem[140];
    snprintf(stem, sizeof stem, "%.100s_%s", p->spec->name, name);
    return write_table(r, stem, s);
}

typedef polar_status (*csv_printer)(const pl_section *p, pl_store *s, FILE *f);

static polar_status print_runs(const pl_section *p, pl_store *s, FILE *f)
{
    (void)s;
    return pl_section_runs_csv(p, f);
}
static polar_status print_epochs(const pl_section *p, pl_store *s, FILE *f)
{
    (void)s;
    return pl_section_epochs_csv(p, f);
}

static polar_status write_csv(report *r, const pl_section *p, pl_store *s, const char *name,
                              csv_printer print)
{
    char file[160];
    pl_out_file o;
    snprintf(file, sizeof file, "%.100s_%s.csv", p->spec->name, name);
    PL_TRY(pl_out_begin(&o, r->tables, file));
    PL_TRY(pl_out_end(&o, print(p, s, o.f)));
    r->out->tables++;
    return POLAR_OK;
}

/* What has a line per run, epoch or step: CSV only. */
static polar_status write_runs(report *r, const pl_section *p, pl_store *s)
{
    int has_gauge = 0, has_spectra = 0;
    PL_TRY(write_csv(r, p, s, "runs", print_runs));
    /* few runs, each hours long; of many small ones it would fill the disk */
    if (p->kind.accuracy) PL_TRY(write_csv(r, p, s, "epochs", print_epochs));
    PL_TRY(pl_section_has_gauge(p, s, &has_gauge));
    if (has_gauge) PL_TRY(write_csv(r, p, s, "gauge", pl_section_gauge_csv));
    if (has_gauge) PL_TRY(pl_section_has_spectra(p, s, &has_spectra));
    return has_spectra ? write_csv(r, p, s, "spectra", pl_section_spectra_csv) : POLAR_OK;
}

static polar_status write_tables(report *r, const pl_section *p, pl_store *s)
{
    char file[160];
    pl_out_file o;
    PL_TRY(write_spec_table(r, p, "results", (subject){.audit = pl_audit_arm_table, .of = p->audit}));
    PL_TRY(write_spec_table(r, p, "pairs", (subject){.audit = pl_audit_pair_table, .of = p->audit}));
    PL_TRY(write_spec_table(r, p, "wall", (subject){.audit = pl_audit_arm_table, .of = p->wall}));
    PL_TRY(write_spec_table(r, p, "wall_pairs", (subject){.audit = pl_audit_pair_table, .of = p->wall}));
    for (const pl_section_table *t = pl_section_tables; t->name; t++)
        if (t->wanted(p)) PL_TRY(write_spec_table(r, p, t->name, (subject){.table = t, .p = p}));
    snprintf(file, sizeof file, "%.100s.json", p->spec->name);
    PL_TRY(pl_out_begin(&o, r->tables, file));
    PL_TRY(pl_out_end(&o, pl_audit_json(p->audit, o.f)));
    return write_runs(r, p, s);
}

/* ---- the whole ---- */

/* What is wrong with one spec's rows, and not with this machine. */
static int is_fault_of_spec(polar_status st)
{
    return st == POLAR_E_FORMAT || st == POLAR_E_ARG || st == POLAR_E_SHAPE || st == POLAR_E_DTYPE;
}

/* The spec is listed with its reason, the others are reported. */
static polar_status leave_out(report *r, const char *name)
{
    pl_left_out *l = &r->left[r->left_count];
    *l = (pl_left_out){.name = name, .why = pl_strdup(pl_fail_sentence())};
    PL_NEED(l->why, POLAR_E_NOMEM, "a reason");
    r->left_count++;
    if (r->opts->left_out) r->opts->left_out(r->opts->progress_arg, name, l->why);
    return POLAR_OK;
}

static polar_status load_section(report *r, pl_store *s, const pl_store_spec *spec, const char *text)
{
    pl_section_source from = {r->opts->schemas, r->opts->schema_count, text};
    tell(r, spec->name);
    if (spec->bad) return pl_fail_again(POLAR_E_FORMAT, spec->bad);
    return pl_section_load(&r->sections[r->count], s, spec, &from);
}

static polar_status load_sections(report *r, pl_store *s)
{
    for (int64_t i = 0; i < r->wanted; i++) {
        const pl_store_spec *spec = &r->specs.rows[i];
        if (r->opts->specs) PL_TRY(find_spec(&spec, &r->specs, r->opts->specs[i], pl_store_path(s)));
        const char *text = r->opts->specs && r->opts->texts ? r->opts->texts[i] : NULL;
        polar_status st = load_section(r, s, spec, text);
        if (st == POLAR_OK) {
            r->count++;
            continue;
        }
        pl_section_free(&r->sections[r->count]);
        /* who asks for one wants to know */
        if (r->wanted == 1 || r->opts->specs || !is_fault_of_spec(st)) return st;
        PL_TRY(leave_out(r, spec->name));
    }
    PL_NEED(r->count, POLAR_E_FORMAT, "the store '%s' has no spec that can be reported; %s: %s",
            pl_store_path(s), r->left[0].name, r->left[0].why);
    pl_comparisons_link(r->sections, r->count);
    return pl_comparisons_find(&r->comparisons, &r->comparison_count, r->sections, r->count);
}

static polar_status write_sections(report *r, pl_store *s)
{
    for (int64_t i = 0; i < r->count; i++) {
        tell(r, r->sections[i].spec->name);
        PL_TRY(write_tables(r, &r->sections[i], s));
        polar_status st = pl_section_draw(&r->sections[i], s, r->figures);
        if (st == POLAR_E_UNSUPPORTED) { /* no gnuplot: everything else is still worth having */
            snprintf(r->out->note, sizeof r->out->note, "%s", pl_fail_sentence());
        } else {
            PL_TRY(st);
            r->out->figures += r->sections[i].figure_count;
        }
        r->out->specs++;
    }
    return POLAR_OK;
}

static polar_status write_comparisons(report *r)
{
    for (int64_t i = 0; i < r->comparison_count; i++)
        for (const pl_compare_table *t = pl_compare_tables; t->name; t++) {
            char stem[160];
            const pl_comparison *x = &r->comparisons[i];
            if (!pl_comparison_wants(x, t)) continue;
            pl_comparison_stem(stem, x, t);
            PL_TRY(write_table(r, stem, (subject){.compare = t, .x = x}));
        }
    return POLAR_OK;
}

static polar_status write_page(report *r, pl_store *s)
{
    pl_out_file o;
    const char *slash = strrchr(pl_store_path(s), '/');
    pl_page page = {.code = r->opts->code,
                    .store = slash ? slash + 1 : pl_store_path(s),
                    .figures = r->figures,
                    .note = r->out->note,
                    .sections = r->sections,
                    .section_count = r->count,
                    .comparisons = r->comparisons,
                    .comparison_count = r->comparison_count,
                    .left = r->left,
                    .left_count = r->left_count};
    tell(r, "index.html");
    PL_TRY(pl_out_begin(&o, r->opts->dir, "index.html"));
    PL_TRY(pl_out_end(&o, pl_page_write(o.f, &page)));
    snprintf(r->out->page, sizeof r->out->page, "%s/index.html", r->opts->dir);
    return POLAR_OK;
}

polar_status pl_report_write(pl_report_outcome *out, pl_store *s, const pl_report_opts *opts)
{
    report r = {.opts = opts, .out = out};
    *out = (pl_report_outcome){0};
    polar_status st = pl_store_select_specs(&r.specs, s);
    r.wanted = opts->specs ? opts->spec_count : r.specs.count;
    if (st == POLAR_OK && !r.wanted)
        st = PL_FAIL(POLAR_E_ARG, "the store '%s' has no specs yet (`polar run SPEC` fills it)",
                     pl_store_path(s));
    /* before anything is written */
    for (int64_t i = 0; st == POLAR_OK && opts->specs && i < opts->spec_count; i++) {
        const pl_store_spec *spec;
        st = find_spec(&spec, &r.specs, opts->specs[i], pl_store_path(s));
    }
    if (st == POLAR_OK) st = pl_path_join(&r.tables, opts->dir, "tables");
    if (st == POLAR_OK) st = pl_path_join(&r.figures, opts->dir, "figures");
    if (st == POLAR_OK) st = pl_folder_make(r.tables);
    if (st == POLAR_OK) st = pl_folder_make(r.figures);
    if (st == POLAR_OK) {
        r.sections = pl_calloc((size_t)r.wanted, sizeof *r.sections);
        r.left = pl_calloc((size_t)r.wanted, sizeof *r.left);
        if (!r.sections || !r.left)
            st = PL_FAIL(POLAR_E_NOMEM, "a report of %lld specs", (long long)r.wanted);
    }
    if (st == POLAR_OK) st = load_sections(&r, s);
    if (st == POLAR_OK) st = write_sections(&r, s);
    if (st == POLAR_OK) st = write_comparisons(&r);
    if (st == POLAR_OK) st = write_page(&r, s);
    for (int64_t i = 0; r.sections && i < r.count; i++) pl_section_free(&r.sections[i]);
    for (int64_t i = 0; i < r.left_count; i++) pl_free(r.left[i].why);
    pl_free(r.left);
    pl_free(r.comparisons);
    pl_free(r.sections);
    pl_store_specs_free(&r.specs);
    pl_free(r.tables);
    pl_free(r.figures);
    return st;
}
