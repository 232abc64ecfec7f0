/* deit_init.c -- initial weights with timm's distributions, rounded to float.
 *
 *     patch_embed.proj   U(-1/sqrt(fan_in), 1/sqrt(fan_in)), weight and bias: torch's convolution
 *     cls_token          N(0, 1e-6^2)
 *     pos_embed, weights of linear layers   N(0, 0.02^2)      timm's trunc_normal_ cuts at -2 and 2,
 *         which is 100 standard deviations away
 *     biases 0, norms 1 and 0
 *
 * Entry i of parameter number p of a member is drawn at (seed, PL_STREAM_INIT, p, i): the same in f32 and
 * f64, on any device, whoever its mates are. (Normals: entry i is half i mod 2 of draw i / 2.)
 */
#include <math.h>
#include <string.h>

#include "base/philox.h"
#include "models/deit_impl.h"

static double normal(uint64_t seed, int64_t number, int64_t i)
{
    pl_n2 z = pl_normal(seed, PL_STREAM_INIT, (uint64_t)number, (uint64_t)i / 2);
    return i % 2 ? z.b : z.a;
}

static double initial(const pl_param *p, int64_t number, uint64_t seed, int64_t i)
{
    if (p->fan_in) {
        pl_u4 r = pl_philox(seed, PL_STREAM_INIT, (uint64_t)number, (uint64_t)i);
        return (float)((2 * pl_uniform_f64(r.x, r.y) - 1) / sqrt((double)p->fan_in));
    }
    if (!strcmp(p->name, "cls_token")) return (float)(1e-6 * normal(seed, number, i));
    if (p->ndim >= 2) return (float)(0.02 * normal(seed, number, i));
    return strstr(p->name, "weight") ? 1 : 0;
}

polar_status pl_deit_init(pl_deit *m, polar_queue *q, const uint64_t *seeds)
{
    return pl_params_draw(m->params, m->param_count, q, seeds, initial);
}
