"""`shardwise.experimental.colocated_python`: Python that runs where the devices are, which is here: in this process.

In: a function, or devices. Out: the function, called at once; the devices themselves, which are CPUs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

__all__ = ["colocated_cpu_devices", "colocated_python"]


class ColocatedFunction:
    """A function that runs in this process, as every function does."""

    def __init__(self, fun: Callable[..., Any], out_specs_fn: Callable[..., Any] | None = None) -> None:
        functools.update_wrapper(self, fun)
        self._fun = fun
        self._out_specs_fn = out_specs_fn

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._fun(*args, **kwargs)

    def specialize(
        self, in_specs: Any = None, out_specs_fn: Callable[..., Any] | None = None, devices: Any = None
    ) -> ColocatedFunction:
        """The function for certain arguments and devices. It runs as it is: nothing of it is compiled or sent anywhere."""
        del in_specs, devices
        return ColocatedFunction(self._fun, out_specs_fn or self._out_specs_fn)


def colocated_python(fun: Callable[..., Any]) -> ColocatedFunction:
    """`fun`, to be called on arrays where their devices are."""
    return ColocatedFunction(fun)


def colocated_cpu_devices(devices_or_mesh: Any) -> Any:
    """The CPU devices of the hosts that the devices (or the mesh) belong to: the same ones, for all devices are CPUs."""
    return devices_or_mesh
