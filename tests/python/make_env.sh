#!/bin/sh
# make_env.sh -- the virtual environment of the Python tests: pinned wheels, in DIR, made once.
#
#     sh tests/python/make_env.sh DIR
#
# torch of PyPI is built with CUDA and wants gigabytes of libraries that a test on the CPU never calls. It is installed without them:
# each gets an empty stand-in of its name, and a .pth file has Python bind functions when they are called. Only the CUDA runtime,
# which torch speaks to when it is loaded, is real. jax, for its own tests, may be missing.
# Exit code 77 and a sentence where this machine has no python3-venv or no network.
set -u
dir=$1
here=$(cd "$(dirname "$0")" && pwd)
want=$(cat "$here/requirements.txt" "$here/make_env.sh" | cksum)
[ -f "$dir/made" ] && [ "$(cat "$dir/made")" = "$want" ] && { echo "make_env: $dir is there"; exit 0; }

without() { echo "make_env: $1: the Python tests are left out"; rm -rf "$dir"; exit 77; }
rm -rf "$dir"
command -v python3 >/dev/null 2>&1 || without "no python3 here"
python3 -c 'import sys; sys.exit(sys.version_info < (3, 10))' || without "this python3 is older than 3.10, which the pinned torch wants"
python3 -m venv "$dir" >/dev/null 2>&1 || without "no python3-venv here (apt-get install python3-venv)"

get() { "$dir/bin/python" -m pip install --quiet --no-compile --no-cache-dir --disable-pip-version-check --retries 1 --timeout 60 "$@" >"$dir/log" 2>&1; }
get -r "$here/requirements.txt" || { tail -3 "$dir/log"; without "the pinned wheels could not be had from PyPI"; }
case $(uname -m) in
x86_64) get --no-deps torch==2.11.0 nvidia-cuda-runtime==13.0.96 ;;
*) get --no-deps torch==2.11.0 ;;
esac || { tail -3 "$dir/log"; without "torch 2.11.0 could not be had from PyPI"; }
get jax==0.6.2 || echo "make_env: jax could not be had: its tests are left out"

site=$("$dir/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
if [ "$(uname -m)" = x86_64 ]; then
    for name in cupti.so.13 cusparse.so.12 cufft.so.12 cufile.so.0 cusparseLt.so.0 nccl.so.2 curand.so.10 cublas.so.13 cublasLt.so.13 \
        cudnn.so.9 nvshmem_host.so.3; do
        echo | "${CC:-cc}" -shared -x c - -o "$site/torch/lib/lib$name" "-Wl,-soname,lib$name" || without "no C compiler for the stand-ins"
    done
    echo 'import os, sys; sys.setdlopenflags(os.RTLD_LAZY)' >"$site/lazy_binding.pth"
fi
unset PYTHONDONTWRITEBYTECODE
PYTHONPYCACHEPREFIX="$dir/pycache" "$dir/bin/python" -c "import torch, torch._dynamo; torch.ones(2) @ torch.ones(2)" 2>"$dir/log" || { tail -3 "$dir/log"; without "torch does not load here"; }
echo "$want" >"$dir/made"
echo "make_env: made $dir"
