/* bench_list.c -- see bench_list.h: blocks repeated, then the rest of a model. */
#include "lab/bench/bench_list.h"

#include <stdio.h>
#include <string.h>

#include "base/status.h"

typedef struct {
    const char *name;
    int64_t dims[4]; /* ended by 0 */
} part;

static const part deit_block[] = {
    {"norm1.weight", {192}},
    {"norm1.bias", {192}},
    {"attn.qkv.weight", {576, 192}},
    {"attn.qkv.bias", {576}},
    {"attn.proj.weight", {192, 192}},
    {"attn.proj.bias", {192}},
    {"norm2.weight", {192}},
    {"norm2.bias", {192}},
    {"mlp.fc1.weight", {768, 192}},
    {"mlp.fc1.bias", {768}},
    {"mlp.fc2.weight", {192, 768}},
    {"mlp.fc2.bias", {192}},
    {NULL, {0}},
};
static const part deit_rest[] = {
    {"cls_token", {1, 1, 192}},
    {"pos_embed", {1, 197, 192}},
    {"patch_embed.proj.weight", {192, 3, 16, 16}},
    {"patch_embed.proj.bias", {192}},
    {"norm.weight", {192}},
    {"norm.bias", {192}},
    {"head.weight", {100, 192}},
    {"head.bias", {100}},
    {NULL, {0}},
};
static const part deit_matrices[] = {
    {"attn.qkv.weight", {576, 192}},
    {"attn.proj.weight", {192, 192}},
    {"mlp.fc1.weight", {768, 192}},
    {"mlp.fc2.weight", {192, 768}},
    {NULL, {0}},
};
static const part gpt_block[] = {
    {"norm1.weight", {768}},
    {"norm1.bias", {768}},
    {"attn.qkv.weight", {2304, 768}},
    {"attn.qkv.bias", {2304}},
    {"attn.proj.weight", {768, 768}},
    {"attn.proj.bias", {768}},
    {"norm2.weight", {768}},
    {"norm2.bias", {768}},
    {"mlp.fc.weight", {3072, 768}},
    {"mlp.fc.bias", {3072}},
    {"mlp.proj.weight", {768, 3072}},
    {"mlp.proj.bias", {768}},
    {NULL, {0}},
};
static const part gpt_rest[] = {
    {"wte.weight", {50257, 768}},
    {"wpe.weight", {1024, 768}},
    {"norm.weight", {768}},
    {"norm.bias", {768}},
    {NULL, {0}},
};
static const part llama_block[] = {
    {"attn.q.weight", {1024, 1024}},   {"attn.k.weight", {1024, 1024}},
    {"attn.v.weight", {1024, 1024}},   {"attn.o.weight", {1024, 1024}},
    {"mlp.gate.weight", {4096, 1024}}, {"mlp.up.weight", {4096, 1024}},
    {"mlp.down.weight", {1024, 4096}}, {"norm1.weight", {1024}},
    {"norm2.weight", {1024}},          {NULL, {0}},
};
static const part llama_rest[] = {{"embed.weight", {32000, 1024}}, {"norm.weight", {1024}}, {NULL, {0}}};
static const part so3_block[] = {
    /* a layer of the SO(3) network, h_c = 16 */
    {"W_00.weight", {16, 16}},     {"W_00.bias", {16}},           {"W_11", {16, 16}},
    {"message.0.weight", {16, 1}}, {"message.0.bias", {16}},      {"message.2.weight", {32, 16}},
    {"message.2.bias", {32}},      {"cg_proj.weight", {16, 152}}, {"cg_proj.bias", {16}},
    {"gate.weight", {16}},         {"gate.bias", {16}},           {NULL, {0}},
};
static const part so3_rest[] = {
    {"readout.0.weight", {16, 32}},
    {"readout.0.bias", {16}},
    {"readout.2.weight", {1, 16}},
    {"readout.2.bias", {1}},
    {NULL, {0}},
};
static const part vector_block[] = {{"vector", {12500000}}, {NULL, {0}}};
static const part nothing[] = {{NULL, {0}}};

static const struct {
    const char *name, *summary;
    int blocks;
    int64_t members;
    const part *block, *rest;
} lists[] = {
    {"matrices", "the 48 block matrices of DeiT-Tiny", 12, 1, deit_matrices, nothing},
    {"deit", "DeiT-Tiny, 100 classes: 152 tensors, 5.5 million weights", 12, 1, deit_block, deit_rest},
    {"gpt124m", "a transformer of 12 blocks of 768: 148 tensors, 124 million weights", 12, 1, gpt_block,
     gpt_rest},
    {"llama430m", "24 gated blocks of 1024: 218 tensors, 436 million weights", 24, 1, llama_block,
     llama_rest},
    {"so3", "100 members of the SO(3) network, h_c = 16: 37 tensors", 3, 100, so3_block, so3_rest},
    {"100m", "100 million weights in 8 vectors", 8, 1, vector_block, nothing},
};
enum { LISTS = sizeof lists / sizeof *lists };

static void add(pl_bench_list *l, const char *prefix, int block, const part *p)
{
    polar_tensor *t = &l->shape[l->n];
    int64_t stride = 1;
    *t = (polar_tensor){.dtype = POLAR_DTYPE_F32};
    if (l->members > 1) t->shape[t->ndim++] = l->members;
    for (int i = 0; i < 4 && p->dims[i]; i++) t->shape[t->ndim++] = p->dims[i];
    for (int i = t->ndim - 1; i >= 0; i--) {
        t->stride[i] = stride;
        stride *= t->shape[i];
    }
    if (prefix) snprintf(l->names[l->n], sizeof l->names[0], "%s.%d.%s", prefix, block, p->name);
    else snprintf(l->names[l->n], sizeof l->names[0], "%s", p->name);
    l->n++;
    l->weights += stride;
}

polar_status pl_bench_list_make(pl_bench_list *out, const char *name)
{
    int k = 0;
    while (k < LISTS && strcmp(lists[k].name, name)) k++;
    PL_NEED(k < LISTS, POLAR_E_ARG,
            "no list of parameters '%s' (there are: matrices, deit, gpt124m, llama430m, so3, 100m)", name);
    *out = (pl_bench_list){.members = lists[k].members};
    for (int b = 0; b < lists[k].blocks; b++)
        for (const part *p = lists[k].block; p->name; p++) add(out, "blocks", b, p);
    for (const part *p = lists[k].rest; p->name; p++) add(out, NULL, 0, p);
    return POLAR_OK;
}

const char *pl_bench_list_name(int i)
{
    return i >= 0 && i < LISTS ? lists[i].name : NULL;
}

const char *pl_bench_list_summary(int i)
{
    return i >= 0 && i < LISTS ? lists[i].summary : NULL;
}
