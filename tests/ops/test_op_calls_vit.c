/* test_op_calls_vit.c -- test_op_calls for the transformer's ops: planted faults are seen (on ref), and the
 * device argv[1] refuses calls that make no sense. */
#include "op_calls.h"

/* ---- wrong ops ---- */

/* Gelu's other form, by tanh: off by up to 5e-4. */
static void gelu_by_tanh(pl_queue *q, const pl_args_bias_act *a)
{
    (void)q;
    for (int64_t b = 0; b < a->Y.batch; b++)
        for (int64_t i = 0; i < a->Y.rows; i++)
            for (int64_t j = 0; j < a->Y.cols; j++) {
                double x = get(&a->X, b, i, j);
                put(&a->Y, b, i, j, 0.5 * x * (1 + tanh(0.79788456080286536 * (x + 0.044715 * x * x * x))));
            }
}

static void gelu_without_bell(pl_queue *q, const pl_args_bias_act_back *a)
{
    (void)q;
    for (int64_t b = 0; b < a->dX.batch; b++)
        for (int64_t i = 0; i < a->dX.rows; i++)
            for (int64_t j = 0; j < a->dX.cols; j++) {
                double x = get(&a->X, b, i, j) + get(&a->b, 0, 0, j);
                put(&a->dX, b, i, j, get(&a->dY, b, i, j) * 0.5 * (1 + erf(x * 0.70710678118654752)));
            }
}

static void norm_without_epsilon(pl_queue *q, const pl_args_layernorm *a)
{
    pl_args_layernorm wrong = *a;
    wrong.eps = 0;
    pl_ref_ops.layernorm(q, &wrong);
}

/* The variance over n - 1. */
static void norm_unbiased(pl_queue *q, const pl_args_layernorm *a)
{
    pl_ref_ops.layernorm(q, a);
    for (int64_t i = 0; i < a->S.rows; i++)
        put(&a->S, 0, i, 1, get(&a->S, 0, i, 1) * sqrt((double)(a->X.cols - 1) / (double)a->X.cols));
}

static void norm_ten_ulps_off(pl_queue *q, const pl_args_layernorm *a)
{
    pl_ref_ops.layernorm(q, a);
    scale_all(&a->S, 1 + 10 * 0x1p-23);
}

static void gain_of_the_first(pl_queue *q, const pl_args_layernorm *a)
{
    pl_args_layernorm wrong = *a;
    wrong.g.batch = 1;
    pl_ref_ops.layernorm(q, &wrong);
}

static void back_without_z(pl_queue *q, const pl_args_layernorm_back *a)
{
    pl_args_layernorm_back wrong = *a;
    wrong.Z.data = NULL;
    pl_ref_ops.layernorm_back(q, &wrong);
}

/* dx = r h: the statistics' own gradients left out. */
static void back_straight_only(pl_queue *q, const pl_args_layernorm_back *a)
{
    pl_ref_ops.layernorm_back(q, a);
    for (int64_t j = 0; j < a->dX.cols; j++)
        put(&a->dX, 0, 0, j, get(&a->S, 0, 0, 1) * get(&a->dY, 0, 0, j) * get(&a->g, 0, 0, j));
}

/* Of 2113 rows the last is left out of dg and db. */
static void back_sums_short(pl_queue *q, const pl_args_layernorm_back *a)
{
    pl_args_layernorm_back less = *a;
    pl_ref_ops.layernorm_back(q, a);
    less.dX.rows -= 1, less.X.rows -= 1, less.S.rows -= 1, less.dY.rows -= 1, less.Z.rows -= 1;
    pl_ref_ops.layernorm_back(q, &less);
}

/* dX is right, dL is not: as if there were no Z, */
static void low_without_z(pl_queue *q, const pl_args_layernorm_back *a)
{
    pl_args_layernorm_back wrong = *a;
    wrong.dX = a->dL;
    wrong.Z.data = wrong.dL.data = NULL;
    pl_ref_ops.layernorm_back(q, a);
    pl_ref_ops.layernorm_back(q, &wrong);
}

