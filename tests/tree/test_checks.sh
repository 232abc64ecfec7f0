#!/bin/sh
# test_checks.sh -- the checks can fail: plants one violation at a time in a small sound tree and demands that it is named.
#
#     sh tests/tree/test_checks.sh [ROOT]
set -u
root=$(cd "${1:-$(dirname "$0")/../..}" && pwd) || exit 2
dir=$(mktemp -d) || exit 2
trap 'rm -rf "$dir"' EXIT
passed=0
failed=0

put() { mkdir -p "$(dirname "$dir/$1")" && printf '%b' "$2" >"$dir/$1"; }    # put FILE TEXT

sound() {    # a tree in which every rule holds
    rm -rf "${dir:?}"/*
    put include/polar/status.h '/* status.h -- public */\n'
    put include/polar/polar.h '/* polar.h -- public */\n#include "polar/status.h"\n'
    put src/base/status.h '/* status.h -- private, may share the public name */\n#include "polar/status.h"\n'
    put src/base/alloc.c '/* alloc.c -- memory */\nvoid *take(int n) { return malloc(n); }\n'
    put src/math/sums.h '/* sums.h -- maths */\n#include <math.h>\n#include "base/status.h"\n'
    put src/device/queue.h '/* queue.h -- the contract */\n#include "math/sums.h"\n'
    put src/device/op_call.c '/* op_call.c -- tracing */\nvoid f(void) { fprintf(stderr, "x"); }\n'
    put src/compose/map.c '/* map.c -- a map; says "cuda" in a comment, printf( too */\n#include "device/queue.h"\n#include "base/status.h"\nconst char *s = "cuda exit(1) malloc(";\n'
    put src/compose/map.h '/* map.h -- a map */\n#ifndef PL_COMPOSE_MAP_H\n#define PL_COMPOSE_MAP_H\n#endif\n'
    put src/backends/ref/ref_ops.h '/* ref_ops.h -- the oracle */\n#include "device/queue.h"\n'
    put src/backends/cpu/cpu_kernels.h '/* cpu_kernels.h -- kernels */\n#include "backends/ref/ref_ops.h"\n'
    put src/backends/cpu/kernels/cpu_gemm.c '/* cpu_gemm.c -- products */\n#include "../cpu_kernels.h"\n'
    put src/optim/step.h '/* step.h -- the step */\n#include "compose/map.h"\n'
    put src/verify/gauge.c '/* gauge.c -- a measure */\n#include "optim/step.h"\nvoid g(void) { snprintf(0, 0, "x"); }\n'
    put cli/polar_main.c '/* polar_main.c -- the program */\n#include "device/queue.h"\nint main(void) { printf("x"); exit(0); }\n'
    put tests/test_all.c '/* test_all.c -- tests may see everything */\n#include "backends/cpu/cpu_kernels.h"\n#include "../src/compose/map.c"\n'
}

expect() {    # expect CHECK 0|1 TEXT NAME: the check ends so, and its output holds the text
    out=$(sh "$root/tools/check_$1.sh" "$dir" 2>&1)
    got=$?
    if [ "$got" -eq "$2" ] && printf '%s\n' "$out" | grep -q -F -- "$3"; then
        passed=$((passed + 1))
        verdict=PASS
    else
        failed=$((failed + 1))
        verdict=FAIL
    fi
    printf '%-9s %-66s %s\n' "$1" "$4" "$verdict"
    [ "$verdict" = PASS ] || printf 'exit %d, wanted %d and "%s":\n%s\n' "$got" "$2" "$3" "$out"
}

plant() {    # plant CHECK FILE TEXT MESSAGE NAME: appended to FILE of a sound tree; the check must name FILE and the reason
    sound
    case $2 in
    *.md) put "$2" '' ;;
    *) [ -f "$dir/$2" ] || put "$2" "/* $(basename "$2") -- planted */\n" ;;
    esac
    printf '%b' "$3" >>"$dir/$2"
    expect "$1" 1 "$4" "$5"
}

sound
expect includes 0 'follow the arrows' 'a sound tree passes'
expect layout 0 'follow the rules' 'a sound tree passes'

