"""torch_groups.py -- param_groups in the library's terms: what a caller gave as groups of one route each, and
the numbers of a group as polar_rule and polar_hyper.

A group is torch's dict with all the keys of the optimiser's defaults, `route` and `param_names`; `rest` where
views leave weights of its parameters to AdamW. Invariants: a group has one route; no tensor is in two groups;
a group's numbers are LIVE, which a step takes as they are, or FIXED, which the library takes when it is made
(eps belongs to these where it is the map's); where the rule has a momentum buffer `momentum` and the first of
`betas` are one number.
"""
import warnings
from operator import itemgetter
from typing import Any

import torch

from . import _abi
from .routes import ADAMW, MATRIX, Routes, match
from .rules import divides, number
from .torch_routes import decide, named

LIVE = ("lr", "betas", "momentum", "eps", "weight_decay")
FIXED = ("nesterov", "ns_steps", "ns_coefficients", "adjust_lr_fn", "map")
numbers_of = itemgetter(*LIVE, *FIXED)    # of a group
OWN: Any = type("_Own", (), {"__repr__": lambda self: "the rule's"})()    # an argument that was not given


def plain(value):
    """A value of a group as it compares: lists are tuples, tensors numbers."""
    if isinstance(value, torch.Tensor):
        return float(value)
    return tuple(plain(x) for x in value) if isinstance(value, (list, tuple)) else value


def snapshot(value):
    """A copy that equals the value until somebody writes into it: lists stay lists, tensors are numbers."""
    if isinstance(value, torch.Tensor):
        return float(value)
    return type(value)(map(snapshot, value)) if type(value) in (list, tuple) else value


def pair(value, key):
    """Two numbers, as they are."""
    if not isinstance(value, (list, tuple)) or len(value) != 2:
        raise TypeError(f"{key} is {value!r}; it is two numbers, (0.9, 0.999)")
    return tuple(value)


# ---- a group's numbers ------------------------------------------------------------------------------------


def fixed_of(group, rule):
    """The numbers of a group that the library takes when it is made: eps too, where it is the map's."""
    by_map = group["route"] == MATRIX and not divides(rule)
    return [plain(group[key]) for key in (FIXED + ("eps", ) if by_map else FIXED)]


def _has_buffer(group, rule):
    """A momentum buffer, whose number is `momentum`; moments of Adam's kind have betas."""
    return group["route"] == MATRIX and rule.momentum != _abi.POLAR_MOMENTUM_EMA


def join_momentum(group, rule, last):
    """`momentum` and the first of `betas` as one number, where a rule has a buffer: torch's schedulers move
    `betas` of all groups, if there are any (OneCycleLR, CyclicLR), people move `momentum`. The one that
    differs from `last` counts (numbers_of, or None), `momentum` before `betas`.
    """
    momentum, betas = plain(group["momentum"]), plain(pair(group["betas"], "betas"))
    if not _has_buffer(group, rule) or momentum == betas[0]:
        return
    if last is not None and momentum == last[LIVE.index("momentum")]:
        group["momentum"] = betas[0]
    else:
        group["betas"] = (momentum, *betas[1:])


def hyper_of(group, rule):
    """The live numbers of a group's route."""
    lr, eps, decay = (number(group[key], key) for key in ("lr", "eps", "weight_decay"))
    first, second = (number(x, "a number of betas") for x in pair(group["betas"], "betas"))
    if _has_buffer(group, rule):
        first = number(group["momentum"], "momentum")
    if group["route"] == MATRIX and not divides(rule):    # it is the map's
        eps = 1e-8
    return _abi.polar_hyper(lr, first, second, eps, decay)


def rest_of(group):
    """AdamW's numbers of what views leave out of a group's parameters; its rate goes with the group's."""
    r = group["rest"]
    factor = plain(group["lr"]) / r["of_lr"] if r["of_lr"] else 1.0
    return _abi.polar_hyper(factor * r["lr"], *plain(r["betas"]), r["eps"], r["weight_decay"])


