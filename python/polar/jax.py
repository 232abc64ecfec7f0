"""jax.py -- libpolar's optimisers for JAX: optax-like (init, update), and a step in place; every rule of the
library, a whole step as one call.

    import polar.jax
    opt = polar.jax.polaradamw(5e-3, aux_learning_rate=5e-4)    # or muon(...), optimizer("normuon", ...)
    state = opt.init(params)

    @partial(jax.jit, donate_argnums=(0, 1))
    def train(params, state, batch):
        grads = jax.grad(loss)(params, batch)
        return opt.step(params, grads, state)                   # weights and state where they lie

A step is a handler of XLA's foreign function interface, on the CPU and on NVIDIA GPUs; it has the bits of the
library's own.
"""
from typing import Any, Callable, Dict, NamedTuple, Optional, Sequence, Union

import jax
import jax.numpy as jnp
import numpy as np
from jax import export

from ._library import lib, names
from .jax_mesh import share
from .jax_native import define, ffi, handlers, steppable
from .jax_routes import decide, is_matrix
from .routes import MATRIX, Routes
from .rules import checked_constants, own_numbers

__all__ = ["GradientTransformation", "Optimizer", "State", "is_matrix", "muon", "optimizer", "polar_map",
           "polaradamw"]

Rate = Union[float, Callable[[Any], Any]]
Patterns = Union[str, Sequence[str], None]
_LAYOUTS = ("in_out", "out_in")


def polar_map(*matrices, map: str = "ns_bf16_fused", steps: int = 0, eps: float = 0.0):
    """The polar maps of matrices (or batches of them) of any shapes, in one call: a tuple of as many."""
    handlers()
    shapes = [jax.ShapeDtypeStruct(m.shape, m.dtype) for m in matrices]
    call = ffi.ffi_call("polar_map", shapes, vmap_method="broadcast_all")
    return tuple(call(*matrices, map=map, steps=np.int64(steps), eps=np.float64(eps)))


class GradientTransformation(NamedTuple):
    """As optax's: init(params) and update(grads, state, params)."""

    init: Callable
    update: Callable


class State(NamedTuple):
    """count: steps so far, which learning rates are functions of. memory: moments, master copies of bf16
    weights and the rest, as the library lays them out; `Optimizer.save` writes them by name.
    """

    count: Any
    memory: Any


export.register_namedtuple_serialization(State, serialized_name="polar.jax.State")


class _Steps:
    """What the functions of an optimiser are of."""

    def __init__(self, config, rates, where, shared):
        self._config, self._rates, self._where, self._shared = config, rates, where, shared
        self._tables = {}

    def routes(self, params) -> Routes:
        leaves, tree = jax.tree_util.tree_flatten(params)
        if not leaves:
            raise ValueError("there are no parameters")
        key = tree, tuple(getattr(p, "shape", None) for p in leaves)
        if key not in self._tables:
            table = decide(params, self._config["rule"], transposed=self._config["transposed"], **self._where)
            if self._config["rule"] != "adamw" and not any(r.route == MATRIX for r in table):
                raise ValueError(
                    f"no parameter takes the matrix rule:\n{table}\nmatrix=[patterns], or a function of "
                    "(path, leaf), says which do")
            self._tables[key] = table
        return self._tables[key]

    def _definition(self, params, grads):
        given = self.routes(params), jax.tree_util.tree_leaves(params), grads, self._config
        return share(*given, *self._shared) if self._shared else define(*given)

    def init(self, params):
        self.routes(params)    # or a sentence
        leaves = jax.tree_util.tree_leaves(params)
        grads = [jax.ShapeDtypeStruct(p.shape, p.dtype) for p in leaves]
        return State(jnp.zeros([], jnp.int32), self._definition(params, grads).begin(leaves))

    def step(self, params, grads, state):
        leaves, tree = jax.tree_util.tree_flatten(params)
        table, given = self.routes(params), tree.flatten_up_to(grads)
        absent = [r.name for r, g in zip(table, given) if g is None]
        if absent:
            raise ValueError(
                f"no gradient of {', '.join(absent)}: leave them out of params, too, or give zeros")
        given = [steppable(g) for g in given]
        for r, p, g in zip(table, leaves, given):
            if p.shape != g.shape:
                raise ValueError(
                    f"the gradient of '{r.name}' has the shape {g.shape}, the parameter {p.shape}")
        definition = self._definition(params, given)
        if state.memory.shape != definition.shape:
            raise ValueError(f"the state has {state.memory.shape} bytes, one of these parameters "
                             f"{definition.shape}: it is another optimiser's, or of other parameters")
        lr, aux_lr = (rate(state.count) if callable(rate) else rate for rate in self._rates)
        mapped = np.array([r.route == MATRIX for r in definition.table])
        rates = jnp.where(mapped, lr, aux_lr).astype(jnp.float32)
        weights, memory = definition.step(leaves, given, state.memory, rates)
        return tree.unflatten(weights), State(state.count + 1, memory)

    def update(self, grads, state, params=None):
        if params is None:
            raise ValueError("update(grads, state, params): a step looks at the parameters, too")
        new, state = self.step(params, grads, state)
        return jax.tree_util.tree_map(lambda a, b: a - b, new, params), state

    def save(self, path, params, state):
        leaves = jax.tree_util.tree_leaves(params)
        self._definition(params, leaves).save(path, leaves, state.memory)

    def load(self, path, params) -> State:
        leaves = jax.tree_util.tree_leaves(params)
        count, memory = self._definition(params, leaves).load(path, leaves)
        return State(jnp.asarray(count, jnp.int32), jnp.asarray(memory))


