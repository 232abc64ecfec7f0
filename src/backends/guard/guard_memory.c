/* guard_memory.c -- device memory the host cannot touch.
 *
 *     | guard page | red zone | buffer | red zone, under 64 bytes | guard page | red zone | next buffer ...
 *
 * Addresses come from one reservation per device and only grow (invariant 2), so a freed buffer stays an
 * unreadable hole. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/alloc.h"
#include "guard_impl.h"

#define ALIGNMENT ((size_t)64)      /* as promised and not better, so that nobody counts on more */
#define MOST      ((size_t)1 << 42) /* addresses cost nothing; a process has 2^47 of them */
#define LEAST     ((size_t)1 << 28)

static size_t round_up(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

polar_status pl_guard_reserve(pl_guard_device *d)
{
    d->page = (size_t)sysconf(_SC_PAGESIZE);
    d->memory = (size_t)sysconf(_SC_PHYS_PAGES) * d->page;
    for (d->size = MOST; d->size >= LEAST; d->size /= 2) {
        void *p = mmap(NULL, d->size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (p == MAP_FAILED) continue;
        d->base = p;
        d->used = d->page;
        return POLAR_OK;
    }
    return PL_FAIL(POLAR_E_NOMEM, "guard: not even %zu bytes of address space (is there a limit, ulimit -v?)",
                   LEAST);
}

void pl_guard_release(pl_guard_device *d)
{
    for (pl_guard_buffer *b = d->buffers, *next; b; b = next) {
        next = b->next;
        pl_free(b);
    }
    if (d->base) munmap(d->base, d->size);
}

static polar_status place(pl_guard_device *d, pl_guard_buffer *b, size_t bytes)
{
    PL_NEED(!pl_guard_captures(), POLAR_E_STATE,
            "guard: device memory was asked for while a graph is captured; allocate before, or take scratch");
    PL_NEED(bytes <= d->memory - d->live, POLAR_E_NOMEM, "guard: %zu bytes, with %zu of %zu in use", bytes,
            d->live, d->memory);
    b->bytes = bytes;
    b->span = round_up(round_up(bytes, ALIGNMENT), d->page);
    b->start = d->base + d->used;
    b->data = b->start + b->span - round_up(bytes, ALIGNMENT);
    PL_NEED(b->span + d->page <= d->size - d->used, POLAR_E_NOMEM,
            "guard: no addresses left, none is used twice; close the device and open it again");
    PL_NEED(!mprotect(b->start, b->span, PROT_READ | PROT_WRITE), POLAR_E_NOMEM,
            "guard: the system refused %zu bytes", b->span);
    memset(b->start, PL_GUARD_RED_ZONE, b->span);
    memset(b->data, PL_GUARD_POISON, bytes);
    mprotect(b->start, b->span, PROT_NONE);
    d->used += b->span + d->page;
    d->live += bytes;
    b->next = d->buffers;
    d->buffers = b;
    return POLAR_OK;
}

polar_status pl_guard_mem_alloc(pl_device *dev, void **out, size_t bytes)
{
    pl_guard_device *d = dev->impl;
    pl_guard_buffer *b = pl_calloc(1, sizeof *b);
    PL_NEED(b, POLAR_E_NOMEM, "guard: a note of a buffer of %zu bytes", bytes);
    pthread_mutex_lock(&d->lock);
    polar_status st = place(d, b, bytes);
    pthread_mutex_unlock(&d->lock);
    if (st == POLAR_OK) *out = b->data;
    else pl_free(b);
    return st;
}

/* The pages go back to the system and stay a hole. */
static void punch(const pl_guard_buffer *b)
{
    if (mmap(b->start, b->span, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) !=
        MAP_FAILED)
        return;
    madvise(b->start, b->span, MADV_DONTNEED);
    mprotect(b->start, b->span, PROT_NONE);
}

void pl_guard_mem_free(pl_device *dev, void *data)
{
    pl_guard_device *d = dev->impl;
    pl_guard_buffer **at, *b;
    pthread_mutex_lock(&d->lock);
    for (at = &d->buffers; (b = *at) && b->data != data; at = &b->next) continue;
    if (!b)
        snprintf(d->misuse, sizeof d->misuse,
                 "guard: %p was freed, which is no buffer of device '%s' (freed twice?)", data, dev->name);
    else if (pl_guard_captures())
        snprintf(d->misuse, sizeof d->misuse,
                 "guard: a buffer of %zu bytes was freed while a graph is captured", b->bytes);
    if (b) {
        *at = b->next;
        d->live -= b->bytes;
        punch(b);
    }
    pthread_mutex_unlock(&d->lock);
    pl_free(b);
}

static polar_status protect_all(pl_guard_device *d, int protection)
{
    int failed = 0;
    for (pl_guard_buffer *b = d->buffers; b; b = b->next) failed |= mprotect(b->start, b->span, protection);
    PL_NEED(!failed, POLAR_E_DEVICE, "guard: the system refused to change the protection of device memory");
    return POLAR_OK;
}

polar_status pl_guard_open(pl_guard_device *d)
{
    return protect_all(d, PROT_READ | PROT_WRITE);
}

polar_status pl_guard_close(pl_guard_device *d)
{
    return protect_all(d, PROT_NONE);
}

int pl_guard_owns(const pl_guard_device *d, const void *p)
{
    return (uintptr_t)p - (uintptr_t)d->base < d->size; /* below base: wraps round to a large number */
}

pl_guard_buffer *pl_guard_find(const pl_guard_device *d, const void *p)
{
    pl_guard_buffer *b = d->buffers;
    while (b && (uintptr_t)p - (uintptr_t)b->start >= b->span) b = b->next;
    return b;
}

polar_status pl_guard_inside(const pl_guard_device *d, const char *what, const void *p, size_t bytes)
{
    PL_NEED(pl_guard_owns(d, p), POLAR_E_ARG, "%s lies outside device memory", what);
    const pl_guard_buffer *b = pl_guard_find(d, p);
    PL_NEED(b, POLAR_E_ARG,
            "%s lies outside device memory: what was there has been freed, or it is a gap between buffers",
            what);
    PL_NEED((const char *)p >= b->data, POLAR_E_ARG,
            "%s lies outside device memory: it begins before its buffer of %zu bytes", what, b->bytes);
    size_t offset = (size_t)((const char *)p - b->data);
    PL_NEED(offset <= b->bytes && bytes <= b->bytes - offset, POLAR_E_ARG,
            "%s lies outside device memory: bytes %zu to %zu of a buffer of %zu", what, offset,
            offset + bytes, b->bytes);
    return POLAR_OK;
}

int64_t pl_guard_torn(const pl_guard_buffer *b)
{
    const unsigned char zone = PL_GUARD_RED_ZONE;
    for (const char *p = b->start; p < b->data; p++)
        if ((unsigned char)*p != zone) return p - b->data;
    for (const char *p = b->data + b->bytes; p < b->start + b->span; p++)
        if ((unsigned char)*p != zone) return p - b->data;
    return 0;
}
