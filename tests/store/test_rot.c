/* test_rot.c -- bits that flip on a disk: in a checkpoint, an optimiser's state, a pack, a store and its log.
 * None may change a result without a word: a file is refused with a sentence that names it, or what is read
 * from it is the same to the bit.
 *
 * Flips: every byte of the first and the last EDGE ones, and FLIPS places in between, drawn by Philox; the
 * bit is drawn too. ctest -R test_rot
 */
#include "fixtures/folder.h"
#include "fixtures/so3_fixture.h"
#include "fixtures/optim_fixture.h"
#include "fixtures/store_dump.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/philox.h"
#include "data/set/image_pack.h"
#include "data/set/image_set.h"
#include "data/set/image_synth.h"
#include "store/store_impl.h"

enum { EDGE = 128, FLIPS = 1000 };

typedef struct image {
    char *bytes;
    int64_t size;
} image;

static image read_image(const char *path)
{
    image im;
    im.size = run_file(&im.bytes, path);
    if (im.size < 0) exit(1);
    return im;
}

static void put_image(const char *path, const image *im)
{
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(im->bytes, 1, (size_t)im->size, f) != (size_t)im->size || fclose(f)) exit(1);
}

/* CHANGED: taken, and it says something else; or refused without the file's name */
typedef enum verdict { REFUSED, SAME, CHANGED } verdict;

static verdict refused_by_name(const char *name)
{
    return strstr(polar_error_message(), name) ? REFUSED : CHANGED;
}

typedef verdict (*read_fn)(void *arg, const char *path); /* reads all that a program would */

typedef struct tally {
    int64_t tried, count[3], first_changed;
} tally;

/* One flip after the other in the file at `path`, which is whole again at the end. */
static tally flip_all(const char *path, uint64_t stream, read_fn read, void *arg)
{
    tally t = {.first_changed = -1};
    image im = read_image(path);
    int64_t edges = im.size < 2 * EDGE ? im.size : 2 * EDGE;
    int fd = open(path, O_WRONLY);
    if (fd < 0) exit(1);
    for (int64_t k = 0; k < edges + FLIPS; k++, t.tried++) {
        pl_u4 r = pl_philox(2024, PL_STREAM_TEST, stream, (uint64_t)k);
        int64_t at = k < edges / 2 ? k
                     : k < edges   ? im.size - 1 - (k - edges / 2)
                                   : (int64_t)(((uint64_t)r.x << 32 | r.y) % (uint64_t)im.size);
        char damaged = (char)(im.bytes[at] ^ (char)(1 << r.z % 8));
        if (pwrite(fd, &damaged, 1, at) != 1) exit(1);
        verdict v = read(arg, path);
        t.count[v]++;
        if (v == CHANGED && t.first_changed < 0) {
            t.first_changed = at;
            printf("byte %lld bit %d: %s\n", (long long)at, (int)(r.z % 8), polar_error_message());
        }
        if (pwrite(fd, &im.bytes[at], 1, at) != 1) exit(1);
    }
    close(fd);
    free(im.bytes);
    return t;
}

static void judge(const char *what, const tally *t, int64_t most_same)
{
    test_true(what, !t->count[CHANGED] && t->count[SAME] <= most_same,
              "%lld flips: %lld refused, %lld without effect, %lld not seen", (long long)t->tried,
              (long long)t->count[REFUSED], (long long)t->count[SAME], (long long)t->count[CHANGED]);
}

/* ---- checkpoints and states: no byte is without effect ------------------------------------------ */

static verdict load_run(void *arg, const char *path)
{
    run_rig *r = arg;
    return bed->load(r->t, path) == POLAR_E_FORMAT ? refused_by_name(path) : CHANGED;
}

