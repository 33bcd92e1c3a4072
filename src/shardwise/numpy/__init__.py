"""`shardwise.numpy`: NumPy's functions on arrays, traced or not, sharded or not; named as in jax.numpy.

In: arrays, NumPy arrays, scalars. Out: arrays that lie as their operands do.
"""

import importlib as _importlib
from typing import Any as _Any

from shardwise.numpy.operators import install_operators as _install_operators

# Each module says in `__all__` what it gives to this namespace.
_PARTS = """
    constants creation ranges diagonals shapes rearranging manipulation joining padding
    ufuncs float_parts predicates named_ufuncs reductions quantiles cumulative statistics histograms
    indexing at selection positions sorting_search sets einsum products signal bits polynomial functional
""".split()
_SUBMODULES = frozenset({"fft", "linalg"})


def _collect() -> None:
    for part in _PARTS:
        try:
            module = _importlib.import_module(f"shardwise.numpy.{part}")
        except ModuleNotFoundError as error:
            if error.name != f"shardwise.numpy.{part}":
                raise
            continue
        globals().update({name: getattr(module, name) for name in module.__all__})


_collect()
_install_operators()


def __getattr__(name: str) -> _Any:
    if name in _SUBMODULES:
        return _importlib.import_module(f"shardwise.numpy.{name}")
    raise AttributeError(f"module 'shardwise.numpy' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*(n for n in globals() if not n.startswith("_")), *_SUBMODULES})
