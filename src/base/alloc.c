/* alloc.c -- host memory with a counter and a planted failure. */
#include "base/alloc.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define ALIGNMENT 64

static _Atomic int64_t live_blocks;
static _Atomic int64_t until_failure; /* 0: never fail; n > 0: the n-th next one fails; -1: all fail */

static int planted_failure(void)
{
    int64_t n = atomic_load(&until_failure);
    while (n > 0) {
        int64_t next = n == 1 ? -1 : n - 1;
        if (atomic_compare_exchange_weak(&until_failure, &n, next)) return n == 1;
    }
    return n < 0;
}

void *pl_alloc(size_t bytes)
{
    if (bytes > SIZE_MAX - ALIGNMENT || planted_failure()) return NULL;
    size_t rounded = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    void *p = aligned_alloc(ALIGNMENT, rounded ? rounded : ALIGNMENT);
    if (p) atomic_fetch_add(&live_blocks, 1);
    return p;
}

void *pl_calloc(size_t count, size_t bytes)
{
    if (bytes && count > SIZE_MAX / bytes) return NULL;
    void *p = pl_alloc(count * bytes);
    if (p) memset(p, 0, count * bytes);
    return p;
}

void *pl_realloc(void *p, size_t old_bytes, size_t new_bytes)
{
    void *q = pl_alloc(new_bytes);
    if (!q) return NULL;
    if (p) memcpy(q, p, old_bytes < new_bytes ? old_bytes : new_bytes);
    pl_free(p);
    return q;
}

char *pl_strdup(const char *s)
{
    size_t n = strlen(s) + 1;
    char *p = pl_alloc(n);
    if (p) memcpy(p, s, n);
    return p;
}

void pl_free(void *p)
{
    if (!p) return;
    atomic_fetch_sub(&live_blocks, 1);
    free(p);
}

void pl_alloc_fail_at(int64_t n)
{
    atomic_store(&until_failure, n);
}

int64_t pl_alloc_live(void)
{
    return atomic_load(&live_blocks);
}
