/* cuda_hopper_products.cu -- the kernel of cuda_products.h (its tiles: cuda_product_tiles.cuh), which width
 * it takes, and its launch. */
#include "cuda_product_tiles.cuh"

template <class T, int WIDTH, addend MOST, int N>
__global__ void __launch_bounds__(THREADS, 1) tiles(const __grid_constant__ list_params<N> p)
{
    using S = shape<WIDTH>;
    extern __shared__ uint8_t memory[];
    places at;
    at.stages = (pl_smem(memory) + 1023) & ~1023u;
    at.boxes = at.stages + S::STAGES * S::STAGE;
    at.full = at.boxes + S::BOXES, at.empty = at.full + 8 * STAGES_MAX;
    at.come = at.empty + 8 * STAGES_MAX, at.ready = at.come + 16, at.drained = at.ready + 32;
    at.freed = at.drained + 16, at.known = at.freed + 16, at.taken = at.known + 16, at.slots = at.taken + 16;
    if (threadIdx.x == 0) {
        const phase &f = p.of[0]; /* its maps come while the kernel before this one ends */
        pl_tma_prefetch(&p.map[f.a]), pl_tma_prefetch(&p.map[f.b]), pl_tma_prefetch(&p.map[f.c]);
        if (f.d != PL_CUDA_PRODUCTS_NONE) pl_tma_prefetch(&p.map[f.d]);
        for (int s = 0; s < S::STAGES; s++) {
            pl_mbar_init(at.full + 8 * s, 1);
            pl_mbar_init(at.empty + 8 * s, 2);
        }
        for (int i = 0; i < 2; i++) {
            pl_mbar_init(at.come + 8 * i, 1);
            pl_mbar_init(at.ready + 8 * i, 4); /* a consumer's warps */
            pl_mbar_init(at.ready + 16 + 8 * i, 4);
            pl_mbar_init(at.drained + 8 * i, 1);
            pl_mbar_init(at.freed + 8 * i, 1);
            pl_mbar_init(at.known + 8 * i, 1);
            pl_mbar_init(at.taken + 8 * i, 2); /* the carriers */
        }
        pl_mbar_init_done();
    }
    __syncthreads();
    pl_kernel_begin();
    if (threadIdx.x < 128) {
        pl_registers_fewer<56>();
        const int warp = (int)threadIdx.x / 32;
        if (warp == 0) produce<WIDTH>(p, at);
        else if (warp < 3) {
            if (threadIdx.x % 32 == 0) carry<WIDTH>(p, at, warp - 1);
            __syncwarp();
            leave(p);
        }
    } else {
        pl_registers_more<224>();
        consume<T, WIDTH, MOST>(p, at);
    }
}

/* ---- host --------------------------------------------------------------------------------------- */

