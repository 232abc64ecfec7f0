/* test_optim_state.c -- state files that lie, are cut, belong to others or cannot be written. A refused load
 * changes nothing, a refused save leaves nothing.
 *
 *     ctest -R test_optim_state
 */
#include <locale.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "fixtures/folder.h"
#include "base/safetensors.h"
#include "optim/optim_impl.h"
#include "fixtures/optim_fixture.h"
#include "fixtures/strip_checksum.h"

static const param_spec model[] = {{.name = "qkv", .ndim = 2, .shape = {12, 4}, .row_blocks = 3},
                                   {.name = "proj", .ndim = 2, .shape = {8, 8}},
                                   {.name = "bias", .ndim = 1, .shape = {12}}};
#define MODEL 3

static char folder[64], state_path[96], spoilt_path[96];

static polar_optim_opts model_opts(const char *rule)
{
    polar_optim_opts o;
    TEST_TRY(polar_optim_opts_parse(&o, rule));
    o.lr = 0.01, o.aux_lr = 0.002, o.weight_decay = 0.03;
    return o;
}

/* ---- files -------------------------------------------------------------------------------------- */

typedef struct {
    char *bytes;
    size_t size;
} file;

static file file_read(const char *path)
{
    file f = {0};
    FILE *in = fopen(path, "rb");
    if (!in || !(f.bytes = malloc(1 << 20))) exit(3);
    f.size = fread(f.bytes, 1, 1 << 20, in);
    fclose(in);
    return f;
}

static void file_write(const char *path, const void *bytes, size_t size)
{
    FILE *out = fopen(path, "wb");
    if (!out || fwrite(bytes, 1, size, out) != size || fclose(out)) exit(3);
}

static uint64_t header_size(const file *f)
{
    uint64_t n;
    memcpy(&n, f->bytes, sizeof n);
    return n;
}

/* The file with the first `from` of its header replaced. */
static void file_replace(const char *path, const file *f, const char *from, const char *to)
{
    size_t n = (size_t)header_size(f), a = strlen(from), b = strlen(to);
    char *at = memmem(f->bytes + 8, n, from, a), *made = malloc(f->size + b);
    if (!at || !made) {
        printf("'%s' is not in the header\n", from);
        exit(3);
    }
    size_t before = (size_t)(at - f->bytes);
    uint64_t grown = n - a + b;
    memcpy(made, f->bytes, before);
    memcpy(made, &grown, sizeof grown);
    memcpy(made + before, to, b);
    memcpy(made + before + b, at + a, f->size - before - a);
    file_write(path, made, f->size - a + b);
    free(made);
}

/* ---- an optimiser and everything a load could change -------------------------------------------- */

typedef struct {
    char *bytes;
    int64_t t;
    polar_hyper hyper[2]; /* matrix route, aux route */
    int active;
} snapshot;

static snapshot take_snapshot(optim_rig *r)
{
    snapshot s = {.bytes = malloc(r->opt->state_bytes),
                  .t = r->opt->t,
                  .hyper = {*pl_optim_hyper(r->opt, 0, 0, 0), *pl_optim_hyper(r->opt, 0, 1, 0)},
                  .active = r->opt->active[0]};
    if (!s.bytes) exit(3);
    polar_queue_download(r->q, s.bytes, r->opt->state, r->opt->state_bytes);
    TEST_TRY(polar_queue_sync(r->q));
    return s;
}

static int differs(optim_rig *r, const snapshot *s)
{
    snapshot now = take_snapshot(r);
    int settings = memcmp(now.hyper, s->hyper, sizeof now.hyper) || now.active != s->active;
    int other = now.t != s->t || settings || memcmp(now.bytes, s->bytes, r->opt->state_bytes);
    free(now.bytes);
    return other;
}

static void refused(const char *what, optim_rig *r, const snapshot *s, const char *path, polar_status code)
{
    polar_status st = polar_optim_load(r->opt, r->q, path);
    int changed = differs(r, s);
    test_true(what, st == code && !changed, "%s%s", st == POLAR_OK ? "was taken" : polar_error_message(),
              changed ? ", and changed something" : "");
}

