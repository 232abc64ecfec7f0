#!/bin/sh
# test_deps.sh -- tools/install_deps.sh where gnuplot is missing and nothing may be installed: the build goes on, and one sentence says what will be left out.
#
#     sh tests/tree/test_deps.sh ROOT
#
# The programs of this machine are linked into folders without gnuplot, apt-get or sudo.
set -u
root=$1
dir=$(mktemp -d) || exit 2
trap 'rm -rf "$dir"' EXIT
failed=0

[ -z "$(CC=${CC:-cc} sh "$root/tools/install_deps.sh" --list | sed 's/gnuplot-nox//')" ] || { echo "other packages are missing here: not tested"; exit 77; }

mkdir "$dir/plain" "$dir/user"
old=$IFS
IFS=:
for d in $PATH; do
    for p in "$d"/*; do
        case ${p##*/} in
        gnuplot* | apt-get | sudo) ;;
        *) [ -x "$p" ] && [ ! -e "$dir/plain/${p##*/}" ] && ln -s "$p" "$dir/plain/" ;;
        esac
    done
done
IFS=$old
printf '#!/bin/sh\necho 1000\n' >"$dir/user/id"             # no root, no sudo, but apt-get: what it would do is not to be done
printf '#!/bin/sh\necho touched >"%s/touched"\nexit 1\n' "$dir" >"$dir/user/apt-get"
chmod +x "$dir/user/id" "$dir/user/apt-get"

check() {    # check NAME PATH
    PATH=$2 sh "$root/tools/install_deps.sh" >"$dir/out" 2>"$dir/err" </dev/null
    code=$?
    if [ $code -eq 0 ] && [ "$(wc -l <"$dir/err")" -eq 1 ] && grep -q 'no gnuplot-nox: .polar report. will leave its figures out' "$dir/err" && [ ! -e "$dir/touched" ]; then
        echo "$1: PASS"
    else
        echo "$1: exit $code: $(cat "$dir/err") FAIL"
        failed=1
    fi
}

check "no gnuplot, no apt" "$dir/plain"
check "no gnuplot, no right to install" "$dir/user:$dir/plain"
[ "$(PATH=$dir/plain sh "$root/tools/install_deps.sh" --list)" = gnuplot-nox ] || { echo "--list does not name it FAIL"; failed=1; }
exit $failed
