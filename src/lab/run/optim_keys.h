/* optim_keys.h -- the keys that every testbed has for its optimiser and schedule: their rows are in
 * optim_keys.inc, here is what the rows refer to and the reading.
 *
 *     // and OPTIM_AUX_LR, OPTIM_DECAY, OPTIM_AUX_DECAY, OPTIM_MATRIX
 *     #define OPTIM_LR "1e-3"
 *     static const pl_key keys[] = {
 *         {"model.width", ...},
 *     #include "lab/run/optim_keys.inc"
 *     };
 *     PL_TRY(pl_optim_keys_read(&settings->optim, c));              // rule, lr, decay, map, routes
 *     PL_TRY(pl_schedule_read(&settings->schedule, c, steps));
 */
#ifndef PL_LAB_OPTIM_KEYS_H
#define PL_LAB_OPTIM_KEYS_H

#include "lab/spec/config.h"
#include "math/coef_table.h"
#include "optim/rule_names.h"
#include "polar/optim.h"

extern const char *const pl_key_dtypes[];           /* "f64", "f32", "bf16": in the order of polar_dtype */
extern const char *const pl_optim_key_precisions[]; /* the same and "f16" */
extern const char *const pl_schedule_units[];       /* "step", "epoch" */
extern const char *const pl_optim_key_kinds[];      /* in the order of polar_map_kind */
extern const char *const pl_optim_key_roundings[];  /* in the order of polar_rounding */
extern const char *const pl_optim_key_factors[];    /* "f32", "tf32" */

/* defaults by the rule: momentum, ... */
void pl_optim_key_beta1(char out[PL_VALUE_CHARS], const pl_config *c);
/* ... second moment, ... */
void pl_optim_key_beta2(char out[PL_VALUE_CHARS], const pl_config *c);
/* ... what is added to its root, ... */
void pl_optim_key_eps(char out[PL_VALUE_CHARS], const pl_config *c);
/* ... scale, ... */
void pl_optim_key_scale(char out[PL_VALUE_CHARS], const pl_config *c);
void pl_optim_key_kind(char out[PL_VALUE_CHARS], const pl_config *c);
void pl_optim_key_power(char out[PL_VALUE_CHARS], const pl_config *c);
/* ... the numbers of single stages, ... */
void pl_optim_key_radius(char out[PL_VALUE_CHARS], const pl_config *c);
void pl_optim_key_clip(char out[PL_VALUE_CHARS], const pl_config *c);
void pl_optim_key_strength(char out[PL_VALUE_CHARS], const pl_config *c);
void pl_optim_key_kron_power(char out[PL_VALUE_CHARS], const pl_config *c);
void pl_optim_key_refresh(char out[PL_VALUE_CHARS], const pl_config *c);
void pl_optim_key_first_basis(char out[PL_VALUE_CHARS], const pl_config *c);
void pl_optim_key_fraction(char out[PL_VALUE_CHARS], const pl_config *c);
/* ... the paper's learning rate for DeiT, ... */
void pl_optim_key_lr(char out[PL_VALUE_CHARS], const pl_config *c);
/* ... and its weight decay, 0 for Muon */
void pl_optim_key_decay(char out[PL_VALUE_CHARS], const pl_config *c);

int pl_optim_decays(const pl_config *c);        /* some route has weight decay */
int pl_optim_has_moment(const pl_config *c);    /* the rule keeps a second moment */
int pl_optim_has_eps(const pl_config *c);       /* ... or divides by something else that may be zero */
int pl_optim_rule_maps(const pl_config *c);     /* the rule has a place for a polar map */
int pl_optim_has_map(const pl_config *c);       /* ... and there is one */
int pl_optim_iterates(const pl_config *c);      /* ... by Newton-Schulz */
int pl_optim_iterates_half(const pl_config *c); /* ... in bf16 or f16 */
int pl_optim_has_power(const pl_config *c);     /* the map has a number: power, soft */
int pl_optim_has_radius(const pl_config *c);    /* the step is constrained to a ball */
int pl_optim_has_clip(const pl_config *c);      /* norms of gradients are clipped */
int pl_optim_has_strength(const pl_config *c);  /* the step has a floor or a brake */
int pl_optim_has_fraction(const pl_config *c);  /* lines are picked */
int pl_optim_has_kron(const pl_config *c);      /* the rule has Kronecker factors, ... */
int pl_optim_has_kron_power(const pl_config *c);
int pl_optim_has_basis(const pl_config *c); /* ... powers of them, or their eigenvectors */

/* train.warmup: so many epochs, and at most half of train.epochs */
void pl_warmup_default(char out[PL_VALUE_CHARS], const pl_config *c, int64_t most);
typedef struct pl_lr_schedule { /* of a run */
    polar_schedule shape;       /* counted in units */
    int64_t unit;               /* steps that share a learning rate: 1, or those of an epoch */
} pl_lr_schedule;

/* train.epochs, train.warmup, train.warmup_from, train.schedule; steps of an epoch */
polar_status pl_schedule_read(pl_lr_schedule *out, const pl_config *c, int64_t steps);
/* at a step of the run, from 0 */
double pl_schedule_factor(const pl_lr_schedule *s, int64_t step);
/* what the optimiser does by itself: everything, or nothing where the rate is set once an epoch */
polar_schedule pl_schedule_of_steps(const pl_lr_schedule *s);
/* without the schedule; matrix_names borrows from c */
polar_status pl_optim_keys_read(polar_optim_opts *out, const pl_config *c);

#endif
