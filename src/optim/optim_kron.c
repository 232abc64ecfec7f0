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
 * Invariants
 *  1. Moments, bases and factors are state: saved, loaded, of one matrix and member each.
 *  2. Which step makes a basis anew is read off the live row, on the device: a parameter that was left out
 *     counts its own steps, and a graph serves every step.
 */
#include <math.h>

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
} kron;

typedef void (*kron_fn)(pl_queue *q, const kron *k);

#define MOST_ENTRIES (1 << 26) /* of the largest matrices of a call: what it takes of scratch memory */

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
              .live = pl_optim_live_of(opt, p)};
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

/* A live row serves all matrices of a call or has one each. */
static void call(pl_queue *q, const kron *one, kron_fn fn)
{
    const polar_optim *opt = one->opt;
    kron k = *one;
    pl_scratch_mark mark = pl_scratch_begin(q);
    if (opt->members > 1 || opt->own_counts) {
        k.live = pl_scratch_mat(q, POLAR_DTYPE_F64, k.D.batch, 1, PL_LIVE_COLS);
        pl_queue_overlap_begin(q);
        for (int64_t i = k.first, at = 0; i < k.end; at += matrices_of(&k, part_at(&k, i)), i++)
            copy_live(q, pl_mat_at(k.live, at, matrices_of(&k, part_at(&k, i))),
                      pl_optim_live_of(opt, part_at(&k, i)), part_at(&k, i)->row_blocks);
        pl_queue_overlap_end(q);
    }
    fn(q, &k);
    pl_scratch_end(q, mark);
}

static void for_krons(polar_optim *opt, pl_queue *q, kron_fn fn)
{
    kron open = {0};
    for (int64_t i = 0; i < opt->order_count; i++) {
        const pl_optim_param *p = &opt->parts[opt->order[i]];
        if (!takes_part(opt, p)) continue;
        const kron next = kron_of(opt, i);
        if (open.rule && continues(&open, &next)) {
            join(&open, &next);
            continue;
        }
        if (open.rule) call(q, &open, fn);
        open = next;
        q->subject = p->name; /* of a call the first */
    }
    if (open.rule) call(q, &open, fn);
    q->subject = NULL;
}

/* ---- factors ------------------------------------------------------------------------------------ */

static pl_mat room_like(pl_queue *q, const pl_mat *m)
{
    return pl_scratch_mat(q, m->dtype, m->batch, m->rows, m->cols);
}

/* All gradients in one piece, in the directions' format: a product's factors have one. */
static pl_mat gathered(pl_queue *q, const kron *k)
{
    pl_mat Y = room_like(q, &k->D);
    pl_queue_overlap_begin(q);
    for (int64_t i = k->first, at = 0; i < k->end; i++) {
        const pl_optim_param *p = part_at(k, i);
        const int64_t n = matrices_of(k, p);
        PL_CALL(copy, q, .Y = pl_mat_at(Y, at, n), .X = pl_optim_blocks(p->G, p));
        at += n;
    }
    pl_queue_overlap_end(q);
    return Y;
}

/* Every gradient has the directions' format, so that a copy has its bits. */
static int gathers_exactly(const kron *k)
{
    for (int64_t i = k->first; i < k->end; i++)
        if (part_at(k, i)->G.dtype != k->D.dtype) return 0;
    return k->end > k->first + 1;
}

/* What moments average: a gradient over its norm N. */
typedef struct part {
    pl_mat unit, N;
} part;

static part part_room(pl_queue *q, const kron *k)
{
    return (part){.unit = room_like(q, &k->D), .N = pl_scratch_mat(q, POLAR_DTYPE_F64, k->D.batch, 1, 2)};
}

/* Matrices [at, at + n) of it, from X. */
static void part_fill(pl_queue *q, part x, int64_t at, int64_t n, pl_mat X)
{
    PL_CALL(frob, q, .N = pl_mat_at(x.N, at, n), .X = X, .weight = 1);
    PL_CALL(normalise, q, .Y = pl_mat_at(x.unit, at, n), .X = X, .N = pl_mat_at(x.N, at, n));
}

static part gradient_part(pl_queue *q, const kron *k)
{
    part x = part_room(q, k);
    if (gathers_exactly(k)) { /* three calls for all of them */
        part_fill(q, x, 0, k->D.batch, gathered(q, k));
        return x;
    }
    for (int64_t i = k->first, at = 0; i < k->end; i++) {
        const pl_optim_param *p = part_at(k, i);
        part_fill(q, x, at, matrices_of(k, p), pl_optim_blocks(p->G, p));
        at += matrices_of(k, p);
    }
    return x;
}

/* Of the KL factors' left and right, g Q_R f_R and f_L Q_L^T g over the roots of the other sides: both before
 * a moment moves. */
static void whitened_parts(pl_queue *q, const kron *k, part out[2])
{
    const int64_t rows = k->D.rows, cols = k->D.cols;
    pl_mat G = gathered(q, k), X = room_like(q, &k->D);
    out[0] = part_room(q, k), out[1] = part_room(q, k);
    PL_CALL(gemm, q, .C = X, .A = G, .B = k->Q[1], .alpha = 1 / sqrt((double)cols));
    PL_CALL(scale_lines, q, .Y = X, .X = X, .C = k->F[1]);
    part_fill(q, out[0], 0, X.batch, X);
    PL_CALL(gemm, q, .C = X, .A = k->Q[0], .ta = 1, .B = G, .alpha = 1 / sqrt((double)rows));
    PL_CALL(scale_lines, q, .Y = X, .X = X, .R = k->F[0]);
    part_fill(q, out[1], 0, X.batch, X);
}

