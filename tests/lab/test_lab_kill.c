/* test_lab_kill.c -- the whole laboratory under kill -9: a tiny spec (argv[2], so3_tiny or deit_tiny) through
 * the program `polar` (argv[1]), killed at random moments and started again, with one and two jobs, one and
 * two threads. The audit and every number in the store are the same to the byte as those of an undisturbed
 * run. Also ensembles, Ctrl-C, --budget, several at once. Checkpoints are taken after every epoch (so3) or
 * within epochs (deit).
 */
#include "fixtures/folder.h"
#include "fixtures/store_dump.h"
#include "test.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define KILLS 13 /* for each of the four; argv[3] another number */

static const char *polar, *name, *save_every;
static char folder[64], spec[4096];
static char *wanted_audit, *wanted_store;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static uint64_t random_next(void)
{
    static uint64_t x = 88172645463325252u;
    x ^= x << 13, x ^= x >> 7, x ^= x << 17;
    return x;
}

/* ---- the program -------------------------------------------------------------------------------- */

/* `polar` with these words; out: the file its results go to, or NULL. */
static pid_t start(const char *out, char *const *words)
{
    char log[80];
    snprintf(log, sizeof log, "%s/log", folder);
    fflush(stdout);
    pid_t pid = fork();
    if (pid) return pid;
    int fd = open(out ? out : "/dev/null", O_WRONLY | O_CREAT | O_TRUNC, 0666),
        err = open(log, O_WRONLY | O_CREAT | O_APPEND, 0666);
    if (fd < 0 || err < 0 || dup2(fd, 1) < 0 || dup2(err, 2) < 0) _exit(99);
    execv(polar, words);
    _exit(98);
}

static pid_t start_run(const char *store, int jobs, int threads, const char *more)
{
    char job_text[16], device[32];
    snprintf(job_text, sizeof job_text, "%d", jobs);
    snprintf(device, sizeof device, "cpu:threads=%d", threads);
    char *words[] = {"polar",  "run",      spec,   "--store",      (char *)store,      "--jobs",
                     job_text, "--device", device, "--save-every", (char *)save_every, (char *)more,
                     NULL};
    return start(NULL, words);
}

/* The exit code, or minus the signal. */
static int end_of(pid_t pid)
{
    int status = 0;
    if (waitpid(pid, &status, 0) != pid) return -999;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static char *read_text(const char *path)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *f = fopen(path, "r"), *m = open_memstream(&text, &bytes);
    for (int c; f && m && (c = fgetc(f)) != EOF;) fputc(c, m);
    if (f) fclose(f);
    if (m) fclose(m);
    return text;
}

static char *audit_of(const char *store)
{
    char out[80];
    snprintf(out, sizeof out, "%s/audit.json", folder);
    char *words[] = {"polar", "audit", spec, "--store", (char *)store, "--format", "json", NULL};
    int code = end_of(start(out, words));
    char *text = read_text(out);
    if (code != 0) printf("polar audit ended with %d\n", code);
    return code == 0 ? text : (free(text), NULL);
}

/* 0 when audit and store are as wanted and no checkpoint is left. */
static int64_t differs(const char *store)
{
    char *audit = audit_of(store), *dump = NULL, checkpoints[160];
    int64_t n = !audit || strcmp(audit, wanted_audit);
    n += store_dump(&dump, store, name) != POLAR_OK || strcmp(dump, wanted_store);
    snprintf(checkpoints, sizeof checkpoints, "%s.d", store);
    n += folder_files(checkpoints);
    free(audit);
    free(dump);
    return n;
}

static void remove_store(const char *store)
{
    char command[512];
    snprintf(command, sizeof command, "rm -rf '%s' '%s-wal' '%s-shm' '%s.lock' '%s.d'", store, store, store,
             store, store);
    if (system(command) != 0) exit(1);
}

/* ---- tests -------------------------------------------------------------------------------------- */

static double undisturbed(const char *store)
{
    double begun = now();
    int code = end_of(start_run(store, 1, 1, NULL));
    double seconds = now() - begun;
    wanted_audit = audit_of(store);
    polar_status st = store_dump(&wanted_store, store, name);
    test_true("undisturbed",
              PART(code == 0) && PART(wanted_audit) && PART(st == POLAR_OK) &&
                  PART(strstr(wanted_audit, "\"pairs\"")),
              "exit code %d, audit of %zu bytes, table of %zu bytes", code,
              wanted_audit ? strlen(wanted_audit) : 0, wanted_store ? strlen(wanted_store) : 0);
    remove_store(store);
    return seconds;
}

