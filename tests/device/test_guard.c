/* test_guard.c -- the guard keeps host and device apart, and work in order. Every planted mistake is one a
 * CUDA device would answer with rubbish.
 *
 *     ./test_guard guard
 *     ./test_guard guard:on=cpu
 */
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "guard_fixture.h"

/* AddressSanitizer leaves SIGSEGV to us. */
__attribute__((visibility("default"))) const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "handle_segv=0";
}

/* ---- death of a child --------------------------------------------------------------------------- */

static void host_read(bench *t)
{
    volatile float *p = t->X.data;
    float x = p[3];
    (void)x;
}

static void host_write(bench *t)
{
    ((volatile float *)t->X.data)[N * N - 1] = 1;
}

static void host_memcpy(bench *t)
{
    /* a device pointer where a host pointer belongs */
    polar_queue_upload(t->q, t->Y.data, (char *)t->X.data + 8, 16);
}

static void host_read_after_sync(bench *t)
{
    PL_CALL(axpby, t->q, .Y = t->Y, .X = t->X, .alpha = 2);
    if (polar_queue_sync(t->q) == POLAR_OK) host_read(t);
}

static void host_read_freed(bench *t)
{
    volatile char *p = t->X.data;
    pl_mat_free(&t->X, t->dev);
    p[0] = 1;
}

static void far_kernel(pl_queue *q, const pl_args_copy *a)
{
    (void)q;
    ((volatile float *)a->Y.data)[N * N] = 1; /* the buffer ends at its page: this is the next one */
}

static void kernel_overrun(bench *t)
{
    ((pl_guard_device *)t->dev->impl)->inner->ops.copy = far_kernel;
    PL_CALL(axpby, t->q, .Y = t->Y, .X = t->X, .alpha = 2);
    PL_CALL(copy, t->q, .Y = t->Y, .X = t->X);
    polar_queue_sync(t->q);
}

static void test_death(const char *what, bench *t, void (*act)(bench *), const char *expect)
{
    int to[2], status = 0;
    char said[1000];
    size_t n = 0;
    if (pipe(to)) exit(1);
    pid_t child = fork();
    if (child < 0) exit(1);
    if (child == 0) {
        struct rlimit none = {0, 0};
        setrlimit(RLIMIT_CORE, &none);
        dup2(to[1], STDERR_FILENO);
        act(t);
        _exit(0);
    }
    close(to[1]);
    for (ssize_t got; n < sizeof said - 1 && (got = read(to[0], said + n, sizeof said - 1 - n)) > 0;)
        n += (size_t)got;
    said[n] = 0;
    said[strcspn(said, "\n")] = 0;
    close(to[0]);
    waitpid(child, &status, 0);
    test_true(what, WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV && !strcmp(said, expect), "%s",
              n ? said : "nothing said");
}

static void test_deaths(bench *t)
{
    test_death("a host read of device memory", t, host_read,
               "guard: the host touched device memory (buffer of 256 bytes, offset 12) outside "
               "synchronisation; use polar_queue_download");
    test_death("a host write", t, host_write,
               "guard: the host touched device memory (buffer of 256 bytes, offset 252) outside "
               "synchronisation; use polar_queue_download");
    test_death("a device pointer as an upload's source", t, host_memcpy,
               "guard: the host touched device memory (buffer of 256 bytes, offset 8) outside "
               "synchronisation; use polar_queue_download");
    test_death("a host read after a synchronisation", t, host_read_after_sync,
               "guard: the host touched device memory (buffer of 256 bytes, offset 12) outside "
               "synchronisation; use polar_queue_download");
    test_death("a host write to a freed buffer", t, host_read_freed,
               "guard: the host touched device memory (no live buffer: freed, or far outside one) outside "
               "synchronisation; use polar_queue_download");
    test_death(
        "a kernel that runs off its buffer", t, kernel_overrun,
        "guard: op #1 copy touched device memory outside its operands (buffer of 256 bytes, offset 256)");
}

static void other_handler(int sig)
{
    (void)sig;
}

static int segv_is(void (*handler)(int))
{
    struct sigaction now;
    sigaction(SIGSEGV, NULL, &now);
    return !(now.sa_flags & SA_SIGINFO) && now.sa_handler == handler;
}

static void test_signal(const char *name)
{
    pl_device *a, *b;
    int wrong = !segv_is(SIG_DFL);
    TEST_TRY(polar_device_open(&a, name));
    TEST_TRY(polar_device_open(&b, name));
    wrong += segv_is(SIG_DFL);
    polar_device_close(a);
    wrong += segv_is(SIG_DFL);
    polar_device_close(b);
    wrong += !segv_is(SIG_DFL);
    signal(SIGSEGV, other_handler);
    TEST_TRY(polar_device_open(&a, name));
    wrong += !segv_is(other_handler);
    polar_device_close(a);
    wrong += !segv_is(other_handler);
    signal(SIGSEGV, SIG_DFL);
    test_exact("SIGSEGV is borrowed and given back", wrong);
}

/* ---- memory and order --------------------------------------------------------------------------- */

