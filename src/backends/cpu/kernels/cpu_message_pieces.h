/* cpu_message_pieces.h -- where distances fall in the pieces of a member's table (math/message_pieces.h), and
 * which clouds have none. */
#ifndef PL_CPU_MESSAGE_PIECES_H
#define PL_CPU_MESSAGE_PIECES_H

#include <string.h>

#include "device/mat.h"
#include "math/message_pieces.h"

/* The pieces of one member. */
typedef struct {
    int64_t rows; /* pieces in use */
    double delta; /* width of a piece, a power of two */
    float limit;  /* distances from here on take the direct way; 0: all do */
    pl_message_basis basis;
} pieces;

/* The largest magnitude of n numbers, by their bits, which have the same order: NaN counts as more than
 * infinity. */
static inline double largest(const double *x, int64_t n)
{
    int64_t most = 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t u;
        memcpy(&u, x + i, sizeof u);
        u &= INT64_MAX;
        most = u > most ? u : most;
    }
    double d;
    memcpy(&d, &most, sizeof d);
    return d;
}

static inline double node_distance(const pieces *t, int64_t row, int m)
{
    return t->delta * ((double)row + 0.5 * (1 + t->basis.node[m]));
}

/* The largest distance of cloud c as an integer of the same order; negative numbers and NaN count as more
 * than infinity. */
static inline uint32_t largest_distance(const pl_mat *D, int64_t c)
{
    uint32_t most = 0;
    if (D->dtype == POLAR_DTYPE_F32 && D->rs == 1) {
        const char *d = (const char *)((const float *)D->data + c * D->bs);
        for (int64_t p = 0; p < D->rows; p++) {
            uint32_t u;
            memcpy(&u, d + 4 * p, sizeof u);
            most = u > most ? u : most;
        }
        return most;
    }
    for (int64_t p = 0; p < D->rows; p++) {
        float x = (float)pl_load_f64(D->data, D->dtype, c * D->bs + p * D->rs);
        uint32_t u;
        memcpy(&u, &x, sizeof u);
        most = u > most ? u : most;
    }
    return most;
}

static inline int beyond(const pieces *t, uint32_t distance)
{
    uint32_t limit;
    memcpy(&limit, &t->limit, sizeof limit);
    return distance >= limit;
}

/* How wide the pieces are, and how many a member's clouds need; usable 0: all of them take the direct way. */
static inline pieces pieces_make(const pl_mat *D, int64_t first, int64_t clouds, double most_w0, int usable)
{
    pieces t = {.delta = 1};
    if (!usable) return t;
    while (t.delta * most_w0 > 0.5) t.delta *= 0.5;
    t.limit = (float)(PL_MESSAGE_ROWS * t.delta);
    pl_message_basis_make(&t.basis);
    for (int64_t c = first; c < first + clouds; c++) {
        uint32_t u = largest_distance(D, c);
        float x;
        memcpy(&x, &u, sizeof x);
        if (beyond(&t, u)) continue;
        int64_t rows = (int64_t)((double)x / t.delta) + 1;
        if (rows > t.rows) t.rows = rows;
    }
    return t;
}

static inline void load_distances(double *d, const pl_mat *D, int64_t c, int64_t at, int64_t n)
{
    for (int64_t p = 0; p < n; p++) d[p] = pl_load_f64(D->data, D->dtype, c * D->bs + (at + p) * D->rs);
}

#endif