# ---- what the caller gave ---------------------------------------------------------------------------------


def grouped(params, config, aux, defaults):
    """(group, its routes) for torch: what the caller gave, in groups of one route each."""
    module = params if isinstance(params, torch.nn.Module) else None
    if module is not None:
        if next(module.parameters(), None) is None:
            raise ValueError(f"the module {type(module).__name__} has no parameters")
        given = []
    else:
        if isinstance(params, (torch.Tensor, dict)) or not hasattr(params, "__iter__"):
            kind = "one tensor" if isinstance(params, torch.Tensor) else type(params).__name__
            raise TypeError(
                f"params are a module, or an iterable of tensors, (name, tensor) pairs or groups; got {kind}")
        given = list(params)
        if not given:
            raise ValueError("optimizer got an empty parameter list")
    if not given or not isinstance(given[0], dict):
        given = [{"params": module if module is not None else given}]
    out = []
    for g in given:
        out += split(g, config, aux, defaults)
    seen = {}
    for g, table in out:
        for p, r in zip(g["params"], table):
            if id(p) in seen:
                raise ValueError(
                    f"'{r.name}' and '{seen[id(p)]}' are one parameter: give shared weights once")
            seen[id(p)] = r.name
    _check_patterns(config, [r.name for _, table in out for r in table])
    if not config["allow_no_matrix"] and not any(r.route == MATRIX for _, table in out for r in table):
        raise ValueError(
            f"none of {len(seen)} parameters takes the matrix route of '{config['rule']}':\n"
            f"{Routes(r for _, table in out for r in table)}\nsay which with matrix=[patterns] (or "
            f"allow_no_matrix=True)"
        )
    return out


def _check_patterns(config, labels):
    """A pattern that fits no parameter does nothing, which a typing error should not do in silence."""
    for key in ("matrix", "adamw", "blocks", "views"):
        given = config[key]
        for pattern in [given] if isinstance(given, str) else given or ():
            if not any(match(pattern, label) for label in labels):
                warnings.warn(f"{key}: no parameter fits {pattern!r} (the first is called '{labels[0]}')",
                              stacklevel=5)


def split(group, config, aux, defaults):
    """A caller's group as one or two of ours, matrices first: (group, routes)."""
    if not isinstance(group, dict) or "params" not in group:
        raise TypeError(f"a group is a dict with 'params'; got "
                        f"{f'one with {sorted(group)}' if isinstance(group, dict) else type(group).__name__}")
    params = group["params"]
    module = params if isinstance(params, torch.nn.Module) else None
    pairs = named([params] if isinstance(params, torch.Tensor) else params)
    route = group.get("route")
    if route is None and "use_muon" in group:
        route = MATRIX if group["use_muon"] else ADAMW
    if config["rule"] == "adamw":
        route = ADAMW
    table = decide(pairs, module, config["matrix"], config["adamw"], config["blocks"], config["views"], route)
    out = []
    for way in (MATRIX, ADAMW):
        chosen = [(p, r) for (_, p), r in zip(pairs, table) if r.route == way]
        if not chosen:
            continue
        g = {k: v for k, v in group.items() if k not in ("params", "route", "use_muon", "param_names")}
        if way == ADAMW and config["rule"] != "adamw":
            both = any(r.route == MATRIX for r in table)    # the group's lr is then that of its matrices
            own = {k: group["aux_" + k] for k in aux if "aux_" + k in group}
            g = {**aux, **({k: v for k, v in g.items() if not both or k not in aux}), **own}
        g["params"], g["route"], g["param_names"] = [p for p, _ in chosen], way, [r.name for _, r in chosen]
        if way == MATRIX and any(r.rest for _, r in chosen):    # AdamW's numbers of what views leave out
            own = {k: group.get("aux_" + k, v) for k, v in aux.items()}
            g["rest"] = dict(own, of_lr=plain(g.get("lr", defaults["lr"])))
        out.append((g, Routes(r for _, r in chosen)))
    return out
