#!/bin/sh
# test_readme.sh -- the lists of README.md, docs/library.md and docs/paper.md are the program's and the tree's.
#
#     sh tests/tree/test_readme.sh ROOT POLAR BUILD CC [README]    # README: another page, to see that the test can fail
#
# Compared: commands and exit codes with `polar --help`; devices, instruction sets, maps and tables with
# `polar info`; rules with the keys; testbeds; presets; `make help`; the number of tests with CTest's; examples
# and documents with their folders. The C of README compiles, its YAML is a spec, its Python's names exist; the
# long example is the file's. Every key and spec that docs/paper.md names is one; docs/SPEED.md lists its log;
# CONTRIBUTING.md's twelve look-ups lead to what they name; a page of results names the code that made it.
# Without README the test then plants a fault in each list and demands that it is found.
set -u
root=$1
polar=$(cd "$(dirname "$2")" && pwd)/$(basename "$2")
build=$3
cc=$4
page=${5:-$root/README.md}
dir=$(mktemp -d) || exit 2
trap 'rm -rf "$dir"' EXIT
passed=0
failed=0

verdict() {    # verdict NAME: $? says how it went
    if [ $? -eq 0 ]; then passed=$((passed + 1)); printf '%-60s PASS\n' "$1"; else failed=$((failed + 1)); printf '%-60s FAIL\n' "$1"; fi
}

same() {    # same NAME: the files $dir/here (the page) and $dir/there (the program) hold the same lines, at least one
    [ -s "$dir/there" ] && diff "$dir/here" "$dir/there" >"$dir/diff"
    verdict "$1"
    [ -s "$dir/diff" ] && sed 's/^</    README says /; s/^>/    there is    /; /^[0-9,]*[acd][0-9,]*$/d' "$dir/diff"
    : >"$dir/diff"
}

row() { sed -n "s/^| $1 | \(.*\) |\$/\1/p" "$page" | tr -d '`' | tr ' ' '\n' | sort; }    # of the table of lists
block() { awk -v kind="$1" '$0 == "```" kind { on = 1; next } /^```/ { on = 0 } on' "$2"; }

# ---- lists of the program
"$polar" --help >"$dir/help" && "$polar" info >"$dir/info" && "$polar" plan --keys so3 >"$dir/so3" && "$polar" plan --keys deit >"$dir/deit"
verdict 'the program tells its lists'
grep '^  [a-z]* *[a-z]' "$page" | grep -v '^  make ' | grep '^  [a-z][a-z]*   *[a-z]' >"$dir/here"
sed -n '/^usage/,/^`polar/p' "$dir/help" | grep '^  [a-z]' >"$dir/there"
same 'commands'
tr '\n' ' ' <"$page" | grep -o 'Exit codes: 0 [^.]*\.' | sed 's/\.$//' >"$dir/here"
sed -n 's/^\(Exit codes: .*\)\.$/\1/p' "$dir/help" >"$dir/there"
same 'exit codes'
row 'instruction sets of `cpu`' >"$dir/here"
sed -n '/^Instruction sets/,/^$/s/^  \([a-z0-9]*\) .*/\1/p' "$dir/info" | sort >"$dir/there"
same 'instruction sets'
row devices >"$dir/here"
{ sed -n '/^Devices/,/^$/s/^  \([a-z]\{1,\}\) .*/\1/p' "$dir/info"; echo cuda; } | sort -u >"$dir/there"    # cuda: in its own preset
same 'devices'
row 'polar maps' >"$dir/here"
sed -n '/^Polar maps/,/^$/s/^  \(.*\)/\1/p' "$dir/info" | tr ' ' '\n' | sort >"$dir/there"
same 'polar maps'
row 'coefficient tables' >"$dir/here"
sed -n '/^Coefficient tables/,/^$/s/^  \([a-z][a-z0-9_]*\) .*/\1/p' "$dir/info" | sort >"$dir/there"
same 'coefficient tables'
row rules >"$dir/here"
sed -n 's/^optim\.rule  *choice  *[a-z]*  *\([a-z0-9_, ]*[a-z0-9_]\)  *rule of.*/\1/p' "$dir/so3" | tr -d ',' | tr ' ' '\n' | grep . | sort >"$dir/there"
same 'rules'
row testbeds >"$dir/here"
"$polar" plan --keys none-of-them 2>&1 | sed -n 's/.*(there are: \(.*\)).*/\1/p' | tr -d ',' | tr ' ' '\n' | sort >"$dir/there"
same 'testbeds'

