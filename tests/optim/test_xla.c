/* test_xla.c -- the handlers of python/xla, called as XLA calls them, without XLA: steps, maps, and frames
 * that must be refused. On cuda:0 they are the handlers for GPUs, in two streams by turns. */
#include <pthread.h>
#include <semaphore.h>
#include <time.h>

#include "fixtures/map_fixture.h"
#include "fixtures/xla_fixture.h"
#include "polar/optim.h"

enum { PARAMS = 3, STEPS = 5, MOST = 24 * 10 };

/* ---- steps --------------------------------------------------------------------------------------- */

typedef struct {
    const char *device;
    int cuda;
    pl_device *dev;
    pl_queue *q[2]; /* in the two streams */
    void *stream[2];
} place;

static void place_open(place *p, const char *device)
{
    *p = (place){.device = device, .cuda = !strncmp(device, "cuda", 4)};
    TEST_TRY(polar_device_open(&p->dev, device));
    for (int k = 0; k < 2; k++) {
        p->stream[k] = (void *)(uintptr_t)(1 + k); /* cudaStreamLegacy, cudaStreamPerThread */
        TEST_TRY(polar_queue_create(&p->q[k], p->dev, p->stream[k]));
    }
}

static void place_close(place *p)
{
    for (int k = 0; k < 2; k++) polar_queue_destroy(p->q[k]);
    polar_device_close(p->dev);
}

static execution in_stream(const place *p, int k)
{
    /* XLA's own name of the legacy stream is NULL */
    return (execution){.stream = k ? p->stream[k] : NULL};
}

static const struct {
    const char *name;
    int64_t rows, cols, row_blocks;
} shapes[PARAMS] = {{"wide", 12, 20, 0}, {"qkv", 24, 10, 3}, {"bias", 1, 17, 0}};

static int64_t elements(int i)
{
    return shapes[i].rows * shapes[i].cols;
}

typedef struct {
    pl_mat W[PARAMS], G[PARAMS], state, rates;
} home;

static void home_open(home *h, place *p, polar_dtype dtype, int64_t state)
{
    for (int i = 0; i < PARAMS; i++) {
        TEST_TRY(pl_mat_alloc(&h->W[i], p->dev, dtype, 1, 1, elements(i)));
        TEST_TRY(pl_mat_alloc(&h->G[i], p->dev, dtype, 1, 1, elements(i)));
    }
    TEST_TRY(pl_mat_alloc(&h->state, p->dev, POLAR_DTYPE_F64, 1, 1, (state + 7) / 8));
    TEST_TRY(pl_mat_alloc(&h->rates, p->dev, POLAR_DTYPE_F32, 1, 1, PARAMS));
}

static void home_close(home *h, place *p)
{
    for (int i = 0; i < PARAMS; i++) pl_mat_free(&h->W[i], p->dev), pl_mat_free(&h->G[i], p->dev);
    pl_mat_free(&h->state, p->dev);
    pl_mat_free(&h->rates, p->dev);
}

static void set_params(polar_param *params, const home *h, polar_dtype dtype)
{
    for (int i = 0; i < PARAMS; i++) {
        void *w = h ? h->W[i].data : NULL, *g = h ? h->G[i].data : NULL;
        const int64_t rows = shapes[i].rows, cols = shapes[i].cols;
        const int vector = rows == 1;
        params[i] = (polar_param){
            .name = shapes[i].name,
            .weight = vector ? polar_tensor_1d(w, dtype, cols) : polar_tensor_2d(w, dtype, rows, cols),
            .grad = vector ? polar_tensor_1d(g, dtype, cols) : polar_tensor_2d(g, dtype, rows, cols),
            .row_blocks = shapes[i].row_blocks};
    }
}

static void fill(place *p, int k, pl_mat *m, uint64_t seed)
{
    double x[MOST];
    map_fill(x, m->cols, seed);
    TEST_TRY(pl_mat_upload_f64(p->q[k], m, x));
    TEST_TRY(polar_queue_sync(p->q[k]));
}

