"""Names that old programs use and that have no counterpart: what the error says when one is asked for."""

from __future__ import annotations

from typing import Final

# The array types from before `Array`, and how to ask of an Array what each of them stood for.
_ARRAY_TYPES: Final = {
    "DeviceArray": "x.is_fully_addressable and len(x.sharding.device_set) == 1",
    "ShardedDeviceArray": "x.is_fully_addressable and len(x.sharding.device_set) > 1",
    "GlobalDeviceArray": "not x.is_fully_addressable",
}
# Functions that made arrays of those types, and the sharding that the function of today wants.
_MAKERS: Final = {
    "make_device_array": "a SingleDeviceSharding, or use device_put(x, device)",
    "make_sharded_device_array": "a PmapSharding if the array is for pmap, a NamedSharding if it is for jit",
}


def no_attribute(module: str, name: str) -> AttributeError:
    """The error for a name that `module` lacks; for the old array types and their makers it names what replaces them."""
    if name in _ARRAY_TYPES:
        test = _ARRAY_TYPES[name]
        return AttributeError(f"{name} is gone: Array is the one array type. Use isinstance(x, Array) and {test}.")
    if name in _MAKERS:
        return AttributeError(f"{name} is gone: use make_array_from_single_device_arrays with {_MAKERS[name]}.")
    return AttributeError(f"module {module!r} has no attribute {name!r}")
