/* rule_covariance.c -- two optimisers, one history of gradients and its rotation, and how far apart they end.
 *
 * Samples are members of the optimiser: (batch, n, m) weights and gradients, one call a step for all of them.
 * Draws are functions of seed, shape, sample and step alone, so neither the batch nor T nor the rule changes
 * them.
 */
#include "verify/rule_covariance.h"

#include <math.h>

#include "base/alloc.h"
#include "polar/optim.h"
#include "verify/conjugate.h"
#include "verify/covariance.h"

/* a power of two: changes no digit but where eps of AdamW is felt */
#define LR             0x1p-8
#define CAUTIOUS_DECAY 0.1 /* without any there is nothing to be cautious about */
#define SCALING        3.0 /* no power of two, which would change no digit */
/* of a history: 9 MiB in double, and as much for its rotation */
#define BATCH_ELEMENTS ((int64_t)2 * 768 * 768)
#define BATCH_MAX      100

const char *pl_rule_precision_key(pl_rule_precision precision)
{
    static const char *const keys[PL_RULE_PRECISIONS] = {"fp64", "fp32", "bf16_reference", "bf16_fused"};
    return precision >= 0 && precision < PL_RULE_PRECISIONS ? keys[precision] : NULL;
}

int pl_rule_has(const pl_rule_row *row, pl_rule_precision precision)
{
    return row->polar || precision == PL_RULE_FP64 || precision == PL_RULE_FP32;
}

int64_t pl_rule_samples(int64_t n, int64_t m, int quick)
{
    int64_t small = n < m ? n : m;
    if (quick) return small <= 32 ? 40 : small >= 512 ? 1 : 4;
    return small <= 32 ? 200 : small >= 512 ? 2 : 20;
}

static int64_t batch_of(int64_t n, int64_t m, int64_t steps, int64_t samples)
{
    int64_t side = n > m ? n : m, history = steps * n * m,
            fits = BATCH_ELEMENTS / (history > side * side ? history : side * side);
    if (fits > BATCH_MAX) fits = BATCH_MAX;
    if (fits < 1) fits = 1;
    return fits < samples ? fits : samples;
}

/* One number format: the pair of histories, the pair of weights, the triples' P and Q. */
typedef struct pipeline {
    pl_conj c;   /* G, R: the gradients of a step; F, H: what is compared */
    pl_mat g, r; /* (steps batch, n, m): g_t and P g_t Q^T, step by step */
    pl_mat W, V; /* (batch, n, m): weights of the two optimisers */
} pipeline;

typedef struct work {
    pl_queue *q;
    int64_t n, m, steps, samples;
    pl_rule_group group;
    pipeline in64, in32;
    pl_conj_host host;
    /* 2 batch pairs of the update, 2 batch of the weights, see pl_conj_measure */
    pl_mat norms;
    double *pairs;              /* norms, downloaded */
    double *noise, *update;     /* (batch, n, m) each */
    double *deviation, *weight; /* (precisions, samples) each */
    double spectral[PL_RULE_PRECISIONS];
} work;

static polar_status pipeline_create(pipeline *p, pl_device *dev, polar_dtype dtype, int64_t batch,
                                    const work *w)
{
    PL_TRY(pl_conj_create(&p->c, dev, dtype, batch, w->n, w->m));
    PL_TRY(pl_mat_alloc(&p->g, dev, dtype, w->steps * batch, w->n, w->m));
    PL_TRY(pl_mat_alloc(&p->r, dev, dtype, w->steps * batch, w->n, w->m));
    PL_TRY(pl_mat_alloc(&p->W, dev, dtype, batch, w->n, w->m));
    return pl_mat_alloc(&p->V, dev, dtype, batch, w->n, w->m);
}

static void pipeline_destroy(pipeline *p, pl_device *dev)
{
    pl_mat *all[] = {&p->g, &p->r, &p->W, &p->V};
    pl_conj_destroy(&p->c, dev);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) pl_mat_free(all[i], dev);
}

