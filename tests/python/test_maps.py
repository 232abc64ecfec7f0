"""test_maps.py -- polar maps of numpy arrays and torch tensors, the docstrings as they stand, records of a
store.
"""
import doctest
import importlib
import os
import sqlite3
import subprocess
import threading

import numpy as np
import pytest
import torch

import polar


@pytest.mark.parametrize("module", ["polar", "polar.array_maps"])
def test_docstrings(module):
    found = doctest.testmod(importlib.import_module(module) if module != "polar" else polar)
    assert found.failed == 0 and found.attempted >= 1


def exact(g):
    u, _, v = np.linalg.svd(g, full_matrices=False)
    return u @ v


def test_in_a_stream_nothing_fails_unheard(monkeypatch):
    """There nobody waits: what could not be enqueued is an error of its call, the next one is made."""
    maps = importlib.import_module("polar.array_maps")
    g = np.random.default_rng(1).standard_normal((4, 4))
    whole = polar.polar(g)

    class InStream(maps._Array):

        def __init__(self, x):
            super().__init__(x)
            self.stream = 1    # which the CPU's queue does not look at

    monkeypatch.setattr(maps, "_Array", InStream)
    polar._lib.polar_queue_upload(maps._queue("cpu").pointer, None, g.ctypes.data, 8)    # fails in the queue
    with pytest.raises(polar.PolarError, match="NULL"):
        polar.polar(g)
    assert np.array_equal(polar.polar(g), whole)


def test_numpy_and_torch_are_one():
    g = np.random.default_rng(0).standard_normal((3, 7, 5))
    x = polar.polar(g)
    assert isinstance(x, np.ndarray) and x.shape == g.shape and np.abs(x - exact(g)).max() < 1e-12
    t = polar.polar(torch.from_numpy(g))
    assert isinstance(t, torch.Tensor) and np.array_equal(t.numpy(), x)
    assert np.array_equal(polar.polar(g.transpose(0, 2, 1)), x.transpose(
        0, 2, 1)) or np.abs(polar.polar(g.transpose(0, 2, 1)) - x.transpose(0, 2, 1)).max() < 1e-12
    assert np.array_equal(polar.polar(np.asfortranarray(g[0])), x[0])
    half = polar.newton_schulz(torch.from_numpy(g).bfloat16())
    assert half.dtype is torch.bfloat16
    assert polar.polar(np.zeros((3, 4))).any() == False    # noqa: E712


def test_newton_schulz_is_the_iteration():
    g = np.random.default_rng(1).standard_normal((16, 24))
    a, b, c = 3.4445, -4.7750, 2.0315
    x = g / np.linalg.norm(g)
    for _ in range(5):
        A = x @ x.T
        x = a * x + (b * A + c * A @ A) @ x
    assert np.abs(polar.newton_schulz(g, precision="fp64") - x).max() < 1e-12
    assert np.abs(polar.newton_schulz(g, coefficients=(a, b, c), precision="fp64") - x).max() < 1e-12
    # 2^-24 through five steps that stretch by 3.4 each
    assert np.abs(polar.newton_schulz(g.astype("f"), precision="fp32") - x).max() < 1e-4
    s = np.linalg.svd(polar.newton_schulz(g.astype("f")), compute_uv=False)
    assert 0.5 < s.min() and s.max() < 1.3
    rows = [(a, b, c)] * 4 + [(15 / 8, -5 / 4, 3 / 8)]
    assert np.linalg.norm(polar.newton_schulz(g, coefficients=rows, precision="fp64") -
                          polar.polar(g)) < np.linalg.norm(x - polar.polar(g))


def test_what_is_refused():
    for error, words, call in ((ValueError, "two dimensions", lambda: polar.polar(np.ones(3))),
                               (TypeError, "complex128", lambda: polar.polar(np.ones(
                                   (2, 2)) * 1j)), (ValueError, "empty", lambda: polar.polar(np.ones(
                                       (0, 3)))), (polar.PolarError, "ns_fp3",
                                                   lambda: polar.newton_schulz(np.eye(2), precision="fp3")),
                               (polar.PolarError, "table",
                                lambda: polar.newton_schulz(np.eye(2), coefficients="jordann"))):
        with pytest.raises(error, match=words):
            call()
    assert polar.polar(np.eye(3, dtype=int)).dtype == np.float64


def test_covariance_tells_the_rules_apart():
    muon, paper, adamw = (polar.covariance(rule, (12, 16), samples=4)["mean"]
                          for rule in ("muon", "polaradamw", "adamw"))
    assert muon < 0.1 < paper < adamw * 1.5 and adamw > 0.3, (muon, paper, adamw)
    assert polar.covariance("muon", (12, 16), samples=4, map="ns_fp64", dtype="float64")["mean"] < 1e-9


