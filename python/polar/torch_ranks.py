"""torch_ranks.py -- an optimiser over the ranks of a torch process group: torch's collectives carry
libpolar's bytes, and the state, of which every rank has a part, is put together for checkpoints.

Every matrix is stepped by one rank (include/polar/optim.h, "several ranks"). Whole parameters
(DistributedDataParallel): the owner steps, the others get the new weights. Rows of parameters (fully_shard's
DTensors): the rows of a gradient go to the owner, the new rows come back.
"""
import ctypes
from ctypes import byref, c_int64, c_void_p, sizeof

import torch
import torch.distributed as dist

from . import _abi
from ._library import Handle, PolarError, check, lib
from .torch_state import parts, view

try:
    from torch.distributed.tensor import DTensor, Shard
except ImportError:    # before torch 2.5
    DTensor = Shard = ()


# kinds of state that whoever has a part of a parameter has whole
UNCUT = (_abi.POLAR_STATE_STEPS, _abi.POLAR_STATE_POST)


def is_rows(p):
    """A parameter of which every rank has some rows."""
    return bool(DTensor) and isinstance(p, DTensor) and any(isinstance(s, Shard) for s in p.placements)


def local(t):
    """The tensor that lies on this rank."""
    return t.to_local() if DTensor and isinstance(t, DTensor) else t


def group_of(params, given):
    """The process group of an optimiser: the caller's, else that of its DTensors, else None."""
    if given is not None:
        return given
    for p in params:
        if is_rows(p):
            if p.device_mesh.ndim != 1:
                raise PolarError(
                    f"parameters over a mesh of {p.device_mesh.ndim} dimensions; fully_shard over one (HSDP "
                    f"and tensor parallelism are not offered)"
                )
            return p.device_mesh.get_group()
    return None