/* or cut to bf16 instead of rounded. */
static void low_cut(pl_queue *q, const pl_args_layernorm_back *a)
{
    pl_ref_ops.layernorm_back(q, a);
    for (int64_t i = 0; i < a->dL.rows; i++)
        for (int64_t j = 0; j < a->dL.cols; j++) {
            float x = (float)get(&a->dX, 0, i, j);
            uint32_t bits;
            memcpy(&bits, &x, sizeof bits);
            bits &= 0xffff0000u;
            memcpy(&x, &bits, sizeof x);
            put(&a->dL, 0, i, j, x);
        }
}

static void gains_swapped(pl_queue *q, const pl_args_layernorm_back *a)
{
    pl_args_layernorm_back wrong = *a;
    wrong.dg = a->db, wrong.db = a->dg;
    pl_ref_ops.layernorm_back(q, &wrong);
}

static void softmax_without_scale(pl_queue *q, const pl_args_softmax *a)
{
    pl_args_softmax wrong = *a;
    wrong.scale = 1;
    pl_ref_ops.softmax(q, &wrong);
}

static void softmax_of_columns(pl_queue *q, const pl_args_softmax *a)
{
    pl_args_softmax less = *a;
    pl_ref_ops.softmax(q, a);
    less.X.cols -= 1, less.Y.cols -= 1;
    pl_ref_ops.softmax(q, &less);
}

static void softmax_twenty_ulps_off(pl_queue *q, const pl_args_softmax *a)
{
    pl_ref_ops.softmax(q, a);
    scale_all(&a->Y, 1 + 20 * 0x1p-23);
}

static void softmax_back_without_sum(pl_queue *q, const pl_args_softmax_back *a)
{
    (void)q;
    for (int64_t b = 0; b < a->dX.batch; b++)
        for (int64_t i = 0; i < a->dX.rows; i++)
            for (int64_t j = 0; j < a->dX.cols; j++)
                put(&a->dX, b, i, j, a->scale * get(&a->Y, b, i, j) * get(&a->dY, b, i, j));
}

static void loss_summed(pl_queue *q, const pl_args_cross_entropy *a)
{
    pl_ref_ops.cross_entropy(q, a);
    put(&a->L, 0, 0, 0, (double)a->Z.rows * get(&a->L, 0, 0, 0));
}

/* dZ = (softmax - T) / rows, as if the targets' weights summed to 1. */
static void slope_of_unit_targets(pl_queue *q, const pl_args_cross_entropy *a)
{
    double t = 0;
    pl_ref_ops.cross_entropy(q, a);
    for (int64_t j = 0; j < a->T.cols; j++) t += get(&a->T, 0, 0, j);
    for (int64_t j = 0; j < a->T.cols; j++) {
        double target = get(&a->T, 0, 0, j), rows = (double)a->Z.rows;
        put(&a->dZ, 0, 0, j, ((get(&a->dZ, 0, 0, j) * rows + target) / t - target) / rows);
    }
}

static void factors_by_turns(pl_queue *q, const pl_args_scale_rows *a)
{
    (void)q;
    for (int64_t b = 0; b < a->Y.batch; b++)
        for (int64_t i = 0; i < a->Y.rows; i++)
            for (int64_t j = 0; j < a->Y.cols; j++)
                put(&a->Y, b, i, j,
                    get(&a->Z, b, i, j) + get(&a->s, b, i % a->s.rows, 0) * get(&a->X, b, i, j));
}

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

