"""The public collectives for shard_map and pmap bodies: psum, all_gather, ppermute, ...

Tracing a call checks its axis names against the axes in scope; errors list the existing axes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shardwise.base.collections_given import given_items, given_keys
from shardwise.base.dtypes import default_dtype, issubdtype, to_inexact
from shardwise.base.errors import about
from shardwise.base.nearest import did_you_mean
from shardwise.base.shapes import Axes
from shardwise.base.tree import tree_flatten, tree_map, tree_unflatten
from shardwise.ir import Array, ShapedArray, bind, literal
from shardwise.ir.axis_scope import AXIS_ENV as AXIS_ENV
from shardwise.ir.axis_scope import CHECK_VMA as CHECK_VMA
from shardwise.ir.axis_scope import checks_variance, visible_type
from shardwise.ops.devices.all_gather import all_gather_op
from shardwise.ops.devices.all_reduce import all_reduce
from shardwise.ops.devices.all_to_all import all_to_all_op
from shardwise.ops.devices.axis_index import axis_index_op
from shardwise.ops.devices.ppermute import ppermute_op
from shardwise.ops.devices.reduce_scatter import psum_scatter_op
from shardwise.ops.devices.variance import pcast_op, pvary_op
from shardwise.ops.elementwise import binary, bitwise, comparison, unary
from shardwise.ops.elementwise.binary import div
from shardwise.ops.elementwise.casts import convert, convert_element_type
from shardwise.ops.elementwise.selection import select
from shardwise.ops.rules.convert import as_array
from shardwise.ops.rules.derivative import do, full_cotangent
from shardwise.ops.rules.operands import check_kind

# `lax/positional_axes.py` completes psum, pmean, pmax and pmin.
__all__ = [
    "all_gather", "all_to_all", "axis_index", "axis_size", "pbroadcast", "pcast", "ppermute", "pshuffle", "psum_scatter", "pswapaxes",
    "pvary",
]  # fmt: skip


def axes_in_scope() -> dict[str, int]:
    """Mesh axes bound by the enclosing shard_map or pmap, with their sizes."""
    return dict(AXIS_ENV.get())


def checked_axes(axis_name: Any, api: str) -> tuple[Axes, tuple[int, ...]]:
    """Axis names as a tuple, and their sizes. NameError for a name that is not in scope, ValueError for a repeated one."""
    given = axis_name if isinstance(axis_name, (tuple, list)) else (axis_name,)
    names = given_keys(given, f"{api} takes an axis name, or a tuple of them")
    scope = axes_in_scope()
    for name in names:
        if name not in scope:
            axes_text = (
                f"axes in scope: {', '.join(map(repr, scope))}"
                if scope
                else "no axes are in scope: call it inside shard_map"
            )
            text = f"Found an unbound axis name: {name}. {api} needs a mesh axis that is manual here; {axes_text}."
            raise about("unbound-axis", NameError(text + did_you_mean(name, scope)))
    if len(set(names)) != len(names):
        raise ValueError(f"{api} got an axis name twice: {names}. Name each axis once.")
    return names, tuple(scope[n] for n in names)


def axis_size(axis_name: Any) -> int:
    """The number of devices along an axis (the product for a tuple), a Python int.

    >>> jax.vmap(lambda x: x * lax.axis_size('i'), axis_name='i')(jnp.arange(3))
    Array([0, 3, 6], dtype=int32)
    """
    return math.prod(checked_axes(axis_name, "axis_size")[1])


def axis_index(axis_name: Any) -> Array:
    """int32 scalar: this device's position along an axis; in a tuple of names the first is major.

    >>> jax.vmap(lambda x: lax.axis_index('i'), axis_name='i')(jnp.zeros(3))
    Array([0, 1, 2], dtype=int32)
    """
    names, _ = checked_axes(axis_name, "axis_index")
    return bind(axis_index_op, axes=names)


def _groups(groups: Any, n: int, api: str, equal: bool) -> tuple[tuple[int, ...], ...] | None:
    if groups is None:
        return None
    result = tuple(tuple(int(i) for i in g) for g in groups)
    if sorted(i for g in result for i in g) != list(range(n)):
        raise ValueError(f"{api}: axis_index_groups must list each of the {n} positions exactly once, got {groups}.")
    if equal and len({len(g) for g in result}) > 1:
        raise ValueError(f"{api}: axis_index_groups must have equal sizes here, got {groups}.")
    return result


def _make_varying(x: Array, names: Axes) -> Array:
    """`x`, typed as varying over the axes: those that its type lacks are added to it."""
    missing_axes = tuple(a for a in names if a not in x.aval.vma)
    if not missing_axes or len(missing_axes) == len(names) or not checks_variance():
        return x  # the op adds all of them
    return bind(pvary_op, x, axes=missing_axes)


def _check_sum_axes(x: Array, names: Axes, api: str) -> Array:
    """`x`, checked: with checked types, a sum refuses a value that varies over only some of the axes."""
    missing_axes = [a for a in names if a not in x.aval.vma]
    if missing_axes and len(missing_axes) != len(names) and checks_variance():
        raise ValueError(
            f"jax.lax.{api} can only accept axis_name which corresponds to one of varying, unreduced, reduced or invarying state "
            f"of the input. Got input type {x.aval}, axes {names}: it varies over {sorted(set(names) - set(missing_axes))} but not "
            f"over {missing_axes}. Cast it with pcast(x, {tuple(missing_axes)!r}, to='varying')."
        )
    return x


def _reduced_operand(x: Any, api: str) -> Array:
    """The operand of a collective that computes: no keys, whose bits it would add."""
    value = _operand(x, api)
    check_kind(api, value.aval, "biufc")
    return value


def _operand(x: Any, api: str) -> Array:
    try:
        return as_array(x)
    except TypeError as error:
        raise TypeError(f"{api}: {error}") from None


def psum(x: Any, axis_name: Any, *, axis_index_groups: Any = None) -> Any:
    """The sum over an axis, on every device. Trees are summed leaf by leaf; a Python scalar gives n times itself.

    Args:
        axis_index_groups: lists of positions along the axis, whose devices work together; None: all do.

    >>> jax.vmap(lambda x: lax.psum(x, 'i'), axis_name='i')(jnp.arange(4))
    Array([6, 6, 6, 6], dtype=int32)
    """
    names, sizes = checked_axes(axis_name, "psum")
    n = math.prod(sizes)
    groups = _groups(axis_index_groups, n, "psum", equal=False)
    same = groups is None or len({len(g) for g in groups}) == 1

    def one(leaf: Any) -> Any:
        if isinstance(leaf, (int, float, complex)) and not isinstance(leaf, bool) and same:
            return leaf * (len(groups[0]) if groups else n)
        value = _check_sum_axes(_reduced_operand(leaf, "psum"), names, "psum")
        if value.dtype == np.bool_ and names:
            value = convert_element_type(value, np.dtype(np.int32))
        return bind(all_reduce, value, axes=names, kind="sum", groups=groups)

    return tree_map(one, x)


def pmean(x: Any, axis_name: Any, *, axis_index_groups: Any = None) -> Any:
    """The mean over an axis; integers give floats.

    Args:
        axis_index_groups: lists of positions along the axis, whose devices work together; None: all do.

    >>> jax.vmap(lambda x: lax.pmean(x, 'i'), axis_name='i')(jnp.arange(4.0))
    Array([1.5, 1.5, 1.5, 1.5], dtype=float32)
    """
    names, sizes = checked_axes(axis_name, "pmean")
    groups = _groups(axis_index_groups, math.prod(sizes), "pmean", equal=True)
    n = len(groups[0]) if groups else math.prod(sizes)

    def one(leaf: Any) -> Any:
        total = _operand(psum(leaf, names, axis_index_groups=groups), "pmean")
        if total.dtype.kind == "b" or issubdtype(total.dtype, np.integer):
            weak = total.aval.weak_type
            total = convert(total, default_dtype("f") if weak else to_inexact(total.dtype), weak)
        return div(total, literal(n, total.dtype, weak_type=True))

    return tree_map(one, x)


_EXAMPLE_VALUES = [1, 3, 2]  # in the examples


def _extremum(kind: str) -> Callable[..., Any]:
    api = f"p{kind}"

    none = -np.inf if kind == "max" else np.inf

    def collective(x: Any, axis_name: Any, *, axis_index_groups: Any = None) -> Any:
        names, sizes = checked_axes(axis_name, api)
        groups = _groups(axis_index_groups, math.prod(sizes), api, equal=False)

        def extremum(value: Any) -> Array:
            return bind(all_reduce, value, axes=names, kind=kind, groups=groups)

        def one(leaf: Any) -> Any:
            value = _make_varying(_reduced_operand(leaf, api), names)
            if value.dtype.kind != "c":
                return extremum(value)
            # Complex values are ordered by their real parts, then by their imaginary parts.
            first, second = unary.real(value), unary.imag(value)
            best = extremum(first)
            candidate = bitwise.bitwise_or(comparison.eq(first, best), comparison.ne(first, first))
            other = full_cotangent(second.aval, none)
            if second.aval.vma:
                other = bind(pvary_op, other, axes=tuple(sorted(second.aval.vma)))
            return binary.complex(best, extremum(select(candidate, second, other)))

        return tree_map(one, x)

    collective.__name__ = collective.__qualname__ = api
    least, most = min(_EXAMPLE_VALUES), max(_EXAMPLE_VALUES)
    collective.__doc__ = f"""The {kind}imum of `x` over the axis `axis_name`, on every device.

    Trees are reduced leaf by leaf. `axis_index_groups`: lists of positions along the axis, whose devices work together.
    NameError where there is no such axis.

    >>> jax.vmap(lambda x: lax.{api}(x, "i"), axis_name="i")(jnp.array({_EXAMPLE_VALUES}))
    Array({[most if kind == "max" else least] * len(_EXAMPLE_VALUES)}, dtype=int32)
    """
    return collective


pmax = _extremum("max")
pmin = _extremum("min")


def _dim(dim: int, ndim: int, api: str, name: str) -> int:
    if not -ndim <= dim < ndim:
        raise ValueError(f"{api}: {name}={dim} is out of range for a value with {ndim} dims.")
    return dim % ndim


def all_gather(
    x: Any, axis_name: Any, *, axis_index_groups: Any = None, axis: int = 0, tiled: bool = False, to: str = "varying"
) -> Any:
    """Every device of `axis_name` receives the blocks `x` of all n: joined along `axis` if `tiled`, else stacked
    along a new dim `axis` of size n.

    Args:
        axis_index_groups: lists of positions along the axis, whose devices work together; None: all do.
        to: how the result varies over the axis: 'varying', 'invarying' or 'reduced'. ValueError for another word.

    >>> jax.vmap(lambda x: lax.all_gather(x, 'i'), axis_name='i')(jnp.array([5, 6]))
    Array([[5, 6],
           [5, 6]], dtype=int32)
    """
    if to not in ("varying", "invarying", "reduced"):
        raise ValueError(f"all_gather: to must be 'varying', 'invarying' or 'reduced', got {to!r}.")
    names, sizes = checked_axes(axis_name, "all_gather")
    if not names:
        return x
    groups = _groups(axis_index_groups, math.prod(sizes), "all_gather", equal=True)

    def one(leaf: Any) -> Any:
        value = _make_varying(_operand(leaf, "all_gather"), names)
        dim = _dim(axis, value.ndim if tiled else value.ndim + 1, "all_gather", "axis")
        out = bind(
            all_gather_op,
            value,
            axes=names,
            sizes=sizes,
            dim=dim,
            tiled=tiled,
            groups=groups,
            invariant=to != "varying",
        )
        return bind(pcast_op, out, axes=names, to="reduced") if to == "reduced" else out

    return tree_map(one, x)


def psum_scatter(
    x: Any, axis_name: Any, *, scatter_dimension: int = 0, axis_index_groups: Any = None, tiled: bool = False
) -> Any:
    """The sum over an axis; each device keeps its part of it along `scatter_dimension`.

    Args:
        axis_index_groups: lists of positions along the axis, whose devices work together; None: all do.
        tiled: that dim is cut into n parts; else it has size n and vanishes.

    >>> jax.vmap(lambda x: lax.psum_scatter(x, 'i'), axis_name='i')(jnp.array([[1, 2], [3, 4]]))
    Array([4, 6], dtype=int32)
    """
    names, sizes = checked_axes(axis_name, "psum_scatter")
    if not names:
        return x
    groups = _groups(axis_index_groups, math.prod(sizes), "psum_scatter", equal=True)
    n = len(groups[0]) if groups else math.prod(sizes)

    def one(leaf: Any) -> Any:
        value = _check_sum_axes(_reduced_operand(leaf, "psum_scatter"), names, "psum_scatter")
        dim = _dim(scatter_dimension, value.ndim, "psum_scatter", "scatter_dimension")
        size = value.shape[dim]
        if not tiled and size != n:
            raise ValueError(
                f"reduce_scatter operand scatter dimension size {size} must match shard count {n}; "
                "pass tiled=True to keep several rows per device."
            )
        if tiled and size % n:
            raise ValueError(
                f"tiled reduce_scatter operand scatter dimension size {size} must be divisible by shard_count {n}."
            )
        if value.dtype == np.bool_:
            value = convert_element_type(value, np.dtype(np.int32))
        return bind(psum_scatter_op, value, axes=names, sizes=sizes, dim=dim, tiled=tiled, groups=groups)

    return tree_map(one, x)


def all_to_all(
    x: Any, axis_name: Any, split_axis: int, concat_axis: int, *, axis_index_groups: Any = None, tiled: bool = False
) -> Any:
    """Part j of the block `x` of device i along `split_axis` goes to device j, which joins the received parts along
    `concat_axis`.

    Args:
        axis_index_groups: lists of positions along the axis, whose devices work together; None: all do.
        tiled: `split_axis` is cut into n parts and `concat_axis` grows; else `split_axis` has size n and vanishes,
            and `concat_axis` is a new dim.

    >>> jax.vmap(lambda x: lax.all_to_all(x, 'i', 0, 0), axis_name='i')(jnp.array([[1, 2], [3, 4]]))
    Array([[1, 3],
           [2, 4]], dtype=int32)
    """
    names, sizes = checked_axes(axis_name, "all_to_all")
    groups = _groups(axis_index_groups, math.prod(sizes), "all_to_all", equal=True)
    n = len(groups[0]) if groups else math.prod(sizes)

    def one(leaf: Any) -> Any:
        value = _make_varying(_operand(leaf, "all_to_all"), names)
        split = _dim(split_axis, value.ndim, "all_to_all", "split_axis")
        concat = _dim(concat_axis, value.ndim, "all_to_all", "concat_axis")
        size = value.shape[split]
        if tiled and size % n:
            raise ValueError(
                f"all_to_all with tiled=True requires the split dim to be divisible by the axis size: {size} over {n}."
            )
        if not tiled and size != n:
            raise ValueError(
                f"all_to_all requires the size of the mapped axis axis_name to equal x.shape[split_axis], but they are "
                f"{n} and {size} respectively; pass tiled=True to split larger dims."
            )
        return bind(
            all_to_all_op, value, axes=names, sizes=sizes, split=split, concat=concat, tiled=tiled, groups=groups
        )

    return tree_map(one, x)


def ppermute(x: Any, axis_name: Any, perm: Sequence[tuple[int, int]]) -> Any:
    """Send each device's `x` along `perm`, (source, destination) pairs of positions on the axis `axis_name`; devices
    that receive nothing get zeros. Negative positions count from the end.

    Raises:
        TypeError: `perm` is no sequence of pairs.
        ValueError: a source or destination occurs twice or is out of range.

    >>> jax.vmap(lambda x: lax.ppermute(x, 'i', [(0, 1), (1, 2)]), axis_name='i')(jnp.array([5, 6, 7]))
    Array([0, 5, 6], dtype=int32)
    """
    names, sizes = checked_axes(axis_name, "ppermute")
    n = math.prod(sizes)
    requirement = "ppermute takes a sequence of pairs, (source, destination)"
    pairs = tuple(given_items(pair, requirement) for pair in given_items(perm, requirement))
    if any(len(pair) != 2 or isinstance(place, str) for pair in pairs for place in pair or [""]):
        raise TypeError(f"{requirement}; got {perm!r}.")
    for s, d in pairs:
        if not (-n <= int(s) < n and -n <= int(d) < n):
            raise ValueError(f"ppermute: pair {(s, d)} is out of range for axis {axis_name!r} of size {n}.")
    pairs = tuple((int(s) % n, int(d) % n) for s, d in pairs)
    if len({s for s, _ in pairs}) != len(pairs) or len({d for _, d in pairs}) != len(pairs):
        raise ValueError(f"ppermute sources and destinations must be unique, got {pairs}.")
    return tree_map(
        lambda leaf: bind(ppermute_op, _make_varying(_operand(leaf, "ppermute"), names), axes=names, perm=pairs),
        x,
    )


def pshuffle(x: Any, axis_name: Any, perm: Sequence[int]) -> Any:
    """Permutation by source: device i receives the value of device perm[i].

    Raises:
        ValueError: `perm` does not list each position once.

    >>> jax.vmap(lambda x: lax.pshuffle(x, "i", [2, 0, 1]), axis_name="i")(jnp.array([1, 3, 2]))
    Array([2, 1, 3], dtype=int32)
    """
    n = axis_size(axis_name)
    if sorted(perm) != list(range(n)):
        raise ValueError(f"pshuffle: perm must list each of the {n} positions once, got {tuple(perm)}.")
    return ppermute(x, axis_name, [(s, d) for d, s in enumerate(perm)])


def pswapaxes(x: Any, axis_name: Any, axis: int, *, axis_index_groups: Any = None) -> Any:
    """Swap the mesh axis with dim `axis`, whose size must equal the axis size.

    Args:
        axis_index_groups: lists of positions along the axis, whose devices work together; None: all do.

    >>> jax.vmap(lambda x: lax.pswapaxes(x, "i", 0), axis_name="i")(jnp.array([[1, 2], [3, 4]]))
    Array([[1, 3],
           [2, 4]], dtype=int32)
    """
    return all_to_all(x, axis_name, axis, axis, axis_index_groups=axis_index_groups)


def pbroadcast(x: Any, axis_name: Any, source: int) -> Any:
    """Every device of the axis receives the value of device `source`.

    Raises:
        ValueError: `source` is out of range.

    >>> jax.vmap(lambda x: lax.pbroadcast(x, "i", 2), axis_name="i")(jnp.array([1, 3, 2]))
    Array([2, 2, 2], dtype=int32)
    """
    _, sizes = checked_axes(axis_name, "pbroadcast")
    n = math.prod(sizes)
    if not 0 <= source < n:
        raise ValueError(f"pbroadcast: source={source} is out of range for axis {axis_name!r} of size {n}.")
    member_values = all_gather(x, axis_name, axis=0)

    def row(g: Array) -> Array:
        starts, limits = (source,) + (0,) * (g.ndim - 1), (source + 1, *g.shape[1:])
        return do.squeeze(do.slice(g, start_indices=starts, limit_indices=limits, strides=None), dimensions=(0,))

    return tree_map(row, member_values)


def pvary(x: Any, axis_name: Any) -> Any:
    """Mark `x`, an array or a tree, as varying over the mesh axes `axis_name`: only its type changes.

    >>> mesh = jax.make_mesh((2,), ("i",))
    >>> f = lambda x: lax.pvary(x, "i") + lax.axis_index("i")
    >>> jax.shard_map(f, mesh=mesh, in_specs=jax.P(), out_specs=jax.P("i"))(jnp.zeros(1, int))
    Array([0, 1], dtype=int32)
    """
    names, _ = checked_axes(axis_name if axis_name else (), "pvary") if axis_name else ((), ())
    leaves, tree = tree_flatten(x)
    return tree_unflatten(tree, [bind(pvary_op, _operand(v, "pvary"), axes=names) if names else v for v in leaves])


def _state(aval: ShapedArray, axis: str) -> str:
    """The state of a value's type over one axis."""
    for state, axes in (("varying", aval.vma), ("unreduced", aval.unreduced), ("reduced", aval.reduced)):
        if axis in axes:
            return state
    return "invarying"


