/* test_cuda.c -- what only a GPU can show: the bits of `cpu` in the element tier, somebody else's stream and
 * capture, and how failures are told.
 *
 * test_cuda DEVICE [OP]: of one op the element tier alone, so that ops can be tested side by side; "rest":
 * all but the element tier.
 *
 * The general tests (test_ops, test_map, test_map_edge, test_graph) run on cuda:0 too; see
 * tools/test_cuda.sh.
 */
#include <cuda_runtime.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fixtures/optim_fixture.h"
#include "verify/ops/op_case.h"

/* Ops whose results are elementwise, or summed in a fixed order; bases come from LAPACK on the CPU. */
static int bits_promised(pl_op_id op)
{
    return op != PL_OP_gemm && op != PL_OP_polar_exact && op != PL_OP_kron_eigen && op != PL_OP_kron_sweep;
}

/* Of one op, or (only: "") of all. */
static void element_tier(const char *device, const char *only)
{
    pl_device *gpu, *cpu;
    int64_t cases = 0, wanted = 0, elements[PL_OP_COUNT] = {0}, bad[PL_OP_COUNT] = {0};
    TEST_TRY(polar_device_open(&gpu, device));
    TEST_TRY(polar_device_open(&cpu, "cpu"));
    for (int64_t i = 0; i < pl_op_case_count(); i++)
        for (int f = 0; f < PL_FILL_COUNT; f++) {
            pl_op_case c;
            pl_op_result r;
            char name[PL_OP_CASE_NAME];
            pl_op_case_at(&c, i);
            if (*only && strcmp(only, pl_op_describe(c.op)->name) != 0) continue;
            wanted++;
            if (!bits_promised(c.op)) continue;
            TEST_TRY(pl_op_case_measure(&r, &c, (pl_fill)f, gpu, cpu));
            elements[c.op] += r.elements;
            bad[c.op] += r.bits_differ;
            cases++;
            if (r.bits_differ)
                printf("%s, fill %d: %lld of %lld differ\n", pl_op_case_name(name, sizeof name, &c), f,
                       (long long)r.bits_differ, (long long)r.elements);
        }
    for (int op = 0; op < PL_OP_COUNT; op++)
        if (elements[op]) {
            char line[96];
            snprintf(line, sizeof line, "%s: bits of cpu, %lld elements", pl_op_describe((pl_op_id)op)->name,
                     (long long)elements[op]);
            test_exact(line, bad[op]);
        }
    test_true("cases", wanted > (*only ? 0 : 100), "%lld, %lld of them with the bits of cpu",
              (long long)wanted, (long long)cases);
    polar_device_close(cpu);
    polar_device_close(gpu);
}

/* Uploads of every size, more than the rings of pinned memory hold, from a source that changes at once. */
static void uploads(const char *device)
{
    static const size_t sizes[] = {1,       65535,   65536,    65537,    4194303, 4194304,
                                   4194305, 6291456, 50000003, 20000000, 6291456, 33};
    enum { COUNT = sizeof sizes / sizeof *sizes };
    pl_device *dev;
    pl_queue *q;
    void *on_device[COUNT];
    unsigned char *host = malloc(50000003);
    int64_t bad = 0;
    TEST_TRY(polar_device_open(&dev, device));
    TEST_TRY(polar_queue_create(&q, dev, NULL));
    for (int k = 0; k < COUNT; k++) TEST_TRY(polar_device_alloc(dev, &on_device[k], sizes[k]));
    for (int k = 0; k < COUNT; k++) {
        for (size_t i = 0; i < sizes[k]; i++) host[i] = (unsigned char)(i * 31 + (i >> 12) + (size_t)k);
        polar_queue_upload(q, on_device[k], host, sizes[k]);
        memset(host, 255, sizes[k]);
    }
    for (int k = 0; k < COUNT; k++) {
        polar_queue_download(q, host, on_device[k], sizes[k]);
        TEST_TRY(polar_queue_sync(q));
        for (size_t i = 0; i < sizes[k]; i++)
            bad += host[i] != (unsigned char)(i * 31 + (i >> 12) + (size_t)k);
        polar_device_free(dev, on_device[k]);
    }
    test_exact("uploads whose source changes at once", bad);
    polar_queue_destroy(q);
    polar_device_close(dev);
    free(host);
}

