#!/bin/sh
# gpu_time.sh BUNDLE SECONDS OUT [PART..] -- what waits for a GPU, in SECONDS of a machine that has one for a short while.
#
# BUNDLE is a folder made by tools/bundle.sh. OUT gets few and small files: a text for each part, what runs gave
# (stores.tgz.aa, and .ab beyond 15 MiB), summary.txt. Parts, all of them in this order unless told:
#
#     tests       the programs of test_cuda.sh, first those with kernels that have not run on a GPU
#     python      tests/python on the GPU, from torch and from jax, where python3 has them and pytest
#     bench       `polar bench`, a table for each figure that is open; nothing runs beside it
#     twins       torch, and jax, on the same shapes and through the package, where python3 has them; nothing runs beside it
#     sanitizer   what test_cuda.sh does with compute-sanitizer; beside runs where both are asked for
#     runs        `polar run` of what run_list has, line after line, on the GPU and on the host's cores at once
#
# A part may take a share of the time that is left, so what one does not need the others get; at its limit it is sent
# TERM, then KILL, with all that it began. TERM to the script ends it in the same way, summary and stores included.
# Stores stay in BUNDLE/stores: the same command goes on with them. POLAR_TINY=SET is Tiny-ImageNet
# (docs/tiny_imagenet.md); without it runs on pictures are left out. POLAR_DEVICE=cpu tries everything where no GPU is.
# Exit code: 0 all is well, 1 something failed or was cut, 2 wrong use, 143 ended by TERM.
#
#     gpu_time.sh --list bench | python | twins | runs     the command lines, without a device
#     gpu_time.sh --import BUNDLE                 BUNDLE/stores from BUNDLE/tables, where there are none
set -u
all="tests python bench twins sanitizer runs"
grace=${POLAR_GRACE:-5}        # seconds from TERM to KILL
device=${POLAR_DEVICE:-cuda:0}
tiny=${POLAR_TINY:-}
usage="usage: gpu_time.sh BUNDLE SECONDS OUT [PART..], parts: $all"

share() { case $1 in tests) echo 26 ;; python) echo 6 ;; bench) echo 20 ;; twins) echo 8 ;; *) echo 40 ;; esac; }

# What is to be read, by entry of docs/speed: 76 and the bars of docs/ROADMAP.md; 73; 74 and 65; 75; rules.
bench_list() { cat <<'END'
maps --by-op --set 1024 --set 2048 --set 4096
maps --by-op --no-peak --set 8192 --set 4096x16384
maps --by-op --no-peak --set 1024x12 --set 1024x12_apart
deit --no-peak --batch 128 --rule adamw --rule muon --rule polaradamw
deit --no-peak --batch 1024 --rule adamw --rule muon --rule polaradamw
deit --no-peak --batch 128 --by-op
deit --no-peak --batch 128 --size 64 --patch 8 --members 12
input --batch 128
so3 --no-peak --by-op --points 64 --members 64 --width 64 --message channel
so3 --no-peak --by-op --points 64 --members 64 --width 64 --message shared
so3 --no-peak --by-op --points 64 --members 64 --width 64 --message kernel
so3 --no-peak --by-op --points 64 --members 64 --width 64 --message scalars_only
so3 --no-peak --points 64 --members 64 --width 64
so3 --no-peak --points 64 --members 64 --width 64 --message shared
so3 --no-peak --points 64 --members 64 --width 128
so3 --no-peak --points 64 --members 64 --width 128 --message shared
step --no-peak --set deit --rule polaradamw --rule muon --rule adamw --rule normuon --rule muonh --rule muon_cautious --rule soap --tf32
step --no-peak --set so3 --rule polaradamw --rule muon --rule adamw --rule normuon --rule muonh --rule muon_cautious --rule soap
step --no-peak --set gpt124m --rule polaradamw --rule muon --rule adamw --rule normuon --rule muonh --rule muon_cautious
step --no-peak --set llama430m --rule polaradamw --rule muon --rule adamw --rule normuon --rule muonh --rule muon_cautious
step --no-peak --set gpt124m --rule soap --tf32
step --no-peak --set llama430m --rule soap
END
}

python_list() { cat <<'END'
test_jax.py
test_gpu.py
test_parity.py
test_rules.py
test_views.py
test_maps.py
test_checkpoints.py
test_torch_use.py
END
}

