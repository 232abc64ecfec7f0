/* test_audit_tests.c -- an audit's effect sizes, corrected p, equivalence and epochs to a target: the numbers
 * are those of the formulas on the right runs, and what is censored, diverged, unfinished or of another
 * budget counts as it should. */
#include "fixtures/audit_fixture.h"
#include "base/alloc.h"
#include "lab/run/testbed.h"
#include "test.h"

#include <unistd.h>

static char folder[64];

/* ---- a store whose curves are known ---- */

enum { ARMS = 3, SEEDS = 6, BUDGET = 20 };

/* The epoch in which the curve falls from 1 to 0.1, 0: never; how many epochs the run made. adamw, muon,
 * polaradamw. */
static const struct {
    int falls, epochs;
    pl_run_state state;
} made[SEEDS][ARMS] = {
    {{8, 20, PL_RUN_DONE}, {4, 20, PL_RUN_DONE}, {0, 20, PL_RUN_DONE}},
    {{10, 20, PL_RUN_DONE}, {5, 12, PL_RUN_DONE}, {0, 7, PL_RUN_DONE}}, /* stopped early */
    {{7, 20, PL_RUN_DONE}, {7, 20, PL_RUN_DONE}, {0, 3, PL_RUN_DIVERGED}},
    {{0, 20, PL_RUN_DONE}, {9, 20, PL_RUN_DONE}, {0, 20, PL_RUN_DONE}},
    {{12, 20, PL_RUN_DONE}, {13, 20, PL_RUN_DONE}, {15, 20, PL_RUN_DONE}},
    {{3, 20, PL_RUN_DONE}, {2, 5, PL_RUN_PLANNED}, {6, 20, PL_RUN_DONE}}, /* muon's is unfinished */
};

static const char *const arms[ARMS] = {"adamw", "muon", "polaradamw"};

static double mse(int seed, int arm)
{
    return 0.01 + 0.001 * arm + 0.0001 * (seed * 7 % 5) * (arm + 1);
}

static void put_run(pl_store *s, const char *id, int seed, int arm, int higher)
{
    pl_epoch_row rows[BUDGET];
    int n = made[seed][arm].epochs, falls = made[seed][arm].falls;
    pl_run_state state = made[seed][arm].state;
    for (int e = 1; e <= n; e++) {
        double x = falls && e >= falls ? 0.1 : 1;
        rows[e - 1] = (pl_epoch_row){
            .epoch = e, .train_loss = x, .valid = higher ? 50 - 10 * x : x, .lr = 1, .seconds = 1};
        if (state == PL_RUN_DIVERGED && e == n) rows[e - 1].valid = (double)NAN;
    }
    const pl_run_progress p = {.epochs = rows, .epoch_count = n, .wall = 1};
    const pl_result results[] = {{"test_mse", mse(seed, arm)}, {"epochs", n}};
    const pl_provenance where = {"test", "ref", "a processor", 1, NULL};
    TEST_TRY(pl_store_begin_run(s, id, &where, 1));
    if (state == PL_RUN_PLANNED) TEST_TRY(pl_store_put_progress(s, id, &p));
    else TEST_TRY(pl_store_finish(s, id, state, results, 2, &p));
}

/* budgets: of the arms, NULL: a configuration that does not say. */
static pl_store *make_store(const char *name, const char *const *configs, int higher)
{
    static char ids[SEEDS * ARMS][PL_RUN_ID_CHARS];
    pl_store_plan_row rows[SEEDS * ARMS];
    pl_store_spec spec = {
        .name = "t", .sha = "0", .title = "t", .testbed = "so3", .metric = "test_mse", .text = "name: t\n"};
    char path[128];
    pl_store *s;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    TEST_TRY(pl_store_open(&s, path, PL_STORE_WRITE));
    for (int i = 0; i < SEEDS * ARMS; i++) {
        snprintf(ids[i], sizeof ids[i], "%032x", i + 1);
        rows[i] = (pl_store_plan_row){ids[i], "all", arms[i % ARMS], configs[i % ARMS], i / ARMS};
    }
    TEST_TRY(pl_store_put_spec(s, &spec, rows, SEEDS * ARMS));
    for (int i = 0; i < SEEDS * ARMS; i++) put_run(s, ids[i], i / ARMS, i % ARMS, higher);
    return s;
}

static polar_status load(loaded *l, pl_store *s, const pl_schema *schema, double target, double margin)
{
    const pl_audit_of of = {
        .spec = "t", .metric = "test_mse", .schema = schema, .target = target, .equivalence = margin};
    return load_audit(l, s, &of);
}

static const char *const plain[] = {"{\"train.epochs\": 20}",
                                    "{\"a\": [1, {\"train.epochs\": 3}], \"train.epochs\": 20}",
                                    "{\"train.epochs\": 20, \"b\": \"x\"}"};

/* ---- tests ---- */

