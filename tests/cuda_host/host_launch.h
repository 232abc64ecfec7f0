/* host_launch.h -- what the files of cuda_host share beyond what kernels see (cuda_host.h). */
#ifndef CUDA_HOST_LAUNCH_H
#define CUDA_HOST_LAUNCH_H

#include <functional>

#include <cuda_runtime.h>

namespace cuda_host
{

constexpr size_t SHARED_MOST = 232448; /* bytes of shared memory that a block can ask for */

struct launch {
    const void *kernel;
    cuda_host::signature signature;
    void **args;
    dim3 grid, block;
    size_t shared;
    int cluster; /* blocks of one, along x */
    cudaStream_t stream;
    bool early; /* may begin before the kernel before it ends */
};

void run(const launch &l); /* to its end */

/* An asynchronous copy: done at once, or, CUDA_HOST_LATE=1, as late as waiting for it allows. `blocks`: loads
 * that an mbarrier counts; else those that the thread itself waits for. */
typedef std::function<void()> deferred;
void defer(bool blocks, deferred copy);
void catch_up(bool blocks);

void polling_at(const char *what); /* what the next poll() is for, in the words of a report */

/* An instruction: its operands in the order of the text, then one that is none. */
struct operand {
    reg *to; /* null: a number that stands in the text */
    uint64_t number;
    bool is_end() const
    {
        return !to && number == UINT64_MAX;
    }
    uint64_t bits() const
    {
        return to ? to->bits : number;
    }
    template <class T> T as() const
    {
        uint64_t b = bits();
        T x;
        memcpy(&x, &b, sizeof x);
        return x;
    }
    template <class T> void set(T x) const
    {
        *to = reg_of(x);
    }
};
typedef void instruction(const operand *o, const char *name);

instruction *tensor_instruction(const char *name); /* null: none of them (host_tensor.cpp) */
void mbarrier_bytes(uint32_t address, int bytes);  /* that have come */
void *tensor_map_encoder();

} // namespace cuda_host

#endif