/* The moment of a factor moves on by x x^T, or x^T x. */
static void move_moment(pl_queue *q, const kron *k, int side, pl_mat A, part x)
{
    pl_scratch_mark mark = pl_scratch_begin(q);
    pl_mat T = pl_scratch_mat(q, x.unit.dtype, x.unit.batch, k->K[side].rows, k->K[side].cols);
    PL_CALL(gemm, q, .C = T, .A = x.unit, .ta = side, .B = x.unit, .tb = !side, .sym = 1, .alpha = 1);
    PL_CALL(kron_moment, q, .A = A, .K = k->K[side], .T = T, .N = x.N, .live = k->live);
    pl_scratch_end(q, mark);
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

/* The moments move on, and what is made of them with them, where it is due. */
static void refresh(pl_queue *q, const kron *k)
{
    const polar_rule *r = k->rule;
    const pl_kron kind = kind_of(r);
    const int soap = pl_precondition_soap(r->precondition);
    const double power = kind == PL_KRON_CLAMPED ? 0.5 : r->kron_power;
    pl_scratch_mark mark = pl_scratch_begin(q);
    part x[2];
    if (kind == PL_KRON_CLAMPED) whitened_parts(q, k, x);
    else x[0] = x[1] = gradient_part(q, k);
    for (int side = 0; side < 2; side++) {
        pl_mat A = {0};
        if (kind == PL_KRON_NESTEROV) A = room_like(q, &k->K[side]);
        move_moment(q, k, side, A, x[side]);
        PL_CALL(kron_eigen, q, .Q = k->Q[side], .F = k->F[side],
                .K = kind == PL_KRON_NESTEROV ? A : k->K[side], .live = k->live, .kind = kind,
                .every = r->refresh, .after = soap ? r->first_basis : 0, .power = power);
        if (soap)
            PL_CALL(kron_sweep, q, .Q = k->Q[side], .V = k->V, .F = k->F[side], .K = k->K[side],
                    .live = k->live, .trans = side, .every = r->refresh, .after = r->first_basis,
                    .kind = kind, .power = power);
    }
    pl_scratch_end(q, mark);
}

/* ---- the direction in the factors' coordinates --------------------------------------------------- */

/* Y = Q_L^T X Q_R */
static void project(pl_queue *q, const kron *k, pl_mat Y, pl_mat X)
{
    pl_scratch_mark mark = pl_scratch_begin(q);
    pl_mat T = room_like(q, &Y);
    PL_CALL(gemm, q, .C = T, .A = k->Q[0], .ta = 1, .B = X, .alpha = 1);
    PL_CALL(gemm, q, .C = Y, .A = T, .B = k->Q[1], .alpha = 1);
    pl_scratch_end(q, mark);
}

/* Y = Q_L X Q_R^T */
static void project_back(pl_queue *q, const kron *k, pl_mat Y, pl_mat X)
{
    pl_scratch_mark mark = pl_scratch_begin(q);
    pl_mat T = room_like(q, &Y);
    PL_CALL(gemm, q, .C = T, .A = k->Q[0], .B = X, .alpha = 1);
    PL_CALL(gemm, q, .C = Y, .A = T, .B = k->Q[1], .tb = 1, .alpha = 1);
    pl_scratch_end(q, mark);
}

/* Y = X ||A|| / ||X||, in X's place; A is what it was before, and is lost. <A, A / ||A||> is A's norm in the
 * form in which `normalise` multiplies with it. */
static void keep_norm(pl_queue *q, pl_mat X, pl_mat A)
{
    pl_mat N = pl_scratch_mat(q, POLAR_DTYPE_F64, A.batch, 1, 2),
           M = pl_scratch_mat(q, POLAR_DTYPE_F64, A.batch, 1, 4), unit = room_like(q, &A), norm = M;
    norm.cols = 2;
    PL_CALL(frob, q, .N = N, .X = A, .weight = 1);
    PL_CALL(normalise, q, .Y = unit, .X = A, .N = N);
    PL_CALL(inner, q, .N = M, .X = A, .Y = unit);
    PL_CALL(frob, q, .N = N, .X = X, .weight = 1);
    PL_CALL(normalise, q, .Y = X, .X = X, .N = N);
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

/* D <- Q_L (p / (sqrt(v^) + eps)) Q_R^T, p = Q_L^T D Q_R, v the moment of the gradient there, or of p */
static void adam_in_basis(pl_queue *q, const kron *k)
{
    const int own = k->rule->precondition == POLAR_PRECONDITION_SOAP_MOMENTUM;
    pl_scratch_mark mark = pl_scratch_begin(q);
    pl_mat X = room_like(q, &k->D), G = own ? (pl_mat){0} : room_like(q, &k->D);
    project(q, k, X, k->D);
    if (!own) project(q, k, G, gathered(q, k));
    PL_CALL(entry_stage, q, .Y = X, .V = k->V, .X = X, .G = G, .live = k->live,
            .after = own ? k->rule->first_basis : 0);
    project_back(q, k, k->D, X);
    pl_scratch_end(q, mark);
}

static void before(pl_queue *q, const kron *k)
{
    if (pl_precondition_soap(k->rule->precondition)) {
        adam_in_basis(q, k);
        return;
    }
    refresh(q, k);
    whiten(q, k, 0);
}

static void after(pl_queue *q, const kron *k)
{
    if (k->rule->post == POLAR_POST_UNWHITEN) whiten(q, k, 1);
    if (pl_precondition_soap(k->rule->precondition)) refresh(q, k);
}

void pl_optim_kron_before(polar_optim *opt, pl_queue *q)
{
    for_krons(opt, q, before);
}

void pl_optim_kron_after(polar_optim *opt, pl_queue *q)
{
    for_krons(opt, q, after);
}
