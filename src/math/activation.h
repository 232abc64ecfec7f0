/* activation.h -- the activations by number, as the ops bias_act and bias_act_back name them. */
#ifndef PL_MATH_ACTIVATION_H
#define PL_MATH_ACTIVATION_H

typedef enum pl_act {
    PL_ACT_NONE,    /* x */
    PL_ACT_SILU,    /* x / (1 + e^-x) */
    PL_ACT_SIGMOID, /* 1 / (1 + e^-x) */
    PL_ACT_GELU,    /* x (1 + erf(x / sqrt 2)) / 2 */
    PL_ACT_COUNT
} pl_act;

#endif