static int64_t differ(place *p, home *a, home *b)
{
    int64_t bad = 0;
    for (int i = 0; i < PARAMS; i++) {
        double x[MOST], y[MOST];
        TEST_TRY(pl_mat_download_f64(p->q[0], &a->W[i], x));
        TEST_TRY(pl_mat_download_f64(p->q[0], &b->W[i], y));
        bad += map_mismatches(x, y, elements(i));
    }
    return bad;
}

static int xla_name(polar_dtype dtype)
{
    return dtype == POLAR_DTYPE_BF16 ? XLA_BF16 : XLA_F32;
}

static void begin_frame(frame *f, execution *e, const char *name, home *h, int64_t bytes)
{
    frame_begin(f, e, "definition", name);
    for (int i = 0; i < PARAMS; i++)
        give(f, xla_name(h->W[i].dtype), h->W[i].data, shapes[i].rows, shapes[i].cols), alias(f, i);
    give(f, XLA_U8, h->state.data, 1, bytes), alias(f, PARAMS);
}

static void step_frame(frame *f, execution *e, const char *name, home *h, int64_t bytes)
{
    frame_begin(f, e, "definition", name);
    for (int i = 0; i < PARAMS; i++)
        give(f, xla_name(h->W[i].dtype), h->W[i].data, shapes[i].rows, shapes[i].cols), alias(f, i);
    for (int i = 0; i < PARAMS; i++)
        give(f, xla_name(h->G[i].dtype), h->G[i].data, shapes[i].rows, shapes[i].cols);
    give(f, XLA_U8, h->state.data, 1, bytes), alias(f, 2 * PARAMS);
    give(f, XLA_F32, h->rates.data, 1, PARAMS);
}

static const char *call_begin(place *p, frame *f)
{
    return answer(p->cuda ? polar_xla_begin_cuda(&f->call) : polar_xla_begin(&f->call));
}

static const char *call_step(place *p, frame *f)
{
    return answer(p->cuda ? polar_xla_step_cuda(&f->call) : polar_xla_step(&f->call));
}

/* What a process keeps for as long as it lives, as polar.jax does. */
typedef struct {
    char name[40];
    polar_param params[PARAMS];
    polar_optim_opts opts;
    polar_optim_layout layout;
    int64_t bytes;
} defined;

/* rule NULL: d->opts are there */
static void define(defined *d, place *p, const char *rule, polar_dtype dtype)
{
    polar_optim *opt;
    static int made;
    snprintf(d->name, sizeof d->name, "%s %s %d", rule ? rule : "own", polar_dtype_name(dtype), made++);
    set_params(d->params, NULL, dtype);
    if (rule) TEST_TRY(polar_optim_opts_parse(&d->opts, rule));
    d->opts.skip_missing = d->opts.placed = 1;
    d->layout = (polar_optim_layout)POLAR_OPTIM_LAYOUT_INIT;
    test_true("defined", polar_xla_define(d->name, d->params, PARAMS, &d->opts, &d->layout), "%s", d->name);
    TEST_TRY(polar_optim_create(&opt, p->dev, d->params, PARAMS, &d->opts));
    d->bytes = (int64_t)polar_optim_placed_bytes(opt);
    polar_optim_destroy(opt);
}

static double rate(int t, int matrix)
{
    return ldexp(1 + t % 3, matrix ? -6 : -8); /* which floats hold */
}

