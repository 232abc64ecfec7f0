/* image_codec.h -- what image_decode.c asks of a file format. Private to the decoders. */
#ifndef PL_DATA_IMAGE_CODEC_H
#define PL_DATA_IMAGE_CODEC_H

#include "data/codec/image_decode.h"

/* of deflate: 258 bytes in two bits; what has no such bound by itself gets this one */
#define PL_CODEC_MAX_RATIO 1032

typedef struct pl_codec_source {
    const uint8_t *bytes;
    size_t size;
    const char *name; /* begins every sentence */
} pl_codec_source;

/* from the header; whole: and that the bytes can hold what it claims */
polar_status pl_jpeg_measure(pl_image_info *out, const pl_codec_source *src, int whole);
/* box NULL: everything, and the file must be whole */
polar_status pl_jpeg_decode(pl_image *out, const pl_codec_source *src, const pl_box *box);
/* from the header */
polar_status pl_png_measure(pl_image_info *out, const pl_codec_source *src);
/* as pl_jpeg_decode */
polar_status pl_png_decode(pl_image *out, const pl_codec_source *src, const pl_box *box);
/* size, box, and bytes a whole file needs */
polar_status pl_codec_check(const pl_codec_source *src, const pl_image_info *info, const pl_box *box,
                            uint64_t least_bytes);

#endif
