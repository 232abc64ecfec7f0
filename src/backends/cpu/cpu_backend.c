/* cpu_backend.c -- `cpu`: the host's cores, the best instruction set it has, or a lower one by "cpu:isa=avx2"
 * or POLAR_ISA. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef __x86_64__
#include <cpuid.h>
#endif
#ifdef PL_HAVE_AMX
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "base/alloc.h"
#include "cpu_attention.h"
#include "cpu_kernels.h"
#include "cpu_lane_sums.h"
#include "cpu_message.h"

typedef struct {
    int isa;     /* -1: the best */
    int threads; /* 0: as many as there are cores */
    int spin;    /* microseconds; -1: the default */
    const pl_host_team *team;
} cpu_options;

const char *pl_isa_name(pl_isa isa)
{
    static const char *const names[PL_ISA_COUNT] = {"scalar", "neon", "avx2", "avx512", "avx512bf16", "amx"};
    return names[isa];
}

/* The instruction set used beside the tiles. */
#ifdef PL_AMX_EMULATE
#define TILES_BESIDE PL_ISA_AVX512
#else
#define TILES_BESIDE PL_ISA_AVX512BF16
#endif

#ifdef PL_HAVE_AMX
/* The CPU has bf16 tiles, and Linux lets this process use them: a process must ask once. */
static int tiles_granted(void)
{
#ifdef PL_AMX_EMULATE
    return 1;
#else
    unsigned a, b, c, d;
    const unsigned bf16 = 1u << 22, tile = 1u << 24;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & (bf16 | tile)) != (bf16 | tile)) return 0;
    return syscall(SYS_arch_prctl, 0x1023 /* ARCH_REQ_XCOMP_PERM */, 18 /* XFEATURE_XTILEDATA */) == 0;
#endif
}
#endif

/* Whether this CPU has it, built in or not. */
static int cpu_has(pl_isa isa)
{
    switch (isa) {
    case PL_ISA_SCALAR: return 1;
#ifdef PL_HAVE_NEON
    case PL_ISA_NEON: return 1; /* every aarch64 has it */
#endif
#ifdef __x86_64__
    case PL_ISA_AVX2: return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    case PL_ISA_AVX512:
        return cpu_has(PL_ISA_AVX2) && __builtin_cpu_supports("avx512f") &&
               __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512vl");
    /* asked of the CPU itself: not every compiler's __builtin_cpu_supports knows the name */
    case PL_ISA_AVX512BF16: {
        unsigned a, b, c, d;
        return cpu_has(PL_ISA_AVX512) && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & 1u << 5);
    }
#endif
#ifdef PL_HAVE_AMX
    case PL_ISA_AMX: return cpu_has(TILES_BESIDE) && tiles_granted();
#endif
    default: return 0;
    }
}

/* What was built for each instruction set; a device's impl points to its own row. */
typedef struct {
    const pl_ops *ops;
    double (*peak)(pl_device *dev, polar_dtype dtype);
    /* NULL: it has none of these ops */
    size_t (*fused_scratch)(pl_op_id id, const void *args, int threads);
    const pl_ops *rest; /* whose ops it has where it has none of its own, or NULL */
} isa_kernels;

#ifndef PL_REST_OF_AMX /* it has all */
#define PL_REST_OF_AMX pl_cpu_ops_amx
#endif

static const isa_kernels built[PL_ISA_COUNT] = {
    [PL_ISA_SCALAR] = {&pl_cpu_ops_scalar, pl_cpu_peak_scalar, NULL},
#ifdef PL_HAVE_NEON
    [PL_ISA_NEON] = {&pl_cpu_ops_neon, pl_cpu_peak_neon, NULL},
#endif
#ifdef PL_HAVE_AVX2
    [PL_ISA_AVX2] = {&pl_cpu_ops_avx2, pl_cpu_peak_avx2, NULL},
#endif
#ifdef PL_HAVE_AVX512
    [PL_ISA_AVX512] = {&pl_cpu_ops_avx512, pl_cpu_peak_avx512, NULL},
#endif
#ifdef PL_HAVE_AVX512BF16
    [PL_ISA_AVX512BF16] = {&pl_cpu_ops_avx512bf16, pl_cpu_peak_avx512bf16, pl_cpu_fused_scratch_avx512bf16},
#endif
#ifdef PL_HAVE_AMX
    [PL_ISA_AMX] = {&pl_cpu_ops_amx, pl_cpu_peak_amx, pl_cpu_fused_scratch_amx, &PL_REST_OF_AMX},
#endif
};

