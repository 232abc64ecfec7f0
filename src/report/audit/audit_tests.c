/* audit_tests.c -- what an audit says beyond differences: how large they are against their spread, which of
 * all its tests may be called significant together, whether two arms are the same within a margin, and who
 * reaches a target sooner where not every run does.
 *
 * A run that ends without the target, because its budget is spent, because it stopped early or because it
 * diverged, did not reach it with the epochs it was given: it is censored at that budget, not where it
 * happened to end, since stopping is part of the recipe and no accident. So every run is known up to the
 * least budget of the cell (tau), and min(epochs, tau) can be compared pair by pair as any other number. Who
 * of a pair is sooner is known unless neither arrives; that count is tested by its signs, which is the
 * log-rank test stratified by pairs, in its exact form.
 */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json_read.h"
#include "report/audit/audit_print.h"

/* ---- when a run arrives ---- */

/* "train.epochs" of the run's configuration; 0: it does not say. */
static int64_t budget_of(const pl_store_member *m)
{
    pl_json p = pl_json_view(m->config, (int64_t)strlen(m->config), "a configuration");
    int64_t budget = 0;
    if (pl_json_next(&p) != POLAR_OK || p.token != PL_JSON_OBJECT) return 0;
    while (pl_json_next(&p) == POLAR_OK && p.token == PL_JSON_KEY) {
        int ours = pl_json_is(&p, "train.epochs");
        if (ours && pl_json_next(&p) == POLAR_OK && p.token == PL_JSON_INTEGER) budget = p.integer;
        else if (!ours && pl_json_skip(&p) != POLAR_OK) return 0;
    }
    return budget > 0 ? budget : 0;
}

static pl_event_time arrival(const pl_store_epochs *e, int64_t budget, int higher, double target)
{
    for (int64_t i = 0; i < e->count; i++) {
        double x = e->rows[i].valid; /* NaN is neither */
        if (higher ? x >= target : x <= target) return (pl_event_time){(double)e->rows[i].epoch, 1};
    }
    int64_t last = e->count ? e->rows[e->count - 1].epoch : 0;
    return (pl_event_time){(double)(budget > last ? budget : last), 0};
}

polar_status pl_audit_reach(pl_audit_run *runs, int64_t count, pl_store *s, const pl_schema *schema,
                            double target)
{
    for (int64_t i = 0; i < count; i++) {
        const pl_store_member *m = runs[i].run;
        pl_store_epochs e;
        runs[i].reach = (pl_event_time){0, 0};
        if (!m || m->state == PL_RUN_PLANNED) continue;
        PL_TRY(pl_store_select_epochs(&e, s, m->id));
        if (e.count || !pl_store_is_imported(m)) /* a table of runs alone does not say */
            runs[i].reach = arrival(&e, budget_of(m), schema && schema->curve.higher, target);
        pl_store_epochs_free(&e);
    }
    return POLAR_OK;
}

/* ---- measuring ---- */

static const pl_audit_run *run_at(const pl_audit *a, int64_t cell, int64_t seed, int64_t arm)
{
    return a->runs[(cell * a->seed_count + seed) * a->arm_count + arm];
}

static int has_arrival(const pl_audit_run *r)
{
    return r && r->reach.time > 0;
}

/* The least time at which a run of the cell was censored, or would have been: its budget. */
static double tau_of(const pl_audit *a, int64_t cell)
{
    double tau = INFINITY;
    for (int64_t i = 0; i < a->seed_count * a->arm_count; i++) {
        const pl_audit_run *r = run_at(a, cell, i / a->arm_count, i % a->arm_count);
        if (!has_arrival(r)) continue;
        int64_t budget = budget_of(r->run);
        tau = fmin(tau, !r->reach.seen ? r->reach.time : budget ? (double)budget : r->reach.time);
    }
    return isinf(tau) ? (double)NAN : tau;
}

static void measure_arms(pl_audit *a, pl_event_time *times)
{
    for (int64_t i = 0; i < a->cell_count * a->arm_count; i++) {
        int64_t n = 0, cell = i / a->arm_count;
        for (int64_t s = 0; s < a->seed_count; s++) {
            const pl_audit_run *r = run_at(a, cell, s, i % a->arm_count);
            if (has_arrival(r)) times[n++] = r->reach;
        }
        a->arm_rows[i].reach = pl_survival_measure(times, n, a->taus[cell]);
    }
}

