"""`shardwise.ref`: mutable references to arrays: `new_ref`, `freeze`, `get`, `set`, ...

In: an array. Out: a `Ref` that is read with ``r[...]`` and written with ``r[...] = value``, eagerly or in a traced function, also in
one that closes over it: `ir.references` tells how. A compiled function takes Refs as arguments: what it writes is theirs after the call,
in the same memory where it can be.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import EllipsisType
from typing import Any

import numpy as np

from shardwise import numpy as jnp
from shardwise.base.listing import listing as _listing
from shardwise.engine.array import ArrayImpl
from shardwise.ir import Array, ShapedArray
from shardwise.ir.references import Reference, View
from shardwise.numpy.dynamic_index import Slice
from shardwise.ops.elementwise.casts import bitcast_convert_type, convert
from shardwise.ops.rules.convert import as_array, as_value

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


class _Place:
    """What Refs and their views have in common: reading and writing by index. `held` and `put` are theirs."""

    __slots__ = ()

    @property
    def recorded(self) -> bool:
        """Whether what is read now is part of a program."""
        raise NotImplementedError

    def held(self) -> Array:
        """The array."""
        raise NotImplementedError

    def put(self, value: Array) -> None:
        """Hold `value` from now on."""
        raise NotImplementedError

    def share(self) -> None:
        """Note that somebody else has the array as well."""

    def located(self, index: Any) -> tuple[_Place, Any]:
        """The place and the index by which ``self[index]`` is read: for all of a part, those that the part was made of."""
        return self, index

    @property
    def aval(self) -> Any:
        """The type of the place."""
        return AbstractRef(self.held().aval)

    shape = property(lambda self: self.held().shape)
    dtype = property(lambda self: self.held().dtype)
    ndim = property(lambda self: self.held().ndim)
    size = property(lambda self: self.held().size)
    sharding = property(lambda self: self.held().sharding)

    def __len__(self) -> int:
        return len(self.held())

    def __iter__(self) -> Any:
        for i in range(len(self)):
            yield self[i]

    def __getitem__(self, index: Any) -> Array:
        value = self.held()
        if index is None or (isinstance(index, tuple) and not index):
            index = ...
        if not isinstance(index, EllipsisType):
            if _is_static(index):
                _part_shape(value.shape, index)
            return value[index]
        self.share()
        return value

    def __setitem__(self, index: Any, value: Any) -> None:
        self.update(index, value, "set")

    def update(self, index: Any, value: Any, how: str) -> None:
        """Write elements, by the method `how` of ``x.at[index]``."""
        held = self.held()
        given = jnp.asarray(value)
        if index is None or (isinstance(index, tuple) and not index):
            index = ...
        if given.dtype != held.dtype:
            raise ValueError(
                f"Invalid dtype for `swap`. Ref dtype: {held.dtype}. Value dtype: {given.dtype}. Convert the value first."
            )
        if isinstance(index, EllipsisType) and how == "set":
            if given.shape != held.shape:
                raise ValueError(
                    f"Invalid shape for `swap`. Ref shape: {held.shape}. Expected shape: {held.shape}. Value shape: {given.shape}."
                )
            new = given
        elif _is_static(index) and given.shape != (part := _part_shape(held.shape, index)):
            raise ValueError(
                f"Invalid shape for `swap`. Ref shape: {held.shape}. Expected shape: {part}. Value shape: {given.shape}."
            )
        else:
            new = _with_part(held, index, given, how)
        self.put(as_array(convert(new, held.dtype, held.aval.weak_type)))

    @property
    def at(self) -> _Parts:
        """``ref.at[index]``: a view of a part, which is read and written as a Ref is."""
        return _Parts(self)

    def get(self, idx: Any = None) -> Array:
        """``ref[idx]``; all of it for None."""
        return self[idx]

    def set(self, value: Any, idx: Any = None) -> None:
        """``ref[idx] = value``; all of it for None."""
        self[idx] = value

    def swap(self, value: Any, idx: Any = None) -> Array:
        """Write `value`; returns the previous elements."""
        before = self[idx]
        self[idx] = value
        return before

    def addupdate(self, x: Any, idx: Any = ()) -> None:
        """``ref[idx] += x``; elements that occur twice in `idx` get both."""
        self.update(idx, x, "add")

    def reshape(self, *shape: Any) -> RefView:
        """A view with another shape of the same number of elements."""
        new = shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape
        known = math.prod(n for n in new if n != -1)
        if (self.size != known) if -1 not in new else (known == 0 or self.size % known):
            raise TypeError(
                f"cannot reshape a Ref of shape {self.shape} into shape {tuple(new)}: give as many elements."
            )
        return RefView(self, lambda whole: whole.reshape(new), lambda whole, part: part.reshape(whole.shape))

    def transpose(self, *permutation: Any) -> RefView:
        """A view with the dims in another order, reversed for no arguments."""
        given: Sequence[int] = (
            permutation[0] if len(permutation) == 1 and not isinstance(permutation[0], int) else permutation
        )
        order = tuple(given) or tuple(reversed(range(self.ndim)))
        back = tuple(order.index(i) for i in range(len(order)))
        return RefView(self, lambda whole: jnp.transpose(whole, order), lambda _, part: jnp.transpose(part, back))

    T = property(lambda self: self.transpose())

    def bitcast(self, dtype: Any) -> RefView:
        """A view of the same bits as another dtype of the same width; NotImplementedError for another width."""
        old, new = self.dtype, np.dtype(dtype)
        if old.itemsize != new.itemsize:
            raise NotImplementedError(
                f"ref.bitcast: elements of {old} and {new} differ in width. Read the array, and use lax.bitcast_convert_type."
            )
        return RefView(
            self, lambda whole: bitcast_convert_type(whole, new), lambda _, part: bitcast_convert_type(part, old)
        )

    def __jax_array__(self) -> Array:
        raise NotImplementedError(
            "a Ref is no argument of ops, nor of functions other than compiled ones, and a view of one is no argument at all. Pass the "
            "array, ref[...], and return what becomes of it; or pass the Ref of a view, and take the view inside."
        )


class _Parts:
    """``ref.at``, waiting for an index."""

    __slots__ = ("_of",)

    def __init__(self, of: _Place) -> None:
        self._of = of

    def __getitem__(self, index: Any) -> RefView:
        if _is_static(index):
            _part_shape(self._of.shape, index)
        return _Part(self._of, index)


class RefView(View, _Place):
    """A part of a Ref, or a Ref in another shape: what is written to it is written to the Ref."""

    __slots__ = ("_of", "_put", "_take")

    def __init__(self, of: _Place, take: Callable[[Array], Any], put: Callable[[Array, Array], Any]) -> None:
        self._of = of
        self._take = take
        self._put = put

    def held(self) -> Array:
        """The part."""
        return as_array(self._take(self._of.held()))

    def put(self, value: Array) -> None:
        """Write the part."""
        self._of.put(as_array(self._put(self._of.held(), value)))

    @property
    def recorded(self) -> bool:
        """Whether what is read now is part of a program."""
        return self._of.recorded

    def __repr__(self) -> str:
        return f"RefView({self.held()})"


class _Part(RefView):
    """``of.at[index]``."""

    __slots__ = ("index", "of")

    def __init__(self, of: _Place, index: Any) -> None:
        super().__init__(of, lambda whole: whole[index], lambda whole, part: _with_part(whole, index, part, "set"))
        self.of = of
        self.index = index

    def located(self, index: Any) -> tuple[_Place, Any]:
        """The place and the index of which it is a part, if all of it is asked for."""
        return (self.of, self.index) if index is None else (self, index)


class Ref(Reference, _Place):
    """A mutable reference to an array."""

    __slots__ = ("_frozen", "_shared")
    __hash__ = object.__hash__

    def __init__(self, value: Any) -> None:
        super().__init__(as_array(as_value(value)))
        self._frozen = False
        self._shared = True  # others may have the same array: it is copied before a compiled function writes over it

    @property
    def aval(self) -> Any:
        """The type of the place."""
        return AbstractRef(self.held().aval)

    def held(self) -> Array:
        """The array; ValueError once it was given up."""
        if self._frozen:
            raise ValueError("the Ref was frozen or freed; its array is what freeze returned.")
        return super().held()

    def put(self, value: Array) -> None:
        """Hold `value`, which others may have as well."""
        self.store(value)
        self._shared = True

    def share(self) -> None:
        """Note that the array is not the Ref's alone."""
        self._shared = True

    def unsafe_buffer_pointer(self) -> int:
        """The address of the array's data; ValueError where several devices hold it."""
        return self.held().unsafe_buffer_pointer()

    def release(self) -> Array:
        """Give up the array and return it."""
        value = self.held()
        self._frozen = True
        return value

    def taken(self) -> Array:
        """The array, for a compiled function that writes over it."""
        value = self.held()
        return as_array(convert(jnp.copy(value), value.dtype, value.aval.weak_type)) if self._shared else value

    def replace(self, value: Array) -> None:
        """Hold what a compiled function made."""
        self.store(value)
        self._shared = False

    def __repr__(self) -> str:
        if self._frozen:
            return "Ref(frozen)"
        value = self.held()
        return repr(value).replace("Array(", "Ref(", 1) if isinstance(value, ArrayImpl) else f"Ref({value})"


