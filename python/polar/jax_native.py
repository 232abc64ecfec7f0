"""jax_native.py -- definitions of libpolar's optimisers for XLA, and the calls that step them.

A definition is what polar_optim_create takes: parameters by name, shape, format and route, and options. The
handlers (python/xla) make an optimiser of it on the device a call comes from; weights, gradients, state and
rates are the call's. Its invariants:

- A definition is named by a hash of all that it is, so a compiled step finds its own or none, in any process.
- What a definition points to lives as long as the process; threads that trace side by side make one of a
  name.
- The state's layout depends on weights, routes and rule, not on the gradients' formats or the device.
"""
import ctypes
import hashlib
import threading
from ctypes import byref, c_char_p, c_int, c_int64, c_void_p
from math import prod
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax import ffi

from . import _abi
from ._library import Handle, _find, check, device, layout, lib, queue, tensor
from .routes import MATRIX
from .rules import divides, rule_of

_FORMATS = {
    "float32": _abi.POLAR_DTYPE_F32, "float64": _abi.POLAR_DTYPE_F64, "bfloat16": _abi.POLAR_DTYPE_BF16
}
_MOMENTS = (_abi.POLAR_STATE_MOMENTUM, _abi.POLAR_STATE_SECOND_MOMENT, _abi.POLAR_STATE_MASTER)
_OF_PARTS = range(_abi.POLAR_STATE_POST, _abi.POLAR_STATE_RIGHT_FACTORS + 1)
_ALIGN = 64         # of a state's address
_definitions = {}   # by name; kept
_defining = threading.Lock()
_handlers = None


def handlers():
    """libpolar_xla.so, its handlers known to XLA."""
    global _handlers
    if _handlers is None:
        ctypes.CDLL(_find(), mode=ctypes.RTLD_GLOBAL)    # whose functions they call
        so = ctypes.CDLL(str(Path(_find()).resolve().with_name("libpolar_xla.so")))
        for name in ("map", "begin", "step"):
            for platform, suffix in (("cpu", ""), ("CUDA", "_cuda")):
                handler = ffi.pycapsule(getattr(so, f"polar_xla_{name}{suffix}"))
                ffi.register_ffi_target(f"polar_{name}", handler, platform=platform)
        so.polar_xla_define.argtypes = [c_char_p, c_void_p, c_int64, c_void_p, c_void_p]
        so.polar_xla_define.restype = c_int
        _handlers = so
    return _handlers


def step_format(p, name):
    """The library's format of a weight, or an exception."""
    if str(p.dtype) not in _FORMATS:
        raise TypeError(f"'{name}' is {p.dtype}; an optimiser takes float32, bfloat16 and float64 weights")
    return _FORMATS[str(p.dtype)]


# lines of (in, out) matrices are the other way round
_TURNED = {
    "scale": {
        _abi.POLAR_SCALE_JORDAN: _abi.POLAR_SCALE_JORDAN_TRANSPOSED,
        _abi.POLAR_SCALE_SPECTRAL: _abi.POLAR_SCALE_TRANSPOSED,
    },
    "post": {_abi.POLAR_POST_ROW_MOMENT: _abi.POLAR_POST_COLUMN_MOMENT},
    "precondition": {_abi.POLAR_PRECONDITION_ROWS: _abi.POLAR_PRECONDITION_COLUMNS},
}


def _turn(rule):
    for field, swaps in _TURNED.items():
        both = {**swaps, **{b: a for a, b in swaps.items()}}
        value = getattr(rule, field)
        setattr(rule, field, both.get(value, value))


