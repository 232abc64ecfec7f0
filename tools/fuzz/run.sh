#!/bin/sh
# run.sh -- every reader of bytes from outside under libFuzzer, with the address and undefined-behaviour sanitizers; a bounded run each.
#
#     sh tools/fuzz/run.sh [NAME...]      all of tools/fuzz/fuzz_NAME.c unless told: sh tools/fuzz/run.sh spec pack
#     sh tools/fuzz/run.sh --can          whether it can be done here
#
# FUZZ_RUNS inputs (default a million) or FUZZ_SECONDS (default 20), whatever ends first. An entry writes its first inputs itself; what it finds on
# the way stays in build/fuzz/corpus/NAME, so that the next run goes on from there. An input that fails is build/fuzz/NAME-crash-... (or -leak-,
# -timeout-, -oom-); again with build/fuzz/tools/fuzz/fuzz_NAME FILE. Ends with a line for each; 77 where clang has no libFuzzer.
set -u
cd "$(dirname "$0")/../.." || exit 2
build=build/fuzz
works() {
    command -v clang >/dev/null 2>&1 && printf 'int LLVMFuzzerTestOneInput(const char *d, unsigned long n) { return d == (char *)n; }\n' |
        clang -x c - -fsanitize=fuzzer,address -o /dev/null >/dev/null 2>&1
}
works || { echo "run.sh: no clang with libFuzzer here"; exit 77; }
[ "${1:-}" != --can ] || exit 0
[ -f $build/build.ninja ] || CC=clang cmake -G Ninja -B $build -DCMAKE_BUILD_TYPE=Debug -DPOLAR_SANITIZE=fuzzer-no-link,address,undefined -DPOLAR_ISAS=scalar || exit 1
if [ $# -eq 0 ]; then
    for source in tools/fuzz/fuzz_*.c; do
        name=$(basename "$source" .c)
        [ "$name" = fuzz_main ] || set -- "$@" "${name#fuzz_}"
    done
fi
for name; do targets="${targets:-} fuzz_$name"; done
# shellcheck disable=SC2086
cmake --build $build --target $targets || exit 1
base=/dev/shm
[ -w $base ] || base=${TMPDIR:-/tmp}
TMPDIR=$(mktemp -d "$base/polar_fuzz.XXXXXX") || exit 1
export TMPDIR
trap 'rm -rf "$TMPDIR"' EXIT
status=0
for name; do
    corpus=$build/corpus/$name
    mkdir -p "$corpus" && rm -f "$corpus.dict" || exit 1
    dict=
    if FUZZ_SEEDS=$corpus $build/tools/fuzz/fuzz_"$name" -runs=0 -artifact_prefix="$build/$name-" >"$corpus.log" 2>&1 &&
        { [ ! -f "$corpus.dict" ] || dict=$corpus.dict; } &&
        $build/tools/fuzz/fuzz_"$name" -runs="${FUZZ_RUNS:-1000000}" -max_total_time="${FUZZ_SECONDS:-20}" -timeout=10 -report_slow_units=5 -rss_limit_mb=2048 \
            ${dict:+-dict="$dict"} -print_final_stats=1 -artifact_prefix="$build/$name-" "$corpus" >"$corpus.log" 2>&1; then
        verdict=passed
    else
        verdict=FAILED status=1
        tail -n 40 "$corpus.log"
    fi
    summary="${summary:-}$(printf 'fuzz %-14s %-7s %s' "$name" $verdict "$(sed -n 's/.*DONE *\(cov: [0-9]* ft: [0-9]* corp: [^ ]*\).*/\1/p
        s/stat::number_of_executed_units: */inputs: /p;s/stat::peak_rss_mb: */MB: /p' "$corpus.log" | tr '\n' ' ')")
"
done
printf '%s' "$summary"
exit $status
