/* 01_polar_map.c -- sends a matrix to its orthogonal polar factor, exactly and by five Newton-Schulz steps,
 * and looks at the singular values.
 *
 *     01_polar_map [DEVICE]        # cpu unless told otherwise
 *
 * For Y (m, n) with m <= n the numbers s^2 - 1, s a singular value of Y, are the eigenvalues of Y Y^T - I. So
 * its Frobenius norm r bounds each of them, and r / sqrt(m) is their root mean square.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <polar/polar.h>

enum { M = 48, N = 128 };

static void must(polar_status st)
{
    if (st == POLAR_OK) return;
    fprintf(stderr, "%s: %s\n", polar_status_name(st), polar_error_message());
    exit(1);
}

static double residual(const float *Y) /* ||Y Y^T - I||_F */
{
    double sum = 0;
    for (int i = 0; i < M; i++)
        for (int j = 0; j < M; j++) {
            double d = i == j ? -1 : 0;
            for (int k = 0; k < N; k++) d += (double)Y[i * N + k] * Y[j * N + k];
            sum += d * d;
        }
    return sqrt(sum);
}

int main(int argc, char **argv)
{
    static float G[M * N], Y[M * N];
    for (int i = 0; i < M * N; i++) G[i] = (float)sin(i * (double)i); /* any matrix of full rank */

    polar_device *dev;
    polar_queue *q;
    void *in, *out;
    must(polar_device_open(&dev, argc > 1 ? argv[1] : "cpu"));
    must(polar_queue_create(&q, dev, NULL));
    must(polar_device_alloc(dev, &in, sizeof G));
    must(polar_device_alloc(dev, &out, sizeof Y));
    polar_queue_upload(q, in, G, sizeof G);
    polar_tensor tin = polar_tensor_2d(in, POLAR_DTYPE_F32, M, N),
                 tout = polar_tensor_2d(out, POLAR_DTYPE_F32, M, N);

    polar_map_opts o = POLAR_MAP_OPTS_INIT;
    o.kind = POLAR_MAP_EXACT;
    must(polar_map_apply(q, &tout, &tin, 1, &o));
    polar_queue_download(q, Y, out, sizeof Y);
    must(polar_queue_sync(q));
    double exact = residual(Y);
    printf("exact           every singular value within [1 - %.1e, 1 + %.1e]\n", exact, exact);

    polar_map_opts ns = POLAR_MAP_OPTS_INIT; /* five steps, Jordan's table, bf16 inside */
    must(polar_map_apply(q, &tout, &tin, 1, &ns));
    polar_queue_download(q, Y, out, sizeof Y);
    must(polar_queue_sync(q));
    double rms = residual(Y) / sqrt(M);
    printf("Newton-Schulz   s^2 off 1 by %.2f on average (root mean square)\n", rms);

    polar_device_free(dev, in);
    polar_device_free(dev, out);
    polar_queue_destroy(q);
    polar_device_close(dev);
    /* exact: Y is rounded once to f32, E with |E| <= 2^-24 |Y|, and ||Y Y^T - I||_F <= 2 ||E||_F = 2 2^-24
     * sqrt(m) = 8.3e-7. Newton-Schulz: Jordan's table leaves s in [0.68, 1.2], so |s^2 - 1| <= 0.54; bf16
     * adds a few per cent, and it is far from exact. */
    return exact <= 1e-6 && rms <= 0.6 && rms > 0.01 ? 0 : 1;
}
