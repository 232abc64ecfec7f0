/* status.c -- the thread's last error sentence: "shape mismatch: wants the short side first, got 96 x 48";
 * with POLAR_TRACE=1 also where in the sources it was written, "shape mismatch: src/compose/map.c:8: ...". */
#include "base/status.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text_visible.h"

#define MESSAGE_BYTES 1024

static _Thread_local char last_message[MESSAGE_BYTES];

const char *polar_status_name(polar_status status)
{
    switch (status) {
    case POLAR_OK: return "ok";
    case POLAR_E_ARG: return "bad argument";
    case POLAR_E_SHAPE: return "shape mismatch";
    case POLAR_E_DTYPE: return "wrong number format";
    case POLAR_E_FORMAT: return "bad file";
    case POLAR_E_UNSUPPORTED: return "not supported";
    case POLAR_E_NOMEM: return "out of memory";
    case POLAR_E_IO: return "input/output error";
    case POLAR_E_DEVICE: return "device error";
    case POLAR_E_STATE: return "wrong moment";
    }
    return "unknown status";
}

const char *polar_error_message(void)
{
    return last_message;
}

const char *polar_version(void)
{
    return POLAR_VERSION;
}

int pl_trace_wanted(void)
{
    static _Atomic int wanted = -1; /* read once; of several threads all write the same */
    int w = atomic_load_explicit(&wanted, memory_order_relaxed);
    if (w < 0) {
        const char *e = getenv("POLAR_TRACE");
        w = e && *e && *e != '0';
        atomic_store_explicit(&wanted, w, memory_order_relaxed);
    }
    return w;
}

/* Texts of others stand in sentences, and sentences end on terminals: what would steer one is shown as
 * letters. */
static void add_visible(char *out, size_t room, const char *text)
{
    char shown[PL_VISIBLE_CHARS];
    for (size_t used = strlen(out); *text;) {
        text += pl_text_visible(shown, text);
        size_t n = strlen(shown);
        if (used + n >= room) return;
        memcpy(out + used, shown, n + 1);
        used += n;
    }
}

polar_status pl_fail_v(polar_status code, const char *file, int line, const char *fmt, va_list ap)
{
    char sentence[MESSAGE_BYTES]; /* it may quote the last one */
    vsnprintf(sentence, sizeof sentence, fmt, ap);
    if (pl_trace_wanted())
        snprintf(last_message, sizeof last_message, "%s: %s:%d: ", polar_status_name(code), file, line);
    else snprintf(last_message, sizeof last_message, "%s: ", polar_status_name(code));
    add_visible(last_message, sizeof last_message, sentence);
    return code;
}

const char *pl_fail_sentence(void)
{
    for (int code = POLAR_E_ARG; code <= POLAR_E_STATE; code++) {
        const char *kind = polar_status_name((polar_status)code);
        size_t n = strlen(kind);
        if (!strncmp(last_message, kind, n) && !strncmp(last_message + n, ": ", 2))
            return last_message + n + 2;
    }
    return last_message;
}

polar_status pl_fail(polar_status code, const char *file, int line, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    pl_fail_v(code, file, line, fmt, ap);
    va_end(ap);
    return code;
}

polar_status pl_fail_again(polar_status code, const char *message)
{
    if (message != last_message) snprintf(last_message, sizeof last_message, "%s", message);
    return code;
}
