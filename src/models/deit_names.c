/* deit_names.c -- the arrays of a vision transformer: timm's names, shapes and order. They are the
 * checkpoint's keys. */
#include <stdio.h>

#include "models/deit_impl.h"
#include "nn/transformer.h"

#define PARAMS_AROUND    8 /* tokens, patches, the last norm, the head */
#define PARAMS_PER_BLOCK 12
#define NORM_EPS         1e-6

int64_t pl_deit_param_most(int64_t depth)
{
    return PARAMS_AROUND + PARAMS_PER_BLOCK * depth;
}

static pl_param *add(pl_deit *m, int64_t block, const char *name, int ndim, int64_t rows, int64_t cols)
{
    pl_param *p = &m->params[m->param_count++];
    *p = (pl_param){.ndim = ndim, .rows = rows, .cols = cols, .shape = {1, rows, cols}};
    if (block < 0) snprintf(p->name, sizeof p->name, "%s", name);
    else snprintf(p->name, sizeof p->name, "blocks.%lld.%s", (long long)block, name);
    return p;
}

static pl_layer_norm norm(pl_deit *m, int64_t block, const char *weight, const char *bias)
{
    pl_layer_norm l = {.eps = NORM_EPS};
    l.weight = add(m, block, weight, 1, 1, m->shape.width);
    l.bias = add(m, block, bias, 1, 1, m->shape.width);
    return l;
}

static pl_linear linear(pl_deit *m, int64_t block, const char *weight, const char *bias, int64_t out,
                        int64_t in, int64_t act)
{
    pl_linear l = {.act = act};
    l.weight = add(m, block, weight, 2, out, in);
    l.bias = add(m, block, bias, 1, 1, out);
    return l;
}

void pl_deit_list(pl_deit *m)
{
    int64_t C = m->shape.width, p = m->shape.patch, M = m->hidden;
    m->embed.patch = p;
    m->embed.cls = add(m, -1, "cls_token", 3, 1, C);
    m->embed.pos = add(m, -1, "pos_embed", 3, m->tokens, C);
    pl_param *w = add(m, -1, "patch_embed.proj.weight", 4, C, 3 * p * p),
             *b = add(m, -1, "patch_embed.proj.bias", 1, 1, C);
    w->shape[0] = C, w->shape[1] = 3, w->shape[2] = w->shape[3] = p;
    w->fan_in = b->fan_in = 3 * p * p;
    m->embed.proj = (pl_linear){.weight = w, .bias = b};
    for (int64_t l = 0; l < m->shape.depth; l++) {
        pl_deit_block *y = &m->blocks[l];
        y->norm1 = norm(m, l, "norm1.weight", "norm1.bias");
        y->attn.qkv = linear(m, l, "attn.qkv.weight", "attn.qkv.bias", 3 * C, C, PL_ACT_NONE);
        y->attn.proj = linear(m, l, "attn.proj.weight", "attn.proj.bias", C, C, PL_ACT_NONE);
        y->attn.heads = m->shape.heads;
        y->norm2 = norm(m, l, "norm2.weight", "norm2.bias");
        y->mlp.fc1 = linear(m, l, "mlp.fc1.weight", "mlp.fc1.bias", M, C, PL_ACT_GELU);
        y->mlp.fc2 = linear(m, l, "mlp.fc2.weight", "mlp.fc2.bias", C, M, PL_ACT_NONE);
        y->drop = pl_drop_path_rate(m->shape.drop_path, l, m->shape.depth);
    }
    m->norm = norm(m, -1, "norm.weight", "norm.bias");
    m->head = linear(m, -1, "head.weight", "head.bias", m->shape.classes, C, PL_ACT_NONE);
}
