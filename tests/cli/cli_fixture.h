/* cli_fixture.h -- the program `polar` from outside: commands go through sh, with $P the program and $D a
 * folder of the test's own; outputs are in `last`.
 *
 *     int main(int argc, char **argv)
 *     {
 *         if (!cli_begin(argc, argv)) return 1;                       // argv[1] is the program
 *         // exit code, and one sentence on stderr that says so
 *         refused("$P map", 2, "IN is missing");
 *         accepted("$P info", "opens as ref");                        // exit code 0, and stdout says so
 *         return cli_end();
 *     }
 */
#ifndef POLAR_CLI_FIXTURE_H
#define POLAR_CLI_FIXTURE_H

#include <dirent.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "test.h"

#define TEXT_BYTES 65536

typedef struct {
    int code; /* exit code, or 1000 + the signal */
    int err_lines;
    char out[TEXT_BYTES], err[TEXT_BYTES];
} result;

static char folder[64];    /* $D in commands */
static char program[4096]; /* $P */
static result last;

static inline void slurp(char *text, const char *name)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "rb");
    size_t n = f ? fread(text, 1, TEXT_BYTES - 1, f) : 0;
    text[n] = 0;
    if (f) fclose(f);
}

/* sh -c command (no word splitting); what it prints is in `last`. */
static inline int sh(const char *command)
{
    char line[2048];
    snprintf(line, sizeof line, "IFS=; { %s\n} >\"$D/stdout\" 2>\"$D/stderr\" </dev/null", command);
    int status = system(line);
    last.code = WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
    slurp(last.out, "stdout");
    slurp(last.err, "stderr");
    last.err_lines = 0;
    for (const char *c = last.err; *c; c++) last.err_lines += *c == '\n';
    return last.code;
}

static inline const char *first_line(const char *text)
{
    static char line[160];
    snprintf(line, sizeof line, "%.*s", (int)strcspn(text, "\n"), text);
    return line;
}

/* Exit code, and one sentence on stderr that says `says`. */
static inline void refused(const char *command, int code, const char *says)
{
    sh(command);
    int one = last.err_lines == 1 && !strncmp(last.err, "polar: ", 7);
    int ok = last.code == code && one && strstr(last.err, says);
    test_true(command, ok, "exit %d (%d wanted), %d line(s), '%s' wanted: %s", last.code, code,
              last.err_lines, says, first_line(last.err));
}

static inline void accepted(const char *command, const char *says)
{
    sh(command);
    test_true(command, last.code == 0 && strstr(last.out, says), "exit %d: %s", last.code,
              first_line(last.code ? last.err : last.out));
}

/* The longest line between the usage and the examples, which are commands in one piece. */
static inline int widest_help(const char *text)
{
    int most = 0;
    const char *end = strstr(text, "\nexamples:");
    for (const char *at = strstr(text, "usage: "); at && end && at < end; at += strcspn(at, "\n") + 1)
        if ((int)strcspn(at, "\n") > most) most = (int)strcspn(at, "\n");
    return most;
}

/* Help in its two forms, with examples. */
static inline void helps(const char *name)
{
    char command[64], text[TEXT_BYTES];
    snprintf(command, sizeof command, "$P help %s", name);
    accepted(command, "examples:\n  polar ");
    int ok = strstr(last.out, "--help") && strstr(last.out, "usage: ") && !*last.err;
    test_true(command, ok && strlen(strstr(last.out, "examples:")) > 20, "%zu characters", strlen(last.out));
    test_true(command, widest_help(last.out) <= 100, "%d columns, 100 at most", widest_help(last.out));
    memcpy(text, last.out, sizeof text);
    snprintf(command, sizeof command, "$P %s --help", name);
    sh(command);
    test_true(command, last.code == 0 && !strcmp(text, last.out), "exit %d, the same text as help",
              last.code);
}

/* ---- files -------------------------------------------------------------------------------------- */

static inline const char *in_folder(const char *name)
{
    static char path[4][160];
    static int turn;
    turn = (turn + 1) % 4;
    snprintf(path[turn], sizeof path[turn], "%s/%s", folder, name);
    return path[turn];
}

static inline int exists(const char *name)
{
    struct stat info;
    return stat(in_folder(name), &info) == 0;
}

/* Files in the folder whose name holds `part`. */
static inline int count_files(const char *part)
{
    int n = 0;
    DIR *d = opendir(folder);
    for (struct dirent *e; d && (e = readdir(d));) n += strstr(e->d_name, part) != NULL;
    if (d) closedir(d);
    return n;
}

/* The program with these arguments, the first its name, NULL behind the last, killed after so many
 * microseconds, 0: not; the microseconds it had. */
static inline double cli_killed(const char *const *args, useconds_t after)
{
    struct timespec begun, ended;
    clock_gettime(CLOCK_MONOTONIC, &begun);
    pid_t pid = fork();
    if (!pid) {
        if (freopen("/dev/null", "w", stdout) && freopen("/dev/null", "w", stderr))
            execv(program, (char *const *)args);
        _exit(1);
    }
    if (after) {
        usleep(after);
        kill(pid, SIGKILL);
    }
    waitpid(pid, NULL, 0);
    clock_gettime(CLOCK_MONOTONIC, &ended);
    return (double)(ended.tv_sec - begun.tv_sec) * 1e6 + (double)(ended.tv_nsec - begun.tv_nsec) / 1e3;
}

/* The next of random moments of what takes `all` microseconds undisturbed; *x from anything but 0. */
static inline useconds_t cli_moment(uint64_t *x, double all)
{
    *x ^= *x << 13, *x ^= *x >> 7, *x ^= *x << 17;
    return (useconds_t)(1 + 1.1 * all * (double)(*x % 1000) / 1000);
}

/* small.yaml: eighteen runs of no time. */
static inline void cli_write_small_spec(void)
{
    FILE *f = fopen(in_folder("small.yaml"), "w");
    if (!f) exit(1);
    fputs("name: small\ntestbed: so3\nseeds: 0..2\narms: [adamw, muon, polaradamw]\ngrid: {model.width: [2, "
          "3]}\n"
          "set: {model.layers: 1, data.points: 4, data.train: 8, data.valid: 4, data.test: 4, train.batch: 4,"
          " train.epochs: 3, train.warmup: 1}\n",
          f);
    fclose(f);
}

/* ---- begin and end ------------------------------------------------------------------------------ */

/* 0: the test cannot go on, and has said why. */
static inline int cli_begin(int argc, char **argv)
{
    test_begin(1, argv);
    if (argc != 2) {
        fprintf(stderr, "usage: %s PROGRAM\n", argv[0]);
        return 0;
    }
    snprintf(folder, sizeof folder, "/tmp/polar_test_cli.XXXXXX");
    if (!realpath(argv[1], program) || !mkdtemp(folder)) {
        perror(argv[0]);
        return 0;
    }
    setenv("P", program, 1);
    setenv("D", folder, 1);
    return 1;
}

static inline int cli_end(void)
{
    sh("chmod -R u+rwx $D; rm -rf $D");
    return test_end();
}

#endif
