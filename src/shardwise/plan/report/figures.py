"""Bytes, seconds and rates as people read them."""

from __future__ import annotations

import math
from collections.abc import Mapping

_BINARY = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_TIMES = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))
_POWERS = ("", "k", "M", "G", "T", "P", "E")


def digits(value: float) -> str:
    """The value to three digits: ``4.10``, ``71.3``, ``1,204``."""
    size = abs(value)
    if size >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.1f}" if size >= 10 else f"{value:.2f}"


def binary_unit(nbytes: float) -> tuple[int, str]:
    """The unit that such a size is told in, in bytes, and its name."""
    power = 0 if abs(nbytes) < 1024 else min(int(math.log2(abs(nbytes)) // 10), len(_BINARY) - 1)
    return 1024**power, _BINARY[power]


def size_text(nbytes: float) -> str:
    """``71.3 GiB``."""
    unit, name = binary_unit(nbytes)
    return f"{digits(nbytes / unit)} {name}"


def time_text(seconds: float) -> str:
    """``4.12 s``, ``310 us``."""
    for unit, name in _TIMES:
        if abs(seconds) >= unit:
            return f"{digits(seconds / unit)} {name}"
    return "0 s" if seconds == 0 else f"{digits(seconds / 1e-9)} ns"


def count_text(count: float, unit: str = "") -> str:
    """``3.42 PFLOP``: a number with a decimal prefix before its unit."""
    power = 0 if abs(count) < 1000 else min(int(math.log10(abs(count)) // 3), len(_POWERS) - 1)
    return f"{digits(count / 1000**power)} {_POWERS[power]}{unit}".rstrip()


def share_text(part: float, whole: float) -> str:
    """``31 %``; empty where there is no whole."""
    return f"{100 * part / whole:.0f} %" if whole else ""


def mesh_text(mesh: Mapping[str, int]) -> str:
    """``data=16 model=8``."""
    return " ".join(f"{name}={size}" for name, size in mesh.items())


def spec_text(spec: tuple[tuple[str, ...], ...]) -> str:
    """``P('data', None)`` as users write it; nothing for what no axis splits."""
    if not any(spec):
        return ""
    last = max(i for i, axes in enumerate(spec) if axes)
    return f"P({', '.join(_entry(axes) for axes in spec[: last + 1])})"


def _entry(axes: tuple[str, ...]) -> str:
    if not axes:
        return "None"
    return repr(axes[0]) if len(axes) == 1 else repr(tuple(axes))
