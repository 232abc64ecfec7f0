/* optim_kron.c -- rules with Kronecker factors of a second moment: their averages, their eigenvectors, and
 * what is done to the direction in those coordinates (docs/rules.md).
 *
 *     L = EMA g g^T = Q_L diag(l) Q_L^T,  R = EMA g^T g = Q_R diag(r) Q_R^T
 *     powers:  u <- Q_L (f(l)^-p (Q_L^T u Q_R) f(r)^-p) Q_R^T
 *     SOAP:    u <- Q_L Adam(Q_L^T u Q_R) Q_R^T, and Q_L, Q_R follow L, R after the step. The momentum is
 *              kept as it is, not in the basis: what the published code turns at every refresh comes out the
 *              same.
 *     KL:      the same, and L averages (g Q_R f(r)) (g Q_R f(r))^T / cols, R likewise, f = max(., eps)^-1/2
 *              of the eigenvalues as they were last seen
 *
 * Products take factors in tf32 where opts.kron_tf32 says so.
 *
 * Invariants
 *  1. Moments, bases and factors are state: saved, loaded, of one matrix and member each.
 *  2. Nothing between the map and the step reads moments, or vectors before the map has: so SOAP's follow
 *     before it, while the gradients are there in one piece. Whatever does not wait for something else is one
 *     stretch of all shapes, which a device may do side by side: gradients gathered, the products of each
 *     stage of a wave, moments, looks, sweeps.
 *  3. Which step makes a basis anew is read off the live row, on the device: a parameter that was left out
 *     counts its own steps, and a graph serves every step.
 */
#include <math.h>

#include "compose/unit.h"
#include "device/backend.h"
#include "math/kron_elem.h"
#include "optim/optim_impl.h"

int pl_optim_kron(const polar_optim *opt, const pl_optim_param *p)
{
    return p->route == POLAR_ROUTE_MATRIX && pl_precondition_kron(pl_optim_rule(opt, p)->precondition) &&
           p->rows * p->cols > 0;
}

/* Matrices of one rule and shape that one call takes: the factors' decompositions are one thread each, so
 * there should be many. */
typedef struct kron {
    const polar_optim *opt;
    const polar_rule *rule;
    int64_t first, end;      /* in the order of directions */
    pl_mat D, V, live;       /* V: SOAP's, in the basis */
    pl_mat K[2], Q[2], F[2]; /* left, right */
    int64_t tf32;            /* of products */
    /* In the wave's room. What has another meaning before is the last stage's. */
    pl_mat G;    /* gathered gradients */
    pl_mat X;    /* D in the basis; then what the moments average: a gradient over its norm */
    pl_mat P;    /* the gradient in the basis; then KL's other one */
    pl_mat T[2]; /* between two products, of D and of the gradient; then KL's before it is over its norm */
    pl_mat N[2]; /* norms of what moments average */
    pl_mat S[2]; /* squares of that, left and right; one place where both take too much */
} kron;

typedef void (*kron_fn)(pl_queue *q, const kron *k);

#define MOST_ENTRIES (1 << 26) /* of the largest matrices of a call, of a wave's squares: scratch memory */
#define WAVE_BYTES   (1 << 26) /* of gradients that are gathered at once, or those of one call */

/* Calls one after the other: where the next one begins, and how much of the shared room is behind. */
typedef struct walk {
    const polar_optim *opt;
    int64_t at, end; /* in the order of directions */
    pl_mat live;     /* a row for every matrix, or no data: each call has its parameters' */
    int64_t matrices;
    char *grads;        /* the wave's; NULL: not gathered */
    char *rooms, *sums; /* ROOMS more of the same size, where there are SOAP's, else one; squares */
    pl_mat norms;
    size_t bytes, room;       /* of gradients: behind, in the wave */
    size_t squares, all_sums; /* bytes of squares likewise */
    int64_t began, soaps;     /* matrices before the wave, calls of SOAP's in it */
} walk;

enum { ROOM_X, ROOM_P, ROOM_T, ROOMS = ROOM_T + 2 };

/* SOAP and its kin: Adam in the factors' basis. */
static int has_basis(const kron *k)
{
    return pl_precondition_soap(k->rule->precondition);
}

static int takes_part(const polar_optim *opt, const pl_optim_param *p)
{
    return pl_optim_kron(opt, p) && !pl_optim_missing(p);
}

