/* live.c -- numbers that change between steps, in device memory where a captured graph reads them afresh. */
#include "base/alloc.h"
#include "device/queue.h"

struct pl_live {
    pl_device *dev;
    double *data; /* device memory */
    int64_t count;
};

polar_status pl_live_create(pl_live **out, pl_device *dev, int64_t count)
{
    polar_status st = POLAR_OK;
    pl_live *live = pl_calloc(1, sizeof *live);
    *out = NULL;
    PL_NEED(live, POLAR_E_NOMEM, "%lld live values", (long long)count);
    live->dev = dev;
    live->count = count;
    void *data = NULL;
    st = polar_device_alloc(dev, &data, (size_t)count * sizeof(double));
    if (st != POLAR_OK) {
        pl_free(live);
        return st;
    }
    live->data = data;
    *out = live;
    return POLAR_OK;
}

void pl_live_set(pl_live *live, pl_queue *q, int64_t first, int64_t count, const double *values)
{
    if (first < 0 || count < 0 || first + count > live->count)
        PL_QUEUE_FAIL(q, POLAR_E_ARG, "live values %lld to %lld of %lld", (long long)first,
                      (long long)(first + count), (long long)live->count);
    else polar_queue_upload(q, live->data + first, values, (size_t)count * sizeof *values);
}

pl_mat pl_live_view(const pl_live *live, int64_t first, int64_t count)
{
    return pl_mat_dense(live->data + first, POLAR_DTYPE_F64, 1, 1, count);
}

void pl_live_destroy(pl_live *live)
{
    if (!live) return;
    polar_device_free(live->dev, live->data);
    pl_free(live);
}
