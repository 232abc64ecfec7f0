"""jax_mesh.py -- a step shared out among the devices along an axis of a mesh.

Each device steps some of the weights and alone keeps their state; then all get the new ones of all. A matrix
is whole on one device, those of a stack on several; of what has no polar map each steps an equal range.
Gradients are those of the whole batch, on every device, as jit makes them of replicated weights. Its
invariants:

- The weights are those of an optimiser that steps everything by itself, bit for bit, for every number of
  devices.
- The state is an array (devices, bytes), cut along the axis: a row is a device's own.
- A file is that of the whole, whatever the number of devices.
"""
from functools import partial
from math import prod

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec

from .jax_native import copy_kept, define
from .routes import MATRIX, Route, Routes

_shares = {}


def _over(mesh, inner, inputs, outputs):
    """inner on every device of the mesh, which sees its own part."""
    if hasattr(jax, "shard_map"):
        return jax.shard_map(inner, mesh=mesh, in_specs=inputs, out_specs=outputs, check_vma=False)
    from jax.experimental.shard_map import shard_map

    return shard_map(inner, mesh=mesh, in_specs=inputs, out_specs=outputs, check_rep=False)


def _apart(r):
    """Ranges of a leaf that may be on several devices, (begin, end, cost of a step): a pass over the weights,
    and the map's products.
    """
    out = []
    for begin, rows, cols, ld in sorted(r.views or [(0, *r.shape, r.shape[1])]):
        end, cost = begin + (rows - 1) * ld + cols, rows * cols * (1 + min(rows, cols) / 32)
        if out and begin < out[-1][1]:    # matrices side by side, row by row
            end, begin, cost = max(end, out[-1][1]), out[-1][0], cost + out.pop()[2]
        out.append((begin, end, cost))
    return out


def _give(pieces, i, begin, end):
    """A range of leaf i more, on a device; next to the last one it is the same piece."""
    if pieces and pieces[-1][0] == i and pieces[-1][2] == begin:
        begin = pieces.pop()[1]
    pieces.append((i, begin, end))


