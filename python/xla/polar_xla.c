/* polar_xla.c -- libpolar within XLA: what every handler of its foreign function interface does, over
 * include/polar. python/polar/jax.py registers the handlers.
 *
 * Invariants
 *  1. One call at a time on a device: XLA has many threads, a queue is driven by one. Devices do not wait for
 *     one another: of several GPUs one may hold a call up until another has begun its next exchange.
 *  2. A device is opened when it is first called for, and stays.
 *  3. XLA's threads take denormals as zero; ours, and theirs while they are ours, do not.
 */
#include "polar_xla.h"

#include <fenv.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { LEGACY_STREAM = 1 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t place_lock[XLA_PLACES] = {[0 ... XLA_PLACES - 1] = PTHREAD_MUTEX_INITIALIZER};
static xla_place places[XLA_PLACES];

void xla_lock(void)
{
    pthread_mutex_lock(&lock);
}

void xla_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

static xla_error *fail(const xla_call *call, const char *message)
{
    xla_error_args args = {.struct_size = sizeof args, .message = message, .code = XLA_INVALID_ARGUMENT};
    return call->api->error_create(&args);
}

const void *xla_attribute(const xla_call *call, const char *name, int type)
{
    for (int64_t i = 0; i < call->attrs.size; i++) {
        const xla_string *n = call->attrs.names[i];
        if (n->length == strlen(name) && !memcmp(n->text, name, n->length))
            return call->attrs.types[i] == type ? call->attrs.values[i] : NULL;
    }
    return NULL;
}

int xla_format(polar_dtype *out, int dtype)
{
    static const struct {
        int xla;
        polar_dtype ours;
    } formats[] = {{XLA_F32, POLAR_DTYPE_F32},
                   {XLA_F64, POLAR_DTYPE_F64},
                   {XLA_BF16, POLAR_DTYPE_BF16},
                   {XLA_F16, POLAR_DTYPE_F16}};
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (formats[i].xla == dtype) {
            *out = formats[i].ours;
            return 1;
        }
    return 0;
}

static void drop_error(const xla_call *call, xla_error *error)
{
    struct {
        size_t struct_size;
        xla_extension *extension;
        xla_error *error;
    } args = {sizeof args, NULL, error};
    call->api->error_destroy((xla_error_args *)(void *)&args);
}

/* The GPU's number and the stream that XLA calls from. */
static const char *ask_stream(const xla_call *call, int *ordinal, void **stream)
{
    xla_stream_args s = {.struct_size = sizeof s, .context = call->context};
    xla_ordinal_args o = {.struct_size = sizeof o, .context = call->context};
    xla_error *error = call->api->stream_get(&s);
    const int tells =
        call->api->struct_size >= sizeof *call->api; /* an older jaxlib does not say which GPU */
    if (!error && tells) error = call->api->ordinal_get(&o);
    if (error) {
        drop_error(call, error);
        return "polar: XLA has no CUDA stream for this call";
    }
    if (o.ordinal < 0 || o.ordinal >= XLA_PLACES - 1) return "polar: GPUs 0 to 15 can be had";
    *ordinal = o.ordinal;
    *stream = s.stream ? s.stream : (void *)LEGACY_STREAM;
    return NULL;
}

static const char *open_place(xla_place *p, int ordinal, void *stream)
{
    p->index = ordinal + 1;
    if (!p->dev) {
        if (stream) snprintf(p->name, sizeof p->name, "cuda:%d", ordinal);
        else strcpy(p->name, "cpu");
        if (polar_device_open(&p->dev, p->name) != POLAR_OK) return polar_error_message();
    }
    if (!p->q && polar_queue_create(&p->q, p->dev, stream) != POLAR_OK) return polar_error_message();
    if (stream && polar_queue_set_stream(p->q, stream) != POLAR_OK) return polar_error_message();
    return NULL;
}

/* The first error that a queue keeps, which whoever waits for it drops. A dry run asks without waiting where
 * there is none. */
static polar_status queue_error(polar_queue *q)
{
    polar_cost none;
    const polar_status st = polar_queue_dry_begin(q);
    return st == POLAR_OK ? polar_queue_dry_end(q, &none) : st;
}

/* NULL, or what went wrong: no error stays for the next call. */
static xla_error *run_at(const xla_call *call, xla_place *place, int ordinal, void *stream, xla_body body)
{
    const char *wrong = open_place(place, ordinal, stream);
    if (!wrong) wrong = body(call, place);
    xla_error *error = wrong ? fail(call, wrong) : NULL; /* which copies the sentence */
    if (!place->q) return error;
    const polar_status st = stream && !error ? queue_error(place->q) : polar_queue_sync(place->q);
    return st != POLAR_OK && !error ? fail(call, polar_error_message()) : error;
}

xla_error *xla_run(const xla_call *call, int cuda, xla_body body)
{
    if (call->extension && call->extension->type == 1) { /* before the first call: which version it speaks */
        xla_metadata *m = ((xla_metadata_extension *)call->extension)->metadata;
        m->api.major = 0;
        m->api.minor = 1;
        m->traits = 0;
        return NULL;
    }
    if (call->stage != XLA_EXECUTE) return NULL;
    int ordinal = -1; /* the CPU */
    void *stream = NULL;
    const char *wrong = cuda ? ask_stream(call, &ordinal, &stream) : NULL;
    if (wrong) return fail(call, wrong);
    fenv_t theirs;
    fegetenv(&theirs);
    fesetenv(FE_DFL_ENV);
    pthread_mutex_lock(&place_lock[ordinal + 1]);
    xla_error *error = run_at(call, &places[ordinal + 1], ordinal, stream, body);
    pthread_mutex_unlock(&place_lock[ordinal + 1]);
    fesetenv(&theirs);
    return error;
}
