/* cuda_sweeps.c -- kron_sweep: calls put off are made together (cuda_hopper_kron.h), those that no cluster
 * serves at once.
 *
 * Invariants
 *  1. Scratch is taken when the list is launched, for all of its calls: at most MOST_SCRATCH, or what one
 * call takes. A dry run adds up what that will be, and never less (pl_cuda_sweep_put_off_scratch).
 *  2. Two calls of a list share at most a V, of which they move one side each.
 */
#include "cuda_hopper_kron.h"
#include "cuda_kernels.h"
#include "cuda_state.h"
#include "device/queue.h"

#define MOST_SCRATCH ((size_t)1 << 30)

static size_t scratch_of(const pl_args_kron_sweep *a)
{
    return pl_hopper_sweep_scratch(a) + 256; /* taken in pieces that are aligned */
}

size_t pl_cuda_sweep_put_off_scratch(const pl_queue *q, const pl_args_kron_sweep *args)
{
    if (!pl_cuda_sweeps_by_cluster(args)) return 0;
    const size_t own = scratch_of(args), most = own > MOST_SCRATCH ? own : MOST_SCRATCH;
    if (q->put_off + own <= MOST_SCRATCH) return own;
    return most > q->put_off ? most - q->put_off : 0; /* some list may be as full as that */
}

void pl_cuda_sweeps_flush(pl_queue *q)
{
    pl_cuda_queue *c = pl_cuda_q(q);
    pl_hopper_sweep_list *list = c->sweeps;
    int taken = 1;
    if (!list->calls) return;
    pl_scratch_mark mark = pl_scratch_begin(q);
    for (int i = 0; i < list->calls; i++) {
        list->scratch[i] = pl_scratch_take(q, pl_hopper_sweep_scratch(&list->call[i]));
        taken &= list->scratch[i] != NULL;
    }
    if (taken) pl_hopper_sweep(c->stream, list);
    pl_scratch_end(q, mark);
    if (taken) pl_cuda_check_op(q, PL_OP_kron_sweep, &list->call[0]);
    list->calls = 0;
}

/* It can be made beside what the list has. */
static int fits(const pl_hopper_sweep_list *list, const pl_args_kron_sweep *a)
{
    size_t bytes = scratch_of(a);
    int shared = 0;
    for (int i = 0; i < list->calls; i++) {
        const pl_args_kron_sweep *b = &list->call[i];
        bytes += scratch_of(b);
        if (!pl_mat_overlap(&a->V, &b->V)) continue;
        if (!pl_hopper_sweeps_agree(a, b)) return 0;
        shared++;
    }
    return shared < 2 && list->calls < PL_HOPPER_SWEEPS && bytes <= MOST_SCRATCH;
}

void pl_cuda_kron_sweep(pl_queue *q, const pl_args_kron_sweep *a)
{
    pl_cuda_queue *c = pl_cuda_q(q);
    if (pl_cuda_sweeps_by_cluster(a)) {
        if (!fits(c->sweeps, a)) pl_cuda_sweeps_flush(q);
        c->sweeps->call[c->sweeps->calls++] = *a;
        if (!q->overlap || q->watch) pl_cuda_sweeps_flush(q);
        return;
    }
    pl_scratch_mark mark = pl_scratch_begin(q);
    void *scratch = pl_scratch_take(q, pl_cuda_kron_sweep_scratch(a));
    if (scratch) pl_cuda_launch_kron_sweep(c->stream, a, scratch);
    pl_scratch_end(q, mark);
    pl_cuda_check_op(q, PL_OP_kron_sweep, a);
}
