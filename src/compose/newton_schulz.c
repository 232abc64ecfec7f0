/* newton_schulz.c -- X <- polar factor of X, by an odd polynomial iteration.
 *
 *     X <- a X + (b A + c A A) X,   A = X X^T        (m <= n, ||X||_2 <= 1)
 *
 * With Jordan's table singular values end in about [0.68, 1.2], not at 1: that is the method, not an error.
 * With the classical (15/8, -5/4, 3/8) they reach 1 to rounding.
 *
 * The Gram form (POLAR_ROUND_GRAM) goes several steps on A alone before X is made: with Z = a I + P, P = b A
 * + c A A, the next step's A is Z A Z, and the polynomials are joined as Q = q I + P, q the product of the a,
 * whose part q I is never rounded. A step on A costs m^3 products instead of m^2 n ones. A's roundings, about
 * 2^-9 of its largest entries, grow by a^2 a step against the small singular values, so a chain ends before
 * they matter (ns_chain.c): with Jordan's table three steps, then two.
 *
 * Matrices of one shape and format (a tall one counts as its transpose) form a group and run as one batch; no
 * result depends on what else is in its group, since every op treats a batch's matrices alike and apart.
 *     ./polar verify --shapes 192x768
 */
#include "compose/newton_schulz.h"

typedef struct {
    pl_mat X, Y; /* (B, m, n): the iterate and the next one */
    pl_mat A, P; /* (B, m, m): A = X X^T and the polynomial in it */
    pl_mat S;    /* (B, m, m): reference rounding and Gram form only */
    pl_mat B, T; /* (B, m, m): Gram form only, T in f32 */
} ns_work;

/* P = b A + c A A; a cubic table (c = 0) has no product here. Symmetric factors stand transposed, as the
 * halved products want them. */
static void polynomial(pl_queue *q, pl_mat P, pl_mat A, const polar_coef *k)
{
    if (k->c == 0) PL_CALL(axpby, q, .Y = P, .X = A, .alpha = k->b);
    else PL_CALL(gemm, q, .C = P, .A = A, .B = A, .tb = 1, .sym = 1, .alpha = k->c, .D = A, .beta = k->b);
}

/* Linear combinations in the epilogue of the products, each result rounded once. A step, and in the Gram form
 * those joined to it. */
static void steps_fused(pl_queue *q, const ns_work *w, const polar_coef *k, int joined)
{
    pl_mat A = w->A, P = w->P, B = w->P, free = w->S;
    double factor = k->a;
    /* A = X X^T        (m, m) */
    PL_CALL(gemm, q, .C = A, .A = w->X, .B = w->X, .tb = 1, .sym = 1, .alpha = 1);
    /* P = b A + c A A  (m, m) */
    polynomial(q, P, A, k);
    for (int s = 0; s < joined; s++) {
        /* W = Z A */
        PL_CALL(gemm, q, .C = free, .A = B, .B = A, .tb = 1, .sym = 1, .alpha = 1, .D = A, .beta = k->a);
        /* A = W Z */
        PL_CALL(gemm, q, .C = A, .A = free, .B = B, .tb = 1, .sym = 1, .alpha = 1, .D = free, .beta = k->a);
        k++, B = w->B;
        polynomial(q, B, A, k);
        PL_CALL(axpby, q, .Y = w->T, .X = B, .alpha = factor, .Z = P, .beta = k->a);
        /* (a I + B) (q I + P) - a q I */
        PL_CALL(gemm, q, .C = free, .A = B, .B = P, .tb = 1, .sym = 1, .alpha = 1, .D = w->T, .beta = 1);
        pl_mat_swap(&P, &free);
        factor *= k->a;
    }
    /* Y = q X + P X    (m, n) */
    PL_CALL(gemm, q, .C = w->Y, .A = P, .B = w->X, .alpha = 1, .D = w->X, .beta = factor);
}

