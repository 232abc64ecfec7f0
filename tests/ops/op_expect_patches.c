/* op_expect_patches.c -- where a picture's numbers go. */
#include "op_calls.h"
#include "op_model_impl.h"

/* Walks over the picture instead of dividing the position in Y. */
MODEL(patches)
{
    int64_t K = r->c.K, channel = 0, token = 0;
    while (j >= K * K) j -= K * K, channel++;
    while (i >= r->c.cols) i -= r->c.cols, token++;
    return at(r, 1, b, (channel * r->c.rows + token) * K + j / K, i * K + j % K);
}

/* ---- wrong ops that must be caught, wrong calls that must be refused ---- */

/* Rows and columns of a patch swapped. */
static void patches_on_their_side(pl_queue *q, const pl_args_patches *a)
{
    int64_t p = a->patch;
    pl_ref_ops.patches(q, a);
    for (int64_t y = 0; y < p; y++)
        for (int64_t x = 0; x < y; x++) {
            double one = get(&a->Y, 0, 0, y * p + x);
            put(&a->Y, 0, 0, y * p + x, get(&a->Y, 0, 0, x * p + y));
            put(&a->Y, 0, 0, x * p + y, one);
        }
}

/* Tokens column by column. */
static void tokens_down(pl_queue *q, const pl_args_patches *a)
{
    int64_t p = a->patch, down = a->height / p, across = a->width / p;
    (void)q;
    for (int64_t b = 0; b < a->Y.batch; b++)
        for (int64_t i = 0; i < a->Y.rows; i++)
            for (int64_t j = 0; j < a->Y.cols; j++) {
                int64_t y = i % down * p + j / p % p, x = i / down % across * p + j % p;
                put(&a->Y, b, i, j, get(&a->X, b, j / (p * p) * a->height + y, x));
            }
}

static const fault patches_faults[] = {
    {"patches on their side", "patches f32 2x3x2x4", (op_fn)patches_on_their_side},
    {"tokens column by column", "patches f32 2x3x2x4", (op_fn)tokens_down},
};

static const bad_call patches_bad[] = {
    {0, ROWS, 0, POLAR_E_SHAPE}, {0, COLS, 0, POLAR_E_SHAPE},  {1, ROWS, 0, POLAR_E_SHAPE},
    {1, COLS, 0, POLAR_E_SHAPE}, {1, BATCH, 0, POLAR_E_SHAPE}, {0, MODE, 0, POLAR_E_SHAPE},
    {0, MODE, 1, POLAR_E_SHAPE}, {0, MODE, 2, POLAR_E_SHAPE},  {0, ONTO, 1, POLAR_E_ARG},
};

const op_calls pl_calls_patches = {"patches f32 2x3x2x4", LIST(patches_bad), LIST(patches_faults)};
