/* test_runner.c -- the runner against a testbed made of hashes: however a plan is run, interrupted, killed,
 * shared or starved of disk, the table is the same to the bit. */
#include "runner_fixture.h"

#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>

/* ---- undisturbed -------------------------------------------------------------------------------- */

static void test_plain(void)
{
    pl_runner_outcome out;
    pl_runner_opts o = options();
    clean();
    o.save_every = 1000;
    TEST_TRY(run_all(&out, &o));
    TEST_TRY(store_dump(&wanted, store, plan.spec.name));
    test_true("undisturbed",
              PART(out.total == FAKE_RUNS) && PART(out.done == FAKE_RUNS) &&
                  PART(out.done_here == FAKE_RUNS) && PART(!out.left) && PART(runs_begun() == FAKE_RUNS) &&
                  PART(out.diverged > 0) && PART(out.diverged < FAKE_RUNS),
              "%lld runs, %lld diverged, table of %zu bytes", (long long)out.done, (long long)out.diverged,
              strlen(wanted));
    TEST_TRY(run_all(&out, &o));
    test_true("again: nothing is done twice",
              PART(out.done == FAKE_RUNS) && PART(!out.done_here) && PART(runs_begun() == FAKE_RUNS) &&
                  PART(!table_differs()),
              "%lld begins", (long long)runs_begun());
    o.retry = 1;
    int64_t diverged = out.diverged;
    TEST_TRY(run_all(&out, &o));
    test_true("--retry: the diverged ones again",
              out.done_here == diverged && runs_begun() == FAKE_RUNS + diverged && !table_differs(),
              "%lld done", (long long)out.done_here);
}

static void test_jobs(void)
{
    static const int jobs[] = {1, 2, 4, 32};
    for (int i = 0; i < 4; i++)
        for (int every = 0; every < 2; every++) {
            char what[64];
            pl_runner_outcome out;
            pl_runner_opts o = options();
            clean();
            o.jobs = jobs[i];
            o.save_every = every ? 1000 : 0;
            TEST_TRY(run_all(&out, &o));
            snprintf(what, sizeof what, "%d jobs, checkpoints %s", jobs[i],
                     every ? "never" : "after every epoch");
            test_exact(what, table_differs() + (runs_begun() != FAKE_RUNS));
        }
}

/* The width of the n-th run begun (from 1); 0: there is none. */
static int width_begun(int64_t n)
{
    int rule = 0, seed = 0, width = 0;
    FILE *f = fopen(log_path, "r");
    for (int64_t i = 0; f && i < n; i++)
        if (fscanf(f, "%d %d %d", &rule, &seed, &width) != 3) width = 0;
    if (f) fclose(f);
    return width;
}

/* Two devices on one plan: every run once, the same table, the cheapest first on those that train one. */
static void test_devices(void)
{
    const char *const beside[] = {"ref"};
    for (int jobs = 1; jobs <= 3; jobs += 2) {
        pl_runner_outcome out;
        pl_runner_opts o = options();
        clean();
        o.jobs = jobs, o.beside = beside, o.beside_count = 1;
        TEST_TRY(run_all(&out, &o));
        test_exact("two devices share a plan", table_differs() + (runs_begun() != FAKE_RUNS));
        test_true("... and begin with the cheapest runs", width_begun(1) == 8 && width_begun(FAKE_RUNS) == 4,
                  "widths %d and, last, %d", width_begun(1), width_begun(FAKE_RUNS));
    }
    const char *const wrong[] = {"ref", "nonsense"};
    pl_runner_opts o = options();
    pl_runner_outcome out;
    clean();
    o.beside = wrong, o.beside_count = 2;
    polar_status st = run_all(&out, &o);
    test_true("a wrong name among them leaves no store", st == POLAR_E_ARG && access(store, F_OK) != 0, "%s",
              polar_error_message());
}

