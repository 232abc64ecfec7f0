"""torch_groups.py -- param_groups in the library's terms: what a caller gave as groups of one route each, and
the numbers of a group as polar_rule and polar_hyper.

A group is torch's dict with all the keys of the optimiser's defaults, `route` and `param_names`; `rest` where
views leave weights of its parameters to AdamW. Invariants: a group has one route; no tensor is in two groups;
a group's numbers are LIVE, which a step takes as they are, or FIXED, which the library takes when it is made
(eps belongs to these where it is the map's); where the rule has a momentum buffer `momentum` and the first of
`betas` are one number.
"""
import warnings
from ctypes import byref
from operator import itemgetter
from typing import Any

import torch

from . import _abi
from ._library import check, layout, lib, map_options
from .routes import ADAMW, MATRIX, Routes, decide, match, named

LIVE = ("lr", "betas", "momentum", "eps", "weight_decay")
FIXED = ("nesterov", "ns_steps", "ns_coefficients", "adjust_lr_fn", "map")
numbers_of = itemgetter(*LIVE, *FIXED)    # of a group
_SCALES = {None: "jordan", "original": "jordan", "match_rms_adamw": "rms"}
# whose numbers are PolarAdamW's where none are given
_PAPER = ("sgdm", "adamw", "muon", "polaradamw", "muon_v", "polar_ema")
# in the order of polar_scale
_SCALE_NAMES = ("none", "paper", "jordan", "spectral", "rms", "frobenius", "nuclear", "transposed")
# numbers of single stages: which rules have them
_CONSTANTS = {
    "radius": lambda r: r.apply == _abi.POLAR_APPLY_CONSTRAINED,
    "clip": lambda r: r.post == _abi.POLAR_POST_NORM_SUM,
    "strength": lambda r: r.apply in (_abi.POLAR_APPLY_UPDATE_FLOOR, _abi.POLAR_APPLY_RADIAL_BRAKE),
    "fraction": lambda r: r.momentum == _abi.POLAR_MOMENTUM_PICKED,
    "kron_power": lambda r: _abi.POLAR_PRECONDITION_KRON <= r.precondition <= _abi.
    POLAR_PRECONDITION_KRON_NESTEROV,
    "refresh": lambda r: has_factors(r),
    "first_basis": lambda r: _abi.POLAR_PRECONDITION_SOAP <= r.precondition <= _abi.
    POLAR_PRECONDITION_KL_SOAP,
}
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


def number(value, key):
    """One number, Python's, numpy's or a tensor's, as a float."""
    try:
        if not isinstance(value, (str, bytes)):
            return float(value)
    except (TypeError, ValueError, RuntimeError):
        pass
    raise TypeError(f"{key} is {value!r}; it is one number")


def pair(value, key):
    """Two numbers, as they are."""
    if not isinstance(value, (list, tuple)) or len(value) != 2:
        raise TypeError(f"{key} is {value!r}; it is two numbers, (0.9, 0.999)")
    return tuple(value)


def _whole(value, key):
    if not isinstance(value, (int, float)) or value % 1:    # inf and nan too
        raise TypeError(f"{key} is {value!r}; it is a whole number")
    return int(value)


def _name(value, key, such_as):
    if not isinstance(value, str):
        raise TypeError(f"{key} is {value!r}; it is a name such as {such_as!r}")
    return value


# ---- rules ------------------------------------------------------------------------------------------------


def has_factors(rule):
    """Kronecker factors, of any kind."""
    return _abi.POLAR_PRECONDITION_KRON <= rule.precondition <= _abi.POLAR_PRECONDITION_KL_SOAP


def divides(rule):
    """By moments or norms of lines, so eps is theirs and not the map's."""
    without = rule.precondition in (_abi.POLAR_PRECONDITION_NONE, _abi.POLAR_PRECONDITION_SIGN)
    return not without or rule.post != _abi.POLAR_POST_NONE


def checked_constants(rule, constants):
    """The constants, if the rule has them."""
    r = _abi.polar_rule()
    check(lib.polar_rule_parse_sized(byref(r), rule.encode(), byref(layout())))
    has = [k for k, of in _CONSTANTS.items() if of(r)]
    for k in constants:
        if k not in has:
            raise ValueError(f"rule '{rule}' has no constant {k!r} (it has: {', '.join(has) or 'none'})")
    whole = ("refresh", "first_basis")
    return {k: int(v) if k in whole else float(v) for k, v in constants.items()}


def own_numbers(rule):
    """What an argument is that was not given."""
    if rule in _PAPER:
        return dict(lr=5e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.05, momentum=0.95,
                    adjust_lr_fn="paper", map="ns_bf16_fused")
    o = _abi.polar_optim_opts()
    check(lib.polar_optim_opts_parse_sized(byref(o), rule.encode(), byref(layout())))
    r = o.rule
    kinds = {_abi.POLAR_MAP_POWER: "power", _abi.POLAR_MAP_SOFT: "soft"}
    spectral = f"{kinds[r.map.kind]}:{r.map.power}" if r.map.kind in kinds else None
    return dict(lr=o.lr, betas=(r.beta1, r.beta2), eps=r.eps, weight_decay=o.weight_decay,
                momentum=r.beta1, adjust_lr_fn=_SCALE_NAMES[r.scale], map=spectral or "ns_bf16_fused")


def rule_of(group, config):
    """polar_rule of a group, and what it points to."""
    rule = _abi.polar_rule()
    check(lib.polar_rule_parse_sized(byref(rule), config["rule"].encode(), byref(layout())))
    for k, v in config.get("constants", {}).items():
        setattr(rule, k, v)
    if config["rule"] == "muon":    # torch's form of it, whose buffer is an average
        rule.momentum = _abi.POLAR_MOMENTUM_AVERAGE_NESTEROV if group[
            "nesterov"] else _abi.POLAR_MOMENTUM_AVERAGE
    elif rule.momentum == _abi.POLAR_MOMENTUM_NESTEROV and not group["nesterov"]:
        rule.momentum = _abi.POLAR_MOMENTUM_HEAVY_BALL
    elif rule.momentum == _abi.POLAR_MOMENTUM_AVERAGE_NESTEROV and not group["nesterov"]:
        rule.momentum = _abi.POLAR_MOMENTUM_AVERAGE
    keep = None
    if rule.map.kind != _abi.POLAR_MAP_NONE:
        rule.map, keep = map_options(_name(group["map"], "map", "ns_bf16_fused"),
                                     _whole(group["ns_steps"], "ns_steps"), group["ns_coefficients"],
                                     None if divides(rule) else number(group["eps"], "eps"))
    scale, name = _abi.polar_scale(), _SCALES.get(group["adjust_lr_fn"], group["adjust_lr_fn"])
    check(lib.polar_scale_parse(byref(scale), _name(name, "adjust_lr_fn", "original").encode()))
    if rule.map.kind != _abi.POLAR_MAP_NONE:
        rule.scale = scale.value
    return rule, keep


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