static polar_status work_create(work *w, int64_t batch)
{
    size_t count = (size_t)(batch * w->n * w->m), rows = (size_t)(PL_RULE_PRECISIONS * w->samples);
    PL_TRY(pipeline_create(&w->in64, w->q->dev, POLAR_DTYPE_F64, batch, w));
    PL_TRY(pipeline_create(&w->in32, w->q->dev, POLAR_DTYPE_F32, batch, w));
    PL_TRY(pl_conj_host_create(&w->host, batch, w->n, w->m));
    PL_TRY(pl_mat_alloc(&w->norms, w->q->dev, POLAR_DTYPE_F64, 4 * batch, 1, 2));
    w->pairs = pl_alloc(pl_mat_bytes(&w->norms));
    w->noise = pl_alloc(count * sizeof(double));
    w->update = pl_alloc(count * sizeof(double));
    w->deviation = pl_alloc(rows * sizeof(double));
    w->weight = pl_alloc(rows * sizeof(double));
    PL_NEED(w->pairs && w->noise && w->update && w->deviation && w->weight, POLAR_E_NOMEM,
            "the updates of %lld samples", (long long)w->samples);
    return POLAR_OK;
}

static void work_destroy(work *w)
{
    pipeline_destroy(&w->in64, w->q->dev);
    pipeline_destroy(&w->in32, w->q->dev);
    pl_conj_host_destroy(&w->host);
    pl_mat_free(&w->norms, w->q->dev);
    double *all[] = {w->pairs, w->noise, w->update, w->deviation, w->weight};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) pl_free(all[i]);
}

/* The first `batch` members of everything; histories stay as long as they are. */
static pipeline pipeline_at(const pipeline *p, int64_t batch)
{
    return (pipeline){.c = pl_conj_at(&p->c, batch),
                      .g = p->g,
                      .r = p->r,
                      .W = pl_mat_at(p->W, 0, batch),
                      .V = pl_mat_at(p->V, 0, batch)};
}

static pl_mat step_of(const pipeline *p, pl_mat history, int64_t t)
{
    return pl_mat_at(history, t * p->c.batch, p->c.batch);
}

/* ---- the histories ---- */

static void identity(double *x, int64_t n)
{
    for (int64_t i = 0; i < n * n; i++) x[i] = i / n == i % n;
}

/* The permutation that sorts the first column of an orthogonal matrix, in its place. */
static void permutation(double *x, double *column, int64_t n)
{
    for (int64_t i = 0; i < n; i++) column[i] = x[i * n];
    for (int64_t i = 0; i < n; i++) {
        int64_t place = 0;
        for (int64_t k = 0; k < n; k++) place += column[k] < column[i] || (column[k] == column[i] && k < i);
        for (int64_t k = 0; k < n; k++) x[i * n + k] = k == place;
    }
}

/* P and Q of the group in the place of those that were drawn. */
static polar_status choose_group(const work *w, const pl_conj *c)
{
    const pl_rule_group group = w->group;
    for (int64_t b = 0; b < c->batch && group != PL_RULE_BOTH; b++) {
        double *P = w->host.P + b * w->n * w->n, *Q = w->host.Q + b * w->m * w->m;
        if (group == PL_RULE_PERMUTATION) permutation(P, w->noise, w->n), permutation(Q, w->noise, w->m);
        if (group == PL_RULE_RIGHT || group == PL_RULE_SCALING) identity(P, w->n);
        if (group == PL_RULE_LEFT || group == PL_RULE_SCALING) identity(Q, w->m);
    }
    if (group == PL_RULE_BOTH) return POLAR_OK;
    PL_TRY(pl_mat_upload_f64(w->q, &c->P, w->host.P));
    return pl_mat_upload_f64(w->q, &c->Q, w->host.Q);
}

/* The other optimiser's gradients. */
static void transform(const work *w, const pl_conj *c, pl_mat Y, pl_mat X)
{
    if (w->group == PL_RULE_SCALING) PL_CALL(axpby, w->q, .Y = Y, .X = X, .alpha = SCALING);
    else pl_conj_rotate(c, w->q, Y, X);
}

/* g_t = C + N_t, rounded to fp32 so that both formats have the same gradients; each format rotates them for
 * itself. */
