/* audit_json.c -- an audit for programs: every number to its last digit, null where nothing can be said, no
 * clock and no run id. */
#include "report/audit/audit_print.h"

#include <math.h>

static void put_ends(pl_json_writer *w, const char *key, double lo, double hi)
{
    pl_json_key(w, key);
    pl_json_array(w);
    pl_json_number(w, lo);
    pl_json_number(w, hi);
    pl_json_array_end(w);
}

static void put_interval(pl_json_writer *w, double lo, double hi)
{
    put_ends(w, "ci95", lo, hi);
}

static void put_text(pl_json_writer *w, const char *key, const char *text)
{
    pl_json_key(w, key);
    pl_json_string(w, text);
}

static void put_count(pl_json_writer *w, const char *key, int64_t n)
{
    pl_json_key(w, key);
    pl_json_integer(w, n);
}

/* Where the spec has a published difference of the two. */
static void put_published_pair(pl_json_writer *w, const pl_audit *a, const pl_audit_pair *p)
{
    pl_published_difference d = pl_published_pair_of(a->published, p->cell, p->a, p->b, a->metric);
    if (isnan(d.mean)) return;
    pl_json_key(w, "published");
    pl_json_object(w);
    pl_json_put(w, "mean_diff", d.mean);
    pl_json_put(w, "t", d.t);
    put_count(w, "n", d.n);
    pl_json_object_end(w);
}

static void put_tests(pl_json_writer *w, const pl_audit *a, const pl_audit_pair *p)
{
    pl_json_put(w, "g", p->effect.g);
    put_ends(w, "g_ci95", p->effect.lo, p->effect.hi);
    pl_json_put(w, "p_holm", p->p_holm);
    if (a->equivalence > 0) pl_json_put(w, "p_equivalence", p->p_equivalence);
}

/* A time that was not reached is null. */
static double reached(double time)
{
    return isinf(time) ? (double)NAN : time;
}

static void put_reach(pl_json_writer *w, const pl_survival *s, double tau)
{
    pl_json_key(w, "target");
    pl_json_object(w);
    put_count(w, "n", s->n);
    put_count(w, "reached", s->events);
    pl_json_put(w, "median", reached(s->median));
    put_ends(w, "median_ci95", reached(s->lo), reached(s->hi));
    pl_json_put(w, "restricted_mean", s->mean);
    pl_json_put(w, "tau", tau);
    pl_json_object_end(w);
}

static void put_race(pl_json_writer *w, const pl_audit_race *r)
{
    pl_json_key(w, "target");
    pl_json_object(w);
    put_count(w, "n", r->s.n);
    put_count(w, "sooner", r->sooner);
    put_count(w, "later", r->later);
    put_count(w, "same", r->same);
    put_count(w, "unknown", r->unknown);
    pl_json_put(w, "p", r->p);
    pl_json_put(w, "mean_diff", r->s.mean_diff);
    put_interval(w, r->s.ci_lo, r->s.ci_hi);
    pl_json_object_end(w);
}

static void json_pairs(pl_json_writer *w, const pl_audit *a)
{
    pl_json_key(w, "pairs");
    pl_json_array(w);
    for (int64_t i = 0; i < a->pair_count; i++) {
        const pl_audit_pair *p = &a->pairs[i];
        pl_json_object(w);
        put_text(w, "cell", p->cell);
        put_text(w, "a", p->a);
        put_text(w, "b", p->b);
        put_count(w, "n", p->s.n);
        pl_json_put(w, "mean_a", p->s.mean_a);
        pl_json_put(w, "mean_b", p->s.mean_b);
        pl_json_put(w, "mean_diff", p->s.mean_diff);
        pl_json_put(w, "sd_diff", p->s.sd_diff);
        put_interval(w, p->s.ci_lo, p->s.ci_hi);
        pl_json_put(w, "t", p->s.t);
        pl_json_put(w, "p", p->s.p);
        pl_json_put(w, "wilcoxon_p", p->s.wilcoxon_p);
        put_count(w, "positive", p->s.positive);
        put_count(w, "negative", p->s.negative);
        put_count(w, "zero", p->s.zero);
        put_count(w, "incomplete", p->incomplete);
        put_tests(w, a, p);
        if (a->target != 0) put_race(w, &p->race);
        put_published_pair(w, a, p);
        pl_json_object_end(w);
    }
    pl_json_array_end(w);
}

static void json_arms(pl_json_writer *w, const pl_audit *a)
{
    pl_json_key(w, "arms");
    pl_json_array(w);
    for (int64_t i = 0; i < a->cell_count * a->arm_count; i++) {
        const pl_audit_arm *r = &a->arm_rows[i];
        pl_json_object(w);
        put_text(w, "cell", r->cell);
        put_text(w, "arm", r->arm);
        put_count(w, "n", r->s.n);
        put_count(w, "planned", r->planned);
        put_count(w, "diverged", r->diverged);
        pl_json_put(w, "mean", r->s.mean);
        pl_json_put(w, "sd", r->s.sd);
        put_interval(w, r->s.ci_lo, r->s.ci_hi);
        pl_json_put(w, "min", r->s.min);
        pl_json_put(w, "max", r->s.max);
        pl_json_put(w, "epochs", r->epochs);
        double published = pl_published_value(a->published, r->cell, r->arm, a->metric);
        if (!isnan(published)) pl_json_put(w, "published", published);
        if (a->target != 0) put_reach(w, &r->reach, a->taus[i / a->arm_count]);
        for (int k = 0; k < a->reference_count; k++) pl_json_put(w, a->references[k]->name, r->reference[k]);
        pl_json_object_end(w);
    }
    pl_json_array_end(w);
}

static void json_missing(pl_json_writer *w, const pl_audit *a)
{
    pl_json_key(w, "incomplete");
    pl_json_array(w);
    for (int64_t i = 0, n; i < a->missing_count; i += n) {
        n = pl_audit_missing_group(a, i);
        pl_json_object(w);
        put_text(w, "cell", a->missing[i].cell);
        put_count(w, "seed", a->missing[i].seed);
        pl_json_key(w, "missing");
        pl_json_array(w);
        for (int64_t k = i; k < i + n; k++) {
            pl_json_object(w);
            put_text(w, "arm", a->missing[k].arm);
            put_text(w, "why", pl_audit_why_text(a->missing[k].why));
            pl_json_object_end(w);
        }
        pl_json_array_end(w);
        pl_json_object_end(w);
    }
    pl_json_array_end(w);
}

polar_status pl_audit_json(const pl_audit *a, FILE *f)
{
    pl_json_writer w = pl_json_writer_begin(f, 2);
    pl_json_object(&w);
    put_text(&w, "spec", a->spec);
    put_text(&w, "metric", a->metric);
    put_text(&w, "better", pl_audit_better(a));
    if (a->equivalence > 0) pl_json_put(&w, "equivalence", a->equivalence);
    if (a->target != 0) pl_json_put(&w, "target", a->target);
    json_pairs(&w, a);
    json_arms(&w, a);
    json_missing(&w, a);
    pl_json_object_end(&w);
    return pl_json_writer_end(&w);
}
