/* polar_xla_map.c -- polar maps for JAX: n matrices (or batches of them, the last two dimensions count) and
 * as many results of the same shapes; the attributes are `map`, the name of a polar map, `steps` (0: the
 * map's own) and `eps`. */
#include <stdlib.h>
#include <string.h>

#include "polar_xla.h"

/* The map that the attributes ask for; a sentence where they do not. */
static const char *read_options(polar_map_opts *out, const xla_call *call)
{
    char name[64] = "";
    const xla_string *map = xla_attribute(call, "map", XLA_STRING);
    const xla_scalar *steps = xla_attribute(call, "steps", XLA_SCALAR),
                     *eps = xla_attribute(call, "eps", XLA_SCALAR);
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
    polar_dtype dtype;
    if (b->rank < 2 || !xla_format(&dtype, b->dtype)) return 0;
    for (int64_t i = 0; i < b->rank - 2; i++) batch *= b->dims[i];
    *out = polar_tensor_3d(b->data, dtype, batch, b->dims[b->rank - 2], b->dims[b->rank - 1]);
    return 1;
}

static const char *apply(polar_tensor *tensors, const xla_call *call, const xla_place *place)
{
    const int64_t n = call->args.size;
    polar_map_opts o;
    const char *wrong = read_options(&o, call);
    if (wrong) return wrong;
    for (int64_t i = 0; i < n; i++)
        if (!read_buffer(&tensors[i], call->rets.buffers[i]) ||
            !read_buffer(&tensors[n + i], call->args.buffers[i]))
            return "polar_xla_map takes matrices, or batches of them, of f32, f64, bf16 or f16";
    return polar_map_apply(place->q, tensors, tensors + n, n, &o) == POLAR_OK ? NULL : polar_error_message();
}

static const char *map(const xla_call *call, const xla_place *place)
{
    if (call->args.size != call->rets.size || call->args.size < 1)
        return "polar_xla_map wants as many results as matrices";
    polar_tensor *tensors = calloc((size_t)(2 * call->args.size), sizeof *tensors);
    if (!tensors) return "polar_xla_map: no memory";
    const char *wrong = apply(tensors, call, place);
    free(tensors);
    return wrong;
}

xla_error *polar_xla_map(xla_call *call)
{
    return xla_run(call, 0, map);
}

xla_error *polar_xla_map_cuda(xla_call *call)
{
    return xla_run(call, 1, map);
}
