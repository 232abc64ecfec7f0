#!/bin/sh
# test_cuda.sh DIR [DEVICE] -- the tests that need a GPU, from the built programs in DIR, then compute-sanitizer on small ones.
#
# Needs no compiler and no CMake: DIR may be a bundle made by tools/bundle.sh on another machine. JOBS programs run at
# once (as many as processors unless told), the ops of test_ops and test_cuda one by one; every line is written when its
# test ends, so that a run which is cut off still tells. Ends with "N passed, M failed". `test_cuda.sh --programs` lists
# the programs.
set -u
programs="test_cuda_rows test_op_calls test_pair_message test_pair_weight test_map test_polar_ops test_frob_normalise test_ns_large test_kron_eigen test_kron_sweep test_map_edge test_graph test_optim test_optim_host test_optim_rules
  test_optim_groups test_optim_skip test_optim_torch test_optim_use test_optim_edge test_optim_run test_optim_kron test_optim_blocks test_so3_grad test_so3_turned
  test_so3_disturb test_deit_grad test_deit_drop test_deit_weights
test_nn test_so3 test_so3_use test_so3_run test_so3_ensemble test_gauge_shadow test_attention test_gemm_act
test_weight_grad test_gemm_sym test_gemm_f32 test_deit test_deit_use test_deit_run test_deit_beside test_deit_input test_augment_op test_nvjpeg"
few="test_polar_ops test_frob_normalise test_ns_large test_kron_eigen test_kron_sweep test_attention test_gemm_act test_weight_grad test_cuda_rows test_augment_op"    # have a second argument "few", for slow checkers
[ "${1:-}" != --programs ] || { echo test_ops test_cuda $programs; exit; }
dir=${1:?usage: tools/test_cuda.sh DIR [DEVICE]}
device=${2:-cuda:0}
jobs=${JOBS:-$(nproc 2>/dev/null || echo 4)}
tests=$dir
[ -d "$dir/tests" ] && tests=$dir/tests
export dir tests device
lines=$(mktemp) || exit 2
trap 'rm -f "$lines"' EXIT

# NAME|COMMAND: a line in the end, and what failed
one='name=${0%%|*}; log=$(mktemp); begin=$(date +%s)
eval "${0#*|}" >"$log" 2>&1; status=$?
if test $status -eq 0; then echo "ok      $name: $(tail -n 1 "$log"), $(($(date +%s) - begin)) s"
elif test $status -eq 77; then echo "absent  $name: $(tail -n 1 "$log")"
else { echo "FAILED  $name (status $status)"; grep -v PASS "$log" | tail -n 40; } >"$log.all"; cat "$log.all"; fi
rm -f "$log" "$log.all"'

each_op() {    # each_op NAME PROGRAM CHECKER: a line for each op
    "$dir/polar" info --format csv | awk -F, 'NR > 1 && $2 == "own" { print $1 }' |
        while read -r op; do echo "$1 $op|$3 \"\$tests/$2\" \$device $op"; done
}

plan() {
    for t in $programs; do echo "$t $device|\"\$tests/$t\" \$device"; done
    each_op "test_ops $device" test_ops ""
    each_op "test_cuda $device" test_cuda ""
    echo "test_cuda $device|\"\$tests/test_cuda\" \$device rest"
    echo 'no GPU: exit code 3|CUDA_VISIBLE_DEVICES= "$dir/polar" bench maps --device cuda:0; test $? -eq 3'
    command -v compute-sanitizer >/dev/null 2>&1 || { echo "compute-sanitizer is not here: its runs are left out" >&2; return; }
    for tool in racecheck initcheck synccheck memcheck; do
        under="compute-sanitizer --tool $tool --error-exitcode 9"
        for t in test_map_edge test_graph; do echo "$tool $t|$under \"\$tests/$t\" \$device"; done
        for t in $few; do echo "$tool $t few|$under \"\$tests/$t\" \$device few"; done
    done
    each_op "memcheck test_ops" test_ops "compute-sanitizer --tool memcheck --error-exitcode 9"
}

"$dir/polar" info | sed -n '/^  cuda/,/^$/p'
plan | xargs -P "$jobs" -d '\n' -n 1 sh -c "$one" | tee "$lines"
failed=$(grep -c '^FAILED ' "$lines")
echo "$(grep -c '^ok ' "$lines") passed, $failed failed"
test "$failed" -eq 0
