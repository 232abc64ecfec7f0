/* test_shard.c -- an optimiser over several ranks: the bits of one rank, whatever the number; state files of
 * four ranks on two; the bytes it sends; who owns what.
 *
 *     test_shard DEVICE                   threads as ranks
 *     mpirun -n 3 test_shard DEVICE mpi
 *     test_shard cuda:0 nccl              processes as ranks by NCCL, all on this GPU
 *     test_shard cuda:0 rules             every rule, threads as ranks with a queue each
 */
#include <unistd.h>

#include "optim/shard.h"
#include "rank_processes.h"
#include "shard_fixture.h"

typedef float weights[SHARD_PARAMS][SHARD_MOST];

static const char *device;
static const int rank_counts[] = {1, 2, 3, 4, 8, 11}; /* the last: more than matrices, and than leaves */
enum { COUNTS = sizeof rank_counts / sizeof *rank_counts };
static int64_t steps = 50; /* guard is slow: fewer there */

static int64_t unlike_of(const weights a, const weights b)
{
    int64_t n = 0;
    for (int i = 0; i < SHARD_PARAMS; i++)
        n += memcmp(a[i], b[i], (size_t)shard_size(i) * sizeof(float)) != 0;
    return n;
}

static int64_t moved(const weights a)
{
    int64_t n = 0;
    for (int i = 0; i < SHARD_PARAMS; i++)
        for (int64_t k = 0; k < shard_size(i); k++) n += fabsf(a[i][k] - shard_start(i, k)) > 1e-3f;
    return n;
}

/* ---- the same bits ------------------------------------------------------------------------------ */

static int64_t over_ranks(const char *rule, shard_mode mode, int skip, int64_t made, int ranks,
                          const weights want)
{
    static weights got;
    _Atomic int64_t unlike = 0;
    shard_run run = {.device = device,
                     .rule = rule,
                     .mode = mode,
                     .steps = made,
                     .skip = skip,
                     .out = got,
                     .unlike = &unlike,
                     .want = want};
    memset(got, 0, sizeof got);
    ranks_run(ranks, shard_work, &run);
    return unlike + unlike_of(got, want);
}

/* Parameters seen as blocks: whole on their owners, with the bits of one rank. */
static void test_blocks(const char *rule, int skip)
{
    static weights want, got;
    char what[96];
    int64_t unlike = 0;
    shard_run plain = {.device = device, .rule = rule, .steps = 10, .skip = skip, .blocks = 1, .out = want};
    memset(want, 0, sizeof want);
    shard_alone(&plain);
    for (int mode = SHARD_LEAVES_OF; mode <= SHARD_SAME; mode++)
        for (int i = 0; i < COUNTS; i++) {
            shard_run run = plain;
            run.mode = (shard_mode)mode, run.out = got;
            memset(got, 0, sizeof got);
            ranks_run(rank_counts[i], shard_work, &run);
            unlike += unlike_of(got, want);
        }
    snprintf(what, sizeof what, "%s: blocks%s, 1 to 11 ranks", rule, skip ? ", skips" : "");
    test_exact(what, unlike);
}

static void test_rule(const char *rule, shard_mode last)
{
    static const char *const words[] = {"", "leaves", "same gradients", "rows"};
    static weights want;
    shard_run plain = {.device = device, .rule = rule, .mode = SHARD_PLAIN, .steps = steps, .out = want};
    memset(want, 0, sizeof want);
    shard_alone(&plain);
    test_true(rule, moved(want) > 500, "%lld weights moved in %d steps", (long long)moved(want), (int)steps);
    for (int mode = SHARD_LEAVES_OF; mode <= (int)last; mode++) {
        char what[80];
        int64_t unlike = 0;
        for (int i = 0; i < COUNTS; i++)
            unlike += over_ranks(rule, (shard_mode)mode, 0, steps, rank_counts[i], want);
        snprintf(what, sizeof what, "  %s: 1, 2, 3, 4, 8, 11 ranks, %d steps", words[mode], (int)steps);
        test_exact(what, unlike);
    }
}