def _with_part(whole: Array, index: Any, part: Any, how: str) -> Array:
    """`whole` after a write; a part that begins at a traced place moves inside, as it does where it is read."""
    return getattr(whole.at[index], how)(part, mode="clip" if _is_part(index) else None)


def _is_static(index: Any) -> bool:
    """Whether an index consists of Python's ints and slices, and of `ds` with known starts."""
    parts = index if isinstance(index, tuple) else (index,)
    return all(
        isinstance(i, (int, EllipsisType))
        or (isinstance(i, slice) and _is_plain(i))
        or (isinstance(i, Slice) and not i.is_dynamic_start)
        for i in parts
    )


def _is_part(index: Any) -> bool:
    """Whether an index has no arrays with dims."""
    parts = index if isinstance(index, tuple) else (index,)
    return not any(isinstance(i, (list, tuple)) or getattr(i, "ndim", 0) for i in parts)


def _last(part: Slice) -> int:
    return int(part.start) + part.stride * (part.size - 1)


def _range(part: Any) -> Any:
    """A `ds` with a known start as a slice; other parts of an index as they are."""
    if not isinstance(part, Slice):
        return part
    first = int(part.start)
    if first < 0:
        raise IndexError(f"a part of {part.size} elements begins at {first}")
    return slice(first, first + part.stride * part.size, part.stride)


