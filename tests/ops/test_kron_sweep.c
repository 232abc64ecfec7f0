/* test_kron_sweep.c -- kron_sweep at the sides that models have: the new columns are orthonormal, K Q in its
 * order is upper triangular in them, V's lines changed places, steps that are not due write nothing; the same
 * of factors that are easy and hard to orthonormalise, side by side and alone. Small sides, all formats:
 * test_ops.
 *
 *     test_kron_sweep DEVICE few    one side
 */
#include <string.h>

#include "fixtures/machine.h"

static int few;

/* C = A^T B, n x n, on the host. */
static void product(double *C, const double *A, const double *B, int64_t n)
{
    memset(C, 0, (size_t)(n * n) * sizeof *C);
    for (int64_t k = 0; k < n; k++)
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = 0; j < n; j++) C[i * n + j] += A[k * n + i] * B[k * n + j];
}

/* Columns of K Q by descending q.z; place[r] of which the r-th is. */
static void sorted(double *Z, int64_t *place, const double *K, const double *Q, int64_t n)
{
    double *X = map_new(n * n), *value = map_new(n);
    product(X, K, Q, n); /* K is symmetric */
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++) value[j] += Q[i * n + j] * X[i * n + j];
    for (int64_t j = 0; j < n; j++) {
        int64_t before = 0;
        for (int64_t k = 0; k < n; k++) before += value[k] > value[j] || (value[k] == value[j] && k < j);
        place[before] = j;
    }
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++) Z[i * n + j] = X[i * n + place[j]];
    free(X), free(value);
}

/* Norms of the columns of |K| |Q|, of which sums for K Q are made. */
static void sizes_of(double *size, const double *K, const double *Q, int64_t n)
{
    double *A = map_new(n * n), *B = map_new(n * n), *C = map_new(n * n);
    for (int64_t i = 0; i < n * n; i++) A[i] = fabs(K[i]), B[i] = fabs(Q[i]);
    product(C, A, B, n);
    for (int64_t j = 0; j < n; j++) size[j] = 0;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++) size[j] += C[i * n + j] * C[i * n + j];
    for (int64_t j = 0; j < n; j++) size[j] = sqrt(size[j]);
    free(A), free(B), free(C);
}

/* Matrix b: worst entry of Q^T Q - 1, of Q^T Z below the diagonal over its column's norm (or, where it is
 * given, its size); lines of V. */
static void defect(double worst[3], const double *Q, const double *before, const double *K, const double *V,
                   const double *W, int64_t n, int64_t other, int trans, const double *size)
{
    double *Z = map_new(n * n), *R = map_new(n * n);
    int64_t *place = calloc((size_t)n, sizeof *place);
    sorted(Z, place, K, before, n);
    product(R, Q, Q, n);
    for (int64_t i = 0; i < n * n; i++) worst[0] = fmax(worst[0], fabs(R[i] - (i / n == i % n)));
    product(R, Q, Z, n);
    for (int64_t j = 0; j < n; j++) {
        double norm = 0, below = 0;
        for (int64_t i = 0; i < n; i++) norm += Z[i * n + j] * Z[i * n + j];
        norm = size ? size[place[j]] : sqrt(norm);
        for (int64_t i = j + 1; i < n; i++) below = fmax(below, fabs(R[i * n + j]));
        if (norm > 0) worst[1] = fmax(worst[1], below / norm);
    }
    for (int64_t i = 0; i < n * other; i++) {
        int64_t r = trans ? i / n : i / other, c = trans ? i % n : i % other;
        double x = trans ? V[r * n + place[c]] : V[place[r] * other + c];
        worst[2] += x != W[i];
    }
    free(Z), free(R), free(place);
}

/* Two matrices of side n, the second one not due; K has eigenvalues over twelve powers of ten, so that K Q is
 * nearly singular. */
