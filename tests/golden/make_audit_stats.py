#!/usr/bin/env python3
"""make_audit_stats.py -- audit_stats.json: what scipy, statsmodels and lifelines say of audits' statistics.

    python -m venv /tmp/stats && /tmp/stats/bin/pip install -r tests/golden/requirements-stats.txt
    /tmp/stats/bin/python tests/golden/make_audit_stats.py tests/golden/audit_stats.json
    (cd tests/golden && LC_ALL=C sha256sum *.json *.safetensors >MANIFEST)

One object of flat lists of numbers, for a small reader:

    nct            t, df, ncp, P(T <= t): mpmath's integral, to which scipy.stats.nct agrees within 1e-10
    effect.K.a .b  a paired sample; effect.K: Hedges' g_z (J(n - 1) mean/sd, J by gamma functions),
                   its 95 % ends (noncentral t, inverted by brentq), margin, TOST's p (statsmodels
                   ttost_paired)
    holm.K.p       p values; holm.K: statsmodels multipletests(method="holm")
    km.K           tau, median, its 95 % ends (log-log), restricted mean: lifelines; inf is written null
    km.K.time .event
    sign           plus, minus, p: scipy.stats.binomtest(plus, plus + minus)
    logrank.K      chi2 of statsmodels' log-rank stratified by pairs, (plus - minus)^2/(plus + minus) of
                   who is earlier
    logrank.K.a .ea .b .eb    its times and events
"""
import json
import sys
from fractions import Fraction

import mpmath as mp
import numpy as np
import scipy.optimize
import scipy.special
import scipy.stats
from lifelines import KaplanMeierFitter
from lifelines.utils import median_survival_times, restricted_mean_survival_time
from statsmodels.duration.survfunc import survdiff
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.weightstats import ttost_paired

out = {}


def nct_cdf_mp(t, df, ncp):
    """P(T <= t) as the integral over s = sqrt(chi2/df), 30 digits."""
    with mp.workdps(30):
        t, df, ncp = mp.mpf(t), mp.mpf(df), mp.mpf(ncp)
        log_c = mp.log(2) + df / 2 * mp.log(df / 2) - mp.loggamma(df / 2)
        f = lambda s: mp.exp(log_c + (df - 1) * mp.log(s) - df / 2 * s * s) * mp.ncdf(t * s - ncp)
        w = 1 / mp.sqrt(2 * df)
        cuts = [mp.mpf(0)] + [x for x in (1 + k * w for k in range(-12, 13, 2)) if x > 0] + [1 + 40 * w + 10]
        return float(mp.quad(f, cuts))


rows = []
for t, df, ncp in [(0.5, 3, 0), (2, 3, 1), (-1, 3, 1), (4.5, 7, 2.5), (2.1, 19, 0.05), (2.1, 19, 4.3),
                   (12, 19, 9), (12, 19, 15), (-3, 9, -1), (4.97, 99, 3), (4.97, 99, 6.9), (10.6, 19, 7),
                   (30, 99, 26), (30, 99, 34), (1, 1, 1), (6, 2, 3)]:
    want, check = float(scipy.stats.nct.cdf(t, df, ncp)), nct_cdf_mp(t, df, ncp)
    assert abs(want - check) <= 1e-10 * check + 1e-13, (t, df, ncp, want, check)
    rows += [t, df, ncp, check]
out["nct"] = rows


def effect(a, b, margin):
    d = np.asarray(a) - np.asarray(b)
    n = len(d)
    df = n - 1
    t = d.mean() / (d.std(ddof=1) / np.sqrt(n))
    j = float(np.exp(scipy.special.gammaln(df / 2) - scipy.special.gammaln((df - 1) / 2)) / np.sqrt(df / 2))
    # scipy's cdf is NaN far out and for t < 0: by the other sign
    size, wide = abs(t), 4 * np.sqrt(1 + t * t / (2 * df))
    end = lambda p: scipy.optimize.brentq(
        lambda c: scipy.stats.nct.cdf(size, df, c) - p, size - wide, size + wide, xtol=1e-13, rtol=1e-14)
    lo, hi = sorted(np.sign(t) * end(p) / np.sqrt(n) for p in (0.975, 0.025))
    for c, p in ((lo, 0.975), (hi, 0.025)):
        assert abs(nct_cdf_mp(t, df, c * np.sqrt(n)) - p) < 1e-11
    return [
        j * t / np.sqrt(n), j * lo, j * hi, margin,
        float(ttost_paired(np.asarray(a), np.asarray(b), -margin, margin)[0])
    ]


