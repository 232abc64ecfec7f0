/* deit_resume.c -- an ensemble of DeiT runs in one safetensors file (train_state.h), at any step of an epoch,
 * and back.
 *
 *     weight.NAME             (members, rows, cols) f32 or f64, slot by slot
 *     optim<g>.NAME.m, ...    the state of the optimiser of group g
 *     run.count               (members, 8) I64: epochs made, best epoch, how it ended; of the epoch under
 *         way: batches, test pictures, those read, those right, whether all scores were finite
 *     run.real                (members, 2) F64: the best epoch's -top1, the sum of the losses of the epoch
 *         under way
 *     run.top1                (members, epochs) F64
 *     run.bad                 (members, words) bits: pictures that could not be read
 *     run.lost                (members) I64: batches after which the loss was found to be none; files of one
 *         run from older programs lack it
 *
 * The arrays of a single run have no first axis. polar.data of the metadata are the fingerprints of the
 * pictures: a run does not go on with others.
 */
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "lab/deit/deit_train.h"
#include "lab/run/train_state.h"

#define MADE_BY "deit 2"
#define OLDER   "deit 1" /* the same without a checksum */

enum { MADE, BEST, ENDED, STEP, TESTED, COUNTED, CORRECT, FINITE, COUNTS }; /* of run.count */
enum { BEST_TOP1, LOSS_SUM, REALS };                                        /* of run.real */

typedef struct numbers {
    int64_t *count, *bad, *lost;
    double *real, *top1;
    int64_t bad_words;
} numbers;

static polar_status take_numbers(numbers *n, const pl_train *t)
{
    size_t members = (size_t)t->members;
    n->bad_words = t->data[0].bad_words; /* of every seed: they have as many pictures */
    n->count = pl_calloc(members * COUNTS, sizeof *n->count);
    n->real = pl_calloc(members * REALS, sizeof *n->real);
    n->top1 = pl_calloc(members * (size_t)t->set->epochs, sizeof *n->top1);
    n->bad = pl_calloc(members * (size_t)n->bad_words, sizeof *n->bad);
    n->lost = pl_calloc(members, sizeof *n->lost);
    PL_NEED(n->count && n->real && n->top1 && n->bad && n->lost, POLAR_E_NOMEM, "a checkpoint of %lld runs",
            (long long)t->members);
    return POLAR_OK;
}

static void drop_numbers(numbers *n)
{
    pl_free(n->count);
    pl_free(n->real);
    pl_free(n->top1);
    pl_free(n->bad);
    pl_free(n->lost);
}

static polar_status list_state(pl_state *s, numbers *n, pl_train *t)
{
    int many = t->members > 1;
    PL_TRY(take_numbers(n, t));
    PL_TRY(pl_state_create(s, MADE_BY, t->param_count + 5, t->group_count, t->members));
    s->older = OLDER;
    for (int64_t i = 0; i < t->members; i++)
        PL_TRY(pl_state_add_run(s, t->slots[i].config, t->slots[i].seed));
    for (int64_t i = 0; i < t->param_count; i++)
        pl_state_add_mat(s, t->params[i].W, "weight.%s", t->params[i].name);
    pl_state_add_counts(s, n->count, many ? t->members : COUNTS, many ? COUNTS : 0, "run.count");
    pl_state_add_reals(s, n->real, many ? t->members : REALS, many ? REALS : 0, "run.real");
    pl_state_add_reals(s, n->top1, many ? t->members : t->set->epochs, many ? t->set->epochs : 0, "run.top1");
    pl_state_add_counts(s, n->bad, many ? t->members : n->bad_words, many ? n->bad_words : 0, "run.bad");
    pl_state_add_counts(s, n->lost, t->members, 0, "run.lost");
    pl_state_may_lack(s);
    pl_state_add_groups(s, t->groups, t->group_count);
    s->made = t->made;
    s->data = t->prints;
    return POLAR_OK;
}