/* Two states of one definition, stepped by turns in two streams, beside an ordinary optimiser each. */
static void steps(place *p, defined *d, const char *rule, polar_dtype dtype)
{
    home own[2], theirs[2];
    polar_optim *opt[2];
    polar_param params[PARAMS];
    frame f;
    define(d, p, rule, dtype);
    for (int k = 0; k < 2; k++) {
        home_open(&own[k], p, dtype, 0), home_open(&theirs[k], p, dtype, d->bytes);
        for (int i = 0; i < PARAMS; i++) {
            fill(p, k, &own[k].W[i], 10 + (uint64_t)(10 * k + i));
            fill(p, k, &theirs[k].W[i], 10 + (uint64_t)(10 * k + i));
        }
        set_params(params, &own[k], dtype);
        polar_optim_opts o = d->opts;
        o.placed = 0;
        TEST_TRY(polar_optim_create(&opt[k], p->dev, params, PARAMS, &o));
        execution e = in_stream(p, k);
        begin_frame(&f, &e, d->name, &theirs[k], d->bytes);
        const char *said = call_begin(p, &f);
        test_true("begun", !said, "%s", said);
    }
    int64_t bad = 0, errors = 0;
    for (int t = 0; t < 2 * STEPS; t++) {
        const int k = t % 2;
        float rates[PARAMS];
        for (int i = 0; i < PARAMS; i++) {
            fill(p, k, &own[k].G[i], 100 + (uint64_t)(10 * t + i));
            fill(p, k, &theirs[k].G[i], 100 + (uint64_t)(10 * t + i));
            rates[i] = (float)rate(t, shapes[i].rows > 1);
        }
        polar_queue_upload(p->q[k], theirs[k].rates.data, rates, sizeof rates);
        execution e = in_stream(p, k);
        step_frame(&f, &e, d->name, &theirs[k], d->bytes);
        errors += call_step(p, &f) != NULL;
        TEST_TRY(polar_queue_sync(p->q[k]));
        TEST_TRY(polar_optim_set_lr(opt[k], rate(t, 1), rate(t, 0)));
        TEST_TRY(polar_optim_step(opt[k], p->q[k]));
        TEST_TRY(polar_queue_sync(p->q[k]));
        bad += differ(p, &own[k], &theirs[k]);
    }
    char line[120];
    snprintf(line, sizeof line, "%s: two states by turns, %d steps each, the ordinary one's bits", d->name,
             STEPS);
    test_exact(line, bad + errors);
    for (int k = 0; k < 2; k++) {
        polar_optim_destroy(opt[k]);
        home_close(&own[k], p), home_close(&theirs[k], p);
    }
}

/* ---- frames that are refused --------------------------------------------------------------------- */

