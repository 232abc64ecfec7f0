/* optim_blocks.c -- a parameter as the matrices that a rule sees: its parts.
 *
 * A part is a rectangle of the parameter's memory, of one route: a batch of row_blocks equal matrices one
 * below the other. A parameter without a list of blocks is one part (its row blocks, or its block of a direct
 * sum). One with a list has a part for each of its blocks, neighbours of one shape together, and parts on the
 * aux route for what no block covers.
 *
 * Invariants
 *  1. The parts of a parameter do not meet, and together they are all of it.
 *  2. Weights, gradients, moments and master copies are the parameter's, laid out as its tensor: a part's are
 *     views into them. Directions and what a rule keeps of each matrix are the part's own, packed.
 *  3. A part of several matrices is cut as its rows are, in every member: with members it has one matrix,
 *     unless it is the whole parameter.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/sha256.h"
#include "optim/optim_impl.h"

#define MOST_BLOCKS ((int64_t)1 << 24)

/* ---- the caller's list -------------------------------------------------------------------------- */

/* A row of a block, or rows without a gap between them: elements [first, end). */
typedef struct segment {
    int64_t first, end, block;
} segment;

static polar_status check_block(const pl_optim_param *p, const char *name, const polar_block *b, int64_t k)
{
    const int64_t all = p->rows * p->cols;
    PL_NEED(b->rows > 0 && b->cols > 0, POLAR_E_SHAPE, "block %lld of '%s' is %lldx%lld: it has no entries",
            (long long)k, name, (long long)b->rows, (long long)b->cols);
    PL_NEED(b->ld >= b->cols, POLAR_E_SHAPE,
            "block %lld of '%s': its rows have %lld entries and begin %lld apart (ld)", (long long)k, name,
            (long long)b->cols, (long long)b->ld);
    int inside = b->offset >= 0 && b->offset < all && b->cols <= all - b->offset &&
                 (b->rows == 1 || b->ld <= (all - b->offset - b->cols) / (b->rows - 1));
    PL_NEED(inside, POLAR_E_SHAPE,
            "block %lld of '%s' (%lldx%lld from element %lld on, ld %lld) does not lie within its %lld "
            "elements",
            (long long)k, name, (long long)b->rows, (long long)b->cols, (long long)b->offset,
            (long long)b->ld, (long long)all);
    PL_NEED(b->dim > 0, POLAR_E_ARG, "block %lld of '%s' has a dim of %lld", (long long)k, name,
            (long long)b->dim);
    return POLAR_OK;
}

polar_status pl_optim_blocks_read(pl_optim_param *out, const polar_param *p, const polar_optim_layout *layout)
{
    PL_NEED(p->block_count >= 0 && p->block_count < MOST_BLOCKS, POLAR_E_ARG,
            "'%s' has a block_count of %lld; it must be from 0 to %lld", p->name, (long long)p->block_count,
            (long long)MOST_BLOCKS - 1);
    PL_NEED(p->blocks || !p->block_count, POLAR_E_ARG, "'%s' has a block_count of %lld and blocks is NULL",
            p->name, (long long)p->block_count);
    if (!p->block_count) return POLAR_OK;
    PL_NEED(!p->row_blocks && !p->schur_dim, POLAR_E_ARG,
            "'%s' has blocks, which say their rows and dim themselves: row_blocks and schur_dim must be 0",
            p->name);
    PL_NEED(!out->by_rows, POLAR_E_UNSUPPORTED,
            "'%s' has blocks and rows on other ranks: a parameter with blocks must be whole on every rank",
            p->name);
    out->blocks = pl_calloc((size_t)p->block_count, sizeof *out->blocks);
    PL_NEED(out->blocks, POLAR_E_NOMEM, "%lld blocks of '%s'", (long long)p->block_count, p->name);
    for (int64_t k = 0; k < p->block_count; k++) {
        polar_block *b = &out->blocks[k];
        PL_TRY(pl_block_read(b, p->blocks, k, layout));
        if (!b->ld) b->ld = b->cols;
        if (!b->dim) b->dim = 1;
        PL_TRY(check_block(out, p->name, b, k));
        PL_NEED(b->dim == 1 || p->schur_group, POLAR_E_ARG,
                "block %lld of '%s' has a dim of %lld, and the parameter no schur_group whose block it would "
                "be (groups count from 1)",
                (long long)k, p->name, (long long)b->dim);
        if (b->rows == 1) b->ld = b->cols; /* as good as any */
    }
    out->block_count = p->block_count;
    return POLAR_OK;
}

void pl_optim_blocks_drop(pl_optim_param *p)
{
    pl_free(p->blocks);
    p->blocks = NULL;
    p->block_count = 0;
}

/* The list is what row_blocks says in short: the rows of the whole in equal blocks, one after the other. */
static int is_row_split(const pl_optim_param *p)
{
    const int64_t n = p->block_count, rows = p->rows / n;
    int same = p->ndim >= 2 && p->rows % n == 0;
    for (int64_t k = 0; k < n && same; k++) {
        const polar_block *b = &p->blocks[k];
        same = b->rows == rows && b->cols == p->cols && b->ld == p->cols && b->offset == k * rows * p->cols &&
               b->dim == p->blocks[0].dim;
    }
    return same;
}