/* ---- buckets ------------------------------------------------------------------------------------ */

static void with_buckets(polar_comm *comm, void *arg)
{
    static _Atomic int64_t none;
    shard_run run = *(const shard_run *)arg;
    _Atomic int64_t *early = run.sent; /* ranks whose gradients went while others were still added */
    run.sent = &none;
    shard_work(comm, &run);
    *early += comm->overlap.begun > 0 && comm->overlap.begun < comm->overlap.bytes;
}

/* Gradients that go to their owners one by one, in a few parts, or all at once: the same bits. */
static void test_buckets(void)
{
    static const int64_t bytes[] = {1000, 1, 1 << 20};
    static weights want;
    int cpu = !strncmp(device, "cpu", 3); /* elsewhere nothing goes early, and one size will do */
    size_t sizes = cpu ? sizeof bytes / sizeof *bytes : 1;
    shard_run plain = {.device = device, .rule = "muon", .mode = SHARD_PLAIN, .steps = 10, .out = want};
    memset(want, 0, sizeof want);
    for (int skip = 0; skip < 2; skip++) {
        plain.skip = skip;
        shard_alone(&plain);
        for (size_t k = 0; k < sizes; k++) {
            int64_t differ = 0;
            _Atomic int64_t early = 0;
            char what[96];
            for (int i = 0; i < COUNTS; i++) {
                _Atomic int64_t unlike = 0;
                shard_run run = plain;
                run.mode = SHARD_LEAVES_OF, run.bucket_bytes = bytes[k], run.out = NULL, run.sent = &early;
                run.want = (const float(*)[SHARD_MOST])want, run.unlike = &unlike;
                ranks_run(rank_counts[i], with_buckets, &run);
                differ += unlike;
            }
            snprintf(what, sizeof what, "buckets of %lld bytes%s, 1 to 11 ranks", (long long)bytes[k],
                     skip ? ", skips" : "");
            test_exact(what, differ);
            if (cpu && bytes[k] < 1 << 20)
                test_true("  sent while others were still added", early >= 2 + 3 + 4 + 8, "%lld ranks",
                          (long long)early);
        }
    }
}

/* Rank 1 leaves before its step. What rank 0 has sent meanwhile ends with a sentence, for good. */
static void left_alone(polar_comm *comm, void *arg)
{
    const shard_run *run = arg;
    shard_place *p = pl_alloc(sizeof *p);
    int64_t first, count;
    shard_begin(p, run, comm);
    TEST_TRY(polar_comm_share(comm, SHARD_LEAVES, &first, &count));
    for (int64_t leaf = first; leaf < first + count && !polar_comm_rank(comm); leaf++) {
        shard_grads(p, 0, leaf);
        TEST_TRY(polar_optim_add_grads(p->opt, p->q, leaf));
    }
    if (!polar_comm_rank(comm)) {
        int ok = polar_optim_step(p->opt, p->q) == POLAR_E_IO && strstr(polar_error_message(), "rank ");
        ok &= polar_comm_broadcast(comm, NULL, p->now, 1, 0) == POLAR_E_IO &&
              strstr(polar_error_message(), "broken since an earlier failure");
        if (!ok) (*run->unlike)++;
    }
    shard_end(p);
    pl_free(p);
}

static void test_left_alone(void)
{
    polar_comm *comms[2];
    _Atomic int64_t wrong = 0;
    shard_run run = {.device = device, .rule = "muon", .mode = SHARD_LEAVES_OF, .unlike = &wrong};
    TEST_TRY(polar_comm_open_threads(comms, 2, 20));
    ranks_run_on(comms, 2, left_alone, &run);
    test_exact("gradients for a rank that has left", wrong);
}

