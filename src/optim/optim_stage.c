/* optim_stage.c -- what a rule does between its direction and its step beside the polar map: equilibration
 * and signs before it, moments of what it returned and scales that look at it after it, and other ways to
 * apply it (docs/rules.md).
 *
 * Directions of one map and shape lie side by side, and so do the moments that belong to them: where one row
 * of live values serves all, they are one call.
 */
#include <math.h>

#include "device/backend.h"
#include "optim/optim_impl.h"

int pl_optim_staged(const polar_optim *opt, const pl_optim_param *p)
{
    const polar_rule *r = pl_optim_rule(opt, p);
    if (p->route != POLAR_ROUTE_MATRIX) return 0;
    return r->precondition >= POLAR_PRECONDITION_ROWS || r->post != POLAR_POST_NONE ||
           (r->map.kind != POLAR_MAP_NONE && pl_scale_looks(r->scale));
}

int pl_optim_picks(const polar_optim *opt, const pl_optim_param *p)
{
    return p->route == POLAR_ROUTE_MATRIX && pl_optim_rule(opt, p)->momentum == POLAR_MOMENTUM_PICKED;
}

int pl_optim_uncut(const polar_optim *opt, const pl_optim_param *p)
{
    return p->block_count || pl_optim_mapped(opt, p) || pl_optim_staged(opt, p) || pl_optim_picks(opt, p) ||
           (p->route == POLAR_ROUTE_MATRIX && pl_apply_looks(pl_optim_rule(opt, p)));
}

int pl_optim_plain(const polar_optim *opt, const pl_optim_param *p)
{
    const polar_rule *r = pl_optim_rule(opt, p);
    return !pl_optim_staged(opt, p) && r->precondition <= POLAR_PRECONDITION_ADAM &&
           (r->apply == POLAR_APPLY_DECOUPLED || r->apply == POLAR_APPLY_CONSTRAINED);
}

int pl_optim_post_moment(const polar_rule *r)
{
    return r->post != POLAR_POST_NONE && r->post != POLAR_POST_UNWHITEN && r->post != POLAR_POST_BALANCE;
}

int pl_optim_fused(const polar_optim *opt, const pl_optim_param *p)
{
    const polar_rule *r = pl_optim_rule(opt, p);
    return r->momentum < POLAR_MOMENTUM_PICKED && r->precondition <= POLAR_PRECONDITION_ADAM &&
           r->post <= POLAR_POST_LONG_MOMENT && !pl_scale_looks(r->scale);
}

int pl_optim_post_columns(const polar_rule *r, int64_t rows, int64_t cols)
{
    return pl_post_columns(r->post, rows, cols);
}

/* ---- calls -------------------------------------------------------------------------------------- */

/* Matrices that one call takes: of neighbours, of a parameter, or of one member of it. Factors of lines: the
 * walk's room for them, and how many numbers of it are taken. */
typedef struct stage {
    const polar_rule *rule;
    pl_mat D, P, U, live;
    double *lines;
    int64_t *taken;
} stage;

typedef void (*stage_fn)(pl_queue *q, const stage *s);

/* The moments of a parameter, a matrix's in one piece. */
static pl_mat moments_of(const pl_optim_param *p, const polar_rule *r)
{
    const int64_t blocks = p->P.batch * p->row_blocks, rows = p->rows / p->row_blocks;
    if (pl_post_norms(r)) return pl_mat_dense(p->P.data, p->P.dtype, blocks, 1, 1);
    if (!p->P.data || r->post == POLAR_POST_ENTRY_MOMENT) return pl_optim_blocks(p->P, p);
    return pl_mat_dense(p->P.data, p->P.dtype, blocks, 1,
                        pl_optim_post_columns(r, rows, p->cols) ? p->cols : rows);
}

pl_mat pl_optim_moments(const polar_optim *opt, const pl_optim_param *p)
{
    return moments_of(p, pl_optim_rule(opt, p));
}

static stage stage_of(const polar_optim *opt, const pl_optim_param *p)
{
    const polar_rule *r = pl_optim_rule(opt, p);
    return (stage){.rule = r,
                   .D = pl_optim_blocks(p->D, p),
                   .P = moments_of(p, r),
                   .U = pl_optim_blocks(p->U, p),
                   .live = pl_optim_live_of(opt, p)};
}

