/* follow.h -- one run on several ranks: rank 0 leads (it has the store, the checkpoints and the terminal),
 * the others follow it call by call.
 *
 *     rank 0:   pl_lead(&led, tb);  dev->comm = comm;  ... the runner, with &led for tb ...
 *               pl_lead_end(comm);                                  // the others may go
 *     others:   dev->comm = comm;  PL_TRY(pl_follow(comm, tb, dev, config, seed));
 *
 * Before each call of the testbed that all ranks must make (begin, load, epoch, save, end) rank 0 says which;
 * inside an epoch it says after every batch whether to pause.
 */
#ifndef PL_LAB_FOLLOW_H
#define PL_LAB_FOLLOW_H

#include "comm/comm.h"
#include "lab/run/testbed.h"

/* tb with calls that the others are told of; for devices with a communicator */
void pl_lead(pl_testbed *out, const pl_testbed *tb);
polar_status pl_lead_end(polar_comm *comm);
/* until rank 0 ends; of one run */
polar_status pl_follow(polar_comm *comm, const pl_testbed *tb, polar_device *dev, const pl_config *config,
                       uint64_t seed);

#endif