static polar_status draw_histories(const work *w, const pipeline *a, const pipeline *s, uint64_t seed,
                                   int64_t first)
{
    int64_t size = w->n * w->m;
    PL_TRY(pl_conj_draw(&a->c, w->q, seed, first, &w->host)); /* P, Q, and G is C */
    PL_TRY(choose_group(w, &a->c));
    pl_conj_copy_inputs(&s->c, &a->c, w->q);
    for (int64_t t = 0; t < w->steps; t++) {
        for (int64_t b = 0; b < a->c.batch; b++) {
            double *x = w->noise + b * size;
            const double *common = w->host.G + b * size;
            pl_draw_normal(x, size,
                           &(pl_draw){.seed = seed,
                                      .kind = PL_DRAW_OTHER,
                                      .rows = w->n,
                                      .cols = w->m,
                                      .sample = (first + b) * PL_RULE_MAX_STEPS + t});
            for (int64_t i = 0; i < size; i++) x[i] = (double)(float)(common[i] + x[i]);
        }
        pl_mat g64 = step_of(a, a->g, t), g32 = step_of(s, s->g, t);
        PL_TRY(pl_mat_upload_f64(w->q, &g64, w->noise));
        PL_CALL(copy, w->q, .Y = g32, .X = g64);
        transform(w, &a->c, step_of(a, a->r, t), g64);
        transform(w, &s->c, step_of(s, s->r, t), g32);
    }
    return POLAR_OK;
}

/* ---- the optimisers ---- */

/* A batch of one is no ensemble: its tensors have two dimensions. */
static polar_tensor member_tensor(const pl_mat *x)
{
    return x->batch > 1 ? pl_mat_tensor(x) : polar_tensor_2d(x->data, x->dtype, x->rows, x->cols);
}

/* The step looks at the weights, so these begin at the first gradient, and its rotation: zero is a fixed
 * point of a hyperball, and has no sign. */
static int starts_away(const polar_rule *rule)
{
    return rule->apply == POLAR_APPLY_CAUTIOUS || rule->apply >= POLAR_APPLY_HYPERBALL;
}

static polar_status optim_create(polar_optim **out, pl_device *dev, const pl_mat *W, const pl_mat *G,
                                 const polar_rule *rule)
{
    polar_optim_opts o = POLAR_OPTIM_OPTS_INIT;
    polar_param p = {
        .name = "W", .weight = member_tensor(W), .grad = member_tensor(G), .route = POLAR_ROUTE_MATRIX};
    o.rule = *rule;
    o.lr = LR;
    o.weight_decay = rule->apply == POLAR_APPLY_CAUTIOUS ? CAUTIOUS_DECAY : 0;
    o.members = W->batch;
    return polar_optim_create(out, dev, &p, 1, &o);
}

/* The whole history through both; afterwards W, V are the weights and c.F, c.H the last updates. */
static polar_status run_steps(const work *w, const pipeline *p, polar_optim *plain, polar_optim *rotated)
{
    pl_queue *q = w->q;
    for (int64_t t = 0; t < w->steps; t++) {
        PL_CALL(copy, q, .Y = p->c.G, .X = step_of(p, p->g, t));
        PL_CALL(copy, q, .Y = p->c.R, .X = step_of(p, p->r, t));
        if (t == w->steps - 1) {
            PL_CALL(copy, q, .Y = p->c.F, .X = p->W);
            PL_CALL(copy, q, .Y = p->c.H, .X = p->V);
        }
        PL_TRY(polar_optim_step(plain, q));
        PL_TRY(polar_optim_step(rotated, q));
    }
    PL_CALL(axpby, q, .Y = p->c.F, .X = p->W, .Z = p->c.F, .alpha = 1, .beta = -1);
    PL_CALL(axpby, q, .Y = p->c.H, .X = p->V, .Z = p->c.H, .alpha = 1, .beta = -1);
    return POLAR_OK;
}