static int behind(const pl_mat *a, const pl_mat *b)
{
    return !a->data || (char *)a->data + pl_mat_bytes(a) == (char *)b->data;
}

/* b continues a: the same rule and live row, the same shape, the next memory. */
static int continues(const polar_optim *opt, const stage *a, const stage *b)
{
    return opt->members == 1 && !opt->own_counts && a->rule == b->rule && a->D.dtype == b->D.dtype &&
           a->D.rows == b->D.rows && a->D.cols == b->D.cols && behind(&a->D, &b->D) && behind(&a->P, &b->P) &&
           behind(&a->U, &b->U);
}

static pl_mat some(pl_mat m, int64_t first, int64_t count)
{
    return m.data ? pl_mat_at(m, first, count) : m;
}

/* A live row serves all matrices of a call or has one each, so members that have blocks come one by one. */
static void call(pl_queue *q, const stage *s, stage_fn fn)
{
    const int64_t members = s->live.batch, each = s->D.batch / members;
    if (members == 1 || each == 1) {
        fn(q, s);
        return;
    }
    for (int64_t k = 0; k < members; k++) {
        stage one = *s;
        one.D = some(s->D, k * each, each), one.P = some(s->P, k * each, each);
        one.U = some(s->U, k * each, each), one.live = pl_mat_at(s->live, k, 1);
        fn(q, &one);
    }
}

/* Returns how many numbers of `lines` were taken. */
static int64_t for_stages(polar_optim *opt, pl_queue *q, stage_fn fn, double *lines)
{
    stage open = {0};
    int64_t taken = 0;
    for (int64_t k = 0; k < opt->order_count; k++) {
        const pl_optim_param *p = &opt->parts[opt->order[k]];
        if (p->whole || !pl_optim_staged(opt, p) || pl_optim_missing(p) || p->rows * p->cols == 0) continue;
        stage next = stage_of(opt, p);
        next.lines = lines, next.taken = &taken;
        if (open.rule && continues(opt, &open, &next)) {
            open.D.batch += next.D.batch, open.P.batch += next.P.batch, open.U.batch += next.U.batch;
            continue;
        }
        if (open.rule) call(q, &open, fn);
        open = next;
    }
    if (open.rule) call(q, &open, fn);
    return taken;
}

/* ---- before the map ----------------------------------------------------------------------------- */

static pl_mat line_room(pl_queue *q, const pl_mat *X, int columns)
{
    return pl_scratch_mat(q, POLAR_DTYPE_F64, X->batch, 1, columns ? X->cols : X->rows);
}

static void before(pl_queue *q, const stage *s)
{
    const polar_precondition kind = s->rule->precondition;
    const int both = kind == POLAR_PRECONDITION_BOTH,
              balance = s->rule->post == POLAR_POST_BALANCE && s->rule->map.kind != POLAR_MAP_NONE,
              rows = kind == POLAR_PRECONDITION_ROWS || both || (balance && s->D.rows > s->D.cols),
              cols = kind == POLAR_PRECONDITION_COLUMNS || both || (balance && s->D.rows < s->D.cols);
    pl_scratch_mark mark = pl_scratch_begin(q);
    pl_mat R = rows ? line_room(q, &s->D, 0) : (pl_mat){0}, C = cols ? line_room(q, &s->D, 1) : (pl_mat){0};
    if (rows) PL_CALL(line_factors, q, .F = R, .X = s->D, .live = s->live, .kind = PL_LINE_EQUILIBRATE);
    if (cols)
        PL_CALL(line_factors, q, .F = C, .X = s->D, .live = s->live, .trans = 1, .kind = PL_LINE_EQUILIBRATE);
    if (rows || cols) PL_CALL(scale_lines, q, .Y = s->D, .X = s->D, .R = R, .C = C);
    if (kind == POLAR_PRECONDITION_SIGN) PL_CALL(entry_stage, q, .Y = s->D, .X = s->D, .live = s->live);
    if (s->U.data) PL_CALL(copy, q, .Y = s->U, .X = s->D);
    pl_scratch_end(q, mark);
}

