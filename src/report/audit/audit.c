/* audit.c -- runs laid out as (cell, seed, arm), then every arm alone and every pair of arms. See audit.h. */
#include "report/audit/audit_print.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/alloc.h"

const char *pl_audit_why_text(pl_audit_why why)
{
    static const char *const text[] = {"has a value", "not planned",    "not run",  "unfinished",
                                       "diverged",    "no such result", "undefined"};
    return text[why];
}

pl_audit_why pl_audit_value(double *out, const pl_audit_run *run, const char *metric)
{
    *out = NAN;
    if (!run) return PL_AUDIT_NOT_PLANNED;
    const pl_store_member *m = run->run;
    if (!m) return PL_AUDIT_NOT_RUN;
    if (m->state == PL_RUN_PLANNED) return m->started ? PL_AUDIT_UNFINISHED : PL_AUDIT_NOT_RUN;
    if (m->state == PL_RUN_DIVERGED) return PL_AUDIT_DIVERGED;
    const double *value = strcmp(metric, PL_METRIC_WALL) ? pl_store_result(m, metric) : &m->wall;
    int untimed = value == &m->wall && !m->wall && pl_store_is_imported(m); /* a table without seconds */
    if (!value || untimed) return PL_AUDIT_NO_VALUE;
    if (isnan(*value)) return PL_AUDIT_UNDEFINED;
    if (isinf(*value)) return PL_AUDIT_DIVERGED;
    *out = *value;
    return PL_AUDIT_HAS_VALUE;
}

/* ---- the metric ---- */

/* Adds " name" for every result of the finished runs, each name once. */
static void list_results(char *out, size_t room, const pl_audit_run *runs, int64_t count)
{
    size_t used = 0;
    *out = 0;
    for (int64_t i = 0; i < count; i++)
        for (int64_t j = 0; runs[i].run && j < runs[i].run->result_count; j++) {
            char word[48];
            snprintf(word, sizeof word, " %s,", runs[i].run->results[j].name);
            if (!strstr(out, word) && used + strlen(word) < room)
                used += (size_t)snprintf(out + used, room - used, "%s", word);
        }
}

/* "test_mse", or "mse" for it; POLAR_E_ARG if runs are finished and none has such a result. */
static polar_status resolve_metric(char **out, const char *metric, const pl_audit_run *runs, int64_t count)
{
    char tests[40], known[512];
    int64_t done = 0, has = !strcmp(metric, PL_METRIC_WALL), has_test = 0;
    snprintf(tests, sizeof tests, "test_%.30s", metric);
    for (int64_t i = 0; i < count && !has; i++) {
        const pl_store_member *m = runs[i].run;
        if (!m || m->state != PL_RUN_DONE) continue;
        done++;
        has += pl_store_result(m, metric) != NULL;
        has_test += pl_store_result(m, tests) != NULL;
    }
    if (done && !has && !has_test) {
        list_results(known, sizeof known, runs, count);
        return PL_FAIL(POLAR_E_ARG, "no run has a result '%.40s' (there are%s %s)", metric, known,
                       PL_METRIC_WALL);
    }
    *out = pl_strdup(!has && has_test ? tests : metric);
    PL_NEED(*out, POLAR_E_NOMEM, "the metric's name");
    return POLAR_OK;
}

/* ---- the layout ---- */

#define MOST_NAMES 4096 /* cells, or arms: each is compared with all others */
#define MOST_SEEDS 100000
/* cells x seeds x arms, and pairs x seeds: a store's rows need not make a grid */
#define MOST_SLOTS (1 << 24)

/* Index of the name; added when it is new. */
static int64_t place_name(const char **names, int64_t *count, const char *name)
{
    for (int64_t i = 0; i < *count; i++)
        if (!strcmp(names[i], name)) return i;
    names[*count] = name;
    return (*count)++;
}

/* The same for seeds; `hint` is where the last one was: plans go seed by seed. */
static int64_t place_seed(int64_t *seeds, int64_t *count, int64_t seed, int64_t hint)
{
    for (int64_t i = 0; i < *count; i++) {
        int64_t at = (hint + i) % *count;
        if (seeds[at] == seed) return at;
    }
    seeds[*count] = seed;
    return (*count)++;
}

static const pl_audit_run **slot(const pl_audit *a, int64_t cell, int64_t seed, int64_t arm)
{
    return &a->runs[(cell * a->seed_count + seed) * a->arm_count + arm];
}

