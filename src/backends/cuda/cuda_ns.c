/* cuda_ns.c -- the ops newton_schulz, polar_map and polar_step on Hopper: calls become tasks (cuda_ns.h),
 * collected into one list where the caller says that they belong together.
 *
 * Those kernels serve short sides of at most 256, without joined steps; larger matrices' newton_schulz is a
 * list of products (cuda_ns_large.c). pl_cuda_op_serves says so, and compose/ makes the rest of products.
 * Whole steps of a warp's matrices are left to the optimiser, which has one launch for all directions and one
 * for all steps: a warp alone waits for its loads longer than both take.
 */
#include "cuda_kernels.h"
#include "cuda_ns.h"
#include "cuda_state.h"

_Static_assert(PL_CUDA_NS_STEPS == PL_FUSED_STEPS, "a call's steps fit into a list");

/* of a call: the blocks of a full list can be counted in 32 bits */
#define MOST_MATRICES ((int64_t)1 << 20)

/* ---- which calls -------------------------------------------------------------------------------- */

/* Offsets within a matrix are counted in 32 bits. */
static int is_near(const pl_mat *m)
{
    return m->rs <= INT32_MAX && (m->rows - 1) * m->rs + m->cols <= INT32_MAX;
}

static int serves(pl_cuda_ns_kind kind, const pl_mat *X, int64_t chain)
{
    return !chain && X->batch <= MOST_MATRICES && pl_cuda_ns_fits(kind, X->rows, X->cols);
}

static int serves_map(const pl_args_polar_map *a)
{
    if (a->N.data && a->N.bs > INT32_MAX) return 0;
    return serves(PL_CUDA_NS_MAP, &a->X, a->chain) && is_near(&a->X) && is_near(&a->Y);
}

static int serves_step(const pl_args_polar_step *a)
{
    if (!serves(PL_CUDA_NS_STEP, &a->W, a->chain) || a->live.bs > INT32_MAX) return 0;
    if (a->post && (a->P.dtype != POLAR_DTYPE_F32 || a->P.bs > INT32_MAX)) return 0;
    if (!is_near(&a->W) || !is_near(&a->M) || !is_near(&a->G) || a->M.dtype != POLAR_DTYPE_F32) return 0;
    return !a->precondition || (a->V.dtype == POLAR_DTYPE_F32 && is_near(&a->V));
}

static int serves_small(const pl_args_newton_schulz *a)
{
    return serves(PL_CUDA_NS_ITERATE, &a->X, a->chain) && is_near(&a->X);
}

size_t pl_cuda_newton_schulz_scratch(pl_queue *q, const pl_args_newton_schulz *a)
{
    return serves_small(a) || !pl_cuda_ns_large_serves(q, a) ? 0 : pl_cuda_ns_large_scratch(a);
}

int pl_cuda_op_serves(pl_queue *q, pl_op_id id, const void *args)
{
    switch (id) {
    case PL_OP_newton_schulz: return serves_small(args) || pl_cuda_ns_large_serves(q, args);
    case PL_OP_polar_map: return serves_map(args);
    case PL_OP_polar_step: return serves_step(args);
    default: return pl_cuda_layer_serves(q, id, args);
    }
}

/* ---- tasks -------------------------------------------------------------------------------------- */

void pl_cuda_ns_flush(pl_queue *q)
{
    pl_cuda_queue *c = pl_cuda_q(q);
    pl_cuda_ns_list *list = c->ns;
    if (!list->tasks) return;
    cudaError_t e = pl_cuda_ns_launch(c->stream, list);
    if (e == cudaSuccess) e = cudaGetLastError();
    if (e == cudaSuccess && pl_cuda_dev(q->dev)->sync_each && !pl_queue_in_capture(q))
        e = cudaStreamSynchronize(c->stream);
    if (e != cudaSuccess)
        PL_QUEUE_FAIL(q, POLAR_E_DEVICE, "%s: Newton-Schulz of %d batches: %s", q->dev->name, list->tasks,
                      cudaGetErrorString(e));
    list->tasks = 0;
}

/* Tasks of one list go through the same steps. */
static int same_steps(const pl_cuda_ns_list *list, const double *coef, int64_t steps)
{
    if (list->steps != steps) return 0;
    for (int64_t i = 0; i < 3 * steps; i++)
        if (list->coef[i] != (float)coef[i]) return 0;
    return 1;
}

