/* op_expect_attention.c -- calls of the fused attention that make no sense, refused wherever they run. */
#include "op_calls.h"
#include "test.h" /* TEST_TRY */

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

int64_t pl_calls_attention_accepted(pl_device *dev)
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
    pl_mat *all[] = {&good.O, &good.lse, &good.QKV, &good.dO, &good.dQKV};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) pl_mat_free(all[i], dev);
    polar_queue_destroy(q);
    return accepted;
}
