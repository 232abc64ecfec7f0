/* optim.c -- making an optimiser and unmaking it, its weights and state as others see them; where its memory
 * lies: optim_arena.c, that of others: optim_place.c. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "compose/map.h"
#include "device/backend.h"
#include "optim/optim_impl.h"
#include "optim/optim_layout.h"
#include "optim/shard.h"

/* ---- checks ------------------------------------------------------------------------------------- */

static int meet(const pl_mat *a, const pl_mat *b)
{
    return a->data && b->data && pl_mat_overlap(a, b);
}

static polar_status check_twice(const polar_optim *opt)
{
    for (int64_t i = 0; i < opt->n; i++) {
        PL_NEED(!meet(&opt->params[i].W, &opt->params[i].G), POLAR_E_ARG,
                "weight and gradient of '%s' overlap", opt->params[i].name);
        for (int64_t j = 0; j < i; j++) {
            const pl_optim_param *a = &opt->params[j], *b = &opt->params[i];
            PL_NEED(strcmp(a->name, b->name), POLAR_E_ARG, "two parameters are called '%s'", a->name);
            PL_NEED(!meet(&a->W, &b->W), POLAR_E_ARG,
                    "'%s' and '%s' are (partly) the same weights: give shared weights once", a->name,
                    b->name);
            PL_NEED(!a->schur_group || a->schur_group != b->schur_group ||
                        (a->W.dtype == POLAR_DTYPE_F64) == (b->W.dtype == POLAR_DTYPE_F64),
                    POLAR_E_DTYPE, "'%s' and '%s' share a norm and must both be f64 or both not", a->name,
                    b->name);
            PL_NEED(
                !a->schur_group || a->schur_group != b->schur_group ||
                    opt->group[a->group].map_set == opt->group[b->group].map_set,
                POLAR_E_ARG,
                "'%s' and '%s' share a norm and must have one map, but those of groups %lld and %lld differ",
                a->name, b->name, (long long)a->group, (long long)b->group);
            PL_NEED(!meet(&a->W, &b->G) && !meet(&a->G, &b->W), POLAR_E_ARG,
                    "weights and gradients of '%s' and '%s' overlap", a->name, b->name);
        }
    }
    return POLAR_OK;
}

/* Kronecker factors are the squares of a matrix's sides: their bytes, too, are a number that can be had. */
static polar_status check_factors(const polar_optim *opt)
{
    double bytes = 0; /* moments in f64, eigenvectors in no more */
    for (int64_t i = 0; i < opt->part_count; i++) {
        const pl_optim_param *p = &opt->parts[i];
        const double left = (double)(p->rows / p->row_blocks), right = (double)p->cols;
        if (!pl_optim_kron(opt, p)) continue;
        bytes += 16 * (double)opt->members * (double)p->row_blocks * (left * left + right * right);
        PL_NEED(bytes < 0x1p60, POLAR_E_SHAPE,
                "the Kronecker factors of the parameters up to '%s', whose sides are %.0f and %.0f, are more "
                "than memory can hold (the aux route has none)",
                p->name, left, right);
    }
    return POLAR_OK;
}

/* ---- weights ------------------------------------------------------------------------------------ */

polar_status polar_optim_reload_weights(polar_optim *opt, polar_queue *q)
{
    PL_TRY(pl_optim_check_queue(opt, q));
    if (opt->shard) {
        PL_TRY(pl_shard_weights_in(opt, q));
        return opt->shard->inner ? polar_optim_reload_weights(opt->shard->inner, q) : POLAR_OK;
    }
    for (int64_t i = 0; i < opt->n; i++)
        if (opt->params[i].master.data) PL_CALL(copy, q, .Y = opt->params[i].master, .X = opt->params[i].W);
    return POLAR_OK;
}

/* ---- making and unmaking ------------------------------------------------------------------------ */

void pl_optim_drop_graph(polar_optim *opt)
{
    pl_graph_destroy(opt->graph);
    opt->graph = NULL;
}

