#!/bin/sh
# format.sh -- how far our C is from .clang-format. Rewrites nothing unless files are named.
#
#     sh tools/format.sh                 # lines per file that differ in more than blanks
#     sh tools/format.sh src/x.c ...     # clang-format -i on these; comments and declarations aligned by hand lose their columns
set -u
cd "$(dirname "$0")/.." || exit 2
command -v clang-format >/dev/null 2>&1 || { echo "format: no clang-format here (apt-get install clang-format)" >&2; exit 2; }
if [ $# -gt 0 ]; then
    clang-format -i "$@"
    exit
fi
files=0
differ=0
for f in $(find include src cli tests tools bench examples -name '*.[ch]' 2>/dev/null | sort); do
    files=$((files + 1))
    n=$(clang-format "$f" | diff -w "$f" - | grep -c '^<')
    [ "$n" -eq 0 ] || { printf '%5d of %4d lines  %s\n' "$n" "$(wc -l <"$f")" "$f"; differ=$((differ + 1)); }
done
echo "format: $differ of $files files differ in more than blanks"