static void refuses_frames(place *p, defined *d)
{
    home h;
    frame f;
    execution e = in_stream(p, 0);
    home_open(&h, p, POLAR_DTYPE_F32, d->bytes);
    for (int i = 0; i < PARAMS; i++) fill(p, 0, &h.W[i], (uint64_t)i), fill(p, 0, &h.G[i], 50 + (uint64_t)i);
    float rates[PARAMS] = {0};
    polar_queue_upload(p->q[0], h.rates.data, rates, sizeof rates);
    TEST_TRY(polar_queue_sync(p->q[0]));

    step_frame(&f, &e, "nobody's", &h, d->bytes);
    refused("a definition that is not there", call_step(p, &f), "has not defined");
    step_frame(&f, &e, d->name, &h, d->bytes);
    f.string_type = XLA_SCALAR;
    refused("a name that is no string", call_step(p, &f), "has not defined");
    step_frame(&f, &e, d->name, &h, d->bytes);
    f.call.args.size--;
    refused("an argument too few", call_step(p, &f), "not those of");
    step_frame(&f, &e, d->name, &h, d->bytes);
    f.args[0].dtype = XLA_F64;
    refused("weights of another format", call_step(p, &f), "not those of");
    step_frame(&f, &e, d->name, &h, d->bytes);
    f.args[PARAMS].dims[1]++;
    refused("a gradient of another size", call_step(p, &f), "not those of");
    step_frame(&f, &e, d->name, &h, d->bytes - 1);
    refused("a state that is too short", call_step(p, &f), "not those of");
    step_frame(&f, &e, d->name, &h, d->bytes);
    f.rets[0].data = h.G[0].data;
    refused("a result that is no argument", call_step(p, &f), "where they lie");
    step_frame(&f, &e, d->name, &h, d->bytes);
    f.args[2 * PARAMS + 1].dtype = XLA_F64;
    refused("rates in f64", call_step(p, &f), "float32");
    step_frame(&f, &e, d->name, &h, d->bytes);
    f.args[2 * PARAMS + 1].dims[1]--;
    refused("a rate too few", call_step(p, &f), "rates");
    step_frame(&f, &e, d->name, &h, d->bytes);
    f.args[2 * PARAMS].data = f.rets[PARAMS].data = (char *)h.state.data + 8;
    refused("a state at an odd address", call_step(p, &f), "64");
    step_frame(&f, &e, d->name, &h, d->bytes);
    give(&f, XLA_F32, h.rates.data, 1, 1);
    refused("a flag for one that leaves nothing out", call_step(p, &f), "skip_nonfinite");
    if (p->cuda) {
        e.has_none = 1;
        step_frame(&f, &e, d->name, &h, d->bytes);
        refused("no stream", call_step(p, &f), "no CUDA stream");
        e = (execution){.ordinal = 16};
        step_frame(&f, &e, d->name, &h, d->bytes);
        refused("a GPU beyond the last", call_step(p, &f), "0 to 15");
        api.struct_size -= sizeof api.ordinal_get; /* an older jaxlib, which cannot say so */
        begin_frame(&f, &e, d->name, &h, d->bytes);
        const char *said = call_begin(p, &f);
        test_true("without numbers of GPUs it is the first", !said, "%s", said);
        api.struct_size = sizeof api;
    }
    e = in_stream(p, 0);
    begin_frame(&f, &e, d->name, &h, d->bytes);
    const char *said = call_begin(p, &f);
    test_true("after all of these a frame is taken", !said, "%s", said);
    step_frame(&f, &e, d->name, &h, d->bytes);
    said = call_step(p, &f);
    test_true("... and a step", !said, "%s", said);
    TEST_TRY(polar_queue_sync(p->q[0]));

    xla_metadata m = {.struct_size = sizeof m, .api = {.major = 9, .minor = 9}, .traits = 7};
    xla_metadata_extension asks = {.base = {.struct_size = sizeof asks, .type = 1}, .metadata = &m};
    xla_call question = {.extension = &asks.base};
    test_true("asked which version: 0.1",
              !polar_xla_step(&question) && !m.api.major && m.api.minor == 1 && !m.traits, "%d.%d, %u",
              m.api.major, m.api.minor, m.traits);
    step_frame(&f, &e, "nobody's", &h, d->bytes);
    f.call.stage = 0;
    said = call_step(p, &f);
    test_true("before it executes a call does nothing", !said, "%s", said);
    test_exact("errors that nobody dropped", errors_alive);
    home_close(&h, p);
}

/* A flag in memory of the device leaves a step out; the next one, without, is made. */
static void leaves_out(place *p)
{
    static defined d;
    home h;
    frame f;
    pl_mat flag;
    double before[MOST], after[MOST];
    TEST_TRY(polar_optim_opts_parse(&d.opts, "muon"));
    d.opts.skip_nonfinite = POLAR_SKIP_NONFINITE;
    define(&d, p, NULL, POLAR_DTYPE_F32);
    home_open(&h, p, POLAR_DTYPE_F32, d.bytes);
    TEST_TRY(pl_mat_alloc(&flag, p->dev, POLAR_DTYPE_F32, 1, 1, 1));
    for (int i = 0; i < PARAMS; i++)
        fill(p, 0, &h.W[i], 1 + (uint64_t)i), fill(p, 0, &h.G[i], 60 + (uint64_t)i);
    const float rates[PARAMS] = {0.5, 0.5, 0.5}, one = 1;
    polar_queue_upload(p->q[0], h.rates.data, rates, sizeof rates);
    polar_queue_upload(p->q[0], flag.data, &one, sizeof one);
    TEST_TRY(polar_queue_sync(p->q[0]));
    execution e = in_stream(p, 0);
    begin_frame(&f, &e, d.name, &h, d.bytes);
    test_true("begun", !call_begin(p, &f), "%s", d.name);
    TEST_TRY(pl_mat_download_f64(p->q[0], &h.W[0], before));
    for (int flagged = 1; flagged >= 0; flagged--) {
        step_frame(&f, &e, d.name, &h, d.bytes);
        if (flagged) give(&f, XLA_F32, flag.data, 1, 1);
        const char *said = call_step(p, &f);
        TEST_TRY(polar_queue_sync(p->q[0]));
        TEST_TRY(pl_mat_download_f64(p->q[0], &h.W[0], after));
        const int64_t moved = map_mismatches(before, after, elements(0));
        test_true(flagged ? "a flag leaves the step out" : "... and goes with its step",
                  !said && (moved == 0) == flagged, "%s, %lld", said, (long long)moved);
    }
    pl_mat_free(&flag, p->dev);
    home_close(&h, p);
}