static void test_checkpoint(void)
{
    run_arm arm = {"optim.rule=polaradamw", 3};
    run_rig r;
    run_story story = {0};
    const char *path = in_folder("checkpoint");
    TEST_TRY(run_open(&r, "ref", &arm, 1));
    run_epoch(&r, &story);
    TEST_TRY(bed->save(r.t, path));
    tally t = flip_all(path, 1, load_run, &r);
    judge("a checkpoint", &t, 0);
    TEST_TRY(bed->load(r.t, path));
    remove(path);
    free(story.gauge);
    run_close(&r);
}

static verdict load_optim(void *arg, const char *path)
{
    optim_rig *r = arg;
    return polar_optim_load(r->opt, r->q, path) == POLAR_E_FORMAT ? refused_by_name(path) : CHANGED;
}

static void test_state(void)
{
    static const param_spec model[] = {{.name = "qkv", .ndim = 2, .shape = {12, 4}, .row_blocks = 3},
                                       {.name = "proj", .ndim = 2, .shape = {8, 8}},
                                       {.name = "bias", .ndim = 1, .shape = {12}}};
    polar_optim_opts o;
    optim_rig r;
    const char *path = in_folder("state");
    TEST_TRY(polar_optim_opts_parse(&o, "polaradamw"));
    TEST_TRY(rig_open(&r, "ref", model, 3, POLAR_DTYPE_F32, POLAR_DTYPE_F32, &o));
    TEST_TRY(rig_step(&r, 0));
    TEST_TRY(polar_optim_save(r.opt, r.q, path));
    tally t = flip_all(path, 2, load_optim, &r);
    judge("an optimiser's state", &t, 0);
    TEST_TRY(polar_optim_load(r.opt, r.q, path));
    remove(path);
    rig_close(&r);
}

/* ---- packs: no byte is without effect ----------------------------------------------------------- */

static verdict read_pack(void *arg, const char *path)
{
    pl_image_set *set = NULL;
    pl_picture p = {0};
    (void)arg;
    polar_status st = pl_image_set_open(&set, path);
    for (int s = 0; st == POLAR_OK && s < PL_IMAGE_SPLITS; s++)
        for (int64_t i = 0; st == POLAR_OK && i < pl_image_set_count(set, s); i++) {
            st = pl_picture_open(&p, set, s, i);
            if (st == POLAR_OK) st = pl_picture_read(&p, (pl_box){0, 0, p.width, p.height});
        }
    pl_picture_drop(&p);
    pl_image_set_close(set);
    return st == POLAR_E_FORMAT ? refused_by_name(path) : CHANGED;
}

static void test_pack(void)
{
    pl_synth_opts o = PL_SYNTH_OPTS_INIT;
    char set_path[128], path[128], command[160];
    int stopped;
    pl_image_folder *f;
    pl_pack_result result;
    pl_pack_opts po = {.workers = 1};
    /* 1083 bytes each: there is padding between them */
    o.classes = 2, o.per_class[0] = 3, o.per_class[1] = 2, o.size = 19;
    snprintf(set_path, sizeof set_path, "%s", in_folder("set"));
    snprintf(path, sizeof path, "%s", in_folder("pack"));
    TEST_TRY(pl_image_synth_write(&stopped, &o, set_path));
    TEST_TRY(pl_image_folder_open(&f, set_path));
    TEST_TRY(pl_image_pack_write(&result, path, f, &po));
    pl_image_folder_close(f);
    /* read, that is */
    test_true("a whole pack", read_pack(NULL, path) == CHANGED, "%lld bytes", (long long)result.bytes);
    tally t = flip_all(path, 3, read_pack, NULL);
    judge("a pack", &t, 0);
    remove(path);
    snprintf(command, sizeof command, "rm -rf %s", set_path);
    if (system(command) != 0) exit(1);
}

/* ---- stores: the same dump, or an error --------------------------------------------------------- */

enum { RUNS = 12, EPOCHS = 40 };