/* ---- lies --------------------------------------------------------------------------------------- */

/* As version 1 was written, before there was a checksum: the checks behind it are seen by these. */
static file without_checksum(const file *good)
{
    file old = {malloc(good->size), good->size};
    char *at = memmem(good->bytes, good->size, "\"polar.optim\":\"2\"", 17);
    if (!old.bytes || !at) exit(3);
    memcpy(old.bytes, good->bytes, good->size);
    old.bytes[at - good->bytes + 15] = '1';
    strip_checksum(old.bytes, old.size);
    return old;
}

static void changed_headers(optim_rig *r, const snapshot *s, const file *good)
{
    static const struct {
        const char *what, *from, *to;
    } rows[] = {
        {"version 2 without a checksum", "\"polar.optim\":\"1\"", "\"polar.optim\":\"2\""},
        {"version 3", "\"polar.optim\":\"1\"", "\"polar.optim\":\"3\""},
        {"a version with an escape code", "\"polar.optim\":\"1\"", "\"polar.optim\":\"\\u001b[31m\""},
        {"no version", "\"polar.optim\"", "\"polar.other\""},
        {"no rule", "\"polar.rule\"", "\"polar.ruel\""},
        {"no step", "\"polar.step\"", "\"polar.stop\""},
        {"no members", "\"polar.members\"", "\"polar.membres\""},
        {"another beta", "beta1 0.9", "beta1 0.8"},
        {"more after the rule", "aux 0.9", "aux 0.9 and more"},
        {"step ''", "\"polar.step\":\"3\"", "\"polar.step\":\"\""},
        {"step '-3'", "\"polar.step\":\"3\"", "\"polar.step\":\"-3\""},
        {"step ' 3'", "\"polar.step\":\"3\"", "\"polar.step\":\" 3\""},
        {"step '3 steps'", "\"polar.step\":\"3\"", "\"polar.step\":\"3 steps\""},
        {"step 2^63 - 1", "\"polar.step\":\"3\"", "\"polar.step\":\"9223372036854775807\""},
        {"step 10^20", "\"polar.step\":\"3\"", "\"polar.step\":\"100000000000000000000\""},
        {"members ''", "\"polar.members\":\"", "\"polar.members\":\"\",\"x\":\""},
        {"members 'nan ...'", "\"polar.members\":\"", "\"polar.members\":\"nan 0 0 0 1\",\"x\":\""},
        {"members 'inf ...'", "\"polar.members\":\"", "\"polar.members\":\"inf 0 0 0 1\",\"x\":\""},
        {"members with a negative lr", "\"polar.members\":\"", "\"polar.members\":\"-1 0 0 0 1\",\"x\":\""},
        {"members with four numbers", "\"polar.members\":\"", "\"polar.members\":\"1 1 0 0\",\"x\":\""},
        {"members with six numbers", "\"polar.members\":\"", "\"polar.members\":\"1 1 0 0 1 1\",\"x\":\""},
        {"members half active", "\"polar.members\":\"", "\"polar.members\":\"1 1 0 0 0.5\",\"x\":\""},
        {"members with words", "\"polar.members\":\"", "\"polar.members\":\"lr decay\",\"x\":\""},
        {"a tensor by another name", "\"proj.m\"", "\"prof.m\""},
        {"a tensor of another shape", "[1,8,8]", "[1,4,16]"},
        {"a tensor of two dimensions", "[1,8,8]", "[8,8]"},
        {"a tensor of integers", "\"F32\"", "\"I32\""},
        {"a tensor too many",
         "\"proj.m\":", "\"more\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]},\"proj.m\":"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        file_replace(spoilt_path, good, rows[i].from, rows[i].to);
        refused(rows[i].what, r, s, spoilt_path, POLAR_E_FORMAT);
    }
}

static void cut_and_flipped(optim_rig *r, const snapshot *s, const file *good)
{
    int taken = 0, changed = 0, wrong = 0;
    for (size_t k = 0; k < 16; k++) {
        file_write(spoilt_path, good->bytes, good->size * k / 16);
        taken += polar_optim_load(r->opt, r->q, spoilt_path) == POLAR_OK;
        changed += differs(r, s);
    }
    test_true("cut at every sixteenth", !taken && !changed, "%d taken, %d changed something; %s", taken,
              changed, polar_error_message());
    uint64_t seed = 12345;
    for (int k = 0; k < 300; k++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        size_t at = (size_t)((seed >> 33) % (8 + header_size(good)));
        good->bytes[at] ^= (char)(1 << (seed >> 61));
        file_write(spoilt_path, good->bytes, good->size);
        good->bytes[at] ^= (char)(1 << (seed >> 61));
        wrong += polar_optim_load(r->opt, r->q, spoilt_path) != POLAR_E_FORMAT;
        changed += differs(r, s);
    }
    test_true("300 flipped bits of the header", !changed && !wrong, "%d changed something, %d wrong codes",
              changed, wrong);
}

/* The state of a model that differs in one thing. */
static void other_file(const char *what, const char *device, optim_rig *r, const snapshot *s,
                       const param_spec *specs, int n, polar_dtype weights, polar_optim_opts o)
{
    optim_rig other;
    TEST_TRY(rig_open(&other, device, specs, n, weights, POLAR_DTYPE_F32, &o));
    TEST_TRY(rig_step(&other, 0));
    TEST_TRY(polar_optim_save(other.opt, other.q, spoilt_path));
    rig_close(&other);
    refused(what, r, s, spoilt_path, POLAR_E_FORMAT);
}

/* The same moments under another map: refused by name, unless it is meant. */
static void other_map(const char *device, optim_rig *r, const snapshot *s)
{
    const polar_optim_opts o = model_opts("polaradamw");
    polar_optim_opts x;
    param_spec specs[MODEL];
#define OTHER_MAP(name, set)                                                               \
    do {                                                                                   \
        x = o;                                                                             \
        memcpy(specs, model, sizeof model);                                                \
        set;                                                                               \
        other_file("another map: " name, device, r, s, specs, MODEL, POLAR_DTYPE_F32, x);  \
        test_true("  by name", strstr(polar_error_message(), name) != NULL, "'%s'", name); \
    } while (0)
    OTHER_MAP("scale jordan", x.rule.scale = POLAR_SCALE_JORDAN);
    OTHER_MAP("precision f32", x.rule.map.precision = POLAR_DTYPE_F32);
    OTHER_MAP("rounding reference", x.rule.map.rounding = POLAR_ROUND_REFERENCE);
    OTHER_MAP("steps 4", x.rule.map.steps = 4);
    OTHER_MAP("coefficients", x.rule.map.table = "classical");
    OTHER_MAP("map exact", x.rule.map.kind = POLAR_MAP_EXACT);
    OTHER_MAP("'qkv' had 1 row blocks", specs[0].row_blocks = 1);
    OTHER_MAP("'proj' had schur_group 2", (specs[1].schur_group = 2, specs[1].schur_dim = 3));
    OTHER_MAP("'proj' took the aux route", specs[1].route = POLAR_ROUTE_AUX);
    TEST_TRY(polar_optim_save(r->opt, r->q, spoilt_path)); /* r's own state, for another optimiser */
    x = o, x.rule.scale = POLAR_SCALE_JORDAN;
    optim_rig other;
    TEST_TRY(rig_open(&other, device, model, MODEL, POLAR_DTYPE_F32, POLAR_DTYPE_F32, &x));
    polar_status plain = polar_optim_load(other.opt, other.q, spoilt_path),
                 meant = polar_optim_load_with(other.opt, other.q, spoilt_path, POLAR_LOAD_OTHER_MAP);
    test_true("  taken where it is meant",
              plain == POLAR_E_FORMAT && meant == POLAR_OK &&
                  polar_optim_get_step(other.opt) == polar_optim_get_step(r->opt),
              "step %lld", (long long)polar_optim_get_step(other.opt));
    rig_close(&other);
}

static void other_models(const char *device, optim_rig *r, const snapshot *s)
{
    param_spec names[MODEL], shapes[MODEL];
    polar_optim_opts o = model_opts("polaradamw"), beta = o;
    memcpy(names, model, sizeof model);
    memcpy(shapes, model, sizeof model);
    names[1].name = "project";
    shapes[1].shape[0] = 4, shapes[1].shape[1] = 16;
    other_file("another name", device, r, s, names, MODEL, POLAR_DTYPE_F32, o);
    other_file("another shape", device, r, s, shapes, MODEL, POLAR_DTYPE_F32, o);
    other_file("a parameter less", device, r, s, model, MODEL - 1, POLAR_DTYPE_F32, o);
    other_file("bf16 weights", device, r, s, model, MODEL, POLAR_DTYPE_BF16, o);
    other_file("f64 weights", device, r, s, model, MODEL, POLAR_DTYPE_F64, o);
    other_file("muon", device, r, s, model, MODEL, POLAR_DTYPE_F32, model_opts("muon"));
    other_file("sgdm", device, r, s, model, MODEL, POLAR_DTYPE_F32, model_opts("sgdm"));
    other_file("polar_ema", device, r, s, model, MODEL, POLAR_DTYPE_F32, model_opts("polar_ema"));
    beta.rule.beta2 = 0.99;
    other_file("another beta2", device, r, s, model, MODEL, POLAR_DTYPE_F32, beta);
    beta = o, beta.aux_eps = 1e-7;
    other_file("another aux_eps", device, r, s, model, MODEL, POLAR_DTYPE_F32, beta);
    other_map(device, r, s);
    refused("no such file", r, s, "/nowhere/state", POLAR_E_ARG);
    refused("a folder", r, s, folder, POLAR_E_ARG);
    file_write(spoilt_path, "", 0);
    refused("an empty file", r, s, spoilt_path, POLAR_E_FORMAT);
    pl_safetensors_entry e = {.name = "proj.m",
                              .dtype = POLAR_DTYPE_F32,
                              .ndim = 3,
                              .shape = {1, 8, 8},
                              .data = s->bytes,
                              .bytes = 256};
    TEST_TRY(pl_safetensors_write(spoilt_path, &e, 1, NULL, 0));
    refused("tensors, and no state", r, s, spoilt_path, POLAR_E_FORMAT);
}

/* 300000 views of other parameters before ours, in a file of 4.5 MB: read once they are milliseconds. A look
 * to the end of the text at each of them would be 680 GB. */
static void many_views(optim_rig *r, const snapshot *s, const file *old)
{
    enum { VIEWS = 300000, ENTRY = 15 };
    char *to = malloc(VIEWS * ENTRY + 64);
    if (!to) exit(3);
    size_t used = (size_t)sprintf(to, "\"polar.views\":\"");
    for (int i = 0; i < VIEWS; i++, used += ENTRY) memcpy(to + used, "a 1 0 1 4:none;", ENTRY + 1);
    to[used] = 0;
    file_replace(spoilt_path, old, "\"polar.views\":\"", to);
    free(to);
    clock_t begun = clock();
    polar_status st = polar_optim_load(r->opt, r->q, spoilt_path);
    double seconds = (double)(clock() - begun) / CLOCKS_PER_SEC;
    test_true("views of many other parameters", st == POLAR_OK && !differs(r, s) && seconds < 5, "%.3f s",
              seconds);
}

/* ---- saving where one cannot -------------------------------------------------------------------- */

/* The system takes no more than `most` bytes into a file: what a full disk does, EFBIG for ENOSPC. */
static void limit_files(rlim_t most)
{
    struct rlimit limit;
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &limit);
    limit.rlim_cur = most == RLIM_INFINITY ? limit.rlim_max : most;
    if (setrlimit(RLIMIT_FSIZE, &limit)) exit(3);
}

