/* conjugate.h -- phi(P G Q^T) against P phi(G) Q^T for a batch of triples (G, P, Q), in one number format,
 * on a device.
 *
 *     Delta(phi) = ||phi(P G Q^T) - P phi(G) Q^T||_F / (||phi(G)||_F + 1e-12)          (paper, appendix
 *         "Numerical verification")
 *
 *     pl_conj c;
 *     PL_TRY(pl_conj_create(&c, dev, POLAR_DTYPE_F64, batch, n, m));
 *     // G, P, Q of samples first, first + 1, ...; R = P G Q^T
 *     PL_TRY(pl_conj_draw(&c, q, seed, first, work));
 *     ... fill c.F = phi(c.G) and c.H = phi(c.R) ...
 *     // enqueues; then download norms and pl_conj_delta
 *     pl_conj_measure(&c, q, norms);
 *     pl_conj_destroy(&c, dev);
 */
#ifndef PL_VERIFY_CONJUGATE_H
#define PL_VERIFY_CONJUGATE_H

#include "device/queue.h"
#include "polar/map.h"
#include "verify/haar.h"

typedef struct pl_conj {
    int64_t batch, n, m;
    pl_mat P, Q; /* (n, n), (m, m) */
    pl_mat G, R; /* (n, m): the input and P G Q^T */
    pl_mat F, H; /* (n, m): phi(G) and phi(R), the caller's */
    pl_mat D, T; /* (n, m): work */
} pl_conj;

typedef struct pl_conj_host {
    double *G, *P, *Q;  /* the draws of one batch */
    pl_spectrum values; /* of each G; rank 0, as create leaves it: the Gaussian's own */
} pl_conj_host;

/* device memory; on failure none is kept */
polar_status pl_conj_create(pl_conj *c, pl_device *dev, polar_dtype dtype, int64_t batch, int64_t n,
                            int64_t m);
/* safe on a zeroed one */
void pl_conj_destroy(pl_conj *c, pl_device *dev);
/* host memory for the draws */
polar_status pl_conj_host_create(pl_conj_host *h, int64_t batch, int64_t n, int64_t m);
/* safe on a zeroed one */
void pl_conj_host_destroy(pl_conj_host *h);
/* the first `batch` triples */
pl_conj pl_conj_at(const pl_conj *c, int64_t batch);

/* Draws G (rounded to fp32, so that a pipeline in fp32 has the same G), P, Q for samples first, first + 1,
 * ...; uploads them to c, of format f64; R = P G Q^T. G is Gaussian, with the singular values h->values where
 * those have a rank. */
polar_status pl_conj_draw(const pl_conj *c, pl_queue *q, uint64_t seed, int64_t first, const pl_conj_host *h);
/* G, P, Q rounded to dst's format; R computed anew in it */
void pl_conj_copy_inputs(const pl_conj *dst, const pl_conj *src, pl_queue *q);
/* Y = P X Q^T in c's format */
void pl_conj_rotate(const pl_conj *c, pl_queue *q, pl_mat Y, pl_mat X);
/* F = map(G), H = map(R) */
polar_status pl_conj_apply(const pl_conj *c, pl_queue *q, const polar_map_opts *map);
/* norms (2 batch, 1, 2) f64: of H - P F Q^T, then of F */
void pl_conj_measure(const pl_conj *c, pl_queue *q, pl_mat norms);
/* Delta of triple b from the downloaded norms */
double pl_conj_delta(const double *norms, int64_t batch, int64_t b);

/* the same matrices as the public API wants them */
polar_tensor pl_mat_tensor(const pl_mat *m);

/* Y = rho_eps(X) = X / (|X| + eps): AdamW's first direction with beta 0, where m^ = X and sqrt(v^) = |X|. M,
 * V: work as large as X; rho: from pl_rho_live, which the caller destroys. */
polar_status pl_rho_live(pl_live **out, pl_queue *q, double eps);
void pl_rho(pl_queue *q, pl_mat Y, pl_mat X, pl_mat M, pl_mat V, const pl_live *rho);

#endif
