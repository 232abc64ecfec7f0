/* cpu_pictures.c -- augment and mix on the host: one lane, for devices that stand in for a GPU in tests.
 * Training on the host reads its pictures by data/set/image_loader.h, whose loops are faster. */
#include "../cpu_parallel.h"
#include "cpu_convert.h"
#include "math/augment_elem.h"

void PL_ISA_NAME(pl_cpu_augment)(pl_queue *q, const pl_args_augment *a)
{
    uint32_t counters[PL_AUG_COUNTERS];
    uint8_t table[3 * 256];
    pl_scratch_mark mark = pl_scratch_begin(q);
    uint8_t *room = pl_scratch_take(q, (size_t)pl_augment_room(a->Y.cols, a->height, a->taps));
    pl_augment_place p = {.pixels = a->P.data,
                          .bytes = 4 * a->P.cols,
                          .scale = a->N.data,
                          .side = a->Y.cols,
                          .height = a->height,
                          .taps = a->taps,
                          .counters = counters,
                          .table = table};
    for (int64_t i = 0; i < a->Y.batch && room; i++) {
        pl_augment_point(&p, room);
        p.row = (const double *)a->T.data + i * a->T.rs;
        p.out = (float *)a->Y.data + i * a->Y.bs;
        pl_augment_make(&p, 0, 1);
    }
    pl_scratch_end(q, mark);
}

void PL_ISA_NAME(pl_cpu_mix)(pl_queue *q, const pl_args_mix *a)
{
    const int64_t n = a->X.batch, each = a->X.rows * a->X.cols, cut[4] = {a->x, a->y, a->width, a->height};
    float *x = a->X.data;
    (void)q;
    for (int64_t k = 0; k < n / 2; k++)
        for (int64_t i = 0; i < each; i++)
            pl_mix_entry(x + k * each, x + (n - 1 - k) * each, i, a->X.cols, cut, a->mixup != 0,
                         (float)a->lam, (float)a->rest);
}
