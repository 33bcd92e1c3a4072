"""`shardwise.scipy`: SciPy's functions on arrays, named as in jax.scipy. Submodules load when they are first used."""

import importlib as _importlib
import typing as _typing

from shardwise.base.listing import package_listing as _package_listing

if _typing.TYPE_CHECKING:  # what `__getattr__` imports
    from shardwise.scipy import cluster as cluster
    from shardwise.scipy import fft as fft
    from shardwise.scipy import integrate as integrate
    from shardwise.scipy import interpolate as interpolate
    from shardwise.scipy import linalg as linalg
    from shardwise.scipy import ndimage as ndimage
    from shardwise.scipy import optimize as optimize
    from shardwise.scipy import signal as signal
    from shardwise.scipy import sparse as sparse
    from shardwise.scipy import spatial as spatial
    from shardwise.scipy import special as special
    from shardwise.scipy import stats as stats

_SUBMODULES = (
    "cluster", "fft", "integrate", "interpolate", "linalg", "ndimage", "optimize", "signal", "sparse", "spatial", "special", "stats",
)  # fmt: skip


if not _typing.TYPE_CHECKING:  # checkers know the names; others are mistakes

    def __getattr__(name: str) -> _typing.Any:
        if name in _SUBMODULES:
            return _importlib.import_module(f"{__name__}.{name}")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__dir__ = _package_listing(__name__, *_SUBMODULES)
