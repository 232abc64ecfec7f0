"""torch_state.py -- memory of a libpolar optimiser as torch tensors, and state dicts that go from one
optimiser to another.

A tensor over the library's memory keeps the handle that owns it: it may outlive the optimiser.
"""
import ctypes
from ctypes import byref

import torch

from . import _abi
from ._library import check, lib

DTYPES = {
    torch.float32: _abi.POLAR_DTYPE_F32, torch.bfloat16: _abi.POLAR_DTYPE_BF16, torch.float64:
    _abi.POLAR_DTYPE_F64
}
_TORCH = {number: dtype for dtype, number in DTYPES.items()}


def packed(p):
    """A parameter as it lies in memory: filters that are channels-last as (out, kh, kw, in)."""
    last = p.ndim >= 3 and not p.is_contiguous()
    return p.permute(0, *range(2, p.ndim), 1) if last else p


class _DeviceMemory:
    """Memory of the library's on a GPU, in the words of the CUDA array interface."""

    def __init__(self, pointer, count, dtype, owner):
        kind = {torch.float32: "<f4", torch.float64: "<f8"}[dtype]
        self.__cuda_array_interface__ = {
            "shape": (count, ), "typestr": kind, "data": (pointer, False), "version": 3, "strides": None,
            "stream": None
        }
        self.owner = owner


def borrow(pointer, count, dtype, device, owner):
    """A flat tensor over memory of the library's; it keeps `owner`, which keeps the memory."""
    if count == 0:
        return torch.empty(0, dtype=dtype, device=device)
    if device.type == "cuda":
        return torch.as_tensor(_DeviceMemory(pointer, count, dtype, owner), device=device)
    size = count * torch.empty(0, dtype=dtype).element_size()
    memory = (ctypes.c_char * size).from_address(pointer)
    memory.owner = owner
    return torch.frombuffer(memory, dtype=dtype, count=count)


def view(handle, index, which, device, part=None):
    """One piece of the state of the library's parameter `index`, or of a part of it, flat; None where it has
    none.
    """
    t = _abi.polar_tensor()
    if part is None:
        check(lib.polar_optim_state_view(byref(t), handle.pointer, index, which))
    else:
        check(lib.polar_optim_part_view(byref(t), handle.pointer, index, part, which))
    if not t.data:
        return None
    count = 1
    for i in range(t.ndim):
        count *= t.shape[i]
    return borrow(t.data, count, _TORCH[t.dtype], device, handle)


def parts(handle, index, which, device):
    """What each part of the library's parameter `index` keeps for itself, flat."""
    count = lib.polar_optim_part_count(handle.pointer, index)
    seen = [view(handle, index, which, device, k) for k in range(count)]
    return [s for s in seen if s is not None]


def join_state_dicts(*states):
    """One state dict of several, as if their groups were one optimiser's.

    A run that had torch.optim.Muon for the matrices and torch.optim.AdamW for the rest goes on by

        opt.load_state_dict(polar.join_state_dicts(muon.state_dict(), adamw.state_dict()))

    where `opt.param_groups` hold the same parameters in the same order: matrices first.
    """
    out, first = {"state": {}, "param_groups": []}, 0
    for sd in states:
        index = {}
        for group in sd["param_groups"]:
            group = dict(group)
            for i in group["params"]:
                index.setdefault(i, first + len(index))
            group["params"] = [index[i] for i in group["params"]]
            out["param_groups"].append(group)
        for i, s in sd["state"].items():
            out["state"][index[i]] = s
        first += len(index)
    return out


def split_state_dict(state):
    """The reverse: a state dict for every group, so that torch.optim.Muon and torch.optim.AdamW may each have
    theirs.
    """
    out = []
    for group in state["param_groups"]:
        index = {i: k for k, i in enumerate(group["params"])}
        out.append({"state": {index[i]: s for i, s in state["state"].items() if i in index},
                    "param_groups": [{**group, "params": list(index.values())}]})
    return out
