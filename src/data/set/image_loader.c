/* image_loader.c -- a ring of batches between worker threads and one consumer.
 *
 *  1. Items are claimed in order under the lock; item i belongs to batch i / batch, which lives in slot (i /
 * batch) % slots.
 *  2. A slot is free for batch b once b < given + slots, where `given` counts the batches the consumer is
 * done with.
 *  3. A batch is whole when all of its items were counted, failed or not; only then it is handed out, so the
 * error of a batch is that of its lowest item.
 */
#include "data/set/image_loader.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"

typedef struct slot {
    uint8_t *data, *filled; /* item_bytes each; 1 where fill succeeded */
    int64_t done, failed;   /* items counted; the lowest item that failed, -1 for none */
    polar_status status;
    char said[1024];
} slot;

typedef struct worker {
    pl_loader *l;
    int number, running;
    pthread_t thread;
} worker;

struct pl_loader {
    pl_loader_opts o;
    pthread_mutex_t lock;
    pthread_cond_t room, ready; /* for workers: a slot came free; for the consumer: a batch is whole */
    int synced, stop;           /* the three above exist; workers shall leave */
    int64_t claimed;            /* items */
    int64_t given;              /* batches that the consumer is done with */
    int64_t handed;             /* batches handed out: given or given + 1 */
    int n_slots;
    slot *slots;
    worker *workers;
};

static int64_t batch_items(const pl_loader *l, int64_t b)
{
    int64_t left = l->o.items - b * l->o.batch;
    return left < l->o.batch ? left : l->o.batch;
}

/* Makes one item and counts it. The lock is not held while it is made. */
static void make_item(pl_loader *l, int number, int64_t item)
{
    slot *s = &l->slots[item / l->o.batch % l->n_slots];
    int64_t at = item % l->o.batch;
    polar_status st = l->o.fill(l->o.user, number, item, s->data + (size_t)at * l->o.item_bytes);
    pthread_mutex_lock(&l->lock);
    s->filled[at] = st == POLAR_OK;
    if (st != POLAR_OK && (s->failed < 0 || item < s->failed)) {
        s->failed = item;
        s->status = st;
        snprintf(s->said, sizeof s->said, "%s", polar_error_message());
    }
    if (++s->done == batch_items(l, item / l->o.batch)) pthread_cond_signal(&l->ready);
    pthread_mutex_unlock(&l->lock);
}

static void *work(void *arg)
{
    worker *w = arg;
    pl_loader *l = w->l;
    for (;;) {
        pthread_mutex_lock(&l->lock);
        while (!l->stop && l->claimed < l->o.items && l->claimed / l->o.batch >= l->given + l->n_slots)
            pthread_cond_wait(&l->room, &l->lock);
        int64_t item = l->stop || l->claimed >= l->o.items ? -1 : l->claimed++;
        pthread_mutex_unlock(&l->lock);
        if (item < 0) return NULL;
        make_item(l, w->number, item);
    }
}

static polar_status set_up(pl_loader *l)
{
    l->n_slots = l->o.workers ? l->o.ahead + 1 : 1;
    l->slots = pl_calloc((size_t)l->n_slots, sizeof *l->slots);
    l->workers = pl_calloc((size_t)l->o.workers + 1, sizeof *l->workers);
    PL_NEED(l->slots && l->workers, POLAR_E_NOMEM, "a loader of %d batches", l->n_slots);
    for (int i = 0; i < l->n_slots; i++) {
        slot *s = &l->slots[i];
        PL_NEED((size_t)l->o.batch <= SIZE_MAX / l->o.item_bytes, POLAR_E_NOMEM, "a batch of %lld items",
                (long long)l->o.batch);
        s->data = pl_alloc((size_t)l->o.batch * l->o.item_bytes);
        s->filled = pl_calloc((size_t)l->o.batch, 1);
        s->failed = -1;
        PL_NEED(s->data && s->filled, POLAR_E_NOMEM, "a batch of %lld items of %zu bytes",
                (long long)l->o.batch, l->o.item_bytes);
    }
    int bad = pthread_mutex_init(&l->lock, NULL) | pthread_cond_init(&l->room, NULL) |
              pthread_cond_init(&l->ready, NULL);
    PL_NEED(!bad, POLAR_E_NOMEM, "the locks of a loader");
    l->synced = 1;
    for (int i = 0; i < l->o.workers; i++) {
        l->workers[i] = (worker){.l = l, .number = i};
        bad = pthread_create(&l->workers[i].thread, NULL, work, &l->workers[i]);
        PL_NEED(!bad, POLAR_E_NOMEM, "thread %d of a loader: %s", i + 1, strerror(bad));
        l->workers[i].running = 1;
    }
    return POLAR_OK;
}

