"""torch_native.py -- the library's optimiser over torch's parameters: made from groups, fed with the
addresses of gradients, stepped.

A Native is of the parameters as they lay when it was made. Its invariants:

- `params[i]` is the library's parameter i, with its weights at `weights[i]`; parameters without entries are
  not among them. Whoever sees one elsewhere makes a Native anew (torch_optim.py, `_build`).
- `rules`, `routes`, `fixed` and `numbers` have an entry for every group, as the library last took it.
- `given` are the addresses of gradients that the library has.
- The queue and the communicator go from one Native to the next; the handle keeps both, and the device.
- One that cannot be made raises, and leaves the one before it as it was.
"""
from array import array
from ctypes import POINTER, byref, c_float, c_void_p, cast

import torch

from . import _abi
from ._library import Handle, PolarError, check, device, layout, lib, queue, tensor
from .routes import ADAMW, MATRIX
from .rules import rule_of
from .torch_groups import fixed_of, hyper_of, join_momentum, numbers_of, rest_of, snapshot
from .torch_ranks import Ranks, group_of, local, rows_of
from .torch_state import DTYPES, packed

_STREAM_LEGACY = 1      # cudaStreamLegacy: what torch calls stream 0
_FloatPointer = POINTER(c_float)
_strided = torch.strided


class _NothingType:
    def __enter__(self):
        return self

    def __exit__(self, *_):
        return False


_Nothing = _NothingType()


def _device_of(groups, tables):
    """The device of all parameters, of which each is one the library takes."""
    where = None
    for group, table in zip(groups, tables):
        for p, r in zip(group["params"], table):
            p = local(p)
            if p.layout is not _strided:
                raise TypeError(f"'{r.name}' is {p.layout}; the library takes dense parameters")
            if p.dtype not in DTYPES:
                raise TypeError(
                    f"'{r.name}' is {p.dtype}; the library takes float32, bfloat16 and float64 parameters"
                    + (" (keep them in float32 under autocast)" if p.dtype is torch.float16 else ""))
            if not packed(p).is_contiguous() or (r.views and not p.is_contiguous()):
                raise ValueError(
                    f"'{r.name}' is not contiguous (shape {tuple(p.shape)}, strides {p.stride()}): make "
                    f"it so by p.data = p.data.contiguous() "
                    "before the optimiser is made")
            if p.numel() and not p.data_ptr():
                raise ValueError(
                    f"'{r.name}' has no memory (device {p.device}): it was freed, or never filled")
            if where is not None and p.device != where:
                raise ValueError(
                    f"'{r.name}' is on {p.device}, others on {where}: one optimiser works on one "
                    f"device; make one for each"
                )
            where = p.device
    if not any(p.numel() for group in groups for p in group["params"]):
        raise ValueError("no parameter has an entry: there is nothing to step")
    if where.type not in ("cpu", "cuda"):
        raise ValueError(f"parameters on {where}; the library works on cpu and cuda")
    return where


def _open(where):
    """The library's device for torch's."""
    if where.type == "cpu":
        name = f"cpu:threads={torch.get_num_threads()}"
        try:    # torch's own threads, which would look for work beside ours
            return device(name + ",team=openmp")
        except PolarError:    # a torch without OpenMP, or a forked process
            return device(name)
    index = where.index if where.index is not None else torch.cuda.current_device()
    torch.cuda.synchronize(index)    # the library reads bf16 weights from a stream of its own
    return device(f"cuda:{index}")


def _param(p, r, group, label):
    """polar_param of a parameter, and what it points to."""
    whole_rows, first_row = rows_of(p, r.name)
    if whole_rows and r.views:
        raise PolarError(
            f"'{r.name}' is a flat weight seen as matrices, and its rows lie on several ranks: "
            f"keep it whole (fully_shard's ignored_params)"
        )
    t = tensor(local(p).data_ptr(), DTYPES[p.dtype], tuple(packed(local(p)).shape) or (1, ))
    g = _abi.polar_tensor.from_buffer_copy(t)
    g.data = None
    route = _abi.POLAR_ROUTE_AUX if r.route == ADAMW else _abi.POLAR_ROUTE_MATRIX
    views = [_abi.polar_block(*v, 0) for v in r.views or ()]
    blocks = (_abi.polar_block * len(views))(*views) if views else None
    return _abi.polar_param(label.encode(), t, g, route, r.blocks if r.route == MATRIX and not views else 0,
                            0, 0, group, whole_rows, first_row, blocks, len(views)), blocks


def _pieces(groups, tables):
    """polar_params of everything that has entries, and what they point to; names are made to differ."""
    pieces, keep, labels = [], [], set()
    for k, (group, table) in enumerate(zip(groups, tables)):
        for p, r in zip(group["params"], table):
            if not p.numel():
                continue
            label = r.name
            while label in labels:
                label += "'"
            labels.add(label)
            piece, blocks = _param(p, r, k, label)
            pieces.append(piece)
            keep.append(blocks)
    return pieces, keep


