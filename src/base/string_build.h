/* string_build.h -- a string that grows by printf; its first failure is kept and told at the end.
 *
 *     pl_string s = {0};
 *     for (...) pl_string_add(&s, "%s=%s\n", key, value);
 *     // frees and says POLAR_E_NOMEM if anything failed
 *     return pl_string_take(out, &s, "the canonical text");
 */
#ifndef PL_BASE_STRING_BUILD_H
#define PL_BASE_STRING_BUILD_H

#include <stddef.h>

#include "base/status.h"

typedef struct pl_string {
    char *text; /* ended by a zero once something was added */
    size_t used, size;
    int failed;
} pl_string;

void pl_string_add(pl_string *s, const char *fmt, ...) PL_PRINTF(2, 3); /* at the end */
/* the caller's, free with pl_free; "" when nothing was added */
polar_status pl_string_take(char **out, pl_string *s, const char *what);
/* frees one that is not taken */
void pl_string_drop(pl_string *s);

#endif
