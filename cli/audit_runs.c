/* audit_runs.c -- see audit_runs.h. */
#include "audit_runs.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/json_read.h"

/* The plan's runs; what the store knows of them in one select. */
static polar_status join_plan(audit_runs *a, pl_store *s)
{
    int64_t n = a->plan->count, known = 0;
    const char **ids = pl_calloc((size_t)n + 1, sizeof *ids);
    int64_t *place = pl_calloc((size_t)n + 1, sizeof *place);
    polar_status st = ids && place ? POLAR_OK : PL_FAIL(POLAR_E_NOMEM, "a list of %lld runs", (long long)n);
    for (int64_t i = 0; i < n && st == POLAR_OK; i++) {
        pl_run_state state;
        const pl_plan_run *r = &a->plan->runs[i];
        a->runs[i] = (pl_audit_run){.cell = r->cell, .arm = r->arm, .seed = r->seed};
        st = pl_store_run_state(s, r->id, &state, NULL);
        if (st == POLAR_E_ARG) st = POLAR_OK; /* a run it has never heard of */
        else if (st == POLAR_OK) {
            place[known] = i;
            ids[known++] = r->id;
        }
    }
    if (st == POLAR_OK && known) st = pl_store_select_runs(&a->members, s, ids, known);
    for (int64_t i = 0; i < known && st == POLAR_OK; i++) a->runs[place[i]].run = &a->members.rows[i];
    pl_free(ids);
    pl_free(place);
    return st;
}

static polar_status load_file(audit_runs *a, pl_store *s, const char *const *set, int set_count)
{
    PL_TRY(pl_spec_read(&a->spec, a->path, a->schemas, pl_testbed_schemas(a->schemas), set, set_count));
    PL_TRY(pl_plan_create(&a->plan, a->spec));
    a->schema = &a->spec->schema;
    a->name = a->spec->name;
    a->title = a->spec->title;
    a->metric = a->spec->metric;
    a->sha = a->spec->sha;
    a->count = a->plan->count;
    a->runs = pl_calloc((size_t)a->count + 1, sizeof *a->runs);
    PL_NEED(a->runs, POLAR_E_NOMEM, "a list of %lld runs", (long long)a->count);
    return join_plan(a, s);
}

static polar_status load_name(audit_runs *a, pl_store *s, const pl_store_spec *spec)
{
    a->name = spec->name;
    a->title = spec->title;
    a->metric = spec->metric;
    a->sha = spec->sha;
    int known = pl_testbed_schemas(a->schemas);
    for (int i = 0; i < known; i++)
        if (!strcmp(a->schemas[i].name, spec->testbed)) a->schema = &a->schemas[i];
    /* published values stand in the text; one that this build cannot read has none */
    polar_status st =
        pl_spec_read_text(&a->spec, spec->name, spec->text ? spec->text : "", a->schemas, known);
    if (st != POLAR_OK && st != POLAR_E_FORMAT) return st;
    PL_TRY(pl_store_select_members(&a->members, s, spec->name));
    a->count = a->members.count;
    a->runs = pl_calloc((size_t)a->count + 1, sizeof *a->runs);
    PL_NEED(a->runs, POLAR_E_NOMEM, "a list of %lld runs", (long long)a->count);
    for (int64_t i = 0; i < a->count; i++) {
        const pl_store_member *m = &a->members.rows[i];
        a->runs[i] = (pl_audit_run){.cell = m->cell, .arm = m->arm, .seed = m->seed, .run = m};
    }
    return POLAR_OK;
}

polar_status audit_runs_load(audit_runs *a, pl_store *s, const char *spec, const char *const *set,
                             int set_count)
{
    a->path = spec;
    PL_TRY(pl_store_select_specs(&a->specs, s));
    if (access(spec, F_OK) == 0) return load_file(a, s, set, set_count);
    char known[400] = "";
    for (int64_t i = 0; i < a->specs.count; i++) {
        const char *name = a->specs.rows[i].name;
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", name);
        if (strcmp(name, spec)) continue;
        if (a->specs.rows[i].bad) return pl_fail_again(POLAR_E_FORMAT, a->specs.rows[i].bad);
        PL_NEED(!set_count, POLAR_E_ARG, "--set narrows a spec file; '%s' is the name of a spec in the store",
                spec);
        return load_name(a, s, &a->specs.rows[i]);
    }
    return PL_FAIL(POLAR_E_ARG, "no spec file '%s', and the store '%s' has no spec of that name (it has: %s)",
                   pl_text_shown(spec).text, pl_store_path(s), *known ? known : "none");
}