def _float(t):
    if t is None:
        return None
    if t.dtype is not torch.float32:
        raise TypeError(f"GradScaler's floats are float32; got {t.dtype}")
    return cast(t.data_ptr(), _FloatPointer)


class Native:
    """polar_optim over the parameters of groups; `before` is the one whose place it takes."""

    def __init__(self, groups, tables, config, process_group=None, mean_of_ranks=False, before=None):
        self.device = _device_of(groups, tables)
        mine = [(k, p, r) for k, (g, table) in enumerate(zip(groups, tables))
                for p, r in zip(g["params"], table) if p.numel()]
        self.params, self.table = [p for _, p, _ in mine], [r for _, _, r in mine]
        # (its group's number, parameter, the library's number of it), in order
        self.entries = [(k, p, i) for i, (k, p, _) in enumerate(mine)]
        self.routes = [g["route"] for g in groups]
        dev, group = _open(self.device), group_of(self.params, process_group)
        self.ranks = before.ranks if before is not None else None
        if group is not None and self.ranks is None:
            self.ranks = Ranks(group, self.device)
        if self.ranks and not all(local(p).is_contiguous() for p in self.params):
            raise PolarError(
                "channels-last parameters over several ranks are not offered: make them contiguous "
                "(model.to(memory_format=torch.contiguous_format))")
        rules = [rule_of(g, config) for g in groups]
        pieces, keep = _pieces(groups, tables)
        again = before is not None and before.handle.here    # a fork's child has a queue of its own
        self.queue, self.stream = (before.queue, before.stream) if again else (None, None)
        self.handle = self._create(dev, pieces, rules, config, mean_of_ranks)
        self.rules = [rule for rule, _ in rules]
        self.weights = [local(p).data_ptr() for p in self.params]
        self.wanted = [(p, p.dtype, local(p).is_contiguous()) for p in self.params]    # of its gradient
        self.whole = all(local(p) is p for p in self.params)    # so that it need not be asked each step
        self.fixed = [fixed_of(g, rule) for g, rule in zip(groups, self.rules)]
        self.numbers = [None] * len(groups)
        self.given, self.scaler = None, (None, None)
        self.present = None    # which gradients were there in the last step on a GPU

    def _create(self, dev, pieces, rules, c, mean_of_ranks):
        o = _abi.polar_optim_opts()
        check(lib.polar_optim_opts_parse_sized(byref(o), c["rule"].encode(), byref(layout())))
        o.rule = rules[0][0]
        o.allow_no_matrix, o.measure, o.skip_missing = 1, int(c["measure"]), 1
        o.kron_tf32 = int(c.get("kron_tf32", False))
        o.skip_nonfinite = _abi.POLAR_SKIP_NONFINITE if c["skip_nonfinite"] else _abi.POLAR_SKIP_FLAGGED
        groups = (_abi.polar_group * max(len(rules) - 1, 1))()
        for k, (rule, _) in enumerate(rules[1:]):
            groups[k] = _abi.polar_group(None, o.lr, o.weight_decay, o.aux_lr, o.aux_weight_decay,
                                         o.aux_beta1, o.aux_beta2, o.aux_eps, _abi.POLAR_ROUTE_AUTO, 0)
            groups[k].rule = _abi.POINTER(_abi.polar_rule)(rule)
        o.groups, o.group_count = groups, len(rules) - 1
        if self.ranks:
            o.comm = self.ranks.comm.pointer
            o.grads = _abi.POLAR_GRADS_MEAN if mean_of_ranks else _abi.POLAR_GRADS_SAME
        out = c_void_p()
        with self.on_device(), self.ranks or _Nothing:
            check(
                lib.polar_optim_create_sized(byref(out), dev.pointer,
                                             (_abi.polar_param * len(pieces))(*pieces), len(pieces), byref(o),
                                             byref(layout())))
            if self.queue is None or self.queue.keep != (dev,):
                self.stream = self._current_stream()
                self.queue = queue(dev, self.stream)
        return Handle(out, lib.polar_optim_destroy, keep=(dev, self.queue, self.ranks))

    def on_device(self):
        return torch.cuda.device(self.device) if self.device.type == "cuda" else _Nothing

    def _current_stream(self):
        if self.device.type == "cpu":
            return None
        return torch.cuda.current_stream(self.device).cuda_stream or _STREAM_LEGACY

    # ---- what changed since ---------------------------------------------------------------------------

    def moved(self):
        """Whether a parameter lies elsewhere than the library knows."""
        here = self.params if self.whole else map(local, self.params)
        return [p.data_ptr() for p in here] != self.weights

    def check_moved(self):
        """Whether the library can follow parameters to where they are now: their shapes, and their memory."""
        for p, r in zip(self.params, self.table):
            if tuple(p.shape) != r.shape:
                raise ValueError(
                    f"'{r.name}' has the shape {tuple(p.shape)} now; the optimiser was made for {r.shape}: "
                    f"make a new one"
                )
            if local(p).numel() and not local(p).data_ptr():
                raise PolarError(f"'{r.name}' was freed while in use: its storage has no memory")
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)    # the state that goes on is complete

    def changed(self, groups):
        """Which groups' numbers changed since the library took them."""
        return [k for k, group in enumerate(groups) if numbers_of(group) != self.numbers[k]]

    def join_momenta(self, groups):
        """Groups as a step would see them, and a checkpoint should."""
        for k in self.changed(groups):
            join_momentum(groups[k], self.rules[k], self.numbers[k])

    def forget_numbers(self):
        """All groups have changed: a checkpoint was loaded."""
        self.numbers = [None] * len(self.numbers)

    def outdated(self, groups, changed):
        """Whether a number changed that the library takes when it is made."""
        return any(fixed_of(groups[k], self.rules[k]) != self.fixed[k] for k in changed)

    def sync_groups(self, groups, changed=None):
        """Hands over the numbers of the groups that changed since the last step."""
        for k in self.changed(groups) if changed is None else changed:
            group = groups[k]
            join_momentum(group, self.rules[k], self.numbers[k])
            h = hyper_of(group, self.rules[k])
            for route in (_abi.POLAR_ROUTE_MATRIX, _abi.POLAR_ROUTE_AUX):
                if (route == _abi.POLAR_ROUTE_AUX) == (group["route"] == ADAMW):
                    check(lib.polar_optim_set_hyper(self.handle.pointer, -1, k, route, byref(h)))
                elif route == _abi.POLAR_ROUTE_AUX and "rest" in group:
                    rest = rest_of(group)
                    check(lib.polar_optim_set_hyper(self.handle.pointer, -1, k, route, byref(rest)))
            self.numbers[k] = snapshot(numbers_of(group))

    # ---- a step ---------------------------------------------------------------------------------------

    def _odd_gradient(self, i, g):
        """A gradient that the library cannot take as it lies: a copy that it can, or an exception."""
        p, name = self.params[i], self.table[i].name
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
        g, p = g.detach(), p.detach()
        return g.contiguous() if p.is_contiguous() else torch.empty_like(p).copy_(g)

    def gradients(self, keep):
        """The gradients' addresses, 0 where there is none; `keep` gets the copies among them."""
        out, ranks = [], self.ranks
        for p, dtype, contiguous in self.wanted:
            g = p.grad
            if g is None:
                out.append(0)
                continue
            if ranks:
                g = local(g)
                keep.append(g)
            try:
                # torch sees to its shape and device
                if g.dtype is dtype and (g.is_contiguous() if contiguous else g.stride() == p.stride()):
                    out.append(g.data_ptr())
                    continue
            except RuntimeError:    # a sparse tensor has neither strides nor an address
                pass
            keep.append(self._odd_gradient(len(out), g))
            out.append(keep[-1].data_ptr())
        return out

    def step(self, pointers, found_inf, grad_scale):
        """One step with the gradients at these addresses, and GradScaler's floats."""
        if self.device.type == "cuda":
            self._step_on_gpu(pointers, found_inf, grad_scale)
            return
        self._give(pointers, found_inf, grad_scale)
        with self.ranks or _Nothing:
            check(lib.polar_optim_step(self.handle.pointer, self.queue.pointer))

    def _give(self, pointers, found_inf, grad_scale):
        """What the library does not have yet."""
        scaler = (found_inf, grad_scale)
        if scaler != (None, None) or self.scaler != (None, None):
            check(lib.polar_optim_set_scaler(self.handle.pointer, _float(found_inf), _float(grad_scale)))
            self.scaler = scaler
        if pointers != self.given:
            given = array("Q", pointers)
            at = cast(given.buffer_info()[0], POINTER(c_void_p))
            check(lib.polar_optim_set_grads(self.handle.pointer, at, len(given)))
            self.given = pointers

    def _step_on_gpu(self, pointers, found_inf, grad_scale):
        stream = self._current_stream()
        other = torch.cuda.current_device() != (self.device.index or 0)
        with self.on_device() if other else _Nothing:
            if stream != self.stream:
                check(lib.polar_queue_set_stream(self.queue.pointer, stream))
                self.stream = stream
            self._give(pointers, found_inf, grad_scale)
            there = [q != 0 for q in pointers]
            if not torch.cuda.is_current_stream_capturing():
                check(lib.polar_optim_step(self.handle.pointer, self.queue.pointer))
                self.present = there
                return
            if there != self.present:
                raise PolarError(
                    "make a step with the same gradients before it is captured (torch's warm-up): " +
                    ("none was made yet" if self.present is None else "the last one had others"))
            check(lib.polar_optim_enqueue(self.handle.pointer, self.queue.pointer))
