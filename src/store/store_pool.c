/* store_pool.c -- memory of selected rows: a growing array for the rows, chunks for their strings. */
#include <stdalign.h>
#include <string.h>

#include "base/alloc.h"
#include "store/store_impl.h"

#define CHUNK_BYTES ((size_t)16384)

struct pl_pool {
    pl_pool *next;
    size_t used, room;
    alignas(max_align_t) char data[];
};

void *pl_pool_take(pl_pool **pool, size_t bytes)
{
    const size_t align = alignof(max_align_t);
    size_t want = (bytes + align - 1) / align * align;
    if (!*pool || (*pool)->room - (*pool)->used < want) {
        size_t room = want > CHUNK_BYTES ? want : CHUNK_BYTES;
        pl_pool *chunk = pl_alloc(sizeof *chunk + room);
        if (!chunk) return NULL;
        *chunk = (pl_pool){.next = *pool, .room = room};
        *pool = chunk;
    }
    void *p = (*pool)->data + (*pool)->used;
    (*pool)->used += want;
    return p;
}

polar_status pl_pool_copy(const char **out, pl_pool **pool, const char *text)
{
    size_t bytes = strlen(text) + 1;
    char *copy = pl_pool_take(pool, bytes);
    *out = NULL;
    PL_NEED(copy, POLAR_E_NOMEM, "a text of the store");
    *out = memcpy(copy, text, bytes);
    return POLAR_OK;
}

void pl_pool_free(pl_pool *pool)
{
    while (pool) {
        pl_pool *next = pool->next;
        pl_free(pool);
        pool = next;
    }
}

void *pl_grow_add(pl_grow *g)
{
    if (g->count == g->room) {
        int64_t room = g->room ? 2 * g->room : 64;
        char *data = pl_realloc(g->data, (size_t)g->room * g->item, (size_t)room * g->item);
        if (!data) return NULL;
        g->data = data;
        g->room = room;
    }
    return memset(g->data + (size_t)g->count++ * g->item, 0, g->item);
}