static void unsaved(const char *what, optim_rig *r, const char *path)
{
    int before = folder_files(folder);
    polar_status st = polar_optim_save(r->opt, r->q, path);
    limit_files(RLIM_INFINITY);
    test_true(what, (st == POLAR_E_IO || st == POLAR_E_ARG) && folder_files(folder) == before, "%s",
              polar_error_message());
}

static void saving(optim_rig *r, const file *good)
{
    char path[160];
    for (int k = 0; k < 3; k++) {
        limit_files(k == 0 ? 0 : k == 1 ? 100 : (rlim_t)good->size - 1);
        unsaved("a full disk", r, state_path);
    }
    file still = file_read(state_path);
    test_true("... leaves the old file",
              still.size == good->size && !memcmp(still.bytes, good->bytes, still.size), "%zu bytes",
              still.size);
    free(still.bytes);
    snprintf(path, sizeof path, "%s/missing/state", folder);
    unsaved("a missing folder", r, path);
    snprintf(path, sizeof path, "%s/state", state_path);
    unsaved("a file for a folder", r, path);
    unsaved("a folder for a file", r, folder);
    unsaved("a place nobody may write", r, "/proc/polar_state");
    snprintf(path, sizeof path, "%s/locked", folder);
    if (geteuid() == 0 || mkdir(path, 0500)) return; /* root may write everywhere */
    snprintf(path, sizeof path, "%s/locked/state", folder);
    unsaved("a read-only folder", r, path);
    snprintf(path, sizeof path, "%s/locked", folder);
    rmdir(path);
}