void polar_optim_destroy(polar_optim *opt)
{
    if (!opt) return;
    pl_device *dev = opt->dev;
    /* its work may still be under way in the memory that goes now */
    pl_device_wait(dev, opt->last_serial);
    pl_optim_drop_graph(opt);
    for (int64_t i = 0; opt->params && i < opt->n; i++) {
        pl_free(opt->params[i].name);
        pl_optim_blocks_drop(&opt->params[i]);
    }
    for (int64_t i = 0; i < opt->part_count; i++) pl_free(opt->parts[i].name);
    pl_live_destroy(opt->live);
    pl_shard_destroy(opt);
    polar_device_free(opt->dev, opt->memory);
    pl_free(opt->params);
    pl_free(opt->parts);
    pl_free(opt->rest_of);
    pl_free(opt->grads);
    pl_free(opt->group);
    pl_free(opt->hyper);
    pl_free(opt->active);
    pl_free(opt->order);
    pl_free(opt->maps);
    pl_free(opt->map_dim);
    pl_free(opt->map_group);
    pl_free(opt->map_set);
    pl_free(opt->by_address);
    pl_free(opt->live_host);
    pl_free(opt->report);
    pl_free(opt);
    pl_device_release(dev);
}

static polar_status take_tables(polar_optim *opt)
{
    size_t n = (size_t)opt->part_count;
    opt->slots = opt->own_counts ? opt->n + opt->rests : 2 * opt->groups;
    opt->grads = pl_calloc(n, sizeof *opt->grads);
    opt->order = pl_calloc(n, sizeof *opt->order);
    opt->maps = pl_calloc(n, sizeof *opt->maps);
    opt->map_dim = pl_calloc(n, sizeof *opt->map_dim);
    opt->map_group = pl_calloc(n, sizeof *opt->map_group);
    opt->map_set = pl_calloc(n, sizeof *opt->map_set);
    opt->by_address = pl_calloc((size_t)opt->n, sizeof *opt->by_address);
    opt->live_host = pl_calloc((size_t)(opt->slots * opt->members), PL_LIVE_COLS * sizeof(double));
    int all = opt->grads && opt->order && opt->maps && opt->map_dim && opt->map_group && opt->map_set &&
              opt->by_address && opt->live_host;
    PL_NEED(all, POLAR_E_NOMEM, "an optimiser of %lld parameters", (long long)opt->n);
    return POLAR_OK;
}

static int earlier(const void *a, const void *b, void *arg)
{
    const polar_optim *opt = arg;
    const char *x = opt->params[*(const int64_t *)a].W.data, *y = opt->params[*(const int64_t *)b].W.data;
    return (x > y) - (x < y);
}

void pl_optim_sort_weights(polar_optim *opt)
{
    for (int64_t i = 0; i < opt->n; i++) opt->by_address[i] = i;
    qsort_r(opt->by_address, (size_t)opt->n, sizeof *opt->by_address, earlier, opt);
}

/* The device memory, and what lies where in it. Over several ranks the pieces of this rank have it; here are
 * places in a file of it all. */
static polar_status take_memory(polar_optim *opt)
{
    const pl_optim_bytes bytes = pl_optim_point_memory(opt, NULL, NULL);
    const size_t ours = opt->o.placed ? 0
                                      : (bytes.state + PL_OPTIM_STATE_ALIGN - 1) / PL_OPTIM_STATE_ALIGN *
                                            PL_OPTIM_STATE_ALIGN;
    opt->state_bytes = bytes.state, opt->work_bytes = bytes.work;
    opt->state = opt->work = (void *)PL_OPTIM_STATE_ALIGN; /* nowhere: offsets alone are read from it */
    if (!opt->o.comm) {
        PL_TRY(polar_device_alloc(opt->dev, &opt->memory, ours + bytes.work));
        if (ours) opt->state = opt->memory;
        opt->work = (char *)opt->memory + ours;
    }
    pl_optim_point_memory(opt, opt->state, opt->work);
    return POLAR_OK;
}

