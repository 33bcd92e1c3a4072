"""`shardwise.numpy`: NumPy's functions on arrays, traced or not, sharded or not; named as in jax.numpy.

In: arrays, NumPy arrays, scalars. Out: arrays that lie as their operands do.
"""

import importlib as _importlib

from shardwise.numpy.operators import install_operators as _install_operators

_MODULES = (
    "creation ranges diagonals ufuncs float_parts predicates named_ufuncs reductions quantiles cumulative indexing at selection einsum "
    "manipulation joining padding sorting_search sets statistics histograms polynomial signal functional constants"
).split()
for _name in _MODULES:
    try:
        _module = _importlib.import_module(f"shardwise.numpy.{_name}")
    except ModuleNotFoundError as _error:
        if _error.name != f"shardwise.numpy.{_name}":
            raise
        continue
    globals().update({_n: getattr(_module, _n) for _n in _module.__all__})

_install_operators()
