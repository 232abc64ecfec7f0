#!/bin/sh
# test_install.sh -- installs libpolar into a temporary folder and uses it as a stranger would.
#
#     sh tests/tree/test_install.sh ROOT BUILD CMAKE GENERATOR CC [CXX]        # BUILD is complete; CXX may be left out
#
#  1. what is installed, the same under DESTDIR, where polar.pc names the prefix without it
#  2. the shared library exports the POLAR_API functions of the headers and nothing else
#  3. a small program, built with the flags of polar.pc, against the shared and the static library; as C++ too
#  4. the same through find_package(polar), and examples/ as a project of its own
# pkg-config is used where it is there; polar.pc is read by hand in any case, and both must say the same. Needs cc's nm and readelf.
set -u
root=$1
build=$2
cmake=$3
generator=$4
cc=$5
cxx=${6:-}
passed=0
failed=0
dir=$(mktemp -d) || exit 2
trap 'rm -rf "$dir"' EXIT
prefix=$dir/prefix

check() {    # check NAME COMMAND...: counts it, shows what a failed one printed
    name=$1
    shift
    if "$@" >"$dir/log" 2>&1; then
        passed=$((passed + 1))
        printf '%-64s PASS\n' "$name"
    else
        failed=$((failed + 1))
        printf '%-64s FAIL\n' "$name"
        tail -n 20 "$dir/log" | sed 's/^/    /'
    fi
}
refuse() { name=$1; shift; check "$name" sh -c '! "$@"' sh "$@"; }
prints() { want=$1; shift; got=$("$@") && echo "printed '$got', not '$want'" && [ "$got" = "$want" ]; }
loaded() { LD_LIBRARY_PATH=$prefix/$lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} "$@"; }    # what ldconfig does for an installed library

cat >"$dir/own.c" <<'END'
#include <polar/polar.h>
#include <stdio.h>
int main(void)
{
    float w[6] = {3, 0, 0, 0, -2, 0};
    polar_device *dev;
    polar_queue *q;
    polar_map_opts o = POLAR_MAP_OPTS_INIT;
    polar_tensor t = polar_tensor_2d(w, POLAR_DTYPE_F32, 2, 3);
    o.kind = POLAR_MAP_EXACT;
    if (polar_device_open(&dev, "cpu") || polar_queue_create(&q, dev, NULL) || polar_map_apply(q, &t, &t, 1, &o) || polar_queue_sync(q)) return 1;
    printf("%s %s %.3f %.3f\n", POLAR_VERSION, polar_version(), w[0], w[4]);
    polar_queue_destroy(q);
    polar_device_close(dev);
    return 0;
}
END

# ---- 1. the files
"$cmake" --install "$build" --prefix "$prefix" >"$dir/log" 2>&1 || { cat "$dir/log"; echo "cmake --install failed  FAIL"; exit 1; }
DESTDIR=$dir/stage "$cmake" --install "$build" --prefix /opt/polar >"$dir/log" 2>&1 || { cat "$dir/log"; echo "cmake --install with DESTDIR failed  FAIL"; exit 1; }
lib=$(cd "$prefix" && find . -name libpolar.a | sed -e 's,^\./,,' -e 's,/[^/]*$,,')    # "lib", or what this system calls it
list() { (cd "$1" && find . \( -type f -o -type l \) | sort); }
list "$prefix" >"$dir/files"
list "$dir/stage/opt/polar" >"$dir/staged"
pc=$prefix/$lib/pkgconfig/polar.pc
version=$(sed -n 's/^Version: //p' "$pc")
for f in bin/polar "$lib/libpolar.a" "$lib/libpolar.so" "$lib/libpolar.so.0" "$lib/libpolar.so.$version" "$lib/pkgconfig/polar.pc" "$lib/cmake/polar/polarConfig.cmake"; do
    check "installed: $f" test -f "$prefix/$f"
done
check "every public header, as in the tree" diff -r "$root/include/polar" "$prefix/include/polar"
check "no other folders" prints "./bin ./include ./${lib%%/*}" sh -c "cut -d/ -f1,2 '$dir/files' | sort -u | paste -sd' '"
check "the same files under DESTDIR" cmp "$dir/files" "$dir/staged"
check "polar.pc under DESTDIR names the prefix" grep -qx 'prefix=/opt/polar' "$dir/stage/opt/polar/$lib/pkgconfig/polar.pc"
check "the installed program runs" "$prefix/bin/polar" info

