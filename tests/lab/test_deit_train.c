/* test_deit_train.c -- eight steps of each optimiser on a small vision transformer against torch's
 * (golden/vit.safetensors).
 *
 *     ctest -R test_deit_train
 */
#include "fixtures/deit_golden.h"
#include "polar/optim.h"

enum { STEPS = 8 };

/* Eight full-batch steps of a rule: the losses before each, and one matrix after all. Matrices under blocks.
 * take the rule with its own lr and decay (optim.h's defaults are the golden ones), the rest AdamW at 5e-4
 * and 0.05; constant lr, Newton-Schulz in fp64. Relative errors: a step of a polar map moves 1e-15 errors by
 * about 10. */
static void trajectory(const char *device, const golden *g, const char *rule)
{
    char line[96];
    vit_net r = vit_open(device, &g->shape, 1);
    polar_optim_opts o;
    polar_optim *opt;
    polar_param *params = calloc((size_t)r.count, sizeof *params);
    double *losses, *final, *w = model_new(r.total), loss, worst = 0;
    snprintf(line, sizeof line, "train.%s.losses", rule);
    losses = golden_read(g->f, STEPS, line, "");
    snprintf(line, sizeof line, "train.%s.final.blocks.0.attn.qkv.weight", rule);
    final = golden_read(g->f, 3 * 48 * 48, line, "");
    TEST_TRY(polar_optim_opts_parse(&o, rule));
    o.rule.map.precision = POLAR_DTYPE_F64;
    o.matrix_names = "blocks.*";
    for (int64_t i = 0; i < r.count; i++)
        params[i] = (polar_param){.name = r.params[i].name,
                                  .weight = pl_param_tensor(&r.params[i], &r.params[i].W),
                                  .grad = pl_param_tensor(&r.params[i], &r.params[i].G)};
    vit_set_weights(&r, g->w);
    TEST_TRY(polar_optim_create(&opt, r.dev, params, r.count, &o));
    TEST_TRY(pl_mat_upload_f64(r.q, &r.x, g->x));
    TEST_TRY(pl_mat_upload_f64(r.q, &r.t, g->t));
    for (int i = 0; i < STEPS; i++) {
        vit_step(r.q, &r);
        TEST_TRY(polar_optim_step(opt, r.q));
        TEST_TRY(pl_mat_download_f64(r.q, &r.loss, &loss));
        worst = fmax(worst, fabs(loss - losses[i]) / losses[i]);
    }
    snprintf(line, sizeof line, "%s, losses of %d steps", rule, STEPS);
    test_bound(line, worst, 1e-9, "relative, as agreed");
    for (int64_t i = 0; i < r.count; i++)
        if (!strcmp(r.params[i].name, "blocks.0.attn.qkv.weight"))
            TEST_TRY(pl_mat_download_f64(r.q, &r.params[i].W, w));
    snprintf(line, sizeof line, "%s, qkv after them", rule);
    test_bound(line, model_norm(w, final, 3 * 48 * 48) / model_norm(final, NULL, 3 * 48 * 48), 1e-9,
               "relative, as agreed");
    polar_optim_destroy(opt);
    vit_close(&r);
    free(params), free(losses), free(final), free(w);
}

int main(int argc, char **argv)
{
    const char *device = test_begin(argc, argv);
    golden g = golden_open();
    for (int i = 0; polar_rule_name(i); i++) trajectory(device, &g, polar_rule_name(i));
    golden_close(&g);
    return test_end();
}
