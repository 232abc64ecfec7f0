/* place.h -- a device and a queue on it, for tests that want no more. */
#ifndef POLAR_PLACE_H
#define POLAR_PLACE_H

#include "polar/device.h"
#include "test.h"

typedef struct {
    polar_device *dev;
    polar_queue  *q;
} place;

static inline place place_open(const char *device)
{
    place p;
    TEST_TRY(polar_device_open(&p.dev, device));
    TEST_TRY(polar_queue_create(&p.q, p.dev, NULL));
    return p;
}

static inline void place_close(place p)
{
    polar_queue_destroy(p.q);
    polar_device_close(p.dev);
}

#endif
