"""array_maps.py -- polar maps of numpy arrays and torch tensors, and how covariant a rule is."""
import sys
import threading
from ctypes import byref, c_void_p
from typing import Any, Dict, Tuple

from . import _abi
from ._library import Handle, check, check_queue, device, layout, lib, map_options, queue, tensor

_local = threading.local()
_NUMPY = {
    "float32": _abi.POLAR_DTYPE_F32, "float64": _abi.POLAR_DTYPE_F64, "float16": _abi.POLAR_DTYPE_F16,
    "bfloat16": _abi.POLAR_DTYPE_BF16
}


def _queue(name, stream=None):
    """This thread's queue of the device: a queue is driven by one thread at a time."""
    queues = _local.__dict__.setdefault("queues", {})
    if name not in queues or not queues[name].here:
        queues[name] = queue(device(name), stream)
    if stream is not None:
        check(lib.polar_queue_set_stream(queues[name].pointer, stream))
    return queues[name]


class _Array:
    """What a numpy array and a torch tensor have in common: packed memory on a device."""

    def __init__(self, x):
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(x, torch.Tensor):
            self.torch, x = torch, x.detach().contiguous()
            self.data, self.dtype = x.data_ptr(), str(x.dtype).replace("torch.", "")
            self.out = torch.empty_like(x)
            self.out_data = self.out.data_ptr()
            kind = x.device.type
            name = f"cuda:{x.device.index or 0}" if kind == "cuda" else str(x.device)
            self.device = "cpu" if kind == "cpu" else name
            self.stream = (torch.cuda.current_stream(x.device).cuda_stream or 1) if kind == "cuda" else None
        else:
            import numpy
            self.torch, x = None, numpy.ascontiguousarray(x)
            if x.dtype.kind in "iub":
                x = x.astype(numpy.float64)
            self.data, self.dtype, self.out = x.ctypes.data, x.dtype.name, numpy.empty_like(x)
            self.out_data, self.device, self.stream = self.out.ctypes.data, "cpu", None
        self.x, self.shape = x, tuple(x.shape)
        if self.dtype not in _NUMPY:
            raise TypeError(f"an array of {self.dtype}; polar maps take {', '.join(_NUMPY)}")
        if len(self.shape) < 2:
            raise ValueError(
                f"a matrix has two dimensions or more (the last two, the others are a batch); got the shape "
                f"{self.shape}"
            )
        if 0 in self.shape:
            raise ValueError(f"an empty matrix: shape {self.shape}")


def _apply(x, options):
    a = _Array(x)
    batch = 1
    for n in a.shape[:-2]:
        batch *= n
    shape = (batch, *a.shape[-2:])
    kind = _NUMPY[a.dtype]
    q = _queue(a.device, a.stream)
    check(
        lib.polar_map_apply(q.pointer, byref(tensor(a.out_data, kind, shape)),
                            byref(tensor(a.data, kind, shape)), 1, byref(options)))
    if a.stream is None:
        check(lib.polar_queue_sync(q.pointer))
    else:    # the work goes on, but what could not be enqueued is known
        check_queue(q)
    return a.out


def polar(G: Any, map: str = "exact") -> Any:
    """The polar factor U V^T of a matrix G = U S V^T, or of a batch of them; zero singular values stay zero.

    G is a numpy array or a torch tensor of two dimensions or more; the result is of its kind, format and
    place. map: also "power:0.5", which is U S^0.5 V^T (0 the polar factor, 1 the matrix), "soft:1" or one of
    Newton-Schulz.

    >>> import numpy as np
    >>> G = np.array([[3.0, 0.0], [4.0, 5.0]])
    >>> X = polar(G)
    >>> np.allclose(X @ X.T, np.eye(2))
    True
    >>> np.allclose(polar(2 * G), X)
    True
    >>> Y = polar(G, "power:0.5")
    >>> np.allclose(Y.T @ Y, X.T @ G)
    True
    """
    options, keep = map_options(map)
    out = _apply(G, options)
    del keep
    return out


