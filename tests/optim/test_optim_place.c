/* test_optim_place.c -- an optimiser whose weights, gradients and state lie elsewhere in every step, and
 * whose rates are read from device memory: the bits of one that has its own state and rates from the host. */
#include "fixtures/map_fixture.h"

#include "base/alloc.h"
#include "device/queue.h"
#include "polar/optim.h"

enum { PARAMS = 5, STEPS = 9, MOST = 24 * 10 };

typedef struct {
    const char *name;
    int ndim;
    int64_t shape[3], row_blocks;
    int blocks; /* it is a list of two matrices, and a rest */
} shape;

static const shape shapes[PARAMS] = {{"wide", 2, {12, 20}, 0, 0},
                                     {"qkv", 2, {24, 10}, 3, 0},
                                     {"bias", 1, {17}, 0, 0},
                                     {"flat", 1, {6 * 7 + 5 * 4 + 3}, 0, 1},
                                     {"filter", 3, {4, 3, 5}, 0, 0}};
enum { RESTS = 1, RATES = PARAMS + RESTS };

static const polar_block flat_blocks[2] = {{0, 6, 7, 0, 0}, {42, 5, 4, 0, 0}};

static int64_t elements(int i)
{
    int64_t n = 1;
    for (int k = 0; k < shapes[i].ndim; k++) n *= shapes[i].shape[k];
    return n;
}

/* Weights, gradients, state and rates in memory of the device. */
typedef struct {
    pl_mat W[PARAMS], G[PARAMS], state, rates;
} home;

typedef struct {
    pl_device *dev;
    pl_queue *q;
    polar_optim *opt;
    home at[2]; /* of one with a state of its own the first alone, without state */
    polar_param params[PARAMS];
} side;

static void home_open(side *s, home *h, polar_dtype weights, polar_dtype grads, size_t state)
{
    for (int i = 0; i < PARAMS; i++) {
        TEST_TRY(pl_mat_alloc(&h->W[i], s->dev, weights, 1, 1, elements(i)));
        TEST_TRY(pl_mat_alloc(&h->G[i], s->dev, grads, 1, 1, elements(i)));
    }
    TEST_TRY(pl_mat_alloc(&h->state, s->dev, POLAR_DTYPE_F64, 1, 1, (int64_t)(state + 7) / 8));
    TEST_TRY(pl_mat_alloc(&h->rates, s->dev, POLAR_DTYPE_F32, 1, 1, RATES));
}

static polar_tensor as_tensor(const pl_mat *m, int i, int data)
{
    polar_tensor t = {.data = data ? m->data : NULL, .dtype = m->dtype, .ndim = shapes[i].ndim};
    int64_t stride = 1;
    for (int k = t.ndim - 1; k >= 0; stride *= shapes[i].shape[k--])
        t.shape[k] = shapes[i].shape[k], t.stride[k] = stride;
    return t;
}

static void side_open(side *s, const char *device, polar_optim_opts o, polar_dtype weights, polar_dtype grads)
{
    *s = (side){.dev = NULL};
    TEST_TRY(polar_device_open(&s->dev, device));
    TEST_TRY(polar_queue_create(&s->q, s->dev, NULL));
    home_open(s, &s->at[0], weights, grads, 0);
    for (int i = 0; i < PARAMS; i++) {
        double w[MOST];
        map_fill(w, elements(i), 300 + (uint64_t)i);
        TEST_TRY(pl_mat_upload_f64(s->q, &s->at[0].W[i], w));
        s->params[i] = (polar_param){.name = shapes[i].name,
                                     .weight = as_tensor(&s->at[0].W[i], i, !o.placed),
                                     .grad = as_tensor(&s->at[0].G[i], i, !o.placed),
                                     .row_blocks = shapes[i].row_blocks,
                                     .blocks = shapes[i].blocks ? flat_blocks : NULL,
                                     .block_count = shapes[i].blocks ? 2 : 0};
    }
    TEST_TRY(polar_queue_sync(s->q));
    TEST_TRY(polar_optim_create(&s->opt, s->dev, s->params, PARAMS, &o));
}

