/* op_expect_stage.c -- what the stages of rules may return, wrong ops that must be caught, wrong calls that
 * must be refused. */
#include "op_calls.h"
#include "op_model_sums.h"

#define F64 POLAR_DTYPE_F64

/* Live value j of matrix b, operand o. */
static double live(const pl_op_run *r, int o, int64_t b, int64_t j)
{
    return pl_op_run_before(r, o, r->mat[o].batch == 1 ? 0 : b, 0, j);
}

static pl_iv not_negative(pl_iv x)
{
    if (x.lo < 0) x.lo = 0;
    return x;
}

/* ---- line_factors ---- */

/* The sum of the squares of line l. */
static pl_iv line_square(const pl_op_run *r, int64_t b, int64_t l)
{
    const pl_mat *X = &r->mat[2];
    const int64_t n = r->c.how.trans ? X->rows : X->cols;
    running s = {.whole = 1};
    for (int64_t k = 0; k < n; k++) {
        double x = r->c.how.trans ? pl_op_run_before(r, 2, b, k, l) : pl_op_run_before(r, 2, b, l, k);
        add_term(&s, x, x);
    }
    return not_negative(end_sum(&s, (long double)(along_row(n) + 1), F64));
}

/* The moment of line l. */
static pl_iv line_moment(const pl_op_run *r, int64_t b, int64_t l, pl_iv square)
{
    const double beta2 = live(r, 3, b, PL_LIVE_BETA2);
    const int64_t n = r->c.how.trans ? r->mat[2].rows : r->mat[2].cols;
    pl_iv mean = pl_iv_in(pl_iv_div(square, pl_iv_point((long double)n)), F64);
    return not_negative(
        fused(pl_iv_point(beta2), at(r, 1, b, 0, l), product(pl_iv_point(1 - beta2), mean, F64), F64));
}

/* What line l is multiplied with before its norm comes back. */
static pl_iv line_factor(const pl_op_run *r, int64_t b, pl_iv v)
{
    const double eps = live(r, 3, b, PL_LIVE_EPS);
    pl_iv root;
    if (v.any || pl_iv_is_nan(v)) return v;
    if (r->c.how.kind == PL_LINE_CLAMPED) {
        if (v.lo < eps) v.lo = eps;
        if (v.hi < eps) v.hi = eps;
        root = pl_iv_in(pl_iv_sqrt(v), F64);
    } else root = sum(pl_iv_in(pl_iv_sqrt(v), F64), pl_iv_point(eps), F64);
    return pl_iv_in(pl_iv_div(pl_iv_point(1), root), F64);
}

/* Result o: 0 F, 1 V. */
MODEL(line_factors)
{
    const int64_t lines = r->mat[0].cols;
    total before = {.s = {0}}, after = {.s = {0}};
    pl_iv square = line_square(r, b, j), f;
    if (r->c.how.kind == PL_LINE_EQUILIBRATE) {
        pl_iv root = pl_iv_in(pl_iv_sqrt(sum(square, pl_iv_point(live(r, 3, b, PL_LIVE_EPS)), F64)), F64);
        return pl_iv_in(pl_iv_div(pl_iv_point(1), root), F64);
    }
    pl_iv v = line_moment(r, b, j, square);
    if (o == 1) return v;
    f = line_factor(r, b, v);
    for (int64_t l = 0; l < lines; l++) {
        pl_iv s = line_square(r, b, l), g = line_factor(r, b, line_moment(r, b, l, s));
        add(&before, s);
        add(&after, product(product(s, g, F64), g, F64));
    }
    pl_iv top = not_negative(end(&before, along_row(lines), F64)),
          bottom = not_negative(end(&after, along_row(lines), F64));
    if (bottom.lo == 0 && bottom.hi == 0) return product(pl_iv_point(0), f, F64);
    if (bottom.lo == 0) return anything; /* squares that vanish beside one another */
    return product(pl_iv_in(pl_iv_sqrt(pl_iv_in(pl_iv_div(top, bottom), F64)), F64), f, F64);
}

/* ---- pick_lines ---- */

#define MOST_LINES 256

/* What is known of the lines of a matrix: 1 picked, 0 not, -1 too near to tell. */
typedef struct {
    const pl_op_run *r;
    int64_t b;
    int picked[MOST_LINES];
} picks;

