/* runner_fixture.h -- the fake plan through the runner, in a folder of its own, and what its table shall be.
 */
#ifndef POLAR_RUNNER_FIXTURE_H
#define POLAR_RUNNER_FIXTURE_H

#include "fake_plan.h"
#include "fixtures/folder.h"
#include "fixtures/store_dump.h"
#include "test.h"

#include <signal.h>
#include <sys/wait.h>

#include "lab/run/runner.h"

static char folder[64], store[128], log_path[128];
static fake_plan plan;
static char *wanted; /* the table of an undisturbed run */

static inline void clean(void)
{
    char command[1024];
    snprintf(command, sizeof command, "rm -rf '%s' '%s-wal' '%s-shm' '%s.d' '%s.lock' '%s'", store, store,
             store, store, store, log_path);
    if (system(command) != 0) exit(1);
}

static inline pl_runner_opts options(void)
{
    pl_runner_opts o = PL_RUNNER_OPTS_INIT;
    o.store = store;
    o.device = test_device;
    o.save_every = 0;
    return o;
}

static inline int64_t lines_of(const char *path)
{
    int64_t n = 0;
    FILE *f = fopen(path, "r");
    for (int c; f && (c = fgetc(f)) != EOF;) n += c == '\n';
    if (f) fclose(f);
    return n;
}

static inline int64_t runs_begun(void)
{
    return lines_of(log_path);
}

/* Differing bytes between the store's table and the undisturbed one; nothing left beside the store. */
static inline int64_t table_differs(void)
{
    char *dump = NULL, checkpoints[160];
    if (store_dump(&dump, store, plan.spec.name) != POLAR_OK) return -1;
    int64_t n = strcmp(dump, wanted) ? 1 : 0;
    free(dump);
    snprintf(checkpoints, sizeof checkpoints, "%s.d", store);
    return n + folder_files(checkpoints);
}

static inline polar_status run_all(pl_runner_outcome *out, const pl_runner_opts *o)
{
    return pl_runner_run(out, &(pl_runner_plan){&fake_testbed, &plan.spec, plan.runs, FAKE_RUNS}, 1, o);
}

/* Another process at the whole plan. */
static inline pid_t fork_runner(const pl_runner_opts *o)
{
    fflush(stdout);
    pid_t pid = fork();
    if (pid) return pid;
    pl_runner_outcome out;
    polar_status st = run_all(&out, o);
    if (st != POLAR_OK) fprintf(stderr, "%s\n", polar_error_message());
    _exit(st == POLAR_OK && !out.left ? 0 : st == POLAR_OK ? 1 : 2);
}

static inline int ended_well(pid_t pid)
{
    int status = -1;
    return waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

typedef struct watcher {
    atomic_int stop;
    int64_t epochs, stop_at, notes, resumed, finished; /* stop_at: after so many epochs */
    int64_t die_at;                                    /* kill -9 when so many runs have finished */
    pid_t victim;                                      /* killed at the first note */
    char note[512];
} watcher;

static inline void watch(void *arg, const pl_runner_event *e)
{
    watcher *w = arg;
    if (e->kind == PL_RUNNER_EPOCH && ++w->epochs == w->stop_at) atomic_store(&w->stop, 1);
    if (e->kind == PL_RUNNER_RESUMED) w->resumed += e->epochs > 0;
    if (e->kind == PL_RUNNER_FINISHED && ++w->finished == w->die_at) kill(getpid(), SIGKILL);
    if (e->kind == PL_RUNNER_NOTE) {
        if (!w->notes++ && w->victim) kill(w->victim, SIGKILL);
        snprintf(w->note, sizeof w->note, "%s", e->note);
    }
}

static inline pl_runner_opts watched(watcher *w)
{
    pl_runner_opts o = options();
    o.stop = &w->stop;
    o.watch = watch;
    o.watch_arg = w;
    return o;
}

static inline void fixture_open(void)
{
    /* syncing a real disk is slow */
    snprintf(folder, sizeof folder, "%s/polar_test_runner.XXXXXX",
             access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
    if (!mkdtemp(folder)) exit(1);
    snprintf(store, sizeof store, "%s/runs.db", folder);
    snprintf(log_path, sizeof log_path, "%s/log", folder);
    setenv("FAKE_LOG", log_path, 1);
    TEST_TRY(fake_plan_create(&plan, "2"));
}

static inline void fixture_close(void)
{
    clean();
    rmdir(folder);
    free(wanted);
    fake_plan_destroy(&plan);
}

/* The plan, stopped after every 1, 8, ... 57 epochs and started again until nothing is left: the same table.
 * `with` says what else the runner is told; least: of stops, and of runs that went on from checkpoints. */
static inline void test_stopped(void (*with)(pl_runner_opts *o, int64_t at), int64_t least)
{
    int64_t wrong = 0, stops = 0, resumed = 0;
    for (int64_t at = 1; at <= 60; at += 7) {
        clean();
        for (int left = 1; left;) {
            pl_runner_outcome out;
            watcher w = {.stop_at = at};
            pl_runner_opts o = watched(&w);
            o.jobs = 1 + (int)(at % 2);
            with(&o, at);
            TEST_TRY(run_all(&out, &o));
            left = out.left > 0;
            wrong += left != out.stopped;
            stops += out.stopped;
            resumed += w.resumed;
        }
        wrong += table_differs();
    }
    test_exact("stopped after every 1, 8, ... 57 epochs", wrong);
    test_true("  and went on from checkpoints", stops > least && resumed > least, "%lld stops, %lld resumed",
              (long long)stops, (long long)resumed);
}

#endif
