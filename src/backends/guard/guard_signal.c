/* guard_signal.c -- a host access to device memory dies as any wild access does, but says first what it was.
 *
 * The handler is installed with the first guard device, only where nobody else has one, and taken away with
 * the last. It calls write and sigaction and reads the devices' lists as they are: should another thread
 * change them just then, the sentence may be wrong; the process is about to end in any case. */
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "guard_impl.h"

/* What a signal handler can know is what a static holds. */
static struct {
    pthread_mutex_t lock;
    pl_guard_device *first;
    int installed;
} watch = {.lock = PTHREAD_MUTEX_INITIALIZER};

typedef struct {
    char s[400];
    size_t n;
} sentence;

static void put_text(sentence *t, const char *s)
{
    while (*s && t->n < sizeof t->s) t->s[t->n++] = *s++;
}

static void put_number(sentence *t, int64_t v)
{
    char digits[24];
    int n = sizeof digits - 1;
    digits[n] = 0;
    uint64_t u = v < 0 ? 0 - (uint64_t)v : (uint64_t)v;
    do digits[--n] = (char)('0' + u % 10);
    while (u /= 10);
    if (v < 0) put_text(t, "-");
    put_text(t, digits + n);
}

/* Bytes from p to the pages of b; 0 inside. */
static size_t distance(const pl_guard_buffer *b, const char *p)
{
    return p < b->start             ? (size_t)(b->start - p)
           : p < b->start + b->span ? 0
                                    : (size_t)(p - b->start) - b->span + 1;
}

/* The buffer p lies in, or the nearest if p is in a guard page: "(buffer of 256 bytes, offset 12)". */
static void put_buffer(sentence *t, const pl_guard_device *d, const char *p)
{
    const pl_guard_buffer *b = NULL;
    for (const pl_guard_buffer *near = d->buffers; near; near = near->next)
        if (distance(near, p) <= d->page && (!b || distance(near, p) < distance(b, p))) b = near;
    if (!b) {
        put_text(t, " (no live buffer: freed, or far outside one)");
        return;
    }
    put_text(t, " (buffer of ");
    put_number(t, (int64_t)b->bytes);
    put_text(t, " bytes, offset ");
    put_number(t, p - b->data);
    put_text(t, ")");
}

static void on_fault(int sig, siginfo_t *info, void *context)
{
    (void)context;
    const char *p = info->si_addr;
    const pl_guard_device *d = watch.first;
    sentence t = {.n = 0};
    while (d && !(info->si_code > 0 && pl_guard_owns(d, p))) d = d->next;
    if (d && d->op) {
        put_text(&t, "guard: op #");
        put_number(&t, d->op_number);
        put_text(&t, " ");
        put_text(&t, d->op);
        if (d->subject[0]) {
            put_text(&t, " for '");
            put_text(&t, d->subject);
            put_text(&t, "'");
        }
        put_text(&t, " touched device memory outside its operands");
        put_buffer(&t, d, p);
        put_text(&t, "\n");
    } else if (d) {
        put_text(&t, "guard: the host touched device memory");
        put_buffer(&t, d, p);
        put_text(&t, " outside synchronisation; use polar_queue_download\n");
    }
    if (t.n && write(STDERR_FILENO, t.s, t.n) < 0) t.n = 0;
    struct sigaction plain;
    memset(&plain, 0, sizeof plain);
    plain.sa_handler = SIG_DFL;
    sigaction(sig, &plain, NULL);
    if (info->si_code <= 0) raise(sig); /* sent, not caused: nothing will cause it again */
} /* else the same instruction runs again and ends the process where it stands */

void pl_guard_watch_begin(pl_guard_device *d)
{
    struct sigaction now;
    pthread_mutex_lock(&watch.lock);
    if (!watch.first && !sigaction(SIGSEGV, NULL, &now) && !(now.sa_flags & SA_SIGINFO) &&
        now.sa_handler == SIG_DFL) {
        memset(&now, 0, sizeof now);
        now.sa_sigaction = on_fault;
        now.sa_flags = SA_SIGINFO | SA_ONSTACK;
        watch.installed = !sigaction(SIGSEGV, &now, NULL);
    }
    d->next = watch.first;
    watch.first = d;
    pthread_mutex_unlock(&watch.lock);
}

void pl_guard_watch_end(pl_guard_device *d)
{
    struct sigaction now;
    pthread_mutex_lock(&watch.lock);
    pl_guard_device **at = &watch.first;
    while (*at && *at != d) at = &(*at)->next;
    if (*at) *at = d->next;
    if (!watch.first && watch.installed) {
        watch.installed = 0;
        /* still ours */
        if (!sigaction(SIGSEGV, NULL, &now) && (now.sa_flags & SA_SIGINFO) && now.sa_sigaction == on_fault) {
            memset(&now, 0, sizeof now);
            now.sa_handler = SIG_DFL;
            sigaction(SIGSEGV, &now, NULL);
        }
    }
    pthread_mutex_unlock(&watch.lock);
}
