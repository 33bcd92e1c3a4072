"""Arrays as sets: distinct elements, unions, intersections, differences, membership.

In: arrays, flattened unless `axis` is given. Out: sorted 1-d arrays (or slices). Their sizes depend on values, so under
transformations `size=` sets the size of the result: excess elements are cut off, missing ones are filled.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from shardwise.base.dtypes import default_dtype
from shardwise.ir import Array, Tracer, literal, not_concrete, primal_of
from shardwise.lax import adaptive as lax
from shardwise.numpy import predicates, reductions
from shardwise.numpy._promote import array as checked
from shardwise.numpy._promote import (
    as_array,
    astype,
    broadcast_to_shape,
    canonical_axis,
    check_numbers,
    concrete,
    concrete_int,
    constant,
    convert,
    is_complex,
    is_inexact,
    promote_dtypes,
    strong,
    value,
)
from shardwise.numpy._ufunc_forms import where_
from shardwise.numpy.indexing import take
from shardwise.numpy.predicates import isnan
from shardwise.numpy.shapes import flat, moveaxis
from shardwise.ops.indexing.search import searchsorted

__all__ = [
    "intersect1d", "isin", "setdiff1d", "setxor1d", "union1d", "unique", "unique_all", "unique_counts", "unique_inverse",
    "unique_values",
]  # fmt: skip

_METHODS = ("auto", "binary_search", "compare_all", "sort")


# -- sizes -----------------------------------------------------------------------------------------------------


def _size(name: str, size: int | None, *operands: Any) -> int | None:
    """`size` as an int; ConcretizationTypeError that names it if it is missing and an operand is traced."""
    if size is not None:
        return concrete_int(size, f"size of {name}")
    for x in operands:
        if isinstance(primal_of(x), Tracer):
            raise not_concrete(
                x,
                f"the shape of {name}'s result depends on values",
                "Pass the static argument size=, or compute it outside of the transformed function.",
            )
    return None


def _places(mask: Array, size: int | None) -> tuple[Array, Array | None]:
    """The positions of the true elements of a 1-d mask; with `size`, that many, and a mask of the valid ones."""
    if size is None:
        host_values = concrete(mask, "a set of elements, if no size= is given,")
        return checked("set", np.flatnonzero(host_values).astype(default_dtype("i"))), None
    index = default_dtype("i")
    number = lax.add(lax.iota(index, size), literal(1, index))
    positions = searchsorted(lax.cumsum(as_array(astype(mask, index))), number)
    return positions, lax.lt(positions, literal(mask.shape[0], positions.dtype))


def _take_rows(x: Array, places: Array) -> Array:
    return take(x, places, 0, mode="clip")


def _fill_missing(values: Array, exists: Array | None, fill: Any, weak: bool = False) -> Array:
    """`values` with `fill` at the places that do not exist: strongly typed, unless a `weak` fill stands beside weak values."""
    if exists is None:
        return values
    mask = lax.broadcast_in_dim(exists, (exists.shape[0], *[1] * (values.ndim - 1)), (0,))
    filler = as_array(convert(value("fill_value", fill), values.dtype, weak and values.weak_type))
    return where_(mask, values, broadcast_to_shape(filler, values.shape) if filler.ndim else filler)


def _filled_or_least(values: Array, exists: Array | None, fill: Any) -> Array:
    """`values` with `fill`, or their first element if it is None, at the places that do not exist: of the dtype of both."""
    if exists is None or fill is None:
        return _fill_missing(values, exists, _least_or_zero(values, exists))
    like, filler = promote_dtypes(values, as_array(value("fill_value", fill)))
    return where_(exists, like, broadcast_to_shape(filler, like.shape) if filler.ndim else filler)


def _nothing(count: int | None, fill: Any, like: Array) -> Array:
    """A result without elements: `fill` as often as `count` asks for."""
    return _filled_or_least(lax.full((count or 0,), 0, like.dtype), lax.full((count or 0,), False, np.bool_), fill)


def _least_or_zero(values: Array, exists: Array | None) -> Any:
    """The default fill_value: the result's first element, 0 if there is none."""
    if exists is None or not values.shape[0]:
        return 0
    first, some = (lax.index_in_dim(x, 0, keepdims=False) for x in (values, exists))
    return where_(some, first, constant(first, 0))


