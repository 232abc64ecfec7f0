#!/bin/sh
# test_aarch64.sh -- builds libpolar for 64-bit ARM (preset aarch64) and runs its tests under qemu-user. No part of `make test`: an emulated
# core is some hundred times slower.
#
# Wants aarch64-linux-gnu-gcc, qemu-aarch64, and a LAPACK for aarch64 to load: POLAR_SYSROOT names a folder that has it under
# usr/lib/aarch64-linux-gnu; without, Debian's packages are unpacked into build/aarch64-sysroot. apt-get downloads them and installs nothing.
#
#     sh tools/test_aarch64.sh                 # what runs on `cpu` and needs no laboratory, some minutes
#     sh tools/test_aarch64.sh '^test_map'     # the tests a regular expression names
set -u
cd "$(dirname "$0")/.." || exit 2
# Left out: the oracle by itself and guard (nothing of theirs depends on the machine), and the op cases at every size, which take an hour.
tests=${1:-'^test_(philox|json|safetensors|elem|elem_nn|elem_vit|op_calls|op_calls_nn|op_calls_vit|cpu_.*|map|map_edge|optim.*|nn|so3|pair_message|pair_weight|attention|gemm_act)(:none|:cpu.*)$'}
sysroot=${POLAR_SYSROOT:-$PWD/build/aarch64-sysroot}
packages='liblapack3 libblas3 libgfortran5'

need() {
    command -v "$1" >/dev/null 2>&1 || { echo "test_aarch64: $1 is not here (Debian and Ubuntu: $2)" >&2; exit 1; }
}

unpack() {
    mkdir -p "$sysroot/lists/partial" "$sysroot/archives/partial" || return 1
    set -- -q -o APT::Architectures::=arm64 -o Dir::State::Lists="$sysroot/lists" -o Dir::Cache="$sysroot" -o APT::Sandbox::User=
    (cd "$sysroot/archives" && apt-get "$@" update && apt-get "$@" download $(for p in $packages; do echo "$p:arm64"; done)) || return 1
    for package in "$sysroot"/archives/*.deb; do dpkg -x "$package" "$sysroot" || return 1; done
    rm -rf "$sysroot/lists" "$sysroot/archives"
}

need aarch64-linux-gnu-gcc gcc-aarch64-linux-gnu
need qemu-aarch64 qemu-user
if [ ! -d "$sysroot/usr/lib/aarch64-linux-gnu" ]; then
    need apt-get apt
    unpack || { echo "test_aarch64: no LAPACK for arm64 (packages: $packages); unpack it yourself and set POLAR_SYSROOT" >&2; exit 1; }
fi
[ -f build/aarch64/build.ninja ] || cmake --preset aarch64 -DPOLAR_SYSROOT="$sysroot" || exit 1
cmake --build build/aarch64 || exit 1
# test_cpu_pool is left out: an emulator's threads start slowly, and its children after a fork have none.
ctest --test-dir build/aarch64 -j "$(nproc)" -R "$tests" -E '^test_cpu_pool'  --output-on-failure --no-tests=error --timeout 7200
