/* nearest.h -- "did you mean ...?": the known word nearest to one that is not known.
 *
 *     static const char *const known[] = {"muon", "adamw", NULL};
 *     const char *near = pl_nearest("muno", known);              // "muon"
 */
#ifndef PL_BASE_NEAREST_H
#define PL_BASE_NEAREST_H

/* one edit away (one more per five letters), or NULL; known ends with NULL */
const char *pl_nearest(const char *word, const char *const *known);

#endif
