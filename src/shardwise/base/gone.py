"""Names that old programs use and that have no counterpart, and the texts of their errors."""

from __future__ import annotations

import sys
from typing import Final

import numpy as np

# The array types before `Array`, and the test on an Array that replaces each.
_ARRAY_TYPES: Final = {
    "DeviceArray": "x.is_fully_addressable and len(x.sharding.device_set) == 1",
    "ShardedDeviceArray": "x.is_fully_addressable and len(x.sharding.device_set) > 1",
    "GlobalDeviceArray": "not x.is_fully_addressable",
}
# Functions that made arrays of those types, and the sharding that replaces each.
_MAKERS: Final = {
    "make_device_array": "a SingleDeviceSharding, or use device_put(x, device)",
    "make_sharded_device_array": "a PmapSharding if the array is for pmap, a NamedSharding if it is for jit",
}
# Parts of JAX that libraries import whether they use them or not. Their names can be imported; using one says what to use instead.
REFUSING: Final = {
    "experimental.pallas": "kernels are interpreted on the CPU, and only a GPU or a TPU gives this name a meaning; write it with "
    "pallas_call, numpy and lax",
    "experimental.mosaic": "there are no GPU or TPU kernels to write; write the function with numpy and lax",
    "_src.cudnn": "there is no cuDNN; nn.dot_product_attention computes attention",
    "_src.lib.mlir": "programs have no MLIR form; print them with make_jaxpr, and write functions with numpy and lax",
    "ffi": "there are no XLA custom calls; call the library through pure_callback",
    "extend.ffi": "there are no XLA custom calls; call the library through pure_callback",
    "extend.mlir": "programs have no MLIR form; print them with make_jaxpr, ship them with export",
}
# Names of NumPy, some of them of older versions, that stand for something else here.
_OF_NUMPY: Final = {
    "random": "numbers are made from keys. key = jax.random.key(0); jax.random.normal(key, (3,))",
    "copyto": "arrays cannot be written to; use jnp.where or x.at[index].set(value)",
    "putmask": "arrays cannot be written to; use jnp.where",
    "asfortranarray": "arrays have no memory order that you could see; leave it out",
    "require": "arrays have no memory order that you could see; use jnp.asarray",
    "ma": "there are no masked arrays; use jnp.where, and the argument where= of reductions",
    "matrix": "arrays of two dims multiply with @",
    "errstate": "use jax.debug_nans to find invalid values",
    "seterr": "use jax.debug_nans to find invalid values",
    "trapz": "it is called trapezoid",
    "in1d": "it is called isin",
    "row_stack": "it is called vstack",
    "product": "it is called prod",
    "cumproduct": "it is called cumprod",
    "alltrue": "it is called all",
    "sometrue": "it is called any",
}
# Parts that cannot be imported either.
ABSENT: Final = {
    "experimental.jax2tf": "there is no TensorFlow here; exchange arrays with dlpack",
    "experimental.host_callback": "it was replaced by pure_callback, io_callback and debug.callback",
    "experimental.maps": "xmap was replaced by shard_map",
    "experimental.transfer": "arrays move with device_put and distributed.initialize",
    "experimental.buffer_callback": "use pure_callback",
    "experimental.profiler": "no compiler here is guided by profiles; leave it out",
    "experimental.rnn": "there is no cuDNN; write the cell with numpy and loop with lax.scan",
    "experimental.fused": "elementwise loops are fused without being asked",
    "experimental.scheduling_groups": "programs run in order; leave the groups out",
    "extend.sharding": "shardings have no HLO form to read or write; NamedSharding says the same",
    "custom_transpose": "use linear_call of custom_derivatives, or linear_transpose",
}


def why_absent(path: str) -> str | None:
    """Why there is no module of that path below the root, and what to use instead; None if nothing is known."""
    while path:
        reason = ABSENT.get(path) or REFUSING.get(path)
        if reason:
            return reason
        path = path.rpartition(".")[0]
    return None


def no_attribute(module: str, name: str) -> AttributeError:
    """The error for a name that `module` lacks; for the old array types and their makers it names what replaces them."""
    if name in _ARRAY_TYPES:
        test = _ARRAY_TYPES[name]
        return AttributeError(f"{name} is gone: Array is the one array type. Use isinstance(x, Array) and {test}.")
    if name in _MAKERS:
        return AttributeError(f"{name} is gone: use make_array_from_single_device_arrays with {_MAKERS[name]}.")
    reason = why_absent(f"{module}.{name}".partition(".")[2])
    if reason is None and module.startswith("shardwise.numpy"):
        reason = _instead_of_numpys(name)
    text = f"module {module!r} has no attribute {name!r}"
    if reason:
        return AttributeError(f"{text}: {reason}.")
    return AttributeError(text, name=name, obj=sys.modules.get(module))  # so that Python can suggest a name


def _instead_of_numpys(name: str) -> str | None:
    """The replacement of a name of NumPy's that `shardwise.numpy` does not have."""
    if name in _OF_NUMPY:
        return _OF_NUMPY[name]
    if name.startswith("_") or name not in dir(np):
        return None
    return f"it is NumPy's alone, and takes these arrays, too. Call numpy.{name}, and jnp.asarray on what it returns"
