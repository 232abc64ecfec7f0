/* map_table.c -- norms of a tensor and of its map, and the extreme singular values of the map where they cost
 * little. */
#include "map_table.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/lapack.h"
#include "device/mat.h"

#define MAX_SVD_SIDE 512 /* singular values up to this short side */

static const pl_table_column columns[] = {
    {"tensor", "tensor", NULL, PL_CELL_TEXT, 0},         {"shape", "shape", NULL, PL_CELL_TEXT, 0},
    {"norm_in", "norm in", NULL, PL_CELL_SCI, 3},        {"norm_out", "norm out", NULL, PL_CELL_SCI, 3},
    {"sigma_max", "largest sv", NULL, PL_CELL_FIXED, 4}, {"sigma_min", "smallest sv", NULL, PL_CELL_FIXED, 4},
};

polar_status map_table_create(pl_table **out, const char *title)
{
    return pl_table_create(out, title, columns, (int)(sizeof columns / sizeof *columns));
}

static double norm(const void *data, polar_dtype dtype, int64_t n)
{
    double r = 0;
    /* neither under- nor overflows */
    for (int64_t i = 0; i < n; i++) r = hypot(r, pl_load_f64(data, dtype, i));
    return r;
}

/* The extreme singular values over a batch of matrices, none of them empty. */
static polar_status singular_range(double *most, double *least, const polar_tensor *t)
{
    int64_t rows = t->shape[t->ndim - 2], cols = t->shape[t->ndim - 1],
            batch = t->ndim == 3 ? t->shape[0] : 1, k = rows < cols ? rows : cols;
    double *room = pl_alloc((size_t)(rows * cols + k) * sizeof *room);
    PL_NEED(room, POLAR_E_NOMEM, "a copy of a %lld x %lld matrix", (long long)rows, (long long)cols);
    double *s = room + rows * cols;
    polar_status st = POLAR_OK;
    *most = 0;
    *least = INFINITY;
    for (int64_t b = 0; b < batch && st == POLAR_OK; b++) {
        for (int64_t i = 0; i < rows * cols; i++)
            room[i] = pl_load_f64(t->data, t->dtype, b * rows * cols + i);
        /* read as column-major it is the transpose, with the same singular values */
        st = pl_lapack_svd(s, NULL, NULL, room, cols, rows);
        if (st != POLAR_OK) break;
        *most = fmax(*most, s[0]);
        *least = fmin(*least, s[k - 1]);
    }
    pl_free(room);
    return st;
}

polar_status map_table_add(pl_table *t, const pl_safetensors_entry *in, const polar_tensor *result)
{
    char shape[180] = "";
    double most = 0, least = 0;
    int64_t n = in->bytes / (int64_t)polar_dtype_size((polar_dtype)in->dtype);
    int64_t rows = result->shape[result->ndim - 2], cols = result->shape[result->ndim - 1];
    for (int d = 0; d < in->ndim; d++) {
        size_t used = strlen(shape);
        snprintf(shape + used, sizeof shape - used, "%s%lld", d ? "x" : "", (long long)in->shape[d]);
    }
    pl_table_row(t);
    pl_table_text(t, in->name);
    pl_table_text(t, shape);
    pl_table_number(t, norm(in->data, (polar_dtype)in->dtype, n));
    pl_table_number(t, norm(result->data, result->dtype, n));
    if (!n || (rows < cols ? rows : cols) > MAX_SVD_SIDE) return POLAR_OK;
    polar_status st = singular_range(&most, &least, result);
    if (st == POLAR_E_UNSUPPORTED) return POLAR_OK; /* no LAPACK here: the map is made all the same */
    PL_TRY(st);
    pl_table_number(t, most);
    pl_table_number(t, least);
    return POLAR_OK;
}