static void home_close(side *s, home *h)
{
    for (int i = 0; i < PARAMS; i++) pl_mat_free(&h->W[i], s->dev), pl_mat_free(&h->G[i], s->dev);
    pl_mat_free(&h->state, s->dev);
    pl_mat_free(&h->rates, s->dev);
}

static void side_close(side *s)
{
    polar_optim_destroy(s->opt);
    for (int k = 0; k < 2; k++) home_close(s, &s->at[k]);
    polar_queue_destroy(s->q);
    polar_device_close(s->dev);
}

static polar_status place(side *s, home *h)
{
    void *weights[PARAMS], *grads[PARAMS];
    for (int i = 0; i < PARAMS; i++) weights[i] = h->W[i].data, grads[i] = h->G[i].data;
    return polar_optim_place(s->opt, weights, grads, PARAMS, h->state.data);
}

static void copy_bytes(side *s, const pl_mat *to, const pl_mat *from)
{
    char *bytes = malloc(pl_mat_bytes(from) + 1);
    polar_queue_download(s->q, bytes, from->data, pl_mat_bytes(from));
    TEST_TRY(polar_queue_sync(s->q));
    polar_queue_upload(s->q, to->data, bytes, pl_mat_bytes(from));
    free(bytes);
}

static void spoil(side *s, const pl_mat *m)
{
    char *bytes = malloc(pl_mat_bytes(m) + 1);
    memset(bytes, 0xff, pl_mat_bytes(m)); /* NaN in every format */
    polar_queue_upload(s->q, m->data, bytes, pl_mat_bytes(m));
    free(bytes);
}

/* Everything to the other home; what stays behind is NaN. */
static void move(side *s, home *to, home *from)
{
    for (int i = 0; i < PARAMS; i++) {
        copy_bytes(s, &to->W[i], &from->W[i]);
        spoil(s, &from->W[i]);
        spoil(s, &from->G[i]);
    }
    copy_bytes(s, &to->state, &from->state);
    spoil(s, &from->state);
    spoil(s, &from->rates);
}

static void give_grads(side *s, home *h, int t)
{
    for (int i = 0; i < PARAMS; i++) {
        double g[MOST];
        map_fill(g, elements(i), 7000 + 50 * (uint64_t)i + (uint64_t)t);
        TEST_TRY(pl_mat_upload_f64(s->q, &h->G[i], g));
    }
}

/* Rates that floats hold. */
static double matrix_rate(int t)
{
    return t == 4 ? 0 : ldexp(1 + t % 3, -6);
}
static double aux_rate(int t)
{
    return ldexp(1 + t % 2, -8);
}

static void give_rates(side *s, home *h, int t)
{
    float r[RATES];
    for (int i = 0; i < RATES; i++) /* the rest is AdamW's */
        r[i] = (float)(i < PARAMS && (shapes[i].ndim > 1 || shapes[i].blocks) ? matrix_rate(t) : aux_rate(t));
    polar_queue_upload(s->q, h->rates.data, r, sizeof r);
    TEST_TRY(polar_optim_set_rates(s->opt, h->rates.data, RATES));
}

static int64_t differences(side *a, home *ha, side *b, home *hb)
{
    int64_t bad = 0;
    for (int i = 0; i < PARAMS; i++) {
        double x[MOST], y[MOST];
        TEST_TRY(pl_mat_download_f64(a->q, &ha->W[i], x));
        TEST_TRY(pl_mat_download_f64(b->q, &hb->W[i], y));
        bad += map_mismatches(x, y, elements(i));
    }
    return bad;
}

