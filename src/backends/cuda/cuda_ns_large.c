/* cuda_ns_large.c -- newton_schulz of matrices with a short side above 256, on Hopper: a list of products
 * (cuda_products.h), the steps of a batch in one launch or product by product.
 *
 * Short sides up to 1024, which models have by the dozen: one launch where that ends sooner; larger ones fill
 * the multiprocessors alone and go product by product always. Of those X <- q X + P X is lent to cuBLASLt.
 * The last one is, too, between 1024 and 4096, with a copy behind it; else it is ours, whose epilogue writes
 * f32 where that is wanted, rounded to bf16 first: no copy.
 *
 * Invariants
 *  1. A matrix's bits do not depend on its batch. Above 1024 a product's kernel is of the shape alone, the
 *     last product's too, whatever its result's format. Up to 1024 whether there is one launch depends on the
 *     batch, so there any kernel has the bits of any other: our own have one instruction (wgmma), which adds
 *     16 k at a time, ascending, to one f32 sum, and one epilogue, fmaf(alpha, sum, beta d) rounded once.
 *  2. cuBLASLt's product has these bits where it may stand for ours (lends). What carries that: a pinned
 *     algorithm that does not split k (cuda_gemm.c); alpha = 1, so of the forms an epilogue can have only
 *     fma(beta, d, sum) is another than sum + beta d; and test_ns_large, which compares every entry, alone
 *     against in a batch of twelve, denormal ones, infinities and NaN among them. The other epilogue, or
 *     another order of k, would show: the former in about 2^-17 of all entries, a hundred of a step of 12
 *     squares of 1024. Only those squares have been compared on a GPU (entries 83 and 95 of
 *     docs/speed/gpu.md), so only they are lent.
 *  3. A tall matrix has the bits of its transpose: up to 1024 columns it stays as it stands (both factors
 *     MN-major), above it is turned in bf16 on the way in and back on the way out.
 */
#include "cuda_kernels.h"
#include "cuda_products.h"
#include "cuda_state.h"

#define LEAST    256  /* short sides above: below they are cuda_ns.h's */
#define JOINED   1024 /* and up to this may have one launch */
#define OWN_LAST 4096 /* and from this on have a last product of ours */

enum { IN_X, IN_Y, IN_Z, IN_A, IN_P, IN_S, IN_B, ARRAYS };

/* Where the op's own arrays lie: as large as X are Y and, for an odd number of new X but one that must end in
 * X, Z; as A are P and, for joined steps, S and B. */
typedef struct {
    char *of[ARRAYS];
    size_t bytes;
} list_room;

static int64_t short_side(const pl_mat *m)
{
    return m->rows < m->cols ? m->rows : m->cols;
}

static int is_huge(const pl_mat *m)
{
    return short_side(m) > JOINED;
}

/* How often X is made anew. */
static int64_t renewals(const pl_args_newton_schulz *a)
{
    int64_t n = 0;
    for (int64_t s = 0; s < a->steps; s += 1 + pl_chain_joined(a->chain, s)) n++;
    return n;
}

/* Through Z to X; the rest that does not end in X is copied. */
static int by_z(const pl_args_newton_schulz *a)
{
    int64_t n = renewals(a);
    return n % 2 && n > 1 && !a->Y.data && !is_huge(&a->X);
}

static list_room room_of(const pl_args_newton_schulz *a, char *base)
{
    list_room r = {{0}, 0};
    size_t m = (size_t)short_side(&a->X), batch = (size_t)a->X.batch;
    size_t x = 2 * batch * (size_t)(a->X.rows * a->X.cols), square = 2 * batch * m * m;
    for (int i = IN_Y; i < ARRAYS; i++) {
        int wanted = i == IN_Z ? by_z(a) : i < IN_S || a->chain;
        r.of[i] = base ? base + r.bytes : NULL;
        if (wanted) r.bytes += pl_scratch_bytes(i < IN_A ? x : square);
    }
    return r;
}

/* ---- the products ------------------------------------------------------------------------------- */

static void put_product(pl_cuda_product_list *l, pl_cuda_product p)
{
    p.alpha = p.alpha == 0 ? 1 : p.alpha;
    l->product[l->products++] = p;
}

/* P = b A + c A A */
static void put_polynomial(pl_cuda_product_list *l, uint8_t P, const double *coef)
{
    put_product(l, (pl_cuda_product){.c = P,
                                     .a = IN_A,
                                     .b = IN_A,
                                     .d = IN_A,
                                     .sym = 1,
                                     .alpha = (float)coef[2],
                                     .beta = (float)coef[1]});
}