static void sweep(machine *at, int64_t n, int64_t other, int trans)
{
    char line[96];
    double *K = map_new(2 * n * n), *Q = map_new(2 * n * n), *V = map_new(2 * n * other), *T = map_new(n * n),
           live[2 * PL_LIVE_COLS], worst[3] = {0};
    int64_t kept = 0;
    map_fill(T, n * n, 7);
    for (int64_t i = 0; i < n * n; i++) T[i] *= pow(10, -6.0 * (double)(i / n) / (double)n);
    product(K, T, T, n);
    memcpy(K + n * n, K, (size_t)(n * n) * sizeof *K);
    map_fill(Q, 2 * n * n, 8);
    map_fill(V, 2 * n * other, 9);
    for (int b = 0; b < 2; b++) {
        pl_live_row(live + b * PL_LIVE_COLS, 1, 1, 0.1, 0, 0.9, 0.95, 1e-8);
        live[b * PL_LIVE_COLS + PL_LIVE_STEP] = 11 + b;
    }
    pl_mat k = put(at, POLAR_DTYPE_F64, 2, n, n, K), q = put(at, POLAR_DTYPE_F64, 2, n, n, Q),
           v = put(at, POLAR_DTYPE_F64, 2, trans ? other : n, trans ? n : other, V),
           l = put(at, POLAR_DTYPE_F64, 2, 1, PL_LIVE_COLS, live);
    PL_CALL(kron_sweep, at->q, .Q = q, .V = v, .K = k, .live = l, .trans = trans, .every = 10, .after = 1);
    double *new = map_new(2 * n * n), *lines = map_new(2 * n * other);
    TEST_TRY(pl_mat_download_f64(at->q, &q, new));
    TEST_TRY(pl_mat_download_f64(at->q, &v, lines));
    defect(worst, new, Q, K, V, lines, n, other, trans, NULL);
    for (int64_t i = n * n; i < 2 * n * n; i++) kept += new[i] != Q[i];
    for (int64_t i = n * other; i < 2 * n * other; i++) kept += lines[i] != V[i];
    /* n reflections, a few roundings each, which add up like their root at best and their number at worst */
    const double tol = 2 * (double)n * 0x1p-53;
    snprintf(line, sizeof line, "side %d: orthonormal", (int)n);
    test_bound(line, worst[0], tol, "2 n u");
    test_bound("... K Q upper triangular", worst[1], tol, "2 n u of a column");
    test_exact("... V's lines", (int64_t)worst[2]);
    test_exact("... a matrix that is not due", kept);
    pl_mat_free(&k, at->dev), pl_mat_free(&q, at->dev), pl_mat_free(&v, at->dev), pl_mat_free(&l, at->dev);
    free(K), free(Q), free(V), free(T), free(new), free(lines);
}

/* ---- factors of all kinds ------------------------------------------------------------------------ */

typedef enum {
    OLD_BASIS, /* Q had its eigenvectors a few steps ago, which are four powers of ten apart */
    GRADED,    /* fourteen powers of ten */
    REPEATED,  /* two eigenvalues, n / 2 times each, nearly */
    PARALLEL,  /* all columns of K Q are one another's multiples but for a billionth */
    RANK_ONE,
    DEAD_LINE, /* a row and a column of zeros, and Q has its unit vector */
    ZERO,
    LOST_VECTOR, /* Q has a column of zeros, so that K Q has one that nothing can stand for */
    NO_NUMBER,   /* in one entry */
    KINDS
} kind;

static const char *kind_names[KINDS] = {"a basis some steps old",
                                        "graded eigenvalues",
                                        "repeated eigenvalues",
                                        "columns nearly parallel",
                                        "rank one",
                                        "a line of zeros",
                                        "zero",
                                        "a basis with a zero",
                                        "NaN"};

/* Q orthonormal, by three reflections; with `dead` its last column is the last unit vector. */
static void random_basis(double *Q, int64_t n, int dead, uint64_t seed)
{
    double *v = map_new(n);
    for (int64_t i = 0; i < n * n; i++) Q[i] = i / n == i % n;
    for (int k = 0; k < 3; k++) {
        double square = 0;
        map_fill(v, n, seed + (uint64_t)k);
        if (dead) v[n - 1] = 0;
        for (int64_t i = 0; i < n; i++) square += v[i] * v[i];
        for (int64_t i = 0; i < n; i++) {
            double sum = 0;
            for (int64_t j = 0; j < n; j++) sum += Q[i * n + j] * v[j];
            for (int64_t j = 0; j < n; j++) Q[i * n + j] -= 2 / square * sum * v[j];
        }
    }
    free(v);
}

/* K = Q C Q^T for C near to the diagonal of the eigenvalues. */
static void factor_of(double *K, double *Q, int64_t n, kind what, uint64_t seed)
{
    double *C = map_new(n * n), *T = map_new(n * n), *r = map_new(n * n), *v = map_new(n);
    random_basis(Q, n, what == DEAD_LINE, seed);
    map_fill(r, n * n, seed + 10), map_fill(v, n, seed + 11);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j <= i; j++) {
            const double powers = what == GRADED ? -14.0 : -4.0, x = (double)i / (double)n,
                         y = (double)j / (double)n;
            double c =
                0.05 * r[i * n + j] * pow(10, powers / 2 * (x + y)) + (i == j ? pow(10, powers * x) : 0);
            if (what == REPEATED) c = 1e-3 * r[i * n + j] + (i == j ? (2 * i < n ? 1 : 0.5) : 0);
            if (what == DEAD_LINE && i == n - 1) c = 0;
            if (what == PARALLEL) c = v[i] * v[j] + 1e-9 * r[i * n + j];
            if (what == RANK_ONE) c = v[i] * v[j];
            if (what == ZERO) c = 0;
            C[i * n + j] = C[j * n + i] = c;
        }
    for (int64_t i = 0; i < n * n; i++) r[i] = Q[i % n * n + i / n]; /* Q^T */
    product(T, C, r, n);                                             /* C Q^T */
    product(K, r, T, n);
    if (what == DEAD_LINE)
        for (int64_t i = 0; i < n; i++) K[i * n + n - 1] = K[(n - 1) * n + i] = 0;
    for (int64_t i = 0; what == LOST_VECTOR && i < n; i++) Q[i * n + n / 2] = 0;
    if (what == NO_NUMBER) K[n + 1] = NAN;
    free(C), free(T), free(r), free(v);
}