def _options(c):
    """polar_optim_opts of a configuration, and what it points to."""
    o = _abi.polar_optim_opts()
    check(lib.polar_optim_opts_parse_sized(byref(o), c["rule"].encode(), byref(layout())))
    rule, keep = rule_of(c, c)
    if c["transposed"]:
        _turn(rule)
    rule.beta1, rule.beta2 = c["betas"]
    if rule.momentum != _abi.POLAR_MOMENTUM_EMA:
        rule.beta1 = c["momentum"]
    if divides(rule):
        rule.eps = c["eps"]
    o.rule, o.weight_decay = rule, c["weight_decay"]
    (o.aux_beta1, o.aux_beta2), o.aux_eps = c["aux_betas"], c["aux_eps"]
    o.aux_weight_decay = c["aux_weight_decay"]
    o.allow_no_matrix = o.placed = o.skip_missing = 1
    o.kron_tf32 = int(c["kron_tf32"])
    o.skip_nonfinite = _abi.POLAR_SKIP_NONFINITE if c["skip_nonfinite"] else _abi.POLAR_SKIP_NEVER
    return o, keep


def _param(r, dtype, grad):
    """polar_param of a leaf, and what it points to. What takes AdamW, and stacks, are vectors to the
    library.
    """
    shape = r.shape if r.route == MATRIX and r.views is None else (prod(r.shape), )
    blocks = [_abi.polar_block(*v, 0) for v in r.views or ()]
    views = (_abi.polar_block * len(blocks))(*blocks) if blocks else None
    route = _abi.POLAR_ROUTE_MATRIX if r.route == MATRIX else _abi.POLAR_ROUTE_AUX
    return _abi.polar_param(r.name.encode(), tensor(None, dtype, shape), tensor(None, grad, shape), route, 0,
                            0, 0, 0, 0, 0, views, len(blocks)), views


class Definition:
    """A rule over leaves: routes, formats of weights and gradients, a configuration."""

    def __init__(self, name, table, formats, grads, config):
        self.name, self.table = name, table
        pieces = [_param(*x) for x in zip(table, formats, grads)]
        self.opts, keep = _options(config)
        self.params = (_abi.polar_param * len(pieces))(*(p for p, _ in pieces))
        self.layout, self._keep = layout(), (pieces, keep)
        opt = self.create()
        self.shape = (max(lib.polar_optim_placed_bytes(opt.pointer), 1), )    # of the state
        if not handlers().polar_xla_define(name.encode(), self.params, len(pieces), byref(self.opts),
                                           byref(self.layout)):
            raise MemoryError("polar: no memory for an optimiser's definition")

    def create(self):
        """An optimiser of it on the CPU."""
        dev, out = device("cpu"), c_void_p()
        check(lib.polar_optim_create_sized(byref(out), dev.pointer, self.params, len(self.params),
                                           byref(self.opts), byref(self.layout)))
        return Handle(out, lib.polar_optim_destroy, keep=(dev, self))

    # ---- calls in XLA, under jax's transformations ----

    def _call(self, target, leaves, others, memory, behind=()):
        """Weights and the state after a call, in the memory of those before it."""
        n, state_at = len(leaves), len(leaves) + len(others)
        shapes = [jax.ShapeDtypeStruct(p.shape, p.dtype) for p in (*leaves, memory)]
        aliases = {**{i: i for i in range(n)}, state_at: n}
        call = ffi.ffi_call(target, shapes, vmap_method="sequential", input_output_aliases=aliases)
        *weights, memory = call(*leaves, *others, memory, *behind, definition=self.name)
        return weights, memory

    def begin(self, leaves, memory=None):
        """memory: where the state is to be; as many bytes or more."""
        memory = jnp.zeros(self.shape, jnp.uint8) if memory is None else memory
        return self._call("polar_begin", leaves, [], memory)[1]

    def step(self, leaves, grads, memory, rates, bad=None):
        """bad: a float that leaves the step out where it is not 0, for one with skip_nonfinite."""
        return self._call("polar_step", leaves, grads, memory, [rates] if bad is None else [rates, bad])

    # ---- files, by the host ----

    def placed(self, leaves, memory):
        return _Placed(self, leaves, memory)

    def save(self, path, leaves, memory):
        self.placed(leaves, memory).save(path)

    def load(self, path, leaves):
        own = self.placed(leaves, None)
        own.load(path)
        return own.count(), own.state


