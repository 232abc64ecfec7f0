/* op_measure.c -- runs a case on a device and on the oracle, and counts and measures the differences. Judges
 * nothing. */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "device/backend.h"
#include "op_model.h"

/* What an element may be: before it is rounded to the result's format, and after. */
typedef struct {
    pl_iv x, stored;
} allowance;

/* One element against its enclosure. */
static void measure_element(pl_op_result *out, double y, const allowance *may, polar_dtype dtype)
{
    const pl_iv x = may->x;
    out->elements++;
    if (x.any) {
        out->excused++;
        return;
    }
    if (isnan(y) || pl_iv_is_nan(x)) {
        out->nan_mismatch += !(isnan(y) && pl_iv_is_nan(x));
        return;
    }
    int wrong = !(may->stored.lo <= y && y <= may->stored.hi);
    out->outside += wrong;
    if (!isfinite(x.lo) || !isfinite(x.hi) || !isfinite(y)) return;

    long double middle = x.lo + (x.hi - x.lo) / 2, tol = (x.hi - x.lo) / 2, far = fabsl(y - middle);
    /* err below is at most that */
    if (far == 0 || (tol > 0 && far * out->tol <= out->err * tol)) return;
    /* the numbers that round to y are [y - below, y + above]: the nearest of them to the middle of x is the
     * least error that explains y */
    long double away = y > middle ? y - pl_half_gap(y, dtype, 0) - middle
                                  : middle - (y + pl_half_gap(y, dtype, 1)),
                err = away > 0 ? away : 0;
    if (!wrong && err > tol) err = tol; /* by the rounding of the middle */
    if (err * out->tol > out->err * tol || (tol == 0 && err > 0)) {
        out->err = (double)err;
        out->tol = (double)tol;
    }
}

/* ---- what may come out, element by element: said of the operands alone ---- */

static int64_t elements_of(const pl_mat *m)
{
    return m->batch * m->rows * m->cols;
}

/* All a model asks of a device is whether its products of bf16 flush and those of tf32 cut, and only gemm's
 * asks. */
static int enclosure_kind(const pl_op_case *c, const pl_device *dev)
{
    const int flushes = c->dtype[1] == POLAR_DTYPE_BF16 && dev->flushes, cuts = c->how.tf32 && dev->cuts_tf32;
    return c->op == PL_OP_gemm && (flushes || cuts);
}

/* The enclosures of every result's elements, result by result, as pl_op_model has them. The model gets a run
 * without results, and except for gemm without a device: what it says holds for every run of the case. */
static polar_status enclose(allowance **out, const pl_op_run *r)
{
    pl_op_run asked = *r;
    int64_t n = 0;
    for (int o = 0; o < r->operands; o++) asked.buffers[o].after = NULL;
    if (r->c.op != PL_OP_gemm) asked.dev = NULL;
    for (int o = 0; o < r->results; o++) n += elements_of(&r->mat[o]);
    allowance *at = *out = pl_alloc((size_t)(n + 1) * sizeof **out);
    PL_NEED(at, POLAR_E_NOMEM, "%lld enclosures", (long long)n);
    for (int o = 0; o < r->results; o++)
        for (int64_t b = 0; b < r->mat[o].batch; b++)
            for (int64_t i = 0; i < r->mat[o].rows; i++)
                for (int64_t j = 0; j < r->mat[o].cols; j++, at++) {
                    at->x = pl_op_model(&asked, o, b, i, j);
                    at->stored = pl_iv_round(at->x, r->mat[o].dtype);
                }
    return POLAR_OK;
}

/* ---- what came out ---- */

/* Of polar factors and bases: how far they are from what they are by definition. */
static polar_status measure_whole(pl_op_result *out, const pl_op_run *r, int o, int64_t b)
{
    const pl_mat *m = &r->mat[o];
    const int polar = r->c.op == PL_OP_polar_exact,
              basis = o == 0 && (r->c.op == PL_OP_kron_eigen || r->c.op == PL_OP_kron_sweep);
    double err, tol;
    if (!(polar || basis) || m->rows == 0 || m->cols == 0) return POLAR_OK;
    PL_TRY((polar ? pl_polar_defect : pl_kron_defect)(&err, &tol, r, b));
    out->elements += m->rows * m->cols;
    out->outside += !(err <= tol);
    if (!(err * out->tol <= out->err * tol)) {
        out->err = err;
        out->tol = tol;
    }
    return POLAR_OK;
}

/* `may`: of the elements of result o. */
static polar_status measure_result(pl_op_result *out, const pl_op_run *r, int o, const allowance *may)
{
    const pl_mat *m = &r->mat[o];
    for (int64_t b = 0; b < m->batch; b++) {
        PL_TRY(measure_whole(out, r, o, b));
        const int must_write = pl_op_case_in_place_on(&r->c, o) < 0 && !pl_op_run_left_out(r, b);
        for (int64_t i = 0; i < m->rows; i++)
            for (int64_t j = 0; j < m->cols; j++, may++) {
                out->unwritten += must_write && pl_op_run_poisoned(r, o, b, i, j);
                if (r->c.op != PL_OP_polar_exact)
                    measure_element(out, pl_op_run_after(r, o, b, i, j), may, m->dtype);
            }
    }
    return POLAR_OK;
}