/* M after the gradient, as M holds it. */
static pl_iv gathered(const pl_op_run *r, int64_t b, int64_t i, int64_t j)
{
    const pl_iv g = product(pl_iv_point(live(r, 4, b, PL_LIVE_GRAD)), at(r, 3, b, i, j), F64);
    return pl_iv_in(sum(at(r, 2, b, i, j), g, F64), r->mat[2].dtype);
}

static void look(picks *p, const pl_op_run *r, int64_t b)
{
    const pl_mat *M = &r->mat[2];
    const int trans = r->c.how.trans != 0;
    const int64_t lines = trans ? M->cols : M->rows, n = trans ? M->rows : M->cols, count = (lines + 3) / 4;
    long double lo[MOST_LINES] = {0}, hi[MOST_LINES] = {0};
    int known = lines <= MOST_LINES;
    for (int64_t l = 0; l < lines && known; l++) {
        for (int64_t k = 0; k < n; k++) {
            pl_iv m = gathered(r, b, trans ? k : l, trans ? l : k);
            known &= !m.any && !pl_iv_is_nan(m) && isfinite(m.lo) && isfinite(m.hi);
            lo[l] += m.lo > 0 ? m.lo : m.hi < 0 ? -m.hi : 0;
            hi[l] += fmaxl(fabsl(m.lo), fabsl(m.hi));
        }
        lo[l] *= 1 - (long double)n * 0x1p-53L, hi[l] *= 1 + (long double)n * 0x1p-53L;
        known &= hi[l] < 1e308L;
    }
    p->r = r, p->b = b;
    for (int64_t l = 0; l < lines && l < MOST_LINES; l++) {
        int64_t surely = 0, perhaps = 0;
        for (int64_t k = 0; k < lines && known; k++)
            if (k != l) surely += lo[k] > hi[l], perhaps += hi[k] >= lo[l];
        p->picked[l] = !known ? -1 : perhaps < count ? 1 : surely >= count ? 0 : -1;
    }
}

/* Result o: 0 D, 1 F, 2 M. */
MODEL(pick_lines)
{
    static picks p; /* of the matrix that was last asked for, whose first entry comes first */
    if (p.r != r || p.b != b || (o == 0 && i == 0 && j == 0)) look(&p, r, b);
    const int64_t l = o == 1 || r->c.how.trans ? j : i;
    const int picked = l < MOST_LINES ? p.picked[l] : -1;
    (void)ct;
    if (picked < 0) return anything;
    if (o == 1) return pl_iv_point(picked);
    const pl_iv m = gathered(r, b, i, j);
    if (o == 0) return picked ? m : pl_iv_point(0);
    return picked ? product(pl_iv_point(live(r, 4, b, PL_LIVE_BETA1)), m, F64) : m;
}

/* ---- move_lines ---- */

/* How many of lines [0, l) are picked. */
static int64_t picked_before(const pl_op_run *r, int64_t b, int64_t l)
{
    int64_t n = 0;
    for (int64_t k = 0; k < l; k++) n += pl_op_run_before(r, 2, b, 0, k) > 0;
    return n;
}

MODEL(move_lines)
{
    const int trans = r->c.how.trans != 0;
    const int64_t l = trans ? j : i, there = trans ? r->mat[1].cols : r->mat[1].rows, lines = r->mat[2].cols;
    int64_t from = 0;
    (void)o, (void)ct;
    if (r->c.how.back) from = pl_op_run_before(r, 2, b, 0, l) > 0 ? picked_before(r, b, l) : there;
    else
        while (from < lines && picked_before(r, b, from + 1) <= l) from++;
    if (from >= there)
        return pl_iv_point(r->c.how.back && !isfinite(pl_op_run_before(r, 1, b, 0, 0)) ? NAN : 0);
    return trans ? at(r, 1, b, i, from) : at(r, 1, b, from, j);
}

/* ---- the others ---- */

MODEL(scale_lines)
{
    pl_iv x = at(r, 1, b, i, j);
    x = product(x, has(r, 2) ? scalar(pl_op_run_before(r, 2, b, 0, i), ct) : pl_iv_point(1), ct);
    return product(x, has(r, 3) ? scalar(pl_op_run_before(r, 3, b, 0, j), ct) : pl_iv_point(1), ct);
}

