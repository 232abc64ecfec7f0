/* param.c -- see param.h. */
#include "nn/param.h"

#include "base/alloc.h"

#define DRY_BASE ((uintptr_t)1 << 52) /* far from any memory, and from a dry run's scratch */

static polar_status commit(polar_device *dev, char **out, size_t bytes)
{
    void *p = NULL;
    if (bytes) PL_TRY(polar_device_alloc(dev, &p, bytes));
    *out = p;
    return POLAR_OK;
}

polar_status pl_model_memory_commit(pl_model_memory *m, polar_device *dev)
{
    polar_status st = commit(dev, &m->weights, m->bytes.weights);
    if (st == POLAR_OK) st = commit(dev, &m->gradients, m->bytes.gradients);
    if (st == POLAR_OK) st = commit(dev, &m->activations, m->bytes.activations);
    if (st != POLAR_OK) pl_model_memory_release(m, dev);
    return st;
}

char *pl_model_memory_pretend(pl_model_memory *m)
{
    m->weights = (char *)DRY_BASE;
    m->gradients = m->weights + m->bytes.weights;
    m->activations = m->gradients + m->bytes.gradients;
    return m->activations + m->bytes.activations;
}

void pl_model_memory_release(pl_model_memory *m, polar_device *dev)
{
    polar_device_free(dev, m->weights);
    polar_device_free(dev, m->gradients);
    polar_device_free(dev, m->activations);
    m->weights = m->gradients = m->activations = NULL;
}

void pl_params_point(pl_param *params, int64_t count, polar_dtype dtype, int64_t members, int training,
                     pl_arena *weights, pl_arena *gradients)
{
    for (pl_param *p = params; p < params + count; p++) {
        p->W = pl_arena_mat(weights, dtype, members, p->rows, p->cols);
        p->G = training ? pl_arena_mat(gradients, dtype, members, p->rows, p->cols)
                        : pl_mat_dense(NULL, dtype, members, p->rows, p->cols);
    }
}

polar_status pl_params_draw(const pl_param *params, int64_t count, polar_queue *q, const uint64_t *seeds,
                            pl_param_initial initial)
{
    polar_status st = POLAR_OK;
    int64_t most = 0, members = count ? params[0].W.batch : 0;
    for (int64_t k = 0; k < count; k++)
        if (params[k].rows * params[k].cols > most) most = params[k].rows * params[k].cols;
    double *w = pl_alloc((size_t)(most * members) * sizeof *w);
    PL_NEED(w, POLAR_E_NOMEM, "initial weights of %lld members", (long long)members);
    for (int64_t k = 0; k < count && st == POLAR_OK; k++) {
        const pl_param *p = &params[k];
        int64_t n = p->rows * p->cols;
        for (int64_t e = 0; e < members; e++)
            for (int64_t i = 0; i < n; i++) w[e * n + i] = initial(p, k, seeds[e], i);
        st = pl_mat_upload_f64(q, &p->W, w);
    }
    pl_free(w);
    return st;
}
