"""torch_optim.py -- libpolar's optimisers as torch.optim.Optimizer: the same arguments, the same state, one
call per step.

What a step costs beside the library's own work is a loop over the gradients for their pointers, one
comparison per group, and two foreign calls. The rest happens when something has changed: a group's numbers, a
parameter that moved, a new group.
"""
import atexit
import threading
import time
import weakref
from array import array
from ctypes import POINTER, byref, c_float, c_void_p, cast, sizeof
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence, Tuple, Union

import torch

from . import _abi
from ._library import Handle, PolarError, check, device, layout, lib, map_options, names, queue, tensor
from .routes import ADAMW, MATRIX, Routes, decide, named
from .torch_ranks import Ranks, full, group_of, is_rows, local, rows_of
from .torch_state import DTYPES, parts, view

try:
    # torch.compile goes around a step, not into it
    from torch._compile import _disable_dynamo as _no_dynamo
except ImportError:
    def _no_dynamo(function):
        return function

try:
    from torch.autograd.graph import increment_version as _count_write
    _count_write((torch.empty(0), ))    # one call for all
except ImportError:    # before torch 2.1
    _count_write = None
except TypeError:    # it takes a tensor at a time
    def _count_write(tensors, one=_count_write):
        for t in tensors:
            one(t)

_STREAM_LEGACY = 1      # cudaStreamLegacy: what torch calls stream 0
_SCALES = {None: "jordan", "original": "jordan", "match_rms_adamw": "rms"}
_LIVE = ("lr", "betas", "momentum", "eps", "weight_decay")
_FIXED = ("nesterov", "ns_steps", "ns_coefficients", "adjust_lr_fn", "map")
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
# in the state's format, the others f64
_BASES = (_abi.POLAR_STATE_LEFT_BASIS, _abi.POLAR_STATE_RIGHT_BASIS)
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
    "refresh": lambda r: _has_factors(r),
    "first_basis": lambda r: _abi.POLAR_PRECONDITION_SOAP <= r.precondition <= _abi.
    POLAR_PRECONDITION_KL_SOAP,
}
_OWN: Any = type("_Own", (), {"__repr__": lambda self: "the rule's"})()    # an argument that was not given
_strided = torch.strided

Params = Union[torch.nn.Module, Iterable[torch.Tensor], Iterable[Tuple[str, torch.Tensor]],
               Iterable[Dict[str, Any]]]


_alive = weakref.WeakSet()


@atexit.register
def _park():
    """Before the interpreter ends: daemon threads finish the step they are in and wait before the next, since
    Python would end them inside torch, which aborts the process then.
    """
    others = threading.active_count() > 1
    for opt in list(_alive) if others else ():
        opt._lock.acquire(timeout=5)
    if others:
        time.sleep(0.01)    # what follows a step, torch's profiler hook, is done too


def _plain(value):
    """A value of a group as it compares: lists are tuples, tensors numbers."""
    if isinstance(value, torch.Tensor):
        return float(value)
    return tuple(_plain(x) for x in value) if isinstance(value, (list, tuple)) else value


