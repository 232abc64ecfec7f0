/* 06_own_rule.c -- a rule is data: Muon with the Polar Express coefficients, six steps in f32, and the
 * spectral scale sqrt(out / in).
 *
 *     06_own_rule [DEVICE]        # cpu unless told otherwise
 *
 * From W = 0 the first step gives W = -lr sqrt(out / in) P, where P has singular values p(s): the table's
 * polynomials applied one after the other to the normalised singular values s of the gradient. How far p is
 * from 1 can be read from the table, and P must be no further away.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <polar/polar.h>

enum { OUT = 96, IN = 32, STEPS = 6 };

static void must(polar_status st)
{
    if (st == POLAR_OK) return;
    fprintf(stderr, "%s: %s\n", polar_status_name(st), polar_error_message());
    exit(1);
}

/* The largest |p(s)^2 - 1| over s in [from, 1], on a fine grid. */
static double table_promise(const char *table, int steps, double from)
{
    polar_coef coef[STEPS];
    double worst = 0;
    must(polar_coef_table(coef, steps, table));
    for (int i = 0; i <= 20000; i++) {
        double s = from + (1 - from) * i / 20000;
        for (int k = 0; k < steps; k++) s *= coef[k].a + s * s * (coef[k].b + s * s * coef[k].c);
        double off = fabs(s * s - 1);
        if (off > worst) worst = off; /* gcc 12 for aarch64 dies of fmax here */
    }
    return worst;
}

/* One step of the rule from zero weights along the gradient G, (OUT, IN); returns ||P^T P - I||_F / sqrt(IN),
 * the root mean square of p^2 - 1. */
static double first_step(polar_device *dev, polar_queue *q, const float *G, const polar_optim_opts *o)
{
    static float W[OUT * IN];
    void *w, *g;
    polar_optim *opt;
    must(polar_device_alloc(dev, &w, sizeof W));
    must(polar_device_alloc(dev, &g, sizeof W));
    for (int i = 0; i < OUT * IN; i++) W[i] = 0;
    polar_queue_upload(q, w, W, sizeof W);
    polar_queue_upload(q, g, G, sizeof W);
    polar_param param = {.name = "W",
                         .weight = polar_tensor_2d(w, POLAR_DTYPE_F32, OUT, IN),
                         .grad = polar_tensor_2d(g, POLAR_DTYPE_F32, OUT, IN)};
    must(polar_optim_create(&opt, dev, &param, 1, o));
    must(polar_optim_step(opt, q));
    polar_queue_download(q, W, w, sizeof W);
    must(polar_queue_sync(q));
    polar_optim_destroy(opt);
    polar_device_free(dev, w);
    polar_device_free(dev, g);

    double unit = o->lr * polar_scale_value(o->rule.scale, OUT, IN), sum = 0;
    for (int i = 0; i < IN; i++)
        for (int j = 0; j < IN; j++) {
            double d = i == j ? -1 : 0;
            for (int k = 0; k < OUT; k++) d += W[k * IN + i] / unit * (W[k * IN + j] / unit);
            sum += d * d;
        }
    return sqrt(sum / IN);
}

int main(int argc, char **argv)
{
    static float G[OUT * IN];
    for (int i = 0; i < OUT * IN; i++) G[i] = (float)sin(i * (double)i);
    polar_device *dev;
    polar_queue *q;
    must(polar_device_open(&dev, argc > 1 ? argv[1] : "cpu"));
    must(polar_queue_create(&q, dev, NULL));

    polar_optim_opts o;
    must(polar_optim_opts_parse(&o, "muon")); /* Nesterov momentum, no preconditioner, no decay */
    o.lr = 0.02;
    double usual = first_step(dev, q, G, &o);

    o.rule.map.table = "polar_express";
    o.rule.map.steps = STEPS;
    o.rule.map.precision = POLAR_DTYPE_F32;
    o.rule.scale = POLAR_SCALE_SPECTRAL; /* an update of spectral norm lr sqrt(out / in) */
    /* the smallest s of such a gradient is 0.09 */
    double own = first_step(dev, q, G, &o), promise = table_promise("polar_express", STEPS, 0.01);

    printf("muon as usual        s^2 off 1 by %.4f on average (root mean square)\n", usual);
    printf("with Polar Express   s^2 off 1 by %.4f, and %.4f at most by its table\n", own, promise);
    polar_queue_destroy(q);
    polar_device_close(dev);
    /* A root mean square is no larger than the largest; f32 adds under 100 2^-24 = 6e-6 of rounding (six
     * steps, sums of 96 terms, a step size near 1). */
    return own <= promise + 6e-6 && own < usual ? 0 : 1;
}
