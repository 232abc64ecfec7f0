/* polar.h -- everything libpolar offers. */
#ifndef POLAR_H
#define POLAR_H

#include "polar/comm.h"
#include "polar/device.h"
#include "polar/map.h"
#include "polar/optim.h"
#include "polar/status.h"
#include "polar/tensor.h"

#endif