/* One rounding to bf16 per operation, in the order in which Python reads c * A @ A: what the paper ran. */
static void step_reference(pl_queue *q, const ns_work *w, polar_coef k)
{
    /* A = R(X X^T) */
    PL_CALL(gemm, q, .C = w->A, .A = w->X, .B = w->X, .tb = 1, .sym = 1, .alpha = 1);
    /* P = R(c A) */
    PL_CALL(axpby, q, .Y = w->P, .X = w->A, .alpha = k.c);
    /* S = R(P A) */
    PL_CALL(gemm, q, .C = w->S, .A = w->P, .B = w->A, .alpha = 1);
    /* P = R(R(b A) + S) */
    PL_CALL(axpby, q, .Y = w->P, .X = w->A, .alpha = k.b, .Z = w->S, .beta = 1, .round_terms = 1);
    /* Y = R(P X) */
    PL_CALL(gemm, q, .C = w->Y, .A = w->P, .B = w->X, .alpha = 1);
    /* Y = R(R(a X) + Y) */
    PL_CALL(axpby, q, .Y = w->Y, .X = w->X, .alpha = k.a, .Z = w->Y, .beta = 1, .round_terms = 1);
}

void pl_ns_coefs(double *out, const polar_coef *coefs, int64_t steps)
{
    for (int64_t i = 0; i < steps; i++)
        out[3 * i] = coefs[i].a, out[3 * i + 1] = coefs[i].b, out[3 * i + 2] = coefs[i].c;
}

/* The op's arguments for the steps from `first` on. */
static pl_args_newton_schulz steps_args(pl_mat X, const pl_ns_opts *o, int first)
{
    pl_args_newton_schulz a = {
        .X = X, .steps = o->steps - first < PL_FUSED_STEPS ? o->steps - first : PL_FUSED_STEPS};
    pl_ns_coefs(a.coef, o->coefs + first, a.steps);
    a.chain = pl_ns_chain(o->joined, first, a.steps, &X);
    return a;
}

/* All steps on X in one op, for devices that have it: the bits of steps_fused but for a chain's (ops.def).
 * The result goes to Y, where there is one, else it is X. */
static void steps_native(pl_queue *q, pl_mat X, pl_mat Y, const pl_ns_opts *o)
{
    for (int s = 0; s < o->steps; s += PL_FUSED_STEPS) {
        pl_args_newton_schulz a = steps_args(X, o, s);
        if (s + a.steps == o->steps) a.Y = Y;
        pl_call_newton_schulz(q, &a);
    }
}

/* How many steps after step s are joined with it; chains end where those of steps_native do. */
static int joined_after(const pl_ns_opts *o, int s, const pl_mat *X)
{
    int first = s / PL_FUSED_STEPS * PL_FUSED_STEPS;
    return (int)pl_chain_joined(
        pl_ns_chain(o->joined, first, o->steps - first < PL_FUSED_STEPS ? o->steps - first : PL_FUSED_STEPS,
                    X),
        s - first);
}

static void steps_composed(pl_queue *q, ns_work *w, const pl_ns_opts *o)
{
    int reference = o->rounding == POLAR_ROUND_REFERENCE, gram = o->rounding == POLAR_ROUND_GRAM;
    w->Y = pl_scratch_mat(q, o->precision, w->X.batch, w->X.rows, w->X.cols);
    w->A = pl_scratch_mat(q, o->precision, w->X.batch, w->X.rows, w->X.rows);
    w->P = pl_scratch_mat(q, o->precision, w->X.batch, w->X.rows, w->X.rows);
    if (reference || gram) w->S = pl_scratch_mat(q, o->precision, w->X.batch, w->X.rows, w->X.rows);
    if (gram) w->B = pl_scratch_mat(q, o->precision, w->X.batch, w->X.rows, w->X.rows);
    if (gram) w->T = pl_scratch_mat(q, POLAR_DTYPE_F32, w->X.batch, w->X.rows, w->X.rows);
    for (int s = 0, joined; s < o->steps; s += 1 + joined) {
        joined = joined_after(o, s, &w->X);
        if (reference) step_reference(q, w, o->coefs[s]);
        else steps_fused(q, w, o->coefs + s, joined);
        pl_mat_swap(&w->X, &w->Y);
    }
}

