/* pattern.c -- see pattern.h. */
#include "base/pattern.h"

#include <string.h>

/* '*' any run, '?' any one character. */
static int fits(const char *p, const char *end, const char *s)
{
    const char *star = NULL, *back = NULL;
    for (; *s;) {
        if (p < end && (*p == '?' || *p == *s) && *p != '*') p++, s++;
        else if (p < end && *p == '*') star = ++p, back = s;
        else if (star) p = star, s = ++back;
        else return 0;
    }
    while (p < end && *p == '*') p++;
    return p == end;
}

int pl_pattern_match(const char *patterns, const char *name)
{
    for (const char *p = patterns; p && *p;) {
        size_t n = strcspn(p, ",");
        if (n && fits(p, p + n, name)) return 1;
        p += n + (p[n] == ',');
    }
    return 0;
}
