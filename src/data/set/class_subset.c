/* class_subset.c -- classes drawn as CPython draws them. */
#include "data/set/class_subset.h"

#include "base/alloc.h"
#include "math/mersenne.h"

polar_status pl_class_subset(int64_t **out, int64_t of, int64_t classes, uint64_t seed)
{
    *out = NULL;
    PL_NEED(classes >= 1 && classes <= of, POLAR_E_ARG, "%lld classes are wanted, of %lld",
            (long long)classes, (long long)of);
    int64_t *chosen = pl_alloc((size_t)classes * sizeof *chosen), *room = pl_alloc((size_t)of * sizeof *room);
    if (!chosen || !room) {
        pl_free(chosen);
        pl_free(room);
        return PL_FAIL(POLAR_E_NOMEM, "a choice of %lld classes", (long long)of);
    }
    pl_mersenne m;
    pl_mersenne_seed(&m, seed);
    pl_mersenne_sample(chosen, room, &m, of, classes);
    pl_free(room);
    *out = chosen;
    return POLAR_OK;
}
