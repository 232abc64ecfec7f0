/* view.h -- the same memory as other matrices: rows to batches and back, columns, one row or column per
 * matrix. No copies.
 *
 * What is written for members as the batch is seen with clouds as the batch by pl_view_split, and so on.
 */
#ifndef PL_COMPOSE_VIEW_H
#define PL_COMPOSE_VIEW_H

#include <assert.h>

#include "device/mat.h"

/* (batch, parts * r, cols) -> (batch * parts, r, cols). */
static inline pl_mat pl_view_split(pl_mat m, int64_t parts)
{
    assert(parts > 0 && m.rows % parts == 0 && (m.batch <= 1 || m.bs == m.rows * m.rs));
    m.batch *= parts;
    m.rows /= parts;
    m.bs = m.rows * m.rs;
    return m;
}

/* (batch * parts, r, cols) -> (batch, parts * r, cols). */
static inline pl_mat pl_view_join(pl_mat m, int64_t parts)
{
    assert(parts > 0 && m.batch % parts == 0 && (m.batch <= 1 || m.bs == m.rows * m.rs));
    m.batch /= parts;
    m.rows *= parts;
    m.bs = m.rows * m.rs;
    return m;
}

/* Columns [first, first + n). */
static inline pl_mat pl_view_cols(pl_mat m, int64_t first, int64_t n)
{
    assert(first >= 0 && n >= 0 && first + n <= m.cols);
    if (m.data) m.data = (char *)m.data + (size_t)first * polar_dtype_size(m.dtype);
    m.cols = n;
    return m;
}

/* Rows [first, first + n) of every matrix. */
static inline pl_mat pl_view_rows(pl_mat m, int64_t first, int64_t n)
{
    assert(first >= 0 && n >= 0 && first + n <= m.rows);
    if (m.data) m.data = (char *)m.data + (size_t)(first * m.rs) * polar_dtype_size(m.dtype);
    m.rows = n;
    return m;
}

/* Rows first, first + step, first + 2 step, ... of every matrix. */
static inline pl_mat pl_view_every(pl_mat m, int64_t first, int64_t step)
{
    assert(first >= 0 && first < step && m.rows % step == 0);
    if (m.data) m.data = (char *)m.data + (size_t)(first * m.rs) * polar_dtype_size(m.dtype);
    m.rows /= step;
    m.rs *= step;
    return m;
}

/* (1, rows, cols) -> the same matrix `times` over. */
static inline pl_mat pl_view_repeat(pl_mat m, int64_t times)
{
    assert(m.batch == 1);
    m.batch = times;
    m.bs = 0;
    return m;
}

/* (batch, rows, cols), packed -> (batch, 1, rows * cols). */
static inline pl_mat pl_view_row(pl_mat m)
{
    assert(m.rs == m.cols || m.rows <= 1);
    m.cols *= m.rows;
    m.rows = 1;
    m.rs = m.cols;
    return m;
}

#endif
