/* test_picked_lines.c -- pick_lines and move_lines of more calls than a table holds, put off together
 * (pl_queue_overlap_begin) and each by itself, against ref: the same lines, the same bits. One line and
 * thousands, none to more than all of them picked, lines as large as one another, lines that are not finite,
 * live rows of their own, some of which SKIP; room for fewer and for more lines than were picked.
 *
 *     test_picked_lines DEVICE
 */
#include <string.h>

#include "fixtures/machine.h"

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

enum { PLAIN, TIES, NOT_FINITE, FILLS };

static const struct {
    int64_t batch, lines, n; /* entries of a line */
    int every;               /* of its ways, one out of so many is tried */
} shapes[] = {{1, 1, 1, 1},   {3, 1, 70, 1},   {2, 16, 33, 1}, {1, 17, 300, 2}, {4, 33, 16, 2},
              {2, 64, 48, 2}, {1, 192, 80, 2}, {2, 500, 7, 3}, {1, 768, 40, 4}, {1, 3072, 9, 5}};

#define HOWS  (5 * FILLS) /* numbers of picked lines, fills */
#define CASES (COUNT(shapes) * 2 * HOWS)

typedef struct {
    pl_mat D, F, M, G, live, R, Y;
    int64_t trans, count;
} call;

static int is_there(int k)
{
    const int every = shapes[k % COUNT(shapes)].every;
    return k / (2 * COUNT(shapes)) % every == 2 % every;
}

/* count of `lines`: 0 none, then one, a quarter, all, more than there are */
static int64_t count_of(int which, int64_t lines)
{
    return which == 0 ? 0 : which == 1 ? 1 : which == 2 ? (lines + 3) / 4 : which == 3 ? lines : lines + 5;
}

static pl_mat lines_put(machine *at, polar_dtype dtype, int64_t batch, int64_t lines, int64_t n,
                        int64_t trans, const double *x)
{
    return put(at, dtype, batch, trans ? n : lines, trans ? lines : n, x);
}

/* Entries of M and G as doubles, line l of matrix b in places that `trans` says. */
static void fill(double *x, int64_t batch, int64_t lines, int64_t n, int64_t trans, int fill, int gradient)
{
    for (int64_t b = 0; b < batch; b++)
        for (int64_t l = 0; l < lines; l++)
            for (int64_t k = 0; k < n; k++) {
                double *to = &x[b * lines * n + (trans ? k * lines + l : l * n + k)];
                if (fill == TIES) *to = gradient ? 0 : (double)(l * 5 % 3) * ((l + k) % 2 ? -1 : 1);
                if (fill == NOT_FINITE && l % 5 == 3 && k == l % n && !gradient)
                    *to = l % 2 ? (double)NAN : -(double)INFINITY;
            }
}

static call call_put(machine *at, int k)
{
    const int s = k % COUNT(shapes), how = k / (2 * COUNT(shapes));
    const int64_t batch = shapes[s].batch, lines = shapes[s].lines, n = shapes[s].n;
    call c = {.trans = k / COUNT(shapes) % 2, .count = count_of(how % 5, lines)};
    const int64_t room = how % 3 == 0 ? lines : how % 3 == 1 ? (lines + 1) / 2 : (lines + 3) / 4;
    const polar_dtype G = k % 3 == 1 ? POLAR_DTYPE_BF16 : POLAR_DTYPE_F32,
                      M = k % 7 == 3 ? POLAR_DTYPE_F64 : POLAR_DTYPE_F32,
                      D = k % 7 == 5 ? POLAR_DTYPE_BF16 : M;
    double row[4][PL_LIVE_COLS], *x = numbers(batch * lines * n, (uint64_t)(2000 + k)),
                                 *g = numbers(batch * lines * n, (uint64_t)(9000 + k)),
                                 *d = numbers(batch * lines * n, (uint64_t)(16000 + k));
    fill(x, batch, lines, n, c.trans, how / 5, 0), fill(g, batch, lines, n, c.trans, how / 5, 1);
    c.M = lines_put(at, M, batch, lines, n, c.trans, x);
    c.G = lines_put(at, G, batch, lines, n, c.trans, g);
    c.D = lines_put(at, D, batch, lines, n, c.trans, d);
    c.Y = lines_put(at, D, batch, lines, n, c.trans, d);
    c.R = lines_put(at, D, batch, room, n, c.trans, d);
    c.F = put(at, POLAR_DTYPE_F64, batch, 1, lines, d);
    for (int64_t b = 0; b < batch; b++) {
        pl_live_row(row[b], 1, 1, 0.02, 0.1, 0.9, 0.99, 1e-8);
        row[b][PL_LIVE_GRAD] = b == 1 ? 0.5 : 1;
        row[b][PL_LIVE_SKIP] = k % 2 && (k + b) % 4 == 3;
    }
    c.live = put(at, POLAR_DTYPE_F64, k % 2 ? batch : 1, 1, PL_LIVE_COLS, row[0]);
    free(x), free(g), free(d);
    return c;
}

