"""Values of host ndarrays as they enter: copied where others may write to them, narrowed, and guarded by `transfer_guard`."""

from __future__ import annotations

from typing import Any

from shardwise.base import config
from shardwise.base.dtypes import canonicalize
from shardwise.base.errors import JaxRuntimeError, about
from shardwise.base.shapes import Ndarray
from shardwise.ops.rules.convert import plain_ndarray
from shardwise.runtime.copies import copy_dense
from shardwise.runtime.handout import is_constant
from shardwise.sharding.context import tracing

_GUARD = config.setting("jax_transfer_guard_host_to_device")


def host_values(value: Ndarray, dtype: Any = None, explicit: bool = False) -> Ndarray:
    """The values of a host ndarray, in memory that nobody writes to; 64-bit types narrow if x64 is off.

    Copies `value` unless nobody can ever write to it, so that later writes have no effect. `explicit`: the user asked for the
    transfer (for transfer_guard).
    """
    guard = _GUARD.get()
    if guard is not None and guard != "allow" and not (explicit and not guard.endswith("explicit")):
        _guard_transfer(value, guard)
    value = plain_ndarray(value)
    want: Any = canonicalize(value.dtype) if dtype is None else dtype
    return value if want == value.dtype and is_constant(value) else copy_dense(value, want)


def allows_host_values() -> bool:
    """Whether transfer_guard lets all host values enter."""
    return _GUARD.get() in (None, "allow")


def _guard_transfer(value: Ndarray, guard: str) -> None:
    """Apply transfer_guard to a host value that enters: it may allow only explicit transfers (device_put, jnp.array), or none.

    On one process the CPU devices share the host's memory: there are no other transfers to guard. A constant of a program that is
    being traced is part of the program.
    """
    if tracing.get():
        return
    type_text = f"{value.dtype.name}[{','.join(map(str, value.shape))}]"
    if guard.startswith("log"):
        import logging

        logging.getLogger("shardwise").warning("host-to-device transfer of %s", type_text)
    else:
        raise about(
            "guards",
            JaxRuntimeError(
                f"Disallowed host-to-device transfer: {type_text} entered implicitly under transfer_guard({guard!r}). Place it "
                "with device_put first, or allow transfers."
            ),
        )
