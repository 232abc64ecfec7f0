/* deit_batch.c -- batches of pictures through the model: a training step, and how many of a test batch are
 * right.
 *
 * The host mixes a batch (mix.h), uploads it to one fixed place, and the work on it, the optimiser's too, is
 * captured once. Losses are added up on the device and read now and then, so that the host prepares batches
 * while the device works.
 */
#include <math.h>

#include "base/alloc.h"
#include "lab/deit/deit_train.h"

#define LOSS_EVERY 32 /* batches: how late a loss that is none ends a run */

polar_status pl_deit_batch_create(pl_train *t)
{
    const pl_deit_shape *s = &t->set.shape;
    polar_dtype wide = s->dtype == POLAR_DTYPE_F64 ? POLAR_DTYPE_F64 : POLAR_DTYPE_F32;
    PL_TRY(pl_mat_alloc(&t->x, t->dev, POLAR_DTYPE_F32, s->batch, 3 * s->image, s->image));
    PL_TRY(pl_mat_alloc(&t->y, t->dev, POLAR_DTYPE_F32, 1, s->batch, s->classes));
    PL_TRY(pl_mat_alloc(&t->dz, t->dev, wide, 1, s->batch, s->classes));
    PL_TRY(pl_mat_alloc(&t->z, t->dev, wide, 1, s->batch, s->classes));
    PL_TRY(pl_mat_alloc(&t->loss, t->dev, POLAR_DTYPE_F64, 1, 1, 1));
    PL_TRY(pl_mat_alloc(&t->sum, t->dev, POLAR_DTYPE_F64, 1, 1, 1));
    PL_TRY(pl_graph_create(&t->train_graph, t->dev));
    PL_TRY(pl_graph_create(&t->test_graph, t->dev));
    t->labels = pl_calloc((size_t)s->batch, sizeof *t->labels);
    t->host_y = pl_calloc((size_t)(s->batch * s->classes), sizeof *t->host_y);
    t->host_z = pl_calloc(1, pl_mat_bytes(&t->z));
    PL_NEED(t->labels && t->host_y && t->host_z, POLAR_E_NOMEM, "the targets of %lld pictures",
            (long long)s->batch);
    return POLAR_OK;
}

void pl_deit_batch_destroy(pl_train *t)
{
    pl_graph_destroy(t->train_graph);
    pl_graph_destroy(t->test_graph);
    pl_mat *mats[] = {&t->x, &t->y, &t->dz, &t->z, &t->loss, &t->sum};
    for (size_t i = 0; i < sizeof mats / sizeof *mats; i++) pl_mat_free(mats[i], t->dev);
    pl_free(t->labels);
    pl_free(t->host_y);
    pl_free(t->host_z);
}

/* Forward, loss and backward of a batch. */
static void gradients(pl_queue *q, pl_train *t)
{
    int64_t count = t->seen.batch, classes = t->set.shape.classes;
    pl_mat dz = pl_mat_dense(t->dz.data, t->dz.dtype, 1, count, classes),
           y = pl_mat_dense(t->y.data, t->y.dtype, 1, count, classes),
           z = pl_deit_forward(t->model, q, t->seen);
    PL_CALL(cross_entropy, q, .L = t->loss, .dZ = dz, .Z = z, .T = y);
    PL_CALL(axpby, q, .Y = t->sum, .X = t->sum, .Z = t->loss, .alpha = 1, .beta = 1);
    pl_deit_backward(t->model, q, dz);
}

/* A whole step, to be captured as one. */
static void train_pass(pl_queue *q, void *arg)
{
    pl_train *t = arg;
    gradients(q, t);
    polar_status st = polar_optim_enqueue(t->opt, q);
    if (st != POLAR_OK) pl_queue_keep(q, st);
}

/* A batch that is not whole is not captured, nor is an optimiser by SVD. */
static polar_status make_step(pl_train *t, int64_t count)
{
    if (count == t->set.shape.batch && t->set.optim.rule.map.kind != POLAR_MAP_EXACT) {
        PL_TRY(polar_optim_prepare(t->opt, t->q));
        return pl_graph_run(t->train_graph, t->q, train_pass, t);
    }
    gradients(t->q, t);
    return polar_optim_step(t->opt, t->q);
}

static void test_pass(pl_queue *q, void *arg)
{
    pl_train *t = arg;
    pl_mat z = pl_deit_forward(t->model, q, t->seen);
    PL_CALL(copy, q, .Y = pl_mat_dense(t->z.data, t->z.dtype, 1, z.rows, z.cols), .X = z);
}

int64_t pl_deit_pictures(const pl_train *t, int64_t steps)
{
    int64_t n = steps * t->set.batch, all = t->data.count[PL_IMAGES_TRAIN];
    return n < all ? n : all;
}