static polar_optim_opts options(const char *rule)
{
    polar_optim_opts o;
    TEST_TRY(polar_optim_opts_parse(&o, rule));
    o.skip_missing = 1;
    o.allow_no_matrix = 1;
    o.rule.refresh = o.rule.refresh ? 3 : 0; /* within these steps */
    o.rule.first_basis = o.rule.first_basis ? 2 : 0;
    return o;
}

/* The placed one, from a state that begins with NaN, beside an ordinary one. */
static void wanders(const char *device, const char *rule, polar_dtype weights, polar_dtype grads)
{
    side a, b;
    polar_optim_opts o = options(rule);
    side_open(&a, device, o, weights, grads);
    o.placed = 1;
    o.lr = o.aux_lr = 7; /* nobody's */
    side_open(&b, device, o, weights, grads);
    const size_t bytes = polar_optim_placed_bytes(b.opt);
    pl_mat_free(&b.at[0].state, b.dev);
    TEST_TRY(pl_mat_alloc(&b.at[0].state, b.dev, POLAR_DTYPE_F64, 1, 1, (int64_t)(bytes + 7) / 8));
    home_open(&b, &b.at[1], weights, grads, bytes);
    spoil(&b, &b.at[0].state);
    TEST_TRY(place(&b, &b.at[0]));
    TEST_TRY(polar_optim_restart(b.opt, b.q));
    int64_t bad = 0;
    for (int t = 0; t < STEPS; t++) {
        home *from = &b.at[t % 2], *to = &b.at[(t + 1) % 2];
        move(&b, to, from);
        give_grads(&a, &a.at[0], t);
        give_grads(&b, to, t);
        give_rates(&b, to, t);
        TEST_TRY(place(&b, to));
        TEST_TRY(polar_optim_set_lr(a.opt, matrix_rate(t), aux_rate(t)));
        TEST_TRY(polar_optim_step(a.opt, a.q));
        TEST_TRY(polar_optim_step(b.opt, b.q));
        TEST_TRY(polar_queue_sync(a.q));
        TEST_TRY(polar_queue_sync(b.q));
        bad += differences(&a, &a.at[0], &b, to);
    }
    char line[120];
    snprintf(line, sizeof line, "%s, %s weights: elsewhere in each of %d steps", rule,
             polar_dtype_name(weights), STEPS);
    test_exact(line, bad);
    polar_param_stats stats[PARAMS];
    TEST_TRY(polar_optim_stats(b.opt, b.q, stats));
    const double want = aux_rate(STEPS - 1);
    test_true("... its rate as the device had it, and its steps",
              stats[2].effective_lr == want && stats[2].steps == STEPS, "%g, %lld", stats[2].effective_lr,
              (long long)stats[2].steps);
    side_close(&a);
    side_close(&b);
}

