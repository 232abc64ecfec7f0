"""torch_checkpoint.py -- the state of a libpolar optimiser under torch's names: shown, copied, checked
against a checkpoint, put together over ranks.

State is {parameter: {key: tensor}}. Invariants: its tensors are views of the library's memory, in the
parameter's shape where they have a number for each weight (flat otherwise; a list, one for each matrix, of
what matrices within one parameter keep for themselves); over several ranks they are flat views of this rank's
part, empty where it has none, and `step` is told by state_dict() alone. What an entry of a checkpoint lacks
stays as it is. A checkpoint is refused before anything is changed.
"""
from collections import defaultdict

import torch

from . import _abi
from ._library import check, lib
from .routes import MATRIX
from .rules import has_factors
from .torch_ranks import full
from .torch_state import packed, parts, view

_MOMENT = {
    _abi.POLAR_STATE_MOMENTUM: "exp_avg", _abi.POLAR_STATE_SECOND_MOMENT: "exp_avg_sq",
    _abi.POLAR_STATE_MASTER: "master", _abi.POLAR_STATE_POST: "post"
}
# of Kronecker factors
_KRON = {
    _abi.POLAR_STATE_LEFT: "left", _abi.POLAR_STATE_RIGHT: "right",
    _abi.POLAR_STATE_LEFT_BASIS: "left_basis", _abi.POLAR_STATE_RIGHT_BASIS: "right_basis",
    _abi.POLAR_STATE_LEFT_FACTORS: "left_factors", _abi.POLAR_STATE_RIGHT_FACTORS: "right_factors"
}
_KRON_KEYS = tuple(_KRON.values())
# in the state's format, the others f64
_BASES = (_abi.POLAR_STATE_LEFT_BASIS, _abi.POLAR_STATE_RIGHT_BASIS)


def state_of(entries):
    """torch's kind of dictionary of them."""
    out = defaultdict(dict)
    out.update(entries)
    return out


def cloned(state):
    """A copy of what the library's memory holds."""
    return {
        p: {k: [t.clone() for t in v] if isinstance(v, list) else v.clone()
            for k, v in s.items()}
        for p, s in state.items()
    }


def _keys(native, k):
    """torch's names of what the library keeps for a parameter of group k."""
    rule, out = native.rules[k], dict(_MOMENT)
    matrix = native.routes[k] == MATRIX
    if matrix and has_factors(rule):
        out.update(_KRON)
    adam = rule.precondition == _abi.POLAR_PRECONDITION_ADAM
    if matrix and not adam and rule.momentum != _abi.POLAR_MOMENTUM_EMA:
        out[_abi.POLAR_STATE_MOMENTUM] = "momentum_buffer"
    return out


def _kinds(native, k, p):
    """What the library keeps of a parameter of group k, wherever it lies."""
    out, rule = [_abi.POLAR_STATE_MOMENTUM], native.rules[k]
    matrix = native.routes[k] == MATRIX
    if matrix and rule.post not in (_abi.POLAR_POST_NONE, _abi.POLAR_POST_UNWHITEN, _abi.POLAR_POST_BALANCE):
        out.append(_abi.POLAR_STATE_POST)
    if matrix and has_factors(rule) and p.numel():
        plain = (_abi.POLAR_PRECONDITION_SOAP, _abi.POLAR_PRECONDITION_SOAP_MOMENTUM)
        out += list(_KRON)[:4 if rule.precondition in plain else None]    # they keep no eigenvalues
    second = (_abi.POLAR_PRECONDITION_ADAM, _abi.POLAR_PRECONDITION_LAPROP, _abi.POLAR_PRECONDITION_SOAP,
              _abi.POLAR_PRECONDITION_SOAP_MOMENTUM, _abi.POLAR_PRECONDITION_KL_SOAP,
              _abi.POLAR_PRECONDITION_ROOT)
    if not matrix or rule.precondition in second:
        out.append(_abi.POLAR_STATE_SECOND_MOMENT)
    return out + ([_abi.POLAR_STATE_MASTER] if p.dtype is torch.bfloat16 else [])


def _like(p, flat):
    """A number for each weight, in the order of p's memory, in p's shape."""
    seen = flat.view(packed(p).shape)
    return seen if p.is_contiguous() else seen.permute(0, p.ndim - 1, *range(1, p.ndim - 1))


def shown(native):
    """{parameter: its state}, views of the library's memory."""
    out = {}
    for k, p, i in native.entries:
        keys, entry = _keys(native, k), {}
        for which in _kinds(native, k, p) if native.ranks else keys:
            seen = parts(native.handle, i, which, native.device) if which >= _abi.POLAR_STATE_POST else [
                view(native.handle, i, which, native.device)
            ]
            one = seen[0] if seen else None
            if native.ranks:
                entry[keys[which]] = one if one is not None else torch.empty(0)
            elif one is not None:
                # moments of lines stay flat
                by_entry = one.numel() == p.numel() and which not in _KRON
                entry[keys[which]] = seen if len(seen) > 1 else _like(p, one) if by_entry else one
        entry["step"] = torch.zeros(()) if native.ranks else view(native.handle, i, _abi.POLAR_STATE_STEPS,
                                                                  native.device)[0]
        out[p] = entry
    return out


def flattened(native, state):
    """{parameter: its state} for state_dict(): one tensor a key, `step` a float of its own on the CPU, as
    torch has it. One transfer.
    """
    steps = torch.stack([state[p]["step"] for p in native.params]).cpu()
    out = {}
    for j, p in enumerate(native.params):
        entry = {key: torch.cat(v) if isinstance(v, list) else v for key, v in state[p].items()}
        out[p] = {
            key: steps[j].float().clone() if key == "step" else
            v.reshape(p.shape) if v.numel() == p.numel() and key not in _KRON_KEYS else v
            for key, v in entry.items()
        }
    return out


