/* map.c -- the public face of the polar maps (polar/map.h): checks what the caller can get wrong, then
 * enqueues. */
#include "compose/map.h"

#include <float.h>
#include <string.h>

#include "base/alloc.h"
#include "base/sized.h"
#include "compose/newton_schulz.h"

polar_status polar_map_opts_parse_sized(polar_map_opts *out, size_t size, const char *name)
{
    static const struct {
        const char *name;
        polar_map_kind kind;
        polar_dtype precision;
        polar_rounding rounding;
        double power;
    } maps[] = {
        {"none", POLAR_MAP_NONE, POLAR_DTYPE_BF16, POLAR_ROUND_FUSED, 0},
        {"exact", POLAR_MAP_EXACT, POLAR_DTYPE_F64, POLAR_ROUND_FUSED, 0},
        {"power", POLAR_MAP_POWER, POLAR_DTYPE_F64, POLAR_ROUND_FUSED, 0.5},
        {"soft", POLAR_MAP_SOFT, POLAR_DTYPE_F64, POLAR_ROUND_FUSED, 1},
        {"ns_fp64", POLAR_MAP_NEWTON_SCHULZ, POLAR_DTYPE_F64, POLAR_ROUND_FUSED, 0},
        {"ns_fp32", POLAR_MAP_NEWTON_SCHULZ, POLAR_DTYPE_F32, POLAR_ROUND_FUSED, 0},
        {"ns_bf16_fused", POLAR_MAP_NEWTON_SCHULZ, POLAR_DTYPE_BF16, POLAR_ROUND_FUSED, 0},
        {"ns_bf16_reference", POLAR_MAP_NEWTON_SCHULZ, POLAR_DTYPE_BF16, POLAR_ROUND_REFERENCE, 0},
        {"ns_bf16_gram", POLAR_MAP_NEWTON_SCHULZ, POLAR_DTYPE_BF16, POLAR_ROUND_GRAM, 0},
        {"ns_fp16_fused", POLAR_MAP_NEWTON_SCHULZ, POLAR_DTYPE_F16, POLAR_ROUND_FUSED, 0},
        {"ns_fp16_gram", POLAR_MAP_NEWTON_SCHULZ, POLAR_DTYPE_F16, POLAR_ROUND_GRAM, 0},
    };
    PL_NEED_ARG(out);
    PL_NEED_ARG(name);
    for (size_t i = 0; i < sizeof maps / sizeof *maps; i++)
        if (!strcmp(name, maps[i].name)) {
            polar_map_opts o = POLAR_MAP_OPTS_INIT;
            o.struct_size = size;
            o.kind = maps[i].kind;
            o.precision = maps[i].precision;
            o.rounding = maps[i].rounding;
            o.power = maps[i].power;
            return pl_sized_write("polar_map_opts", out, size, &o, sizeof o,
                                  PL_SIZE_UP_TO(polar_map_opts, coefs));
        }
    return PL_FAIL(POLAR_E_ARG,
                   "no polar map '%s' (there are: exact, power, soft, ns_fp64, ns_fp32, ns_bf16_fused, "
                   "ns_bf16_reference, ns_bf16_gram, ns_fp16_fused, ns_fp16_gram, none)",
                   name);
}

/* The caller's options with the coefficients filled in. */
polar_status pl_map_resolve(polar_map_opts *o, polar_coef coefs[POLAR_MAX_STEPS], const polar_map_opts *opts)
{
    static const polar_map_opts defaults = POLAR_MAP_OPTS_INIT;
    if (!opts) opts = &defaults;
    polar_map_opts ours;
    PL_TRY(pl_sized_read("polar_map_opts", &ours, sizeof ours, opts, opts->struct_size,
                         PL_SIZE_UP_TO(polar_map_opts, coefs)));
    *o = ours;
    o->struct_size = sizeof *o;
    PL_NEED(o->kind >= POLAR_MAP_NONE && o->kind <= POLAR_MAP_SOFT, POLAR_E_ARG, "no polar map of kind %d",
            (int)o->kind);
    PL_NEED(o->kind != POLAR_MAP_POWER || (o->power >= -1 && o->power <= 1), POLAR_E_ARG,
            "singular values to the power %g; -1 to 1 can be had (polar_map_opts.power)", o->power);
    PL_NEED(o->kind != POLAR_MAP_SOFT || (o->power > 0 && o->power <= (double)FLT_MAX), POLAR_E_ARG,
            "a soft map of %g (polar_map_opts.power); it must be more than 0 and finite", o->power);
    if (o->kind != POLAR_MAP_NEWTON_SCHULZ) return POLAR_OK;
    PL_NEED(o->precision >= 0 && o->precision < POLAR_DTYPE_COUNT, POLAR_E_DTYPE, "no precision %d",
            (int)o->precision);
    PL_NEED(o->rounding >= POLAR_ROUND_FUSED && o->rounding <= POLAR_ROUND_GRAM, POLAR_E_ARG,
            "no rounding %d", (int)o->rounding);
    PL_NEED(o->rounding != POLAR_ROUND_REFERENCE || o->precision == POLAR_DTYPE_BF16, POLAR_E_ARG,
            "the reference rounding is that of bf16, not of %s", polar_dtype_name(o->precision));
    PL_NEED(o->rounding != POLAR_ROUND_GRAM || polar_dtype_size(o->precision) == 2, POLAR_E_ARG,
            "the Gram form is one of bf16 and f16, not of %s", polar_dtype_name(o->precision));
    PL_NEED(o->steps >= 0 && o->steps <= POLAR_MAX_STEPS, POLAR_E_ARG,
            "%d Newton-Schulz steps; 0 to %d can be had", o->steps, POLAR_MAX_STEPS);
    PL_NEED(o->eps >= 0 && o->eps <= (double)FLT_MAX, POLAR_E_ARG,
            "the norm's eps is %g; it must be at least 0 and finite", o->eps);
    if (o->eps == 0 && o->rounding == POLAR_ROUND_REFERENCE) o->eps = PL_REFERENCE_EPS;
    if (o->coefs) memcpy(coefs, o->coefs, (size_t)o->steps * sizeof *coefs);
    else {
        PL_NEED(o->table, POLAR_E_ARG, "neither a coefficient table's name nor coefficients were given");
        PL_TRY(polar_coef_table(coefs, o->steps, o->table));
    }
    o->coefs = coefs;
    return POLAR_OK;
}

