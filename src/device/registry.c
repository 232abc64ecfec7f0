/* registry.c -- devices by name: "ref", "guard", "cpu:isa=avx2,threads=4", "cuda:0". */
#include <malloc.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "device/backend.h"

static const pl_backend *const backends[] = {
    &pl_backend_ref,
    &pl_backend_guard,
    &pl_backend_cpu,
#ifdef POLAR_HAVE_CUDA
    &pl_backend_cuda,
#endif
};

const pl_backend *pl_backend_at(int i)
{
    return i >= 0 && i < polar_backend_count() ? backends[i] : NULL;
}

int polar_backend_count(void)
{
    return (int)(sizeof backends / sizeof *backends);
}

const char *polar_backend_name(int i)
{
    return pl_backend_at(i) ? backends[i]->name : NULL;
}

const char *polar_backend_summary(int i)
{
    return pl_backend_at(i) ? backends[i]->summary : NULL;
}

const char *pl_backend_op_origin(const pl_backend *b, pl_op_id id)
{
    if (pl_op_present(b->ops, id)) return "own";
    if (b->fallback && pl_op_present(b->fallback, id)) return b->fallback == &pl_ref_ops ? "ref" : "composed";
    return pl_op_describe(id)->fused ? "composed" : "-";
}

static polar_status unknown_device(const char *name)
{
    char known[200] = "";
    for (int i = 0; i < polar_backend_count(); i++) {
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", backends[i]->name);
    }
    PL_NEED(strcmp(name, "cuda") && strncmp(name, "cuda:", 5), POLAR_E_UNSUPPORTED,
            "no device '%s': this build has no CUDA (make PRESET=cuda; there are: %s)", name, known);
    return PL_FAIL(POLAR_E_ARG, "no device '%s' in this build (there are: %s)", name, known);
}

polar_status polar_device_open(polar_device **out, const char *name)
{
    PL_NEED_ARG(out);
    *out = NULL;
    PL_NEED_ARG(name);
    size_t stem = strcspn(name, ":");
    const pl_backend *backend = NULL;
    for (int i = 0; i < polar_backend_count(); i++)
        if (strlen(backends[i]->name) == stem && !strncmp(backends[i]->name, name, stem))
            backend = backends[i];
    if (!backend) return unknown_device(name);
    pl_device *dev = pl_calloc(1, sizeof *dev);
    PL_NEED(dev, POLAR_E_NOMEM, "a device handle");
    dev->backend = backend;
    dev->ops = *backend->ops;
    pl_op_fill(&dev->ops, backend->fallback);
    snprintf(dev->name, sizeof dev->name, "%s", backend->name);
    polar_status st =
        backend->device_open ? backend->device_open(dev, name[stem] ? name + stem + 1 : "") : POLAR_OK;
    if (st != POLAR_OK) {
        pl_free(dev);
        return st;
    }
    pl_device_hold(dev);
    *out = dev;
    return POLAR_OK;
}

void pl_device_hold(pl_device *dev)
{
    atomic_fetch_add(&dev->holders, 1);
}

void pl_device_release(pl_device *dev)
{
    if (atomic_fetch_sub(&dev->holders, 1) > 1) return;
    if (dev->backend->device_close) dev->backend->device_close(dev);
    pl_free(dev);
}

void polar_device_close(polar_device *dev)
{
    if (dev && !atomic_exchange(&dev->closed, 1)) pl_device_release(dev);
}

const char *polar_device_name(const polar_device *dev)
{
    return dev ? dev->name : "";
}

polar_status polar_device_set_threads(polar_device *dev, int threads, int spin_us)
{
    PL_NEED(dev, POLAR_E_ARG, "threads of no device (did polar_device_open fail?)");
    PL_NEED(threads >= 0 && threads <= PL_POOL_MOST, POLAR_E_ARG,
            "threads: 1 to %d, or 0 for all cores, got %d", PL_POOL_MOST, threads);
    PL_NEED(spin_us >= -1 && spin_us <= PL_POOL_SPIN_MOST, POLAR_E_ARG,
            "spin: 0 to %d microseconds, or -1, got %d", PL_POOL_SPIN_MOST, spin_us);
    PL_NEED(dev->backend->set_threads, POLAR_E_UNSUPPORTED, "device '%s' has no threads of its own (cpu has)",
            dev->name);
    return dev->backend->set_threads(dev, threads, spin_us);
}

