/* cpu_pair_weight.c -- pair_weight and pair_weight_back: one number a pair from its distance, and the
 * gradients of the MLP that gives it; a member after the other, its clouds over the threads.
 *
 *     u(d) = w2 . silu(w0 d + b0)        one function of d: a table of it, TERMS coefficients a piece
 *     forward   k = floor(d / delta), t = 2 (d / delta - k) - 1, u = sum_q c_kq t^q
 *     backward  M_kq = sum over pairs of du t^q; at node m of piece k the gradient is g = sum_q of_qm M_kq,
 * so dW2 = sum g z,  dw0 = sum g w2 silu' d,  db0 = sum g w2 silu',  db2 = sum_k M_k0
 *
 * math/message_pieces.h has the errors, and what takes the direct way: the MLP at every pair, in double. The
 * table is made and the moments are summed in double, so no sum loses more than its last rounding. Bits: a
 * number depends on its distance and its member's weights; a gradient on its member's clouds, which are
 * summed in parts that depend on their number alone, in order. Nothing is fused: every instruction set gives
 * the same.
 */
#include "cpu_message_mlp.h"
#include "cpu_message_pieces.h"
#include "cpu_convert.h"

#define TERMS PL_MESSAGE_TERMS
#define CHUNK PL_MESSAGE_CHUNK
#define STRIP 512 /* pairs at a time */
_Static_assert(TERMS == 6, "written out below");

typedef struct {
    const pl_weight_args *a;
    const pl_weight_plan *p;
    const pieces *t;
    const pl_weight_member *m;
    int64_t e;
    char *work; /* of every thread */
} member_of;

static pl_weight_work work_of(const member_of *o, int me)
{
    pl_weight_work w;
    size_t each = pl_weight_work_point(&w, NULL, o->p);
    pl_weight_work_point(&w, o->work + (size_t)me * each, o->p);
    return w;
}

/* The member's weights as doubles, zeros behind them; returns the largest |w0|. */
static double load(const pl_weight_member *m, const pl_weight_args *a, const pl_weight_plan *p, int64_t e,
                   int *usable)
{
    size_t bytes = (size_t)p->hp * sizeof(double);
    memset(m->w0, 0, bytes);
    memset(m->b0, 0, bytes);
    memset(m->w2, 0, bytes);
    load_distances(m->w0, a->w0, e, 0, p->h);
    pl_row_load_f64(m->b0, a->b0->data, a->b0->dtype, e * a->b0->bs, p->h);
    pl_row_load_f64(m->w2, a->W2->data, a->W2->dtype, e * a->W2->bs, p->h);
    double most = largest(m->w0, p->hp);
    *usable = !p->f64 && most < PL_MESSAGE_LARGE && largest(m->b0, p->hp) < PL_MESSAGE_LARGE &&
              largest(m->w2, p->hp) < PL_MESSAGE_LARGE;
    return most;
}

static double dot(const double *w2, const double *z, int64_t hp)
{
    double sum = 0;
    for (int64_t k = 0; k < hp; k++) sum += w2[k] * z[k];
    return sum;
}

/* One piece: the function at its nodes, then coefficients. */
static void table_row(const member_of *o, const pl_weight_work *w, int64_t row)
{
    double u[TERMS];
    for (int m = 0; m < TERMS; m++) w->d[m] = node_distance(o->t, row, m);
    PL_ISA_NAME(pl_message_mlp_hidden)(o->m->w0, o->m->b0, o->p->hp, w->d, TERMS, w->z, NULL);
    for (int m = 0; m < TERMS; m++) u[m] = dot(o->m->w2, w->z + m * o->p->hp, o->p->hp);
    for (int q = 0; q < TERMS; q++) {
        double c = 0;
        for (int m = 0; m < TERMS; m++) c += o->t->basis.of[q][m] * u[m];
        o->m->table[row * 8 + q] = (float)c;
    }
}

/* Pairs [at, at + n) of cloud c as floats, and where they fall. */
static void locate(const pieces *t, const pl_mat *D, int64_t c, int64_t at, int64_t n, float *x,
                   int32_t *piece)
{
    const float scale = (float)(1 / t->delta);
    if (D->rs == 1) pl_row_load_f32(x, D->data, D->dtype, c * D->bs + at, n);
    else
        for (int64_t i = 0; i < n; i++)
            x[i] = (float)pl_load_f64(D->data, D->dtype, c * D->bs + (at + i) * D->rs);
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float y = x[i] * scale;
        piece[i] = (int32_t)y;
        x[i] = 2 * (y - (float)piece[i]) - 1;
    }
}

static void store(const pl_mat *U, int64_t c, int64_t at, const float *u, int64_t n)
{
    if (U->rs == 1) pl_row_store_f32(U->data, U->dtype, c * U->bs + at, u, n);
    else
        for (int64_t i = 0; i < n; i++)
            pl_store_f64(U->data, U->dtype, c * U->bs + (at + i) * U->rs, (double)u[i]);
}

