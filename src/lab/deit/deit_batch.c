/* deit_batch.c -- batches of pictures through the model: a training step, and how many of a test batch are
 * right.
 *
 * The host mixes a batch (mix.h), uploads it to one fixed place, once for all members that see it, and the
 * work on it, the optimisers' too, is captured once. Losses are added up on the device and read now and
 * then, so that the host prepares batches while the device works.
 */
#include <math.h>

#include "base/alloc.h"
#include "compose/map.h"
#include "lab/deit/deit_train.h"
#include "lab/run/train_optim.h"

#define LOSS_EVERY 32 /* batches: how late a loss that is none ends a run */

polar_status pl_deit_batch_create(pl_train *t)
{
    const pl_deit_shape *s = &t->set->shape;
    int64_t E = t->members;
    polar_dtype wide = s->dtype == POLAR_DTYPE_F64 ? POLAR_DTYPE_F64 : POLAR_DTYPE_F32;
    PL_TRY(pl_mat_alloc(&t->x, t->dev, POLAR_DTYPE_F32, E * s->batch, 3 * s->image, s->image));
    PL_TRY(pl_mat_alloc(&t->y, t->dev, POLAR_DTYPE_F32, E, s->batch, s->classes));
    PL_TRY(pl_mat_alloc(&t->dz, t->dev, wide, E, s->batch, s->classes));
    PL_TRY(pl_mat_alloc(&t->z, t->dev, wide, E, s->batch, s->classes));
    PL_TRY(pl_mat_alloc(&t->loss, t->dev, POLAR_DTYPE_F64, E, 1, 1));
    PL_TRY(pl_mat_alloc(&t->sum, t->dev, POLAR_DTYPE_F64, E, 1, 1));
    PL_TRY(pl_graph_create(&t->train_graph, t->dev));
    PL_TRY(pl_graph_create(&t->test_graph, t->dev));
    t->host_y = pl_calloc((size_t)(s->batch * s->classes), sizeof *t->host_y);
    t->host_z = pl_calloc(1, pl_mat_bytes(&t->z));
    t->host_sum = pl_calloc((size_t)E, sizeof *t->host_sum);
    PL_NEED(t->host_y && t->host_z && t->host_sum, POLAR_E_NOMEM, "the targets of %lld pictures",
            (long long)s->batch);
    return POLAR_OK;
}

void pl_deit_batch_destroy(pl_train *t)
{
    pl_deit_prefetch_destroy(t);
    pl_graph_destroy(t->train_graph);
    pl_graph_destroy(t->test_graph);
    pl_mat *mats[] = {&t->x, &t->y, &t->dz, &t->z, &t->loss, &t->sum};
    for (size_t i = 0; i < sizeof mats / sizeof *mats; i++) pl_mat_free(mats[i], t->dev);
    pl_free(t->host_y);
    pl_free(t->host_z);
    pl_free(t->host_sum);
}

int pl_deit_slot_active(const pl_deit_slot *s)
{
    return s->stop.end == PL_END_NOT && !s->lost && s->finite;
}

int pl_deit_data_wanted(const pl_train *t, const pl_deit_data *d)
{
    for (int64_t i = 0; i < t->members; i++)
        if (t->slots[i].data == d && pl_deit_slot_active(&t->slots[i])) return 1;
    return 0;
}

/* ---- a step ------------------------------------------------------------------------------------- */

/* (members, count, classes) at the head of a buffer. */
static pl_mat rows_of(const pl_train *t, pl_mat m)
{
    return pl_mat_dense(m.data, m.dtype, t->members, t->seen.batch / t->members, t->set->shape.classes);
}

/* Forward, loss and backward of a batch. */
static void gradients(pl_queue *q, pl_train *t)
{
    pl_mat dz = rows_of(t, t->dz), z = pl_deit_forward(t->model, q, t->seen);
    PL_CALL(cross_entropy, q, .L = t->loss, .dZ = dz, .Z = z, .T = rows_of(t, t->y));
    PL_CALL(axpby, q, .Y = t->sum, .X = t->sum, .Z = t->loss, .alpha = 1, .beta = 1);
    pl_deit_backward(t->model, q, dz);
}

/* A whole step, to be captured as one. */
static void train_pass(pl_queue *q, void *arg)
{
    pl_train *t = arg;
    gradients(q, t);
    for (int64_t g = 0; g < t->group_count; g++) {
        polar_status st = polar_optim_enqueue(t->groups[g].opt, q);
        if (st != POLAR_OK) pl_queue_keep(q, st);
    }
}

