/* status.c -- the thread's last error sentence. */
#include "base/status.h"

#include <stdio.h>
#include <string.h>

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

polar_status pl_fail_v(polar_status code, const char *file, int line, const char *fmt, va_list ap)
{
    int n = snprintf(last_message, sizeof last_message, "%s: %s:%d: ", polar_status_name(code), file, line);
    if (n < 0) n = 0;
    if (n < (int)sizeof last_message) vsnprintf(last_message + n, sizeof last_message - (size_t)n, fmt, ap);
    return code;
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