int pl_optim_picks_columns(const pl_optim_param *p)
{
    return p->rows / p->row_blocks > p->cols;
}

int64_t pl_optim_lines(const pl_optim_param *p)
{
    return pl_optim_picks_columns(p) ? p->cols : p->rows / p->row_blocks;
}

int64_t pl_optim_picked(const polar_optim *opt, const pl_optim_param *p)
{
    return (int64_t)ceil(pl_optim_rule(opt, p)->fraction * (double)pl_optim_lines(p));
}

/* The momentum of picked lines; `direction` has all others. */
static void pick(polar_optim *opt, pl_queue *q, const pl_optim_param *p)
{
    const pl_mat D = pl_optim_blocks(p->D, p), M = pl_optim_blocks(p->M, p), G = pl_optim_blocks(p->G, p),
                 live = pl_optim_live_of(opt, p);
    const int64_t calls = p->row_blocks == 1 ? 1 : opt->members, each = D.batch / calls;
    for (int64_t k = 0; k < calls; k++)
        PL_CALL(pick_lines, q, .D = pl_mat_at(D, k * each, each), .F = pl_mat_at(p->L, k * each, each),
                .M = pl_mat_at(M, k * each, each), .G = pl_mat_at(G, k * each, each),
                .live = calls == 1 ? live : pl_mat_at(live, k, 1), .trans = pl_optim_picks_columns(p),
                .count = pl_optim_picked(opt, p));
}

void pl_optim_lines_move(polar_optim *opt, pl_queue *q, int again, int back)
{
    pl_queue_overlap_begin(q);
    for (int64_t i = 0; i < opt->part_count; i++) {
        const pl_optim_param *p = &opt->parts[i];
        if (!p->R.data || pl_optim_missing(p) || (again && !pl_optim_again(opt, p))) continue;
        const pl_mat D = pl_optim_blocks(p->D, p);
        PL_CALL(move_lines, q, .Y = back ? D : p->R, .X = back ? p->R : D, .F = p->L,
                .trans = pl_optim_picks_columns(p), .back = back);
    }
    pl_queue_overlap_end(q);
}

int pl_optim_rooted(const polar_optim *opt, const pl_optim_param *p)
{
    return p->route == POLAR_ROUTE_MATRIX && p->rows * p->cols > 0 &&
           pl_optim_rule(opt, p)->precondition == POLAR_PRECONDITION_ROOT;
}

void pl_optim_stages_before(polar_optim *opt, pl_queue *q)
{
    pl_queue_overlap_begin(q);
    for (int64_t i = 0; i < opt->part_count; i++) {
        const pl_optim_param *p = &opt->parts[i];
        if (pl_optim_picks(opt, p) && !pl_optim_missing(p) && p->rows * p->cols > 0) pick(opt, q, p);
    }
    pl_queue_overlap_end(q);
    pl_optim_kron_before(opt, q);
    for (int64_t i = 0; i < opt->part_count; i++) {
        const pl_optim_param *p = &opt->parts[i];
        if (pl_optim_rooted(opt, p) && !pl_optim_missing(p))
            PL_CALL(entry_stage, q, .Y = p->D, .V = p->V, .X = p->D, .G = p->G,
                    .live = pl_optim_live_of(opt, p), .root = 1);
    }
    for_stages(opt, q, before, NULL);
    for (int64_t i = 0; i < opt->part_count; i++) {
        const pl_optim_param *p = &opt->parts[i];
        if (p->B.data && !pl_optim_missing(p) && pl_post_norms(pl_optim_rule(opt, p)))
            PL_CALL(inner, q, .N = p->B, .X = pl_optim_blocks(p->G, p), .Y = pl_optim_blocks(p->D, p));
    }
}

/* ---- once more ---------------------------------------------------------------------------------- */

int pl_optim_again(const polar_optim *opt, const pl_optim_param *p)
{
    return pl_optim_mapped(opt, p) && pl_optim_rule(opt, p)->post == POLAR_POST_BALANCE &&
           p->rows / p->row_blocks != p->cols;
}

