/* op_model_softmax.c -- what softmax and its gradient may be. */
#include "op_model_softmax.h"

MODEL(softmax)
{
    double m = largest(r, 1, b, i);
    pl_iv scale = scalar(r->c.how.alpha, ct),
          part = pl_iv_in(pl_iv_div(pl_iv_point(1), weights(r, 1, m, scale, b, i, ct)), ct);
    return product(weight(r, 1, m, scale, b, i, j, ct), part, ct);
}

MODEL(softmax_back)
{
    total t = {0};
    for (int64_t k = 0; k < r->c.cols; k++) add(&t, pl_iv_mul(at(r, 2, b, i, k), at(r, 1, b, i, k)));
    pl_iv s = end(&t, along_row(r->c.cols) + 1, ct);
    return product(product(scalar(r->c.how.alpha, ct), at(r, 1, b, i, j), ct),
                   sum(at(r, 2, b, i, j), negative(s), ct), ct);
}