/* A caller's stream, captured by the caller: we enqueue, and neither allocate nor wait. */
static void foreign_capture(const char *device, int64_t rows, int64_t cols)
{
    enum { MOST = 300 * 320 };
    static double x[MOST], y[MOST], z[MOST];
    int64_t N = rows * cols;
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    pl_device *dev;
    pl_queue *q;
    pl_mat in, out;
    polar_map_opts o = POLAR_MAP_OPTS_INIT;
    TEST_TRY(polar_device_open(&dev, device));
    cudaStreamCreate(&stream);
    TEST_TRY(polar_queue_create(&q, dev, stream));
    TEST_TRY(pl_mat_alloc(&in, dev, POLAR_DTYPE_F32, 1, rows, cols));
    TEST_TRY(pl_mat_alloc(&out, dev, POLAR_DTYPE_F32, 1, rows, cols));
    map_fill(x, N, 1);
    TEST_TRY(pl_mat_upload_f64(q, &in, x));
    polar_tensor tin = map_tensor(&in), tout = map_tensor(&out);
    cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
    TEST_TRY(polar_map_apply(q, &tout, &tin, 1, &o));
    cudaStreamEndCapture(stream, &graph);
    pl_args_polar_map whole = {.Y = out, .X = in};
    int free_of_scratch = pl_queue_serves(q, PL_OP_polar_map, &whole);
    polar_status first = polar_queue_sync(q);
    test_true("a first run inside a foreign capture", first == (free_of_scratch ? POLAR_OK : POLAR_E_STATE),
              "%s", first ? polar_error_message() : "needs no scratch");
    TEST_TRY(polar_map_apply(q, &tout, &tin, 1, &o)); /* takes its scratch */
    TEST_TRY(pl_mat_download_f64(q, &out, y));
    cudaError_t e = cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
    TEST_TRY(polar_map_apply(q, &tout, &tin, 1, &o));
    if (e == cudaSuccess) e = cudaStreamEndCapture(stream, &graph);
    if (e == cudaSuccess) e = cudaGraphInstantiate(&exec, graph, 0);
    map_fill(x, N, 2);
    TEST_TRY(pl_mat_upload_f64(q, &in, x));
    if (e == cudaSuccess) e = cudaGraphLaunch(exec, stream);
    TEST_TRY(pl_mat_download_f64(q, &out, z));
    TEST_TRY(polar_map_apply(q, &tout, &tin, 1, &o));
    TEST_TRY(pl_mat_download_f64(q, &out, y));
    test_true("a later one is captured", e == cudaSuccess, "%s", cudaGetErrorString(e));
    test_exact("and replays on new data", map_mismatches(y, z, N));
    pl_mat_free(&in, dev);
    pl_mat_free(&out, dev);
    polar_queue_destroy(q);
    polar_device_close(dev);
    cudaStreamDestroy(stream);
}

/* The legacy default stream, torch's, cannot be captured: a step whose pointers stay is captured beside it.
 * Then the queue goes over to another stream. */
static void legacy_stream(const char *device)
{
    static const param_spec spec[2] = {{.name = "w", .ndim = 2, .shape = {48, 64}},
                                       {.name = "b", .ndim = 1, .shape = {48}}};
    polar_optim_opts o = POLAR_OPTIM_OPTS_INIT;
    optim_rig a, b;
    cudaStream_t stream;
    TEST_TRY(rig_open(&a, device, spec, 2, POLAR_DTYPE_F32, POLAR_DTYPE_F32, &o));
    TEST_TRY(rig_open(&b, device, spec, 2, POLAR_DTYPE_F32, POLAR_DTYPE_F32, &o));
    test_true("a queue keeps a stream of its own",
              polar_queue_set_stream(b.q, cudaStreamLegacy) == POLAR_E_STATE, "%s", polar_error_message());
    polar_queue_destroy(b.q);
    TEST_TRY(polar_queue_create(&b.q, b.dev, cudaStreamLegacy));
    cudaStreamCreate(&stream);
    for (int t = 0; t < 8; t++) {
        if (t == 5) TEST_TRY(polar_queue_set_stream(b.q, stream));
        TEST_TRY(rig_step(&a, t));
        TEST_TRY(rig_step(&b, t));
    }
    test_exact("steps in the legacy stream, then in another", rig_mismatches(&a, &b));
    rig_close(&a), rig_close(&b);
    cudaStreamDestroy(stream);
}

static void failures(const char *device)
{
    pl_device *dev;
    void *p;
    polar_status st = polar_device_open(&dev, "cuda:99");
    test_true("cuda:99", st == POLAR_E_DEVICE, "%s", polar_error_message());
    st = polar_device_open(&dev, "cuda:first");
    test_true("cuda:first", st == POLAR_E_ARG, "%s", polar_error_message());
    TEST_TRY(polar_device_open(&dev, device));
    st = polar_device_alloc(dev, &p, (size_t)1 << 44);
    test_true("16 TiB", st == POLAR_E_NOMEM && !p, "%s", polar_error_message());
    TEST_TRY(polar_device_alloc(dev, &p, 1 << 20)); /* and the device goes on */
    polar_device_free(dev, p);
    polar_device_close(dev);
}

/* In a child, which has no CUDA of its parent's: an op on an address that is no device memory, which loses
 * the device for the process. */
static void device_lost(const char *device)
{
    int fd[2], status = 0;
    char said[1200] = "";
    if (pipe(fd)) exit(3);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        pl_device *dev;
        pl_queue *q;
        pl_mat y;
        if (polar_device_open(&dev, device) || polar_queue_create(&q, dev, NULL) ||
            pl_mat_alloc(&y, dev, POLAR_DTYPE_F32, 1, 64, 64))
            _exit(9);
        PL_CALL(copy, q, .Y = y, .X = pl_mat_dense((void *)4096, POLAR_DTYPE_F32, 1, 64, 64));
        polar_status st = polar_queue_sync(q);
        ssize_t n = write(fd[1], polar_error_message(), strlen(polar_error_message()));
        _exit(n > 0 ? (int)st : 8);
    }
    close(fd[1]);
    ssize_t n = read(fd[0], said, sizeof said - 1);
    close(fd[0]);
    waitpid(child, &status, 0);
    test_true("a lost device is told", n > 0 && WIFEXITED(status) && WEXITSTATUS(status) == POLAR_E_DEVICE,
              "%s", said);
}

int main(int argc, char **argv)
{
    const char *device = test_begin(argc, argv), *only = argc > 2 ? argv[2] : "";
    int rest = !*only || strcmp(only, "rest") == 0;
    if (rest) device_lost(device); /* first: before this process has a CUDA of its own */
    if (strcmp(only, "rest") != 0) element_tier(device, only);
    if (!rest) return test_end();
    uploads(device);
    foreign_capture(device, 300, 320);
    foreign_capture(device, 48, 80); /* one launch without scratch, where the device has it */
    legacy_stream(device);
    failures(device);
    return test_end();
}