static void cloud_forward(void *arg, int me, int64_t i)
{
    const member_of *o = arg;
    const pl_mat *U = o->a->U, *D = o->a->D;
    const float *table = o->m->table;
    int64_t c = o->e * o->p->clouds + i, pairs = o->p->pairs, hp = o->p->hp;
    if (beyond(o->t, largest_distance(D, c))) {
        pl_weight_work w = work_of(o, me);
        for (int64_t at = 0; at < pairs; at += CHUNK) {
            int64_t n = pairs - at < CHUNK ? pairs - at : CHUNK;
            load_distances(w.d, D, c, at, n);
            PL_ISA_NAME(pl_message_mlp_hidden)(o->m->w0, o->m->b0, hp, w.d, n, w.z, NULL);
            for (int64_t k = 0; k < n; k++)
                pl_store_f64(U->data, U->dtype, c * U->bs + (at + k) * U->rs,
                             dot(o->m->w2, w.z + k * hp, hp));
        }
        return;
    }
    for (int64_t at = 0; at < pairs; at += STRIP) {
        int64_t n = pairs - at < STRIP ? pairs - at : STRIP;
        float t[STRIP], u[STRIP];
        int32_t piece[STRIP];
        locate(o->t, D, c, at, n, t, piece);
#pragma omp simd
        for (int64_t k = 0; k < n; k++) {
            const int32_t f = 8 * piece[k];
            float s = table[f + 5];
            s = s * t[k] + table[f + 4];
            s = s * t[k] + table[f + 3];
            s = s * t[k] + table[f + 2];
            s = s * t[k] + table[f + 1];
            u[k] = s * t[k] + table[f];
        }
        store(U, c, at, u, n);
    }
}

/* The sums of a part's clouds that took the direct way. */
static void direct_back(const member_of *o, const pl_weight_work *w, int64_t c, double *sum)
{
    int64_t hp = o->p->hp, pairs = o->p->pairs;
    double *dw2 = sum, *dw0 = sum + hp, *db0 = sum + 2 * hp, *db2 = sum + 3 * hp;
    for (int64_t at = 0; at < pairs; at += CHUNK) {
        int64_t n = pairs - at < CHUNK ? pairs - at : CHUNK;
        load_distances(w->d, o->a->D, c, at, n);
        load_distances(w->g, o->a->U, c, at, n);
        PL_ISA_NAME(pl_message_mlp_hidden)(o->m->w0, o->m->b0, hp, w->d, n, w->z, w->slope);
        for (int64_t i = 0; i < n; i++) {
            const double g = w->g[i], d = w->d[i], *z = w->z + i * hp, *slope = w->slope + i * hp;
            *db2 += g;
#pragma omp simd
            for (int64_t k = 0; k < hp; k++) {
                double da = g * o->m->w2[k] * slope[k];
                dw2[k] += g * z[k];
                dw0[k] += da * d;
                db0[k] += da;
            }
        }
    }
}

static void part_back(void *arg, int me, int64_t part)
{
    const member_of *o = arg;
    const pl_weight_plan *p = o->p;
    int64_t each = (p->clouds + p->parts - 1) / p->parts, first = part * each, direct = 3 * p->hp + 1;
    double *moments = o->m->moments + part * PL_MESSAGE_ROWS * TERMS, *sum = o->m->direct + part * direct;
    pl_weight_work w = work_of(o, me);
    memset(moments, 0, (size_t)(o->t->rows * TERMS) * sizeof(double));
    memset(sum, 0, (size_t)direct * sizeof(double));
    for (int64_t i = first; i < first + each && i < p->clouds; i++) {
        int64_t c = o->e * p->clouds + i;
        if (beyond(o->t, largest_distance(o->a->D, c))) {
            direct_back(o, &w, c, sum);
            continue;
        }
        for (int64_t at = 0; at < p->pairs; at += STRIP) {
            int64_t n = p->pairs - at < STRIP ? p->pairs - at : STRIP;
            float t[STRIP], g[STRIP];
            int32_t piece[STRIP];
            const pl_mat *dU = o->a->U;
            locate(o->t, o->a->D, c, at, n, t, piece);
            if (dU->rs == 1) pl_row_load_f32(g, dU->data, dU->dtype, c * dU->bs + at, n);
            else
                for (int64_t k = 0; k < n; k++)
                    g[k] = (float)pl_load_f64(dU->data, dU->dtype, c * dU->bs + (at + k) * dU->rs);
            for (int64_t k = 0; k < n; k++) {
                double *to = moments + piece[k] * TERMS, power = (double)g[k];
                for (int q = 0; q < TERMS; q++, power *= (double)t[k]) to[q] += power;
            }
        }
    }
}

