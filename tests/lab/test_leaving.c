/* test_leaving.c -- members that have ended leave their ensemble, and nobody's table changes: at once,
 * stopped and killed in between, in ensembles of any size. */
#include "runner_fixture.h"

/* The table of single runs, which leave nobody. */
static void test_single(void)
{
    pl_runner_outcome out;
    pl_runner_opts o = options();
    clean();
    TEST_TRY(run_all(&out, &o));
    TEST_TRY(store_dump(&wanted, store, plan.spec.name));
    test_true("one run at a time", out.done == FAKE_RUNS, "%lld runs", (long long)out.done);
}

static int64_t epochs; /* that the plan takes */

/* Who has ended leaves his ensemble at once: then no place is anybody's but those who go on. */
static void test_at_once(void)
{
    int64_t wrong = 0;
    for (int64_t size = 2; size <= 16; size *= 2) {
        pl_runner_outcome out;
        watcher w = {0};
        pl_runner_opts o = watched(&w);
        clean();
        o.ensemble = size;
        o.leave_after = 0;
        atomic_store(&fake_places, 0);
        TEST_TRY(run_all(&out, &o));
        epochs = w.epochs;
        wrong += table_differs() + (atomic_load(&fake_places) != epochs) + (w.finished != FAKE_RUNS);
    }
    test_true("who has ended leaves, and has no place any more", !wrong && epochs > 0, "%lld epochs",
              (long long)epochs);
}

/* Before and after members leave, again and again. */
static void leaving(pl_runner_opts *o, int64_t at)
{
    o->ensemble = 4 + at % 6;
    o->leave_after = 0;
}

/* One of those that leave is stored, the next not yet. */
static void test_killed(void)
{
    int64_t wrong = 0, died = 0;
    for (int64_t k = 1; k <= FAKE_RUNS; k++) {
        watcher w = {.die_at = k};
        pl_runner_opts o = watched(&w);
        pl_runner_outcome out;
        int status = 0;
        clean();
        o.ensemble = 8;
        o.leave_after = 0;
        waitpid(fork_runner(&o), &status, 0);
        died += WIFSIGNALED(status);
        w = (watcher){0};
        TEST_TRY(run_all(&out, &o));
        wrong += table_differs() + (w.finished != FAKE_RUNS - k);
    }
    test_true("kill -9 after each result that is stored", !wrong && died == FAKE_RUNS, "%lld kills",
              (long long)died);
}

/* An ensemble stopped, then smaller ones: the first takes its own out of the file of all, which goes with its
 * bearer; 8 runs had made 2 epochs. */
static void test_smaller(void)
{
    int64_t wrong = 0;
    for (int64_t size = 1; size <= 4; size++) {
        pl_runner_outcome out;
        watcher w = {.stop_at = 9};
        pl_runner_opts o = watched(&w);
        clean();
        o.ensemble = 8;
        o.leave_after = 1e9; /* never */
        TEST_TRY(run_all(&out, &o));
        int64_t before = w.epochs;
        w = (watcher){0};
        o.ensemble = size;
        TEST_TRY(run_all(&out, &o));
        wrong += table_differs();
        test_true("an ensemble stopped, smaller ones go on",
                  !wrong && before == 16 && w.epochs == epochs - 2 * size, "%lld and %lld epochs of %lld",
                  (long long)before, (long long)w.epochs, (long long)epochs);
    }
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    fixture_open();
    test_single();
    test_at_once();
    test_stopped(leaving, 20);
    test_killed();
    test_smaller();
    fixture_close();
    return test_end();
}
