/* image_nvjpeg.h -- JPEG into the memory of a GPU, by NVIDIA's nvJPEG, loaded when it is first asked for.
 *
 *     pl_nvjpeg *n;
 *     PL_TRY(pl_nvjpeg_open(&n, workers));
 *     polar_status st = pl_nvjpeg_decode(n, worker, device_memory, &source, width, height, stream);
 *     if (st == POLAR_E_UNSUPPORTED) ...                       // the host's decoder has it, or says what is
 * wrong pl_nvjpeg_close(n);
 *
 * Pixels are those of image_decode.h to one grey level, all but one byte in ten thousand the same (measured:
 * docs/data.md). What nvJPEG is not given, and what it refuses, is the host's: files of several scans,
 * progressive ones above all, where the two are up to three levels apart; CMYK, RGB without a transform,
 * arithmetic coding, 12 bits, samplings other than 4:4:4, 4:2:2 and 4:2:0, files without their end marker,
 * PNG. Its sizes must be those of our own header reader before it may write.
 */
#ifndef PL_DATA_IMAGE_NVJPEG_H
#define PL_DATA_IMAGE_NVJPEG_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* Its path, for one that is not where the linker looks (torchvision brings one under a name of its own). */
#define PL_NVJPEG_VARIABLE "POLAR_NVJPEG"

typedef struct pl_nvjpeg pl_nvjpeg;

/* on the GPU that is current; `workers` pictures at a time; _UNSUPPORTED: there is none, or too old a one */
polar_status pl_nvjpeg_open(pl_nvjpeg **out, int workers);
void pl_nvjpeg_close(pl_nvjpeg *n); /* NULL is fine */
/* whether the library's path was given, so that it may write to memory that is no GPU's */
int pl_nvjpeg_named(void);
/* RGB (height, width, 3) to device memory, enqueued on the stream; the bytes may be reused once the stream
 * was waited for. _UNSUPPORTED: not for nvJPEG, and nothing was written; _DEVICE: it failed */
polar_status pl_nvjpeg_decode(pl_nvjpeg *n, int worker, void *pixels, const uint8_t *bytes, size_t size,
                              const char *name, int64_t width, int64_t height, void *stream);

#endif
