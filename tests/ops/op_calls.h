/* op_calls.h -- wrong ops and wrong calls of every op (op_expect_<noun>.c), for test_op_calls.
 *
 * A wrong op, put into the place of ref's, must be seen by the measuring of op_case.h. A wrong call is a
 * valid case with one field of one operand spoilt; it must be refused at the next sync with a sentence that
 * names the op.
 */
#ifndef POLAR_TEST_OP_CALLS_H
#define POLAR_TEST_OP_CALLS_H

#include <math.h>
#include <string.h>

#include "device/backend.h"
#include "op_model.h"

typedef void (*op_fn)(void);

typedef struct {
    const char *what, *name; /* the fault, and the case in which it must be seen */
    op_fn op;
} fault;

/* How an operand of a valid call is spoilt. */
typedef enum {
    ROWS,  /* one less */
    COLS,  /* one less */
    BATCH, /* one less, of frob_join one more */
    FORMAT,
    UNKNOWN_FORMAT,
    NO_DATA,
    ROW_STRIDE,
    NEGATIVE, /* batch stride */
    ONTO,     /* moved one element behind the start of operand `other` */
    SCALAR,   /* the scalar `other` from the end becomes -1 */
    MODE,     /* whole number `other` behind the operands becomes 99, which none of its names is */
    PLAIN     /* a direction's V with nothing to do */
} spoilt;

typedef struct {
    int operand;
    spoilt kind;
    int other;
    polar_status want;
} bad_call;

typedef struct {
    const char *valid; /* the case that is spoilt */
    const bad_call *bad;
    int bad_count;
    const fault *faults;
    int fault_count;
} op_calls;

#define LIST(a) a, (int)(sizeof(a) / sizeof *(a))

/* those of every op that is not fused */
#define PL_OP(name, out, inout, in, ...)     extern const op_calls pl_calls_##name;
#define PL_FUSED(name, out, inout, in, ...)  /* refusals: test_amx, test_pair_message, test_gemm_act, below \
                                              */
#include "device/ops.def"

const op_calls *pl_op_calls(pl_op_id op); /* NULL of a fused op */

/* how many calls of the fused attention that make no sense are not refused (op_expect_attention.c) */
int64_t pl_calls_attention_accepted(pl_device *dev);

/* ---- what wrong ops are made of ---- */

static inline double get(const pl_mat *m, int64_t b, int64_t i, int64_t j)
{
    return pl_load_f64(m->data, m->dtype, b * m->bs + i * m->rs + j);
}

static inline void put(const pl_mat *m, int64_t b, int64_t i, int64_t j, double x)
{
    pl_store_f64(m->data, m->dtype, b * m->bs + i * m->rs + j, x);
}

static inline unsigned char *entry(const pl_mat *m, int64_t b, int64_t i, int64_t j)
{
    return (unsigned char *)m->data + (size_t)(b * m->bs + i * m->rs + j) * polar_dtype_size(m->dtype);
}

/* Every entry times a factor. */
static inline void scale_all(const pl_mat *m, double factor)
{
    for (int64_t b = 0; b < m->batch; b++)
        for (int64_t i = 0; i < m->rows; i++)
            for (int64_t j = 0; j < m->cols; j++) put(m, b, i, j, factor * get(m, b, i, j));
}

#endif