static const fault faults[] = {
    FAULT("gelu by tanh", "bias_act f32 3x7x13 in_place gelu", bias_act, gelu_by_tanh),
    FAULT("gelu's slope without its bell", "bias_act_back f32 3x7x13 gelu b", bias_act_back,
          gelu_without_bell),
    FAULT("rows normalised without the epsilon", "layernorm f32 3x7x13 eps 1e-06", layernorm,
          norm_without_epsilon),
    FAULT("a variance over n - 1", "layernorm f32 3x7x13 eps 1e-06", layernorm, norm_unbiased),
    FAULT("statistics 10 ulps off", "layernorm f32 3x7x13 eps 1e-06", layernorm, norm_ten_ulps_off),
    FAULT("one gain for all of a batch", "layernorm f32 3x7x13 per_matrix eps 1e-06", layernorm,
          gain_of_the_first),
    FAULT("a gradient without Z", "layernorm_back f32 3x7x13 Z", layernorm_back, back_without_z),
    FAULT("a gradient without the statistics'", "layernorm_back f32 3x7x13", layernorm_back,
          back_straight_only),
    FAULT("the last of 2113 rows left out", "layernorm_back f32 1x2113x2", layernorm_back, back_sums_short),
    FAULT("the gradient's copy without Z", "layernorm_back f32 3x7x13 strided dL Z", layernorm_back,
          low_without_z),
    FAULT("the gradient's copy cut", "layernorm_back f32,bf16,f32->f32,bf16 3x7x13 strided dL Z",
          layernorm_back, low_cut),
    FAULT("gains for shifts", "layernorm_back f32 3x7x13", layernorm_back, gains_swapped),
    FAULT("a softmax without its scale", "softmax f32 3x7x13 0.125", softmax, softmax_without_scale),
    FAULT("a softmax of all columns but one", "softmax f32 3x7x13 1", softmax, softmax_of_columns),
    FAULT("a softmax 20 ulps off", "softmax f32 1x2x100 1", softmax, softmax_twenty_ulps_off),
    FAULT("a softmax's slope without its sum", "softmax_back f32 3x7x13 1", softmax_back,
          softmax_back_without_sum),
    FAULT("a summed loss for a mean", "cross_entropy f32 3x7x13 dZ", cross_entropy, loss_summed),
    FAULT("targets taken to sum to 1", "cross_entropy f32 3x7x13 dZ", cross_entropy, slope_of_unit_targets),
    FAULT("factors by turns", "scale_rows f32 2x3x5x7 Z", scale_rows, factors_by_turns),
    FAULT("patches on their side", "patches f32 2x3x2x4", patches, patches_on_their_side),
    FAULT("tokens column by column", "patches f32 2x3x2x4", patches, tokens_down),
};

/* ---- bad calls ---- */

