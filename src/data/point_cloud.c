/* point_cloud.c -- clouds by coordinates, targets, orders, and the two linear predictors. Where a draw lies
 * in Philox's space:
 *
 *     coordinates   PL_STREAM_DATA    step = split << 40 | cloud     index = pair      two normals a draw:
 *                   values 2 pair and 2 pair + 1 of the cloud
 *     stretch       PL_STREAM_DATA    the same step                  index = STRETCH + k   S_kk and, by
 *                   sqrt(1/2), one of S_01, S_02, S_12
 *     order         PL_STREAM_ORDER   step = epoch                   index = i         Fisher-Yates from
 *                   the end: i changes places with one of 0 .. i
 *
 * Why tr A and ||A - tr A / 3 I||_F: the largest eigenvalue is tr A / 3 + sqrt(2/3) ||A - tr A / 3 I||_F
 * cos(phi) with phi in [0, pi/3], so the two features know all but an angle; the trace alone knows the
 * mean. Least squares is by Gram-Schmidt on centred features: a feature that adds nothing (one point per
 * cloud, too few clouds) is left out rather than divided by.
 *     ctest -R test_point_cloud
 */
#include "data/point_cloud.h"

#include <math.h>

#include "base/alloc.h"
#include "base/philox.h"
#include "math/sym3.h"

#define MAX_CLOUDS ((int64_t)1 << 31)
#define STRETCH    (UINT64_C(1) << 62)
#define SAME       1e-20 /* squared sine between features below which they count as one */

const void *pl_clouds_view(const pl_clouds *c, int64_t i)
{
    return (const char *)c->x + (size_t)i * pl_clouds_bytes(c);
}

size_t pl_clouds_bytes(const pl_clouds *c)
{
    return (size_t)(3 * c->points) * (c->dtype == POLAR_DTYPE_F64 ? sizeof(double) : sizeof(float));
}

static double value_at(const pl_clouds *c, int64_t cloud, int64_t i)
{
    const void *x = pl_clouds_view(c, cloud);
    return c->dtype == POLAR_DTYPE_F64 ? ((const double *)x)[i] : (double)((const float *)x)[i];
}

/* B = I + anisotropy S; the identity itself where that is 0. */
static void draw_stretch(double B[3][3], uint64_t seed, uint64_t step, double anisotropy)
{
    static const int row[] = {0, 0, 1}, col[] = {1, 2, 2};
    for (int k = 0; k < 3; k++) {
        pl_n2 z = {0, 0};
        if (anisotropy != 0) z = pl_normal(seed, PL_STREAM_DATA, step, STRETCH + (uint64_t)k);
        B[k][k] = 1 + anisotropy * z.a;
        B[row[k]][col[k]] = B[col[k]][row[k]] = anisotropy * sqrt(0.5) * z.b;
    }
}

static void draw_cloud(const pl_clouds *c, uint64_t seed, pl_split split, int64_t cloud, double anisotropy)
{
    uint64_t step = (uint64_t)split << 40 | (uint64_t)cloud;
    int64_t first = cloud * 3 * c->points;
    double B[3][3];
    draw_stretch(B, seed, step, anisotropy);
    for (int64_t p = 0; p < c->points; p++) {
        double x[3];
        for (int k = 0; k < 3; k++) {
            int64_t i = 3 * p + k;
            pl_n2 z = pl_normal(seed, PL_STREAM_DATA, step, (uint64_t)(i / 2));
            x[k] = i % 2 ? z.b : z.a;
        }
        for (int k = 0; k < 3; k++) {
            double y = anisotropy != 0 ? B[k][0] * x[0] + B[k][1] * x[1] + B[k][2] * x[2] : x[k];
            if (c->dtype == POLAR_DTYPE_F64) ((double *)c->x)[first + 3 * p + k] = y;
            else ((float *)c->x)[first + 3 * p + k] = (float)y;
        }
    }
}

void pl_cloud_moment(double a[6], const pl_clouds *c, int64_t i)
{
    for (int k = 0; k < 6; k++) a[k] = 0;
    for (int64_t p = 0; p < c->points; p++) {
        double x = value_at(c, i, 3 * p), y = value_at(c, i, 3 * p + 1), z = value_at(c, i, 3 * p + 2);
        a[0] += x * x, a[1] += x * y, a[2] += x * z, a[3] += y * y, a[4] += y * z, a[5] += z * z;
    }
    for (int k = 0; k < 6; k++) a[k] /= (double)c->points;
}

