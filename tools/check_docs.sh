#!/bin/sh
# check_docs.sh -- what a page can be held to by a script; prints each violation, fails if there is one.
#
#     sh tools/check_docs.sh [ROOT]
#
#  1. Lines of Markdown have at most 100 columns, outside tables and code.
#  2. A relative link leads to a file or folder of the tree.
#  3. A path in `code` (src/.., docs/.., tests/.., ...) is in the tree, base/alloc.h in src/, and so is a bare
#     file name (x.c, x.h, x.cu, x.sh, ...); one with *, <, or upper-case placeholders is a pattern and not looked for.
# docs/speed and CHANGELOG.md tell of days past: 3 does not count there. Needs find and awk only.
set -u
cd "${1:-$(dirname "$0")/..}" || exit 2
pages=$(mktemp) || exit 2
tree=$(mktemp) || exit 2
trap 'rm -f "$pages" "$tree"' EXIT
find . \( -path ./build -o -path ./.git \) -prune -o \( -type f -o -type d \) -print | sed 's,^\./,,' | sort >"$tree"
grep '\.md$' "$tree" >"$pages"
[ -s "$pages" ] || { echo "check_docs: found no pages, so nothing was checked"; exit 1; }

awk -v pages="$pages" -v tree="$tree" '
BEGIN {
    while ((getline path < tree) > 0) { known[path] = 1; base = path; sub(/.*\//, "", base); named[base] = 1 }
    while ((getline path < pages) > 0) { page(path); count++ }
    if (bad) { printf "check_docs: %d violations\n", bad; exit 1 }
    printf "check_docs: %d pages are as narrow as they should be, and name what is there\n", count
}

function complain(path, line, what) { printf "%s:%d: %s\n", path, line, what; bad++ }

# docs/x/../y as docs/y
function plain(path,    n, part, i, out, top)
{
    n = split(path, part, "/")
    top = 0
    for (i = 1; i <= n; i++) {
        if (part[i] == "" || part[i] == ".") continue
        if (part[i] == ".." && top > 0) { top--; continue }
        out[++top] = part[i]
    }
    path = ""
    for (i = 1; i <= top; i++) path = path (i > 1 ? "/" : "") out[i]
    return path
}

function links(path, no, line,    target, folder)
{
    folder = path
    if (!sub(/\/[^\/]*$/, "", folder)) folder = "."
    while (match(line, /\]\([^)]*\)/)) {
        target = substr(line, RSTART + 2, RLENGTH - 3)
        line = substr(line, RSTART + RLENGTH)
        sub(/#.*/, "", target)
        if (target == "" || target ~ /^[a-z]+:/) continue
        if (!(plain(folder "/" target) in known)) complain(path, no, "a link to " target ", which is not in the tree")
    }
}

function names(path, no, line,    word)
{
    while (match(line, /`[^`]+`/)) {
        word = substr(line, RSTART + 1, RLENGTH - 2)
        line = substr(line, RSTART + RLENGTH)
        if (word !~ /^[A-Za-z0-9_.\/-]+$/) continue
        if (word ~ /^(src|docs|tests|tools|bench|cli|cmake|specs|include|examples|python)\//) {
            sub(/\/$/, "", word)
            if (word ~ /[A-Z][A-Z][A-Z][A-Z]/ || word in known) continue
            complain(path, no, word " is not in the tree")
        } else if (word ~ /^[a-z0-9_]+\/[a-z0-9_\/]+\.(c|h|cu|cuh|inc|def|sh|map|md)$/) {    # base/alloc.h: in src/, or beside the page
            if (!(word in known) && !(("src/" word) in known) && !(("include/" word) in known) && !(plain(path "/../" word) in known)) complain(path, no, word " is neither in the tree nor in src/ or include/")
        } else if (word ~ /^[a-z0-9_]+\.(c|h|cu|cuh|inc|def|sh|map)$/ && !(word in named)) {
            complain(path, no, "no file of the tree is called " word)
        }
    }
}

function page(path,    line, no, fence, past, code)
{
    past = path ~ /^docs\/speed\// || path == "CHANGELOG.md"
    fence = no = 0
    blank = 1
    while ((getline line < path) > 0) {
        no++
        if (line ~ /^ *(```|~~~)/) { fence = !fence; continue }
        if (fence) continue
        code = line ~ /^    / && (blank || incode)
        incode = code
        blank = line ~ /^ *$/
        if (code) continue
        if (line !~ /^ *\|/ && length(line) > 100 && line !~ /^ *(!\[|\[[^]]*\]: |[^ ]*$)/) complain(path, no, "more than 100 columns")
        links(path, no, line)
        if (!past) names(path, no, line)
    }
    close(path)
}'
