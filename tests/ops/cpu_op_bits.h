/* cpu_op_bits.h -- an op of `cpu` gives the same bits with any number of threads, alone, in a batch and
 * elsewhere in it, and on every instruction set; nothing is written outside its results. */
#ifndef POLAR_TEST_CPU_OP_BITS_H
#define POLAR_TEST_CPU_OP_BITS_H

#include "cpu_bits.h"

enum { MAX_OPERANDS = 10, BATCH = 5 };

typedef struct {
    const char *name;
    int count, written; /* operands; how many lead and are written */
    int64_t rows[MAX_OPERANDS], cols[MAX_OPERANDS];
    void (*run)(pl_queue *q, const matrix *x);
    int wide;     /* bits: operands that are f32 where the others are bf16 */
    int products; /* sums of products: bits by instruction set */
} cpu_op;

/* The op on fresh operands: the matrices [first, first + batch) of a batch of five. */
static inline void op_run(matrix *x, machine *on, const cpu_op *op, polar_dtype dtype, int64_t first,
                          int64_t batch)
{
    for (int i = 0; i < op->count; i++) {
        polar_dtype t = dtype == POLAR_DTYPE_BF16 && op->wide >> i & 1 ? POLAR_DTYPE_F32 : dtype;
        matrix whole = matrix_create(t, BATCH, op->rows[i], op->cols[i], i % 3, NORMAL, (uint64_t)(50 + i));
        x[i] = matrix_create(t, batch, op->rows[i], op->cols[i], i % 3, NORMAL, 0);
        for (int64_t b = 0; b < batch; b++)
            for (int64_t r = 0; r < op->rows[i]; r++)
                memcpy((char *)element(&x[i].m, b, r, 0), element(&whole.m, first + b, r, 0),
                       (size_t)op->cols[i] * polar_dtype_size(t));
        matrix_destroy(&whole);
    }
    op->run(on->q, x);
    TEST_TRY(polar_queue_sync(on->q));
}

static inline void op_end(matrix *x, const cpu_op *op)
{
    for (int i = 0; i < op->count; i++) matrix_destroy(&x[i]);
}

/* Two instruction sets give the same bits. */
static inline int alike(const cpu_op *op, pl_isa a, pl_isa b, polar_dtype dtype)
{
    if (!op->products) return 1;
    if (a == PL_ISA_SCALAR || b == PL_ISA_SCALAR) return 0;
    return dtype != POLAR_DTYPE_BF16 || (a < PL_ISA_AVX512BF16 && b < PL_ISA_AVX512BF16);
}

static inline void test_op(pl_isa isa, const cpu_op *op)
{
    static const polar_dtype dtypes[] = {POLAR_DTYPE_F32, POLAR_DTYPE_F64, POLAR_DTYPE_BF16};
    int64_t threads = 0, sets = 0, alone = 0, guards = 0;
    char what[80];
    for (int t = 0; t < COUNT(dtypes); t++) {
        matrix x[MAX_OPERANDS], y[MAX_OPERANDS];
        op_run(x, &machines[isa][1], op, dtypes[t], 0, BATCH);
        for (int i = 0; i < op->written; i++) guards += guards_broken(&x[i]);
        for (int n = 2; n <= MAX_THREADS; n++) {
            op_run(y, &machines[isa][n], op, dtypes[t], 0, BATCH);
            for (int i = 0; i < op->written; i++) threads += differences(&x[i].m, &y[i].m, 0);
            op_end(y, op);
        }
        for (int lower = 0; lower < (int)isa; lower++) {
            if (!pl_isa_usable((pl_isa)lower) || !alike(op, isa, (pl_isa)lower, dtypes[t])) continue;
            op_run(y, &machines[lower][1], op, dtypes[t], 0, BATCH);
            for (int i = 0; i < op->written; i++) sets += differences(&x[i].m, &y[i].m, 0);
            op_end(y, op);
        }
        for (int64_t b = 0; b < BATCH; b++) {
            op_run(y, &machines[isa][2], op, dtypes[t], b, 1);
            for (int i = 0; i < op->written; i++) {
                pl_mat of = pl_mat_at(x[i].m, b, 1);
                alone += differences(&y[i].m, &of, 0);
            }
            op_end(y, op);
        }
        op_end(x, op);
    }
    snprintf(what, sizeof what, "%s: threads", op->name), test_exact(what, threads);
    snprintf(what, sizeof what, "%s: lower instruction sets", op->name), test_exact(what, sets);
    snprintf(what, sizeof what, "%s: alone and in a batch", op->name), test_exact(what, alone);
    snprintf(what, sizeof what, "%s: nothing written outside", op->name), test_exact(what, guards);
}

#endif