static kron kron_of(const polar_optim *opt, int64_t at)
{
    const pl_optim_param *p = &opt->parts[opt->order[at]];
    const int64_t batch = opt->members * p->row_blocks;
    kron k = {.opt = opt,
              .rule = pl_optim_rule(opt, p),
              .first = at,
              .end = at + 1,
              .D = pl_optim_blocks(p->D, p),
              .V = pl_optim_blocks(p->V, p),
              .live = pl_optim_live_of(opt, p),
              .tf32 = opt->o.kron_tf32 && p->D.dtype == POLAR_DTYPE_F32};
    for (int side = 0; side < 2; side++) {
        const int64_t n = side ? p->cols : p->rows / p->row_blocks;
        k.K[side] = pl_mat_dense(p->K[side].data, p->K[side].dtype, batch, n, n);
        k.Q[side] = pl_mat_dense(p->Q[side].data, p->Q[side].dtype, batch, n, n);
        k.F[side] = pl_mat_dense(p->F[side].data, p->F[side].dtype, batch, 1, n);
    }
    return k;
}

static int behind(const pl_mat *a, const pl_mat *b)
{
    return !a->data || (char *)a->data + pl_mat_bytes(a) == (char *)b->data;
}

/* b continues a: the same rule and shape, the next memory, and not too much of it. */
static int continues(const kron *a, const kron *b)
{
    const int64_t n = a->D.rows > a->D.cols ? a->D.rows : a->D.cols;
    int next = a->rule == b->rule && a->D.dtype == b->D.dtype && a->D.rows == b->D.rows &&
               a->D.cols == b->D.cols && behind(&a->D, &b->D) && behind(&a->V, &b->V) &&
               (a->D.batch + b->D.batch) * n * n <= MOST_ENTRIES;
    for (int side = 0; side < 2; side++)
        next = next && behind(&a->K[side], &b->K[side]) && behind(&a->Q[side], &b->Q[side]) &&
               behind(&a->F[side], &b->F[side]);
    return next;
}

static void join(kron *a, const kron *b)
{
    a->end = b->end;
    a->D.batch += b->D.batch, a->V.batch += b->V.batch;
    for (int side = 0; side < 2; side++)
        a->K[side].batch += b->K[side].batch, a->Q[side].batch += b->Q[side].batch,
            a->F[side].batch += b->F[side].batch;
}

static const pl_optim_param *part_at(const kron *k, int64_t i)
{
    return &k->opt->parts[k->opt->order[i]];
}

static int64_t matrices_of(const kron *k, const pl_optim_param *p)
{
    return k->opt->members * p->row_blocks;
}

/* The row of every member for each of its blocks. */
static void copy_live(pl_queue *q, pl_mat Y, pl_mat X, int64_t blocks)
{
    if (blocks == 1) {
        PL_CALL(copy, q, .Y = Y, .X = X);
        return;
    }
    for (int64_t b = 0; b < Y.batch; b++)
        PL_CALL(copy, q, .Y = pl_mat_at(Y, b, 1), .X = pl_mat_at(X, b / blocks, 1));
}

static size_t room_of(const pl_mat *D)
{
    return pl_scratch_bytes(pl_mat_bytes(D));
}

static int64_t entries(const pl_mat *m)
{
    return m->batch * m->rows * m->cols;
}

/* Both sides' squares are there at once. */
static int at_once(const kron *k)
{
    return entries(&k->K[0]) + entries(&k->K[1]) <= MOST_ENTRIES;
}

static pl_mat square_of(const kron *k, int side, char *data)
{
    return pl_mat_dense(data, k->D.dtype, k->D.batch, k->K[side].rows, k->K[side].cols);
}

/* Bytes of the squares of both sides, and where the right ones begin. */
static size_t squares_of(const kron *k, size_t *right)
{
    const pl_mat left = square_of(k, 0, NULL), other = square_of(k, 1, NULL);
    const size_t a = room_of(&left), b = room_of(&other);
    *right = at_once(k) ? a : 0;
    return at_once(k) ? a + b : a > b ? a : b;
}

