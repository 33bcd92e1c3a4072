"""`ufunc`: a function of elements with NumPy's methods reduce, accumulate, at, reduceat and outer."""

from __future__ import annotations

import inspect
import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from shardwise.base.dtypes import default_dtype
from shardwise.ir import Array, Tracer
from shardwise.lax import adaptive as lax
from shardwise.numpy._promote import (
    array,
    as_array,
    astype,
    broadcast_shapes,
    broadcast_to_shape,
    canonical_axes,
    canonical_axis,
    concrete,
    is_bool,
    is_integer,
    no_out,
    requested_dtype,
    values,
)
from shardwise.numpy.functional import vectorize
from shardwise.numpy.indexing import take


class ufunc:
    """A function of elements, broadcast over arrays. `frompyfunc` makes one; `add` and some others are ufuncs too.

    Attributes:
        nin, nout, nargs: the numbers of operands, results and both.
        identity: the result of `reduce` over no elements; None if there is none.
    """

    def __init__(
        self,
        func: Callable[..., Any],
        /,
        nin: int,
        nout: int,
        *,
        name: str | None = None,
        nargs: int | None = None,
        identity: Any = None,
        call: Callable[..., Any] | None = None,
        reduce: Callable[..., Any] | None = None,
        accumulate: Callable[..., Any] | None = None,
        at: Callable[..., Any] | None = None,
        reduceat: Callable[..., Any] | None = None,
    ) -> None:
        if not callable(func):
            raise TypeError(f"ufunc needs a function of {nin} elements, got {func!r}.")
        self.__name__ = name or getattr(func, "__name__", "ufunc")
        self.__qualname__ = self.__name__
        self.__doc__ = func.__doc__
        self.__wrapped__ = func
        self._nin = operator.index(nin)
        self._nout = operator.index(nout)
        self._nargs = self._nin if nargs is None else operator.index(nargs)
        self._identity = identity
        kind = inspect.Parameter
        self.__signature__ = inspect.Signature(
            [
                kind("args", kind.VAR_POSITIONAL),
                kind("out", kind.KEYWORD_ONLY, default=None),
                kind("where", kind.KEYWORD_ONLY, default=None),
            ]
        )
        self._call = call or _vectorize(func)
        self._reduce = reduce
        self._accumulate = accumulate
        self._at = at
        self._reduceat = reduceat

    @property
    def nin(self) -> int:
        """The number of operands."""
        return self._nin

    @property
    def nout(self) -> int:
        """The number of results."""
        return self._nout

    @property
    def nargs(self) -> int:
        """The number of operands and results."""
        return self._nargs

    @property
    def identity(self) -> Any:
        """The result of `reduce` over no elements; None if there is none."""
        return self._identity

    def __repr__(self) -> str:
        return f"<jnp.ufunc '{self.__name__}'>"

    def __hash__(self) -> int:
        return hash((self.__wrapped__, self.nin, self.nout))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ufunc) and (self.__wrapped__, self.nin, self.nout, self.__name__) == (
            other.__wrapped__,
            other.nin,
            other.nout,
            other.__name__,
        )

    def __call__(self, *args: Any, out: Any = None, where: Any = None) -> Any:
        """The function applied to each group of elements of the broadcast arguments."""
        if out is not None or where is not None:
            no_out(self.__name__, out)
            raise NotImplementedError(f"{self.__name__}: where= is not supported. Use jnp.where on the result.")
        return self._call(*args)

    def _binary(self, method: str) -> None:
        if self.nin != 2 or self.nout != 1:
            raise ValueError(
                f"{self.__name__}.{method} needs a function of two operands and one result; this one has "
                f"nin={self.nin}, nout={self.nout}."
            )

    def reduce(
        self,
        a: Any,
        axis: Any = 0,
        dtype: Any = None,
        out: None = None,
        keepdims: bool = False,
        initial: Any = None,
        where: Any = None,
    ) -> Array:
        """The elements along `axis` (one, several, or None for all) joined, from the left.

        ValueError for `where`, and for a reduction over no elements, without an identity or `initial`.
        """
        self._binary("reduce")
        no_out(f"{self.__name__}.reduce", out)
        if where is not None and self.identity is None and initial is None:
            raise ValueError(
                f"reduction operation '{self.__name__}' does not have an identity, so to use a where mask "
                "one has to specify 'initial'."
            )
        if self._reduce is not None:
            return self._reduce(a, axis=axis, dtype=dtype, keepdims=keepdims, initial=initial, where=where)
        if where is not None and not is_bool((mask := array("reduce", where)).dtype):
            raise ValueError(
                f"{self.__name__}.reduce: where must have dtype=bool; got {mask.dtype}. Compare it with 0."
            )
        x = array(f"{self.__name__}.reduce", a)
        dtype = requested_dtype(f"{self.__name__}.reduce", dtype)
        dtype = dtype or self._result_dtype(x)
        x = as_array(astype(x, dtype))
        axes = canonical_axes(axis, x.ndim)
        if len(axes) > 1 and axes == tuple(range(x.ndim)):
            flat = lax.reshape(x, (x.size,))
            mask = (
                None if where is None else lax.reshape(broadcast_to_shape(array("reduce", where), x.shape), (x.size,))
            )
            result = self._fold(flat, 0, initial, mask)
        elif len(axes) == 1:
            mask = None if where is None else broadcast_to_shape(array("reduce", where), x.shape)
            result = self._fold(x, axes[0], initial, mask)
        else:
            raise NotImplementedError(
                f"{self.__name__}.reduce over some of several axes; reduce one axis after the other."
            )
        result = astype(result, dtype)
        return lax.expand_dims(result, axes) if keepdims else result

    def _fold(self, x: Array, axis: int, initial: Any, where: Array | None) -> Any:
        rows, masks = _rows(x, axis), None if where is None else _rows(where, axis)
        if initial is None and (where is not None or not x.shape[axis]):
            initial = self.identity
            if initial is None:
                raise ValueError(f"zero-size array to reduction operation {self.__name__} which has no identity")
        if initial is None:
            result, rows = rows[0], rows[1:]  # type: ignore[index]
        elif not rows.shape[0]:
            return lax.full(rows.shape[1:], initial, x.dtype)
        else:
            result = lax.full_like(rows[0], initial)  # type: ignore[index]

        def step(result: Array, given: tuple[Array, Array | None]) -> tuple[Array, None]:
            item, mask = given
            next_result = self._join_step(result, item)
            return next_result if mask is None else lax.select(mask, next_result, result), None

        return self._loop(step, result, (rows, masks))[0]

    def _join_step(self, result: Array, item: Array) -> Array:
        """One step of a loop whose carry keeps its dtype."""
        return lax.convert_element_type(self._call(result, item), result.dtype)

    def _loop(self, step: Callable[..., Any], result: Array, xs: Any) -> tuple[Any, Any]:
        """`step` over the first dim of `xs` in one loop, from `result` without its weak type, which steps would lose."""
        return lax.scan(step, lax.convert_element_type(result, result.dtype), xs)

    def _result_dtype(self, x: Array) -> np.dtype[Any]:
        """The dtype of a result for two elements of `x`."""
        return self._call(lax.full((), 0, x.dtype), lax.full((), 0, x.dtype)).dtype

    def accumulate(self, a: Any, axis: Any = 0, dtype: Any = None, out: None = None) -> Array:
        """The results of reducing the first 1, 2, ... elements along `axis`."""
        self._binary("accumulate")
        no_out(f"{self.__name__}.accumulate", out)
        x = array(f"{self.__name__}.accumulate", a)
        if isinstance(axis, tuple) or (axis is None and self._accumulate is None):
            raise ValueError(f"{self.__name__}.accumulate takes one axis, got {axis!r}. Flatten the array first.")
        if axis is None:
            x, axis = lax.reshape(x, (x.size,)), 0
        axis = canonical_axis(axis, x.ndim)
        dtype = requested_dtype(f"{self.__name__}.accumulate", dtype)
        if self._accumulate is not None:
            return self._accumulate(x, axis=axis, dtype=dtype)
        x = as_array(astype(x, dtype or self._result_dtype(x)))
        if not x.size:
            return x
        rows = _rows(x, axis)

        def step(result: Array, item: Array) -> tuple[Array, Array]:
            next_result = self._join_step(result, item)
            return next_result, next_result

        first = rows[:1]  # type: ignore[index]
        rest = self._loop(step, rows[0], rows[1:])[1]  # type: ignore[index]
        return lax.transpose(lax.concatenate([first, rest], 0), [int(d) for d in np.argsort(_axis_first(x, axis))])

    def at(self, a: Any, indices: Any, b: Any = None, /, *, inplace: bool = True) -> Array:
        """`a` in the dtype of the results, with the function applied at `indices`, once for each time an index occurs.

        Needs ``inplace=False``.
        """
        if inplace:
            raise NotImplementedError(
                f"{self.__name__}.at: arrays are immutable, so nothing is updated in place. "
                f"Pass inplace=False and use the result: x = jnp.{self.__name__}.at(x, idx, y, inplace=False)."
            )
        x = array(f"{self.__name__}.at", a)
        if self._at is not None:
            return self._at(x, indices, b)
        given = [] if b is None else [array(f"{self.__name__}.at", b)]
        dtype = self._call(*[lax.full_like(y, 1, shape=()) for y in (x, *given)]).dtype
        x, *given = [as_array(astype(y, dtype)) for y in (x, *given)]
        index = indices if isinstance(indices, tuple) else (indices,)
        whole = x.shape
        if len(index) != x.ndim or any(isinstance(i, slice | type(None) | type(Ellipsis)) for i in index):
            # The places in the flattened array. Those out of bounds are behind its end, where writes are dropped.
            positions = lax.reshape(lax.iota(default_dtype("i"), x.size), whole)
            index = (positions.at[index].get(mode="fill", fill_value=x.size),)  # type: ignore[attr-defined]
            x = lax.reshape(x, (x.size,))
        columns = [array(f"{self.__name__}.at", i) for i in index]
        shape = broadcast_shapes(*[i.shape for i in columns])
        count = math.prod(shape)
        columns = [lax.reshape(broadcast_to_shape(i, shape), (count,)) for i in columns]
        updates = [lax.reshape(broadcast_to_shape(y, shape), (count,)) for y in given]

        def step(x: Array, given: tuple[list[Array], list[Array]]) -> tuple[Array, None]:
            place, operands = tuple(given[0]), given[1]
            new = self._call(x[place], *operands)  # type: ignore[index]
            return x.at[place].set(as_array(astype(new, dtype))), None  # type: ignore[attr-defined]

        # One after the other: an index may occur again.
        return lax.reshape(self._loop(step, x, (columns, updates))[0], whole)

    def reduceat(self, a: Any, indices: Any, axis: int = 0, dtype: Any = None, out: None = None) -> Array:
        """The function folded over slices: each begins at an index and ends at the next; an empty slice gives the element at its index.

        Without a `dtype` the result has that of `a`.
        """
        self._binary("reduceat")
        no_out(f"{self.__name__}.reduceat", out)
        if self._reduceat is not None:
            return self._reduceat(a, indices, axis=axis, dtype=dtype)
        x = array(f"{self.__name__}.reduceat", a)
        axis = canonical_axis(axis, x.ndim)
        starts = array(f"{self.__name__}.reduceat", indices)
        if starts.ndim != 1 or not is_integer(starts.dtype):
            raise ValueError(
                f"{self.__name__}.reduceat takes a 1-d array of integer indices, got shape {starts.shape} "
                f"of {starts.dtype}."
            )
        dtype = requested_dtype(f"{self.__name__}.reduceat", dtype) or x.dtype
        size = x.shape[axis]
        longest = size
        if not isinstance(starts, Tracer):
            host_values = concrete(starts, "indices of reduceat").astype(np.int64)
            longest = max(
                0, min(size, int((np.append(host_values[1:], size) - np.maximum(host_values, -1)).max(initial=0)) - 1)
            )
        x, starts = as_array(astype(x, dtype)), as_array(astype(starts, default_dtype("i")))
        stops = lax.concatenate([starts[1:], lax.full((1,), size, starts.dtype)], 0)  # type: ignore[index]
        stops = lax.min(stops, lax.full((), size, starts.dtype))
        result = take(x, starts, axis)
        # A negative index counts from the end, its slice from the first element.
        before = lax.max(starts, lax.full((), -1, starts.dtype))
        shape = tuple(starts.shape[0] if d == axis else 1 for d in range(x.ndim))

        def join_next(step: Any, result: Any) -> Any:
            """`result` with the next element of each slice that has one: in order, for functions that are not associative."""
            place = lax.add(before, lax.convert_element_type(step, starts.dtype))
            new = as_array(astype(self._call(result, take(x, place, axis, mode="clip")), dtype))
            return lax.select(broadcast_to_shape(lax.reshape(lax.lt(place, stops), shape), result.shape), new, result)

        return lax.fori_loop(1, longest + 1, join_next, result)

    def outer(self, A: Any, B: Any, /) -> Array:
        """The function applied to each pair of an element of `A` and one of `B`: shape ``A.shape + B.shape``."""
        if self.nin != 2:
            raise ValueError(f"{self.__name__}.outer needs a function of two operands; this one has nin={self.nin}.")
        a, b = values(f"{self.__name__}.outer", A, B)
        if a.ndim and b.ndim:
            a, b = (
                lax.expand_dims(as_array(a), range(a.ndim, a.ndim + b.ndim)),
                lax.expand_dims(as_array(b), range(a.ndim)),
            )
        return self._call(a, b)


def _axis_first(x: Array, axis: int) -> tuple[int, ...]:
    return (axis, *(d for d in range(x.ndim) if d != axis))


def _rows(x: Array, axis: int) -> Array:
    """`x` with `axis` as its first dim, along which loops step."""
    return lax.transpose(x, _axis_first(x, axis))


def _vectorize(func: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any) -> Any:

        return vectorize(func)(*args)

    return call


def frompyfunc(func: Callable[..., Any], /, nin: int, nout: int, *, identity: Any = None) -> ufunc:
    """A ufunc of `func`, a traceable function of `nin` scalars with `nout` results.

    `identity`: the result of its `reduce` for no elements.

    >>> minimum = jnp.frompyfunc(lambda x, y: jnp.where(x < y, x, y), 2, 1)
    >>> minimum.reduce(jnp.array([3, 1, 2]))
    Array(1, dtype=int32)
    """
    return ufunc(func, nin, nout, identity=identity)
