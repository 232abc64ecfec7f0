/* test_terminal.c -- the program with a terminal behind its stderr: 20 columns wide, or one that knows no
 * cursor (TERM=dumb). Lines of progress fit, or are plain. */
#define _XOPEN_SOURCE 700
#include <fcntl.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include "test.h"

static char program[4096], folder[64], said[1 << 18];

/* Bytes between a carriage return or a line end and the next one, escape sequences not counted: the longest
 * of the lines that rewrite themselves. */
static int longest_line(const char *s)
{
    int most = 0, n = 0;
    for (; *s; s++) {
        if (*s == '\033') { /* \033[K */
            s += strncmp(s, "\033[K", 3) ? 0 : 2;
            continue;
        }
        if (*s == '\r' || *s == '\n') n = 0;
        else n++;
        if (n > most) most = n;
    }
    return most;
}

static int count(const char *s, char c)
{
    int n = 0;
    for (; *s; s++) n += *s == c;
    return n;
}

/* In the child: stderr is the terminal, as wide as said. */
static void become(int screen, const char *term, char *const *words)
{
    int null = open("/dev/null", O_RDWR);
    setenv("TERM", term, 1);
    unsetenv("COLUMNS");
    if (chdir(SOURCE_DIR) != 0 || null < 0) _exit(126);
    dup2(null, 0);
    dup2(null, 1);
    dup2(screen, 2);
    execv(program, words);
    _exit(127);
}

/* The program's exit code; what it printed on a terminal of that width is in `said`. */
static int run(const char *term, int columns, char *const *words)
{
    int keys = posix_openpt(O_RDWR | O_NOCTTY), status = 0;
    struct termios t;
    size_t used = 0;
    if (keys < 0 || grantpt(keys) != 0 || unlockpt(keys) != 0) return 77;
    int screen = open(ptsname(keys), O_RDWR | O_NOCTTY);
    if (screen < 0 || tcgetattr(screen, &t) != 0) return 77;
    t.c_oflag &= ~(tcflag_t)OPOST; /* what the program writes, not what a terminal makes of it */
    tcsetattr(screen, TCSANOW, &t);
    struct winsize w = {.ws_row = 25, .ws_col = (unsigned short)columns};
    ioctl(screen, TIOCSWINSZ, &w);
    pid_t child = fork();
    if (child == 0) become(screen, term, words);
    close(screen);
    for (ssize_t n; used < sizeof said - 1 && (n = read(keys, said + used, sizeof said - 1 - used)) > 0;)
        used += (size_t)n;
    said[used] = 0;
    waitpid(child, &status, 0);
    close(keys);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

int main(int argc, char **argv)
{
    test_begin(1, argv);
    snprintf(folder, sizeof folder, "/tmp/polar_test_terminal.XXXXXX");
    if (argc != 2 || !realpath(argv[1], program) || !mkdtemp(folder)) return 1;
    char store[96], dir[96], command[128];
    snprintf(store, sizeof store, "%s/x.db", folder);
    snprintf(dir, sizeof dir, "%s/out", folder);
    char *train[] = {"polar",      "run",   "specs/demo/so3_tiny.yaml", "--set",
                     "seeds=0..1", "--set", "train.epochs=5",           "--store",
                     store,        NULL};
    char *again[] = {"polar",      "run",   "specs/demo/so3_tiny.yaml", "--set",
                     "seeds=2..3", "--set", "train.epochs=5",           "--store",
                     store,        NULL};
    char *report[] = {"polar", "report", "--store", store, "-o", dir, NULL};
    char *help[] = {"polar", "help", "run", NULL};
    int code = run("xterm", 20, train);
    if (code == 77) {
        printf("no terminals here\n");
        return 77;
    }
    char *last = strrchr(said, '\r');
    test_true("20 columns: run rewrites its line", code == 0 && count(said, '\r') > 1, "exit %d, %d times",
              code, count(said, '\r'));
    if (last) *last = 0; /* what stays in the end may be longer: a terminal breaks it */
    test_true("20 columns: the line fits", longest_line(said) < 20, "%d columns", longest_line(said));
    code = run("dumb", 20, again);
    test_true("TERM=dumb: run prints plain lines",
              PART(code == 0) && PART(!count(said, '\r')) && PART(!count(said, '\033')) &&
                  PART(strstr(said, "seed 3")),
              "exit %d, %zu bytes", code, strlen(said));
    code = run("dumb", 20, report);
    test_true("TERM=dumb: report", code == 0 && !count(said, '\r') && !count(said, '\033'),
              "exit %d, %zu bytes", code, strlen(said));
    code = run("xterm", 20, report);
    test_true("20 columns: report", code == 0 && longest_line(said) < 20, "exit %d, %d columns", code,
              longest_line(said));
    code = run("xterm", 20, help);
    test_true("help steers no terminal", code == 0 && !*said, "exit %d", code);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    if (system(command) != 0) return 1;
    return test_end();
}