static int64_t over(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static int64_t tile_count(int64_t m, int64_t n, int sym, int width)
{
    int64_t sum = 0;
    for (int64_t i = 0; i * ROWS < m; i++) sum += over(n - (sym ? i * ROWS : 0), width);
    return sum;
}

static int aligned(const void *data, int64_t rows, int64_t ld, int64_t bs, int64_t batch, int64_t unit)
{
    return (uintptr_t)data % 16 == 0 && ld % unit == 0 && (batch == 1 || (bs % unit == 0 && bs >= rows * ld));
}

/* The last product's results in pairs of f32, beside a D that comes through the boxes. */
static int out_suits(const pl_cuda_product_list *l)
{
    const pl_cuda_product *q = &l->product[l->products - 1];
    return !q->sym && q->gamma == 0 && q->d != PL_CUDA_PRODUCTS_NONE && !l->wide &&
           aligned(l->out, l->array[q->c].rows, l->ldo, l->bso, l->batch, 4);
}

int pl_cuda_products_suit(const pl_cuda_product_list *l)
{
    const int64_t most = INT32_MAX / 4;
    int64_t tiles = 0;
    if (l->batch <= 0 || l->products <= 0 || l->products > PL_CUDA_PRODUCTS_MAX) return 0;
    if (l->products > 1 && (!l->counters || l->batch > PL_CUDA_PRODUCTS_BATCH)) return 0;
    for (int i = 0; i < l->arrays; i++) {
        const pl_cuda_product_array *x = &l->array[i];
        if (x->rows <= 0 || x->cols <= 0 || x->rows > most || x->cols > most || x->cols % 8) return 0;
        if (!aligned(x->data, x->rows, x->ld, x->bs, l->batch, 8)) return 0;
    }
    for (int i = 0; i < l->products; i++) {
        const pl_cuda_product_array *c = &l->array[l->product[i].c];
        if (l->product[i].ta && !l->product[i].tb) return 0;                   /* nobody asks for that */
        if (l->product[i].ta && l->array[l->product[i].a].cols % 64) return 0; /* whole panels */
        if (l->product[i].tb && l->array[l->product[i].b].cols % 64) return 0;
        if (l->wide && !aligned(l->wide, c->rows, l->ldw, l->bsw, l->batch, 4)) return 0;
        if (i == l->products - 1 && l->out && !out_suits(l)) return 0;
        tiles += l->batch * over(c->rows, ROWS) * over(c->cols, 64);
    }
    return tiles < most; /* counted by an int, narrow ones too */
}

/* An array for one of its roles, `lines` of a factor's at once, swizzled. */
static int map_make(CUtensorMap *map, const pl_hopper_device *dev, const pl_cuda_product_list *l, int array,
                    role as, int lines)
{
    const pl_cuda_product_array *x = &l->array[array];
    pl_encode_function encode = (pl_encode_function)dev->encode;
    const int panels = as == A_PANELS || as == B_PANELS;
    const cuuint64_t rows = (cuuint64_t)x->rows, cols = (cuuint64_t)x->cols, batch = (cuuint64_t)l->batch;
    const cuuint64_t ld = (cuuint64_t)x->ld * 2, bs = l->batch > 1 ? (cuuint64_t)x->bs * 2 : rows * ld;
    cuuint64_t flat[3] = {cols, rows, batch}, flat_stride[2] = {ld, bs};
    cuuint64_t deep[4] = {64, rows, cols / 64, batch}, deep_stride[3] = {ld, 128, bs};
    cuuint32_t flat_box[3] = {64, (cuuint32_t)lines, 1}, deep_box[4] = {64, DEPTH, (cuuint32_t)lines / 64, 1},
               step[4] = {1, 1, 1, 1};
    return encode(map, l->half ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
                  panels ? 4 : 3, (void *)x->data, panels ? deep : flat, panels ? deep_stride : flat_stride,
                  panels ? deep_box : flat_box, step, CU_TENSOR_MAP_INTERLEAVE_NONE,
                  CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

/* Where in the list's maps an array in a role stands. */
struct mapped {
    uint8_t at[PL_CUDA_PRODUCTS_ARRAYS][ROLES];
};

/* The maps that the list's products use. */
template <int N>
static int maps_make(list_params<N> *p, mapped *where, const pl_hopper_device *dev,
                     const pl_cuda_product_list *l, int width)
{
    uint8_t made[PL_CUDA_PRODUCTS_ARRAYS][ROLES] = {}, count = 0;
    for (int i = 0; i < l->products; i++) {
        const pl_cuda_product *q = &l->product[i];
        const struct {
            int array;
            role as;
            int lines;
        } uses[4] = {{q->a, q->ta ? A_PANELS : A_ROWS, ROWS},
                     {q->b, q->tb ? B_PANELS : B_ROWS, width},
                     {q->c, AS_BOX, 64},
                     {q->d, AS_BOX, 64}};
        for (auto &u : uses) {
            if (u.array == PL_CUDA_PRODUCTS_NONE || made[u.array][u.as]) continue;
            if (!map_make(&p->map[count], dev, l, u.array, u.as, u.lines)) return 0;
            made[u.array][u.as] = 1;
            where->at[u.array][u.as] = count++;
        }
    }
    return 1;
}

static int64_t depth_of(const pl_cuda_product_list *l, const pl_cuda_product *q)
{
    return q->ta ? l->array[q->a].rows : l->array[q->a].cols;
}

template <int N>
static void phases_make(list_params<N> *p, const mapped &where, const pl_cuda_product_list *l, int width)
{
    uint32_t need = 0;
    for (int i = 0; i < l->products; i++) {
        const pl_cuda_product *q = &l->product[i];
        const pl_cuda_product_array *c = &l->array[q->c];
        phase *f = &p->of[i];
        f->m = (int)c->rows, f->n = (int)c->cols, f->k_blocks = (int)over(depth_of(l, q), DEPTH);
        f->rows = (int)over(c->rows, ROWS), f->tiles = (int)tile_count(c->rows, c->cols, q->sym, width);
        f->a = where.at[q->a][q->ta ? A_PANELS : A_ROWS], f->b = where.at[q->b][q->tb ? B_PANELS : B_ROWS];
        f->c = where.at[q->c][AS_BOX];
        f->d = q->d == PL_CUDA_PRODUCTS_NONE ? PL_CUDA_PRODUCTS_NONE : where.at[q->d][AS_BOX];
        f->e = N == 1 ? 0 : q->e;
        f->out = l->out && i == l->products - 1;
        f->ta = q->ta, f->tb = q->tb, f->sym = q->sym, f->gamma = q->gamma;
        f->alpha = q->alpha, f->beta = q->d != PL_CUDA_PRODUCTS_NONE || l->wide ? q->beta : 0;
        f->need = need;
        need += 2u * (uint32_t)f->tiles;
        p->total += f->tiles * (int)l->batch;
        f->end = p->total;
    }
}

template <class T, int WIDTH, int N>
static cudaError_t launch_list(const pl_hopper_device *dev, cudaStream_t stream,
                               const pl_cuda_product_list *l)
{
    list_params<N> p = {};
    mapped where = {};
    if (!maps_make(&p, &where, dev, l, WIDTH)) return cudaErrorInvalidValue;
    for (int i = 0; i < (N == 1 ? 1 : l->arrays); i++) {
        const pl_cuda_product_array *x = &l->array[N == 1 ? l->product[0].e : i];
        p.base[i] = x->data, p.ld[i] = x->ld, p.bs[i] = l->batch > 1 ? x->bs : 0;
    }
    phases_make(&p, where, l, WIDTH);
    p.batch = (int)l->batch;
    p.wide = l->wide, p.ldw = l->ldw, p.bsw = l->batch > 1 ? l->bsw : 0;
    p.out = l->out, p.ldo = l->ldo, p.bso = l->batch > 1 ? l->bso : 0;
    p.counters = l->products > 1 ? l->counters : nullptr;

    auto *kernel = tiles<T, WIDTH, ADD_BOXES, N>;
    for (int i = 0; i < l->products; i++)
        if (l->product[i].gamma != 0) kernel = tiles<T, WIDTH, ADD_TWO, N>;
    if (l->wide) kernel = tiles<T, WIDTH, ADD_WIDE, N>;
    unsigned blocks = (unsigned)(p.total < dev->multiprocessors ? p.total : dev->multiprocessors);
    return launch_early(kernel, dim3(blocks), dim3(THREADS), shape<WIDTH>::BYTES, stream, p);
}

template <class T, int WIDTH>
static cudaError_t launch(const pl_hopper_device *dev, cudaStream_t stream, const pl_cuda_product_list *l)
{
    return l->products == 1 ? launch_list<T, WIDTH, 1>(dev, stream, l)
                            : launch_list<T, WIDTH, PL_CUDA_PRODUCTS_MAX>(dev, stream, l);
}

typedef cudaError_t (*launch_function)(const pl_hopper_device *, cudaStream_t, const pl_cuda_product_list *);

static const struct {
    int width;
    launch_function launch[2]; /* bf16, f16 */
} kernels[] = {
    {64, {launch<__nv_bfloat16, 64>, launch<__half, 64>}},
    {128, {launch<__nv_bfloat16, 128>, launch<__half, 128>}},
    {192, {launch<__nv_bfloat16, 192>, launch<__half, 192>}},
    {256, {launch<__nv_bfloat16, 256>, launch<__half, 256>}},
};

#define KERNEL_COUNT ((int)(sizeof kernels / sizeof kernels[0]))

/* Estimated microseconds of an H200, fitted to 14 lists (docs/speed/gpu.md). Products one by one come in
 * rounds of tiles and begin anew each time; in one launch the multiprocessors go on with other matrices, but
 * a matrix's next product waits for all tiles of the one before. */
#define AGAIN    4.0
#define CHAIN    2.2
#define MIRRORED 1.0

static double tile_time(const pl_cuda_product_list *l, const pl_cuda_product *q, int width)
{
    static const struct {
        double stage, end;
    } fitted[] = {{0.354, 0.1}, {0.398, 1.5}, {0.538, 1.35}, {0.69, 2.7}};
    const auto &f = fitted[width / 64 - 1];
    return (double)over(depth_of(l, q), DEPTH) * f.stage + f.end + (q->sym ? MIRRORED : 0);
}

static double estimate(const pl_cuda_product_list *l, const pl_cuda_product *q, int width,
                       int multiprocessors, double *share)
{
    const pl_cuda_product_array *c = &l->array[q->c];
    int64_t tiles = tile_count(c->rows, c->cols, q->sym, width) * l->batch;
    double each = tile_time(l, q, width);
    *share = each * (double)tiles / multiprocessors;
    return (double)over(tiles, multiprocessors) * each + AGAIN;
}

/* Of a list in one launch. */
static double estimate_joint(const pl_cuda_product_list *l, int width, int multiprocessors)
{
    double work = 0, chain = 0, share, alone = 0;
    for (int i = 0; i < l->products; i++) {
        alone += estimate(l, &l->product[i], width, multiprocessors, &share);
        work += share;
        chain += tile_time(l, &l->product[i], width) + CHAIN;
    }
    if (l->products == 1) return alone;
    work += chain / 8;
    return work > chain ? work : chain;
}

int pl_cuda_products_width(const pl_hopper_device *dev, const pl_cuda_product_list *l)
{
    int best = 0;
    double least = 0;
    for (int i = 0; i < KERNEL_COUNT; i++) {
        double t = estimate_joint(l, kernels[i].width, dev->multiprocessors);
        if (!best || t < least) best = kernels[i].width, least = t;
    }
    return best;
}

/* A symmetric product of large matrices as cuda_hopper.h has it, which begins and ends sooner; 0 where it
 * is left to the tiles. The bits are the same: one instruction, one order over k, one epilogue. */
static int as_symmetric(pl_hopper_product *out, const pl_cuda_product_list *l)
{
    const pl_cuda_product *q = &l->product[0];
    const pl_cuda_product_array *a = &l->array[q->a], *b = &l->array[q->b], *c = &l->array[q->c];
    if (!q->sym || q->ta || q->tb || q->gamma != 0 || l->wide || !pl_hopper_pays(c->rows, a->cols)) return 0;
    *out = {};
    out->C = (void *)c->data, out->A = a->data, out->B = b->data;
    out->m = c->rows, out->k = a->cols, out->batch = l->batch;
    out->ldc = c->ld, out->lda = a->ld, out->ldb = b->ld, out->bsc = c->bs, out->bsa = a->bs,
    out->bsb = b->bs;
    if (q->d != PL_CUDA_PRODUCTS_NONE) {
        const pl_cuda_product_array *d = &l->array[q->d];
        out->D = d->data, out->ldd = d->ld, out->bsd = d->bs;
    }
    out->alpha = q->alpha, out->beta = q->beta, out->half = l->half;
    return pl_hopper_suits(out);
}

static pl_cuda_product_list single(const pl_cuda_product_list *l, int i)
{
    pl_cuda_product_list one = *l;
    one.products = 1, one.product[0] = l->product[i];
    if (i < l->products - 1) one.out = nullptr;
    return one;
}

/* A plain product by cuBLASLt: begin and end, and the rate at which the tensor cores hold out. */
static double estimate_lent(const pl_cuda_product_list *l, const pl_cuda_product *q)
{
    const pl_cuda_product_array *c = &l->array[q->c];
    return 3 + 2.0 * (double)l->batch * (double)c->rows * (double)c->cols * (double)depth_of(l, q) / 720e6;
}

static double estimate_single(const pl_hopper_device *dev, const pl_cuda_product_list *one)
{
    double share;
    pl_hopper_product half;
    if (one->product[0].lent) return estimate_lent(one, one->product);
    if (as_symmetric(&half, one)) return pl_hopper_estimate(dev, &half);
    return estimate(one, one->product, pl_cuda_products_width(dev, one), dev->multiprocessors, &share);
}

cudaError_t pl_cuda_products_single(const pl_hopper_device *dev, cudaStream_t stream,
                                    const pl_cuda_product_list *l, int i)
{
    pl_cuda_product_list one = single(l, i);
    pl_hopper_product half;
    if (as_symmetric(&half, &one))
        return pl_hopper_multiply(dev, stream, &half, pl_hopper_plan_for(dev, &half));
    return pl_cuda_products_launch(dev, stream, &one, pl_cuda_products_width(dev, &one));
}

int pl_cuda_products_together(const pl_hopper_device *dev, const pl_cuda_product_list *l)
{
    double apart = 0;
    for (int i = 0; i < l->products; i++) {
        pl_cuda_product_list one = single(l, i);
        apart += estimate_single(dev, &one);
    }
    return l->products > 1 &&
           estimate_joint(l, pl_cuda_products_width(dev, l), dev->multiprocessors) <= apart;
}

cudaError_t pl_cuda_products_launch(const pl_hopper_device *dev, cudaStream_t stream,
                                    const pl_cuda_product_list *l, int width)
{
    for (int i = 0; i < KERNEL_COUNT; i++)
        if (kernels[i].width == width) return kernels[i].launch[l->half != 0](dev, stream, l);
    return cudaErrorInvalidValue;
}
