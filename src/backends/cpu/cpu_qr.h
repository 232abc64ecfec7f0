/* cpu_qr.h -- orthonormal bases of many square matrices at once, by the device's own products. */
#ifndef PL_CPU_QR_H
#define PL_CPU_QR_H

#include "device/backend.h"

/* numbers of work space for `count` matrices of size n */
size_t pl_cpu_qr_room(int64_t count, int64_t n);
/* X (count, n, n) f64, packed: the rows of each matrix are orthonormalised one after the other, up to signs,
 * which are Householder's. A matrix of zeros becomes the unit matrix. */
void pl_cpu_qr(pl_queue *q, pl_mat X, double *room);

#endif
