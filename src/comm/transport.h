/* transport.h -- the transports that comm.c opens by name. */
#ifndef PL_COMM_TRANSPORT_H
#define PL_COMM_TRANSPORT_H

#include "comm/comm.h"

/* MPI_COMM_WORLD; options: what follows "mpi:", or "" */
polar_status pl_comm_open_mpi(polar_comm **out, const char *options);

#endif