static int is_tall(const pl_mat *m)
{
    return m->rows > m->cols;
}

static int64_t short_side(const pl_mat *m)
{
    return is_tall(m) ? m->cols : m->rows;
}

static int64_t long_side(const pl_mat *m)
{
    return is_tall(m) ? m->rows : m->cols;
}

/* One format too: a mate in f64 would have everybody normalised in double. */
static int same_group(const pl_mat *a, const pl_mat *b)
{
    return short_side(a) == short_side(b) && long_side(a) == long_side(b) && a->dtype == b->dtype;
}

/* The group's matrices side by side, short side first: the caller's own memory if it is that already, else a
 * copy. */
static pl_mat gather(pl_queue *q, const pl_mat *in, int64_t leader, int64_t n)
{
    int64_t members = 0, batch = 0, first = 0;
    for (int64_t i = leader; i < n; i++)
        if (same_group(&in[i], &in[leader])) {
            batch += in[i].batch;
            members++;
        }
    if (members == 1 && !is_tall(&in[leader])) return in[leader];
    pl_mat all = pl_scratch_mat(q, in[leader].dtype, batch, short_side(&in[leader]), long_side(&in[leader]));
    for (int64_t i = leader; i < n; i++)
        if (same_group(&in[i], &in[leader])) {
            PL_CALL(copy, q, .Y = pl_mat_at(all, first, in[i].batch), .X = in[i], .trans = is_tall(&in[i]));
            first += in[i].batch;
        }
    return all;
}

static void scatter(pl_queue *q, const pl_mat *out, const pl_mat *in, pl_mat X, int64_t leader, int64_t n)
{
    int64_t first = 0;
    for (int64_t i = leader; i < n; i++)
        if (same_group(&in[i], &in[leader])) {
            PL_CALL(copy, q, .Y = out[i], .X = pl_mat_at(X, first, out[i].batch), .trans = is_tall(&out[i]));
            first += out[i].batch;
        }
}

/* Y = X over its norm, of a tall X its transpose's, or over the shared one. */
static void normalise(pl_queue *q, pl_mat Y, pl_mat X, int tall, const pl_mat *shared, const pl_ns_opts *o)
{
    int reference = o->rounding == POLAR_ROUND_REFERENCE;
    if (!shared && !reference && pl_queue_has(q, PL_OP_frob_normalise)) {
        PL_CALL(frob_normalise, q, .Y = Y, .X = X, .trans = tall, .eps = o->eps);
        return;
    }
    pl_scratch_mark mark = pl_scratch_begin(q);
    pl_mat N = shared ? *shared : pl_scratch_mat(q, POLAR_DTYPE_F64, X.batch, 1, 2);
    if (!shared) PL_CALL(frob, q, .N = N, .X = X, .weight = 1, .rounded = reference, .trans = tall);
    PL_CALL(normalise, q, .Y = Y, .X = X, .N = N, .reference = reference, .eps = o->eps);
    pl_scratch_end(q, mark);
}

/* All members of leader's group, over their own norms or over the shared one. */
static void run_group(pl_queue *q, const pl_mat *out, const pl_mat *in, int64_t leader, int64_t n,
                      const pl_mat *shared, const pl_ns_opts *o)
{
    pl_scratch_mark mark = pl_scratch_begin(q);
    pl_mat G = gather(q, in, leader, n);
    ns_work w = {.X = pl_scratch_mat(q, o->precision, G.batch, G.rows, G.cols)};
    normalise(q, w.X, G, 0, shared, o);
    steps_composed(q, &w, o);
    scatter(q, out, in, w.X, leader, n);
    pl_scratch_end(q, mark);
}