static void test_effects(pl_store *s)
{
    loaded l;
    double a[SEEDS], b[SEEDS], work[SEEDS], p[3], holm[3];
    pl_ranked ranked[3];
    TEST_TRY(load(&l, s, pl_testbed_so3.schema, 0, 0.0012));
    int64_t wrong = 0;
    for (int pair = 0; pair < 3; pair++) {
        int y = pair == 0 ? 1 : 2, x = pair == 2 ? 1 : 0, n = 0;
        const pl_audit_pair *q = &l.audit->pairs[pair];
        for (int k = 0; k < SEEDS; k++) {
            if (made[k][y].state != PL_RUN_DONE || made[k][x].state != PL_RUN_DONE) continue;
            a[n] = mse(k, y);
            b[n++] = mse(k, x);
        }
        pl_paired want = pl_paired_measure(a, b, n, work);
        pl_effect e = pl_effect_measure(&want);
        wrong += q->s.n != n || q->effect.g != e.g || q->effect.lo != e.lo || q->effect.hi != e.hi;
        wrong += q->p_equivalence != pl_equivalence_p(&want, 0.0012);
        p[pair] = want.p;
    }
    pl_holm(holm, p, 3, ranked);
    for (int i = 0; i < 3; i++) wrong += l.audit->pairs[i].p_holm != holm[i] || !(holm[i] >= p[i]);
    test_exact("effect sizes, Holm and equivalence of the pairs", wrong);
    test_true("the family", l.audit->tests == 3, "%lld tests", (long long)l.audit->tests);
    char *text = printed(l.audit, PL_TABLE_TEXT), *json = printed(l.audit, PL_TABLE_JSON);
    test_true("text and JSON have them",
              PART(strstr(text, "Holm for the 3 tests")) && PART(strstr(text, "within +-0.0012")) &&
                  PART(strstr(text, "equivalence p")) && PART(strstr(json, "\"equivalence\": 0.0012")) &&
                  PART(strstr(json, "\"p_holm\": ")) && PART(strstr(json, "\"g_ci95\": [")) &&
                  PART(strstr(json, "\"p_equivalence\": ")) && PART(!strstr(json, "target")) &&
                  PART(!strstr(text, "Epochs until")),
              "%zu bytes", strlen(text));
    free(text);
    free(json);
    unload(&l);
}

/* Times by hand from `made`: adamw 8 10 7 20+ 12 3, muon 4 5 7 9 13, polaradamw 20+ 20+ 20+ 20+ 15 6. */
static void test_target(pl_store *s, const pl_schema *schema, double target, const char *says)
{
    loaded l;
    TEST_TRY(load(&l, s, schema, target, 0));
    const pl_audit_arm *r = l.audit->arm_rows;
    test_true("arms: who reached it, medians, restricted means",
              PART(r[0].reach.n == 6) && PART(r[0].reach.events == 5) && PART(r[0].reach.median == 8) &&
                  PART(fabs(r[0].reach.mean - 10) < 1e-13) && PART(r[1].reach.n == 5) &&
                  PART(r[1].reach.events == 5) && PART(r[1].reach.median == 7) &&
                  PART(fabs(r[1].reach.mean - 7.6) < 1e-13) && PART(r[2].reach.n == 6) &&
                  PART(r[2].reach.events == 2) && PART(isinf(r[2].reach.median)) &&
                  PART(fabs(r[2].reach.mean - 101.0 / 6) < 1e-13) && PART(l.audit->taus[0] == 20),
              "means %g, %g, %g", r[0].reach.mean, r[1].reach.mean, r[2].reach.mean);
    const pl_audit_race *m = &l.audit->pairs[0].race, *q = &l.audit->pairs[1].race,
                        *z = &l.audit->pairs[2].race;
    test_true("pairs: who is sooner",
              PART(m->s.n == 5) && PART(m->sooner == 3) && PART(m->later == 1) && PART(m->same == 1) &&
                  PART(m->unknown == 0) && PART(m->p == pl_sign_p(3, 1)) && PART(q->s.n == 6) &&
                  PART(q->sooner == 0) && PART(q->later == 5) && PART(q->unknown == 1) &&
                  PART(q->p == 0.0625) && PART(z->later == 5) && PART(z->unknown == 0),
              "muon against adamw %lld : %lld", (long long)m->sooner, (long long)m->later);
    /* muon - adamw: -4, -5, 0, 9 - 20, 1 */
    test_true("pairs: restricted epochs", fabs(m->s.mean_diff - -3.8) < 1e-13 && m->s.negative == 3, "%g",
              m->s.mean_diff);
    char *text = printed(l.audit, PL_TABLE_TEXT), *json = printed(l.audit, PL_TABLE_JSON);
    test_true("text and JSON have them",
              PART(strstr(text, says)) && PART(strstr(text, "Who reaches it sooner")) &&
                  PART(strstr(json, "\"target\": {\"n\": 5, \"sooner\": 3, \"later\": 1, \"same\": 1, "
                                    "\"unknown\": 0, \"p\": 0.625")) &&
                  PART(strstr(json, "\"target\": {\"n\": 6, \"reached\": 2, \"median\": null")) &&
                  PART(!strstr(text, "equivalence")),
              "%s", says);
    free(text);
    free(json);
    unload(&l);
}

