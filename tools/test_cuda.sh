#!/bin/sh
# test_cuda.sh DIR [DEVICE] -- the tests that need a GPU, from the built programs in DIR, then compute-sanitizer on small ones.
#
# Needs no compiler and no CMake: DIR may be a bundle made by tools/bundle.sh on another machine. Ends with "N passed, M failed".
set -u
dir=${1:?usage: tools/test_cuda.sh DIR [DEVICE]}
device=${2:-cuda:0}
passed=0
failed=0

run() {    # run NAME COMMAND...: prints the closing lines, and everything that failed
    name=$1
    shift
    log=$(mktemp)
    if "$@" >"$log" 2>&1; then
        passed=$((passed + 1))
        echo "ok      $name: $(tail -n 1 "$log")"
    else
        status=$?
        failed=$((failed + 1))
        echo "FAILED  $name (status $status)"
        grep -v PASS "$log" | tail -n 40
    fi
    rm -f "$log"
}

tests=$dir
[ -d "$dir/tests" ] && tests=$dir/tests

"$dir/polar" info | sed -n '/^  cuda/,/^$/p'
for t in test_cuda test_cuda_rows test_ops test_op_calls test_pair_message test_map test_polar_ops test_map_edge test_graph test_optim test_nn test_so3 test_so3_use test_so3_run test_so3_ensemble test_gauge_shadow test_attention test_gemm_act test_weight_grad test_gemm_sym test_deit test_deit_use test_deit_run test_deit_beside; do run "$t $device" "$tests/$t" "$device"; done

run "no GPU: exit code 3" sh -c "CUDA_VISIBLE_DEVICES= '$dir/polar' bench maps --device cuda:0; test \$? -eq 3"

if command -v compute-sanitizer >/dev/null 2>&1; then
    for tool in memcheck racecheck initcheck synccheck; do
        run "compute-sanitizer $tool: polar maps" compute-sanitizer --tool $tool --error-exitcode 9 "$tests/test_map_edge" "$device"
        run "compute-sanitizer $tool: newton_schulz, polar_map, polar_step" compute-sanitizer --tool $tool --error-exitcode 9 "$tests/test_polar_ops" "$device" few
        run "compute-sanitizer $tool: graphs" compute-sanitizer --tool $tool --error-exitcode 9 "$tests/test_graph" "$device"
    done
    run "compute-sanitizer memcheck: ops" compute-sanitizer --tool memcheck --error-exitcode 9 "$tests/test_ops" "$device"
else
    echo "compute-sanitizer is not here: its runs are left out"
fi
echo "$passed passed, $failed failed"
test "$failed" -eq 0
