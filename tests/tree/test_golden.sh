#!/bin/sh
# test_golden.sh -- the golden vectors are those of their manifest: every file listed, every hash right.
#
#     sh tests/tree/test_golden.sh [ROOT]
#
# Then the test plants a changed byte, a file that is not listed and one that is missing, and demands that
# each is named.
set -u
root=$(cd "${1:-$(dirname "$0")/../..}" && pwd) || exit 2
dir=$(mktemp -d) || exit 2
trap 'rm -rf "$dir"' EXIT
failed=0

manifest_holds() {    # manifest_holds FOLDER: what is wrong with it, if anything
    (
        cd "$1" || exit 2
        sha256sum --check --quiet --strict MANIFEST 2>&1 || exit 1
        for f in *.json *.safetensors; do
            grep -q "  $f\$" MANIFEST || { echo "$f: not in MANIFEST"; exit 1; }
        done
        [ "$(wc -l <MANIFEST)" -gt 0 ] || { echo "MANIFEST lists nothing"; exit 1; }
    )
}

expect() {    # expect 0|1 TEXT NAME: what manifest_holds says of $dir
    out=$(manifest_holds "$dir")
    got=$?
    if [ "$got" -eq "$1" ] && printf '%s\n' "$out" | grep -q -F -- "$2"; then verdict=PASS; else verdict=FAIL; failed=1; fi
    printf '%-60s %s\n' "$3" "$verdict"
    [ "$verdict" = PASS ] || printf '%s\n' "$out"
}

fresh() { rm -rf "${dir:?}"/*; cp "$root"/tests/golden/MANIFEST "$root"/tests/golden/*.json "$root"/tests/golden/*.safetensors "$dir/"; }

fresh
expect 0 '' "$(wc -l <"$dir/MANIFEST") files are those of the manifest"
printf 'x' >>"$dir/stats.json"
expect 1 'stats.json: FAILED' 'a byte more'
fresh
echo '{}' >"$dir/more.json"
expect 1 'more.json: not in MANIFEST' 'a file that is not listed'
fresh
rm "$dir/so3.safetensors"
expect 1 'so3.safetensors' 'a file that is missing'
exit $failed