def newton_schulz(G: Any,
                  steps: int = 5,
                  coefficients: Any = "jordan",
                  precision: str = "bf16",
                  rounding: str = "fused",
                  eps: float = 0.0) -> Any:
    """Newton-Schulz: X <- a X + (b A + c A A) X, A = X X^T, from X = G / max(||G||, eps).

    coefficients: a table's name ("jordan", "polar_express", "classical", ...), three numbers, or three for
    every step. precision: "bf16", "fp16", "fp32" or "fp64", of the iterates. rounding: "fused", "reference"
    or "gram" (bf16).

    >>> import numpy as np
    >>> G = np.random.default_rng(0).standard_normal((4, 8))
    >>> X = newton_schulz(G, steps=12, coefficients=(15/8, -5/4, 3/8), precision="fp64")
    >>> bool(np.abs(X - polar(G)).max() < 1e-12)
    True
    """
    name = f"ns_{precision}" + (f"_{rounding}" if precision in ("bf16", "fp16") else "")
    options, keep = map_options(name, steps, coefficients, eps)
    out = _apply(G, options)
    del keep
    return out


class _Rig:
    """An optimiser of one rule over one matrix of zeros, fed with numpy gradients."""

    def __init__(self, rule, shape, dtype, map):
        import numpy
        self.W, self.G = numpy.zeros(shape, dtype), numpy.zeros(shape, dtype)
        kind = _NUMPY[self.W.dtype.name]
        o = _abi.polar_optim_opts()
        check(lib.polar_optim_opts_parse_sized(byref(o), rule.encode(), byref(layout())))
        self.mapped = o.rule.map.kind != _abi.POLAR_MAP_NONE
        if o.rule.map.kind == _abi.POLAR_MAP_NEWTON_SCHULZ:
            o.rule.map, self.keep = map_options(map)
        cautious = o.rule.apply == _abi.POLAR_APPLY_CAUTIOUS    # of nothing, without a decay
        self.looks = cautious or o.rule.apply >= _abi.POLAR_APPLY_HYPERBALL    # at the weights
        o.lr, o.weight_decay = 1e-3, 0.1 if cautious else 0
        p = _abi.polar_param(b"w", tensor(self.W.ctypes.data, kind, shape),
                             tensor(self.G.ctypes.data, kind, shape), _abi.POLAR_ROUTE_MATRIX, 0, 0, 0, 0)
        dev, out = device("cpu"), c_void_p()
        check(lib.polar_optim_create_sized(byref(out), dev.pointer, byref(p), 1, byref(o), byref(layout())))
        self.queue = _queue("cpu")
        self.handle = Handle(out, lib.polar_optim_destroy, keep=(dev,))

    def step(self, g):
        self.G[:] = g
        check(lib.polar_optim_step(self.handle.pointer, self.queue.pointer))
        check(lib.polar_queue_sync(self.queue.pointer))


def covariance(rule: str,
               shape: Tuple[int, int] = (16, 32),
               samples: int = 20,
               steps: int = 6,
               map: str = "ns_bf16_fused",
               dtype: str = "float32",
               seed: int = 0) -> Dict[str, float]:
    """How far a whole rule is from treating all bases alike: two optimisers, one fed g_t, the other P g_t Q^T
    with random rotations; the last updates are compared, ||u' - P u Q^T|| / ||u||, over so many samples. 0 is
    covariant; AdamW is near 1. Weights begin at zero, or at a draw and its rotation where the rule looks at
    them.

    >>> r = covariance("muon", (8, 12), samples=4, map="exact", dtype="float64")
    >>> r["mean"] < 1e-9
    True
    >>> covariance("adamw", (8, 12), samples=4)["mean"] > 0.3
    True
    """
    import numpy
    rng, seen = numpy.random.default_rng(seed), []

    def rotation(n):
        q, r = numpy.linalg.qr(rng.standard_normal((n, n)))
        return q * numpy.sign(numpy.diag(r))

    for _ in range(samples):
        P, Q, C = rotation(shape[0]), rotation(shape[1]), rng.standard_normal(shape)
        a, b = _Rig(rule, shape, dtype, map), _Rig(rule, shape, dtype, map)
        if a.looks:
            a.W[...], b.W[...] = C, P @ C @ Q.T
        for t in range(steps):
            g = C + rng.standard_normal(shape)
            if t == steps - 1:
                before = a.W.astype(float), b.W.astype(float)
            a.step(g)
            b.step(P @ g @ Q.T)
        u, v = a.W - before[0], b.W - before[1]
        seen.append(float(numpy.linalg.norm(v - P @ u @ Q.T) / numpy.linalg.norm(u)))
    return {
        "rule": rule, "map": map, "rows": shape[0], "cols": shape[1], "samples": samples, "steps": steps,
        "mean": float(numpy.mean(seen)), "sd": float(numpy.std(seen, ddof=1)) if samples > 1 else float("nan")
    }
