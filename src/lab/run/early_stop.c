/* early_stop.c -- the bookkeeping of early_stop.h. */
#include "lab/run/early_stop.h"

#include <assert.h>
#include <math.h>

void pl_early_stop_step(pl_early_stop *s, double train_loss, double valid)
{
    assert(s->end == PL_END_NOT);
    s->made++;
    s->improved = 0;
    if (!isfinite(train_loss) || !isfinite(valid)) {
        s->end = PL_END_DIVERGED;
        return;
    }
    if (!s->best_epoch || valid < s->best) {
        s->best = valid;
        s->best_epoch = s->made;
        s->improved = 1;
    }
    if (s->made >= s->epochs) s->end = PL_END_EPOCHS;
    else if (s->patience && s->made - s->best_epoch >= s->patience) s->end = PL_END_PATIENCE;
}