polar_status pl_clouds_create(pl_clouds *out, uint64_t seed, pl_split split, int64_t count, int64_t points,
                              polar_dtype dtype)
{
    return pl_clouds_create_stretched(out, seed, split, count, points, dtype, 0);
}

polar_status pl_clouds_create_stretched(pl_clouds *out, uint64_t seed, pl_split split, int64_t count,
                                        int64_t points, polar_dtype dtype, double anisotropy)
{
    *out = (pl_clouds){.count = count, .points = points, .dtype = dtype};
    PL_NEED(count >= 1 && count < MAX_CLOUDS && points >= 1 && points < 1 << 24, POLAR_E_ARG,
            "%lld clouds of %lld points: one of each at least is wanted", (long long)count,
            (long long)points);
    PL_NEED(dtype == POLAR_DTYPE_F32 || dtype == POLAR_DTYPE_F64, POLAR_E_DTYPE, "clouds come in f32 or f64");
    out->x = pl_calloc((size_t)count, pl_clouds_bytes(out));
    out->target = pl_calloc((size_t)count, sizeof(double));
    if (!out->x || !out->target) {
        pl_clouds_destroy(out);
        return PL_FAIL(POLAR_E_NOMEM, "%lld clouds of %lld points", (long long)count, (long long)points);
    }
    for (int64_t i = 0; i < count; i++) {
        double a[6], lambda[3];
        draw_cloud(out, seed, split, i, anisotropy);
        pl_cloud_moment(a, out, i);
        pl_sym3_eigenvalues(lambda, a);
        out->target[i] = lambda[0];
    }
    return POLAR_OK;
}

void pl_clouds_destroy(pl_clouds *c)
{
    pl_free(c->x);
    pl_free(c->target);
    c->x = NULL;
    c->target = NULL;
}

/* ---- predictors without learning ---------------------------------------------------------------- */

typedef struct features {
    double trace, anisotropy;
} features;

static features features_of(const pl_clouds *c, int64_t i)
{
    double a[6];
    pl_cloud_moment(a, c, i);
    double trace = a[0] + a[3] + a[5], m = trace / 3, x = a[0] - m, y = a[3] - m, z = a[5] - m;
    return (features){trace, sqrt(x * x + y * y + z * z + 2 * (a[1] * a[1] + a[2] * a[2] + a[4] * a[4]))};
}

/* Means of the features and the target, and the coefficients of the centred, orthogonalised features. */
typedef struct fit {
    double trace, anisotropy, target;
    double mix; /* anisotropy - mix trace is orthogonal to the trace */
    double b1, b2;
} fit;

static fit fit_to(const pl_clouds *c, const features *f)
{
    fit k = {0};
    double tt = 0, ta = 0, ty = 0, uu = 0, uy = 0, aa = 0;
    for (int64_t i = 0; i < c->count; i++)
        k.trace += f[i].trace, k.anisotropy += f[i].anisotropy, k.target += c->target[i];
    k.trace /= (double)c->count, k.anisotropy /= (double)c->count, k.target /= (double)c->count;
    for (int64_t i = 0; i < c->count; i++) {
        double t = f[i].trace - k.trace, a = f[i].anisotropy - k.anisotropy;
        tt += t * t, ta += t * a, aa += a * a, ty += t * (c->target[i] - k.target);
    }
    if (tt > 0) k.mix = ta / tt, k.b1 = ty / tt;
    for (int64_t i = 0; i < c->count; i++) {
        double u = f[i].anisotropy - k.anisotropy - k.mix * (f[i].trace - k.trace);
        uu += u * u, uy += u * (c->target[i] - k.target);
    }
    if (uu > SAME * aa) k.b2 = uy / uu;
    return k;
}

polar_status pl_cloud_baseline_measure(pl_cloud_baseline *out, const pl_clouds *train, const pl_clouds *test)
{
    features *f = pl_alloc((size_t)train->count * sizeof *f);
    PL_NEED(f, POLAR_E_NOMEM, "the features of %lld clouds", (long long)train->count);
    for (int64_t i = 0; i < train->count; i++) f[i] = features_of(train, i);
    fit k = fit_to(train, f);
    pl_free(f);
    *out = (pl_cloud_baseline){0, 0};
    for (int64_t i = 0; i < test->count; i++) {
        features x = features_of(test, i);
        double t = x.trace - k.trace, e = k.target + k.b1 * t - test->target[i],
               both = e + k.b2 * (x.anisotropy - k.anisotropy - k.mix * t);
        out->trace_mse += e * e, out->trace_anisotropy_mse += both * both;
    }
    out->trace_mse /= (double)test->count;
    out->trace_anisotropy_mse /= (double)test->count;
    return POLAR_OK;
}