/* A batch that is not whole is not captured, nor is an optimiser by SVD. */
static polar_status make_step(pl_train *t, int64_t count)
{
    int captured = count == t->set->batch;
    for (int64_t g = 0; g < t->group_count; g++)
        captured &= !pl_map_decomposes(&t->slots[t->groups[g].first].set.optim.rule.map);
    if (captured) {
        for (int64_t g = 0; g < t->group_count; g++) PL_TRY(polar_optim_prepare(t->groups[g].opt, t->q));
        return pl_graph_run(t->train_graph, t->q, train_pass, t);
    }
    gradients(t->q, t);
    for (int64_t g = 0; g < t->group_count; g++) PL_TRY(polar_optim_step(t->groups[g].opt, t->q));
    return POLAR_OK;
}

int64_t pl_deit_pictures(const pl_train *t, int64_t steps)
{
    int64_t n = steps * t->set->batch, all = t->data[0].count[PL_IMAGES_TRAIN];
    return n < all ? n : all;
}

/* Where the learning rate moves once an epoch it is not the optimiser's own. */
polar_status pl_deit_set_slots(pl_train *t)
{
    double factor = t->schedule.unit == 1 ? 1 : pl_schedule_factor(&t->schedule, t->made * t->steps);
    for (int64_t g = 0; g < t->group_count; g++)
        for (int64_t i = 0; i < t->groups[g].count; i++) {
            const pl_deit_slot *s = &t->slots[t->groups[g].first + i];
            PL_TRY(pl_train_optim_set_member(t->groups[g].opt, i, &s->set.optim, factor,
                                             s->stop.end == PL_END_NOT));
        }
    return POLAR_OK;
}

/* ---- losses ------------------------------------------------------------------------------------- */

void pl_deit_loss_set(pl_train *t)
{
    for (int64_t i = 0; i < t->members; i++) t->host_sum[i] = t->slots[i].loss_sum;
    t->loss_steps = t->step;
    polar_queue_upload(t->q, t->sum.data, t->host_sum, pl_mat_bytes(&t->sum));
}

polar_status pl_deit_loss_read(pl_train *t)
{
    polar_queue_download(t->q, t->host_sum, t->sum.data, pl_mat_bytes(&t->sum));
    PL_TRY(polar_queue_sync(t->q));
    t->loss_steps = t->step;
    for (int64_t i = 0; i < t->members; i++) {
        pl_deit_slot *s = &t->slots[i];
        if (!pl_deit_slot_active(s)) continue;
        s->loss_sum = t->host_sum[i];
        if (!isfinite(s->loss_sum) && pl_deit_loss_decides(t, t->step)) s->lost = t->step;
    }
    return POLAR_OK;
}

int pl_deit_loss_decides(const pl_train *t, int64_t step)
{
    return step == 1 || step == t->steps || (step && step % LOSS_EVERY == 0);
}

/* ---- pictures ----------------------------------------------------------------------------------- */

/* What the first slot that sees d has of m, which has `each` matrices for every slot. */
static pl_mat first_of(const pl_train *t, const pl_deit_data *d, pl_mat m, int64_t each)
{
    int64_t i = 0;
    while (t->slots[i].data != d) i++;
    return pl_mat_at(m, i * each, each);
}

/* ... and from there to the others. */
static void spread(pl_train *t, const pl_deit_data *d, pl_mat m, int64_t each)
{
    pl_mat first = first_of(t, d, m, each);
    for (int64_t i = 0; i < t->members; i++) {
        pl_mat here = pl_mat_at(m, i * each, each);
        if (t->slots[i].data == d && here.data != first.data) PL_CALL(copy, t->q, .Y = here, .X = first);
    }
}

static void send(pl_train *t, const pl_deit_data *d, pl_mat m, int64_t each, const float *host)
{
    pl_mat first = first_of(t, d, m, each);
    polar_queue_upload(t->q, first.data, host, pl_mat_bytes(&first));
    spread(t, d, m, each);
}

/* So many pictures of each. */
static void set_seen(pl_train *t, int64_t count)
{
    t->seen = pl_mat_dense(t->x.data, t->x.dtype, t->members * count, t->x.rows, t->x.cols);
}

