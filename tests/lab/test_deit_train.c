/* test_deit_train.c -- eight steps of each optimiser on a small vision transformer against torch's
 * (golden/vit.safetensors).
 *
 *     ctest -R test_deit_train
 */
#include "fixtures/deit_golden.h"
#include "polar/optim.h"

#define U64 0x1p-53

enum { STEPS = 8 };

typedef struct {
    double losses[STEPS];
    double qkv[3 * 48 * 48]; /* of block 0, after all steps */
} path;

/* Eight full-batch steps of a rule from weights w: the losses before each, and one matrix after all. Matrices
 * under blocks. take the rule with its own lr and decay (optim.h's defaults are the golden ones), the rest
 * AdamW at 5e-4 and 0.05; constant lr, Newton-Schulz in fp64. */
static void run_path(path *out, const char *device, const golden *g, const double *w, const char *rule)
{
    vit_net r = vit_open(device, &g->shape, 1);
    polar_optim_opts o;
    polar_optim *opt;
    polar_param *params = calloc((size_t)r.count, sizeof *params);
    TEST_TRY(polar_optim_opts_parse(&o, rule));
    o.rule.map.precision = POLAR_DTYPE_F64;
    o.matrix_names = "blocks.*";
    for (int64_t i = 0; i < r.count; i++)
        params[i] = (polar_param){.name = r.params[i].name,
                                  .weight = pl_param_tensor(&r.params[i], &r.params[i].W),
                                  .grad = pl_param_tensor(&r.params[i], &r.params[i].G)};
    vit_set_weights(&r, w);
    TEST_TRY(polar_optim_create(&opt, r.dev, params, r.count, &o));
    TEST_TRY(pl_mat_upload_f64(r.q, &r.x, g->x));
    TEST_TRY(pl_mat_upload_f64(r.q, &r.t, g->t));
    for (int i = 0; i < STEPS; i++) {
        vit_step(r.q, &r);
        TEST_TRY(polar_optim_step(opt, r.q));
        TEST_TRY(pl_mat_download_f64(r.q, &r.loss, &out->losses[i]));
    }
    for (int64_t i = 0; i < r.count; i++)
        if (!strcmp(r.params[i].name, "blocks.0.attn.qkv.weight"))
            TEST_TRY(pl_mat_download_f64(r.q, &r.params[i].W, out->qkv));
    polar_optim_destroy(opt);
    vit_close(&r);
    free(params);
}

/* The bound: in every step both sides round as if their weights were changed relatively by u sqrt(K)
 * (vit_sensitivity has the reasons). What a change of the first weights does to the path is measured, in
 * double on the CPU: each weight moved by a random relative amount within 1e-9, twice; eight steps on two
 * sides have 16 such changes. */
static void trajectory(const char *device, const golden *g, const char *rule)
{
    enum { DRAWS = 2, QKV = 3 * 48 * 48 };
    const double probe = 1e-9, changes = 2 * STEPS * U64 * sqrt(vit_longest_sum(&g->shape)) / probe;
    char line[96];
    int64_t n = 0;
    vit_net r = vit_open("cpu", &g->shape, 1);
    n = r.total;
    vit_close(&r);
    path *got = calloc(1, sizeof *got), *still = calloc(1, sizeof *still), *moved = calloc(1, sizeof *moved);
    double *w = model_new(n), *losses, *final, worst = 0, tol = 0, tol_qkv = 0;
    snprintf(line, sizeof line, "train.%s.losses", rule);
    losses = model_golden(g->f, STEPS, line, "");
    snprintf(line, sizeof line, "train.%s.final.blocks.0.attn.qkv.weight", rule);
    final = model_golden(g->f, QKV, line, "");
    run_path(still, "cpu", g, g->w, rule);
    for (uint64_t d = 0; d < DRAWS; d++) {
        model_shake(w, g->w, n, probe, 9, d);
        run_path(moved, "cpu", g, w, rule);
        for (int i = 0; i < STEPS; i++) tol = fmax(tol, changes * fabs(moved->losses[i] - still->losses[i]));
        tol_qkv = fmax(tol_qkv, changes * model_norm(moved->qkv, still->qkv, QKV));
    }
    run_path(got, device, g, g->w, rule);
    for (int i = 0; i < STEPS; i++) worst = fmax(worst, fabs(got->losses[i] - losses[i]));
    snprintf(line, sizeof line, "%s, losses of %d steps", rule, STEPS);
    test_bound(line, worst, tol, "movement by 16 u sqrt(K)");
    snprintf(line, sizeof line, "%s, qkv after them", rule);
    test_bound(line, model_norm(got->qkv, final, QKV), tol_qkv, "movement by 16 u sqrt(K)");
    free(got), free(still), free(moved), free(w), free(losses), free(final);
}

int main(int argc, char **argv)
{
    const char *device = test_begin(argc, argv);
    golden g = golden_open();
    for (int i = 0; i < 6; i++) trajectory(device, &g, polar_rule_name(i));
    golden_close(&g);
    return test_end();
}
