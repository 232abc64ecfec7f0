#!/bin/sh
# test_headers.sh -- every header compiles alone, twice in one file; the public ones as strict C17 and as C++ too, without a warning.
#
#     sh tests/tree/test_headers.sh ROOT CC [CXX]        # CC may be a path; CXX may be left out
set -u
root=$1
cc=$2
cxx=${3:-}
cd "$root" || exit 2
passed=0
failed=0

try() {    # try NAME HEADER COMPILER FLAG...
    name=$1
    header=$2
    shift 2
    if out=$(printf '#include "%s"\n#include "%s"\nextern int polar_only_to_have_something;\n' "$header" "$header" | "$@" -Wall -Wextra -Werror -fsyntax-only - 2>&1); then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        printf '%-12s %-40s FAIL\n%s\n' "$name" "$header" "$out"
    fi
}

for h in include/polar/*.h; do
    h=${h#include/}
    try "C17" "$h" "$cc" -x c -std=c17 -pedantic -Iinclude
    [ -z "$cxx" ] || try "C++11" "$h" "$cxx" -x c++ -std=c++11 -pedantic -Iinclude
done
public=$passed
for h in $(find src cli -path src/backends/cuda -prune -o -name '*.h' -print | sort); do    # cuda's want nvcc's headers
    try "private" "${h#src/}" "$cc" -x c -std=gnu17 -D_GNU_SOURCE -Iinclude -Isrc -I.
done

# The test can fail: a header that uses a type nobody gave it, one without a guard, and one that is no C++.
bad=$(mktemp -d) || exit 2
trap 'rm -rf "$bad"' EXIT
echo 'uint64_t planted_type(void);' >"$bad/planted_alone.h"
echo 'typedef struct { int x; } planted_guard;' >"$bad/planted_guard.h"
echo 'int planted_cxx(int class);' >"$bad/planted_cxx.h"
refuse() {
    before=$failed
    try "$@" >/dev/null
    if [ "$failed" -gt "$before" ]; then failed=$before; passed=$((passed + 1)); else passed=$((passed - 1)); failed=$((failed + 1)); echo "a bad header passed: $2 FAIL"; fi
}
refuse planted planted_alone.h "$cc" -x c -std=c17 -I"$bad"
refuse planted planted_guard.h "$cc" -x c -std=c17 -I"$bad"
[ -z "$cxx" ] || refuse planted planted_cxx.h "$cxx" -x c++ -std=c++11 -I"$bad"

echo "public headers: $public compilations${cxx:+, C and C++}"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$public" -gt 0 ]
