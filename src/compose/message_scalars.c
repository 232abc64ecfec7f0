/* message_scalars.c -- messages of scalars alone as messages by channel whose weights of vectors are zero:
 *
 *     W2' = (W2; 0)  (E, 2h, h)      b2' = (b2, 0)  (E, 1, 2h)
 *     Ys = S + alpha w S,  Yv = V + alpha 0 V = V      dS as it was,  dV = dYv
 *     dw0, db0: 0 times the vectors' part              dW2, db2: the first h rows of theirs
 *
 * Zeros are 0 times W2: where that is not finite, nor are the scalars, the vectors are not either.
 */
#include "compose/message_scalars.h"

#include "compose/view.h"

pl_message pl_message_scalars_wide(pl_queue *q, const pl_message *m)
{
    int64_t E = m->w0.batch, h = m->w0.rows;
    pl_message wide = *m;
    wide.kind = PL_MESSAGE_CHANNEL;
    wide.W2 = pl_scratch_mat(q, m->W2.dtype, E, 2 * h, h);
    wide.b2 = pl_scratch_mat(q, m->b2.dtype, E, 1, 2 * h);
    return wide;
}

void pl_message_scalars_fill(pl_queue *q, const pl_message *wide, const pl_message *m)
{
    int64_t h = m->w0.rows;
    PL_CALL(copy, q, .Y = pl_view_rows(wide->W2, 0, h), .X = m->W2);
    PL_CALL(copy, q, .Y = pl_view_cols(wide->b2, 0, h), .X = m->b2);
    PL_CALL(axpby, q, .Y = pl_view_rows(wide->W2, h, h), .X = m->W2, .alpha = 0);
    PL_CALL(axpby, q, .Y = pl_view_cols(wide->b2, h, h), .X = m->b2, .alpha = 0);
}

pl_message_grads pl_message_scalars_grads(pl_queue *q, const pl_message_grads *g)
{
    int64_t E = g->W2.batch, h = g->W2.rows;
    pl_message_grads wide = *g;
    wide.W2 = pl_scratch_mat(q, g->W2.dtype, E, 2 * h, h);
    wide.b2 = pl_scratch_mat(q, g->b2.dtype, E, 1, 2 * h);
    return wide;
}

void pl_message_scalars_keep(pl_queue *q, const pl_message_grads *g, const pl_message_grads *wide)
{
    int64_t h = g->W2.rows;
    PL_CALL(copy, q, .Y = g->W2, .X = pl_view_rows(wide->W2, 0, h));
    PL_CALL(copy, q, .Y = g->b2, .X = pl_view_cols(wide->b2, 0, h));
}
