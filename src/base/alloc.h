/* alloc.h -- the only way this tree takes host memory, so that tests can make it run out.
 *
 * pl_alloc_fail_at(n) makes the n-th allocation from now on (counted from 1, all threads) return NULL,
 * and every later one too; 0 switches that off. pl_alloc_live() counts blocks not yet freed: a
 * fault loop runs n = 1, 2, ... until the call under test succeeds and demands the same count after each.
 */
#ifndef PL_BASE_ALLOC_H
#define PL_BASE_ALLOC_H

#include <stddef.h>
#include <stdint.h>

/* 64-byte aligned, not cleared; NULL when there is none; free with pl_free */
void *pl_alloc(size_t bytes);
/* the same, cleared; NULL on overflow of count * bytes too */
void *pl_calloc(size_t count, size_t bytes);
/* keeps the first min(old, new) bytes; p stays valid on NULL */
void *pl_realloc(void *p, size_t old_bytes, size_t new_bytes);
char *pl_strdup(const char *s); /* a copy owned by the caller */
void pl_free(void *p);          /* NULL is fine */

void pl_alloc_fail_at(int64_t n); /* tests only, see above */
int64_t pl_alloc_live(void);      /* blocks taken and not yet freed */

#endif
