"""torch_optim.py -- libpolar's optimisers as torch.optim.Optimizer: the same arguments, the same state, one
call per step.

What a step costs beside the library's own work is a loop over the gradients for their pointers, one
comparison per group, and two foreign calls. The rest happens when something has changed: a group's numbers, a
parameter that moved, a new group. Who does what:

    routes.py            which parameter takes the rule
    torch_groups.py      groups, and their numbers as the library takes them
    torch_native.py      the library's optimiser over the parameters as they lie
    torch_writes.py      who wrote the weights: version counts, master copies of bf16
    torch_checkpoint.py  state under torch's names

Invariants, outside a call: `_native` is of the parameters in `param_groups` (they may have moved since, or a
number changed, which the next step sees); `_tables` has the routes of every group; `state` shows the memory
of `_native`. Every public call holds `_lock`.
"""
import atexit
import copy
import threading
import time
import weakref
from ctypes import byref, sizeof
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence, Tuple, Union

import torch

from . import _abi
from ._library import PolarError, check, lib, names
from .routes import ADAMW, MATRIX, Routes
from .torch_checkpoint import check_state, cloned, emptied, filled, flattened, shown, state_of, whole
from .rules import checked_constants, own_numbers
from .torch_groups import OWN, grouped, pair, split
from .torch_native import Native
from .torch_writes import Writes

try:
    # torch.compile goes around a step, not into it
    from torch._compile import _disable_dynamo as _no_dynamo
except ImportError:
    def _no_dynamo(function):
        return function

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


