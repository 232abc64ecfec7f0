/* message_model.h -- operands of pair_message and pair_message_back in device memory, and a model of both
 * in long double, written from their rows in ops.def.
 *
 * The model carries beside every number x a bound e(x) of its error, to first order in the unit roundoff u
 * (hence the 1.02 at the end); a sum of n terms in any order adds n u S, S the sum of magnitudes, a product
 * of inexact factors |x| e(y) + e(x) |y|; what an op stores rounds once more. So:
 *
 *     a  = w0 d + b0            3u (|w0 d| + |b0|)
 *     z  = silu(a)              1.1 e(a) + 8u |z|                                  |silu'| <= 1.1; silu as
 *        in op_expect_activation.c
 *     w  = W2 z + b2            (h + 2) u (sum |W2 z| + |b2|) + sum |W2| e(z)
 *     Y  = X + alpha sum w X    (N + 4) u (|X_i| + |alpha| sum |w X|) + |alpha| sum e(w) |X|
 *     dw = alpha sum (...)      (2k + 2) u |alpha| sum |dY X|                      k = 1 or 3 components
 *     dz = W2^T dw              (2h + 1) u sum |W2 dw| + sum |W2| e(dw)
 *     da = dz silu'(a)          |silu'| e(dz) + |dz| (e(a) / 2 + 16u) + u |da|     |silu''| <= 1/2,
 *         silu' itself good to 16u: |x (1 - s)| s < 0.3, 9u s |y| < 10u
 *     dW2, db2, dw0, db0        (n + 2) u sum |terms| + sum of the terms' errors, n pairs of all clouds
 *         of a member
 */
#ifndef POLAR_TEST_MESSAGE_MODEL_H
#define POLAR_TEST_MESSAGE_MODEL_H

#include "base/alloc.h"
#include "base/philox.h"
#include "device/backend.h"
#include "test.h"

#define SEED 404ull

typedef long double real;

typedef struct {
    real x, e; /* a number, and how far a right implementation may be from it */
} bounded;

typedef struct {
    int64_t E, B, N, h;
    /* elements between the rows of S, V, their results and gradients; 5 more between clouds */
    int64_t gap;
    polar_dtype dtype;
    double alpha;
    double reach; /* distances of every other cloud of a member times this; 0: as they are */
} shape;

enum { S, V, D, W0, B0, W2, B2, GS, GV, INPUTS, YS = INPUTS, YV, DS, DV, DW0, DB0, DW2, DB2, ALL };

/* All operands of both directions, in device memory and on the host. */
typedef struct {
    shape s;
    pl_device *dev;
    pl_queue *q;
    pl_mat m[ALL];
    unsigned char *host[ALL];
    size_t bytes[ALL];
} message;

static pl_mat shape_of(const shape *s, int i)
{
    int64_t clouds = s->E * s->B, P = s->N * (s->N + 1) / 2, rows = s->N, cols = s->h;
    pl_mat m = pl_mat_dense(NULL, s->dtype, clouds, rows, cols);
    switch (i) {
    case D: return pl_mat_dense(NULL, s->dtype, clouds, P, 1);
    case W0:
    case DW0: return pl_mat_dense(NULL, s->dtype, s->E, s->h, 1);
    case B0:
    case DB0: return pl_mat_dense(NULL, s->dtype, s->E, 1, s->h);
    case W2:
    case DW2: return pl_mat_dense(NULL, s->dtype, s->E, 2 * s->h, s->h);
    case B2:
    case DB2: return pl_mat_dense(NULL, s->dtype, s->E, 1, 2 * s->h);
    case V:
    case GV:
    case YV:
    case DV: m.rows *= 3; break;
    default: break;
    }
    m.rs = m.cols + s->gap;
    m.bs = m.rows * m.rs + (s->gap ? 5 : 0);
    return m;
}

static int64_t offset(const message *t, int i, int64_t b, int64_t r, int64_t c)
{
    return b * t->m[i].bs + r * t->m[i].rs + c;
}

static real get(const message *t, int i, int64_t b, int64_t r, int64_t c)
{
    return pl_load_f64(t->host[i], t->s.dtype, offset(t, i, b, r, c));
}

/* An input's entry by its coordinates: member, cloud of the member, row and column, so that a member alone
 * has the same ones. Distances are positive. */
static double entry(int i, int64_t member, int64_t cloud, int64_t r, int64_t c)
{
    double z = pl_normal(SEED, PL_STREAM_TEST, (uint64_t)(i * 64 + member),
                         (uint64_t)((cloud << 40) + (r << 20) + c))
                   .a;
    return i == D ? fabs(z) * 1.5 + 1e-4 : z;
}

