/* pattern.h -- names by patterns: '*' any run of characters, '?' any one. */
#ifndef PL_BASE_PATTERN_H
#define PL_BASE_PATTERN_H

/* one of the comma-separated patterns fits; none does where patterns is NULL */
int pl_pattern_match(const char *patterns, const char *name);

#endif