static polar_status fill(polar_optim *opt, const polar_param *params, const polar_optim_layout *layout)
{
    int64_t matrices = 0, elements = 0;
    PL_TRY(pl_optim_groups_read(opt, layout));
    opt->params = pl_calloc((size_t)opt->n, sizeof *opt->params);
    opt->rest_of = pl_calloc((size_t)opt->n, sizeof *opt->rest_of);
    PL_NEED(opt->params && opt->rest_of, POLAR_E_NOMEM, "an optimiser of %lld parameters", (long long)opt->n);
    for (int64_t i = 0; i < opt->n; i++) {
        polar_param param;
        PL_TRY(pl_param_read(&param, params, i, layout));
        PL_TRY(pl_optim_param_set(&opt->params[i], &param, opt, layout));
        opt->params[i].slot =
            opt->own_counts ? i : 2 * opt->params[i].group + (opt->params[i].route == POLAR_ROUTE_AUX);
        PL_TRY(pl_optim_parts_add(opt, i));
        matrices += opt->params[i].route == POLAR_ROUTE_MATRIX;
        /* each below INT64_MAX / 64 */
        elements += opt->members * opt->params[i].rows * opt->params[i].cols;
        PL_NEED(elements < INT64_MAX / 64, POLAR_E_SHAPE,
                "the parameters up to '%s' have more elements than memory can hold", opt->params[i].name);
    }
    PL_NEED(matrices || opt->o.allow_no_matrix, POLAR_E_ARG,
            "none of %lld parameters takes the matrix route: matrix_names '%s', aux_names '%s' "
            "(allow_no_matrix if that is meant)",
            (long long)opt->n, opt->o.matrix_names ? opt->o.matrix_names : "",
            opt->o.aux_names ? opt->o.aux_names : "");
    PL_TRY(check_twice(opt));
    PL_TRY(check_factors(opt));
    PL_TRY(take_tables(opt));
    pl_optim_sort_weights(opt);
    PL_TRY(take_memory(opt));
    if (opt->o.comm) {
        PL_TRY(pl_shard_create(opt));
        return pl_optim_report_make(&opt->report, opt);
    }
    PL_TRY(pl_live_create(&opt->live, opt->dev, opt->slots * opt->members * PL_LIVE_COLS));
    PL_TRY(pl_optim_report_make(&opt->report, opt));
    return pl_optim_fill_memory(opt);
}

polar_status polar_optim_create_sized(polar_optim **out, polar_device *dev, const polar_param *params,
                                      int64_t n, const polar_optim_opts *opts,
                                      const polar_optim_layout *layout)
{
    polar_optim_opts o = POLAR_OPTIM_OPTS_INIT;
    polar_optim_layout theirs;
    PL_NEED_ARG(out);
    *out = NULL;
    PL_NEED_ARG(dev);
    PL_NEED_ARG(params);
    PL_NEED(!atomic_load(&dev->closed), POLAR_E_STATE, "an optimiser on device '%s', which was closed",
            dev->name);
    PL_TRY(pl_layout_read(&theirs, layout));
    if (opts) PL_TRY(pl_optim_opts_read(&o, opts, &theirs));
    PL_TRY(pl_optim_check_opts(&o));
    PL_NEED(n > 0 && n < 1 << 24, POLAR_E_ARG, "an optimiser of %lld parameters; from 1 to %d can be had",
            (long long)n, (1 << 24) - 1);
    polar_optim *opt = pl_calloc(1, sizeof *opt);
    PL_NEED(opt, POLAR_E_NOMEM, "an optimiser");
    opt->dev = dev;
    pl_device_hold(dev);
    opt->o = o;
    opt->n = n;
    opt->members = o.members > 1 ? o.members : 1;
    opt->own_counts = o.skip_missing || o.skip_nonfinite != POLAR_SKIP_NEVER;
    polar_status st = fill(opt, params, &theirs);
    opt->o.matrix_names = opt->o.aux_names =
        NULL; /* the caller's strings and groups are not needed any more */
    opt->o.groups = NULL;
    if (st != POLAR_OK) {
        polar_optim_destroy(opt);
        return st;
    }
    *out = opt;
    return POLAR_OK;
}

