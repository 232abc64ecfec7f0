#!/bin/sh
# check_format.sh -- C, C++ and CUDA as .clang-format says, with the clang-format that apt gives (14 on Debian 12);
# C, CUDA, Python and specs with at most 110 columns.
#
#     sh tools/check_format.sh [ROOT]        # names what differs; fails if anything does; 77 without that version
#     sh tools/check_format.sh --fix         # rewrites what differs
#
# tests/abi/polar_0_1.h is a header as it was once released and stays so; python/polar/_abi.py is written by
# tools/gen_python.py.
set -u
fix=0
[ "${1:-}" != --fix ] || { fix=1; shift; }
cd "${1:-$(dirname "$0")/..}" || exit 2
format=
for name in clang-format-14 clang-format; do
    if command -v "$name" >/dev/null 2>&1 && "$name" --version | grep -q 'version 14\.'; then
        format=$name
        break
    fi
done
lines=$(find . \( -path ./build -o -path ./.git -o -path ./python/polar/_abi.py \) -prune -o -type f \( -name '*.py' -o -path './specs/*.yaml' \) \
    -exec grep -Hn '.\{111,\}' {} + | cut -d: -f1,2)
[ -z "$lines" ] || { echo "$lines"; echo "check_format: lines of more than 110 columns"; exit 1; }
[ -n "$format" ] || { echo "check_format: no clang-format 14 here (apt-get install clang-format-14): not checked"; exit 77; }
list=$(mktemp) || exit 2
trap 'rm -f "$list"' EXIT
find . \( -path ./build -o -path ./.git -o -path ./tests/abi/polar_0_1.h \) -prune -o -type f \
    \( -name '*.[ch]' -o -name '*.inc' -o -name '*.def' -o -name '*.cu' -o -name '*.cuh' -o -name '*.cpp' \) -print | sort >"$list"
[ -s "$list" ] || { echo "check_format: found no sources, so nothing was checked"; exit 1; }
if [ $fix -eq 1 ]; then
    xargs "$format" -i <"$list"
    exit
fi
bad=$(xargs "$format" --dry-run <"$list" 2>&1 | sed -n 's/^\([^:]*:[0-9]*\):.*clang-format-violations.*/\1/p' | sort -u)
[ -z "$bad" ] || { echo "$bad" | head -40; echo "check_format: these differ from .clang-format; sh tools/check_format.sh --fix"; exit 1; }
long=$(xargs grep -n '.\{111,\}' <"$list" | cut -d: -f1,2)
[ -z "$long" ] || { echo "$long"; echo "check_format: lines of more than 110 columns"; exit 1; }
echo "check_format: $(wc -l <"$list") files as .clang-format says"