int pl_isa_usable(pl_isa isa)
{
    return built[isa].ops && cpu_has(isa);
}

static double cpu_peak(pl_device *dev, polar_dtype dtype)
{
    return ((const isa_kernels *)dev->impl)->peak(dev, dtype);
}

static polar_status isa_parse(int *out, const char *name, const char *from)
{
    for (int i = 0; i < PL_ISA_COUNT; i++)
        if (!strcmp(name, pl_isa_name((pl_isa)i))) {
            PL_NEED(pl_isa_usable((pl_isa)i), POLAR_E_UNSUPPORTED, "%s=%s: this CPU or this build has no %s",
                    from, name, name);
            *out = i;
            return POLAR_OK;
        }
    return PL_FAIL(POLAR_E_ARG,
                   "%s=%s: no such instruction set (there are: scalar, neon, avx2, avx512, avx512bf16, amx)",
                   from, name);
}

static polar_status team_parse(const pl_host_team **out, const char *name)
{
    PL_NEED(!strcmp(name, "openmp"), POLAR_E_ARG, "team=%s: no such threads (there are: openmp)", name);
    *out = pl_host_team_find();
    PL_NEED(*out, POLAR_E_UNSUPPORTED,
            "team=openmp: this process has loaded no OpenMP runtime (libgomp, libomp, libiomp5), or was "
            "forked from one that has; without the option the device has threads of its own");
    return POLAR_OK;
}

static polar_status set_option(void *ctx, const char *key, const char *value)
{
    cpu_options *o = ctx;
    if (!strcmp(key, "isa")) return isa_parse(&o->isa, value, "isa");
    if (!strcmp(key, "threads")) return pl_option_int(&o->threads, "threads", value, 1, PL_POOL_MOST);
    if (!strcmp(key, "spin")) return pl_option_int(&o->spin, "spin", value, 0, PL_POOL_SPIN_MOST);
    if (!strcmp(key, "team")) return team_parse(&o->team, value);
    return PL_FAIL(POLAR_E_ARG, "device 'cpu' has no option '%s' (there are: isa, threads, spin, team)", key);
}

/* 0: all cores; -1: the default. The old pool is kept where there is no new one. */
static polar_status give_threads(pl_device *dev, int threads, int spin, const pl_host_team *team)
{
    int64_t cores = pl_processor_count();
    pl_pool *pool;
    if (!threads) threads = cores < PL_POOL_MOST ? (int)cores : PL_POOL_MOST;
    if (spin < 0) spin = PL_POOL_SPIN;
    PL_TRY(pl_pool_create(&pool, threads, spin, team));
    pl_pool_destroy(dev->pool);
    dev->pool = pool;
    dev->threads = threads;
    const char *isa = pl_isa_name((pl_isa)((const isa_kernels *)dev->impl - built));
    int n = snprintf(dev->name, sizeof dev->name, "cpu:isa=%s,threads=%d", isa, threads);
    if (spin != PL_POOL_SPIN) n += snprintf(dev->name + n, sizeof dev->name - (size_t)n, ",spin=%d", spin);
    if (team) snprintf(dev->name + n, sizeof dev->name - (size_t)n, ",team=openmp");
    return POLAR_OK;
}

static polar_status cpu_set_threads(pl_device *dev, int threads, int spin)
{
    return give_threads(dev, threads, spin, pl_pool_team(dev->pool));
}

