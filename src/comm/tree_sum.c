/* tree_sum.c -- sums in the order of tree_sum.h. */
#include "comm/tree_sum.h"

#include <string.h>

int pl_tree_push(pl_tree *t, int64_t start, int64_t size)
{
    int joined = 0;
    while (t->depth && t->size[t->depth - 1] == size && t->start[t->depth - 1] % (2 * size) == 0 &&
           t->start[t->depth - 1] + size == start) {
        start = t->start[--t->depth];
        size *= 2;
        joined++;
    }
    t->start[t->depth] = start;
    t->size[t->depth++] = size;
    return joined;
}

pl_tree pl_tree_of(int64_t first, int64_t count)
{
    pl_tree t = {0};
    for (int64_t k = 0; k < count; k++) pl_tree_push(&t, first + k, 1);
    return t;
}

int pl_tree_room(int64_t first, int64_t count)
{
    pl_tree t = {0};
    int most = 0;
    for (int64_t k = 0; k < count; k++) {
        pl_tree_push(&t, first + k, 1);
        if (t.depth > most) most = t.depth;
    }
    return most;
}

static char *slot(const pl_tree_sum *s, int k)
{
    return s->slots + (size_t)k * (size_t)s->stride * polar_dtype_size(s->dtype);
}

static pl_mat row(const void *data, polar_dtype dtype, int64_t n)
{
    return pl_mat_dense((void *)data, dtype, 1, 1, n);
}

/* Y += X: one IEEE addition each, the earlier leaves on the left. */
static void add(const pl_tree_sum *s, char *Y, const void *X, polar_dtype dtype)
{
    if (s->q) {
        pl_mat y = row(Y, s->dtype, s->n);
        PL_CALL(axpby, s->q, .Y = y, .X = y, .Z = row(X, dtype, s->n), .alpha = 1, .beta = 1);
    } else if (s->dtype == POLAR_DTYPE_F64) {
        double *y = (double *)Y;
        for (int64_t i = 0; i < s->n; i++) y[i] += ((const double *)X)[i];
    } else {
        float *y = (float *)Y;
        for (int64_t i = 0; i < s->n; i++) y[i] += ((const float *)X)[i];
    }
}

static void keep(const pl_tree_sum *s, char *Y, const void *X, polar_dtype dtype)
{
    if (Y == X) return;
    if (s->q) PL_CALL(copy, s->q, .Y = row(Y, s->dtype, s->n), .X = row(X, dtype, s->n));
    else memmove(Y, X, (size_t)s->n * polar_dtype_size(s->dtype));
}

void pl_tree_sum_push(pl_tree_sum *s, const void *X, polar_dtype dtype, int64_t start, int64_t size)
{
    int top = s->tree.depth, joined = pl_tree_push(&s->tree, start, size);
    if (!s->n) return;
    if (!joined) keep(s, slot(s, top), X, dtype);
    for (int k = 1; k <= joined; k++)
        add(s, slot(s, top - k), k == 1 ? X : slot(s, top - k + 1), k == 1 ? dtype : s->dtype);
}

void pl_tree_sum_fold(pl_tree_sum *s)
{
    for (int k = s->tree.depth - 1; k > 0 && s->n; k--) add(s, slot(s, k - 1), slot(s, k), s->dtype);
    s->tree = (pl_tree){0};
}
