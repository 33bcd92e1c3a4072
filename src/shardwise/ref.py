"""`shardwise.ref`: mutable references to arrays, within one function: `new_ref`, `freeze`, `get`, `set`, ...

In: an array. Out: a `Ref` that is read with ``r[...]`` and written with ``r[...] = value``, eagerly or in a traced function.
A compiled function takes Refs as arguments: what it writes is theirs after the call, in the same memory where it can be. A Ref made
in one function cannot be written in another that is traced by itself (a loop body, a vmapped function) and closes over it: pass
the array and return it.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import EllipsisType
from typing import Any

from shardwise import numpy as jnp
from shardwise.ir import Array, ShapedArray, current_trace
from shardwise.ops.rules.convert import as_array, as_value
from shardwise.transforms.jit.references import Reference

__all__ = ["AbstractRef", "Ref", "addupdate", "empty_ref", "free_ref", "freeze", "get", "new_ref", "set", "swap"]


@dataclass(frozen=True)
class AbstractRef:
    """The type of a Ref: the type of its array."""

    inner_aval: ShapedArray

    shape = property(lambda self: self.inner_aval.shape)
    dtype = property(lambda self: self.inner_aval.dtype)
    ndim = property(lambda self: self.inner_aval.ndim)
    size = property(lambda self: self.inner_aval.size)
    weak_type = property(lambda self: self.inner_aval.weak_type)
    sharding = property(lambda self: self.inner_aval.sharding)

    def __repr__(self) -> str:
        return f"Ref{{{self.inner_aval.str_short(short_dtypes=False)}}}"


class Ref(Reference):
    """A mutable reference to an array."""

    __slots__ = ("_shared", "_trace", "_value")
    __hash__ = object.__hash__

    def __init__(self, value: Any) -> None:
        self._value: Array | None = as_array(as_value(value))
        self._shared = True  # others may have the same array: it is copied before a compiled function writes over it
        self._trace = current_trace()

    def held(self) -> Array:
        """The array; ValueError once it was given up."""
        if self._value is None:
            raise ValueError("the Ref was frozen or freed; its array is what freeze returned.")
        return self._value

    def release(self) -> Array:
        """Give up the array and return it."""
        value = self.held()
        self._value = None
        return value

    def taken(self) -> Array:
        """The array, for a compiled function that writes over it."""
        return jnp.copy(self.held()) if self._shared else self.held()

    def replace(self, value: Array) -> None:
        """Hold what a compiled function made."""
        self._check_trace()
        self._value, self._shared = value, False

    def _check_trace(self) -> None:
        if current_trace() is not self._trace:
            raise NotImplementedError(
                "a Ref is written only in the function that made it or takes it as an argument: carry the array through loops and "
                "calls instead, and return it."
            )

    aval = property(lambda self: AbstractRef(self.held().aval), doc="The type of the place.")
    shape = property(lambda self: self.held().shape)
    dtype = property(lambda self: self.held().dtype)
    ndim = property(lambda self: self.held().ndim)
    size = property(lambda self: self.held().size)
    sharding = property(lambda self: self.held().sharding)

    def __len__(self) -> int:
        return len(self.held())

    def __getitem__(self, index: Any) -> Array:
        value = self.held()
        if not isinstance(index, EllipsisType):
            return value[index]
        self._shared = True
        return value

    def __setitem__(self, index: Any, value: Any) -> None:
        held = self.held()
        self._check_trace()
        given = jnp.asarray(value)
        if given.dtype != held.dtype and not given.weak_type:
            raise ValueError(f"Invalid dtype for `swap`. Ref dtype: {held.dtype}. Value dtype: {given.dtype}.")
        self._value = held.at[index].set(given.astype(held.dtype))
        self._shared = True  # all of it set: the value itself

    def __jax_array__(self) -> Array:
        raise NotImplementedError(
            "a Ref is no argument of ops, nor of functions other than compiled ones. Pass the array, ref[...], and return what "
            "becomes of it."
        )

    def __repr__(self) -> str:
        return f"Ref({self._value})"


def _check_plain(function: str, memory_space: Any, kind: Any) -> None:
    if memory_space is not None:
        raise NotImplementedError(
            f"{function}: a CPU has one memory, so that there is no memory_space to choose, got {memory_space!r}. Leave it out."
        )
    if kind is not None:
        raise NotImplementedError(
            f"{function}: kind={kind!r} is not available: a Ref lives in one function and takes part in derivatives. Leave it out, and "
            "put lax.stop_gradient around what is to have no derivative."
        )


def new_ref(init_val: Any, *, memory_space: Any = None, kind: Any = None) -> Ref:
    """A Ref that holds `init_val`. NotImplementedError for a `memory_space` or a `kind`."""
    _check_plain("new_ref", memory_space, kind)
    return Ref(init_val)


def empty_ref(ty: Any, memory_space: Any = None) -> Ref:
    """A Ref of the shape and dtype of `ty`; it holds zeros until it is written. NotImplementedError as for `new_ref`."""
    _check_plain("empty_ref", memory_space, None)
    return Ref(jnp.zeros(ty.shape, ty.dtype))


def freeze(ref: Ref) -> Array:
    """The array of the Ref, which cannot be used afterwards."""
    return ref.release()


def free_ref(ref: Ref) -> None:
    """Release the array."""
    freeze(ref)


def get(ref: Ref, idx: Any = None) -> Array:
    """``ref[idx]``; all of it for None."""
    return ref[... if idx is None or idx == () else idx]


def set(ref: Ref, idx: Any = None, value: Any = None) -> None:
    """``ref[idx] = value``; all of it for None."""
    ref[... if idx is None or idx == () else idx] = value


def swap(ref: Ref, idx: Any = None, value: Any = None) -> Array:
    """Write `value`; returns the previous elements."""
    before = get(ref, idx)
    set(ref, idx, value)
    return before


def addupdate(ref: Ref, idx: Any = None, x: Any = None) -> None:
    """``ref[idx] += x``."""
    set(ref, idx, get(ref, idx) + x)
