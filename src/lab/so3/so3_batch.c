/* so3_batch.c -- batches of clouds through the model: forward and backward of a step, and errors over a whole
 * split.
 *
 * The host lays some batches out and uploads them together, so that the device need not wait for each; a step
 * copies its own to one fixed place, and the work on it is captured once. What does not change from epoch to
 * epoch, the validation clouds, is uploaded once. Losses and predictions come back together, too. The sum
 * over a split is made on the host, in double and in the order of the clouds, so that it depends neither on
 * the batch nor on the device. A split's last batch is filled up with its last cloud, whose copies do not
 * count.
 */
#include <string.h>

#include "base/alloc.h"
#include "lab/so3/so3_train.h"

#define AHEAD ((size_t)64 << 20)  /* bytes of batches uploaded together, one at least */
#define KEPT  ((size_t)512 << 20) /* of a split that stays on the device */

static int64_t chunks_of(int64_t count, int64_t batch)
{
    return (count + batch - 1) / batch;
}

/* Batches of a step together, of `steps` steps. */
static polar_status batches_create(pl_so3_batches *b, pl_train *t, int64_t steps)
{
    const pl_so3_settings *s = &t->slots[0].set;
    int64_t clouds = t->members * s->batch;
    b->steps = steps;
    PL_TRY(pl_mat_alloc(&b->x, t->dev, s->dtype, steps * clouds, s->points, 3));
    PL_TRY(pl_mat_alloc(&b->y, t->dev, s->dtype, steps * t->members, s->batch, 1));
    b->host_x = pl_calloc(1, pl_mat_bytes(&b->x));
    b->host_y = pl_calloc((size_t)(steps * clouds), sizeof *b->host_y);
    PL_NEED(b->host_x && b->host_y, POLAR_E_NOMEM, "%lld batches of %lld clouds for %lld runs",
            (long long)steps, (long long)s->batch, (long long)t->members);
    return POLAR_OK;
}

static void batches_destroy(pl_so3_batches *b, pl_train *t)
{
    pl_mat_free(&b->x, t->dev);
    pl_mat_free(&b->y, t->dev);
    pl_free(b->host_x);
    pl_free(b->host_y);
    *b = (pl_so3_batches){0};
}

static void put_cloud(pl_train *t, pl_so3_batches *b, int64_t step, int64_t slot, int64_t place,
                      const pl_clouds *c, int64_t cloud)
{
    int64_t at = (step * t->members + slot) * t->slots[0].set.batch + place;
    memcpy(b->host_x + (size_t)at * pl_clouds_bytes(c), pl_clouds_view(c, cloud), pl_clouds_bytes(c));
    b->host_y[at] = c->target[cloud];
}

static polar_status batches_upload(pl_train *t, pl_so3_batches *b)
{
    polar_queue_upload(t->q, b->x.data, b->host_x, pl_mat_bytes(&b->x));
    return pl_mat_upload_f64(t->q, &b->y, b->host_y);
}

/* Batch `step` of those to where the passes look for it. */
static void batches_take(pl_train *t, const pl_so3_batches *b, int64_t step)
{
    PL_CALL(copy, t->q, .Y = t->x, .X = pl_mat_at(b->x, step * t->x.batch, t->x.batch));
    PL_CALL(copy, t->q, .Y = t->y, .X = pl_mat_at(b->y, step * t->members, t->members));
}