/* Result o: 0 Y, 1 V. */
MODEL(entry_stage)
{
    const double x = pl_op_run_before(r, 2, b, i, j), beta2 = live(r, 4, b, PL_LIVE_BETA2);
    if (r->c.how.after && live(r, 4, b, PL_LIVE_STEP) <= (double)r->c.how.after)
        return o == 1 || r->c.how.onto ? at(r, o, b, i, j) : anything;
    if (!has(r, 1)) return isfinite(x) ? pl_iv_point((x > 0) - (x < 0)) : pl_iv_point(NAN);
    pl_iv g =
        has(r, 3) ? product(scalar(live(r, 4, b, PL_LIVE_GRAD), ct), at(r, 3, b, i, j), ct) : pl_iv_point(x);
    pl_iv v = fused(scalar(beta2, ct), at(r, 1, b, i, j),
                    product(product(scalar(1 - beta2, ct), g, ct), g, ct), ct);
    if (o == 1) return v;
    if (r->c.how.root)
        return pl_iv_in(
            pl_iv_div(pl_iv_point(x),
                      pl_iv_in(pl_iv_sqrt(sum(v, scalar(live(r, 4, b, PL_LIVE_EPS), ct), ct)), ct)),
            ct);
    pl_iv root = pl_iv_in(pl_iv_sqrt(product(v, scalar(live(r, 4, b, PL_LIVE_C2), ct), ct)), ct);
    return pl_iv_in(pl_iv_div(pl_iv_point(x), sum(root, scalar(live(r, 4, b, PL_LIVE_EPS), ct), ct)), ct);
}

MODEL(inner)
{
    const pl_mat *X = &r->mat[1];
    running s = {.whole = 1};
    if (j == 1) return pl_iv_point(1);
    for (int64_t row = 0; row < X->rows; row++)
        for (int64_t col = 0; col < X->cols; col++)
            add_term(&s, pl_op_run_before(r, j == 3 ? 2 : 1, b, row, col),
                     pl_op_run_before(r, j == 2 ? 1 : 2, b, row, col));
    return end_sum(&s, (long double)(along_row(X->cols) + along_row(X->rows) + 1), F64);
}

/* W' = W - lr R D / ||D|| over its norm, times R: keep W - move D. */
static pl_iv model_ball(const pl_op_run *r, int64_t b, pl_iv w, pl_iv d, double lr, polar_dtype ct)
{
    const pl_iv rate = pl_iv_point(lr), dot = at(r, 2, b, 0, 0);
    if (pl_op_run_before(r, 2, b, 0, 2) == 0 || pl_op_run_before(r, 2, b, 0, 3) == 0)
        return fused(pl_iv_point(0), d, w, ct);
    pl_iv size = pl_iv_in(pl_iv_sqrt(at(r, 2, b, 0, 2)), F64),
          length = pl_iv_in(pl_iv_sqrt(at(r, 2, b, 0, 3)), F64);
    pl_iv cosine = pl_iv_in(pl_iv_div(pl_iv_in(pl_iv_div(dot, size), F64), length), F64);
    pl_iv square =
        sum(sum(pl_iv_point(1), negative(product(product(pl_iv_point(2), rate, F64), cosine, F64)), F64),
            product(rate, rate, F64), F64);
    pl_iv keep = pl_iv_in(pl_iv_div(pl_iv_point(1), pl_iv_in(pl_iv_sqrt(square), F64)), F64);
    pl_iv move = product(product(keep, rate, F64), pl_iv_in(pl_iv_div(size, length), F64), F64);
    return fused(negative(pl_iv_in(move, ct)), d, product(pl_iv_in(keep, ct), w, ct), ct);
}