polar_status pl_deit_loader_begin(const pl_train *t, pl_deit_data *d, int64_t pass)
{
    const pl_leaves *l = &t->leaves;
    const pl_deit_shape *s = &t->set->shape;
    int64_t step = pass / l->total, first = pl_deit_pictures(t, step) + l->first * s->batch;
    int64_t items = pl_deit_pictures(t, t->steps) - first;
    PL_NEED(pass % l->total == l->first, POLAR_E_STATE, "a step's pictures from pass %lld on",
            (long long)pass);
    if (l->total > 1) items = (t->steps - step) * l->count * s->batch;
    d->run = l->count * s->batch;
    d->gap = (l->total - l->count) * s->batch;
    return pl_deit_data_begin(d, PL_IMAGES_TRAIN, t->made, first, items, s->batch, s->image);
}

polar_status pl_deit_mix_draw(pl_mix *out, const pl_train *t, const pl_deit_data *d, int64_t pass)
{
    const pl_deit_settings *set = t->set;
    return pl_mix_draw(out, &set->mix, (pl_mix_key){d->seed, t->made, pass}, set->shape.image,
                       set->shape.image);
}

/* The pictures of pass number `pass` of the epoch, a batch or a leaf of one, made by the loader. */
static polar_status load_train(pl_train *t, pl_deit_data *d, int64_t count, int64_t pass)
{
    const pl_deit_settings *set = t->set;
    const pl_deit_shape *s = &set->shape;
    pl_deit_batch b;
    pl_mix mix;
    PL_TRY(pl_deit_mix_draw(&mix, t, d, pass));
    if (!d->loader) PL_TRY(pl_deit_loader_begin(t, d, pass));
    PL_TRY(pl_deit_data_next(&b, d, d->labels));
    PL_NEED(b.count == count, POLAR_E_STATE, "%lld pictures in place of %lld", (long long)b.count,
            (long long)count);
    PL_TRY(pl_mix_images(b.x, &mix, b.count, 3, s->image, s->image));
    send(t, d, t->seen, count, b.x);
    PL_TRY(pl_mix_targets(t->host_y, &mix, d->labels, count, s->classes, set->mix.smoothing));
    send(t, d, rows_of(t, t->y), 1, t->host_y);
    return POLAR_OK;
}

/* `count` pictures and targets of each set into the step's memory. */
static polar_status train_pictures(pl_train *t, int64_t count, int64_t pass)
{
    set_seen(t, count);
    for (int64_t i = 0; i < t->data_count; i++)
        if (t->data[i].way == PL_DEIT_BY_HOST && pl_deit_data_wanted(t, &t->data[i]))
            PL_TRY(load_train(t, &t->data[i], count, pass));
    return t->prefetch.q ? pl_deit_prefetch_take(t, pass, count) : POLAR_OK;
}

/* Those of the next pass, while the device works on this one's. */
static polar_status prefetch(pl_train *t, int64_t count, int64_t pass)
{
    return t->prefetch.q && count ? pl_deit_prefetch_make(t, pass, count) : POLAR_OK;
}

/* Forward and backward of each of this rank's leaves; the optimiser adds what all ranks have. A leaf has the
 * draws of its number, whoever makes it. */
static polar_status train_leaves(pl_train *t)
{
    pl_leaves *l = &t->leaves;
    const pl_deit_shape *s = &t->set->shape;
    double mean;
    for (int64_t k = 0; k < l->count; k++) {
        int64_t leaf = t->step * l->total + l->first + k, all = t->made * t->steps * l->total + leaf;
        int64_t next = k + 1 < l->count ? leaf + 1 : (t->step + 1) * l->total + l->first;
        PL_TRY(train_pictures(t, s->batch, leaf));
        pl_deit_set_drop(t->model, t->q, t->seeds, (uint64_t)all, s->batch);
        pl_mat dz = rows_of(t, t->dz), z = pl_deit_forward(t->model, t->q, t->seen);
        PL_CALL(cross_entropy, t->q, .L = t->loss, .dZ = dz, .Z = z, .T = rows_of(t, t->y));
        l->leaf = l->first + k;
        pl_deit_backward(t->model, t->q, dz);
        PL_TRY(pl_leaves_add(l, t->q));
        PL_TRY(prefetch(t, next < t->steps * l->total ? s->batch : 0, next));
        polar_queue_download(t->q, &l->loss[k], t->loss.data, sizeof *l->loss);
        PL_TRY(polar_queue_sync(t->q));
    }
    PL_TRY(pl_leaves_mean(l, &mean));
    polar_queue_upload(t->q, t->loss.data, &mean, sizeof mean);
    PL_CALL(axpby, t->q, .Y = t->sum, .X = t->sum, .Z = t->loss, .alpha = 1, .beta = 1);
    return polar_optim_step(t->groups[0].opt, t->q);
}

