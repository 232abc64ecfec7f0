/* so3_impl.h -- the inside of a pl_so3: its parameters and activations. For so3_points.c, so3_memory.c and
 * so3_init.c only. */
#ifndef PL_MODELS_SO3_IMPL_H
#define PL_MODELS_SO3_IMPL_H

#include "models/so3_points.h"
#include "nn/vector_layers.h"

typedef struct pl_so3_layer {
    /* parameters, views of the list */
    pl_linear mix_s, mix_v, cg_proj; /* W_00, W_11 and the projection of [s, dots] */
    pl_gate gate;
    const pl_param *w0, *b0, *W2, *b2; /* the message's MLP */
    /* activations; n = B N rows per member */
    pl_mat S, V; /* (E, n, h), (E, 3n, h): after the mixers */
    /* (E, n, h + nd): scalars after the messages, and the vectors' dots */
    pl_mat cat;
    pl_mat M;    /* (E, 3n, h): vectors after the messages */
    pl_mat U;    /* (E, n, h): cg_proj before bias and silu */
    pl_mat s, v; /* (E, n, h), (E, 3n, h): the layer's output */
} pl_so3_layer;

struct pl_so3 {
    polar_device *dev;
    pl_so3_shape shape;
    int training;
    int64_t param_count;
    pl_param *params;
    pl_so3_layer *layers;
    pl_linear read0, read2; /* the readout */
    pl_model_memory memory;
    pl_grads_watch watch;
    /* of the last forward */
    int64_t B;                 /* clouds per member; 0 before the first */
    pl_mat x;                  /* (E B, N, 3), borrowed */
    pl_mat s0, D;              /* (E, n, 1): |x|^2;  (E B, P, 1): distances */
    pl_mat pooled, U, z, pred; /* (E, B, 2h or h), (E, B, h) twice, (E, B, 1) */
};

/* what the readout sees of a cloud: its means of scalars and, unless told otherwise, of lengths */
static inline int64_t pl_so3_pooled(const pl_so3_shape *s)
{
    return s->scalars_only ? s->width : 2 * s->width;
}

/* everything but device memory, which is measured */
polar_status pl_so3_make(pl_so3 **out, polar_device *dev, const pl_so3_shape *shape, int training);
/* the reverse of make; NULL is fine */
void pl_so3_free(pl_so3 *m);
/* for B clouds per member; fewer need no more memory */
void pl_so3_point_activations(pl_so3 *m, pl_arena *a, int64_t B);

#endif
