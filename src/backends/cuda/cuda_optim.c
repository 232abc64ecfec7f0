/* cuda_optim.c -- the elementwise ops of an optimiser step, and what its stages sum over small matrices:
 * collected into one launch where the caller says that they belong together.
 *
 * Packed f32 operands (a gradient may be bf16) become items of the queue's tables (cuda_multi.h,
 * cuda_multi_stage.h), picked lines and Kronecker factors' moments of any kind do (cuda_multi_lines.h,
 * cuda_multi_moment.h); everything else, strided views and f64 above all, is launched by itself at once.
 */
#include "cuda_kernels.h"
#include "cuda_multi.h"
#include "cuda_hopper_kron.h"
#include "cuda_hopper_parts.h"
#include "cuda_multi_lines.h"
#include "cuda_multi_moment.h"
#include "cuda_multi_norm.h"
#include "cuda_multi_stage.h"
#include "cuda_ns.h"
#include "cuda_state.h"

static void check_launch(pl_queue *q, int ops, const char *what)
{
    cudaError_t e = cudaGetLastError();
    if (e == cudaSuccess && pl_cuda_dev(q->dev)->sync_each && !pl_queue_in_capture(q))
        e = cudaStreamSynchronize(pl_cuda_q(q)->stream);
    if (e != cudaSuccess)
        PL_QUEUE_FAIL(q, POLAR_E_DEVICE, "%s: one launch of %d %s: %s", q->dev->name, ops, what,
                      cudaGetErrorString(e));
}

static void flush(pl_queue *q)
{
    pl_cuda_queue *c = pl_cuda_q(q);
    pl_cuda_multi *list = c->multi;
    if (!list->count) return;
    pl_cuda_launch_multi(c->stream, list);
    check_launch(q, list->count, "elementwise ops");
    list->count = 0;
}

static void flush_small(pl_queue *q)
{
    pl_cuda_queue *c = pl_cuda_q(q);
    pl_cuda_multi_stage *list = c->small;
    if (!list->count) return;
    pl_cuda_launch_multi_stage(c->stream, list);
    check_launch(q, list->count, "stages of small matrices");
    list->count = 0;
}

static void flush_lines(pl_queue *q)
{
    pl_cuda_queue *c = pl_cuda_q(q);
    pl_cuda_multi_lines *list = c->lines;
    if (list->picks) {
        pl_cuda_launch_picks(c->stream, list);
        check_launch(q, list->picks, "pick_lines");
    }
    if (list->moves) {
        pl_cuda_launch_moves(c->stream, list);
        check_launch(q, list->moves, "move_lines");
    }
    list->picks = list->moves = 0;
}

static void flush_moments(pl_queue *q)
{
    pl_cuda_queue *c = pl_cuda_q(q);
    pl_cuda_multi_moment *list = c->moments;
    if (!list->count) return;
    pl_cuda_launch_moments(c->stream, list);
    check_launch(q, list->count, "kron_moment");
    list->count = 0;
}

/* What a call takes of a list's scratch, which is one piece: a dry run adds up as much. */
static size_t norm_scratch(const pl_args_frob_normalise *a)
{
    return pl_scratch_bytes(pl_cuda_multi_norm_scratch(a));
}

size_t pl_cuda_put_off_scratch(pl_queue *q, pl_op_id id, const void *args)
{
    if (id == PL_OP_kron_sweep) return pl_cuda_sweep_put_off_scratch(q, args);
    return id == PL_OP_frob_normalise && pl_cuda_norm_suits(args) ? norm_scratch(args) : 0;
}

static void flush_norms(pl_queue *q)
{
    pl_cuda_queue *c = pl_cuda_q(q);
    pl_cuda_multi_norm *list = c->norms;
    size_t bytes = 0;
    if (!list->count) return;
    pl_scratch_mark mark = pl_scratch_begin(q);
    for (int i = 0; i < list->count; i++) bytes += norm_scratch(&list->call[i]);
    void *scratch = pl_scratch_take(q, bytes);
    if (scratch) pl_cuda_launch_norms(c->stream, list, scratch);
    pl_scratch_end(q, mark);
    if (scratch) check_launch(q, list->count, "frob_normalise");
    list->count = 0;
}