static int fused_format(polar_dtype dtype)
{
    return dtype == POLAR_DTYPE_F32 || dtype == POLAR_DTYPE_BF16;
}

/* The same with the op that takes tall matrices as they are: nothing is gathered, nothing transposed. The
 * tall members' X stand first, then the others'. */
static void run_group_native(pl_queue *q, const pl_mat *out, const pl_mat *in, int64_t leader, int64_t n,
                             const pl_mat *shared, const pl_ns_opts *o)
{
    pl_scratch_mark mark = pl_scratch_begin(q);
    for (int tall = 1; tall >= 0; tall--) {
        int64_t batch = 0, first = 0, last = leader;
        for (int64_t i = leader; i < n; i++)
            if (same_group(&in[i], &in[leader]) && is_tall(&in[i]) == tall) batch += in[last = i].batch;
        if (!batch) continue;
        int64_t m = short_side(&in[leader]), l = long_side(&in[leader]);
        pl_mat all = pl_scratch_mat(q, POLAR_DTYPE_BF16, batch, tall ? l : m, tall ? m : l);
        for (int64_t i = leader; i < n; i++) {
            if (!same_group(&in[i], &in[leader]) || is_tall(&in[i]) != tall) continue;
            normalise(q, pl_mat_at(all, first, in[i].batch), in[i], tall, shared, o);
            first += in[i].batch;
        }
        /* the only one's result goes where it is wanted */
        const int alone = batch == out[last].batch && fused_format(out[last].dtype) && o->steps > 0;
        steps_native(q, all, alone ? out[last] : (pl_mat){0}, o);
        if (alone) continue;
        first = 0;
        for (int64_t i = leader; i < n; i++) {
            if (!same_group(&in[i], &in[leader]) || is_tall(&in[i]) != tall) continue;
            PL_CALL(copy, q, .Y = out[i], .X = pl_mat_at(all, first, in[i].batch));
            first += in[i].batch;
        }
    }
    pl_scratch_end(q, mark);
}

/* Everything of a matrix at once. */
static pl_args_polar_map whole_args(const pl_mat *out, const pl_mat *in, const pl_mat *shared,
                                    const pl_ns_opts *o)
{
    pl_args_polar_map a = {.Y = *out, .X = *in, .steps = o->steps, .eps = o->eps};
    if (shared) a.N = *shared;
    pl_ns_coefs(a.coef, o->coefs, o->steps);
    a.chain = pl_ns_chain(o->joined, 0, o->steps, in);
    return a;
}

static void run_group_whole(pl_queue *q, const pl_mat *out, const pl_mat *in, int64_t leader, int64_t n,
                            const pl_mat *shared, const pl_ns_opts *o)
{
    for (int64_t i = leader; i < n; i++) {
        if (!same_group(&in[i], &in[leader])) continue;
        pl_args_polar_map a = whole_args(&out[i], &in[i], shared, o);
        pl_call_polar_map(q, &a);
    }
}

/* ---- which way a group goes: of its shape and formats ------------------------------------------- */

typedef void (*group_fn)(pl_queue *q, const pl_mat *out, const pl_mat *in, int64_t leader, int64_t n,
                         const pl_mat *shared, const pl_ns_opts *o);

/* One op for each list entry, where the device has it and they are all of its formats. */
static int is_whole(pl_queue *q, const pl_mat *out, const pl_mat *in, int64_t leader, int64_t n,
                    const pl_mat *shared, const pl_ns_opts *o)
{
    int can = o->steps <= PL_FUSED_STEPS;
    for (int64_t i = leader; i < n && can; i++) {
        if (!same_group(&in[i], &in[leader])) continue;
        can = fused_format(in[i].dtype) && fused_format(out[i].dtype);
        if (!can) break;
        pl_args_polar_map a = whole_args(&out[i], &in[i], shared, o);
        can = pl_queue_serves(q, PL_OP_polar_map, &a);
    }
    return can;
}