/* Gradients that some leaves or all of them lack, and an infinity of one leaf of one rank. */
static void test_skips(void)
{
    static weights want, all;
    shard_run plain = {
        .device = device, .rule = "polaradamw", .mode = SHARD_PLAIN, .steps = 12, .skip = 1, .out = want};
    int64_t unlike = 0;
    shard_alone(&plain);
    plain.skip = 0, plain.out = all;
    shard_alone(&plain);
    test_true("gradients that are missing or not finite", unlike_of(want, all) > 0, "the weights are others");
    for (int i = 0; i < COUNTS; i++)
        for (int mode = SHARD_LEAVES_OF; mode <= SHARD_ROWS; mode++)
            unlike += over_ranks("polaradamw", (shard_mode)mode, 1, 12, rank_counts[i], want);
    test_exact("  are left out on every number of ranks", unlike);
}

/* ---- state files -------------------------------------------------------------------------------- */

static int64_t same_files(const char *a, const char *b)
{
    FILE *f = fopen(a, "rb"), *g = fopen(b, "rb");
    int64_t differ = !f || !g, n = 0;
    for (int x = 0, y; f && g && x != EOF; n++) {
        x = fgetc(f), y = fgetc(g);
        differ += x != y;
    }
    if (f) fclose(f);
    if (g) fclose(g);
    return n > 1000 ? differ : 1;
}

/* Ten steps on `before` ranks, a file, ten more on `after`: the bits of twenty on one. */
static void test_files(const char *rule, shard_mode mode, int before, int after, int blocks)
{
    static weights want, middle, end;
    char file[64], plain_file[64], what[96];
    _Atomic int64_t unlike = 0;
    snprintf(file, sizeof file, "/tmp/test_shard.%d.a", (int)getpid());
    snprintf(plain_file, sizeof plain_file, "/tmp/test_shard.%d.b", (int)getpid());
    shard_run plain = {.device = device, .rule = rule, .mode = SHARD_PLAIN, .steps = 10, .save = plain_file};
    plain.blocks = blocks;
    shard_alone(&plain);
    plain.steps = 20, plain.save = NULL, plain.out = want;
    shard_alone(&plain);
    shard_run first = plain;
    first.mode = mode, first.steps = 10, first.save = file, first.out = middle;
    ranks_run(before, shard_work, &first);
    snprintf(what, sizeof what, "%s: the file of %d ranks is that of one", rule, before);
    test_exact(what, same_files(file, plain_file));
    shard_run second = first;
    second.save = NULL, second.load = file, second.begin = 10,
    second.from = (const float(*)[SHARD_MOST])middle;
    second.out = end, second.want = (const float(*)[SHARD_MOST])want, second.unlike = &unlike;
    if (after) ranks_run(after, shard_work, &second);
    else {
        second.mode = SHARD_PLAIN;
        shard_alone(&second);
    }
    snprintf(what, sizeof what, "  loaded by %d%s, it goes on to the same bits", after ? after : 1,
             after ? "" : " without a communicator");
    test_exact(what, unlike + unlike_of(end, want));
    unlink(file);
    unlink(plain_file);
}

/* ---- bytes, balance ----------------------------------------------------------------------------- */

static void test_bytes(void)
{
    for (int ranks = 1; ranks <= 9; ranks++) {
        _Atomic int64_t sent = 0, formula = 0;
        char what[64];
        shard_run run = {.device = device,
                         .rule = "muon",
                         .mode = SHARD_LEAVES_OF,
                         .steps = 2,
                         .sent = &sent,
                         .in_formula = &formula};
        ranks_run(ranks, shard_work, &run);
        snprintf(what, sizeof what, "bytes of a step on %d ranks", ranks);
        test_true(what, sent == formula, "%lld sent, %lld by the formula", (long long)sent,
                  (long long)formula);
    }
}

typedef struct list {
    const char *name;
    int layers, kinds;
    int64_t rows[8], cols[8], blocks[8];
} list;

/* Jobs of three sizes at most, in whole units: whether `ranks` of them can each do with `most`. Exactly: the
 * best that can be had of the third size, by how many of the first two are placed, rank by rank. */