void pl_cuda_overlap_end(pl_queue *q)
{
    if (q->error == POLAR_OK) flush(q);
    if (q->error == POLAR_OK) flush_small(q);
    if (q->error == POLAR_OK) flush_lines(q);
    if (q->error == POLAR_OK) flush_moments(q);
    if (q->error == POLAR_OK) flush_norms(q);
    if (q->error == POLAR_OK) pl_cuda_ns_flush(q);
    if (q->error == POLAR_OK) pl_cuda_sweeps_flush(q);
    if (q->error == POLAR_OK) pl_cuda_parts_flush(q);
    pl_cuda_q(q)->multi->count = 0;
    pl_cuda_q(q)->small->count = 0;
    pl_cuda_q(q)->lines->picks = pl_cuda_q(q)->lines->moves = 0;
    pl_cuda_q(q)->moments->count = 0;
    pl_cuda_q(q)->norms->count = 0;
    pl_cuda_q(q)->ns->tasks = 0;
    pl_cuda_q(q)->sweeps->calls = 0;
    pl_cuda_q(q)->parts->calls = 0;
}

static void put(pl_queue *q, const pl_cuda_item *item)
{
    pl_cuda_multi *list = pl_cuda_q(q)->multi;
    list->item[list->count++] = *item;
    if (!q->overlap || q->watch || list->count == PL_CUDA_ITEMS) flush(q);
}

static int is_packed(const pl_mat *m, polar_dtype dtype)
{
    return m->dtype == dtype && (m->rows <= 1 || m->rs == m->cols) &&
           (m->batch <= 1 || m->bs == m->rows * m->cols);
}

#define MOST_MATRICES 65536 /* with MOST_ENTRIES: the blocks of a full table can be counted in 32 bits */
#define MOST_ENTRIES  ((int64_t)1 << 34)

static int is_gradient(const pl_mat *g)
{
    return is_packed(g, POLAR_DTYPE_F32) || is_packed(g, POLAR_DTYPE_BF16);
}

/* What all items share: sizes, live values, the gradient's format. 0 where the table cannot hold it. */
static int item_begin(pl_cuda_item *out, pl_cuda_multi_op op, const pl_mat *shape, const pl_mat *live)
{
    if (shape->batch > MOST_MATRICES || shape->batch * shape->rows * shape->cols > MOST_ENTRIES) return 0;
    *out = (pl_cuda_item){
        .op = (uint8_t)op, .each = shape->rows * shape->cols, .matrices = (int32_t)shape->batch};
    if (live) out->live = live->data;
    if (live && live->batch > 1) out->live_stride = live->bs;
    else if (shape->batch > 1 && out->each) { /* one row of live values for all: one long matrix */
        out->each *= shape->batch;
        out->matrices = 1;
    }
    return 1;
}

void pl_cuda_adamw_step(pl_queue *q, const pl_args_adamw_step *a)
{
    pl_cuda_item it;
    int fits = is_packed(&a->W, POLAR_DTYPE_F32) && is_packed(&a->M, POLAR_DTYPE_F32) &&
               is_packed(&a->V, POLAR_DTYPE_F32);
    if (fits && is_gradient(&a->G) && item_begin(&it, PL_MULTI_ADAMW_STEP, &a->W, &a->live)) {
        it.w = a->W.data, it.m = a->M.data, it.v = a->V.data, it.g = a->G.data;
        it.g_bf16 = a->G.dtype == POLAR_DTYPE_BF16;
        put(q, &it);
        return;
    }
    pl_cuda_queue *c = pl_cuda_q(q);
    c->fixed_grads = 1;
    pl_cuda_launch_adamw_step(c->stream, a);
    pl_cuda_check_op(q, PL_OP_adamw_step, a);
}

void pl_cuda_direction(pl_queue *q, const pl_args_direction *a)
{
    pl_cuda_item it;
    int fits = is_packed(&a->D, POLAR_DTYPE_F32) && is_packed(&a->M, POLAR_DTYPE_F32);
    if (a->precondition) fits = fits && is_packed(&a->V, POLAR_DTYPE_F32);
    if (fits && is_gradient(&a->G) && item_begin(&it, PL_MULTI_DIRECTION, &a->D, &a->live)) {
        it.d = a->D.data, it.m = a->M.data, it.v = a->precondition ? a->V.data : NULL, it.g = a->G.data;
        it.g_bf16 = a->G.dtype == POLAR_DTYPE_BF16;
        it.momentum = (uint8_t)a->momentum, it.precondition = (uint8_t)a->precondition;
        put(q, &it);
        return;
    }
    pl_cuda_queue *c = pl_cuda_q(q);
    c->fixed_grads = 1;
    pl_cuda_launch_direction(c->stream, a);
    pl_cuda_check_op(q, PL_OP_direction, a);
}

void pl_cuda_decay_step(pl_queue *q, const pl_args_decay_step *a)
{
    pl_cuda_item it;
    int fits = is_packed(&a->W, POLAR_DTYPE_F32) && is_packed(&a->D, POLAR_DTYPE_F32);
    if (fits && item_begin(&it, PL_MULTI_DECAY_STEP, &a->W, &a->live)) {
        it.w = a->W.data, it.d = a->D.data, it.scale = a->scale;
        put(q, &it);
        return;
    }
    pl_cuda_launch_decay_step(pl_cuda_q(q)->stream, a);
    pl_cuda_check_op(q, PL_OP_decay_step, a);
}