polar_status pl_so3_batch_create(pl_train *t)
{
    const pl_so3_settings *s = &t->slots[0].set;
    int64_t most = chunks_of(s->valid > s->test ? s->valid : s->test, s->batch);
    PL_TRY(pl_mat_alloc(&t->x, t->dev, s->dtype, t->members * s->batch, s->points, 3));
    PL_TRY(pl_mat_alloc(&t->y, t->dev, s->dtype, t->members, s->batch, 1));
    PL_TRY(pl_mat_alloc(&t->dp, t->dev, s->dtype, t->members, s->batch, 1));
    PL_TRY(pl_mat_alloc(&t->pred, t->dev, s->dtype, most * t->members, s->batch, 1));
    PL_TRY(pl_mat_alloc(&t->pred_now, t->dev, s->dtype, t->members, s->batch, 1));
    PL_TRY(pl_mat_alloc(&t->loss, t->dev, POLAR_DTYPE_F64, s->steps * t->members, 1, 1));
    PL_TRY(pl_mat_alloc(&t->loss_now, t->dev, POLAR_DTYPE_F64, t->members, 1, 1));
    PL_TRY(pl_graph_create(&t->train_graph, t->dev));
    PL_TRY(pl_graph_create(&t->eval_graph, t->dev));
    int64_t ahead = (int64_t)(AHEAD / pl_mat_bytes(&t->x));
    if (t->leaves.total > 1) ahead = 1; /* this rank's parts are not all of them */
    PL_TRY(batches_create(&t->ahead, t, ahead < 1 ? 1 : ahead < s->steps ? ahead : s->steps));
    t->losses = pl_calloc((size_t)(s->steps * t->members), sizeof *t->losses);
    t->host_pred = pl_calloc(1, pl_mat_bytes(&t->pred));
    PL_NEED(t->losses && t->host_pred, POLAR_E_NOMEM, "losses of %lld runs", (long long)t->members);
    return POLAR_OK;
}

void pl_so3_batch_destroy(pl_train *t)
{
    pl_graph_destroy(t->train_graph);
    pl_graph_destroy(t->eval_graph);
    pl_mat *mats[] = {&t->x, &t->y, &t->dp, &t->pred, &t->pred_now, &t->loss, &t->loss_now};
    for (size_t i = 0; i < sizeof mats / sizeof *mats; i++) pl_mat_free(mats[i], t->dev);
    batches_destroy(&t->ahead, t);
    batches_destroy(&t->valid, t);
    pl_free(t->losses);
    pl_free(t->host_pred);
}

static void train_pass(pl_queue *q, void *arg)
{
    pl_train *t = arg;
    pl_so3_turned_weights(t, q);
    pl_mat p = pl_so3_forward(t->model, q, t->x);
    PL_CALL(mse, q, .L = t->loss_now, .dP = t->dp, .P = p, .Y = t->y);
    pl_so3_backward(t->model, q, t->dp);
    pl_so3_turned_gradients(t, q);
}

static void eval_pass(pl_queue *q, void *arg)
{
    pl_train *t = arg;
    pl_so3_turned_weights(t, q);
    pl_mat p = pl_so3_forward(t->model, q, t->x);
    PL_CALL(copy, q, .Y = t->pred_now, .X = p);
}

/* The batches from `step` on, as many as there is room for. */
static polar_status lay_out(pl_train *t, int64_t step)
{
    const pl_so3_settings *s = &t->slots[0].set;
    for (int64_t k = 0; k < t->ahead.steps && step + k < s->steps * t->leaves.total; k++)
        for (int64_t i = 0; i < t->members; i++) {
            const pl_so3_data *d = t->slots[i].data;
            /* computes something with the last batches it had; nobody looks */
            if (t->slots[i].stop.end != PL_END_NOT) continue;
            for (int64_t c = 0; c < s->batch; c++)
                put_cloud(t, &t->ahead, k, i, c, &d->split[PL_SPLIT_TRAIN],
                          d->order[(step + k) * s->batch + c]);
        }
    return batches_upload(t, &t->ahead);
}

polar_status pl_so3_train_step(pl_train *t, int64_t step)
{
    if (step % t->ahead.steps == 0) PL_TRY(lay_out(t, step));
    batches_take(t, &t->ahead, step % t->ahead.steps);
    PL_TRY(pl_graph_run(t->train_graph, t->q, train_pass, t));
    PL_CALL(copy, t->q, .Y = pl_mat_at(t->loss, step * t->members, t->members), .X = t->loss_now);
    return POLAR_OK;
}

