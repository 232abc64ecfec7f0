#!/bin/sh
# check_includes.sh -- the include arrows of docs/architecture.md, downwards only; prints each violation, fails if there is one.
#
#     sh tools/check_includes.sh [ROOT]
#
# A layer may include itself, include/polar, and everything that its arrows reach, directly or through others. tests/,
# bench/ and tools/ may include anything. A quoted include must exist; only a test may include a .c file (to see its inside). Needs find and awk only.
set -u
cd "${1:-$(dirname "$0")/..}" || exit 2
list=$(mktemp) || exit 2
trap 'rm -f "$list"' EXIT
find . \( -path ./build -o -path ./.git \) -prune -o -type f \( -name '*.[ch]' -o -name '*.inc' -o -name '*.def' -o -name '*.cu' -o -name '*.cuh' \
    -o -name '*.cpp' -o -name '*.hpp' -o -name '*.pyx' \) -print | sed 's,^\./,,' | sort >"$list"

awk -v list="$list" '
BEGIN {
    n = split("base math device compose comm optim nn models data verify store lab lab/spec report backends/ref backends/guard backends/cpu backends/cuda " \
              "cli include python examples tests bench tools", layer, " ")
    arrow("math", "base");             arrow("device", "math");            arrow("compose", "device")
    arrow("comm", "device");           arrow("optim", "compose comm device");  arrow("nn", "compose device");      arrow("models", "nn")
    arrow("data", "math base");        arrow("store", "base");             arrow("verify", "optim models compose")
    arrow("lab", "lab/spec models optim data verify store device");        arrow("report", "lab/spec store math base")
    arrow("lab/spec", "store math base")
    arrow("backends/ref", "device");   arrow("backends/cpu", "device backends/ref")
    arrow("backends/guard", "device backends/ref");                        arrow("backends/cuda", "device")
    arrow("cli", "lab report verify data")
    for (i = 1; i <= n; i++) { known[layer[i]] = 1; if (layer[i] !~ /^(include|examples)$/) may[layer[i], layer[i]] = 1; may[layer[i], "include"] = 1 }
    for (k = 1; k <= n; k++)                                               # transitive closure
        for (i = 1; i <= n; i++)
            for (j = 1; j <= n; j++)
                if ((layer[i], layer[k]) in may && (layer[k], layer[j]) in may) may[layer[i], layer[j]] = 1
    split("tests bench tools", free, " ")
    for (f in free) for (i = 1; i <= n; i++) may[free[f], layer[i]] = 1

    while ((getline path < list) > 0) { exists[path] = 1; file[++files] = path }
    for (f = 1; f <= files; f++) check(file[f])
    if (bad) { printf "check_includes: %d violations in %d files\n", bad, files; exit 1 }
    if (!files || !includes) { print "check_includes: found no sources, so nothing was checked"; exit 1 }
    printf "check_includes: %d includes in %d files follow the arrows\n", includes, files
}

function arrow(from, to,    t, m, i) { m = split(to, t, " "); for (i = 1; i <= m; i++) may[from, t[i]] = 1 }

function complain(path, line, what) { printf "%s:%d: %s\n", path, line, what; bad++ }

# "src/backends/cpu/kernels/x.c" -> "backends/cpu", "src/math/x.h" -> "math", "cli/x.c" -> "cli"
function layer_of(path,    p)
{
    split(path, p, "/")
    if (p[1] != "src") return p[1]
    return p[2] == "backends" || (p[2] == "lab" && p[3] == "spec") ? p[2] "/" p[3] : p[2]
}

# "src/a/b/../c.h" -> "src/a/c.h"
function tidy(path) { while (sub(/[^\/]+\/\.\.\//, "", path)) {} gsub(/\/\.\//, "/", path); return path }

function resolve(from, name, quoted,    dir, t)
{
    dir = from
    if (!sub(/\/[^\/]*$/, "", dir)) dir = "."
    if (quoted && (t = tidy(dir "/" name)) in exists) return t
    if ((t = "src/" name) in exists) return t
    if ((t = "include/" name) in exists) return t
    if ((t = "tests/" name) in exists && layer_of(from) ~ /^(tests|tools)$/) return t
    return ""
}

function check(path,    line, no, name, quoted, target, a, b)
{
    a = layer_of(path)
    if (!(a in known)) { complain(path, 1, "no layer of this name is known (" a "); see docs/architecture.md"); return }
    while ((getline line < path) > 0) {
        no++
        if (line !~ /^[ \t]*#[ \t]*include[ \t]*["<]/) continue
        quoted = line ~ /include[ \t]*"/
        name = line
        sub(/^[^"<]*["<]/, "", name)
        sub(/[">].*$/, "", name)
        if (name ~ /\.(c|cu|cpp)$/ && a != "tests") complain(path, no, "includes the source file " name)
        target = resolve(path, name, quoted)
        if (target == "") {
            if (quoted) complain(path, no, "includes \"" name "\", which is not in the tree")
            continue
        }
        includes++
        b = layer_of(target)
        if (!((a, b) in may)) complain(path, no, a " may not include " b " (" name ")")
    }
    close(path)
}'