static void put(pl_queue *q, const pl_cuda_ns_task *task, const double *coef, int64_t steps)
{
    pl_cuda_ns_list *list = pl_cuda_q(q)->ns;
    if (list->tasks && !same_steps(list, coef, steps)) pl_cuda_ns_flush(q);
    list->steps = (int32_t)steps;
    for (int64_t i = 0; i < 3 * steps; i++) list->coef[i] = (float)coef[i];
    list->task[list->tasks++] = *task;
    if (!q->overlap || q->watch || list->tasks == PL_CUDA_NS_TASKS) pl_cuda_ns_flush(q);
}

/* What all tasks have: the output W and its shape. 0 after the sentence of a call that is not served. */
static int task_begin(pl_cuda_ns_task *t, pl_queue *q, pl_op_id id, const void *args, pl_cuda_ns_kind kind,
                      const pl_mat *W)
{
    char line[400];
    if (!pl_cuda_op_serves(q, id, args)) {
        PL_QUEUE_FAIL(q, POLAR_E_UNSUPPORTED, "%s: %s: no kernel for this shape (ask pl_queue_serves)",
                      q->dev->name, pl_op_print(line, sizeof line, id, args));
        return 0;
    }
    *t = (pl_cuda_ns_task){.kind = (uint8_t)kind, .W = W->data, .w_bs = W->bs, .w_rs = (int32_t)W->rs};
    t->w_bf16 = W->dtype == POLAR_DTYPE_BF16;
    t->rows = (int32_t)W->rows, t->cols = (int32_t)W->cols, t->batch = (int32_t)W->batch;
    return 1;
}

static void task_gradient(pl_cuda_ns_task *t, const pl_mat *G)
{
    t->G = G->data, t->g_bs = G->bs, t->g_rs = (int32_t)G->rs;
    t->g_bf16 = G->dtype == POLAR_DTYPE_BF16;
}

void pl_cuda_newton_schulz(pl_queue *q, const pl_args_newton_schulz *a)
{
    pl_cuda_ns_task t;
    if (!serves_small(a) && pl_cuda_ns_large_serves(q, a)) pl_cuda_ns_large(q, a);
    else if (task_begin(&t, q, PL_OP_newton_schulz, a, PL_CUDA_NS_ITERATE, &a->X)) {
        put(q, &t, a->coef, a->steps);
        if (!a->Y.data) return;
        pl_cuda_ns_flush(q);
        pl_cuda_copy(q, &(pl_args_copy){.Y = a->Y, .X = a->X});
    }
}

void pl_cuda_polar_map(pl_queue *q, const pl_args_polar_map *a)
{
    pl_cuda_ns_task t;
    if (!task_begin(&t, q, PL_OP_polar_map, a, PL_CUDA_NS_MAP, &a->Y)) return;
    task_gradient(&t, &a->X);
    t.eps = (float)a->eps;
    t.N = a->N.data;
    if (a->N.data && a->N.batch > 1) t.n_bs = (int32_t)a->N.bs;
    put(q, &t, a->coef, a->steps);
}

void pl_cuda_polar_step(pl_queue *q, const pl_args_polar_step *a)
{
    pl_cuda_ns_task t;
    if (!task_begin(&t, q, PL_OP_polar_step, a, PL_CUDA_NS_STEP, &a->W)) return;
    task_gradient(&t, &a->G);
    t.M = a->M.data, t.m_bs = a->M.bs, t.m_rs = (int32_t)a->M.rs;
    if (a->precondition) t.V = a->V.data, t.v_bs = a->V.bs, t.v_rs = (int32_t)a->V.rs;
    t.live = a->live.data;
    if (a->live.batch > 1) t.live_bs = (int32_t)a->live.bs;
    t.momentum = (uint8_t)a->momentum;
    t.eps = (float)a->eps, t.scale = a->scale, t.strength = a->strength;
    t.apply = (uint8_t)a->apply;
    if (a->post) {
        t.P = a->P.data, t.p_bs = (int32_t)a->P.bs;
        t.columns = (uint8_t)pl_post_columns(a->post, a->W.rows, a->W.cols);
        t.clamped = a->post == POLAR_POST_LONG_MOMENT;
    }
    t.stages = a->post || (a->apply != POLAR_APPLY_DECOUPLED && a->apply != POLAR_APPLY_CONSTRAINED);
    put(q, &t, a->coef, a->steps);
}
