"""routes.py -- which parameter takes the matrix rule, which takes AdamW, and why: the rows that people see,
and patterns of names. Who decides: torch_routes.py, jax_routes.py.
"""
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import groupby
from math import prod
from typing import Optional, Tuple

MATRIX, ADAMW = "matrix", "adamw"


@dataclass
class Route:
    """A parameter's way: a row of `opt.routes()`."""

    name: str
    shape: Tuple[int, ...]
    route: str
    why: str
    blocks: int = 1                                         # equal blocks of rows, each mapped by itself
    # matrices within the parameter: (offset, rows, cols, elements from row to row)
    views: Optional[Tuple[Tuple[int, int, int, int], ...]] = None
    group: int = -1

    @property
    def rest(self):
        """Weights of a parameter with views that none of them covers."""
        return prod(self.shape) - sum(v[1] * v[2] for v in self.views) if self.views else 0


class Routes(list):
    """A list of Route that prints as a table."""

    def __str__(self):
        rows = [("parameter", "shape", "route", "as", "why")]
        for r in self:
            seen = ""
            if r.route != ADAMW:
                seen = self._blocks(r) if r.views else self._matrices(r)
            rows.append((r.name, "x".join(map(str, r.shape)) or "scalar", r.route, seen, r.why))
        width = [max(len(row[k]) for row in rows) for k in range(5)]
        lines = ["  ".join(cell.ljust(w) for cell, w in zip(row, width)).rstrip() for row in rows]
        matrices = sum(r.route == MATRIX for r in self)
        return "\n".join(lines + [f"{matrices} of {len(self)} parameters take the matrix rule"])

    __repr__ = __str__

    @staticmethod
    def _blocks(r):
        runs = [(shape, len(list(run))) for shape, run in groupby((v[1:3] for v in r.views))]
        out = "+".join((f"{n} of " if n > 1 else "") + f"{a}x{b}" for (a, b), n in runs)
        return out + (f", {r.rest} by AdamW" if r.rest else "")

    @staticmethod
    def _matrices(r):
        rows, cols = r.shape[0], 1
        for n in r.shape[1:]:
            cols *= n
        return f"{r.blocks} of {rows // r.blocks}x{cols}" if r.blocks > 1 else f"{rows}x{cols}"


def match(patterns, name):
    """The first of the patterns (* and ?) that fits the name, or None."""
    if isinstance(patterns, str):
        patterns = [patterns]
    return next((p for p in patterns or () if fnmatchcase(name, p)), None)
