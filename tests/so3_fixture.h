/* so3_fixture.h -- small SO(3) runs (run_fixture.h). */
#ifndef POLAR_SO3_FIXTURE_H
#define POLAR_SO3_FIXTURE_H

#include "lab/testbed.h"

static const pl_testbed *const bed = &pl_testbed_so3;
static const char *const tiny[] = {"model.width=3", "model.layers=2", "data.points=5",  "data.train=13",     "data.valid=6",
                                   "data.test=7",   "train.batch=4",  "train.epochs=4", "train.warmup=1", "optim.lr=0.01", NULL};

#include "run_fixture.h"

#endif
