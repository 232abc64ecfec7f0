/* lapack.c -- LAPACK, loaded when it is first wanted.
 *
 * OpenBLAS starts a thread for every core it may use while it is being loaded. Under a memory limit some of
 * them fail to start, and the process hangs or ends; after fork they are gone. So it is loaded by a thread
 * that may use one core. Newer ones (0.3.29) also take 128 MiB while they are being loaded, and where there
 * is no room ask again for ever; so there is room, or they are not loaded.
 */
#include "base/lapack.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/alloc.h"

#define OPENBLAS_ROOM ((size_t)192 << 20) /* its buffer and itself */
#define MOST_EIGEN    32000               /* dsyevd wants 2 n^2 + 6 n + 1 numbers */

typedef void (*svd_fn)(const char *job, const int *m, const int *n, double *a, const int *lda, double *s,
                       double *u, const int *ldu, double *vt, const int *ldvt, double *work, const int *lwork,
                       int *iwork, int *info, size_t job_length);
typedef void (*qr_fn)(const int *m, const int *n, double *a, const int *lda, double *tau, double *work,
                      const int *lwork, int *info);
typedef void (*q_fn)(const int *m, const int *n, const int *k, double *a, const int *lda, const double *tau,
                     double *work, const int *lwork, int *info);
typedef void (*eigen_fn)(const char *job, const char *half, const int *n, double *a, const int *lda,
                         double *w, double *work, const int *lwork, int *iwork, const int *liwork, int *info,
                         size_t job_length, size_t half_length);
typedef void (*version_fn)(int *major, int *minor, int *patch);

/* Set once, by load. */
static struct {
    pthread_once_t once;
    void *library; /* NULL: there is none */
    int narrow;    /* for want of room */
    svd_fn svd;
    qr_fn qr;
    q_fn q;
    eigen_fn eigen;
    version_fn version;
} lapack = {.once = PTHREAD_ONCE_INIT};

/* Whether a library's file is OpenBLAS's: liblapack.so.3 may be a link to it. The distribution's libraries
 * lie where libc does. */
static int is_openblas(const char *name)
{
    char path[PATH_MAX], real[PATH_MAX];
    Dl_info libc;
    const char *slash = NULL;
    if (!strchr(name, '/') && dladdr(dlsym(RTLD_DEFAULT, "dladdr"), &libc))
        slash = strrchr(libc.dli_fname, '/');
    int n = snprintf(path, sizeof path, "%.*s%s", slash ? (int)(slash + 1 - libc.dli_fname) : 0,
                     slash ? libc.dli_fname : "", name);
    return strstr(name, "openblas") ||
           (n < (int)sizeof path && realpath(path, real) && strstr(real, "openblas"));
}

static int has_room(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p != MAP_FAILED && munmap(p, bytes) == 0;
}

static void *open_first(void)
{
    static const char *const names[] = {
#ifdef POLAR_LAPACK
        POLAR_LAPACK,
#endif
        "libopenblas.so.0", "liblapack.so.3"};
    void *library = NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names && !library; i++)
        if (!is_openblas(names[i]) || has_room(OPENBLAS_ROOM))
            library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
        else lapack.narrow = 1;
    return library;
}

static void load(void)
{
    cpu_set_t all, one;
    int core = sched_getcpu(), held = sched_getaffinity(0, sizeof all, &all) == 0 && core >= 0;
    if (held) {
        CPU_ZERO(&one);
        CPU_SET(core, &one);
        sched_setaffinity(0, sizeof one, &one);
    }
    void *library = open_first();
    if (held) sched_setaffinity(0, sizeof all, &all);
    if (!library) return;
    void (*set_threads)(int) = (void (*)(int))dlsym(library, "openblas_set_num_threads");
    if (set_threads) set_threads(1); /* where the core could not be held */
    lapack.svd = (svd_fn)dlsym(library, "dgesdd_");
    lapack.qr = (qr_fn)dlsym(library, "dgeqrf_");
    lapack.q = (q_fn)dlsym(library, "dorgqr_");
    lapack.eigen = (eigen_fn)dlsym(library, "dsyevd_");
    lapack.version = (version_fn)dlsym(library, "ilaver_");
    if (lapack.svd && lapack.qr && lapack.q && lapack.eigen && lapack.version) lapack.library = library;
    else dlclose(library);
}

static polar_status need(void)
{
    pthread_once(&lapack.once, load);
    PL_NEED(lapack.library || !lapack.narrow, POLAR_E_NOMEM,
            "LAPACK (OpenBLAS) wants %zu MiB of address space, more than the limit leaves (ulimit -v)",
            OPENBLAS_ROOM >> 20);
    PL_NEED(lapack.library, POLAR_E_UNSUPPORTED,
            "no LAPACK: neither libopenblas.so.0 nor liblapack.so.3 could be loaded (on Debian: apt install "
            "libopenblas0)");
    return POLAR_OK;
}

