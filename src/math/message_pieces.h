/* message_pieces.h -- the polynomials that stand for a message's weights over a piece of its distances.
 *
 * The weights of a pair, w = W2 silu(w0 d + b0) + b2, are 2h functions of one number, its distance. So the
 * MLP is not worked out for every pair: where a cloud's distances lie in [0, PL_MESSAGE_ROWS delta) its
 * weights come from a table, in pieces of width delta a polynomial of PL_MESSAGE_TERMS terms per channel,
 * and the gradients of the MLP come from the moments sum dw t^q of each piece. Both sides of it (the MLP at
 * the nodes, its backward) are done in double.
 *
 *     t = 2 (d / delta - k) - 1 in [-1, 1],  k = floor(d / delta)      delta a power of two, delta
 *         max|w0| <= 1/2
 *     w(d) = sum_q C_kq t^q                                           interpolates at the 6 Chebyshev
 *         nodes of piece k
 *
 * Error of the interpolation: silu is analytic up to the poles at +-i pi; over a piece its argument moves
 * by 2r = delta |w0| <= 1/2, so the error of z is at most max|silu^(6)| r^6 / (6! 2^5) = 1.5 / (4096 *
 * 23040) = 1.6e-8, a quarter of float's rounding unit 6e-8; that of silu' (for dw0, db0) 2.91 / (4096 *
 * 23040) = 3.1e-8. Everything else is rounding. Distances outside of the table (or negative, or not
 * finite), and weights beyond PL_MESSAGE_LARGE or not finite take the direct way: the MLP at every pair, in
 * double. Which way a cloud goes depends on itself and its member's weights alone.
 */
#ifndef PL_MATH_MESSAGE_PIECES_H
#define PL_MATH_MESSAGE_PIECES_H

#define PL_MESSAGE_TERMS 6
#define PL_MESSAGE_ROWS  128 /* pieces of a table at most */
#define PL_MESSAGE_LARGE 0x1p100

typedef struct pl_message_basis {
    double node[PL_MESSAGE_TERMS]; /* in (-1, 1) */
    /* coefficient q of the polynomial that is 1 at node m and 0 at the others */
    double of[PL_MESSAGE_TERMS][PL_MESSAGE_TERMS];
} pl_message_basis;

static inline void pl_message_basis_make(pl_message_basis *t)
{
    static const double nodes[PL_MESSAGE_TERMS] = {
        -0.96592582628906828675, -0.70710678118654752440, -0.25881904510252076235,
        /* cos((2k + 1) pi / 12) */
        0.25881904510252076235, 0.70710678118654752440, 0.96592582628906828675};
    for (int m = 0; m < PL_MESSAGE_TERMS; m++) {
        double c[PL_MESSAGE_TERMS] = {1}, scale = 1; /* the product of (t - node) over the others */
        int degree = 0;
        for (int o = 0; o < PL_MESSAGE_TERMS; o++) {
            if (o == m) continue;
            for (int q = ++degree; q > 0; q--) c[q] = c[q - 1] - nodes[o] * c[q];
            c[0] *= -nodes[o];
            scale *= nodes[m] - nodes[o];
        }
        for (int q = 0; q < PL_MESSAGE_TERMS; q++) t->of[q][m] = c[q] / scale;
        t->node[m] = nodes[m];
    }
}

#endif
