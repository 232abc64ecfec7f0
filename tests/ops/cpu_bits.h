/* cpu_bits.h -- shared by the tests of `cpu`: a device per instruction set and thread count, matrices with
 * guards, bitwise comparison. */
#ifndef POLAR_TEST_CPU_BITS_H
#define POLAR_TEST_CPU_BITS_H

#include "backends/cpu/cpu_kernels.h"
#include "test.h"

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

enum { MAX_THREADS = 3 };

typedef struct {
    polar_device *dev;
    polar_queue *q;
} machine;

static machine ref, machines[PL_ISA_COUNT][MAX_THREADS + 1]; /* by instruction set and number of threads */

static inline machine machine_open(const char *name)
{
    machine m;
    TEST_TRY(polar_device_open(&m.dev, name));
    TEST_TRY(polar_queue_create(&m.q, m.dev, NULL));
    return m;
}

static inline void machine_close(machine *m)
{
    if (!m->dev) return;
    polar_queue_destroy(m->q);
    polar_device_close(m->dev);
}

/* Every instruction set this machine has, on 1, 2 and 3 threads. */
static inline void machines_open(void)
{
    ref = machine_open("ref");
    for (int isa = 0; isa < PL_ISA_COUNT; isa++) {
        if (!pl_isa_usable((pl_isa)isa))
            printf("%s: not on this machine, skipped\n", pl_isa_name((pl_isa)isa));
        for (int n = 1; n <= MAX_THREADS && pl_isa_usable((pl_isa)isa); n++) {
            char name[64];
            snprintf(name, sizeof name, "cpu:isa=%s,threads=%d", pl_isa_name((pl_isa)isa), n);
            machines[isa][n] = machine_open(name);
        }
    }
}

static inline void machines_close(void)
{
    machine_close(&ref);
    for (int isa = 0; isa < PL_ISA_COUNT; isa++)
        for (int n = 1; n <= MAX_THREADS; n++) machine_close(&machines[isa][n]);
}

/* A test on every instruction set this machine has. */
static inline void machines_run(void (*test)(pl_isa isa))
{
    machines_open();
    for (int isa = 0; isa < PL_ISA_COUNT; isa++)
        if (pl_isa_usable((pl_isa)isa)) {
            test_device = pl_isa_name((pl_isa)isa);
            test((pl_isa)isa);
        }
    machines_close();
}

/* ---- matrices ----------------------------------------------------------------------------------- */

typedef enum { INTEGERS, NORMAL, WILD } fill; /* -8..8; about [-1, 1]; any exponent, zeros among them */

typedef struct {
    pl_mat m;
    char *block; /* the memory around it: the view begins one element in */
    size_t bytes;
} matrix;

static inline uint64_t draw(uint64_t *state) /* splitmix64 */
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static inline double draw_value(uint64_t *state, fill how)
{
    uint64_t r = draw(state);
    if (how == INTEGERS) return (double)(r % 17) - 8;
    double x = (double)(int64_t)r / 0x1p63;
    if (how == NORMAL) return x;
    return r % 11 == 0 ? 0 : ldexp(x, (int)(draw(state) % 250) - 145); /* down to float's subnormals */
}

/* A view of batch x rows x cols inside a larger block; `pad` elements between rows and between matrices;
 * guard bytes 0xA5 elsewhere. */
static inline matrix matrix_create(polar_dtype dtype, int64_t batch, int64_t rows, int64_t cols, int64_t pad,
                                   fill how, uint64_t seed)
{
    size_t size = polar_dtype_size(dtype);
    matrix x = {.m = {.dtype = dtype,
                      .batch = batch,
                      .rows = rows,
                      .cols = cols,
                      .rs = cols + pad,
                      .bs = rows * (cols + pad) + pad}};
    x.bytes = (size_t)(batch * x.m.bs + 2) * size;
    x.block = malloc(x.bytes);
    if (!x.block) exit(1);
    memset(x.block, 0xA5, x.bytes);
    x.m.data = x.block + size;
    for (int64_t b = 0; b < batch; b++)
        for (int64_t i = 0; i < rows; i++)
            for (int64_t j = 0; j < cols; j++)
                pl_store_f64(x.m.data, dtype, b * x.m.bs + i * x.m.rs + j, draw_value(&seed, how));
    return x;
}

static inline void matrix_destroy(matrix *x)
{
    free(x->block);
}

static inline const char *element(const pl_mat *m, int64_t b, int64_t i, int64_t j)
{
    return (const char *)m->data + (size_t)(b * m->bs + i * m->rs + j) * polar_dtype_size(m->dtype);
}

/* Elements in which X and Y, or X and Y^T, differ bitwise, over the smaller of two shapes. */
static inline int64_t differences(const pl_mat *x, const pl_mat *y, int trans)
{
    int64_t bad = 0, rows = trans ? y->cols : y->rows, cols = trans ? y->rows : y->cols;
    if (x->rows < rows) rows = x->rows;
    if (x->cols < cols) cols = x->cols;
    for (int64_t b = 0; b < x->batch; b++)
        for (int64_t i = 0; i < rows; i++)
            for (int64_t j = 0; j < cols; j++)
                bad += memcmp(element(x, b, i, j), trans ? element(y, b, j, i) : element(y, b, i, j),
                              polar_dtype_size(x->dtype)) != 0;
    return bad;
}

/* Bytes outside the view that are no longer the guard's. */
static inline int64_t guards_broken(const matrix *x)
{
    int64_t bad = 0;
    size_t size = polar_dtype_size(x->m.dtype);
    char *seen = calloc(x->bytes, 1);
    if (!seen) exit(1);
    for (int64_t b = 0; b < x->m.batch; b++)
        for (int64_t i = 0; i < x->m.rows; i++)
            memset(seen + (element(&x->m, b, i, 0) - x->block), 1, (size_t)x->m.cols * size);
    for (size_t p = 0; p < x->bytes; p++) bad += !seen[p] && (unsigned char)x->block[p] != 0xA5;
    free(seen);
    return bad;
}

typedef struct {
    int64_t batch, M, N, K;
} shape;

#endif
