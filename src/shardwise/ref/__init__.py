"""`shardwise.ref`: mutable references to arrays: `new_ref`, `freeze`, `get`, `set`, ...

In: an array. Out: a `Ref` that is read with ``r[...]`` and written with ``r[...] = value``, eagerly or in a traced function, also in
one that closes over it: `ir.references` tells how. A compiled function takes Refs as arguments: what it writes is theirs after the call,
in the same memory where it can be.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from shardwise import numpy as jnp
from shardwise.base.listing import listing as _listing
from shardwise.ir import Array, ShapedArray, ShownTrace, bind, current_trace
from shardwise.ir.references import is_recorded
from shardwise.ops.indexing.reference_ops import empty_ref_p, freeze_p, new_ref_p
from shardwise.ops.rules.convert import as_value
from shardwise.ref.holder import ConstantRef
from shardwise.ref.holder import Ref as Ref
from shardwise.ref.places import AbstractRef as AbstractRef
from shardwise.ref.places import Place
from shardwise.ref.views import RefView as RefView

__all__ = ["AbstractRef", "Ref", "addupdate", "empty_ref", "free_ref", "freeze", "get", "new_ref", "set", "swap"]


def _check_memory(function: str, memory_space: Any) -> None:
    if memory_space is not None:
        raise NotImplementedError(
            f"{function}: a CPU has one memory, so that there is no memory_space to choose, got {memory_space!r}. Leave it out."
        )


def new_ref(init_val: Any, *, memory_space: Any = None, kind: Any = None) -> Ref:
    """A Ref that holds `init_val`. NotImplementedError for a `memory_space`.

    A Ref of the `kind` "no_grad_no_remat" keeps values without tangents: no derivative goes through it. ValueError for other kinds.

    >>> r = jax.new_ref(jnp.zeros(2))
    >>> r[0] = 5.0
    >>> r[...]
    Array([5., 0.], dtype=float32)
    """
    _check_memory("new_ref", memory_space)
    if kind not in (None, "no_grad_no_remat"):
        raise ValueError(f"new_ref: the kinds of Refs are None and 'no_grad_no_remat', got {kind!r}.")
    ref_class = Ref if kind is None else ConstantRef
    if type(current_trace()) is ShownTrace:
        return ref_class.of_program(bind(new_ref_p, as_value(init_val)))
    return ref_class(init_val)


def empty_ref(ty: Any, memory_space: Any = None) -> Ref:
    """A Ref of the shape and dtype of `ty`; it holds zeros until it is written. NotImplementedError as for `new_ref`.

    `memory_space` can only be None or the host's.

    >>> ref = jax.empty_ref(jax.ShapeDtypeStruct((2,), jnp.float32))
    >>> ref[0] = 1.0
    >>> jax.freeze(ref)
    Array([1., 0.], dtype=float32)
    """
    _check_memory("empty_ref", memory_space)
    if type(current_trace()) is ShownTrace:
        return Ref.of_program(bind(empty_ref_p, ty=ShapedArray(tuple(ty.shape), np.dtype(ty.dtype))))
    return Ref(jnp.zeros(ty.shape, ty.dtype))


def freeze(ref: Ref) -> Array:
    """The array of the Ref `ref`, which a function that is traced to a program cannot use afterwards.

    >>> r = jax.new_ref(jnp.zeros(2))
    >>> r[0] = 5.0
    >>> jax.freeze(r)
    Array([5., 0.], dtype=float32)
    """
    place = ref.shown_place()
    value = ref[...] if place is None else bind(freeze_p, place[0])
    if is_recorded():
        ref.release()
    return value


def free_ref(ref: Ref) -> None:
    """As `freeze`, without the array.

    >>> ref = jax.new_ref(jnp.zeros(2))
    >>> jax.free_ref(ref)
    """
    freeze(ref)


def get(ref: Ref, idx: Any = None) -> Array:
    """``ref[idx]``; all of it for None.

    >>> jax.ref.get(jax.new_ref(jnp.arange(3)), 1)
    Array(1, dtype=int32)
    """
    return _require_ref(ref, "ref_get")[idx]


def set(ref: Ref, idx: Any = None, value: Any = None) -> None:
    """``ref[idx] = value``; all of it for None.

    >>> ref = jax.new_ref(jnp.zeros(3))
    >>> jax.ref.set(ref, 0, 5.0)
    >>> jax.freeze(ref)
    Array([5., 0., 0.], dtype=float32)
    """
    _require_ref(ref, "ref_set")[idx] = value


def swap(ref: Ref, idx: Any = None, value: Any = None, _function_name: str = "ref_swap") -> Array:
    """Write `value` to ``ref[idx]``; returns the previous elements. `_function_name` is for the error of a value that is no Ref.

    >>> ref = jax.new_ref(jnp.zeros(3))
    >>> jax.ref.swap(ref, 0, 5.0)
    Array(0., dtype=float32)
    """
    return _require_ref(ref, _function_name).swap(value, idx)


def addupdate(ref: Ref, idx: Any = None, x: Any = None) -> None:
    """``ref[idx] += x``; elements that occur twice in `idx` get both.

    >>> ref = jax.new_ref(jnp.zeros(3))
    >>> jax.ref.addupdate(ref, 1, 2.0)
    >>> jax.freeze(ref)
    Array([0., 2., 0.], dtype=float32)
    """
    _require_ref(ref, "ref_addupdate").update(idx, x, "add")


def _require_ref(ref: Any, function: str) -> Any:
    """`ref`, a Ref, a part of one, or what a kernel gets in its place."""
    if not isinstance(ref, Place):
        raise ValueError(f"Can only call `{function}` on a `Ref`: {ref}.")
    return ref


__dir__ = _listing(__name__)
