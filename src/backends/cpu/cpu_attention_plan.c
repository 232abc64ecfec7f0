/* cpu_attention_plan.c -- see cpu_attention.h: who lies where in the scratch memory of a fused attention. */
#include "cpu_attention.h"

#define LINE  64
#define BLOCK 32

static int64_t round_up(int64_t n)
{
    return (n + BLOCK - 1) / BLOCK * BLOCK;
}

pl_attention_plan pl_attention_plan_make(const pl_mat *QKV, int64_t heads, int f64, int back, int threads)
{
    pl_attention_plan p = {.images = QKV->batch,
                           .heads = heads,
                           .tokens = QKV->rows,
                           .d = QKV->cols / 3 / heads,
                           .f64 = f64,
                           .back = back};
    p.tp = round_up(p.tokens), p.dp = round_up(p.d);
    p.threads = p.images * heads < threads ? (int)(p.images * heads) : threads;
    if (p.threads < 1) p.threads = 1;
    return p;
}

/* The next piece of a block, whole cache lines. */
static void *take(char *base, size_t *used, size_t bytes)
{
    void *at = base ? base + *used : NULL;
    *used += (bytes + LINE - 1) / LINE * LINE;
    return at;
}

size_t pl_attention_work_point(pl_attention_work *w, char *base, const pl_attention_plan *p)
{
    size_t used = 0, real = p->f64 ? sizeof(double) : sizeof(float), wide = real * (size_t)(p->tp * p->dp),
           small = real * (size_t)(BLOCK * p->dp);
    size_t scores = real * (size_t)(BLOCK * p->tp);
    w->kt = take(base, &used, wide);
    w->v = take(base, &used, wide);
    w->vt = take(base, &used, p->back ? wide : 0);
    w->k = take(base, &used, p->back ? wide : 0);
    w->dk = take(base, &used, p->back ? wide : 0);
    w->dv = take(base, &used, p->back ? wide : 0);
    w->qt = take(base, &used, small);
    w->q = take(base, &used, small);
    w->gt = take(base, &used, p->back ? small : 0);
    w->g = take(base, &used, p->back ? small : 0);
    w->o = take(base, &used, small);
    w->s = take(base, &used, scores);
    w->ds = take(base, &used, p->back ? scores : 0);
    return used;
}

size_t pl_attention_tiles_point(pl_attention_tiles *w, char *base, const pl_attention_plan *p)
{
    size_t used = 0, tb = (size_t)(p->tp / BLOCK), db = (size_t)(p->dp / BLOCK),
           block = BLOCK * BLOCK * sizeof(pl_bf16), sums = BLOCK * BLOCK * sizeof(float);
    int back = p->back;
    w->kt = take(base, &used, block * tb * db);
    w->vt = take(base, &used, back ? block * tb * db : 0);
    w->v = take(base, &used, back ? 0 : block * tb * db);
    w->k = take(base, &used, back ? block * tb * db : 0);
    w->qt = take(base, &used, back ? block * tb * db : 0);
    w->gt = take(base, &used, back ? block * tb * db : 0);
    w->q = take(base, &used, block * db * (back ? 2 : 1));
    w->p = take(base, &used, block * tb * 2);
    w->all_p = take(base, &used, back ? block * tb * tb : 0);
    w->all_ds = take(base, &used, back ? block * tb * tb : 0);
    w->s = take(base, &used, sums * tb * 2);
    w->ds = take(base, &used, back ? sums * tb * 2 : 0);
    w->sum = take(base, &used, sums * db * 2);
    return used;
}

size_t pl_cpu_attention_scratch(pl_op_id id, const void *args, int threads)
{
    int f64 = 0, back = id == PL_OP_attention_back;
    const pl_mat *m = pl_op_operands(args);
    for (int i = 0; i < pl_op_operand_count(pl_op_describe(id)); i++)
        f64 |= m[i].data && m[i].dtype == POLAR_DTYPE_F64;
    pl_attention_plan p =
        back ? pl_attention_plan_make(&((const pl_args_attention_back *)args)->QKV,
                                      ((const pl_args_attention_back *)args)->heads, f64, 1, threads)
             : pl_attention_plan_make(&((const pl_args_attention *)args)->QKV,
                                      ((const pl_args_attention *)args)->heads, f64, 0, threads);
    pl_attention_work w;
    pl_attention_tiles t;
    size_t plain = pl_attention_work_point(&w, NULL, &p),
           tiles = m[back ? 1 : 2].dtype == POLAR_DTYPE_BF16 ? pl_attention_tiles_point(&t, NULL, &p) : 0;
    return (size_t)p.threads * (plain > tiles ? plain : tiles);
}
