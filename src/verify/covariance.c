/* covariance.c -- one row of the paper's covariance table: draws, both pipelines, every map, means over
 * samples.
 *
 * phi(G) of the double-precision maps serves both pipelines, since G is drawn with fp32 entries: of four
 * decompositions per sample three remain.
 *     ./polar verify --shapes 192x768
 */
#include "verify/covariance.h"

#include <math.h>

#include "base/alloc.h"
#include "verify/conjugate.h"

#define RHO0_EPS       1e-30                    /* the paper's */
#define BATCH_ELEMENTS ((int64_t)4 * 768 * 768) /* of the largest matrix of a batch: 18 MiB in double */
#define BATCH_MAX      100

const char *pl_covariance_key(pl_covariance_column column)
{
    static const char *const keys[PL_COV_COLUMNS] = {
        "polar",   "ns_fp64",           "polar_fp32_inputs", "ns_fp64_fp32_inputs",
        "ns_fp32", "ns_bf16_reference", "ns_bf16_fused",     "ns_fp16_fused",
        "rho0"};
    return column >= 0 && column < PL_COV_COLUMNS ? keys[column] : NULL;
}

int64_t pl_covariance_samples(int64_t n, int64_t m, int quick)
{
    int64_t small = n < m ? n : m;
    if (quick) return small <= 32 ? 100 : small >= 512 ? 4 : 10;
    return small <= 32 ? 1000 : 50;
}

int64_t pl_covariance_batch(int64_t n, int64_t m, int64_t samples)
{
    int64_t side = n > m ? n : m, fits = BATCH_ELEMENTS / (side * side);
    if (fits > BATCH_MAX) fits = BATCH_MAX;
    if (fits < 1) fits = 1;
    return fits < samples ? fits : samples;
}

typedef struct work {
    pl_conj c64, c32;
    pl_conj_host host;
    pl_mat norms;  /* per column 2 batch pairs, see pl_conj_measure */
    pl_live *rho;  /* of pl_rho */
    double *pairs; /* norms, downloaded */
    double *delta; /* (columns, samples) */
    polar_map_opts exact, fp64, fp32, reference, fused, fp16;
} work;

static polar_status work_create(work *w, pl_queue *q, int64_t batch, int64_t n, int64_t m,
                                const pl_covariance_opts *opts)
{
    int64_t samples = opts->samples;
    pl_device *dev = q->dev;
    *w = (work){0};
    PL_TRY(polar_map_opts_parse(&w->exact, "exact"));
    PL_TRY(polar_map_opts_parse(&w->fp64, "ns_fp64"));
    PL_TRY(polar_map_opts_parse(&w->fp32, "ns_fp32"));
    PL_TRY(polar_map_opts_parse(&w->reference, "ns_bf16_reference"));
    PL_TRY(polar_map_opts_parse(&w->fused, "ns_bf16_fused"));
    PL_TRY(polar_map_opts_parse(&w->fp16, "ns_fp16_fused"));
    polar_map_opts *iterated[] = {&w->fp64, &w->fp32, &w->reference, &w->fused, &w->fp16};
    for (int i = 0; i < 5 && opts->table; i++)
        iterated[i]->table = opts->table, iterated[i]->steps = opts->steps;
    PL_TRY(pl_conj_create(&w->c64, dev, POLAR_DTYPE_F64, batch, n, m));
    PL_TRY(pl_conj_create(&w->c32, dev, POLAR_DTYPE_F32, batch, n, m));
    PL_TRY(pl_conj_host_create(&w->host, batch, n, m));
    w->host.values = opts->values;
    PL_TRY(pl_mat_alloc(&w->norms, dev, POLAR_DTYPE_F64, PL_COV_COLUMNS * 2 * batch, 1, 2));
    PL_TRY(pl_rho_live(&w->rho, q, RHO0_EPS));
    w->pairs = pl_alloc(pl_mat_bytes(&w->norms));
    w->delta = pl_alloc((size_t)(PL_COV_COLUMNS * samples) * sizeof *w->delta);
    PL_NEED(w->pairs && w->delta, POLAR_E_NOMEM, "the deviations of %lld samples", (long long)samples);
    return POLAR_OK;
}

static void work_destroy(work *w, pl_device *dev)
{
    pl_conj_destroy(&w->c64, dev);
    pl_conj_destroy(&w->c32, dev);
    pl_conj_host_destroy(&w->host);
    pl_mat_free(&w->norms, dev);
    pl_live_destroy(w->rho);
    pl_free(w->pairs);
    pl_free(w->delta);
}

static pl_mat norms_of(const work *w, pl_covariance_column column, int64_t batch)
{
    return pl_mat_at(w->norms, column * 2 * batch, 2 * batch);
}