/* work: room for three arms' seeds */
static void measure_race(pl_audit *a, pl_audit_race *race, int64_t cell, int64_t y, int64_t x, double *work)
{
    int64_t n = 0;
    double *at = work, *bt = work + a->seed_count;
    for (int64_t s = 0; s < a->seed_count; s++) {
        const pl_audit_run *ra = run_at(a, cell, s, y), *rb = run_at(a, cell, s, x);
        if (!has_arrival(ra) || !has_arrival(rb)) continue;
        int order = pl_event_order(ra->reach, rb->reach);
        race->sooner += order == -1;
        race->later += order == 1;
        race->same += order == 0;
        race->unknown += order == 2;
        at[n] = fmin(ra->reach.time, a->taus[cell]);
        bt[n++] = fmin(rb->reach.time, a->taus[cell]);
    }
    race->s = pl_paired_measure(at, bt, n, work + 2 * a->seed_count);
    race->p = n ? pl_sign_p(race->sooner, race->later) : (double)NAN;
}

static void measure_target(pl_audit *a, double *work, pl_event_time *times)
{
    int64_t pair = 0;
    for (int64_t c = 0; c < a->cell_count; c++) a->taus[c] = tau_of(a, c);
    measure_arms(a, times);
    for (int64_t c = 0; c < a->cell_count; c++)
        for (int64_t y = 1; y < a->arm_count; y++)
            for (int64_t x = 0; x < y; x++) measure_race(a, &a->pairs[pair++].race, c, y, x, work);
}

static void correct(pl_audit *a, double *p, double *adjusted, pl_ranked *ranked)
{
    for (int64_t i = 0; i < a->pair_count; i++) {
        p[i] = a->pairs[i].s.p;
        a->tests += !isnan(p[i]);
    }
    pl_holm(adjusted, p, a->pair_count, ranked);
    for (int64_t i = 0; i < a->pair_count; i++) a->pairs[i].p_holm = adjusted[i];
}

polar_status pl_audit_measure_tests(pl_audit *a)
{
    size_t pairs = (size_t)a->pair_count + 1, seeds = (size_t)a->seed_count + 1;
    double *numbers = pl_calloc(2 * pairs + 3 * seeds, sizeof *numbers);
    pl_ranked *ranked = pl_calloc(pairs, sizeof *ranked);
    pl_event_time *times = pl_calloc(seeds, sizeof *times);
    a->taus = pl_calloc((size_t)a->cell_count + 1, sizeof *a->taus);
    int there = numbers && ranked && times && a->taus;
    if (there) {
        for (int64_t i = 0; i < a->pair_count; i++) {
            pl_audit_pair *p = &a->pairs[i];
            p->effect = pl_effect_measure(&p->s);
            p->p_equivalence = a->equivalence > 0 ? pl_equivalence_p(&p->s, a->equivalence) : (double)NAN;
        }
        correct(a, numbers, numbers + pairs, ranked);
        if (a->target != 0) measure_target(a, numbers + 2 * pairs, times);
    }
    pl_free(numbers);
    pl_free(ranked);
    pl_free(times);
    PL_NEED(there, POLAR_E_NOMEM, "the tests of %lld pairs", (long long)a->pair_count);
    return POLAR_OK;
}

/* ---- tables ---- */

static void begin_pair(pl_table *t, const pl_audit_pair *p)
{
    pl_table_row(t);
    pl_table_text(t, p->cell);
    pl_table_text(t, p->a);
    pl_table_text(t, p->b);
}

polar_status pl_audit_effect_table(const pl_audit *a, FILE *f, pl_table_format format)
{
    int n = 9, margin = a->equivalence > 0;
    pl_table_column columns[10] = {
        {"cell", "cell", NULL, PL_CELL_TEXT, 0},
        {"a", "a", NULL, PL_CELL_TEXT, 0},
        {"b", "b", NULL, PL_CELL_TEXT, 0},
        {"n", "n", NULL, PL_CELL_INTEGER, 0},
        {"g", "g", "effect", PL_CELL_FIXED, 2},
        {"g_ci95_lo", "from", "95 % CI", PL_CELL_FIXED, 2},
        {"g_ci95_hi", "to", "95 % CI", PL_CELL_FIXED, 2},
        {"p", "p", "paired", PL_CELL_SCI, 1},
        {"p_holm", "Holm p", "paired", PL_CELL_SCI, 1},
    };
    if (margin) columns[n++] = (pl_table_column){"p_equivalence", "equivalence p", NULL, PL_CELL_SCI, 1};
    pl_table *t;
    PL_TRY(pl_table_create(&t, NULL, columns, n));
    for (int64_t i = 0; i < a->pair_count; i++) {
        const pl_audit_pair *p = &a->pairs[i];
        const double numbers[] = {p->effect.g, p->effect.lo, p->effect.hi,
                                  p->s.p,      p->p_holm,    p->p_equivalence};
        begin_pair(t, p);
        pl_table_integer(t, p->s.n);
        for (int k = 0; k < 5 + margin; k++) pl_table_maybe(t, numbers[k]);
    }
    polar_status st = pl_table_print(t, f, format);
    pl_table_destroy(t);
    return st;
}