/* D = u with its long side's lines over the norms of D's. */
static void again(pl_queue *q, const stage *s)
{
    const int cols = s->D.rows < s->D.cols;
    pl_scratch_mark mark = pl_scratch_begin(q);
    if (s->rule->post == POLAR_POST_BALANCE && s->D.rows != s->D.cols && s->U.data) {
        pl_mat F = line_room(q, &s->D, cols), none = {0};
        PL_CALL(line_factors, q, .F = F, .X = s->D, .live = s->live, .trans = cols,
                .kind = PL_LINE_EQUILIBRATE);
        PL_CALL(scale_lines, q, .Y = s->D, .X = s->U, .R = cols ? none : F, .C = cols ? F : none);
    }
    pl_scratch_end(q, mark);
}

int pl_optim_stages_again(polar_optim *opt, pl_queue *q)
{
    int any = 0;
    for (int64_t k = 0; k < opt->order_count; k++) any |= pl_optim_again(opt, &opt->parts[opt->order[k]]);
    if (any) for_stages(opt, q, again, NULL);
    return any;
}

/* ---- after it ----------------------------------------------------------------------------------- */

static int has_line_moment(const polar_rule *r)
{
    return pl_optim_post_moment(r) && r->post != POLAR_POST_ENTRY_MOMENT && !pl_post_norms(r);
}

/* F, one behind the other in the order of the walk. */
static pl_mat lines_of(const stage *s)
{
    const int64_t lines = pl_optim_post_columns(s->rule, s->D.rows, s->D.cols) ? s->D.cols : s->D.rows;
    pl_mat F = pl_mat_dense(s->lines ? s->lines + *s->taken : NULL, POLAR_DTYPE_F64, s->D.batch, 1, lines);
    *s->taken += s->D.batch * lines;
    return F;
}

static void line_count(pl_queue *q, const stage *s)
{
    (void)q;
    if (has_line_moment(s->rule)) lines_of(s);
}

static void line_moments(pl_queue *q, const stage *s)
{
    if (has_line_moment(s->rule))
        PL_CALL(line_factors, q, .F = lines_of(s), .V = s->P, .X = s->D, .live = s->live,
                .trans = pl_optim_post_columns(s->rule, s->D.rows, s->D.cols),
                .kind = s->rule->post == POLAR_POST_LONG_MOMENT ? PL_LINE_CLAMPED : PL_LINE_MOMENT);
}

static void line_scales(pl_queue *q, const stage *s)
{
    if (!has_line_moment(s->rule)) return;
    pl_mat F = lines_of(s);
    if (pl_optim_post_columns(s->rule, s->D.rows, s->D.cols))
        PL_CALL(scale_lines, q, .Y = s->D, .X = s->D, .C = F);
    else PL_CALL(scale_lines, q, .Y = s->D, .X = s->D, .R = F);
}

/* Moments of lines: factors of all matrices, then all matrices times theirs. */
static void after_lines(polar_optim *opt, pl_queue *q)
{
    const int64_t numbers = for_stages(opt, q, line_count, NULL);
    if (!numbers) return;
    pl_scratch_mark mark = pl_scratch_begin(q);
    double *lines = pl_scratch_take(q, (size_t)numbers * sizeof *lines);
    pl_queue_overlap_begin(q);
    for_stages(opt, q, line_moments, lines);
    pl_queue_overlap_end(q);
    pl_queue_overlap_begin(q);
    for_stages(opt, q, line_scales, lines);
    pl_queue_overlap_end(q);
    pl_scratch_end(q, mark);
}

static void after(pl_queue *q, const stage *s)
{
    const polar_rule *r = s->rule;
    pl_scratch_mark mark = pl_scratch_begin(q);
    if (r->post == POLAR_POST_ENTRY_MOMENT)
        PL_CALL(entry_stage, q, .Y = s->D, .V = s->P, .X = s->D, .live = s->live);
    if (r->map.kind != POLAR_MAP_NONE && pl_scale_looks(r->scale)) {
        pl_mat N = pl_scratch_mat(q, POLAR_DTYPE_F64, s->D.batch, 1, 4);
        pl_mat norm = N;
        norm.cols = 2;
        if (r->scale == POLAR_SCALE_NUCLEAR) PL_CALL(inner, q, .N = N, .X = s->U, .Y = s->D);
        else PL_CALL(frob, q, .N = norm, .X = s->D, .weight = 1);
        PL_CALL(normalise, q, .Y = s->D, .X = s->D, .N = norm);
    }
    pl_scratch_end(q, mark);
}

