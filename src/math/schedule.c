/* schedule.c -- the learning rate over a run: linear warm-up, then a cosine to zero.
 *
 *     step < W:  from + (1 - from) step / W          W <= step < T:  (1 + cos(pi (step - W) / (T - W))) / 2
 */
#include <math.h>

#include "base/status.h"
#include "polar/optim.h"

double polar_schedule_factor(const polar_schedule *s, int64_t step)
{
    if (step < 0) {
        PL_FAIL(POLAR_E_ARG, "step %lld of a schedule; steps count from 0", (long long)step);
        return NAN;
    }
    if (!s || s->total <= 0) return 1;
    if (step < s->warmup) return s->warmup_from + (1 - s->warmup_from) * (double)step / (double)s->warmup;
    if (step >= s->total) return 0;
    return 0.5 *
           (1 + cos(3.14159265358979323846 * (double)(step - s->warmup) / (double)(s->total - s->warmup)));
}
