"""torch_writes.py -- who wrote the weights: torch's version counts, by which weights that others wrote are
noticed, and those that a step wrote are told to autograd.

torch counts every write of its own into a tensor (`_version`); the library's it does not see, nor does anyone
count writes through `p.data`. Invariants, between steps:

- a stepped parameter's count has grown by one, so that torch refuses a backward through weights that are gone
  (from torch 2.1 on, of whole parameters);
- `seen` has the counts of the bf16 parameters, `masters`, for which the f32 master copies hold; where a count
  differs somebody wrote the weights, and the copies follow;
- `rows` has the same for parameters of which every rank has some rows, whose owners keep whole copies.
"""
from itertools import compress, repeat

import torch

from . import _abi
from .torch_ranks import is_rows, local
from .torch_state import view

try:
    from torch.autograd.graph import increment_version as _count_write
    _count_write((torch.empty(0), ))    # one call for all
except ImportError:    # before torch 2.1
    _count_write = None
except TypeError:    # it takes a tensor at a time
    def _count_write(tensors, one=_count_write):
        for t in tensors:
            one(t)


class Writes:
    """Of the parameters of a Native; `before` are those of the one whose place it took."""

    def __init__(self, native, before=None):
        self.native, params = native, native.params
        self.counts = _count_write is not None and native.whole and not any(p.is_inference() for p in params)
        numbers = [i for i, p in enumerate(params)
                   if p.dtype is torch.bfloat16 and not is_rows(p) and not p.is_inference()]
        self.numbers, self.masters = numbers, [params[i] for i in numbers]    # the library's, and torch's
        known = dict(zip(before.masters, before.seen)) if before is not None else {}
        self.seen = [known.get(p, p._version) for p in self.masters]
        self.rows = self.rows_now()

    def rows_now(self):
        """Counts of the parameters in rows, by themselves and as they lie here."""
        return [(p._version, local(p)._version) for p in self.native.params if is_rows(p)]

    def to_rows(self):
        """Whether any rank's rows were written since this was last asked. Collective, where there are any."""
        if not self.rows:
            return False
        last, self.rows = self.rows, self.rows_now()
        return self.native.ranks.any(last != self.rows)

    def to_masters(self):
        """Whether bf16 weights were written since the master copies were seen to hold."""
        return [p._version for p in self.masters] != self.seen

    @torch.no_grad()
    def renew_masters(self, state, every=False):
        """The master copies of bf16 weights that were written follow, where the two disagree. `every`: of all
        of them, for writing that torch did not count.
        """
        ranks, native = self.native.ranks, self.native
        for i, p, version in zip(self.numbers, self.masters, self.seen):
            if not every and p._version == version:
                continue
            if ranks:
                first, n = ranks.part(native.handle, i, ranks.rank)
                master = view(native.handle, i, _abi.POLAR_STATE_MASTER, native.device) if n else None
                given = p.detach().reshape(-1)[first:first + n]
            else:
                master, given = state[p]["master"], p.detach()
            if master is not None:
                master.copy_(torch.where(master.bfloat16() == given, master, given.float()))
        self.masters_hold()

    def masters_hold(self):
        """The master copies are those of the weights as they are."""
        self.seen = [p._version for p in self.masters]

    def all_hold(self):
        """The same, and of rows: what was written so far is known."""
        self.masters_hold()
        self.rows = self.rows_now()

    def stepped(self, pointers):
        """A step wrote the weights whose gradients were there, and their master copies."""
        if not self.counts:
            return
        every = all(pointers)
        _count_write(self.native.params if every else list(compress(self.native.params, pointers)))
        there = self.seen and (repeat(True) if every else map(pointers.__getitem__, self.numbers))
        self.seen = [version + 1 if wrote else version for version, wrote in zip(self.seen, there)]
