/* host_qr.h -- orthonormal bases of many square matrices at once, in the host's memory, by the products of a
 * device that works there (cpu, ref). */
#ifndef PL_DEVICE_HOST_QR_H
#define PL_DEVICE_HOST_QR_H

#include "device/backend.h"

/* numbers of work space for `count` matrices of size n */
size_t pl_host_qr_room(int64_t count, int64_t n);
/* X (count, n, n) f64, packed: the rows of each matrix are orthonormalised one after the other, X = L Y with
 * Y in its place, up to signs, which are Householder's: those of L's diagonal (count, n), or NULL. A matrix
 * of zeros becomes the unit matrix. */
void pl_host_qr(pl_queue *q, pl_mat X, double *diagonal, double *room);

#endif
