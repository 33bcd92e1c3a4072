"""The kind of processor that this process runs on, as the system describes it, and which of its instructions are used.

The option `shardwise_processor` leaves some of them unused, so that unequal machines of one job run the same code:

| value | instructions |
|---|---|
| None | all that the processor has |
| `avx512` | AVX-512 as it came first (F, CD, BW, DQ, VL): no FP16, no BF16, no AMX |
| `avx2` | up to AVX2 and FMA |

What follows from the processor. Elementwise results do not depend on it: floats of 32 and 64 bits are multiplied and added in one
rounding where an op says so (`Lanes.fma`) and nowhere else, narrower ones are rounded after every step. Sums and products of
matrices add in an order that goes by the width of a register, and differ in their last bits.
"""

from __future__ import annotations

import functools
import re

from shardwise.base import config

# What differs from one processor of a kind to the next, or from one moment to the next, is not among these.
_TELLING = frozenset({"vendor_id", "cpu family", "model", "model name", "stepping", "flags"})

_FIRST_WIDE = frozenset({"avx512f", "avx512cd", "avx512bw", "avx512dq", "avx512vl"})
_USED = {
    "avx2": frozenset({"avx", "avx2"}),
    "avx512": _FIRST_WIDE | {"avx", "avx2"},
}  # of those that start with avx and amx


@functools.cache
def _describe_processor() -> dict[str, str]:
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
def processor_level() -> str | None:
    """The option, as it was when this was first asked for: code made for one kind of processor is not mixed with others'."""
    return config.shardwise_processor


def check_level() -> None:
    """RuntimeError if the option was changed too late."""
    if config.shardwise_processor != processor_level():
        raise RuntimeError(
            f"shardwise_processor is now {config.shardwise_processor!r}, but code for {processor_level()!r} has been made already: set it "
            "before the first computation, or by the environment variable SHARDWISE_PROCESSOR."
        )


def uses(feature: str) -> bool:
    """Whether a feature, by the system's or LLVM's name, is used where the processor has it."""
    name = re.sub("[-_]", "", feature)
    used = _USED.get(processor_level() or "")
    return used is None or name in used or not name.startswith(("avx", "amx"))


@functools.cache
def processor_flags() -> frozenset[str]:
    """The instruction sets that are used: the processor has them, the system allows them. Empty where it does not say."""
    return frozenset(filter(uses, _describe_processor().get("flags", "").split()))


@functools.cache
def gathers_pay() -> bool:
    """Whether instructions that gather are faster than loads one by one. On AMD's processors up to Zen 4 they are not: 13 cycles for 8
    elements against 10, positions included.
    """
    return _describe_processor().get("vendor_id") != "AuthenticAMD"


def processor_kind() -> str | None:
    """A text that is the same on processors which run the same machine code; None where the system does not say enough."""
    described = _describe_processor()
    if not described.keys() >= _TELLING:
        return None
    return ", ".join(f"{name} {described[name]}" for name in sorted(_TELLING)) + (
        f", as {processor_level()}" if processor_level() else ""
    )