/* A step and those joined to it, from x to y, as steps_fused in compose/newton_schulz.c has them. */
static void put_chain(pl_cuda_product_list *l, const double *coef, int64_t joined, uint8_t y, uint8_t x,
                      int tall, int lent)
{
    uint8_t P = IN_P, B = IN_P, spare = IN_S, t = (uint8_t)tall;
    double factor = coef[0];
    put_product(l, (pl_cuda_product){
                       .c = IN_A, .a = x, .b = x, .d = PL_CUDA_PRODUCTS_NONE, .ta = t, .tb = t, .sym = 1});
    put_polynomial(l, P, coef);
    for (int64_t s = 0; s < joined; s++) {
        float ka = (float)coef[0];
        /* W = Z A, A = W Z */
        put_product(l, (pl_cuda_product){.c = spare, .a = B, .b = IN_A, .d = IN_A, .sym = 1, .beta = ka});
        put_product(l, (pl_cuda_product){.c = IN_A, .a = spare, .b = B, .d = spare, .sym = 1, .beta = ka});
        coef += 3, B = IN_B;
        put_polynomial(l, B, coef);
        /* (a I + B) (q I + P) - a q I */
        put_product(l, (pl_cuda_product){.c = spare,
                                         .a = B,
                                         .b = P,
                                         .d = P,
                                         .e = B,
                                         .sym = 1,
                                         .beta = (float)coef[0],
                                         .gamma = (float)factor});
        uint8_t made = spare;
        spare = P, P = made;
        factor *= coef[0];
    }
    /* q X + P X, or of a tall X, since P is symmetric, q X + X P */
    put_product(l, (pl_cuda_product){.c = y,
                                     .a = tall ? x : P,
                                     .b = tall ? P : x,
                                     .d = x,
                                     .tb = (uint8_t)!tall,
                                     .lent = (uint8_t)lent,
                                     .beta = (float)factor});
}

/* Where cuBLASLt makes q X + P X sooner than our tiles: above 1024, and of a single 1024^2, whose 128 tiles
 * of 64 columns take 8.1 to 8.7 us, cuBLASLt 6.0 to 6.5 (packed: strides are part of its key). */
static int lends(const pl_mat *X)
{
    return is_huge(X) || (X->rows == JOINED && X->cols == JOINED && X->rs == JOINED);
}

/* The last one as well, whose result is copied then: 2048^2 took 344 us with that product by our tiles, 339
 * by cuBLASLt and a copy. At 4096^2 they are level; above, the copy costs more (entry 95 of
 * docs/speed/gpu.md). */
static int lends_last(const pl_mat *X)
{
    return is_huge(X) && short_side(X) < OWN_LAST;
}

/* X goes to Y and back, or by Z first. */
static void put_steps(pl_cuda_product_list *l, const pl_args_newton_schulz *a)
{
    uint8_t x = IN_X;
    int64_t n = renewals(a), made = 0;
    for (int64_t s = 0, joined; s < a->steps; s += 1 + joined, made++) {
        uint8_t y = by_z(a) && made < 3 ? (uint8_t)((x + 1) % 3) : x == IN_X ? IN_Y : IN_X;
        joined = pl_chain_joined(a->chain, s);
        int lent = made < n - 1 ? lends(&a->X) : lends_last(&a->X);
        put_chain(l, a->coef + 3 * s, joined, y, x, a->X.rows > a->X.cols, lent);
        x = y;
    }
}

static pl_cuda_product_list list_of(pl_queue *q, const pl_args_newton_schulz *a, char *base)
{
    list_room r = room_of(a, base);
    int64_t rows = a->X.rows, cols = a->X.cols, m = short_side(&a->X);
    pl_cuda_product_list l = {.arrays = a->chain ? ARRAYS : IN_S, .batch = a->X.batch};
    for (int i = 0; i < l.arrays; i++) {
        if (i < IN_A) l.array[i] = (pl_cuda_product_array){r.of[i], rows, cols, cols, rows * cols};
        else l.array[i] = (pl_cuda_product_array){r.of[i], m, m, m, m * m};
    }
    l.array[IN_X] = (pl_cuda_product_array){a->X.data, rows, cols, a->X.rs, a->X.bs};
    l.counters = pl_cuda_q(q)->counters;
    put_steps(&l, a);
    if (a->Y.data && a->Y.dtype == POLAR_DTYPE_F32 && !lends_last(&a->X))
        l.out = a->Y.data, l.ldo = a->Y.rs, l.bso = a->Y.bs;
    if (l.out && !pl_cuda_products_suit(&l)) l.out = NULL;
    return l;
}

/* The matrices from `first` on, as many as a list takes. */
static pl_args_newton_schulz piece_of(const pl_args_newton_schulz *a, int64_t first)
{
    pl_args_newton_schulz piece = *a;
    int64_t left = a->X.batch - first;
    if (left > PL_CUDA_PRODUCTS_BATCH) left = PL_CUDA_PRODUCTS_BATCH;
    piece.X = pl_mat_at(a->X, first, left);
    if (a->Y.data) piece.Y = pl_mat_at(a->Y, first, left);
    return piece;
}

/* ---- running them ------------------------------------------------------------------------------- */