static polar_status finish_run(pl_store *s, const char *id, int i)
{
    static const pl_provenance where = {"v1", "cpu", "A processor", 2, NULL};
    pl_epoch_row epochs[EPOCHS];
    pl_gauge_row gauges[2] = {{10, 0, "layers.0.W_00", "exact", 1e-7 * i},
                              {10, 1, "layers.0.W_00", "ns_fp32", 1e-3}};
    pl_result results[] = {{"test_mse", 0.1 / (i + 1)}, {"best_epoch", 17}, {"epochs", EPOCHS}};
    for (int e = 0; e < EPOCHS; e++)
        epochs[e] = (pl_epoch_row){e + 1, 1.0 / (e + i + 1), 0.5 / (e + 1), 1e-3, e % 3 == 0, 0.25};
    pl_run_progress p = {epochs, EPOCHS, gauges, 2, 10.0};
    PL_TRY(pl_store_begin_run(s, id, &where, 1));
    return pl_store_finish(s, id, i == 5 ? PL_RUN_DIVERGED : PL_RUN_DONE, results, 3, &p);
}

/* Ids as hashes are: spread over the alphabet. The last two runs are not finished. */
static polar_status fill_store(pl_store *s)
{
    static const pl_store_spec spec = {.name = "rot",
                                       .sha = "5ha",
                                       .title = "A title",
                                       .testbed = "so3",
                                       .metric = "test_mse",
                                       .text = "name: rot\n"};
    static char ids[RUNS][PL_RUN_ID_CHARS];
    pl_store_plan_row rows[RUNS];
    for (int i = 0; i < RUNS; i++) {
        pl_u4 r = pl_philox(1, PL_STREAM_TEST, 9, (uint64_t)i);
        snprintf(ids[i], PL_RUN_ID_CHARS, "%08x%08x%08x%08x", r.x, r.y, r.z, r.w);
        rows[i] = (pl_store_plan_row){ids[i], i % 2 ? "model.width=16" : "model.width=32",
                                      i / 2 % 2 ? "muon" : "adamw",
                                      i % 2 ? "{\"model.width\": 16}" : "{\"model.width\": 32}", i / 4};
    }
    PL_TRY(pl_store_put_spec(s, &spec, rows, RUNS));
    for (int i = 0; i < RUNS - 2; i++) PL_TRY(finish_run(s, ids[i], i));
    return POLAR_OK;
}

typedef struct store_files {
    char path[128], log[136], side[136];
    const char *want; /* the dump of the whole store */
    image db, wal;    /* as they were; wal.size 0: there was no log */
    int write;        /* as `polar run` opens it */
    int sound;        /* runs with damage may be set aside */
    int64_t aside;    /* how often one was */
} store_files;

/* The files of the whole store, but for the one that is being damaged: SQLite tidies up behind it. */
static void put_back(const store_files *f, const char *damaged)
{
    const struct timespec old[2] = {{1000000000, 0}, {1000000000, 0}};
    if (damaged != f->path) put_image(f->path, &f->db);
    if (f->wal.size && damaged != f->log) put_image(f->log, &f->wal);
    if (!f->wal.size) remove(f->log);
    remove(f->side);
    utimensat(AT_FDCWD, f->log, old, 0); /* nobody is writing it */
}

static polar_status verify_to_write(const char *path)
{
    pl_store *s = NULL;
    PL_TRY(pl_store_open(&s, path, PL_STORE_WRITE));
    polar_status st = pl_store_verify(s);
    pl_store_close(s);
    return st;
}

/* Whether `got` is `want` but for the runs that were set aside, which are planned and have no rows. */
static int same_but_aside(const char *got, const char *want, const pl_store *s)
{
    while (*want) {
        char id[PL_RUN_ID_CHARS];
        const char *end = strchr(want, '\n') + 1, *at = want;
        for (int bars = 0; bars < 3; at++) bars += *at == '|'; /* cell | arm | seed | id | state */
        snprintf(id, sizeof id, "%.32s", at + 1);
        size_t head = (size_t)(at + 1 - want) + 32;
        while (*end == ' ') end = strchr(end, '\n') + 1;
        size_t all = (size_t)(end - want);
        int aside = pl_store_damage_of(s, id) != NULL;
        if (strncmp(got, want, aside ? head : all)) return 0;
        if (aside && strncmp(got + head, " | planned\n", 11)) return 0;
        got += aside ? head + 11 : all;
        want = end;
    }
    return !*got;
}

