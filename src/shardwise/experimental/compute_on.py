"""The processor of a part of a program: the device, or its host. Here both are the same."""

from __future__ import annotations

from contextlib import ContextDecorator
from typing import Any

from shardwise.base.listing import listing as _listing

__all__ = ["compute_on"]

_KINDS = ("device_host", "device", "tpu_sparsecore")


class compute_on(ContextDecorator):
    """What runs inside of the context, or of the decorated function, computes on `compute_type`.

    The devices here are the host's own cores, so nothing moves; types are checked as where it would.

    Raises:
        TypeError: `compute_type` is no str.
        ValueError: it is none of "device_host", "device", "tpu_sparsecore" and "gpu_stream:N".
    """

    def __init__(self, compute_type: Any) -> None:
        if not isinstance(compute_type, str):
            raise TypeError(f"compute_on takes its compute_type as a string, got {compute_type!r}.")
        kind, _, number = compute_type.partition(":")
        if compute_type not in _KINDS and not (kind == "gpu_stream" and number.isdigit()):
            raise ValueError(
                f"Invalid compute type {compute_type}. compute_on takes {', '.join(_KINDS)} and gpu_stream:N."
            )
        self.compute_type = compute_type

    def __enter__(self) -> None:
        return None

    def __exit__(self, *exc: Any) -> None:
        return None


__dir__ = _listing(__name__)
