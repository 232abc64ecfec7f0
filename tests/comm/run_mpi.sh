#!/bin/sh
# run_mpi.sh -- a test program as so many ranks of an MPI job on this machine; 77 with a word where there is no Open MPI.
#
#     sh tests/comm/run_mpi.sh RANKS PROGRAM ARGUMENT...
set -u
ranks=$1
shift
command -v mpirun >/dev/null 2>&1 || { echo "no mpirun here: not tested (on Debian: apt install openmpi-bin)"; exit 77; }
mpirun --version 2>/dev/null | grep -q 'Open MPI' || { echo "mpirun is another MPI's: not tested"; exit 77; }
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_btl_vader_single_copy_mechanism=none    # containers often forbid reading another process's memory
export OMPI_MCA_rmaps_base_oversubscribe=1 PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe OMPI_MCA_hwloc_base_binding_policy=none
export TMPDIR=/tmp                                      # its sockets want short names
exec mpirun -n "$ranks" --oversubscribe "$@"