/* Begun again after a step, the next one is the first. */
static void goes_back(const char *device)
{
    side s;
    polar_optim_opts o = options("polaradamw");
    o.placed = 1;
    side_open(&s, device, o, POLAR_DTYPE_F32, POLAR_DTYPE_F32);
    home_close(&s, &s.at[0]);
    home_open(&s, &s.at[0], POLAR_DTYPE_F32, POLAR_DTYPE_F32, polar_optim_placed_bytes(s.opt));
    home_open(&s, &s.at[1], POLAR_DTYPE_F32, POLAR_DTYPE_F32, polar_optim_placed_bytes(s.opt));
    double first[2][MOST], w[MOST];
    map_fill(w, elements(0), 300);
    for (int run = 0; run < 2; run++) {
        home *h = &s.at[run];
        for (int i = 0; i < PARAMS; i++) {
            map_fill(w, elements(i), 300 + (uint64_t)i);
            TEST_TRY(pl_mat_upload_f64(s.q, &h->W[i], w));
        }
        give_grads(&s, h, 0);
        give_rates(&s, h, 0);
        TEST_TRY(place(&s, h));
        TEST_TRY(polar_optim_restart(s.opt, s.q));
        for (int t = 0; t <= run; t++) { /* the second run goes on a step, and begins again */
            if (t) {
                map_fill(w, elements(0), 300);
                TEST_TRY(pl_mat_upload_f64(s.q, &h->W[0], w));
                TEST_TRY(polar_optim_restart(s.opt, s.q));
            }
            TEST_TRY(polar_optim_step(s.opt, s.q));
        }
        TEST_TRY(pl_mat_download_f64(s.q, &h->W[0], first[run]));
    }
    polar_cost cost;
    polar_status st;
    int64_t n = 0, before = pl_alloc_live(), bad = 0;
    do {
        pl_alloc_fail_at(++n);
        st = polar_optim_restart(s.opt, s.q);
        pl_alloc_fail_at(0);
        /* an upload that failed is the queue's first error, and told at once */
        bad += polar_queue_sync(s.q) != POLAR_OK && st == POLAR_OK;
        bad += pl_alloc_live() != before;
        bad += st != POLAR_OK && (st != POLAR_E_NOMEM || polar_optim_get_step(s.opt) != 1);
    } while (st != POLAR_OK && n < 100);
    test_true("begun again without memory: not, and nothing stays", !bad && n > 1 && n < 100,
              "%lld wrong of %lld", (long long)bad, (long long)n);
    TEST_TRY(polar_optim_step(s.opt, s.q));
    TEST_TRY(polar_queue_dry_begin(s.q));
    TEST_TRY(polar_optim_restart(s.opt, s.q));
    TEST_TRY(polar_queue_dry_end(s.q, &cost));
    test_true("begun again in a dry run: nothing is", polar_optim_get_step(s.opt) == 1, "%lld steps",
              (long long)polar_optim_get_step(s.opt));
    test_exact("begun again: the first step's bits", map_mismatches(first[0], first[1], elements(0)));
    polar_param_stats stats[PARAMS];
    spoil(&s, &s.at[1].state);
    TEST_TRY(polar_optim_stats(s.opt, s.q, stats));
    test_true("a state of NaN tells of no steps",
              !stats[0].steps && !stats[0].skipped && !polar_optim_get_step(s.opt), "%lld, %lld, %lld",
              (long long)stats[0].steps, (long long)stats[0].skipped, (long long)polar_optim_get_step(s.opt));
    side_close(&s);
}

#define REFUSED(line, code, call)                                                                    \
    do {                                                                                             \
        polar_status st_ = (call);                                                                   \
        test_true(line, st_ == (code), "%s", st_ == POLAR_OK ? "was taken" : polar_error_message()); \
    } while (0)