class _Placed:
    """An optimiser on the host with copies of weights and state; without memory, the state of a new one."""

    def __init__(self, definition, leaves, memory):
        self._table, self._weights = definition.table, [np.array(p) for p in leaves]
        self._opt, self._q = definition.create(), queue(device("cpu"))
        room = np.empty(definition.shape[0] + _ALIGN, np.uint8)
        self.state = room[-room.ctypes.data % _ALIGN:][:definition.shape[0]]
        at = (c_void_p * len(self._weights))(*(w.ctypes.data for w in self._weights))
        none = (c_void_p * len(self._weights))()
        check(lib.polar_optim_place(self._opt.pointer, at, none, len(self._weights), self.state.ctypes.data))
        if memory is None:
            check(lib.polar_optim_restart(self._opt.pointer, self._q.pointer))
            check(lib.polar_queue_sync(self._q.pointer))
        else:
            self.state[:] = np.asarray(memory)[:len(self.state)]

    def save(self, path):
        check(lib.polar_optim_save(self._opt.pointer, self._q.pointer, str(path).encode()))

    def load(self, path):
        check(lib.polar_optim_load_with(self._opt.pointer, self._q.pointer, str(path).encode(),
                                        _abi.POLAR_LOAD_STATE))
        check(lib.polar_queue_sync(self._q.pointer))

    def count(self):
        """Steps so far, those that were left out, too."""
        return sum(count(self._opt.pointer) for count in (lib.polar_optim_get_step, lib.polar_optim_skipped))

    def _bytes(self, i, which, part=None):
        """A piece of leaf i's state, or of a part's of it; nothing where there is none."""
        t = _abi.polar_tensor()
        if part is None:
            check(lib.polar_optim_state_view(byref(t), self._opt.pointer, i, which))
        else:
            check(lib.polar_optim_part_view(byref(t), self._opt.pointer, i, part, which))
        if not t.data:
            return self.state[:0]
        at = t.data - self.state.ctypes.data
        return self.state[at:at + lib.polar_dtype_size(t.dtype) * prod(t.shape[k] for k in range(t.ndim))]

    def kept(self, i, begin=0, end=None):
        """All that is kept of leaf i, or of a range of it with the matrices that begin there: of each kind a
        list of arrays, which is one run of bytes.
        """
        r = self._table[i]
        size = prod(r.shape)
        end = size if end is None else end
        out = [_cut([self._bytes(i, which)], begin, end, max(size, 1)) for which in _MOMENTS]
        out.append([self._bytes(i, _abi.POLAR_STATE_STEPS)])
        if r.route == MATRIX:
            begins = [v[0] for v in r.views or ((0, ), )]    # of matrices of one shape
            first, last = (sum(b < at for b in begins) for at in (begin, end))
            for which in _OF_PARTS:
                parts = range(lib.polar_optim_part_count(self._opt.pointer, i))
                out.append(_cut([self._bytes(i, which, k) for k in parts], first, last, len(begins)))
        return out


def _cut(arrays, begin, end, of):
    """The share from begin to end, in parts of `of`, of the run of bytes that arrays are."""
    total, at, out = sum(map(len, arrays)), 0, []
    begin, end = total * begin // of, total * end // of
    for a in arrays:
        out.append(a[max(begin - at, 0):max(end - at, 0)])
        at += len(a)
    return out


def copy_kept(to, source):
    """What _Placed.kept gave of one, to where it gave the like of another."""
    for ours, theirs in zip(to, source):
        run, at = np.concatenate(theirs), 0
        for a in ours:
            a[:] = run[at:at + len(a)]
            at += len(a)


def define(table, leaves, grads, config):
    """The definition of these leaves and gradients, made once."""
    formats = [step_format(p, r.name) for p, r in zip(leaves, table)]
    of_grads = [_FORMATS[str(g.dtype)] for g in grads]
    told = repr((_abi.POLAR_VERSION, sorted(config.items()), formats, of_grads,
                 [(r.name, r.shape, r.route, r.views) for r in table]))
    name = "polar-" + hashlib.sha256(told.encode()).hexdigest()
    with _defining:
        if name not in _definitions:
            _definitions[name] = Definition(name, table, formats, of_grads, config)
        return _definitions[name]


def steppable(g):
    """A gradient as the library takes it."""
    return g if str(g.dtype) in _FORMATS else g.astype(jnp.float32)