/* The update floor and the radial brake: keep W - move D. */
static pl_iv model_looks(const pl_op_run *r, int64_t b, pl_iv w, pl_iv d, double lr, polar_dtype ct)
{
    const pl_iv rate = pl_iv_point(lr), scale = pl_iv_point(r->c.how.alpha),
                strength = pl_iv_point(r->c.how.beta), one = pl_iv_point(1),
                size = pl_iv_in(pl_iv_sqrt(at(r, 2, b, 0, 2)), F64),
                length = product(scale, pl_iv_in(pl_iv_sqrt(at(r, 2, b, 0, 3)), F64), F64),
                least = product(strength, size, F64);
    pl_iv keep = sum(one, negative(product(rate, pl_iv_point(live(r, 3, b, PL_LIVE_WD)), F64)), F64),
          move = product(rate, scale, F64);
    if (r->c.how.apply == POLAR_APPLY_UPDATE_FLOOR) {
        if (length.lo > 0 && least.lo > length.hi)
            move = product(move, pl_iv_in(pl_iv_div(least, length), F64), F64);
    } else if (pl_op_run_before(r, 2, b, 0, 2) != 0) {
        const pl_iv radial = pl_iv_in(pl_iv_div(at(r, 2, b, 0, 0), at(r, 2, b, 0, 2)), F64),
                    far = pl_iv_in(pl_iv_div(at(r, 2, b, 0, 3), at(r, 2, b, 0, 2)), F64);
        pl_iv cross = product(product(product(pl_iv_point(2), keep, F64), move, F64), radial, F64),
              square = sum(sum(product(keep, keep, F64), negative(cross), F64),
                           product(product(move, move, F64), far, F64), F64);
        if (square.lo <= 1 && square.hi > 1) return anything;
        if (square.lo > 1) {
            pl_iv growth = pl_iv_in(pl_iv_sqrt(square), F64),
                  left = sum(one, product(strength, sum(growth, negative(one), F64), F64), F64),
                  part = pl_iv_in(pl_iv_div(left, growth), F64);
            keep = product(keep, part, F64), move = product(move, part, F64);
        }
    }
    return fused(negative(pl_iv_in(move, ct)), d, product(pl_iv_in(keep, ct), w, ct), ct);
}

/* Result o: 0 F, 1 V. */
MODEL(norm_moment)
{
    const double eps = live(r, 3, b, PL_LIVE_EPS), beta2 = live(r, 3, b, PL_LIVE_BETA2),
                 lr = live(r, 3, b, PL_LIVE_LR);
    const pl_iv grad = pl_iv_point(live(r, 3, b, PL_LIVE_GRAD)), was = at(r, 1, b, 0, 0),
                norm = product(grad, pl_iv_in(pl_iv_sqrt(at(r, 2, b, 0, 2)), F64), F64),
                square = product(product(grad, grad, F64), at(r, 2, b, 0, 2), F64);
    if (o == 0 && j == 1) return pl_iv_point(1);
    if (r->c.how.kind == PL_NORM_MOMENT) {
        pl_iv v = fused(pl_iv_point(beta2), was, product(pl_iv_point(1 - beta2), square, F64), F64);
        if (o == 1) return v;
        pl_iv root = sum(pl_iv_in(pl_iv_sqrt(not_negative(v)), F64), pl_iv_point(eps), F64);
        return pl_iv_in(pl_iv_div(pl_iv_in(pl_iv_sqrt(at(r, 2, b, 0, 3)), F64), root), F64);
    }
    const pl_iv h = norm.lo > 2.5L ? pl_iv_point(2.5) : norm;
    pl_iv v = fused(h, h, was, F64);
    if (o == 1) return v;
    pl_iv root = pl_iv_in(pl_iv_sqrt(sum(not_negative(v), pl_iv_point(1e-6), F64)), F64),
          f = pl_iv_in(pl_iv_div(h, root), F64);
    if (lr > 0 && f.hi < (long double)(eps / lr)) return pl_iv_point(eps / lr);
    return lr > 0 && f.lo < (long double)(eps / lr) ? anything : f;
}

MODEL(apply_step)
{
    const double lr = live(r, 3, b, PL_LIVE_LR), x = pl_op_run_before(r, 0, b, i, j),
                 y = pl_op_run_before(r, 1, b, i, j);
    const pl_iv w = pl_iv_point(x), d = pl_iv_point(y), rate = scalar(lr, ct);
    if (lr == 0) return w;
    if (r->c.how.apply == POLAR_APPLY_HYPERBALL) return model_ball(r, b, w, d, lr, ct);
    if (r->c.how.apply > POLAR_APPLY_HYPERBALL) return model_looks(r, b, w, d, lr, ct);
    const int decays = (x > 0 && y > 0) || (x < 0 && y < 0);
    pl_iv keep =
        fused(negative(rate), scalar(decays ? live(r, 3, b, PL_LIVE_WD) : 0, ct), pl_iv_point(1), ct);
    return fused(negative(product(rate, scalar(r->c.how.alpha, ct), ct)), d, product(w, keep, ct), ct);
}

