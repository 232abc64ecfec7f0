/* image_loader.h -- items computed ahead by worker threads, handed out in order in batches. What an item
 * is, its callback knows.
 *
 *     // writes item_bytes at out
 *     static polar_status fill(void *user, int worker, int64_t item, void *out);
 *     pl_loader_opts o = {.workers = 4, .ahead = 3, .items = n, .batch = 128, .item_bytes = 3 * 224 *
 *         224, .fill = fill, .user = &mine};
 *     pl_loader *l;
 *     PL_TRY(pl_loader_create(&l, &o));
 *     for (pl_batch b;;) {
 *         PL_TRY(pl_loader_next(&b, l));
 *         if (!b.count) break;
 *         // items b.first .. b.first + b.count - 1
 *         train(b.data, b.first, b.count);
 *     }
 *     pl_loader_destroy(l);
 *
 *  1. Batches come in order and hold what fill made of their item numbers: nothing depends on the number of
 *     workers.
 *  2. At most ahead + 1 batches exist: the one the consumer has and those computed ahead.
 *  3. An item whose fill fails makes pl_loader_next of its batch return that status and sentence; of
 *     several, the one with the lowest number. The consumer may go on: the next call gives the next batch.
 *  4. fill is called once per item, with a worker's number below max(workers, 1); a worker does one item at
 *     a time, so scratch can be kept per worker.
 */
#ifndef PL_DATA_IMAGE_LOADER_H
#define PL_DATA_IMAGE_LOADER_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct pl_loader_opts {
    int workers;          /* threads; 0: items are made by the caller's, in pl_loader_next */
    int ahead;            /* batches computed ahead, 1 or more */
    int64_t items, batch; /* the last batch may be short */
    size_t item_bytes;
    polar_status (*fill)(void *user, int worker, int64_t item, void *out);
    void (*drop)(void *user, void *item); /* an item that was filled and never handed out; or NULL */
    void *user;
} pl_loader_opts;

typedef struct pl_batch {
    int64_t first, count; /* 0: there are no more */
    void *data;           /* (count, item_bytes); borrowed until the next call */
} pl_batch;

typedef struct pl_loader pl_loader;

polar_status pl_loader_create(pl_loader **out, const pl_loader_opts *opts); /* begins to work */
/* waits for the next batch; ends the borrow of the last one */
polar_status pl_loader_next(pl_batch *out, pl_loader *l);
/* at any moment; waits for the items begun; NULL is fine */
void pl_loader_destroy(pl_loader *l);

#endif
