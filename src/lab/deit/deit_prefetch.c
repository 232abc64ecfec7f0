/* deit_prefetch.c -- pictures that are made on the device while the step before theirs runs: on a queue of
 * their own, into memory of their own, from which the step copies them.
 *
 * Invariants, of the step's queue q and the prefetch's:
 *  1. q copies a batch after it has been made.
 *  2. The next one is made after that copy, and not after q's step on it.
 *  3. Nothing is made ahead of an epoch: after its last step there is no work here that q has not waited for,
 * and q makes the test pictures with the same rows; after them the host waits for q.
 *  4. A batch made ahead is a function of seed, epoch and pass, as every batch: dropped, it can be made
 * again.
 */
#include "base/alloc.h"
#include "lab/deit/deit_train.h"

/* (sets x count, 3 image, image) and (sets, count, classes) at the head of the buffers: those of set k. */
static pl_mat pictures_at(const pl_deit_prefetch *p, int64_t k, int64_t count)
{
    return pl_mat_at(pl_mat_dense(p->x.data, p->x.dtype, (k + 1) * count, p->x.rows, p->x.cols), k * count,
                     count);
}

static pl_mat targets_at(const pl_deit_prefetch *p, int64_t k, int64_t count)
{
    return pl_mat_at(pl_mat_dense(p->y.data, p->y.dtype, k + 1, count, p->y.cols), k, 1);
}

polar_status pl_deit_prefetch_create(pl_train *t)
{
    const pl_deit_shape *s = &t->set->shape;
    pl_deit_prefetch *p = &t->prefetch;
    int wanted = 0;
    for (int64_t k = 0; k < t->data_count; k++) wanted |= t->data[k].way != PL_DEIT_BY_HOST;
    p->epoch = p->pass = -1;
    if (!wanted) return POLAR_OK;
    PL_TRY(polar_queue_create(&p->q, t->dev, NULL));
    PL_TRY(pl_mat_alloc(&p->x, t->dev, POLAR_DTYPE_F32, t->data_count * s->batch, 3 * s->image, s->image));
    return pl_mat_alloc(&p->y, t->dev, POLAR_DTYPE_F32, t->data_count, s->batch, s->classes);
}

void pl_deit_prefetch_destroy(pl_train *t)
{
    polar_queue_destroy(t->prefetch.q);
    pl_mat_free(&t->prefetch.x, t->dev);
    pl_mat_free(&t->prefetch.y, t->dev);
}

static polar_status make_one(pl_train *t, int64_t k, int64_t pass, int64_t count)
{
    const pl_deit_settings *set = t->set;
    pl_deit_data *d = &t->data[k];
    polar_queue *q = t->prefetch.q;
    pl_mat X = pictures_at(&t->prefetch, k, count), Y = targets_at(&t->prefetch, k, count);
    pl_mix mix;
    PL_TRY(pl_deit_mix_draw(&mix, t, d, pass));
    if (d->way == PL_DEIT_BY_DEVICE)
        PL_TRY(pl_deit_input_make(X, d, q, PL_IMAGES_TRAIN, t->made, pass * set->shape.batch));
    else {
        if (!d->loader) PL_TRY(pl_deit_loader_begin(t, d, pass));
        PL_TRY(pl_deit_stream_make(X, d, q));
    }
    if (mix.kind != PL_MIX_NONE)
        PL_CALL(mix, q, .X = X, .mixup = mix.kind == PL_MIX_MIXUP, .x = mix.cut.x, .y = mix.cut.y,
                .width = mix.cut.width, .height = mix.cut.height, .lam = mix.lam, .rest = 1 - mix.lam);
    PL_TRY(pl_mix_targets(t->host_y, &mix, d->labels, count, set->shape.classes, set->mix.smoothing));
    polar_queue_upload(q, Y.data, t->host_y, pl_mat_bytes(&Y));
    return POLAR_OK;
}

polar_status pl_deit_prefetch_make(pl_train *t, int64_t pass, int64_t count)
{
    pl_deit_prefetch *p = &t->prefetch;
    p->pass = -1;
    for (int64_t k = 0; k < t->data_count; k++)
        if (t->data[k].way != PL_DEIT_BY_HOST && pl_deit_data_wanted(t, &t->data[k]))
            PL_TRY(make_one(t, k, pass, count));
    p->epoch = t->made;
    p->pass = pass;
    return POLAR_OK;
}

polar_status pl_deit_prefetch_take(pl_train *t, int64_t pass, int64_t count)
{
    pl_deit_prefetch *p = &t->prefetch;
    if (p->epoch != t->made || p->pass != pass) PL_TRY(pl_deit_prefetch_make(t, pass, count));
    pl_queue_after(t->q, p->q);
    pl_mat x = pl_mat_dense(t->x.data, t->x.dtype, t->members * count, t->x.rows, t->x.cols);
    pl_mat y = pl_mat_dense(t->y.data, t->y.dtype, t->members, count, t->y.cols);
    for (int64_t i = 0; i < t->members; i++) {
        int64_t k = t->slots[i].data - t->data;
        if (t->data[k].way == PL_DEIT_BY_HOST) continue;
        PL_CALL(copy, t->q, .Y = pl_mat_at(x, i * count, count), .X = pictures_at(p, k, count));
        PL_CALL(copy, t->q, .Y = pl_mat_at(y, i, 1), .X = targets_at(p, k, count));
    }
    pl_queue_after(p->q, t->q);
    return POLAR_OK;
}
