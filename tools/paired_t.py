"""paired_t.py -- paired comparisons by Student's t, for the tools beside it, in plain Python.

    d = paired({0: 0.0075, 1: 0.0071, 2: 0.0078}, {0: 0.0062, 1: 0.0065, 2: 0.0061})    # by seed
    d.mean - d.half, d.mean + d.half, d.p                                                # 95 %, two-sided

`polar audit` has the same tests and more, for the arms of one cell; these are for what lies across cells and
specs.
"""
import collections
import functools
import math

Difference = collections.namedtuple("Difference", "n a b mean half t p plus minus")


def mean(values):
    values = list(values)
    return sum(values) / len(values)


def p_value(t, df):
    """Two-sided, of Student's t with a whole number of degrees of freedom: the finite sums of Abramowitz and
    Stegun 26.7.3 and 26.7.4. What is below 1e-15 is rounding."""
    theta = math.atan(abs(t) / math.sqrt(df))
    sine, square = math.sin(theta), math.cos(theta) ** 2
    odd = df % 2
    total, term = 0.0, math.cos(theta) if odd else 1.0
    for k in range(3 if odd else 2, df + 1, 2):
        total += term
        term *= square * (k - 1) / k
    inside = (theta + sine * total) * 2 / math.pi if odd else sine * total
    return max(0.0, 1.0 - inside)


@functools.lru_cache(None)
def quantile(df, p=0.05):
    """What |t| exceeds with probability p: 1.96 for many degrees of freedom."""
    low, high = 0.0, 1.0
    while p_value(high, df) > p:
        high *= 2
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if p_value(middle, df) > p else (low, middle)
    return (low + high) / 2


def spread(values):
    """Mean and half the 95 % interval; of one value the latter is infinite."""
    m, n = mean(values), len(values)
    if n < 2:
        return m, math.inf
    return m, quantile(n - 1) * math.sqrt(sum((v - m) ** 2 for v in values) / (n - 1) / n)


def paired(x, y):
    """x - y over the keys (seeds) that both have; None where these are fewer than two."""
    both = sorted(set(x) & set(y))
    n = len(both)
    if n < 2:
        return None
    d = [x[s] - y[s] for s in both]
    m, half = spread(d)
    error = half / quantile(n - 1)
    t = m / error if error else math.copysign(math.inf, m) if m else 0.0
    return Difference(n, mean(x[s] for s in both), mean(y[s] for s in both), m, half, t, p_value(t, n - 1),
                      sum(v > 0 for v in d), sum(v < 0 for v in d))


def holm(ps):
    """Corrected for all of them, in their order."""
    out, least = [0.0] * len(ps), 0.0
    for rank, i in enumerate(sorted(range(len(ps)), key=ps.__getitem__)):
        least = max(least, min(1.0, ps[i] * (len(ps) - rank)))
        out[i] = least
    return out
