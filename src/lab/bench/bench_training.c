/* bench_training.c -- see bench_training.h. */
#include "lab/bench/bench_training.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/status.h"
#include "device/backend.h"

#define OP_STEPS 7 /* steps a table of ops looks at */

typedef struct {
    const pl_bench_training *t;
    polar_optim *opt;
} bench_run;

static void run_optimiser(pl_queue *q, void *arg)
{
    polar_status st = polar_optim_enqueue(((bench_run *)arg)->opt, q);
    if (st != POLAR_OK) pl_queue_keep(q, st);
}

static void run_step(pl_queue *q, void *arg)
{
    const pl_bench_training *t = ((bench_run *)arg)->t;
    t->gradients(q, t->arg);
    run_optimiser(q, arg);
}

static polar_status make_optimiser(bench_run *r, pl_queue *q)
{
    const pl_bench_training *t = r->t;
    polar_param *list = pl_calloc((size_t)t->param_count, sizeof *list);
    PL_NEED(list, POLAR_E_NOMEM, "a list of %lld parameters", (long long)t->param_count);
    for (int64_t i = 0; i < t->param_count; i++) {
        const pl_param *p = &t->params[i];
        list[i] = (polar_param){
            .name = p->name, .weight = pl_param_tensor(p, &p->W), .grad = pl_param_tensor(p, &p->G)};
    }
    polar_status st = polar_optim_create(&r->opt, t->dev, list, t->param_count, &t->opts);
    pl_free(list);
    return st == POLAR_OK ? polar_optim_prepare(r->opt, q) : st;
}

static polar_status time_row(pl_bench_row *row, pl_queue *q, pl_graph_fn fn, void *arg, const char *what,
                             const char *of, const pl_bench_peak_rates *peak)
{
    PL_TRY(pl_bench_time(row, q, fn, arg, peak));
    snprintf(row->what, sizeof row->what, "%s %s", what, of);
    return POLAR_OK;
}

polar_status pl_bench_training_time(pl_bench_training_rows *out, pl_queue *q, const pl_bench_training *t,
                                    const char *of, const pl_bench_peak_rates *peak)
{
    bench_run r = {.t = t};
    polar_status st = make_optimiser(&r, q);
    if (st == POLAR_OK) st = time_row(&out->forward, q, t->forward, t->arg, "forward", of, peak);
    if (st == POLAR_OK) st = time_row(&out->gradients, q, t->gradients, t->arg, "forward+backward", of, peak);
    if (st == POLAR_OK) { /* gradients for the optimiser to work on */
        t->gradients(q, t->arg);
        st = polar_queue_sync(q);
    }
    /* last: thousands of steps along one gradient leave weights that no training has */
    if (st == POLAR_OK) st = time_row(&out->step, q, run_step, &r, "step", of, peak);
    if (st == POLAR_OK) st = time_row(&out->optimiser, q, run_optimiser, &r, "optimiser", of, peak);
    polar_optim_destroy(r.opt);
    return st;
}

/* ---- op by op ----------------------------------------------------------------------------------- */

typedef struct {
    pl_bench_row *rows;
    double *seconds; /* (rows, OP_STEPS) */
    int most, count, step;
} op_table;

/* What a row is called: the op and the shape of its result; of products also the sum's length and what goes
 * with them. */
static void name_call(char *out, size_t bytes, pl_op_id id, const void *args)
{
    const pl_mat *m = pl_op_operands(args);
    int n = snprintf(out, bytes, "%s %s %lldx%lldx%lld", pl_op_describe(id)->name, polar_dtype_name(m->dtype),
                     (long long)m->batch, (long long)m->rows, (long long)m->cols);
    const pl_args_gemm *g = args;
    const pl_args_gemm_act *a = args;
    if (id == PL_OP_gemm)
        snprintf(out + n, bytes - (size_t)n, " %lld %s%s%s", (long long)(g->ta ? g->A.rows : g->A.cols),
                 polar_dtype_name(g->A.dtype), g->ta ? " ta" : "", g->tb ? " tb" : "");
    if (id == PL_OP_gemm_act)
        snprintf(out + n, bytes - (size_t)n, " %lld %s%s%s%s%s", (long long)a->A.cols,
                 polar_dtype_name(a->A.dtype), a->tb ? " tb" : "", a->D.data ? " D" : "",
                 a->S.data ? " S" : "", a->F.data ? " F" : "");
}

static void watch(void *arg, pl_op_id id, const void *args, double seconds, double flops, double bytes)
{
    op_table *o = arg;
    char what[sizeof o->rows->what];
    int i = 0;
    name_call(what, sizeof what, id, args);
    while (i < o->count && strcmp(what, o->rows[i].what)) i++;
    if (i == o->most) return;
    if (i == o->count) {
        o->rows[o->count++] = (pl_bench_row){.samples = OP_STEPS};
        memcpy(o->rows[i].what, what, sizeof what);
    }
    o->seconds[i * OP_STEPS + o->step] += seconds;
    if (o->step) return;
    o->rows[i].replays++;
    o->rows[i].flops += flops;
    o->rows[i].bytes += bytes;
}

static int longest_first(const void *a, const void *b)
{
    double x = ((const pl_bench_row *)a)->seconds, y = ((const pl_bench_row *)b)->seconds;
    return (x < y) - (x > y);
}

polar_status pl_bench_training_ops(pl_bench_row *rows, int most, int *count, pl_queue *q,
                                   const pl_bench_training *t, const pl_bench_peak_rates *peak)
{
    op_table o = {
        .rows = rows, .most = most, .seconds = pl_calloc((size_t)(most * OP_STEPS), sizeof(double))};
    PL_NEED(o.seconds, POLAR_E_NOMEM, "a table of %d ops", most);
    polar_status st = POLAR_OK;
    t->gradients(q, t->arg); /* allocates, loads */
    q->watch = watch, q->watch_arg = &o;
    for (; o.step < OP_STEPS && st == POLAR_OK; o.step++) {
        t->gradients(q, t->arg);
        st = polar_queue_sync(q);
    }
    q->watch = NULL;
    for (int i = 0; i < o.count; i++) {
        pl_bench_quartiles(&rows[i].q1, &rows[i].seconds, &rows[i].q3, o.seconds + i * OP_STEPS, OP_STEPS);
        rows[i].peak_share = peak && peak->flops > 0 ? rows[i].flops / rows[i].seconds / peak->flops : 0;
    }
    qsort(rows, (size_t)o.count, sizeof *rows, longest_first);
    *count = o.count;
    pl_free(o.seconds);
    return st;
}