/* A program with a decimal comma writes and reads the same file. */
static void decimal_comma(optim_rig *r, const snapshot *s, const file *good)
{
    static const char *const names[] = {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8", "ru_RU.UTF-8", "de_DE"};
    const char *found = NULL;
    for (int i = 0; i < 5 && !found; i++) found = setlocale(LC_NUMERIC, names[i]);
    if (!found) return; /* none is installed */
    TEST_TRY(polar_optim_save(r->opt, r->q, spoilt_path));
    TEST_TRY(polar_optim_load(r->opt, r->q, state_path));
    file f = file_read(spoilt_path);
    test_true("a decimal comma",
              f.size == good->size && !memcmp(f.bytes, good->bytes, f.size) && !differs(r, s), "%s", found);
    free(f.bytes);
    setlocale(LC_NUMERIC, "C");
}

/* The caller's lr, decay and on/off stay, unless the saved ones are asked for. */
static void settings(const char *device)
{
    optim_rig r;
    polar_optim_opts o = model_opts("polaradamw");
    TEST_TRY(rig_open(&r, device, model, MODEL, POLAR_DTYPE_F32, POLAR_DTYPE_F32, &o));
    TEST_TRY(rig_step(&r, 0));
    TEST_TRY(polar_optim_save(r.opt, r.q, state_path));
    TEST_TRY(polar_optim_set_member(r.opt, 0, 0.5, 0.25, 0.125, 0.0625, 0));
    TEST_TRY(polar_optim_load(r.opt, r.q, state_path));
    const polar_hyper *m = pl_optim_hyper(r.opt, 0, 0, 0), *a = pl_optim_hyper(r.opt, 0, 1, 0);
    const unsigned char *active = r.opt->active;
    test_true("a load keeps the caller's settings",
              PART(m->lr == 0.5) && PART(a->lr == 0.25) && PART(m->weight_decay == 0.125) &&
                  PART(a->weight_decay == 0.0625) && PART(!*active),
              "lr %g", m->lr);
    TEST_TRY(polar_optim_load_with(r.opt, r.q, state_path, POLAR_LOAD_SETTINGS));
    test_true("  or brings the saved ones, if asked",
              PART(m->lr == o.lr) && PART(a->lr == o.aux_lr) && PART(m->weight_decay == o.weight_decay) &&
                  PART(a->weight_decay == o.aux_weight_decay) && PART(*active),
              "lr %g", m->lr);
    rig_close(&r);
}

/* bf16 weights are those of the master copies that came with the file, whatever stood there. */
static void bf16_weights(const char *device)
{
    optim_rig r;
    polar_optim_opts o = model_opts("polaradamw");
    TEST_TRY(rig_open(&r, device, model, MODEL, POLAR_DTYPE_BF16, POLAR_DTYPE_F32, &o));
    for (int t = 0; t < 3; t++) TEST_TRY(rig_step(&r, t));
    TEST_TRY(polar_optim_save(r.opt, r.q, state_path));
    int64_t bad = 0, moved = 0;
    for (int i = 0; i < MODEL; i++) {
        int64_t n = r.W[i].batch * r.W[i].rows * r.W[i].cols;
        double *want = rig_weights(&r, i), *zeros = calloc((size_t)n, sizeof *zeros);
        if (!zeros) exit(3);
        TEST_TRY(pl_mat_upload_f64(r.q, &r.W[i], zeros));
        TEST_TRY(polar_optim_load(r.opt, r.q, state_path));
        double *got = rig_weights(&r, i);
        for (int64_t k = 0; k < n; k++) bad += got[k] != want[k], moved += want[k] != 0;
        free(want), free(zeros), free(got);
    }
    test_true("bf16 weights after a load", bad == 0 && moved > 0, "%lld of %lld are not those of the masters",
              (long long)bad, (long long)moved);
    rig_close(&r);
}

/* Everything above on one optimiser, which then goes on like its twin that never tried. */
static void state_files(const char *device)
{
    optim_rig r, twin;
    polar_optim_opts o = model_opts("polaradamw");
    TEST_TRY(rig_open(&r, device, model, MODEL, POLAR_DTYPE_F32, POLAR_DTYPE_F32, &o));
    TEST_TRY(rig_open(&twin, device, model, MODEL, POLAR_DTYPE_F32, POLAR_DTYPE_F32, &o));
    for (int t = 0; t < 3; t++) {
        TEST_TRY(rig_step(&r, t));
        TEST_TRY(rig_step(&twin, t));
    }
    TEST_TRY(polar_optim_save(r.opt, r.q, state_path));
    file good = file_read(state_path);
    snapshot s = take_snapshot(&r);
    TEST_TRY(polar_optim_load(r.opt, r.q, state_path));
    test_true("its own file is taken", !differs(&r, &s), "%zu bytes", good.size);
    other_models(device, &r, &s);
    file old = without_checksum(&good);
    file_write(spoilt_path, old.bytes, old.size);
    TEST_TRY(polar_optim_load(r.opt, r.q, spoilt_path));
    test_true("version 1, without a checksum, is taken", !differs(&r, &s), "%zu bytes", old.size);
    changed_headers(&r, &s, &old);
    many_views(&r, &s, &old);
    free(old.bytes);
    cut_and_flipped(&r, &s, &good);
    saving(&r, &good);
    decimal_comma(&r, &s, &good);
    for (int t = 3; t < 6; t++) {
        TEST_TRY(rig_step(&r, t));
        TEST_TRY(rig_step(&twin, t));
    }
    test_exact("and it goes on as if nothing had been", rig_mismatches(&r, &twin));
    remove(spoilt_path);
    remove(state_path);
    free(s.bytes);
    free(good.bytes);
    rig_close(&r);
    rig_close(&twin);
}

int main(int argc, char **argv)
{
    const char *device = test_begin(argc, argv);
    snprintf(folder, sizeof folder, "/tmp/polar_state_XXXXXX");
    if (!mkdtemp(folder)) return 3;
    snprintf(state_path, sizeof state_path, "%s/state.safetensors", folder);
    snprintf(spoilt_path, sizeof spoilt_path, "%s/spoilt.safetensors", folder);
    settings(device);
    bf16_weights(device);
    state_files(device);
    test_true("the folder is empty at the end", rmdir(folder) == 0, "%s", "");
    return test_end();
}