/* Definitions by the dozen: the device keeps a few, and those that it gave up step as before. */
static void keeps_few(place *p)
{
    enum { MANY = 40, KEPT = 16 };
    static defined d[MANY];
    home h;
    frame f;
    execution e = in_stream(p, 0);
    double first[MOST], again[MOST];
    int most = 0, refusals = 0;
    for (int k = 0; k < MANY; k++) {
        TEST_TRY(polar_optim_opts_parse(&d[k].opts, "muon"));
        d[k].opts.aux_eps = 1e-8 * (1 + k);
        define(&d[k], p, NULL, POLAR_DTYPE_F32);
    }
    home_open(&h, p, POLAR_DTYPE_F32, d[0].bytes);
    for (int turn = 0; turn < MANY + 1; turn++) { /* the first one's at last once more */
        const int k = turn % MANY;
        for (int i = 0; i < PARAMS; i++)
            fill(p, 0, &h.W[i], 1 + (uint64_t)i), fill(p, 0, &h.G[i], 60 + (uint64_t)i);
        const float rates[PARAMS] = {0.5, 0.5, 0.5};
        polar_queue_upload(p->q[0], h.rates.data, rates, sizeof rates);
        TEST_TRY(polar_queue_sync(p->q[0]));
        begin_frame(&f, &e, d[k].name, &h, d[k].bytes);
        refusals += call_begin(p, &f) != NULL;
        step_frame(&f, &e, d[k].name, &h, d[k].bytes);
        refusals += call_step(p, &f) != NULL;
        TEST_TRY(polar_queue_sync(p->q[0]));
        TEST_TRY(pl_mat_download_f64(p->q[0], &h.W[0], turn ? again : first));
        const int open = xla_open_optims(p->cuda);
        if (open > most) most = open;
    }
    test_true("of 40 definitions a device keeps 16", most == KEPT && !refusals, "%d, %d refused", most,
              refusals);
    test_exact("... and makes the first anew", map_mismatches(first, again, elements(0)));
    home_close(&h, p);
}

/* ---- devices do not wait for one another ------------------------------------------------------------ */

static pthread_t slow;
static sem_t is_in, may_go;
static int gave_up;

/* The slow thread stays in its call until it may go, or half a minute. */
static xla_error *make_error_slowly(xla_error_args *args)
{
    struct timespec end;
    if (pthread_equal(pthread_self(), slow)) {
        clock_gettime(CLOCK_REALTIME, &end);
        end.tv_sec += 30;
        sem_post(&is_in);
        gave_up = sem_timedwait(&may_go, &end) != 0;
    }
    return make_error(args);
}

static void *call_slowly(void *arg)
{
    slow = pthread_self();
    return polar_xla_step_cuda(arg);
}

/* While a call on the GPU does not return, one on the CPU does. */
static void goes_beside(place *p)
{
    frame f, g;
    pthread_t thread;
    void *error;
    execution e = in_stream(p, 0);
    frame_begin(&f, &e, "definition", "nobody's"), frame_begin(&g, &e, "definition", "nobody's");
    sem_init(&is_in, 0, 0), sem_init(&may_go, 0, 0);
    api.error_create = make_error_slowly;
    pthread_create(&thread, NULL, call_slowly, &f.call);
    sem_wait(&is_in);
    refused("the CPU's call, refused meanwhile", answer(polar_xla_step(&g.call)), "has not defined");
    sem_post(&may_go);
    pthread_join(thread, &error);
    api.error_create = make_error;
    refused("the GPU's, after it", answer(error), "has not defined");
    test_true("... and not held up by it", !gave_up, "%s", gave_up ? "was" : "not");
    sem_destroy(&is_in), sem_destroy(&may_go);
}