def rows_of(p, name):
    """(whole_rows, first_row) for the library; (0, 0) of a parameter that is whole here."""
    if not is_rows(p):
        return 0, 0
    if p.device_mesh.ndim != 1 or not isinstance(p.placements[0], Shard) or p.placements[0].dim != 0:
        raise PolarError(
            f"'{name}' is placed as {p.placements}; the library takes whole tensors and Shard(0) over one "
            f"dimension of a mesh"
        )
    each = -(-p.shape[0] // p.device_mesh.size())
    first = min(each * p.device_mesh.get_local_rank(), p.shape[0])
    if local(p).shape[0] != min(each, p.shape[0] - first):
        raise PolarError(
            f"'{name}': rank {p.device_mesh.get_local_rank()} has {local(p).shape[0]} of {p.shape[0]} rows; "
            f"expected torch.chunk's {each}"
        )
    return p.shape[0], first


def _bytes_at(pointer, count, device):
    if device.type == "cuda":
        class Memory:
            __cuda_array_interface__ = {
                "shape": (count, ), "typestr": "|u1", "data": (pointer, False), "version": 3, "strides": None,
                "stream": None
            }
        return torch.as_tensor(Memory(), device=device)
    return torch.frombuffer((ctypes.c_char * count).from_address(pointer), dtype=torch.uint8, count=count)


class Ranks:
    """A process group as a communicator of libpolar's."""

    def __init__(self, group, device):
        self.group, self.device = group, device
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)
        self.sources = [
            dist.get_global_rank(group, r) if group is not dist.group.WORLD else r for r in range(self.size)
        ]
        self.on_gpu = dist.get_backend(group) == "nccl"
        self.error = None
        self._keep = []
        self.comm = self._table(_abi.POLAR_COMM_HOST, None)
        if self.on_gpu and device.type == "cuda":
            self.comm = self._table(_abi.POLAR_COMM_DEVICE, self.comm)

    def _table(self, memory, host):
        f = _abi.polar_comm_funcs()
        f.struct_size, f.rank, f.size, f.memory = sizeof(f), self.rank, self.size, memory
        call = _abi.polar_comm_exchange(self._on_host if memory == _abi.POLAR_COMM_HOST else self._on_device)
        f.exchange = call
        f.host = host.pointer if host is not None else None
        out = c_void_p()
        check(lib.polar_comm_create(byref(out), byref(f)))
        self._keep.append(call)
        return Handle(out, lib.polar_comm_close, keep=(call, host))

    def _exchange(self, recv, send, device, carrier):
        """One all_to_all_single of torch's; `carrier` is where its tensors lie."""
        ins = [recv.contents.bytes[r] for r in range(self.size)]
        outs = [send.contents.bytes[r] for r in range(self.size)]
        parts = [
            _bytes_at(send.contents.data + send.contents.at[r], n, device) for r, n in enumerate(outs) if n
        ]
        out = torch.cat(parts).to(carrier) if parts else torch.empty(0, dtype=torch.uint8, device=carrier)
        got = torch.empty(sum(ins), dtype=torch.uint8, device=carrier)
        dist.all_to_all_single(got, out, ins, outs, group=self.group)
        at = 0
        for r, n in enumerate(ins):
            if n:
                _bytes_at(recv.contents.data + recv.contents.at[r], n, device).copy_(got[at:at + n])
            at += n
        return 0

    def _on_host(self, arg, recv, send, stream):
        try:
            cpu = torch.device("cpu")
            return self._exchange(recv, send, cpu, self.device if self.on_gpu else cpu)
        except BaseException as e:    # a callback cannot raise: the call that it is a part of will
            self.error = e
            return 1

    def _on_device(self, arg, recv, send, stream):
        try:
            with torch.cuda.stream(torch.cuda.ExternalStream(stream, self.device)):
                return self._exchange(recv, send, self.device, self.device)
        except BaseException as e:
            self.error = e
            return 1

    def __enter__(self):
        return self

    def __exit__(self, kind, error, _):
        if isinstance(error, PolarError) and self.error is not None:
            error.__cause__, self.error = self.error, None
        return False

    def any(self, flag):
        """Whether the flag of any rank is set."""
        t = torch.tensor([int(flag)], device=self.device if self.on_gpu else "cpu")
        dist.all_reduce(t, dist.ReduceOp.MAX, group=self.group)
        return bool(t.item())

    # ---- the state of a parameter, whole and in parts ---------------------------------------------------

    @staticmethod
    def part(handle, index, rank):
        first, count = c_int64(), c_int64()
        check(lib.polar_optim_get_part(handle.pointer, index, rank, byref(first), byref(count)))
        return first.value, count.value

    def _broadcast(self, tensor, rank):
        carrier = tensor.to(self.device) if self.on_gpu else tensor
        dist.broadcast(carrier, self.sources[rank], group=self.group)
        if carrier is not tensor:
            tensor.copy_(carrier)

    def whole(self, handle, index, which, count, dtype, device):
        """All of one kind of state of the library's parameter `index`, flat, on every rank. Collective."""
        out = torch.empty(count, dtype=dtype, device=device)
        for r in range(self.size):
            first, n = self.part(handle, index, r)
            if not n:
                continue
            if r == self.rank:
                out[first:first + n].copy_(view(handle, index, which, device))
            piece = out[first:first + n].contiguous()
            self._broadcast(piece, r)
            out[first:first + n].copy_(piece)
        return out

    def _holder(self, handle, index):
        """The rank that steps the library's parameter `index`, or the first of those that do."""
        return next((r for r in range(self.size) if self.part(handle, index, r)[1]), 0)

    def kept(self, handle, index, which, dtype, device):
        """The same of a kind of state that is never cut and has a size of its own. Collective."""
        count = self.kept_count(handle, index, which, device)
        out, holder = torch.empty(count, dtype=dtype, device=device), self._holder(handle, index)
        if holder == self.rank and count:
            out.copy_(torch.cat(parts(handle, index, which, device)))
        self._broadcast(out, holder)
        return out

    def kept_count(self, handle, index, which, device):
        """Its numbers; only who keeps them knows how many. Collective."""
        count, holder = torch.zeros(1, dtype=torch.int64), self._holder(handle, index)
        if holder == self.rank:
            count[0] = sum(s.numel() for s in parts(handle, index, which, device))
        self._broadcast(count, holder)
        return int(count[0])

    def steps(self, handle, index, device):
        """Steps made with the library's parameter `index`. Collective."""
        out = torch.zeros(1, dtype=torch.float64)
        holder = self._holder(handle, index)
        if holder == self.rank:
            seen = view(handle, index, _abi.POLAR_STATE_STEPS, device)
            out.copy_(seen[:1])
        self._broadcast(out, holder)
        return out[0]

    def put(self, handle, index, which, flat, device):
        """This rank's part of a whole, flat tensor."""
        first, n = self.part(handle, index, self.rank)
        if n and which >= _abi.POLAR_STATE_POST:
            mine = parts(handle, index, which, device)
            for m, piece in zip(mine, flat.split([m.numel() for m in mine])):
                m.copy_(piece)
            return
        mine = view(handle, index, which, device) if n else None
        if mine is not None:
            mine.copy_(flat if which in UNCUT else flat[first:first + n])

    @staticmethod
    def like(p, flat):
        """A whole, flat tensor in the form of parameter p: of its rows alone, where it is cut so."""
        if flat.numel() != p.numel():    # moments of lines stay flat, and whole
            return flat
        if not is_rows(p):
            return flat.view(p.shape)
        _, first = rows_of(p, "")
        mine = flat.view(p.shape)[first:first + local(p).shape[0]].clone()
        return DTensor.from_local(mine,
                                  p.device_mesh,
                                  p.placements,
                                  run_check=False,
                                  shape=p.shape,
                                  stride=p.stride())


def full(value):
    """A tensor of a checkpoint, whole. Collective where it is cut in rows."""
    return value.full_tensor() if DTensor and isinstance(value, DTensor) else torch.as_tensor(value)