polar_status pl_so3_train_leaves(pl_train *t, int64_t step)
{
    pl_leaves *l = &t->leaves;
    double mean;
    for (int64_t k = 0; k < l->count; k++) {
        l->leaf = l->first + k;
        PL_TRY(lay_out(t, step * l->total + l->first + k));
        batches_take(t, &t->ahead, 0);
        PL_TRY(pl_graph_run(t->train_graph, t->q, train_pass, t));
        PL_TRY(pl_leaves_add(l, t->q));
        polar_queue_download(t->q, &l->loss[k], t->loss_now.data, sizeof *l->loss);
        PL_TRY(polar_queue_sync(t->q));
    }
    PL_TRY(pl_leaves_mean(l, &mean));
    polar_queue_upload(t->q, pl_mat_at(t->loss, step, 1).data, &mean, sizeof mean);
    return POLAR_OK;
}

polar_status pl_so3_losses(pl_train *t)
{
    polar_queue_download(t->q, t->losses, t->loss.data, pl_mat_bytes(&t->loss));
    return polar_queue_sync(t->q);
}

static double mean_square(const pl_train *t, int64_t slot, pl_split split)
{
    const pl_so3_settings *s = &t->slots[0].set;
    const pl_clouds *c = &t->slots[slot].data->split[split];
    double sum = 0;
    for (int64_t i = 0; i < c->count; i++) {
        int64_t chunk = i / s->batch, at = (chunk * t->members + slot) * s->batch + i % s->batch;
        double e = pl_load_f64(t->host_pred, s->dtype, at) - c->target[i];
        sum += e * e;
    }
    return sum / (double)c->count;
}

/* Chunk `chunk` of every slot's split, as batch `step` of b. */
static void lay_out_chunk(pl_train *t, pl_so3_batches *b, int64_t step, pl_split split, int64_t chunk)
{
    int64_t batch = t->slots[0].set.batch, count = t->data[0].split[split].count;
    for (int64_t i = 0; i < t->members; i++)
        for (int64_t k = 0; k < batch; k++) {
            int64_t cloud = chunk * batch + k;
            put_cloud(t, b, step, i, k, &t->slots[i].data->split[split], cloud < count ? cloud : count - 1);
        }
}

/* The validation clouds go to the device once, if they are not too many. */
static polar_status keep_valid(pl_train *t, int64_t chunks)
{
    if (t->valid.steps || (size_t)chunks * pl_mat_bytes(&t->x) > KEPT) return POLAR_OK;
    PL_TRY(batches_create(&t->valid, t, chunks));
    for (int64_t chunk = 0; chunk < chunks; chunk++)
        lay_out_chunk(t, &t->valid, chunk, PL_SPLIT_VALID, chunk);
    PL_TRY(batches_upload(t, &t->valid));
    PL_TRY(polar_queue_sync(t->q));
    pl_free(t->valid.host_x);
    t->valid.host_x = NULL;
    return POLAR_OK;
}

polar_status pl_so3_evaluate(double *mse, pl_train *t, pl_split split)
{
    int64_t chunks = chunks_of(t->data[0].split[split].count, t->slots[0].set.batch);
    if (split == PL_SPLIT_VALID) PL_TRY(keep_valid(t, chunks));
    int kept = split == PL_SPLIT_VALID && t->valid.steps;
    for (int64_t chunk = 0; chunk < chunks; chunk++) {
        if (!kept) {
            lay_out_chunk(t, &t->ahead, 0, split, chunk);
            PL_TRY(batches_upload(t, &t->ahead));
        }
        batches_take(t, kept ? &t->valid : &t->ahead, kept ? chunk : 0);
        PL_TRY(pl_graph_run(t->eval_graph, t->q, eval_pass, t));
        PL_CALL(copy, t->q, .Y = pl_mat_at(t->pred, chunk * t->members, t->members), .X = t->pred_now);
    }
    polar_queue_download(t->q, t->host_pred, t->pred.data, (size_t)chunks * pl_mat_bytes(&t->pred_now));
    PL_TRY(polar_queue_sync(t->q));
    for (int64_t i = 0; i < t->members; i++) mse[i] = mean_square(t, i, split);
    return POLAR_OK;
}