/* ---- maps ---------------------------------------------------------------------------------------- */

static void maps(place *p)
{
    enum { BATCH = 3, ROWS = 8, COLS = 12, COUNT = BATCH * ROWS * COLS };
    static double x[COUNT], got[COUNT], want[COUNT];
    map_item item = {BATCH, ROWS, COLS, POLAR_DTYPE_F32, x, want, POLAR_DTYPE_F32};
    polar_map_opts o;
    pl_mat in, out;
    frame f;
    map_fill(x, COUNT, 3);
    TEST_TRY(polar_map_opts_parse(&o, "ns_fp32"));
    TEST_TRY(map_run_on(p->dev, &item, 1, NULL, &o));
    TEST_TRY(pl_mat_alloc(&in, p->dev, POLAR_DTYPE_F32, BATCH, ROWS, COLS));
    TEST_TRY(pl_mat_alloc(&out, p->dev, POLAR_DTYPE_F32, BATCH, ROWS, COLS));
    TEST_TRY(pl_mat_upload_f64(p->q[0], &in, x));
    TEST_TRY(polar_queue_sync(p->q[0]));
    execution e = in_stream(p, 0);
    for (int round = 0; round < 5; round++) {
        frame_begin(&f, &e, "map", round == 1 ? "nothing" : "ns_fp32");
        xla_buffer *b = give(&f, round == 2 ? XLA_S64 : XLA_F32, in.data, BATCH, ROWS);
        b->rank = round == 3 ? 1 : 3, b->dims[2] = COLS;
        alias(&f, 0);
        f.rets[0].data = out.data;
        if (round == 4) f.call.rets.size = 0;
        const char *said = answer(p->cuda ? polar_xla_map_cuda(&f.call) : polar_xla_map(&f.call));
        if (round == 0) test_true("a batch through the map", !said, "%s", said);
        if (round == 1) refused("a map that is none", said, "nothing");
        if (round == 2) refused("integers", said, "f32, f64");
        if (round == 3) refused("a vector", said, "matrices");
        if (round == 4) refused("no result", said, "as many results");
    }
    TEST_TRY(polar_queue_sync(p->q[0]));
    TEST_TRY(pl_mat_download_f64(p->q[0], &out, got));
    test_exact("... has polar_map_apply's bits", map_mismatches(got, want, COUNT));
    for (int round = 0; round < 2 && p->cuda; round++) { /* what the device's queue says, and whose it is */
        frame_begin(&f, &e, "map", round ? "ns_fp32" : "exact");
        xla_buffer *b = give(&f, XLA_F32, in.data, 1, round ? COLS : (int64_t)1 << 32);
        alias(&f, 0);
        f.rets[0].data = round ? out.data : in.data, b->rank = 2;
        const char *said = answer(polar_xla_map_cuda(&f.call));
        if (round) test_true("... and the next call is served", !said, "%s", said);
        else refused("an op that fails", said, "32 bits");
    }
    TEST_TRY(polar_queue_sync(p->q[0]));
    pl_mat_free(&in, p->dev);
    pl_mat_free(&out, p->dev);
}

int main(int argc, char **argv)
{
    static defined f32[3], bf16[2];
    static const char *const rules[3] = {"polaradamw", "muon", "normuon"};
    place p;
    place_open(&p, test_begin(argc, argv));
    for (int i = 0; i < 3; i++) steps(&p, &f32[i], rules[i], POLAR_DTYPE_F32);
    for (int i = 0; i < 2; i++) steps(&p, &bf16[i], rules[i], POLAR_DTYPE_BF16);
    refuses_frames(&p, &f32[0]);
    leaves_out(&p);
    maps(&p);
    keeps_few(&p);
    if (p.cuda) goes_beside(&p);
    place_close(&p);
    return test_end();
}
