#!/bin/sh
# count_lines.sh -- files, lines and kilobytes of code by folder at some commits, as a Markdown table.
#
#     sh tools/count_lines.sh v0.1.0 HEAD
#
# Counted are C, CUDA, headers, .inc, .def, Python, shell and CMake files. Kilobytes beside lines, because a
# narrower page makes more lines of the same code.
set -eu
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || { echo "usage: sh tools/count_lines.sh COMMIT..."; exit 2; }
for commit in "$@"; do
    git ls-tree -r -l "$commit" | awk -v c="$commit" '$5 ~ /\.(c|h|inc|def|cu|cuh|py|sh|cmake)$|CMakeLists\.txt$/ { print c, "bytes", $4, $5 }'
    git grep -c '' "$commit" -- '*.c' '*.h' '*.inc' '*.def' '*.cu' '*.cuh' '*.py' '*.sh' '*.cmake' '*CMakeLists.txt' |
        sed 's/:\([^:]*\):\([0-9]*\)$/ lines \2 \1/'
done | awk -v commits="$*" '
function folder(path,    p, n)
{
    n = split(path, p, "/")
    if (n == 1) return "(top)"
    return p[1] == "src" ? p[1] "/" p[2] : p[1]
}
{
    f = folder($4)
    if (!(f in seen)) { seen[f] = 1; list[++count] = f }
    if ($2 == "bytes") { bytes[$1, f] += $3; files[$1, f]++; all_bytes[$1] += $3; all_files[$1]++ }
    else { lines[$1, f] += $3; all_lines[$1] += $3 }
}
END {
    n = split(commits, c, " ")
    printf "| folder |"
    for (i = 1; i <= n; i++) printf " %s: files | lines | KB |", c[i]
    printf "\n| --- |"
    for (i = 1; i <= n; i++) printf " --- | --- | --- |"
    print ""
    for (i = 2; i <= count; i++)
        for (j = i; j > 1 && list[j] < list[j - 1]; j--) { t = list[j]; list[j] = list[j - 1]; list[j - 1] = t }
    for (k = 1; k <= count; k++) {
        f = list[k]
        printf "| `%s` |", f
        for (i = 1; i <= n; i++) printf " %d | %d | %d |", files[c[i], f], lines[c[i], f], (bytes[c[i], f] + 512) / 1024
        print ""
    }
    printf "| all |"
    for (i = 1; i <= n; i++) printf " %d | %d | %d |", all_files[c[i]], all_lines[c[i]], (all_bytes[c[i]] + 512) / 1024
    print ""
}'
