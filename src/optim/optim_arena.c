/* optim_arena.c -- where an optimiser's memory lies: in one piece what is kept from step to step, in another
 * what a step works with; and in each side by side what a map, a stage or a decomposition sees as one batch.
 */
#include "base/alloc.h"
#include "device/backend.h"
#include "optim/optim_impl.h"

int pl_optim_keeps_direction(const polar_optim *opt, const pl_optim_param *p)
{
    const polar_rule *r = pl_optim_rule(opt, p);
    if (opt->o.measure) return 1;
    if (p->route == POLAR_ROUTE_AUX) return 0;
    return r->map.kind != POLAR_MAP_NONE || r->momentum != POLAR_MOMENTUM_EMA ||
           r->precondition != POLAR_PRECONDITION_ADAM || !pl_optim_plain(opt, p);
}

int pl_optim_second_moment(const polar_optim *opt, const pl_optim_param *p)
{
    const polar_precondition kind = pl_optim_rule(opt, p)->precondition;
    return p->route == POLAR_ROUTE_AUX || kind == POLAR_PRECONDITION_ADAM ||
           kind == POLAR_PRECONDITION_LAPROP || kind == POLAR_PRECONDITION_ROOT || pl_precondition_soap(kind);
}

static polar_dtype state_dtype(const pl_optim_param *p)
{
    return p->W.dtype == POLAR_DTYPE_F64 ? POLAR_DTYPE_F64 : POLAR_DTYPE_F32;
}

typedef struct arena {
    char *base;
    size_t used;
} arena;

/* The next piece of the arena: no address while base is NULL. */
static pl_mat take(arena *a, polar_dtype dtype, int64_t batch, int64_t rows, int64_t cols, int aligned)
{
    if (aligned) a->used = (a->used + PL_OPTIM_STATE_ALIGN - 1) / PL_OPTIM_STATE_ALIGN * PL_OPTIM_STATE_ALIGN;
    pl_mat m = pl_mat_dense(a->base ? a->base + a->used : NULL, dtype, batch, rows, cols);
    a->used += pl_mat_bytes(&m);
    return m;
}

int pl_optim_mapped(const polar_optim *opt, const pl_optim_param *p)
{
    return p->route == POLAR_ROUTE_MATRIX && pl_optim_rule(opt, p)->map.kind != POLAR_MAP_NONE;
}

/* Its direction lies with those of its kind: a map or a stage sees them as one batch. */
static int ordered(const polar_optim *opt, const pl_optim_param *p)
{
    return pl_optim_mapped(opt, p) || pl_optim_staged(opt, p);
}

/* The map sees both side by side. */
static int same_batch(const polar_optim *opt, const pl_optim_param *a, const pl_optim_param *b)
{
    return opt->group[a->group].map_set == opt->group[b->group].map_set && !a->schur_group &&
           !b->schur_group && a->rows / a->row_blocks == b->rows / b->row_blocks && a->cols == b->cols &&
           state_dtype(a) == state_dtype(b);
}

static void point_direction(polar_optim *opt, arena *work, int64_t i, int aligned)
{
    pl_optim_param *p = &opt->parts[i];
    p->D = take(work, state_dtype(p), opt->members, p->rows, p->cols, aligned);
    if (ordered(opt, p)) opt->order[opt->order_count++] = i;
}

/* Picked lines: which they are; and, in the order of the directions, matrices of them for the map. */
static void point_lines(polar_optim *opt, arena *work)
{
    for (int64_t i = 0; i < opt->part_count; i++) {
        pl_optim_param *p = &opt->parts[i];
        if (pl_optim_picks(opt, p))
            p->L = take(work, POLAR_DTYPE_F64, opt->members * p->row_blocks, 1, pl_optim_lines(p), 1);
    }
    const pl_optim_param *last = NULL;
    for (int64_t k = 0; k < opt->order_count; k++) {
        pl_optim_param *p = &opt->parts[opt->order[k]];
        if (!pl_optim_picks(opt, p) || !pl_optim_mapped(opt, p) || p->rows * p->cols == 0) continue;
        const int64_t count = pl_optim_picked(opt, p), rows = p->rows / p->row_blocks;
        const int columns = pl_optim_picks_columns(p),
                  follows = last && last->group == p->group && same_batch(opt, last, p);
        p->R = take(work, state_dtype(p), opt->members * p->row_blocks, columns ? rows : count,
                    columns ? count : p->cols, !follows);
        last = p;
    }
}

/* What a rule has beside its directions, in their order: moments of the map's results, which are kept; copies
 * of what the map was given, products of matrices. */
