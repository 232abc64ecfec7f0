"""test_examples.py -- the examples run, a few steps of each; those whose libraries are not here are left out.
"""
import pathlib
import runpy
import sys

import pytest

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples" / "python"


def run(name, *arguments):
    old = sys.argv
    sys.argv = [name, *arguments]
    try:
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    finally:
        sys.argv = old


def fell(out):
    """Whether the last held-out loss that was printed is below the first."""
    losses = [
        float(line.split("held out")[1].split()[0]) for line in out.splitlines() if line.startswith("step")
    ]
    return losses[-1] < losses[0]


@pytest.mark.parametrize("optimizer", ["polaradamw", "muon", "adamw"])
def test_char_gpt(capsys, optimizer):
    run("char_gpt.py", "--steps", "80", "--width", "32", "--depth", "1", "--length", "16", "--device", "cpu",
        "--optimizer", optimizer)
    out = capsys.readouterr().out
    assert ("4 of 15 parameters take the matrix rule" in out) == (optimizer != "adamw"), out
    assert fell(out)


def test_char_gpt_jax(capsys):
    pytest.importorskip("jax")
    run("char_gpt_jax.py", "--steps", "80", "--width", "32", "--depth", "2", "--length", "16")
    out = capsys.readouterr().out
    assert "4 of 10 parameters take the matrix rule" in out and "6 of 32x32" in out, out
    assert fell(out)


def test_deit_timm(capsys):
    pytest.importorskip("timm")
    run("deit_timm.py", "--steps", "2", "--batch", "2")
    assert "48 of 152 parameters" in capsys.readouterr().out


def test_e3nn_blocks(capsys):
    pytest.importorskip("e3nn")
    run("e3nn_blocks.py", "--steps", "20")
    assert "4x32+8x16" in capsys.readouterr().out