class Optimizer(GradientTransformation):
    """(init, update) as optax has them, and

    step(params, grads, state): the new params and state; with both donated, in place.
    routes(params): which leaf takes the rule, and why.
    save(path, params, state), load(path, params): the state as a safetensors file, the library's own.

    It is a tuple of its two functions and nothing more, so jax and flax may take it apart and make it anew.
    """

    __slots__ = ()

    @property
    def _steps(self) -> _Steps:
        return self.init.__self__

    def routes(self, params) -> Routes:
        """A row a leaf, which prints as a table."""
        return self._steps.routes(params)

    def step(self, params, grads, state):
        """The params and the state after a step."""
        return self._steps.step(params, grads, state)

    def save(self, path, params, state):
        """The state by the names of the leaves; a later version of the library reads it."""
        self._steps.save(path, params, state)

    def load(self, path, params) -> State:
        """The state of a file; bf16 `params` come from their own checkpoint and are not changed."""
        return self._steps.load(path, params)


def _numbers(**numbers):
    return {k: float(v) for k, v in numbers.items()}


def optimizer(rule: str = "polaradamw",
              learning_rate: Optional[Rate] = None,
              *,
              b1: Optional[float] = None,
              b2: Optional[float] = None,
              eps: Optional[float] = None,
              weight_decay: Optional[float] = None,
              momentum: Optional[float] = None,
              nesterov: bool = True,
              map: Optional[str] = None,
              steps: int = 5,
              coefficients: Any = None,
              scale: Optional[str] = None,
              constants: Optional[Dict[str, float]] = None,
              aux_learning_rate: Rate = 5e-4,
              aux_b1: float = 0.9,
              aux_b2: float = 0.999,
              aux_eps: float = 1e-8,
              aux_weight_decay: Optional[float] = None,
              layout: str = "in_out",
              matrix: Union[Patterns, Callable] = None,
              adamw: Patterns = None,
              blocks: Optional[Dict[str, int]] = None,
              flatten: Optional[Dict[str, Union[int, Sequence[int]]]] = None,
              skip_nonfinite: bool = False,
              kron_tf32: bool = False,
              mesh: Optional[jax.sharding.Mesh] = None,
              axis: Optional[str] = None) -> Optimizer:
    """A rule of the library for matrices, AdamW for the rest. What is not given is the rule's own number
    (docs/rules.md).

    learning_rate, aux_learning_rate: numbers, or functions of the count as optax's schedules are.
    layout: how a matrix lies: "in_out" (x @ W: flax, haiku) or "out_in" (W @ x: equinox, torch). It decides
        what scales and moments of lines take for the outputs.
    matrix, adamw: patterns of names ("params.*.kernel"), or, of matrix, a function of (path, leaf). Of leaves
        with more than two dimensions the last two are a matrix, the others count them.
    blocks: {pattern: n}: the outputs of such a matrix in n equal blocks, each mapped by itself (qkv: 3).
    flatten: {pattern: n}: of such a leaf the first n axes are the rows of one matrix, the others its columns
        (flax's filters: 3; heads of a projection (in, heads, size): 1). {pattern: (m, n)}: the first m number
        matrices, those up to the n-th are rows.
    skip_nonfinite: a step with an infinity or a NaN in any gradient changes nothing but `count`.
    kron_tf32: of rules with Kronecker factors (SOAP's), products take factors in tf32: faster on a GPU.
    mesh, axis: the step is shared out among the devices along that axis: each steps some of the leaves and
        keeps their state alone. Weights and gradients are taken, and weights given, whole on every device.
    """
    if mesh is not None and axis not in mesh.shape:
        raise ValueError(f"axis={axis!r}; the mesh has {', '.join(repr(name) for name in mesh.shape)}")
    known = names(lib.polar_rule_name)
    if rule not in known:
        raise ValueError(f"no rule '{rule}' (there are: {', '.join(known)})")
    if layout not in _LAYOUTS:
        raise ValueError(f"layout={layout!r}; there are 'in_out' and 'out_in'")
    own = own_numbers(rule)
    own_b1, own_b2 = own["betas"]
    lr, decay = (own[k] if v is None else v
                 for k, v in (("lr", learning_rate), ("weight_decay", weight_decay)))
    divisor = own["eps"] if eps is None else eps
    b1, b2 = own_b1 if b1 is None else b1, own_b2 if b2 is None else b2
    if rule == "adamw":    # which has everything
        aux_learning_rate, aux_b1, aux_b2, aux_eps, aux_weight_decay = lr, b1, b2, divisor, decay
    config = dict(rule=rule,
                  constants=checked_constants(rule, constants or {}),
                  betas=(float(b1), float(b2)),
                  **_numbers(eps=divisor,
                             weight_decay=decay,
                             momentum=own["momentum"] if momentum is None else momentum,
                             aux_eps=aux_eps,
                             aux_weight_decay=decay if aux_weight_decay is None else aux_weight_decay),
                  aux_betas=(float(aux_b1), float(aux_b2)),
                  nesterov=bool(nesterov),
                  map=own["map"] if map is None else map,
                  ns_steps=steps,
                  ns_coefficients=getattr(coefficients, "tolist", lambda: coefficients)(),
                  adjust_lr_fn=own["adjust_lr_fn"] if scale is None else scale,
                  transposed=layout == "in_out",
                  skip_nonfinite=bool(skip_nonfinite),
                  kron_tf32=bool(kron_tf32))
    steps = _Steps(config, (lr, aux_learning_rate),
                   dict(matrix=matrix, adamw=adamw, blocks=blocks, flatten=flatten),
                   (mesh, axis) if mesh is not None else None)
    return Optimizer(steps.init, steps.update)


def polaradamw(learning_rate: Rate = 5e-3,
               b1: float = 0.9,
               b2: float = 0.999,
               eps: float = 1e-8,
               weight_decay: float = 0.05,
               **options) -> Optimizer:
    """PolarAdamW for matrices, AdamW with the same b1, b2 and eps for the rest; options as of `optimizer`."""
    aux = dict(aux_b1=b1, aux_b2=b2, aux_eps=eps)
    return optimizer("polaradamw", learning_rate, b1=b1, b2=b2, eps=eps, weight_decay=weight_decay,
                     **{**aux, **options})


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
         scale: str = "jordan",
         **options) -> Optimizer:
    """torch.optim.Muon's rule for matrices, AdamW with b1, b2 and eps for the rest; options as of
    `optimizer`.
    """
    return optimizer("muon", learning_rate, momentum=momentum, nesterov=nesterov, weight_decay=weight_decay,
                     eps=0.0, aux_learning_rate=aux_learning_rate, aux_weight_decay=aux_weight_decay,
                     aux_b1=b1, aux_b2=b2, aux_eps=eps, scale=scale, **options)
