"""polar -- matrix optimisers (Muon, PolarAdamW and kin) from libpolar.

    import polar
    opt = polar.PolarAdamW(model, lr=5e-3, aux_lr=5e-4)
    print(opt.routes())

`polar.PolarAdamW`, `Muon`, `AdamW` and `Optimizer` are torch.optim.Optimizer classes and want torch; polar
maps (`polar.polar`, `polar.newton_schulz`, `polar.covariance`) take numpy arrays or torch tensors and want
neither until they are given one. docs/python.md has the rest.
"""
from ._abi import POLAR_VERSION as __version__
from ._library import PolarError
from ._library import lib as _lib

_TORCH = {
    "Optimizer": "torch_optim",
    "PolarAdamW": "torch_optim",
    "Muon": "torch_optim",
    "AdamW": "torch_optim",
    "join_state_dicts": "torch_state",
    "split_state_dict": "torch_state",
    "Route": "routes",
    "Routes": "routes",
}
_ANY = {
    "polar": "array_maps", "newton_schulz": "array_maps", "covariance": "array_maps", "runs": "records",
    "audit": "records"
}

__all__ = ["PolarError", "__version__", "backends", *_ANY, *_TORCH]


def backends():
    """The devices this build of libpolar knows.

    >>> "cpu" in backends()
    True
    """
    return [_lib.polar_backend_name(i).decode() for i in range(_lib.polar_backend_count())]


def __getattr__(name):
    module = _ANY.get(name) or _TORCH.get(name)
    if module is None:
        raise AttributeError(f"module 'polar' has no attribute '{name}'")
    from importlib import import_module
    try:
        value = getattr(import_module(f".{module}", __name__), name)
    except ModuleNotFoundError as e:
        if e.name == "torch":
            raise ImportError(f"polar.{name} wants torch (2.0 or newer), which is not installed") from e
        raise
    globals()[name] = value
    return value


def __dir__():
    return sorted(__all__)
