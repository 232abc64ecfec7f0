#!/bin/sh
# test_gpu_time.sh -- tools/gpu_time.sh on a bundle of programs that hang, fail and ignore TERM; its command lines by polar itself.
#
#     sh tests/tree/test_gpu_time.sh [ROOT [POLAR]]
#
# Limits here are seconds, so that the test ends; what is checked is what was cut and what was not, never how long it took.
set -u
root=$(cd "${1:-$(dirname "$0")/../..}" && pwd) || exit 2
polar=${2:-}
dir=$(mktemp -d) || exit 2
trap 'rm -rf "$dir"' EXIT
bad=0
script=$root/tools/gpu_time.sh
bundle=$dir/bundle
export POLAR_GRACE=1

program() { printf '#!/bin/sh\n%s\n' "$2" >"$bundle/$1" && chmod +x "$bundle/$1"; }    # program NAME TEXT
complain() { echo "test_gpu_time: $*"; bad=1; }
need() { grep -Eq "$1" "$2" || { complain "lacks \"$1\":"; cat "$2"; }; }    # need TEXT FILE
alone() {    # alone WHEN: what wrote its number into pids is gone, or nobody's child that has ended
    while read -r p; do ! grep -q '^State:.[^ZX]' "/proc/$p/status" 2>/dev/null || complain "$1: a program was left behind"; done <"$dir/pids"
}
refused() {    # refused TEXT ARGUMENT..: exit code 2 and one sentence
    text=$1; shift
    sh "$script" "$@" >"$dir/out" 2>&1
    [ $? -eq 2 ] || complain "not refused: $*"
    need "^gpu_time.sh: .*$text" "$dir/out"
    [ "$(wc -l <"$dir/out")" -eq 1 ] || complain "more than a sentence: $*"
}

mkdir -p "$bundle/stores" "$bundle/twins" "$dir/bin"
cp "$root/tools/test_cuda.sh" "$script" "$bundle/"
echo rows >"$bundle/stores/so3.db"
for t in $(sh "$root/tools/test_cuda.sh" --programs); do program "$t" 'echo "7 passed, 0 failed"'; done
program polar 'case $1 in
info) printf "op,ref,cpu\ncopy,own,own\n" ;;
bench) case "$*" in *cuda:0) exit 3 ;; *gpt124m*) exit 1 ;; *) echo "a table" ;; esac ;;
run) case "$*" in *cpu:threads=1*) echo $$ >>pids; trap "echo saved; exit 130" TERM; echo "[1/9] a run"; while :; do sleep 1; done ;; *) echo "[1/2] b"; echo "[2/2] c" ;; esac ;;
esac'
printf '#!/bin/sh\nexit 1\n' >"$dir/bin/python3"    # no torch
printf '#!/bin/sh\nshift 4; [ "$1" != --kernel-name-exclude ] || shift 2; "$@"\n' >"$dir/bin/compute-sanitizer"
chmod +x "$dir/bin/python3" "$dir/bin/compute-sanitizer"
PATH=$dir/bin:$PATH

refused 'usage: '
refused 'usage: ' "$bundle" 60
refused "'soon' is no number" "$bundle" soon "$dir/o"
refused 'too few' "$bundle" 2 "$dir/o"
refused "no part 'test'" "$bundle" 60 "$dir/o" test
refused 'no program polar' "$dir" 60 "$dir/o"
: >"$dir/file"
refused 'cannot write' "$bundle" 60 "$dir/file/o"
refused 'list bench' --list
for file in $(sh "$script" --list python); do [ -f "$root/tests/python/$file" ] || complain "no file $file"; done
POLAR_TINY=$dir/none
export POLAR_TINY
refused 'no set of pictures' "$bundle" 60 "$dir/o"
POLAR_TINY="$dir/a set" && mkdir "$POLAR_TINY"
refused 'without spaces' "$bundle" 60 "$dir/o"
unset POLAR_TINY

# All is well but for bench, two of whose lines fail.
sh "$script" "$bundle" 60 "$dir/o" tests python bench twins sanitizer >"$dir/out" 2>&1
[ $? -eq 1 ] || complain "a line that failed was not told"
need '^tests +done .* [0-9]+ passed, 0 failed, 0 cut: tests.txt$' "$dir/o/summary.txt"
need '^bench +FAILED .* lines done: bench.txt$' "$dir/o/summary.txt"
need '^twins +done ' "$dir/o/summary.txt"
need '^python +done ' "$dir/o/summary.txt"
need '^python3 has no torch' "$dir/o/python.txt"
need '^python3 has no torch' "$dir/o/twins.txt"
need '^sanitizer +done .* [1-9][0-9]* passed, 0 failed, 0 cut: sanitizer.txt$' "$dir/o/summary.txt"
need '^stores +[1-9][0-9]* bytes: stores.tgz' "$dir/o/summary.txt"
need '^\[ *[0-9]+ s\] bench begins, [0-9]+ s at most$' "$dir/out"
[ "$(cat "$dir"/o/stores.tgz.* | tar xzOf - stores/so3.db)" = rows ] || complain "the store did not come back"
lines=$(sh "$script" --list bench | wc -l)
[ "$(grep -c '^== status 0,' "$dir/o/bench.txt")" -eq $((lines - 2)) ] || complain "not every line of bench was done, or a failed one was"

