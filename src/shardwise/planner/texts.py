"""Sizes and times as advice and reports write them."""

from __future__ import annotations


def gib_text(nbytes: int) -> str:
    """``3.14 GiB``."""
    return f"{nbytes / 2**30:.2f} GiB"


def seconds_text(seconds: float) -> str:
    """``3.14 s``, ``12.3 ms``, ``790 us``."""
    unit, name = (1.0, "s") if seconds >= 1 else (1e-3, "ms") if seconds >= 1e-3 else (1e-6, "us")
    return f"{seconds / unit:.3g} {name}"
