"""`shardwise.experimental`: the parts of jax.experimental.

In: programs of either era. Out: `pjit`, `shard_map` and `shard` under their old paths, `checkify`, `mesh_utils`, `multihost_utils`.
"""

import importlib as _importlib
from typing import Any as _Any

from shardwise.base.config import disable_x64 as disable_x64
from shardwise.base.config import enable_x64 as enable_x64
from shardwise.base.gone import no_attribute as _no_attribute
from shardwise.ops.control.callback import io_callback as io_callback

_MODULES = (
    "array_serialization",
    "checkify",
    "compilation_cache",
    "colocated_python",
    "compute_on",
    "custom_partitioning",
    "hijax",
    "jet",
    "key_reuse",
    "layout",
    "mesh_utils",
    "mosaic",
    "multihost_utils",
    "ode",
    "pallas",
    "pjit",
    "roofline",
    "serialize_executable",
    "shard",
    "shard_alike",
    "shard_map",
    "sparse",
    "topologies",
    "xla_metadata",
)


def __getattr__(name: str) -> _Any:
    if name in _MODULES:
        return _importlib.import_module(f"{__name__}.{name}")
    if name == "cur_qdd":
        return _importlib.import_module(f"{__name__}.hijax").cur_qdd
    raise _no_attribute(__name__, name)
