/* route.c -- which way a parameter goes, and how a tensor of any shape is seen as matrices. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json_read.h"
#include "base/pattern.h"
#include "optim/shard.h"

static int packed(const polar_tensor *t)
{
    int64_t want = 1;
    for (int i = t->ndim - 1; i >= 0; i--) {
        if (t->shape[i] > 1 && t->stride[i] != want) return 0;
        want *= t->shape[i];
    }
    return 1;
}

static polar_status check_tensor(const char *name, const char *what, const polar_tensor *t, int64_t members)
{
    int64_t elements = 1;
    PL_NEED(t->dtype >= 0 && t->dtype < POLAR_DTYPE_COUNT && t->dtype != POLAR_DTYPE_F16, POLAR_E_DTYPE,
            "%s of '%s' has number format %d, which is none of f64, f32, bf16", what, name, (int)t->dtype);
    PL_NEED(t->ndim >= 0 && t->ndim <= POLAR_MAX_DIMS, POLAR_E_SHAPE,
            "%s of '%s' has %d dimensions, at most %d can be had", what, name, t->ndim, POLAR_MAX_DIMS);
    for (int i = 0; i < t->ndim; i++) /* a dimension of 0 counted as 1: the others are multiplied, too */
        PL_NEED(t->shape[i] >= 0 &&
                    !__builtin_mul_overflow(elements, t->shape[i] ? t->shape[i] : 1, &elements) &&
                    elements < INT64_MAX / 64,
                POLAR_E_SHAPE, "%s of '%s' has an impossible shape", what, name);
    PL_NEED(packed(t), POLAR_E_SHAPE, "%s of '%s' must be packed (contiguous)", what, name);
    PL_NEED(members == 1 || (t->ndim >= 1 && t->shape[0] == members), POLAR_E_SHAPE,
            "%s of '%s': with %lld members the first dimension counts them", what, name, (long long)members);
    return POLAR_OK;
}

static polar_route auto_route(const polar_param *p, int ndim, const polar_optim_opts *o, polar_route group)
{
    if (p->route != POLAR_ROUTE_AUTO) return p->route;
    if (group != POLAR_ROUTE_AUTO) return group;
    if ((ndim < 2 && !p->block_count) || (o->matrix_names && !pl_pattern_match(o->matrix_names, p->name)) ||
        (o->aux_names && pl_pattern_match(o->aux_names, p->name)))
        return POLAR_ROUTE_AUX;
    return POLAR_ROUTE_MATRIX;
}

/* Some rows of it are here: the whole has as many as the caller says. */
static polar_status set_rows(pl_optim_param *out, const polar_param *p, const polar_optim_opts *o)
{
    int64_t rows = p->weight.ndim ? p->weight.shape[0] : 0;
    PL_NEED(o->comm, POLAR_E_ARG, "'%s' has rows on other ranks (whole_rows %lld) and opts.comm is NULL",
            p->name, (long long)p->whole_rows);
    PL_NEED(p->weight.ndim > 0 && p->first_row >= 0 && p->whole_rows > 0 && rows <= p->whole_rows &&
                p->first_row <= p->whole_rows - rows,
            POLAR_E_SHAPE, "'%s': %lld rows from row %lld on are not in a tensor of %lld", p->name,
            (long long)rows, (long long)p->first_row, (long long)p->whole_rows);
    int64_t *first = out->ndim >= 2 ? &out->rows : &out->cols, unit = out->ndim >= 2 ? out->cols : 1;
    PL_NEED(p->whole_rows < INT64_MAX / 64 / (unit ? unit : 1), POLAR_E_SHAPE,
            "'%s' has an impossible number of rows", p->name);
    *first = p->whole_rows;
    out->by_rows = 1;
    out->here_first = p->first_row * unit;
    return POLAR_OK;
}