static void refusals(const char *device)
{
    side s, own;
    void *weights[PARAMS], *grads[PARAMS];
    polar_optim *none;
    polar_optim_opts o = options("muon");
    side_open(&own, device, o, POLAR_DTYPE_F32, POLAR_DTYPE_F32);
    o.placed = 1;
    side_open(&s, device, o, POLAR_DTYPE_F32, POLAR_DTYPE_F32);
    home *h = &s.at[0];
    pl_mat_free(&h->state, s.dev);
    const size_t bytes = polar_optim_placed_bytes(s.opt);
    TEST_TRY(pl_mat_alloc(&h->state, s.dev, POLAR_DTYPE_F64, 1, 1, (int64_t)(bytes + 71) / 8));
    for (int i = 0; i < PARAMS; i++) weights[i] = h->W[i].data, grads[i] = h->G[i].data;
    char *state = h->state.data;

    polar_tensor view;
    REFUSED("no place yet: a step", POLAR_E_STATE, polar_optim_step(s.opt, s.q));
    REFUSED("no place yet: its state", POLAR_E_STATE,
            polar_optim_state_view(&view, s.opt, 0, POLAR_STATE_MOMENTUM));
    REFUSED("no place yet: begun again", POLAR_E_STATE, polar_optim_restart(s.opt, s.q));
    REFUSED("one with a state of its own", POLAR_E_STATE,
            polar_optim_place(own.opt, weights, grads, PARAMS, state));
    REFUSED("another number of parameters", POLAR_E_ARG,
            polar_optim_place(s.opt, weights, grads, PARAMS - 1, state));
    REFUSED("an odd address of state", POLAR_E_ARG,
            polar_optim_place(s.opt, weights, grads, PARAMS, state + 8));
    weights[1] = NULL;
    REFUSED("a weight without data", POLAR_E_ARG, polar_optim_place(s.opt, weights, grads, PARAMS, state));
    weights[1] = state + 4;
    REFUSED("a weight in the state", POLAR_E_ARG, polar_optim_place(s.opt, weights, grads, PARAMS, state));
    weights[1] = (char *)h->W[0].data + 4;
    REFUSED("weights that meet", POLAR_E_ARG, polar_optim_place(s.opt, weights, grads, PARAMS, state));
    weights[1] = h->W[1].data;
    grads[0] = h->W[1].data;
    REFUSED("a gradient on a weight", POLAR_E_ARG, polar_optim_place(s.opt, weights, grads, PARAMS, state));
    REFUSED("... and no step then", POLAR_E_STATE, polar_optim_step(s.opt, s.q));
    grads[0] = state + 4;
    REFUSED("a gradient in the state", POLAR_E_ARG, polar_optim_place(s.opt, weights, grads, PARAMS, state));
    grads[0] = h->G[0].data;
    TEST_TRY(polar_optim_place(s.opt, weights, grads, PARAMS, state));
    void *was = weights[0];
    weights[0] = grads[0];
    REFUSED("a weight that moved onto a gradient that stays", POLAR_E_ARG,
            polar_optim_place(s.opt, weights, grads, PARAMS, state));
    weights[0] = was;
    for (int k = 0; k < 4; k++) {
        TEST_TRY(polar_optim_place(s.opt, weights, grads, PARAMS, state));
        was = weights[2];
        weights[2] = k == 3 ? NULL : was;
        const polar_status st = polar_optim_place(s.opt, weights, k == 0 ? NULL : grads,
                                                  k == 1 ? PARAMS + 1 : PARAMS, k == 2 ? state + 8 : state);
        weights[2] = was;
        test_true("a place that is refused", st == POLAR_E_ARG, "%d", (int)st);
        REFUSED("... leaves none", POLAR_E_STATE, polar_optim_step(s.opt, s.q));
    }
    REFUSED("too few rates", POLAR_E_ARG, polar_optim_set_rates(s.opt, h->rates.data, PARAMS));
    o.skip_missing = 0;
    REFUSED("counts that are not in the state", POLAR_E_ARG,
            polar_optim_create(&none, s.dev, s.params, PARAMS, &o));
    o.placed = 2;
    REFUSED("placed 2", POLAR_E_ARG, polar_optim_create(&none, s.dev, s.params, PARAMS, &o));
    o.placed = 0;
    TEST_TRY(polar_optim_create(&none, s.dev, own.params, PARAMS, &o));
    REFUSED("rates where the host counts the steps", POLAR_E_STATE,
            polar_optim_set_rates(none, h->rates.data, RATES));
    polar_optim_destroy(none);
    side_close(&s);
    side_close(&own);
}

int main(int argc, char **argv)
{
    const char *device = test_begin(argc, argv);
    for (int i = 0; polar_rule_name(i); i++)
        wanders(device, polar_rule_name(i), POLAR_DTYPE_F32, POLAR_DTYPE_F32);
    for (int i = 0; i < 3; i++) {
        const char *rule = (const char *const[]){"polaradamw", "normuon", "soap"}[i];
        wanders(device, rule, POLAR_DTYPE_BF16, POLAR_DTYPE_BF16);
        wanders(device, rule, POLAR_DTYPE_F64, POLAR_DTYPE_F64);
    }
    goes_back(device);
    refusals(device);
    return test_end();
}
