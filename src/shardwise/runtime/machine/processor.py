"""The kind of processor that this process runs on, as the system describes it."""

from __future__ import annotations

import functools

# What differs from one processor of a kind to the next, or from one moment to the next, is not among these.
_TELLING = frozenset({"vendor_id", "cpu family", "model", "model name", "stepping", "flags"})


@functools.cache
def _described() -> dict[str, str]:
    """The lines about the first processor."""
    found: dict[str, str] = {}
    try:
        with open("/proc/cpuinfo") as file:
            for line in file:
                name, colon, value = line.partition(":")
                if not colon:  # the end of a processor's lines
                    break
                found[name.strip()] = value.strip()
    except OSError:
        pass
    return found


@functools.cache
def processor_flags() -> frozenset[str]:
    """The instruction sets that the processor has and the system allows; empty where the system does not say."""
    return frozenset(_described().get("flags", "").split())


def processor_kind() -> str | None:
    """A text that is the same on processors which run the same machine code; None where the system does not say enough."""
    described = _described()
    if not described.keys() >= _TELLING:
        return None
    return ", ".join(f"{name} {described[name]}" for name in sorted(_TELLING))
