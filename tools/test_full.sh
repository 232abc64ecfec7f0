#!/bin/sh
# test_full.sh -- what `make test-full` adds to `make test`. Every part runs, the last lines say how each ended.
#
#  1. address and undefined-behaviour sanitizers over every test (preset asan); the fault loops, which fail the N-th
#     allocation for N = 1, 2, ..., are among them, and there a leak or a stray write is seen
#  2. the thread sanitizer over the tests that start threads (preset tsan)
#  3. every test that runs on `cpu`, once per instruction set of this CPU, forced by POLAR_ISA
#  4. a bounded libFuzzer run over every reader of bytes from outside (tools/fuzz/run.sh; FUZZ_RUNS, FUZZ_SECONDS), where clang has libFuzzer
#
#     sh tools/test_full.sh [BUILD]      BUILD: a finished build of the preset cpu, build/cpu unless told; with CC set the sanitizers' build is that compiler's
set -u
cd "$(dirname "$0")/.." || exit 2
build=${1:-build/cpu}
cc=${CC:-}
cc=${cc##*[/ ]}
asan=build/asan${cc:+-$cc}
summary=
status=0

part() {    # part NAME COMMAND...
    name=$1
    shift
    printf '\n==== %s\n' "$name"
    if "$@"; then verdict=passed; else verdict=FAILED; status=1; fi
    summary="$summary$(printf '%-44s %s' "$name" "$verdict")
"
}

skip() {    # skip NAME WHY
    printf '\n==== %s: skipped, %s\n' "$1" "$2"
    summary="$summary$(printf '%-44s skipped: %s' "$1" "$2")
"
}

tests() { dir=$1; shift; ctest --test-dir "$dir" --output-on-failure --no-tests=error --timeout 3600 "$@"; }

sanitizers() {
    [ -f "$asan/build.ninja" ] || cmake --preset asan -B "$asan" || return 1
    cmake --build "$asan" && tests "$asan"
}

threads() {
    [ -f build/tsan/build.ninja ] || cmake --preset tsan || return 1
    cmake --build build/tsan && ctest --preset tsan --timeout 3600
}

# What pl_isa_usable asks for (src/backends/cpu/cpu_backend.c), by the kernel's names.
isa_flags() {
    case $1 in
    scalar) ;;
    neon) echo asimd ;;
    avx2) echo avx2 fma ;;
    avx512) echo avx2 fma avx512f avx512dq avx512bw avx512vl ;;
    avx512bf16) echo avx2 fma avx512f avx512dq avx512bw avx512vl avx512_bf16 ;;
    amx) echo avx2 fma avx512f avx512dq avx512bw avx512vl amx_tile amx_bf16 ;;
    esac
}

isa_lacks() {
    for flag in $(isa_flags "$1"); do
        grep -q -m 1 -w "$flag" /proc/cpuinfo || { echo "$flag"; return; }
    done
}

# Without the tests that POLAR_ISA cannot reach: other devices, no device, an instruction set in the device's name (test_ops names all), the tree's checks.
forced() { POLAR_ISA=$1 tests "$build" -E ':(ref|guard|none|cpu:isa=.*)$|^test_ops:|^check_|^test_checks$|^test_headers$'; }

part 'sanitizers: address, undefined' sanitizers
part "thread sanitizer" threads
for isa in scalar neon avx2 avx512 avx512bf16 amx; do
    lacks=$(isa_lacks $isa)
    if [ -z "$lacks" ]; then part "instruction set: $isa" forced $isa; else skip "instruction set: $isa" "this CPU has no $lacks"; fi
done
if sh tools/fuzz/run.sh --can; then part 'fuzzers' sh tools/fuzz/run.sh; else skip 'fuzzers' 'no clang with libFuzzer here'; fi

printf '\n==== summary\n%s' "$summary"
exit $status
