/* gnuplot.c -- looks gnuplot up in PATH; fork, exec, wait. The child's complaints come back through a pipe.
 *
 * A script is made of texts that others wrote. figure.c sees to it that gnuplot reads nothing into them; what
 * is here holds should that fail: gnuplot starts without anybody's settings (-d, and none of its environment
 * variables) and can start no process.
 */
#include "report/figure/gnuplot.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "report/figure/forbid_processes.h"

/* The program's path from PATH into out; 0: it is not there. */
static int find_gnuplot(char *out, size_t room)
{
    const char *dirs = getenv("PATH");
    for (const char *d = dirs && *dirs ? dirs : "/usr/local/bin:/usr/bin:/bin"; d;
         d = strchr(d, ':') ? strchr(d, ':') + 1 : NULL) {
        int length = (int)strcspn(d, ":");
        if (*d != '/') continue; /* not from wherever we happen to be */
        if ((size_t)snprintf(out, room, "%.*s/gnuplot", length, d) < room && access(out, X_OK) == 0) return 1;
    }
    return 0;
}

#define MOST_ENTRIES 16

/* Of the environment what fonts and libraries need: no GNUPLOT_LIB, GNUTERM, FIT_SCRIPT, SHELL, PATH. */
static void keep_environment(char *out[MOST_ENTRIES])
{
    static const char *const kept[] = {
        "HOME=",           "TMPDIR=",          "LD_LIBRARY_PATH=", "FONTCONFIG_FILE=", "FONTCONFIG_PATH=",
        "XDG_CACHE_HOME=", "XDG_CONFIG_HOME=", "XDG_DATA_HOME="};
    static char locale[] = "LC_ALL=C.UTF-8";
    int count = 0;
    out[count++] = locale;
    for (char **e = environ; e && *e && count < MOST_ENTRIES - 1; e++)
        for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
            if (!strncmp(*e, kept[i], strlen(kept[i])) && count < MOST_ENTRIES - 1) out[count++] = *e;
    out[count] = NULL;
}

/* In the child: never returns. */
static void become_gnuplot(const char *program, const char *dir, const char *script, int words)
{
    int null = open("/dev/null", O_RDWR);
    char *const argv[] = {"gnuplot", "-d", (char *)script, NULL}; /* -d: not the user's own settings */
    char *environment[MOST_ENTRIES];
    keep_environment(environment);
    if (null >= 0 && dup2(null, 0) == 0 && dup2(words, 1) == 1 && dup2(words, 2) == 2 && chdir(dir) == 0) {
        (void)pl_forbid_child_processes(); /* a second lock: not every kernel has it */
        execve(program, argv, environment);
    }
    dprintf(words, "it could not be started: %s\n", strerror(errno));
    _exit(127);
}

/* What the pipe holds until its other end closes; the first bytes are kept, the rest is drained. */
static size_t read_all(int fd, char *out, size_t room)
{
    size_t used = 0;
    for (;;) {
        char spill[256];
        ssize_t n = used < room ? read(fd, out + used, room - used) : read(fd, spill, sizeof spill);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return used;
        if (used < room) used += (size_t)n;
    }
}

/* The line that says what is wrong: gnuplot prints the source line and a caret before it. */
static const char *last_line(char *text)
{
    char *line = text;
    for (char *rest, *next = strtok_r(text, "\n", &rest); next; next = strtok_r(NULL, "\n", &rest))
        if (strspn(next, " \t^") < strlen(next)) line = next;
    return line;
}

polar_status pl_gnuplot_run(const char *dir, const char *script)
{
    int words[2], status = 0;
    char text[1024], program[1024];
    PL_NEED(find_gnuplot(program, sizeof program), POLAR_E_UNSUPPORTED,
            "no program gnuplot found (Debian: apt-get install gnuplot-nox), so no figures were drawn");
    PL_NEED(pipe2(words, O_CLOEXEC) == 0, POLAR_E_IO, "a pipe to gnuplot: %s", strerror(errno));
    pid_t child = fork();
    if (child == 0) become_gnuplot(program, dir, script, words[1]);
    int fork_error = errno;
    close(words[1]);
    size_t used = child > 0 ? read_all(words[0], text, sizeof text - 1) : 0;
    close(words[0]);
    PL_NEED(child > 0, POLAR_E_IO, "a process for gnuplot: %s", strerror(fork_error));
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    text[used] = 0;
    PL_NEED(WIFEXITED(status), POLAR_E_IO, "gnuplot on '%s/%s': it was ended by signal %d", dir, script,
            WTERMSIG(status));
    PL_NEED(!WEXITSTATUS(status), POLAR_E_FORMAT, "gnuplot on '%s/%s': %s (exit code %d)", dir, script,
            used ? last_line(text) : "it gave no reason", WEXITSTATUS(status));
    return POLAR_OK;
}
