"""Reading and writing by index: what Refs and their views have in common.

In: a place, which holds an array, an index, values. Out: the elements, or the place with others. Where a program is recorded to be shown,
the op that says so.
"""

from __future__ import annotations

from types import EllipsisType
from typing import Any

from shardwise import numpy as jnp
from shardwise.base.lazy_dataclasses import dataclass
from shardwise.ir import Array, Op, ShapedArray, ShownTrace, bind, current_trace, tracing
from shardwise.numpy.reference_index import (
    cast_to,
    form_of,
    is_of_programs,
    is_part,
    is_static,
    part_shape,
    part_type,
    value_of_kind,
    whole_index,
)
from shardwise.ops.elementwise.casts import convert, copy
from shardwise.ops.indexing.reference_ops import addupdate_p, get_p, swap_p
from shardwise.ops.rules.convert import as_array, as_value


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


class Place:
    """The base of Refs and their views: reading and writing by index. `held` and `put` are theirs."""

    __slots__ = ()

    def held(self) -> Array:
        """The array."""
        raise NotImplementedError

    def put(self, value: Array) -> None:
        """Hold `value` from now on."""
        raise NotImplementedError

    def share(self) -> None:
        """Note that somebody else has the array as well."""

    def locate(self, index: Any) -> tuple[Place, Any]:
        """The place and the index by which ``self[index]`` is read: for all of a part, those that the part was made of."""
        return self, index

    def inner_aval(self) -> ShapedArray:
        """The type of the array."""
        return self.held().aval

    def shown_place(self) -> tuple[Array, tuple[Any, ...]] | None:
        """The Ref's stand-in in a program recorded for printing, and the indices of this part; None: its array."""
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
            return _bind_shown(get_p, self, place, index)
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
            _bind_shown(swap_p if how == "set" else addupdate_p, self, place, index, value)
            return
        held_array = self.held()
        given = jnp.asarray(value)
        if how == "set":
            given = as_array(cast_to(held_array.dtype, given))
        if given.dtype != held_array.dtype:
            raise ValueError(
                f"Invalid dtype for `swap`. Ref dtype: {held_array.dtype}. Value dtype: {given.dtype}. Convert the value first."
            )
        if isinstance(index, EllipsisType) and how == "set":
            if given.shape != held_array.shape:
                raise ValueError(
                    f"Invalid shape for `swap`. Ref shape: {held_array.shape}. Expected shape: {held_array.shape}. "
                    f"Value shape: {given.shape}."
                )
            # A derivative would take a value that is stored as it is for one that was handed through.
            new = copy(given) if hasattr(type(given), "primal") else given
        elif is_static(index) and given.shape != (part := part_shape(held_array.shape, index)):
            raise ValueError(
                f"Invalid shape for `swap`. Ref shape: {held_array.shape}. Expected shape: {part}. Value shape: {given.shape}."
            )
        else:
            new = with_part(held_array, index, given, how)
        self.put(as_array(convert(new, held_array.dtype, held_array.aval.weak_type)))

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
            return _bind_shown(swap_p, self, place, whole_index(idx), value)
        before = self[idx]
        self[idx] = value
        return before

    def addupdate(self, x: Any, idx: Any = ()) -> None:
        """``ref[idx] += x``; elements that occur twice in `idx` get both."""
        self.update(idx, x, "add")

    def __jax_array__(self) -> Array:
        raise TypeError(
            f"ops take arrays, not a Ref, {self!r}. Read its array, ref[...]; functions that write it take it by jit, cond and scan."
        )


def _bind_shown(op: Op, of: Place, place: tuple[Array, tuple[Any, ...]], index: Any, *values: Any) -> Any:
    """The op of a program that is shown on a part of a Ref; of a value, it has its shape and dtype."""
    ref, outer = place
    aval = of.inner_aval()
    forms, operands = list[Any](), list[Any]()
    for whole, part in (*outer, (aval, index)):
        if part is not ... or not outer:
            forms.append(form_of(whole.shape, part, operands))
    shape = part_type(aval, index).shape
    given = [as_value(x) if op is addupdate_p else cast_to(aval.dtype, as_value(x)) for x in values]
    given = [value_of_kind(x, aval, shape) for x in given]
    trace: Any = current_trace()
    while type(trace) is not ShownTrace:  # derivatives and maps of functions that are shown
        given = [trace.leave_reference(x, of) for x in given]
        trace = trace.parent
    params = {} if op is addupdate_p else {"shape": shape}
    with tracing(trace):
        return bind(op, ref, *given, *operands, index=tuple(forms), **params)


def with_part(whole: Array, index: Any, part: Any, how: str) -> Array:
    """`whole` after a write; a part that begins at a traced place moves inside, as it does where it is read."""
    return getattr(whole.at[index], how)(part, mode="clip" if is_part(index) else None)
