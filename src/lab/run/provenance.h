/* provenance.h -- where and with what a run is made, for the store. */
#ifndef PL_LAB_PROVENANCE_H
#define PL_LAB_PROVENANCE_H

#include "polar/device.h"
#include "store/store.h"

typedef struct pl_provenance_text {
    char device[128], cpu[128];
} pl_provenance_text;

/* git describe when it was built, or the library's version; static */
const char *pl_code_version(void);
pl_provenance pl_provenance_of(pl_provenance_text *text, const polar_device *dev); /* borrows text */

#endif