/* A call's pieces of the wave's room. */
static void place_call(const walk *w, kron *k)
{
    const pl_mat D = k->D;
    size_t right;
    squares_of(k, &right);
    k->G = pl_mat_dense(w->grads + w->bytes, D.dtype, D.batch, D.rows, D.cols);
    k->X = k->P = k->T[0] = k->T[1] = k->G;
    k->X.data = w->rooms + w->bytes;
    if (w->soaps) {
        k->P.data = w->rooms + ROOM_P * w->room + w->bytes;
        for (int i = 0; i < 2; i++) k->T[i].data = w->rooms + (size_t)(ROOM_T + i) * w->room + w->bytes;
    }
    for (int side = 0; side < 2; side++) {
        k->N[side] = pl_mat_at(w->norms, 2 * (w->matrices - w->began) + side * D.batch, D.batch);
        k->S[side] = square_of(k, side, w->sums + w->squares + (side ? right : 0));
    }
}

/* The next call; 0 where there is none. */
static int next_kron(walk *w, kron *out)
{
    const polar_optim *opt = w->opt;
    size_t right;
    while (w->at < w->end && !takes_part(opt, &opt->parts[opt->order[w->at]])) w->at++;
    if (w->at >= w->end) return 0;
    kron k = kron_of(opt, w->at);
    for (int64_t i = k.end; i < w->end; i++) {
        if (!takes_part(opt, &opt->parts[opt->order[i]])) continue;
        const kron more = kron_of(opt, i);
        if (!continues(&k, &more)) break;
        join(&k, &more);
    }
    if (w->live.batch) k.live = pl_mat_at(w->live, w->matrices, k.D.batch);
    if (w->grads && w->rooms && w->sums) place_call(w, &k);
    w->at = k.end;
    w->matrices += k.D.batch;
    w->bytes += room_of(&k.D);
    w->squares += squares_of(&k, &right);
    *out = k;
    return 1;
}

static void for_krons(pl_queue *q, walk w, kron_fn fn)
{
    kron k;
    while (next_kron(&w, &k)) {
        q->subject = part_at(&k, k.first)->name; /* of a call the first */
        fn(q, &k);
    }
    q->subject = NULL;
}

static int is_more(walk w)
{
    kron k;
    return next_kron(&w, &k);
}

/* The same where no call waits for another. */
static void for_all(pl_queue *q, walk w, kron_fn fn)
{
    pl_queue_overlap_begin(q);
    for_krons(q, w, fn);
    pl_queue_overlap_end(q);
}

/* A live row serves all matrices of a call or has one each. */
static walk walk_all(const polar_optim *opt, pl_queue *q)
{
    walk all = {.opt = opt, .end = opt->order_count}, w = all;
    kron k;
    if ((opt->members == 1 && !opt->own_counts) || !is_more(all)) return all;
    while (next_kron(&w, &k)) continue;
    all.live = pl_scratch_mat(q, POLAR_DTYPE_F64, w.matrices, 1, PL_LIVE_COLS);
    w = all;
    pl_queue_overlap_begin(q);
    while (next_kron(&w, &k))
        for (int64_t i = k.first, at = 0; i < k.end; at += matrices_of(&k, part_at(&k, i)), i++)
            copy_live(q, pl_mat_at(k.live, at, matrices_of(&k, part_at(&k, i))),
                      pl_optim_live_of(opt, part_at(&k, i)), part_at(&k, i)->row_blocks);
    pl_queue_overlap_end(q);
    return all;
}

/* Calls from where w is on, as many as WAVE_BYTES and MOST_ENTRIES hold and one at least; w goes behind them.
 */
static walk next_wave(walk *w)
{
    walk wave = *w, ahead = *w;
    kron k;
    wave.soaps = 0, wave.began = w->matrices;
    for (int64_t squares = 0, any = 0; next_kron(&ahead, &k); any = 1) {
        squares += entries(&k.K[0]) + entries(&k.K[1]);
        if (any && (ahead.bytes - wave.bytes > WAVE_BYTES || squares > MOST_ENTRIES)) break;
        wave.soaps += has_basis(&k);
        *w = ahead;
    }
    wave.end = w->at, wave.room = w->bytes - wave.bytes, wave.bytes = 0;
    wave.all_sums = w->squares - wave.squares, wave.squares = 0;
    return wave;
}

/* Its rooms; so many matrices are in it. */
static void take_rooms(pl_queue *q, walk *wave, int64_t matrices)
{
    wave->grads = pl_scratch_take(q, wave->room);
    wave->rooms = pl_scratch_take(q, (wave->soaps ? ROOMS : 1) * wave->room);
    wave->sums = pl_scratch_take(q, wave->all_sums);
    wave->norms = pl_scratch_mat(q, POLAR_DTYPE_F64, 2 * matrices, 1, 2);
}

