/* checksum_overlap.h -- a checksum taken by a thread of its own while its caller reads the next piece.
 *
 *     pl_checksum_overlap *o = pl_checksum_overlap_begin(&sum);    // NULL: no thread to be had
 *     for (...) { read(piece);  pl_checksum_overlap_add(o, &sum, piece, bytes); }
 *     pl_checksum_overlap_end(o);                                  // waits: now sum holds them all
 *
 * Pieces are added in the order in which they come and must stay where they are until the end. Without a
 * thread every call does its work itself.
 */
#ifndef PL_BASE_CHECKSUM_OVERLAP_H
#define PL_BASE_CHECKSUM_OVERLAP_H

#include "base/checksum.h"

typedef struct pl_checksum_overlap pl_checksum_overlap;

/* the caller leaves sum alone until the end */
pl_checksum_overlap *pl_checksum_overlap_begin(pl_checksum *sum);
void pl_checksum_overlap_add(pl_checksum_overlap *o, pl_checksum *sum, const void *data, size_t bytes);
void pl_checksum_overlap_end(pl_checksum_overlap *o); /* NULL is fine */

#endif
