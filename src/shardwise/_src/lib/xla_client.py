"""`jaxlib.xla_client`, which both eras of JAX have: the classes that are ours, too."""

from shardwise._src.lib._jax import Array as Array
from shardwise._src.lib._jax import ArrayImpl as ArrayImpl
from shardwise._src.lib._jax import Client as Client
from shardwise._src.lib._jax import Device as Device
from shardwise._src.lib._jax import GSPMDSharding as GSPMDSharding
from shardwise._src.lib._jax import JaxRuntimeError as XlaRuntimeError
from shardwise._src.lib._jax import Memory as Memory
from shardwise._src.lib._jax import NamedSharding as NamedSharding
from shardwise._src.lib._jax import Sharding as Sharding
from shardwise._src.lib._jax import SingleDeviceSharding as SingleDeviceSharding

__all__ = [
    "Array",
    "ArrayImpl",
    "Client",
    "Device",
    "GSPMDSharding",
    "Memory",
    "NamedSharding",
    "Sharding",
    "SingleDeviceSharding",
    "XlaRuntimeError",
]