polar_status pl_optim_param_set(pl_optim_param *out, const polar_param *p, const polar_optim *opt,
                                const polar_optim_layout *layout)
{
    const polar_optim_opts *o = &opt->o;
    int64_t members = opt->members, skip = members > 1;
    PL_NEED(p->name && *p->name, POLAR_E_ARG, "a parameter without a name");
    PL_NEED(strlen(p->name) <= PL_OPTIM_NAME_MAX && pl_utf8_valid(p->name, (int64_t)strlen(p->name)),
            POLAR_E_ARG, "the name '%s' cannot stand in a state file: UTF-8 of at most %d bytes can",
            pl_text_shown(p->name).text, PL_OPTIM_NAME_MAX);
    PL_TRY(check_tensor(p->name, "the weight", &p->weight, members));
    PL_TRY(check_tensor(p->name, "the gradient", &p->grad, members));
    PL_NEED(p->weight.ndim == p->grad.ndim &&
                !memcmp(p->weight.shape, p->grad.shape, (size_t)p->weight.ndim * sizeof(int64_t)),
            POLAR_E_SHAPE, "weight and gradient of '%s' have different shapes", p->name);
    PL_NEED(p->route >= POLAR_ROUTE_AUTO && p->route <= POLAR_ROUTE_AUX, POLAR_E_ARG,
            "'%s' asks for route %d, which is none", p->name, (int)p->route);
    PL_NEED(
        p->group >= 0 && p->group < opt->groups, POLAR_E_ARG,
        "'%s' belongs to group %lld; there are %lld, from 0 (the options' own), further ones in opts.groups",
        p->name, (long long)p->group, (long long)opt->groups);
    int ndim = p->weight.ndim - (int)skip;
    const pl_optim_group *group = &opt->group[p->group];
    *out = (pl_optim_param){
        .route = auto_route(p, ndim, o, group->route), .group = p->group, .ndim = ndim, .rows = 1, .cols = 1};
    for (int i = 0; i < ndim; i++)
        *(i == 0 && ndim >= 2 ? &out->rows : &out->cols) *= p->weight.shape[i + skip];
    PL_NEED(p->weight.data || out->rows * out->cols == 0 || o->placed, POLAR_E_ARG,
            "the weight of '%s' has no data", p->name);
    const int64_t rows_here = out->rows, cols_here = out->cols;
    out->here_count = rows_here * cols_here;
    if (p->whole_rows || p->first_row) PL_TRY(set_rows(out, p, o));
    PL_NEED(p->row_blocks >= 0 && p->schur_group >= 0 && p->schur_dim >= 0, POLAR_E_ARG,
            "'%s': row_blocks, schur_group and schur_dim cannot be negative", p->name);
    PL_NEED(p->schur_dim <= 1 || p->schur_group, POLAR_E_ARG,
            "'%s' has a schur_dim of %lld and no schur_group whose block it would be (groups count from 1)",
            p->name, (long long)p->schur_dim);
    PL_TRY(pl_optim_blocks_read(out, p, layout));
    out->row_blocks = out->schur_dim = 1; /* on the aux route there are neither blocks nor groups */
    if (out->route == POLAR_ROUTE_AUX) pl_optim_blocks_drop(out);
    if (out->route == POLAR_ROUTE_MATRIX) {
        if (p->row_blocks && out->rows) out->row_blocks = p->row_blocks; /* any number divides no rows */
        if (p->schur_dim) out->schur_dim = p->schur_dim;
        out->schur_group = p->schur_group;
        PL_NEED(ndim >= 2 || p->block_count, POLAR_E_SHAPE,
                "'%s' has %d dimension%s and cannot take the matrix route (blocks say which matrices lie in "
                "it)",
                p->name, ndim, ndim == 1 ? "" : "s");
        PL_NEED(out->rows % out->row_blocks == 0, POLAR_E_SHAPE,
                "the %lld rows of '%s' cannot be split into %lld blocks", (long long)out->rows, p->name,
                (long long)out->row_blocks);
        PL_NEED(members == 1 || !p->schur_group, POLAR_E_UNSUPPORTED,
                "'%s': Schur groups share a norm within one model; with several members that is not offered",
                p->name);
    }
    out->W = pl_mat_dense(o->placed ? NULL : p->weight.data, p->weight.dtype, members, rows_here, cols_here);
    out->G = pl_mat_dense(o->placed ? NULL : p->grad.data, p->grad.dtype, members, rows_here, cols_here);
    out->name = pl_strdup(p->name);
    PL_NEED(out->name, POLAR_E_NOMEM, "the name of a parameter");
    return POLAR_OK;
}

