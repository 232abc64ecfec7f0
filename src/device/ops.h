/* ops.h -- what ops.def generates: args structs, op numbers, the table of functions, and the named call
 *
 *     PL_CALL(gemm, q, .C = gram, .A = x, .B = x, .tb = 1, .alpha = 1);
 *
 * A call checks its operands, counts their cost, and hands them to the queue's device. It returns nothing:
 * the queue keeps its first error, with the op's name and shapes, until polar_queue_sync.
 */
#ifndef PL_DEVICE_OPS_H
#define PL_DEVICE_OPS_H

#include "device/mat.h"
#include "math/activation.h" /* pl_act: */
#include "polar/optim.h"     /* polar_momentum, polar_precondition: values of fields */

#define PL_FUSED_STEPS 12 /* of one call of newton_schulz */

/* A live row: the numbers of one step, for one matrix or for all, in device memory as doubles. C1 and C2 are
 * 1/(1 - beta^t), GRAD a factor of the gradient; a row of a plain step has GRAD 1 and SKIP 0. SKIP is 1
 * where the host leaves the matrix out, PL_SKIP_FLAG where `advance` does, for this step alone, and
 * PL_SKIP_WAIT in the first WAIT steps, in which nothing moves but Kronecker moments and bases. STEP counts
 * the gradients that were seen, this one too; t of the corrections is STEP - WAIT. */
typedef enum pl_live_col {
    PL_LIVE_C1,
    PL_LIVE_C2,
    PL_LIVE_LR,
    PL_LIVE_WD,
    PL_LIVE_BETA1,
    PL_LIVE_BETA2,
    PL_LIVE_EPS,
    PL_LIVE_GRAD,
    PL_LIVE_SKIP,
    PL_LIVE_STEP,
    PL_LIVE_WAIT,
    PL_LIVE_COLS
} pl_live_col;

#define PL_SKIP_FLAG 2.0
#define PL_SKIP_WAIT 3.0

/* The row of a plain step. */
static inline void pl_live_row(double row[PL_LIVE_COLS], double c1, double c2, double lr, double wd,
                               double beta1, double beta2, double eps)
{
    const double values[PL_LIVE_COLS] = {
        [PL_LIVE_C1] = c1,       [PL_LIVE_C2] = c2,       [PL_LIVE_LR] = lr,   [PL_LIVE_WD] = wd,
        [PL_LIVE_BETA1] = beta1, [PL_LIVE_BETA2] = beta2, [PL_LIVE_EPS] = eps, [PL_LIVE_GRAD] = 1};
    for (int i = 0; i < PL_LIVE_COLS; i++) row[i] = values[i];
}

/* The live values of matrix b: one row for all, or one per matrix. */
static inline const double *pl_live_of(const pl_mat *live, int64_t b)
{
    return (const double *)live->data + (live->batch == 1 ? 0 : b * live->bs);
}

/* the lines of a matrix whose moment a polar_post of lines keeps: its rows (0) or its columns (1) */
static inline int pl_post_columns(int64_t post, int64_t rows, int64_t cols)
{
    return post == POLAR_POST_COLUMN_MOMENT || (post == POLAR_POST_LONG_MOMENT && rows < cols);
}

/* what line_factors makes of the squares of lines */
typedef enum pl_line { PL_LINE_EQUILIBRATE, PL_LINE_MOMENT, PL_LINE_CLAMPED, PL_LINE_COUNT } pl_line;
/* what norm_moment makes of the norm of a gradient */
typedef enum pl_norm { PL_NORM_MOMENT, PL_NORM_SUM, PL_NORM_COUNT } pl_norm;

#define PL_MOMENTUM_COUNT (POLAR_MOMENTUM_AVERAGE_NESTEROV + 1)

/* How many steps a chain joins to step s. */
static inline int64_t pl_chain_joined(int64_t chain, int64_t s)
{
    int64_t n = 0;
    while (chain >> (s + n) & 1) n++;
    return n;
}

/* the args structs */
#define PL_OP(name, out, inout, in, ...) \
    typedef struct {                     \
        __VA_ARGS__                      \
    } pl_args_##name;
#include "device/ops.def"

/* the numbers */
typedef enum pl_op_id {
#define PL_OP(name, out, inout, in, ...) PL_OP_##name,
#include "device/ops.def"
    PL_OP_COUNT
} pl_op_id;

/* the functions of one backend; an empty slot is filled from the backend's fallback when a device opens */
typedef struct pl_ops {
#define PL_OP(name, out, inout, in, ...) void (*name)(pl_queue * q, const pl_args_##name *a);
#include "device/ops.def"
} pl_ops;

/* the calls */
#define PL_OP(name, out, inout, in, ...) void pl_call_##name(pl_queue *q, const pl_args_##name *a);
#include "device/ops.def"
#define PL_CALL(op, q, ...) pl_call_##op((q), &(pl_args_##op){__VA_ARGS__})

/* what each op demands of its operands, and what it costs (checks/) */
#define PL_OP(name, out, inout, in, ...)                   \
    polar_status pl_check_##name(const pl_args_##name *a); \
    double pl_flops_##name(const pl_args_##name *a);
#include "device/ops.def"

typedef struct pl_op_info {
    const char *name;
    int out, inout, in; /* how many operands of each kind lead the args struct */
    size_t args_bytes;
    int fused;          /* several ops in one: backends may leave it out */
    const char *fields; /* as written in the row: "pl_mat C, A, B, OR_NONE D; int64_t ta, ..." */
} pl_op_info;

typedef struct pl_operand_words {
    char text[160];
} pl_operand_words;

#define PL_MAX_ARGS_BYTES 1024

/* the row of ops.def */
const pl_op_info *pl_op_describe(pl_op_id id);
/* runs a recorded call */
void pl_op_invoke(const pl_ops *ops, pl_op_id id, pl_queue *q, const void *args);
/* empty slots from fallback */
void pl_op_fill(pl_ops *ops, const pl_ops *fallback);
/* the slot is not empty */
int pl_op_present(const pl_ops *ops, pl_op_id id);
/* operand i may be absent: marked so in its row */
int pl_op_or_none(pl_op_id id, int i);
/* "B" */
pl_operand_words pl_op_operand_letter(pl_op_id id, int i);
/* "operand B", or with a parameter as subject "gradient of 'fc.weight'" */
pl_operand_words pl_op_operand_words(pl_op_id id, int i, const char *subject);
/* those of which a polar map with f16 iterates is made */
int pl_op_takes_f16(pl_op_id id);
/* "gemm C f32 2x8x8, A ..." */
char *pl_op_print(char *out, size_t bytes, pl_op_id id, const void *args);

static inline const pl_mat *pl_op_operands(const void *args)
{
    return (const pl_mat *)args; /* the operands lead every args struct */
}

static inline int pl_op_operand_count(const pl_op_info *info)
{
    return info->out + info->inout + info->in;
}

#endif