static int can_do(const int64_t size[3], const int64_t count[3], int ranks, int64_t most)
{
    enum { ROOM = 130 };
    static int64_t best[ROOM][ROOM], next[ROOM][ROOM];
    for (int64_t i = 0; i <= count[0]; i++)
        for (int64_t j = 0; j <= count[1]; j++) best[i][j] = i || j ? -1 : 0;
    for (int r = 0; r < ranks; r++) {
        memcpy(next, best, sizeof next);
        for (int64_t i = 0; i <= count[0]; i++)
            for (int64_t j = 0; j <= count[1]; j++)
                for (int64_t a = 0; best[i][j] >= 0 && i + a <= count[0] && a * size[0] <= most; a++)
                    for (int64_t b = 0; j + b <= count[1] && a * size[0] + b * size[1] <= most; b++) {
                        int64_t c = (most - a * size[0] - b * size[1]) / size[2] + best[i][j];
                        if (c > next[i + a][j + b]) next[i + a][j + b] = c;
                    }
        memcpy(best, next, sizeof best);
    }
    return best[count[0]][count[1]] >= count[2];
}

/* The least that the busiest rank can have, over all ways to give out the jobs. */
static double least_possible(const double *cost, int64_t n, int ranks)
{
    double sizes[3] = {0}, unit = 0, all = 0;
    int64_t size[3], count[3] = {0}, most = 0, kinds = 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t k = 0;
        while (k < kinds && sizes[k] != cost[i]) k++;
        if (k == kinds) sizes[kinds++] = cost[i];
        count[k]++;
        all += cost[i];
        double a = unit, b = cost[i]; /* the greatest common divisor */
        while (b > 0) {
            double t = fmod(a, b);
            a = b, b = t;
        }
        unit = a;
    }
    for (int64_t k = 0; k < 3; k++) {
        size[k] = k < kinds ? (int64_t)(sizes[k] / unit) : 1;
        if (size[k] > most) most = size[k];
    }
    if (most < (int64_t)(all / unit / ranks)) most = (int64_t)(all / unit / ranks);
    while (!can_do(size, count, ranks, most)) most++;
    return (double)most * unit;
}

static void test_balance(const list *l)
{
    enum { MOST = 512 };
    static char names[MOST][32];
    static pl_optim_param params[MOST];
    static int owner[MOST];
    static double cost[MOST], load[64]; /* of three sizes at most */
    pl_optim_group group = {.rule = {.map = POLAR_MAP_OPTS_INIT}};
    polar_optim opt = {.n = l->layers * l->kinds,
                       .members = 1,
                       .groups = 1,
                       .params = params,
                       .parts = params,
                       .group = &group};
    double worst = 1, plain = 0;
    int at = 0;
    for (int64_t i = 0; i < opt.n; i++) {
        int64_t k = i % l->kinds;
        snprintf(names[i], sizeof names[i], "%d.%d", (int)(i / l->kinds), (int)k);
        params[i] = (pl_optim_param){.name = names[i],
                                     .route = POLAR_ROUTE_MATRIX,
                                     .rows = l->rows[k],
                                     .cols = l->cols[k],
                                     .row_blocks = l->blocks[k],
                                     .first_part = i,
                                     .part_count = 1};
    }
    for (int ranks = 2; ranks <= 64; ranks++) {
        double most = 0, all = 0;
        TEST_TRY(pl_shard_owners(owner, load, &opt, ranks));
        for (int64_t i = 0; i < opt.n; i++) cost[i] = pl_shard_cost(&opt, &params[i]), all += cost[i];
        for (int r = 0; r < ranks; r++) most = load[r] > most ? load[r] : most;
        double ratio = most / least_possible(cost, opt.n, ranks);
        if (ratio > worst) worst = ratio, at = ranks;
        if (most * ranks / all > plain) plain = most * ranks / all;
    }
    char why[100];
    snprintf(why, sizeof why, "of the best possible, at %d ranks; of equal shares at most %.2f", at, plain);
    test_bound(l->name, worst, 1.10, why);
}