# What needs jax has --jax.
twin_list() { cat <<'END'
step.py --device cuda --set deit --only polar --polar --jax
step.py --device cuda --set deit --only optax --jax --optax
maps.py --device cuda --mode graph --set 1024 --set 2048 --set 4096 --set 4096x16384 --set 8192
step.py --device cuda --set deit --set gpt124m --set llama430m
step.py --device cuda --set llama430m --compile --only compiled
END
}

# LANE STORE SPEC and --set, in the order of what the runs would tell; docs/results has what is there, and what a store
# has is not made again. The cell has a store of its own: some of its runs were made on other devices than the
# same runs of other tables, and differ from them in roundings.
run_list() { cat <<'END'
gpu so3 specs/open/so3_factorial.yaml --set model.width=128 --set arms=muon,muon_v,polar_ema,polaradamw
gpu so3 specs/open/so3_rounding.yaml --set model.width=128
gpu so3 specs/open/so3_gauge.yaml --set model.width=64,128 --set seeds=0..1
gpu so3 specs/open/so3_atlas.yaml --set model.width=32 --set seeds=42,7,123,2024 --set optim.lr=3e-4 --set arms=kernel_1000_*,scalars_1000_*
gpu so3 specs/open/so3_atlas.yaml --set model.width=32 --set seeds=42,7,123,2024 --set optim.lr=1e-3 --set arms=kernel_1000_*,scalars_1000_*
gpu so3 specs/open/so3_atlas.yaml --set model.width=32 --set seeds=42,7,123,2024 --set optim.lr=3e-3 --set arms=kernel_1000_*,scalars_1000_*
gpu so3 specs/open/so3_choice_pairs.yaml --set model.width=16,32 --set seeds=0..7
gpu so3 specs/open/so3_choice_pairs.yaml --set model.width=64 --set seeds=0..7
gpu so3 specs/open/so3_rates.yaml --set model.width=64 --set optim.lr=3e-2 --set arms=adamw
gpu tiny specs/real/tiny_muon_wd.yaml
gpu tiny specs/real/tiny_rules_scan.yaml
gpu tiny specs/real/tiny_rules.yaml
gpu tiny specs/real/tiny_lr_scan.yaml
gpu tiny specs/real/tiny_factorial.yaml
gpu cell specs/open/so3_missing_cell.yaml --set model.width=32 --set seeds=0..27 --set optim.lr=1e-2,3e-2
gpu cell specs/open/so3_missing_cell.yaml --set model.width=64 --set seeds=0..15 --set optim.lr=1e-2,3e-2 --set arms=adamw,muon,polar_ema,muon_v,polaradamw,soap,soap_muon_warm
gpu cell specs/open/so3_spectrum_power.yaml --set model.width=32 --set seeds=0..27
gpu tiny specs/real/tiny_s1_100ep.yaml
gpu tiny specs/real/tiny_adamw_lr_audit.yaml
gpu tiny specs/real/tiny_qkv_split.yaml
gpu tiny specs/real/tiny_rounding.yaml
gpu tiny specs/real/tiny_rule_augmentation.yaml
gpu tiny specs/real/tiny_minimal_100ep.yaml
gpu tiny specs/real/tiny_s2_300ep.yaml
host cell specs/open/so3_missing_cell.yaml --set model.width=32 --set seeds=4..7 --set optim.lr=3e-3,5e-3,1e-2,2e-2,3e-2
host cell specs/open/so3_missing_cell.yaml --set model.width=16 --set seeds=17..99 --set optim.lr=2e-2 --set arms=muon_v,polaradamw,mousse,shampoo_polar,soap_muon,soap_muon_warm
END
}

die() { echo "gpu_time.sh: $*" >&2; exit 2; }

import() {    # the tables of every line's store into it, once
    mkdir -p stores || die "cannot make $PWD/stores"
    for store in so3 cell tiny; do
        [ ! -e "stores/$store.db" ] || continue
        case $store in so3) pattern='/missing_cell\|spectrum_power/d; /^so3_/p' ;; cell) pattern='/missing_cell\|spectrum_power/p' ;; tiny) pattern='/tiny_/p' ;; esac
        files=$(ls tables | sed -n "$pattern" | sed 's,.*_\([a-z]*\)\.csv,--\1 tables/&,')
        [ -n "$files" ] || continue
        run_list | sed -n "s/^[a-z]* $store //p" | while read -r what; do
            # shellcheck disable=SC2086
            ./polar store import $what $files --skip-unknown --store "stores/$store.new" 2>&1 || exit 1
        done || { rm -f "stores/$store.new"*; die "the tables of $store do not go into a store: see above"; }
        mv "stores/$store.new" "stores/$store.db" && rm -f "stores/$store.new.lock"
    done
}

