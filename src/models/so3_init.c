/* so3_init.c -- initial weights: U(-1/sqrt(fan_in), 1/sqrt(fan_in)) for weights and biases, rounded to float;
 * a gate by channel begins with weight 1, bias 0.
 *
 * Entry i of parameter number p of a member is drawn at (seed, PL_STREAM_INIT, p, i): the same in f32 and
 * f64, on any device, whoever its mates are.
 */
#include <math.h>
#include <string.h>

#include "base/philox.h"
#include "models/so3_impl.h"

static double initial(const pl_param *p, int64_t number, uint64_t seed, int64_t i)
{
    if (!p->fan_in) return strstr(p->name, "weight") ? 1 : 0;
    pl_u4 r = pl_philox(seed, PL_STREAM_INIT, (uint64_t)number, (uint64_t)i);
    return (float)((2 * pl_uniform_f64(r.x, r.y) - 1) / sqrt((double)p->fan_in));
}

polar_status pl_so3_init(pl_so3 *m, polar_queue *q, const uint64_t *seeds)
{
    return pl_params_draw(m->params, m->param_count, q, seeds, initial);
}
