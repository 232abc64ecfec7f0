/* planted_kernels.cu -- the host's threads, exchanges and copies do what CUDA says, and planted faults are
 * found.
 *
 * Every fault is made in a child process, under an order of threads and of copies; the sentence it ends with
 * is compared, or the result, which is wrong in that order.
 */
#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test.h"

#define THREADS 96

/* ---- what must be right ------------------------------------------------------------------------- */

/* out[t]: the sum over the warp by exchanges, the block's by shared memory, votes. */
__global__ void sums(int *out, unsigned *votes, int *total)
{
    __shared__ int warps[THREADS / 32];
    int t = (int)threadIdx.x, v = t;
    for (int bits = 16; bits; bits /= 2) v += __shfl_xor_sync(0xffffffffu, v, bits);
    if (t % 32 == 0) warps[t / 32] = v;
    unsigned odd = __ballot_sync(0xffffffffu, t & 1);
    __syncthreads();
    int all = 0;
    for (int w = 0; w < THREADS / 32; w++) all += warps[w];
    out[t] = all + __shfl_down_sync(0xffffffffu, t, 1, 4) - t; /* + 1, but for the last of four */
    votes[t] = odd;
    if (__syncthreads_or(t == THREADS - 1)) atomicAdd(total, 1);
}

/* A block after the other adds to a counter that the next one waits for: all are there at once. */
__global__ void relay(unsigned *counter)
{
    if (threadIdx.x) return;
    unsigned v;
    do asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(counter) : "memory");
    while (v != gridDim.x - 1 - blockIdx.x); /* the last one first */
    asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(counter) : "memory");
}

/* ---- faults ------------------------------------------------------------------------------------- */

/* Reads what another warp writes, with no barrier between. */
__global__ void without_barrier(float *out)
{
    __shared__ float x[THREADS];
    x[threadIdx.x] = (float)threadIdx.x;
    out[threadIdx.x] = x[THREADS - 1 - threadIdx.x];
}

/* Lane 0 reads what the others of its warp write, in a lockstep that nobody promises. */
__global__ void without_syncwarp(float *out)
{
    extern __shared__ float y[];
    if (threadIdx.x) y[threadIdx.x] = 1;
    if (threadIdx.x == 0)
        for (int i = 1; i < 32; i++) out[0] += y[i];
}

/* A copy of the ones behind the results is read before it is waited for. */
__global__ void without_wait(float *out)
{
    extern __shared__ float4 z[];
    const float *from = out + THREADS + 4 * threadIdx.x;
    uint32_t to = (uint32_t)__cvta_generic_to_shared(&z[threadIdx.x]);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
    out[threadIdx.x] = z[threadIdx.x].x;
    asm volatile("cp.async.wait_all;" ::: "memory");
}

__global__ void half_a_barrier(float *)
{
    if (threadIdx.x < 32) __syncthreads();
    else asm volatile("bar.sync 1, 96;" ::: "memory");
}

__global__ void half_an_exchange(float *out)
{
    if (threadIdx.x % 2) out[0] = __shfl_xor_sync(0xffffffffu, 1.0f, 1);
    else __syncthreads();
}

__global__ void beyond_shared(float *)
{
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(4096), "r"(1) : "memory");
}

__global__ void too_many_arrivals(float *)
{
    extern __shared__ uint64_t bar[];
    uint32_t at = (uint32_t)__cvta_generic_to_shared(bar);
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at), "r"(64) : "memory");
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at), "r"(8) : "memory");
    }
    __syncthreads();
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at) : "memory");
}

/* ---- runs --------------------------------------------------------------------------------------- */

static float *device_floats(int n)
{
    void *p;
    if (cudaMalloc(&p, sizeof(float) * (size_t)n) != cudaSuccess) exit(3);
    return (float *)p;
}

/* 1: a child's kernel ended, with that sum of its results; 0: the program did, with that sentence. */
static int child(void (*kernel)(float *), size_t shared, float *sum, char *said, size_t room)
{
    int ends[2], status;
    if (pipe(ends) != 0) exit(3);
    pid_t pid = fork();
    if (pid == 0) {
        dup2(ends[1], 2);
        float *out = device_floats(5 * THREADS); /* the results, then ones */
        for (int i = 0; i < 5 * THREADS; i++) out[i] = i >= THREADS;
        kernel<<<1, THREADS, shared, nullptr>>>(out);
        float all = 0;
        for (int i = 0; i < THREADS; i++) all += out[i];
        if (write(ends[1], &all, sizeof all) != sizeof all) _exit(3);
        _exit(0);
    }
    close(ends[1]);
    ssize_t n = read(ends[0], said, room - 1);
    said[n > 0 ? n : 0] = 0;
    close(ends[0]);
    waitpid(pid, &status, 0);
    if (WIFEXITED(status)) memcpy(sum, said, sizeof *sum);
    return WIFEXITED(status);
}

static void result(const char *what, void (*kernel)(float *), size_t shared, const char *order,
                   const char *late, int right)
{
    float sum = 0;
    char said[512];
    setenv("CUDA_HOST_ORDER", order, 1);
    setenv("CUDA_HOST_LATE", late, 1);
    int ended = child(kernel, shared, &sum, said, sizeof said);
    int good = ended && (sum == THREADS * (THREADS - 1) / 2.0f || sum == 31 || sum == THREADS);
    test_true(what, ended && good == right, "order %s, late %s: sum %g", order, late, (double)sum);
}

static void sentence(const char *what, void (*kernel)(float *), size_t shared)
{
    float sum;
    char said[512];
    int ended = child(kernel, shared, &sum, said, sizeof said);
    test_true(what, !ended && strstr(said, what), "%.60s", ended ? "nothing said" : said);
}

extern "C" int planted_kernels(void)
{
    int *out = (int *)device_floats(THREADS), *total = (int *)device_floats(1), wrong = 0;
    unsigned *votes = (unsigned *)device_floats(THREADS), *counter = (unsigned *)device_floats(1);
    *total = 0, *counter = 0;
    sums<<<1, THREADS, 0, nullptr>>>(out, votes, total);
    for (int t = 0; t < THREADS; t++)
        wrong += out[t] != THREADS * (THREADS - 1) / 2 + (t % 4 < 3) || votes[t] != 0xaaaaaaaau;
    test_exact("exchanges, votes, barriers", wrong + (*total != THREADS));
    relay<<<cuda_host::WORKERS, 32, 0, nullptr>>>(counter);
    test_true("as many blocks at once as multiprocessors", *counter == cuda_host::WORKERS, "%u", *counter);

    result("no barrier: seen in the order of threads", without_barrier, 0, "forward", "0", 0);
    result("no barrier: seen in the other order", without_barrier, 0, "backward", "0", 0);
    result("no syncwarp: luck in the other order", without_syncwarp, 4 * THREADS, "backward", "0", 1);
    result("no syncwarp: seen in the order of threads", without_syncwarp, 4 * THREADS, "forward", "0", 0);
    result("no wait for a copy: luck where it is early", without_wait, 16 * THREADS, "forward", "0", 1);
    result("no wait for a copy: seen where it is late", without_wait, 16 * THREADS, "forward", "1", 0);
    sentence("every thread waits", half_a_barrier, 0);
    sentence("every thread waits", half_an_exchange, 0);
    sentence("beyond the launch's shared memory", beyond_shared, 64);
    sentence("more arrivals at an mbarrier", too_many_arrivals, 64);
    return test_end();
}
