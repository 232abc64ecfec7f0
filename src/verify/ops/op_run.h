/* op_run.h -- a case made concrete on a device: operands built once, run as often as wanted, fetched,
 * compared.
 *
 *     pl_op_run *r;
 *     pl_op_run_create(&r, &c, PL_FILL_NORMAL, dev);
 *     pl_op_run_upload(r);                                   // the starting bits: the same on every device
 *     // what a benchmark times; pl_op_run_queue(r) to synchronise
 *     for (int i = 0; i < n; i++) pl_op_run_enqueue(r);
 *     pl_op_run_fetch(r);                                    // r->buffers[..].after
 *     pl_op_run_destroy(r);
 *
 * Results are poisoned with NaN and everything beside the operands' elements holds a fixed byte, so that
 * what an op leaves out, or writes too much, shows.
 */
#ifndef PL_VERIFY_OP_RUN_H
#define PL_VERIFY_OP_RUN_H

#include "device/queue.h"
#include "verify/ops/op_case.h"

typedef union pl_op_args {
#define PL_OP(name, out, inout, in, ...) pl_args_##name name;
#include "device/ops.def"
} pl_op_args;

typedef struct pl_op_buffer {
    void *device;
    unsigned char *before, *after; /* host images: as uploaded, as fetched */
    size_t bytes;
} pl_op_buffer;

typedef struct pl_op_run {
    pl_op_case c;
    pl_fill fill;
    pl_device *dev;
    pl_queue *q;
    int operands, results;          /* the results lead: written, then updated ones */
    int buffer_of[PL_MAX_OPERANDS]; /* in-place operands share one; -1: absent */
    pl_op_buffer buffers[PL_MAX_OPERANDS];
    size_t offset[PL_MAX_OPERANDS]; /* of the operand in its buffer, bytes */
    pl_mat mat[PL_MAX_OPERANDS];    /* on the device */
    pl_op_args args;
} pl_op_run;

/* builds operands, on the host and in device memory */
polar_status pl_op_run_create(pl_op_run **out, const pl_op_case *c, pl_fill fill, pl_device *dev);
/* the same case from the same bits on another device: operands are copied, not made anew */
polar_status pl_op_run_create_like(pl_op_run **out, const pl_op_run *like, pl_device *dev);
/* the starting bits, poison included; waits */
polar_status pl_op_run_upload(pl_op_run *r);
void pl_op_run_enqueue(pl_op_run *r); /* the op, once, by its named call */
/* waits; every operand's memory into `after` */
polar_status pl_op_run_fetch(pl_op_run *r);
polar_status pl_op_run_cost(pl_op_run *r, polar_cost *out); /* by a dry run */
pl_queue *pl_op_run_queue(pl_op_run *r);                    /* borrowed */
void pl_op_run_destroy(pl_op_run *r);                       /* NULL is fine */

/* an entry as uploaded */
double pl_op_run_before(const pl_op_run *r, int operand, int64_t b, int64_t i, int64_t j);
/* n entries as uploaded: down column j from row i on (down), or along row i from column j on */
void pl_op_run_line(double *out, const pl_op_run *r, int operand, int64_t b, int64_t i, int64_t j, int down,
                    int64_t n);
/* an entry as fetched */
double pl_op_run_after(const pl_op_run *r, int operand, int64_t b, int64_t i, int64_t j);
/* its bytes as fetched */
const void *pl_op_run_bits(const pl_op_run *r, int operand, int64_t b, int64_t i, int64_t j);
/* the live row of matrix b says so: nothing of it may change */
int pl_op_run_left_out(const pl_op_run *r, int64_t b);
/* a written operand's entry still holds the poison */
int pl_op_run_poisoned(const pl_op_run *r, int operand, int64_t b, int64_t i, int64_t j);
/* bytes changed beside results; *constant: the buffer holds none */
int64_t pl_op_run_stray_bytes(const pl_op_run *r, int buffer, int *constant);

#endif