/* What is sound of it is as it was. */
static verdict read_sound(store_files *f)
{
    pl_store *s = NULL;
    char *got = NULL;
    int64_t count = 0;
    polar_status st = pl_store_open(&s, f->path, PL_STORE_SOUND);
    if (st == POLAR_OK) st = store_dump_open(&got, s, "rot");
    if (st == POLAR_OK) (void)pl_store_damaged(s, &count);
    verdict v = st != POLAR_OK                     ? refused_by_name(f->path)
                : !same_but_aside(got, f->want, s) ? CHANGED
                : count                            ? REFUSED
                                                   : SAME;
    f->aside += count > 0;
    free(got);
    pl_store_close(s);
    return v;
}

static verdict read_store(store_files *f)
{
    if (f->sound) return read_sound(f);

    char *got = NULL;
    polar_status st = f->write ? verify_to_write(f->path) : POLAR_OK;
    if (st == POLAR_OK) st = store_dump(&got, f->path, "rot");
    verdict v = st != POLAR_OK ? refused_by_name(f->path) : strcmp(got, f->want) ? CHANGED : SAME;
    free(got);
    return v;
}

/* The damaged file is kept apart from what opening the store does to it. */
static verdict read_damaged(void *arg, const char *path)
{
    store_files *f = arg;
    image damaged = read_image(path);
    const char *at = strstr(path, "-wal") ? f->log : f->path;
    put_image(at, &damaged);
    free(damaged.bytes);
    put_back(f, at);
    return read_store(f);
}

static void test_store_flips(const char *what, store_files *f, const char *which, uint64_t stream,
                             int64_t most_same)
{
    char copy[160];
    snprintf(copy, sizeof copy, "%s%s", in_folder("copy"), strstr(which, "-wal") ? "-wal" : "");
    put_image(copy, strstr(which, "-wal") ? &f->wal : &f->db);
    tally t = flip_all(copy, stream, read_damaged, f);
    judge(what, &t, most_same);
    remove(copy);
    put_back(f, NULL);
    test_true("... and whole it is read", read_store(f) == SAME, "%s", "");
}

/* Two entries behind the log that bear its salts and not its sums, as a transaction leaves them that a full
 * disk cut off, or, ended, as damage would: `end` is what the second says of it. */
static verdict read_with_remnants(store_files *f, int write, unsigned char end)
{
    const int64_t entry = 24 + ((int64_t)f->wal.bytes[10] << 8);
    image whole = f->wal, longer = {.size = whole.size + 2 * entry};
    if (whole.bytes[8] || whole.bytes[9] || whole.bytes[11] || !whole.bytes[10])
        exit(1); /* not pages of 4 KB */
    longer.bytes = malloc((size_t)longer.size);
    if (!longer.bytes) exit(1);
    memcpy(longer.bytes, whole.bytes, (size_t)whole.size);
    for (int64_t at = whole.size; at < longer.size; at += entry) {
        memcpy(longer.bytes + at, whole.bytes + whole.size - entry, (size_t)entry);
        memset(longer.bytes + at + 4, 0, 4);
    }
    longer.bytes[longer.size - entry + 7] = end;
    f->wal = longer;
    f->write = write;
    put_back(f, NULL);
    verdict v = read_store(f);
    free(longer.bytes);
    f->wal = whole;
    f->write = 0;
    return v;
}