# -- distinct elements -----------------------------------------------------------------------------------------


_MOST_KEYS = 64  # columns of rows that are sorted by all at once: as operands of a program, 256 take as long to compile as a loop over them


def _sorted_rows(rows: Array) -> tuple[Array, Array]:
    """The slices in lexicographic order, and their old positions."""
    n = rows.shape[0]
    positions = lax.iota(default_dtype("i"), n)
    if rows.ndim == 1:
        return lax.sort((rows, positions), 0, num_keys=1)
    width = math.prod(rows.shape[1:])
    table = lax.reshape(rows, (n, width))
    if width <= _MOST_KEYS:
        columns = lax.unstack(table, 1)
        order = lax.sort((*columns, positions), 0, num_keys=width)[-1]
    else:  # column by column, from the last one: a stable sort keeps the order by those behind

        def sort_by(order: Array, column: Array) -> tuple[Array, None]:
            return lax.sort((_take_rows(column, order), order), 0, num_keys=1)[1], None

        order, _ = lax.scan(sort_by, positions, lax.transpose(table, (1, 0)), reverse=True)
    return _take_rows(rows, order), order


def _differs(rows: Array, equal_nan: bool) -> Array:
    """Whether each slice but the first differs from the one before it."""
    n = rows.shape[0]
    after, before = lax.slice_in_dim(rows, 1, n), lax.slice_in_dim(rows, 0, n - 1)
    different = lax.ne(after, before)
    if equal_nan and is_inexact(rows.dtype):
        different = lax.bitwise_and(different, lax.bitwise_not(lax.bitwise_and(isnan(after), isnan(before))))
    return lax.reduce_or(different, tuple(range(1, rows.ndim)))


def _starts(rows: Array, equal_nan: bool) -> Array:
    """Which of the sorted slices differ from the one before; the first does."""
    return lax.concatenate([lax.full((1,), True, np.bool_), _differs(rows, equal_nan)], 0)


def unique(
    ar: Any,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
    *,
    equal_nan: bool = True,
    size: int | None = None,
    fill_value: Any = None,
    sorted: bool = True,
) -> Any:
    """The distinct elements of `ar`, sorted; with `axis` the distinct slices.

    Args:
        return_index: also the first position of each.
        return_inverse: also for each element (slice) of `ar` the position of its like in the result.
        return_counts: also how often each occurs.
        equal_nan: NaNs are one element.
        size: the number of elements of the result; needed under transformations.
        fill_value: the padding if there are fewer; by default the least element.
        sorted: without effect, the result is always sorted.

    Raises:
        ConcretizationTypeError: `ar` is traced without `size`. ValueError: elements are asked of an empty array.

    >>> jnp.unique(jnp.array([3, 1, 3]))
    Array([1, 3], dtype=int32)
    >>> jnp.unique(jnp.array([3, 1, 3]), return_counts=True, size=3)
    (Array([1, 3, 1], dtype=int32), Array([1, 2, 0], dtype=int32))
    """
    del sorted
    x = checked("unique", ar)
    check_numbers("unique", x.dtype)
    count = _size("unique", size, x)
    shape = x.shape
    if axis is None:
        results = _unique(flat(x), return_index, return_inverse, return_counts, equal_nan, count, fill_value)
        if return_inverse:
            at = 2 if return_index else 1
            results[at] = lax.reshape(results[at], shape)
    else:
        d = canonical_axis(axis, x.ndim)
        results = _unique(moveaxis(x, d, 0), return_index, return_inverse, return_counts, equal_nan, count, fill_value)
        results[0] = moveaxis(results[0], 0, d)
    return results[0] if len(results) == 1 else tuple(results)


