/* op_fill.h -- what operands are filled with (docs/STYLE.md, Tests): every entry a function of (seed,
 * operand, position).
 *
 *     integers       -3 .. 3: sums are exact, so equality is demanded where the scalars are whole too
 *     normal         N(0, 1)
 *     adversarial    per matrix one of: zeros, rows or columns scaled by huge/tiny/denormal/zero,
 *                    rank one, repeated rows, denormals
 *     odd            normal, in views that start off any alignment and whose rows are further apart than long
 *     special        normal with a few NaN and infinities
 */
#ifndef PL_VERIFY_OP_FILL_H
#define PL_VERIFY_OP_FILL_H

#include "polar/tensor.h"

#define PL_MAX_OPERANDS 10 /* of ops that are no PL_FUSED */

typedef enum pl_fill {
    PL_FILL_INTEGERS,
    PL_FILL_NORMAL,
    PL_FILL_ADVERSARIAL,
    PL_FILL_ODD,
    PL_FILL_SPECIAL,
    PL_FILL_COUNT
} pl_fill;

const char *pl_fill_name(pl_fill fill); /* "integers", "normal", ... */

/* Entry (i, j) of matrix b of an operand, before rounding to its format; rank and repetition are exact in
 * every format. */
double pl_fill_entry(pl_fill fill, uint64_t seed, int operand, polar_dtype dtype, int64_t b, int64_t i,
                     int64_t j);

/* The norm (s, n) at position b as `frob` might have left it, for ops that read norms alone: n >= 0, s a
 * power of two. */
void pl_fill_norm(double out[2], pl_fill fill, uint64_t seed, int64_t b);

#endif