static void test_ensembles(void)
{
    for (int jobs = 1; jobs <= 2; jobs++)
        for (int64_t size = 2; size <= 16; size *= 2) {
            char what[80];
            pl_runner_outcome out;
            watcher w = {.stop_at = 9};
            pl_runner_opts o = watched(&w);
            clean();
            o.jobs = jobs;
            o.ensemble = size;
            TEST_TRY(run_all(&out, &o));
            int stopped = out.stopped && out.left;
            w.stop_at = 0;
            atomic_store(&w.stop, 0);
            TEST_TRY(run_all(&out, &o));
            snprintf(what, sizeof what, "ensembles of %lld, %d jobs, stopped once", (long long)size, jobs);
            test_exact(what, table_differs() + !stopped + !w.resumed);
        }
}

/* ---- interrupted -------------------------------------------------------------------------------- */

static void saved_by_stops(pl_runner_opts *o, int64_t at)
{
    (void)at;
    o->save_every = 1000;
}

/* Runs whose seconds are not the sum of their epochs': both are sums of the same numbers in another order, so
 * they may differ by a rounding each. */
static int64_t seconds_differ(void)
{
    pl_store *s;
    pl_store_members m;
    int64_t wrong = 0;
    TEST_TRY(pl_store_open(&s, store, PL_STORE_READ));
    TEST_TRY(pl_store_select_members(&m, s, plan.spec.name));
    for (int64_t i = 0; i < m.count; i++) {
        pl_store_epochs e;
        double sum = 0;
        TEST_TRY(pl_store_select_epochs(&e, s, m.rows[i].id));
        for (int64_t k = 0; k < e.count; k++) sum += e.rows[k].seconds;
        wrong += !(sum > 0) || fabs(sum - m.rows[i].wall) > 1e-12 * m.rows[i].wall;
        pl_store_epochs_free(&e);
    }
    pl_store_members_free(&m);
    pl_store_close(s);
    return wrong;
}

/* Left within epochs, after so many steps of four each. */
static void test_parts(void)
{
    int64_t wrong = 0, stops = 0;
    setenv("FAKE_STEPS", "4", 1);
    for (int64_t after = 3; after <= 11; after += 4) {
        clean();
        for (int left = 1; left;) {
            pl_runner_outcome out;
            atomic_int stop = 0;
            pl_runner_opts o = options();
            fake_stop = &stop;
            fake_stop_after = after;
            o.stop = &stop;
            o.save_every = 1000; /* only the stop saves */
            TEST_TRY(run_all(&out, &o));
            left = out.left > 0;
            wrong += left != out.stopped;
            stops += out.stopped;
        }
        wrong += table_differs() + seconds_differ();
    }
    fake_stop = NULL;
    unsetenv("FAKE_STEPS");
    test_exact("left within epochs, after every 3, 7, 11 steps", wrong);
    test_true("  and went on from there", stops > 100, "%lld stops", (long long)stops);
}

/* Left before the first epoch, where that takes long: nothing is begun, and no error. */
static void test_beginning(void)
{
    int64_t wrong = 0, stops = 0;
    setenv("FAKE_BEGIN", "10", 1);
    for (int64_t after = 3; after <= 33; after += 10) { /* within the first to the fourth ensemble's */
        pl_runner_outcome out;
        atomic_int stop = 0;
        pl_runner_opts o = options();
        clean();
        fake_stop = &stop;
        fake_stop_after = after;
        o.stop = &stop;
        o.ensemble = 3;
        o.leave_after = 1e9; /* a smaller ensemble would be begun, too */
        TEST_TRY(run_all(&out, &o));
        stops += out.stopped;
        wrong += out.done != 3 * (after / 10) || out.left != FAKE_RUNS - out.done || runs_begun() != out.done;
        fake_stop = NULL;
        stop = 0;
        TEST_TRY(run_all(&out, &o));
        wrong += out.left + table_differs();
    }
    test_exact("left while something is prepared", wrong);
    test_true("  and went on from there", stops == 4, "%lld stops", (long long)stops);
    /* members leave at once, so it begins again and again: stopped in the third time, the fifth, ... */
    for (int64_t after = 21; after <= 161; after += 20) {
        clean();
        for (int left = 1; left;) {
            pl_runner_outcome out;
            atomic_int stop = 0;
            pl_runner_opts o = options();
            fake_stop = &stop;
            fake_stop_after = after;
            o.stop = &stop;
            o.ensemble = 9;
            o.leave_after = 0;
            TEST_TRY(run_all(&out, &o));
            left = out.left > 0;
            wrong += left != out.stopped;
        }
        wrong += table_differs();
    }
    fake_stop = NULL;
    unsetenv("FAKE_BEGIN");
    test_exact("  and where members leave", wrong);
}