int polar_device_get_threads(const polar_device *dev)
{
    return dev ? dev->threads : 0;
}

int polar_device_get_spin(const polar_device *dev)
{
    return dev ? pl_pool_spin(dev->pool) : 0;
}

polar_status polar_device_alloc(polar_device *dev, void **out, size_t bytes)
{
    PL_NEED_ARG(out);
    *out = NULL;
    PL_NEED_ARG(dev);
    PL_TRY(dev->backend->mem_alloc(dev, out, bytes ? bytes : 1));
    atomic_fetch_add(&dev->buffers, 1);
    pl_device_hold(dev);
    return POLAR_OK;
}

void polar_device_free(polar_device *dev, void *data)
{
    if (!dev || !data) return;
    dev->backend->mem_free(dev, data);
    if (atomic_fetch_sub(&dev->buffers, 1) > 0) pl_device_release(dev);
    else
        atomic_fetch_add(&dev->buffers,
                         1); /* freed twice, as guard will tell: the others' holds are not touched */
}

polar_status pl_device_options(const char *device, const char *options,
                               polar_status (*set)(void *ctx, const char *key, const char *value), void *ctx)
{
    char copy[128];
    PL_NEED(strlen(options) < sizeof copy, POLAR_E_ARG, "device '%s': options of more than %zu characters",
            device, sizeof copy - 1);
    snprintf(copy, sizeof copy, "%s", options);
    const char *keys[sizeof copy / 4 + 1]; /* "k=v," each, at the least */
    int count = 0;
    for (char *p = copy, *next; p && *p; p = next) {
        next = strchr(p, ',');
        if (next) *next++ = 0;
        char *value = strchr(p, '=');
        PL_NEED(value && value != p && value[1], POLAR_E_ARG, "device '%s': '%s' is no key=value", device, p);
        *value++ = 0;
        for (int i = 0; i < count; i++)
            PL_NEED(strcmp(keys[i], p), POLAR_E_ARG, "device '%s': the option '%s' is given twice in '%s'",
                    device, p, options);
        keys[count++] = p;
        PL_TRY(set(ctx, p, value));
    }
    return POLAR_OK;
}

polar_status pl_option_int(int *out, const char *key, const char *value, int min, int max)
{
    char *end;
    long v = strtol(value, &end, 10);
    PL_NEED(*value && !*end && v >= min && v <= max, POLAR_E_ARG,
            "%s wants a whole number from %d to %d, got '%s'", key, min, max, value);
    *out = (int)v;
    return POLAR_OK;
}

/* What this process may use: the machine's memory, or its control group's limit where that is less. */
static size_t host_memory(void)
{
    static const char *const limits[] = {"/sys/fs/cgroup/memory.max",
                                         "/sys/fs/cgroup/memory/memory.limit_in_bytes"};
    size_t most = (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        FILE *f = fopen(limits[i], "re");
        unsigned long long limit;
        if (f && fscanf(f, "%llu", &limit) == 1 && limit < most) most = (size_t)limit;
        if (f) fclose(f);
    }
    return most;
}

/* The system would promise more than it has and end the process when the pages are touched: so a device
 * counts what it gave. */
polar_status pl_host_mem_alloc(pl_device *dev, void **out, size_t bytes)
{
    size_t live = atomic_load(&dev->live);
    size_t memory = bytes >> 26 ? host_memory() : SIZE_MAX; /* from 64 MiB on it is worth asking */
    PL_NEED(bytes <= memory && live <= memory - bytes, POLAR_E_NOMEM,
            "%zu bytes on device '%s', which has %zu of %zu in use", bytes, dev->name, live, memory);
    *out = pl_alloc(bytes);
    PL_NEED(*out, POLAR_E_NOMEM, "%zu bytes on device '%s'", bytes, dev->name);
    atomic_fetch_add(&dev->live, malloc_usable_size(*out));
    return POLAR_OK;
}

void pl_host_mem_free(pl_device *dev, void *data)
{
    atomic_fetch_sub(&dev->live, malloc_usable_size(data));
    pl_free(data);
}

void pl_host_copy(pl_queue *q, void *dst, const void *src, size_t bytes, pl_copy_kind kind)
{
    (void)q;
    (void)kind;
    memcpy(dst, src, bytes);
}
