/* polar_xla_step.c -- whole optimiser steps for JAX: (weights, state) <- step(weights, gradients, state,
 * rates).
 *
 *     begin: weights, 64-aligned bytes      -> the same weights, the state of an optimiser that made no step
 *     step:  weights, gradients, state, rates (f32, one a parameter) -> weights, state
 *            and, with opts.skip_nonfinite, one more f32: where it is not 0 the step is left out
 *
 * The attribute `definition` names what polar_xla_define was given: parameters and options as
 * polar_optim_create takes them, with opts.placed. An optimiser is made of it on each device where it is
 * first called for; it keeps nothing from call to call (polar/optim.h, "weights and state that come and go").
 *
 * Invariants
 *  1. Results are aliased to arguments: weights and state are stepped where they lie.
 *  2. A definition is never changed or dropped; it is named by its contents.
 *  3. A device keeps the optimisers of the KEPT definitions that it was called for last; another one takes
 * the place of the one that was not for longest, whose memory goes when its work is done.
 *  4. The list of definitions is read and written under the lock of polar_xla.h, a device's optimiser by that
 *     device's calls alone.
 */
#include <stdlib.h>
#include <string.h>

#include "polar_xla.h"

typedef struct definition {
    char name[80];
    const polar_param *params;
    int64_t n;
    const polar_optim_opts *opts;
    const polar_optim_layout *layout;
    polar_optim *optims[XLA_PLACES];
    struct definition *next;
} definition;

enum { KEPT = 16 };

static definition *definitions;
static definition *kept[XLA_PLACES][KEPT]; /* the last one first; NULL behind the first NULL */

static definition *find(const char *name, size_t length)
{
    definition *d = definitions;
    while (d && (strlen(d->name) != length || memcmp(d->name, name, length) != 0)) d = d->next;
    return d;
}

int polar_xla_define(const char *name, const polar_param *params, int64_t n, const polar_optim_opts *opts,
                     const polar_optim_layout *layout)
{
    xla_lock();
    int there = find(name, strlen(name)) != NULL;
    definition *d = there || strlen(name) >= sizeof d->name ? NULL : calloc(1, sizeof *d);
    if (d) {
        strcpy(d->name, name);
        d->params = params, d->n = n, d->opts = opts, d->layout = layout;
        d->next = definitions;
        definitions = d;
    }
    xla_unlock();
    return there || d;
}

/* To the front of those that a device keeps; where it was not, for the last of them. */
static void keep(definition *d, int place)
{
    definition **list = kept[place], *last = list[KEPT - 1];
    int at = 0;
    while (at < KEPT - 1 && list[at] && list[at] != d) at++;
    if (at == KEPT - 1 && last && last != d) {
        polar_optim_destroy(last->optims[place]); /* which waits for its work */
        last->optims[place] = NULL;
    }
    memmove(list + 1, list, (size_t)at * sizeof *list);
    list[0] = d;
}

int xla_open_optims(int place)
{
    int n = 0;
    xla_lock();
    for (const definition *d = definitions; d; d = d->next) n += d->optims[place] != NULL;
    xla_unlock();
    return n;
}

static const char *open_optim(polar_optim **out, definition **d, const xla_call *call, const xla_place *place)
{
    const xla_string *name = xla_attribute(call, "definition", XLA_STRING);
    xla_lock();
    *d = name ? find(name->text, name->length) : NULL;
    xla_unlock();
    if (!*d)
        return "polar: this process has not defined the optimiser that the compiled step was made with: make "
               "it anew with the same arguments (polar.jax) before the step is called";
    keep(*d, place->index);
    polar_optim **opt = &(*d)->optims[place->index];
    if (!*opt && polar_optim_create_sized(opt, place->dev, (*d)->params, (*d)->n, (*d)->opts, (*d)->layout))
        return polar_error_message();
    *out = *opt;
    return NULL;
}

/* ---- what XLA gives ------------------------------------------------------------------------------ */

static int64_t count_of(const int64_t *shape, int64_t rank)
{
    int64_t n = 1;
    for (int64_t i = 0; i < rank; i++) n *= shape[i];
    return n;
}