class Optimizer(torch.optim.Optimizer):
    """A rule of libpolar for the matrices of a model, AdamW for the rest of it.

    Args:
        params: a module (its names and blocks decide the routes), named_parameters(), matrices, or groups; a
            group may say `route="matrix"` or `route="adamw"` and have numbers of its own.
        rule: its name; of one that is not there you are told which are.
        lr, betas, eps, weight_decay: of the matrices; eps is Adam's, or the norm's in a rule that does not
            divide by moments or lines. What is not given is PolarAdamW's number in the paper's six rules, the
            rule's own in the others (docs/rules.md).
        momentum, nesterov: of rules with a momentum buffer.
        ns_steps, ns_coefficients: of Newton-Schulz; three numbers, three per step, or a table's name.
        map: "ns_bf16_fused", "ns_fp32", "exact", "power:0.5" (singular values to that power), "soft:1", ...;
            not given, the rule's own.
        adjust_lr_fn: "original", "match_rms_adamw", "paper", "spectral", "frobenius", "nuclear", "transposed"
            or "none".
        constants: numbers of single stages of the rule, {"clip": 5}; there are radius, clip, strength,
            fraction, kron_power, refresh and first_basis (docs/rules.md says which rules have which).
        aux_lr, aux_betas, aux_eps, aux_weight_decay: of AdamW, which has the rest.
        matrix, adamw: patterns of names that decide instead.
        blocks: {pattern: n}, the rows of such a parameter in n equal blocks, each mapped by itself (qkv: 3,
            or the heads).
        views: {pattern: [(rows, cols), ...]}, a flat parameter as matrices, one after the other; or
            [(offset, rows, cols), ...] and [(offset, rows, cols, ld), ...], matrices within any parameter,
            what they do not cover going to AdamW. e3nn's are found by themselves.
        skip_nonfinite: a step with an infinity or a NaN in any gradient changes nothing.
        measure: keep update norms for stats().
        allow_no_matrix: no error where nothing takes the rule.
        process_group: the ranks that share the work: every matrix is stepped by one of them. DTensors of
            fully_shard bring their own. Whole parameters have the same gradients on every rank, as
            DistributedDataParallel leaves them, unless
        reduce_gradients: each rank has the gradients of its own part of the batch, and the step takes their
            mean.
    """

    def __init__(self,
                 params: Params,
                 rule: str = "polaradamw",
                 lr: float = _OWN,
                 betas: Tuple[float, float] = _OWN,
                 eps: float = _OWN,
                 weight_decay: float = _OWN,
                 *,
                 momentum: float = _OWN,
                 nesterov: bool = True,
                 ns_steps: int = 5,
                 ns_coefficients: Any = None,
                 map: str = _OWN,
                 adjust_lr_fn: Optional[str] = _OWN,
                 constants: Optional[Dict[str, float]] = None,
                 aux_lr: Optional[float] = 5e-4,
                 aux_betas: Tuple[float, float] = (0.9, 0.999),
                 aux_eps: float = 1e-8,
                 aux_weight_decay: float = 0.05,
                 matrix: Union[str, Sequence[str], None] = None,
                 adamw: Union[str, Sequence[str], None] = None,
                 blocks: Optional[Dict[str, int]] = None,
                 views: Optional[Dict[str, Sequence[Tuple[int, ...]]]] = None,
                 skip_nonfinite: bool = False,
                 measure: bool = False,
                 allow_no_matrix: bool = False,
                 process_group: Any = None,
                 reduce_gradients: bool = False):
        known = names(lib.polar_rule_name)
        if rule not in known:
            raise ValueError(f"no rule '{rule}' (there are: {', '.join(known)})")
        own = self._own_numbers(rule)
        lr, betas, eps, weight_decay, momentum, adjust_lr_fn, map = (
            own[k] if v is _OWN else v for k, v in (("lr", lr), ("betas", betas), ("eps", eps),
                                                    ("weight_decay", weight_decay), ("momentum", momentum),
                                                    ("adjust_lr_fn", adjust_lr_fn), ("map", map)))
        self._config = dict(rule=rule,
                            constants=self._checked(rule, constants or {}),
                            matrix=matrix,
                            adamw=adamw,
                            blocks=blocks,
                            views=views,
                            skip_nonfinite=bool(skip_nonfinite),
                            measure=bool(measure),
                            allow_no_matrix=bool(allow_no_matrix) or rule == "adamw")
        self._group, self._reduce = process_group, bool(reduce_gradients)
        self._aux = dict(lr=aux_lr if aux_lr is not None else lr,
                         betas=tuple(aux_betas),
                         eps=aux_eps,
                         weight_decay=aux_weight_decay)
        defaults = dict(lr=lr,
                        betas=tuple(betas),
                        eps=eps,
                        weight_decay=weight_decay,
                        momentum=momentum,
                        nesterov=bool(nesterov),
                        ns_steps=int(ns_steps),
                        ns_coefficients=ns_coefficients,
                        map=map,
                        adjust_lr_fn=adjust_lr_fn,
                        route=MATRIX)
        self._begin()
        self._tables: List[Routes] = []
        groups = self._ready(params, defaults)
        self._building = True
        super().__init__([dict(g) for g, _ in groups], defaults)
        self._building = False
        self._tables = [table for _, table in groups]
        self._build()

    @staticmethod
    def _checked(rule, constants):
        """The constants, if the rule has them."""
        r = _abi.polar_rule()
        check(lib.polar_rule_parse_sized(byref(r), rule.encode(), byref(layout())))
        has = [k for k, of in _CONSTANTS.items() if of(r)]
        for k in constants:
            if k not in has:
                raise ValueError(f"rule '{rule}' has no constant {k!r} (it has: {', '.join(has) or 'none'})")
        whole = ("refresh", "first_basis")
        return {k: int(v) if k in whole else float(v) for k, v in constants.items()}

    @staticmethod
    def _own_numbers(rule):
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

    # ---- groups ---------------------------------------------------------------------------------------

    def _begin(self):
        self._lock = threading.RLock()
        _alive.add(self)
        self._handle = self._queue = self._stream = self._ranks = None
        self._present = None    # which gradients were there in the last step
        self._seen = {}         # versions of the bf16 parameters that the master copies are of

    def _ready(self, params, defaults):
        """(group, its routes) for torch: what the caller gave, in groups of one route each."""
        module = params if isinstance(params, torch.nn.Module) else None
        given = [] if module is not None else list(params) if not isinstance(params, torch.Tensor) else named(
            params)
        if module is None and not given:
            raise ValueError("optimizer got an empty parameter list")
        if not given or not isinstance(given[0], dict):
            given = [{"params": module if module is not None else given}]
        out = []
        for g in given:
            if not isinstance(g, dict) or "params" not in g:
                raise TypeError("groups are dicts with 'params'; got a mixture of groups and tensors")
            out += self._split(g, defaults)
        seen = {}
        for _, table, tensors in out:
            for p, r in zip(tensors, table):
                if id(p) in seen:
                    raise ValueError(
                        f"'{r.name}' and '{seen[id(p)]}' are one parameter: give shared weights once")
                seen[id(p)] = r.name
        if not self._config["allow_no_matrix"] and not any(r.route == MATRIX for _, table, _ in out
                                                           for r in table):
            raise ValueError(
                f"none of {len(seen)} parameters takes the matrix route of '{self._config['rule']}':\n"
                f"{Routes(r for _, table, _ in out for r in table)}\nsay which with matrix=[patterns] (or "
                f"allow_no_matrix=True)"
            )
        return [(g, table) for g, table, _ in out]

    def _split(self, group, defaults):
        """A caller's group as one or two of ours, matrices first: (group, routes, tensors)."""
        params = group["params"]
        module = params if isinstance(params, torch.nn.Module) else None
        pairs = named([params] if isinstance(params, torch.Tensor) else params)
        c, route = self._config, group.get("route")
        if route is None and "use_muon" in group:
            route = MATRIX if group["use_muon"] else ADAMW
        if c["rule"] == "adamw":
            route = ADAMW
        table = decide(pairs, module, c["matrix"], c["adamw"], c["blocks"], c["views"], route)
        out = []
        for way in (MATRIX, ADAMW):
            chosen = [(p, r) for (_, p), r in zip(pairs, table) if r.route == way]
            if not chosen:
                continue
            g = {k: v for k, v in group.items() if k not in ("params", "route", "use_muon", "param_names")}
            if way == ADAMW and c["rule"] != "adamw":
                both = any(r.route == MATRIX for r in table)    # the group's lr is then that of its matrices
                own = {k: group["aux_" + k] for k in self._aux if "aux_" + k in group}
                g = {**self._aux, **({k: v for k, v in g.items() if not both or k not in self._aux}), **own}
            g["params"], g["route"], g["param_names"] = [p for p, _ in chosen
                                                         ], way, [r.name for _, r in chosen]
            if way == MATRIX and any(r.rest for _, r in chosen):    # AdamW's numbers of what views leave out
                own = {k: group.get("aux_" + k, v) for k, v in self._aux.items()}
                g["rest"] = dict(own, of_lr=_plain(g.get("lr", defaults["lr"])))
            out.append((g, Routes(r for _, r in chosen), g["params"]))
        return out

    def add_param_group(self, param_group):
        """As torch's; the group may be split by route, and takes part from the next step on."""
        if self._building:
            super().add_param_group(param_group)
            return
        with self._lock:
            parts, table_count, group_count = self._split(param_group, self.defaults), len(self._tables), len(
                self.param_groups)
            try:
                for g, table, _ in parts:
                    super().add_param_group(g)
                    self._tables.append(table)
                self._build()
            except Exception:
                del self._tables[table_count:], self.param_groups[group_count:]
                raise

    _building = _loading = False

    # ---- the library's optimiser ------------------------------------------------------------------------

    def _rule(self, group):
        """polar_rule of a group, and what it points to."""
        rule = _abi.polar_rule()
        check(lib.polar_rule_parse_sized(byref(rule), self._config["rule"].encode(), byref(layout())))
        for k, v in self._config.get("constants", {}).items():
            setattr(rule, k, v)
        if self._config["rule"] == "muon":    # torch's form of it, whose buffer is an average
            rule.momentum = _abi.POLAR_MOMENTUM_AVERAGE_NESTEROV if group[
                "nesterov"] else _abi.POLAR_MOMENTUM_AVERAGE
        elif rule.momentum == _abi.POLAR_MOMENTUM_NESTEROV and not group["nesterov"]:
            rule.momentum = _abi.POLAR_MOMENTUM_HEAVY_BALL
        elif rule.momentum == _abi.POLAR_MOMENTUM_AVERAGE_NESTEROV and not group["nesterov"]:
            rule.momentum = _abi.POLAR_MOMENTUM_AVERAGE
        keep = None
        if rule.map.kind != _abi.POLAR_MAP_NONE:
            rule.map, keep = map_options(group["map"], group["ns_steps"], group["ns_coefficients"],
                                         None if self._divides(rule) else float(group["eps"]))
        scale, name = _abi.polar_scale(), _SCALES.get(group["adjust_lr_fn"], group["adjust_lr_fn"])
        check(lib.polar_scale_parse(byref(scale), name.encode()))
        if rule.map.kind != _abi.POLAR_MAP_NONE:
            rule.scale = scale.value
        return rule, keep

    @staticmethod
    def _divides(rule):
        """By moments or norms of lines, so eps is theirs and not the map's."""
        plain = rule.precondition in (_abi.POLAR_PRECONDITION_NONE, _abi.POLAR_PRECONDITION_SIGN)
        return not plain or rule.post != _abi.POLAR_POST_NONE

    def _hyper(self, group, rule):
        """The live numbers of a group's route."""
        betas = _plain(group["betas"])
        if group["route"] == ADAMW:
            return _abi.polar_hyper(_plain(group["lr"]), betas[0], betas[1], group["eps"],
                                    group["weight_decay"])
        first = betas[0] if rule.momentum == _abi.POLAR_MOMENTUM_EMA else group["momentum"]
        return _abi.polar_hyper(_plain(group["lr"]), first, betas[1],
                                group["eps"] if self._divides(rule) else 1e-8, group["weight_decay"])

    @staticmethod
    def _rest(group):
        """AdamW's numbers of what views leave out of a group's parameters; its rate goes with the group's."""
        r = group["rest"]
        factor = _plain(group["lr"]) / r["of_lr"] if r["of_lr"] else 1.0
        return _abi.polar_hyper(factor * r["lr"], *_plain(r["betas"]), r["eps"], r["weight_decay"])

    def _check_params(self):
        device = None
        for group, table in zip(self.param_groups, self._tables):
            for p, r in zip(group["params"], table):
                p = local(p)
                if p.layout is not _strided:
                    raise TypeError(f"'{r.name}' is {p.layout}; the library takes dense parameters")
                if p.dtype not in DTYPES:
                    raise TypeError(
                        f"'{r.name}' is {p.dtype}; the library takes float32, bfloat16 and float64 parameters"
                        + (" (keep them in float32 under autocast)" if p.dtype is torch.float16 else ""))
                if not _packed(p).is_contiguous() or (r.views and not p.is_contiguous()):
                    raise ValueError(
                        f"'{r.name}' is not contiguous (shape {tuple(p.shape)}, strides {p.stride()}): make "
                        f"it so by p.data = p.data.contiguous() "
                        "before the optimiser is made")
                if p.numel() and not p.data_ptr():
                    raise ValueError(
                        f"'{r.name}' has no memory (device {p.device}): it was freed, or never filled")
                if device is not None and p.device != device:
                    raise ValueError(
                        f"'{r.name}' is on {p.device}, others on {device}: one optimiser works on one "
                        f"device; make one for each"
                    )
                device = p.device
        if device.type not in ("cpu", "cuda"):
            raise ValueError(f"parameters on {device}; the library works on cpu and cuda")
        return device

    def _build(self):
        """The library's optimiser over the parameters as they are now; state that there is goes on in it."""
        self._device = self._check_params()
        dev = self._open_device()
        old = self._whole_state() if self._ranks and self._handle else {p: self.state[p] for p in self.state}
        self._params = [p for g in self.param_groups for p in g["params"] if p.numel()]
        group = group_of(self._params, self._group)
        if group is not None and self._ranks is None:
            self._ranks = Ranks(group, self._device)
        if self._ranks and not all(local(p).is_contiguous() for p in self._params):
            raise PolarError(
                "channels-last parameters over several ranks are not offered: make them contiguous "
                "(model.to(memory_format=torch.contiguous_format))")
        rules = [self._rule(g) for g in self.param_groups]
        pieces, blocks, labels = [], [], set()
        for k, (group, table) in enumerate(zip(self.param_groups, self._tables)):
            for p, r in zip(group["params"], table):
                r.group = k
                if not p.numel():
                    continue
                label = r.name
                while label in labels:
                    label += "'"
                labels.add(label)
                whole_rows, first_row = rows_of(p, r.name)
                if whole_rows and r.views:
                    raise PolarError(
                        f"'{r.name}' is a flat weight seen as matrices, and its rows lie on several ranks: "
                        f"keep it whole (fully_shard's ignored_params)"
                    )
                t = tensor(local(p).data_ptr(), DTYPES[p.dtype], tuple(_packed(local(p)).shape) or (1, ))
                g = _abi.polar_tensor.from_buffer_copy(t)
                g.data = None
                route = _abi.POLAR_ROUTE_AUX if r.route == ADAMW else _abi.POLAR_ROUTE_MATRIX
                views = [_abi.polar_block(*v, 0) for v in r.views or ()]
                blocks.append((_abi.polar_block * len(views))(*views) if views else None)
                pieces.append(
                    _abi.polar_param(label.encode(), t, g, route,
                                     r.blocks if r.route == MATRIX and not views else 0, 0, 0, k, whole_rows,
                                     first_row, blocks[-1], len(views)))
        handle = self._create(dev, pieces, rules)
        self._weights, self._dtypes = [local(p).data_ptr()
                                       for p in self._params], [p.dtype for p in self._params]
        self._plain = [local(p).is_contiguous() for p in self._params]
        self._whole = all(local(p) is p for p in self._params)    # so that it need not be asked each step
        self._versions = self._rows_written()
        self._counts = _count_write is not None and self._whole and not any(p.is_inference()
                                                                            for p in self._params)
        self._masters = [(i, p) for i, p in enumerate(self._params)
                         if p.dtype is torch.bfloat16 and not is_rows(p) and not p.is_inference()]
        self._handle, self._rules, self._present = handle, [rule for rule, _ in rules], None
        self._hypers = [None] * len(self.param_groups)
        self._fixed = [self._fixed_of(k) for k in range(len(self.param_groups))]
        self._show_state()
        self._copy_state(old)
        self._seen = {p: self._seen.get(p, p._version) for _, p in self._masters}
        self._sync_groups()

    def _fixed_of(self, k):
        """The numbers of group k that the library takes when it is made: eps too, where it is the map's."""
        group = self.param_groups[k]
        by_map = group["route"] == MATRIX and not self._divides(self._rules[k])
        return [_plain(group[key]) for key in (_FIXED + ("eps", ) if by_map else _FIXED)]

    def _open_device(self):
        if self._device.type == "cpu":
            name = f"cpu:threads={torch.get_num_threads()}"
            try:    # torch's own threads, which would look for work beside ours
                return device(name + ",team=openmp")
            except PolarError:    # a torch without OpenMP, or a forked process
                return device(name)
        index = self._device.index if self._device.index is not None else torch.cuda.current_device()
        torch.cuda.synchronize(index)    # the library reads bf16 weights from a stream of its own
        return device(f"cuda:{index}")

    def _create(self, dev, pieces, rules):
        o, c = _abi.polar_optim_opts(), self._config
        check(lib.polar_optim_opts_parse_sized(byref(o), c["rule"].encode(), byref(layout())))
        o.rule = rules[0][0]
        o.allow_no_matrix, o.measure, o.skip_missing = 1, int(c["measure"]), 1
        o.skip_nonfinite = _abi.POLAR_SKIP_NONFINITE if c["skip_nonfinite"] else _abi.POLAR_SKIP_FLAGGED
        groups = (_abi.polar_group * max(len(rules) - 1, 1))()
        for k, (rule, _) in enumerate(rules[1:]):
            groups[k] = _abi.polar_group(None, o.lr, o.weight_decay, o.aux_lr, o.aux_weight_decay,
                                         o.aux_beta1, o.aux_beta2, o.aux_eps, _abi.POLAR_ROUTE_AUTO, 0)
            groups[k].rule = _abi.POINTER(_abi.polar_rule)(rule)
        o.groups, o.group_count = groups, len(rules) - 1
        if self._ranks:
            o.comm = self._ranks.comm.pointer
            o.grads = _abi.POLAR_GRADS_MEAN if self._reduce else _abi.POLAR_GRADS_SAME
        out = c_void_p()
        with self._on_device(), self._ranks or _Nothing:
            check(
                lib.polar_optim_create_sized(byref(out), dev.pointer,
                                             (_abi.polar_param * len(pieces))(*pieces), len(pieces), byref(o),
                                             byref(layout())))
            if self._queue is None or self._queue.keep != (dev,):
                self._stream = self._current_stream()
                self._queue = queue(dev, self._stream)
        return Handle(out, lib.polar_optim_destroy, keep=(dev, self._queue, self._ranks))

    def _on_device(self):
        return torch.cuda.device(self._device) if self._device.type == "cuda" else _Nothing

    def _current_stream(self):
        if self._device.type == "cpu":
            return None
        return torch.cuda.current_stream(self._device).cuda_stream or _STREAM_LEGACY

    # ---- state ------------------------------------------------------------------------------------------

    def _keys(self, k):
        """torch's names of what the library keeps for a parameter of group k."""
        rule, out = self._rules[k], dict(_MOMENT)
        if self.param_groups[k]["route"] == MATRIX and _has_factors(rule):
            out.update(_KRON)
        adam = rule.precondition == _abi.POLAR_PRECONDITION_ADAM
        if self.param_groups[k]["route"] == MATRIX and not adam and rule.momentum != _abi.POLAR_MOMENTUM_EMA:
            out[_abi.POLAR_STATE_MOMENTUM] = "momentum_buffer"
        return out

    def _show_state(self):
        """self.state: views of the library's memory, in the parameter's shape; of moments after the map a
        list, where a parameter is seen as several matrices. Over several ranks flat views of this rank's
        part, empty where it has none.
        """
        self.state.clear()
        for k, p, i in self._numbers():
            keys, state = self._keys(k), {}
            for which in self._kinds(k, p) if self._ranks else keys:
                seen = parts(self._handle, i, which, self._device) if which >= _abi.POLAR_STATE_POST else [
                    view(self._handle, i, which, self._device)
                ]
                one = seen[0] if seen else None
                if self._ranks:
                    state[keys[which]] = one if one is not None else torch.empty(0)
                elif one is not None:
                    # moments of lines stay flat
                    by_entry = one.numel() == p.numel() and which not in _KRON
                    state[keys[which]] = seen if len(seen) > 1 else _like(p, one) if by_entry else one
            # over ranks state_dict() has it
            state["step"] = torch.zeros(()) if self._ranks else view(self._handle, i, _abi.POLAR_STATE_STEPS,
                                                                     self._device)[0]
            self.state[p] = state

    def _numbers(self):
        """(group's number, parameter, the library's number of it), in order."""
        i = 0
        for k, group in enumerate(self.param_groups):
            for p in group["params"]:
                if p.numel():
                    yield k, p, i
                    i += 1

    # ---- over several ranks -----------------------------------------------------------------------------

    def _kinds(self, k, p):
        """What the library keeps of a parameter of group k, wherever it lies."""
        out, rule = [_abi.POLAR_STATE_MOMENTUM], self._rules[k]
        matrix = self.param_groups[k]["route"] == MATRIX
        if matrix and rule.post not in (_abi.POLAR_POST_NONE, _abi.POLAR_POST_UNWHITEN,
                                        _abi.POLAR_POST_BALANCE):
            out.append(_abi.POLAR_STATE_POST)
        if matrix and _has_factors(rule) and p.numel():
            plain = (_abi.POLAR_PRECONDITION_SOAP, _abi.POLAR_PRECONDITION_SOAP_MOMENTUM)
            out += list(_KRON)[:4 if rule.precondition in plain else None]    # they keep no eigenvalues
        second = (_abi.POLAR_PRECONDITION_ADAM, _abi.POLAR_PRECONDITION_LAPROP, _abi.POLAR_PRECONDITION_SOAP,
                  _abi.POLAR_PRECONDITION_SOAP_MOMENTUM, _abi.POLAR_PRECONDITION_KL_SOAP,
                  _abi.POLAR_PRECONDITION_ROOT)
        if not matrix or rule.precondition in second:
            out.append(_abi.POLAR_STATE_SECOND_MOMENT)
        return out + ([_abi.POLAR_STATE_MASTER] if p.dtype is torch.bfloat16 else [])

    def _whole_state(self):
        """{parameter: its state}, as torch has it: whole, or by rows where the parameter is. Collective."""
        out = {}
        for k, p, i in self._numbers():
            dtype, keys = torch.float64 if p.dtype is torch.float64 else torch.float32, self._keys(k)
            entry = {}
            for which in self._kinds(k, p):
                if which in _KRON:    # of a size of its own, and flat, also where it is the parameter's
                    wide = dtype if which in _BASES else torch.float64
                    entry[keys[which]] = self._ranks.kept(self._handle, i, which, wide, self._device)
                    continue
                if which == _abi.POLAR_STATE_POST:
                    flat = self._ranks.kept(self._handle, i, which, dtype, self._device)
                else:
                    flat = self._ranks.whole(self._handle, i, which, p.numel(), dtype, self._device)
                entry[keys[which]] = self._ranks.like(p, flat)
            entry["step"] = self._ranks.steps(self._handle, i, self._device).float()
            out[p] = entry
        return out

    def _put_state(self, old):
        """Every rank its part of `old`; what an entry lacks stays as it is. Collective."""
        # master copies and the owners' rows
        check(lib.polar_optim_reload_weights(self._handle.pointer, self._queue.pointer))
        for k, p, i in self._numbers():
            entry, keys = old.get(p, {}), self._keys(k)
            for which in self._kinds(k, p):
                if keys[which] in entry:
                    flat = full(entry[keys[which]]).reshape(-1).to(self._device)
                    self._ranks.put(self._handle, i, which, flat, self._device)
            if "step" in entry:
                made = torch.tensor([float(entry["step"]), 0.0], dtype=torch.float64, device=self._device)
                self._ranks.put(self._handle, i, _abi.POLAR_STATE_STEPS, made, self._device)

    def _rows_written(self):
        """Versions of the parameters in rows, by themselves and as they lie here: torch counts what it
        writes, the library's own writing it does not see.
        """
        return [(p._version, local(p)._version) for p in self._params if is_rows(p)]

    def _renew_masters(self, every=False):
        """Whoever wrote bf16 parameters since the last step meant it: their master copies follow where the
        two disagree. torch counts what it writes (`every`: what it does not count, too).
        """
        for i, p in self._masters:
            if not every and p._version == self._seen[p]:
                continue
            if self._ranks:
                first, n = self._ranks.part(self._handle, i, self._ranks.rank)
                master = view(self._handle, i, _abi.POLAR_STATE_MASTER, self._device) if n else None
                given = p.detach().reshape(-1)[first:first + n]
            else:
                master, given = self.state[p]["master"], p.detach()
            if master is not None:
                master.copy_(torch.where(master.bfloat16() == given, master, given.float()))
        self._masters_seen()

    def _masters_seen(self):
        self._seen = {p: p._version for _, p in self._masters}

    # ---- state, going on --------------------------------------------------------------------------------

    def _copy_state(self, old):
        """Fills the library's state of every parameter that `old` knows; what an entry lacks stays as it is.
        """
        if self._ranks:
            if old:
                self._put_state(old)
            return
        masters = [p for p in self._params if p.dtype is torch.bfloat16]
        for p in self._params:
            for key, value in old.get(p, {}).items():
                mine = self.state[p].get(key)
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
        for p in masters:
            if "master" not in old.get(p, {}):
                self.state[p]["master"].copy_(p.detach())

    def _check_state(self, state_dict):
        """Refuses a checkpoint before anything is changed."""
        saved = state_dict["param_groups"]
        if len(saved) != len(self.param_groups):
            raise ValueError(
                f"the checkpoint has {len(saved)} groups, the optimiser {len(self.param_groups)} "
                f"({', '.join(g['route'] for g in self.param_groups)}); polar.join_state_dicts joins those "
                f"of two optimisers"
            )
        for k, (theirs, group) in enumerate(zip(saved, self.param_groups)):
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
            needed = [key for which, key in self._keys(k).items() if which != _abi.POLAR_STATE_MASTER]
            for i, p, name in zip(theirs["params"], group["params"], group["param_names"]):
                entry = state_dict["state"].get(i)
                if not entry:
                    continue
                for key in needed:
                    if not p.numel() or key not in self.state[p]:
                        continue
                    if key not in entry:
                        raise ValueError(
                            f"the checkpoint has no '{key}' of '{name}' (it has: "
                            f"{', '.join(sorted(entry))}): it is of another rule"
                        )
                    mine = self.state[p][key]
                    count = sum(m.numel() for m in mine) if isinstance(mine, list) else mine.numel()
                    if not self._ranks and entry[key].numel() != count:
                        raise ValueError(
                            f"'{key}' of '{name}' has {entry[key].numel()} numbers in the checkpoint and "
                            f"{count} here: another shape, or other blocks or views of it")
                    # a number a line; Kronecker factors
                    lines = key == "post" and entry[key].numel() != p.numel() or key in _KRON.values()
                    if not lines and tuple(entry[key].shape) != tuple(p.shape):
                        raise ValueError(
                            f"'{key}' of '{name}' has the shape {tuple(entry[key].shape)} in the checkpoint "
                            f"and {tuple(p.shape)} here"
                        )

    @torch.no_grad()
    def state_dict(self):
        """As torch's, with torch's keys: the tensors are those the optimiser works on, `step` is a copy."""
        with self._lock:
            out = super().state_dict()
        if self._ranks:    # all ranks together
            with self._lock:
                whole = self._whole_state()
            every = [p for g in self.param_groups for p in g["params"]]
            out["state"] = {i: whole[p] for i, p in enumerate(every) if p in whole}
            return out
        steps = self._steps()
        index = 0
        flat = {}
        for group in self.param_groups:
            for p in group["params"]:
                if p.numel():
                    entry = {
                        key: torch.cat(v) if isinstance(v, list) else v
                        for key, v in self.state[p].items()
                    }
                    flat[index] = {
                        key: steps[p] if key == "step" else
                        v.reshape(p.shape) if v.numel() == p.numel() and key not in _KRON.values() else v
                        for key, v in entry.items()
                    }
                index += 1
        out["state"] = flat
        return out

    def _steps(self):
        """Steps made with every parameter, as torch keeps them: a float of its own on the CPU. One transfer.
        """
        all_of = torch.stack([self.state[p]["step"] for p in self._params]).cpu()
        return {p: all_of[j].float().clone() for j, p in enumerate(self._params)}

    @torch.no_grad()
    def load_state_dict(self, state_dict):
        """Goes on from a checkpoint of this class, of torch.optim.AdamW or of torch.optim.Muon; all or
        nothing.
        """
        with self._lock:
            self._check_state(state_dict)
            groups = [{**{k: v for k, v in mine.items() if k != "params"}, **theirs}
                      for mine, theirs in zip(self.param_groups, state_dict["param_groups"])]
            own = _state_of({p: self.state[p] for p in self._params})
            index = [i for g in state_dict["param_groups"] for i in g["params"]]
            loaded = {
                p: state_dict["state"].get(i, {})
                for i, p in zip(index, (p for g in self.param_groups for p in g["params"]))
            }
            self._loading = True
            try:
                # torch would round the state to the parameters' format
                super().load_state_dict({"state": {}, "param_groups": groups})
            finally:
                self._loading, self.state = False, own
            for p in self._params:
                for key, mine in self.state[p].items():
                    if key not in loaded[p] and key not in ("master", "step" if self._ranks else None):
                        for m in mine if isinstance(mine, list) else [mine]:
                            m.zero_()
            self._copy_state(loaded)
            self._masters_seen()
            self._versions = self._rows_written()
            if any(self._fixed_of(k) != fixed for k, fixed in enumerate(self._fixed)):
                self._build()
            self._sync_groups()

    def __getstate__(self):
        if self._ranks:
            raise PolarError(
                "an optimiser over several ranks has a part of its state here and cannot be copied: use "
                "state_dict()"
            )
        with self._lock:
            entries = {
                p: {k: [t.clone() for t in v] if isinstance(v, list) else v.clone()
                    for k, v in s.items()}
                for p, s in self.state.items()
            }
        return {
            "defaults": self.defaults, "state": entries, "param_groups": self.param_groups, "_group": None,
            "_reduce": False, "_config": self._config, "_aux": self._aux, "_tables": self._tables
        }

    def __setstate__(self, state):
        super().__setstate__(state)
        if self._loading or "_config" not in state:    # torch's own load_state_dict
            return
        self._begin()
        self.state = _state_of(self.state)
        self._build()
        self._renew_masters(every=True)

    # ---- stepping ---------------------------------------------------------------------------------------

    def _sync_groups(self):
        """Hands over the numbers of the groups that changed since the last step."""
        for k, group in enumerate(self.param_groups):
            now = [group[key] for key in _LIVE]
            if now == self._hypers[k]:
                continue
            h = self._hyper(group, self._rules[k])
            for route in (_abi.POLAR_ROUTE_MATRIX, _abi.POLAR_ROUTE_AUX):
                if (route == _abi.POLAR_ROUTE_AUX) == (group["route"] == ADAMW):
                    check(lib.polar_optim_set_hyper(self._handle.pointer, -1, k, route, byref(h)))
                elif route == _abi.POLAR_ROUTE_AUX and "rest" in group:
                    rest = self._rest(group)
                    check(lib.polar_optim_set_hyper(self._handle.pointer, -1, k, route, byref(rest)))
            self._hypers[k] = [_plain(x) if not isinstance(x, list) else list(x) for x in now]

    def _route_of(self, p):
        return next(r for group, table in zip(self.param_groups, self._tables)
                    for q, r in zip(group["params"], table) if q is p)

    def _odd_gradient(self, p, g):
        """A gradient that the library cannot take as it lies: a copy that it can, or an exception."""
        name = self._route_of(p).name
        if g.layout is not _strided:
            raise TypeError(
                f"the gradient of '{name}' is {g.layout}; the library takes dense ones (sparse=False in "
                f"nn.Embedding, or grad.to_dense())"
            )
        if g.dtype is not p.dtype or g.shape != p.shape or g.device != p.device:
            raise ValueError(
                f"the gradient of '{name}' is {tuple(g.shape)} {g.dtype} on {g.device}, the parameter "
                f"{tuple(p.shape)} {p.dtype} on {p.device}"
            )
        return g.contiguous() if p.is_contiguous() else torch.empty_like(p).copy_(g)

    def _pointers(self, keep):
        """The gradients' addresses, 0 where there is none."""
        out = []
        for p, dtype, plain in zip(self._params, self._dtypes, self._plain):
            g = p.grad
            if g is None:
                out.append(0)
                continue
            if self._ranks:
                g = local(g)
                keep.append(g)
            try:
                # torch sees to its shape and device
                if g.dtype is dtype and (g.is_contiguous() if plain else g.stride() == p.stride()):
                    out.append(g.data_ptr())
                    continue
            except RuntimeError:    # a sparse tensor has neither strides nor an address
                pass
            keep.append(self._odd_gradient(p, g))
            out.append(keep[-1].data_ptr())
        return out

    def _moved(self):
        """Parameters lie elsewhere than the library knows: made anew over them, unless they cannot be had."""
        for p in self._params:
            r = self._route_of(p)
            if tuple(p.shape) != r.shape:
                raise ValueError(
                    f"'{r.name}' has the shape {tuple(p.shape)} now; the optimiser was made for {r.shape}: "
                    f"make a new one"
                )
            if local(p).numel() and not local(p).data_ptr():
                raise PolarError(f"'{r.name}' was freed while in use: its storage has no memory")
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)    # the state that goes on is complete
        self._build()
        self._renew_masters(every=True)

    @_no_dynamo
    @torch.no_grad()
    def step(self, closure: Optional[Callable[[], Any]] = None):
        """One step with the gradients as they are; parameters without one stay as they are.

        Returns what `closure` returns. Inside torch.cuda.graph the step's work is captured: every replay is a
        step, with the numbers of the last step before it or of refresh().
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        with self._lock:
            self._step()
        return loss

    def _step(self):
        if not self._handle.here:
            self._after_fork()
        here = self._params if self._whole else map(local, self._params)
        if [p.data_ptr() for p in here] != self._weights:
            self._moved()
        if self._versions:
            written = self._rows_written()
            if self._ranks.any(written != self._versions):    # a checkpoint was loaded into the parameters
                check(lib.polar_optim_reload_weights(self._handle.pointer, self._queue.pointer))
            self._versions = written
        if any(p._version != self._seen[p] for _, p in self._masters):
            self._renew_masters()
        if any(self._fixed_of(k) != fixed for k, fixed in enumerate(self._fixed)):
            self._build()
        keep: List[torch.Tensor] = []
        pointers = self._pointers(keep)
        self._sync_groups()
        given = array("Q", pointers)
        handle = self._handle.pointer
        if self._device.type == "cuda":
            self._step_on_gpu(handle, given, pointers)
        else:
            self._give(handle, given)
            with self._ranks or _Nothing:
                check(lib.polar_optim_step(handle, self._queue.pointer))
        if self._counts:    # so that autograd refuses a backward through weights that are gone
            _count_write([p for p, q in zip(self._params, pointers) if q])
        self._masters_seen()

    def _give(self, handle, given):
        """Gradients, and GradScaler's floats, to the library."""
        found, scale = getattr(self, "found_inf", None), getattr(self, "grad_scale", None)
        check(lib.polar_optim_set_scaler(handle, _float(found), _float(scale)))
        check(lib.polar_optim_set_grads(handle, cast(given.buffer_info()[0], POINTER(c_void_p)), len(given)))

    def _step_on_gpu(self, handle, given, pointers):
        stream = torch.cuda.current_stream(self._device).cuda_stream or _STREAM_LEGACY
        other = torch.cuda.current_device() != (self._device.index or 0)
        with self._on_device() if other else _Nothing:
            if stream != self._stream:
                check(lib.polar_queue_set_stream(self._queue.pointer, stream))
                self._stream = stream
            self._give(handle, given)
            there = [q != 0 for q in pointers]
            if not torch.cuda.is_current_stream_capturing():
                check(lib.polar_optim_step(handle, self._queue.pointer))
                self._present = there
                return
            if there != self._present:
                raise PolarError(
                    "make a step with the same gradients before it is captured (torch's warm-up): " +
                    ("none was made yet" if self._present is None else "the last one had others"))
            check(lib.polar_optim_enqueue(handle, self._queue.pointer))

    def refresh(self):
        """Hands the numbers in param_groups (lr, weight_decay, ...) to a captured step: call it after
        scheduler.step(), before the next replay.
        """
        with self._lock, self._on_device():
            self._sync_groups()
            check(lib.polar_optim_prepare(self._handle.pointer, self._queue.pointer))

    def _after_fork(self):
        if self._device.type == "cuda":
            raise PolarError(
                "the process was forked after its optimiser had worked on a GPU, and CUDA does not survive "
                "that: start workers by "
                "multiprocessing's 'spawn', or make the optimiser in the child")
        self._queue = None
        self._lock = threading.RLock()
        self.state = _state_of({
            p: {k: [t.clone() for t in v] if isinstance(v, list) else v.clone()
                for k, v in s.items()}
            for p, s in self.state.items()
        })
        self._build()

    # ---- what happened ----------------------------------------------------------------------------------

    # GradScaler hands over found_inf and grad_scale; nothing needs to unscale
    _step_supports_amp_scaling = True

    def routes(self) -> Routes:
        """Every parameter's route and its reason; prints as a table."""
        return Routes(r for table in self._tables for r in table)

    def stats(self) -> List[Dict[str, Any]]:
        """What the last step did, a record for every parameter: ready for pandas.DataFrame. Of matrices
        within one that are not alike it has the first one's shape, scale and rate. Waits for the device.
        """
        n = len(self._params)
        out = (_abi.polar_param_stats * n)()
        with self._lock, self._on_device():
            check(
                lib.polar_optim_stats_sized(self._handle.pointer, self._queue.pointer, out,
                                            sizeof(_abi.polar_param_stats)))
        return [
            dict(name=s.name.decode(),
                 route=ADAMW if s.route == _abi.POLAR_ROUTE_AUX else MATRIX,
                 group=s.group,
                 rows=s.rows,
                 cols=s.cols,
                 blocks=s.blocks,
                 scale=s.scale,
                 effective_lr=s.effective_lr,
                 update_norm=s.update_norm,
                 steps=s.steps,
                 skipped=s.skipped,
                 maps=s.maps,
                 last_maps=s.last_maps) for s in out
        ]

    @property
    def skipped(self) -> int:
        """Steps left out because of gradients that were not finite. Waits for the device."""
        return max((s["skipped"] for s in self.stats()), default=0)