/* The slots' numbers as the file has them. */
static void put_numbers(numbers *n, const pl_train *t)
{
    for (int64_t i = 0; i < t->members; i++) {
        const pl_deit_slot *s = &t->slots[i];
        const pl_early_stop *e = &s->stop;
        const int64_t count[COUNTS] = {e->made,   e->best_epoch,    e->end,     t->step,
                                       t->tested, s->data->counted, s->correct, s->finite};
        const double real[REALS] = {e->best, s->loss_sum};
        memcpy(n->count + COUNTS * i, count, sizeof count);
        memcpy(n->real + REALS * i, real, sizeof real);
        memcpy(n->top1 + t->set->epochs * i, s->top1, (size_t)t->set->epochs * sizeof *s->top1);
        memcpy(n->bad + n->bad_words * i, s->data->bad, (size_t)n->bad_words * sizeof *n->bad);
        n->lost[i] = s->lost;
    }
}

polar_status pl_deit_state_save(pl_train *t, const char *path)
{
    pl_state s = {0};
    numbers n = {0};
    PL_TRY(pl_deit_loss_read(t));
    polar_status st = list_state(&s, &n, t);
    if (st == POLAR_OK) put_numbers(&n, t);
    if (st == POLAR_OK) st = pl_state_save(&s, t->q, path);
    pl_state_destroy(&s);
    drop_numbers(&n);
    return st;
}

static int within(int64_t x, int64_t least, int64_t most)
{
    return x >= least && x <= most;
}

/* What a run of ours could have left. */
static int possible(const int64_t *c, int64_t lost, const pl_state *s, const pl_train *t)
{
    int ended = c[ENDED] != PL_END_NOT;
    return within(c[MADE], 0, t->set->epochs) && within(c[BEST], 0, c[MADE]) &&
           within(c[ENDED], PL_END_NOT, PL_END_DIVERGED) && within(c[STEP], 0, t->steps) &&
           within(c[TESTED], 0, t->data[0].count[PL_IMAGES_TEST]) && within(c[COUNTED], 0, c[TESTED]) &&
           within(c[CORRECT], 0, c[COUNTED]) && within(c[FINITE], 0, 1) && within(lost, 0, c[STEP]) &&
           (!c[TESTED] || c[STEP] == t->steps) &&
           (ended ? c[MADE] > 0 && c[MADE] <= s->made : c[MADE] == s->made && c[MADE] < t->set->epochs);
}

static polar_status check(const numbers *n, const pl_state *s, const pl_train *t, const char *path)
{
    for (int64_t i = 0; i < t->members; i++) {
        const int64_t *c = n->count + COUNTS * i;
        int in_step = c[STEP] == n->count[STEP] && c[TESTED] == n->count[TESTED];
        PL_NEED(in_step && possible(c, n->lost[i], s, t), POLAR_E_FORMAT, "'%s': the counters make no sense",
                path);
    }
    return POLAR_OK;
}

static void set_numbers(pl_train *t, const numbers *n, int64_t made)
{
    t->made = made;
    t->step = n->count[STEP], t->tested = n->count[TESTED];
    for (int64_t i = 0; i < t->data_count; i++) pl_deit_data_end(&t->data[i]);
    for (int64_t i = 0; i < t->members; i++) {
        pl_deit_slot *s = &t->slots[i];
        const int64_t *c = n->count + COUNTS * i;
        s->stop = (pl_early_stop){.epochs = t->set->epochs,
                                  .made = c[MADE],
                                  .best_epoch = c[BEST],
                                  .best = n->real[REALS * i + BEST_TOP1],
                                  .end = (pl_end)c[ENDED]};
        s->data->counted = c[COUNTED], s->correct = c[CORRECT], s->finite = c[FINITE], s->lost = n->lost[i];
        s->loss_sum = n->real[REALS * i + LOSS_SUM];
        memcpy(s->top1, n->top1 + t->set->epochs * i, (size_t)t->set->epochs * sizeof *s->top1);
        memcpy(s->data->bad, n->bad + n->bad_words * i, (size_t)n->bad_words * sizeof *n->bad);
    }
    pl_deit_loss_set(t);
}

polar_status pl_deit_state_load(pl_train *t, const char *path)
{
    pl_state s = {0};
    pl_state_file *f = NULL;
    numbers n = {0};
    polar_status st = list_state(&s, &n, t);
    if (st == POLAR_OK) st = pl_state_open(&f, &s, path);
    if (st == POLAR_OK) st = check(&n, &s, t, path);
    if (st == POLAR_OK) st = pl_state_apply(f, &s, t->q);
    if (st == POLAR_OK) {
        set_numbers(t, &n, s.made);
        st = pl_deit_set_slots(t);
    }
    pl_state_close(f);
    pl_state_destroy(&s);
    drop_numbers(&n);
    return st;
}
