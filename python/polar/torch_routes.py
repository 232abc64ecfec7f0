"""torch_routes.py -- routes of the parameters of a torch module.

A parameter of two or more dimensions inside the blocks of a model takes the rule; embeddings, norms, biases,
heads and what lies outside the blocks take AdamW. Patterns (`matrix=`, `adamw=`) say otherwise. Every
decision has a reason, which `opt.routes()` shows, and matrices that go to AdamW for no better reason than
their place are named in a warning.
"""
import warnings
from math import prod
from operator import index

import torch

from .routes import ADAMW, MATRIX, Route, Routes, match

_HEADS = {
    "head", "heads", "head_dist", "lm_head", "classifier", "output_projection", "unembed", "to_logits",
    "score"
}
_EMBEDDINGS = ("embed", "wte", "wpe", "token", "position")


def named(params):
    """(name or None, tensor) of whatever an optimiser's `params` may be: a module, tensors, pairs."""
    if isinstance(params, torch.nn.Module):
        return list(params.named_parameters())
    out = []
    for item in params:
        name, p = item if isinstance(item, (tuple, list)) else (None, item)
        if not isinstance(p, torch.Tensor):
            raise TypeError(f"an optimiser takes tensors; got {type(p).__name__}")
        out.append((name, p))
    return out


def _owners(module):
    """Every parameter's (owner, whether it lies in a numbered container) by its name."""
    out = {}
    if module is not None:
        for prefix, owner in module.named_modules():
            for name, _ in owner.named_parameters(recurse=False):
                out[f"{prefix}.{name}" if prefix else name] = owner
    return out


def _numbered(name):
    return any(part.isdigit() for part in name.split("."))


def _by_itself(name, p, owner, blocks_there):
    """The route and its reason where no pattern says anything."""
    parts = name.split(".")
    if p.ndim < 2:
        return ADAMW, "a vector"
    if owner is not None and isinstance(owner, (torch.nn.Embedding, torch.nn.EmbeddingBag)):
        return ADAMW, "an embedding"
    if owner is not None and "norm" in type(owner).__name__.lower():
        return ADAMW, "a norm"
    inside = _numbered(name)
    if any(part in _HEADS for part in parts[:-1]) and not inside:
        return ADAMW, "a head"
    if any(word in part.lower() for word in _EMBEDDINGS for part in parts) and not inside:
        return ADAMW, "an embedding, by its name"
    if blocks_there and not inside:
        return ADAMW, "outside the blocks"
    return MATRIX, "a matrix" if p.ndim == 2 else "a filter, flattened"


def _e3nn_views(owner, name, p):
    """e3nn keeps the weights of all paths of a layer in one flat tensor: each path's as a matrix (of one that
    has three dimensions, the last against the others); a path with one weight a channel is no matrix. None:
    it is no such tensor.
    """
    paths = getattr(owner, "instructions", None)
    if p.ndim != 1 or name.rsplit(".", 1)[-1] != "weight" or not paths:
        return None
    out, at = [], 0
    for path in paths:
        # o3.Linear lists its biases too, which lie in another tensor
        if not getattr(path, "has_weight", True) or getattr(path, "i_in", 0) == -1:
            continue
        shape = tuple(getattr(path, "path_shape", ()))
        if len(shape) >= 2 and prod(shape):
            out.append((at, prod(shape[:-1]), shape[-1], shape[-1]))
        at += prod(shape)
    return tuple(out) if out and at == p.numel() else None


def _given_views(name, p, given):
    """The caller's: (rows, cols), one after the other, or (offset, rows, cols[, ld])."""
    out, at, follow = [], 0, True
    for v in given:
        v = tuple(index(n) for n in v)
        if len(v) not in (2, 3, 4):
            raise ValueError(
                f"views of '{name}': {v} is neither (rows, cols), which follows the one before it, nor "
                f"(offset, rows, cols) or (offset, rows, cols, ld)")
        follow = follow and len(v) == 2
        if len(v) == 2:
            v = (at, ) + v
        out.append(v if len(v) == 4 else v + (v[2], ))
        at = out[-1][0] + max(out[-1][1] - 1, 0) * out[-1][3] + out[-1][2]
    if not out or (follow and at != p.numel()):
        raise ValueError(
            f"views of '{name}': {[v[1:3] for v in out]} are not matrices that make up its {p.numel()} "
            f"entries (with offsets, (offset, rows, cols), the rest goes to AdamW)")
    return tuple(out)


def decide(pairs, module=None, matrix=None, adamw=None, blocks=None, views=None, route=None):
    """Routes of (name, tensor) pairs. `route` forces all of them; names may be None where it is given, or
    where all are matrices.
    """
    owners = _owners(module)
    blocks_there = any(name and _numbered(name) and p.ndim >= 2 for name, p in pairs)
    nameless = [p for name, p in pairs if name is None]
    dims = [p.ndim for p in nameless]
    if nameless and route is None and min(dims) < 2 <= max(dims):
        raise ValueError(
            "parameters without names cannot be told apart: which are embeddings or heads? Give the module, "
            "model.named_parameters(), or groups with route='matrix' and route='adamw'")
    out = Routes()
    for i, (name, p) in enumerate(pairs):
        label = name if name is not None else f"param{i}"
        r = Route(
            label, tuple(p.shape),
            *(_chosen(label, p, matrix, adamw, route) or
              (_by_itself(label, p, owners.get(label), blocks_there) if name is not None else
               (MATRIX, "a matrix") if p.ndim >= 2 else (ADAMW, "a vector"))))
        _see_as(r, p, owners.get(label), matrix, adamw, blocks, views, route)
        out.append(r)
    silent = [r.name for r in out if r.why == "outside the blocks"]
    if silent:
        warnings.warn(
            f"AdamW takes {', '.join(silent)}: matrices outside the numbered blocks of the model. If that "
            f"is meant, say "
            f"adamw={silent!r}; if not, matrix=[...] with patterns (opt.routes() shows all)",
            stacklevel=4)
    return out


def _chosen(name, p, matrix, adamw, route):
    if route is not None:
        if route not in (MATRIX, ADAMW):
            raise ValueError(f"route={route!r}; there are '{MATRIX}' and '{ADAMW}'")
        return route, "its group says so"
    hit = match(adamw, name)
    if hit:
        return ADAMW, f"adamw={hit!r}"
    if matrix is not None:
        hit = match(matrix, name)
        if hit and p.ndim >= 2:
            return MATRIX, f"matrix={hit!r}"
        return ADAMW, "a vector" if p.ndim < 2 else "no pattern of matrix= fits"
    return None


def _see_as(r, p, owner, matrix, adamw, blocks, views, route):
    """Blocks of rows and flat parameters as matrices."""
    hit = match(blocks, r.name)
    if hit:
        r.blocks = int(blocks[hit])
        if r.blocks < 1 or p.ndim < 2 or p.shape[0] % r.blocks:
            raise ValueError(
                f"blocks={{{hit!r}: {blocks[hit]}}}: '{r.name}' has the shape {tuple(p.shape)}, whose rows "
                f"cannot be so divided"
            )
    hit = match(views, r.name)
    shapes = _given_views(r.name, p, views[hit]) if hit else None
    by_itself = shapes is None and owner is not None and route is None and not match(adamw, r.name)
    if by_itself and (matrix is None or match(matrix, r.name)):
        shapes = _e3nn_views(owner, r.name, p)
    if shapes is None:
        return
    r.route, r.views, r.blocks = MATRIX, shapes, 1
    r.why = "a flat weight, seen as matrices" if p.ndim < 2 else "matrices within it"