def test_threads_have_their_queues():
    g = np.random.default_rng(2).standard_normal((64, 48))
    want, got = polar.newton_schulz(g, precision="fp64"), {}
    threads = [
        threading.Thread(
            target=lambda k=k: got.update({k: [polar.newton_schulz(g, precision="fp64") for _ in range(5)]}))
        for k in range(4)
    ]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert all(np.array_equal(x, want) for xs in got.values() for x in xs) and len(got) == 4


program = os.environ.get("POLAR_PROGRAM", "")


@pytest.mark.skipif(not os.path.exists(program), reason="no program `polar` in this build")
def test_records_of_a_store(tmp_path):
    store = str(tmp_path / "small.db")
    source = os.path.join(os.path.dirname(__file__), "..", "..", "specs", "demo")
    demo = "so3_tiny.yaml"
    done = subprocess.run(
        [program, "run", os.path.join(source, demo), "--store", store, "--set", "seeds=0..1"],
        capture_output=True,
        text=True,
        cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    runs = polar.runs(store)
    assert runs and {r["state"]
                     for r in runs} == {"done"} and any(k.startswith("result.") for k in runs[0]) and any(
                         k.startswith("config.") for k in runs[0])
    assert polar.runs(store, spec="no such") == []
    pairs = polar.audit(store)
    assert pairs and {"a", "b", "n", "mean_diff", "ci95_low", "p"} <= set(pairs[0]) and pairs[0]["n"] == 2
    by_hand = {
        arm:
        np.mean([
            r["result." + pairs[0]["metric"]] for r in runs
            if r["arm"] == arm and r["cell"] == pairs[0]["cell"]
        ])
        for arm in (pairs[0]["a"], pairs[0]["b"])
    }
    assert np.isclose(pairs[0]["mean_a"], by_hand[pairs[0]["a"]]) and np.isclose(
        pairs[0]["mean_b"], by_hand[pairs[0]["b"]])


def test_stores_that_are_none(tmp_path):
    with pytest.raises(FileNotFoundError, match="polar run"):
        polar.runs(str(tmp_path / "none.db"))
    (tmp_path / "text.db").write_text("no database, but long enough to be looked at" * 100)
    with pytest.raises(polar.PolarError):
        polar.runs(str(tmp_path / "text.db"))


def lying_store(path, version=4, name="s", config="{}"):
    db = sqlite3.connect(path)
    db.executescript(
        f"PRAGMA application_id = {0x706F6C72}; PRAGMA user_version = {version};"
        "CREATE TABLE spec(name); CREATE TABLE config(key, json); CREATE TABLE result(run, name, value);"
        "CREATE TABLE run(id, testbed, state, wall, started, finished, code, device, config);"
        "CREATE TABLE member(spec, cell, arm, seed, ord, run);")
    db.execute("INSERT INTO spec VALUES (?)", (name,))
    db.execute("INSERT INTO config VALUES ('c', ?)", (config,))
    db.execute("INSERT INTO run VALUES ('r', 't', 'done', 1, '', '', '', '', 'c')")
    db.execute("INSERT INTO member VALUES (?, '', 'a', 0, 0, 'r')", (name,))
    db.commit()
    db.close()
    return str(path)


def test_stores_that_lie(tmp_path):
    # a name is a name, not parts of an address
    assert len(polar.runs(lying_store(tmp_path / "a?mode=rwc#%41.db"))) == 1
    for version in (-3, 0, 5):
        with pytest.raises(polar.PolarError, match=f"version {version}"):
            polar.runs(lying_store(tmp_path / f"v{version}.db", version=version))
    for k, config in enumerate(("{", "[1]", "3")):
        with pytest.raises(polar.PolarError, match="damaged"):
            polar.runs(lying_store(tmp_path / f"c{k}.db", config=config))
    for k, name in enumerate(("--help", "-o/tmp/x", "../../x", "a b", "", 7)):
        with pytest.raises(polar.PolarError, match="which no spec can have"):
            polar.audit(lying_store(tmp_path / f"n{k}.db", name=name))
    empty = sqlite3.connect(tmp_path / "empty.db")
    empty.executescript(f"PRAGMA application_id = {0x706F6C72}; PRAGMA user_version = 4;")
    empty.close()
    for read in (polar.runs, polar.audit):
        with pytest.raises(polar.PolarError, match="damaged"):
            read(str(tmp_path / "empty.db"))