# ---- 2. the symbols
sed -n 's/^POLAR_API .*[ *]\(polar_[a-z0-9_]*\)(.*/\1/p' "$prefix"/include/polar/*.h | sort >"$dir/declared"
exported() { nm -D --defined-only "$1" | awk '$2 != "A" { sub(/@.*/, "", $NF); print $NF }' | sort; }    # A: the names of versions
exports_declared() { exported "$1" | diff "$dir/declared" -; }    # "<": declared and missing, ">": exported and not declared
check "headers declare functions" test "$(wc -l <"$dir/declared")" -ge 29
check "exported: the POLAR_API functions and nothing else" exports_declared "$prefix/$lib/libpolar.so"
sed 's/.*/void &(void) {}/' "$dir/declared" | "$cc" -x c - -shared -fPIC -o "$dir/planted.so"
check "planted: the same symbols pass" exports_declared "$dir/planted.so"
{ sed 's/.*/void &(void) {}/' "$dir/declared"; echo 'void pl_planted(void) {}'; } | "$cc" -x c - -shared -fPIC -o "$dir/planted.so"
if exports_declared "$dir/planted.so" >/dev/null; then found=no; else found=yes; fi
check "planted: one symbol more is found" test $found = yes
versioned() { nm -D --defined-only "$1" | awk '$2 == "T" && $NF !~ /@@POLAR_[0-9.]+$/ { print; bad = 1 } END { exit bad }'; }
check "every function has a version" versioned "$prefix/$lib/libpolar.so"
refuse "planted: functions without one are found" sh -c 'nm -D --defined-only "$1" | grep -q " T .*@@POLAR_"' sh "$dir/planted.so"
check "soname libpolar.so.0" sh -c 'readelf -d "$1" | grep -q "SONAME.*\[libpolar.so.0\]"' sh "$prefix/$lib/libpolar.so"

# ---- 3. by polar.pc
field() {    # field NAME: the line of polar.pc with its variables replaced
    sed -n "s/^$1: //p" "$pc" | sed -e "s,\${libdir},$(sed -n 's/^libdir=//p' "$pc"),g" -e "s,\${includedir},$(sed -n 's/^includedir=//p' "$pc"),g" \
        -e "s,\${prefix},$(sed -n 's/^prefix=//p' "$pc"),g"
}
cflags=$(field Cflags)
libs=$(field Libs)
private=$(field Libs.private)
if command -v pkg-config >/dev/null 2>&1; then
    pkg() { PKG_CONFIG_PATH=$prefix/$lib/pkgconfig pkg-config "$@" | sed 's/ *$//'; }
    check "pkg-config --modversion" prints "$version" pkg --modversion polar
    check "pkg-config --cflags" prints "$cflags" pkg --cflags polar
    check "pkg-config --libs" prints "$libs" pkg --libs polar
    check "pkg-config --libs --static" prints "$libs $private" pkg --libs --static polar
else
    echo "pkg-config is not here: polar.pc is read by hand only"
fi
expect="$version $version 1.000 -1.000"
uses_shared() { readelf -d "$1" | grep -q 'NEEDED.*\[libpolar.so.0\]'; }

check "shared: builds" "$cc" -Wall -Wextra -Werror "$dir/own.c" $cflags $libs -o "$dir/own_shared"
check "shared: loads libpolar.so.0" uses_shared "$dir/own_shared"
check "shared: runs" prints "$expect" loaded "$dir/own_shared"
static=$(echo "$libs $private" | sed 's/-lpolar/-l:libpolar.a/')
check "static: builds" "$cc" -Wall -Wextra -Werror "$dir/own.c" $cflags $static -o "$dir/own_static"
refuse "static: does not load libpolar.so" sh -c 'readelf -d "$1" | grep -q "NEEDED.*libpolar"' sh "$dir/own_static"
check "static: runs" prints "$expect" "$dir/own_static"
if [ -n "$cxx" ]; then
    check "C++: builds" "$cxx" -x c++ -std=c++11 -Wall -Wextra -Werror "$dir/own.c" -x none $cflags $libs -o "$dir/own_cxx"
    check "C++: runs" prints "$expect" loaded "$dir/own_cxx"
else
    echo "no C++ compiler here: left out"
fi

# ---- 4. by find_package
mkdir "$dir/project"
cp "$dir/own.c" "$dir/project/"
cat >"$dir/project/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.22)
project(own LANGUAGES C)
find_package(polar $version REQUIRED)
find_package(polar REQUIRED)
add_executable(own_shared own.c)
target_link_libraries(own_shared PRIVATE polar::polar)
add_executable(own_static own.c)
target_link_libraries(own_static PRIVATE polar::polar_static)
END
configure() { "$cmake" -S "$1" -B "$2" -G "$generator" -DCMAKE_C_COMPILER="$cc" -DCMAKE_PREFIX_PATH="$prefix"; }
check "find_package: configures" configure "$dir/project" "$dir/own_build"
check "find_package: builds" "$cmake" --build "$dir/own_build"
check "find_package: polar::polar is the shared library" uses_shared "$dir/own_build/own_shared"
check "find_package: polar::polar runs" prints "$expect" "$dir/own_build/own_shared"
refuse "find_package: polar::polar_static needs no libpolar.so" sh -c 'readelf -d "$1" | grep -q "NEEDED.*libpolar"' sh "$dir/own_build/own_static"
check "find_package: polar::polar_static runs" prints "$expect" "$dir/own_build/own_static"
sed "s/(polar $version REQUIRED)/(polar 99 REQUIRED)/" "$dir/project/CMakeLists.txt" >"$dir/CMakeLists.txt"
cp "$dir/own.c" "$dir/CMakeLists.txt" "$dir/stage/"
refuse "find_package: version 99 is refused" "$cmake" -S "$dir/stage" -B "$dir/refused" -G "$generator" -DCMAKE_C_COMPILER="$cc" -DCMAKE_PREFIX_PATH="$prefix"
check "examples: configure" configure "$root/examples" "$dir/examples"
check "examples: build" "$cmake" --build "$dir/examples"
check "examples: the first one runs" "$dir/examples/01_polar_map"

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