/* `first`: the number of the first member. */
static void message_open(message *t, const char *device, const shape *s, int64_t first)
{
    *t = (message){.s = *s};
    polar_status st = polar_device_open(&t->dev, device);
    if (st == POLAR_E_UNSUPPORTED) exit(77); /* an instruction set that this CPU lacks */
    TEST_TRY(st);
    TEST_TRY(polar_queue_create(&t->q, t->dev, NULL));
    for (int i = 0; i < ALL; i++) {
        pl_mat *m = &t->m[i];
        *m = shape_of(s, i);
        t->bytes[i] = (size_t)(m->batch * m->bs) * polar_dtype_size(s->dtype);
        t->host[i] = pl_alloc(t->bytes[i]);
        memset(t->host[i], 0x7f, t->bytes[i]); /* a large number, where a result stays unwritten */
        int64_t per = i == W0 || i == B0 || i == W2 || i == B2 ? 1 : s->B;
        for (int64_t b = 0; i < INPUTS && b < m->batch; b++)
            for (int64_t r = 0; r < m->rows; r++)
                for (int64_t c = 0; c < m->cols; c++)
                    pl_store_f64(t->host[i], s->dtype, offset(t, i, b, r, c),
                                 entry(i, first + b / per, b % per, r, c) *
                                     (i == D && s->reach > 0 && b % per % 2 == 0 ? s->reach : 1));
        TEST_TRY(polar_device_alloc(t->dev, &m->data, t->bytes[i]));
        polar_queue_upload(t->q, m->data, t->host[i], t->bytes[i]);
    }
    TEST_TRY(polar_queue_sync(t->q));
}

static void message_close(message *t)
{
    polar_queue_destroy(t->q);
    for (int i = 0; i < ALL; i++) {
        polar_device_free(t->dev, t->m[i].data);
        pl_free(t->host[i]);
    }
    polar_device_close(t->dev);
}

/* ---- the model ---- */

typedef struct {
    real u;                  /* unit roundoff */
    bounded *out[ALL];       /* results as packed arrays, and their bounds */
    bounded *a, *z, *w, *dw; /* of one pair: h, h, 2h, 2h */
} model;

static bounded *room(int64_t n)
{
    bounded *p = pl_calloc((size_t)(n ? n : 1), sizeof *p);
    if (!p) exit(1);
    return p;
}

static real sigmoid(real x)
{
    return 1 / (1 + expl(-x));
}

/* The pair's weights from its distance. */
static void pair_weights(model *k, const message *t, int64_t e, real d)
{
    int64_t h = t->s.h;
    for (int64_t c = 0; c < h; c++) {
        real w0 = get(t, W0, e, c, 0), b0 = get(t, B0, e, 0, c), a = w0 * d + b0, z = a * sigmoid(a),
             err = 3 * k->u * (fabsl(w0 * d) + fabsl(b0));
        k->a[c] = (bounded){a, err};
        k->z[c] = (bounded){z, 1.1L * err + 8 * k->u * fabsl(z)};
    }
    for (int64_t r = 0; r < 2 * h; r++) {
        real b2 = get(t, B2, e, 0, r), sum = b2, size = fabsl(b2), err = 0;
        for (int64_t c = 0; c < h; c++) {
            real w2 = get(t, W2, e, r, c);
            sum += w2 * k->z[c].x;
            size += fabsl(w2 * k->z[c].x);
            err += fabsl(w2) * k->z[c].e;
        }
        k->w[r] = (bounded){sum, err + (real)(h + 2) * k->u * size};
    }
}

/* out_i += alpha w_ij x_j for every component, the terms' sizes gathered in e. */
static void add_message(model *k, const message *t, int out, int from, int64_t b, int64_t i, int64_t j)
{
    int64_t components = out == YV || out == DV ? 3 : 1, h = t->s.h, part = components == 3 ? h : 0;
    real per = (real)(t->s.N + 4) * k->u, alpha = t->s.alpha;
    for (int64_t d = 0; d < components; d++)
        for (int64_t c = 0; c < h; c++) {
            bounded *y = &k->out[out][((b * t->s.N + i) * components + d) * h + c], w = k->w[part + c];
            real x = get(t, from, b, j * components + d, c);
            y->x += alpha * w.x * x;
            y->e += fabsl(alpha) * (per * fabsl(w.x * x) + w.e * fabsl(x));
        }
}

