/* image_decode.h -- JPEG and PNG to RGB, the same pixels as Pillow's Image.open(file).convert("RGB"), by
 * content and never by the file's name.
 *
 *     pl_image_info info;
 *     PL_TRY(pl_image_measure(&info, bytes, size, name));                       // the header only
 *     PL_TRY(pl_image_decode(&im, bytes, size, name));                          // all of it
 *     // a part, the pixels of the whole, in less time
 *     PL_TRY(pl_image_decode_crop(&im, bytes, size, name, (pl_box){x, y, w, h}));
 *
 * As torchvision's ImageFolder: an EXIF orientation is not applied, colour profiles and transparency are
 * ignored, grey is repeated in the three channels, 16-bit colours keep their high byte, 16-bit grey is cut
 * off at 255 (Pillow's I;16), CMYK is taken as Adobe writes it (inverted).
 *
 * A file that ends early, is damaged in a way the libraries notice, or claims more pixels than its bytes
 * can hold is POLAR_E_FORMAT with a sentence that begins with its name; memory is taken only after the
 * claim was compared with the bytes. A crop looks only at what it needs: damage below it stays unseen. Safe
 * from several threads at once.
 */
#ifndef PL_DATA_IMAGE_DECODE_H
#define PL_DATA_IMAGE_DECODE_H

#include "data/image.h"

typedef enum pl_image_format { PL_IMAGE_JPEG, PL_IMAGE_PNG, PL_IMAGE_OTHER } pl_image_format;

typedef enum pl_image_colour {
    PL_COLOUR_RGB, /* of any coding that becomes RGB: YCbCr, with alpha */
    PL_COLOUR_GREY,
    PL_COLOUR_PALETTE,
    PL_COLOUR_CMYK,
    PL_COLOURS
} pl_image_colour;

typedef struct pl_image_info {
    int64_t width, height;
    pl_image_format format;
    pl_image_colour colour; /* as stored */
    int progressive;        /* JPEG: several scans; PNG: interlaced */
    int plain;              /* JPEG: grey or YCbCr in one scan of Huffman's codes */
} pl_image_info;

/* by the first bytes */
pl_image_format pl_image_sniff(const uint8_t *bytes, size_t size);
/* from the header; `name` begins the sentences */
polar_status pl_image_measure(pl_image_info *out, const uint8_t *bytes, size_t size, const char *name);
/* free with pl_image_destroy */
polar_status pl_image_decode(pl_image *out, const uint8_t *bytes, size_t size, const char *name);
/* _ARG when the box is not inside */
polar_status pl_image_decode_crop(pl_image *out, const uint8_t *bytes, size_t size, const char *name,
                                  pl_box box);
/* reads no more of the file than it needs */
polar_status pl_image_measure_file(pl_image_info *out, const char *path);
/* the whole picture */
polar_status pl_image_decode_file(pl_image *out, const char *path);

#endif