void *pl_lapack_symbol(const char *name)
{
    return need() == POLAR_OK ? dlsym(lapack.library, name) : NULL;
}

polar_status pl_lapack_version(int version[3])
{
    PL_TRY(need());
    lapack.version(&version[0], &version[1], &version[2]);
    return POLAR_OK;
}

polar_status pl_lapack_svd(double *s, double *u, double *vt, double *a, int64_t rows, int64_t cols)
{
    PL_TRY(need());
    PL_NEED(rows > 0 && cols > 0 && rows <= INT32_MAX && cols <= INT32_MAX, POLAR_E_SHAPE,
            "singular values of a %lldx%lld matrix", (long long)rows, (long long)cols);
    for (int64_t i = 0; i < rows * cols; i++) /* some versions never return from a NaN */
        PL_NEED(a[i] - a[i] == 0, POLAR_E_DEVICE,
                "a %lldx%lld matrix with a NaN or an infinity has no singular values", (long long)rows,
                (long long)cols);
    int m = (int)rows, n = (int)cols, k = m < n ? m : n, ldvt = u ? k : 1, room = -1, info = 0;
    double wanted = 0, none;
    int *places = pl_alloc(8 * (size_t)k * sizeof *places);
    if (places)
        lapack.svd(u ? "S" : "N", &m, &n, a, &m, s, u ? u : &none, &m, u ? vt : &none, &ldvt, &wanted, &room,
                   places, &info, 1);
    room = (int)wanted;
    double *work = places && !info ? pl_alloc((size_t)room * sizeof *work) : NULL;
    if (work)
        lapack.svd(u ? "S" : "N", &m, &n, a, &m, s, u ? u : &none, &m, u ? vt : &none, &ldvt, work, &room,
                   places, &info, 1);
    int memory = work || info;
    pl_free(work);
    pl_free(places);
    PL_NEED(memory, POLAR_E_NOMEM, "work space for the singular values of a %lldx%lld matrix",
            (long long)rows, (long long)cols);
    PL_NEED(!info, POLAR_E_DEVICE, "LAPACK's dgesdd gave up on a %lldx%lld matrix (info %d)", (long long)rows,
            (long long)cols, info);
    return POLAR_OK;
}

polar_status pl_lapack_qr(double *a, double *diagonal, int64_t n)
{
    PL_TRY(need());
    PL_NEED(n > 0 && n <= INT32_MAX, POLAR_E_ARG, "an orthogonal matrix of size %lld", (long long)n);
    int size = (int)n, room = n <= INT32_MAX / 64 ? 64 * size : size, info = 0;
    double *tau = pl_alloc((size_t)(n + room) * sizeof *tau), *work = tau + n;
    PL_NEED(tau, POLAR_E_NOMEM, "work space for an orthogonal %lldx%lld matrix", (long long)n, (long long)n);
    lapack.qr(&size, &size, a, &size, tau, work, &room, &info);
    for (int64_t j = 0; j < n; j++) diagonal[j] = a[j * n + j];
    if (!info) lapack.q(&size, &size, &size, a, &size, tau, work, &room, &info);
    pl_free(tau);
    PL_NEED(!info, POLAR_E_DEVICE, "LAPACK's QR gave up on a %lldx%lld matrix (info %d)", (long long)n,
            (long long)n, info);
    return POLAR_OK;
}

polar_status pl_lapack_eigen(double *values, double *a, int64_t n)
{
    PL_TRY(need());
    PL_NEED(n > 0 && n <= MOST_EIGEN, POLAR_E_SHAPE,
            "eigenvectors of a %lldx%lld matrix: LAPACK counts its work space in 32 bits, sides may be %d at "
            "most",
            (long long)n, (long long)n, MOST_EIGEN);
    for (int64_t i = 0; i < n * n; i++) /* some versions never return from a NaN */
        PL_NEED(a[i] - a[i] == 0, POLAR_E_DEVICE,
                "a %lldx%lld matrix with a NaN or an infinity has no eigenvectors", (long long)n,
                (long long)n);
    int size = (int)n, room = -1, places = -1, info = 0, wanted_places = 0;
    double wanted = 0;
    lapack.eigen("V", "U", &size, a, &size, values, &wanted, &room, &wanted_places, &places, &info, 1, 1);
    room = (int)wanted, places = wanted_places;
    double *work = pl_alloc((size_t)room * sizeof *work);
    int *iwork = pl_alloc((size_t)places * sizeof *iwork);
    if (work && iwork)
        lapack.eigen("V", "U", &size, a, &size, values, work, &room, iwork, &places, &info, 1, 1);
    int memory = work && iwork;
    pl_free(work);
    pl_free(iwork);
    PL_NEED(memory, POLAR_E_NOMEM, "work space for the eigenvectors of a %lldx%lld matrix", (long long)n,
            (long long)n);
    PL_NEED(!info, POLAR_E_DEVICE, "LAPACK's dsyevd gave up on a %lldx%lld matrix (info %d)", (long long)n,
            (long long)n, info);
    return POLAR_OK;
}
