"""`shardwise.experimental.pallas.triton`: the language of kernels for GPUs, interpreted on the CPU."""

from __future__ import annotations

from typing import Any

from shardwise import numpy as jnp
from shardwise.base.lazy_dataclasses import dataclass
from shardwise.base.listing import listing as _listing
from shardwise.base.refused import refuse_names
from shardwise.experimental.pallas.access import atomic_add as atomic_add
from shardwise.experimental.pallas.access import atomic_and as atomic_and
from shardwise.experimental.pallas.access import atomic_cas as atomic_cas
from shardwise.experimental.pallas.access import atomic_max as atomic_max
from shardwise.experimental.pallas.access import atomic_min as atomic_min
from shardwise.experimental.pallas.access import atomic_or as atomic_or
from shardwise.experimental.pallas.access import atomic_xchg as atomic_xchg
from shardwise.experimental.pallas.access import atomic_xor as atomic_xor
from shardwise.experimental.pallas.access import load as _load
from shardwise.experimental.pallas.access import store as _store
from shardwise.experimental.pallas.scoped import dot as dot
from shardwise.experimental.pallas.scoped import max_contiguous as max_contiguous
from shardwise.ir import Array


@dataclass(frozen=True)
class CompilerParams:
    """Options of the compiler for GPUs. Kernels are interpreted: nothing of it acts."""

    num_warps: int | None = None
    num_stages: int | None = None


TritonCompilerParams = CompilerParams


def load(
    ref: Any,
    *,
    mask: Any = None,
    other: Any = None,
    cache_modifier: str | None = None,
    eviction_policy: str | None = None,
    volatile: bool = False,
) -> Array:
    """All elements of a Ref or view, and `other` where `mask` is False.

    `cache_modifier`, `eviction_policy` and `volatile` are for compilers; they change nothing here.
    """
    return _load(ref, None, mask=mask, other=other)


def store(
    ref: Any, val: Any, *, mask: Any = None, cache_modifier: str | None = None, eviction_policy: str | None = None
) -> None:
    """Write the elements of a Ref or view where `mask` is True. The rest is for compilers."""
    _store(ref, None, val, mask=mask)


def approx_tanh(x: Any) -> Array:
    """The hyperbolic tangent."""
    return jnp.tanh(x)


def debug_barrier() -> None:
    """Nothing: one thread runs a kernel."""


__getattr__ = refuse_names(__name__)
__dir__ = _listing(__name__)