class Optimizer(torch.optim.Optimizer):
    """A rule of libpolar for the matrices of a model, AdamW for the rest of it.

    Args:
        params: a module (its names and blocks decide the routes), named_parameters(), matrices, or groups; a
            group may say `route="matrix"` or `route="adamw"` and have numbers of its own.
        rule: its name; of one that is not there you are told which are.
        lr, betas, eps, weight_decay: of the matrices; eps is Adam's, or the norm's in a rule that does not
            divide by moments or lines. What is not given is PolarAdamW's number in the paper's six rules, the
            rule's own in the others (docs/rules.md).
        momentum, nesterov: of rules with a momentum buffer; the first of betas is the same number there.
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
        kron_tf32: of rules with Kronecker factors (SOAP's), products take factors in tf32: faster on a GPU.
        process_group: the ranks that share the work: every matrix is stepped by one of them. DTensors of
            fully_shard bring their own. Whole parameters have the same gradients on every rank, as
            DistributedDataParallel leaves them, unless
        reduce_gradients: each rank has the gradients of its own part of the batch, and the step takes their
            mean.
    """

    def __init__(self,
                 params: Params,
                 rule: str = "polaradamw",
                 lr: float = OWN,
                 betas: Tuple[float, float] = OWN,
                 eps: float = OWN,
                 weight_decay: float = OWN,
                 *,
                 momentum: float = OWN,
                 nesterov: bool = True,
                 ns_steps: int = 5,
                 ns_coefficients: Any = None,
                 map: str = OWN,
                 adjust_lr_fn: Optional[str] = OWN,
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
                 kron_tf32: bool = False,
                 process_group: Any = None,
                 reduce_gradients: bool = False):
        known = names(lib.polar_rule_name)
        if rule not in known:
            raise ValueError(f"no rule '{rule}' (there are: {', '.join(known)})")
        own = own_numbers(rule)
        lr, betas, eps, weight_decay, momentum, adjust_lr_fn, map = (
            own[k] if v is OWN else v for k, v in (("lr", lr), ("betas", betas), ("eps", eps),
                                                   ("weight_decay", weight_decay), ("momentum", momentum),
                                                   ("adjust_lr_fn", adjust_lr_fn), ("map", map)))
        self._config = dict(rule=rule,
                            constants=checked_constants(rule, constants or {}),
                            matrix=matrix,
                            adamw=adamw,
                            blocks=blocks,
                            views=views,
                            skip_nonfinite=bool(skip_nonfinite),
                            measure=bool(measure),
                            kron_tf32=bool(kron_tf32),
                            allow_no_matrix=bool(allow_no_matrix) or rule == "adamw")
        self._group, self._reduce = process_group, bool(reduce_gradients)
        self._aux = dict(lr=aux_lr if aux_lr is not None else lr,
                         betas=pair(aux_betas, "aux_betas"),
                         eps=aux_eps,
                         weight_decay=aux_weight_decay)
        defaults = dict(lr=lr,
                        betas=pair(betas, "betas"),
                        eps=eps,
                        weight_decay=weight_decay,
                        momentum=momentum,
                        nesterov=bool(nesterov),
                        ns_steps=ns_steps,
                        ns_coefficients=getattr(ns_coefficients, "tolist", lambda: ns_coefficients)(),
                        map=map,
                        adjust_lr_fn=adjust_lr_fn,
                        route=MATRIX)
        self._begin()
        groups = grouped(params, self._config, self._aux, defaults)
        self._building = True
        super().__init__([dict(g) for g, _ in groups], defaults)
        self._building = False
        self._tables: List[Routes] = [table for _, table in groups]
        self._build()

    _building = False

    def _begin(self):
        self._lock = threading.RLock()
        _alive.add(self)
        self._native = self._writes = None

    @torch.no_grad()
    def _build(self, every_master=False):
        """The library's optimiser over the parameters as they are now; state that there is goes on in it.
        `every_master`: whether anybody wrote bf16 weights is not known.
        """
        before = self._native
        over_ranks = before is not None and before.ranks
        native = Native(self.param_groups, self._tables, self._config, self._group, self._reduce, before)
        native.sync_groups(self.param_groups)    # the last that may be refused; what follows changes things
        old = whole(before) if over_ranks else dict(self.state)
        for k, table in enumerate(self._tables):
            for r in table:
                r.group = k
        self._native = native
        self.state.clear()
        self.state.update(shown(native))
        filled(native, self.state, old)
        self._writes = Writes(native, self._writes)
        if every_master:
            self._writes.renew_masters(self.state, every=True)

    def add_param_group(self, param_group):
        """As torch's; the group may be split by route, and takes part from the next step on."""
        if self._building:
            super().add_param_group(param_group)
            return
        with self._lock:
            new, table_count, group_count = split(param_group, self._config, self._aux, self.defaults), len(
                self._tables), len(self.param_groups)
            try:
                for g, table in new:
                    super().add_param_group(g)
                    self._tables.append(table)
                self._build()
            except Exception:
                del self._tables[table_count:], self.param_groups[group_count:]
                raise

    # ---- checkpoints and copies -------------------------------------------------------------------------

    def _hooks(self, when, *given):
        """torch's hooks around state_dict() and load_state_dict(): what they made of what was given."""
        for hook in list(getattr(self, f"_optimizer_{when}_hooks", {}).values()):    # from torch 2.1 on
            result = hook(self, *given)
            if given and result is not None:
                given = (result, )
        return given[0] if given else None

    @torch.no_grad()
    def state_dict(self):
        """As torch's, with torch's keys: the tensors are those the optimiser works on, `step` is a copy."""
        self._hooks("state_dict_pre")
        with self._lock:
            self._native.join_momenta(self.param_groups)
            # over ranks all of them together
            state = whole(self._native) if self._native.ranks else flattened(self._native, self.state)
            number = {p: i for i, p in enumerate(p for g in self.param_groups for p in g["params"])}
            groups = [{**g, "params": [number[p] for p in g["params"]]} for g in self.param_groups]
        return self._hooks("state_dict_post",
                           {"state": {number[p]: s for p, s in state.items()}, "param_groups": groups})

    @torch.no_grad()
    def load_state_dict(self, state_dict):
        """Goes on from a checkpoint of this class, of torch.optim.AdamW or of torch.optim.Muon; all or
        nothing.
        """
        state_dict = self._hooks("load_state_dict_pre", state_dict)
        with self._lock:
            check_state(self._native, self.param_groups, self.state, state_dict)
            index = [i for g in state_dict["param_groups"] for i in g["params"]]
            loaded = {
                p: state_dict["state"].get(i, {})
                for i, p in zip(index, (p for g in self.param_groups for p in g["params"]))
            }
            before = self.param_groups
            self.param_groups = [{**mine, **copy.deepcopy({k: v for k, v in theirs.items() if k != "params"})}
                                 for mine, theirs in zip(before, state_dict["param_groups"])]
            try:
                self._native.forget_numbers()
                self._sync_groups()
            except Exception:    # a number that the library refuses
                self.param_groups = before
                self._native.forget_numbers()
                self._sync_groups()
                raise
            emptied(self._native, self.state, loaded)
            filled(self._native, self.state, loaded)
            self._writes.all_hold()
        self._hooks("load_state_dict_post")

    def __getstate__(self):
        if self._native.ranks:
            raise PolarError(
                "an optimiser over several ranks has a part of its state here and cannot be copied: use "
                "state_dict()"
            )
        with self._lock:
            self._native.join_momenta(self.param_groups)
            entries = cloned(self.state)
        return {
            "defaults": self.defaults, "state": entries, "param_groups": self.param_groups, "_group": None,
            "_reduce": False, "_config": self._config, "_aux": self._aux, "_tables": self._tables
        }

    def __setstate__(self, state):
        super().__setstate__(state)
        self._begin()
        self.state = state_of(self.state)
        self._build(every_master=True)

    # ---- stepping ---------------------------------------------------------------------------------------

    # GradScaler hands over found_inf and grad_scale; nothing needs to unscale
    _step_supports_amp_scaling = True

    @_no_dynamo
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
        if not self._native.handle.here:
            self._after_fork()
        if self._native.moved():
            self._native.check_moved()
            self._build(every_master=True)
        if self._writes.to_rows():    # a checkpoint was loaded into the parameters
            check(lib.polar_optim_reload_weights(self._native.handle.pointer, self._native.queue.pointer))
        if self._writes.to_masters():
            self._writes.renew_masters(self.state)
        if self._native.changed(self.param_groups):
            self._sync_groups()
        native, keep = self._native, []
        pointers = native.gradients(keep)
        native.step(pointers, getattr(self, "found_inf", None), getattr(self, "grad_scale", None))
        self._writes.stepped(pointers)

    def _sync_groups(self):
        """The numbers of the groups to the library, which is made anew for those that it takes only then."""
        groups = self.param_groups
        changed = self._native.changed(groups)
        if self._native.outdated(groups, changed):
            self._build()
        else:
            self._native.sync_groups(groups, changed)

    def refresh(self):
        """Hands the numbers in param_groups (lr, weight_decay, ...) to a captured step: call it after
        scheduler.step(), before the next replay.
        """
        with self._lock, self._native.on_device():
            self._native.sync_groups(self.param_groups)
            check(lib.polar_optim_prepare(self._native.handle.pointer, self._native.queue.pointer))

    def _after_fork(self):
        if self._native.device.type == "cuda":
            raise PolarError(
                "the process was forked after its optimiser had worked on a GPU, and CUDA does not survive "
                "that: start workers by "
                "multiprocessing's 'spawn', or make the optimiser in the child")
        self._lock = threading.RLock()
        self.state = state_of(cloned(self.state))
        self._build()

    # ---- what happened ----------------------------------------------------------------------------------

    def routes(self) -> Routes:
        """Every parameter's route and its reason; prints as a table."""
        return Routes(r for table in self._tables for r in table)

    def stats(self) -> List[Dict[str, Any]]:
        """What the last step did, a record for every parameter: ready for pandas.DataFrame. Of matrices
        within one that are not alike it has the first one's shape, scale and rate. Waits for the device.
        """
        with self._lock, self._native.on_device():
            out = (_abi.polar_param_stats * len(self._native.params))()
            check(
                lib.polar_optim_stats_sized(self._native.handle.pointer, self._native.queue.pointer, out,
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