def _unique(
    rows: Array,
    return_index: bool,
    return_inverse: bool,
    return_counts: bool,
    equal_nan: bool,
    size: int | None,
    fill_value: Any,
) -> list[Array]:
    if not rows.size:
        return _unique_of_nothing(rows, return_index, return_inverse, return_counts, size, fill_value)
    index = default_dtype("i")
    n = rows.shape[0]
    if is_complex(rows.dtype):  # NaNs in one or both parts are alike
        rows = where_(isnan(rows), constant(rows, np.nan), rows)
    ordered_rows, order = _sorted_rows(rows)
    starts = _starts(ordered_rows, equal_nan)
    places, exists = _places(starts, size)
    # Places that do not exist lie behind the end: they show the first element.
    shown_places = places if exists is None else where_(exists, places, constant(places, 0))
    values = _take_rows(ordered_rows, shown_places)
    results = [values if fill_value is None else strong(_fill_missing(values, exists, fill_value))]
    if return_index:
        results.append(_take_rows(order, shown_places))
    if return_inverse:
        group = lax.sub(lax.cumsum(as_array(astype(starts, index))), literal(1, index))
        results.append(lax.sort_key_val(order, group)[1])
    if return_counts:
        if size is None:
            next_places = lax.concatenate([lax.slice_in_dim(places, 1, None), lax.full((1,), n, places.dtype)], 0)
        else:
            next_places = lax.slice_in_dim(_places(starts, size + 1)[0], 1, None)
        results.append(as_array(astype(lax.sub(next_places, places), index)))
    return results


def _unique_of_nothing(
    rows: Array, return_index: bool, return_inverse: bool, return_counts: bool, size: int | None, fill_value: Any
) -> list[Array]:
    """`unique` of no slices, or of slices without elements, which are all equal."""
    index = default_dtype("i")
    n = rows.shape[0]
    if not n and size and fill_value is None:
        raise ValueError(
            f"unique: an empty array has no element to fill a result of size {size} with. Pass fill_value."
        )
    if not n and size:
        values = _fill_missing(
            lax.full((size, *rows.shape[1:]), 0, rows.dtype), lax.full((size,), False, np.bool_), fill_value
        )
    else:
        values = lax.slice_in_dim(rows, 0, min(n, 1))
    results = [values]
    if return_index:
        results.append(lax.full((min(n, 1),), 0, index))
    if return_inverse:
        results.append(lax.full((n,), 0, index))
    if return_counts:
        results.append(lax.full((min(n, 1),), n, index))
    return results


class _UniqueAllResult(NamedTuple):
    """The results of `unique_all`."""

    values: Array
    indices: Array
    inverse_indices: Array
    counts: Array


class _UniqueCountsResult(NamedTuple):
    """The results of `unique_counts`."""

    values: Array
    counts: Array


class _UniqueInverseResult(NamedTuple):
    """The results of `unique_inverse`."""

    values: Array
    inverse_indices: Array


def unique_all(x: Any, /, *, size: int | None = None, fill_value: Any = None) -> _UniqueAllResult:
    """The distinct elements of `x`, their first positions, the inverse, and their counts; each NaN is one. See
    `unique`.

    `size` and `fill_value` as there.

    >>> jnp.unique_all(jnp.array([3, 1, 3])).inverse_indices
    Array([1, 0, 1], dtype=int32)
    """
    return _UniqueAllResult(*unique(x, True, True, True, equal_nan=False, size=size, fill_value=fill_value))


def unique_counts(x: Any, /, *, size: int | None = None, fill_value: Any = None) -> _UniqueCountsResult:
    """The distinct elements of `x` and their counts; each NaN is one. See `unique`. `size` and `fill_value` as there.

    >>> jnp.unique_counts(jnp.array([3, 1, 3])).counts
    Array([1, 2], dtype=int32)
    """
    return _UniqueCountsResult(*unique(x, return_counts=True, equal_nan=False, size=size, fill_value=fill_value))


def unique_inverse(x: Any, /, *, size: int | None = None, fill_value: Any = None) -> _UniqueInverseResult:
    """The distinct elements of `x` and the inverse; each NaN is one. See `unique`. `size` and `fill_value` as there.

    >>> jnp.unique_inverse(jnp.array([3, 1, 3])).inverse_indices
    Array([1, 0, 1], dtype=int32)
    """
    return _UniqueInverseResult(*unique(x, return_inverse=True, equal_nan=False, size=size, fill_value=fill_value))


def unique_values(x: Any, /, *, size: int | None = None, fill_value: Any = None) -> Array:
    """The distinct elements of `x`; each NaN is one. See `unique`. `size` and `fill_value` as there.

    >>> jnp.unique_values(jnp.array([3, 1, 3]))
    Array([1, 3], dtype=int32)
    """
    return unique(x, equal_nan=False, size=size, fill_value=fill_value)


