"""Names that old programs use and that have no counterpart, and the texts of their errors."""

from __future__ import annotations

from typing import Final

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
    "export": "programs have no StableHLO form; carry compiled functions with experimental.serialize_executable",
    "experimental.pallas": "kernels are interpreted on the CPU, and only a GPU or a TPU gives this name a meaning; write it with "
    "pallas_call, numpy and lax",
    "experimental.mosaic": "there are no GPU or TPU kernels to write; write the function with numpy and lax",
    "_src.lib.mlir": "programs have no MLIR form; print them with make_jaxpr, and write functions with numpy and lax",
    "_src.numpy.einsum": "call jnp.einsum, which takes _dot_general",
}
# Parts that cannot be imported either.
ABSENT: Final = {
    "ffi": "there are no XLA custom calls; call the library through pure_callback",
    "experimental.jax2tf": "there is no TensorFlow here; exchange arrays with dlpack",
    "experimental.host_callback": "it was replaced by pure_callback, io_callback and debug.callback",
    "experimental.maps": "xmap was replaced by shard_map",
    "experimental.transfer": "arrays move with device_put and distributed.initialize",
    "experimental.buffer_callback": "use pure_callback",
    "experimental.rnn": "there is no cuDNN; write the cell with numpy and loop with lax.scan",
    "experimental.fused": "elementwise loops are fused without being asked",
    "experimental.scheduling_groups": "programs run in order; leave the groups out",
    "extend.ffi": "there are no XLA custom calls; call the library through pure_callback",
    "extend.mlir": "programs have no MLIR form; print them with make_jaxpr",
    "extend.random": "there is one generator, threefry2x32; make keys and bits with random",
    "extend.sharding": "shardings have no HLO form to read or write; NamedSharding says the same",
    "memory": "a CPU has one memory; where kinds have names, give NamedSharding a memory_kind",
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
    said = f": {reason}." if reason else ""
    return AttributeError(f"module {module!r} has no attribute {name!r}{said}")