/* ---- factors ------------------------------------------------------------------------------------ */

static pl_mat room_like(pl_queue *q, const pl_mat *m)
{
    return pl_scratch_mat(q, m->dtype, m->batch, m->rows, m->cols);
}

/* A call's gradients in one piece, in the directions' format: a product's factors have one. */
static void gather(pl_queue *q, const kron *k)
{
    for (int64_t i = k->first, at = 0; i < k->end; i++) {
        const pl_optim_param *p = part_at(k, i);
        const int64_t n = matrices_of(k, p);
        PL_CALL(copy, q, .Y = pl_mat_at(k->G, at, n), .X = pl_optim_blocks(p->G, p));
        at += n;
    }
}

/* Every gradient has the directions' format, so that a copy has its bits. */
static int gathers_exactly(const kron *k)
{
    for (int64_t i = k->first; i < k->end; i++)
        if (part_at(k, i)->G.dtype != k->D.dtype) return 0;
    return k->end > k->first + 1;
}

/* Matrices [at, at + n) of what a side's moments average, from Y. */
static void fill(pl_queue *q, const kron *k, pl_mat X, int side, int64_t at, int64_t n, pl_mat Y)
{
    pl_unit(q, pl_mat_at(X, at, n), pl_mat_at(k->N[side], at, n), Y);
}

static void unit_gradient(pl_queue *q, const kron *k)
{
    if (gathers_exactly(k)) { /* one call for all of them */
        fill(q, k, k->X, 0, 0, k->D.batch, k->G);
        return;
    }
    for (int64_t i = k->first, at = 0; i < k->end; i++) {
        const pl_optim_param *p = part_at(k, i);
        fill(q, k, k->X, 0, at, matrices_of(k, p), pl_optim_blocks(p->G, p));
        at += matrices_of(k, p);
    }
}

static pl_kron kind_of(const polar_rule *r)
{
    switch (r->precondition) {
    case POLAR_PRECONDITION_KRON_NESTEROV: return PL_KRON_NESTEROV;
    case POLAR_PRECONDITION_KRON_TRACE: return PL_KRON_TRACE;
    case POLAR_PRECONDITION_KL_SOAP: return PL_KRON_CLAMPED;
    default: return PL_KRON_SHIFTED;
    }
}

static double power_of(const polar_rule *r)
{
    return kind_of(r) == PL_KRON_CLAMPED ? 0.5 : r->kron_power;
}

static void eigen(pl_queue *q, const kron *k, int side, pl_mat K)
{
    const polar_rule *r = k->rule;
    PL_CALL(kron_eigen, q, .Q = k->Q[side], .F = k->F[side], .K = K, .live = k->live, .kind = kind_of(r),
            .every = r->refresh, .after = has_basis(k) ? r->first_basis : 0, .power = power_of(r));
}

/* KL's factors average left and right g Q_R f_R and f_L Q_L^T g over the roots of the other sides: both
 * before the vectors move. */
static int is_kl(const kron *k)
{
    return kind_of(k->rule) == PL_KRON_CLAMPED;
}

static void turn_for_kl(pl_queue *q, const kron *k)
{
    const double rows = (double)k->D.rows, cols = (double)k->D.cols;
    if (!is_kl(k)) return;
    PL_CALL(gemm, q, .C = k->T[0], .A = k->G, .B = k->Q[1], .tf32 = k->tf32, .alpha = 1 / sqrt(cols));
    PL_CALL(gemm, q, .C = k->T[1], .A = k->Q[0], .ta = 1, .B = k->G, .tf32 = k->tf32,
            .alpha = 1 / sqrt(rows));
}

static void scale_for_kl(pl_queue *q, const kron *k)
{
    if (!is_kl(k)) return;
    PL_CALL(scale_lines, q, .Y = k->T[0], .X = k->T[0], .C = k->F[1]);
    PL_CALL(scale_lines, q, .Y = k->T[1], .X = k->T[1], .R = k->F[0]);
}

/* Over their norms. */
static void unite(pl_queue *q, const kron *k)
{
    if (!is_kl(k)) {
        unit_gradient(q, k);
        return;
    }
    fill(q, k, k->X, 0, 0, k->D.batch, k->T[0]);
    fill(q, k, k->P, 1, 0, k->D.batch, k->T[1]);
}

