#!/bin/sh
# bundle.sh BUILD OUT -- the program, the GPU tests and the shared libraries they need, in one folder that runs where nothing can be installed.
#
# The C library and its parts stay the other machine's (it must be as new as this one's), and so do CUDA's own libraries and the driver.
set -eu
build=${1:?usage: tools/bundle.sh BUILD OUT}
out=${2:?usage: tools/bundle.sh BUILD OUT}
here=$(dirname "$0")
command -v patchelf >/dev/null 2>&1 || { echo "bundle.sh needs patchelf (apt-get install patchelf)" >&2; exit 2; }

mkdir -p "$out/lib"
programs="polar $(sh "$here/test_cuda.sh" --programs)"
for p in $programs; do
    from=$build/tests/$p
    [ "$p" = polar ] && from=$build/polar
    cp "$from" "$out/$p"
    patchelf --force-rpath --set-rpath '$ORIGIN/lib' "$out/$p"
done
for p in $programs; do ldd "$build/tests/$p" 2>/dev/null || ldd "$build/$p"; done |
    awk '$2 == "=>" && $3 ~ /^\// { print $3 }' | sort -u |
    grep -Ev '/(libc|libm|libdl|librt|libpthread|ld-linux[^/]*)\.so' |
    while read -r lib; do
        cp -L "$lib" "$out/lib/"
        patchelf --force-rpath --set-rpath '$ORIGIN' "$out/lib/$(basename "$lib")"
    done
mkdir -p "$out/golden"
cp "$here"/../tests/golden/* "$out/golden/"
cp "$here/test_cuda.sh" "$out/"
echo "$out: $(du -sh "$out" | cut -f1); there: POLAR_GOLDEN_DIR=$out/golden sh $out/test_cuda.sh $out"