static void point_stages(polar_optim *opt, arena *kept, arena *work)
{
    const pl_optim_param *last = NULL;
    for (int64_t k = 0; k < opt->order_count; k++) {
        pl_optim_param *p = &opt->parts[opt->order[k]];
        const polar_rule *r = pl_optim_rule(opt, p);
        const int cols = pl_optim_post_columns(r, p->rows / p->row_blocks, p->cols),
                  entries = r->post == POLAR_POST_ENTRY_MOMENT,
                  aligned = !last || last->group != p->group || !same_batch(opt, last, p);
        if (pl_post_norms(r)) p->P = take(kept, state_dtype(p), opt->members, 1, p->row_blocks, aligned);
        else if (pl_optim_post_moment(r))
            p->P = take(kept, state_dtype(p), opt->members,
                        entries ? p->rows
                        : cols  ? p->row_blocks
                                : 1,
                        entries || cols ? p->cols : p->rows, aligned);
        last = p;
    }
    last = NULL;
    for (int64_t k = 0; k < opt->order_count; k++) {
        pl_optim_param *p = &opt->parts[opt->order[k]];
        const polar_rule *r = pl_optim_rule(opt, p);
        if ((r->scale == POLAR_SCALE_NUCLEAR && pl_optim_mapped(opt, p)) || pl_optim_again(opt, p))
            p->U = take(work, state_dtype(p), opt->members, p->rows, p->cols,
                        !last || last->group != p->group || !same_batch(opt, last, p));
        last = p;
    }
    point_lines(opt, work);
    for (int64_t i = 0; i < opt->part_count; i++) {
        pl_optim_param *p = &opt->parts[i];
        const polar_rule *r = pl_optim_rule(opt, p);
        if (p->route == POLAR_ROUTE_MATRIX && (pl_apply_looks(r) || pl_post_norms(r)))
            p->B = take(work, POLAR_DTYPE_F64, opt->members * p->row_blocks, 1, 4, 1);
    }
}

/* Part i, the first of its kind, and side by side with it every later one of its shape (a Schur block stays
 * alone). */
static void point_batch(polar_optim *opt, arena *work, int64_t i)
{
    for (int64_t j = i; j < opt->part_count; j++) {
        const pl_optim_param *p = &opt->parts[j];
        if (j == i || (ordered(opt, p) && same_batch(opt, &opt->parts[i], p)))
            point_direction(opt, work, j, j == i);
    }
}

/* Directions of one map and shape lie side by side, so that the map sees them as one batch; Schur blocks
 * follow, group by group. */
static void point_directions(polar_optim *opt, arena *work)
{
    opt->order_count = 0;
    for (int64_t i = 0; i < opt->part_count; i++)
        if (!ordered(opt, &opt->parts[i]) && pl_optim_keeps_direction(opt, &opt->parts[i]))
            point_direction(opt, work, i, 1);
    for (int64_t set = 0; set < opt->groups; set++)
        for (int64_t i = 0; i < opt->part_count && opt->group[set].map_set == set; i++) {
            const pl_optim_param *p = &opt->parts[i];
            int leads = ordered(opt, p) && !p->schur_group && opt->group[p->group].map_set == set;
            for (int64_t j = 0; j < i && leads; j++)
                leads = !(ordered(opt, &opt->parts[j]) && same_batch(opt, &opt->parts[j], p));
            if (leads) point_batch(opt, work, i);
        }
    for (int64_t i = 0; i < opt->part_count; i++) {
        const pl_optim_param *p = &opt->parts[i];
        int leads = ordered(opt, p) && p->schur_group;
        for (int64_t j = 0; j < i && leads; j++)
            leads = opt->parts[j].schur_group != p->schur_group || !ordered(opt, &opt->parts[j]);
        for (int64_t j = i; j < opt->part_count && leads; j++)
            if (ordered(opt, &opt->parts[j]) && opt->parts[j].schur_group == p->schur_group)
                point_batch(opt, work, j);
    }
}

/* One of its parts has a second moment. */
static int any_second_moment(const polar_optim *opt, const pl_optim_param *p)
{
    for (int64_t k = p->first_part; k < p->first_part + p->part_count; k++)
        if (pl_optim_second_moment(opt, &opt->parts[k])) return 1;
    return 0;
}

/* Its second moment lies with those of the matrices that are seen as one batch, not with its parameter's. */
static int moves_with_kron(const polar_optim *opt, const pl_optim_param *p)
{
    const pl_optim_param *part = &opt->parts[p->first_part];
    return !p->block_count && pl_optim_kron(opt, part) && pl_optim_second_moment(opt, part);
}

/* Of Kronecker rules, left and right: the factors' moments and eigenvectors, square; what becomes of the
 * eigenvalues, a line. */