/* The buffers are tensors of these formats and sizes; data gets their addresses. */
static int take(void **data, xla_buffer *const *buffers, const definition *d, int grads)
{
    for (int64_t i = 0; i < d->n; i++) {
        const polar_tensor *t = grads ? &d->params[i].grad : &d->params[i].weight;
        const xla_buffer *b = buffers[i];
        polar_dtype dtype;
        if (!xla_format(&dtype, b->dtype) || dtype != t->dtype) return 0;
        if (count_of(b->dims, b->rank) != count_of(t->shape, t->ndim)) return 0;
        data[i] = b->data;
    }
    return 1;
}

static int is_state(const xla_buffer *b, const polar_optim *opt)
{
    return b->dtype == XLA_U8 && (size_t)count_of(b->dims, b->rank) >= polar_optim_placed_bytes(opt);
}

static const char *aliased(const xla_call *call, int64_t n, int64_t state)
{
    int same = call->rets.buffers[n]->data == call->args.buffers[state]->data;
    for (int64_t i = 0; i < n && same; i++) same = call->rets.buffers[i]->data == call->args.buffers[i]->data;
    return same ? NULL : "polar: weights and state are stepped where they lie (input_output_aliases)";
}

/* ---- the handlers -------------------------------------------------------------------------------- */

static const char *work(const xla_call *call, const xla_place *place, int steps, void **data)
{
    definition *d;
    polar_optim *opt = NULL;
    const char *wrong = open_optim(&opt, &d, call, place);
    if (wrong) return wrong;
    const int64_t n = d->n, state = steps ? 2 * n : n;
    const int flagged = steps && call->args.size == 2 * n + 3;
    if (call->args.size != (steps ? 2 * n + 2 + flagged : n + 1) || call->rets.size != n + 1 ||
        !take(data, call->args.buffers, d, 0) || (steps && !take(data + n, call->args.buffers + n, d, 1)) ||
        !is_state(call->args.buffers[state], opt))
        return "polar: the arrays are not those of the optimiser's definition";
    if ((wrong = aliased(call, n, state)) != NULL) return wrong;
    if (polar_optim_place(opt, data, data + n, n, call->args.buffers[state]->data) != POLAR_OK)
        return polar_error_message();
    if (!steps) return polar_optim_restart(opt, place->q) == POLAR_OK ? NULL : polar_error_message();
    const xla_buffer *rates = call->args.buffers[state + 1], *flag = rates;
    if (flagged) flag = call->args.buffers[state + 2];
    if (rates->dtype != XLA_F32 || flag->dtype != XLA_F32 || !count_of(flag->dims, flag->rank))
        return "polar: rates and flags are float32";
    if ((flagged || d->opts->skip_nonfinite != POLAR_SKIP_NEVER) &&
        polar_optim_set_scaler(opt, flagged ? flag->data : NULL, NULL) != POLAR_OK)
        return polar_error_message();
    if (polar_optim_set_rates(opt, rates->data, count_of(rates->dims, rates->rank)) != POLAR_OK ||
        polar_optim_step(opt, place->q) != POLAR_OK)
        return polar_error_message();
    return NULL;
}

static const char *with_addresses(const xla_call *call, const xla_place *place, int steps)
{
    void **data = calloc(2 * (size_t)call->args.size + 1, sizeof *data); /* of begin, no gradients */
    if (!data) return "polar: no memory";
    const char *wrong = work(call, place, steps, data);
    free(data);
    return wrong;
}

static const char *begin(const xla_call *call, const xla_place *place)
{
    return with_addresses(call, place, 0);
}

static const char *step(const xla_call *call, const xla_place *place)
{
    return with_addresses(call, place, 1);
}

xla_error *polar_xla_begin(xla_call *call)
{
    return xla_run(call, 0, begin);
}

xla_error *polar_xla_begin_cuda(xla_call *call)
{
    return xla_run(call, 1, begin);
}

xla_error *polar_xla_step(xla_call *call)
{
    return xla_run(call, 0, step);
}

xla_error *polar_xla_step_cuda(xla_call *call)
{
    return xla_run(call, 1, step);
}
