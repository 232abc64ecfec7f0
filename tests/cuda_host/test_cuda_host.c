/* test_cuda_host.c -- kernels on the host: what its threads and copies do, and faults planted in kernels
 * (planted_kernels.cu, which is converted and has a namespace of its own). */
int planted_kernels(void);

int main(void)
{
    return planted_kernels();
}
