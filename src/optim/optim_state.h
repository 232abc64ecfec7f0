/* optim_state.h -- an optimiser's state as entries of a safetensors file, which may hold other things
 * besides.
 *
 *     pl_optim_image *im;
 *     // copies the state off the device; synchronises
 *     PL_TRY(pl_optim_image_take(&im, opt, q, "optim0."));
 *     ... pl_safetensors_write(path, ours + im->entries, ..., ours + im->meta, ...) ...
 *     pl_optim_image_free(im);
 *
 *     // checks all of it against opt; changes nothing
 *     PL_TRY(pl_optim_image_read(&im, opt, file, path, "optim0.", NULL, what));
 *     PL_TRY(pl_optim_image_apply(im, opt, q, what));                     // a polar_load
 *     pl_optim_image_free(im);
 */
#ifndef PL_OPTIM_STATE_H
#define PL_OPTIM_STATE_H

#include "base/safetensors.h"
#include "optim/optim_impl.h"

#define PL_OPTIM_PREFIX_MAX 32 /* bytes of a prefix */

enum { PL_OPTIM_META = 7 }; /* metadata pairs of one optimiser */

typedef struct pl_optim_image {
    pl_safetensors_entry *entries;
    int64_t entry_count;
    pl_safetensors_meta meta[PL_OPTIM_META];
    char *text;         /* names of entries, keys and values of the metadata */
    char *bytes;        /* laid out like the device's state */
    polar_hyper *hyper; /* settings, when read: as polar_optim has them */
    unsigned char *active;
    int64_t step; /* steps made, when read */
} pl_optim_image;

#define PL_OPTIM_RULE_BYTES 500 /* of one group's words */
#define PL_OPTIM_MAP_BYTES  340

/* what must agree for the numbers to mean the same (state_words.c) */
void pl_optim_describe_rule(char *text, const polar_optim *opt);
/* what the step does with the moments */
void pl_optim_describe_map(char *text, const polar_optim *opt);

/* An optimiser's members among those of a file. */
typedef struct pl_optim_pick {
    const int64_t *from; /* (members): which of the file's each one is */
    int64_t there;       /* members of the file */
} pl_optim_pick;

/* names and keys begin with prefix; the caller frees it */
polar_status pl_optim_image_take(pl_optim_image **out, polar_optim *opt, pl_queue *q, const char *prefix);
/* POLAR_E_FORMAT: not this optimiser's; pick NULL: the file's members are the optimiser's */
polar_status pl_optim_image_read(pl_optim_image **out, polar_optim *opt, const pl_safetensors *f,
                                 const char *path, const char *prefix, const pl_optim_pick *pick,
                                 unsigned what);
/* members of the optimiser in the file, 0: there is none of that prefix */
int64_t pl_optim_image_members(const pl_safetensors *f, const char *prefix);
/* of one that was read; synchronises */
polar_status pl_optim_image_apply(const pl_optim_image *im, polar_optim *opt, pl_queue *q, unsigned what);
/* NULL is fine */
void pl_optim_image_free(pl_optim_image *im);

/* A piece of the state, of a parameter or of one of its parts. */
typedef struct pl_state_item {
    const pl_mat *mat;        /* without data: there is none */
    const char *owner, *kind; /* "OWNER.KIND" in a file */
    int by_element;           /* one number for each weight, laid out as the parameter */
    int counts;               /* steps */
} pl_state_item;

/* number k of parameter i; 0 past the last */
int pl_optim_state_item(pl_state_item *out, const polar_optim *opt, int64_t i, int64_t k);

#endif
