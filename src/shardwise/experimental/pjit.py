"""`shardwise.experimental.pjit`: the old name of `jit`, which resolves bare specs in the mesh of `with mesh:`."""

from typing import TYPE_CHECKING, Any

from shardwise.transforms.jit.jit import pjit as pjit

__all__ = ["pjit"]


if not TYPE_CHECKING:  # checkers know the names; others are mistakes

    def __getattr__(name: str) -> Any:
        if name == "FROM_GDA":  # an AttributeError would lose its text on the way through `from ... import FROM_GDA`
            raise ImportError(
                "FROM_GDA is gone with GlobalDeviceArray: leave in_shardings out, since arrays know their shardings, and "
                "make NumPy inputs global with multihost_utils.host_local_array_to_global_array."
            )
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