each_line() {    # each_line SECONDS PROGRAM..: the program with each line of the input, for so long at most
    most=$1 bad=0; shift
    while read -r line; do
        began=$(date +%s)
        echo "== $line"
        # shellcheck disable=SC2086
        timeout --foreground -k "$grace" "$most" "$@" $line </dev/null
        status=$?
        [ $status -eq 0 ] || bad=1
        echo "== status $status, $(($(date +%s) - began)) s"
    done
    return $bad
}

lane() {    # lane NAME OPTION..: the lines of a lane until the time is over
    name=$1 bad=0; shift
    while read -r store what; do
        left=$((until - $(date +%s))) more=''
        [ "$store" != tiny ] || { [ -n "$tiny" ] || continue; more="--data $tiny --ensemble 4 --save-every 100"; }
        [ $left -gt 0 ] || { echo "== $name, not begun: $what"; continue; }
        echo "== $name, $left s left: $what"
        # shellcheck disable=SC2086
        ./polar run $what --store "stores/$store.db" --budget ${left}s "$@" $more </dev/null || bad=1
    done
    return $bad
}

has() { python3 -c "import $1" 2>/dev/null || { echo "python3 has no $1 here"; return 1; }; }

part() {    # one part, in BUNDLE
    export POLAR_GOLDEN_DIR="$PWD/golden" PYTHONUNBUFFERED=1
    case $1 in
    tests) LIMIT=150 sh ./test_cuda.sh . "$device" tests ;;
    sanitizer) LIMIT=$limit JOBS=4 sh ./test_cuda.sh . "$device" sanitizer ;;
    bench) bench_list | each_line 60 ./polar bench --device "$device" ;;
    twins)
        has torch || return 0
        more="^$"; has jax || more=--jax
        export PYTHONPATH="$PWD/python" XLA_PYTHON_CLIENT_PREALLOCATE=false
        cd twins && twin_list | grep -ve "$more" | each_line "$limit" python3 ;;
    python)
        { has torch && has pytest; } || return 0
        export PYTHONPATH="$PWD/python" XLA_PYTHON_CLIENT_PREALLOCATE=false POLAR_TEST_DEVICE="${device%%:*}"
        cd python/tests && python_list | each_line "$limit" python3 -m pytest -q -p no:cacheprovider ;;
    runs)
        until=$(($(date +%s) + limit - 10)) cores=$(($(nproc) - 4))
        import || return
        run_list | sed -n 's/^host //p' | lane host --device cpu:threads=1 --jobs $((cores > 0 ? cores : 1)) &
        run_list | sed -n 's/^gpu //p' | lane gpu --device "$device" --jobs 2
        status=$?
        wait $! && return $status ;;
    esac
}

# ---- the stretch as a whole

say() { printf '[%4d s] %s\n' $(($(date +%s) - start)) "$*"; }

count() { grep -c "$1" "$out/$2.txt"; }

told() {    # told PART: its text in a few words
    case $1 in
    tests | sanitizer) echo "$(count '^ok ' "$1") passed, $(count '^FAILED ' "$1") failed, $(count '^CUT ' "$1") cut" ;;
    runs) echo "$(count '^\[[0-9]*/' runs) runs made, $(count ', not begun: ' runs) lines not begun" ;;
    *) echo "$(count '^== status 0,' "$1") of $(grep '^== ' "$out/$1.txt" | grep -vc '^== status ') lines done" ;;
    esac
}

summary() { echo "$*" >>"$out/summary.txt"; say "$*"; }