static const list lists[] = {
    {"DeiT-Tiny, 48 matrices, 2 to 64 ranks",
     12,
     4,
     {576, 192, 768, 192},
     {192, 192, 192, 768},
     {3, 1, 1, 1}},
    {"GPT of 124 M, 48 matrices", 12, 4, {2304, 768, 3072, 768}, {768, 768, 768, 3072}, {1, 1, 1, 1}},
    {"  q, k, v apart", 12, 4, {2304, 768, 3072, 768}, {768, 768, 768, 3072}, {3, 1, 1, 1}},
    {"Llama-like, 7 B, 224 matrices",
     32,
     7,
     {4096, 4096, 4096, 4096, 11008, 11008, 4096},
     {4096, 4096, 4096, 4096, 4096, 4096, 11008},
     {1, 1, 1, 1, 1, 1, 1}},
};

/* ---- the report, and what is refused ------------------------------------------------------------ */

static void look_at_report(polar_comm *comm, void *arg)
{
    const shard_run *run = arg;
    shard_place *p = pl_alloc(sizeof *p);
    polar_param_stats stats[SHARD_PARAMS];
    shard_begin(p, run, comm);
    shard_step(p, 0);
    const char *report = polar_optim_report(p->opt);
    int ok = strstr(report, "stepped by") && strstr(report, "rank 2") && strstr(report, "parts") &&
             strstr(report, "busiest");
    TEST_TRY(polar_optim_stats(p->opt, p->q, stats));
    for (int i = 0; i < SHARD_PARAMS; i++) ok &= stats[i].steps == 1 && stats[i].effective_lr > 0;
    ok &= stats[1].maps == 3 && stats[0].maps == 0;
    int64_t owners = 0, first, count, all = 0;
    for (int r = 0; r < polar_comm_size(comm); r++) {
        TEST_TRY(polar_optim_get_part(p->opt, 3, r, &first, &count));
        owners += count == shard_size(3);
        TEST_TRY(polar_optim_get_part(p->opt, 11, r, &first, &count));
        all += count;
    }
    ok &= owners == 1 && all == shard_size(11);
    if (!ok) (*run->unlike)++;
    if (polar_comm_rank(comm) == 0) puts(report);
    shard_end(p);
    pl_free(p);
}

static void out_of_turn(polar_comm *comm, void *arg)
{
    const shard_run *run = arg;
    shard_place *p = pl_alloc(sizeof *p);
    shard_begin(p, run, comm);
    shard_grads(p, 0, 0);
    int64_t first, count;
    TEST_TRY(polar_comm_share(comm, SHARD_LEAVES, &first, &count));
    int ok = polar_optim_add_grads(p->opt, p->q, first + 1) == POLAR_E_STATE &&
             strstr(polar_error_message(), "the next is");
    ok &= polar_optim_step(p->opt, p->q) == POLAR_E_STATE &&
          strstr(polar_error_message(), "polar_optim_add_grads");
    ok &= polar_optim_get_step(p->opt) == 0;
    if (!ok) (*run->unlike)++;
    shard_end(p);
    pl_free(p);
}

/* Rank 1 has another list. */
static void other_list(polar_comm *comm, void *arg)
{
    const shard_run *run = arg;
    polar_device *dev;
    polar_optim *opt;
    float w[12] = {0}, g[12] = {0};
    int rank = polar_comm_rank(comm);
    polar_optim_opts o = POLAR_OPTIM_OPTS_INIT;
    polar_param p = {.name = rank == 1 ? "w1" : "w",
                     .weight = polar_tensor_2d(w, POLAR_DTYPE_F32, 3, 4),
                     .grad = polar_tensor_2d(g, POLAR_DTYPE_F32, 3, 4)};
    o.comm = comm;
    TEST_TRY(polar_device_open(&dev, "ref"));
    if (polar_optim_create(&opt, dev, &p, 1, &o) != POLAR_E_ARG ||
        !strstr(polar_error_message(), "rank 1 has other"))
        (*run->unlike)++;
    polar_device_close(dev);
}