plant includes src/base/status.h '#include "math/sums.h"\n' 'src/base/status.h:3: base may not include math' 'base looks up at math'
plant includes src/device/queue.h '#include "compose/map.h"\n' 'device may not include compose' 'device looks up at compose'
plant includes src/device/queue.h '#include "backends/ref/ref_ops.h"\n' 'device may not include backends/ref' 'device looks into a backend'
plant includes src/compose/map.c '#include "backends/cpu/cpu_kernels.h"\n' 'compose may not include backends/cpu' 'an algorithm looks into a backend'
plant includes src/compose/map.c '  #  include <optim/step.h>\n' 'compose may not include optim' 'angle brackets and blanks hide nothing'
plant includes src/backends/ref/ref_ops.h '#include "backends/cpu/cpu_kernels.h"\n' 'backends/ref may not include backends/cpu' 'the oracle leans on nobody'
plant includes src/backends/cpu/kernels/cpu_gemm.c '#include "../../../compose/map.h"\n' 'backends/cpu may not include compose' 'a relative path hides nothing'
plant includes src/data/pack.c '#include "device/queue.h"\n' 'data may not include device' 'data stays on maths and base'
plant includes src/optim/step.h '#include "nn/layer.h"\n' 'includes "nn/layer.h", which is not in the tree' 'a quoted include that does not exist'
plant includes src/nn/layer.c '#include "optim/step.h"\n' 'nn may not include optim' 'neighbours do not see each other'
plant includes src/report/table/table.c '#include "device/queue.h"\n' 'report may not include device' 'report needs no device'
plant includes include/polar/polar.h '#include "base/status.h"\n' 'include may not include base' 'the public headers stand alone'
plant includes examples/hello.c '#include "device/queue.h"\n' 'examples may not include device' 'examples use the public headers only'
plant includes src/compose/map.c '#include "map.c"\n' 'includes the source file map.c' 'a source file is included'
plant includes src/misc/helper.c '\n' 'no layer of this name is known (misc)' 'an unknown layer'
rm -rf "${dir:?}"/*
expect includes 1 'nothing was checked' 'an empty tree is no success'

plant layout src/optim/alloc.c '\n' 'the name is taken by src/base/alloc.c' 'a base name used twice'
plant layout src/compose/map.c 'int use_cuda;\n' 'src/compose/map.c:5: an algorithm names a device: cuda' 'cuda in an algorithm'
plant layout src/compose/map.c '#ifdef __AVX2__\n#endif\n' 'conditional compilation in an algorithm' 'a platform in an algorithm'
plant layout src/optim/step.h 'static void f(void) { exit(1); }\n' 'the library prints or exits' 'exit in the library'
plant layout src/math/sums.h 'static void f(void) { /* why */ printf ("x"); }\n' 'the library prints or exits' 'printf in the library'
plant layout src/base/status.h 'static void f(void) { fputs("x", stderr); }\n' 'the library writes to a standard stream' 'stderr in the library'
plant layout src/verify/gauge.c 'void *p(void) { return malloc(1); }\n' 'host memory not from base/alloc.h' 'malloc beside base/alloc.h'
plant layout cli/polar_main.c 'void q(void *p) { free(p); }\n' 'host memory not from base/alloc.h' 'free beside base/alloc.h'
sound
put src/math/silent.h 'int x;\n'
expect layout 1 'src/math/silent.h:1: the first line does not introduce the file' 'a file that does not introduce itself'
sound
put src/math/long.h '/* long.h -- too long */\n'
awk 'BEGIN { for (i = 0; i < 600; i++) print "int x" i ";" }' >>"$dir/src/math/long.h"
expect layout 1 'src/math/long.h:601: more than 600 lines' 'a file of 601 lines'
sound
put python/long.py '"""long.py -- too long"""\n'
awk 'BEGIN { for (i = 0; i < 600; i++) print "x = " i }' >>"$dir/python/long.py"
expect layout 1 'python/long.py:601: more than 600 lines' 'a script of 601 lines'
sound
put tools/silent.sh '#!/bin/sh\n# does something\n'
expect layout 1 'tools/silent.sh:2: the first line does not introduce the file' 'a script that does not introduce itself'
sound
put tools/said.sh '#!/bin/sh\n# said.sh -- a script\n'
put python/polar/__init__.py '"""polar -- a package"""\n'
expect layout 0 'follow the rules' 'scripts that do'
long=$(awk 'BEGIN { for (i = 0; i < 20; i++) printf "word%d, ", i }')
plant format python/run.py "# $long\n" './python/run.py:2' 'a long line of Python'
plant format specs/demo/small.yaml "# $long\n" './specs/demo/small.yaml:2' 'a long line of a spec'
if sh "$root/tools/check_format.sh" "$root" >/dev/null 2>&1; [ $? -ne 77 ]; then
    rm -rf "${dir:?}"/*
    cp "$root/.clang-format" "$dir/"
    put src/base/sums.h '/* sums.h -- sums */\nint sum(int a, int b);\n'
    expect format 0 'files as .clang-format says' 'a sound tree passes'
    plant_line() { put src/base/sums.h "/* sums.h -- sums */\n$1\n"; }
    plant_line 'int  sum( int a,int b );'
    expect format 1 './src/base/sums.h:2' 'blanks that clang-format would not leave'
    plant_line "/* clang-format off */\n$(awk 'BEGIN { for (i = 0; i < 20; i++) printf "int x%d; ", i }')"
    expect format 1 'more than 110 columns' 'a long line that clang-format leaves alone'
    rm -f "$dir/.clang-format"