static void test_budget(void)
{
    pl_runner_outcome out;
    pl_runner_opts o = options();
    clean();
    setenv("FAKE_DELAY", "3000", 1);
    /* an epoch sleeps 3 ms and there are more than 60 of them: it cannot be done in time on any machine */
    o.budget = 0.02;
    TEST_TRY(run_all(&out, &o));
    unsetenv("FAKE_DELAY");
    int early = out.out_of_time && out.left && !out.stopped;
    o.budget = 0;
    TEST_TRY(run_all(&out, &o));
    test_exact("out of time, then the rest", table_differs() + !early);
}

static void test_kills(void)
{
    int64_t kills = 0, wrong = 0, plans = 0, ended = 0;
    uint64_t random = 7;
    setenv("FAKE_DELAY", "1500", 1);
    while (kills < 50) {
        clean();
        for (int done = 0; !done; ended++) {
            pl_runner_opts o = options();
            o.jobs = 1 + (int)(kills % 2);
            o.ensemble = kills % 5 >= 3 ? 4 : 0;
            o.leave_after = 0;
            pid_t pid = fork_runner(&o);
            random = fake_hash(random);
            int killed = 0, status = 0;
            /* at a random moment; then look again now and then */
            for (useconds_t wait = (useconds_t)(random % 90000); !killed; wait = 20000) {
                usleep(wait);
                if (waitpid(pid, &status, WNOHANG) == pid) break;
                if (kills >= 50) continue;
                kill(pid, SIGKILL);
                waitpid(pid, &status, 0);
                killed = 1;
            }
            kills += killed && WIFSIGNALED(status);
            done = WIFEXITED(status);
            wrong += done && WEXITSTATUS(status) != 0;
        }
        plans++;
        wrong += table_differs();
    }
    unsetenv("FAKE_DELAY");
    test_exact("50 times kill -9 at a random moment", wrong);
    test_true("  figures", kills >= 50, "%lld kills, %lld tables, %lld processes", (long long)kills,
              (long long)plans, (long long)ended);
}

/* ---- several processes -------------------------------------------------------------------------- */

static void test_processes(void)
{
    int64_t wrong = 0, twice = 0;
    setenv("FAKE_DELAY", "500", 1);
    for (int round = 0; round < 6; round++) {
        pid_t pid[4];
        int n = 2 + round % 3;
        clean();
        for (int i = 0; i < n; i++) {
            pl_runner_opts o = options();
            o.jobs = 1 + (i + round) % 2;
            pid[i] = fork_runner(&o);
        }
        for (int i = 0; i < n; i++) wrong += !ended_well(pid[i]);
        wrong += table_differs();
        twice += runs_begun() - FAKE_RUNS;
    }
    unsetenv("FAKE_DELAY");
    test_exact("2, 3, 4 processes at once", wrong);
    test_exact("  no run was begun twice", twice);
}

static void test_takeover(void)
{
    pl_runner_outcome out;
    watcher w = {0};
    pl_runner_opts o = watched(&w);
    clean();
    setenv("FAKE_DELAY", "100000000", 1); /* the other one is at its first epoch until it is killed */
    w.victim = fork_runner(&o);
    while (!runs_begun()) usleep(1000);
    setenv("FAKE_DELAY", "0", 1);
    polar_status st = run_all(&out, &o); /* does the others, waits, and takes over */
    waitpid(w.victim, NULL, 0);
    unsetenv("FAKE_DELAY");
    test_true("waits for a process, takes over when it dies",
              PART(st == POLAR_OK) && PART(!out.left) && PART(w.notes >= 1) && PART(!table_differs()) &&
                  PART(runs_begun() == FAKE_RUNS + 1),
              "\"%s\"", w.note);
}

