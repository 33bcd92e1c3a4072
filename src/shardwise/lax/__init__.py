"""`shardwise.lax`: the strict layer of array functions (equal dtypes and ranks) and the collectives, named as in jax.lax."""

import importlib as _importlib
from typing import Any as _Any

from shardwise.lax.composite import after_all as after_all
from shardwise.lax.composite import composite as composite
from shardwise.lax.composite import create_token as create_token
from shardwise.lax.local import conv_general_dilated_local as conv_general_dilated_local
from shardwise.lax.mapping import map as map
from shardwise.lax.ragged import RaggedDotDimensionNumbers as RaggedDotDimensionNumbers
from shardwise.lax.ragged import ragged_dot as ragged_dot
from shardwise.lax.ragged import ragged_dot_general as ragged_dot_general
from shardwise.lax.ragged_exchange import ragged_all_to_all as ragged_all_to_all
from shardwise.lax.scaled import scaled_dot as scaled_dot
from shardwise.lax.values import shape_as_value as shape_as_value
from shardwise.lax.values import stage as stage
from shardwise.ops.control import *  # noqa: F403
from shardwise.ops.devices.barrier import optimization_barrier as optimization_barrier
from shardwise.ops.devices.parallel import *  # noqa: F403
from shardwise.ops.elementwise import *  # noqa: F403
from shardwise.ops.elementwise.special import *  # noqa: F403
from shardwise.ops.indexing.apply import *  # noqa: F403
from shardwise.ops.indexing.gather import *  # noqa: F403
from shardwise.ops.indexing.scatter import *  # noqa: F403
from shardwise.ops.indexing.slicing import *  # noqa: F403
from shardwise.ops.indexing.sorting import *  # noqa: F403
from shardwise.ops.linalg.fft import *  # noqa: F403
from shardwise.ops.products.contract import *  # noqa: F403
from shardwise.ops.products.conv import *  # noqa: F403
from shardwise.ops.reductions.cumulative import *  # noqa: F403
from shardwise.ops.reductions.reduce import *  # noqa: F403
from shardwise.ops.reductions.window import *  # noqa: F403
from shardwise.ops.shapes import *  # noqa: F403
from shardwise.transforms.jit.constraints import with_sharding_constraint as with_sharding_constraint

# Ops enter under their JAX names as Primitives (see `__getattr__`), which is what equations and policies show.
for _name in [n for n in globals() if n.endswith("_p")]:
    del globals()[_name]

_ABSENT = {
    "rng_bit_generator": "its bits are XLA's own; use random.bits, which is the same everywhere",
    "rng_uniform": "it draws from a hidden state; use random.uniform with a key",
    "dce_sink": "only results keep a computation; return the value, or hand it to debug.callback",
    "infeed": "give values as arguments, or fetch them with io_callback",
    "outfeed": "return values, or send them with io_callback",
    "psend": "use ppermute",
    "precv": "use ppermute",
}


def __getattr__(name: str) -> _Any:
    if name == "linalg":
        return _importlib.import_module("shardwise.lax.linalg")
    if name in ("custom_linear_solve", "custom_root"):
        return getattr(_importlib.import_module("shardwise.transforms.derivatives.implicit"), name)
    if name in _ABSENT:
        raise AttributeError(f"module 'shardwise.lax' has no attribute {name!r}: {_ABSENT[name]}.")
    if name.endswith("_p"):
        found = _importlib.import_module("shardwise.transforms.programs.primitives").named_primitive(name)
        if found is not None:
            return found
    raise AttributeError(f"module 'shardwise.lax' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), "custom_linear_solve", "custom_root", "linalg"})
