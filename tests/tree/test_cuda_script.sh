#!/bin/sh
# test_cuda_script.sh -- tools/test_cuda.sh on programs that are not there: every op by itself, failures told and counted.
#
#     sh tests/tree/test_cuda_script.sh [ROOT]
set -u
root=$(cd "${1:-$(dirname "$0")/../..}" && pwd) || exit 2
dir=$(mktemp -d) || exit 2
trap 'rm -rf "$dir"' EXIT
bad=0

program() { mkdir -p "$dir/$(dirname "$1")" && printf '#!/bin/sh\n%s\n' "$2" >"$dir/$1" && chmod +x "$dir/$1"; }    # program NAME TEXT
need() { grep -q "$1" "$dir/out" || { echo "test_cuda_script: lacks \"$1\""; bad=1; }; }

program polar 'case $1 in info) printf "op,ref,cpu\ncopy,own,own\ngemm,own,own\nfused,composed,own\n" ;; *) exit 3 ;; esac'
for t in $(sh "$root/tools/test_cuda.sh" --programs); do program "tests/$t" 'echo "7 passed, 0 failed $*"'; done
program bin/compute-sanitizer 'tool=$2; shift 4; [ $tool != racecheck ] || { [ "$1 $2" = "--kernel-name-exclude kns=nvjet" ] && shift 2; } || exit 8
case $tool,$* in memcheck,*gemm) exit 9 ;; esac; "$@"'
programs=$(sh "$root/tools/test_cuda.sh" --programs | wc -w)
PATH=$dir/bin:$PATH JOBS=2 sh "$root/tools/test_cuda.sh" "$dir" >"$dir/out" 2>&1 && { echo "test_cuda_script: a failure was not told"; bad=1; }
need '^ok      test_ops cuda:0 copy: 7 passed, 0 failed cuda:0 copy, [0-9]* s$'
need '^ok      test_ops cuda:0 gemm'
need '^ok      test_attention cuda:0: '
for t in test_attention test_gemm_act test_weight_grad test_cuda_rows test_polar_ops; do need "^ok      racecheck $t few: 7 passed, 0 failed cuda:0 few"; done
need '^FAILED  memcheck test_ops gemm (status 9)$'
need '^ok      racecheck test_ops kron_eigen: 7 passed, 0 failed cuda:0 kron_eigen, '
checked=$(grep '^ok      racecheck ' "$dir/out" | grep -vc test_ops)
need "^$((programs - 2 + 2 + 2 + 1 + 1 + 3 + 4 * checked + 1)) passed, 1 failed\$"    # two ops for test_ops, for test_cuda, its rest, the exit code, three ops of racecheck, four tools, memcheck's copy
if grep -q fused "$dir/out"; then echo "test_cuda_script: a fused op has no cases"; bad=1; fi
program tests/test_attention 'echo "mismatches 3 FAIL"; exit 1'
program tests/test_nvjpeg 'echo "no nvJPEG"; exit 77'
program bin/compute-sanitizer 'shift 4; [ "$1" != --kernel-name-exclude ] || shift 2; "$@"'
PATH=$dir/bin:$PATH sh "$root/tools/test_cuda.sh" "$dir" >"$dir/out" 2>&1
need '^mismatches 3 FAIL$'
need ', 5 failed$'
need '^absent  test_nvjpeg cuda:0: no nvJPEG$'
program tests/test_nvjpeg 'exec sleep 600'
program tests/test_attention 'echo "7 passed, 0 failed"'
PATH=$dir/bin:$PATH LIMIT=5 sh "$root/tools/test_cuda.sh" "$dir" cuda:0 tests >"$dir/out" 2>&1 && { echo "test_cuda_script: a test without an end was not told"; bad=1; }
need '^CUT     test_nvjpeg cuda:0: no end after '
need "^$((programs - 3 + 2 + 2 + 1 + 1)) passed, 0 failed, 1 cut\$"
sh "$root/tools/test_cuda.sh" "$dir" cuda:0 test >"$dir/out" 2>&1
[ $? -eq 2 ] || { echo "test_cuda_script: a wrong word was taken"; bad=1; }
need "'test' is none of tests, sanitizer, all"
[ $bad -eq 0 ] || { cat "$dir/out"; exit 1; }
echo "test_cuda_script: a line for each of $programs programs and ops, failures told"