/* Where the learning rate moves once an epoch it is not the optimiser's own. */
static polar_status set_rate(pl_train *t, int64_t step)
{
    if (t->schedule.unit == 1) return POLAR_OK;
    double factor = pl_schedule_factor(&t->schedule, step);
    return polar_optim_set_lr(t->opt, factor * t->set.optim.lr, factor * t->set.optim.aux_lr);
}

void pl_deit_loss_set(pl_train *t, double sum)
{
    t->loss_sum = sum;
    t->loss_steps = t->step;
    polar_queue_upload(t->q, t->sum.data, &sum, sizeof sum);
}

polar_status pl_deit_loss_read(pl_train *t)
{
    polar_queue_download(t->q, &t->loss_sum, t->sum.data, sizeof t->loss_sum);
    t->loss_steps = t->step;
    return polar_queue_sync(t->q);
}

int pl_deit_loss_decides(const pl_train *t, int64_t step)
{
    return step == 1 || step == t->steps || step % LOSS_EVERY == 0;
}

int pl_deit_loss_lost(const pl_train *t)
{
    return !isfinite(t->loss_sum) && pl_deit_loss_decides(t, t->loss_steps);
}

polar_status pl_deit_train_batch(pl_train *t)
{
    const pl_deit_shape *s = &t->set.shape;
    int64_t step = t->stop.made * t->steps + t->step, first = pl_deit_pictures(t, t->step);
    pl_deit_batch b;
    pl_mix mix;
    if (!t->data.loader)
        PL_TRY(pl_deit_data_begin(&t->data, PL_IMAGES_TRAIN, t->stop.made, first,
                                  pl_deit_pictures(t, t->steps) - first, s->batch, s->image));
    PL_TRY(pl_deit_data_next(&b, &t->data, t->labels));
    PL_TRY(pl_mix_draw(&mix, &t->set.mix, (pl_mix_key){t->seed, t->stop.made, t->step}, s->image, s->image));
    PL_TRY(pl_mix_images(b.x, &mix, b.count, 3, s->image, s->image));
    PL_TRY(pl_mix_targets(t->host_y, &mix, b.labels, b.count, s->classes, t->set.mix.smoothing));
    t->seen = pl_mat_dense(t->x.data, t->x.dtype, b.count, t->x.rows, t->x.cols);
    polar_queue_upload(t->q, t->x.data, b.x, pl_mat_bytes(&t->seen));
    polar_queue_upload(t->q, t->y.data, t->host_y, (size_t)(b.count * s->classes) * sizeof *t->host_y);
    pl_deit_set_drop(t->model, t->q, &t->seed, (uint64_t)step, b.count);
    PL_TRY(set_rate(t, step));
    PL_TRY(make_step(t, b.count));
    t->step++;
    if (pl_deit_loss_decides(t, t->step)) PL_TRY(pl_deit_loss_read(t));
    if (t->step == t->steps) pl_deit_data_end(&t->data);
    return POLAR_OK;
}

/* Right or not by the first of the largest scores. */
static void look_at(pl_train *t, const pl_deit_batch *b)
{
    int64_t classes = t->set.shape.classes;
    for (int64_t i = 0; i < b->count; i++) {
        int64_t best = 0;
        double most = -INFINITY;
        if (b->labels[i] < 0) continue;
        for (int64_t k = 0; k < classes; k++) {
            double z = pl_load_f64(t->host_z, t->z.dtype, i * classes + k);
            if (!isfinite(z)) t->finite = 0;
            if (z > most) most = z, best = k;
        }
        t->counted++;
        t->correct += best == b->labels[i];
    }
}

polar_status pl_deit_test_batch(pl_train *t)
{
    const pl_deit_shape *s = &t->set.shape;
    pl_deit_batch b;
    if (!t->data.loader)
        PL_TRY(pl_deit_data_begin(&t->data, PL_IMAGES_TEST, t->stop.made, t->tested,
                                  t->data.count[PL_IMAGES_TEST] - t->tested, s->batch, s->image));
    PL_TRY(pl_deit_data_next(&b, &t->data, t->labels));
    t->seen = pl_mat_dense(t->x.data, t->x.dtype, b.count, t->x.rows, t->x.cols);
    polar_queue_upload(t->q, t->x.data, b.x, pl_mat_bytes(&t->seen));
    pl_deit_set_drop(t->model, t->q, NULL, 0, 0);
    if (b.count == s->batch) PL_TRY(pl_graph_run(t->test_graph, t->q, test_pass, t));
    else test_pass(t->q, t);
    polar_queue_download(t->q, t->host_z, t->z.data,
                         (size_t)(b.count * s->classes) * polar_dtype_size(t->z.dtype));
    PL_TRY(polar_queue_sync(t->q));
    look_at(t, &b);
    t->tested += b.count;
    if (t->tested == t->data.count[PL_IMAGES_TEST]) pl_deit_data_end(&t->data);
    return POLAR_OK;
}