_TARGETS = ("reduced", "unreduced", "varying")
_CASTS = {("invarying", "varying"), ("varying", "unreduced"), ("invarying", "reduced"), ("reduced", "varying")}


def pcast(x: Any, axis_name: Any, *, to: str) -> Any:
    """Change the type of `x` over the mesh axes `axis_name` to 'varying', 'unreduced' (partial sums) or 'reduced'.
    Free at run time. Where types are not checked every value counts as the same on all devices, and stays as it is.

    Raises:
        TypeError: `axis_name` is a set. ValueError: there is no such change from the present state.

    >>> mesh = jax.make_mesh((2,), ("i",))
    >>> f = lambda x: lax.pcast(x, "i", to="varying") + lax.axis_index("i")
    >>> jax.shard_map(f, mesh=mesh, in_specs=jax.P(), out_specs=jax.P("i"))(jnp.zeros(1, int))
    Array([0, 1], dtype=int32)
    """
    if isinstance(axis_name, (set, frozenset)):
        raise TypeError(f"pcast: axis_name must be a tuple or a str, since sets have no order. Got {axis_name!r}.")
    if not axis_name:
        return x
    if to not in _TARGETS:
        raise ValueError(f"pcast: to must be one of {_TARGETS}, got {to!r}.")
    names, _ = checked_axes(axis_name, "pcast")

    def one(leaf: Any) -> Any:
        value = _operand(leaf, "pcast")
        aval = visible_type(value.aval)
        states = {_state(aval, a) for a in names}
        state = states.pop() if len(states) == 1 else f"mixed ({', '.join(f'{a}: {_state(aval, a)}' for a in names)})"
        if (state, to) not in _CASTS:
            raise ValueError(
                f"jax.lax.pcast can only accept axis_name which is in one state, the right one: unsupported pcast "
                f"from={state}, to={to!r} for {aval} over {names}. "
                f"Allowed: {', '.join(f'{a} -> {b}' for a, b in sorted(_CASTS))}."
            )
        if not CHECK_VMA.get():
            return leaf
        if to == "varying":
            return bind(pvary_op, value, axes=names)
        return bind(pcast_op, value, axes=names, to=to)

    return tree_map(one, x)