static pl_mat array_mat(const pl_cuda_product_list *l, int i)
{
    const pl_cuda_product_array *x = &l->array[i];
    pl_mat m = pl_mat_dense((void *)x->data, POLAR_DTYPE_BF16, l->batch, x->rows, x->cols);
    m.rs = x->ld, m.bs = x->bs;
    return m;
}

/* Y = q X + P X as gemm has it. */
static void multiply_lent(pl_queue *q, const pl_cuda_product_list *l, const pl_cuda_product *p)
{
    pl_cuda_gemm(q, &(pl_args_gemm){.C = array_mat(l, p->c),
                                    .A = array_mat(l, p->a),
                                    .B = array_mat(l, p->b),
                                    .alpha = p->alpha,
                                    .D = array_mat(l, p->d),
                                    .beta = p->beta});
}

static cudaError_t run(pl_queue *q, const pl_args_newton_schulz *a, const pl_cuda_product_list *l)
{
    const pl_hopper_device *hopper = pl_cuda_hopper(q->dev);
    cudaStream_t stream = pl_cuda_q(q)->stream;
    cudaError_t e = cudaSuccess;
    if (!is_huge(&a->X) && pl_cuda_products_together(hopper, l))
        return pl_cuda_products_launch(hopper, stream, l, pl_cuda_products_width(hopper, l));
    for (int i = 0; i < l->products && e == cudaSuccess; i++) {
        if (l->product[i].lent) multiply_lent(q, l, &l->product[i]);
        else e = pl_cuda_products_single(hopper, stream, l, i);
    }
    return e;
}

/* To `home`, which may be the transpose's. */
static void iterate_piece(pl_queue *q, const pl_args_newton_schulz *a, pl_mat home, char *base)
{
    pl_cuda_product_list l = list_of(q, a, base);
    cudaError_t e = run(q, a, &l);
    if (e != cudaSuccess) pl_queue_keep(q, pl_cuda_fail(e, "launching Newton-Schulz steps", q->dev));
    pl_mat result = array_mat(&l, l.product[l.products - 1].c);
    if (!l.out && result.data != home.data)
        pl_cuda_copy(q, &(pl_args_copy){.Y = home, .X = result, .trans = home.rows != result.rows});
    pl_cuda_check_op(q, PL_OP_newton_schulz, a);
}

/* A tall matrix of more than 1024 columns goes as its transpose, `base` bytes of it in front of the rest. */
static int is_turned(const pl_args_newton_schulz *a)
{
    return is_huge(&a->X) && a->X.rows > a->X.cols;
}

static pl_args_newton_schulz turned_args(const pl_args_newton_schulz *a, void *base)
{
    pl_args_newton_schulz t = *a;
    t.X = pl_mat_dense(base, POLAR_DTYPE_BF16, a->X.batch, a->X.cols, a->X.rows);
    t.Y = (pl_mat){0};
    return t;
}

static size_t turned_bytes(const pl_args_newton_schulz *a)
{
    return is_turned(a) ? pl_scratch_bytes(pl_mat_bytes(&a->X)) : 0;
}

int pl_cuda_ns_large_serves(pl_queue *q, const pl_args_newton_schulz *a)
{
    if (!pl_cuda_hopper(q->dev)->multiprocessors || a->steps < 1) return 0;
    if (a->X.rows % 64 || a->X.cols % 64 || short_side(&a->X) <= LEAST) return 0;
    for (int64_t s = 0; s < a->steps; s++) /* a cubic table's steps have a product less */
        if (a->coef[3 * s + 2] == 0) return 0;
    pl_args_newton_schulz piece = piece_of(a, 0);
    if (is_turned(a)) piece = turned_args(&piece, NULL);
    pl_cuda_product_list l = list_of(q, &piece, NULL);
    return pl_cuda_products_suit(&l);
}

size_t pl_cuda_ns_large_scratch(const pl_args_newton_schulz *a)
{
    pl_args_newton_schulz piece = piece_of(a, 0);
    size_t front = turned_bytes(&piece);
    if (front) piece = turned_args(&piece, NULL);
    return front + room_of(&piece, NULL).bytes;
}

void pl_cuda_ns_large(pl_queue *q, const pl_args_newton_schulz *a)
{
    pl_scratch_mark mark = pl_scratch_begin(q);
    char *base = pl_scratch_take(q, pl_cuda_ns_large_scratch(a));
    for (int64_t first = 0; base && first < a->X.batch; first += PL_CUDA_PRODUCTS_BATCH) {
        pl_args_newton_schulz piece = piece_of(a, first);
        const pl_mat home = a->Y.data ? piece.Y : piece.X;
        const size_t front = turned_bytes(&piece);
        if (front) {
            pl_args_newton_schulz turned = turned_args(&piece, base);
            pl_cuda_copy(q, &(pl_args_copy){.Y = turned.X, .X = piece.X, .trans = 1});
            piece = turned;
        }
        iterate_piece(q, &piece, home, base + front);
    }
    pl_scratch_end(q, mark);
}
