/* deit_resume.c -- a DeiT run in one safetensors file (train_state.h), at any step of an epoch, and back.
 *
 *     weight.NAME             (1, rows, cols) f32 or f64
 *     optim0.NAME.m, ...      the optimiser's state
 *     run.count               I64: epochs made, best epoch, how it ended; of the epoch under way: batches,
 *                             test pictures, those read, those right, whether all scores were finite
 *     run.real                F64: the best epoch's -top1, the sum of the losses of the epoch under way
 *     run.top1                (epochs) F64
 *     run.bad                 bits: pictures that could not be read
 *
 * polar.data of the metadata is the fingerprint of the pictures: a run does not go on with others.
 */
#include "lab/deit/deit_train.h"
#include "lab/run/train_state.h"

#define MADE_BY "deit 2"
#define OLDER   "deit 1" /* the same without a checksum */

enum { MADE, BEST, ENDED, STEP, TESTED, COUNTED, CORRECT, FINITE, COUNTS }; /* of run.count */
enum { BEST_TOP1, LOSS_SUM, REALS };                                        /* of run.real */

typedef struct numbers {
    int64_t count[COUNTS];
    double real[REALS];
    double *top1; /* (epochs) */
    int64_t *bad; /* (bad_words) */
} numbers;

static polar_status list_state(pl_state *s, numbers *n, pl_train *t)
{
    PL_TRY(pl_state_create(s, MADE_BY, t->param_count + 4, 1, 1));
    s->older = OLDER;
    PL_TRY(pl_state_add_run(s, t->config, t->seed));
    for (int64_t i = 0; i < t->param_count; i++)
        pl_state_add_mat(s, t->params[i].W, "weight.%s", t->params[i].name);
    pl_state_add_counts(s, n->count, COUNTS, 0, "run.count");
    pl_state_add_reals(s, n->real, REALS, 0, "run.real");
    pl_state_add_reals(s, n->top1, t->set.epochs, 0, "run.top1");
    pl_state_add_counts(s, n->bad, t->data.bad_words, 0, "run.bad");
    pl_state_add_optim(s, t->opt, "optim0.");
    s->made = t->stop.made;
    s->data = t->data.print;
    return POLAR_OK;
}

polar_status pl_deit_state_save(pl_train *t, const char *path)
{
    const pl_early_stop *e = &t->stop;
    pl_state s = {0};
    PL_TRY(pl_deit_loss_read(t));
    numbers n = {
        .count = {e->made, e->best_epoch, e->end, t->step, t->tested, t->counted, t->correct, t->finite},
        .real = {e->best, t->loss_sum},
        .top1 = t->top1,
        .bad = t->data.bad};
    polar_status st = list_state(&s, &n, t);
    if (st == POLAR_OK) st = pl_state_save(&s, t->q, path);
    pl_state_destroy(&s);
    return st;
}

static int within(int64_t x, int64_t least, int64_t most)
{
    return x >= least && x <= most;
}

/* What a run of ours could have left. */
static polar_status check(const numbers *n, const pl_state *s, const pl_train *t, const char *path)
{
    const int64_t *c = n->count;
    int possible = c[MADE] == s->made && within(c[MADE], 0, t->set.epochs) && within(c[BEST], 0, c[MADE]) &&
                   within(c[ENDED], PL_END_NOT, PL_END_DIVERGED) && within(c[STEP], 0, t->steps) &&
                   within(c[TESTED], 0, t->data.count[PL_IMAGES_TEST]) && within(c[COUNTED], 0, c[TESTED]) &&
                   within(c[CORRECT], 0, c[COUNTED]) && within(c[FINITE], 0, 1) &&
                   (!c[TESTED] || c[STEP] == t->steps) &&
                   (c[ENDED] == PL_END_NOT ? c[MADE] < t->set.epochs : c[MADE] > 0);
    PL_NEED(possible, POLAR_E_FORMAT, "'%s': the counters make no sense", path);
    return POLAR_OK;
}

static void set_numbers(pl_train *t, const numbers *n)
{
    const int64_t *c = n->count;
    pl_deit_data_end(&t->data);
    t->stop = (pl_early_stop){.epochs = t->set.epochs,
                              .made = c[MADE],
                              .best_epoch = c[BEST],
                              .best = n->real[BEST_TOP1],
                              .end = (pl_end)c[ENDED]};
    t->step = c[STEP], t->tested = c[TESTED], t->counted = c[COUNTED], t->correct = c[CORRECT],
    t->finite = c[FINITE];
    pl_deit_loss_set(t, n->real[LOSS_SUM]);
}

polar_status pl_deit_state_load(pl_train *t, const char *path)
{
    pl_state s = {0};
    pl_state_file *f = NULL;
    /* read in place: after an error t is fit only for end */
    numbers n = {.top1 = t->top1, .bad = t->data.bad};
    polar_status st = list_state(&s, &n, t);
    if (st == POLAR_OK) st = pl_state_open(&f, &s, path);
    if (st == POLAR_OK) st = check(&n, &s, t, path);
    if (st == POLAR_OK) st = pl_state_apply(f, &s, t->q);
    if (st == POLAR_OK) set_numbers(t, &n);
    pl_state_close(f);
    pl_state_destroy(&s);
    return st;
}
