/* polar_xla.c -- polar maps for JAX: one handler of XLA's foreign function interface, over include/polar.
 *
 * XLA calls polar_xla_map with n matrices (or batches of them, the last two dimensions count) and as many
 * results of the same shapes; the attributes are `map`, the name of a polar map, `steps` (0: the map's own)
 * and `eps`. It runs on the CPU. What is declared here of XLA's interface is version 0.1 of its C ABI
 * (xla/ffi/api/c_api.h), which XLA keeps; so the file is compiled without jaxlib and serves every one that
 * has the interface. python/polar/jax.py registers it.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "polar/polar.h"

/* ---- XLA's side ---------------------------------------------------------------------------------- */

typedef struct xla_error xla_error;

typedef struct xla_extension {
    size_t struct_size;
    int type; /* 1: XLA asks for the metadata */
    struct xla_extension *next;
} xla_extension;

typedef struct {
    size_t struct_size;
    xla_extension *extension;
    int major, minor;
} xla_version;

typedef struct {
    size_t struct_size;
    xla_version api;
    uint32_t traits;
} xla_metadata;

typedef struct {
    xla_extension base;
    xla_metadata *metadata;
} xla_metadata_extension;

typedef struct {
    size_t struct_size;
    xla_extension *extension;
    const char *message;
    int code;
} xla_error_args;

typedef struct {
    size_t struct_size;
    xla_extension *extension;
    xla_version version;
    void *internal;
    xla_error *(*error_create)(xla_error_args *args);
} xla_api;

typedef struct {
    size_t struct_size;
    xla_extension *extension;
    int dtype;
    void *data;
    int64_t rank;
    int64_t *dims;
} xla_buffer;

typedef struct { /* of arguments and of results */
    size_t struct_size;
    xla_extension *extension;
    int64_t size;
    int *types; /* 1: a buffer */
    xla_buffer **buffers;
} xla_buffers;

typedef struct {
    const char *text;
    size_t length;
} xla_string;

typedef struct {
    int dtype;
    void *value;
} xla_scalar;

typedef struct {
    size_t struct_size;
    xla_extension *extension;
    int64_t size;
    int *types; /* 3: a scalar, 4: a string */
    xla_string **names;
    void **values;
} xla_attributes;

typedef struct {
    size_t struct_size;
    xla_extension *extension;
    const xla_api *api;
    void *context;
    int stage; /* 3: execute */
    xla_buffers args, rets;
    xla_attributes attrs;
} xla_call;

enum {
    XLA_INVALID_ARGUMENT = 3,
    XLA_S64 = 5,
    XLA_F16 = 10,
    XLA_F32 = 11,
    XLA_F64 = 12,
    XLA_BF16 = 16,
    XLA_SCALAR = 3,
    XLA_STRING = 4,
    XLA_EXECUTE = 3
};

static xla_error *fail(const xla_call *call, const char *message)
{
    xla_error_args args = {.struct_size = sizeof args, .message = message, .code = XLA_INVALID_ARGUMENT};
    return call->api->error_create(&args);
}

/* ---- ours ------------------------------------------------------------------------------------------ */

static pthread_mutex_t lock =
    PTHREAD_MUTEX_INITIALIZER; /* of the queue: XLA has many threads, a queue is driven by one at a time */
static polar_queue *queue;

static polar_status open_queue(void)
{
    polar_device *dev;
    if (queue) return POLAR_OK;
    polar_status st = polar_device_open(&dev, "cpu");
    if (st != POLAR_OK) return st;
    st = polar_queue_create(&queue, dev, NULL);
    polar_device_close(dev); /* the queue keeps it */
    return st;
}

static const void *attribute(const xla_call *call, const char *name, int type)
{
    for (int64_t i = 0; i < call->attrs.size; i++) {
        const xla_string *n = call->attrs.names[i];
        if (n->length == strlen(name) && !memcmp(n->text, name, n->length))
            return call->attrs.types[i] == type ? call->attrs.values[i] : NULL;
    }
    return NULL;
}

/* The map that the attributes ask for; a sentence where they do not. */
static const char *read_options(polar_map_opts *out, const xla_call *call)
{
    char name[64] = "";
    const xla_string *map = attribute(call, "map", XLA_STRING);
    const xla_scalar *steps = attribute(call, "steps", XLA_SCALAR), *eps = attribute(call, "eps", XLA_SCALAR);
    if (!map || map->length >= sizeof name)
        return "polar_xla_map wants the attribute map: the name of a polar map";
    memcpy(name, map->text, map->length);
    if (polar_map_opts_parse(out, name) != POLAR_OK) return polar_error_message();
    if (steps && steps->dtype == XLA_S64 && *(const int64_t *)steps->value)
        out->steps = (int)*(const int64_t *)steps->value;
    if (eps && eps->dtype == XLA_F64) out->eps = *(const double *)eps->value;
    return NULL;
}

static int read_buffer(polar_tensor *out, const xla_buffer *b)
{
    int64_t batch = 1;
    polar_dtype dtype = b->dtype == XLA_F32    ? POLAR_DTYPE_F32
                        : b->dtype == XLA_F64  ? POLAR_DTYPE_F64
                        : b->dtype == XLA_BF16 ? POLAR_DTYPE_BF16
                                               : POLAR_DTYPE_F16;
    if (b->rank < 2 || (dtype == POLAR_DTYPE_F16 && b->dtype != XLA_F16)) return 0;
    for (int64_t i = 0; i < b->rank - 2; i++) batch *= b->dims[i];
    *out = polar_tensor_3d(b->data, dtype, batch, b->dims[b->rank - 2], b->dims[b->rank - 1]);
    return 1;
}

static const char *apply(polar_tensor *tensors, const xla_call *call)
{
    int64_t n = call->args.size;
    polar_map_opts o;
    const char *wrong = read_options(&o, call);
    if (wrong) return wrong;
    for (int64_t i = 0; i < n; i++)
        if (!read_buffer(&tensors[i], call->rets.buffers[i]) ||
            !read_buffer(&tensors[n + i], call->args.buffers[i]))
            return "polar_xla_map takes matrices, or batches of them, of f32, f64, bf16 or f16";
    pthread_mutex_lock(&lock);
    polar_status st = open_queue();
    if (st == POLAR_OK) st = polar_map_apply(queue, tensors, tensors + n, n, &o);
    if (st == POLAR_OK) st = polar_queue_sync(queue);
    pthread_mutex_unlock(&lock);
    return st == POLAR_OK ? NULL : polar_error_message();
}

POLAR_API xla_error *polar_xla_map(xla_call *call);

xla_error *polar_xla_map(xla_call *call)
{
    if (call->extension && call->extension->type == 1) { /* before the first call: which version it speaks */
        xla_metadata *m = ((xla_metadata_extension *)call->extension)->metadata;
        m->api.major = 0;
        m->api.minor = 1;
        m->traits = 0;
        return NULL;
    }
    if (call->stage != XLA_EXECUTE) return NULL;
    if (call->args.size != call->rets.size || call->args.size < 1)
        return fail(call, "polar_xla_map wants as many results as matrices");
    polar_tensor *tensors = calloc((size_t)(2 * call->args.size), sizeof *tensors);
    if (!tensors) return fail(call, "polar_xla_map: no memory");
    const char *wrong = apply(tensors, call);
    free(tensors);
    return wrong ? fail(call, wrong) : NULL;
}
