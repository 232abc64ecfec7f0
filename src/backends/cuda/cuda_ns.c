/* cuda_ns.c -- the ops newton_schulz, polar_map and polar_step on Hopper: calls become tasks (cuda_ns.h),
 * collected into one list where the caller says that they belong together.
 *
 * Those kernels serve short sides of at most 256, without joined steps. Larger matrices' newton_schulz is a
 * list of products by tiles (cuda_products.h), all steps of a batch in one launch. pl_cuda_op_serves says
 * so, and compose/ makes the rest of products. Whole steps of a warp's matrices are left to the optimiser,
 * which has one launch for all directions and one for all steps: a warp alone waits for its loads longer than
 * both take.
 */
#include "cuda_products.h"
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

/* ---- larger matrices: lists of products --------------------------------------------------------- */

enum { IN_X, IN_Y, IN_Z, IN_A, IN_P, IN_S, IN_B, ARRAYS };

/* Where the op's own arrays lie: as large as X are Y and, for an odd number of new X but one, Z, so that the
 * last ends in X; as A are P and, for joined steps, S and B. */
typedef struct {
    char *of[ARRAYS];
    size_t bytes;
} tiles_room;

/* How often X is made anew. */
static int64_t renewals(const pl_args_newton_schulz *a)
{
    int64_t n = 0;
    for (int64_t s = 0; s < a->steps; s += 1 + pl_chain_joined(a->chain, s)) n++;
    return n;
}

static tiles_room room_of(const pl_args_newton_schulz *a, char *base)
{
    tiles_room r = {{0}, 0};
    size_t m = (size_t)(a->X.rows < a->X.cols ? a->X.rows : a->X.cols), batch = (size_t)a->X.batch;
    size_t x = 2 * batch * (size_t)(a->X.rows * a->X.cols), square = 2 * batch * m * m;
    int64_t n = renewals(a);
    for (int i = IN_Y; i < ARRAYS; i++) {
        int wanted = i == IN_Z ? n % 2 && n > 1 : i < IN_S || a->chain;
        r.of[i] = base ? base + r.bytes : NULL;
        if (wanted) r.bytes += ((i < IN_A ? x : square) + 255) / 256 * 256;
    }
    return r;
}

/* ---- larger matrices: their products ------------------------------------------------------------ */

static void put_product(pl_cuda_product_list *l, pl_cuda_product p)
{
    p.alpha = p.alpha == 0 ? 1 : p.alpha;
    l->product[l->products++] = p;
}

/* P = b A + c A A */
static void put_polynomial(pl_cuda_product_list *l, uint8_t P, const double *coef)
{
    put_product(l, (pl_cuda_product){.c = P,
                                     .a = IN_A,
                                     .b = IN_A,
                                     .d = IN_A,
                                     .sym = 1,
                                     .alpha = (float)coef[2],
                                     .beta = (float)coef[1]});
}

/* A step and those joined to it, from x to y, as steps_fused in compose/newton_schulz.c has them. */
static void put_chain(pl_cuda_product_list *l, const double *coef, int64_t joined, uint8_t y, uint8_t x,
                      int tall)
{
    uint8_t P = IN_P, B = IN_P, spare = IN_S, t = (uint8_t)tall;
    double factor = coef[0];
    put_product(l, (pl_cuda_product){
                       .c = IN_A, .a = x, .b = x, .d = PL_CUDA_PRODUCTS_NONE, .ta = t, .tb = t, .sym = 1});
    put_polynomial(l, P, coef);
    for (int64_t s = 0; s < joined; s++) {
        float ka = (float)coef[0];
        /* W = Z A, A = W Z */
        put_product(l, (pl_cuda_product){.c = spare, .a = B, .b = IN_A, .d = IN_A, .sym = 1, .beta = ka});
        put_product(l, (pl_cuda_product){.c = IN_A, .a = spare, .b = B, .d = spare, .sym = 1, .beta = ka});
        coef += 3, B = IN_B;
        put_polynomial(l, B, coef);
        /* (a I + B) (q I + P) - a q I */
        put_product(l, (pl_cuda_product){.c = spare,
                                         .a = B,
                                         .b = P,
                                         .d = P,
                                         .e = B,
                                         .sym = 1,
                                         .beta = (float)coef[0],
                                         .gamma = (float)factor});
        uint8_t made = spare;
        spare = P, P = made;
        factor *= coef[0];
    }
    /* q X + P X, or of a tall X, since P is symmetric, q X + X P */
    put_product(l, (pl_cuda_product){.c = y,
                                     .a = tall ? x : P,
                                     .b = tall ? P : x,
                                     .d = x,
                                     .tb = (uint8_t)!tall,
                                     .beta = (float)factor});
}

/* X goes to Y and back; an odd number of times by Z first, and a single time it stays in Y. */
static void put_steps(pl_cuda_product_list *l, const pl_args_newton_schulz *a)
{
    uint8_t x = IN_X;
    int64_t n = renewals(a), made = 0;
    for (int64_t s = 0, joined; s < a->steps; s += 1 + joined, made++) {
        int by_z = n % 2 && n > 1 && made < 3;
        uint8_t y = by_z ? (uint8_t)((x + 1) % 3) : x == IN_X ? IN_Y : IN_X;
        joined = pl_chain_joined(a->chain, s);
        put_chain(l, a->coef + 3 * s, joined, y, x, a->X.rows > a->X.cols);
        x = y;
    }
}

