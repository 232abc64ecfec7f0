/* status.h -- the three macros by which every function here fails (docs/STYLE.md, Errors).
 *
 *     PL_NEED(m <= n, POLAR_E_SHAPE, "wants the short side first, got %lld x %lld", m, n);
 *     PL_TRY(pl_thing_open(&t, path));
 *     if (!p) { st = PL_FAIL(POLAR_E_NOMEM, "a table of %zu bytes", n); goto done; }
 */
#ifndef PL_BASE_STATUS_H
#define PL_BASE_STATUS_H

#include <stdarg.h>
#include <stddef.h>

#include "polar/status.h"

#define PL_PRINTF(fmt, first) __attribute__((format(printf, fmt, first)))

/* records the sentence, returns code */
polar_status pl_fail(polar_status code, const char *file, int line, const char *fmt, ...) PL_PRINTF(4, 5);
polar_status pl_fail_v(polar_status code, const char *file, int line, const char *fmt, va_list ap)
    PL_PRINTF(4, 0);
/* records a sentence that was kept elsewhere (a queue's first error) */
polar_status pl_fail_again(polar_status code, const char *message);

/* the last sentence without its kind, for a sentence that quotes it; borrowed */
const char *pl_fail_sentence(void);
/* POLAR_TRACE=1: ops are printed, and sentences say where in the sources they were written */
int pl_trace_wanted(void);

#define PL_FAIL(code, ...) pl_fail((code), __FILE__, __LINE__, __VA_ARGS__)
#define PL_NEED(cond, code, ...)                        \
    do {                                                \
        if (!(cond)) return PL_FAIL(code, __VA_ARGS__); \
    } while (0)
/* a pointer that may not be NULL */
#define PL_NEED_ARG(arg) PL_NEED((arg) != NULL, POLAR_E_ARG, "%s: %s is NULL", __func__, #arg)
#define PL_TRY(call)                     \
    do {                                 \
        polar_status st_ = (call);       \
        if (st_ != POLAR_OK) return st_; \
    } while (0)

#endif
