/* leaves.c -- the leaves of a run and the ranks that share them. */
#include "lab/run/leaves.h"

#include "base/alloc.h"
#include "device/backend.h"
#include "optim/optim_impl.h"

polar_status pl_leaves_begin(pl_leaves *out, pl_device *dev, int64_t total, int64_t members)
{
    int ranks = dev->comm ? polar_comm_size(dev->comm) : 1;
    *out = (pl_leaves){.total = 1, .count = 1};
    PL_NEED(total > 1 || ranks == 1, POLAR_E_ARG,
            "%d ranks share a run by the parts of its batches: --set train.leaves=%d, or more", ranks, ranks);
    if (total == 1) return POLAR_OK;
    PL_NEED(ranks <= total, POLAR_E_ARG,
            "%d ranks and train.leaves=%lld: start at most as many ranks as a batch has parts", ranks,
            (long long)total);
    PL_NEED(members == 1, POLAR_E_UNSUPPORTED, "an ensemble of %lld runs whose batches are cut into leaves",
            (long long)members);
    if (!dev->comm) {
        PL_TRY(polar_comm_open(&out->comm, "self"));
        out->own = 1;
    } else out->comm = dev->comm;
    out->total = total;
    PL_TRY(polar_comm_share(out->comm, total, &out->first, &out->count));
    out->loss = pl_calloc((size_t)out->count + 1, sizeof *out->loss);
    PL_NEED(out->loss, POLAR_E_NOMEM, "the losses of %lld leaves", (long long)out->count);
    return POLAR_OK;
}

void pl_leaves_end(pl_leaves *l)
{
    if (l->own) polar_comm_close(l->comm);
    pl_free(l->loss);
    *l = (pl_leaves){0};
}

void pl_leaves_optim(const pl_leaves *l, polar_optim_opts *o)
{
    if (l->total == 1) return;
    o->comm = l->comm;
    o->leaves = l->total;
}

static void grads_done(void *arg, polar_queue *q, int64_t first, int64_t count)
{
    pl_leaves *l = arg;
    for (int64_t i = first + count - 1; i >= first && l->st == POLAR_OK; i--) {
        l->st = polar_optim_add_grad(l->opt, q, l->leaf, i);
        if (l->st != POLAR_OK) pl_queue_keep(q, l->st);
    }
}

pl_grads_watch pl_leaves_watch(pl_leaves *l, polar_optim *opt)
{
    l->opt = opt;
    if (l->total == 1 || opt->dev->backend->graph_begin) return (pl_grads_watch){0};
    return (pl_grads_watch){grads_done, l};
}

polar_status pl_leaves_add(pl_leaves *l, polar_queue *q)
{
    if (l->st != POLAR_OK) return pl_fail_again(l->st, q->message);
    return polar_optim_add_grads(l->opt, q, l->leaf);
}

polar_status pl_leaves_mean(const pl_leaves *l, double *out)
{
    PL_TRY(polar_comm_all_reduce(l->comm, NULL, l->loss, 1, POLAR_DTYPE_F64, l->total));
    *out = l->loss[0] / (double)l->total;
    return POLAR_OK;
}