/* ---- wrong ops that must be caught, wrong calls that must be refused ---- */

/* The norm is not kept. */
static void norm_forgotten(pl_queue *q, const pl_args_line_factors *a)
{
    pl_ref_ops.line_factors(q, a);
    scale_all(&a->F, 1.001);
}

static void columns_for_rows(pl_queue *q, const pl_args_line_factors *a)
{
    pl_args_line_factors b = *a;
    pl_ref_ops.line_factors(q, a);
    b.X.rows = b.F.cols = a->X.rows < a->X.cols ? a->X.rows : a->X.cols;
    b.X.cols = b.V.cols = b.F.cols;
    b.trans = !a->trans;
    pl_ref_ops.line_factors(q, &b);
}

static const fault line_factors_faults[] = {
    {"lines that do not keep their norm", "line_factors f32 3x7x13 moment V 0.9,0.95 eps 1e-10",
     (op_fn)norm_forgotten},
    {"columns in the place of rows", "line_factors f32 3x7x13 moment V 0.9,0.95 eps 1e-10",
     (op_fn)columns_for_rows},
};

static const bad_call line_factors_bad[] = {
    {0, COLS, 0, POLAR_E_SHAPE},   {0, FORMAT, 0, POLAR_E_DTYPE}, {1, COLS, 0, POLAR_E_SHAPE},
    {1, NO_DATA, 0, POLAR_E_ARG},  {2, BATCH, 0, POLAR_E_SHAPE},  {3, COLS, 0, POLAR_E_SHAPE},
    {3, FORMAT, 0, POLAR_E_DTYPE}, {0, MODE, 1, POLAR_E_ARG},     {1, ONTO, 2, POLAR_E_ARG},
};

const op_calls pl_calls_line_factors = {
    "line_factors f32 3x7x13 trans moment per_matrix V 0.9,0.75 eps 0.125", LIST(line_factors_bad),
    LIST(line_factors_faults)};

/* The smallest lines in the place of the largest: M and G come with another sign, and so do the sums. */
static void first_lines(pl_queue *q, const pl_args_pick_lines *a)
{
    pl_ref_ops.pick_lines(q, a);
    double x = get(&a->F, 0, 0, 0);
    for (int64_t l = 0; l + 1 < a->F.cols; l++) put(&a->F, 0, 0, l, get(&a->F, 0, 0, l + 1));
    put(&a->F, 0, 0, a->F.cols - 1, x);
}

/* What was picked stays as it is. */
static void nothing_lost(pl_queue *q, const pl_args_pick_lines *a)
{
    pl_args_pick_lines b = *a;
    double rows[3 * PL_LIVE_COLS];
    memcpy(rows, a->live.data, sizeof(double) * PL_LIVE_COLS * (size_t)a->live.batch);
    for (int64_t i = 0; i < a->live.batch; i++) rows[i * PL_LIVE_COLS + PL_LIVE_BETA1] = 1;
    b.live.data = rows;
    pl_ref_ops.pick_lines(q, &b);
}

static const fault pick_lines_faults[] = {
    {"other lines", "pick_lines f64 3x7x13 0.95,0.9", (op_fn)first_lines},
    {"picked lines that stay as they are", "pick_lines f64 3x7x13 per_matrix 0.75,0.9", (op_fn)nothing_lost},
};

static const bad_call pick_lines_bad[] = {
    {0, ROWS, 0, POLAR_E_SHAPE}, {1, COLS, 0, POLAR_E_SHAPE},   {1, FORMAT, 0, POLAR_E_DTYPE},
    {3, COLS, 0, POLAR_E_SHAPE}, {4, FORMAT, 0, POLAR_E_DTYPE}, {4, BATCH, 0, POLAR_E_SHAPE},
    {0, ONTO, 2, POLAR_E_ARG},   {2, ONTO, 3, POLAR_E_ARG},
};