fi
sound
put docs/sub/other.md 'Narrow.\n'
long='words and more words and more words and more words and more words and more words and more words and on'
put docs/page.md "[other](sub/other.md), [up](../include/polar/polar.h#x), [web](https://a.b/c), \`src/base/alloc.c\`, \`base/alloc.c\`, \`polar/status.h\`,\n\`alloc.c\`, \`src/<layer>\`, \`a - b\`.\n\n| a table | $long $long |\n\n    $long $long\n\n\`\`\`\n$long $long\n\`\`\`\n"
sed -i 's/, \[web\]/,\n[web]/; s/, `base/,\n`base/' "$dir/docs/page.md"
expect docs 0 'name what is there' 'a sound page passes'
plant docs docs/page.md "$long\n" 'docs/page.md:1: more than 100 columns' 'a line of 101 columns'
plant docs docs/page.md 'See [there](there.md).\n' 'a link to there.md, which is not in the tree' 'a link that leads nowhere'
plant docs docs/sub/page.md 'See [up](../../../README.md).\n' 'a link to ../../../README.md' 'a link out of the tree'
plant docs docs/page.md 'See `src/base/gone.c`.\n' 'docs/page.md:1: src/base/gone.c is not in the tree' 'a path that is not there'
plant docs docs/page.md 'See `base/gone.c`.\n' 'base/gone.c is neither' 'a path below src that is not there'
plant docs docs/page.md 'See `gone.cu`.\n' 'no file of the tree is called gone.cu' 'a file name that is not there'
rm -rf "${dir:?}"/*
expect docs 1 'nothing was checked' 'a tree without pages is no success'
sound
put docs/page.md 'A bound with its derivation; we agreed on nothing, tissue 1 and the session of parliament are words.\n'
expect words 0 'explain themselves' 'a sound tree passes'
plant words tests/test_all.c '/* 1e-11, the issue'"'"'s bar */\n' 'tests/test_all.c:4:' 'a bound that stands in a tracker'
plant words docs/page.md 'See issue 12.\n' 'docs/page.md:1:See issue 12' 'an entry of a tracker'
plant words src/math/sums.h '/* within 5 %, as agreed */\n' 'src/math/sums.h:4:' 'a bound that was agreed on'
plant words docs/page.md 'Faster than before this session.\n' 'docs/page.md:1:' 'talk of working days'
plant words tools/look.py '# reads ../shared/x\n' 'tools/look.py:2:' 'a folder that is not in the tree'
rm -rf "${dir:?}"/*
expect words 1 'nothing was checked' 'an empty tree is no success'
rm -rf "${dir:?}"/*
expect layout 1 'nothing was checked' 'an empty tree is no success'

printf '%d passed, %d failed\n' "$passed" "$failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