/* ---- checkpoints -------------------------------------------------------------------------------- */

static void checkpoint_of(char out[256], int64_t run)
{
    snprintf(out, 256, "%s.d/%s.safetensors", store, plan.runs[run].id);
}

/* The plan stopped in the middle of its third run. */
static void stop_in_third(void)
{
    pl_runner_outcome out;
    watcher w = {0};
    pl_runner_opts o = watched(&w);
    clean();
    for (int64_t k = 1; w.finished < 2; k++) { /* first learn how many epochs two runs take */
        w = (watcher){.stop_at = k};
        clean();
        TEST_TRY(run_all(&out, &o));
    }
    int64_t at = w.epochs + 1;
    w = (watcher){.stop_at = at};
    clean();
    TEST_TRY(run_all(&out, &o));
}

static void test_checkpoints(void)
{
    static const char *const kinds[] = {"torn", "empty", "of another run", "no safetensors"};
    char path[256], other[256], command[1024];
    for (int kind = 0; kind < 4; kind++) {
        char what[64];
        pl_runner_outcome out;
        watcher w = {0};
        pl_runner_opts o = watched(&w);
        stop_in_third();
        checkpoint_of(path, 2);
        checkpoint_of(other, 5);
        struct stat s;
        int there = stat(path, &s) == 0;
        if (kind == 0) there = there && truncate(path, s.st_size / 2) == 0;
        if (kind == 1) there = there && truncate(path, 0) == 0;
        if (kind == 2) there = there && rename(path, other) == 0;
        snprintf(command, sizeof command, "echo hello >'%s'", path);
        if (kind == 3) there = there && system(command) == 0;
        TEST_TRY(run_all(&out, &o));
        snprintf(what, sizeof what, "a checkpoint that is %s", kinds[kind]);
        test_true(what, there && !table_differs() && w.notes == 1, "\"%s\"", w.note);
    }
    /* results stored, then killed before the checkpoint went */
    checkpoint_of(path, 2);
    snprintf(command, sizeof command, "mkdir -p '%s.d' && echo x >'%s' && echo x >'%s.tmp.77.0'", store, path,
             path);
    pl_runner_outcome out;
    watcher w = {0};
    pl_runner_opts o = watched(&w);
    int made = system(command) == 0;
    TEST_TRY(run_all(&out, &o));
    test_true("what a finished run left behind is removed",
              PART(made) && PART(!table_differs()) && PART(!out.done_here) && PART(!w.notes),
              "%lld runs done again", (long long)out.done_here);
    /* a store that was deleted while its checkpoints stayed */
    stop_in_third();
    snprintf(command, sizeof command, "rm '%s'", store);
    made = system(command) == 0;
    w = (watcher){0};
    TEST_TRY(run_all(&out, &o));
    test_true("checkpoints of a deleted store", made && !table_differs() && w.notes == 1, "\"%s\"", w.note);
}

static void test_weights(void)
{
    char path[160];
    pl_runner_outcome out;
    pl_runner_opts o = options();
    struct stat s;
    snprintf(path, sizeof path, "%s/weights", folder);
    o.weights = path;
    polar_status refused = run_all(&out, &o);
    /* it is done already: made again for its weights */
    TEST_TRY(pl_runner_run(&out, &(pl_runner_plan){&fake_testbed, &plan.spec, plan.runs, 1}, 1, &o));
    int there = stat(path, &s) == 0 && s.st_size > 8;
    test_true("weights of a finished run", refused == POLAR_E_ARG && there && !table_differs(), "%lld bytes",
              there ? (long long)s.st_size : -1);
    unlink(path);
}

/* The N-th allocation fails, in any thread: an error, and nothing left over; then enough memory: the same
 * table. */