/* *largest = max(*largest, ||X||_2 / unit) over the batch; a NaN stays visible. */
static polar_status spectral_max(double *largest, const work *w, const pl_mat *X, double unit)
{
    int64_t size = w->n * w->m;
    PL_TRY(pl_mat_download_f64(w->q, X, w->update));
    for (int64_t b = 0; b < X->batch; b++) {
        const double *x = w->update + b * size;
        double norm = NAN, sum = 0;
        for (int64_t i = 0; i < size; i++) sum += x[i];
        /* LAPACK is not asked about a NaN */
        if (isfinite(sum)) PL_TRY(pl_singular_range(&norm, NULL, x, w->n, w->m));
        if (!isnan(*largest) && !(norm / unit <= *largest)) *largest = norm / unit;
    }
    return POLAR_OK;
}

/* One rule in one precision over one batch. */
static polar_status measure_precision(work *w, const pipeline *p, const polar_rule *rule,
                                      pl_rule_precision precision, int64_t done)
{
    int64_t batch = p->c.batch;
    pl_mat update = pl_mat_at(w->norms, 0, 2 * batch), weight = pl_mat_at(w->norms, 2 * batch, 2 * batch);
    double unit = LR * (rule->map.kind == POLAR_MAP_NONE ? 1 : polar_scale_value(rule->scale, w->n, w->m)) *
                  (rule->radius != 0 ? rule->radius : 1);
    polar_optim *plain = NULL, *rotated = NULL;
    /* zero, or the first gradient */
    int from = starts_away(rule);
    PL_CALL(axpby, w->q, .Y = p->W, .X = step_of(p, p->g, 0), .Z = step_of(p, p->g, 0), .alpha = 1,
            .beta = from ? 0 : -1);
    pl_mat other = step_of(p, w->group == PL_RULE_SCALING ? p->g : p->r, 0); /* weights do not scale */
    PL_CALL(axpby, w->q, .Y = p->V, .X = other, .Z = other, .alpha = 1, .beta = from ? 0 : -1);
    polar_status st = optim_create(&plain, w->q->dev, &p->W, &p->c.G, rule);
    if (st == POLAR_OK) st = optim_create(&rotated, w->q->dev, &p->V, &p->c.R, rule);
    if (st == POLAR_OK) st = run_steps(w, p, plain, rotated);
    if (st != POLAR_OK) goto done;
    pl_conj_measure(&p->c, w->q, update);
    st = spectral_max(&w->spectral[precision], w, &p->c.F, unit);
    if (st == POLAR_OK) st = spectral_max(&w->spectral[precision], w, &p->c.H, unit);
    if (st != POLAR_OK) goto done;
    PL_CALL(copy, w->q, .Y = p->c.F, .X = p->W);
    PL_CALL(copy, w->q, .Y = p->c.H, .X = p->V);
    pl_conj_measure(&p->c, w->q, weight);
    polar_queue_download(w->q, w->pairs, w->norms.data, (size_t)(4 * batch) * 2 * sizeof(double));
    st = polar_queue_sync(w->q);
    for (int64_t b = 0; b < batch && st == POLAR_OK; b++) {
        w->deviation[precision * w->samples + done + b] = pl_conj_delta(w->pairs, batch, b);
        w->weight[precision * w->samples + done + b] = pl_conj_delta(w->pairs + 4 * batch, batch, b);
    }
done:
    if (st != POLAR_OK) (void)polar_queue_sync(w->q); /* nothing may still use what is freed now */
    polar_optim_destroy(plain);
    polar_optim_destroy(rotated);
    return st;
}

/* ---- one row ---- */

static polar_status map_for(polar_map_opts *map, pl_rule_precision precision)
{
    static const char *const names[PL_RULE_PRECISIONS] = {"ns_fp64", "ns_fp32", "ns_bf16_reference",
                                                          "ns_bf16_fused"};
    return map->kind != POLAR_MAP_NEWTON_SCHULZ ? POLAR_OK : polar_map_opts_parse(map, names[precision]);
}

/* Samples done .. done + batch of those asked for. */
static polar_status measure_batch(work *w, const pl_rule_row *row, const polar_rule *rule,
                                  const pl_rule_opts *opts, int64_t done, int64_t batch)
{
    pipeline a = pipeline_at(&w->in64, batch), s = pipeline_at(&w->in32, batch);
    PL_TRY(draw_histories(w, &a, &s, opts->seed, opts->first + done));
    for (pl_rule_precision p = 0; p < PL_RULE_PRECISIONS; p++) {
        polar_rule r = *rule;
        if (!pl_rule_has(row, p)) continue;
        PL_TRY(map_for(&r.map, p));
        PL_TRY(measure_precision(w, p == PL_RULE_FP64 ? &a : &s, &r, p, done));
    }
    return POLAR_OK;
}