static polar_status lay_out(pl_audit *a, const pl_audit_run *runs, int64_t count)
{
    size_t n = (size_t)(count ? count : 1);
    int64_t hint = 0;
    a->cells = pl_calloc(n, sizeof *a->cells);
    a->arms = pl_calloc(n, sizeof *a->arms);
    a->seeds = pl_calloc(n, sizeof *a->seeds);
    PL_NEED(a->cells && a->arms && a->seeds, POLAR_E_NOMEM, "the cells, arms and seeds of %lld runs",
            (long long)count);
    for (int64_t i = 0; i < count; i++) {
        place_name(a->cells, &a->cell_count, runs[i].cell);
        place_name(a->arms, &a->arm_count, runs[i].arm);
        hint = place_seed(a->seeds, &a->seed_count, runs[i].seed, hint);
        double slots = (double)a->cell_count * (double)a->seed_count * (double)a->arm_count;
        int few = a->cell_count <= MOST_NAMES && a->arm_count <= MOST_NAMES && a->seed_count <= MOST_SEEDS;
        PL_NEED(few && slots * fmax(1, 0.5 * (double)(a->arm_count - 1)) <= MOST_SLOTS, POLAR_E_FORMAT,
                "%lld cells x %lld seeds x %lld arms and more are too many to compare",
                (long long)a->cell_count, (long long)a->seed_count, (long long)a->arm_count);
    }
    int64_t slots = a->cell_count * a->seed_count * a->arm_count;
    a->runs = pl_calloc((size_t)(slots ? slots : 1), sizeof *a->runs);
    PL_NEED(a->runs, POLAR_E_NOMEM, "%lld cells x %lld seeds x %lld arms", (long long)a->cell_count,
            (long long)a->seed_count, (long long)a->arm_count);
    for (int64_t i = 0; i < count; i++) {
        int64_t cell = place_name(a->cells, &a->cell_count, runs[i].cell),
                arm = place_name(a->arms, &a->arm_count, runs[i].arm);
        hint = place_seed(a->seeds, &a->seed_count, runs[i].seed, hint);
        *slot(a, cell, hint, arm) = &runs[i];
    }
    return POLAR_OK;
}

/* Whether any arm of the cell has this seed in its plan. */
static int is_planned(const pl_audit *a, int64_t cell, int64_t seed)
{
    for (int64_t arm = 0; arm < a->arm_count; arm++)
        if (*slot(a, cell, seed, arm)) return 1;
    return 0;
}

/* ---- what is missing ---- */

static polar_status list_missing(pl_audit *a)
{
    int64_t slots = a->cell_count * a->seed_count * a->arm_count;
    a->missing = pl_calloc((size_t)(slots ? slots : 1), sizeof *a->missing);
    PL_NEED(a->missing, POLAR_E_NOMEM, "a list of incomplete pairs");
    for (int64_t c = 0; c < a->cell_count; c++)
        for (int64_t s = 0; s < a->seed_count; s++)
            for (int64_t r = 0; r < a->arm_count && is_planned(a, c, s); r++) {
                double value;
                pl_audit_why why = pl_audit_value(&value, *slot(a, c, s, r), a->metric);
                if (why != PL_AUDIT_HAS_VALUE)
                    a->missing[a->missing_count++] =
                        (pl_audit_missing){a->cells[c], a->arms[r], a->seeds[s], why};
            }
    return POLAR_OK;
}

/* ---- arms ---- */

/* Mean of a result over the arm's seeds; NaN when no run has it. */
static double mean_result(const pl_audit *a, int64_t cell, int64_t arm, const char *name, double *work)
{
    int64_t n = 0;
    for (int64_t s = 0; s < a->seed_count; s++)
        if (pl_audit_value(&work[n], *slot(a, cell, s, arm), name) == PL_AUDIT_HAS_VALUE) n++;
    return pl_sample_measure(work, n).mean;
}

static polar_status measure_arms(pl_audit *a, double *work)
{
    int64_t rows = a->cell_count * a->arm_count;
    a->arm_rows = pl_calloc((size_t)(rows ? rows : 1), sizeof *a->arm_rows);
    PL_NEED(a->arm_rows, POLAR_E_NOMEM, "%lld rows of arms", (long long)rows);
    for (int64_t c = 0; c < a->cell_count; c++)
        for (int64_t r = 0; r < a->arm_count; r++) {
            pl_audit_arm *row = &a->arm_rows[c * a->arm_count + r];
            int64_t n = 0;
            *row = (pl_audit_arm){.cell = a->cells[c], .arm = a->arms[r]};
            for (int64_t s = 0; s < a->seed_count; s++) {
                pl_audit_why why = pl_audit_value(&work[n], *slot(a, c, s, r), a->metric);
                n += why == PL_AUDIT_HAS_VALUE;
                row->planned += why != PL_AUDIT_NOT_PLANNED;
                row->diverged += why == PL_AUDIT_DIVERGED;
            }
            row->s = pl_sample_measure(work, n);
            for (int k = 0; k < PL_AUDIT_REFERENCES; k++)
                row->reference[k] =
                    k < a->reference_count ? mean_result(a, c, r, a->references[k]->name, work) : (double)NAN;
            row->epochs = mean_result(a, c, r, "epochs", work);
        }
    return POLAR_OK;
}

