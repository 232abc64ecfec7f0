#!/bin/sh
# bundle.sh BUILD OUT [MIB] -- all that tools/gpu_time.sh needs in one folder that runs where nothing can be installed, and packed.
#
# OUT gets the program and the GPU tests with the shared libraries they need, golden vectors, specs, torch twins, the
# Python package with its tests, and stores that have the runs of docs/results. OUT.packed gets the same as an archive
# of at most MIB (64 unless told) with its own decompressor: carry that folder, then `sh OUT.packed/unpack.sh OUT`
# there. The C library and its parts stay the other machine's (it must be as new as this one's), and so do CUDA's own
# libraries and the driver.
set -eu
usage="usage: tools/bundle.sh BUILD OUT [MIB]"
build=${1:?$usage}
out=${2:?$usage}
most=${3:-64}
root=$(cd "$(dirname "$0")/.." && pwd)
for tool in patchelf zstd; do
    command -v $tool >/dev/null 2>&1 || { echo "bundle.sh needs $tool (apt-get install $tool)" >&2; exit 2; }
done
for f in "$out" "$out.packed"; do [ ! -e "$f" ] || { echo "bundle.sh: $f is there already" >&2; exit 2; }; done

libraries() {    # libraries TO FILE..: what the files load, but for the C library's parts
    to=$1; shift
    for f in "$@"; do ldd "$f"; done | awk '$2 == "=>" && $3 ~ /^\// { print $3 }' | sort -u |
        grep -Ev '/(libc|libm|libdl|librt|libpthread|ld-linux[^/]*)\.so' |
        while read -r lib; do copy "$lib" "$to/lib" '$ORIGIN'; done
}

copy() { cp -L "$1" "$2/" && patchelf --force-rpath --set-rpath "$3" "$2/$(basename "$1")"; }    # copy FILE FOLDER WHERE_ITS_LIBRARIES_ARE

carry() {    # carry TO PROGRAM..
    mkdir -p "$1/lib"
    libraries "$@"
    to=$1; shift
    for p in "$@"; do copy "$p" "$to" '$ORIGIN/lib'; done
}

# shellcheck disable=SC2046
carry "$out" "$build/polar" $(for p in $(sh "$root/tools/test_cuda.sh" --programs); do echo "$build/tests/$p"; done)
lapack=$(/sbin/ldconfig -p | awk '/libopenblas\.so\.0|liblapack\.so\.3/ { print $NF; exit }')    # loaded when it is asked for
[ -z "$lapack" ] || { copy "$lapack" "$out/lib" '$ORIGIN'; libraries "$out" "$lapack"; }
cp -r "$root/tests/golden" "$root/specs" "$root/tools/test_cuda.sh" "$root/tools/gpu_time.sh" "$out/"
mkdir -p "$out/twins" "$out/tables" "$out/python/polar" "$out/python/tests" "$out/python/xla"
cp "$root"/bench/torch/*.py "$out/twins/"
cp "$root"/python/polar/*.py "$out/python/polar/"
cp "$root"/python/xla/*.h "$out/python/xla/"
cp "$root"/tests/python/*.py "$out/python/tests/"
for f in libpolar.so libpolar_xla.so; do libraries "$out" "$build/$f"; copy "$build/$f" "$out/python/polar" '$ORIGIN/../../lib'; done
cp "$root"/docs/results/*/*_runs.csv "$root"/docs/results/*/*_epochs.csv "$out/tables/"
git -C "$root" describe --always --dirty >"$out/commit"
sh "$out/gpu_time.sh" --import "$out" >"$out/import.txt" || { cat "$out/import.txt" >&2; exit 1; }

pack() { tar cf - -C "$out" "$@" | zstd -q -19 -T0 --long=31; }    # programs share most of their bytes: a window over all of them; -19 takes minutes and makes three quarters of what -12 does
carry "$out.packed" "$(command -v zstd)"
pack . >"$out.packed/bundle.tar.zst"
[ "$("$out.packed/zstd" -dcq --long=31 "$out.packed/bundle.tar.zst" | tar tf - | wc -l)" -eq "$(find "$out" | wc -l)" ] ||
    { echo "bundle.sh: $out.packed/bundle.tar.zst does not hold what $out does" >&2; exit 1; }
cat >"$out.packed/unpack.sh" <<'END'
#!/bin/sh
# unpack.sh DIR -- the bundle beside this file into DIR, by the decompressor beside it; zstd checks a sum.
here=$(dirname "$0")
mkdir -p "${1:?usage: unpack.sh DIR}" && "$here/zstd" -dcq --long=31 "$here/bundle.tar.zst" | tar xf - -C "$1" && test -x "$1/polar" && echo "$1: $(cat "$1/commit")"
END
kib=$(du -sk "$out.packed" | cut -f1)
echo "$out: $(du -sh "$out" | cut -f1), packed $((kib / 1024)) MiB; there: sh unpack.sh DIR && sh DIR/gpu_time.sh DIR SECONDS OUT"
if [ "$kib" -gt $((most * 1024)) ]; then
    echo "bundle.sh: $out.packed is larger than $most MiB; by itself, in KiB:" >&2
    (cd "$out" && for part in polar test_* lib golden specs tables stores twins; do echo "$(pack "$part" | wc -c | awk '{ print int($1 / 1024) }') $part"; done) | sort -rn | head >&2
    exit 1
fi
