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
# one thread each: the machine is shared by the tests that run beside this one
OMP_NUM_THREADS=1 POLAR_LIBRARY=$library PYTHONPATH=$root/python PYTHONDONTWRITEBYTECODE=1 \
    "$env/bin/python" -m pytest -q -x -p no:cacheprovider "$@"
code=$?
[ $code -eq 5 ] && code=77    # nothing to run: every file was left out
exit $code
