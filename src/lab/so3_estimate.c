/* so3_estimate.c -- what an SO(3) run will cost, by dry runs: a pass over a batch, the optimiser's step, and both times their number.
 *
 *     ./polar plan specs/paper/so3_capacity.yaml
 */
#include "base/alloc.h"
#include "lab/so3_train.h"

/* An optimiser over the parameters of a small stand-in: its weights have the run's shapes, its batch is one cloud of one point. */
static polar_status make_optimiser(polar_optim **out, polar_device *dev, pl_so3 *model, const polar_optim_opts *opts)
{
    int64_t n;
    pl_param *p = pl_so3_params(model, &n);
    polar_param *params = pl_calloc((size_t)n, sizeof *params);
    PL_NEED(params, POLAR_E_NOMEM, "a list of %lld parameters", (long long)n);
    for (int64_t i = 0; i < n; i++) {
        params[i].name = p[i].name;
        params[i].weight = p[i].ndim == 2 ? polar_tensor_2d(p[i].W.data, p[i].W.dtype, p[i].rows, p[i].cols) : polar_tensor_1d(p[i].W.data, p[i].W.dtype, p[i].cols);
        params[i].grad = params[i].weight;
        params[i].grad.data = p[i].G.data;
    }
    polar_status st = polar_optim_create(out, dev, params, n, opts);
    pl_free(params);
    return st;
}

static polar_status count_routes(pl_estimate *e, polar_optim *opt, polar_queue *q)
{
    int64_t n = polar_optim_param_count(opt);
    polar_param_stats *stats = pl_calloc((size_t)n, sizeof *stats);
    PL_NEED(stats, POLAR_E_NOMEM, "a list of %lld parameters", (long long)n);
    polar_status st = polar_optim_stats(opt, q, stats);
    for (int64_t i = 0; i < n && st == POLAR_OK; i++) {
        int64_t weights = stats[i].rows * stats[i].cols * (stats[i].blocks > 1 ? stats[i].blocks : 1);
        *(stats[i].route == POLAR_ROUTE_MATRIX ? &e->matrix_arrays : &e->aux_arrays) += 1;
        *(stats[i].route == POLAR_ROUTE_MATRIX ? &e->matrix_weights : &e->aux_weights) += weights;
    }
    pl_free(stats);
    return st;
}

static polar_status estimate_step(pl_estimate *e, polar_device *dev, const pl_so3_shape *shape, const polar_optim_opts *opts)
{
    pl_so3_shape small = *shape;
    pl_so3 *model = NULL;
    polar_optim *opt = NULL;
    polar_queue *q = NULL;
    small.batch = small.points = 1;
    polar_status st = pl_so3_create(&model, dev, &small, 1);
    if (st == POLAR_OK) st = polar_queue_create(&q, dev, NULL);
    if (st == POLAR_OK) st = make_optimiser(&opt, dev, model, opts);
    if (st == POLAR_OK) st = polar_queue_dry_begin(q);
    if (st == POLAR_OK) {
        polar_status step = polar_optim_step(opt, q);
        st = polar_queue_dry_end(q, &e->step);
        if (step != POLAR_OK) st = step;
    }
    if (st == POLAR_OK) st = count_routes(e, opt, q);
    if (st == POLAR_OK) {
        e->memory += polar_optim_state_bytes(opt);
        e->routes = pl_strdup(polar_optim_report(opt));
        if (!e->routes) st = PL_FAIL(POLAR_E_NOMEM, "a table of routes");
    }
    polar_optim_destroy(opt);
    polar_queue_destroy(q);
    pl_so3_destroy(model);
    return st;
}

static double whole_batches(int64_t clouds, int64_t batch)
{
    return (double)((clouds + batch - 1) / batch);
}

polar_status pl_so3_estimate(pl_estimate *out, polar_device *dev, const pl_config *c)
{
    pl_so3_settings s;
    pl_model_bytes memory;
    *out = (pl_estimate){0};
    PL_TRY(pl_so3_settings_read(&s, c));
    pl_so3_shape shape = {.members = 1, .batch = s.batch, .points = s.points, .width = s.width, .layers = s.layers, .dtype = s.dtype, .eps = s.eps};
    PL_TRY(pl_so3_cost(&out->pass, &memory, dev, &shape, 1));
    PL_TRY(pl_so3_cost(&out->look, NULL, dev, &shape, 0));
    out->memory = memory.weights * 2 + memory.gradients + memory.activations;    /* twice: the best epoch's */
    PL_TRY(estimate_step(out, dev, &shape, &s.optim));
    size_t scratch = out->pass.scratch_bytes > out->step.scratch_bytes ? out->pass.scratch_bytes : out->step.scratch_bytes;
    out->memory += scratch;
    out->epochs = s.epochs;
    out->steps = s.steps;
    double steps = (double)s.epochs * (double)s.steps, looks = (double)s.epochs * whole_batches(s.valid, s.batch) + whole_batches(s.test, s.batch);
    out->flops = steps * (out->pass.flops + out->step.flops) + looks * out->look.flops;
    out->bytes = steps * (out->pass.bytes + out->step.bytes) + looks * out->look.bytes;
    return POLAR_OK;
}