/* From the parts to the gradients of the member. */
static void back_end(const member_of *o, const pl_weight_work *w)
{
    const pl_weight_plan *p = o->p;
    const pl_weight_args *a = o->a;
    int64_t hp = p->hp, direct = 3 * hp + 1;
    double *sum = o->m->direct; /* the first part's, to which all is added */
    double *dw2 = sum, *dw0 = sum + hp, *db0 = sum + 2 * hp, *db2 = sum + 3 * hp;
    for (int64_t part = 1; part < p->parts; part++)
        for (int64_t k = 0; k < direct; k++) sum[k] += o->m->direct[part * direct + k];
    for (int64_t row = 0; row < o->t->rows; row++) {
        double total[TERMS] = {0};
        for (int64_t part = 0; part < p->parts; part++)
            for (int q = 0; q < TERMS; q++)
                total[q] += o->m->moments[(part * PL_MESSAGE_ROWS + row) * TERMS + q];
        *db2 += total[0];
        for (int m = 0; m < TERMS; m++) w->d[m] = node_distance(o->t, row, m);
        PL_ISA_NAME(pl_message_mlp_hidden)(o->m->w0, o->m->b0, hp, w->d, TERMS, w->z, w->slope);
        for (int m = 0; m < TERMS; m++) {
            double g = 0;
            for (int q = 0; q < TERMS; q++) g += o->t->basis.of[q][m] * total[q];
#pragma omp simd
            for (int64_t k = 0; k < hp; k++) {
                double da = g * o->m->w2[k] * w->slope[m * hp + k];
                dw2[k] += g * w->z[m * hp + k];
                dw0[k] += da * w->d[m];
                db0[k] += da;
            }
        }
    }
    for (int64_t k = 0; k < p->h; k++) {
        pl_store_f64(a->dW2->data, a->dW2->dtype, o->e * a->dW2->bs + k, dw2[k]);
        pl_store_f64(a->dw0->data, a->dw0->dtype, o->e * a->dw0->bs + k * a->dw0->rs, dw0[k]);
        pl_store_f64(a->db0->data, a->db0->dtype, o->e * a->db0->bs + k, db0[k]);
    }
    pl_store_f64(a->db2->data, a->db2->dtype, o->e * a->db2->bs, *db2);
}

/* A member without clouds has gradients of zero. */
static void no_clouds(const pl_weight_args *a, int64_t members, int64_t h)
{
    for (int64_t e = 0; e < members; e++) {
        for (int64_t k = 0; k < h; k++) {
            pl_store_f64(a->dW2->data, a->dW2->dtype, e * a->dW2->bs + k, 0);
            pl_store_f64(a->dw0->data, a->dw0->dtype, e * a->dw0->bs + k * a->dw0->rs, 0);
            pl_store_f64(a->db0->data, a->db0->dtype, e * a->db0->bs + k, 0);
        }
        pl_store_f64(a->db2->data, a->db2->dtype, e * a->db2->bs, 0);
    }
}

static void run(pl_queue *q, const pl_weight_args *a, int f64)
{
    pl_weight_plan p = pl_weight_plan_make(a, f64, q->dev->threads);
    pl_weight_member m;
    pl_pool *pool = q->dev->pool;
    if (p.back && p.parts == 0) {
        no_clouds(a, p.members, p.h);
        return;
    }
    pl_scratch_mark mark = pl_scratch_begin(q);
    char *base = pl_scratch_take(q, pl_weight_bytes(&p));
    char *work = base ? base + pl_weight_member_point(&m, base, &p) : NULL;
    for (int64_t e = 0; base && e < p.members; e++) {
        int usable;
        double most = load(&m, a, &p, e, &usable);
        const pieces t = pieces_make(a->D, e * p.clouds, p.clouds, most, usable);
        member_of o = {a, &p, &t, &m, e, work};
        pl_weight_work w = work_of(&o, 0);
        if (p.back) {
            pl_pool_items(pool, p.threads, p.parts, 0, part_back, &o);
            back_end(&o, &w);
        } else {
            for (int64_t row = 0; row < t.rows; row++) table_row(&o, &w, row);
            pl_pool_items(pool, p.threads, p.clouds, 0, cloud_forward, &o);
        }
    }
    pl_scratch_end(q, mark);
}

void PL_ISA_NAME(pl_cpu_pair_weight)(pl_queue *q, const pl_args_pair_weight *args)
{
    pl_weight_args a = pl_weight_args_forward(args);
    run(q, &a, pl_any_f64(pl_op_operands(args), 5));
}

void PL_ISA_NAME(pl_cpu_pair_weight_back)(pl_queue *q, const pl_args_pair_weight_back *args)
{
    pl_weight_args a = pl_weight_args_back(args);
    run(q, &a, pl_any_f64(pl_op_operands(args), 9));
}
