/* ref_backend.c -- `ref`, the oracle: reads like the paper, any format in, double inside, one thread, no
 * tricks. */
#include "ref_ops.h"

const pl_ops pl_ref_ops = {
#define PL_OP(name, out, inout, in, ...)    .name = pl_ref_##name,
#define PL_FUSED(name, out, inout, in, ...) /* composed */
#include "device/ops.def"
};

static polar_status ref_open(pl_device *dev, const char *options)
{
    PL_NEED(!*options, POLAR_E_ARG, "device 'ref' takes no options, got '%s'", options);
    dev->threads = 1;
    return POLAR_OK;
}

const pl_backend pl_backend_ref = {
    .name = "ref",
    .summary = "the oracle: plain loops in double, one thread",
    .ops = &pl_ref_ops,
    .device_open = ref_open,
    .mem_alloc = pl_host_mem_alloc,
    .mem_free = pl_host_mem_free,
    .copy = pl_host_copy,
};
