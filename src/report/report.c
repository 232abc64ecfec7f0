/* report.c -- the folder of a report: loads every spec, writes its tables, draws its figures, then the page. See report.h. */
#include "report/report.h"

#include <string.h>

#include "base/alloc.h"
#include "base/string_build.h"
#include "report/audit_print.h"
#include "report/report_figures.h"
#include "report/report_files.h"
#include "report/report_html.h"
#include "report/run_tables.h"

typedef struct {
    const pl_report_opts *opts;
    pl_report_outcome    *out;
    char                 *tables, *figures;    /* folders */
    pl_store_specs        specs;
    pl_part              *parts;
    int64_t               count;
} report;

/* ---- which specs ---- */

static polar_status find_spec(const pl_store_spec **out, const pl_store_specs *all, const char *name, const char *store)
{
    pl_string known = {0};
    for (int64_t i = 0; i < all->count; i++) {
        *out = &all->rows[i];
        if (!strcmp(all->rows[i].name, name)) return POLAR_OK;
        pl_string_add(&known, "%s%s", i ? ", " : "", all->rows[i].name);
    }
    polar_status st = PL_FAIL(POLAR_E_ARG, "the store '%s' has no spec '%.80s' (it has: %s)", store, name, known.text ? known.text : "none");
    pl_string_drop(&known);
    return st;
}

static void tell(const report *r, const char *what)
{
    if (r->opts->progress) r->opts->progress(r->opts->progress_arg, what);
}

/* ---- tables ---- */

typedef polar_status (*printer)(const pl_audit *a, FILE *f, pl_table_format format);

static polar_status write_table(report *r, const pl_part *p, const char *name, printer print, const pl_audit *a)
{
    static const struct {
        const char     *ending;
        pl_table_format format;
    } kinds[] = {{"txt", PL_TABLE_TEXT}, {"csv", PL_TABLE_CSV}, {"tex", PL_TABLE_TEX}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        char file[160];
        pl_out_file o;
        snprintf(file, sizeof file, "%.100s_%s.%s", p->spec->name, name, kinds[i].ending);
        PL_TRY(pl_out_begin(&o, r->tables, file));
        PL_TRY(pl_out_end(&o, print(a, o.f, kinds[i].format)));
    }
    r->out->tables++;
    return POLAR_OK;
}

/* What has a line per run: CSV only. */
static polar_status write_runs(report *r, const pl_part *p, pl_store *s)
{
    char file[160];
    pl_out_file o;
    int has_gauge = 0;
    snprintf(file, sizeof file, "%.100s_runs.csv", p->spec->name);
    PL_TRY(pl_out_begin(&o, r->tables, file));
    PL_TRY(pl_out_end(&o, pl_part_runs_csv(p, o.f)));
    r->out->tables++;
    PL_TRY(pl_part_has_gauge(p, s, &has_gauge));
    if (!has_gauge) return POLAR_OK;
    snprintf(file, sizeof file, "%.100s_gauge.csv", p->spec->name);
    PL_TRY(pl_out_begin(&o, r->tables, file));
    PL_TRY(pl_out_end(&o, pl_part_gauge_csv(p, s, o.f)));
    r->out->tables++;
    return POLAR_OK;
}

static polar_status write_tables(report *r, const pl_part *p, pl_store *s)
{
    char file[160];
    pl_out_file o;
    PL_TRY(write_table(r, p, "results", pl_audit_arm_table, p->audit));
    PL_TRY(write_table(r, p, "pairs", pl_audit_pair_table, p->audit));
    PL_TRY(write_table(r, p, "wall", pl_audit_arm_table, p->wall));
    PL_TRY(write_table(r, p, "wall_pairs", pl_audit_pair_table, p->wall));
    snprintf(file, sizeof file, "%.100s.json", p->spec->name);
    PL_TRY(pl_out_begin(&o, r->tables, file));
    PL_TRY(pl_out_end(&o, pl_audit_json(p->audit, o.f)));
    return write_runs(r, p, s);
}

/* ---- the whole ---- */

static polar_status write_parts(report *r, pl_store *s)
{
    for (int64_t i = 0; i < r->count; i++) {
        const pl_store_spec *spec = &r->specs.rows[i];
        if (r->opts->specs) PL_TRY(find_spec(&spec, &r->specs, r->opts->specs[i], pl_store_path(s)));
        tell(r, spec->name);
        PL_TRY(pl_part_load(&r->parts[i], s, spec));
        PL_TRY(write_tables(r, &r->parts[i], s));
        polar_status st = pl_part_draw(&r->parts[i], s, r->figures);
        if (st == POLAR_E_UNSUPPORTED) {    /* no gnuplot: everything else is still worth having */
            const char *sentence = strstr(polar_error_message(), "no program gnuplot");
            snprintf(r->out->note, sizeof r->out->note, "%s", sentence ? sentence : polar_error_message());
        } else {
            PL_TRY(st);
            r->out->figures += r->parts[i].figure_count;
        }
        r->out->specs++;
    }
    return POLAR_OK;
}

static polar_status write_page(report *r, pl_store *s)
{
    pl_out_file o;
    const char *slash = strrchr(pl_store_path(s), '/');
    pl_page page = {.code = r->opts->code, .store = slash ? slash + 1 : pl_store_path(s), .figures = r->figures, .note = r->out->note, .parts = r->parts, .part_count = r->count};
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
    r.count = opts->specs ? opts->spec_count : r.specs.count;
    if (st == POLAR_OK && !r.count) st = PL_FAIL(POLAR_E_ARG, "the store '%s' has no specs yet (`polar run SPEC` fills it)", pl_store_path(s));
    for (int64_t i = 0; st == POLAR_OK && opts->specs && i < opts->spec_count; i++) {    /* before anything is written */
        const pl_store_spec *spec;
        st = find_spec(&spec, &r.specs, opts->specs[i], pl_store_path(s));
    }
    if (st == POLAR_OK) st = pl_path_join(&r.tables, opts->dir, "tables");
    if (st == POLAR_OK) st = pl_path_join(&r.figures, opts->dir, "figures");
    if (st == POLAR_OK) st = pl_folder_make(r.tables);
    if (st == POLAR_OK) st = pl_folder_make(r.figures);
    if (st == POLAR_OK && !(r.parts = pl_calloc((size_t)r.count, sizeof *r.parts))) st = PL_FAIL(POLAR_E_NOMEM, "a report of %lld specs", (long long)r.count);
    if (st == POLAR_OK) st = write_parts(&r, s);
    if (st == POLAR_OK) st = write_page(&r, s);
    for (int64_t i = 0; r.parts && i < r.count; i++) pl_part_free(&r.parts[i]);
    pl_free(r.parts);
    pl_store_specs_free(&r.specs);
    pl_free(r.tables);
    pl_free(r.figures);
    return st;
}