def _cut_up(table, n):
    """For each of n devices its (leaf, begin, end): matrices in their order by what they cost, then an equal
    range of all other weights.
    """
    own, at = [[] for _ in range(n)], 0
    atoms = [(i, *atom) for i, r in enumerate(table) if r.route == MATRIX for atom in _apart(r)]
    total = sum(cost for *_, cost in atoms)
    for i, begin, end, cost in atoms:
        _give(own[min(int((at + cost / 2) * n / total), n - 1)], i, begin, end)
        at += cost
    rest = [(i, prod(r.shape)) for i, r in enumerate(table) if r.route != MATRIX]
    total, at = sum(size for _, size in rest), 0
    for i, size in rest:
        for k in range(n):
            begin, end = (min(max(total * j // n - at, 0), size) for j in (k, k + 1))
            if begin < end or (size == 0 and k == 0):
                _give(own[k], i, begin, end)
        at += size
    return own


def _bytes(x):
    return lax.bitcast_convert_type(x, jnp.uint8).reshape(-1)


def _from_bytes(b, dtype):
    return lax.bitcast_convert_type(b.reshape(-1, np.dtype(dtype).itemsize), dtype)


class Share:
    """A definition's calls, made by the devices along an axis together."""

    def __init__(self, whole, leaves, grads, config, mesh, axis):
        self.whole, self.table, self.mesh, self.axis = whole, whole.table, mesh, axis
        self.n = mesh.shape[axis]
        self.own = _cut_up(whole.table, self.n)
        self.parts = [self._define(pieces, leaves, grads, config) for pieces in self.own]
        self.flagged = config["skip_nonfinite"]
        self.shape = (self.n, max(part.shape[0] for part in self.parts if part))
        self._sent = max(sum((end - begin) * leaves[i].dtype.itemsize for i, begin, end in pieces)
                         for pieces in self.own)
        self._begin, self._step = self._compiled()

    def _define(self, pieces, leaves, grads, config):
        def row(i, begin, end):
            r = self.table[i]
            if end - begin == prod(r.shape):
                return r
            views = tuple((v[0] - begin, *v[1:]) for v in r.views or () if begin <= v[0] < end)
            return Route(f"{r.name}[{begin}]", (end - begin, ), r.route, r.why, views=views or None)

        rows = Routes(row(*piece) for piece in pieces)
        return define(rows, [leaves[i] for i, _, _ in pieces], [grads[i] for i, _, _ in pieces],
                      config) if rows else None

    @staticmethod
    def _take(arrays, pieces):
        """The pieces of whole arrays, on this device."""
        out = []
        for i, begin, end in pieces:
            x = arrays[i]
            out.append(x if end - begin == x.size else x.reshape(-1)[begin:end])
        return out

    def _compiled(self):
        """What every device does, as two functions of whole arrays and of the state."""
        every, row = PartitionSpec(), PartitionSpec(self.axis)

        def mine(run):
            return [partial(run, part, pieces) for part, pieces in zip(self.parts, self.own)]

        def begin_here(leaves):
            memory = jnp.zeros(self.shape[1:], jnp.uint8)
            return lax.switch(lax.axis_index(self.axis), mine(self._begin_own), leaves, memory)[None]

        def step_here(leaves, grads, memory, rates, bad):
            sent, own = lax.switch(lax.axis_index(self.axis), mine(self._step_own), leaves, grads, memory[0],
                                   rates, bad)
            return self._put_together(lax.all_gather(sent, self.axis), leaves), own[None]

        return (jax.jit(_over(self.mesh, begin_here, (every, ), row)),
                jax.jit(_over(self.mesh, step_here, (every, every, row, every, every), (every, row))))

    def _begin_own(self, part, pieces, leaves, memory):
        return part.begin(self._take(leaves, pieces), memory) if part else memory

    def _step_own(self, part, pieces, leaves, grads, memory, rates, bad):
        """The new weights as bytes for the others, and the state."""
        sent = jnp.zeros(0, jnp.uint8)
        if part:
            own = [self._take(arrays, pieces) for arrays in (leaves, grads)]
            weights, memory = part.step(*own, memory, rates[np.array([i for i, _, _ in pieces])], bad)
            sent = jnp.concatenate([_bytes(w) for w in weights])
        return jnp.pad(sent, (0, self._sent - sent.size)), memory

    def begin(self, leaves):
        return self._begin(leaves)

    def step(self, leaves, grads, memory, rates):
        bad = None
        if self.flagged:    # a device sees its own pieces alone
            finite = [jnp.isfinite(g).all() for g in grads if g.size]
            bad = 1 - jnp.stack(finite).all().astype(jnp.float32).reshape(1)
        return self._step(leaves, grads, memory, rates, bad)

    def _put_together(self, sent, leaves):
        found = [[] for _ in leaves]
        for k, pieces in enumerate(self.own):
            at = 0
            for i, begin, end in pieces:
                size = (end - begin) * leaves[i].dtype.itemsize
                found[i].append((begin, sent[k, at:at + size]))
                at += size
        for pieces in found:
            pieces.sort(key=lambda piece: piece[0])
        return [_from_bytes(jnp.concatenate([b for _, b in pieces]), p.dtype).reshape(p.shape)
                for pieces, p in zip(found, leaves)]

    # ---- files, by the host ----

    def _with_parts(self, leaves, memory, whole, copy):
        """copy(what the whole keeps of a piece, what the device with the piece keeps), for all of them."""
        for part, pieces, row in zip(self.parts, self.own, memory):
            if not part:
                continue
            own = part.placed(self._take([np.asarray(p) for p in leaves], pieces), row)
            for j, piece in enumerate(pieces):
                copy(whole.kept(*piece), own.kept(j))
            row[:part.shape[0]] = own.state

    def save(self, path, leaves, memory):
        whole = self.whole.placed(leaves, None)
        self._with_parts(leaves, np.array(memory), whole, copy_kept)
        whole.save(path)

    def load(self, path, leaves):
        memory, whole = np.zeros(self.shape, np.uint8), self.whole.placed(leaves, None)
        whole.load(path)
        self._with_parts(leaves, memory, whole, lambda a, b: copy_kept(b, a))
        return whole.count(), jax.device_put(memory, NamedSharding(self.mesh, PartitionSpec(self.axis)))


def share(table, leaves, grads, config, mesh, axis):
    """The calls of these leaves' optimiser, shared out; made once."""
    whole = define(table, leaves, grads, config)
    key = whole.name, mesh, axis
    if key not in _shares:
        _shares[key] = Share(whole, leaves, grads, config, mesh, axis)
    return _shares[key]
