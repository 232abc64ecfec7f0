/* test_runner_plans.c -- several plans in one call of the runner: the first one's runs first, what two of
 * them share once, and the same tables however it is stopped, killed or shared. */
#include "runner_fixture.h"

#define HALF (FAKE_RUNS / 2) /* the runs of a width, 4 and then 8 */

static const pl_store_spec first_row = {"fake_first", "0", "A part of it", "fake", "mse", "name: x\n", NULL};
static char *wanted_first; /* the table of fake_first */

/* The plan's runs from `from` on as a spec of their own, then all of it. */
typedef struct two_plans {
    pl_runner_plan plans[2];
} two_plans;

static two_plans plans_of(const pl_testbed *tb, int64_t from, int64_t count)
{
    return (two_plans){
        {{tb, &first_row, plan.runs + from, count}, {&fake_testbed, &plan.spec, plan.runs, FAKE_RUNS}}};
}

static polar_status run_two(pl_runner_outcome *out, const pl_runner_opts *o)
{
    return pl_runner_run(out, plans_of(&fake_testbed, HALF, HALF).plans, 2, o);
}

/* 0: both tables are as those of undisturbed plans, and nothing is beside the store. */
static int64_t tables_differ(void)
{
    char *dump = NULL;
    if (store_dump(&dump, store, first_row.name) != POLAR_OK) return -1;
    int64_t n = strcmp(dump, wanted_first) ? 1 : 0;
    free(dump);
    return n + table_differs();
}

/* Widths of the runs begun from the first on that are `width`. */
static int64_t begun_with(int width)
{
    int rule, seed, got;
    int64_t n = 0;
    FILE *f = fopen(log_path, "r");
    while (f && fscanf(f, "%d %d %d", &rule, &seed, &got) == 3 && got == width) n++;
    if (f) fclose(f);
    return n;
}

/* ---- undisturbed -------------------------------------------------------------------------------- */

typedef struct told {
    int64_t first, whole, members; /* finished runs by spec; the members of the first ensemble */
} told;

static void listen(void *arg, const pl_runner_event *e)
{
    told *t = arg;
    if (e->kind == PL_RUNNER_RESUMED && !t->members) t->members = e->view->jobs[0].members;
    if (e->kind != PL_RUNNER_FINISHED) return;
    t->first += e->plan->spec == &first_row;
    t->whole += e->plan->spec == &plan.spec;
}

static void test_alone(void)
{
    pl_runner_outcome out;
    pl_runner_opts o = options();
    clean();
    TEST_TRY(pl_runner_run(&out, plans_of(&fake_testbed, HALF, HALF).plans, 1, &o));
    TEST_TRY(store_dump(&wanted_first, store, first_row.name));
    clean();
    TEST_TRY(run_all(&out, &o));
    TEST_TRY(store_dump(&wanted, store, plan.spec.name));
    test_true("each alone", strlen(wanted_first) < strlen(wanted), "tables of %zu and %zu bytes",
              strlen(wanted_first), strlen(wanted));
}

static void test_together(void)
{
    pl_runner_outcome out;
    told t = {0};
    pl_runner_opts o = options();
    clean();
    o.watch = listen;
    o.watch_arg = &t;
    TEST_TRY(run_two(&out, &o));
    test_true("shared runs are made once",
              PART(out.total == FAKE_RUNS) && PART(out.done_here == FAKE_RUNS) &&
                  PART(runs_begun() == FAKE_RUNS) && PART(!tables_differ()),
              "%lld runs", (long long)runs_begun());
    test_true("  the first plan's first", begun_with(8) == HALF, "%lld of its %d", (long long)begun_with(8),
              HALF);
    test_true("  and a shared run is the first one's", t.first == HALF && t.whole == HALF, "%lld and %lld",
              (long long)t.first, (long long)t.whole);
    TEST_TRY(run_two(&out, &o));
    test_true("again: nothing is done twice", !out.done_here && out.done == FAKE_RUNS && !tables_differ(),
              "%lld begins", (long long)runs_begun());
}

/* What is wide is cheap: alone, a device that trains one run at a time begins with width 8. */
static void test_devices(void)
{
    const char *const beside[] = {"ref"};
    pl_runner_outcome out;
    pl_runner_opts o = options();
    clean();
    o.beside = beside, o.beside_count = 1;
    TEST_TRY(pl_runner_run(&out, plans_of(&fake_testbed, 0, HALF).plans, 2, &o));
    /* the last of the first plan and the first of the next may begin in either order */
    test_true("several devices: the first plan before the cheapest runs", begun_with(4) >= HALF - 1,
              "%lld of its %d", (long long)begun_with(4), HALF);
    test_exact("  every run once", table_differs() + (runs_begun() != FAKE_RUNS));
}