static int is_native(pl_queue *q, const pl_mat *in, const pl_ns_opts *o)
{
    int can = 1;
    for (int s = 0; s < o->steps && can; s += PL_FUSED_STEPS) {
        pl_args_newton_schulz a =
            steps_args(pl_mat_dense(NULL, POLAR_DTYPE_BF16, 1, in->rows, in->cols), o, s);
        can = pl_queue_serves(q, PL_OP_newton_schulz, &a);
    }
    return can;
}

static group_fn way_of(pl_queue *q, const pl_mat *out, const pl_mat *in, int64_t leader, int64_t n,
                       const pl_mat *shared, const pl_ns_opts *o)
{
    int fused = o->precision == POLAR_DTYPE_BF16 && o->rounding != POLAR_ROUND_REFERENCE &&
                pl_queue_has(q, PL_OP_newton_schulz);
    if (fused && is_whole(q, out, in, leader, n, shared, o)) return run_group_whole;
    return fused && is_native(q, &in[leader], o) ? run_group_native : run_group;
}

static int leads(const pl_mat *in, int64_t i)
{
    for (int64_t j = 0; j < i; j++)
        if (same_group(&in[i], &in[j])) return 0;
    return in[i].rows && in[i].cols;
}

/* How many matrices there are to look at: of empty ones there may be any number. */
static int64_t batch_of(const pl_mat *in)
{
    return in->rows && in->cols ? in->batch : 0;
}

/* The Frobenius norm of the direct sum of in[i] (x) I_dim[i], of `parts` matrices that are not empty. */
static pl_mat shared_norm(pl_queue *q, const pl_mat *in, const int64_t *dim, int64_t n, int64_t parts,
                          int rounded)
{
    int64_t first = 0;
    pl_mat M = pl_scratch_mat(q, POLAR_DTYPE_F64, parts, 1, 2),
           N = pl_scratch_mat(q, POLAR_DTYPE_F64, 1, 1, 2);
    for (int64_t i = 0; i < n; first += batch_of(&in[i++]))
        if (batch_of(&in[i]))
            PL_CALL(frob, q, .N = pl_mat_at(M, first, in[i].batch), .X = in[i], .weight = (double)dim[i],
                    .rounded = rounded);
    PL_CALL(frob_join, q, .N = N, .M = M);
    return N;
}

void pl_newton_schulz(pl_queue *q, const pl_mat *out, const pl_mat *in, const int64_t *dim, int64_t n,
                      const pl_ns_opts *o)
{
    pl_mat norm, *shared = NULL;
    int64_t parts = 0;
    for (int64_t i = 0; i < n; i++) parts += batch_of(&in[i]);
    if (!parts) return;
    pl_scratch_mark mark = pl_scratch_begin(q);
    if (dim) {
        norm = shared_norm(q, in, dim, n, parts, o->rounding == POLAR_ROUND_REFERENCE);
        shared = &norm;
    }
    pl_queue_overlap_begin(q);
    for (int64_t i = 0; i < n; i++)
        if (leads(in, i) && way_of(q, out, in, i, n, shared, o) == run_group_whole)
            run_group_whole(q, out, in, i, n, shared, o);
    pl_queue_overlap_end(q);
    for (int64_t i = 0; i < n; i++) {
        group_fn way = leads(in, i) ? way_of(q, out, in, i, n, shared, o) : run_group_whole;
        if (way != run_group_whole) way(q, out, in, i, n, shared, o);
    }
    pl_scratch_end(q, mark);
}

int pl_polar_step_fuses(const pl_queue *q, const polar_map_opts *map)
{
    return map->kind == POLAR_MAP_NEWTON_SCHULZ && map->precision == POLAR_DTYPE_BF16 &&
           map->steps <= PL_FUSED_STEPS && map->rounding != POLAR_ROUND_REFERENCE &&
           pl_queue_has(q, PL_OP_polar_step);
}

int pl_polar_step_serves(pl_queue *q, const pl_args_polar_step *a)
{
    return pl_queue_serves(q, PL_OP_polar_step, a);
}
