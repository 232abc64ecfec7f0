/* op_measure.c -- runs a case on a device and on the oracle, and counts and measures the differences. Judges
 * nothing. */
#include <math.h>
#include <string.h>

#include "op_model.h"

/* One element against its enclosure. */
static void measure_element(pl_op_result *out, double y, pl_iv x, polar_dtype dtype)
{
    out->elements++;
    if (x.any) {
        out->excused++;
        return;
    }
    if (isnan(y) || pl_iv_is_nan(x)) {
        out->nan_mismatch += !(isnan(y) && pl_iv_is_nan(x));
        return;
    }
    pl_iv stored = pl_iv_round(x, dtype);
    int wrong = !(stored.lo <= y && y <= stored.hi);
    out->outside += wrong;
    if (!isfinite(x.lo) || !isfinite(x.hi) || !isfinite(y)) return;

    /* the numbers that round to y are [y - below, y + above]: the nearest of them to the middle of x is the
     * least error that explains y */
    long double middle = x.lo + (x.hi - x.lo) / 2, tol = (x.hi - x.lo) / 2;
    long double away = y > middle ? y - pl_half_gap(y, dtype, 0) - middle
                                  : middle - (y + pl_half_gap(y, dtype, 1)),
                err = away > 0 ? away : 0;
    if (!wrong && err > tol) err = tol; /* by the rounding of the middle */
    if (err * out->tol > out->err * tol || (tol == 0 && err > 0)) {
        out->err = (double)err;
        out->tol = (double)tol;
    }
}

static polar_status measure_result(pl_op_result *out, const pl_op_run *r, int o)
{
    const pl_mat *m = &r->mat[o];
    for (int64_t b = 0; b < m->batch; b++) {
        const int polar = r->c.op == PL_OP_polar_exact,
                  basis = o == 0 && (r->c.op == PL_OP_kron_eigen || r->c.op == PL_OP_kron_sweep);
        if ((polar || basis) && m->rows > 0 && m->cols > 0) {
            double err, tol;
            PL_TRY((polar ? pl_polar_defect : pl_kron_defect)(&err, &tol, r, b));
            out->elements += m->rows * m->cols;
            out->outside += !(err <= tol);
            if (!(err * out->tol <= out->err * tol)) {
                out->err = err;
                out->tol = tol;
            }
        }
        for (int64_t i = 0; i < m->rows; i++)
            for (int64_t j = 0; j < m->cols; j++) {
                int poisoned = pl_op_case_in_place_on(&r->c, o) < 0 && !pl_op_run_left_out(r, b) &&
                               pl_op_run_poisoned(r, o, b, i, j);
                out->unwritten += poisoned;
                if (r->c.op != PL_OP_polar_exact)
                    measure_element(out, pl_op_run_after(r, o, b, i, j), pl_op_model(r, o, b, i, j),
                                    m->dtype);
            }
    }
    return POLAR_OK;
}

static void compare_result(pl_op_result *out, const pl_op_run *r, const pl_op_run *oracle, int o)
{
    const pl_mat *m = &r->mat[o];
    for (int64_t b = 0; b < m->batch; b++)
        for (int64_t i = 0; i < m->rows; i++)
            for (int64_t j = 0; j < m->cols; j++) {
                double y = pl_op_run_after(r, o, b, i, j), z = pl_op_run_after(oracle, o, b, i, j);
                if (isnan(y) && isnan(z)) continue;
                out->bits_differ += memcmp(pl_op_run_bits(r, o, b, i, j), pl_op_run_bits(oracle, o, b, i, j),
                                           polar_dtype_size(m->dtype)) != 0;
                if (isfinite(y) && isfinite(z)) out->max_abs = fmax(out->max_abs, fabs(y - z));
            }
}

/* Operands made, uploaded, worked on and fetched. */
static polar_status run_once(pl_op_run **out, const pl_op_case *c, pl_fill fill, pl_device *dev)
{
    pl_op_run *r = NULL;
    *out = NULL;
    PL_TRY(pl_op_run_create(&r, c, fill, dev));
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
                                pl_device *oracle)
{
    pl_op_run *r = NULL, *other = NULL;
    *out = (pl_op_result){.tol = 1};
    polar_status st = run_once(&r, c, fill, dev);
    if (st == POLAR_OK) st = run_once(&other, c, fill, oracle);
    for (int o = 0; st == POLAR_OK && o < r->results; o++) {
        if (r->buffer_of[o] < 0) continue; /* absent */
        out->elements += r->mat[o].batch * r->mat[o].rows * r->mat[o].cols;
        compare_result(out, r, other, o);
    }
    pl_op_run_destroy(r);
    pl_op_run_destroy(other);
    return st;
}

polar_status pl_op_case_measure(pl_op_result *out, const pl_op_case *c, pl_fill fill, pl_device *dev,
                                pl_device *oracle)
{
    pl_op_run *r = NULL, *other = NULL;
    *out = (pl_op_result){.tol = 1};
    polar_status st = run_once(&r, c, fill, dev);
    if (st == POLAR_OK && oracle) st = run_once(&other, c, fill, oracle);
    for (int o = 0; st == POLAR_OK && o < r->results; o++) {
        st = measure_result(out, r, o);
        if (oracle) compare_result(out, r, other, o);
    }
    for (int o = 0; st == POLAR_OK && o < r->operands; o++) {
        int constant;
        int64_t stray = pl_op_run_stray_bytes(r, o, &constant);
        if (constant) out->const_changed += stray;
        else out->padding_touched += stray;
    }
    pl_op_run_destroy(r);
    pl_op_run_destroy(other);
    return st;
}