/* Views of all tensors: in[0..n) then out[0..n). */
static polar_status view_all(pl_mat *in, pl_mat *out, const polar_tensor *tout, const polar_tensor *tin,
                             int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        PL_TRY(pl_mat_from_tensor(&in[i], &tin[i]));
        PL_TRY(pl_mat_from_tensor(&out[i], &tout[i]));
        PL_NEED(pl_mat_same_shape(&in[i], &out[i]), POLAR_E_SHAPE,
                "matrix %lld: %lldx%lldx%lld in, %lldx%lldx%lld out", (long long)i, (long long)in[i].batch,
                (long long)in[i].rows, (long long)in[i].cols, (long long)out[i].batch, (long long)out[i].rows,
                (long long)out[i].cols);
    }
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++) {
            int itself = i == j && in[i].data == out[i].data && in[i].dtype == out[i].dtype &&
                         in[i].rs == out[i].rs && in[i].bs == out[i].bs;
            PL_NEED(itself || !pl_mat_overlap(&out[i], &in[j]), POLAR_E_ARG,
                    "result %lld overlaps input %lld", (long long)i, (long long)j);
            PL_NEED(i == j || !pl_mat_overlap(&out[i], &out[j]), POLAR_E_ARG, "results %lld and %lld overlap",
                    (long long)i, (long long)j);
        }
    return POLAR_OK;
}

void pl_map_enqueue(pl_queue *q, const pl_mat *out, const pl_mat *in, const int64_t *dim, int64_t n,
                    const polar_map_opts *o)
{
    pl_ns_opts ns = {.precision = o->precision,
                     .rounding = o->rounding,
                     .steps = o->steps,
                     .coefs = o->coefs,
                     .eps = o->eps};
    int64_t first = 0; /* matrix for which the Gram form pays */
    int gram = o->kind == POLAR_MAP_NEWTON_SCHULZ && o->rounding == POLAR_ROUND_GRAM;
    while (first < n && !(gram && pl_ns_long(&in[first]))) first++;
    if (first < n) ns.joined = pl_ns_joined(o->coefs, o->steps, o->precision);
    if (o->kind == POLAR_MAP_NEWTON_SCHULZ) pl_newton_schulz(q, out, in, dim, n, &ns);
    else
        for (int64_t i = 0; i < n; i++) {
            if (pl_map_decomposes(o) && !(o->kind == POLAR_MAP_POWER && o->power == 1))
                PL_CALL(polar_exact, q, .Y = out[i], .X = in[i], .kind = o->kind, .power = o->power);
            else PL_CALL(copy, q, .Y = out[i], .X = in[i]);
        }
}

polar_status polar_map_apply_blocks(polar_queue *q, const polar_tensor *out, const polar_tensor *in,
                                    const int64_t *dim, int64_t n, const polar_map_opts *opts)
{
    polar_map_opts o = POLAR_MAP_OPTS_INIT;
    polar_coef coefs[POLAR_MAX_STEPS];
    PL_NEED_ARG(q);
    PL_TRY(pl_map_resolve(&o, coefs, opts));
    PL_NEED(n >= 0, POLAR_E_ARG, "%lld matrices", (long long)n);
    PL_NEED(!dim || o.kind != POLAR_MAP_SOFT, POLAR_E_UNSUPPORTED,
            "blocks of a direct sum share one norm, a soft map knows each one's own");
    if (n) PL_NEED_ARG(out);
    if (n) PL_NEED_ARG(in);
    for (int64_t i = 0; dim && i < n; i++)
        PL_NEED(dim[i] >= 1, POLAR_E_ARG,
                "block %lld: an irreducible representation has dimension 1 or more, got %lld", (long long)i,
                (long long)dim[i]);
    if (!n) return POLAR_OK;
    pl_mat *mats = pl_calloc((size_t)n * 2, sizeof *mats);
    PL_NEED(mats, POLAR_E_NOMEM, "a list of %lld matrices", (long long)n);
    polar_status st = view_all(mats, mats + n, out, in, n);
    for (int64_t i = 1; dim && st == POLAR_OK && i < n; i++)
        if (mats[i].dtype != mats[0].dtype)
            st = PL_FAIL(POLAR_E_DTYPE, "blocks that share a norm must share a number format, got %s and %s",
                         polar_dtype_name(mats[0].dtype), polar_dtype_name(mats[i].dtype));
    if (st == POLAR_OK) pl_map_enqueue(q, mats + n, mats, dim, n, &o);
    pl_free(mats);
    return st;
}

polar_status polar_map_apply(polar_queue *q, const polar_tensor *out, const polar_tensor *in, int64_t n,
                             const polar_map_opts *opts)
{
    return polar_map_apply_blocks(q, out, in, NULL, n, opts);
}