static void test_store(void)
{
    store_files f = {.write = 0};
    pl_store *s = NULL;
    char *want = NULL, lock[136];
    snprintf(f.path, sizeof f.path, "%s", in_folder("rot.db"));
    snprintf(f.log, sizeof f.log, "%s-wal", f.path);
    snprintf(f.side, sizeof f.side, "%s-shm", f.path);
    snprintf(lock, sizeof lock, "%s.lock", f.path);
    TEST_TRY(pl_store_open(&s, f.path, PL_STORE_WRITE));
    TEST_TRY(fill_store(s));
    f.wal = read_image(f.log); /* as a kill would leave them */
    image early = read_image(f.path);
    pl_store_close(s);
    f.db = read_image(f.path);
    TEST_TRY(store_dump(&want, f.path, "rot"));
    f.want = want;
    image log = f.wal;
    f.wal.size = 0;
    /* pages have room that nothing uses: about half of it here */
    test_store_flips("a store", &f, "", 4, FLIPS - FLIPS / 4);
    f.write = 1;
    test_store_flips("a store, to write", &f, "", 5, FLIPS - FLIPS / 4);
    f.write = 0;
    f.sound = 1;
    test_store_flips("a store, of which what is sound", &f, "", 7, FLIPS - FLIPS / 4);
    test_true("... with some runs set aside", f.aside > FLIPS / 8, "%lld times", (long long)f.aside);
    f.sound = 0;
    free(f.db.bytes);
    f.db = early;
    f.wal = log;
    put_back(&f, NULL);
    test_true("a store with its log", f.wal.size > 100000 && read_store(&f) == SAME, "%lld and %lld bytes",
              (long long)f.db.size, (long long)f.wal.size);
    test_store_flips("the log of a store", &f, "-wal", 6, 0);
    test_true("what a cut transaction left, to write", read_with_remnants(&f, 1, 0) == SAME, "as it was");
    test_true("... to read", read_with_remnants(&f, 0, 0) == REFUSED, "%s", polar_error_message());
    test_true("... and with an end, to write", read_with_remnants(&f, 1, 9) == REFUSED, "%s",
              polar_error_message());
    remove(f.path), remove(f.log), remove(f.side), remove(lock);
    free(f.db.bytes);
    free(f.wal.bytes);
    free(want);
}

/* Three damaged rows of two runs: each is set aside once; memory may run out at any moment of it. */
static void test_aside(void)
{
    static const char rot[] =
        "UPDATE epoch SET valid = 7 WHERE epoch < 3 AND run = (SELECT min(id) FROM run);"
        "UPDATE result SET value = 7 WHERE name = 'test_mse' AND run = (SELECT run FROM "
        "epoch ORDER BY run DESC LIMIT 1)";
    char path[128], lock[136];
    pl_store *s = NULL;
    sqlite3 *db;
    snprintf(path, sizeof path, "%s", in_folder("aside.db"));
    snprintf(lock, sizeof lock, "%s.lock", path);
    TEST_TRY(pl_store_open(&s, path, PL_STORE_WRITE));
    TEST_TRY(fill_store(s));
    pl_store_close(s);
    if (sqlite3_open(path, &db) != SQLITE_OK || sqlite3_exec(db, rot, NULL, NULL, NULL) != SQLITE_OK) exit(1);
    sqlite3_close(db);
    int64_t count = 0, leaks = 0, wrong = 0, n = 0;
    polar_status st = POLAR_E_NOMEM;
    TEST_TRY(pl_store_open(&s, path, PL_STORE_SOUND)); /* SQLite keeps what it takes the first time */
    pl_store_close(s);
    for (; st != POLAR_OK && n < 100000; n += n < 8000 ? 31 : 1) {
        int64_t live = pl_alloc_live();
        pl_alloc_fail_at(n + 1);
        st = pl_store_open(&s, path, PL_STORE_SOUND);
        pl_alloc_fail_at(0);
        if (st == POLAR_OK) break;
        leaks += pl_alloc_live() != live;
        wrong += st != POLAR_E_NOMEM || !*polar_error_message();
    }
    const pl_store_damage *d = pl_store_damaged(s, &count);
    test_true("damaged runs are set aside",
              PART(count == 2) && PART(strcmp(d[0].run, d[1].run) < 0) &&
                  PART(!strcmp(d[0].what, "its epoch 1")) &&
                  PART(!strcmp(d[1].what, "its result 'test_mse'")) &&
                  PART(pl_store_damage_of(s, d[1].run) == &d[1]) && PART(!pl_store_damage_of(s, "0")),
              "%lld of them", (long long)count);
    pl_store_close(s);
    test_true("  memory runs out", !leaks && !wrong && n > 20,
              "%lld allocations, %lld leaks, %lld other errors", (long long)n, (long long)leaks,
              (long long)wrong);
    remove(path), remove(lock);
}