static void square(pl_queue *q, const kron *k, int side)
{
    const pl_mat X = side && is_kl(k) ? k->P : k->X;
    PL_CALL(gemm, q, .C = k->S[side], .A = X, .ta = side, .B = X, .tb = !side, .sym = 1, .tf32 = k->tf32,
            .alpha = 1);
}

static void move(pl_queue *q, const kron *k, int side, pl_mat A)
{
    PL_CALL(kron_moment, q, .A = A, .K = k->K[side], .T = k->S[side], .N = k->N[side && is_kl(k)],
            .live = k->live);
}

static int keeps(const kron *k)
{
    return kind_of(k->rule) != PL_KRON_NESTEROV;
}

static void square_both(pl_queue *q, const kron *k)
{
    for (int side = 0; side < 2 && at_once(k); side++) square(q, k, side);
}

static void move_both(pl_queue *q, const kron *k)
{
    for (int side = 0; side < 2 && at_once(k) && keeps(k); side++) move(q, k, side, (pl_mat){0});
}

/* What is made of a sum that is not kept is made at once; and sides whose squares have one place. */
static void move_others(pl_queue *q, const kron *k)
{
    if (at_once(k) && keeps(k)) return;
    for (int side = 0; side < 2; side++) {
        pl_scratch_mark mark = pl_scratch_begin(q);
        const pl_mat A = keeps(k) ? (pl_mat){0} : room_like(q, &k->K[side]);
        if (!at_once(k)) square(q, k, side);
        move(q, k, side, A);
        if (!keeps(k)) eigen(q, k, side, A);
        pl_scratch_end(q, mark);
    }
}

/* Where the moments are due to be looked at. */
static void look(pl_queue *q, const kron *k)
{
    for (int side = 0; side < 2 && keeps(k); side++) eigen(q, k, side, k->K[side]);
}

static void sweep(pl_queue *q, const kron *k)
{
    const polar_rule *r = k->rule;
    for (int side = 0; side < 2 && has_basis(k); side++)
        PL_CALL(kron_sweep, q, .Q = k->Q[side], .V = k->V, .F = k->F[side], .K = k->K[side], .live = k->live,
                .trans = side, .every = r->refresh, .after = r->first_basis, .kind = kind_of(r),
                .power = power_of(r));
}

/* ---- the direction in the factors' coordinates --------------------------------------------------- */

/* Y = Q_L^T X Q_R */
static void project(pl_queue *q, const kron *k, pl_mat Y, pl_mat X)
{
    pl_scratch_mark mark = pl_scratch_begin(q);
    pl_mat T = room_like(q, &Y);
    PL_CALL(gemm, q, .C = T, .A = k->Q[0], .ta = 1, .B = X, .tf32 = k->tf32, .alpha = 1);
    PL_CALL(gemm, q, .C = Y, .A = T, .B = k->Q[1], .tf32 = k->tf32, .alpha = 1);
    pl_scratch_end(q, mark);
}

/* Y = Q_L X Q_R^T */
static void project_back(pl_queue *q, const kron *k, pl_mat Y, pl_mat X)
{
    pl_scratch_mark mark = pl_scratch_begin(q);
    pl_mat T = room_like(q, &Y);
    PL_CALL(gemm, q, .C = T, .A = k->Q[0], .B = X, .tf32 = k->tf32, .alpha = 1);
    PL_CALL(gemm, q, .C = Y, .A = T, .B = k->Q[1], .tb = 1, .tf32 = k->tf32, .alpha = 1);
    pl_scratch_end(q, mark);
}

/* Y = X ||A|| / ||X||, in X's place; A is what it was before, and is lost. <A, A / ||A||> is A's norm in the
 * form in which `normalise` multiplies with it. */
static void keep_norm(pl_queue *q, pl_mat X, pl_mat A)
{
    pl_mat N = pl_scratch_mat(q, POLAR_DTYPE_F64, A.batch, 1, 2),
           M = pl_scratch_mat(q, POLAR_DTYPE_F64, A.batch, 1, 4), unit = room_like(q, &A), norm = M;
    norm.cols = 2;
    pl_unit(q, unit, N, A);
    PL_CALL(inner, q, .N = M, .X = A, .Y = unit);
    pl_unit(q, X, N, X);
    PL_CALL(normalise, q, .Y = X, .X = X, .N = norm);
}