void pl_optim_blocks_digest(char hex[PL_SHA256_HEX], const pl_optim_param *p)
{
    pl_sha256 h = pl_sha256_begin();
    pl_sha256_add(&h, p->blocks, (size_t)p->block_count * sizeof *p->blocks);
    pl_sha256_end(hex, &h);
}

static int earlier(const void *a, const void *b)
{
    const segment *x = a, *y = b;
    return (x->first > y->first) - (x->first < y->first);
}

static polar_status segments_of(segment **out, int64_t *count, const pl_optim_param *p, const char *name)
{
    int64_t n = 0, used = 0;
    for (int64_t k = 0; k < p->block_count; k++)
        n += p->blocks[k].ld == p->blocks[k].cols ? 1 : p->blocks[k].rows; /* each row an element or more */
    segment *s = n <= p->rows * p->cols ? pl_calloc((size_t)n, sizeof *s) : NULL;
    PL_NEED(n <= p->rows * p->cols, POLAR_E_ARG, "the blocks of '%s' have more rows than it has elements",
            name);
    PL_NEED(s, POLAR_E_NOMEM, "the rows of %lld blocks of '%s'", (long long)p->block_count, name);
    for (int64_t k = 0; k < p->block_count; k++) {
        const polar_block *b = &p->blocks[k];
        const int64_t rows = b->ld == b->cols ? 1 : b->rows, length = b->ld == b->cols ? b->rows : 1;
        for (int64_t i = 0; i < rows; i++) {
            const int64_t first = b->offset + i * b->ld;
            s[used++] = (segment){first, first + length * b->cols, k};
        }
    }
    qsort(s, (size_t)n, sizeof *s, earlier);
    *out = s;
    *count = n;
    for (int64_t i = 1; i < n; i++)
        PL_NEED(s[i].first >= s[i - 1].end, POLAR_E_ARG, "blocks %lld and %lld of '%s' share element %lld",
                (long long)s[i - 1].block, (long long)s[i].block, name, (long long)s[i].first);
    return POLAR_OK;
}

/* ---- parts -------------------------------------------------------------------------------------- */

/* It looks at norms or at single lines and entries after the direction: what a direct sum's blocks share. */
static int norms_of(const polar_rule *r)
{
    return r->momentum == POLAR_MOMENTUM_PICKED || r->precondition >= POLAR_PRECONDITION_ROWS ||
           r->post != POLAR_POST_NONE || pl_scale_looks(r->scale) || pl_apply_looks(r) ||
           r->map.kind == POLAR_MAP_SOFT;
}

static polar_status part_add(polar_optim *opt, int64_t param, const char *suffix, pl_optim_param part)
{
    pl_optim_param *p = &opt->params[param];
    if (opt->part_count == opt->part_room) {
        const size_t room = (size_t)opt->part_room * 2 + 16, size = sizeof *opt->parts;
        pl_optim_param *more = pl_realloc(opt->parts, (size_t)opt->part_room * size, room * size);
        PL_NEED(more, POLAR_E_NOMEM, "%zu parts of parameters", room);
        opt->parts = more;
        opt->part_room = (int64_t)room;
    }
    part.param = param;
    part.group = p->group;
    part.scale = 1;
    part.name = pl_alloc(strlen(p->name) + strlen(suffix) + 1);
    PL_NEED(part.name, POLAR_E_NOMEM, "the name of a part of '%s'", p->name);
    sprintf(part.name, "%s%s", p->name, suffix);
    opt->parts[opt->part_count++] = part; /* the name is freed with it */
    p->part_count++;
    if (part.route != POLAR_ROUTE_MATRIX) return POLAR_OK;
    pl_optim_param *added = &opt->parts[opt->part_count - 1];
    const polar_rule *r = pl_optim_rule(opt, added);
    if (r->map.kind != POLAR_MAP_NONE)
        added->scale = polar_scale_value(r->scale, added->rows / added->row_blocks, added->cols);
    if (r->radius != 0) added->scale *= r->radius;
    PL_NEED(!added->schur_group || !norms_of(r), POLAR_E_UNSUPPORTED,
            "'%s': blocks of a direct sum share one norm, and the rule of group %lld takes norms of lines, "
            "entries or each block by itself",
            added->name, (long long)added->group);
    return POLAR_OK;
}

/* A parameter that is one part. */
static polar_status add_whole(polar_optim *opt, int64_t i)
{
    const pl_optim_param *p = &opt->params[i];
    pl_optim_param part = *p;
    part.ld = p->cols;
    part.blocks = NULL;
    return part_add(opt, i, "", part);
}

/* Block b goes on below a part that ends in block a. */
static int continues(const polar_optim *opt, const polar_block *a, const polar_block *b)
{
    return opt->members == 1 && a->rows == b->rows && a->cols == b->cols && a->ld == b->ld &&
           a->dim == b->dim && b->offset == a->offset + a->rows * a->ld;
}