class _NothingType:
    def __enter__(self):
        return self

    def __exit__(self, *_):
        return False


_Nothing = _NothingType()
_FloatPointer = POINTER(c_float)


def _has_factors(rule):
    return _abi.POLAR_PRECONDITION_KRON <= rule.precondition <= _abi.POLAR_PRECONDITION_KL_SOAP


def _packed(p):
    """A parameter as it lies in memory: filters that are channels-last as (out, kh, kw, in)."""
    last = p.ndim >= 3 and not p.is_contiguous()
    return p.permute(0, *range(2, p.ndim), 1) if last else p


def _like(p, flat):
    """A number for each weight, in the order of p's memory, in p's shape."""
    seen = flat.view(_packed(p).shape)
    return seen if p.is_contiguous() else seen.permute(0, p.ndim - 1, *range(1, p.ndim - 1))


def _float(t):
    if t is None:
        return None
    if t.dtype is not torch.float32:
        raise TypeError(f"GradScaler's floats are float32; got {t.dtype}")
    return cast(t.data_ptr(), _FloatPointer)


def _state_of(entries):
    from collections import defaultdict
    out = defaultdict(dict)
    out.update(entries)
    return out


class PolarAdamW(Optimizer):
    """AdamW's moments, then a polar map: the direction of a matrix is the polar factor of what AdamW would
    have taken.
    """

    def __init__(self,
                 params: Params,
                 lr: float = 5e-3,
                 betas: Tuple[float, float] = (0.9, 0.999),
                 eps: float = 1e-8,
                 weight_decay: float = 0.05,
                 **options):
        super().__init__(params, "polaradamw", lr, betas, eps, weight_decay, **options)