/* ---- pairs ---- */

static polar_status measure_pairs(pl_audit *a, double *work)
{
    int64_t per_cell = a->arm_count * (a->arm_count - 1) / 2, at = 0;
    int64_t room = a->cell_count * per_cell * a->seed_count;
    a->pairs = pl_calloc((size_t)(a->cell_count * per_cell + 1), sizeof *a->pairs);
    a->values = pl_calloc((size_t)(2 * room + 1), sizeof *a->values);
    a->pair_seeds = pl_calloc((size_t)(room + 1), sizeof *a->pair_seeds);
    PL_NEED(a->pairs && a->values && a->pair_seeds, POLAR_E_NOMEM, "%lld pairs of arms",
            (long long)(a->cell_count * per_cell));
    for (int64_t c = 0; c < a->cell_count; c++)
        for (int64_t y = 1; y < a->arm_count; y++)
            for (int64_t x = 0; x < y; x++) {
                double *va = a->values + 2 * at, *vb = va + a->seed_count;
                pl_audit_pair *p = &a->pairs[a->pair_count++];
                int64_t n = 0;
                *p = (pl_audit_pair){.cell = a->cells[c],
                                     .a = a->arms[y],
                                     .b = a->arms[x],
                                     .seeds = a->pair_seeds + at,
                                     .values_a = va,
                                     .values_b = vb};
                for (int64_t s = 0; s < a->seed_count; s++) {
                    int has_a = pl_audit_value(&va[n], *slot(a, c, s, y), a->metric) == PL_AUDIT_HAS_VALUE;
                    int has_b = pl_audit_value(&vb[n], *slot(a, c, s, x), a->metric) == PL_AUDIT_HAS_VALUE;
                    a->pair_seeds[at + n] = a->seeds[s];
                    if (has_a && has_b) n++;
                    else p->incomplete += is_planned(a, c, s);
                }
                p->s = pl_paired_measure(va, vb, n, work);
                at += a->seed_count;
            }
    return POLAR_OK;
}

/* ---- the whole ---- */

const char *pl_audit_better(const pl_audit *a)
{
    return a->shown.better > 0 ? "higher" : a->shown.better < 0 ? "lower" : "";
}

/* What the testbed says of the metric, and which of its results stand beside it. */
static void describe(pl_audit *a)
{
    const pl_metric *all = a->schema ? a->schema->results : NULL;
    a->shown = pl_schema_metric(a->schema, a->metric);
    for (int i = 0; all && all[i].name; i++)
        if (all[i].beside && !strcmp(all[i].beside, a->metric) && a->reference_count < PL_AUDIT_REFERENCES)
            a->references[a->reference_count++] = &all[i];
}

polar_status pl_audit_create(pl_audit **out, const pl_audit_of *of, const pl_audit_run *runs, int64_t count)
{
    *out = NULL;
    double *work = NULL;
    pl_audit *a = pl_calloc(1, sizeof *a);
    PL_NEED(a, POLAR_E_NOMEM, "an audit");
    a->schema = of->schema;
    a->published = of->published;
    a->equivalence = of->equivalence;
    a->target = of->target;
    a->spec = pl_strdup(of->spec);
    polar_status st = a->spec ? POLAR_OK : PL_FAIL(POLAR_E_NOMEM, "the spec's name");
    if (st == POLAR_OK) st = resolve_metric(&a->metric, of->metric, runs, count);
    if (st == POLAR_OK) describe(a);
    if (st == POLAR_OK) st = lay_out(a, runs, count);
    if (st == POLAR_OK && !(work = pl_calloc((size_t)a->seed_count + 1, sizeof *work)))
        st = PL_FAIL(POLAR_E_NOMEM, "the values of an arm");
    if (st == POLAR_OK) st = list_missing(a);
    if (st == POLAR_OK) st = measure_arms(a, work);
    if (st == POLAR_OK) st = measure_pairs(a, work);
    if (st == POLAR_OK) st = pl_audit_measure_tests(a);
    pl_free(work);
    if (st != POLAR_OK) pl_audit_destroy(a);
    else *out = a;
    return st;
}

void pl_audit_destroy(pl_audit *a)
{
    if (!a) return;
    pl_free(a->spec);
    pl_free(a->metric);
    pl_free(a->cells);
    pl_free(a->arms);
    pl_free(a->seeds);
    pl_free(a->runs);
    pl_free(a->arm_rows);
    pl_free(a->pairs);
    pl_free(a->missing);
    pl_free(a->values);
    pl_free(a->pair_seeds);
    pl_free(a->taus);
    pl_free(a);
}
