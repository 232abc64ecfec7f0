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
bool copies_late();
void put_off(bool blocks, deferred copy);
template <class COPY> void defer(bool blocks, const COPY &copy)
{
    if (copies_late()) put_off(blocks, copy);
    else copy();
}
void catch_up(bool blocks);
void end_group(), catch_up_groups(size_t left); /* of the thread's own: all but the last groups */

void polling_at(const char *what); /* what the next poll() is for, in the words of a report */

struct operand {
    reg *to; /* null: a number that stands in the text */
    uint64_t number;
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

/* Where an operand's bits are: of the C++ statement, of the text's own names, or in the text. */
struct source {
    enum { GIVEN, LOCAL, NUMBER } from;
    int index;
    uint64_t number;
};

/* What a name says, read once with the text. */
struct form {
    int bytes, lanes;    /* of the type that it ends in; of a vector of it */
    int n, blocks, rank; /* of wgmma, of ldmatrix and stmatrix, of a tensor */
    bool shared, acquire, read, trans, half, commit, wait;
};

/* An instruction's operands in the order of the text. */
struct operands {
    const source *list;
    int count;
    reg *given, *local;
    operand operator[](int i) const
    {
        const source &s = list[i];
        return {s.from == source::GIVEN   ? given + s.index
                : s.from == source::LOCAL ? local + s.index
                                          : nullptr,
                s.number};
    }
    bool in_order(int n) const /* the first n are those of the C++ statement */
    {
        for (int i = 0; i < n; i++)
            if (list[i].from != source::GIVEN || list[i].index != i) return false;
        return true;
    }
};
typedef void instruction(const operands &o, const form &f);

instruction *tensor_instruction(const char *name); /* null: none of them (host_tensor.cpp) */
void mbarrier_bytes(uint32_t address, int bytes);  /* that have come */
void *tensor_map_encoder();

} // namespace cuda_host

#endif