class Muon(Optimizer):
    """torch.optim.Muon's rule and arguments for the matrices; AdamW (aux_lr, ...) for what it does not take.
    """

    def __init__(self,
                 params: Params,
                 lr: float = 1e-3,
                 weight_decay: float = 0.1,
                 momentum: float = 0.95,
                 nesterov: bool = True,
                 ns_coefficients: Any = (3.4445, -4.7750, 2.0315),
                 eps: float = 1e-7,
                 ns_steps: int = 5,
                 adjust_lr_fn: Optional[str] = None,
                 *,
                 aux_lr: float = 3e-4,
                 aux_weight_decay: float = 0.01,
                 **options):
        super().__init__(params,
                         "muon",
                         lr, (0.9, 0.999),
                         eps,
                         weight_decay,
                         momentum=momentum,
                         nesterov=nesterov,
                         ns_coefficients=ns_coefficients,
                         ns_steps=ns_steps,
                         adjust_lr_fn=adjust_lr_fn,
                         aux_lr=aux_lr,
                         aux_weight_decay=aux_weight_decay,
                         **options)


class AdamW(Optimizer):
    """torch.optim.AdamW's rule and arguments, every parameter in one launch."""

    def __init__(self,
                 params: Params,
                 lr: float = 1e-3,
                 betas: Tuple[float, float] = (0.9, 0.999),
                 eps: float = 1e-8,
                 weight_decay: float = 1e-2,
                 amsgrad: bool = False,
                 *,
                 maximize: bool = False,
                 foreach=None,
                 capturable: bool = False,
                 differentiable: bool = False,
                 fused=None,
                 **options):
        for name, value in (("amsgrad", amsgrad), ("maximize", maximize), ("differentiable", differentiable)):
            if value:
                raise ValueError(
                    f"{name}=True is not what the library's AdamW does; torch.optim.AdamW does it")
        super().__init__(params, "adamw", lr, betas, eps, weight_decay, **options)