/* The term of the point itself. */
static void add_self(model *k, const message *t, int out, int from)
{
    int64_t rows = t->m[out].rows;
    for (int64_t b = 0; b < t->m[out].batch; b++)
        for (int64_t r = 0; r < rows; r++)
            for (int64_t c = 0; c < t->s.h; c++) {
                bounded *y = &k->out[out][(b * rows + r) * t->s.h + c];
                real x = get(t, from, b, r, c);
                y->x += x;
                y->e += (real)(t->s.N + 4) * k->u * fabsl(x);
            }
}

static void add_bounded(bounded *to, real x, real e, real per)
{
    to->x += x;
    to->e += e + per * fabsl(x);
}

/* The gradients of one pair's weights, and what they add to those of the MLP. */
static void pair_gradients(model *k, const message *t, int64_t e, int64_t b, int64_t i, int64_t j, real d)
{
    int64_t h = t->s.h, pairs = t->s.B * t->s.N * (t->s.N + 1) / 2;
    real per = (real)(pairs + 2) * k->u;
    for (int64_t r = 0; r < 2 * h; r++) {
        int64_t components = r < h ? 1 : 3, c = r % h;
        int x = r < h ? S : V, g = r < h ? GS : GV;
        real sum = 0, size = 0;
        for (int64_t q = 0; q < components; q++) {
            int64_t ik = i * components + q, jk = j * components + q;
            real one = get(t, g, b, ik, c) * get(t, x, b, jk, c),
                 other = i == j ? 0 : get(t, g, b, jk, c) * get(t, x, b, ik, c);
            sum += one + other;
            size += fabsl(one) + fabsl(other);
        }
        k->dw[r] =
            (bounded){t->s.alpha * sum, (real)(2 * components + 2) * k->u * fabsl((real)t->s.alpha) * size};
        add_bounded(&k->out[DB2][e * 2 * h + r], k->dw[r].x, k->dw[r].e, per);
        for (int64_t q = 0; q < h; q++)
            add_bounded(&k->out[DW2][(e * 2 * h + r) * h + q], k->dw[r].x * k->z[q].x,
                        fabsl(k->dw[r].x) * k->z[q].e + k->dw[r].e * fabsl(k->z[q].x), per);
    }
    for (int64_t c = 0; c < h; c++) {
        real sum = 0, err = 0;
        for (int64_t r = 0; r < 2 * h; r++) {
            real w2 = get(t, W2, e, r, c);
            sum += w2 * k->dw[r].x;
            err += (real)(2 * h + 1) * k->u * fabsl(w2 * k->dw[r].x) + fabsl(w2) * k->dw[r].e;
        }
        real a = k->a[c].x, s = sigmoid(a), slope = s * (1 + a * sigmoid(-a)), da = sum * slope;
        real da_err = fabsl(slope) * err + fabsl(sum) * (k->a[c].e / 2 + 16 * k->u) + k->u * fabsl(da);
        add_bounded(&k->out[DB0][e * h + c], da, da_err, per);
        add_bounded(&k->out[DW0][e * h + c], da * d, da_err * d, per);
    }
}

static void model_make(model *k, const message *t)
{
    int64_t h = t->s.h, N = t->s.N;
    *k = (model){.u = t->s.dtype == POLAR_DTYPE_F64 ? 0x1p-53L : 0x1p-24L,
                 .a = room(h),
                 .z = room(h),
                 .w = room(2 * h),
                 .dw = room(2 * h)};
    for (int i = INPUTS; i < ALL; i++) k->out[i] = room(t->m[i].batch * t->m[i].rows * t->m[i].cols);
    for (int64_t b = 0; b < t->s.E * t->s.B; b++)
        for (int64_t i = 0, p = 0; i < N; i++)
            for (int64_t j = i; j < N; j++, p++) {
                real d = get(t, D, b, p, 0);
                pair_weights(k, t, b / t->s.B, d);
                for (int way = 0; way < (i == j ? 1 : 2); way++) {
                    int64_t to = way ? j : i, from = way ? i : j;
                    add_message(k, t, YS, S, b, to, from);
                    add_message(k, t, YV, V, b, to, from);
                    add_message(k, t, DS, GS, b, to, from);
                    add_message(k, t, DV, GV, b, to, from);
                }
                pair_gradients(k, t, b / t->s.B, b, i, j, d);
            }
    add_self(k, t, YS, S);
    add_self(k, t, YV, V);
    add_self(k, t, DS, GS);
    add_self(k, t, DV, GV);
}

static void model_free(model *k)
{
    for (int i = INPUTS; i < ALL; i++) pl_free(k->out[i]);
    pl_free(k->a);
    pl_free(k->z);
    pl_free(k->w);
    pl_free(k->dw);
}

#endif
