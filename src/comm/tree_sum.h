/* tree_sum.h -- sums of numbered vectors in one order, wherever they lie (the argument is in polar/comm.h).
 *
 *     pl_tree_sum s = {.q = q, .slots = room, .n = n, .stride = n, .dtype = POLAR_DTYPE_F32};
 *     for (leaf = first; leaf < first + count; leaf++) pl_tree_sum_push(&s, x[leaf], leaf, 1);
 *     // slots now holds s.tree.depth vectors, whole subtrees of T(0, leaves); elsewhere they are pushed on:
 *     pl_tree_sum_push(&all, piece, start, size);
 *     pl_tree_sum_fold(&all);                      // slot 0 is T(0, leaves)
 *
 * The stack is a binary counter: a subtree of 2^k leaves that begins at a multiple of 2^(k + 1) waits for its
 * right neighbour.
 */
#ifndef PL_COMM_TREE_SUM_H
#define PL_COMM_TREE_SUM_H

#include "device/queue.h"

#define PL_TREE_DEPTH 128 /* twice the bits of a count, and more than any stack has */

typedef struct pl_tree {
    int depth;
    int64_t start[PL_TREE_DEPTH], size[PL_TREE_DEPTH]; /* of the subtrees on the stack */
} pl_tree;

/* how many of those on the stack it joins: the last one first; from the left they have no gap */
int pl_tree_push(pl_tree *t, int64_t start, int64_t size);
/* subtrees that leaves [first, first + count) make */
pl_tree pl_tree_of(int64_t first, int64_t count);
/* the deepest the stack becomes on the way there */
int pl_tree_room(int64_t first, int64_t count);

typedef struct pl_tree_sum {
    pl_queue *q; /* NULL: host memory */
    pl_tree tree;
    char *slots; /* vectors of n numbers, each `stride` numbers behind the one before */
    int64_t n, stride;
    polar_dtype dtype; /* f32 or f64 */
} pl_tree_sum;

/* X: n numbers of any format, converted on their way (only with a queue; else of the same); may be the slot
 * that it goes to */
void pl_tree_sum_push(pl_tree_sum *s, const void *X, polar_dtype dtype, int64_t start, int64_t size);
void pl_tree_sum_fold(pl_tree_sum *s); /* everything into slot 0 */

#endif