static pl_cuda_product_list tiles_list(pl_queue *q, const pl_args_newton_schulz *a, char *base)
{
    tiles_room r = room_of(a, base);
    int64_t rows = a->X.rows, cols = a->X.cols, m = rows < cols ? rows : cols;
    pl_cuda_product_list l = {.arrays = a->chain ? ARRAYS : IN_S, .batch = a->X.batch};
    for (int i = 0; i < l.arrays; i++) {
        if (i < IN_A) l.array[i] = (pl_cuda_product_array){r.of[i], rows, cols, cols, rows * cols};
        else l.array[i] = (pl_cuda_product_array){r.of[i], m, m, m, m * m};
    }
    l.array[IN_X] = (pl_cuda_product_array){a->X.data, rows, cols, a->X.rs, a->X.bs};
    l.counters = pl_cuda_q(q)->counters;
    put_steps(&l, a);
    if (a->Y.data && a->Y.dtype == POLAR_DTYPE_F32) l.out = a->Y.data, l.ldo = a->Y.rs, l.bso = a->Y.bs;
    if (l.out && !pl_cuda_products_suit(&l)) l.out = NULL;
    return l;
}

/* The matrices from `first` on, as many as a list takes. */
static pl_args_newton_schulz piece_of(const pl_args_newton_schulz *a, int64_t first)
{
    pl_args_newton_schulz piece = *a;
    int64_t left = a->X.batch - first;
    if (left > PL_CUDA_PRODUCTS_BATCH) left = PL_CUDA_PRODUCTS_BATCH;
    piece.X = pl_mat_at(a->X, first, left);
    if (a->Y.data) piece.Y = pl_mat_at(a->Y, first, left);
    return piece;
}

/* Of the shape of one matrix: what models have by the dozen, where one launch for all of them beats products
 * by cuBLASLt (docs/speed/gpu.md); whatever is larger fills the multiprocessors alone. A cubic table's steps
 * have a product less. */
static int serves_large(pl_queue *q, const pl_args_newton_schulz *a)
{
    const pl_hopper_device *hopper = pl_cuda_hopper(q->dev);
    int64_t rows = a->X.rows, cols = a->X.cols, m = rows < cols ? rows : cols;
    if (!hopper->multiprocessors || a->steps < 1 || rows % 64 || cols % 64) return 0;
    if (m <= 256 || m > 1024) return 0;
    for (int64_t s = 0; s < a->steps; s++)
        if (a->coef[3 * s + 2] == 0) return 0;
    pl_args_newton_schulz piece = piece_of(a, 0);
    pl_cuda_product_list l = tiles_list(q, &piece, NULL);
    return pl_cuda_products_suit(&l);
}

size_t pl_cuda_newton_schulz_scratch(pl_queue *q, const pl_args_newton_schulz *a)
{
    pl_args_newton_schulz piece = piece_of(a, 0);
    return serves_small(a) || !serves_large(q, a) ? 0 : room_of(&piece, NULL).bytes;
}

static void iterate_piece(pl_queue *q, const pl_args_newton_schulz *a, char *base)
{
    const pl_hopper_device *hopper = pl_cuda_hopper(q->dev);
    pl_cuda_product_list l = tiles_list(q, a, base);
    cudaError_t e = pl_cuda_products_run(hopper, pl_cuda_q(q)->stream, &l);
    if (e != cudaSuccess) pl_queue_keep(q, pl_cuda_fail(e, "launching Newton-Schulz steps", q->dev));
    pl_mat result = a->X, home = a->Y.data ? a->Y : a->X;
    if (renewals(a) == 1)
        result = pl_mat_dense((void *)l.array[IN_Y].data, POLAR_DTYPE_BF16, a->X.batch, a->X.rows, a->X.cols);
    if (!l.out && result.data != home.data) pl_cuda_copy(q, &(pl_args_copy){.Y = home, .X = result});
    pl_cuda_check_op(q, PL_OP_newton_schulz, a);
}

static void iterate_large(pl_queue *q, const pl_args_newton_schulz *a)
{
    pl_scratch_mark mark = pl_scratch_begin(q);
    pl_args_newton_schulz piece = piece_of(a, 0);
    char *base = pl_scratch_take(q, room_of(&piece, NULL).bytes);
    for (int64_t first = 0; base && first < a->X.batch; first += PL_CUDA_PRODUCTS_BATCH) {
        piece = piece_of(a, first);
        iterate_piece(q, &piece, base);
    }
    pl_scratch_end(q, mark);
}

int pl_cuda_op_serves(pl_queue *q, pl_op_id id, const void *args)
{
    switch (id) {
    case PL_OP_newton_schulz: return serves_small(args) || serves_large(q, args);
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
    if (!serves_small(a) && serves_large(q, a)) iterate_large(q, a);
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