static const bad_call bad_calls[] = {
    {PL_OP_layernorm, 2, ROWS, 0, POLAR_E_SHAPE},
    {PL_OP_layernorm, 1, ROWS, 0, POLAR_E_SHAPE},
    {PL_OP_layernorm, 1, COLS, 0, POLAR_E_SHAPE},
    {PL_OP_layernorm, 1, FORMAT, 0, POLAR_E_DTYPE},
    {PL_OP_layernorm, 3, COLS, 0, POLAR_E_SHAPE},
    {PL_OP_layernorm, 4, BATCH, 0, POLAR_E_SHAPE},
    {PL_OP_layernorm, 0, ONTO, 2, POLAR_E_ARG},
    {PL_OP_layernorm, 0, ONTO, 3, POLAR_E_ARG},
    {PL_OP_layernorm, 1, ONTO, 2, POLAR_E_ARG},
    {PL_OP_layernorm, 1, ONTO, 0, POLAR_E_ARG},
    {PL_OP_layernorm, 0, SCALAR, 0, POLAR_E_ARG},
    {PL_OP_layernorm, 1, NO_DATA, 0, POLAR_E_ARG},
    {PL_OP_layernorm_back, 4, ROWS, 0, POLAR_E_SHAPE},
    {PL_OP_layernorm_back, 1, COLS, 0, POLAR_E_SHAPE},
    {PL_OP_layernorm_back, 2, BATCH, 0, POLAR_E_SHAPE},
    {PL_OP_layernorm_back, 5, ROWS, 0, POLAR_E_SHAPE},
    {PL_OP_layernorm_back, 5, FORMAT, 0, POLAR_E_DTYPE},
    {PL_OP_layernorm_back, 6, COLS, 0, POLAR_E_SHAPE},
    {PL_OP_layernorm_back, 7, ROWS, 0, POLAR_E_SHAPE},
    {PL_OP_layernorm_back, 8, COLS, 0, POLAR_E_SHAPE},
    {PL_OP_layernorm_back, 0, ONTO, 4, POLAR_E_ARG},
    {PL_OP_layernorm_back, 0, ONTO, 7, POLAR_E_ARG},
    {PL_OP_layernorm_back, 0, ONTO, 8, POLAR_E_ARG},
    {PL_OP_layernorm_back, 1, ONTO, 2, POLAR_E_ARG},
    {PL_OP_layernorm_back, 1, ONTO, 7, POLAR_E_ARG},
    {PL_OP_layernorm_back, 2, ONTO, 8, POLAR_E_ARG},
    {PL_OP_layernorm_back, 7, NO_DATA, 0, POLAR_E_ARG},
    {PL_OP_layernorm_back, 3, ROWS, 0, POLAR_E_SHAPE},
    {PL_OP_layernorm_back, 3, COLS, 0, POLAR_E_SHAPE},
    {PL_OP_layernorm_back, 3, ONTO, 0, POLAR_E_ARG},
    {PL_OP_layernorm_back, 3, ONTO, 4, POLAR_E_ARG},
    {PL_OP_layernorm_back, 3, ONTO, 7, POLAR_E_ARG},
    {PL_OP_layernorm_back, 3, ONTO, 8, POLAR_E_ARG},
    {PL_OP_softmax, 1, ROWS, 0, POLAR_E_SHAPE},
    {PL_OP_softmax, 1, COLS, 0, POLAR_E_SHAPE},
    {PL_OP_softmax, 0, BATCH, 0, POLAR_E_SHAPE},
    {PL_OP_softmax, 0, ONTO, 1, POLAR_E_ARG},
    {PL_OP_softmax, 0, SCALAR, 0, POLAR_E_ARG},
    {PL_OP_softmax, 1, NO_DATA, 0, POLAR_E_ARG},
    {PL_OP_softmax_back, 1, COLS, 0, POLAR_E_SHAPE},
    {PL_OP_softmax_back, 2, ROWS, 0, POLAR_E_SHAPE},
    {PL_OP_softmax_back, 0, ONTO, 1, POLAR_E_ARG},
    {PL_OP_softmax_back, 0, ONTO, 2, POLAR_E_ARG},
    {PL_OP_softmax_back, 0, SCALAR, 0, POLAR_E_ARG},
    {PL_OP_cross_entropy, 0, FORMAT, 0, POLAR_E_DTYPE},
    {PL_OP_cross_entropy, 0, BATCH, 0, POLAR_E_SHAPE},
    {PL_OP_cross_entropy, 1, ROWS, 0, POLAR_E_SHAPE},
    {PL_OP_cross_entropy, 3, COLS, 0, POLAR_E_SHAPE},
    {PL_OP_cross_entropy, 1, ONTO, 2, POLAR_E_ARG},
    {PL_OP_cross_entropy, 1, ONTO, 3, POLAR_E_ARG},
    {PL_OP_cross_entropy, 3, NO_DATA, 0, POLAR_E_ARG},
    {PL_OP_scale_rows, 1, ROWS, 0, POLAR_E_SHAPE},
    {PL_OP_scale_rows, 2, ROWS, 0, POLAR_E_SHAPE},
    {PL_OP_scale_rows, 2, BATCH, 0, POLAR_E_SHAPE},
    {PL_OP_scale_rows, 3, COLS, 0, POLAR_E_SHAPE},
    {PL_OP_scale_rows, 0, ONTO, 1, POLAR_E_ARG},
    {PL_OP_scale_rows, 0, ONTO, 2, POLAR_E_ARG},
    {PL_OP_scale_rows, 0, ONTO, 3, POLAR_E_ARG},
    {PL_OP_scale_rows, 2, NO_DATA, 0, POLAR_E_ARG},
    {PL_OP_patches, 0, ROWS, 0, POLAR_E_SHAPE},
    {PL_OP_patches, 0, COLS, 0, POLAR_E_SHAPE},
    {PL_OP_patches, 1, ROWS, 0, POLAR_E_SHAPE},
    {PL_OP_patches, 1, COLS, 0, POLAR_E_SHAPE},
    {PL_OP_patches, 1, BATCH, 0, POLAR_E_SHAPE},
    {PL_OP_patches, 0, MODE, 0, POLAR_E_SHAPE},
    {PL_OP_patches, 0, MODE, 1, POLAR_E_SHAPE},
    {PL_OP_patches, 0, MODE, 2, POLAR_E_SHAPE},
    {PL_OP_patches, 0, ONTO, 1, POLAR_E_ARG},
};

