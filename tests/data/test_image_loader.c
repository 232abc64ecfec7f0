/* test_image_loader.c -- the loader's four promises (image_loader.h): order and contents whatever the number
 * of workers, bounded work ahead, errors carried to the consumer, one call per item.
 */
#include "test.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/philox.h"
#include "data/set/image_loader.h"

#define ITEM_WORDS 33

typedef struct fake {
    atomic_llong calls[4096]; /* of each item */
    atomic_llong begun, live; /* items begun; items filled and not dropped or taken */
    atomic_llong handed;      /* items handed out, told by the consumer */
    atomic_int busy[64];      /* a worker does one item at a time */
    atomic_llong wrong, most_ahead;
    int64_t bad_from, bad_step; /* items that fail; bad_step 0: none */
    int keeps;                  /* items hold a block that must be dropped */
    int dawdle;
} fake;

static polar_status fill(void *user, int worker, int64_t item, void *out)
{
    fake *f = user;
    uint32_t *w = out;
    if (atomic_fetch_add(&f->busy[worker], 1)) atomic_fetch_add(&f->wrong, 1);
    atomic_fetch_add(&f->calls[item], 1);
    long long ahead = atomic_fetch_add(&f->begun, 1) + 1 - atomic_load(&f->handed),
              most = atomic_load(&f->most_ahead);
    while (ahead > most && !atomic_compare_exchange_weak(&f->most_ahead, &most, ahead)) {
    }
    /* items end out of order */
    if (f->dawdle) usleep(pl_philox(1, PL_STREAM_TEST, 2, (uint64_t)item).x % 300);
    for (int i = 0; i < ITEM_WORDS; i++) w[i] = pl_philox(5, PL_STREAM_TEST, (uint64_t)item, (uint64_t)i).x;
    polar_status st = POLAR_OK;
    if (f->bad_step && item >= f->bad_from && (item - f->bad_from) % f->bad_step == 0)
        st = PL_FAIL(POLAR_E_FORMAT, "item %lld is bad", (long long)item);
    else if (f->keeps) {
        void *block = pl_alloc(16);
        memcpy(out, &block, sizeof block);
        atomic_fetch_add(&f->live, 1);
    }
    atomic_fetch_sub(&f->busy[worker], 1);
    return st;
}

static void drop(void *user, void *item)
{
    fake *f = user;
    void *block;
    memcpy(&block, item, sizeof block);
    pl_free(block);
    atomic_fetch_sub(&f->live, 1);
}

static void test_order(int workers, int ahead, int64_t items, int64_t batch)
{
    static fake f;
    memset(&f, 0, sizeof f);
    f.dawdle = workers > 1;
    pl_loader_opts o = {.workers = workers,
                        .ahead = ahead,
                        .items = items,
                        .batch = batch,
                        .item_bytes = 4 * ITEM_WORDS,
                        .fill = fill,
                        .user = &f};
    pl_loader *l;
    int64_t wrong = 0, next = 0;
    TEST_TRY(pl_loader_create(&l, &o));
    for (pl_batch b = {.count = 1}; b.count;) {
        TEST_TRY(pl_loader_next(&b, l));
        wrong += b.first != next && b.count;
        for (int64_t i = 0; i < b.count; i++)
            for (int k = 0; k < ITEM_WORDS; k++)
                wrong += ((uint32_t *)b.data)[i * ITEM_WORDS + k] !=
                         pl_philox(5, PL_STREAM_TEST, (uint64_t)(b.first + i), (uint64_t)k).x;
        next += b.count;
        atomic_store(&f.handed, next - b.count); /* the batch in hand counts as ahead */
    }
    pl_batch end;
    TEST_TRY(pl_loader_next(&end, l));
    wrong += end.count || next != items;
    for (int64_t i = 0; i < items; i++) wrong += atomic_load(&f.calls[i]) != 1;
    pl_loader_destroy(l);
    /* ahead + 1 batches, and one that the consumer has given back but not yet told us of */
    int64_t allowed = workers ? (ahead + 2) * batch : 2 * batch;
    char what[96];
    snprintf(what, sizeof what, "%d workers, %d ahead, %lld items by %lld", workers, ahead, (long long)items,
             (long long)batch);
    test_true(what, !wrong && !atomic_load(&f.wrong) && atomic_load(&f.most_ahead) <= allowed,
              "%lld wrong, %lld items ahead at the most (%lld allowed)",
              (long long)(wrong + atomic_load(&f.wrong)), (long long)atomic_load(&f.most_ahead),
              (long long)allowed);
}

