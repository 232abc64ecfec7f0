/* image_jpeg_scan.h -- the usual JPEG, decoded by ourselves in about three quarters of libjpeg's time.
 * Private to the JPEG decoder.
 *
 * libjpeg reads the header; where the file is a baseline one of a single scan, grey or YCbCr in 4:4:4, 4:2:2
 * or 4:2:0, pl_jpeg_scan_decode goes on from there and gives the bytes that libjpeg would give: its integer
 * transform, its smooth upsampling, its colours, all of them whole numbers. At the first thing that is not as
 * it should be (a code that does not exist, a marker too early, a number that could leave 16 bits) it returns
 * 0, and libjpeg, whose state was not touched, decodes the file from the beginning and says what is wrong.
 */
#ifndef PL_DATA_IMAGE_JPEG_SCAN_H
#define PL_DATA_IMAGE_JPEG_SCAN_H

#include <stdio.h>

#include <jpeglib.h>

#include "data/image.h"

#define PL_JPEG_LIMIT 16384 /* numbers of a transform below it stay below 2^15 in sums of two */

/* One component: of the blocks that are wanted, as pairs of neighbours. */
typedef struct pl_jpeg_part {
    int h, v;             /* blocks of an MCU */
    int64_t pairs;        /* of a row of blocks */
    int64_t across, down; /* samples of the whole picture: where smoothing ends */
    int64_t x0, y0;       /* of the plane's first sample in the component */
    int16_t *coef;        /* (v, pairs, 8 rows, 2 blocks, 8 columns): one row of MCUs */
    uint8_t *plane;       /* rows of 16 pairs bytes */
    int16_t quant[64];    /* in rows */
} pl_jpeg_part;

/* 1: done; 0: libjpeg's turn. to_the_end: an end marker must follow */
int pl_jpeg_scan_decode(pl_image *out, j_decompress_ptr c, const pl_box *box, int to_the_end);

/* whether this processor can do the two below (AVX2) */
int pl_jpeg_blocks_here(void);
/* coef to the plane's rows from 8 v row on; 0: a number was too large */
int pl_jpeg_blocks_transform(const pl_jpeg_part *p, int64_t row);
/* planes to RGB; lines: PL_JPEG_LINES(box->width) bytes */
void pl_jpeg_blocks_colour(pl_image *out, const pl_jpeg_part *p, int parts, const pl_box *box,
                           uint8_t *lines);

#define PL_JPEG_LINES(width) (4 * ((width) + 256))

#endif
