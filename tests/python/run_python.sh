#!/bin/sh
# run_python.sh -- files of the Python tests, in their environment, with the library of a build.
#
#     sh tests/python/run_python.sh ENVIRONMENT LIBRARY test_x.py ...
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
env=$1
library=$2
shift 2
[ -f "$env/made" ] || { echo "run_python: no environment in $env (make_env.sh says why): left out"; exit 77; }
cd "$root/tests/python" || exit 2
export PYTHONPYCACHEPREFIX="$env/pycache"    # torch is compiled once for all of them, and nothing lies beside our own files
unset PYTHONDONTWRITEBYTECODE
# On some virtual machines oneDNN's AMX code, not ours, ends in an illegal instruction at torch's first bf16 product.
product='import torch; a = torch.ones(192, 192).bfloat16(); a @ a'
if ! "$env/bin/python" -c "$product" >/dev/null 2>&1; then
    export ONEDNN_MAX_CPU_ISA=AVX512_CORE_FP16
    "$env/bin/python" -c "$product" || { echo "run_python: torch cannot multiply bf16 matrices here: left out"; exit 77; }
    echo "run_python: torch's bf16 products die here unless oneDNN leaves AMX alone, so it does"
fi
# one thread each: the machine is shared by the tests that run beside this one
OMP_NUM_THREADS=1 POLAR_LIBRARY=$library PYTHONPATH=$root/python \
    "$env/bin/python" -m pytest -q -x -p no:cacheprovider "$@"
code=$?
[ $code -eq 5 ] && code=77    # nothing to run: every file was left out
exit $code