static int64_t pictures_of(const pl_train *t, int64_t step)
{
    return pl_deit_pictures(t, step + 1) - pl_deit_pictures(t, step);
}

static polar_status train_whole(pl_train *t)
{
    int64_t step = t->made * t->steps + t->step, count = pictures_of(t, t->step);
    PL_TRY(train_pictures(t, count, t->step));
    pl_deit_set_drop(t->model, t->q, t->seeds, (uint64_t)step, count);
    PL_TRY(make_step(t, count));
    return prefetch(t, t->step + 1 < t->steps ? pictures_of(t, t->step + 1) : 0, t->step + 1);
}

polar_status pl_deit_train_batch(pl_train *t)
{
    PL_TRY(t->leaves.total > 1 ? train_leaves(t) : train_whole(t));
    t->step++;
    if (pl_deit_loss_decides(t, t->step)) PL_TRY(pl_deit_loss_read(t));
    for (int64_t i = 0; t->step == t->steps && i < t->data_count; i++) pl_deit_data_end(&t->data[i]);
    return POLAR_OK;
}

/* ---- the test ----------------------------------------------------------------------------------- */

static void test_pass(pl_queue *q, void *arg)
{
    pl_train *t = arg;
    pl_mat z = pl_deit_forward(t->model, q, t->seen);
    PL_CALL(copy, q, .Y = rows_of(t, t->z), .X = z);
}

/* Right or not by the first of the largest scores. */
static void look_at(pl_train *t, int64_t slot, int64_t count)
{
    pl_deit_slot *s = &t->slots[slot];
    int64_t classes = t->set->shape.classes;
    if (!pl_deit_slot_active(s)) return;
    for (int64_t i = 0; i < count; i++) {
        int64_t best = 0;
        double most = -INFINITY;
        if (s->data->labels[i] < 0) continue;
        for (int64_t k = 0; k < classes; k++) {
            double z = pl_load_f64(t->host_z, t->z.dtype, (slot * count + i) * classes + k);
            if (!isfinite(z)) s->finite = 0;
            if (z > most) most = z, best = k;
        }
        s->correct += best == s->data->labels[i];
    }
}

static polar_status test_pictures(pl_train *t, pl_deit_data *d, int64_t count)
{
    const pl_deit_shape *s = &t->set->shape;
    pl_mat X = first_of(t, d, t->seen, count);
    pl_deit_batch b;
    if (d->way != PL_DEIT_BY_DEVICE && !d->loader)
        PL_TRY(pl_deit_data_begin(d, PL_IMAGES_TEST, t->made, t->tested, d->count[PL_IMAGES_TEST] - t->tested,
                                  s->batch, s->image));
    if (d->way == PL_DEIT_BY_DEVICE)
        PL_TRY(pl_deit_input_make(X, d, t->q, PL_IMAGES_TEST, t->made, t->tested));
    else if (d->way == PL_DEIT_BY_DEVICE_PARTS) PL_TRY(pl_deit_stream_make(X, d, t->q));
    else {
        PL_TRY(pl_deit_data_next(&b, d, d->labels));
        polar_queue_upload(t->q, X.data, b.x, pl_mat_bytes(&X));
    }
    for (int64_t i = 0; i < count; i++) d->counted += d->labels[i] >= 0;
    spread(t, d, t->seen, count);
    return POLAR_OK;
}

polar_status pl_deit_test_batch(pl_train *t)
{
    const pl_deit_shape *s = &t->set->shape;
    int64_t left = t->data[0].count[PL_IMAGES_TEST] - t->tested, count = left < s->batch ? left : s->batch;
    set_seen(t, count);
    for (int64_t i = 0; i < t->data_count; i++)
        if (pl_deit_data_wanted(t, &t->data[i])) PL_TRY(test_pictures(t, &t->data[i], count));
    pl_deit_set_drop(t->model, t->q, NULL, 0, 0);
    if (count == s->batch) PL_TRY(pl_graph_run(t->test_graph, t->q, test_pass, t));
    else test_pass(t->q, t);
    pl_mat z = rows_of(t, t->z);
    polar_queue_download(t->q, t->host_z, z.data, pl_mat_bytes(&z));
    PL_TRY(polar_queue_sync(t->q));
    for (int64_t i = 0; i < t->members; i++) look_at(t, i, count);
    t->tested += count;
    for (int64_t i = 0; t->tested == t->data[0].count[PL_IMAGES_TEST] && i < t->data_count; i++)
        pl_deit_data_end(&t->data[i]);
    return POLAR_OK;
}