k = 0
for n, mul, mod, shift, margin in [(3, 5, 97, 30, 0.2), (4, 37, 97, 30, 1.5), (8, 37, 97, 40, 0.5),
                                   (20, 41, 101, 45, 0.25), (20, 41, 101, 90, 2.0), (50, 37, 1009, 450, 1.0),
                                   (100, 41, 1009, 450, 4.0), (100, 3, 7, -9, 0.25)]:
    d = np.array([(i + 1) * mul % mod - shift for i in range(n)]) / 64
    b = np.array([i * 29 % 31 for i in range(n)]) / 16
    out[f"effect.{k}.a"], out[f"effect.{k}.b"] = (b + d).tolist(), b.tolist()
    out[f"effect.{k}"] = [float(x) for x in effect(b + d, b, margin)]
    k += 1

for k, p in enumerate([[0.01, 0.04, 0.03, 0.005], [0.5], [0.2, 0.2, 0.9, 1.0, 1e-12],
                       [1e-3 * (i * 37 % 29 + 1) for i in range(18)], [0.03, 0.02, 0.04]]):
    out[f"holm.{k}.p"] = p
    out[f"holm.{k}"] = [float(x) for x in multipletests(p, method="holm")[1]]

cases = [([6, 6, 6, 6, 7, 9, 10, 10, 11, 13, 16, 17, 19, 20, 22, 23, 25, 32, 32, 34,
           35], [1, 1, 1, 0, 1, 0, 1, 0, 0, 1, 1, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0], 30),
         ([5, 8, 8, 12, 40, 40, 40], [1, 1, 1, 1, 0, 0, 0], 40), ([40, 40, 40], [0, 0, 0], 40),
         ([3, 3, 3, 3], [1, 1, 1, 1], 10),
         ([i * 17 % 41 + 1 for i in range(60)], [int(i % 5 != 0) for i in range(60)], 35),
         ([12, 100, 30, 100, 55, 100, 100], [1, 0, 1, 0, 1, 0, 0], 100), ([2, 4, 6, 8], [1, 1, 1, 1], 8),
         ([7], [1], 10)]


def exact_median(time, event):
    """The first time with S <= 1/2, in fractions: lifelines rounds S and may miss 1/2 itself."""
    left = Fraction(1)
    for t in sorted(set(time)):
        at_risk, deaths = sum(x >= t for x in time), sum(x == t and e for x, e in zip(time, event))
        left *= Fraction(at_risk - deaths, at_risk)
        if left <= Fraction(1, 2):
            return t
    return np.inf


big = lambda x: float(x)
for k, (time, event, tau) in enumerate(cases):
    f = KaplanMeierFitter().fit(time, event)
    assert f.median_survival_time_ == exact_median(time, event), (time, event)
    ci = median_survival_times(f.confidence_interval_).to_numpy().ravel()
    out[f"km.{k}.time"], out[f"km.{k}.event"] = time, event
    out[f"km.{k}"] = [
        tau,
        big(f.median_survival_time_),
        big(ci[0]),
        big(ci[1]),
        float(restricted_mean_survival_time(f, t=tau))
    ]

rows = []
for plus, minus in [(0, 0), (1, 0), (5, 0), (3, 7), (10, 10), (20, 4), (60, 40), (99, 1)]:
    p = 1.0 if plus + minus == 0 else float(scipy.stats.binomtest(plus, plus + minus).pvalue)
    rows += [plus, minus, p]
out["sign"] = rows

# pairs as strata: who is earlier, where that is known
for k, (a, ea, b, eb) in enumerate(
    [([5, 9, 12, 40, 7, 40], [1, 1, 1, 0, 1, 0], [8, 6, 40, 33, 7, 40], [1, 1, 0, 1, 1, 0]),
     ([i * 7 % 23 + 1 for i in range(30)], [int(i % 4 > 0) for i in range(30)],
      [i * 11 % 29 + 1 for i in range(30)], [int(i % 3 > 0) for i in range(30)])]):
    n = len(a)
    chi2, _ = survdiff(np.array(a + b),
                       np.array(ea + eb),
                       np.array([0] * n + [1] * n),
                       strata=np.array(list(range(n)) * 2))
    out[f"logrank.{k}.a"], out[f"logrank.{k}.ea"], out[f"logrank.{k}.b"], out[
        f"logrank.{k}.eb"] = a, ea, b, eb
    out[f"logrank.{k}"] = [float(chi2)]

text = json.dumps(out).replace("Infinity", "null").replace("], ", "],\n ")
open(sys.argv[1], "w").write(text + "\n")
print(len(text), "bytes")