/* ---- ensembles ---------------------------------------------------------------------------------- */

static int64_t other_members;

static polar_status other_begin(pl_train **out, polar_device *dev, const pl_config *const *configs,
                                const uint64_t *seeds, int64_t members, const pl_step_watch *w)
{
    other_members += members;
    return fake_begin(out, dev, configs, seeds, members, w);
}

static void test_ensembles(void)
{
    pl_runner_outcome out;
    told t = {0};
    pl_runner_opts o = options();
    clean();
    o.ensemble = HALF;
    o.watch = listen;
    o.watch_arg = &t;
    TEST_TRY(pl_runner_run(&out, plans_of(&fake_testbed, 0, 3).plans, 2, &o));
    test_true("an ensemble is filled from the next plan", t.members == HALF && !table_differs(),
              "%lld members, of which 3 are the first plan's", (long long)t.members);
    pl_testbed other = fake_testbed;
    other.begin = other_begin;
    clean();
    t = (told){0};
    TEST_TRY(pl_runner_run(&out, plans_of(&other, 0, 3).plans, 2, &o));
    test_true("but not from one of another testbed", t.members == 3 && other_members == 3 && !table_differs(),
              "%lld members, %lld begun there", (long long)t.members, (long long)other_members);
}

static void test_shards(void)
{
    int64_t total = 0;
    clean();
    for (int64_t k = 0; k < 4; k++) {
        pl_runner_outcome out;
        pl_runner_opts o = options();
        o.shard = k, o.shards = 4;
        TEST_TRY(run_two(&out, &o));
        total += out.total;
    }
    test_true("four shards are all of it", total == FAKE_RUNS && runs_begun() == total && !tables_differ(),
              "%lld runs", (long long)total);
}

/* ---- interrupted -------------------------------------------------------------------------------- */

static void test_stops(void)
{
    int64_t wrong = 0, stops = 0;
    for (int64_t at = 2; at <= 30; at += 7) {
        clean();
        for (int left = 1; left;) {
            pl_runner_outcome out;
            watcher w = {.stop_at = at};
            pl_runner_opts o = watched(&w);
            o.jobs = 1 + (int)(at % 2);
            o.ensemble = at % 3 ? 0 : 5;
            TEST_TRY(run_two(&out, &o));
            left = out.left > 0;
            wrong += left != out.stopped;
            stops += out.stopped;
        }
        wrong += tables_differ();
    }
    test_exact("stopped after every 2, 9, ... 30 epochs", wrong);
    test_true("  figures", stops > 20, "%lld stops", (long long)stops);
}

/* Time for one part of the whole; the other plan alone then has what the two of them left of it. */
static void test_budget(void)
{
    pl_runner_outcome out;
    pl_runner_opts o = options();
    clean();
    setenv("FAKE_DELAY", "3000", 1);
    o.budget = 0.02; /* an epoch sleeps 3 ms and there are more than 60 of them */
    TEST_TRY(run_two(&out, &o));
    unsetenv("FAKE_DELAY");
    int early = out.out_of_time && out.left;
    o.budget = 0;
    TEST_TRY(run_all(&out, &o));
    test_exact("out of time, then the second plan alone", tables_differ() + !early);
}

static void test_kills(void)
{
    int64_t kills = 0, wrong = 0;
    uint64_t random = 11;
    setenv("FAKE_DELAY", "1500", 1);
    while (kills < 15) {
        clean();
        for (int done = 0; !done;) {
            int status = 0;
            fflush(stdout);
            pid_t pid = fork();
            if (!pid) {
                pl_runner_outcome out;
                pl_runner_opts o = options();
                o.jobs = 1 + (int)(kills % 2);
                _exit(run_two(&out, &o) == POLAR_OK && !out.left ? 0 : 1);
            }
            random = fake_hash(random);
            usleep((useconds_t)(random % 90000));
            if (kills < 15) kill(pid, SIGKILL);
            waitpid(pid, &status, 0);
            kills += WIFSIGNALED(status);
            done = WIFEXITED(status);
            wrong += done && WEXITSTATUS(status) != 0;
        }
        wrong += tables_differ();
    }
    unsetenv("FAKE_DELAY");
    test_exact("15 times kill -9 at a random moment", wrong);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    fixture_open();
    test_alone();
    test_together();
    test_devices();
    test_ensembles();
    test_shards();
    test_stops();
    test_budget();
    test_kills();
    fixture_close();
    free(wanted_first);
    return test_end();
}
