/* test_cuda_race.c -- the race detector for kernels on the host (host_race.h): planted races and their
 * correct twins (planted_races.cu, which is converted and has a namespace of its own). */
int planted_races(void);

int main(void)
{
    return planted_races();
}