static void call_free(machine *at, call *c)
{
    pl_mat *all[] = {&c->D, &c->F, &c->M, &c->G, &c->live, &c->R, &c->Y};
    for (int i = 0; i < COUNT(all); i++) pl_mat_free(all[i], at->dev);
}

/* stage 0: the lines are picked; 1: side by side; 2: back among the others. */
static void enqueue(machine *at, const call *c, int stage)
{
    if (stage == 0)
        PL_CALL(pick_lines, at->q, .D = c->D, .F = c->F, .M = c->M, .G = c->G, .live = c->live,
                .trans = c->trans, .count = c->count);
    else if (stage == 1) PL_CALL(move_lines, at->q, .Y = c->R, .X = c->D, .F = c->F, .trans = c->trans);
    else PL_CALL(move_lines, at->q, .Y = c->Y, .X = c->R, .F = c->F, .trans = c->trans, .back = 1);
}

/* Numbers that differ, of everything that is written; one NaN is as good as another. */
static int64_t differ(machine *at, const call *a, machine *there, const call *b)
{
    const pl_mat *x[] = {&a->D, &a->F, &a->M, &a->R, &a->Y}, *y[] = {&b->D, &b->F, &b->M, &b->R, &b->Y};
    int64_t bad = 0;
    for (int i = 0; i < COUNT(x); i++) {
        double *u = get(at, x[i]), *v = get(there, y[i]);
        for (int64_t k = 0; k < x[i]->batch * x[i]->rows * x[i]->cols; k++)
            bad += memcmp(&u[k], &v[k], sizeof *u) != 0 && !(isnan(u[k]) && isnan(v[k]));
        free(u), free(v);
    }
    return bad;
}

/* Matrices whose number of picked lines is not min(count, lines), or that have one picked where an earlier
 * one as large is not: with TIES every third line is. Those aside that were left out. */
static int64_t misjudged(machine *at, const call *c, int fill)
{
    double *F = get(at, &c->F), *live = get(at, &c->live);
    const int64_t lines = c->F.cols;
    int64_t bad = 0;
    for (int64_t b = 0; b < c->F.batch; b++) {
        const double *f = F + b * lines;
        int64_t picked = 0, late = 0;
        if (live[(c->live.batch > 1 ? b : 0) * PL_LIVE_COLS + PL_LIVE_SKIP] != 0) continue;
        for (int64_t l = 0; l < lines; l++) picked += f[l] == 1;
        for (int64_t l = 3; l < lines && fill == TIES; l++) late += f[l] > f[l - 3];
        bad += late > 0 || picked != (c->count < lines ? c->count : lines);
    }
    free(F), free(live);
    return bad;
}

int main(int argc, char **argv)
{
    static call together[CASES], alone[CASES], ref[CASES];
    machine at, host;
    int64_t bad = 0, elsewhere = 0, wrong = 0;
    const char *device = test_begin(argc, argv);
    map_need_device(device);
    at = machine_open(device);
    host = machine_open("ref");
    for (int k = 0; k < CASES; k++) {
        if (!is_there(k)) continue;
        together[k] = call_put(&at, k), alone[k] = call_put(&at, k), ref[k] = call_put(&host, k);
        for (int stage = 0; stage < 3; stage++)
            enqueue(&at, &alone[k], stage), enqueue(&host, &ref[k], stage);
    }
    for (int stage = 0; stage < 3; stage++) {
        pl_queue_overlap_begin(at.q);
        for (int k = 0; k < CASES; k++)
            if (is_there(k)) enqueue(&at, &together[k], stage);
        pl_queue_overlap_end(at.q);
    }
    TEST_TRY(polar_queue_sync(at.q));
    TEST_TRY(polar_queue_sync(host.q));
    for (int k = 0; k < CASES; k++) {
        if (!is_there(k)) continue;
        bad += differ(&at, &together[k], &at, &alone[k]);
        elsewhere += differ(&at, &alone[k], &host, &ref[k]);
        wrong += misjudged(&at, &alone[k], k / (2 * COUNT(shapes)) / 5);
        call_free(&at, &together[k]), call_free(&at, &alone[k]), call_free(&host, &ref[k]);
    }
    test_exact("put off together, and each by itself", bad);
    test_exact("each by itself, and on ref", elsewhere);
    test_exact("matrices of which other lines are picked", wrong);
    polar_queue_destroy(at.q), polar_queue_destroy(host.q);
    polar_device_close(at.dev), polar_device_close(host.dev);
    return test_end();
}