static polar_status add_blocks(polar_optim *opt, int64_t i)
{
    const pl_optim_param *p = &opt->params[i];
    for (int64_t k = 0, n; k < p->block_count; k += n) {
        const polar_block *b = &p->blocks[k];
        for (n = 1; k + n < p->block_count && continues(opt, b + n - 1, b + n);) n++;
        char suffix[64] = "";
        if (n > 1) snprintf(suffix, sizeof suffix, "[%lld-%lld]", (long long)k, (long long)(k + n - 1));
        else snprintf(suffix, sizeof suffix, "[%lld]", (long long)k);
        pl_optim_param part = {.route = POLAR_ROUTE_MATRIX,
                               .ndim = 2,
                               .rows = n * b->rows,
                               .cols = b->cols,
                               .at = b->offset,
                               .ld = b->ld,
                               .row_blocks = n,
                               .schur_group = p->schur_group,
                               .schur_dim = b->dim,
                               .slot = p->slot};
        PL_TRY(part_add(opt, i, suffix, part));
    }
    return POLAR_OK;
}

/* Elements [first, end) are no block's: another row of the rest before them, or a rest of their own. */
static polar_status add_gap(polar_optim *opt, int64_t i, int64_t first, int64_t end)
{
    pl_optim_param *last = &opt->parts[opt->part_count - 1];
    const int64_t apart = first - last->at;
    if (last->param == i && last->route == POLAR_ROUTE_AUX && last->cols == end - first &&
        (last->rows == 1 || apart == last->rows * last->ld)) {
        if (last->rows == 1) last->ld = apart;
        last->rows++;
        return POLAR_OK;
    }
    pl_optim_param part = {.route = POLAR_ROUTE_AUX,
                           .ndim = 2,
                           .rows = 1,
                           .cols = end - first,
                           .at = first,
                           .ld = end - first,
                           .row_blocks = 1,
                           .schur_dim = 1,
                           .slot = opt->own_counts ? opt->n + opt->rests : 2 * opt->params[i].group + 1};
    return part_add(opt, i, "[rest]", part);
}

static polar_status add_rest(polar_optim *opt, int64_t i, const segment *s, int64_t n)
{
    const int64_t all = opt->params[i].rows * opt->params[i].cols, parts = opt->part_count;
    for (int64_t k = 0, end = 0; k <= n; k++) {
        const int64_t first = k < n ? s[k].first : all;
        if (first > end) PL_TRY(add_gap(opt, i, end, first));
        if (k < n) end = s[k].end;
    }
    if (opt->part_count > parts) opt->rest_of[opt->rests++] = i;
    return POLAR_OK;
}

polar_status pl_optim_parts_add(polar_optim *opt, int64_t i)
{
    pl_optim_param *p = &opt->params[i];
    segment *s = NULL;
    int64_t n = 0;
    p->first_part = opt->part_count;
    if (p->block_count && is_row_split(p)) {
        p->row_blocks = p->block_count;
        p->schur_dim = p->blocks[0].dim;
        pl_optim_blocks_drop(p);
    }
    if (!p->block_count) return add_whole(opt, i);
    polar_status st = segments_of(&s, &n, p, p->name);
    if (st == POLAR_OK) st = add_blocks(opt, i);
    if (st == POLAR_OK) st = add_rest(opt, i, s, n);
    pl_free(s);
    return st;
}

/* ---- views -------------------------------------------------------------------------------------- */

/* A part's rectangle in every member of its parameter's tensor. */
static pl_mat view(const pl_optim_param *p, const pl_optim_param *part, const pl_mat *m)
{
    pl_mat v = *m;
    if (!p->block_count) return v;
    if (m->data) v.data = (char *)m->data + (size_t)part->at * polar_dtype_size(m->dtype);
    v.rows = part->rows;
    v.cols = part->cols;
    v.rs = part->ld;
    return v;
}

void pl_optim_parts_point(polar_optim *opt, const pl_optim_param *p)
{
    for (int64_t k = p->first_part; k < p->first_part + p->part_count; k++) {
        pl_optim_param *part = &opt->parts[k];
        part->W = view(p, part, &p->W), part->G = view(p, part, &p->G);
        part->M = view(p, part, &p->M);
        part->V = pl_optim_second_moment(opt, part) ? view(p, part, &p->V) : (pl_mat){0};
        part->master = view(p, part, &p->master);
    }
}

void pl_optim_parts_grad(polar_optim *opt, const pl_optim_param *p)
{
    for (int64_t k = p->first_part; k < p->first_part + p->part_count; k++)
        opt->parts[k].G = view(p, &opt->parts[k], &p->G);
}

int64_t pl_optim_matrices(const polar_optim *opt, const pl_optim_param *p)
{
    int64_t n = 0;
    for (int64_t k = p->first_part; k < p->first_part + p->part_count; k++)
        if (opt->parts[k].route == p->route) n += opt->parts[k].row_blocks;
    return n;
}