guard() {    # guard PART LIMIT: the part as a process group of its own, and its line of the summary
    began=$(date +%s) group=''
    trap '[ -z "$group" ] || kill -TERM "$group"' TERM    # timeout passes it on to the group
    say "$1 begins, $2 s at most"
    limit=$2 timeout -k "$grace" "$2" sh "$me" --part "$1" "$bundle" >"$out/$1.txt" 2>&1 &
    group=$!
    wait $group; status=$?
    while kill -0 $group 2>/dev/null; do wait $group; status=$?; done    # TERM interrupts a wait
    n=0
    while kill -s 0 -- -$group 2>/dev/null && [ $n -lt "$grace" ]; do sleep 1; n=$((n + 1)); done
    kill -s KILL -- -$group 2>/dev/null    # what the part left behind
    case $status in 0) state="done" ;; 124 | 137) state=CUT ;; 143) state=ENDED ;; *) state=FAILED ;; esac
    summary "$(printf '%-9s %-6s %4d of %4d s  %s' "$1" $state $(($(date +%s) - began)) "$2" "$(told "$1"): $1.txt")"
}

wait_for() { for g in "$@"; do wait "$g"; while kill -0 "$g" 2>/dev/null; do wait "$g"; done; done; }

pack() {    # stores as they are, in parts of 15 MiB (3,000 runs of 100 epochs, by count); checkpoints stay
    cd "$bundle" || return
    set -- stores/*.db
    [ -e "$1" ] || return
    for f in stores/*.db-wal; do [ ! -e "$f" ] || set -- "$@" "$f"; done
    tar czf - "$@" | split -b 15M - "$out/stores.tgz." && summary "stores    $(cat "$out"/stores.tgz.* | wc -c) bytes: stores.tgz.*"
}

stretch() {
    guards='' stopped='' shares=0
    trap 'stopped=1; for g in $guards; do kill -TERM "$g"; done' TERM INT HUP
    for p in $parts; do { [ "$p" = sanitizer ] && asked runs; } || shares=$((shares + $(share "$p"))); done
    summary "$(cat "$bundle/commit" 2>/dev/null || echo no commit); $(nproc) processors; $(nvidia-smi --query-gpu=name,driver_version,clocks.sm --format=csv,noheader 2>/dev/null || echo no GPU)"
    for p in $parts; do
        [ "$p" != sanitizer ] || ! asked runs || continue
        left=$((start + seconds - 2 * grace - $(date +%s)))
        most=$((left * $(share "$p") / shares)) shares=$((shares - $(share "$p")))
        if [ -n "$stopped" ] || [ $most -le 0 ]; then summary "$p: NOT BEGUN"; continue; fi
        guard "$p" $most & guards=$!
        if [ "$p" = runs ] && asked sanitizer; then guard sanitizer $most & guards="$guards $!"; fi
        # shellcheck disable=SC2086
        wait_for $guards
    done
    pack
    [ -z "$stopped" ] || { summary "ended by a signal after $(($(date +%s) - start)) s"; exit 143; }
    ! grep -Eq ' (CUT|FAILED|ENDED) |NOT BEGUN' "$out/summary.txt"
}

asked() { case " $parts " in *" $1 "*) return 0 ;; *) return 1 ;; esac; }

start=$(date +%s)
me=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
case ${1:-} in
--list) case ${2:-} in bench) bench_list ;; python) python_list ;; twins) twin_list ;; runs) run_list ;; *) die "--list bench, python, twins or runs" ;; esac; exit ;;
--import) cd "${2:?$usage}" && import; exit ;;
--part) cd "$3" && part "$2"; exit ;;
esac
[ $# -ge 3 ] || die "$usage"
bundle=$1 seconds=$2 out=$3
shift 3
parts=${*:-$all}
case $seconds in '' | *[!0-9]*) die "'$seconds' is no number of seconds" ;; esac
[ "$seconds" -gt $((2 * grace)) ] || die "$seconds s are too few: $((2 * grace)) are kept for the end"
for p in $parts; do case " $all " in *" $p "*) ;; *) die "no part '$p'; parts: $all" ;; esac; done
[ -z "$tiny" ] || [ -e "$tiny" ] || die "no set of pictures at '$tiny' (POLAR_TINY)"
case $tiny in *' '*) die "a path without spaces is wanted, not '$tiny' (POLAR_TINY)" ;; esac
case $tiny in '' | /*) ;; *) export POLAR_TINY="$PWD/$tiny" ;; esac
[ -x "$bundle/polar" ] || die "no program polar in '$bundle': a bundle is made by tools/bundle.sh"
{ mkdir -p "$out" && : >"$out/summary.txt"; } 2>/dev/null || die "cannot write to '$out'"
bundle=$(cd "$bundle" && pwd)
out=$(cd "$out" && pwd)
stretch