# -- two sets --------------------------------------------------------------------------------------------------


def isin(
    element: Any, test_elements: Any, assume_unique: bool = False, invert: bool = False, *, method: str = "auto"
) -> Array:
    """Elementwise whether `element` is among `test_elements` (`invert`: is not); NaN never is.

    `assume_unique` and `method` have no effect on the result: there is one way, by binary search (on Explicit axes, where
    a gather would have no sharding of its own, by comparing all with all). ValueError for other texts than 'auto',
    'compare_all', 'binary_search' and 'sort'.

    >>> jnp.isin(jnp.array([1, 2, 3]), jnp.array([1, 3]))
    Array([ True, False,  True], dtype=bool)
    """
    del assume_unique
    x, tests = checked("isin", element), checked("isin", test_elements, 1)
    if method not in _METHODS:
        raise ValueError(f"isin: method={method!r} is not known; expected one of {', '.join(_METHODS)}.")
    is_member = lax.convert_element_type(_isin(x, flat(tests)), np.bool_)
    return lax.bitwise_not(is_member) if invert else is_member


def _isin(x: Array, tests: Array) -> Array:
    x, tests = promote_dtypes(x, tests)  # type: ignore[assignment]
    if not tests.size:
        return lax.full(x.shape, False, np.bool_)
    if x.aval.mesh is not None:
        return reductions.any(predicates.equal(lax.expand_dims(x, (x.ndim,)), tests), axis=-1)
    tests = lax.sort(as_array(tests))
    return lax.eq(x, take(tests, searchsorted(tests, x), mode="clip"))


def union1d(ar1: Any, ar2: Any, *, size: int | None = None, fill_value: Any = None) -> Array:
    """The elements of `ar1` or `ar2`, sorted and distinct; `size` and `fill_value` as for `unique`.

    >>> jnp.union1d(jnp.array([3, 1]), jnp.array([1, 2]))
    Array([1, 2, 3], dtype=int32)
    """
    x, y = checked("union1d", ar1), checked("union1d", ar2, 1)
    _size("union1d", size, x, y)
    both = lax.concatenate(promote_dtypes(flat(x), flat(y)), 0)
    return unique(both, size=size, fill_value=fill_value)


def setdiff1d(
    ar1: Any, ar2: Any, assume_unique: bool = False, *, size: int | None = None, fill_value: Any = None
) -> Array:
    """The elements of `ar1` that are not in `ar2`, sorted and distinct; with `assume_unique` as they stand in `ar1`.

    `size`: how many, needed under transformations; where there are fewer stands `fill_value`, by default 0.
    ValueError if `fill_value` is no scalar.

    >>> jnp.setdiff1d(jnp.array([3, 1, 2]), jnp.array([2]))
    Array([1, 3], dtype=int32)
    """
    x, y = flat(checked("setdiff1d", ar1)), flat(checked("setdiff1d", ar2, 1))
    count = _size("setdiff1d", size, x, y)
    fill = 0 if fill_value is None else checked("setdiff1d", fill_value, 2)
    if np.ndim(fill):
        raise ValueError(f"setdiff1d: fill_value must be a scalar, got shape {np.shape(fill)}.")
    if not x.size:
        return _fill_missing(lax.full((count or 0,), 0, x.dtype), lax.full((count or 0,), False, np.bool_), fill)
    if assume_unique:
        keep = lax.bitwise_not(_isin(x, y))
    else:
        x = lax.sort(x)
        keep = lax.bitwise_and(_starts(x, True), lax.bitwise_not(_isin(x, y)))
    places, exists = _places(keep, count)
    return _fill_missing(_take_rows(x, places), exists, fill, weak=True)


class _MergedArrays(NamedTuple):
    """Two arrays sorted together, equal elements in their old order."""

    values: Array
    order: Array  # the positions in the first array, then in the second
    second: Array  # which come from the second array
    first_of_group: Array  # for each the place of the first of its equals