static const char *const valid[PL_OP_COUNT] = {
    [PL_OP_layernorm] = "layernorm f32 3x7x13 per_matrix eps 1e-06",
    [PL_OP_layernorm_back] = "layernorm_back f32 3x7x13 strided dL Z",
    [PL_OP_softmax] = "softmax f32 3x7x13 1",
    [PL_OP_softmax_back] = "softmax_back f32 3x7x13 1",
    [PL_OP_cross_entropy] = "cross_entropy f32 3x7x13 dZ",
    [PL_OP_scale_rows] = "scale_rows f32 2x3x5x7 Z",
    [PL_OP_patches] = "patches f32 2x3x2x4"};

/* ---- attention: refusals of the fused ops, wherever they run ---- */

typedef struct {
    pl_mat O, lse, QKV, dO, dQKV;
} attention;

static int refused(pl_queue *q, const attention *a, int64_t heads, polar_status want)
{
    int wrong = 0;
    PL_CALL(attention, q, .O = a->O, .lse = a->lse, .QKV = a->QKV, .heads = heads);
    wrong += polar_queue_sync(q) != want || !strstr(polar_error_message(), "attention");
    PL_CALL(attention_back, q, .dQKV = a->dQKV, .QKV = a->QKV, .O = a->O, .lse = a->lse, .dO = a->dO,
            .heads = heads);
    return wrong + (polar_queue_sync(q) != want || !strstr(polar_error_message(), "attention_back"));
}

static void bad_attention(pl_device *dev)
{
    enum { B = 2, T = 5, H = 2, C = 8 };
    pl_queue *q;
    attention good = {0}, a;
    int64_t accepted = 0;
    TEST_TRY(polar_queue_create(&q, dev, NULL));
    TEST_TRY(pl_mat_alloc(&good.O, dev, POLAR_DTYPE_F32, B, T, C));
    TEST_TRY(pl_mat_alloc(&good.lse, dev, POLAR_DTYPE_F32, B, H, T));
    TEST_TRY(pl_mat_alloc(&good.QKV, dev, POLAR_DTYPE_F32, B, T, 3 * C));
    TEST_TRY(pl_mat_alloc(&good.dO, dev, POLAR_DTYPE_F32, B, T, C));
    TEST_TRY(pl_mat_alloc(&good.dQKV, dev, POLAR_DTYPE_F32, B, T, 3 * C));
    accepted += refused(q, &good, 3, POLAR_E_SHAPE);
    accepted += refused(q, &good, 0, POLAR_E_SHAPE);
    a = good, a.O.rows--, accepted += refused(q, &a, H, POLAR_E_SHAPE);
    a = good, a.O.cols--, accepted += refused(q, &a, H, POLAR_E_SHAPE);
    a = good, a.lse.rows--, accepted += refused(q, &a, H, POLAR_E_SHAPE);
    a = good, a.lse.cols--, accepted += refused(q, &a, H, POLAR_E_SHAPE);
    a = good, a.lse.dtype = POLAR_DTYPE_BF16, accepted += refused(q, &a, H, POLAR_E_DTYPE);
    a = good, a.QKV.cols--, accepted += refused(q, &a, H, POLAR_E_SHAPE);
    a = good, a.O.data = a.QKV.data, a.dQKV.data = a.QKV.data, accepted += refused(q, &a, H, POLAR_E_ARG);
    test_exact("attention: what makes no sense is refused", accepted);
    pl_mat *all[] = {&good.O, &good.lse, &good.QKV, &good.dO, &good.dQKV};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) pl_mat_free(all[i], dev);
    polar_queue_destroy(q);
}

int main(int argc, char **argv)
{
    const char *name = test_begin(argc, argv);
    pl_device *dev;
    TEST_TRY(polar_device_open(&dev, name));
    if (!strcmp(name, "ref")) planted_faults(faults, sizeof faults / sizeof *faults);
    bad_use(dev, bad_calls, (int)(sizeof bad_calls / sizeof *bad_calls), valid, 2);
    bad_attention(dev);
    polar_device_close(dev);
    return test_end();
}
