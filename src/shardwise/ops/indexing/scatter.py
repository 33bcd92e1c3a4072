"""`scatter` and its combining forms: windows of updates put or combined into an array at computed positions.

Comes in: an operand, an integer array of window starts, updates, and the dimension numbers. Goes out: the operand with the
windows written. Repeated positions apply every update, in order; windows out of bounds are dropped unless the mode clips.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from shardwise.base.dtypes import iinfo, isdtype
from shardwise.base.shapes import DimAxes
from shardwise.ir import Array, Equation, Op, ShapedArray, Shown, SmallForm, bind, define_op
from shardwise.ir.explicit import agreed_split, type_error
from shardwise.ir.indexed import IndexedWindows
from shardwise.ir.key_uses import KeyUses
from shardwise.ir.op import Params, Types
from shardwise.ir.types import Spec
from shardwise.ops.devices.all_reduce import all_reduce, sum_across
from shardwise.ops.indexing.permutation import scatter_add_partition
from shardwise.ops.indexing.scatter_derivative import (
    extremum_jvp,
    product_jvp,
    product_transpose,
    put_transpose,
    sum_transpose,
)
from shardwise.ops.indexing.scatter_kernel import REDUCTIONS, ScatterKernel, scatter_compile, scatter_kernel
from shardwise.ops.indexing.shown_starts import combination, counting_windows
from shardwise.ops.indexing.window_numbers import (
    GatherScatterMode,
    ScatterDimensionNumbers,
    check_batching,
    check_dimension_numbers,
    check_dims,
    check_indices,
    scatter_window_dims,
)
from shardwise.ops.rules.convert import as_array
from shardwise.ops.rules.derivative import do, full_cotangent, full_in_front, later, linear_jvp, moved_to_front
from shardwise.sharding.rule import Kind, Rule

__all__ = [
    "ScatterDimensionNumbers",
    "scatter",
    "scatter_add",
    "scatter_max",
    "scatter_min",
    "scatter_mul",
    "scatter_sub",
]


# -- types -------------------------------------------------------------------------------------


def _scatter_type(
    operand: ShapedArray,
    indices: ShapedArray,
    updates: ShapedArray,
    *,
    dimension_numbers: ScatterDimensionNumbers,
    operand_axes: DimAxes | None,
    combine: str,
    **params: Any,
) -> ShapedArray:
    del params
    n = dimension_numbers
    op = f"scatter_{combine}" if combine else "scatter"
    check_indices(op, indices)
    if operand.dtype != updates.dtype:
        raise TypeError(
            f"{op} takes operand and updates of one dtype, got {operand.dtype.name} and {updates.dtype.name}."
        )
    if combine in ("add", "sub", "mul") and isdtype(operand.dtype, "bool"):
        raise TypeError(f"{op} does not take bools; use scatter_max for 'or', scatter_min for 'and'.")
    rank = indices.ndim - 1 + len(n.update_window_dims)
    if updates.ndim != rank:
        raise TypeError(
            f"{op}: indices {indices.shape} and update_window_dims {n.update_window_dims} call for updates of {rank} "
            f"dims, got shape {updates.shape}."
        )
    check_dims(op, "update_window_dims", n.update_window_dims, updates.ndim)
    check_batching(
        op,
        operand,
        indices,
        n.operand_batching_dims,
        n.scatter_indices_batching_dims,
        n.inserted_window_dims,
        "inserted_window_dims",
        n.scatter_dims_to_operand_dims,
        "scatter_dims_to_operand_dims",
    )
    window = scatter_window_dims(n, operand.ndim)
    if len(window) != len(n.update_window_dims):
        raise TypeError(
            f"{op}: a window of the operand {operand.shape} has dims {window}, but update_window_dims "
            f"{n.update_window_dims} gives {len(n.update_window_dims)}; leave the others to inserted_window_dims or "
            "operand_batching_dims."
        )
    for d, u in zip(window, n.update_window_dims, strict=True):
        if updates.shape[u] > operand.shape[d] and operand_axes is None:
            raise TypeError(
                f"{op}: windows of updates {updates.shape} do not fit into dim {d} of the operand {operand.shape}."
            )
    batch = tuple(size for u, size in enumerate(updates.shape) if u not in n.update_window_dims)
    if batch != indices.shape[:-1]:
        raise TypeError(
            f"{op}: updates {updates.shape} hold windows for {batch}, but there are indices for {indices.shape[:-1]}."
        )
    return ShapedArray(operand.shape, operand.dtype, operand.weak_type)


# -- sharding -------------------------------------------------------------------------------------


def _update_dims(numbers: ScatterDimensionNumbers, rank: int, indices_ndim: int, updates_ndim: int) -> list[int]:
    """The factor of each dim of the updates; operand dim d has factor d, and indices dim i has factor rank + i."""
    batching_dims = dict(zip(numbers.scatter_indices_batching_dims, numbers.operand_batching_dims, strict=True))
    window = iter(scatter_window_dims(numbers, rank))
    batch = iter(batching_dims.get(i, rank + i) for i in range(indices_ndim - 1))
    return [next(window) if u in numbers.update_window_dims else next(batch) for u in range(updates_ndim)]


def _scatter_rule(ins: Types, outs: Types, params: Params) -> Rule:
    del outs
    numbers: ScatterDimensionNumbers = params["dimension_numbers"]
    operand, indices, updates = (t.shape for t in ins)
    rank = len(operand)
    # Updates that are combined may stay split: each device applies its own, all but one to an identity operand, and a reduction completes
    # the result.
    partial = bool(params["combine"])
    sizes = [*operand, *indices]
    kinds = [Kind.PASS] * rank + [Kind.REDUCE if partial else Kind.REPLICATE] * (len(indices) - 1) + [Kind.REPLICATE]
    batching_dims = dict(zip(numbers.scatter_indices_batching_dims, numbers.operand_batching_dims, strict=True))
    update_factors: list[tuple[int, ...]] = []
    for f, n in zip(_update_dims(numbers, rank, len(indices), len(updates)), updates, strict=True):
        if n == 1:
            update_factors.append(())
        elif f < rank and n != operand[f]:  # every device receives a partial window and keeps its own part of it
            update_factors.append((len(sizes),))
            sizes.append(n)
            kinds.append(Kind.REPLICATE)
        else:
            update_factors.append((f,))
    dims = tuple((d,) if n != 1 else () for d, n in enumerate(operand))
    index_dims = tuple((batching_dims.get(i, rank + i),) if n != 1 else () for i, n in enumerate(indices))
    return Rule((dims, index_dims, tuple(update_factors)), (dims,), tuple(sizes), tuple(kinds))


def _place(params: Params, in_dims: Sequence[DimAxes], out_dims: Sequence[DimAxes]) -> Params:
    """Give the kernel the mesh axes that split operand dims but not the updates, and those that split the updates alone."""
    del out_dims
    numbers: ScatterDimensionNumbers = params["dimension_numbers"]
    operand, _, updates = in_dims
    rank = len(operand)
    window = scatter_window_dims(numbers, rank)
    axes = list(operand)
    for d in numbers.operand_batching_dims:
        axes[d] = ()
    for d, u in zip(window, numbers.update_window_dims, strict=True):
        if updates and updates[u] == operand[d]:
            axes[d] = ()
    alone: list[str] = []
    if updates:
        batch = [u for u in range(len(updates)) if u not in numbers.update_window_dims]
        alone = [a for i, u in enumerate(batch) if i not in numbers.scatter_indices_batching_dims for a in updates[u]]
    return {**params, "operand_axes": tuple(axes) if any(axes) else None, "update_axes": tuple(alone)}


def _scatter_specs(ins: Types, outs: Types, params: Params, rule: Rule) -> tuple[Spec, ...]:
    del rule
    numbers: ScatterDimensionNumbers = params["dimension_numbers"]
    operand, indices, updates = ins
    factors = _update_dims(numbers, operand.ndim, indices.ndim, updates.ndim)
    batching_dims = dict(zip(numbers.scatter_indices_batching_dims, numbers.operand_batching_dims, strict=True))
    whole = {f for u, f in enumerate(factors) if f < operand.ndim and updates.shape[u] == operand.shape[f]}
    together = {
        d: agreed_split(operand.spec[d], indices.spec[i], updates.spec[factors.index(d)])
        for i, d in batching_dims.items()
    }
    clear = None not in together.values()
    clear &= all(not axes or d in whole for d, axes in enumerate(operand.spec))
    clear &= all(not axes or i in batching_dims for i, axes in enumerate(indices.spec))
    clear &= all(
        not axes or f in together or (f in whole and axes == operand.spec[f])
        for axes, f in zip(updates.spec, factors, strict=True)
    )
    if not clear:
        raise type_error(
            f"scatter of {updates.str_short()} into {operand.str_short()} at {indices.str_short()}: only dims that "
            "windows cover whole may be split, alike in operand and updates. Give out_sharding= to .at[...].set and "
            "its like, or reshard."
        )
    return (tuple(together.get(d) or axes for d, axes in enumerate(operand.spec)),)


# -- derivatives and batching -------------------------------------------------------------------------------------


def _batch(size: int, axis_name: Any, values: Sequence[Any], dims: Sequence[int | None], params: Params) -> Any:
    """One scatter: mapped indices make the mapped dims batching dims, else operand and windows have one more dim."""
    operand, indices, updates = (
        full_in_front(size, x, d) if i != 1 else x if d is None else moved_to_front(x, d)
        for i, (x, d) in enumerate(zip(values, dims, strict=True))
    )
    n: ScatterDimensionNumbers = params["dimension_numbers"]
    up = lambda ds: tuple(d + 1 for d in ds)  # noqa: E731
    window, ours, theirs = up(n.update_window_dims), up(n.operand_batching_dims), n.scatter_indices_batching_dims
    if dims[1] is None:
        window = (0, *window)
    else:
        ours, theirs = (0, *ours), (0, *up(theirs))
    numbers = ScatterDimensionNumbers(
        window, up(n.inserted_window_dims), up(n.scatter_dims_to_operand_dims), ours, theirs
    )
    promises = {} if dims[1] is None else {"indices_are_sorted": False}
    out = bind(
        _OPS[params["combine"]], operand, indices, updates, **{**params, **promises, "dimension_numbers": numbers}
    )
    return [out], [0]


def scatter_indexed(params: Params, in_types: Types) -> IndexedWindows:
    """`Op.indexed` of all scatters."""
    operand, _, updates = in_types
    numbers = params["dimension_numbers"]
    sizes = [1] * operand.ndim
    for d, u in zip(scatter_window_dims(numbers, operand.ndim), numbers.update_window_dims, strict=True):
        sizes[d] = updates.shape[u]
    dims = numbers.scatter_dims_to_operand_dims
    drops = params["mode"] is not GatherScatterMode.CLIP
    return IndexedWindows(1, True, dims, [sizes[d] for d in dims], [params["wrap_negative"]] * len(dims), drops)


def _hold(params: Params, in_types: Types) -> Any:
    """Windows that are held back go beyond the operand, where they are dropped."""
    operand, indices, _ = in_types
    numbers, beyond = params["dimension_numbers"], iinfo(indices.dtype).max
    reaches_limit = any(operand.shape[d] <= beyond for d in numbers.scatter_dims_to_operand_dims)
    if params["mode"] is GatherScatterMode.CLIP or not reaches_limit:
        return None
    drop_params = {**params, "mode": GatherScatterMode.FILL_OR_DROP}

    def hold_scatter(going: Any, operand: Any, indices: Any, updates: Any) -> Any:
        places = do.select_n(going, full_cotangent(indices.aval, beyond), indices)
        return bind(_OPS[params["combine"]], operand, places, updates, **drop_params)

    return hold_scatter


_small_scatter = later("shardwise.runtime.small", "scatter")


def _write_small(body: Any, eqn: Equation, values: Any, wanted: Any) -> Any:
    return _small_scatter(body, eqn, values, wanted, eqn.params["mode"] is GatherScatterMode.CLIP)


_SMALL = SmallForm(
    _write_small,
    later("shardwise.runtime.small", "windows_fit"),
    sums=later("shardwise.runtime.small", "axes_joined"),
    calls=16,
)


def _shown_params(eqn: Equation, shown: dict[str, Any]) -> dict[str, Any]:
    combine, operand = eqn.params["combine"], eqn.inputs[0].aval
    program = combination(combine, operand.update(shape=(), weak_type=False)) if combine else None
    return {**shown, "update_consts": (), "update_jaxpr": program}


def _define(combine: str, **derivative: Any) -> Op:
    name = f"scatter_{combine}" if combine else "scatter"
    op = define_op(
        name,
        type_rule=_scatter_type,
        kernel=scatter_kernel,
        compile=scatter_compile,
        columns=ScatterKernel,
        updates=True,
        hold=_hold,
        across=sum_across(scatter_kernel, scatter_compile, REDUCTIONS[combine]) if combine else None,
        absorbs=all_reduce if combine else None,
        rule=_scatter_rule,
        reduction=REDUCTIONS[combine],
        place=_place,
        explicit=_scatter_specs,
        batch=_batch,
        makes_nan=True,
        indexed=scatter_indexed,
        small=_SMALL,
        keys=None if combine else KeyUses({2: True}, forwards={0: 0}),
        shown=Shown(
            f"scatter-{combine}" if combine else None,
            hidden=frozenset({"combine", "update_axes", "operand_axes"}),
            absent={"wrap_negative": False, "combine": combine, "operand_axes": None, "update_axes": ()},
            change=_shown_params,
            parts=counting_windows(lambda: op, "scatter_dims_to_operand_dims"),
        ),
        **derivative,
    )
    return op


scatter_p = _define("", jvp=linear_jvp("scatter", (0, 2)), transpose=put_transpose)
scatter_add_p = _define(
    "add",
    jvp=linear_jvp("scatter_add", (0, 2)),
    transpose=sum_transpose,
    partition=scatter_add_partition,
    additive=(0, None, 2),
)
scatter_sub_p = _define("sub", jvp=linear_jvp("scatter_sub", (0, 2)), transpose=sum_transpose, additive=(0, None, 2))
scatter_mul_p = _define("mul", jvp=product_jvp, transpose=product_transpose)
scatter_min_p = _define("min", jvp=extremum_jvp("scatter_min"))
scatter_max_p = _define("max", jvp=extremum_jvp("scatter_max"))
_OPS = {
    "": scatter_p,
    "add": scatter_add_p,
    "sub": scatter_sub_p,
    "mul": scatter_mul_p,
    "min": scatter_min_p,
    "max": scatter_max_p,
}


# -- public functions -------------------------------------------------------------------------------------


def scatter_with(
    combine: str,
    operand: Any,
    indices: Any,
    updates: Any,
    numbers: ScatterDimensionNumbers,
    *,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    mode: str | GatherScatterMode | None = None,
    wrap_negative: bool = False,
) -> Array:
    """The scatter named by `combine` ('', 'add', 'sub', 'mul', 'min', 'max').

    `wrap_negative` counts negative starts from the end.
    """
    parsed_mode = GatherScatterMode.from_any(mode)
    if parsed_mode is GatherScatterMode.ONE_HOT:
        parsed_mode = GatherScatterMode.FILL_OR_DROP  # gives the same values
    return bind(
        _OPS[combine],
        as_array(operand),
        as_array(indices),
        as_array(updates),
        dimension_numbers=numbers,
        mode=parsed_mode,
        indices_are_sorted=bool(indices_are_sorted),
        unique_indices=bool(unique_indices),
        wrap_negative=bool(wrap_negative),
        operand_axes=None,
        update_axes=(),
        combine=combine,
    )


def _public(combine: str, does: str, shown: str) -> Callable[..., Array]:
    def function(
        operand: Any,
        scatter_indices: Any,
        updates: Any,
        dimension_numbers: ScatterDimensionNumbers,
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode: str | GatherScatterMode | None = None,
    ) -> Array:
        check_dimension_numbers(name, dimension_numbers, ScatterDimensionNumbers)
        return scatter_with(
            combine,
            operand,
            scatter_indices,
            updates,
            dimension_numbers,
            indices_are_sorted=indices_are_sorted,
            unique_indices=unique_indices,
            mode=mode,
        )

    name = f"scatter_{combine}" if combine else "scatter"
    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"""`operand` with windows of `updates` {does} at `scatter_indices`.

    Args:
        dimension_numbers: how dims correspond, a `ScatterDimensionNumbers`.
        indices_are_sorted: promises that indices ascend; without effect on the result.
        unique_indices: promises that no element is written twice, which is faster.
        mode: what becomes of windows out of bounds: 'drop' (the default) and 'promise_in_bounds' leave them out, 'clip'
            moves them inside.

    Raises:
        TypeError: shapes, dtypes and numbers do not fit. ValueError: indices are no integers.

    >>> rows = lax.ScatterDimensionNumbers(update_window_dims=(), inserted_window_dims=(0,), scatter_dims_to_operand_dims=(0,))
    >>> lax.{name}(jnp.array([1, 2, 3]), jnp.array([[0], [2]]), jnp.array([2, 2]), rows)
    Array({shown}, dtype=int32)
    """
    return function


scatter = _public("", "put", "[2, 2, 2]")
scatter_add = _public("add", "added", "[3, 2, 5]")
scatter_sub = _public("sub", "subtracted", "[-1,  2,  1]")
scatter_mul = _public("mul", "multiplied", "[2, 2, 6]")
scatter_min = _public("min", "combined by minimum", "[1, 2, 2]")
scatter_max = _public("max", "combined by maximum", "[2, 2, 3]")
