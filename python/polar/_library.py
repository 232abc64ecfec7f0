"""_library.py -- libpolar.so as Python has it: loaded once, its errors as one exception, handles that end in
order.
"""
import ctypes
import os
import threading
import weakref
from ctypes import byref, c_void_p, sizeof
from pathlib import Path

from . import _abi


class PolarError(RuntimeError):
    """What libpolar refused or could not do; `status` is its code, e.g. "shape mismatch"."""

    def __init__(self, message, status=""):
        super().__init__(message)
        self.status = status


def _find():
    given = os.environ.get("POLAR_LIBRARY")
    if given:
        return given
    return str(Path(__file__).with_name("libpolar.so"))


def _load():
    path = _find()
    try:
        lib = ctypes.CDLL(path)
    except OSError as e:
        raise ImportError(
            f"libpolar could not be loaded from {path}: {e} (POLAR_LIBRARY names another)") from e
    for name, (result, arguments) in _abi.FUNCTIONS.items():
        function = getattr(lib, name, None)
        if function is None:
            raise ImportError(f"{path} has no {name}: it is older than this package ({_abi.POLAR_VERSION})")
        function.restype, function.argtypes = result, arguments
    return lib


lib = _load()


def check(status):
    """Raises the library's sentence where a call did not succeed."""
    if status:
        raise PolarError(lib.polar_error_message().decode(errors="replace"),
                         lib.polar_status_name(status).decode())


def layout():
    out = _abi.polar_optim_layout()
    out.struct_size = sizeof(out)
    for name in ("map_opts", "rule", "schedule", "param", "optim_opts", "group", "block"):
        setattr(out, name, sizeof(getattr(_abi, "polar_" + name)))
    return out


def _destroy(function, pointer, pid, keep):
    """In the process that made the object: a fork's child leaves its parent's alone."""
    if os.getpid() == pid:
        function(pointer)


class Handle:
    """A pointer of libpolar's, destroyed with its last reference, or never when the interpreter ends first:
    memory that others may still look at goes with the process."""

    def __init__(self, pointer, destroy, keep=()):
        self.pointer, self.pid, self.keep = pointer, os.getpid(), keep
        self._end = weakref.finalize(self, _destroy, destroy, pointer, self.pid, keep)
        self._end.atexit = False

    @property
    def here(self):
        return os.getpid() == self.pid


_devices = {}
_devices_lock = threading.Lock()


def _again_in_child():
    global _devices_lock
    _devices_lock = threading.Lock()
    for name in [name for name in _devices if name.startswith("cuda")]:
        del _devices[name]    # CUDA does not survive a fork; opening it anew says so


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_again_in_child)


def device(name):
    """The process's device of that name, opened when first wanted; it stays."""
    with _devices_lock:
        if name not in _devices:
            out = c_void_p()
            check(lib.polar_device_open(byref(out), name.encode()))
            _devices[name] = Handle(out, lib.polar_device_close)
        return _devices[name]


def queue(dev, stream=None):
    out = c_void_p()
    check(lib.polar_queue_create(byref(out), dev.pointer, stream))
    return Handle(out, lib.polar_queue_destroy, keep=(dev,))


def check_queue(q):
    """Raises the first error that the queue keeps, which goes with it; where there is none nothing waits, as
    in a dry run.
    """
    cost = _abi.polar_cost()
    check(lib.polar_queue_dry_begin(q.pointer))
    check(lib.polar_queue_dry_end_sized(q.pointer, byref(cost), sizeof(cost)))


def names(function):
    """What a call such as polar_rule_name lists."""
    out, i = [], 0
    while True:
        name = function(i)
        if name is None:
            return out
        out.append(name.decode())
        i += 1


def tensor(data, dtype, shape):
    """A packed polar_tensor of these sizes."""
    if len(shape) > _abi.POLAR_MAX_DIMS:
        raise PolarError(f"{len(shape)} dimensions; at most {_abi.POLAR_MAX_DIMS} can be had")
    out = _abi.polar_tensor(data, dtype, len(shape))
    stride = 1
    for i in reversed(range(len(shape))):
        out.shape[i], out.stride[i] = shape[i], stride
        stride *= shape[i]
    return out


def _rows(coefficients):
    """Numbers, or rows of them, as rows; what is neither as an empty one."""
    try:
        given = coefficients.tolist() if hasattr(coefficients, "tolist") else list(coefficients)
        rows = given if given and hasattr(given[0], "__len__") else [given]
        return [tuple(float(x) for x in row) for row in rows]
    except TypeError:
        return [()]


def map_options(name="ns_bf16_fused", steps=None, coefficients=None, eps=None):
    """polar_map_opts by name ("ns_fp32", "power:0.5", ...), and what keeps its coefficients alive."""
    out = _abi.polar_map_opts()
    kind, _, power = name.partition(":")
    check(lib.polar_map_opts_parse_sized(byref(out), sizeof(out), kind.encode()))
    if power:
        if out.kind <= _abi.POLAR_MAP_EXACT:
            raise ValueError(f"a number belongs to the maps 'power' and 'soft' alone, not to {name!r}")
        out.power = float(power)
    keep = None
    if steps is not None:
        out.steps = steps
    if isinstance(coefficients, str):
        keep = coefficients.encode()
        out.table = keep
    elif coefficients is not None:
        rows = _rows(coefficients)
        if any(len(row) != 3 for row in rows):
            raise ValueError(
                f"Newton-Schulz coefficients are three numbers, or three for every step; got {coefficients!r}"
            )
        if not 0 <= out.steps <= _abi.POLAR_MAX_STEPS:
            raise ValueError(f"{out.steps} Newton-Schulz steps; from 0 to {_abi.POLAR_MAX_STEPS} can be had")
        keep = (_abi.polar_coef * max(out.steps, 1))(*[rows[min(i, len(rows) - 1)] for i in range(out.steps)])
        out.coefs = keep
    if eps is not None:
        out.eps = eps
    return out, keep