static void test_late(bench *t)
{
    float up[4] = {1, 2, 3, 4}, down[4] = {-1, -1, -1, -1}, fresh[4];
    pl_mat V;
    TEST_TRY(pl_mat_alloc(&V, t->dev, POLAR_DTYPE_F32, 1, 1, 4));
    polar_queue_download(t->q, fresh, V.data, sizeof fresh);
    polar_queue_upload(t->q, V.data, up, sizeof up);
    for (int i = 0; i < 4; i++) up[i] = 10;           /* the source is the caller's again */
    PL_CALL(axpby, t->q, .Y = V, .X = V, .alpha = 3); /* 3 6 9 12 */
    polar_queue_download(t->q, down, V.data, 8);
    /* 10 10 9 12, after the download of the first two */
    polar_queue_upload(t->q, V.data, up, 8);
    PL_CALL(axpby, t->q, .Y = V, .X = V, .alpha = 2); /* 20 20 18 24 */
    polar_queue_download(t->q, down + 2, (float *)V.data + 2, 8);
    test_true("nothing runs before synchronisation", down[0] == -1 && down[3] == -1, "%g %g", down[0],
              down[3]);
    TEST_TRY(polar_queue_sync(t->q));
    test_true("then all runs in order",
              PART(down[0] == 3) && PART(down[1] == 6) && PART(down[2] == 18) && PART(down[3] == 24),
              "%g %g %g %g", down[0], down[1], down[2], down[3]);
    test_true("fresh memory is no number", isnan(fresh[0]) && isnan(fresh[3]), "%g", fresh[0]);
    pl_mat_free(&V, t->dev);
}

static void sloppy_kernel(pl_queue *q, const pl_args_copy *a)
{
    (void)q;
    ((char *)a->Y.data)[pl_mat_extent(&a->Y)] = 0;
}

static void test_bounds(bench *t)
{
    float host[N * N] = {0};
    pl_mat H = pl_mat_dense(host, POLAR_DTYPE_F32, 1, N, N), P = t->X, S, stale;
    void *again;
    P.data = (float *)P.data + 1;
    PL_CALL(axpby, t->q, .Y = t->Y, .X = t->X, .alpha = 1);
    PL_CALL(gemm, t->q, .C = t->Y, .A = t->X, .B = P, .alpha = 1);
    test_caught(
        "an operand past its buffer's end", t,
        "op #1 gemm: operand B (f32 1x8x8) lies outside device memory: bytes 4 to 260 of a buffer of 256");
    PL_CALL(axpby, t->q, .Y = H, .X = t->X, .alpha = 1);
    test_caught("host memory as an operand", t,
                "op #0 axpby: operand Y (f32 1x8x8) lies outside device memory");
    polar_queue_download(t->q, host, P.data, 256);
    test_caught("a download past a buffer's end", t,
                "download of 256 bytes: its source lies outside device memory: bytes 4 to 260");
    polar_queue_download(t->q, t->Y.data, t->X.data, 256);
    test_caught("a download into device memory", t, "its destination is device memory");
    polar_queue_upload(t->q, host, host, 16);
    test_caught("an upload to host memory", t,
                "upload of 16 bytes: its destination lies outside device memory");
    TEST_TRY(pl_mat_alloc(&S, t->dev, POLAR_DTYPE_F32, 1, N, N));
    stale = S;
    PL_CALL(axpby, t->q, .Y = t->Y, .X = S, .alpha = 1);
    pl_mat_free(&S, t->dev);
    TEST_TRY(polar_device_alloc(t->dev, &again, 256));
    test_caught(
        "a free before the work has run", t,
        "op #0 axpby: operand X (f32 1x8x8) lies outside device memory: what was there has been freed");
    PL_CALL(axpby, t->q, .Y = stale, .X = t->X, .alpha = 1);
    test_caught(
        "a use after a free, though another followed", t,
        "op #0 axpby: operand Y (f32 1x8x8) lies outside device memory: what was there has been freed");
    polar_device_free(t->dev, stale.data);
    test_caught("a second free", t, "freed twice?");
    polar_device_free(t->dev, again);
    pl_ops *inner = &((pl_guard_device *)t->dev->impl)->inner->ops, saved = *inner;
    inner->copy = sloppy_kernel;
    S = t->Y;
    TEST_TRY(pl_mat_alloc(&S, t->dev, POLAR_DTYPE_F32, 1, 3, 3));
    P = t->X;
    P.rows = P.cols = 3;
    PL_CALL(copy, t->q, .Y = S, .X = P);
    test_caught("a kernel that writes one byte too far", t,
                "op #0 copy wrote outside a buffer: at byte 36 of 36 (operand Y)");
    *inner = saved;
    pl_mat_free(&S, t->dev);
    test_true("more memory than there is",
              polar_device_alloc(t->dev, &again, (size_t)1 << 60) == POLAR_E_NOMEM && !again, "%s",
              polar_error_message());
    polar_device *none;
    test_true("an unknown option", polar_device_open(&none, "guard:on=ref,threads=2") == POLAR_E_ARG, "%s",
              polar_error_message());
    test_true("guard on guard", polar_device_open(&none, "guard:on=guard") == POLAR_E_ARG, "%s",
              polar_error_message());
}

int main(int argc, char **argv)
{
    bench t;
    const char *name = test_begin(argc, argv);
    int64_t live = pl_alloc_live();
    test_signal(name);
    TEST_TRY(bench_open(&t, name));
    TEST_TRY(polar_queue_sync(t.q));
    test_deaths(&t);
    test_late(&t);
    test_bounds(&t);
    bench_close(&t);
    test_exact("blocks left behind", pl_alloc_live() - live);
    return test_end();
}
