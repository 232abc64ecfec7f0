/* 07_groups.c -- torch's way of working: two groups with numbers of their own, a scheduler, a batch without a
 * gradient for the head, a batch that overflowed.
 *
 *     07_groups [DEVICE]        # cpu unless told otherwise
 *
 * Group 0 is Muon as torch.optim.Muon has it (momentum an average, norm clamped at 1e-7, lr matched to
 * AdamW's), group 1 is AdamW. The overflowed batch is left out on the device: no weight, no moment and no
 * count changes.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <polar/polar.h>

enum { OUT = 24, IN = 16, CLASSES = 8, STEPS = 6, MISSING = 2, OVERFLOW = 4 };

static void must(polar_status st)
{
    if (st == POLAR_OK) return;
    fprintf(stderr, "%s: %s\n", polar_status_name(st), polar_error_message());
    exit(1);
}

/* Some gradient; of the overflowed batch one entry is infinite. */
static void backward(polar_queue *q, void *grad, int n, int step)
{
    static float G[OUT * IN];
    for (int i = 0; i < n; i++) G[i] = (float)sin(1 + i * (double)(step + 2));
    if (step == OVERFLOW) G[3] = INFINITY;
    polar_queue_upload(q, grad, G, (size_t)n * sizeof *G);
    must(polar_queue_sync(q)); /* G is used again */
}

int main(int argc, char **argv)
{
    static float zeros[OUT * IN];
    polar_device *dev;
    polar_queue *q;
    void *w[2], *g[2];
    const int n[2] = {OUT * IN, CLASSES * OUT};
    must(polar_device_open(&dev, argc > 1 ? argv[1] : "cpu"));
    must(polar_queue_create(&q, dev, NULL));
    for (int i = 0; i < 2; i++) {
        must(polar_device_alloc(dev, &w[i], (size_t)n[i] * sizeof(float)));
        must(polar_device_alloc(dev, &g[i], (size_t)n[i] * sizeof(float)));
        polar_queue_upload(q, w[i], zeros, (size_t)n[i] * sizeof(float));
    }

    polar_optim_opts o;
    must(polar_optim_opts_parse(&o, "muon"));
    o.rule.momentum = POLAR_MOMENTUM_AVERAGE_NESTEROV; /* momentum_buffer.lerp_(grad, 1 - momentum) */
    o.rule.scale = POLAR_SCALE_RMS;                    /* adjust_lr_fn="match_rms_adamw" */
    o.rule.map.eps = 1e-7;                             /* norm.clamp(min=eps) */
    o.lr = 1e-3, o.weight_decay = 0.1;
    o.skip_nonfinite = POLAR_SKIP_NONFINITE;
    o.skip_missing = 1;

    polar_group head = polar_group_of(&o); /* group 1 */
    head.route = POLAR_ROUTE_AUX;
    head.aux_lr = 3e-4, head.aux_beta2 = 0.95, head.aux_weight_decay = 0;
    o.groups = &head, o.group_count = 1;

    polar_param params[2] = {
        {.name = "body.weight", .weight = polar_tensor_2d(w[0], POLAR_DTYPE_F32, OUT, IN)},
        {.name = "head.weight", .weight = polar_tensor_2d(w[1], POLAR_DTYPE_F32, CLASSES, OUT), .group = 1},
    };
    for (int i = 0; i < 2; i++) params[i].grad = params[i].weight, params[i].grad.data = g[i];
    polar_optim *opt;
    must(polar_optim_create(&opt, dev, params, 2, &o));
    fputs(polar_optim_report(opt), stdout);

    for (int t = 0; t < STEPS; t++) {
        for (int i = 0; i < 2; i++) backward(q, g[i], n[i], t);
        polar_hyper h; /* a scheduler's numbers: live, nothing is captured again */
        must(polar_optim_get_hyper(opt, 0, 1, POLAR_ROUTE_AUX, &h));
        h.lr = 3e-4 * (1 - (double)t / STEPS);
        must(polar_optim_set_hyper(opt, -1, 1, POLAR_ROUTE_AUX, &h));
        must(polar_optim_set_grad(opt, 1, t == MISSING ? NULL : g[1])); /* p.grad is None */
        must(polar_optim_step(opt, q));
    }
    polar_param_stats s[2];
    must(polar_optim_stats(opt, q, s));
    for (int i = 0; i < 2; i++)
        printf("%-12s group %lld  %lld steps, %lld left out, %lld maps\n", s[i].name, (long long)s[i].group,
               (long long)s[i].steps, (long long)s[i].skipped, (long long)s[i].maps);
    int right = s[0].steps == STEPS - 1 && s[1].steps == STEPS - 2 && s[0].skipped == 1 &&
                s[0].maps == STEPS - 1 && polar_optim_skipped(opt) == 1;
    polar_optim_destroy(opt);
    for (int i = 0; i < 2; i++) polar_device_free(dev, w[i]), polar_device_free(dev, g[i]);
    polar_queue_destroy(q);
    polar_device_close(dev);
    return right ? 0 : 1;
}