def filled(native, state, old):
    """Fills the library's state of every parameter that `old` knows; what an entry lacks stays as it is."""
    if native.ranks:
        if old:
            _put(native, old)
        return
    for p in native.params:
        for key, value in old.get(p, {}).items():
            mine = state[p].get(key)
            if mine is None:
                continue
            if isinstance(value, list):
                value = torch.cat([v.reshape(-1) for v in value])
            if isinstance(mine, list):
                flat = torch.as_tensor(value).reshape(-1)
                for m, part in zip(mine, flat.split([m.numel() for m in mine])):
                    m.copy_(part)
            else:
                mine.copy_(torch.as_tensor(value).reshape(mine.shape))
        if p.dtype is torch.bfloat16 and "master" not in old.get(p, {}):
            state[p]["master"].copy_(p.detach())


def emptied(native, state, loaded):
    """Zeros where a checkpoint has nothing: torch saves nothing of a parameter that never had a gradient."""
    stays = ("master", "step" if native.ranks else None)
    for p in native.params:
        for key, mine in state[p].items():
            if key not in loaded[p] and key not in stays:
                for m in mine if isinstance(mine, list) else [mine]:
                    m.zero_()


# ---- over several ranks -----------------------------------------------------------------------------------


def whole(native):
    """{parameter: its state}, as torch has it: whole, or by rows where the parameter is. Collective."""
    ranks, out = native.ranks, {}
    for k, p, i in native.entries:
        dtype, keys = torch.float64 if p.dtype is torch.float64 else torch.float32, _keys(native, k)
        entry = {}
        for which in _kinds(native, k, p):
            if which in _KRON:    # of a size of its own, and flat, also where it is the parameter's
                wide = dtype if which in _BASES else torch.float64
                entry[keys[which]] = ranks.kept(native.handle, i, which, wide, native.device)
                continue
            if which == _abi.POLAR_STATE_POST:
                flat = ranks.kept(native.handle, i, which, dtype, native.device)
            else:
                flat = ranks.whole(native.handle, i, which, p.numel(), dtype, native.device)
            entry[keys[which]] = ranks.like(p, flat)
        entry["step"] = ranks.steps(native.handle, i, native.device).float()
        out[p] = entry
    return out


def _put(native, old):
    """Every rank its part of `old`. Collective."""
    # master copies and the owners' rows
    check(lib.polar_optim_reload_weights(native.handle.pointer, native.queue.pointer))
    for k, p, i in native.entries:
        entry, keys = old.get(p, {}), _keys(native, k)
        for which in _kinds(native, k, p):
            if keys[which] in entry:
                flat = full(entry[keys[which]]).reshape(-1).to(native.device)
                native.ranks.put(native.handle, i, which, flat, native.device)
        if "step" in entry:
            made = torch.tensor([float(entry["step"]), 0.0], dtype=torch.float64, device=native.device)
            native.ranks.put(native.handle, i, _abi.POLAR_STATE_STEPS, made, native.device)


# ---- what is refused --------------------------------------------------------------------------------------


def check_state(native, groups, state, state_dict):
    """Refuses a checkpoint that is not one of these groups and their rules."""
    if not isinstance(state_dict, dict) or not {"state", "param_groups"} <= state_dict.keys():
        raise ValueError("a checkpoint of an optimiser is a dict with 'state' and 'param_groups', as its "
                         "state_dict() has them")
    saved = state_dict["param_groups"]
    if len(saved) != len(groups):
        raise ValueError(
            f"the checkpoint has {len(saved)} groups, the optimiser {len(groups)} "
            f"({', '.join(g['route'] for g in groups)}); polar.join_state_dicts joins those "
            f"of two optimisers"
        )
    for k, (theirs, group) in enumerate(zip(saved, groups)):
        if len(theirs["params"]) != len(group["params"]):
            raise ValueError(
                f"group {k} of the checkpoint has {len(theirs['params'])} parameters, the optimiser's "
                f"has {len(group['params'])}"
            )
        if theirs.get("route", group["route"]) != group["route"]:
            raise ValueError(
                f"group {k} of the checkpoint takes the route '{theirs['route']}', the optimiser's "
                f"takes '{group['route']}'"
            )
        needed = [key for which, key in _keys(native, k).items() if which != _abi.POLAR_STATE_MASTER]
        for i, p, name in zip(theirs["params"], group["params"], group["param_names"]):
            entry = state_dict["state"].get(i)
            if entry and p.numel():
                _check_entry(native, p, name, state[p], entry, needed)


def _check_entry(native, p, name, state, entry, needed):
    for key in needed:
        if key not in state:
            continue
        if key not in entry:
            raise ValueError(
                f"the checkpoint has no '{key}' of '{name}' (it has: "
                f"{', '.join(sorted(entry))}): it is of another rule"
            )
        mine = state[key]
        count = sum(m.numel() for m in mine) if isinstance(mine, list) else mine.numel()
        if not native.ranks and entry[key].numel() != count:
            raise ValueError(
                f"'{key}' of '{name}' has {entry[key].numel()} numbers in the checkpoint and "
                f"{count} here: another shape, or other blocks or views of it")
        # a number a line; Kronecker factors
        lines = key == "post" and entry[key].numel() != p.numel() or key in _KRON_KEYS
        if not lines and tuple(entry[key].shape) != tuple(p.shape):
            raise ValueError(
                f"'{key}' of '{name}' has the shape {tuple(entry[key].shape)} in the checkpoint "
                f"and {tuple(p.shape)} here"
            )
