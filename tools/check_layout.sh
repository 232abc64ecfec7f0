#!/bin/sh
# check_layout.sh -- rules of the tree that a compiler does not know; prints each violation, fails if there is one.
#
#     sh tools/check_layout.sh [ROOT]
#
#  1. Base file names are unique, except that include/polar/x.h may have a private src/<layer>/x.h beside it.
#  2. A file introduces itself: the first line of C is "/* name.c -- ...", that of a script, after its interpreter's, holds
#     "name.py" and " -- " in a comment or a docstring (__init__.py has the package's name).
#  3. No file has more than 600 lines.
#  4. compose, optim, nn and models do not know where they run: no "cuda", no conditional compilation but include guards.
#  5. The library (base to optim) neither prints nor exits; tracing in op_call.c is the one exception.
#  6. Host memory comes from base/alloc.h everywhere in src/ and cli/.
# Comments and string literals do not count in 4 to 6. Needs find and awk only.
set -u
cd "${1:-$(dirname "$0")/..}" || exit 2
list=$(mktemp) || exit 2
trap 'rm -f "$list"' EXIT
find . \( -path ./build -o -path ./.git \) -prune -o -type f \( -name '*.[ch]' -o -name '*.inc' -o -name '*.def' -o -name '*.cu' -o -name '*.cuh' -o -name '*.cpp' \
    -o -name '*.sh' -o -name '*.py' \) -print | sed 's,^\./,,' | sort >"$list"

awk -v list="$list" '
BEGIN {
    while ((getline path < list) > 0) { names(path); if (path ~ /\.(sh|py)$/) script(path); else content(path); files++ }
    if (bad) { printf "check_layout: %d violations\n", bad; exit 1 }
    if (!files) { print "check_layout: found no sources, so nothing was checked"; exit 1 }
    printf "check_layout: %d files follow the rules\n", files
}

function complain(path, line, what) { printf "%s:%d: %s\n", path, line, what; bad++ }

function base_of(path) { sub(/.*\//, "", path); return path }

function names(path,    b)
{
    b = base_of(path)
    if (b == "__init__.py") return
    b = (path ~ /^include\// ? "public " : "private ") b
    if (b in taken) complain(path, 1, "the name is taken by " taken[b])
    taken[b] = path
}

function script(path,    line, no, first)
{
    while ((getline line < path) > 0) {
        if (++no == 1 && line ~ /^#!/) { first = 1; continue }
        if (no == first + 1 && base_of(path) != "__init__.py" && (line !~ /^("""|# )/ || index(line, base_of(path)) > 4 || !index(line, base_of(path)) || !index(line, " -- ")))
            complain(path, no, "the first line does not introduce the file (\"" base_of(path) " -- ...\")")
    }
    close(path)
    too_long(path, no)
}

function too_long(path, no) { if (no > 600) complain(path, no, "more than 600 lines: a file has one noun") }

# The line without comments and with empty string literals; `inside` says that a block comment is open.
function strip(line,    out, c, d, i, quote)
{
    out = quote = ""
    for (i = 1; i <= length(line); i++) {
        c = substr(line, i, 1)
        d = substr(line, i, 2)
        if (inside) { if (d == "*/") { inside = 0; i++ } }
        else if (quote != "") { if (c == "\\") i++; else if (c == quote) { quote = ""; out = out c } }
        else if (d == "/*") { inside = 1; i++ }
        else if (d == "//") break
        else { if (c == "\"" || c == "\047") quote = c; out = out c }
    }
    return out
}

function content(path,    line, code, no, algorithm, library, ours, guard)
{
    algorithm = path ~ /^src\/(compose|optim|nn|models)\//
    library = path ~ /^src\/(base|math|device|compose|backends|optim)\//
    ours = path ~ /^(src|cli)\// && path !~ /^src\/base\/alloc\./
    inside = 0
    while ((getline line < path) > 0) {
        if (++no == 1 && index(line, "/* " base_of(path) " -- ") != 1) complain(path, 1, "the first line does not introduce the file (\"/* " base_of(path) " -- ...\")")
        if (!ours || line == "") continue
        code = strip(line)
        if (algorithm) {
            if (tolower(code) ~ /cuda/) complain(path, no, "an algorithm names a device: cuda")
            guard = path ~ /\.h$/ && code ~ /^#ifndef PL_[A-Z0-9_]*_H$/
            if (code ~ /^[ \t]*#[ \t]*(if|elif)/ && !guard) complain(path, no, "conditional compilation in an algorithm")
        }
        if (library) {
            if (code ~ /(^|[^A-Za-z0-9_])(exit|_exit|_Exit|quick_exit|abort|printf|vprintf|puts|putchar|perror)[ \t]*\(/) complain(path, no, "the library prints or exits")
            if (code ~ /(stdout|stderr)/ && path != "src/device/op_call.c") complain(path, no, "the library writes to a standard stream")
        }
        if (code ~ /(^|[^A-Za-z0-9_])(malloc|calloc|realloc|free|strdup|strndup|asprintf|aligned_alloc|posix_memalign)[ \t]*\(/) complain(path, no, "host memory not from base/alloc.h")
    }
    close(path)
    too_long(path, no)
}'