/* polaradamw has a budget of 16 epochs: the restricted means of the cell end there. */
static void test_budgets(void)
{
    static const char *const shorter[] = {"{\"train.epochs\": 20}", "{\"train.epochs\": 20}",
                                          "{\"train.epochs\": 16}"},
                             *const silent[] = {"{}", "{\"train.epochs\": \"many\"}",
                                                "{\"train.epochs\": 20}"};
    loaded l;
    pl_store *s = make_store("shorter.db", shorter, 0);
    TEST_TRY(load(&l, s, pl_testbed_so3.schema, 0.5, 0));
    /* seed 1 of polaradamw ended after 7 epochs, seed 0 went past its budget to 20: what it made counts */
    test_true("the least budget of a cell",
              PART(l.audit->taus[0] == 16) && PART(l.audit->arm_rows[2].reach.events == 2), "tau %g",
              l.audit->taus[0]);
    test_true("  restricted to it",
              fabs(l.audit->arm_rows[0].reach.mean - (8 + 10 + 7 + 16 + 12 + 3) / 6.0) < 1e-13, "%g",
              l.audit->arm_rows[0].reach.mean);
    unload(&l);
    pl_store_close(s);
    s = make_store("silent.db", silent, 0);
    TEST_TRY(load(&l, s, pl_testbed_so3.schema, 0.5, 0));
    /* without a budget a run is censored where it ended, and one that arrived was known that far */
    test_true("a configuration that does not say",
              PART(l.audit->taus[0] == 3) && PART(l.audit->arm_rows[0].reach.n == 6), "tau %g",
              l.audit->taus[0]);
    unload(&l);
    pl_store_close(s);
}

static void test_nobody(pl_store *s)
{
    loaded l;
    TEST_TRY(load(&l, s, pl_testbed_so3.schema, 1e-9, 0));
    const pl_audit_race *m = &l.audit->pairs[0].race;
    test_true("a target that nobody reaches",
              PART(l.audit->arm_rows[0].reach.events == 0) && PART(l.audit->arm_rows[0].reach.mean == 20) &&
                  PART(m->unknown == 5) && PART(m->p == 1) && PART(isnan(m->s.t)),
              "p %g", m->p);
    unload(&l);
}

/* Arrivals and an audit, the allocation `fail` of them failing; 0: none. */
static polar_status once(pl_store *s, int64_t fail)
{
    pl_store_members m;
    pl_audit_run runs[SEEDS * ARMS];
    pl_audit *a = NULL;
    TEST_TRY(pl_store_select_members(&m, s, "t"));
    for (int64_t i = 0; i < m.count; i++) {
        const pl_store_member *r = &m.rows[i];
        runs[i] = (pl_audit_run){.cell = r->cell, .arm = r->arm, .seed = r->seed, .run = r};
    }
    pl_audit_of of = {.spec = "t", .metric = "test_mse", .schema = pl_testbed_so3.schema, .target = 0.5};
    pl_alloc_fail_at(fail);
    polar_status st = pl_audit_reach(runs, m.count, s, of.schema, of.target);
    if (st == POLAR_OK) st = pl_audit_create(&a, &of, runs, m.count);
    pl_alloc_fail_at(0);
    pl_audit_destroy(a);
    pl_store_members_free(&m);
    return st;
}

static void test_faults(pl_store *s)
{
    TEST_TRY(once(s, 0)); /* the store keeps its statements from then on */
    int64_t n = 1, wrong = 0, before = pl_alloc_live();
    for (polar_status st; (st = once(s, n)) != POLAR_OK; n++)
        wrong += st != POLAR_E_NOMEM || pl_alloc_live() != before;
    test_true("without memory it says so and keeps nothing", wrong == 0 && n > 10, "%lld tries",
              (long long)n);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    snprintf(folder, sizeof folder, "%s/polar_test_tests.XXXXXX",
             access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
    if (!mkdtemp(folder)) return 1;
    pl_schema rising = *pl_testbed_so3.schema;
    rising.curve.higher = 1;
    rising.curve.axis = "accuracy";
    pl_store *s = make_store("t.db", plain, 0), *up = make_store("up.db", plain, 1);
    test_effects(s);
    test_target(s, pl_testbed_so3.schema, 0.5, "Epochs until validation MSE <= 0.5");
    test_target(up, &rising, 45, "Epochs until accuracy >= 45");
    test_budgets();
    test_nobody(s);
    test_faults(s);
    pl_store_close(s);
    pl_store_close(up);
    char command[100];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    if (system(command) != 0) return 1;
    return test_end();
}