const op_calls pl_calls_pick_lines = {"pick_lines f64 3x7x13 per_matrix 0.75,0.9", LIST(pick_lines_bad),
                                      LIST(pick_lines_faults)};

/* All lines in the place of those that are picked. */
static void every_line(pl_queue *q, const pl_args_move_lines *a)
{
    double ones[256];
    pl_args_move_lines b = *a;
    for (int k = 0; k < 256; k++) ones[k] = 1;
    b.F.data = ones, b.F.bs = 0;
    pl_ref_ops.move_lines(q, &b);
}

/* What is not picked stays as it is. */
static void nothing_cleared(pl_queue *q, const pl_args_move_lines *a)
{
    pl_ref_ops.move_lines(q, a);
    for (int64_t l = 0; l < a->Y.rows; l++)
        if (!(get(&a->F, 0, 0, l) > 0)) put(&a->Y, 0, l, 0, 0.5);
}

static const fault move_lines_faults[] = {
    {"every line", "move_lines f64 3x7x13", (op_fn)every_line},
    {"lines that are not cleared", "move_lines f64 3x7x13 back", (op_fn)nothing_cleared},
};

static const bad_call move_lines_bad[] = {
    {0, COLS, 0, POLAR_E_SHAPE},   {1, COLS, 0, POLAR_E_SHAPE}, {2, COLS, 0, POLAR_E_SHAPE},
    {2, FORMAT, 0, POLAR_E_DTYPE}, {0, ONTO, 1, POLAR_E_ARG},   {0, ONTO, 2, POLAR_E_ARG},
};

const op_calls pl_calls_move_lines = {"move_lines f64 3x7x13", LIST(move_lines_bad), LIST(move_lines_faults)};

static const bad_call scale_lines_bad[] = {
    {1, ROWS, 0, POLAR_E_SHAPE},   {2, COLS, 0, POLAR_E_SHAPE}, {3, COLS, 0, POLAR_E_SHAPE},
    {2, FORMAT, 0, POLAR_E_DTYPE}, {0, ONTO, 1, POLAR_E_ARG},   {0, ONTO, 2, POLAR_E_ARG},
};

const op_calls pl_calls_scale_lines = {"scale_lines f32,f64->f32 3x7x13 R C", LIST(scale_lines_bad), NULL, 0};

/* The moment is used as it was before. */
static void moment_of_yesterday(pl_queue *q, const pl_args_entry_stage *a)
{
    pl_args_entry_stage b = *a;
    double live[PL_LIVE_COLS];
    memcpy(live, a->live.data, sizeof live);
    live[PL_LIVE_BETA2] = 1;
    b.live.data = live;
    pl_ref_ops.entry_stage(q, &b);
}

/* The moment of X where that of G is asked for. */
static void moment_of_itself(pl_queue *q, const pl_args_entry_stage *a)
{
    pl_args_entry_stage b = *a;
    b.G.data = NULL;
    pl_ref_ops.entry_stage(q, &b);
}

/* eps beside the root, where it belongs under it. */
static void root_alone(pl_queue *q, const pl_args_entry_stage *a)
{
    pl_args_entry_stage b = *a;
    b.root = 0;
    pl_ref_ops.entry_stage(q, &b);
}

static const fault entry_stage_faults[] = {
    {"eps beside the root", "entry_stage f32 3x7x13 root per_matrix V G 0.9,0.75 eps 0.125",
     (op_fn)root_alone},
    {"the moment of another matrix", "entry_stage f32 3x7x13 after per_matrix V G Y on X 0.9,0.75 eps 1e-08",
     (op_fn)moment_of_itself},
    {"a moment that stands still", "entry_stage f32 3x7x13 V 0.9,0.999 eps 1e-08",
     (op_fn)moment_of_yesterday},
};

static const bad_call entry_stage_bad[] = {
    {1, ROWS, 0, POLAR_E_SHAPE},  {2, COLS, 0, POLAR_E_SHAPE},   {3, ROWS, 0, POLAR_E_SHAPE},
    {4, BATCH, 0, POLAR_E_SHAPE}, {4, FORMAT, 0, POLAR_E_DTYPE}, {0, ONTO, 2, POLAR_E_ARG},
    {1, ONTO, 2, POLAR_E_ARG},    {1, ONTO, 3, POLAR_E_ARG},     {1, NO_DATA, 0, POLAR_E_ARG},
};

