/* so3_batch.c -- batches of clouds through the model: forward and backward of a step, and errors over a whole
 * split.
 *
 * The host lays a batch out, uploads it to one fixed place, and the work on it is captured once. The sum over
 * a split is made on the host, in double and in the order of the clouds, so that it depends neither on the
 * batch nor on the device. A split's last batch is filled up with its last cloud, whose copies do not count.
 */
#include <string.h>

#include "base/alloc.h"
#include "lab/so3/so3_train.h"

static int64_t chunks_of(int64_t count, int64_t batch)
{
    return (count + batch - 1) / batch;
}

polar_status pl_so3_batch_create(pl_train *t)
{
    const pl_so3_settings *s = &t->slots[0].set;
    int64_t most = s->valid > s->test ? s->valid : s->test;
    PL_TRY(pl_mat_alloc(&t->x, t->dev, s->dtype, t->members * s->batch, s->points, 3));
    PL_TRY(pl_mat_alloc(&t->y, t->dev, s->dtype, t->members, s->batch, 1));
    PL_TRY(pl_mat_alloc(&t->dp, t->dev, s->dtype, t->members, s->batch, 1));
    PL_TRY(pl_mat_alloc(&t->pred, t->dev, s->dtype, t->members, s->batch, 1));
    PL_TRY(pl_mat_alloc(&t->loss, t->dev, POLAR_DTYPE_F64, t->members, 1, 1));
    PL_TRY(pl_graph_create(&t->train_graph, t->dev));
    PL_TRY(pl_graph_create(&t->eval_graph, t->dev));
    t->host_x = pl_calloc(1, pl_mat_bytes(&t->x));
    t->host_y = pl_calloc((size_t)(t->members * s->batch), sizeof *t->host_y);
    t->losses = pl_calloc((size_t)(s->steps * t->members), sizeof *t->losses);
    t->host_pred = pl_calloc((size_t)chunks_of(most, s->batch), pl_mat_bytes(&t->pred));
    PL_NEED(t->host_x && t->host_y && t->losses && t->host_pred, POLAR_E_NOMEM,
            "batches of %lld clouds for %lld runs", (long long)s->batch, (long long)t->members);
    return POLAR_OK;
}

void pl_so3_batch_destroy(pl_train *t)
{
    pl_graph_destroy(t->train_graph);
    pl_graph_destroy(t->eval_graph);
    pl_mat *mats[] = {&t->x, &t->y, &t->dp, &t->pred, &t->loss};
    for (size_t i = 0; i < sizeof mats / sizeof *mats; i++) pl_mat_free(mats[i], t->dev);
    pl_free(t->host_x);
    pl_free(t->host_y);
    pl_free(t->losses);
    pl_free(t->host_pred);
}

static void put_cloud(pl_train *t, int64_t slot, int64_t place, const pl_clouds *c, int64_t cloud)
{
    int64_t at = slot * t->slots[0].set.batch + place;
    memcpy(t->host_x + (size_t)at * pl_clouds_bytes(c), pl_clouds_view(c, cloud), pl_clouds_bytes(c));
    t->host_y[at] = c->target[cloud];
}

static void train_pass(pl_queue *q, void *arg)
{
    pl_train *t = arg;
    pl_so3_turned_weights(t, q);
    pl_mat p = pl_so3_forward(t->model, q, t->x);
    PL_CALL(mse, q, .L = t->loss, .dP = t->dp, .P = p, .Y = t->y);
    pl_so3_backward(t->model, q, t->dp);
    pl_so3_turned_gradients(t, q);
}

static void eval_pass(pl_queue *q, void *arg)
{
    pl_train *t = arg;
    pl_so3_turned_weights(t, q);
    pl_mat p = pl_so3_forward(t->model, q, t->x);
    PL_CALL(copy, q, .Y = t->pred, .X = p);
}

polar_status pl_so3_train_step(pl_train *t, int64_t step)
{
    int64_t batch = t->slots[0].set.batch;
    for (int64_t i = 0; i < t->members; i++) {
        const pl_so3_data *d = t->slots[i].data;
        /* computes something with the last batch it had; nobody looks */
        if (t->slots[i].stop.end != PL_END_NOT) continue;
        for (int64_t k = 0; k < batch; k++)
            put_cloud(t, i, k, &d->split[PL_SPLIT_TRAIN], d->order[step * batch + k]);
    }
    polar_queue_upload(t->q, t->x.data, t->host_x, pl_mat_bytes(&t->x));
    PL_TRY(pl_mat_upload_f64(t->q, &t->y, t->host_y));
    PL_TRY(pl_graph_run(t->train_graph, t->q, train_pass, t));
    polar_queue_download(t->q, t->losses + step * t->members, t->loss.data, pl_mat_bytes(&t->loss));
    return POLAR_OK;
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

polar_status pl_so3_evaluate(double *mse, pl_train *t, pl_split split)
{
    int64_t batch = t->slots[0].set.batch, count = t->data[0].split[split].count;
    for (int64_t chunk = 0; chunk < chunks_of(count, batch); chunk++) {
        for (int64_t i = 0; i < t->members; i++)
            for (int64_t k = 0; k < batch; k++) {
                int64_t cloud = chunk * batch + k;
                put_cloud(t, i, k, &t->slots[i].data->split[split], cloud < count ? cloud : count - 1);
            }
        polar_queue_upload(t->q, t->x.data, t->host_x, pl_mat_bytes(&t->x));
        PL_TRY(pl_graph_run(t->eval_graph, t->q, eval_pass, t));
        polar_queue_download(t->q, t->host_pred + (size_t)chunk * pl_mat_bytes(&t->pred), t->pred.data,
                             pl_mat_bytes(&t->pred));
    }
    PL_TRY(polar_queue_sync(t->q));
    for (int64_t i = 0; i < t->members; i++) mse[i] = mean_square(t, i, split);
    return POLAR_OK;
}
