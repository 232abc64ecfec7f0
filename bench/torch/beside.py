"""beside.py -- torch and libpolar in one process: what each costs the other.

    python bench/torch/beside.py build/cpu/libpolar.so --threads 16

Five loops, by turns in every round: torch's products alone, polar's maps alone, both in alternation on one
thread of Python (as a training step does), timed apart, torch's alone while polar's device is open and idle,
and polar's maps in alternation with maps of other matrices as large as what torch touches, by polar's own
threads: what the caches alone cost. Prints one JSON object: the medians, and their ratios to alone, best of
the rounds and median; polar_threads is polar beside torch over polar beside itself. Wanted: none above 1.05.
OMP_WAIT_POLICY=passive in the environment tells whether it is torch's waiting threads that take the cores.
"""
import argparse
import ctypes
import json
import statistics
import time

import torch

F32, DIMS = 1, 8    # POLAR_DTYPE_F32, POLAR_MAX_DIMS


class Tensor(ctypes.Structure):    # include/polar/tensor.h
    _fields_ = [("data", ctypes.c_void_p), ("dtype", ctypes.c_int), ("ndim", ctypes.c_int),
                ("shape", ctypes.c_int64 * DIMS), ("stride", ctypes.c_int64 * DIMS)]


class Polar:
    def __init__(self, path, device, tensors):
        self.lib = ctypes.CDLL(path)
        self.lib.polar_error_message.restype = ctypes.c_char_p
        self.lib.polar_map_apply.argtypes = [
            ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p
        ]
        self.dev, self.queue = ctypes.c_void_p(), ctypes.c_void_p()
        self.check(self.lib.polar_device_open(ctypes.byref(self.dev), device.encode()))
        self.check(self.lib.polar_queue_create(ctypes.byref(self.queue), self.dev, None))
        self.n, self.keep = len(tensors), tensors
        self.tensors = (Tensor * self.n)()
        for t, x in zip(self.tensors, tensors):
            t.data, t.dtype, t.ndim = x.data_ptr(), F32, 2
            t.shape[0], t.shape[1] = x.shape
            t.stride[0], t.stride[1] = x.stride()

    def check(self, status):
        if status:
            raise RuntimeError(self.lib.polar_error_message().decode())

    def step(self):    # NULL options: the default map
        self.check(self.lib.polar_map_apply(self.queue, self.tensors, self.tensors, self.n, None))
        self.check(self.lib.polar_queue_sync(self.queue))

    def close(self):
        self.lib.polar_queue_destroy(self.queue)
        self.lib.polar_device_close(self.dev)


def timed(*functions, seconds):
    for f in functions:
        f()
    times, end = [[] for _ in functions], time.perf_counter() + seconds
    while time.perf_counter() < end:
        for f, t in zip(functions, times):
            start = time.perf_counter()
            f()
            t.append(time.perf_counter() - start)
    return [statistics.median(t) for t in times]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("library")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--spin", type=int, default=None, help="microseconds; the library's choice unless told")
    p.add_argument("--team",
                   choices=("own", "openmp"),
                   default="own",
                   help="polar's threads, or torch's (own)")
    p.add_argument("--rounds", type=int, default=7)
    p.add_argument("--seconds", type=float, default=0.5, help="of a loop")
    a = p.parse_args()
    torch.set_num_threads(a.threads)
    x, w = torch.randn(1024, 768), [torch.randn(768, 768) for _ in range(4)]

    def network():
        y = x
        for m in w:
            y = torch.relu(y @ m)
        return y

    shapes = [(576, 192), (192, 192), (768, 192), (192, 768)] * 4
    name = f"cpu:threads={a.threads}" + (f",spin={a.spin}" if a.spin is not None else "") + \
        (",team=openmp" if a.team == "openmp" else "")
    kinds = ("torch_beside", "polar_beside", "torch_idle_device", "polar_caches", "polar_threads")
    ratios = {kind: [] for kind in kinds}
    alone = {"torch": [], "polar": []}
    for _ in range(a.rounds):
        (t,) = timed(network, seconds=a.seconds)    # no polar device is open
        polar = Polar(a.library, name, [torch.randn(s) for s in shapes])
        (q,) = timed(polar.step, seconds=a.seconds)
        both = timed(network, polar.step, seconds=2 * a.seconds)
        (idle,) = timed(network, seconds=a.seconds)
        other = Polar(a.library, name, [torch.randn(768, 768) for _ in range(6)])
        caches = timed(other.step, polar.step, seconds=2 * a.seconds)
        other.close()
        polar.close()
        alone["torch"].append(t), alone["polar"].append(q)
        ratios["torch_beside"].append(both[0] / t)
        ratios["polar_beside"].append(both[1] / q)
        ratios["torch_idle_device"].append(idle / t)
        ratios["polar_caches"].append(caches[1] / q), ratios["polar_threads"].append(both[1] / caches[1])
    print(
        json.dumps(
            {
                "device": name, "torch": torch.__version__,
                **{f"{k}_alone_s": statistics.median(v)
                   for k, v in alone.items()}, **{
                    k: {"median": round(statistics.median(v), 3), "best": round(min(v), 3)}
                    for k, v in ratios.items()
                }
            },
            indent=1))


if __name__ == "__main__":
    main()