static void call_sweep(machine *at, double *Q, double *V, const double *K, int64_t batch, int64_t n,
                       int64_t other)
{
    double live[PL_LIVE_COLS];
    pl_live_row(live, 1, 1, 0.1, 0, 0.9, 0.95, 1e-8);
    live[PL_LIVE_STEP] = 11;
    pl_mat k = put(at, POLAR_DTYPE_F64, batch, n, n, K), q = put(at, POLAR_DTYPE_F64, batch, n, n, Q),
           v = put(at, POLAR_DTYPE_F64, batch, n, other, V),
           l = put(at, POLAR_DTYPE_F64, 1, 1, PL_LIVE_COLS, live);
    PL_CALL(kron_sweep, at->q, .Q = q, .V = v, .K = k, .live = l, .every = 10, .after = 1);
    TEST_TRY(pl_mat_download_f64(at->q, &q, Q));
    TEST_TRY(pl_mat_download_f64(at->q, &v, V));
    pl_mat_free(&k, at->dev), pl_mat_free(&q, at->dev), pl_mat_free(&v, at->dev), pl_mat_free(&l, at->dev);
}

static void all_kinds(machine *at, int64_t n)
{
    const int64_t other = 3, square = n * n, lines = n * other;
    double *K = map_new(KINDS * square), *Q = map_new(KINDS * square), *V = map_new(KINDS * lines),
           *before = map_new(KINDS * square), *W = map_new(KINDS * lines), *one = map_new(square),
           *line = map_new(lines), *size = map_new(n);
    int64_t others = 0;
    for (int b = 0; b < KINDS; b++)
        factor_of(K + b * square, Q + b * square, n, (kind)b, 20 + 20 * (uint64_t)b);
    map_fill(V, KINDS * lines, 9);
    memcpy(before, Q, (size_t)(KINDS * square) * sizeof *Q);
    memcpy(W, V, (size_t)(KINDS * lines) * sizeof *V);
    call_sweep(at, Q, V, K, KINDS, n, other);
    const double tol = 2 * (double)n * 0x1p-53; /* as of `sweep` */
    for (int b = 0; b < KINDS; b++) {
        char text[96];
        double worst[3] = {0};
        int64_t numbers = 0;
        snprintf(text, sizeof text, "side %d, %s", (int)n, kind_names[b]);
        if (b == NO_NUMBER) {
            for (int64_t i = 0; i < square; i++) numbers += !isnan(Q[b * square + i]);
            for (int64_t i = 0; i < lines; i++) numbers += V[b * lines + i] != W[b * lines + i];
            test_exact(text, numbers);
        } else {
            sizes_of(size, K + b * square, before + b * square, n);
            defect(worst, Q + b * square, before + b * square, K + b * square, W + b * lines, V + b * lines,
                   n, other, 0, size);
            for (int64_t i = 0; i < square; i++) numbers += isnan(Q[b * square + i]);
            test_bound(text, numbers ? NAN : worst[0], tol, "2 n u");
            test_bound("... K Q upper triangular", worst[1], tol, "2 n u of |K| |q|");
            test_exact("... V's lines", (int64_t)worst[2]);
        }
        memcpy(one, before + b * square, (size_t)square * sizeof *one);
        memcpy(line, W + b * lines, (size_t)lines * sizeof *line);
        call_sweep(at, one, line, K + b * square, 1, n, other);
        others += memcmp(one, Q + b * square, (size_t)square * sizeof *one) != 0;
        others += memcmp(line, V + b * lines, (size_t)lines * sizeof *line) != 0;
    }
    test_exact("... their bits, alone and side by side", others);
    free(K), free(Q), free(V), free(before), free(W), free(one), free(line), free(size);
}

/* ---- put off together ---------------------------------------------------------------------------- */

#define SHAPES 5

/* Matrices of one shape with both sides' factors. */
typedef struct {
    pl_mat Q[2], K[2], V, live;
} sides;

typedef struct {
    sides of[SHAPES];
    int together;
} all_sides;

