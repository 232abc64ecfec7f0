/* host_tensor.cpp -- tensor cores and the copy engine on the host (cuda_host.h): fragments of mma.sync,
 * ldmatrix and their kin, wgmma by descriptors, tensor maps and bulk copies.
 *
 * Products are summed in f32 in ascending k, one rounding each: a GPU's sums are as good, in another order.
 * Layouts are those of cuda_wgmma.cuh and cuda_mma.cuh, which PTX's manual draws.
 */
#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>

#include <algorithm>
#include <string>

#include "host_race.h"
#include "math/bf16_elem.h"
#include "math/f16_elem.h"

namespace cuda_host
{

uint16_t bf16_of(float x)
{
    return pl_bf16_from_f32(x);
}

uint16_t f16_of(float x)
{
    return pl_f16_from_f32(x);
}

float from_bf16(uint16_t bits)
{
    return pl_bf16_to_f32(bits);
}

float from_f16(uint16_t bits)
{
    return pl_f16_to_f32(bits);
}

static float wide(uint16_t bits, bool half)
{
    return half ? from_f16(bits) : from_bf16(bits);
}

/* ---- a warp's 8 x 8 blocks ---------------------------------------------------------------------- */

struct blocks {
    char *row; /* this lane's, of ldmatrix and stmatrix */
    uint32_t value[4];
    int count;
    bool trans;
};

static uint16_t *element(void **lanes, int block, int i, int j)
{
    return (uint16_t *)((blocks *)lanes[8 * block + i])->row + j;
}

template <bool STORE> static void move_blocks(void **lanes)
{
    const blocks any = *(blocks *)lanes[0];
    if (race::on) {
        race::warp_asker warp(now->clock - now->lane, 32, false);
        for (int lane = 0; lane < 8 * any.count; lane++)
            warp.touch(lane, ((blocks *)lanes[lane])->row, 16, STORE);
    }
    for (int q = 0; q < any.count; q++)
        for (int lane = 0; lane < 32; lane++)
            for (int k = 0; k < 2; k++) {
                int i = lane / 4, j = 2 * (lane % 4) + k;
                uint32_t *v = &((blocks *)lanes[lane])->value[q];
                uint16_t *e = any.trans ? element(lanes, q, j, i) : element(lanes, q, i, j);
                if (STORE) *e = (uint16_t)(*v >> (16 * k));
                else *v = (*v & ~(0xffffu << (16 * k))) | (uint32_t)*e << (16 * k);
            }
}

static char *row_at(const operand &o)
{
    if (o.as<uint32_t>() % 16) stop("a row of ldmatrix or stmatrix that is not aligned to 16 bytes");
    return (char *)shared_pointer(o.as<uint32_t>());
}

static void load_matrix(const operands &o, const form &f) /* values, [row] */
{
    blocks b = {row_at(o[f.blocks]), {}, f.blocks, f.trans};
    meet(ALL_LANES, &b, move_blocks<false>);
    for (int q = 0; q < b.count; q++) o[q].set(b.value[q]);
}

static void store_matrix(const operands &o, const form &f) /* [row], values */
{
    blocks b = {row_at(o[0]), {}, f.blocks, f.trans};
    for (int q = 0; q < b.count; q++) b.value[q] = o[q + 1].as<uint32_t>();
    meet(ALL_LANES, &b, move_blocks<true>);
}

static void transpose_block(const operands &o, const form &)
{
    blocks b = {};
    b.value[0] = o[1].as<uint32_t>();
    meet(ALL_LANES, &b, [](void **lanes) {
        uint16_t x[8][8];
        for (int lane = 0; lane < 32; lane++)
            for (int k = 0; k < 2; k++)
                x[lane / 4][2 * (lane % 4) + k] = (uint16_t)(((blocks *)lanes[lane])->value[0] >> (16 * k));
        for (int lane = 0; lane < 32; lane++) {
            int i = lane / 4, j = 2 * (lane % 4);
            ((blocks *)lanes[lane])->value[0] = x[j][i] | (uint32_t)x[j + 1][i] << 16;
        }
    });
    o[0].set(b.value[0]);
}

/* ---- products ------------------------------------------------------------------------------------ */

constexpr int PRODUCT_K = 16, PRODUCT_MOST = 256;

/* sums += A B, rows h and h + 8 of A; eight columns at once, each summed in ascending k. */
__attribute__((target_clones("avx512f", "avx2", "default"))) static void
multiply_rows(float (*sums)[PRODUCT_MOST], const float (*A)[PRODUCT_K], const float (*B)[PRODUCT_MOST], int n)
{
    typedef float eight __attribute__((vector_size(32)));
    for (int j = 0; j < n; j += 8) {
        eight d, e, b;
        memcpy(&d, &sums[0][j], sizeof d), memcpy(&e, &sums[1][j], sizeof e);
        for (int k = 0; k < PRODUCT_K; k++) {
            memcpy(&b, &B[k][j], sizeof b);
            d += A[0][k] * b, e += A[8][k] * b;
        }
        memcpy(&sums[0][j], &d, sizeof d), memcpy(&sums[1][j], &e, sizeof e);
    }
}

/* ---- mma.sync ----------------------------------------------------------------------------------- */

struct warp_product {
    float d[4];
    uint32_t a[4], b[2];
};

static float part(uint32_t pair, int k)
{
    return wide((uint16_t)(pair >> (16 * k)), false);
}

static void multiply_warp(void **lanes)
{
    static thread_local float A[16][PRODUCT_K], B[PRODUCT_K][PRODUCT_MOST], d[2][PRODUCT_MOST];
    for (int lane = 0; lane < 32; lane++) {
        auto *p = (warp_product *)lanes[lane];
        int g = lane / 4, t = lane % 4;
        for (int c = 0; c < 2; c++)
            for (int h = 0; h < 2; h++)
                for (int k = 0; k < 2; k++) A[g + 8 * h][8 * c + 2 * t + k] = part(p->a[2 * c + h], k);
        for (int h = 0; h < 2; h++)
            for (int k = 0; k < 2; k++) B[8 * h + 2 * t + k][g] = part(p->b[h], k);
    }
    for (int row = 0; row < 8; row++) { /* and the one 8 below */
        for (int j = 0; j < 8; j++)
            for (int h = 0; h < 2; h++) d[h][j] = ((warp_product *)lanes[4 * row + j / 2])->d[2 * h + j % 2];
        multiply_rows(d, &A[row], B, 8);
        for (int j = 0; j < 8; j++)
            for (int h = 0; h < 2; h++) ((warp_product *)lanes[4 * row + j / 2])->d[2 * h + j % 2] = d[h][j];
    }
}

static void mma_bf16(const operands &o, const form &) /* d (4), a (4), b (2), c (4) */
{
    warp_product p;
    for (int i = 0; i < 4; i++) p.d[i] = o[10 + i].as<float>(), p.a[i] = o[4 + i].as<uint32_t>();
    for (int i = 0; i < 2; i++) p.b[i] = o[8 + i].as<uint32_t>();
    meet(ALL_LANES, &p, multiply_warp);
    for (int i = 0; i < 4; i++) o[i].set(p.d[i]);
}

struct double_product {
    double d[2], a, b;
};

static void mma_f64(const operands &o, const form &) /* d (2), a, b, c (2) */
{
    double_product p = {{o[4].as<double>(), o[5].as<double>()}, o[2].as<double>(), o[3].as<double>()};
    meet(ALL_LANES, &p, [](void **lanes) {
        for (int lane = 0; lane < 32; lane++)
            for (int i = 0; i < 2; i++)
                for (int k = 0; k < 4; k++) {
                    double a = ((double_product *)lanes[lane / 4 * 4 + k])->a,
                           b = ((double_product *)lanes[(2 * (lane % 4) + i) * 4 + k])->b;
                    double *d = &((double_product *)lanes[lane])->d[i];
                    *d = fma(a, b, *d);
                }
    });
    o[0].set(p.d[0]);
    o[1].set(p.d[1]);
}

struct wide_double_product {
    double d[4], a[4], b[2];
};

static void mma_f64_wide(const operands &o, const form &) /* d (4), a (4), b (2), c (4) */
{
    wide_double_product p;
    for (int i = 0; i < 4; i++) p.d[i] = o[10 + i].as<double>(), p.a[i] = o[4 + i].as<double>();
    for (int i = 0; i < 2; i++) p.b[i] = o[8 + i].as<double>();
    meet(ALL_LANES, &p, [](void **lanes) {
        for (int lane = 0; lane < 32; lane++)
            for (int i = 0; i < 4; i++)
                for (int k = 0; k < 8; k++) {
                    double a = ((wide_double_product *)lanes[lane / 4 * 4 + k % 4])->a[k / 4 * 2 + i / 2],
                           b = ((wide_double_product *)lanes[(2 * (lane % 4) + i % 2) * 4 + k % 4])->b[k / 4];
                    double *d = &((wide_double_product *)lanes[lane])->d[i];
                    *d = fma(a, b, *d);
                }
    });
    for (int i = 0; i < 4; i++) o[i].set(p.d[i]);
}

/* ---- wgmma -------------------------------------------------------------------------------------- */

/* Bits 4 to 6 of an address are mixed with those from 7 on, as wide as the swizzle. */
static uint32_t swizzled(uint32_t address, int row_bytes)
{
    uint32_t units = (uint32_t)row_bytes / 16 - 1;
    return row_bytes >= 32 ? address ^ ((address >> 7 & units) << 4) : address;
}

/* An operand in shared memory: number (line, k), line along M or N. */
struct described {
    uint64_t bits;
    bool across; /* rows are k */
    uint32_t at(int line, int k) const
    {
        static const int rows[4] = {16, 128, 64, 32};
        int row = rows[bits >> 62], units = row / 2;
        uint32_t begin = (uint32_t)(bits & 0x3fff) << 4, panel = (uint32_t)(bits >> 16 & 0x3fff) << 4,
                 eight = (uint32_t)(bits >> 32 & 0x3fff) << 4;
        uint32_t at = across ? begin + (uint32_t)(line / units) * panel + (uint32_t)(k / 8) * eight +
                                   (uint32_t)(k % 8 * row + line % units * 2)
                             : begin + (uint32_t)(line / 8) * eight + (uint32_t)(line % 8 * row + k * 2);
        return swizzled(at, row);
    }
};

struct group_product {
    int n;
    bool add, half, registers;
    uint32_t a[4];
    described A, B;
    reg *d; /* n / 2 sums */
};

/* Each warp reads its own 16 rows of A, and all of B; eight numbers that follow each other are 16 bytes. */
static void touch_operands(const group_product *p)
{
    race::actor *first = now->clock - now->number % 128;
    uint32_t rank = cluster_rank();
    auto read = [&](race::warp_asker &who, const described &x, int begin, int end) {
        for (int line = begin; line < end; line += x.across ? 8 : 1)
            for (int k = 0; k < 16; k += x.across ? 1 : 8)
                who.touch(0, shared_pointer(remote_address(x.at(line, k), rank)), 16, false);
    };
    race::warp_asker all(first, 32, true);
    for (int w = 0; w < 4; w++) {
        race::warp_asker warp(first + 32 * w, 32, true);
        all.narrow(warp);
        if (!p->registers) read(warp, p->A, 16 * w, 16 * w + 16);
    }
    read(all, p->B, 0, p->n);
}

/* Eight numbers that follow each other, from shared memory. */
static void widen(float *to, const described &x, int line, int k, bool half, uint32_t rank)
{
    uint32_t at = remote_address(x.at(line, k), rank);
    uint16_t bits[8];
    memcpy(bits, shared_pointer(at), sizeof bits);
    shared_pointer(at + 14); /* is there, too */
    for (int i = 0; i < 8; i++) to[i] = wide(bits[i], half);
}

/* Thread t has the sums of rows t / 4 and 8 below in its warp's 16, of columns 2 (t % 4) and the next in
 * each eight. */
static void multiply_group(void **threads)
{
    if (race::on) touch_operands((group_product *)threads[0]);
    const group_product any = *(group_product *)threads[0];
    static thread_local float A[64][PRODUCT_K], B[PRODUCT_K][PRODUCT_MOST], sums[2][PRODUCT_MOST];
    uint32_t rank = cluster_rank();
    float eight[8];
    if (any.registers) {
        for (int i = 0; i < 64; i++)
            for (int k = 0; k < PRODUCT_K; k++) {
                const auto *own = (group_product *)threads[i / 16 * 32 + i % 8 * 4 + k % 8 / 2];
                A[i][k] = part(own->a[k / 8 * 2 + i % 16 / 8], k % 2);
            }
    } else if (any.A.across) {
        for (int i = 0; i < 64; i += 8)
            for (int k = 0; k < PRODUCT_K; k++) {
                widen(eight, any.A, i, k, any.half, rank);
                for (int e = 0; e < 8; e++) A[i + e][k] = eight[e];
            }
    } else {
        for (int i = 0; i < 64; i++)
            for (int k = 0; k < PRODUCT_K; k += 8) widen(&A[i][k], any.A, i, k, any.half, rank);
    }
    for (int j = 0; j < any.n; j += any.B.across ? 8 : 1)
        for (int k = 0; k < PRODUCT_K; k += any.B.across ? 1 : 8) {
            widen(eight, any.B, j, k, any.half, rank);
            for (int e = 0; e < 8; e++) B[any.B.across ? k : k + e][any.B.across ? j + e : j] = eight[e];
        }
    for (int four = 0; four < 32; four++) { /* threads with the same rows */
        int row = four / 8 * 16 + four % 8;
        for (int t = 0; t < 4; t++) {
            const reg *d = ((group_product *)threads[4 * four + t])->d;
            if (!any.add) break;
            for (int j = 2 * t; j < any.n; j += 8, d += 4) {
                reg_to(sums[0][j], d[0]), reg_to(sums[0][j + 1], d[1]);
                reg_to(sums[1][j], d[2]), reg_to(sums[1][j + 1], d[3]);
            }
        }
        if (!any.add) memset(sums, 0, sizeof sums);
        multiply_rows(sums, &A[row], B, any.n);
        for (int t = 0; t < 4; t++) {
            reg *d = ((group_product *)threads[4 * four + t])->d;
            for (int j = 2 * t; j < any.n; j += 8, d += 4) {
                d[0] = reg_of(sums[0][j]), d[1] = reg_of(sums[0][j + 1]);
                d[2] = reg_of(sums[1][j]), d[3] = reg_of(sums[1][j + 1]);
            }
        }
    }
}

/* d (n / 2), A's descriptor or four registers, B's descriptor, p, 1, 1, [A across,] B across */
static void wgmma(const operands &o, const form &f)
{
    group_product p;
    p.n = f.n, p.half = f.half;
    int regs = p.n / 2;
    p.registers = o.count == regs + 4 + 1 + 3 + 1;
    int rest = regs + (p.registers ? 4 : 1);
    for (int i = 0; i < 4 && p.registers; i++) p.a[i] = o[regs + i].as<uint32_t>();
    p.A = {p.registers ? 0 : o[regs].bits(), !p.registers && o[rest + 4].as<int>() != 0};
    p.B = {o[rest].bits(), o[rest + (p.registers ? 4 : 5)].as<int>() != 0};
    p.add = o[rest + 1].as<uint32_t>() != 0;
    if (o[rest + 2].as<int>() != 1 || o[rest + 3].as<int>() != 1) stop("wgmma with signs");
    if (!now->lane && !o.in_order(regs)) stop("wgmma whose sums are not the first operands");
    p.d = o[0].to;
    meet(ALL_LANES, &p, multiply_group, true);
}

static void group_sync(const operands &o, const form &f) /* .sync.aligned: all of a warp come */
{
    meet(ALL_LANES, now, [](void **) {});
    if (f.commit) race::products_commit();
    if (f.wait) race::products_waited(o[0].as<uint32_t>());
}

/* ---- tensor maps, bulk copies ------------------------------------------------------------------- */

/* What an opaque map holds. */
struct tensor_map {
    char *base;
    uint64_t size[5], stride[4];
    uint32_t box[5];
    uint8_t rank, bytes, row; /* of an element; of the swizzle, 16: none */
};
static_assert(sizeof(tensor_map) <= sizeof(CUtensorMap), "a map has 128 bytes");

static CUresult encode(CUtensorMap *out, CUtensorMapDataType type, cuuint32_t rank, void *base,
                       const cuuint64_t *size, const cuuint64_t *stride, const cuuint32_t *box,
                       const cuuint32_t *step, CUtensorMapInterleave, CUtensorMapSwizzle swizzle,
                       CUtensorMapL2promotion, CUtensorMapFloatOOBfill)
{
    static const uint8_t rows[4] = {16, 32, 64, 128};
    tensor_map m = {};
    m.base = (char *)base, m.rank = (uint8_t)rank;
    m.bytes = type == CU_TENSOR_MAP_DATA_TYPE_FLOAT32 ? 4 : 2;
    m.row = rows[swizzle];
    if (rank < 1 || rank > 5 || (uintptr_t)base % 16) return CUDA_ERROR_INVALID_VALUE;
    for (cuuint32_t i = 0; i < rank; i++) {
        if (!size[i] || size[i] > (uint64_t)1 << 32 || !box[i] || box[i] > 256 || step[i] != 1)
            return CUDA_ERROR_INVALID_VALUE;
        if (i && (stride[i - 1] % 16 || stride[i - 1] >= (uint64_t)1 << 40)) return CUDA_ERROR_INVALID_VALUE;
        m.size[i] = size[i], m.box[i] = box[i];
        if (i) m.stride[i - 1] = stride[i - 1];
    }
    uint32_t inner = box[0] * m.bytes;
    if (inner % 16 || (swizzle != CU_TENSOR_MAP_SWIZZLE_NONE && inner > m.row))
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(out, &m, sizeof m);
    return CUDA_SUCCESS;
}

void *tensor_map_encoder()
{
    return (void *)encode;
}

struct box_copy {
    tensor_map map;
    const void *bar; /* of a load */
    uint32_t shared;
    int at[5];
    bool store;
};

static void touch_box(const box_copy &c, const void *at, size_t bytes, bool write)
{
    if (c.store) race::bulk_store(at, bytes, write);
    else race::counted(c.bar, at, bytes, write, race::ASYNC);
}

/* Each row of the box; what lies beyond the tensor is read as zeros and not written. `move`: else only the
 * race detector hears of it. */
static int copy_box(const box_copy &c, bool move)
{
    const tensor_map &m = c.map;
    uint32_t inner = m.box[0] * m.bytes, rows = 1, index[5] = {};
    for (int i = 1; i < m.rank; i++) rows *= m.box[i];
    for (uint32_t r = 0; r < rows; r++) {
        const char *row = m.base;
        bool there = true;
        uint32_t left = r;
        for (int i = 1; i < m.rank; i++) {
            index[i] = left % m.box[i], left /= m.box[i];
            int64_t at = (int64_t)c.at[i] + index[i];
            there = there && at >= 0 && (uint64_t)at < m.size[i];
            row += at * (int64_t)m.stride[i - 1];
        }
        for (uint32_t unit = 0; unit < inner; unit += 16) {
            char *shared = (char *)shared_pointer(swizzled(c.shared + r * inner + unit, m.row));
            if (!move) {
                int64_t x = c.at[0] + (int64_t)(unit / m.bytes), from = x < 0 ? 0 : x,
                        end = std::min(x + 16 / m.bytes, (int64_t)m.size[0]);
                touch_box(c, shared, 16, !c.store);
                if (there && from < end)
                    touch_box(c, row + from * m.bytes, (size_t)(end - from) * m.bytes, c.store);
                continue;
            }
            int64_t first = c.at[0] + (int64_t)(unit / m.bytes);
            if (there && first >= 0 && first + 16 / m.bytes <= (int64_t)m.size[0]) { /* all of it inside */
                char *there_at = (char *)row + first * m.bytes;
                memcpy(c.store ? there_at : shared, c.store ? shared : there_at, 16);
                continue;
            }
            for (uint32_t i = 0; i < 16; i += m.bytes) {
                int64_t x = c.at[0] + (int64_t)((unit + i) / m.bytes);
                bool inside = there && x >= 0 && (uint64_t)x < m.size[0];
                if (c.store && inside) memcpy((char *)row + x * m.bytes, shared + i, m.bytes);
                else if (!c.store && inside) memcpy(shared + i, row + x * m.bytes, m.bytes);
                else if (!c.store) memset(shared + i, 0, m.bytes);
            }
        }
    }
    return (int)(rows * inner);
}

static box_copy box_of(const operands &o, int map, int shared, int at, int rank, bool store)
{
    box_copy c;
    memcpy(&c.map, o[map].as<const void *>(), sizeof c.map);
    if (c.map.rank != rank) stop("a bulk copy and its map have different ranks");
    c.shared = o[shared].as<uint32_t>(), c.store = store;
    if (c.shared % 128) stop("a bulk copy whose shared memory is not aligned to 128 bytes");
    for (int i = 0; i < rank; i++) c.at[i] = o[at + i].as<int>();
    return c;
}

static void bulk_load(const operands &o, const form &f) /* [shared], [map, {at}], [bar] */
{
    box_copy c = box_of(o, 1, 0, 2, f.rank, false);
    uint32_t bar = o[2 + f.rank].as<uint32_t>();
    c.bar = shared_pointer(bar);
    if (race::on) copy_box(c, false);
    defer(true, [=] { mbarrier_bytes(bar, copy_box(c, true)); });
}

static void bulk_store(const operands &o, const form &f) /* [map, {at}], [shared] */
{
    box_copy c = box_of(o, 0, 1 + f.rank, 1, f.rank, true);
    if (race::on) copy_box(c, false);
    defer(false, [=] { copy_box(c, true); });
}

/* ---- names -------------------------------------------------------------------------------------- */

static const struct {
    const char *begin;
    instruction *act;
} known[] = {
    {"ldmatrix.", load_matrix},
    {"stmatrix.", store_matrix},
    {"movmatrix.", transpose_block},
    {"mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", mma_bf16},
    {"mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64", mma_f64},
    {"mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64", mma_f64_wide},
    {"wgmma.mma_async.", wgmma},
    {"wgmma.", group_sync},
    {"cp.async.bulk.tensor.3d.shared", bulk_load},
    {"cp.async.bulk.tensor.4d.shared", bulk_load},
    {"cp.async.bulk.tensor.3d.global", bulk_store},
};

instruction *tensor_instruction(const char *name)
{
    for (auto &k : known)
        if (strncmp(name, k.begin, strlen(k.begin)) == 0) return k.act;
    return nullptr;
}

} // namespace cuda_host
