"""Reads and writes with masks: `load`, `store`, `swap` and the atomic updates.

Unlike ``ref[index]``, which moves a part that begins at a traced place inside, they read memory beyond the end as it is before it is
written, and drop writes there.
"""

from __future__ import annotations

from collections.abc import Callable
from types import EllipsisType
from typing import Any

from shardwise import lax
from shardwise import numpy as jnp
from shardwise.experimental.pallas.memory import uninitialized_array
from shardwise.ir import Array
from shardwise.numpy.dynamic_index import Slice
from shardwise.ref import Ref, RefView

Place = Ref | RefView


class _Window:
    """A part of a Ref, with memory beyond its end where the part may begin anywhere."""

    def __init__(self, place: Any, index: Any, function: str) -> None:
        if not isinstance(place, Place):
            raise ValueError(f"Can only call `{function}` on a `Ref`: {place}.")
        self._place, index = place.locate(index)
        self._index = _full_index(index, self._place.ndim)
        self._beyond = [_reach(part) for part in self._index]

    def read(self) -> Array:
        """The elements."""
        return self._pad_place()[self._index] if any(self._beyond) else self._place[self._index]

    def write(self, new: Array) -> None:
        """Set the elements."""
        if not any(self._beyond):
            self._place[self._index] = new
            return
        whole = self._pad_place().at[self._index].set(new)
        self._place[...] = lax.slice(whole, [0] * whole.ndim, self._place.shape)

    def _pad_place(self) -> Array:
        whole = self._place[...]
        return lax.pad(whole, uninitialized_array((), whole.dtype), [(0, n, 0) for n in self._beyond])


def _full_index(index: Any, ndim: int) -> tuple[Any, ...]:
    parts: tuple[Any, ...] = (...,) if index is None else index if isinstance(index, tuple) else (index,)
    at = next((i for i, part in enumerate(parts) if isinstance(part, EllipsisType)), None)
    if at is None:
        return (*parts, *[slice(None)] * (ndim - len(parts)))
    return (*parts[:at], *[slice(None)] * (ndim - len(parts) + 1), *parts[at + 1 :])


def _reach(part: Any) -> int:
    """How far a part of an index may reach beyond the end: nowhere if its place is known, or an array gives it."""
    if isinstance(part, Slice):
        return part.size * part.stride if part.is_dynamic_start else 0
    return 1 if isinstance(part, Array) and not part.ndim else 0


def load(
    x_ref_or_view: Any,
    idx: Any = None,
    *,
    mask: Any = None,
    other: Any = None,
    cache_modifier: Any = None,
    eviction_policy: Any = None,
    volatile: bool = False,
) -> Array:
    """The elements at an index, and `other` where `mask` is False.

    `cache_modifier`, `eviction_policy` and `volatile` are for compilers; they change nothing here.

    Raises:
        ValueError: the mask does not broadcast to the elements.
    """
    window = _Window(x_ref_or_view, idx, "load").read()
    if mask is not None:
        try:
            fits = jnp.broadcast_shapes(window.shape, jnp.shape(mask)) == window.shape
        except ValueError:
            fits = False
        if not fits:
            raise ValueError(f"Cannot broadcast mask shape {jnp.shape(mask)} to load shape {window.shape}")
    return window if mask is None or other is None else jnp.where(mask, window, jnp.asarray(other, window.dtype))


def swap(
    x_ref_or_view: Any,
    idx: Any,
    val: Any,
    *,
    mask: Any = None,
    eviction_policy: Any = None,
    _function_name: str = "swap",
) -> Array:
    """Write `val` where `mask` is True; returns the elements before, and `val` elsewhere. `eviction_policy` is for compilers.

    Raises:
        ValueError: `val` has another shape or dtype than the elements.
    """
    window = _Window(x_ref_or_view, idx, _function_name)
    before, new = window.read(), jnp.asarray(val)
    if new.shape != before.shape:
        raise ValueError(
            f"Invalid shape for `{_function_name}`. Expected shape: {before.shape}. Value shape: {new.shape}."
        )
    if new.dtype != before.dtype:
        raise ValueError(
            f"Invalid dtype for `{_function_name}`. Ref dtype: {before.dtype}. Value dtype: {new.dtype}. Convert the value first."
        )
    window.write(new if mask is None else jnp.where(mask, new, before))
    return before if mask is None else jnp.where(mask, before, new)


def store(x_ref_or_view: Any, idx: Any, val: Any, *, mask: Any = None, eviction_policy: Any = None) -> None:
    """Write `val` where `mask` is True; errors as `swap` has them. `eviction_policy` is for compilers."""
    swap(x_ref_or_view, idx, val, mask=mask, eviction_policy=eviction_policy, _function_name="store")


def _atomic(name: str, combine: Callable[[Any, Any], Any]) -> Callable[..., Array]:
    def update(x_ref_or_view: Any, idx: Any, val: Any, *, mask: Any = None) -> Array:
        window = _Window(x_ref_or_view, idx, name)
        before = window.read()
        new = jnp.asarray(combine(before, jnp.asarray(val)), before.dtype)
        window.write(new if mask is None else jnp.where(mask, new, before))
        return before

    update.__name__ = update.__qualname__ = name
    update.__doc__ = (
        f"`{combine.__name__}` of elements and `val`, written where `mask` is True; returns the elements before."
    )
    return update


atomic_max = _atomic("atomic_max", jnp.maximum)
atomic_min = _atomic("atomic_min", jnp.minimum)
atomic_and = _atomic("atomic_and", jnp.bitwise_and)
atomic_or = _atomic("atomic_or", jnp.bitwise_or)
atomic_xor = _atomic("atomic_xor", jnp.bitwise_xor)


def atomic_add(x_ref_or_view: Any, idx: Any, val: Any, *, mask: Any = None) -> Array:
    """Add `val` to elements where `mask` is True; those that occur twice in `idx` get both. Returns the elements before."""
    if not isinstance(x_ref_or_view, Place):
        raise ValueError(f"Can only call `atomic_add` on a `Ref`: {x_ref_or_view}.")
    before = x_ref_or_view[idx]
    new = jnp.broadcast_to(jnp.asarray(val, before.dtype), before.shape)
    x_ref_or_view.addupdate(new if mask is None else jnp.where(mask, new, jnp.zeros_like(new)), idx)
    return before


def atomic_xchg(x_ref_or_view: Any, idx: Any, val: Any, *, mask: Any = None) -> Array:
    """Write `val` where `mask` is True; returns the elements before."""
    before = x_ref_or_view[idx]
    swap(x_ref_or_view, idx, val, mask=mask, _function_name="atomic_xchg")
    return before


def atomic_cas(ref: Any, cmp: Any, val: Any) -> Array:
    """Write `val` to a scalar that equals `cmp`; returns the scalar before."""
    before = ref[...]
    if before.shape:
        raise ValueError(f"ref must be scalar, got a Ref of shape {before.shape}.")
    ref[...] = jnp.where(before == cmp, jnp.asarray(val, before.dtype), before)
    return before
