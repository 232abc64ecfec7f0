/* image.c -- memory of pictures. */
#include "data/image.h"

#include "base/alloc.h"

polar_status pl_image_create(pl_image *out, int64_t width, int64_t height)
{
    *out = (pl_image){0};
    PL_NEED(width > 0 && height > 0 && width <= PL_IMAGE_MAX_PIXELS / height, POLAR_E_SHAPE,
            "a picture of %lld x %lld (1 to %d pixels)", (long long)width, (long long)height,
            PL_IMAGE_MAX_PIXELS);
    uint8_t *data = pl_alloc((size_t)width * (size_t)height * PL_IMAGE_CHANNELS);
    PL_NEED(data, POLAR_E_NOMEM, "a picture of %lld x %lld", (long long)width, (long long)height);
    *out = pl_image_view(data, width, height);
    return POLAR_OK;
}

void pl_image_destroy(pl_image *im)
{
    pl_free(im->data);
    *im = (pl_image){0};
}

pl_image pl_image_view(uint8_t *data, int64_t width, int64_t height)
{
    return (pl_image){.width = width, .height = height, .channels = PL_IMAGE_CHANNELS, .data = data};
}
