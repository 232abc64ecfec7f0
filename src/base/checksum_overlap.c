/* checksum_overlap.c -- see checksum_overlap.h.
 *
 * Invariants, under the lock: `added` pieces were handed in, `done` of them are in the sum, and
 * done <= added <= done + RING; piece i lies in ring[i % RING] while done <= i < added.
 */
#include "base/checksum_overlap.h"

#include <pthread.h>
#include <signal.h>
#include <stdint.h>

#include "base/alloc.h"

#define RING 64

struct pl_checksum_overlap {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pl_checksum *sum;
    struct {
        const void *data;
        size_t bytes;
    } ring[RING];
    int64_t added, done;
    int ended;
};

static void *take_pieces(void *arg)
{
    pl_checksum_overlap *o = arg;
    pthread_mutex_lock(&o->lock);
    for (;;) {
        while (o->done == o->added && !o->ended) pthread_cond_wait(&o->changed, &o->lock);
        if (o->done == o->added) break;
        int64_t from = o->done, to = o->added;
        pthread_mutex_unlock(&o->lock);
        for (int64_t i = from; i < to; i++)
            pl_checksum_add(o->sum, o->ring[i % RING].data, o->ring[i % RING].bytes);
        pthread_mutex_lock(&o->lock);
        o->done = to;
        pthread_cond_broadcast(&o->changed);
    }
    pthread_mutex_unlock(&o->lock);
    return NULL;
}

pl_checksum_overlap *pl_checksum_overlap_begin(pl_checksum *sum)
{
    pl_checksum_overlap *o = pl_alloc(sizeof *o);
    if (!o) return NULL;
    *o = (pl_checksum_overlap){.sum = sum};
    pthread_mutex_init(&o->lock, NULL);
    pthread_cond_init(&o->changed, NULL);
    sigset_t all, old; /* signals stay the caller's */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int failed = pthread_create(&o->thread, NULL, take_pieces, o);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (!failed) return o;
    pthread_cond_destroy(&o->changed);
    pthread_mutex_destroy(&o->lock);
    pl_free(o);
    return NULL;
}

void pl_checksum_overlap_add(pl_checksum_overlap *o, pl_checksum *sum, const void *data, size_t bytes)
{
    if (!o) {
        pl_checksum_add(sum, data, bytes);
        return;
    }
    pthread_mutex_lock(&o->lock);
    while (o->added - o->done == RING) pthread_cond_wait(&o->changed, &o->lock);
    o->ring[o->added % RING].data = data;
    o->ring[o->added % RING].bytes = bytes;
    if (o->added++ == o->done) pthread_cond_broadcast(&o->changed);
    pthread_mutex_unlock(&o->lock);
}

void pl_checksum_overlap_end(pl_checksum_overlap *o)
{
    if (!o) return;
    pthread_mutex_lock(&o->lock);
    o->ended = 1;
    pthread_cond_broadcast(&o->changed);
    pthread_mutex_unlock(&o->lock);
    pthread_join(o->thread, NULL);
    pthread_cond_destroy(&o->changed);
    pthread_mutex_destroy(&o->lock);
    pl_free(o);
}