polar_status pl_loader_create(pl_loader **out, const pl_loader_opts *o)
{
    *out = NULL;
    PL_NEED(o->workers >= 0 && o->workers <= 1024 && o->ahead >= 1 && o->ahead <= 1024 && o->items >= 0 &&
                o->batch >= 1 && o->item_bytes && o->fill,
            POLAR_E_ARG, "a loader of %d workers, %d batches ahead, batches of %lld", o->workers, o->ahead,
            (long long)o->batch);
    pl_loader *l = pl_calloc(1, sizeof *l);
    PL_NEED(l, POLAR_E_NOMEM, "a loader");
    l->o = *o;
    polar_status st = set_up(l);
    if (st == POLAR_OK) *out = l;
    else pl_loader_destroy(l);
    return st;
}

/* The consumer is done with the batch it has. */
static void give_back(pl_loader *l)
{
    if (l->handed == l->given) return;
    slot *s = &l->slots[l->given % l->n_slots];
    memset(s->filled, 0, (size_t)l->o.batch);
    s->done = 0;
    s->failed = -1;
    l->given++;
    pthread_cond_broadcast(&l->room);
}

polar_status pl_loader_next(pl_batch *out, pl_loader *l)
{
    pthread_mutex_lock(&l->lock);
    give_back(l);
    int64_t b = l->given, n = b * l->o.batch < l->o.items ? batch_items(l, b) : 0;
    slot *s = &l->slots[b % l->n_slots];
    *out = (pl_batch){.first = b * l->o.batch, .count = n, .data = s->data};
    if (!n) {
        pthread_mutex_unlock(&l->lock);
        return POLAR_OK;
    }
    if (l->o.workers) {
        while (s->done < n) pthread_cond_wait(&l->ready, &l->lock);
    } else {
        pthread_mutex_unlock(&l->lock);
        for (int64_t i = 0; i < n; i++) make_item(l, 0, out->first + i);
        pthread_mutex_lock(&l->lock);
    }
    l->handed = b + 1;
    polar_status st = s->failed < 0 ? POLAR_OK : pl_fail_again(s->status, s->said);
    if (st == POLAR_OK) memset(s->filled, 0, (size_t)n); /* the items are the consumer's now */
    else if (l->o.drop)
        for (int64_t i = 0; i < n; i++)
            if (s->filled[i]) l->o.drop(l->o.user, s->data + (size_t)i * l->o.item_bytes);
    pthread_mutex_unlock(&l->lock);
    return st;
}

static void drop_batches(pl_loader *l)
{
    for (int64_t b = l->handed; l->o.drop && b < l->given + l->n_slots; b++)
        for (int64_t i = 0; i < l->o.batch; i++)
            if (l->slots[b % l->n_slots].filled[i])
                l->o.drop(l->o.user, l->slots[b % l->n_slots].data + (size_t)i * l->o.item_bytes);
}

void pl_loader_destroy(pl_loader *l)
{
    if (!l) return;
    if (l->synced) {
        pthread_mutex_lock(&l->lock);
        l->stop = 1;
        pthread_cond_broadcast(&l->room);
        pthread_mutex_unlock(&l->lock);
        for (int i = 0; i < l->o.workers; i++)
            if (l->workers[i].running) pthread_join(l->workers[i].thread, NULL);
        drop_batches(l);
        pthread_cond_destroy(&l->ready);
        pthread_cond_destroy(&l->room);
        pthread_mutex_destroy(&l->lock);
    }
    for (int i = 0; l->slots && i < l->n_slots; i++) {
        pl_free(l->slots[i].data);
        pl_free(l->slots[i].filled);
    }
    pl_free(l->slots);
    pl_free(l->workers);
    pl_free(l);
}