void pl_cuda_apply_step(pl_queue *q, const pl_args_apply_step *a)
{
    pl_cuda_item it;
    int fits = is_packed(&a->W, POLAR_DTYPE_F32) && is_packed(&a->D, POLAR_DTYPE_F32);
    const pl_cuda_multi_op op = a->N.data ? PL_MULTI_LOOKING_STEP : PL_MULTI_CAUTIOUS_STEP;
    if (fits && a->N.bs <= INT32_MAX && item_begin(&it, op, &a->W, &a->live)) {
        it.w = a->W.data, it.d = a->D.data, it.g = a->N.data;
        it.scale = a->scale, it.strength = a->strength, it.apply = (uint8_t)a->apply;
        if (a->N.data) { /* each matrix has its own */
            it.each = a->W.rows * a->W.cols, it.matrices = (int32_t)a->W.batch;
            it.g_stride = a->N.batch > 1 ? (int32_t)a->N.bs : 0;
        }
        put(q, &it);
        return;
    }
    pl_cuda_launch_apply_step(pl_cuda_q(q)->stream, a);
    pl_cuda_check_op(q, PL_OP_apply_step, a);
}

void pl_cuda_nonfinite(pl_queue *q, const pl_args_nonfinite *a)
{
    pl_cuda_item it;
    pl_mat shape = a->G;
    if (a->F.batch == 1) shape.rows *= shape.batch, shape.batch = 1; /* one flag: one long matrix */
    if (is_gradient(&a->G) && is_packed(&a->F, POLAR_DTYPE_F32) &&
        item_begin(&it, PL_MULTI_NONFINITE, &shape, NULL)) {
        it.each = shape.rows * shape.cols, it.matrices = (int32_t)shape.batch;
        it.w = a->F.data, it.g = a->G.data, it.g_bf16 = a->G.dtype == POLAR_DTYPE_BF16;
        put(q, &it);
        return;
    }
    pl_cuda_queue *c = pl_cuda_q(q);
    c->fixed_grads = 1;
    pl_cuda_launch_nonfinite(c->stream, a);
    pl_cuda_check_op(q, PL_OP_nonfinite, a);
}

void pl_cuda_copy(pl_queue *q, const pl_args_copy *a)
{
    pl_cuda_item it;
    const int rounds = is_packed(&a->Y, POLAR_DTYPE_BF16), fits = rounds || is_packed(&a->Y, POLAR_DTYPE_F32);
    if (q->overlap && !a->trans && fits && is_packed(&a->X, POLAR_DTYPE_F32) &&
        item_begin(&it, rounds ? PL_MULTI_COPY : PL_MULTI_COPY_F32, &a->Y, NULL)) {
        it.w = a->Y.data, it.g = a->X.data;
        put(q, &it);
        return;
    }
    pl_cuda_launch_copy(pl_cuda_q(q)->stream, a);
    pl_cuda_check_op(q, PL_OP_copy, a);
}

/* ---- stages of small matrices ------------------------------------------------------------------- */

/* What all items share; 0 where a call is to be launched by itself. */
static int small_begin(pl_cuda_stage_item *out, pl_queue *q, pl_cuda_stage_op op, const pl_mat *X)
{
    if (!q->overlap || !is_packed(X, POLAR_DTYPE_F32) || X->batch > MOST_MATRICES) return 0;
    if (X->rows > PL_CUDA_STAGE_LINES || X->cols > PL_CUDA_STAGE_LINES) return 0;
    if (X->rows * X->cols > PL_CUDA_STAGE_ENTRIES) return 0;
    *out = (pl_cuda_stage_item){.op = (uint8_t)op, .x = X->data};
    out->rows = (int32_t)X->rows, out->cols = (int32_t)X->cols, out->matrices = (int32_t)X->batch;
    return 1;
}

/* A few numbers a matrix, in one format. */
static int is_near(const pl_mat *m, polar_dtype dtype)
{
    return !m->data || (m->dtype == dtype && m->bs <= INT32_MAX);
}

static void put_small(pl_queue *q, const pl_cuda_stage_item *item)
{
    pl_cuda_multi_stage *list = pl_cuda_q(q)->small;
    list->item[list->count++] = *item;
    if (q->watch || list->count == PL_CUDA_STAGE_ITEMS) flush_small(q);
}

