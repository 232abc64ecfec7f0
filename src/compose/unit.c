/* unit.c -- a matrix over its own norm, which is kept: in one op where a device has it, else in two. */
#include "compose/unit.h"

void pl_unit(pl_queue *q, pl_mat Y, pl_mat N, pl_mat X)
{
    if (pl_queue_has(q, PL_OP_frob_normalise)) {
        PL_CALL(frob_normalise, q, .Y = Y, .N = N, .X = X);
        return;
    }
    PL_CALL(frob, q, .N = N, .X = X, .weight = 1);
    PL_CALL(normalise, q, .Y = Y, .X = X, .N = N);
}
