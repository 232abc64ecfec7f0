/* polar_xla.h -- what the handlers of polar_xla_map.c and polar_xla_step.c share. */
#ifndef POLAR_XLA_H
#define POLAR_XLA_H

#include "polar/polar.h"
#include "xla_ffi.h"

enum { XLA_PLACES = 17 }; /* the CPU, then GPUs by their number */

/* a device and the queue that the call's work goes to */
typedef struct {
    int index; /* below XLA_PLACES */
    char name[24];
    polar_device *dev;
    polar_queue *q;
} xla_place;

/* does the call's work; a sentence where it cannot */
typedef const char *(*xla_body)(const xla_call *call, const xla_place *place);

/* Answers XLA where it asks what the handler speaks; runs body where it calls. On the CPU the work is done
 * when this returns; with cuda it is in the call's stream. One body at a time on a device, whatever the
 * threads of XLA.
 */
xla_error *xla_run(const xla_call *call, int cuda, xla_body body);

/* a lock for what the devices share */
void xla_lock(void);
void xla_unlock(void);

/* optimisers that a device keeps (polar_xla_step.c); while none is called there */
int xla_open_optims(int place);

/* an attribute of that type, or NULL */
const void *xla_attribute(const xla_call *call, const char *name, int type);

/* 0: a format that the library does not have */
int xla_format(polar_dtype *out, int dtype);

/* ---- the handlers, and what python/polar/jax_native.py calls ------------------------------------- */

POLAR_API xla_error *polar_xla_map(xla_call *call);
POLAR_API xla_error *polar_xla_map_cuda(xla_call *call);
POLAR_API xla_error *polar_xla_begin(xla_call *call);
POLAR_API xla_error *polar_xla_begin_cuda(xla_call *call);
POLAR_API xla_error *polar_xla_step(xla_call *call);
POLAR_API xla_error *polar_xla_step_cuda(xla_call *call);

/* The caller keeps all it points to for as long as the process lives. 0: there is no memory, or the name is
 * too long. */
POLAR_API int polar_xla_define(const char *name, const polar_param *params, int64_t n,
                               const polar_optim_opts *opts, const polar_optim_layout *layout);

#endif
