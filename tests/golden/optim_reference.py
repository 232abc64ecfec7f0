"""optim_reference.py -- the update rules and the polar maps, as a specification. Plain torch, no tricks.

R() below is a rounding to bf16; everything inside R() is fp32. ns5_bf16_reference follows the public
reference implementation of Muon rounding by rounding: it is what the paper's bf16 column measures.
"""
import math
import torch

A, B, C = 3.4445, -4.7750, 2.0315


def ns5(G, dtype=torch.float64, steps=5):
    """Newton-Schulz in one precision throughout (fp64 or fp32). No epsilon: zero in, zero out; otherwise
    scale-free.
    """
    X = G.to(dtype)
    t = X.shape[0] > X.shape[1]
    X = X.T if t else X
    n = X.norm()
    if n == 0:
        return torch.zeros_like(G, dtype=dtype)
    X = X / n
    for _ in range(steps):
        G2 = X @ X.T
        X = A * X + (B * G2 + C * (G2 @ G2)) @ X
    return X.T if t else X


def ns5_bf16_reference(G, steps=5, eps=1e-7):
    R = lambda x: x.to(torch.bfloat16).to(torch.float32)
    X = R(G.float())
    t = X.shape[0] > X.shape[1]
    X = X.T if t else X
    n = R(R(X.square().sum().sqrt()) + eps)
    X = R(X / n)
    for _ in range(steps):
        G2 = R(X @ X.T)
        P = R(R(C * G2) @ G2)              # (c*A) @ A, in this order
        Y = R(R(B * G2) + P)
        X = R(R(A * X) + R(Y @ X))
    return X.T if t else X


def polar(G):
    """Exact polar factor by SVD, fp64; zero singular values map to zero (canonical partial isometry)."""
    U, S, Vh = torch.linalg.svd(G.double(), full_matrices=False)
    keep = (S > S.max() * max(G.shape) * torch.finfo(torch.float64).eps).double()
    return (U * keep) @ Vh


def scale(shape):
    return math.sqrt(max(shape) / min(shape))


# rule -> (momentum, precondition with 1/(sqrt(v^)+eps), polar map, lr and decay of its matrices):
# src/optim/rule.c
RULES = {
    "sgdm":       ("heavy_ball", False, False, 5e-3, 0.05),
    "adamw":      ("ema", True, False, 5e-4, 0.05),
    "muon":       ("heavy_ball_nesterov", False, True, 5e-3, 0.0),
    "polaradamw": ("ema", True, True, 5e-3, 0.05),
    "muon_v":     ("heavy_ball_nesterov", True, True, 5e-3, 0.05),
    "polar_ema":  ("ema", False, True, 5e-3, 0.05),
}


def step(rule, W, g, st, lr, wd=0.0, mu=0.95, b1=0.9, b2=0.999, eps=1e-8, ns=ns5):
    """One step on one matrix; st = {'t','m','v'} starts at 0 and zeros; returns the new W."""
    momentum, precondition, polarise, _, _ = RULES[rule]
    st["t"] += 1
    if momentum == "ema":
        st["m"] = b1 * st["m"] + (1 - b1) * g
        D = st["m"] / (1 - b1 ** st["t"])
    else:
        st["m"] = mu * st["m"] + g
        D = g + mu * st["m"] if momentum == "heavy_ball_nesterov" else st["m"]
    if precondition:
        st["v"] = b2 * st["v"] + (1 - b2) * g * g
        D = D / ((st["v"] / (1 - b2 ** st["t"])).sqrt() + eps)
    if polarise:
        D = scale(W.shape) * ns(D)
    return (1 - lr * wd) * W - lr * D.to(W.dtype)