/* ---- live values and questions ------------------------------------------------------------------ */

/* The parameter whose weight meets G, or NULL; weights do not meet one another, so of those before G's end
 * the last one tells. */
static const pl_optim_param *weight_at(const polar_optim *opt, const pl_mat *G)
{
    int64_t low = 0, high = opt->n; /* weights [0, low) begin before G ends */
    const char *end = (const char *)G->data + pl_mat_extent(G);
    while (low < high) {
        int64_t mid = (low + high) / 2;
        if ((const char *)opt->params[opt->by_address[mid]].W.data < end) low = mid + 1;
        else high = mid;
    }
    /* an empty weight hides nothing */
    while (low && !pl_mat_bytes(&opt->params[opt->by_address[low - 1]].W)) low--;
    const pl_optim_param *p = low ? &opt->params[opt->by_address[low - 1]] : NULL;
    return p && pl_mat_overlap(&p->W, G) ? p : NULL;
}

polar_status pl_optim_check_grad(const polar_optim *opt, const pl_optim_param *p, void *data)
{
    pl_mat G = p->G;
    G.data = data;
    const pl_optim_param *hit = data ? weight_at(opt, &G) : NULL;
    PL_NEED(!hit, POLAR_E_ARG, "the gradient of '%s' moved onto the weight of '%s'", p->name, hit->name);
    return POLAR_OK;
}

static void move_grad(polar_optim *opt, pl_optim_param *p, void *data)
{
    if (p->G.data == data) return;
    if (!data == !p->G.data) opt->moved |= PL_MOVED_GRADS;
    else opt->moved |= PL_MOVED_OTHERS, opt->scratch_serial = 0; /* other maps, other scratch */
    p->G.data = data;
    pl_optim_parts_grad(opt, p);
}

static polar_status check_param(const polar_optim *opt, int64_t param)
{
    PL_NEED(param >= 0 && param < opt->n, POLAR_E_ARG,
            "there is no parameter %lld: the optimiser has %lld, from 0", (long long)param,
            (long long)opt->n);
    return POLAR_OK;
}

polar_status polar_optim_set_grad(polar_optim *opt, int64_t param, void *data)
{
    PL_NEED_ARG(opt);
    PL_TRY(check_param(opt, param));
    if (opt->params[param].G.data != data) PL_TRY(pl_optim_check_grad(opt, &opt->params[param], data));
    move_grad(opt, &opt->params[param], data);
    return POLAR_OK;
}

polar_status polar_optim_set_grads(polar_optim *opt, void *const *data, int64_t n)
{
    PL_NEED_ARG(opt);
    PL_NEED_ARG(data);
    PL_NEED(n == opt->n, POLAR_E_ARG, "%lld gradients for an optimiser of %lld parameters", (long long)n,
            (long long)opt->n);
    for (int64_t i = 0; i < n; i++)
        if (opt->params[i].G.data != data[i]) PL_TRY(pl_optim_check_grad(opt, &opt->params[i], data[i]));
    for (int64_t i = 0; i < n; i++) move_grad(opt, &opt->params[i], data[i]);
    return POLAR_OK;
}

/* Where this rank has the state of a parameter: *param of the optimiser returned; NULL: other ranks have it.
 */
static const polar_optim *state_holder(const polar_optim *opt, int64_t *param)
{
    if (!opt->shard) return opt;
    for (int64_t k = 0; k < opt->shard->piece_count; k++) {
        const pl_piece *piece = &opt->shard->pieces[k];
        if (piece->param != *param || piece->inner < 0) continue;
        *param = piece->inner;
        return opt->shard->inner;
    }
    return NULL;
}

