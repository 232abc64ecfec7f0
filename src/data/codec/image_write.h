/* image_write.h -- pictures as JPEG or PNG bytes: for made data sets and for tests. */
#ifndef PL_DATA_IMAGE_WRITE_H
#define PL_DATA_IMAGE_WRITE_H

#include "data/image.h"
#include "data/codec/image_decode.h"

/* quality 1 .. 100, of JPEG; free with pl_free */
polar_status pl_image_encode(uint8_t **out, size_t *size, const pl_image *im, pl_image_format format,
                             int quality);
/* a new file, not replaced if there is one; removed on failure */
polar_status pl_image_write(const char *path, const pl_image *im, pl_image_format format, int quality);

#endif
