/* rank_device.h -- the device of a rank of a launch: of a plain `cuda` each rank of a machine has its own
 * GPU.
 */
#ifndef POLAR_CLI_RANK_DEVICE_H
#define POLAR_CLI_RANK_DEVICE_H

#include "base/launch_env.h"

typedef struct rank_device {
    char name[256];
} rank_device;

/* device: as the caller said it; "cuda" becomes cuda:N by the rank's number on its machine, where there is
 * one GPU to be seen cuda:0 (Slurm's --gpus-per-task=1); all else stays */
polar_status rank_device_choose(rank_device *out, const pl_launch *launch, const char *device);

#endif