/* D <- L^-p D R^-p */
static void whiten(pl_queue *q, const kron *k, int keeps)
{
    pl_scratch_mark mark = pl_scratch_begin(q);
    pl_mat X = room_like(q, &k->D), Y = keeps ? room_like(q, &k->D) : X;
    project(q, k, X, k->D);
    PL_CALL(scale_lines, q, .Y = Y, .X = X, .R = k->F[0], .C = k->F[1]);
    if (keeps) keep_norm(q, Y, X);
    project_back(q, k, k->D, Y);
    pl_scratch_end(q, mark);
}

/* SOAP: D <- Q_L (p / (sqrt(v^) + eps)) Q_R^T, p = Q_L^T D Q_R, v the moment of the gradient there, or of p.
 * A function each stage, since no product waits for another shape's. */
static int of_its_own(const kron *k)
{
    return k->rule->precondition == POLAR_PRECONDITION_SOAP_MOMENTUM;
}

static void turn_left(pl_queue *q, const kron *k)
{
    if (!has_basis(k)) return;
    PL_CALL(gemm, q, .C = k->T[0], .A = k->Q[0], .ta = 1, .B = k->D, .tf32 = k->tf32, .alpha = 1);
    if (of_its_own(k)) return;
    PL_CALL(gemm, q, .C = k->T[1], .A = k->Q[0], .ta = 1, .B = k->G, .tf32 = k->tf32, .alpha = 1);
}

static void turn_right(pl_queue *q, const kron *k)
{
    if (!has_basis(k)) return;
    PL_CALL(gemm, q, .C = k->X, .A = k->T[0], .B = k->Q[1], .tf32 = k->tf32, .alpha = 1);
    if (of_its_own(k)) return;
    PL_CALL(gemm, q, .C = k->P, .A = k->T[1], .B = k->Q[1], .tf32 = k->tf32, .alpha = 1);
}

static void adam_in_basis(pl_queue *q, const kron *k)
{
    if (has_basis(k))
        PL_CALL(entry_stage, q, .Y = k->X, .V = k->V, .X = k->X, .G = of_its_own(k) ? (pl_mat){0} : k->P,
                .live = k->live, .after = of_its_own(k) ? k->rule->first_basis : 0);
}

static void turn_left_back(pl_queue *q, const kron *k)
{
    if (has_basis(k)) PL_CALL(gemm, q, .C = k->T[0], .A = k->Q[0], .B = k->X, .tf32 = k->tf32, .alpha = 1);
}

static void turn_right_back(pl_queue *q, const kron *k)
{
    if (has_basis(k))
        PL_CALL(gemm, q, .C = k->D, .A = k->T[0], .B = k->Q[1], .tb = 1, .tf32 = k->tf32, .alpha = 1);
}

/* What the gradients of a wave say. */
static void take_in(pl_queue *q, walk wave)
{
    for_all(q, wave, gather);
    for_all(q, wave, turn_left);
    for_all(q, wave, turn_right);
    for_krons(q, wave, adam_in_basis);
    for_all(q, wave, turn_left_back);
    for_all(q, wave, turn_right_back);
    for_all(q, wave, turn_for_kl);
    for_all(q, wave, scale_for_kl);
    (pl_queue_has(q, PL_OP_frob_normalise) ? for_all : for_krons)(q, wave, unite); /* else two ops in a row */
    for_all(q, wave, square_both);
    for_all(q, wave, move_both);
    for_krons(q, wave, move_others);
}

static void whiten_before(pl_queue *q, const kron *k)
{
    if (!has_basis(k)) whiten(q, k, 0);
}

static void unwhiten(pl_queue *q, const kron *k)
{
    if (k->rule->post == POLAR_POST_UNWHITEN) whiten(q, k, 1);
}

void pl_optim_kron_before(polar_optim *opt, pl_queue *q)
{
    pl_scratch_mark mark = pl_scratch_begin(q);
    const walk all = walk_all(opt, q);
    for (walk w = all; is_more(w);) {
        walk wave = next_wave(&w);
        pl_scratch_mark room = pl_scratch_begin(q);
        take_rooms(q, &wave, w.matrices - wave.began);
        take_in(q, wave);
        pl_scratch_end(q, room);
    }
    for_all(q, all, look);
    for_all(q, all, sweep);
    for_krons(q, all, whiten_before);
    pl_scratch_end(q, mark);
}

void pl_optim_kron_after(polar_optim *opt, pl_queue *q)
{
    pl_scratch_mark mark = pl_scratch_begin(q);
    for_krons(q, walk_all(opt, q), unwhiten);
    pl_scratch_end(q, mark);
}