static polar_status view_begin(polar_tensor *out, const polar_optim *opt, int64_t param, polar_state which)
{
    PL_NEED_ARG(out);
    *out = (polar_tensor){0};
    PL_NEED_ARG(opt);
    PL_TRY(check_param(opt, param));
    PL_NEED(which >= POLAR_STATE_MOMENTUM && which <= POLAR_STATE_RIGHT_FACTORS, POLAR_E_ARG,
            "there is no state %d (polar_state)", (int)which);
    return pl_optim_check_ready(opt);
}

static void view_of(polar_tensor *out, const pl_mat *m)
{
    if (m->data) *out = polar_tensor_3d(m->data, m->dtype, m->batch, m->rows, m->cols);
}

polar_status polar_optim_state_view(polar_tensor *out, const polar_optim *opt, int64_t param,
                                    polar_state which)
{
    PL_TRY(view_begin(out, opt, param, which));
    opt = state_holder(opt, &param);
    if (!opt) return POLAR_OK;
    const pl_optim_param *p = &opt->params[param];
    PL_NEED(which < POLAR_STATE_POST || p->part_count == 1, POLAR_E_UNSUPPORTED,
            "'%s' has %lld parts, each with moments of its own (polar_optim_part_view)", p->name,
            (long long)p->part_count);
    if (which >= POLAR_STATE_POST) return polar_optim_part_view(out, opt, param, 0, which);
    const pl_mat *const pieces[] = {&p->M, &p->V, &p->master, &p->T}, *m = pieces[which];
    view_of(out, m);
    if (which == POLAR_STATE_STEPS && m->data) *out = polar_tensor_2d(m->data, m->dtype, m->batch, 2);
    return POLAR_OK;
}

int64_t polar_optim_part_count(const polar_optim *opt, int64_t param)
{
    return opt && param >= 0 && param < opt->n ? opt->params[param].part_count : 0;
}

polar_status polar_optim_part_view(polar_tensor *out, const polar_optim *opt, int64_t param, int64_t part,
                                   polar_state which)
{
    PL_TRY(view_begin(out, opt, param, which));
    PL_NEED(part >= 0 && part < opt->params[param].part_count, POLAR_E_ARG,
            "'%s' has no part %lld: there are %lld, from 0", opt->params[param].name, (long long)part,
            (long long)opt->params[param].part_count);
    PL_NEED(which >= POLAR_STATE_POST, POLAR_E_ARG,
            "state %d is that of all of '%s' (polar_optim_state_view)", (int)which, opt->params[param].name);
    opt = state_holder(opt, &param);
    if (!opt) return POLAR_OK;
    const pl_optim_param *p = &opt->parts[opt->params[param].first_part + part];
    const pl_mat *const pieces[] = {&p->P, &p->K[0], &p->K[1], &p->Q[0], &p->Q[1], &p->F[0], &p->F[1]};
    view_of(out, pieces[which - POLAR_STATE_POST]);
    return POLAR_OK;
}

int64_t polar_optim_get_step(const polar_optim *opt)
{
    return opt ? opt->t - opt->skipped : 0;
}

int64_t polar_optim_skipped(const polar_optim *opt)
{
    return opt ? opt->skipped : 0;
}

int64_t polar_optim_param_count(const polar_optim *opt)
{
    return opt ? opt->n : 0;
}

const char *polar_optim_report(const polar_optim *opt)
{
    return opt ? opt->report : "";
}

size_t polar_optim_state_bytes(const polar_optim *opt)
{
    if (!opt) return 0;
    if (!opt->shard) return (size_t)((char *)opt->work - (char *)opt->memory) + opt->work_bytes;
    return opt->shard->bytes + polar_optim_state_bytes(opt->shard->inner);
}