def _merge_arrays(name: str, ar1: Any, ar2: Any) -> tuple[_MergedArrays | None, Array, int]:
    """Both arrays merged (None if there is nothing), joined, and the size of the first."""
    x, y = flat(checked(name, ar1)), flat(checked(name, ar2, 1))
    both = lax.concatenate(promote_dtypes(x, y), 0)
    if not both.size:
        return None, both, 0
    index = default_dtype("i")
    n = x.size
    positions = lax.iota(index, both.size)
    values, order = lax.sort((both, positions), 0, num_keys=1)
    second = lax.ge(order, literal(n, index))
    # NaNs of one array are alike, but differ from those of the other.
    new = lax.bitwise_or(_differs(values, True), lax.bitwise_and(_differs(values, False), _differs(second, False)))
    starts = lax.concatenate([lax.full((1,), True, np.bool_), new], 0)
    first = lax.cummax(where_(starts, positions, literal(0, index)))
    return _MergedArrays(values, order, second, first), both, n


def intersect1d(
    ar1: Any,
    ar2: Any,
    assume_unique: bool = False,
    return_indices: bool = False,
    *,
    size: int | None = None,
    fill_value: Any = None,
) -> Any:
    """The elements that are in both `ar1` and `ar2`, sorted and distinct; with `return_indices` also their first
    positions in each.

    `assume_unique` has no effect on the result. `size`: how many, needed under transformations; where there are fewer
    stands `fill_value` (by default the least element), and as position the size of the array.

    >>> jnp.intersect1d(jnp.array([3, 1, 2]), jnp.array([2, 3, 4]))
    Array([2, 3], dtype=int32)
    """
    del assume_unique
    count = _size("intersect1d", size, ar1, ar2)
    merged_arrays, both, n = _merge_arrays("intersect1d", ar1, ar2)
    if merged_arrays is None:
        empty = _nothing(count, fill_value, both)
        return (empty, *(lax.full((count or 0,), 0, np.int32),) * 2) if return_indices else empty
    # Among equal elements there is one place at which the second array's begin after the first array's.
    size_ = both.size
    after, before = (
        lax.slice_in_dim(merged_arrays.second, 1, None),
        lax.slice_in_dim(merged_arrays.second, 0, size_ - 1),
    )
    turn = lax.bitwise_and(
        lax.bitwise_not(_differs(merged_arrays.values, False)), lax.bitwise_and(after, lax.bitwise_not(before))
    )
    mask = lax.concatenate([lax.full((1,), False, np.bool_), turn], 0)
    places, exists = _places(mask, count)
    values = _take_rows(merged_arrays.values, _take_rows(merged_arrays.first_of_group, places))  # the first array's
    values = _filled_or_least(values, exists, fill_value)
    if not return_indices:
        return values
    first = _take_rows(merged_arrays.order, _take_rows(merged_arrays.first_of_group, places))
    second = lax.sub(_take_rows(merged_arrays.order, places), literal(n, merged_arrays.order.dtype))
    return values, _fill_missing(first, exists, n), _fill_missing(second, exists, size_ - n)


def setxor1d(
    ar1: Any, ar2: Any, assume_unique: bool = False, *, size: int | None = None, fill_value: Any = None
) -> Array:
    """The elements that are in exactly one of the arrays `ar1` and `ar2`, sorted and distinct.

    With `assume_unique` an element that one array has twice is left out, as in NumPy. `size`: how many, needed under
    transformations; where there are fewer stands `fill_value`, by default the least element.

    >>> jnp.setxor1d(jnp.array([1, 2]), jnp.array([2, 3]))
    Array([1, 3], dtype=int32)
    """
    count = _size("setxor1d", size, ar1, ar2)
    merged_arrays, both, _ = _merge_arrays("setxor1d", ar1, ar2)
    if merged_arrays is None:
        return _nothing(count, fill_value, both)
    ends = lax.concatenate([_differs(merged_arrays.first_of_group, False), lax.full((1,), True, np.bool_)], 0)
    if assume_unique:
        alone = lax.eq(
            merged_arrays.first_of_group, lax.iota(merged_arrays.first_of_group.dtype, merged_arrays.values.size)
        )
    else:  # the last of equal elements comes from the same array as the first if all do
        alone = lax.eq(_take_rows(merged_arrays.second, merged_arrays.first_of_group), merged_arrays.second)
    places, exists = _places(lax.bitwise_and(ends, alone), count)
    values = _take_rows(merged_arrays.values, places)
    return _filled_or_least(values, exists, fill_value)