polar_status pl_rule_covariance_measure(pl_rule_row *out, polar_queue *q, const char *rule, int64_t n,
                                        int64_t m, const pl_rule_opts *opts)
{
    int64_t steps = opts->steps ? opts->steps : PL_RULE_STEPS;
    PL_NEED(n >= 1 && m >= 1 && n <= PL_COV_MAX_SIDE && m <= PL_COV_MAX_SIDE && opts->samples >= 1 &&
                opts->first >= 0 && steps >= 1 && steps <= PL_RULE_MAX_STEPS,
            POLAR_E_ARG,
            "%lld steps of a rule on %lldx%lld matrices over %lld samples: sides from 1 to %d, 1 to %d steps "
            "and a sample at least are wanted",
            (long long)steps, (long long)n, (long long)m, (long long)opts->samples, PL_COV_MAX_SIDE,
            PL_RULE_MAX_STEPS);
    polar_rule r;
    PL_TRY(polar_rule_parse(&r, rule));
    *out = (pl_rule_row){.rule = rule,
                         .polar = r.map.kind == POLAR_MAP_NEWTON_SCHULZ,
                         .n = n,
                         .m = m,
                         .steps = steps,
                         .samples = opts->samples};
    work w = {.q = q, .n = n, .m = m, .steps = steps, .samples = opts->samples, .group = opts->group};
    int64_t batch = batch_of(n, m, steps, opts->samples);
    polar_status st = work_create(&w, batch);
    for (int64_t done = 0; done < opts->samples && st == POLAR_OK; done += batch) {
        int64_t rest = opts->samples - done;
        st = measure_batch(&w, out, &r, opts, done, rest < batch ? rest : batch);
    }
    for (pl_rule_precision p = 0; p < PL_RULE_PRECISIONS; p++) {
        pl_rule_measure *x = &out->at[p];
        double sd;
        *x = (pl_rule_measure){NAN, NAN, NAN, NAN};
        if (st != POLAR_OK || !pl_rule_has(out, p)) continue;
        pl_mean_and_sd(&x->deviation_mean, &x->deviation_sd, w.deviation + p * w.samples, w.samples);
        pl_mean_and_sd(&x->weight_deviation_mean, &sd, w.weight + p * w.samples, w.samples);
        x->spectral_norm_max = w.spectral[p];
    }
    if (st != POLAR_OK) (void)polar_queue_sync(q); /* nothing may still use what is freed now */
    work_destroy(&w);
    return st;
}

polar_status pl_rule_symmetry_measure(pl_rule_symmetry *out, polar_queue *q, const char *rule, int64_t n,
                                      int64_t m, const pl_rule_opts *opts)
{
    pl_rule_opts o = *opts;
    pl_rule_row row;
    *out = (pl_rule_symmetry){.rule = rule, .n = n, .m = m, .samples = opts->samples};
    for (o.group = PL_RULE_BOTH; o.group < PL_RULE_GROUPS; o.group++) {
        for (pl_rule_precision p = 0; p < PL_RULE_PRECISIONS; p++) out->deviation[o.group][p] = NAN;
        if (o.group == PL_RULE_BOTH) continue;
        PL_TRY(pl_rule_covariance_measure(&row, q, rule, n, m, &o));
        for (pl_rule_precision p = 0; p < PL_RULE_PRECISIONS; p++)
            out->deviation[o.group][p] = row.at[p].deviation_mean;
        out->steps = row.steps;
    }
    return POLAR_OK;
}

const char *pl_rule_class(const pl_rule_symmetry *s)
{
    static const char *const names[] = {"neither", "right", "left", "both"};
    return names[2 * (s->deviation[PL_RULE_LEFT][PL_RULE_FP64] <= PL_RULE_HAS_IT) +
                 (s->deviation[PL_RULE_RIGHT][PL_RULE_FP64] <= PL_RULE_HAS_IT)];
}
