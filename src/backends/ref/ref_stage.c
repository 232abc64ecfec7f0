/* ref_stage.c -- stages of rules beside momentum, map and step, in double: factors of lines, moments of what
 * the map returned, other ways to apply it. */
#include "math/formulas_elem.h"
#include "math/lane_sum_elem.h"
#include "math/line_elem.h"
#include "ref_loops.h"

/* Live value `col` of matrix b: one row for all, or one per matrix. */
static double live(const pl_mat *m, int64_t b, pl_live_col col)
{
    return value(m, b, col);
}

/* The sum of the squares of line l of matrix b. */
static double line_square(const pl_args_line_factors *a, int64_t b, int64_t l)
{
    double lane[PL_LANES] = {0};
    const int64_t n = a->trans ? a->X.rows : a->X.cols;
    for (int64_t k = 0; k < n; k++) {
        double x = a->trans ? pl_get(&a->X, b, k, l) : pl_get(&a->X, b, l, k);
        lane[k % PL_LANES] += x * x;
    }
    return pl_lanes_fold(lane);
}

/* F = (S + eps)^-1/2, or of a moment of S, with X's norm kept */
void pl_ref_line_factors(pl_queue *q, const pl_args_line_factors *a)
{
    (void)q;
    const int64_t lines = a->F.cols, n = a->trans ? a->X.rows : a->X.cols;
    for (int64_t b = 0; b < a->X.batch; b++) {
        const double beta2 = live(&a->live, b, PL_LIVE_BETA2), eps = live(&a->live, b, PL_LIVE_EPS);
        double before[PL_LANES] = {0}, after[PL_LANES] = {0};
        if (live(&a->live, b, PL_LIVE_SKIP) != 0) {
            for (int64_t l = 0; l < lines; l++) pl_put(&a->F, b, 0, l, 1);
            continue;
        }
        for (int64_t l = 0; l < lines; l++) {
            double square = line_square(a, b, l), f, v;
            if (a->kind == PL_LINE_EQUILIBRATE) f = pl_line_equilibrate(square, eps);
            else {
                v = pl_get(&a->V, b, 0, l);
                f = pl_line_moment(&v, square / (double)n, beta2, eps, a->kind == PL_LINE_CLAMPED);
                pl_put(&a->V, b, 0, l, v);
                before[l % PL_LANES] += square;
                after[l % PL_LANES] += square * f * f;
            }
            pl_put(&a->F, b, 0, l, f);
        }
        if (a->kind == PL_LINE_EQUILIBRATE) continue;
        const double kept = pl_line_kept(pl_lanes_fold(before), pl_lanes_fold(after));
        for (int64_t l = 0; l < lines; l++) pl_put(&a->F, b, 0, l, kept * pl_get(&a->F, b, 0, l));
    }
}

/* The sum of the magnitudes of line l of matrix b. */
static double line_size(const pl_args_pick_lines *a, int64_t b, int64_t l)
{
    double lane[PL_LANES] = {0};
    const int64_t n = a->trans ? a->M.rows : a->M.cols;
    for (int64_t k = 0; k < n; k++)
        lane[k % PL_LANES] += fabs(a->trans ? pl_get(&a->M, b, k, l) : pl_get(&a->M, b, l, k));
    return pl_lanes_fold(lane);
}

/* M <- M + g, D = its largest lines, which lose 1 - beta1 of themselves in M */
void pl_ref_pick_lines(pl_queue *q, const pl_args_pick_lines *a)
{
    (void)q;
    const int64_t lines = a->F.cols;
    for (int64_t b = 0; b < a->M.batch; b++) {
        const double grad = live(&a->live, b, PL_LIVE_GRAD), beta1 = live(&a->live, b, PL_LIVE_BETA1);
        double *F = (double *)a->F.data + b * a->F.bs;
        if (live(&a->live, b, PL_LIVE_SKIP) != 0) continue;
        for (int64_t i = 0; i < a->M.rows; i++)
            for (int64_t j = 0; j < a->M.cols; j++)
                pl_put(&a->M, b, i, j, pl_get(&a->M, b, i, j) + grad * pl_get(&a->G, b, i, j));
        for (int64_t l = 0; l < lines; l++) F[l] = pl_line_size(line_size(a, b, l));
        for (int64_t l = 0; l < lines; l++) /* D keeps them until all are compared */
            pl_put(&a->D, b, a->trans ? 0 : l, a->trans ? l : 0, pl_line_picked(F, lines, l, a->count));
        for (int64_t l = 0; l < lines; l++) F[l] = pl_get(&a->D, b, a->trans ? 0 : l, a->trans ? l : 0);
        for (int64_t i = 0; i < a->M.rows; i++)
            for (int64_t j = 0; j < a->M.cols; j++) {
                const double m = pl_get(&a->M, b, i, j), picked = F[a->trans ? j : i];
                pl_put(&a->D, b, i, j, picked != 0 ? m : 0);
                if (picked != 0) pl_put(&a->M, b, i, j, beta1 * m);
            }
    }
}

/* Line `to` of Y is line `from` of X, or empty where that is none of them. */
static void move_line(const pl_args_move_lines *a, int64_t b, int64_t to, int64_t from)
{
    const int64_t there = a->trans ? a->X.cols : a->X.rows;
    const double empty = a->back && there ? pl_line_empty(pl_get(&a->X, b, 0, 0)) : 0;
    for (int64_t k = 0; k < (a->trans ? a->Y.rows : a->Y.cols); k++) {
        const double x = from >= there ? empty
                         : a->trans    ? pl_get(&a->X, b, k, from)
                                       : pl_get(&a->X, b, from, k);
        pl_put(&a->Y, b, a->trans ? k : to, a->trans ? to : k, x);
    }
}

