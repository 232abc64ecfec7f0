"""so3_reference.py -- the SO(3) testbed's model, as a specification: plain torch, one batch of clouds, no
tricks.

The paper fixes the Schur blocks W00, W11, cg_proj, the two initial features, the target (the largest
eigenvalue of X^T X / N) and the training recipe. It is silent on the message MLP, the gate, the readout and
the sizes of the data; the choices made here are ours and are the project's defaults (each one a flag).

Shapes: X (B,N,3) -> prediction (B).  The message weights are symmetric (w_ij = w_ji): N(N+1)/2 pairs suffice.
Parameter names are the names to use in checkpoints.

message: the distances' weights by channel, or one a pair (shared, shared_bounded: in (0, 1)), or by channel
for scalars alone (scalars_only), or a fixed kernel for scalars that went through the MLP (kernel). gate: each
vector channel by its own length (diagonal), or by a linear layer of all lengths (linear). readout: of scalars
and lengths, or of scalars.
"""
import torch
import torch.nn.functional as F


def target(X):
    return torch.linalg.eigvalsh(X.transpose(1, 2) @ X / X.shape[1])[:, -1]


def shapes(h, layers=3, message="channel", gate="diagonal", readout="scalars_lengths"):
    """name -> shape, in parameter order. Matrix-eligible: the 2-D arrays under layers.*"""
    d = {}
    nd = h * (h + 1) // 2
    of = h if message == "kernel" else 1
    weights = {"channel": 2 * h, "shared": 1, "shared_bounded": 1}.get(message, h)
    pooled = 2 * h if readout == "scalars_lengths" else h
    for l in range(layers):
        i = 1 if l == 0 else h
        p = f"layers.{l}."
        d[p + "W_00.weight"], d[p + "W_00.bias"] = (h, i), (h,)
        d[p + "W_11"] = (h, i)
        d[p + "message.0.weight"], d[p + "message.0.bias"] = (h, of), (h,)
        d[p + "message.2.weight"], d[p + "message.2.bias"] = (weights, h), (weights,)
        d[p + "cg_proj.weight"], d[p + "cg_proj.bias"] = (h, h + nd), (h,)
        d[p + "gate.weight"], d[p + "gate.bias"] = (h, h) if gate == "linear" else (h,), (h,)
    d["readout.0.weight"], d["readout.0.bias"] = (h, pooled), (h,)
    d["readout.2.weight"], d["readout.2.bias"] = (1, h), (1,)
    return d


def messages(P, p, s, v, dist, h, message):
    """What every point is sent: the mean over all j."""
    first, second = (P[p + "message.0.weight"], P[p + "message.0.bias"]), (P[p + "message.2.weight"],
                                                                           P[p + "message.2.bias"])
    N = s.shape[1]
    if message == "kernel":
        w = 2 * torch.sigmoid(-dist[..., 0])
        sent = F.linear(F.silu(F.linear(s, *first)), *second)
        return (torch.einsum("bij,bjc->bic", w, sent) / N, torch.einsum("bij,bjcd->bicd", w, v) / N)
    w = F.linear(F.silu(F.linear(dist, *first)), *second)
    if message == "shared_bounded":
        w = torch.sigmoid(w)
    ws, wv = (w[..., :h], w[..., h:]) if message == "channel" else (w, w)
    ms = torch.einsum("bijc,bjc->bic", ws.expand(*ws.shape[:3], h), s) / N
    if message == "scalars_only":
        return ms, torch.zeros_like(v)
    return ms, torch.einsum("bijc,bjcd->bicd", wv.expand(*wv.shape[:3], h), v) / N


def forward(P, X, h, layers=3, eps=1e-8, message="channel", gate="diagonal", readout="scalars_lengths"):
    iu = torch.triu_indices(h, h, device=X.device)           # pairs a<=b, row-major
    s = (X * X).sum(-1, keepdim=True)                         # (B,N,1)   |x_i|^2
    v = X.unsqueeze(2)                                        # (B,N,1,3) x_i
    diff = X.unsqueeze(2) - X.unsqueeze(1)
    dist = (diff.square().sum(-1, keepdim=True) + eps).sqrt()  # (B,N,N,1)
    for l in range(layers):
        p = f"layers.{l}."
        s_in, v_in = s, v
        # 1. Schur mixers: W_00 on scalars, W_11 (x) I_3 on vectors
        s = F.linear(s, P[p + "W_00.weight"], P[p + "W_00.bias"])
        v = torch.einsum("oi,bnid->bnod", P[p + "W_11"], v)
        # 2. distance-weighted messages: a radial MLP gives one weight per channel and pair, or as asked for
        ms, mv = messages(P, p, s, v, dist, h, message)
        s, v = s + ms, v + mv
        # 3. Clebsch-Gordan merge: the V_0 part of V_1 (x) V_1 back into the scalars
        dots = (v @ v.transpose(-1, -2))[..., iu[0], iu[1]]
        s = F.silu(F.linear(torch.cat([s, dots], -1), P[p + "cg_proj.weight"], P[p + "cg_proj.bias"]))
        # 4. norm gate on vectors
        norm = (v.square().sum(-1) + eps).sqrt()
        u = F.linear(norm, P[p + "gate.weight"]) if gate == "linear" else P[p + "gate.weight"] * norm
        v = v * torch.sigmoid(u + P[p + "gate.bias"]).unsqueeze(-1)
        # 5. residual between layers of equal width
        if l > 0:
            s, v = s + s_in, v + v_in
    pooled = s.mean(1)
    if readout == "scalars_lengths":
        pooled = torch.cat([pooled, (v.square().sum(-1) + eps).sqrt().mean(1)], -1)
    z = F.silu(F.linear(pooled, P["readout.0.weight"], P["readout.0.bias"]))
    return F.linear(z, P["readout.2.weight"], P["readout.2.bias"]).squeeze(-1)


def init(h, seed, layers=3, dtype=torch.float32, **kinds):
    """U(-1/sqrt(fan_in), 1/sqrt(fan_in)) for weights and biases; a diagonal gate's are 1 and 0."""
    g = torch.Generator().manual_seed(seed)
    P, fan = {}, {}
    for k, sh in shapes(h, layers, **kinds).items():
        if "gate" in k and kinds.get("gate", "diagonal") == "diagonal":
            P[k] = torch.full(sh, 1.0 if k.endswith("weight") else 0.0, dtype=dtype)
            continue
        if len(sh) == 2:
            fan[k.rsplit(".", 1)[0]] = sh[1]
        f = sh[1] if len(sh) == 2 else fan[k.rsplit(".", 1)[0]]
        P[k] = ((torch.rand(sh, generator=g, dtype=torch.float64) * 2 - 1) / f ** 0.5).float().to(dtype)
    return P
