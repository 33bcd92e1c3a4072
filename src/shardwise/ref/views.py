"""Views of Refs: parts, and the same elements in other forms. What is written to a view is written to the Ref."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import numpy as np

from shardwise import numpy as jnp
from shardwise.base.lazy_dataclasses import dataclass
from shardwise.ir import Array, ShapedArray
from shardwise.ir.references import Reference, ReferenceView
from shardwise.numpy.dynamic_index import Slice
from shardwise.numpy.reference_index import is_static, part_shape, part_type, whole_index
from shardwise.ops.elementwise.casts import bitcast_convert_type
from shardwise.ops.rules.convert import as_array, as_value
from shardwise.ref.places import Place, with_part


class ViewedPlace(Place):
    """A place of which there are views."""

    __slots__ = ()

    @property
    def at(self) -> _Parts:
        """``ref.at[index]``: a view of a part, which is read and written as a Ref is."""
        return _Parts(self)

    def reshape(self, *shape: Any) -> RefView:
        """A view with another shape of the same number of elements."""
        new = shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape
        known_size = math.prod(n for n in new if n != -1)
        if (self.size != known_size) if -1 not in new else (known_size == 0 or self.size % known_size):
            raise TypeError(
                f"cannot reshape a Ref of shape {self.shape} into shape {tuple(new)}: give as many elements."
            )
        return RefView(
            self,
            ("reshape", (tuple(new),)),
            lambda whole: whole.reshape(new),
            lambda whole, part: part.reshape(whole.shape),
        )

    def transpose(self, *permutation: Any) -> RefView:
        """A view with the dims in another order, reversed for no arguments."""
        given: Sequence[int] = (
            permutation[0] if len(permutation) == 1 and not isinstance(permutation[0], int) else permutation
        )
        order = tuple(given) or tuple(reversed(range(self.ndim)))
        back = tuple(order.index(i) for i in range(len(order)))
        return RefView(
            self,
            ("transpose", (order,)),
            lambda whole: jnp.transpose(whole, order),
            lambda _, part: jnp.transpose(part, back),
        )

    T = property(lambda self: self.transpose())

    def bitcast(self, dtype: Any) -> RefView:
        """A view of the same bits as another dtype of the same width; NotImplementedError for another width."""
        old, new = self.dtype, np.dtype(dtype)
        if old.itemsize != new.itemsize:
            raise NotImplementedError(
                f"ref.bitcast: elements of {old} and {new} differ in width. Read the array, and use lax.bitcast_convert_type."
            )
        return RefView(
            self,
            ("bitcast", (new,)),
            lambda whole: bitcast_convert_type(whole, new),
            lambda _, part: bitcast_convert_type(part, old),
        )


class _Parts:
    """``ref.at``, waiting for an index."""

    __slots__ = ("_of",)

    def __init__(self, of: Place) -> None:
        self._of = of

    def __getitem__(self, index: Any) -> RefView:
        index = whole_index(index)
        if is_static(index):
            part_shape(self._of.shape, index)
        return _Part(self._of, index)


@dataclass(frozen=True)
class _Again:
    """Makes a view again by the steps from its Ref: each a method and its argument, without the arrays in indices."""

    steps: tuple[tuple[str, Any], ...]

    def __call__(self, ref: Any, arrays: Sequence[Any]) -> Any:
        left = iter(arrays)
        for name, given in self.steps:
            ref = ref.at[_index_again(given, left)] if name == "at" else getattr(ref, name)(*given)
        return ref


def _without_arrays(index: Any, arrays: list[Any]) -> Any:
    """An index as a value that hashes; the arrays in it go into that list."""
    if not isinstance(index, tuple):
        return _part(index, arrays)
    return tuple([_part(p, arrays) for p in cast("tuple[Any, ...]", index)])


def _part(p: Any, arrays: list[Any]) -> Any:
    if isinstance(p, slice):
        s = cast("slice[Any, Any, Any]", p)
        return slice, (s.start, s.stop, s.step)
    if isinstance(p, Slice):
        return Slice, (_part(p.start, arrays), p.size, p.stride)
    if isinstance(p, (list, np.ndarray, Array)):
        arrays.append(as_array(as_value(p)))
        return "array", None
    return None, p


def _index_again(form: Any, left: Iterator[Any]) -> Any:
    """The index of which `_without_arrays` made `form`."""
    if form and not isinstance(form[0], tuple):
        return _part_again(left, *form)
    return tuple([_part_again(left, *p) for p in form])


def _part_again(left: Iterator[Any], kind: Any, given: Any) -> Any:
    if kind is Slice:
        return Slice(_part_again(left, *given[0]), *given[1:])
    if kind is slice:
        return slice(*given)
    return given if kind is None else next(left)


class RefView(ReferenceView, ViewedPlace):
    """A part of a Ref, or a Ref in another shape: what is written to it is written to the Ref.

    `step` is the method of `of` that makes it, and its arguments.
    """

    __slots__ = ("_put", "_step", "_take", "of")

    def __init__(
        self, of: Any, step: tuple[str, Any], take: Callable[[Array], Any], put: Callable[[Array, Array], Any]
    ) -> None:
        self.of = of
        self._step = step
        self._take = take
        self._put = put

    @property
    def root(self) -> Reference:
        """The Ref."""
        return self.of.root if isinstance(self.of, RefView) else self.of

    def take_apart(self) -> tuple[Callable[[Any, Sequence[Any]], Any], list[Any]]:
        """A constructor of such views, from a Ref and arrays, and the arrays of this view."""
        views: list[RefView] = [self]
        while isinstance(views[-1].of, RefView):
            views.append(views[-1].of)
        arrays: list[Any] = []
        steps = [v._step for v in reversed(views)]
        return _Again(tuple([(n, _without_arrays(g, arrays) if n == "at" else g) for n, g in steps])), arrays

    def held(self) -> Array:
        """The part."""
        return as_array(self._take(self.of.held()))

    def put(self, value: Array) -> None:
        """Write the part."""
        self.of.put(as_array(self._put(self.of.held(), value)))

    def __repr__(self) -> str:
        return f"RefView({self.held()})"


class _Part(RefView):
    """``of.at[index]``."""

    __slots__ = ("index",)

    def __init__(self, of: Place, index: Any) -> None:
        super().__init__(
            of, ("at", index), lambda whole: whole[index], lambda whole, part: with_part(whole, index, part, "set")
        )
        self.index = index

    def inner_aval(self) -> ShapedArray:
        """The type of the part."""
        place = self.of.shown_place()
        return super().inner_aval() if place is None else part_type(self.of.inner_aval(), self.index)

    def shown_place(self) -> tuple[Array, tuple[Any, ...]] | None:
        """The Ref's stand-in, and the indices of the part."""
        place = self.of.shown_place()
        return None if place is None else (place[0], (*place[1], (self.of.inner_aval(), self.index)))

    def locate(self, index: Any) -> tuple[Place, Any]:
        """The place and the index of which it is a part, if all of it is asked for."""
        return (self.of, self.index) if index is None else (self, index)