/* lines whose F > 0 side by side, or back to their places */
void pl_ref_move_lines(pl_queue *q, const pl_args_move_lines *a)
{
    (void)q;
    const int64_t lines = a->F.cols, wanted = a->trans ? a->Y.cols : a->Y.rows;
    for (int64_t b = 0; b < a->Y.batch; b++) {
        const double *F = (const double *)a->F.data + b * a->F.bs;
        for (int64_t l = 0, taken = 0; l < wanted; l++) {
            if (a->back) move_line(a, b, l, F[l] > 0 ? taken++ : INT64_MAX);
            else {
                taken = pl_line_next(F, lines, taken);
                move_line(a, b, l, taken < lines ? taken++ : INT64_MAX);
            }
        }
    }
}

/* Y = R_i X_ij C_j */
void pl_ref_scale_lines(pl_queue *q, const pl_args_scale_lines *a)
{
    (void)q;
    FOR_EACH(a->Y)
    pl_put(&a->Y, b, i, j,
           pl_scale_entry_f64(pl_get(&a->X, b, i, j), a->R.data ? pl_get(&a->R, b, 0, i) : 1,
                              a->C.data ? pl_get(&a->C, b, 0, j) : 1));
}

/* Y = sign X, or X / (sqrt(v^) + eps), or X / sqrt(v + eps), v the moment of X or of G */
void pl_ref_entry_stage(pl_queue *q, const pl_args_entry_stage *a)
{
    (void)q;
    FOR_EACH(a->Y)
    {
        double x = pl_get(&a->X, b, i, j), beta2 = live(&a->live, b, PL_LIVE_BETA2);
        if (live(&a->live, b, PL_LIVE_SKIP) != 0) continue;
        if (a->after && live(&a->live, b, PL_LIVE_STEP) <= (double)a->after) continue;
        if (a->V.data) {
            double v = pl_get(&a->V, b, i, j),
                   g = a->G.data ? live(&a->live, b, PL_LIVE_GRAD) * pl_get(&a->G, b, i, j) : x;
            const double eps = live(&a->live, b, PL_LIVE_EPS);
            if (a->root) x = pl_precondition_root_f64(x, g, &v, beta2, 1 - beta2, eps);
            else x = pl_precondition_f64(x, g, &v, beta2, 1 - beta2, live(&a->live, b, PL_LIVE_C2), eps);
            pl_put(&a->V, b, i, j, v);
        } else x = pl_sign_f64(x);
        pl_put(&a->Y, b, i, j, x);
    }
}

/* N = (<X, Y>, 1, <X, X>, <Y, Y>) */
void pl_ref_inner(pl_queue *q, const pl_args_inner *a)
{
    (void)q;
    for (int64_t b = 0; b < a->X.batch; b++) {
        double rows[3][PL_LANES] = {{0}};
        for (int64_t i = 0; i < a->X.rows; i++) {
            double lane[3][PL_LANES] = {{0}};
            for (int64_t j = 0; j < a->X.cols; j++) {
                double x = pl_get(&a->X, b, i, j), y = pl_get(&a->Y, b, i, j);
                lane[0][j % PL_LANES] += x * y;
                lane[1][j % PL_LANES] += x * x;
                lane[2][j % PL_LANES] += y * y;
            }
            for (int k = 0; k < 3; k++) rows[k][i % PL_LANES] += pl_lanes_fold(lane[k]);
        }
        pl_put(&a->N, b, 0, 1, 1);
        for (int k = 0; k < 3; k++) pl_put(&a->N, b, 0, k ? k + 1 : 0, pl_lanes_fold(rows[k]));
    }
}

/* F = (f, 1), f from a moment or a sum of ||g||^2 */
void pl_ref_norm_moment(pl_queue *q, const pl_args_norm_moment *a)
{
    (void)q;
    for (int64_t b = 0; b < a->F.batch; b++) {
        const double *n = (const double *)a->N.data + b * a->N.bs, grad = live(&a->live, b, PL_LIVE_GRAD),
                     eps = live(&a->live, b, PL_LIVE_EPS);
        double v = pl_get(&a->V, b, 0, 0), f;
        if (live(&a->live, b, PL_LIVE_SKIP) != 0) f = 1;
        else if (a->kind == PL_NORM_MOMENT)
            f = pl_norm_moment(&v, n, grad, live(&a->live, b, PL_LIVE_BETA2), eps);
        else f = pl_norm_sum(&v, n, grad, a->clip, eps, live(&a->live, b, PL_LIVE_LR));
        pl_put(&a->V, b, 0, 0, v);
        pl_put(&a->F, b, 0, 0, f);
        pl_put(&a->F, b, 0, 1, 1);
    }
}

/* W <- (1 - lr wd [D W > 0]) W - lr s D, or keep W - move D */
void pl_ref_apply_step(pl_queue *q, const pl_args_apply_step *a)
{
    (void)q;
    FOR_EACH(a->W)
    {
        const double lr = live(&a->live, b, PL_LIVE_LR), w = pl_get(&a->W, b, i, j),
                     d = pl_get(&a->D, b, i, j);
        double keep, move;
        if (live(&a->live, b, PL_LIVE_SKIP) != 0) continue;
        if (a->apply == POLAR_APPLY_CAUTIOUS) {
            pl_put(&a->W, b, i, j, pl_cautious_step_f64(w, d, lr, live(&a->live, b, PL_LIVE_WD), a->scale));
            continue;
        }
        pl_apply_factors(&keep, &move, (const double *)a->N.data + b * a->N.bs, a->apply, lr,
                         live(&a->live, b, PL_LIVE_WD), a->scale, a->strength);
        pl_put(&a->W, b, i, j, pl_ball_step_f64(w, d, lr, keep, move));
    }
}
