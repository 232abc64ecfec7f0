/* optim_place.c -- weights and state in memory of the caller's that comes and goes (opts.placed).
 *
 * Invariants
 *  1. Until a place is taken, and after one that was refused, no step is made.
 *  2. The state is all that a step takes from the one before it: its bytes may be copied, kept and put back.
 *     Host-side counts (opt->t) serve the schedule alone.
 */
#include "base/alloc.h"
#include "optim/optim_impl.h"

polar_status pl_optim_check_ready(const polar_optim *opt)
{
    PL_NEED(!opt->o.placed || opt->ready, POLAR_E_STATE,
            "weights and state have no place yet (polar_optim_place; opts.placed is set)");
    return POLAR_OK;
}

size_t polar_optim_placed_bytes(const polar_optim *opt)
{
    return opt ? opt->state_bytes : 0;
}

/* The caller's memory as one row. */
static pl_mat bytes_at(void *data, size_t bytes)
{
    return pl_mat_dense(data, POLAR_DTYPE_BF16, 1, 1, (int64_t)(bytes + 1) / 2);
}

/* Every weight has a place, which is not in the state. */
static polar_status check_weights(const polar_optim *opt, void *const *weights, void *state)
{
    const pl_mat all = bytes_at(state, opt->state_bytes);
    for (int64_t i = 0; i < opt->n; i++) {
        pl_mat W = opt->params[i].W;
        W.data = weights[i];
        PL_NEED(W.data || !pl_mat_bytes(&W), POLAR_E_ARG, "the weight of '%s' has no data",
                opt->params[i].name);
        PL_NEED(!W.data || !pl_mat_overlap(&W, &all), POLAR_E_ARG, "the weight of '%s' lies in the state",
                opt->params[i].name);
    }
    return POLAR_OK;
}

/* Neighbours in memory do not meet. */
static polar_status check_apart(const polar_optim *opt)
{
    const pl_optim_param *last = NULL;
    for (int64_t i = 0; i < opt->n; i++) {
        const pl_optim_param *p = &opt->params[opt->by_address[i]];
        if (!pl_mat_bytes(&p->W)) continue;
        PL_NEED(!last || !pl_mat_overlap(&last->W, &p->W), POLAR_E_ARG,
                "'%s' and '%s' are (partly) the same weights: give shared weights once", last->name, p->name);
        last = p;
    }
    return POLAR_OK;
}

static polar_status check_grads(const polar_optim *opt, void *const *grads)
{
    const pl_mat all = bytes_at(opt->state, opt->state_bytes);
    for (int64_t i = 0; i < opt->n; i++) {
        pl_mat G = opt->params[i].G;
        G.data = grads[i];
        PL_NEED(!G.data || !pl_mat_overlap(&G, &all), POLAR_E_ARG, "the gradient of '%s' lies in the state",
                opt->params[i].name);
        PL_TRY(pl_optim_check_grad(opt, &opt->params[i], grads[i])); /* one that stayed, too: weights moved */
    }
    return POLAR_OK;
}

static int same_place(const polar_optim *opt, void *const *weights, void *state)
{
    int same = opt->state == state;
    for (int64_t i = 0; i < opt->n && same; i++) same = opt->params[i].W.data == weights[i];
    return same;
}

/* Pointers alone: weights, state and what of both the parts see. was_ready: they see those of before. */
static polar_status move_to(polar_optim *opt, void *const *weights, void *state, int was_ready)
{
    if (was_ready && same_place(opt, weights, state)) return POLAR_OK;
    opt->moved |= PL_MOVED_OTHERS;
    opt->state = state;
    for (int64_t i = 0; i < opt->n; i++) opt->params[i].W.data = weights[i];
    pl_optim_sort_weights(opt);
    PL_TRY(check_apart(opt));
    pl_optim_point_memory(opt, opt->state, opt->work);
    return POLAR_OK;
}

polar_status polar_optim_place(polar_optim *opt, void *const *weights, void *const *grads, int64_t n,
                               void *state)
{
    PL_NEED_ARG(opt);
    const int was_ready = opt->ready;
    opt->ready = 0;
    PL_NEED_ARG(weights);
    PL_NEED_ARG(grads);
    PL_NEED_ARG(state);
    PL_NEED(opt->o.placed, POLAR_E_STATE,
            "the optimiser was made without opts.placed: its weights stay where they are, its state is its "
            "own");
    PL_NEED(n == opt->n, POLAR_E_ARG, "%lld weights and gradients for an optimiser of %lld parameters",
            (long long)n, (long long)opt->n);
    PL_NEED((uintptr_t)state % 64 == 0, POLAR_E_ARG,
            "the state begins at %p; its address must be a multiple of 64", state);
    PL_TRY(check_weights(opt, weights, state));
    PL_TRY(move_to(opt, weights, state, was_ready));
    PL_TRY(check_grads(opt, grads));
    PL_TRY(polar_optim_set_grads(opt, grads, n));
    opt->ready = 1;
    return POLAR_OK;
}

polar_status polar_optim_restart(polar_optim *opt, polar_queue *q)
{
    PL_TRY(pl_optim_check_queue(opt, q));
    PL_NEED(!opt->shard, POLAR_E_UNSUPPORTED,
            "over several ranks an optimiser is not begun again: make a new one");
    char *image = pl_calloc(1, opt->state_bytes ? opt->state_bytes : 1);
    PL_NEED(image, POLAR_E_NOMEM, "%zu bytes of state", opt->state_bytes);
    pl_optim_fill_bases(opt, image);
    polar_queue_upload(q, opt->state, image, opt->state_bytes);
    pl_free(image);
    PL_TRY(polar_optim_reload_weights(opt, q));
    if (q->error != POLAR_OK) return pl_fail_again(q->error, q->message);
    if (!q->dry) opt->t = opt->skipped = opt->stepped = 0; /* a dry run counts costs */
    return POLAR_OK;
}
