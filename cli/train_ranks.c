/* train_ranks.c -- the ranks of `mpirun polar train`. */
#include "train_ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/launch_env.h"
#include "base/thread_pool.h"
#include "device/backend.h"
#include "rank_device.h"
#include "stop_signal.h"

#define LEAVES 8 /* unless told, and where there are no more ranks */

/* Ranks on this machine, where the launcher says. */
static int64_t ranks_here(int64_t all)
{
    const char *text = getenv("OMPI_COMM_WORLD_LOCAL_SIZE");
    long long n = text ? atoll(text) : 0;
    return n > 0 && n <= all ? n : all;
}

const char *const train_comms[] = {"auto", "mpi", "nccl", NULL};

static polar_status choose_device(train_ranks *r, const pl_launch *launch, const char *device)
{
    rank_device chosen;
    int64_t threads = pl_processor_count() / ranks_here(r->size);
    if (r->size > 1 && !strcmp(device, "cpu"))
        snprintf(r->device, sizeof r->device, "cpu:threads=%lld", (long long)(threads > 1 ? threads : 1));
    else {
        PL_TRY(rank_device_choose(&chosen, launch, device));
        snprintf(r->device, sizeof r->device, "%s", chosen.name);
    }
    return POLAR_OK;
}

/* NCCL over MPI, which keeps what is said between hosts. All ranks come to the same end. */
static polar_status take_nccl(train_ranks *r)
{
    polar_comm *nccl = NULL;
    polar_status st = pl_comm_agree(r->comm, polar_device_open(&r->gpu, r->device), "opening a GPU for NCCL");
    if (st == POLAR_OK) st = polar_comm_open_nccl(&nccl, r->gpu, r->comm);
    if (st == POLAR_OK) {
        r->via = r->comm;
        r->comm = nccl;
        return POLAR_OK;
    }
    polar_device_close(r->gpu);
    r->gpu = NULL;
    return st;
}

static polar_status choose_comm(train_ranks *r, const char *device, int comm)
{
    PL_NEED(comm != TRAIN_COMM_NCCL || !strncmp(r->device, "cuda", 4), POLAR_E_ARG,
            "--comm nccl is for GPUs; the device is '%s'", r->device);
    if (comm == TRAIN_COMM_NCCL) return take_nccl(r);
    if (comm == TRAIN_COMM_MPI || strcmp(device, "cuda")) return POLAR_OK;
    if (take_nccl(r) != POLAR_OK)
        snprintf(r->note, sizeof r->note, "the ranks' bytes go by MPI and host memory: %s",
                 polar_error_message());
    return POLAR_OK;
}

polar_status train_ranks_begin(train_ranks *r, const char *device, int comm)
{
    pl_launch launch;
    int leaves = LEAVES;
    *r = (train_ranks){.size = 1};
    PL_TRY(pl_launch_read(&launch));
    if (launch.size > 1) {
        PL_TRY(polar_comm_open(&r->comm, "auto"));
        r->rank = polar_comm_rank(r->comm);
        r->size = polar_comm_size(r->comm);
        PL_NEED(r->size == launch.size, POLAR_E_STATE, "%s started %lld processes, but MPI knows of %d",
                launch.by, (long long)launch.size, r->size);
    }
    while (leaves < r->size) leaves *= 2;
    snprintf(r->leaves, sizeof r->leaves, "%d", leaves);
    PL_TRY(choose_device(r, &launch, device));
    return r->comm ? choose_comm(r, device, comm) : POLAR_OK;
}

polar_status train_ranks_follow(train_ranks *r, const pl_testbed *tb, const pl_config *config, uint64_t seed)
{
    polar_device *dev;
    stop_signal signals;
    PL_TRY(polar_device_open(&dev, r->device));
    dev->comm = r->comm;
    pl_comm_set_stop(r->comm, stop_signal_begin(&signals));
    polar_status st = pl_follow(r->comm, tb, dev, config, seed);
    pl_comm_set_stop(r->comm, NULL);
    stop_signal_end(&signals);
    polar_device_close(dev);
    return st;
}

void train_ranks_overlap(const train_ranks *r, FILE *log)
{
    if (!r->comm || !r->comm->overlap.bytes) return;
    double all = (double)r->comm->overlap.bytes;
    fprintf(log,
            "rank %d sent %.3g MB of gradients; %.0f %% of them left before their backward was over, %.0f %% "
            "had arrived\n",
            r->rank, all / 1e6, 100 * (double)r->comm->overlap.begun / all,
            100 * (double)r->comm->overlap.done / all);
}

polar_status train_ranks_end(train_ranks *r, polar_status st)
{
    char text[1200];
    if (!r->comm) return st;
    if (st != POLAR_OK) {
        int lost = r->comm->broken != POLAR_OK;
        snprintf(text, sizeof text, "%.1000s%s", polar_error_message(),
                 lost ? " (the same command goes on from the last checkpoint)" : "");
        pl_comm_abandon(r->comm);
    }
    polar_comm_close(r->comm);
    polar_device_close(r->gpu);
    polar_comm_close(r->via);
    return st == POLAR_OK ? st : pl_fail_again(st, text);
}