# A test without an end, one that does not hear TERM, one that fails: each costs its part's limit only, the others tell.
program test_nvjpeg "echo \$\$ >>$dir/pids; sleep 600"
program test_augment_op "echo \$\$ >>$dir/pids"'; trap "" TERM; while :; do sleep 1; done'
program test_attention 'echo "mismatches 3 FAIL"; exit 1'
sh "$script" "$bundle" 20 "$dir/p" tests bench >"$dir/out" 2>&1
need '^tests +CUT .* [1-9][0-9]* passed, 1 failed, 0 cut: tests.txt$' "$dir/p/summary.txt"
need '^mismatches 3 FAIL$' "$dir/p/tests.txt"
need "^bench +(FAILED|CUT) " "$dir/p/summary.txt"
alone "a part that was cut"

# TERM: every part is ended, programs save, the summary and the stores are written.
sh "$script" "$bundle" 600 "$dir/q" runs sanitizer tests >"$dir/out" 2>&1 &
pid=$!
n=0
until { grep -q 'a run' "$dir/q/runs.txt" && grep -q '2/2' "$dir/q/runs.txt"; } 2>/dev/null || [ $n -ge 60 ]; do sleep 1; n=$((n + 1)); done
kill -TERM $pid
wait $pid
[ $? -eq 143 ] || complain "TERM: exit code"
need '^runs +ENDED .* [1-9][0-9]* runs made' "$dir/q/summary.txt"
need '^saved$' "$dir/q/runs.txt"
need '^sanitizer +(ENDED|FAILED|done) ' "$dir/q/summary.txt"
need '^tests: NOT BEGUN$' "$dir/q/summary.txt"
need '^ended by a signal' "$dir/q/summary.txt"
[ -s "$dir/q/stores.tgz.aa" ] || complain "TERM: no stores"
cat "$bundle/pids" >>"$dir/pids"
alone TERM

# Every command line is one that polar takes: without a GPU exit code 3, where a wrong name would be 2.
lines=0
if [ -n "$polar" ]; then
    cd "$root" || exit 2
    for line in 'maps --set 1023' 'step --set dei' 'step --rule moon' 'so3 --rule moon' 'deit --batch many'; do    # the check can fail
        # shellcheck disable=SC2086
        CUDA_VISIBLE_DEVICES='' "$polar" bench --device cuda:0 $line >"$dir/out" 2>&1
        [ $? -eq 2 ] || complain "polar bench $line was not refused"
    done
    sh "$script" --list bench >"$dir/list"
    while read -r line; do
        # shellcheck disable=SC2086
        CUDA_VISIBLE_DEVICES='' "$polar" bench --device cuda:0 $line >"$dir/out" 2>&1
        [ $? -eq 3 ] || { complain "polar bench $line"; cat "$dir/out"; }
        lines=$((lines + 1))
    done <"$dir/list"
    rm -r "$bundle/stores"
    mkdir "$bundle/tables"
    cp "$polar" "$bundle/polar"
    cp -r specs "$bundle/"
    cp docs/results/*/*_runs.csv docs/results/*/*_epochs.csv "$bundle/tables/"
    sh "$script" --import "$bundle" >"$dir/out" 2>&1 || { complain "tables or lines of runs"; cat "$dir/out"; }
    for store in so3 cell tiny; do
        n=$(sh "$script" --list runs | grep -c "^[a-z]* $store ")
        [ "$(grep -c "^stores/$store.new: .* runs are done" "$dir/out")" -eq "$n" ] || complain "$store: not every line was planned"
        "$polar" store check --store "$bundle/stores/$store.db" >/dev/null 2>&1 || complain "$store: no store"
        lines=$((lines + n))
    done
    [ "$(sh "$script" --list runs | grep -Evc '^(gpu (so3|cell|tiny)|host (so3|cell)) specs/')" -eq 0 ] || complain "a lane or store that is none"
fi
[ $bad -eq 0 ] || exit 1
echo "test_gpu_time: limits, TERM, wrong use; $lines command lines that polar takes"