static polar_status cpu_open(pl_device *dev, const char *options)
{
    cpu_options o = {.isa = -1, .spin = -1};
    const char *forced = getenv("POLAR_ISA");
    PL_TRY(pl_device_options("cpu", options, set_option, &o));
    /* where the name does not choose one */
    if (o.isa < 0 && forced && *forced) PL_TRY(isa_parse(&o.isa, forced, "POLAR_ISA"));
    for (int i = 0; o.isa < 0; i++)
        if (pl_isa_usable((pl_isa)(PL_ISA_COUNT - 1 - i))) o.isa = PL_ISA_COUNT - 1 - i;
    dev->ops = *built[o.isa].ops;
    if (built[o.isa].rest) pl_op_fill(&dev->ops, built[o.isa].rest);
    pl_op_fill(&dev->ops, &pl_ref_ops);
    dev->impl = (void *)&built[o.isa];
    dev->flushes = o.isa >= PL_ISA_AVX512BF16;
    return give_threads(dev, o.threads, o.spin, o.team);
}

static void cpu_close(pl_device *dev)
{
    pl_pool_destroy(dev->pool);
}

/* ---- what is put off ---------------------------------------------------------------------------- */

typedef struct {
    int count;
    pl_cpu_item items[PL_CPU_ITEMS];
} cpu_queue;

static polar_status cpu_queue_open(pl_queue *q, void *stream)
{
    (void)stream;
    cpu_queue *later = pl_alloc(sizeof *later);
    PL_NEED(later, POLAR_E_NOMEM, "a queue of '%s'", q->dev->name);
    later->count = 0;
    q->impl = later;
    return POLAR_OK;
}

static void cpu_queue_close(pl_queue *q)
{
    pl_free(q->impl);
}

static void cpu_overlap_end(pl_queue *q)
{
    cpu_queue *later = q->impl;
    int count = later->count;
    later->count = 0;
    if (count) later->items[0].run(q, later->items, count);
}

void pl_cpu_do_item(pl_queue *q, const pl_cpu_item *item)
{
    cpu_queue *later = q->impl;
    if (!q->overlap) {
        item->run(q, item, 1);
        return;
    }
    if (later->count == PL_CPU_ITEMS) cpu_overlap_end(q);
    later->items[later->count++] = *item;
}

static size_t cpu_op_scratch(pl_queue *q, pl_op_id id, const void *args)
{
    const isa_kernels *kernels = q->dev->impl;
    const int threads = q->dev->threads;
    switch (id) {
    case PL_OP_row_sum: return pl_cpu_row_sum_bytes(args);
    case PL_OP_layernorm_back: return pl_cpu_layernorm_bytes(args);
    case PL_OP_pair_message:
    case PL_OP_pair_message_back: return pl_cpu_message_scratch(id, args, threads);
    case PL_OP_pair_weight:
    case PL_OP_pair_weight_back: return pl_cpu_pair_weight_scratch(id, args, threads);
    case PL_OP_attention:
    case PL_OP_attention_back: return pl_cpu_attention_scratch(id, args, threads);
    default: return kernels->fused_scratch ? kernels->fused_scratch(id, args, threads) : 0;
    }
}

const pl_backend pl_backend_cpu = {
    .name = "cpu",
    .summary = "the host's cores: threads of its own, own products, best instruction set chosen at run time",
    .ops = &pl_cpu_ops_scalar,
    .fallback = &pl_ref_ops,
    .device_open = cpu_open,
    .device_close = cpu_close,
    .set_threads = cpu_set_threads,
    .mem_alloc = pl_host_mem_alloc,
    .mem_free = pl_host_mem_free,
    .queue_open = cpu_queue_open,
    .queue_close = cpu_queue_close,
    .overlap_end = cpu_overlap_end,
    .op_scratch = cpu_op_scratch,
    .peak_flops = cpu_peak,
    .copy = pl_host_copy,
};