/* Kills at random moments; where the work ends before there were enough of them, it is checked and begins
 * anew. `seconds`: what the work takes, about. */
static void killed(const char *store, int jobs, int threads, const char *more, int kills, double seconds)
{
    char what[80];
    int hits = 0, tables = 0;
    int64_t wrong = 0;
    double most = 2 * seconds / kills;
    for (int code = -1; hits < kills || code != 0;) {
        pid_t pid = start_run(store, jobs, threads, more);
        if (hits < kills) {
            usleep((useconds_t)(1e6 * most * ((double)(random_next() % 1000) / 1000)));
            kill(pid, SIGKILL);
        }
        code = end_of(pid);
        hits += code == -SIGKILL;
        if (code == -SIGKILL) continue;
        wrong += code != 0 ? 1000 : differs(store);
        tables++;
        remove_store(store);
        most *= 0.7;
        if (code != 0) break;
    }
    snprintf(what, sizeof what, "%d jobs, %d threads, %d times kill -9 %s", jobs, threads, hits,
             more ? more : "");
    test_exact(what, wrong);
    test_true("  figures", hits >= kills && tables > 0, "%d kills, %d tables", hits, tables);
}

/* A signal as soon as the program has told of something: a run is done, or an earlier stop goes on. */
static void interrupted(const char *store)
{
    char log[80];
    int stops = 0, wrong = 0, rounds = 0;
    snprintf(log, sizeof log, "%s/log", folder);
    /* on a busy machine a round may be done before a signal is */
    for (; stops <= 2 && rounds < 10; rounds++) {
        int code = 130;
        if (rounds) remove_store(store);
        for (int k = 0; code == 130 && k < 100; k++) {
            struct stat s = {0};
            unlink(log);
            pid_t pid = start_run(store, 2, 1, NULL);
            for (siginfo_t ended = {0}; (stat(log, &s) != 0 || s.st_size == 0) && !ended.si_pid; usleep(1000))
                waitid(P_PID, (id_t)pid, &ended, WEXITED | WNOHANG | WNOWAIT);
            kill(pid, k % 2 ? SIGTERM : SIGINT);
            code = end_of(pid);
            stops += code == 130;
            /* all done and only the table left: then a signal kills */
            wrong += code != 130 && code != 0 && code != -SIGINT && code != -SIGTERM;
        }
        code = end_of(start_run(store, 2, 1, NULL));
        wrong += (code != 0) + differs(store);
    }
    test_exact("Ctrl-C and SIGTERM: exit code 130, then on", wrong);
    test_true("  figures", stops > 2, "%d stops in %d rounds", stops, rounds);
    remove_store(store);
}

static void together(const char *store)
{
    pid_t a = start_run(store, 1, 1, NULL), b = start_run(store, 1, 2, NULL),
          c = start_run(store, 2, 1, "--budget=1h");
    int code[3] = {end_of(a), end_of(b), end_of(c)};
    test_exact("three processes on one store",
               (code[0] != 0) + (code[1] != 0) + (code[2] != 0) + differs(store));
    int ended = end_of(start_run(store, 1, 1, "--budget=10ms"));
    test_true("a budget that is no time", ended == 2, "exit code %d", ended);
    remove_store(store);
}

int main(int argc, char **argv)
{
    polar = test_begin(argc, argv);
    test_device = "cpu";
    name = argc > 2 ? argv[2] : "so3_tiny";
    /* and never more than one part in 20 of the time */
    save_every = strcmp(name, "deit_tiny") ? "0" : "0.001";
    snprintf(spec, sizeof spec, "%s/specs/demo/%s.yaml", SOURCE_DIR, name);
    /* syncing a real disk is slow */
    snprintf(folder, sizeof folder, "%s/polar_test_kill.XXXXXX",
             access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
    if (!mkdtemp(folder)) return 1;
    char store[80], command[128];
    snprintf(store, sizeof store, "%s/runs.db", folder);
    int kills = argc > 3 ? atoi(argv[3]) : KILLS;
    double seconds = undisturbed(store);
    if (wanted_audit && wanted_store) {
        for (int i = 0; i < 4; i++) killed(store, 1 + i / 2, 1 + i % 2, NULL, kills, seconds);
        killed(store, 1, 1, "--ensemble=12", kills, seconds); /* some stop early, and leave */
        interrupted(store);
        together(store);
    }
    free(wanted_audit);
    free(wanted_store);
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    if (system(command) != 0) return 1;
    return test_end();
}