static void test_faults(void)
{
    polar_status st = POLAR_E_NOMEM;
    int64_t n = 0, tries = 0, leaks = 0, wrong = 0;
    pl_runner_outcome out;
    pl_runner_opts o = options();
    for (; st != POLAR_OK && n < 10000000; n += 1 + n / 12, tries++) {
        clean();
        int64_t live = pl_alloc_live();
        o.jobs = 1 + (int)(tries % 2);
        o.ensemble = tries % 3 == 2 ? 5 : 0;
        o.leave_after = 0;
        pl_alloc_fail_at(n + 1);
        st = run_all(&out, &o);
        pl_alloc_fail_at(0);
        leaks += pl_alloc_live() != live;
        wrong += st != POLAR_OK && (st != POLAR_E_NOMEM || !*polar_error_message());
        if (tries % 8) continue;
        TEST_TRY(run_all(&out, &o));
        wrong += table_differs();
    }
    wrong += table_differs();
    test_true("memory runs out", PART(st == POLAR_OK) && PART(!leaks) && PART(!wrong) && PART(n > 1000),
              "%lld allocations, %lld tries, %lld leaks, %lld other errors", (long long)n, (long long)tries,
              (long long)leaks, (long long)wrong);
}

/* ---- no room on the disk ------------------------------------------------------------------------ */

/* With little room: an error with its sentence, or success; then with room: the same table. `limit` gives so
 * many bytes, or all of them (-1). */
static void starve(const char *what, int (*limit)(int64_t bytes), int64_t most)
{
    int64_t failures = 0, wrong = 0, successes = 0, kept = 0;
    char sentence[600] = "";
    for (int64_t bytes = 0; bytes <= most; bytes += most / 24) {
        pl_runner_outcome out;
        pl_runner_opts o = options();
        clean();
        o.jobs = 1 + (int)(bytes / (most / 24) % 2);
        if (limit(bytes) != 0) exit(1);
        polar_status st = run_all(&out, &o);
        if (st != POLAR_OK) snprintf(sentence, sizeof sentence, "%s", polar_error_message());
        failures += st != POLAR_OK;
        successes += st == POLAR_OK;
        wrong += st != POLAR_OK && (st != POLAR_E_IO || !*sentence);
        if (st != POLAR_OK && st != POLAR_E_IO) printf("%s\n", sentence);
        if (limit(-1) != 0) exit(1);
        int64_t done = out.done;
        kept += st != POLAR_OK && done > 0;
        TEST_TRY(run_all(&out, &o));
        wrong += out.done_here != FAKE_RUNS - done; /* what was finished stayed so */
        wrong += table_differs();
    }
    clean();
    test_exact(what, wrong);
    test_true("  figures", failures >= 4 && kept > 0,
              "%lld failures, %lld of them with finished runs, %lld enough; \"%s\"", (long long)failures,
              (long long)kept, (long long)successes, sentence);
}

static int limit_file_size(int64_t bytes)
{
    struct rlimit r = {bytes < 0 ? RLIM_INFINITY : (rlim_t)bytes, RLIM_INFINITY};
    return setrlimit(RLIMIT_FSIZE, &r);
}

#define DISK_BYTES (16 << 20)

/* A file that leaves so much of the small disk. */
static int limit_disk(int64_t bytes)
{
    char path[160];
    static char zeros[4096];
    snprintf(path, sizeof path, "%s/ballast", folder);
    unlink(path);
    FILE *f = bytes < 0 ? NULL : fopen(path, "w");
    for (int64_t k = 0; f && k < (DISK_BYTES - bytes) / 4096; k++)
        if (fwrite(zeros, 4096, 1, f) != 1) break;
    if (f) fclose(f);
    return 0;
}

static void test_full_disk(void)
{
    signal(SIGXFSZ, SIG_IGN);
    starve("no file may grow past a limit", limit_file_size, 3000000);
    if (mount("polar_test", folder, "tmpfs", 0, "size=16777216") != 0) {
        printf("a small disk needs the right to mount one: left out\n");
        return;
    }
    starve("a disk of little room", limit_disk, 4000000);
    umount(folder);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    fixture_open();
    test_plain();
    test_jobs();
    test_devices();
    test_ensembles();
    test_stopped(saved_by_stops, 50);
    test_parts();
    test_beginning();
    test_budget();
    test_kills();
    test_processes();
    test_takeover();
    test_checkpoints();
    test_weights();
    test_faults();
    test_full_disk();
    fixture_close();
    return test_end();
}
