/* weight_grad.c -- dW = dY^T X, where the rows are many and the result is small.
 *
 * One product per member would keep one core (or a corner of a GPU) busy with one long sum. The rows are
 * groups (clouds) of equal size: they are cut into pieces of whole groups, each piece is a product of its
 * own, and the partial results are added in the order of the pieces. How many pieces is a function of the
 * shape alone, so that a member's bits depend neither on its mates nor on the device's size.
 *
 *     a piece has at least MIN_ROWS rows, and all partial results take at most a quarter, large ones a
 *         sixteenth, of the memory of dY and X (in one format):
 *     4 parts out in <= rows (out + in), or 16 parts out in
 *
 * The work of a small result, one block of a product, can be shared out along the rows alone. A large one
 * has parts of its own to share, and its pieces are what costs: each is written and read again in the
 * format of dW, four bytes where dY and X may have two. DeiT-Tiny's 768 x 192 over 6304 rows has two; eight
 * would be 4.7 MB beside the 12 MB of dY and X.
 */
#include "compose/weight_grad.h"

#include "compose/view.h"

#define MIN_ROWS 64
#define LARGE    (128 * 128) /* results above this size have parts of their own */

int64_t pl_weight_grad_parts(int64_t rows, int64_t groups, int64_t out, int64_t in)
{
    const double size = (double)out * (double)in, share = size > LARGE ? 16 : 4;
    for (int64_t parts = groups; parts > 1; parts--)
        if (groups % parts == 0 && rows / parts >= MIN_ROWS &&
            share * (double)parts * size <= (double)rows * (double)(out + in))
            return parts;
    return 1;
}

static void weight_alone(pl_queue *q, pl_mat dW, pl_mat dY, pl_mat X, int64_t groups, int64_t tf32)
{
    int64_t parts = pl_weight_grad_parts(dY.rows, groups, dW.rows, dW.cols);
    if (parts == 1) {
        PL_CALL(gemm, q, .C = dW, .A = dY, .B = X, .ta = 1, .tf32 = tf32, .alpha = 1);
        return;
    }
    pl_scratch_mark mark = pl_scratch_begin(q);
    /* partial results */
    pl_mat P = pl_scratch_mat(q, dW.dtype, dW.batch * parts, dW.rows, dW.cols);
    PL_CALL(gemm, q, .C = P, .A = pl_view_split(dY, parts), .B = pl_view_split(X, parts), .ta = 1,
            .tf32 = tf32, .alpha = 1);
    PL_CALL(row_sum, q, .Y = pl_view_row(dW), .X = pl_view_join(pl_view_row(P), parts), .alpha = 1);
    pl_scratch_end(q, mark);
}

void pl_weight_grad(pl_queue *q, pl_mat dW, pl_mat db, pl_mat dY, pl_mat X, int64_t groups)
{
    const pl_args_weight_grad fused = {.dW = dW, .db = db, .dY = dY, .X = X};
    if (pl_queue_serves(q, PL_OP_weight_grad, &fused)) {
        pl_call_weight_grad(q, &fused);
        return;
    }
    weight_alone(q, dW, dY, X, groups, 0);
    if (db.data) PL_CALL(row_sum, q, .Y = db, .X = dY, .alpha = 1);
}

void pl_weight_grad_tf32(pl_queue *q, pl_mat dW, pl_mat db, pl_mat dY, pl_mat X, int64_t groups)
{
    weight_alone(q, dW, dY, X, groups, 1);
    if (db.data) PL_CALL(row_sum, q, .Y = db, .X = dY, .alpha = 1);
}
