#!/bin/sh
# test_how_to.sh -- CONTRIBUTING.md, "Adding to it": its lists of files are true of every rule, op and testbed there is.
#
#     sh tests/tree/test_how_to.sh [ROOT]
#
# A name must stand in every file of its list, an op's files under one noun, and a list of all rules nowhere else; an op
# has at most 9 files. Then a file is planted in each list and must be named.
set -u
cd "${1:-$(dirname "$0")/../..}" || exit 2
dir=$(mktemp -d) || exit 2
trap 'rm -rf "$dir"' EXIT

files() { sed -n "/^### $1\$/,/^##* [A-Z]/p" "$how" | sed -n 's/^| `\([^`]*\)` |.*/\1/p'; }    # files SECTION
complain() { echo "$1"; bad=$((bad + 1)); }
has() { [ -f "$1" ] && grep -aqE "(^|[^a-z0-9])$2([^a-z0-9]|\$)" "$1"; }    # has FILE NAME: an underscore ends a word

rules() {
    names=$(sed -n 's/^    ROW(\([a-z0-9_]*\),.*/\1/p' src/optim/rule.c)
    grep -rlw sgdm src include cli python docs bench README.md | grep -v ^docs/results/ >"$dir/lists"
    for name in $names; do
        for file in $(files 'A rule'); do has "$file" "$name" || complain "rule $name is not in $file"; done
        xargs grep -lw "$name" <"$dir/lists" >"$dir/some"
        mv "$dir/some" "$dir/lists"
        tried=$((tried + 1))
    done
    for file in $(cat "$dir/lists"); do
        files 'A rule' | grep -qx "$file" || complain "$file lists all rules, and CONTRIBUTING.md does not name it"
    done
}

ops() {
    sed -n 's/^PL_OP(\([a-z_]*\),.*/\1/p' src/device/ops.def >"$dir/ops"
    most=$(files 'An op' | wc -l)
    [ $((most + 2)) -le 9 ] || complain "an op has $most files, its loops in an .inc and a formula besides: more than 9"
    while read -r op; do
        noun=$(grep -l "pl_check_$op(" src/device/checks/*.c | sed 's,.*op_check_\(.*\)\.c,\1,')
        kernels=$(sed -n "s/^PL_KERNELS($op, \(.*\))\$/\1/p" src/device/ops.def)
        for file in $(files 'An op' | sed "s/<noun>/$noun/"); do
            case $file in
            *cpu_*) case $kernels in *CPU_OP* | *CPU_PLAIN_OP*) ;; *) continue ;; esac ;;
            *cuda_*) case $kernels in *CUDA_LAUNCHED* | *CUDA_WITH_SCRATCH*) ;; *) continue ;; esac ;;
            esac
            has "$file" "$op" || complain "op $op is not in $file"
        done
        tried=$((tried + 1))
    done <"$dir/ops"
}

testbeds() {
    for name in $(sed -n 's/^#define PL_TESTBEDS(TESTBED) //p' src/lab/run/testbed.h | tr ' ' '\n' | sed 's/.*pl_testbed_\(.*\))/\1/'); do
        for file in $(files 'A testbed' | sed "s/<name>/$name/"); do
            case $file in
            specs/*) grep -rq "^testbed: $name\$" "$file" || complain "no spec of $name in $file" ;;
            */) [ -n "$(ls "$file" 2>/dev/null)" ] || complain "testbed $name: $file is empty" ;;
            *) has "$file" "$name" || complain "testbed $name is not in $file" ;;
            esac
        done
        tried=$((tried + 1))
    done
}

all() { bad=0; tried=0; rules; ops; testbeds; }

how=CONTRIBUTING.md
all
echo "test_how_to: $tried rules, ops and testbeds, $bad complaints"
[ $bad -eq 0 ] && [ $tried -gt 30 ] || exit 1
for section in 'A rule' 'An op' 'A testbed'; do
    awk -v head="### $section" '{ print } $0 == head { print "| `LICENSE` | planted |" }' CONTRIBUTING.md >"$dir/planted.md"
    how=$dir/planted.md
    all >"$dir/out"
    grep -q 'is not in LICENSE' "$dir/out" || { echo "test_how_to: a file planted in \"$section\" was not named"; exit 1; }
done
echo "test_how_to: a file planted in each list is named"