static void test_use(void)
{
    _Atomic int64_t wrong = 0;
    shard_run run = {.device = device, .rule = "polaradamw", .mode = SHARD_LEAVES_OF, .unlike = &wrong};
    ranks_run(3, look_at_report, &run);
    test_exact("the report, statistics and parts of 3 ranks", wrong);
    wrong = 0;
    ranks_run(2, out_of_turn, &run);
    test_exact("a leaf out of turn, a step without its leaves", wrong);
    wrong = 0;
    ranks_run(3, other_list, &run);
    test_exact("a rank with other parameters is named", wrong);
}

/* Two matrices and a vector on one rank: making it, a step, a file and back, with every allocation failing
 * once. */
static polar_status whole_life(polar_device *dev, polar_queue *q, float *w, float *g, const char *path)
{
    polar_comm *self = NULL;
    polar_optim *opt = NULL;
    polar_optim_opts o = POLAR_OPTIM_OPTS_INIT;
    polar_param p[3] = {{.name = "a", .whole_rows = 4}, {.name = "b"}, {.name = "c"}};
    for (int i = 0; i < 3; i++) {
        p[i].weight = i < 2 ? polar_tensor_2d(w + 12 * i, POLAR_DTYPE_F32, 4, 3)
                            : polar_tensor_1d(w + 24, POLAR_DTYPE_F32, 5);
        p[i].grad = p[i].weight;
        p[i].grad.data = g + 12 * i;
    }
    polar_status st = polar_comm_open(&self, "self");
    o.comm = self, o.leaves = 3, o.skip_missing = 1, o.skip_nonfinite = POLAR_SKIP_NONFINITE;
    if (st == POLAR_OK) st = polar_optim_create(&opt, dev, p, 3, &o);
    for (int64_t leaf = 0; leaf < 3 && st == POLAR_OK; leaf++) st = polar_optim_add_grads(opt, q, leaf);
    if (st == POLAR_OK) st = polar_optim_step(opt, q);
    if (st == POLAR_OK) st = polar_optim_save(opt, q, path);
    if (st == POLAR_OK) st = polar_optim_load(opt, q, path);
    if (st != POLAR_OK) (void)polar_queue_sync(q);
    polar_optim_destroy(opt);
    polar_comm_close(self);
    return st;
}

static void test_no_memory(void)
{
    static float w[29], g[29];
    char path[64];
    polar_device *dev;
    polar_queue *q;
    polar_status st = POLAR_E_NOMEM;
    int64_t n = 0, wrong = 0, blocks;
    snprintf(path, sizeof path, "/tmp/test_shard.%d.c", (int)getpid());
    TEST_TRY(polar_device_open(&dev, "ref"));
    TEST_TRY(polar_queue_create(&q, dev, NULL));
    TEST_TRY(whole_life(dev, q, w, g, path)); /* what is kept for good is there */
    blocks = pl_alloc_live();
    while (st != POLAR_OK && n++ < 2000) {
        pl_alloc_fail_at(n);
        st = whole_life(dev, q, w, g, path);
        pl_alloc_fail_at(0);
        wrong += (st != POLAR_OK && st != POLAR_E_NOMEM) || pl_alloc_live() != blocks;
    }
    test_true("an allocation that fails: told, and nothing is lost", !wrong && st == POLAR_OK && n > 30,
              "%lld allocations", (long long)n - 1);
    unlink(path);
    polar_queue_destroy(q);
    polar_device_close(dev);
}

