#!/bin/sh
# audit_array.sh -- an audit as a Slurm array: task K of N does shard K of N on its node's own disk and leaves its
# store as one file in OUT; the last to end joins them.
#
#     OUT=$HOME/audit sbatch --array=1-16 --time=4:00:00 tools/slurm/audit_array.sh specs/paper/so3_capacity.yaml [options of polar run]
#     polar audit specs/paper/so3_capacity.yaml --store $HOME/audit/audit.db
#
# Given again with the same array it goes on: a task begins with the shard it left. With --signal=B:TERM@120 Slurm
# warns two minutes before the time is up, and what was running is saved as far as its finished runs go.
# POLAR is the program (default: polar). Every task has SLURM_CPUS_PER_TASK processors, or what Slurm binds it to.
#SBATCH --job-name=polar-audit
set -u
spec=${1:?audit_array.sh SPEC [options of polar run]}
shift
out=${OUT:?OUT is the folder for the stores, where all nodes see it}
polar=${POLAR:-polar}
k=${SLURM_ARRAY_TASK_ID:?to be started with sbatch --array=1-N}
n=${SLURM_ARRAY_TASK_COUNT:?}
[ "${SLURM_ARRAY_TASK_MIN:-1}" -eq 1 ] && [ "${SLURM_ARRAY_TASK_MAX:-$n}" -eq "$n" ] || { echo "audit_array.sh: --array=1-N, without gaps" >&2; exit 2; }
mkdir -p "$out" || exit 3
local=$(mktemp -d "${TMPDIR:-/tmp}/polar-audit.XXXXXX") || exit 3
trap 'rm -rf "$local"' EXIT
store=$local/shard.db
shard=$out/shard-$k-of-$n.db
if [ -f "$shard" ]; then cp "$shard" "$store" || exit 3; fi

"$polar" run "$spec" --shard "$k/$n" --store "$store" "$@" &
pid=$!
trap 'kill -TERM $pid 2>/dev/null' TERM INT
code=0
wait $pid || code=$?
while kill -0 $pid 2>/dev/null; do code=0; wait $pid || code=$?; done    # a signal ends a wait, not the program

if [ -f "$store" ]; then cp "$store" "$shard.tmp.$k" && mv "$shard.tmp.$k" "$shard" || exit 3; fi    # one file, whole
[ "$code" -eq 0 ] || exit "$code"
# whoever sees all shards joins them; two at once write the same file, each whole
set -- "$out"/shard-*-of-"$n".db
if [ "$#" -eq "$n" ]; then
    "$polar" store merge "$local/audit.db" "$@" && cp "$local/audit.db" "$out/audit.db.tmp.$k" && mv "$out/audit.db.tmp.$k" "$out/audit.db"
fi
