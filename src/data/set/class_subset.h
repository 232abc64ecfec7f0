/* class_subset.h -- the paper's choice of classes: Python's random.Random(seed).sample(range(of), classes)
 * over the classes in the order of their names. */
#ifndef PL_DATA_CLASS_SUBSET_H
#define PL_DATA_CLASS_SUBSET_H

#include <stdint.h>

#include "base/status.h"

/* in the order of the draws; free with pl_free */
polar_status pl_class_subset(int64_t **out, int64_t of, int64_t classes, uint64_t seed);

#endif