/* The weights of one rank alone, then of all of them in every mode: those that differ. */
static int64_t rule_over(polar_comm *comm, const char *rule)
{
    static weights want;
    _Atomic int64_t unlike = 0;
    shard_run run = {.device = device, .rule = rule, .mode = SHARD_PLAIN, .steps = steps, .out = want};
    shard_alone(&run);
    run.out = NULL, run.want = (const float(*)[SHARD_MOST])want, run.unlike = &unlike;
    for (int mode = SHARD_LEAVES_OF; mode <= SHARD_ROWS; mode++) {
        run.mode = (shard_mode)mode;
        shard_work(comm, &run);
    }
    return unlike;
}

static int mpi_main(void)
{
    polar_comm *comm;
    TEST_TRY(polar_comm_open(&comm, "auto"));
    for (int i = 0; polar_rule_name(i); i++) {
        char what[64];
        int64_t unlike = rule_over(comm, polar_rule_name(i));
        snprintf(what, sizeof what, "rank %d of %d by %s: %s", polar_comm_rank(comm), polar_comm_size(comm),
                 polar_comm_name(comm), polar_rule_name(i));
        test_exact(what, unlike + (strcmp(polar_comm_name(comm), "mpi") != 0));
    }
    polar_comm_close(comm);
    return test_end();
}

static int64_t rules_here(polar_comm *comm, void *arg)
{
    int64_t unlike = 0;
    for (const char *const *rule = arg; *rule; rule++) unlike += rule_over(comm, *rule);
    return unlike;
}

static int nccl_main_of(void)
{
    const char *rules[128] = {0}; /* all of them */
    for (int i = 0; i < 127 && polar_rule_name(i); i++) rules[i] = polar_rule_name(i);
    for (int ranks = 1; ranks <= 4; ranks++) {
        char what[64];
        snprintf(what, sizeof what, "%d ranks by NCCL: leaves, same gradients, rows", ranks);
        test_exact(what, processes_run_nccl(ranks, device, rules_here, (void *)rules));
    }
    return test_end();
}

int main(int argc, char **argv)
{
    device = test_begin(argc, argv);
    if (!strcmp(device, "cpu")) device = "cpu:threads=1"; /* ranks are threads enough */
    if (argc > 2 && !strcmp(argv[2], "mpi")) return mpi_main();
    if (argc > 2 && !strcmp(argv[2], "nccl")) return nccl_main_of();
    int64_t blocks = pl_alloc_live();
    if (argc > 2 && !strcmp(argv[2], "rules")) {
        for (int i = 0; polar_rule_name(i); i++) test_rule(polar_rule_name(i), SHARD_LEAVES_OF);
        return test_end();
    }
    int whole = !strncmp(device, "cpu", 3); /* elsewhere one rule: the exchanges are the same */
    if (!whole) steps = 10;
    for (int i = 0; polar_rule_name(i); i++)
        if (whole || !strcmp(polar_rule_name(i), "polaradamw")) test_rule(polar_rule_name(i), SHARD_ROWS);
    test_buckets();
    test_left_alone();
    test_skips();
    test_files("polaradamw", SHARD_LEAVES_OF, 4, 2, 0);
    test_files("polaradamw", SHARD_SAME, 3, 8, 0);
    test_files("polaradamw", SHARD_ROWS, 4, 2, 0);
    test_files("polaradamw", SHARD_LEAVES_OF, 4, 0, 0);
    test_files("normuon", SHARD_LEAVES_OF, 4, 2, 0); /* moments of lines of what the map returned */
    test_files("adamuon", SHARD_ROWS, 4, 2, 0);      /* of its entries */
    test_blocks("polaradamw", 0);
    test_blocks("normuon", 0);
    test_blocks("muon", 1);
    test_files("polaradamw", SHARD_SAME, 4, 2, 1);
    test_files("normuon", SHARD_LEAVES_OF, 4, 0, 1);
    test_bytes();
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) test_balance(&lists[i]);
    test_use();
    test_no_memory();
    test_exact("blocks left", pl_alloc_live() - blocks);
    return test_end();
}
