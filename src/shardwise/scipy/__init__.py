"""`shardwise.scipy`: SciPy's functions on arrays, named as in jax.scipy. Submodules load when they are first used."""

import typing as _typing

from shardwise.base.doors import open_package as _open_package

if _typing.TYPE_CHECKING:  # names that `__getattr__` imports
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
else:
    __getattr__, __dir__ = _open_package(
        __name__, "cluster fft integrate interpolate linalg ndimage optimize signal sparse spatial special stats"
    )
