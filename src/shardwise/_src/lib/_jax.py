"""The classes of `jaxlib` that we have: what libraries annotate with, and ask for by `isinstance`.

JAX 0.10 has them in `jaxlib._jax`, JAX 0.5 in `jaxlib.xla_extension`, and both some of them in `jaxlib.xla_client`.
"""

from shardwise.base.errors import JaxRuntimeError as JaxRuntimeError
from shardwise.base.treedef import PyTreeDef as PyTreeDef
from shardwise.engine.array import ArrayImpl as ArrayImpl
from shardwise.ir import Array as Array
from shardwise.sharding import GSPMDSharding as GSPMDSharding
from shardwise.sharding import NamedSharding as NamedSharding
from shardwise.sharding import Sharding as Sharding
from shardwise.sharding import SingleDeviceSharding as SingleDeviceSharding
from shardwise.sharding.device import Client as Client
from shardwise.sharding.device import Device as Device
from shardwise.sharding.device import Memory as Memory
from shardwise.transforms.jit.wrapped import PjitFunction as PjitFunction

__all__ = [
    "Array",
    "ArrayImpl",
    "Client",
    "Device",
    "GSPMDSharding",
    "JaxRuntimeError",
    "Memory",
    "NamedSharding",
    "PjitFunction",
    "PyTreeDef",
    "Sharding",
    "SingleDeviceSharding",
]
