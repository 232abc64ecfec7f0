#!/bin/sh
# run_python.sh -- one file of the Python tests, in their environment, with the library of a build.
#
#     sh tests/python/run_python.sh ENVIRONMENT LIBRARY test_x.py
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
[ -f "$1/made" ] || { echo "run_python: no environment in $1 (make_env.sh says why): left out"; exit 77; }
# one thread each: the machine is shared by the tests that run beside this one
OMP_NUM_THREADS=1 POLAR_LIBRARY=$2 PYTHONPATH=$root/python PYTHONDONTWRITEBYTECODE=1 exec "$1/bin/python" -m pytest -q -p no:cacheprovider -x --rootdir "$root/tests/python" "$root/tests/python/$3"