static const char *view_text(char *text, size_t bytes, const pl_optim_param *p)
{
    if (p->route == POLAR_ROUTE_AUX) snprintf(text, bytes, "-");
    else if (p->row_blocks > 1)
        snprintf(text, bytes, "%lld blocks of %lldx%lld", (long long)p->row_blocks,
                 (long long)(p->rows / p->row_blocks), (long long)p->cols);
    else if (p->schur_group)
        snprintf(text, bytes, "%lldx%lld (x) I_%lld of group %lld", (long long)p->rows, (long long)p->cols,
                 (long long)p->schur_dim, (long long)p->schur_group);
    else
        snprintf(text, bytes, "%s%lldx%lld", p->ndim > 2 ? "flattened " : "", (long long)p->rows,
                 (long long)p->cols);
    if (p->route == POLAR_ROUTE_MATRIX && p->ld != p->cols) {
        const size_t used = strlen(text);
        snprintf(text + used, bytes - used, ", ld %lld", (long long)p->ld);
    }
    return text;
}

/* Who steps it: a rank, every rank its part, or every rank the rows it has. */
static const char *owner_text(char *text, size_t bytes, const polar_optim *opt, int64_t i)
{
    int owner = opt->shard->owner[i];
    if (owner >= 0) snprintf(text, bytes, "  rank %d", owner);
    else snprintf(text, bytes, "  %s", opt->params[i].by_rows ? "its rows" : "parts");
    return text;
}

polar_status pl_optim_report_make(char **out, const polar_optim *opt)
{
    static const char *const skips[] = {"", "steps with a gradient that is not finite",
                                        "steps that the caller's flag forbids"};
    int widest = 9;
    int64_t matrices = 0, elements = 0, aux = 0;
    for (int64_t i = 0; i < opt->part_count; i++)
        if ((int)strlen(opt->parts[i].name) > widest) widest = (int)strlen(opt->parts[i].name);
    size_t line = (size_t)widest + 200, size = line * (size_t)(opt->part_count + 7), used;
    char *text = pl_alloc(size), view[120], tail[48], owner[24] = "";
    PL_NEED(text, POLAR_E_NOMEM, "a report of %lld parameters", (long long)opt->n);
    used = (size_t)snprintf(text, size, "%-*s  route   weights  %-34s  scale%s%s\n", widest, "parameter",
                            "as the map sees it", opt->groups > 1 ? "   group" : "",
                            opt->shard ? "  stepped by" : "");
    for (int64_t i = 0; i < opt->part_count; i++) {
        const pl_optim_param *p = &opt->parts[i];
        int matrix = p->route == POLAR_ROUTE_MATRIX;
        if (opt->groups > 1) snprintf(tail, sizeof tail, "%-6.4g  %lld", p->scale, (long long)p->group);
        else snprintf(tail, sizeof tail, opt->shard ? "%-5.4g" : "%.4g", p->scale);
        if (opt->shard) owner_text(owner, sizeof owner, opt, p->param);
        used += (size_t)snprintf(text + used, size - used, "%-*s  %-6s  %-7s  %-34s  %s%s\n", widest, p->name,
                                 matrix ? "matrix" : "aux", polar_dtype_name(p->W.dtype),
                                 view_text(view, sizeof view, p), tail, owner);
        matrices += matrix;
        *(matrix ? &elements : &aux) += p->rows * p->cols;
    }
    used += (size_t)snprintf(text + used, size - used,
                             "%lld matrices (%lld weights) by the rule, %lld parameters (%lld weights) by "
                             "AdamW, %lld member%s, %.1f MiB of state\n",
                             (long long)matrices, (long long)elements,
                             (long long)(opt->part_count - matrices), (long long)aux, (long long)opt->members,
                             opt->members == 1 ? "" : "s", (double)polar_optim_state_bytes(opt) / 1048576);
    if (opt->shard) {
        pl_shard_describe(text + used, size - used, opt->shard);
        used += strlen(text + used);
    }
    if (opt->groups > 1)
        used += (size_t)snprintf(text + used, size - used, "%lld groups with numbers of their own\n",
                                 (long long)opt->groups);
    if (opt->own_counts)
        snprintf(text + used, size - used, "left out: %s%s%s\n",
                 opt->o.skip_missing ? "parameters without a gradient" : "",
                 opt->o.skip_missing && opt->o.skip_nonfinite ? ", " : "", skips[opt->o.skip_nonfinite]);
    *out = text;
    return POLAR_OK;
}
