"""jax_routes.py -- routes of the leaves of a pytree of parameters.

A leaf of two dimensions takes the rule unless its name says what else it is; everything else takes AdamW.
Patterns of names (`matrix=`, `adamw=`) or a function say otherwise, also of leaves with more dimensions: the
last two are a matrix, those before them count matrices, unless `flatten=` says which of them are rows. Every
decision has a reason, which `opt.routes(params)` shows.
"""
import re
import warnings
from math import prod
from operator import index

import jax

from .routes import ADAMW, MATRIX, Route, Routes, match

# What a leaf is by its name: under lax.scan biases and gains have two dimensions, too; attention with several
# heads is none.
_NAMES = (
    ("an embedding, by its name", re.compile(r"embed|wte|wpe|(^|[._])emb([._]|$)")),
    ("a head, by its name",
     re.compile("(?<!multi)(?<!multi_)head(?!s)|classifier|logits|output_projection")),
    ("a bias, by its name", re.compile(r"bias(\.|$)")),
    ("a norm, by its name", re.compile(r"norm|(^|\.)(scale|gain)(\.|$)")),
)
_KEYS = ("key", "idx", "name")    # of a path's steps, as jax has them


def name_of(path):
    """A leaf's path as one name, its steps joined by dots."""
    steps = (next((getattr(k, a) for a in _KEYS if hasattr(k, a)), k) for k in path)
    return ".".join(map(str, steps)) or "params"


def _excluded(name):
    """Why a leaf of that name is no matrix, or None."""
    return next((why for why, word in _NAMES if word.search(name.lower())), None)


def is_matrix(path, p) -> bool:
    """Two dimensions, and no embedding, head, bias or norm by its name; `matrix=` of the optimisers takes
    another such function.
    """
    return p.ndim == 2 and not _excluded(name_of(path))


def _by_itself(name, p):
    if p.ndim < 2:
        return ADAMW, "a vector"
    why = _excluded(name)
    if why:
        return ADAMW, why
    return (MATRIX, "a matrix") if p.ndim == 2 else (ADAMW, "more than two dimensions")


def _chosen(path, name, p, matrix, adamw, flatten):
    hit = match(adamw, name)
    if hit:
        return ADAMW, f"adamw={hit!r}"
    if not p.size:
        return ADAMW, "empty"
    hit = match(flatten, name)
    if hit:
        return MATRIX, f"flatten={hit!r}"
    if matrix is None:
        return _by_itself(name, p)
    if callable(matrix):
        chosen = bool(matrix(path, p))
        if chosen and p.ndim < 2:
            raise ValueError(f"matrix= says that '{name}', of shape {tuple(p.shape)}, is a matrix")
        return (MATRIX if chosen else ADAMW), "matrix= says so"
    hit = match(matrix, name)
    if hit and p.ndim >= 2:
        return MATRIX, f"matrix={hit!r}"
    return ADAMW, "a vector" if p.ndim < 2 else "no pattern of matrix= fits"


def _sides(name, shape, rows):
    """(how many matrices, rows, columns) of a leaf whose first axes are rows; of rows = (m, n) the first m
    number the matrices, and those up to the n-th are rows.
    """
    first, last = rows if isinstance(rows, (tuple, list)) else (0, rows)
    if not 0 <= first < last < len(shape):
        raise ValueError(
            f"flatten: '{name}' has {len(shape)} axes; {rows!r} leaves no rows or no columns of them")
    return prod(shape[:first]), prod(shape[first:last]), prod(shape[last:])


def _views(name, sides, pieces, transposed):
    """The matrices within a leaf, (offset, rows, cols, elements from row to row)."""
    stack, rows, cols = sides
    if pieces < 1 or (cols if transposed else rows) % pieces:
        raise ValueError(
            f"blocks: '{name}' holds {rows}x{cols}, whose outputs are not {pieces} equal blocks")
    tall, wide = (rows, cols // pieces) if transposed else (rows // pieces, cols)
    step = wide if transposed else tall * cols
    return tuple((k * rows * cols + i * step, tall, wide, cols) for k in range(stack) for i in range(pieces))


def _seen_as(r, blocks, flatten, transposed):
    """The views of a leaf that takes the rule; None: it is one matrix as it is."""
    cut, flat = match(blocks, r.name), match(flatten, r.name)
    if not cut and not flat and len(r.shape) == 2:
        return None
    axes = len(r.shape)
    sides = _sides(r.name, r.shape, flatten[flat] if flat else (axes - 2, axes - 1))
    return _views(r.name, sides, index(blocks[cut]) if cut else 1, transposed)


def decide(params, rule, matrix, adamw, blocks, flatten, transposed):
    """Routes of a pytree's leaves, in jax's order. transposed: a matrix is (in, out)."""
    out = Routes()
    for path, p in jax.tree_util.tree_flatten_with_path(params)[0]:
        name = name_of(path)
        if not hasattr(p, "shape"):
            raise TypeError(f"'{name}' is a {type(p).__name__}; parameters are arrays")
        chosen = ADAMW, "the rule is AdamW's"
        if rule != "adamw":
            chosen = _chosen(path, name, p, matrix, adamw, flatten)
        r = Route(name, tuple(p.shape), *chosen)
        if r.route == MATRIX:
            r.views = _seen_as(r, blocks, flatten, transposed)
        out.append(r)
    for key, given in (("matrix", matrix), ("adamw", adamw), ("blocks", blocks), ("flatten", flatten)):
        for pattern in [given] if isinstance(given, str) else [] if callable(given) else given or ():
            if not any(match(pattern, r.name) for r in out):
                warnings.warn(f"{key}: no parameter fits {pattern!r} (the first is called '{out[0].name}')",
                              stacklevel=4)
    stacks = [r.name for r in out if r.why == "more than two dimensions"]
    if stacks:
        warnings.warn(
            f"AdamW takes {', '.join(stacks)}, of more than two dimensions. If that is meant, say "
            f"adamw={stacks!r}; if they are stacks of matrices, matrix=[...] with patterns; if filters or "
            "heads, flatten={pattern: axes that are rows}",
            stacklevel=4)
    return out