pl_audit_of audit_runs_of(const audit_runs *a, const char *metric)
{
    int own = !metric || !strcmp(metric, a->metric); /* a margin is in units of the spec's metric */
    return (pl_audit_of){.spec = a->name,
                         .metric = metric ? metric : a->metric,
                         .schema = a->schema,
                         .published = a->spec ? a->spec->published : NULL,
                         .equivalence = a->spec && own ? a->spec->equivalence : 0,
                         .target = a->spec && own ? a->spec->target : 0};
}

void audit_runs_free(audit_runs *a)
{
    pl_free(a->runs);
    pl_store_members_free(&a->members);
    pl_store_specs_free(&a->specs);
    pl_plan_destroy(a->plan);
    pl_spec_destroy(a->spec);
    *a = (audit_runs){0};
}

/* ---- one run ------------------------------------------------------------------------------------ */

static polar_status find_run(const pl_audit_run **out, const audit_runs *a, const char *prefix)
{
    *out = NULL;
    for (int64_t i = 0; i < a->count; i++) {
        const pl_store_member *m = a->runs[i].run;
        if (!m || strncmp(m->id, prefix, strlen(prefix)) || (*out && !strcmp((*out)->run->id, m->id)))
            continue;
        PL_NEED(!*out, POLAR_E_ARG,
                "--run %s: more than one run begins so (%.12s and %.12s): give more digits",
                pl_text_shown(prefix).text, (*out)->run->id, m->id);
        *out = &a->runs[i];
    }
    PL_NEED(*out, POLAR_E_ARG,
            "--run %s: no run of %s in the store begins so (`polar plan %s --runs` lists them)",
            pl_text_shown(prefix).text, a->name, a->path);
    return POLAR_OK;
}

static const char *known(const char *text)
{
    return text ? text : "-";
}

/* The other arms on the same seed. */
static void print_pairs(FILE *out, const audit_runs *a, const pl_audit *audit, const pl_audit_run *r)
{
    double own, other;
    if (pl_audit_value(&own, r, audit->metric) != PL_AUDIT_HAS_VALUE) return;
    for (int64_t i = 0; i < a->count; i++) {
        const pl_audit_run *x = &a->runs[i];
        if (x == r || strcmp(x->cell, r->cell) || x->seed != r->seed) continue;
        pl_audit_why why = pl_audit_value(&other, x, audit->metric);
        fprintf(out, "pair   %s - %s: ", r->arm, x->arm);
        if (why == PL_AUDIT_HAS_VALUE) fprintf(out, "%+.6g  (pair run %.12s)", own - other, x->run->id);
        else fprintf(out, "%s %s", x->arm, pl_audit_why_text(why));
        for (int64_t k = 0; k < audit->pair_count; k++) {
            const pl_audit_pair *p = &audit->pairs[k];
            int same = !strcmp(p->a, r->arm) && !strcmp(p->b, x->arm),
                turned = !strcmp(p->a, x->arm) && !strcmp(p->b, r->arm);
            if (strcmp(p->cell, r->cell) || (!same && !turned)) continue;
            double sign = same ? 1 : -1;
            fprintf(out,
                    "; all seeds %+.6g (n = %" PRId64 ", 95%% CI %.6g to %.6g, sign %" PRId64 "/%" PRId64 ")",
                    sign * p->s.mean_diff, p->s.n, same ? p->s.ci_lo : -p->s.ci_hi,
                    same ? p->s.ci_hi : -p->s.ci_lo, same ? p->s.positive : p->s.negative, p->s.n);
        }
        fputc('\n', out);
    }
}

polar_status audit_print_run(FILE *out, const audit_runs *a, const pl_audit *audit, const char *prefix)
{
    const pl_audit_run *r;
    PL_TRY(find_run(&r, a, prefix));
    const pl_store_member *m = r->run;
    fprintf(out, "run    %s\nspec   %s  sha %.12s  cell %s  arm %s  seed %" PRId64 "\n", m->id, a->path,
            a->sha, r->cell, r->arm, r->seed);
    fprintf(out, "code   %s   device %s, %s", known(m->code), known(m->device), known(m->cpu));
    if (!pl_store_is_imported(m)) fprintf(out, ", threads %" PRId64, m->threads);
    fputc('\n', out);
    if (m->data) fprintf(out, "data   %s\n", m->data);
    fprintf(out, "state  %s   started %s, finished %s, %.1f s in all\n", pl_run_state_name(m->state),
            known(m->started), known(m->finished), m->wall);
    fprintf(out, "config %s\n", known(m->config));
    for (int64_t i = 0; i < m->result_count; i++)
        fprintf(out, "%s %s = %.10g\n", i ? "      " : "result", m->results[i].name, m->results[i].value);
    print_pairs(out, a, audit, r);
    return POLAR_OK;
}
