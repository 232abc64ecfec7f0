"""rules.py -- a rule as the library takes it: its map, its scale, its constants, and what an argument is that
was not given. Of torch's groups and of JAX's optimisers alike.
"""
from ctypes import byref

from . import _abi
from ._library import check, layout, lib, map_options

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


def number(value, key):
    """One number, Python's, numpy's or a tensor's, as a float."""
    try:
        if not isinstance(value, (str, bytes)):
            return float(value)
    except (TypeError, ValueError, RuntimeError):
        pass
    raise TypeError(f"{key} is {value!r}; it is one number")


def whole(value, key):
    if not isinstance(value, (int, float)) or value % 1:    # inf and nan too
        raise TypeError(f"{key} is {value!r}; it is a whole number")
    return int(value)


def name_of(value, key, such_as):
    if not isinstance(value, str):
        raise TypeError(f"{key} is {value!r}; it is a name such as {such_as!r}")
    return value


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
    counts = ("refresh", "first_basis")
    return {k: int(v) if k in counts else float(v) for k, v in constants.items()}


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
        rule.map, keep = map_options(name_of(group["map"], "map", "ns_bf16_fused"),
                                     whole(group["ns_steps"], "ns_steps"), group["ns_coefficients"],
                                     None if divides(rule) else number(group["eps"], "eps"))
    scale, name = _abi.polar_scale(), _SCALES.get(group["adjust_lr_fn"], group["adjust_lr_fn"])
    check(lib.polar_scale_parse(byref(scale), name_of(name, "adjust_lr_fn", "original").encode()))
    if rule.map.kind != _abi.POLAR_MAP_NONE:
        rule.scale = scale.value
    return rule, keep