void pl_cuda_inner(pl_queue *q, const pl_args_inner *a)
{
    pl_cuda_stage_item it;
    if (is_packed(&a->Y, POLAR_DTYPE_F32) && is_near(&a->N, POLAR_DTYPE_F64) &&
        small_begin(&it, q, PL_STAGE_INNER, &a->X)) {
        it.y = a->Y.data, it.f = a->N.data, it.f_stride = (int32_t)a->N.bs;
        put_small(q, &it);
        return;
    }
    pl_scratch_mark mark = pl_scratch_begin(q);
    void *scratch = pl_scratch_take(q, pl_cuda_inner_scratch(a));
    if (scratch) pl_cuda_launch_inner(pl_cuda_q(q)->stream, a, scratch);
    pl_scratch_end(q, mark);
    pl_cuda_check_op(q, PL_OP_inner, a);
}

void pl_cuda_line_factors(pl_queue *q, const pl_args_line_factors *a)
{
    pl_cuda_stage_item it;
    if (is_near(&a->F, POLAR_DTYPE_F64) && is_near(&a->V, POLAR_DTYPE_F32) &&
        small_begin(&it, q, PL_STAGE_LINE_FACTORS, &a->X)) {
        it.f = a->F.data, it.f_stride = (int32_t)a->F.bs;
        it.v = a->V.data, it.v_stride = (int32_t)a->V.bs;
        it.live = a->live.data, it.live_stride = a->live.batch > 1 ? a->live.bs : 0;
        it.columns = (uint8_t)a->trans, it.kind = (uint8_t)a->kind;
        put_small(q, &it);
        return;
    }
    pl_cuda_launch_line_factors(pl_cuda_q(q)->stream, a);
    pl_cuda_check_op(q, PL_OP_line_factors, a);
}

void pl_cuda_scale_lines(pl_queue *q, const pl_args_scale_lines *a)
{
    pl_cuda_stage_item it;
    if (is_packed(&a->Y, POLAR_DTYPE_F32) && is_near(&a->R, POLAR_DTYPE_F64) &&
        is_near(&a->C, POLAR_DTYPE_F64) && small_begin(&it, q, PL_STAGE_SCALE_LINES, &a->X)) {
        it.to = a->Y.data;
        it.f = a->R.data, it.f_stride = (int32_t)a->R.bs;
        it.c = a->C.data, it.c_stride = (int32_t)a->C.bs;
        put_small(q, &it);
        return;
    }
    pl_cuda_launch_scale_lines(pl_cuda_q(q)->stream, a);
    pl_cuda_check_op(q, PL_OP_scale_lines, a);
}

/* ---- picked lines ------------------------------------------------------------------------------- */

static void put_lines(pl_queue *q, int calls)
{
    if (!q->overlap || q->watch || calls == PL_CUDA_LINES_CALLS) flush_lines(q);
}

void pl_cuda_pick_lines(pl_queue *q, const pl_args_pick_lines *a)
{
    pl_cuda_queue *c = pl_cuda_q(q);
    c->fixed_grads = 1; /* no graph finds one in these tables */
    c->lines->pick[c->lines->picks++] = *a;
    put_lines(q, c->lines->picks);
}

void pl_cuda_move_lines(pl_queue *q, const pl_args_move_lines *a)
{
    pl_cuda_multi_lines *list = pl_cuda_q(q)->lines;
    list->move[list->moves++] = *a;
    put_lines(q, list->moves);
}

/* ---- moments of Kronecker factors ---------------------------------------------------------------- */

void pl_cuda_kron_moment(pl_queue *q, const pl_args_kron_moment *a)
{
    pl_cuda_multi_moment *list = pl_cuda_q(q)->moments;
    list->call[list->count++] = *a;
    if (!q->overlap || q->watch || list->count == PL_CUDA_MOMENT_CALLS) flush_moments(q);
}

/* ---- norms --------------------------------------------------------------------------------------- */

void pl_cuda_frob_normalise(pl_queue *q, const pl_args_frob_normalise *a)
{
    pl_cuda_multi_norm *list = pl_cuda_q(q)->norms;
    if (q->overlap && !q->watch && pl_cuda_norm_suits(a)) {
        list->call[list->count++] = *a;
        if (list->count == PL_CUDA_NORM_CALLS) flush_norms(q);
        return;
    }
    pl_scratch_mark mark = pl_scratch_begin(q);
    void *scratch = pl_scratch_take(q, pl_cuda_frob_normalise_scratch(a));
    if (scratch) pl_cuda_launch_frob_normalise(pl_cuda_q(q)->stream, a, scratch);
    pl_scratch_end(q, mark);
    pl_cuda_check_op(q, PL_OP_frob_normalise, a);
}
