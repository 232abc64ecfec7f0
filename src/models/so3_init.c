/* so3_init.c -- initial weights: U(-1/sqrt(fan_in), 1/sqrt(fan_in)) for weights and biases, rounded to float; a gate begins with weight 1, bias 0.
 *
 * Entry i of parameter number p of a member is drawn at (seed, PL_STREAM_INIT, p, i): the same in f32 and f64, on any device, whoever its mates are.
 */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/philox.h"
#include "device/queue.h"
#include "models/so3_impl.h"

static double initial(const pl_param *p, int64_t number, uint64_t seed, int64_t i)
{
    if (!p->fan_in) return strstr(p->name, "weight") ? 1 : 0;
    pl_u4 r = pl_philox(seed, PL_STREAM_INIT, (uint64_t)number, (uint64_t)i);
    return (float)((2 * pl_uniform_f64(r.x, r.y) - 1) / sqrt((double)p->fan_in));
}

polar_status pl_so3_init(pl_so3 *m, polar_queue *q, const uint64_t *seeds)
{
    polar_status st = POLAR_OK;
    int64_t most = 0;
    for (int64_t i = 0; i < m->param_count; i++)
        if (m->params[i].rows * m->params[i].cols > most) most = m->params[i].rows * m->params[i].cols;
    double *w = pl_alloc((size_t)(most * m->shape.members) * sizeof *w);
    PL_NEED(w, POLAR_E_NOMEM, "initial weights of %lld members", (long long)m->shape.members);
    for (int64_t k = 0; k < m->param_count && st == POLAR_OK; k++) {
        const pl_param *p = &m->params[k];
        int64_t n = p->rows * p->cols;
        for (int64_t e = 0; e < m->shape.members; e++)
            for (int64_t i = 0; i < n; i++) w[e * n + i] = initial(p, k, seeds[e], i);
        st = pl_mat_upload_f64(q, &p->W, w);
    }
    pl_free(w);
    return st;
}
