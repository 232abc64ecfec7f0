/* op_model_rows.c -- what sums, spreads and scalings of groups of rows may return. */
#include "op_model_sums.h"

MODEL(row_sum)
{
    running a = {.whole = 1};
    int64_t n = r->c.K;
    for (int64_t k = 0; k < n; k++) add_term(&a, pl_op_run_before(r, 1, b, i * n + k, j), 1);
    return product(scalar(r->c.how.alpha, ct),
                   end_sum(&a, (long double)((n < 64 ? n : 64) + (n + 2047) / 2048 + 5), ct), ct);
}

MODEL(row_spread)
{
    return product(scalar(r->c.how.alpha, ct), at(r, 1, b, i / r->c.K, j), ct);
}

MODEL(scale_rows)
{
    pl_iv s = at(r, 2, b, i / r->c.K, 0), x = at(r, 1, b, i, j);
    return has(r, 3) ? fused(s, x, at(r, 3, b, i, j), ct) : product(s, x, ct);
}