static void compare_row(pl_op_result *out, const pl_op_run *r, const pl_op_run *oracle, int o, int64_t b,
                        int64_t i)
{
    const pl_mat *m = &r->mat[o];
    const size_t size = polar_dtype_size(m->dtype);
    if (m->cols == 0 ||
        !memcmp(pl_op_run_bits(r, o, b, i, 0), pl_op_run_bits(oracle, o, b, i, 0), (size_t)m->cols * size))
        return;
    for (int64_t j = 0; j < m->cols; j++) {
        double y = pl_op_run_after(r, o, b, i, j), z = pl_op_run_after(oracle, o, b, i, j);
        if (isnan(y) && isnan(z)) continue;
        out->bits_differ +=
            memcmp(pl_op_run_bits(r, o, b, i, j), pl_op_run_bits(oracle, o, b, i, j), size) != 0;
        if (isfinite(y) && isfinite(z)) out->max_abs = fmax(out->max_abs, fabs(y - z));
    }
}

static void compare_result(pl_op_result *out, const pl_op_run *r, const pl_op_run *oracle, int o)
{
    for (int64_t b = 0; b < r->mat[o].batch; b++)
        for (int64_t i = 0; i < r->mat[o].rows; i++) compare_row(out, r, oracle, o, b, i);
}

static void measure_strays(pl_op_result *out, const pl_op_run *r)
{
    for (int o = 0; o < r->operands; o++) {
        int constant;
        int64_t stray = pl_op_run_stray_bytes(r, o, &constant);
        if (constant) out->const_changed += stray;
        else out->padding_touched += stray;
    }
}

/* Operands made (or those of `like` taken), uploaded, worked on and fetched. */
static polar_status run_once(pl_op_run **out, const pl_op_case *c, pl_fill fill, pl_device *dev,
                             const pl_op_run *like)
{
    pl_op_run *r = NULL;
    *out = NULL;
    PL_TRY(like ? pl_op_run_create_like(&r, like, dev) : pl_op_run_create(&r, c, fill, dev));
    polar_status st = pl_op_run_upload(r);
    if (st == POLAR_OK) {
        pl_op_run_enqueue(r);
        st = pl_op_run_fetch(r);
    }
    if (st == POLAR_OK) *out = r;
    else pl_op_run_destroy(r);
    return st;
}

polar_status pl_op_case_compare(pl_op_result *out, const pl_op_case *c, pl_fill fill, pl_device *dev,
                                pl_device *const *others, int n)
{
    pl_op_run *r = NULL;
    polar_status st = run_once(&r, c, fill, dev, NULL);
    for (int k = 0; k < n && st == POLAR_OK; k++) {
        pl_op_run *other;
        out[k] = (pl_op_result){.tol = 1};
        st = run_once(&other, c, fill, others[k], r);
        for (int o = 0; st == POLAR_OK && o < r->results; o++) {
            if (r->buffer_of[o] < 0) continue; /* absent */
            out[k].elements += elements_of(&r->mat[o]);
            compare_result(&out[k], r, other, o);
        }
        pl_op_run_destroy(other);
    }
    pl_op_run_destroy(r);
    return st;
}

polar_status pl_op_case_measure_on(pl_op_result *out, const pl_op_case *c, pl_fill fill,
                                   pl_device *const *devs, int n, pl_device *oracle)
{
    pl_op_run *known = NULL;
    allowance *allowed[2] = {0};
    polar_status st = POLAR_OK;
    if (oracle) st = run_once(&known, c, fill, oracle, NULL);
    for (int k = 0; k < n && st == POLAR_OK; k++) {
        pl_op_run *r;
        const int kind = enclosure_kind(c, devs[k]);
        out[k] = (pl_op_result){.tol = 1};
        st = run_once(&r, c, fill, devs[k], known);
        if (st == POLAR_OK && !allowed[kind]) st = enclose(&allowed[kind], r);
        const allowance *at = allowed[kind];
        for (int o = 0; st == POLAR_OK && o < r->results; o++) {
            st = measure_result(&out[k], r, o, at);
            at += elements_of(&r->mat[o]);
            if (oracle && oracle != devs[k]) compare_result(&out[k], r, known, o);
        }
        if (st == POLAR_OK) measure_strays(&out[k], r);
        if (st == POLAR_OK && !known) known = r;
        else pl_op_run_destroy(r);
    }
    pl_op_run_destroy(known);
    for (int kind = 0; kind < 2; kind++) pl_free(allowed[kind]);
    return st;
}

polar_status pl_op_case_measure(pl_op_result *out, const pl_op_case *c, pl_fill fill, pl_device *dev,
                                pl_device *oracle)
{
    return pl_op_case_measure_on(out, c, fill, &dev, 1, oracle);
}
