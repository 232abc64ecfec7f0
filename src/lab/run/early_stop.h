/* early_stop.h -- when a run ends: strict improvement of the validation loss with patience, a last epoch, a
 * number that is none.
 *
 *     pl_early_stop s = {.patience = 30, .epochs = 100};
 *     while (s.end == PL_END_NOT) { ...; pl_early_stop_step(&s, train_loss, valid); if (s.improved)
 *         keep the weights }
 *
 * Epochs count from 1. A run stops after epoch e when its best epoch b has e - b >= patience; patience 0
 * never stops. The first finite value is an improvement; an equal one is not. A NaN or an infinity in
 * either loss ends the run as diverged and does not count as an epoch that can be the best.
 */
#ifndef PL_LAB_EARLY_STOP_H
#define PL_LAB_EARLY_STOP_H

#include <stdint.h>

typedef enum pl_end {
    PL_END_NOT = 0,      /* still running */
    PL_END_EPOCHS = 1,   /* made all its epochs */
    PL_END_PATIENCE = 2, /* stopped early */
    PL_END_DIVERGED = 3  /* a NaN or an infinity */
} pl_end;                /* stored in checkpoints: a number once given stays */

typedef struct pl_early_stop {
    int64_t patience, epochs; /* settings: the most epochs to make */
    int64_t made, best_epoch; /* epochs made; 0: none yet */
    double best;              /* validation loss of the best epoch */
    int improved;             /* the last step was the best so far */
    pl_end end;
} pl_early_stop;

/* one more epoch; not after the end */
void pl_early_stop_step(pl_early_stop *s, double train_loss, double valid);

#endif