const op_calls pl_calls_entry_stage = {
    "entry_stage f32 3x7x13 after per_matrix V G Y on X 0.9,0.75 eps 1e-08", LIST(entry_stage_bad),
    LIST(entry_stage_faults)};

static const bad_call inner_bad[] = {
    {0, FORMAT, 0, POLAR_E_DTYPE}, {0, COLS, 0, POLAR_E_SHAPE}, {0, BATCH, 0, POLAR_E_SHAPE},
    {2, ROWS, 0, POLAR_E_SHAPE},   {0, ONTO, 1, POLAR_E_ARG},
};

const op_calls pl_calls_inner = {"inner f32 3x7x13", LIST(inner_bad), NULL, 0};

/* Everything decays. */
static void decays_all(pl_queue *q, const pl_args_apply_step *a)
{
    PL_CALL(decay_step, q, .W = a->W, .D = a->D, .live = a->live, .scale = a->scale);
}

/* Neither floor nor brake. */
static void looks_away(pl_queue *q, const pl_args_apply_step *a)
{
    pl_args_apply_step b = *a;
    b.strength = a->apply == POLAR_APPLY_RADIAL_BRAKE ? 1 : 0;
    pl_ref_ops.apply_step(q, &b);
}

static const fault apply_step_faults[] = {
    {"an update floor that is none", "apply_step f32 3x7x13 update_floor N 1.25,3", (op_fn)looks_away},
    {"a radial brake that is none", "apply_step f32 3x7x13 radial_brake N 1.25,0.5", (op_fn)looks_away},
    {"a cautious step that decays everything", "apply_step f32 3x7x13 cautious per_matrix 2",
     (op_fn)decays_all},
};

static const bad_call apply_step_bad[] = {
    {1, ROWS, 0, POLAR_E_SHAPE},   {0, ONTO, 1, POLAR_E_ARG},    {2, COLS, 0, POLAR_E_SHAPE},
    {2, BATCH, 0, POLAR_E_SHAPE},  {2, NO_DATA, 0, POLAR_E_ARG}, {3, COLS, 0, POLAR_E_SHAPE},
    {3, FORMAT, 0, POLAR_E_DTYPE}, {0, MODE, 1, POLAR_E_ARG},
};

const op_calls pl_calls_apply_step = {"apply_step f32 3x7x13 hyperball per_matrix N 1", LIST(apply_step_bad),
                                      LIST(apply_step_faults)};

/* The norm of the direction is forgotten; the clip is. */
static void norm_of_one(pl_queue *q, const pl_args_norm_moment *a)
{
    pl_args_norm_moment b = *a;
    b.clip = 1e9;
    pl_ref_ops.norm_moment(q, &b);
    if (a->kind == PL_NORM_MOMENT) scale_all(&a->F, 0.25);
}

static const fault norm_moment_faults[] = {
    {"a moment without the direction's norm", "norm_moment f64 3x7x13 0.9,0.95 eps 1e-08",
     (op_fn)norm_of_one},
    {"a sum that is not clipped", "norm_moment f64 3x7x13 sum 0.9,0.95 eps 0.0005", (op_fn)norm_of_one},
};

static const bad_call norm_moment_bad[] = {
    {0, COLS, 0, POLAR_E_SHAPE},   {0, FORMAT, 0, POLAR_E_DTYPE}, {1, COLS, 0, POLAR_E_SHAPE},
    {2, COLS, 0, POLAR_E_SHAPE},   {2, BATCH, 0, POLAR_E_SHAPE},  {3, COLS, 0, POLAR_E_SHAPE},
    {3, FORMAT, 0, POLAR_E_DTYPE}, {0, ONTO, 2, POLAR_E_ARG},
};

const op_calls pl_calls_norm_moment = {"norm_moment f64 3x7x13 per_matrix 0.9,0.75 eps 0.125",
                                       LIST(norm_moment_bad), LIST(norm_moment_faults)};
