#!/bin/sh
# install_deps.sh -- makes sure that what the build needs is there. Touches nothing when it is.
#
# On Debian and Ubuntu missing packages are installed with apt-get, as root or through a sudo that asks for no
# password; otherwise the one line to run is printed and the script fails. Elsewhere the names are printed
# and CMake has the last word. Never reads standard input.
#
#     sh tools/install_deps.sh             # install what is missing
#     sh tools/install_deps.sh --list      # only name what is missing
#     sh tools/install_deps.sh --tests     # and what some tests want, which are skipped without it
set -u

missing=
need() { missing="$missing $1"; }
have() { command -v "$1" >/dev/null 2>&1; }
links() { printf '%s\n' "$1" | "${CC:-cc}" -x c - -o /dev/null $2 >/dev/null 2>&1; }    # a small program and its libraries

loads_lapack() {
    for dir in $(ldconfig -p 2>/dev/null | sed -n 's,.*=> \(.*/\)lib\(openblas\.so\.0\|lapack\.so\.3\)$,\1,p') /usr/lib /usr/lib64 /usr/local/lib; do
        [ -e "$dir/libopenblas.so.0" ] || [ -e "$dir/liblapack.so.3" ] && return 0
    done
    return 1
}

have "${CC:-cc}" || need gcc
links 'int main(void) { return 0; }' '' || need libc6-dev
have cmake || need cmake
have ninja || need ninja-build
loads_lapack || need libopenblas0    # loaded when an exact factor or a singular value is asked for
links '#include <yaml.h>
int main(void) { int a, b, c; yaml_get_version(&a, &b, &c); return 0; }' -lyaml || need libyaml-dev
links '#include <sqlite3.h>
int main(void) { return sqlite3_libversion_number() == 0; }' -lsqlite3 || need libsqlite3-dev
links '#include <stdio.h>
#include <jpeglib.h>
int main(void) { jpeg_crop_scanline(0, 0, 0); return 0; }' -ljpeg || need libjpeg-dev
links '#include <png.h>
int main(void) { return png_access_version_number() == 0; }' -lpng || need libpng-dev
missing=${missing# }
wanted=    # not needed to build: figures of `polar report`
have gnuplot || wanted=gnuplot-nox
if [ "${1:-}" = --tests ]; then
    have clang-format-14 || clang-format --version 2>/dev/null | grep -q 'version 14\.' || wanted="$wanted clang-format-14"
    python3 -c 'import ensurepip' 2>/dev/null || wanted="$wanted python3-venv"
    have mpirun || wanted="$wanted openmpi-bin"
    have c++ || have g++ || have clang++ || wanted="$wanted g++"    # the kernels of cuda on the host
fi
wanted=${wanted# }

if [ "${1:-}" = --list ]; then
    echo "$missing $wanted" | sed 's/^ *//; s/ *$//; /^$/d'
    exit 0
fi
[ -n "$missing$wanted" ] || exit 0

without() {
    for package in $wanted; do
        case $package in
        gnuplot*) echo "install_deps: no $package: \`polar report\` will leave its figures out until it is installed" ;;
        *) echo "install_deps: no $package: a test that wants it will be skipped" ;;
        esac
    done >&2
}

if ! have apt-get; then
    [ -z "$wanted" ] || without
    [ -n "$missing" ] || exit 0
    echo "install_deps: not found here, by their Debian names: $missing" >&2
    echo "install_deps: this is no apt system; install them with its package manager. Going on: CMake will say what it cannot find." >&2
    exit 0
fi

if [ "$(id -u)" -eq 0 ]; then
    as_root=
elif have sudo && sudo -n true 2>/dev/null; then
    as_root="sudo -n"
elif [ -z "$missing" ]; then
    without
    exit 0
else
    echo "install_deps: missing packages and no right to install them. Run:" >&2
    echo "    sudo apt-get update && sudo apt-get install -y --no-install-recommends $missing" >&2
    exit 1
fi

apt() { $as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300 "$@" </dev/null; }

# The lists may be absent (a fresh image) or stale: they are fetched only when the first try fails.
log=$(mktemp) || exit 1
trap 'rm -f "$log"' EXIT
get() { apt install -y --no-install-recommends "$@" >"$log" 2>&1 || { apt update && apt install -y --no-install-recommends "$@"; } >"$log" 2>&1; }

if [ -n "$missing" ]; then
    echo "install_deps: installing $missing"
    if ! get $missing; then
        cat "$log" >&2
        echo "install_deps: apt-get could not install: $missing" >&2
        exit 1
    fi
fi
if [ -n "$wanted" ]; then
    echo "install_deps: installing $wanted"
    for package in $wanted; do get $package || { wanted=$package; without; }; done
fi
