#!/bin/sh
# test_cuda.sh DIR [DEVICE [WHICH]] -- the tests that need a GPU, from the built programs in DIR, then compute-sanitizer on small ones.
#
# Needs no compiler and no CMake: DIR may be a bundle made by tools/bundle.sh on another machine. WHICH is tests,
# sanitizer or all (unless told). JOBS programs run at once (as many as processors unless told), each for LIMIT seconds
# at most (3600), the ops of test_ops and test_cuda one by one; every line is written when its test ends, so that a run
# which is cut off still tells. Ends with "N passed, M failed". `test_cuda.sh --programs` lists the programs, in the
# order in which they begin: those with kernels that have not run on a GPU (docs/ROADMAP.md) come first.
set -u
programs="test_put_off test_picked_lines test_stage_moments test_gemm_act test_weight_grad test_frob_normalise test_pair_weight test_ns_large test_kron_eigen test_kron_sweep
  test_attention test_cuda_rows test_deit_drop test_optim_rules test_optim test_nn test_deit test_deit_run
  test_deit_beside test_so3 test_so3_run test_so3_ensemble test_op_calls test_pair_message test_map test_polar_ops
  test_map_edge test_graph test_optim_host test_optim_groups test_optim_skip test_optim_torch test_optim_use
  test_optim_edge test_optim_run test_optim_kron test_optim_kron_tf32 test_optim_blocks test_optim_place test_xla test_so3_grad test_so3_turned test_so3_disturb
  test_so3_use test_gauge_shadow test_gemm_sym test_gemm_f32 test_deit_grad test_deit_weights test_deit_use
  test_deit_input test_augment_op test_nvjpeg"
# have a second argument "few", for slow checkers; those on which racecheck is open come first
few="test_gemm_f32 test_kron_sweep test_kron_eigen test_ns_large test_frob_normalise test_gemm_act test_weight_grad test_cuda_rows test_polar_ops test_attention test_augment_op"
[ "${1:-}" != --programs ] || { echo test_ops test_cuda $programs; exit; }
dir=${1:?usage: tools/test_cuda.sh DIR [DEVICE [WHICH]]}
device=${2:-cuda:0}
which=${3:-all}
case $which in tests | sanitizer | all) ;; *) echo "test_cuda.sh: '$which' is none of tests, sanitizer, all" >&2; exit 2 ;; esac
jobs=${JOBS:-$(nproc 2>/dev/null || echo 4)}
tests=$dir
[ -d "$dir/tests" ] && tests=$dir/tests
limit="timeout --foreground -k 5 ${LIMIT:-3600}"    # in the foreground: whoever ends this script's process group ends them, too
export dir tests device limit
lines=$(mktemp) || exit 2
trap 'rm -f "$lines"' EXIT

# NAME|COMMAND: a line in the end, and what failed
one='name=${0%%|*}; log=$(mktemp); begin=$(date +%s)
eval "${0#*|}" >"$log" 2>&1; status=$?
if test $status -eq 0; then echo "ok      $name: $(tail -n 1 "$log"), $(($(date +%s) - begin)) s"
elif test $status -eq 77; then echo "absent  $name: $(tail -n 1 "$log")"
elif test $status -eq 124 || test $status -eq 137; then echo "CUT     $name: no end after $(($(date +%s) - begin)) s; $(tail -n 1 "$log")"
else { echo "FAILED  $name (status $status)"; grep -v PASS "$log" | tail -n 40; } >"$log.all"; cat "$log.all"; fi
rm -f "$log" "$log.all"'

each_op() {    # each_op NAME PROGRAM CHECKER: a line for each op
    "$dir/polar" info --format csv | awk -F, 'NR > 1 && $2 == "own" { print $1 }' |
        while read -r op; do echo "$1 $op|\$limit $3 \"\$tests/$2\" \$device $op"; done
}

plan_tests() {
    for t in $programs; do echo "$t $device|\$limit \"\$tests/$t\" \$device"; done
    each_op "test_ops $device" test_ops ""
    each_op "test_cuda $device" test_cuda ""
    echo "test_cuda $device|\$limit \"\$tests/test_cuda\" \$device rest"
    echo 'no GPU: exit code 3|CUDA_VISIBLE_DEVICES= "$dir/polar" bench maps --device cuda:0; test $? -eq 3'
}

# cuBLASLt's own kernels (nvjet_sm90_..) have hazards in their shared memory by racecheck, which are not ours to mend
under() { echo "compute-sanitizer --tool $1 --error-exitcode 9$([ "$1" != racecheck ] || echo " --kernel-name-exclude kns=nvjet")"; }

plan_sanitizer() {
    command -v compute-sanitizer >/dev/null 2>&1 || { echo "compute-sanitizer is not here: its runs are left out" >&2; return; }
    for op in kron_eigen pair_weight pair_weight_back; do
        echo "racecheck test_ops $op|\$limit $(under racecheck) \"\$tests/test_ops\" \$device $op"
    done
    for tool in racecheck memcheck synccheck initcheck; do
        for t in $few; do echo "$tool $t few|\$limit $(under $tool) \"\$tests/$t\" \$device few"; done
        for t in test_map_edge test_graph; do echo "$tool $t|\$limit $(under $tool) \"\$tests/$t\" \$device"; done
    done
    each_op "memcheck test_ops" test_ops "$(under memcheck)"
}

"$dir/polar" info | sed -n '/^  cuda/,/^$/p'
{ [ "$which" = sanitizer ] || plan_tests; [ "$which" = tests ] || plan_sanitizer; } |
    xargs -r -P "$jobs" -d '\n' -n 1 sh -c "$one" | tee "$lines"
failed=$(grep -c '^FAILED ' "$lines")
cut=$(grep -c '^CUT ' "$lines")
echo "$(grep -c '^ok ' "$lines") passed, $failed failed$([ "$cut" -eq 0 ] || echo ", $cut cut")"
test "$failed" -eq 0 && test "$cut" -eq 0