/* A map in double: through the true pipeline, then with fp32 inputs, where phi(G) is the same one rounded. */
static polar_status measure_double(const work *w, pl_queue *q, const pl_conj *a, const pl_conj *s,
                                   const polar_map_opts *map, pl_covariance_column truly,
                                   pl_covariance_column fp32_inputs)
{
    polar_tensor h = pl_mat_tensor(&s->H), r = pl_mat_tensor(&s->R);
    PL_TRY(pl_conj_apply(a, q, map));
    pl_conj_measure(a, q, norms_of(w, truly, a->batch));
    PL_CALL(copy, q, .Y = s->F, .X = a->F);
    PL_TRY(polar_map_apply(q, &h, &r, 1, map));
    pl_conj_measure(s, q, norms_of(w, fp32_inputs, a->batch));
    return POLAR_OK;
}

static polar_status measure_single(const work *w, pl_queue *q, const pl_conj *s, const polar_map_opts *map,
                                   pl_covariance_column column)
{
    PL_TRY(pl_conj_apply(s, q, map));
    pl_conj_measure(s, q, norms_of(w, column, s->batch));
    return POLAR_OK;
}

/* Samples first .. first + batch into w->delta. */
static polar_status measure_batch(work *w, pl_queue *q, uint64_t seed, int64_t first, int64_t batch,
                                  int64_t samples)
{
    pl_conj a = pl_conj_at(&w->c64, batch), s = pl_conj_at(&w->c32, batch);
    PL_TRY(pl_conj_draw(&a, q, seed, first, &w->host));
    pl_conj_copy_inputs(&s, &a, q);
    PL_TRY(measure_double(w, q, &a, &s, &w->exact, PL_COV_POLAR, PL_COV_POLAR_FP32_INPUTS));
    PL_TRY(measure_double(w, q, &a, &s, &w->fp64, PL_COV_NS_FP64, PL_COV_NS_FP64_FP32_INPUTS));
    PL_TRY(measure_single(w, q, &s, &w->fp32, PL_COV_NS_FP32));
    PL_TRY(measure_single(w, q, &s, &w->reference, PL_COV_NS_BF16_REFERENCE));
    PL_TRY(measure_single(w, q, &s, &w->fused, PL_COV_NS_BF16_FUSED));
    PL_TRY(measure_single(w, q, &s, &w->fp16, PL_COV_NS_FP16_FUSED));
    pl_rho(q, a.F, a.G, a.T, a.D, w->rho);
    pl_rho(q, a.H, a.R, a.T, a.D, w->rho);
    pl_conj_measure(&a, q, norms_of(w, PL_COV_RHO0, batch));
    polar_queue_download(q, w->pairs, w->norms.data,
                         (size_t)(PL_COV_COLUMNS * 2 * batch) * 2 * sizeof(double));
    PL_TRY(polar_queue_sync(q));
    for (int c = 0; c < PL_COV_COLUMNS; c++)
        for (int64_t b = 0; b < batch; b++)
            w->delta[c * samples + first + b] = pl_conj_delta(w->pairs + c * 4 * batch, batch, b);
    return POLAR_OK;
}

void pl_mean_and_sd(double *mean, double *sd, const double *x, int64_t n)
{
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < n; i++) sum += x[i];
    *mean = sum / (double)n;
    for (int64_t i = 0; i < n; i++) squares += (x[i] - *mean) * (x[i] - *mean);
    *sd = n > 1 ? sqrt(squares / (double)(n - 1)) : NAN;
}

polar_status pl_covariance_measure(pl_covariance_row *out, polar_queue *q, int64_t n, int64_t m,
                                   const pl_covariance_opts *opts)
{
    PL_NEED(n >= 1 && m >= 1 && n <= PL_COV_MAX_SIDE && m <= PL_COV_MAX_SIDE && opts->samples >= 1,
            POLAR_E_ARG,
            "covariance of %lldx%lld matrices over %lld samples: sides from 1 to %d and a sample at least "
            "are wanted",
            (long long)n, (long long)m, (long long)opts->samples, PL_COV_MAX_SIDE);
    PL_NEED(opts->values.rank >= 0 && opts->values.rank <= (n < m ? n : m), POLAR_E_ARG,
            "covariance of %lldx%lld matrices with %lld large singular values: they have %lld", (long long)n,
            (long long)m, (long long)opts->values.rank, (long long)(n < m ? n : m));
    int64_t batch = pl_covariance_batch(n, m, opts->samples);
    work w;
    polar_status st = work_create(&w, q, batch, n, m, opts);
    for (int64_t first = 0; first < opts->samples && st == POLAR_OK; first += batch) {
        int64_t rest = opts->samples - first;
        st = measure_batch(&w, q, opts->seed, first, rest < batch ? rest : batch, opts->samples);
        if (st == POLAR_OK && opts->progress)
            opts->progress(opts->progress_arg, rest < batch ? opts->samples : first + batch, opts->samples);
    }
    *out = (pl_covariance_row){.n = n, .m = m, .samples = opts->samples, .values = opts->values};
    for (int c = 0; c < PL_COV_COLUMNS && st == POLAR_OK; c++)
        pl_mean_and_sd(&out->mean[c], &out->sd[c], w.delta + c * opts->samples, opts->samples);
    if (st != POLAR_OK) (void)polar_queue_sync(q); /* nothing may still use what is freed now */
    work_destroy(&w, q->dev);
    return st;
}
