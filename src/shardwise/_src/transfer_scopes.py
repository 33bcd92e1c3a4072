"""Blocks whose transfers count as asked for; `_src.config` gives them."""

import contextlib
from typing import Any

from shardwise.base import config
from shardwise.base.overrides import transfer_guard_host_to_device


def explicit_device_put_scope() -> contextlib.AbstractContextManager[Any]:
    """Let host values enter as by `device_put`, which only the levels of `transfer_guard` that end in ``explicit`` refuse."""
    guard = config.jax_transfer_guard_host_to_device
    if guard is None or guard.endswith("explicit"):
        return contextlib.nullcontext()
    return transfer_guard_host_to_device("allow")


def explicit_device_get_scope() -> contextlib.AbstractContextManager[Any]:
    """A block that changes nothing: arrays lie in the memory of the host, and no guard stops who reads them."""
    return contextlib.nullcontext()