/* D times a number of its matrix. */
static void norm_moments(polar_optim *opt, pl_queue *q, const pl_optim_param *p)
{
    const polar_rule *r = pl_optim_rule(opt, p);
    const pl_mat V = moments_of(p, r), live = pl_optim_live_of(opt, p), D = pl_optim_blocks(p->D, p);
    const int64_t calls = p->row_blocks == 1 ? 1 : opt->members, each = V.batch / calls;
    pl_scratch_mark mark = pl_scratch_begin(q);
    pl_mat F = pl_scratch_mat(q, POLAR_DTYPE_F64, V.batch, 1, 2);
    for (int64_t k = 0; k < calls; k++)
        PL_CALL(norm_moment, q, .F = pl_mat_at(F, k * each, each), .V = pl_mat_at(V, k * each, each),
                .N = pl_mat_at(p->B, k * each, each), .live = calls == 1 ? live : pl_mat_at(live, k, 1),
                .kind = r->post == POLAR_POST_NORM_SUM ? PL_NORM_SUM : PL_NORM_MOMENT, .clip = r->clip);
    PL_CALL(normalise, q, .Y = D, .X = D, .N = F);
    pl_scratch_end(q, mark);
}

void pl_optim_stages_after(polar_optim *opt, pl_queue *q)
{
    pl_optim_kron_after(opt, q);
    for (int64_t i = 0; i < opt->part_count; i++) {
        const pl_optim_param *p = &opt->parts[i];
        if (p->B.data && !pl_optim_missing(p) && pl_post_norms(pl_optim_rule(opt, p)))
            norm_moments(opt, q, p);
    }
    after_lines(opt, q);
    for_stages(opt, q, after, NULL);
    pl_queue_overlap_begin(q);
    for (int64_t i = 0; i < opt->part_count; i++) {
        const pl_optim_param *p = &opt->parts[i];
        if (p->B.data && !p->whole && !pl_optim_missing(p) && pl_apply_looks(pl_optim_rule(opt, p)))
            PL_CALL(inner, q, .N = p->B, .X = pl_optim_blocks(pl_optim_weight(p), p),
                    .Y = pl_optim_blocks(p->D, p));
    }
    pl_queue_overlap_end(q);
}

/* ---- the step ----------------------------------------------------------------------------------- */

/* A hyperball, a floor and a brake are each block's own. */
static void apply_norms(polar_optim *opt, pl_queue *q, const pl_optim_param *p)
{
    const pl_mat W = pl_optim_blocks(pl_optim_weight(p), p), D = pl_optim_blocks(p->D, p),
                 live = pl_optim_live_of(opt, p);
    const int64_t calls = p->row_blocks == 1 ? 1 : opt->members, each = W.batch / calls;
    for (int64_t k = 0; k < calls; k++)
        PL_CALL(apply_step, q, .W = pl_mat_at(W, k * each, each), .D = pl_mat_at(D, k * each, each),
                .N = pl_mat_at(p->B, k * each, each), .live = calls == 1 ? live : pl_mat_at(live, k, 1),
                .scale = p->scale, .apply = pl_optim_rule(opt, p)->apply,
                .strength = pl_optim_rule(opt, p)->strength);
}

void pl_optim_apply(polar_optim *opt, pl_queue *q, const pl_optim_param *p)
{
    const polar_apply apply =
        p->route == POLAR_ROUTE_MATRIX ? pl_optim_rule(opt, p)->apply : POLAR_APPLY_DECOUPLED;
    if (apply >= POLAR_APPLY_HYPERBALL && p->B.data) apply_norms(opt, q, p);
    else if (apply == POLAR_APPLY_CAUTIOUS)
        PL_CALL(apply_step, q, .W = pl_optim_weight(p), .D = p->D, .live = pl_optim_live_of(opt, p),
                .scale = p->scale, .apply = apply);
    else /* constrained: the live row's decay is 1 */
        PL_CALL(decay_step, q, .W = pl_optim_weight(p), .D = p->D, .live = pl_optim_live_of(opt, p),
                .scale = p->scale);
}