static void point_kron(polar_optim *opt, pl_optim_param *p, int kind, arena *kept, int aligned)
{
    const polar_precondition rule = pl_optim_rule(opt, p)->precondition;
    const int side = kind % 2;
    const int64_t n = side ? p->cols : p->rows / p->row_blocks, rows = p->row_blocks * n;
    if (kind < 2) p->K[side] = take(kept, POLAR_DTYPE_F64, opt->members, rows, n, aligned);
    else if (kind < 4) p->Q[side] = take(kept, state_dtype(p), opt->members, rows, n, aligned);
    else if (kind < 6 && (!pl_precondition_soap(rule) || rule == POLAR_PRECONDITION_KL_SOAP))
        p->F[side] =
            take(kept, POLAR_DTYPE_F64, opt->members, side ? p->row_blocks : 1, side ? n : rows, aligned);
    else if (kind == 6 && moves_with_kron(opt, &opt->params[p->param]))
        opt->params[p->param].V = take(kept, state_dtype(p), opt->members, p->rows, p->cols, aligned);
}

/* In the order of the directions, so that matrices of one shape lie side by side, kind by kind. */
static void point_krons(polar_optim *opt, arena *kept)
{
    for (int kind = 0; kind < 7; kind++) {
        const pl_optim_param *last = NULL;
        for (int64_t k = 0; k < opt->order_count; k++) {
            pl_optim_param *p = &opt->parts[opt->order[k]];
            if (!pl_optim_kron(opt, p)) continue;
            point_kron(opt, p, kind, kept, !last || last->group != p->group || !same_batch(opt, last, p));
            last = p;
        }
    }
}

/* Measures with both NULL, points with the real ones: the same function. */
pl_optim_bytes pl_optim_point_memory(polar_optim *opt, void *state, void *work_memory)
{
    arena kept = {state, 0}, work = {work_memory, 0};
    for (int64_t i = 0; i < opt->n; i++) {
        pl_optim_param *p = &opt->params[i];
        p->M = take(&kept, state_dtype(p), opt->members, p->rows, p->cols, 1);
        if (any_second_moment(opt, p) && !moves_with_kron(opt, p))
            p->V = take(&kept, state_dtype(p), opt->members, p->rows, p->cols, 1);
        if (p->W.dtype == POLAR_DTYPE_BF16)
            p->master = take(&kept, POLAR_DTYPE_F32, opt->members, p->rows, p->cols, 1);
        for (int64_t k = p->first_part; k < p->first_part + p->part_count && opt->o.measure; k++)
            opt->parts[k].N = take(&work, POLAR_DTYPE_F64, 1, 1, 2, 1);
    }
    point_directions(opt, &work);
    point_krons(opt, &kept);
    for (int64_t i = 0; i < opt->n; i++) pl_optim_parts_point(opt, &opt->params[i]);
    point_stages(opt, &kept, &work);
    for (int64_t i = 0; i < opt->n && opt->own_counts; i++)
        opt->params[i].T = take(&kept, POLAR_DTYPE_F64, opt->members, 1, 2, i == 0); /* all in one piece */
    if (opt->own_counts) opt->rest_counts = take(&kept, POLAR_DTYPE_F64, opt->rests * opt->members, 1, 2, 0);
    if (opt->own_counts) opt->flags = take(&work, POLAR_DTYPE_F32, opt->members, 1, 1, 1);
    return (pl_optim_bytes){kept.used, work.used};
}

/* Bases begin as identities and their factors as ones, in the image of a state that begins with zeros. */
void pl_optim_fill_bases(const polar_optim *opt, char *image)
{
    for (int64_t i = 0; i < opt->part_count; i++)
        for (int side = 0; side < 2; side++) {
            const pl_mat *Q = &opt->parts[i].Q[side], *F = &opt->parts[i].F[side];
            for (int64_t row = 0; Q->data && row < Q->batch * Q->rows; row++)
                pl_store_f64(image + ((char *)Q->data - (char *)opt->state), Q->dtype,
                             row * Q->cols + row % Q->cols, 1);
            for (int64_t k = 0; F->data && k < F->batch * F->rows * F->cols; k++)
                pl_store_f64(image + ((char *)F->data - (char *)opt->state), F->dtype, k, 1);
        }
}

/* Moments begin at zero, masters as their weights, nothing moves until the first step is prepared. A state
 * that lies elsewhere begins with polar_optim_restart. */
polar_status pl_optim_fill_memory(polar_optim *opt)
{
    pl_queue *q;
    const size_t held = polar_optim_state_bytes(opt);
    void *zeros = pl_calloc(1, held ? held : 1);
    PL_NEED(zeros, POLAR_E_NOMEM, "%zu bytes of state", held);
    polar_status st = polar_queue_create(&q, opt->dev, NULL);
    if (!opt->o.placed) pl_optim_fill_bases(opt, zeros); /* the state lies first */
    if (st == POLAR_OK) {
        polar_queue_upload(q, opt->memory, zeros, held);
        pl_optim_live_begin(opt, q);
        if (!opt->o.placed) st = polar_optim_reload_weights(opt, q);
        if (st == POLAR_OK) st = polar_queue_sync(q);
        polar_queue_destroy(q);
    }
    pl_free(zeros);
    return st;
}
