/* op_fill.c -- see op_fill.h. */
#include "verify/ops/op_fill.h"

#include <math.h>

#include "base/philox.h"

enum { ZEROS, ROW_SCALES, COL_SCALES, RANK_ONE, REPEATED_ROWS, DENORMALS, STYLES };

/* indices from here on belong to rows, columns and matrices, not to entries */
#define LINE ((uint64_t)1 << 40)

const char *pl_fill_name(pl_fill fill)
{
    static const char *const names[PL_FILL_COUNT] = {"integers", "normal", "adversarial", "odd", "special"};
    return fill >= 0 && fill < PL_FILL_COUNT ? names[fill] : "?";
}

/* The draw of entry (b, i, j); strides leave room for any shape of the list. */
static pl_u4 draw(uint64_t seed, int operand, int64_t b, int64_t i, int64_t j)
{
    return pl_philox(seed, PL_STREAM_TEST, (uint64_t)operand, (uint64_t)((b << 26) + (i << 13) + j));
}

/* The draw that row i (kind 0), column i (kind 1) or matrix b as a whole (kind 2) shares. */
static pl_u4 shared_draw(uint64_t seed, int operand, int64_t b, int kind, int64_t i)
{
    return pl_philox(seed, PL_STREAM_TEST, (uint64_t)operand,
                     LINE * (uint64_t)(1 + kind) + (uint64_t)((b << 20) + i));
}

static double whole(uint32_t bits)
{
    return (double)pl_uniform_below(bits, 7) - 3;
}

/* f64 gets what would be out of a float's range. */
static double scale_of(uint32_t bits, polar_dtype dtype)
{
    static const double wide[5] = {1, 1e200, 1e-200, 1e-310, 0}, narrow[5] = {1, 1e30, 1e-30, 1e-40, 0};
    return (dtype == POLAR_DTYPE_F64 ? wide : narrow)[pl_uniform_below(bits, 5)];
}

static double adversarial(uint64_t seed, int operand, polar_dtype dtype, int64_t b, int64_t i, int64_t j)
{
    double z = pl_normal_from(draw(seed, operand, b, i, j)).a;
    switch (pl_uniform_below(shared_draw(seed, operand, b, 2, 0).x, STYLES)) {
    case ROW_SCALES: return z * scale_of(shared_draw(seed, operand, b, 0, i).x, dtype);
    case COL_SCALES: return z * scale_of(shared_draw(seed, operand, b, 1, j).x, dtype);
    case RANK_ONE:
        return whole(shared_draw(seed, operand, b, 0, i).x) * whole(shared_draw(seed, operand, b, 1, j).x);
    case REPEATED_ROWS: return pl_normal_from(draw(seed, operand, b, i / 2, j)).a;
    case DENORMALS: return z * (dtype == POLAR_DTYPE_F64 ? 1e-310 : 1e-40);
    default: return 0;
    }
}

static double special(pl_u4 r)
{
    uint32_t k = pl_uniform_below(r.w, 96);
    return k == 0 ? NAN : k == 1 ? INFINITY : k == 2 ? -INFINITY : pl_normal_from(r).a;
}

double pl_fill_entry(pl_fill fill, uint64_t seed, int operand, polar_dtype dtype, int64_t b, int64_t i,
                     int64_t j)
{
    switch (fill) {
    case PL_FILL_INTEGERS: return whole(draw(seed, operand, b, i, j).x);
    case PL_FILL_ADVERSARIAL: return adversarial(seed, operand, dtype, b, i, j);
    case PL_FILL_SPECIAL: return special(draw(seed, operand, b, i, j));
    default: return pl_normal_from(draw(seed, operand, b, i, j)).a;
    }
}

void pl_fill_norm(double out[2], pl_fill fill, uint64_t seed, int64_t b)
{
    pl_u4 r = draw(seed, PL_MAX_OPERANDS, b, 0, 0);
    double n = 1 + 63 * pl_uniform_f64(r.x, r.y);
    int e = (int)pl_uniform_below(r.z, 41) - 20;
    if (fill == PL_FILL_INTEGERS) n = pl_uniform_below(r.x, 7);
    if (fill == PL_FILL_ADVERSARIAL) {
        static const int ends[4] = {-1022, -126, 126, 1022};
        e = ends[pl_uniform_below(r.z, 4)];
        if (pl_uniform_below(r.w, 4) == 0) n = 0;
    }
    if (fill == PL_FILL_SPECIAL && pl_uniform_below(r.w, 8) == 0)
        n = r.x & 1 ? (double)NAN : (double)INFINITY;
    out[0] = n == 0 ? 1 : ldexp(1, e);
    out[1] = n;
}
