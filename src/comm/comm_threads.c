/* comm_threads.c -- ranks that are threads of one process: each puts its parts on a table, all meet, each
 * copies what is meant for it, all meet again.
 *
 * Invariants
 *  1. parts[r] is rank r's from its arrival at the first barrier to its arrival at the second.
 *  2. A group that has failed stays so: every later arrival returns at once with the first sentence.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "comm/comm.h"

typedef struct group {
    pthread_mutex_t lock;
    pthread_cond_t all_here;
    int size, here, open; /* ranks; those at the barrier; communicators not yet closed */
    int64_t meetings;     /* barriers passed */
    double timeout;       /* seconds; 0: none */
    int failed;
    char why[256];
    const polar_comm_parts **recv, **send; /* of the exchange under way, by rank */
    struct member *members;
} group;

typedef struct member {
    group *g;
    int rank;
} member;

/* With the lock held: the group has failed, for all. */
static void give_up(group *g, int rank)
{
    if (g->failed) return;
    g->failed = 1;
    snprintf(g->why, sizeof g->why,
             "rank %d of %d waited %g s for the others: %d of them came to the exchange", rank, g->size,
             g->timeout, g->here - 1);
    pthread_cond_broadcast(&g->all_here);
}

static struct timespec deadline(const group *g)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_sec += (time_t)g->timeout;
    t.tv_nsec += (long)((g->timeout - (double)(time_t)g->timeout) * 1e9);
    if (t.tv_nsec >= 1000000000) t.tv_sec++, t.tv_nsec -= 1000000000;
    return t;
}

static polar_status meet(group *g, int rank)
{
    char why[256] = "";
    pthread_mutex_lock(&g->lock);
    int64_t meeting = g->meetings;
    if (!g->failed && ++g->here == g->size) {
        g->here = 0;
        g->meetings++;
        pthread_cond_broadcast(&g->all_here);
    }
    const struct timespec until = deadline(g);
    while (g->meetings == meeting && !g->failed) {
        int late = g->timeout > 0 ? pthread_cond_timedwait(&g->all_here, &g->lock, &until)
                                  : pthread_cond_wait(&g->all_here, &g->lock);
        if (late == ETIMEDOUT && g->meetings == meeting) give_up(g, rank);
    }
    if (g->meetings == meeting) snprintf(why, sizeof why, "%s", g->why);
    pthread_mutex_unlock(&g->lock);
    PL_NEED(!*why, POLAR_E_IO, "%s", why);
    return POLAR_OK;
}

static int exchange(void *arg, const polar_comm_parts *recv, const polar_comm_parts *send, void *stream)
{
    const member *m = arg;
    group *g = m->g;
    (void)stream;
    g->recv[m->rank] = recv;
    g->send[m->rank] = send;
    PL_TRY(meet(g, m->rank));
    polar_status st = POLAR_OK;
    for (int r = 0; r < g->size; r++) {
        const polar_comm_parts *from = g->send[r];
        size_t bytes = recv->bytes[r];
        if (r == m->rank) continue;
        if (from->bytes[m->rank] != bytes)
            st = PL_FAIL(POLAR_E_SHAPE, "rank %d expects %zu bytes of rank %d, which sends %zu", m->rank,
                         bytes, r, from->bytes[m->rank]);
        else if (bytes)
            memcpy((char *)recv->data + recv->at[r], (const char *)from->data + from->at[m->rank], bytes);
    }
    PL_TRY(meet(g, m->rank));
    return st;
}

static void group_free(group *g)
{
    pthread_mutex_destroy(&g->lock);
    pthread_cond_destroy(&g->all_here);
    pl_free(g->recv);
    pl_free(g->send);
    pl_free(g->members);
    pl_free(g);
}

/* A rank that closes will not come any more: those who wait, now or later, are told. */
static void leave(void *arg)
{
    group *g = ((member *)arg)->g;
    pthread_mutex_lock(&g->lock);
    if (!g->failed) {
        g->failed = 1;
        snprintf(g->why, sizeof g->why, "rank %d of %d closed its communicator", ((member *)arg)->rank,
                 g->size);
        pthread_cond_broadcast(&g->all_here);
    }
    int last = --g->open == 0;
    pthread_mutex_unlock(&g->lock);
    if (last) group_free(g);
}

static polar_status group_make(group **out, int ranks, double timeout)
{
    pthread_condattr_t attr;
    group *g = pl_calloc(1, sizeof *g);
    *out = NULL;
    PL_NEED(g, POLAR_E_NOMEM, "a group of %d ranks", ranks);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_mutex_init(&g->lock, NULL);
    pthread_cond_init(&g->all_here, &attr);
    pthread_condattr_destroy(&attr);
    g->size = ranks;
    g->timeout = timeout;
    g->recv = pl_calloc((size_t)ranks, sizeof(const polar_comm_parts *));
    g->send = pl_calloc((size_t)ranks, sizeof(const polar_comm_parts *));
    g->members = pl_calloc((size_t)ranks, sizeof *g->members);
    if (!g->recv || !g->send || !g->members) {
        group_free(g);
        return PL_FAIL(POLAR_E_NOMEM, "a group of %d ranks", ranks);
    }
    *out = g;
    return POLAR_OK;
}

static polar_status open_group(polar_comm **out, int ranks, double timeout)
{
    group *g;
    PL_TRY(group_make(&g, ranks, timeout));
    polar_status st = POLAR_OK;
    for (int r = 0; r < ranks && st == POLAR_OK; r++) {
        g->members[r] = (member){g, r};
        const polar_comm_funcs f = {sizeof f, r,     ranks, POLAR_COMM_HOST, 0, &g->members[r],
                                    exchange, leave, NULL};
        st = pl_comm_make(&out[r], &f, "threads", 0);
        g->open += st == POLAR_OK;
    }
    if (st == POLAR_OK) return POLAR_OK;
    int made = g->open;
    if (!made) group_free(g);
    for (int r = 0; r < made; r++) polar_comm_close(out[r]); /* the last one frees the group */
    *out = NULL;
    return st;
}

polar_status polar_comm_open_threads(polar_comm **out, int ranks, double timeout)
{
    PL_NEED_ARG(out);
    *out = NULL;
    PL_NEED(ranks >= 1 && ranks <= PL_COMM_MOST_RANKS, POLAR_E_ARG, "%d threads as ranks; 1 to %d can be",
            ranks, PL_COMM_MOST_RANKS);
    PL_NEED(timeout >= 0 && timeout <= 1e9, POLAR_E_ARG, "a timeout of %g seconds", timeout);
    polar_comm **asides = pl_calloc((size_t)ranks, sizeof *asides);
    PL_NEED(asides, POLAR_E_NOMEM, "a group of %d ranks", ranks);
    polar_status st = open_group(asides, ranks, timeout);
    if (st == POLAR_OK && (st = open_group(out, ranks, timeout)) != POLAR_OK)
        for (int r = 0; r < ranks; r++) polar_comm_close(asides[r]);
    for (int r = 0; r < ranks && st == POLAR_OK; r++) out[r]->aside = asides[r];
    pl_free(asides);
    return st;
}
