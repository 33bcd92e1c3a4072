"""`shardwise.experimental.colocated_python`: Python that runs next to the devices, which is in this process.

In: a function of arrays, or devices. Out: the function, run on arrays at once; the devices themselves, which are CPUs. Nothing is sent
to other processes: their devices are refused.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, cast

from shardwise.base.listing import listing as _listing
from shardwise.base.tree import PyTreeDef, tree_flatten, tree_leaves
from shardwise.base.wrapping import copy_identity
from shardwise.ir import Array
from shardwise.sharding import Device, process_index

__all__ = ["colocated_cpu_devices", "colocated_python", "colocated_python_class"]


def _check_here(devices: Any) -> tuple[Device, ...]:
    device_tuple = tuple(devices)
    foreign = sorted({d.process_index for d in device_tuple} - {process_index()})
    if foreign:
        raise NotImplementedError(
            f"colocated_python runs in this process, {process_index()}, and the devices belong to the processes {foreign}, too. Call the "
            "function in each process on what it holds: [s.data for s in x.addressable_shards]."
        )
    return device_tuple


def _types(tree: Any) -> tuple[list[tuple[Any, Any]], PyTreeDef]:
    leaves, structure = tree_flatten(tree)
    return [(tuple(x.shape), x.dtype) for x in leaves], structure


class ColocatedFunction:
    """A function of arrays that runs in this process; `specialize` fixes the types and devices of arguments and results."""

    def __init__(
        self,
        fun: Callable[..., Any],
        in_specs: Any = None,
        out_specs_fn: Callable[..., Any] | None = None,
        devices: Sequence[Device] | None = None,
    ) -> None:
        copy_identity(self, fun)
        self._fun = fun
        self._in_specs = in_specs
        self._out_specs_fn = out_specs_fn
        self._devices = devices

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        leaves = tree_leaves((args, kwargs))
        for x in leaves:
            if not isinstance(x, Array):
                raise ValueError(f"colocated_python only supports jax.Array as input and output, but got {type(x)}.")
            _check_here(x.sharding.device_set)
        if not leaves and self._devices is None:
            raise ValueError(
                "No devices found: a colocated_python function without arguments must first be specialized with devices."
            )
        if self._in_specs is not None and _types((args, kwargs)) != _types(self._in_specs):
            raise ValueError(
                f"The function was specialized for arguments of the types {self._in_specs}, but got {_types((args, kwargs))[0]}."
            )
        out = self._fun(*args, **kwargs)
        if self._out_specs_fn is not None:
            out_specs = self._out_specs_fn(*args, **kwargs)
            if _types(out) != _types(out_specs):
                raise ValueError(f"The function gave {_types(out)[0]}, but out_specs_fn says {_types(out_specs)[0]}.")
        return out

    def specialize(
        self, in_specs: Any = None, out_specs_fn: Callable[..., Any] | None = None, devices: Any = None
    ) -> ColocatedFunction:
        """The function for certain arguments and devices.

        Args:
            in_specs: `(args, kwargs)` of ShapeDtypeStructs, the types of arguments.
            out_specs_fn: from the arguments to ShapeDtypeStructs, the types of results.
            devices: where a function without arguments runs.

        Raises:
            ValueError: one of them was given already.
            NotImplementedError: devices of other processes.
        """
        for name, old, new in (
            ("in_specs", self._in_specs, in_specs),
            ("out_specs_fn", self._out_specs_fn, out_specs_fn),
            ("devices", self._devices, devices),
        ):
            if old is not None and new is not None:
                raise ValueError(f"{name} already specified.")
        return ColocatedFunction(
            self._fun,
            self._in_specs if in_specs is None else in_specs,
            out_specs_fn or self._out_specs_fn,
            self._devices if devices is None else _check_here(devices),
        )


def colocated_python(fun: Callable[..., Any]) -> ColocatedFunction:
    """`fun`, to be called on arrays where their devices are.

    >>> jax.experimental.colocated_python.colocated_python(lambda x: x + 1)(jnp.arange(2))
    Array([1, 2], dtype=int32)
    """
    return ColocatedFunction(fun)


class _Beside:
    """An object that is made when a method is first called; its methods take arrays, and run where their devices are."""

    _cls: type[Any]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._given = args, kwargs
        self._object: Any = None

    def _call(self, name: str, args: Any, kwargs: Any) -> Any:
        def method(*args: Any, **kwargs: Any) -> Any:
            if self._object is None:
                given, named_args = self._given
                self._object = self._cls(*given, **named_args)
            return getattr(self._object, name)(*args, **kwargs)

        return ColocatedFunction(method)(*args, **kwargs)


def colocated_python_class(cls: type[Any]) -> type[Any]:
    """A class like `cls` whose methods are called where their arguments' devices are.

    An object of `cls` is made at the first call of a method, with the arguments that the wrapping object was made with. Methods take arrays
    and return arrays; other attributes of the object cannot be reached.

    Raises:
        TypeError: `cls` is no class.

    >>> class Adder:
    ...     def __init__(self, increment):
    ...         self.increment = increment
    ...
    ...     def add(self, x):
    ...         return x + self.increment
    >>> jax.experimental.colocated_python.colocated_python_class(Adder)(1).add(jnp.arange(2))
    Array([1, 2], dtype=int32)
    """
    if not isinstance(cast(Any, cls), type):
        raise TypeError(f"colocated_python_class takes a class, got {cls!r}. Use colocated_python for a function.")

    def forward_method(name: str, method: Any) -> Callable[..., Any]:
        def call(self: _Beside, *args: Any, **kwargs: Any) -> Any:
            return self._call(name, args, kwargs)  # pyright: ignore[reportPrivateUsage]

        copy_identity(call, method)
        return call

    methods = {
        name: forward_method(name, method)
        for name, method in inspect.getmembers(cls, inspect.isfunction)
        if not (name.startswith("__") and name != "__call__")
    }
    return type(
        cls.__name__, (_Beside,), {"__module__": cls.__module__, "__doc__": cls.__doc__, "_cls": cls, **methods}
    )


def colocated_cpu_devices(devices_or_mesh: Any) -> Any:
    """The CPU devices of the hosts that `devices_or_mesh` belong to: the same ones, for all devices are CPUs.

    >>> jax.experimental.colocated_python.colocated_cpu_devices(jax.devices()[:1])
    [CpuDevice(id=0)]
    """
    return devices_or_mesh


__dir__ = _listing(__name__)
