#!/bin/sh
# test_train_ranks.sh -- `mpirun polar train`: the weights of one process, byte for byte, on 2, 3 and 4 ranks; and a rank killed with -9 at a
# random moment: the rest end, the next start goes on to the same bytes. 77 with a word where there is no Open MPI.
#
#     sh tests/cli/test_train_ranks.sh POLAR            POLAR_KILLS=30: so many kills (3)
set -u
polar=$1
kills=${POLAR_KILLS:-3}
command -v mpirun >/dev/null 2>&1 || { echo "no mpirun here: not tested (on Debian: apt install openmpi-bin)"; exit 77; }
mpirun --version 2>/dev/null | grep -q 'Open MPI' || { echo "mpirun is another MPI's: not tested"; exit 77; }
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_btl_vader_single_copy_mechanism=none
export OMPI_MCA_rmaps_base_oversubscribe=1 PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe OMPI_MCA_hwloc_base_binding_policy=none TMPDIR=/tmp
dir=$(mktemp -d) || exit 2
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 2
failed=0
no() { echo "$1 FAIL"; failed=$((failed + 1)); }
now() { date +%s%N; }

so3='train so3 --set model.width=8 --set train.epochs=3 --set data.train=128 --set data.valid=32 --set data.test=32'
deit='train deit --data synth:classes=4,train=64,test=16,size=32 --set model.image=32 --set model.patch=8 --set model.width=48 --set model.depth=2
    --set train.epochs=2 --set train.batch=32'
for run in "$so3" "$deit"; do
    name=$(echo "$run" | cut -d' ' -f2)
    "$polar" $run --set train.leaves=8 --store one.db --save "one.$name" --format json >"one.$name.json" 2>log || no "$name by one process: $(tail -1 log)"
    for ranks in 2 3 4; do
        mpirun -n $ranks "$polar" $run --store "r$ranks.$name.db" --save "r$ranks.$name" --format json >"r$ranks.$name.json" 2>log ||
            no "$name on $ranks ranks: $(tail -1 log)"
        [ $name = so3 ] || grep -q 'of gradients; [1-9][0-9]* % of them left before their backward was over' log || # so3: too small to be cut
            no "$name on $ranks ranks: nothing left before the backward was over: $(tail -1 log)"
        cmp -s "one.$name" "r$ranks.$name" || no "$name on $ranks ranks: other weights than of one process"
        cmp -s "one.$name.json" "r$ranks.$name.json" || no "$name on $ranks ranks: other results than of one process"
    done
done

# More ranks than leaves are refused, by all of them, at once.
mpirun -n 3 "$polar" $so3 --set train.leaves=2 --store few.db >out 2>log && no "3 ranks shared 2 leaves"
grep -q 'at most as many ranks as a batch has parts' log || no "3 ranks on 2 leaves: $(tail -1 log)"

# a plain cuda is a GPU for each rank of the machine: without one the sentences tell which
mpirun -n 2 "$polar" $so3 --device cuda:1022 --comm nccl --store gpu.db >out 2>log && no "2 ranks trained on a GPU that nobody has"
grep -q 'cuda:1022' log || no "2 ranks on a GPU that nobody has: $(tail -1 log)"
mpirun -n 2 "$polar" $so3 --comm nccl --store gpu.db >out 2>log && no "NCCL carried the bytes of a cpu"
grep -q -- '--comm nccl is for GPUs' log || no "NCCL on a cpu: $(tail -1 log)"

# kills: a longer run, whose checkpoints come often
long="$deit --set train.epochs=40 --save-every 0.05"
begun=$(now)
mpirun -n 4 "$polar" $long --store whole.db --save whole >out 2>log || no "the run that is not killed: $(tail -1 log)"
whole=$(($(now) - begun))
resumed=0
spoke=0
worst=0
i=0
while [ $i -lt "$kills" ]; do
    i=$((i + 1))
    mpirun -n 4 "$polar" $long --store "k$i.db" --save "k$i" >out 2>log &
    launcher=$!
    random=$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')
    sleep "$(awk -v w=$whole -v r="$random" 'BEGIN { printf "%.3f", w / 1e9 * (0.3 + 0.65 * r / 4294967296) }')"
    victim=$(cat "/proc/$launcher/task/$launcher/children" 2>/dev/null | tr ' ' '\n' | grep . | sed -n "$((random % 4 + 1))p")
    [ -n "$victim" ] && kill -9 "$victim" 2>/dev/null
    begun=$(now)
    ( sleep 30; kill -9 $launcher 2>/dev/null ) &
    guard=$!
    wait $launcher
    code=$?
    took=$((($(now) - begun) / 1000000))
    kill $guard 2>/dev/null
    [ $took -gt $worst ] && worst=$took
    [ $took -lt 30000 ] || no "kill $i: the others were there after 30 s"
    [ -n "$victim" ] && [ $code -eq 0 ] && [ ! -f "k$i" ] && no "kill $i: the launcher says that all is well"
    grep -q 'goes on from the last checkpoint' log && spoke=$((spoke + 1))
    mpirun -n $((i % 4 + 1)) "$polar" $long --set train.leaves=8 --store "k$i.db" --save "k$i" >out 2>log || # on any number of ranks
        no "kill $i: the next start: $(tail -1 log)"
    grep -q 'going on after epoch' log && resumed=$((resumed + 1))
    cmp -s whole "k$i" || no "kill $i: other weights in the end"
done
echo "$kills kills: the others ended within $worst ms, $spoke times with our sentence; $resumed starts went on from a checkpoint"
[ $failed -eq 0 ] && echo "the ranks of mpirun train as one process does: PASS"
exit $((failed > 0))