# ---- lists of the tree
row presets >"$dir/here"
awk '/"configurePresets"/ { on = 1 } /"buildPresets"/ { on = 0 } on' "$root/CMakePresets.json" | grep -v hidden | sed -n 's/.*"name": "\([a-z0-9]*\)".*/\1/p' | sort >"$dir/there"
same 'presets'
grep '^  make ' "$page" >"$dir/here"
make -s -C "$root" help | grep '^  make ' >"$dir/there"
same 'make help'
sed -n 's/^| \[\(docs\/[A-Za-z_]*\.md\)\].*/\1/p' "$page" | sort >"$dir/here"
(cd "$root" && ls docs/*.md) | sort >"$dir/there"
same 'documents'
sed -n 's/^| \[\([0-9][0-9]_[a-z_]*\)\].*/\1/p' "$root/docs/library.md" >"$dir/here"
(cd "$root/examples" && ls ./*.c | sed 's,\./,,; s/\.c$//') >"$dir/there"
same 'examples of docs/library.md'
said=$(tr '\n' ' ' <"$page" | sed -n 's/.*about \([0-9][0-9]*\) tests.*/\1/p')
there=$(ctest --test-dir "$build" -N 2>/dev/null | sed -n 's/^Total Tests: //p')
[ -n "$said" ] && [ -n "$there" ] && [ $((said * 100)) -ge $((there * 90)) ] && [ $((said * 100)) -le $((there * 110)) ]
verdict "the number of tests: about ${said:-?}, there are ${there:-?}"

# ---- what stands in code
{ printf '#include <stdio.h>\n#include "polar/polar.h"\nint main(void)\n{\nstatic float data[192 * 768];\n'; block c "$page"; printf 'return 0;\n}\n'; } >"$dir/own.c"
"$cc" -std=c17 -Wall -Werror -fsyntax-only -I "$root/include" "$dir/own.c"
verdict 'the C compiles'
block yaml "$page" >"$dir/so3_small.yaml"
(cd "$dir" && "$polar" plan so3_small.yaml) >"$dir/log" 2>&1 || { sed 's/^/    /' "$dir/log"; false; }
verdict 'the YAML is a spec'
block python "$page" | grep -o 'polar\.[A-Z][A-Za-z]*' | sort -u >"$dir/names"
[ -s "$dir/names" ] && while read -r name; do grep -q "${name#polar.}" "$root/python/polar/__init__.py" || exit 1; done <"$dir/names"
verdict 'the Python names what the package has'
block c "$root/docs/library.md" >"$dir/here"
tail -n "$(wc -l <"$dir/here")" "$root/examples/02_first_step.c" >"$dir/there"
same 'the first step of docs/library.md is the example'

# ---- docs/paper.md
awk '{ print $1 }' "$dir/so3" "$dir/deit" | grep '\.' | sort -u >"$dir/keys"
grep -o '`[a-z]*\.[a-z0-9_]*[`:]' "$root/docs/paper.md" | tr -d '`:' | grep -E '^(model|data|train|optim|map|route|mix|gauge)\.' | sort -u | comm -23 - "$dir/keys" >"$dir/log"
[ ! -s "$dir/log" ] || { sed 's/^/    no key /' "$dir/log"; false; }
verdict 'every key of docs/paper.md is one'
(cd "$root/specs" && ls paper open | sed -n 's/\.yaml$//p') | sort -u >"$dir/specs"
grep -o '`\(so3\|deit\)_[a-z0-9_]*`' "$root/docs/paper.md" | tr -d '`' | sort -u | comm -23 - "$dir/specs" >"$dir/log"
[ ! -s "$dir/log" ] || { sed 's/^/    no spec /' "$dir/log"; false; }
verdict 'every spec of docs/paper.md is one'
grep '^| [0-9]* |' "$root/docs/paper.md" | awk -F'|' '{ if ($2 + 0 != ++n || NF != 7) { print $0; bad = 1 } } END { if (n < 118) print n " rows"; exit bad || n < 118 }'
verdict 'the rows of docs/paper.md are numbered and whole'

# Every number of its "Numbers" tables stands in a spec of specs/paper or in the covariance table; rows
# 114, 117 and 119 are differences and a spread of others.
awk -F'|' -v page="$root/docs/paper.md" '
FILENAME != page {
    line = $0
    gsub(/[^0-9.e+-]+/, " ", line)
    n = split(line, t, " ")
    for (i = 1; i <= n; i++) known[t[i] + 0] = known[-(t[i] + 0)] = 1
    next
}
/^## Numbers/ { on = 1 }
/^## Claims/ { on = 0 }
on && /^\| [0-9]/ && $2 !~ /11[479]/ {
    line = $3
    gsub(/[^0-9.e-]+/, " ", line)
    n = split(line, t, " ")
    for (i = 1; i <= n; i++) {
        if (t[i] !~ /^-?[0-9]+\.[0-9]+(e-[0-9]+)?$/) continue
        if ((t[i] + 0) in known) good++
        else { printf "    row%sgives %s, which stands in no spec\n", $2, t[i]; bad = 1 }
    }
}
END { exit bad || good < 70 }' "$root"/specs/paper/*.yaml "$root/src/verify/paper_covariance.c" "$root/docs/paper.md"
verdict 'the numbers of docs/paper.md stand in the specs'

# ---- docs/SPEED.md
sed -n 's/^| \([0-9][0-9]*\) | \(.*\) | .* | \[\([a-z0-9]*\)\](speed\/.*\.md) |$/\1 \3 \2/p' "$root/docs/SPEED.md" | sort >"$dir/here"
(cd "$root/docs/speed" && for f in *.md; do sed -n "s/^## \([0-9][0-9]*\)\. \(.*\): [^:]*\$/\1 ${f%.md} \2/p" "$f"; done) | sort >"$dir/there"
same 'the index of docs/SPEED.md lists every entry of its log'
! grep -q '^## [0-9]' "$root/docs/SPEED.md"
verdict 'no entry of the log stands in docs/SPEED.md'

# ---- the map of CONTRIBUTING.md: twelve look-ups; a function that stands beside a file is in it
[ "$(sed -n '/^| where is/,/^$/p' "$root/CONTRIBUTING.md" | grep -c '^| [a-zA-Z]')" -eq 13 ]    # with the head
verdict 'twelve look-ups'
grep -o '`[a-z]*/[a-z0-9_/.]*`, `[a-z_0-9]*`' "$root/CONTRIBUTING.md" "$root/docs/paper.md" | sed 's/^[^`]*//' | tr -d '`,' >"$dir/pairs"
[ -s "$dir/pairs" ] && while read -r file name; do
    case $file in src/* | cli/*) grep -q -w "$name" "$root/$file" || { echo "    $file has no $name"; exit 1; } ;; esac
done <"$dir/pairs"
verdict 'functions are in the files that the map names'

# ---- one version
version=$(sed -n 's/^project(polar VERSION \([0-9.]*\).*/\1/p' "$root/CMakeLists.txt")
[ -n "$version" ] && grep -q "^#define POLAR_VERSION  *\"$version\"" "$root/include/polar/status.h" && grep -q "^version = \"$version\"" "$root/pyproject.toml" &&
    [ "$(sed -n 's/^## \([0-9][0-9.]*\) .*/\1/p' "$root/CHANGELOG.md" | head -n 1)" = "$version" ] && "$polar" --version | grep -q "$version"
verdict "one version: $version"

# ---- docs/results
(cd "$root/docs/results" && ! grep -L '^Code: .*[0-9a-f]\{7\}' ./*.md | grep .)
verdict 'every page of docs/results says which code made it'

# ---- the proof that it can fail
planted() {    # planted NAME SED: README with this change must be found at fault, by the list of that name
    sed "$2" "$root/README.md" >"$dir/planted.md"
    sh "$0" "$root" "$polar" "$build" "$cc" "$dir/planted.md" >"$dir/out" 2>&1 && { echo "not found: $2"; return 1; }
    grep -q "^$1.*FAIL" "$dir/out"
}
if [ $# -lt 5 ]; then
    planted commands '/^  audit /d'; verdict 'planted: a command is missing'
    planted commands 's/^  audit  /  audits /'; verdict 'planted: a command of another name'
    planted rules 's/`muon_v` //'; verdict 'planted: a rule is missing'
    planted 'polar maps' 's/`ns_fp32`/`ns_fp31`/'; verdict 'planted: a map of another name'
    planted presets 's/ `tsan`//'; verdict 'planted: a preset is missing'
    planted testbeds 's/`so3` `deit`/`so3` `deit` `toy`/'; verdict 'planted: a testbed too many'
    planted documents '/^| \[docs\/abi.md\]/d'; verdict 'planted: a page is missing'
    planted 'the number of tests' 's/about [0-9]* tests/about 150 tests/'; verdict 'planted: tests miscounted'
    planted 'the C compiles' 's/polar_map_apply(q, &w/polar_map_apply(q, w/'; verdict 'planted: C that does not compile'
    planted 'the YAML is a spec' 's/^testbed: so3/testbed: so4/'; verdict 'planted: YAML that is no spec'
fi
printf '%d passed, %d failed\n' "$passed" "$failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
