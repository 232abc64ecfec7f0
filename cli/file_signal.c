/* file_signal.c -- see file_signal.h. Only packs of pictures are mapped by us; SQLite maps its index of the
 * log. */
#include "file_signal.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "data/set/image_pack.h"

static int code; /* a handler can reach nothing else */

typedef struct line {
    char text[4600];
    size_t used;
} line;

static void add(line *l, const char *s)
{
    for (; *s && l->used < sizeof l->text; s++)
        l->text[l->used++] = (unsigned char)*s < 0x20 && *s != '\n' ? '?' : *s;
}

static void on_bus_error(int number, siginfo_t *info, void *context)
{
    line l = {.used = 0};
    (void)context;
    if (info->si_code != BUS_ADRERR) { /* a misaligned access, or sent by somebody: as ever */
        signal(number, SIG_DFL);
        raise(number);
        return;
    }
    const char *path = pl_image_pack_at(info->si_addr);
    add(&l, "polar: '");
    add(&l, path ? path : "a mapped file");
    add(&l, "' grew smaller while it was read, or its disk failed: put it back and give the same command "
            "again\n");
    if (write(STDERR_FILENO, l.text, l.used) < 0) l.used = 0;
    _exit(code);
}

void file_signal_begin(int exit_code)
{
    struct sigaction bus = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO};
    code = exit_code;
    signal(SIGXFSZ, SIG_IGN);
    sigaction(SIGBUS, &bus, NULL);
}
