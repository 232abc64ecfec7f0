/* cpu_backend.c -- `cpu`: the host's cores, the best instruction set it has, or a lower one by "cpu:isa=avx2" or POLAR_ISA. */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu_kernels.h"

typedef struct {
    int isa;        /* -1: the best */
    int threads;    /* 0: as many as there are cores */
} cpu_options;

const char *pl_isa_name(pl_isa isa)
{
    static const char *const names[PL_ISA_COUNT] = {"scalar", "avx2", "avx512"};
    return names[isa];
}

int pl_isa_usable(pl_isa isa)
{
    switch (isa) {
    case PL_ISA_SCALAR: return 1;
#ifdef PL_HAVE_AVX2
    case PL_ISA_AVX2: return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#endif
#ifdef PL_HAVE_AVX512
    case PL_ISA_AVX512:
        return pl_isa_usable(PL_ISA_AVX2) && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
               __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
#endif
    default: return 0;
    }
}

static const pl_ops *isa_ops(pl_isa isa)
{
    switch (isa) {
#ifdef PL_HAVE_AVX2
    case PL_ISA_AVX2: return &pl_cpu_ops_avx2;
#endif
#ifdef PL_HAVE_AVX512
    case PL_ISA_AVX512: return &pl_cpu_ops_avx512;
#endif
    default: return &pl_cpu_ops_scalar;
    }
}

static polar_status isa_parse(int *out, const char *name, const char *from)
{
    for (int i = 0; i < PL_ISA_COUNT; i++)
        if (!strcmp(name, pl_isa_name((pl_isa)i))) {
            PL_NEED(pl_isa_usable((pl_isa)i), POLAR_E_UNSUPPORTED, "%s=%s: this CPU or this build has no %s", from, name, name);
            *out = i;
            return POLAR_OK;
        }
    return PL_FAIL(POLAR_E_ARG, "%s=%s: no such instruction set (there are: scalar, avx2, avx512)", from, name);
}

static polar_status set_option(void *ctx, const char *key, const char *value)
{
    cpu_options *o = ctx;
    if (!strcmp(key, "isa")) return isa_parse(&o->isa, value, "isa");
    if (!strcmp(key, "threads")) return pl_option_int(&o->threads, "threads", value, 1, 1024);
    return PL_FAIL(POLAR_E_ARG, "device 'cpu' has no option '%s' (there are: isa, threads)", key);
}

static polar_status cpu_open(pl_device *dev, const char *options)
{
    cpu_options o = {.isa = -1};
    const char *forced = getenv("POLAR_ISA");
    if (forced && *forced) PL_TRY(isa_parse(&o.isa, forced, "POLAR_ISA"));
    PL_TRY(pl_device_options("cpu", options, set_option, &o));
    for (int i = 0; o.isa < 0; i++)
        if (pl_isa_usable((pl_isa)(PL_ISA_COUNT - 1 - i))) o.isa = PL_ISA_COUNT - 1 - i;
    dev->threads = o.threads ? o.threads : omp_get_max_threads();
    dev->ops = *isa_ops((pl_isa)o.isa);
    pl_op_fill(&dev->ops, &pl_ref_ops);
    snprintf(dev->name, sizeof dev->name, "cpu:isa=%s,threads=%d", pl_isa_name((pl_isa)o.isa), dev->threads);
    return POLAR_OK;
}

const pl_backend pl_backend_cpu = {
    .name = "cpu",
    .summary = "the host's cores: OpenMP, own products, best instruction set chosen at run time",
    .ops = &pl_cpu_ops_scalar,
    .fallback = &pl_ref_ops,
    .device_open = cpu_open,
    .mem_alloc = pl_host_mem_alloc,
    .mem_free = pl_host_mem_free,
    .copy = pl_host_copy,
};
