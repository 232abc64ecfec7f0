"""jax.py -- PolarAdamW and Muon for JAX: optax-like (init, update), with the polar maps of all matrices in
one call of libpolar.

    import polar.jax
    opt = polar.jax.polaradamw(5e-3, aux_learning_rate=5e-4)
    state = opt.init(params)
    updates, state = opt.update(grads, state, params)      # inside jax.jit
    params = jax.tree_util.tree_map(lambda p, u: p + u, params, updates)

The elementwise part is jax's own, which XLA fuses; the map is a handler of XLA's foreign function interface,
on the CPU.
"""
import ctypes
from pathlib import Path
from typing import Any, Callable, NamedTuple, Optional, Union

import jax
import jax.numpy as jnp
import numpy as np

from . import _abi
from ._library import _find, check, lib

_ffi = jax.ffi if hasattr(jax, "ffi") else jax.extend.ffi    # jax 0.4.31 to 0.4.37 had it there
Rate = Union[float, Callable[[Any], Any]]
_ready = False


class GradientTransformation(NamedTuple):
    """As optax's: init(params) and update(grads, state, params)."""

    init: Callable
    update: Callable


class State(NamedTuple):
    count: Any
    mu: Any
    nu: Any


def _register():
    """Hands the handler to XLA, once."""
    global _ready
    if not _ready:
        ctypes.CDLL(_find(), mode=ctypes.RTLD_GLOBAL)    # whose functions the handler calls
        handler = ctypes.CDLL(str(Path(_find()).resolve().with_name("libpolar_xla.so"))).polar_xla_map
        _ffi.register_ffi_target("polar_map", _ffi.pycapsule(handler), platform="cpu")
        _ready = True


def polar_map(*matrices, map: str = "ns_bf16_fused", steps: int = 0, eps: float = 0.0):
    """The polar maps of matrices (or batches of them) of any shapes, in one call: a tuple of as many."""
    _register()
    shapes = [jax.ShapeDtypeStruct(m.shape, m.dtype) for m in matrices]
    call = _ffi.ffi_call("polar_map", shapes, vmap_method="broadcast_all")
    return tuple(call(*matrices, map=map, steps=np.int64(steps), eps=np.float64(eps)))


def _scale(name, shape):
    kind = _abi.polar_scale()
    check(lib.polar_scale_parse(ctypes.byref(kind), name.encode()))
    return lib.polar_scale_value(kind, shape[-2], shape[-1])


def is_matrix(path, p) -> bool:
    """Two dimensions, and no embedding or head by its name; `matrix=` of the optimisers takes another such
    function.
    """
    name = jax.tree_util.keystr(path).lower()
    return p.ndim == 2 and not any(word in name for word in ("embed", "head", "wte", "wpe"))


def _optimiser(rule, learning_rate, aux_learning_rate, b1, b2, eps, decay, aux_decay, momentum, nesterov, map,
               steps, scale, matrix):
    def init(params):
        zeros = jax.tree_util.tree_map(jnp.zeros_like, params)
        if not any(jax.tree_util.tree_leaves(jax.tree_util.tree_map_with_path(matrix, params))):
            raise ValueError("no parameter takes the matrix rule: matrix=lambda path, p: ... says which do")
        return State(jnp.zeros([], jnp.int32), zeros, jax.tree_util.tree_map(jnp.zeros_like, params))

    def update(grads, state, params):
        count = state.count + 1
        t = count.astype(jnp.float32)
        lr, aux_lr = (rate(state.count) if callable(rate) else rate
                      for rate in (learning_rate, aux_learning_rate))
        paths, tree = jax.tree_util.tree_flatten_with_path(params)
        is_mapped = [bool(matrix(path, p)) for path, p in paths]
        leaves = zip(is_mapped, *(tree.flatten_up_to(x) for x in (grads, state.mu, state.nu)))
        mu, nu, direction = [], [], []
        for mapped, g, m, v in leaves:
            if mapped and rule == "muon":
                m = momentum * m + (1 - momentum) * g
                d = momentum * m + (1 - momentum) * g if nesterov else m
            else:
                m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g * g
                d = (m / (1 - b1**t)) / (jnp.sqrt(v / (1 - b2**t)) + eps)
            mu.append(m), nu.append(v), direction.append(d)
        chosen = [i for i, mapped in enumerate(is_mapped) if mapped]
        for i, x in zip(chosen, polar_map(*(direction[i] for i in chosen), map=map, steps=steps)):
            direction[i] = x * _scale(scale, x.shape)
        out = [
            -(lr if mapped else aux_lr) * (d + (decay if mapped else aux_decay) * p)
            for mapped, d, (_, p) in zip(is_mapped, direction, paths)
        ]
        return tree.unflatten(out), State(count, tree.unflatten(mu), tree.unflatten(nu))

    return GradientTransformation(init, update)


def polaradamw(learning_rate: Rate = 5e-3,
               b1: float = 0.9,
               b2: float = 0.999,
               eps: float = 1e-8,
               weight_decay: float = 0.05,
               *,
               aux_learning_rate: Rate = 5e-4,
               aux_weight_decay: Optional[float] = None,
               map: str = "ns_bf16_fused",
               steps: int = 0,
               scale: str = "paper",
               matrix: Callable = is_matrix) -> GradientTransformation:
    """PolarAdamW for matrices, AdamW for the rest. A learning rate is a number or a function of the count, as
    optax's schedules are.
    """
    aux = weight_decay if aux_weight_decay is None else aux_weight_decay
    return _optimiser("polaradamw", learning_rate, aux_learning_rate, b1, b2, eps, weight_decay, aux, 0.0,
                      False, map, steps, scale, matrix)


def muon(learning_rate: Rate = 1e-3,
         momentum: float = 0.95,
         nesterov: bool = True,
         weight_decay: float = 0.1,
         *,
         b1: float = 0.9,
         b2: float = 0.999,
         eps: float = 1e-8,
         aux_learning_rate: Rate = 3e-4,
         aux_weight_decay: float = 0.01,
         map: str = "ns_bf16_fused",
         steps: int = 0,
         scale: str = "jordan",
         matrix: Callable = is_matrix) -> GradientTransformation:
    """torch.optim.Muon's rule for matrices, AdamW for the rest."""
    return _optimiser("muon", learning_rate, aux_learning_rate, b1, b2, eps, weight_decay, aux_weight_decay,
                      momentum, nesterov, map, steps, scale, matrix)
