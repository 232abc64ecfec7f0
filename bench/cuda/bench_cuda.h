/* bench_cuda.h -- what the programs of this folder share: calls of CUDA that may not fail, times of graphs.
 */
#ifndef BENCH_CUDA_H
#define BENCH_CUDA_H

#include <cuda_runtime.h>
#include <stdio.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#define CK(call) ck(call, #call, __FILE__, __LINE__)

static inline void ck(cudaError_t st, const char *call, const char *file, int line)
{
    if (st == cudaSuccess) return;
    printf("%s:%d: %s: %s\n", file, line, call, cudaGetErrorString(st));
    fflush(stdout);
    _exit(9);
}

/* Median seconds of one call of f(stream, i), i = 0 .. calls - 1 captured as one graph, 7 launches. */
template <class F> static double time_calls(F f, int calls)
{
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaEvent_t begin, end;
    std::vector<double> times;
    CK(cudaStreamCreate(&stream));
    CK(cudaEventCreate(&begin));
    CK(cudaEventCreate(&end));
    f(stream, 0); /* code is loaded, algorithms are found */
    CK(cudaStreamSynchronize(stream));
    CK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < calls; i++) f(stream, i);
    CK(cudaStreamEndCapture(stream, &graph));
    CK(cudaGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < 8; i++) {
        float ms;
        CK(cudaEventRecord(begin, stream));
        CK(cudaGraphLaunch(exec, stream));
        CK(cudaEventRecord(end, stream));
        CK(cudaStreamSynchronize(stream));
        CK(cudaEventElapsedTime(&ms, begin, end));
        if (i >= 1) times.push_back(ms * 1e-3 / calls);
    }
    CK(cudaGraphExecDestroy(exec)), CK(cudaGraphDestroy(graph)), CK(cudaStreamDestroy(stream));
    CK(cudaEventDestroy(begin)), CK(cudaEventDestroy(end));
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
}

#endif