def _is_plain(part: slice) -> bool:
    return all(isinstance(x, (int, type(None))) for x in (part.start, part.stop, part.step))


def _part_shape(shape: tuple[int, ...], index: Any) -> tuple[int, ...]:
    """The shape of the indexed part. ValueError for an index out of bounds."""
    parts = index if isinstance(index, tuple) else (index,)
    every = np.broadcast_to(False, shape)
    try:
        # NumPy checks positions, but cuts slices short.
        _ = every[tuple([_last(i) if isinstance(i, Slice) and i.size else _range(i) for i in parts])]
        return every[tuple([_range(i) for i in parts])].shape
    except IndexError as error:
        raise ValueError(f"Out of bound indexer: {error} (the Ref's shape is {shape}).") from None


def _check_plain(function: str, memory_space: Any, kind: Any) -> None:
    if memory_space is not None:
        raise NotImplementedError(
            f"{function}: a CPU has one memory, so that there is no memory_space to choose, got {memory_space!r}. Leave it out."
        )
    if kind is not None:
        raise NotImplementedError(
            f"{function}: kind={kind!r} is not available: a Ref takes part in derivatives where values with tangents are written. Leave "
            "it out, and put lax.stop_gradient around what is to have no derivative."
        )


def new_ref(init_val: Any, *, memory_space: Any = None, kind: Any = None) -> Ref:
    """A Ref that holds `init_val`. NotImplementedError for a `memory_space` or a `kind`.

    >>> r = jax.new_ref(jnp.zeros(2))
    >>> r[0] = 5.0
    >>> r[...]
    Array([5., 0.], dtype=float32)
    """
    _check_plain("new_ref", memory_space, kind)
    return Ref(init_val)


def empty_ref(ty: Any, memory_space: Any = None) -> Ref:
    """A Ref of the shape and dtype of `ty`; it holds zeros until it is written. NotImplementedError as for `new_ref`.

    `memory_space` can only be None or the host's.

    >>> ref = jax.empty_ref(jax.ShapeDtypeStruct((2,), jnp.float32))
    >>> ref[0] = 1.0
    >>> jax.freeze(ref)
    Array([1., 0.], dtype=float32)
    """
    _check_plain("empty_ref", memory_space, None)
    return Ref(jnp.zeros(ty.shape, ty.dtype))


def freeze(ref: Ref) -> Array:
    """The array of the Ref `ref`, which cannot be used afterwards.

    >>> r = jax.new_ref(jnp.zeros(2))
    >>> r[0] = 5.0
    >>> jax.freeze(r)
    Array([5., 0.], dtype=float32)
    """
    value = ref[...]
    ref.release()
    return value


def free_ref(ref: Ref) -> None:
    """Release the array of `ref`, which cannot be used afterwards.

    >>> ref = jax.new_ref(jnp.zeros(2))
    >>> jax.free_ref(ref)
    """
    freeze(ref)


def get(ref: Ref, idx: Any = None) -> Array:
    """``ref[idx]``; all of it for None.

    >>> jax.ref.get(jax.new_ref(jnp.arange(3)), 1)
    Array(1, dtype=int32)
    """
    return ref[idx]


def set(ref: Ref, idx: Any = None, value: Any = None) -> None:
    """``ref[idx] = value``; all of it for None.

    >>> ref = jax.new_ref(jnp.zeros(3))
    >>> jax.ref.set(ref, 0, 5.0)
    >>> jax.freeze(ref)
    Array([5., 0., 0.], dtype=float32)
    """
    ref[idx] = value


def swap(ref: Ref, idx: Any = None, value: Any = None) -> Array:
    """Write `value` to ``ref[idx]``; returns the previous elements.

    >>> ref = jax.new_ref(jnp.zeros(3))
    >>> jax.ref.swap(ref, 0, 5.0)
    Array(0., dtype=float32)
    """
    before = get(ref, idx)
    set(ref, idx, value)
    return before


def addupdate(ref: Ref, idx: Any = None, x: Any = None) -> None:
    """``ref[idx] += x``; elements that occur twice in `idx` get both.

    >>> ref = jax.new_ref(jnp.zeros(3))
    >>> jax.ref.addupdate(ref, 1, 2.0)
    >>> jax.freeze(ref)
    Array([0., 2., 0.], dtype=float32)
    """
    ref.update(idx, x, "add")


__dir__ = _listing(__name__)