static void call_sides(pl_queue *q, void *arg)
{
    all_sides *all = arg;
    if (all->together) pl_queue_overlap_begin(q);
    for (int side = 0; side < 2; side++)
        for (int k = 0; k < SHAPES; k++) {
            sides *s = &all->of[k];
            PL_CALL(kron_sweep, q, .Q = s->Q[side], .V = s->V, .K = s->K[side], .live = s->live,
                    .trans = side, .every = 10, .after = 1);
        }
    if (all->together) pl_queue_overlap_end(q);
}

/* Two matrices of each shape, the second one of some not due, one factor not finite. */
static void fill_sides(machine *at, all_sides *all, const int64_t shape[SHAPES][2])
{
    for (int k = 0; k < SHAPES; k++) {
        sides *s = &all->of[k];
        double live[2 * PL_LIVE_COLS], *V = numbers(2 * shape[k][0] * shape[k][1], 3);
        for (int side = 0; side < 2; side++) {
            const int64_t n = shape[k][side];
            double *K = map_new(2 * n * n), *Q = map_new(2 * n * n);
            for (int b = 0; b < 2; b++)
                factor_of(K + b * n * n, Q + b * n * n, n, k == 1 && side == b ? NO_NUMBER : OLD_BASIS,
                          (uint64_t)(100 * k + 40 * side + 20 * b));
            s->Q[side] = put(at, POLAR_DTYPE_F32, 2, n, n, Q),
            s->K[side] = put(at, POLAR_DTYPE_F64, 2, n, n, K);
            free(K), free(Q);
        }
        for (int b = 0; b < 2; b++) {
            pl_live_row(live + b * PL_LIVE_COLS, 1, 1, 0.1, 0, 0.9, 0.95, 1e-8);
            live[b * PL_LIVE_COLS + PL_LIVE_STEP] = k == 2 ? 11 + b : 11;
        }
        s->V = put(at, POLAR_DTYPE_F32, 2, shape[k][0], shape[k][1], V);
        s->live = put(at, POLAR_DTYPE_F64, 2, 1, PL_LIVE_COLS, live);
        free(V);
    }
}

static int64_t differing(machine *at, const pl_mat *x, const pl_mat *y)
{
    double *a = get(at, x), *b = get(at, y);
    const int64_t n = x->batch * x->rows * x->cols;
    int64_t bad = 0;
    for (int64_t i = 0; i < n; i++) bad += a[i] != b[i] && !(isnan(a[i]) && isnan(b[i]));
    free(a), free(b);
    return bad;
}

static void free_sides(machine *at, all_sides *all)
{
    for (int k = 0; k < SHAPES; k++) {
        sides *s = &all->of[k];
        for (int side = 0; side < 2; side++)
            pl_mat_free(&s->Q[side], at->dev), pl_mat_free(&s->K[side], at->dev);
        pl_mat_free(&s->V, at->dev), pl_mat_free(&s->live, at->dev);
    }
}

static void both_sides(machine *at, const int64_t shape[SHAPES][2])
{
    all_sides together = {.together = 1}, alone = {.together = 0};
    pl_graph *graph = NULL;
    int64_t bases = 0, lines = 0;
    fill_sides(at, &together, shape), fill_sides(at, &alone, shape);
    call_sides(at->q, &alone);
    TEST_TRY(pl_graph_create(&graph, at->dev));
    TEST_TRY(pl_graph_run(graph, at->q, call_sides, &together));
    TEST_TRY(polar_queue_sync(at->q));
    for (int k = 0; k < SHAPES; k++) {
        for (int side = 0; side < 2; side++)
            bases += differing(at, &together.of[k].Q[side], &alone.of[k].Q[side]);
        lines += differing(at, &together.of[k].V, &alone.of[k].V);
    }
    test_exact("both sides of several shapes, put off together: bases", bases);
    test_exact("... lines", lines);
    pl_graph_destroy(graph);
    free_sides(at, &together), free_sides(at, &alone);
}

int main(int argc, char **argv)
{
    static const int64_t small[SHAPES][2] = {{66, 5}, {70, 67}, {65, 40}, {80, 80}, {7, 9}},
                         large[SHAPES][2] = {{192, 75}, {260, 130}, {66, 270}, {150, 150}, {20, 300}};
    machine at;
    const char *device = test_begin(argc, argv);
    map_need_device(device);
    at = machine_open(device);
    few = test_few(argc, argv);
    sweep(&at, 75, 9, 0);
    all_kinds(&at, 75);
    both_sides(&at, small);
    if (!few) {
        both_sides(&at, large);
        sweep(&at, 192, 20, 1);
        sweep(&at, 300, 5, 0);
        all_kinds(&at, 192);
        all_kinds(&at, 300);
        sweep(&at, 576, 5, 0);
    }
    if (!few && !strncmp(device, "cuda", 4)) {
        sweep(&at, 768, 192, 1);
        sweep(&at, 1000, 3, 0);
    }
    polar_queue_destroy(at.q);
    polar_device_close(at.dev);
    return test_end();
}