/* A time that was not reached has no number. */
static void put_time(pl_table *t, double x)
{
    pl_table_maybe(t, isinf(x) ? (double)NAN : x);
}

polar_status pl_audit_target_table(const pl_audit *a, FILE *f, pl_table_format format)
{
    static const pl_table_column columns[] = {
        {"cell", "cell", NULL, PL_CELL_TEXT, 0},
        {"arm", "arm", NULL, PL_CELL_TEXT, 0},
        {"n", "n", NULL, PL_CELL_INTEGER, 0},
        {"reached", "reached", NULL, PL_CELL_INTEGER, 0},
        {"median", "median", "epochs", PL_CELL_FIXED, 0},
        {"median_ci95_lo", "from", "95 % CI", PL_CELL_FIXED, 0},
        {"median_ci95_hi", "to", "95 % CI", PL_CELL_FIXED, 0},
        {"restricted_mean", "mean", "restricted", PL_CELL_FIXED, 2},
        {"tau", "to", "restricted", PL_CELL_FIXED, 0},
    };
    pl_table *t;
    PL_TRY(pl_table_create(&t, NULL, columns, 9));
    for (int64_t i = 0; i < a->cell_count * a->arm_count; i++) {
        const pl_audit_arm *r = &a->arm_rows[i];
        pl_table_row(t);
        pl_table_text(t, r->cell);
        pl_table_text(t, r->arm);
        pl_table_integer(t, r->reach.n);
        pl_table_integer(t, r->reach.events);
        put_time(t, r->reach.median);
        put_time(t, r->reach.lo);
        put_time(t, r->reach.hi);
        pl_table_maybe(t, r->reach.mean);
        pl_table_maybe(t, a->taus[i / a->arm_count]);
    }
    polar_status st = pl_table_print(t, f, format);
    pl_table_destroy(t);
    return st;
}

polar_status pl_audit_race_table(const pl_audit *a, FILE *f, pl_table_format format)
{
    static const pl_table_column columns[] = {
        {"cell", "cell", NULL, PL_CELL_TEXT, 0},
        {"a", "a", NULL, PL_CELL_TEXT, 0},
        {"b", "b", NULL, PL_CELL_TEXT, 0},
        {"n", "n", NULL, PL_CELL_INTEGER, 0},
        {"sooner", "sooner", "a is", PL_CELL_INTEGER, 0},
        {"later", "later", "a is", PL_CELL_INTEGER, 0},
        {"same", "at once", "a is", PL_CELL_INTEGER, 0},
        {"unknown", "neither", NULL, PL_CELL_INTEGER, 0},
        {"p", "sign p", NULL, PL_CELL_SCI, 1},
        {"mean_diff", "a - b", "epochs", PL_CELL_FIXED, 2},
        {"ci95_lo", "from", "95 % CI", PL_CELL_FIXED, 2},
        {"ci95_hi", "to", "95 % CI", PL_CELL_FIXED, 2},
    };
    pl_table *t;
    PL_TRY(pl_table_create(&t, NULL, columns, 12));
    for (int64_t i = 0; i < a->pair_count; i++) {
        const pl_audit_race *r = &a->pairs[i].race;
        begin_pair(t, &a->pairs[i]);
        pl_table_integer(t, r->s.n);
        pl_table_integer(t, r->sooner);
        pl_table_integer(t, r->later);
        pl_table_integer(t, r->same);
        pl_table_integer(t, r->unknown);
        pl_table_maybe(t, r->p);
        pl_table_maybe(t, r->s.mean_diff);
        pl_table_maybe(t, r->s.ci_lo);
        pl_table_maybe(t, r->s.ci_hi);
    }
    polar_status st = pl_table_print(t, f, format);
    pl_table_destroy(t);
    return st;
}

const char *pl_audit_target_text(char out[160], const pl_audit *a)
{
    const char *axis = a->schema && a->schema->curve.axis ? a->schema->curve.axis : "the validation metric";
    snprintf(out, 160, "%.100s %s %g", axis, a->schema && a->schema->curve.higher ? ">=" : "<=", a->target);
    return out;
}