/* A store of version 3, from before there were checksums: upgraded in one go, sound, with all its numbers. */
static void test_upgrade(void)
{
    static const char rows[] =
        "INSERT INTO spec VALUES('rot', '5ha', 'A title', 'so3', 'test_mse', 'name: rot');"
        "INSERT INTO run(id, testbed, seed, config, state, wall) VALUES('aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa', "
        "'so3', 1, '{\"a\": 1}', 'done', 2);"
        "INSERT INTO run(id, testbed, seed, config) VALUES('bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb', 'so3', 2, "
        "'{\"a\": 1}');"
        "INSERT INTO member VALUES('rot', 'all', 'muon', 1, 0, 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa'), ('rot', "
        "'all', 'muon', 2, 1, 'bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb');"
        "INSERT INTO epoch VALUES('aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa', 1, 0.5, NULL, 0.001, 1, 3);"
        "INSERT INTO result VALUES('aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa', 'test_mse', 0.25), "
        "('aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa', 'l10', NULL), ('aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa', 'zero', "
        "-0.0);"
        "INSERT INTO gauge VALUES('aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa', 1, 'w', 0, 'exact', 1e-7);"
        "PRAGMA application_id = 1886350450; PRAGMA user_version = 3;";
    static const char want[] =
        "all | muon | 1 | aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa | done\n  l10 nan\n  test_mse 0x1p-2\n  zero "
        "0x0p+0\n  1 0x1p-1 nan 0x1.0624dd2f1a9fcp-10 1\n"
        "  1 w 0 exact 0x1.ad7f29abcaf48p-24\nall | muon | 2 | bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb | planned\n";
    char path[128], lock[136], *got = NULL;
    sqlite3 *db;
    snprintf(path, sizeof path, "%s", in_folder("old.db"));
    snprintf(lock, sizeof lock, "%s.lock", path);
    int rc = sqlite3_open(path, &db);
    for (int v = 0; v < 3 && rc == SQLITE_OK; v++) rc = sqlite3_exec(db, pl_store_steps[v], NULL, NULL, NULL);
    if (rc == SQLITE_OK) rc = sqlite3_exec(db, rows, NULL, NULL, NULL);
    if (rc != SQLITE_OK) exit(1);
    sqlite3_close(db);
    TEST_TRY(verify_to_write(path));
    TEST_TRY(store_dump(&got, path, "rot"));
    pl_store *s;
    pl_store_members m;
    TEST_TRY(pl_store_open(&s, path, PL_STORE_READ));
    TEST_TRY(pl_store_select_members(&m, s, "rot"));
    test_true("a store of version 3 is upgraded, and sound",
              !strcmp(got, want) && !strcmp(m.rows[1].config, "{\"a\": 1}"), "%s",
              strcmp(got, want) ? got : m.rows[1].config);
    pl_store_members_free(&m);
    pl_store_close(s);
    free(got);
    remove(path), remove(lock);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    /* syncing a real disk is slow */
    if (!access("/dev/shm", W_OK)) snprintf(folder, sizeof folder, "%s", "/dev/shm/p_rot_XXXXXX");
    folder_open();
    test_checkpoint();
    test_state();
    test_pack();
    test_store();
    test_aside();
    test_upgrade();
    folder_close();
    return test_end();
}
