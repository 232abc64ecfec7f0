/* shard_courier.c -- the thread that carries gradients to their owners while others are computed (shard.h).
 *
 * It has the communicator's other channel (comm.h, aside) to itself, so that what the caller exchanges
 * meanwhile does not meet its messages.
 */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>

#include "base/alloc.h"
#include "device/backend.h"
#include "optim/shard.h"

struct pl_courier {
    const pl_shard *s;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int64_t posted, done;
    int quit;
    polar_status st; /* the first failure, after which nothing is carried */
    char why[512];
    size_t *part; /* (4, size): tables of its exchanges */
};

static polar_status carry(pl_courier *c, int64_t bucket)
{
    const pl_shard *s = c->s;
    size_t n = (size_t)s->size;
    for (int k = 0; k < pl_shard_rounds(s); k++) {
        pl_shard_round(s, c->part, bucket, 1, k);
        const polar_comm_parts in = {s->got, c->part, c->part + n},
                               out = {s->slots, c->part + 2 * n, c->part + 3 * n};
        PL_TRY(polar_comm_all_to_all(s->comm->aside, NULL, &in, &out));
    }
    return POLAR_OK;
}

static void *courier_main(void *arg)
{
    pl_courier *c = arg;
    pthread_mutex_lock(&c->lock);
    while (!c->quit) {
        if (c->done == c->posted || c->st != POLAR_OK) {
            pthread_cond_wait(&c->changed, &c->lock);
            continue;
        }
        int64_t bucket = c->done;
        pthread_mutex_unlock(&c->lock);
        polar_status st = carry(c, bucket);
        pthread_mutex_lock(&c->lock);
        if (st == POLAR_OK) c->done++;
        else snprintf(c->why, sizeof c->why, "%s", pl_fail_sentence());
        c->st = st;
        pthread_cond_broadcast(&c->changed);
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

/* Signals are the program's own threads': this one never waits where a signal could wake it to any use. */
static int start(pl_courier *c)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&c->thread, NULL, courier_main, c);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

polar_status pl_courier_begin(pl_shard *s)
{
    pl_courier *c = pl_calloc(1, sizeof *c);
    size_t *part = pl_calloc(4 * (size_t)s->size, sizeof *part);
    if (c && part) {
        *c = (pl_courier){.s = s, .part = part};
        pthread_mutex_init(&c->lock, NULL);
        pthread_cond_init(&c->changed, NULL);
        if (!start(c)) {
            s->courier = c;
            return POLAR_OK;
        }
        pthread_cond_destroy(&c->changed);
        pthread_mutex_destroy(&c->lock);
    }
    pl_free(part);
    pl_free(c);
    return PL_FAIL(POLAR_E_NOMEM, "a thread that carries gradients");
}

void pl_courier_end(pl_courier *c)
{
    if (!c) return;
    pthread_mutex_lock(&c->lock);
    c->quit = 1;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
    pthread_join(c->thread, NULL);
    pthread_cond_destroy(&c->changed);
    pthread_mutex_destroy(&c->lock);
    pl_free(c->part);
    pl_free(c);
}

void pl_courier_post(pl_courier *c, int64_t buckets)
{
    pthread_mutex_lock(&c->lock);
    c->posted = buckets;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
}

int64_t pl_courier_done(pl_courier *c)
{
    pthread_mutex_lock(&c->lock);
    int64_t done = c->done;
    pthread_mutex_unlock(&c->lock);
    return done;
}

polar_status pl_courier_wait(pl_courier *c)
{
    pthread_mutex_lock(&c->lock);
    while (c->done < c->posted && c->st == POLAR_OK) pthread_cond_wait(&c->changed, &c->lock);
    polar_status st = c->st;
    if (st == POLAR_OK) c->posted = c->done = 0;
    pthread_mutex_unlock(&c->lock);
    if (st == POLAR_OK) return st;
    pl_comm_spoil(c->s->comm, st, c->why);
    return pl_fail_again(st, c->why);
}