/* Items 23, 26, 29, ... of batches of 10 fail: batches 0 and 1 come, then each batch tells its lowest one. */
static void test_errors(int workers)
{
    static fake f;
    memset(&f, 0, sizeof f);
    f.bad_from = 23, f.bad_step = 3, f.keeps = 1, f.dawdle = 1;
    pl_loader_opts o = {.workers = workers,
                        .ahead = 2,
                        .items = 64,
                        .batch = 10,
                        .item_bytes = 4 * ITEM_WORDS,
                        .fill = fill,
                        .drop = drop,
                        .user = &f};
    static const int lowest[] = {-1, -1, 23, 32, 41, 50, 62};
    int64_t live = pl_alloc_live(), wrong = 0;
    pl_loader *l;
    TEST_TRY(pl_loader_create(&l, &o));
    for (int b = 0; b < 7; b++) {
        pl_batch got;
        char says[48];
        polar_status st = pl_loader_next(&got, l);
        snprintf(says, sizeof says, "item %d is bad", lowest[b]);
        wrong +=
            lowest[b] < 0 ? st != POLAR_OK : st != POLAR_E_FORMAT || !strstr(polar_error_message(), says);
        for (int64_t i = 0; st == POLAR_OK && i < got.count; i++)
            drop(&f, (uint8_t *)got.data + (size_t)i * o.item_bytes);
    }
    pl_batch end;
    wrong += pl_loader_next(&end, l) != POLAR_OK || end.count;
    pl_loader_destroy(l);
    char what[64];
    snprintf(what, sizeof what, "errors, %d workers", workers);
    test_true(what, !wrong && !atomic_load(&f.live) && pl_alloc_live() == live,
              "%lld wrong, %lld items kept, %lld blocks", (long long)wrong, (long long)atomic_load(&f.live),
              (long long)(pl_alloc_live() - live));
}

/* Left after any number of batches: what was made ahead is dropped. */
static void test_leaving(int workers)
{
    static fake f;
    int64_t wrong = 0, live = pl_alloc_live();
    for (int stop = 0; stop < 7; stop++) {
        memset(&f, 0, sizeof f);
        f.keeps = 1;
        pl_loader_opts o = {.workers = workers,
                            .ahead = 3,
                            .items = 60,
                            .batch = 10,
                            .item_bytes = 4 * ITEM_WORDS,
                            .fill = fill,
                            .drop = drop,
                            .user = &f};
        pl_loader *l;
        TEST_TRY(pl_loader_create(&l, &o));
        for (int b = 0; b < stop; b++) {
            pl_batch got;
            TEST_TRY(pl_loader_next(&got, l));
            for (int64_t i = 0; i < got.count; i++) drop(&f, (uint8_t *)got.data + (size_t)i * o.item_bytes);
        }
        if (stop == 0) usleep(2000);
        pl_loader_destroy(l);
        wrong += atomic_load(&f.live) != 0;
    }
    char what[64];
    snprintf(what, sizeof what, "left early, %d workers", workers);
    test_true(what, !wrong && pl_alloc_live() == live, "%lld wrong, %lld blocks left over", (long long)wrong,
              (long long)(pl_alloc_live() - live));
}

static void test_memory(void)
{
    static fake f;
    memset(&f, 0, sizeof f);
    pl_loader_opts o = {.workers = 2,
                        .ahead = 2,
                        .items = 10,
                        .batch = 4,
                        .item_bytes = 4 * ITEM_WORDS,
                        .fill = fill,
                        .user = &f};
    polar_status st = POLAR_E_NOMEM;
    int64_t n = 0, wrong = 0;
    for (; st != POLAR_OK && n < 100; n++) {
        int64_t live = pl_alloc_live();
        pl_loader *l;
        pl_alloc_fail_at(n + 1);
        st = pl_loader_create(&l, &o);
        pl_alloc_fail_at(0);
        wrong += (st != POLAR_OK && st != POLAR_E_NOMEM) || (st == POLAR_OK) != (l != NULL);
        pl_loader_destroy(l);
        wrong += pl_alloc_live() != live;
    }
    test_true("memory runs out", st == POLAR_OK && n > 5 && !wrong, "%lld allocations, %lld wrong",
              (long long)n - 1, (long long)wrong);
    pl_loader *l;
    o.batch = 0;
    st = pl_loader_create(&l, &o);
    test_true("a batch of nothing is refused", st == POLAR_E_ARG && !l, "%s", polar_error_message());
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    for (int w = 0; w <= 4; w += w ? w : 1) test_order(w, 2, 317, 16);
    test_order(8, 1, 100, 1);
    test_order(3, 5, 7, 50);
    test_order(4, 3, 0, 8);
    test_order(4, 3, 64, 8);
    for (int w = 0; w <= 4; w += 2) test_errors(w);
    for (int w = 0; w <= 4; w += 2) test_leaving(w);
    test_memory();
    return test_end();
}
