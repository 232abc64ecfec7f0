#!/bin/sh
# test_wheel.sh -- pip install . as a stranger does it: a wheel from the sources, into a fresh environment without numpy or torch.
#
#     sh tests/python/test_wheel.sh ROOT ENVIRONMENT
#
# The instruction sets beyond the baseline, CUDA and optimisation (the build type None) are left out, to be quick; scikit-build-core is that of the tests' environment.
set -u
root=$1
env=$2
[ -f "$env/made" ] || { echo "test_wheel: no environment in $env (make_env.sh says why): left out"; exit 77; }
dir=$(mktemp -d) || exit 2
trap 'rm -rf "$dir"' EXIT
fail() { echo "test_wheel: $1 FAIL"; [ -f "$dir/log" ] && tail -n 20 "$dir/log"; exit 1; }

"$env/bin/python" -m pip wheel --quiet --no-deps --no-build-isolation --disable-pip-version-check -w "$dir" -Cbuild-dir="$dir/build" \
    -Ccmake.build-type=None -Ccmake.define.POLAR_ISAS=scalar -Ccmake.define.POLAR_CUDA=OFF "$root" >"$dir/log" 2>&1 || fail "the wheel does not build"
wheel=$(ls "$dir"/polar-*-py3-none-*.whl) || fail "a wheel for every Python 3"
python3 -m venv "$dir/fresh" || fail "a fresh environment"
"$dir/fresh/bin/python" -m pip install --quiet --no-index --disable-pip-version-check "$wheel" >"$dir/log" 2>&1 || fail "the wheel does not install"
cd "$dir" || exit 2
unset POLAR_LIBRARY PYTHONPATH
"$dir/fresh/bin/python" -c '
import polar
assert "cpu" in polar.backends() and polar.__file__.startswith("'"$dir"'"), polar.__file__
for name in ("Muon", "polar"):
    try:
        f = getattr(polar, name)
        f([[1.0]])
    except ImportError as e:
        print(name, "without its library:", e)
    else:
        raise SystemExit(name + " went without numpy and torch")
' >"$dir/log" 2>&1 || fail "import polar in a fresh environment"
cat "$dir/log"
echo "test_wheel: $(basename "$wheel"), $(($(wc -c <"$wheel") / 1024)) KiB: PASS"
