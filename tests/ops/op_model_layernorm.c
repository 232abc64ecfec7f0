/* op_model_layernorm.c -- what normalised rows and their gradients may be. */
#include "op_model_sums.h"

/* Column j of a row of values: one for all matrices, or one each. */
static pl_iv value(const pl_op_run *r, int o, int64_t b, int64_t j)
{
    return at(r, o, r->mat[o].batch == 1 ? 0 : b, 0, j);
}

static pl_iv square(pl_iv d)
{
    pl_iv s = pl_iv_mul(d, d);
    if (!s.any && s.lo < 0) s.lo = 0;
    return s;
}

/* Result o: 0 Y, 1 S. */
MODEL(layernorm)
{
    int64_t n = r->c.cols;
    total x = {0}, var = {0};
    for (int64_t k = 0; k < n; k++) add(&x, at(r, 2, b, i, k));
    pl_iv mean = mean_of(&x, along_row(n), n, ct);
    if (o == 1 && j == 0) return mean;
    for (int64_t k = 0; k < n; k++)
        add(&var, pl_iv_in(square(sum(at(r, 2, b, i, k), negative(mean), ct)), ct));
    pl_iv v = mean_of(&var, along_row(n), n, ct);
    if (!v.any && v.lo < 0) v.lo = 0;
    pl_iv root = pl_iv_in(pl_iv_sqrt(sum(v, scalar(r->c.how.eps, ct), ct)), ct);
    pl_iv rs = root.lo <= 0 && root.hi > 0 ? anything : pl_iv_in(pl_iv_div(pl_iv_point(1), root), ct);
    if (o == 1) return rs;
    return fused(product(sum(at(r, 2, b, i, j), negative(mean), ct), rs, ct), value(r, 3, b, j),
                 value(r, 4, b, j), ct);
}

/* x^ */
static pl_iv unit(const pl_op_run *r, int64_t b, int64_t i, int64_t k, polar_dtype ct)
{
    return product(sum(at(r, 4, b, i, k), negative(at(r, 5, b, i, 0)), ct), at(r, 5, b, i, 1), ct);
}

/* Result o: 0 dX, 1 dg, 2 db, 3 dL. */
MODEL(layernorm_back)
{
    int64_t n = r->c.cols, rows = r->c.rows;
    total h = {0}, along = {0};
    if (o == 3) return pl_iv_round(pl_model_layernorm_back(r, 0, b, i, j, ct), r->mat[0].dtype);
    if (o > 0) {
        for (int64_t k = 0; k < rows; k++)
            add(&h, o == 2 ? at(r, 7, b, k, j) : pl_iv_mul(at(r, 7, b, k, j), unit(r, b, k, j, ct)));
        return end(&h, down_rows(rows) + (o == 1), ct);
    }
    for (int64_t k = 0; k < n; k++) {
        pl_iv hk = product(at(r, 7, b, i, k), value(r, 6, b, k), ct);
        add(&h, hk);
        add(&along, pl_iv_mul(hk, unit(r, b, i, k, ct)));
    }
    pl_iv m = mean_of(&h, along_row(n), n, ct), c = mean_of(&along, along_row(n) + 1, n, ct),
          hj = product(at(r, 7, b, i, j), value(r, 6, b, j), ct);
    pl_iv inner = fused(negative(unit(r, b, i, j, ct)), c, sum(hj, negative(m), ct), ct);
    return fused(at(r, 5, b, i, 1), inner, has(r, 8) ? at(r, 8, b, i, j) : pl_iv_point(0), ct);
}
