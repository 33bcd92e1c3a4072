"""`shardwise.ref`: mutable references to arrays: `new_ref`, `freeze`, `get`, `set`, ...

In: an array. Out: a `Ref` that is read with ``r[...]`` and written with ``r[...] = value``, eagerly or in a traced function, also in
one that closes over it: `ir.references` tells how. A compiled function takes Refs as arguments: what it writes is theirs after the call,
in the same memory where it can be.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from types import EllipsisType
from typing import Any

import numpy as np

from shardwise import numpy as jnp
from shardwise.base.lazy_dataclasses import dataclass
from shardwise.base.listing import listing as _listing
from shardwise.engine.array import ArrayImpl
from shardwise.ir import Array, Op, ShapedArray, ShownTrace, bind, current_trace, tracing
from shardwise.ir.references import Reference, View
from shardwise.numpy.reference_index import (
    form_of,
    is_of_programs,
    is_part,
    is_static,
    part_shape,
    part_type,
    value_of_kind,
    whole_index,
)
from shardwise.ops.elementwise.casts import bitcast_convert_type, convert
from shardwise.ops.indexing.reference_ops import (
    addupdate_p,
    empty_ref_p,
    freeze_p,
    get_p,
    new_ref_p,
    swap_p,
)
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

    def inner_aval(self) -> ShapedArray:
        """The type of the array."""
        return self.held().aval

    def shown_place(self) -> tuple[Array, tuple[Any, ...]] | None:
        """What stands for the Ref in the program that is recorded to be shown, and the indices of this part of it; None: its array does."""
        return None

    @property
    def aval(self) -> Any:
        """The type of the place."""
        return AbstractRef(self.inner_aval())

    shape = property(lambda self: self.inner_aval().shape)
    dtype = property(lambda self: self.inner_aval().dtype)
    ndim = property(lambda self: self.inner_aval().ndim)
    size = property(lambda self: self.inner_aval().size)
    sharding = property(lambda self: (self.held() if self.shown_place() is None else self.inner_aval()).sharding)

    def __len__(self) -> int:
        return len(self.held()) if self.shown_place() is None else self.shape[0]

    def __iter__(self) -> Any:
        for i in range(len(self)):
            yield self[i]

    def __getitem__(self, index: Any) -> Array:
        index = whole_index(index)
        place = self.shown_place()
        if place is not None and is_of_programs(index):
            return _shown(get_p, self, place, index)
        value = self.held()
        if not isinstance(index, EllipsisType):
            if is_static(index):
                part_shape(value.shape, index)
            return value[index]
        self.share()
        return value

    def __setitem__(self, index: Any, value: Any) -> None:
        self.update(index, value, "set")

    def update(self, index: Any, value: Any, how: str) -> None:
        """Write elements, by the method `how` of ``x.at[index]``."""
        index = whole_index(index)
        place = self.shown_place()
        if place is not None and is_of_programs(index):
            _shown(swap_p if how == "set" else addupdate_p, self, place, index, value)
            return
        given = jnp.asarray(value)
        held = self.held()
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
        elif is_static(index) and given.shape != (part := part_shape(held.shape, index)):
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
        place = self.shown_place()
        if place is not None and is_of_programs(idx):
            return _shown(swap_p, self, place, whole_index(idx), value)
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
        if is_static(index):
            part_shape(self._of.shape, index)
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

    def __repr__(self) -> str:
        return f"RefView({self.held()})"


class _Part(RefView):
    """``of.at[index]``."""

    __slots__ = ("index", "of")

    def __init__(self, of: _Place, index: Any) -> None:
        super().__init__(of, lambda whole: whole[index], lambda whole, part: _with_part(whole, index, part, "set"))
        self.of = of
        self.index = index

    def inner_aval(self) -> ShapedArray:
        """The type of the part."""
        place = self.of.shown_place()
        return super().inner_aval() if place is None else part_type(self.of.inner_aval(), self.index)

    def shown_place(self) -> tuple[Array, tuple[Any, ...]] | None:
        """What stands for the Ref, and the indices of the part."""
        place = self.of.shown_place()
        return None if place is None else (place[0], (*place[1], (self.of.inner_aval(), self.index)))

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

    @classmethod
    def of_program(cls, value: Array) -> Ref:
        """The Ref for which `value` stands in a program that is traced to be shown."""
        self = super().of_program(value)
        assert isinstance(self, Ref)
        self._frozen = False
        self._shared = True
        return self

    @property
    def aval(self) -> Any:
        """The type of the place."""
        return AbstractRef(self.inner_aval())

    def inner_aval(self) -> ShapedArray:
        """The type of the array."""
        place = None if current_trace() in self._frames else self.stand_in()
        return self.held().aval if place is None else place.aval.inner  # type: ignore[attr-defined]

    def shown_place(self) -> tuple[Array, tuple[Any, ...]] | None:
        """What stands for the Ref in the program that is recorded to be shown; None: its array does."""
        if current_trace() in self._frames:
            return None
        self._check_kept()
        value = self.stand_in()
        return None if value is None else (value, ())

    def _check_kept(self) -> None:
        if self._frozen:
            raise ValueError("the Ref was frozen or freed; its array is what freeze returned.")

    def held(self) -> Array:
        """The array; ValueError once it was given up."""
        self._check_kept()
        found = self._frames.get(current_trace())
        if found is not None:
            return found
        value = self.stand_in()
        if value is None:
            return super().held()
        return bind(get_p, value, index=(), shape=value.aval.shape)

    def store(self, value: Array) -> None:
        """Hold `value` from now on."""
        trace: Any = current_trace()
        place = None if trace in self._frames else self.stand_in()
        if place is None:
            super().store(value)
            return
        while type(trace) is not ShownTrace:
            value = trace.leave_reference(value, self)
            trace = self._outside(trace)
        with tracing(trace):
            bind(swap_p, place, value, index=(), shape=place.aval.shape)

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

    def release(self) -> Array | None:
        """Give up the array and return it."""
        value = self.held() if self.shown_place() is None else None
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
        if self._value is not None:
            return f"Ref({self.aval})"
        value = self.held()
        return repr(value).replace("Array(", "Ref(", 1) if isinstance(value, ArrayImpl) else f"Ref({value})"


def _shown(op: Op, of: _Place, place: tuple[Array, tuple[Any, ...]], index: Any, *values: Any) -> Any:
    """The op of a program that is shown on a part of a Ref; of a value, it has its shape and dtype."""
    ref, outer = place
    aval = of.inner_aval()
    forms, operands = [], []
    for whole, part in (*outer, (aval, index)):
        if part is not ... or not outer:
            forms.append(form_of(whole.shape, part, operands))
    shape = part_type(aval, index).shape
    given = [value_of_kind(as_value(x), aval, shape) for x in values]
    trace: Any = current_trace()
    while type(trace) is not ShownTrace:  # derivatives and maps of functions that are shown
        given = [trace.leave_reference(x, of) for x in given]
        trace = trace.parent
    params = {} if op is addupdate_p else {"shape": shape}
    with tracing(trace):
        return bind(op, ref, *given, *operands, index=tuple(forms), **params)


def _with_part(whole: Array, index: Any, part: Any, how: str) -> Array:
    """`whole` after a write; a part that begins at a traced place moves inside, as it does where it is read."""
    return getattr(whole.at[index], how)(part, mode="clip" if is_part(index) else None)


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
    if type(current_trace()) is ShownTrace:
        return Ref.of_program(bind(new_ref_p, as_value(init_val)))
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
    if type(current_trace()) is ShownTrace:
        return Ref.of_program(bind(empty_ref_p, ty=ShapedArray(tuple(ty.shape), np.dtype(ty.dtype))))
    return Ref(jnp.zeros(ty.shape, ty.dtype))


def freeze(ref: Ref) -> Array:
    """The array of the Ref `ref`, which cannot be used afterwards.

    >>> r = jax.new_ref(jnp.zeros(2))
    >>> r[0] = 5.0
    >>> jax.freeze(r)
    Array([5., 0.], dtype=float32)
    """
    place = ref.shown_place()
    value = ref[...] if place is None else bind(freeze_p, place[0])
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
    return ref.swap(value, idx)


def addupdate(ref: Ref, idx: Any = None, x: Any = None) -> None:
    """``ref[idx] += x``; elements that occur twice in `idx` get both.

    >>> ref = jax.new_ref(jnp.zeros(3))
    >>> jax.ref.addupdate(ref, 1, 2.0)
    >>> jax.freeze(ref)
    Array([0., 2., 0.], dtype=float32)
    """
    ref.update(idx, x, "add")


__dir__ = _listing(__name__)
