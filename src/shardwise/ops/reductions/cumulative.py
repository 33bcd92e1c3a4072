"""Running reductions along one dim: `cumsum`, `cumprod`, `cummax`, `cummin`, `cumlogsumexp`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shardwise.base.shapes import Ndarray
from shardwise.base.small_integers import in_bytes, is_below_byte
from shardwise.ir import Array, Equation, Op, ShapedArray, SmallForm, bind, define_op, literal
from shardwise.ir.op import Params, Types
from shardwise.ops.devices.all_gather import all_gather_op
from shardwise.ops.devices.all_slice import all_slice
from shardwise.ops.elementwise.binary import add_p, extremum_share, max_p, min_p, mul_p, sub_p
from shardwise.ops.elementwise.casts import convert_element_type_p
from shardwise.ops.elementwise.comparison import eq_p
from shardwise.ops.elementwise.selection import select_n_p
from shardwise.ops.elementwise.transcendental import exp_p, log1p_p
from shardwise.ops.elementwise.unary import abs_p, neg_p
from shardwise.ops.reductions.associative_scan import associative_scan
from shardwise.ops.reductions.running import LOG_SUM, MAXIMUM, MINIMUM, PRODUCT, SUM, RunningReduction, accumulate_dim
from shardwise.ops.rules.batching import shift_dims_rule
from shardwise.ops.rules.derivative import do, later
from shardwise.ops.rules.operands import check_kind, dtype_kind, operand
from shardwise.ops.rules.steps import per_result
from shardwise.ops.shapes.pieces import pad_p, slice_p
from shardwise.ops.shapes.transpose import own_factors
from shardwise.runtime.blocks import with_dim_at
from shardwise.runtime.copies import copy_dense
from shardwise.runtime.env import Env
from shardwise.sharding.rule import Kind, Rule

__all__ = ["cumlogsumexp", "cummax", "cummin", "cumprod", "cumsum"]

_operand = operand  # functions below have a parameter of that name
_WIDE = 256  # elements per row; from here on adding whole rows is faster than NumPy's loop down each column


def _type(name: str, accepts: str) -> Callable[..., ShapedArray]:
    def rule(x: ShapedArray, *, axis: int, reverse: bool) -> ShapedArray:
        check_kind(name, x, accepts)
        if axis < 0:
            raise ValueError(f"{name}: the axis counts from the front, got {axis}.")
        if axis >= x.ndim:
            raise ValueError(f"{name}: axis {axis} is out of bounds for array of shape {x.shape}")
        return ShapedArray(x.shape, x.dtype, x.weak_type)

    return rule


def _rule(in_types: Types, out_types: Types, params: Params) -> Rule:
    shape = in_types[0].shape
    kinds = tuple(Kind.REPLICATE if d == params["axis"] else Kind.PASS for d in range(len(shape)))
    return Rule((own_factors(shape),), (own_factors(shape),), shape, kinds)


def _log_add(region: Any, x: Any, y: Any) -> Any:
    """``log(exp(x) + exp(y))`` in local equations; for two equal values, also infinite ones, ``x + log(2)``."""

    def emit(op: Op, *atoms: Any) -> Any:
        return region.emit(op, atoms, {})[0]

    apart = emit(select_n_p, emit(eq_p, x, y), emit(abs_p, emit(sub_p, x, y)), literal(0, x.aval.dtype))
    return emit(add_p, emit(max_p, x, y), emit(log1p_p, emit(exp_p, emit(neg_p, apart))))


def _partition(
    combine: Op | Callable[[Any, Any, Any], Any], identity: Callable[[Any], Any]
) -> Callable[[Any, Equation], None]:
    """Along a split dim each device accumulates its own part and combines it with the exchanged totals of the devices before it."""

    def partition(region: Any, eqn: Equation) -> None:
        if region.compute_in_frames(eqn):
            return None
        (operand,), (out,) = eqn.inputs, eqn.outputs
        axis, reverse = eqn.params["axis"], eqn.params["reverse"]
        atom, have = region.read(operand)
        want = region.placements.get(out)
        axes = want[axis] if want and have else ()
        if not axes or have[axis] != axes or not out.aval.size:  # an empty part has no last element
            return region.generic(eqn)
        if (
            not isinstance(combine, Op) and dtype_kind(out.aval.dtype) == "c"
        ):  # equations would have to count turns of the phase
            return region.generic(eqn)

        def along(region: Any) -> None:
            part = region.reshard(atom, have, want, operand.aval)
            narrow = (
                dtype_kind(out.aval.dtype) == "f" and out.aval.dtype.itemsize < 4
            )  # these accumulate in a wider type
            if narrow:
                part = _convert_value(region, part, np.dtype(np.float32))
            local = region.emit(eqn.op, [part], eqn.params)[0]
            shape, sizes = local.aval.shape, region.sizes_of(axes)
            last = tuple(0 if d != axis or reverse else n - 1 for d, n in enumerate(shape))
            ends = tuple(n if d != axis else last[d] + 1 for d, n in enumerate(shape))
            total = region.emit(slice_p, [local], {"start_indices": last, "limit_indices": ends, "strides": None})[0]
            gather_params = {"sizes": sizes, "dim": axis, "tiled": True, "invariant": True}
            totals = region.collective(all_gather_op, [total], axes, total.aval, gather_params)
            upto = region.emit(eqn.op, [totals], eqn.params)[0]
            first = literal(identity(local.aval.dtype), local.aval.dtype)
            edges = tuple((0, 0, 0) if d != axis else (-1, 1, 0) if reverse else (1, -1, 0) for d in range(len(shape)))
            before = region.emit(pad_p, [upto, first], {"padding_config": edges})[0]
            own = region.emit(all_slice, [before], {"axes": axes, "sizes": sizes, "dim": axis})[0]
            both = region.emit(combine, [own, local], {})[0] if isinstance(combine, Op) else combine(region, own, local)
            region.define(out, _convert_value(region, both, out.aval.dtype) if narrow else both, want)

        along(region)

    return partition


def _convert_value(region: Any, x: Any, dtype: np.dtype[Any]) -> Any:
    return region.emit(convert_element_type_p, [x], {"new_dtype": dtype, "weak_type": x.aval.weak_type})[0]


def _least(dtype: Any) -> Any:
    return np.iinfo(dtype).min if dtype.kind in "iu" else -np.inf


def _greatest(dtype: Any) -> Any:
    return np.iinfo(dtype).max if dtype.kind in "iu" else np.inf


def accumulate(running: RunningReduction, x: Ndarray, dim: int, reverse: bool) -> Ndarray:
    """The running reduction along `dim` in the block's own dtype; narrow floats accumulate in float32."""
    if dtype_kind(x.dtype) == "f" and x.dtype.itemsize < 4:
        return copy_dense(accumulate(running, copy_dense(x, np.float32), dim, reverse), x.dtype)
    if is_below_byte(x.dtype):
        return accumulate(running, in_bytes(x), dim, reverse).astype(x.dtype)
    result = accumulate_dim(running, x, dim, reverse)
    if result is not None:
        return result
    out = _by_numpy(running.ufunc, x, dim, reverse)
    return out if x.shape[dim] == 1 else running.combine_initial(out)


def _by_numpy(ufunc: Any, x: Ndarray, dim: int, reverse: bool) -> Ndarray:
    turn = (*[slice(None)] * dim, slice(None, None, -1))
    if reverse:
        return _by_numpy(ufunc, x[turn], dim, False)[turn]
    n = x.shape[dim]
    if n and x.size // n >= _WIDE and abs(x.strides[dim]) != x.itemsize:
        rows = with_dim_at(x, dim, 0)
        out = np.empty_like(x)
        into = with_dim_at(out, dim, 0)
        into[0] = rows[0]
        for i in range(1, n):
            ufunc(into[i - 1], rows[i], out=into[i])
        return out
    return ufunc.accumulate(x, axis=dim, dtype=x.dtype)


# -- derivatives: pairs (value, tangent) joined in a scan -----------------------------------------------------------------


def _scan_jvp(name: str, combine: Callable[..., tuple[Any, Any]]) -> Callable[..., Any]:
    """The jvp rule; ``combine(x, t, y, s) -> value, tangent`` combines the (value, tangent) pairs of two parts."""

    def join(first: Any, second: Any) -> tuple[Any, Any]:
        return combine(*first, *second)

    def jvp(primals: Sequence[Any], tangents: Sequence[Any], *, axis: int, reverse: bool) -> tuple[Any, Any]:
        (x,), (t,) = primals, tangents
        out = getattr(do, name)(x, axis=axis, reverse=reverse)
        return out, associative_scan(join, (x, t), reverse, axis)[1]

    return jvp


def _tree_jvp(name: str, combine: Callable[..., tuple[Any, Any]]) -> Callable[..., Any]:
    """As `_scan_jvp`, in the order of `associative_scan`: the shares of a tangent at ties depend on the order."""

    def jvp(primals: Sequence[Any], tangents: Sequence[Any], *, axis: int, reverse: bool) -> tuple[Any, Any]:
        (x,), (t,) = primals, tangents
        out = getattr(do, name)(x, axis=axis, reverse=reverse)
        return out, associative_scan(lambda a, b: combine(*b, *a), (x, t), reverse=reverse, axis=axis)[1]

    return jvp


def _product(x: Any, t: Any, y: Any, s: Any) -> tuple[Any, Any]:
    return do.mul(x, y), do.add(do.mul(t, y), do.mul(s, x))


def _extremum(name: str) -> Callable[..., tuple[Any, Any]]:
    def combine(x: Any, t: Any, y: Any, s: Any) -> tuple[Any, Any]:
        out = getattr(do, name)(x, y)
        return out, do.add(do.mul(t, extremum_share(x, y, out)), do.mul(s, extremum_share(y, x, out)))

    return combine


def _log_sum(x: Any, t: Any, y: Any, s: Any) -> tuple[Any, Any]:
    """Each tangent is weighted by its value's share of the sum; an infinite value has all of it."""
    if dtype_kind(x.dtype) == "c":
        high = do.max(x, y)
        out = do.add(high, do.log1p(do.exp(do.sub(do.sub(x, high), do.sub(high, y)))))
        return out, do.add(do.mul(t, do.exp(do.sub(x, out))), do.mul(s, do.exp(do.sub(y, out))))
    apart = do.sub(x, y)
    log_sum = do.add(do.max(x, y), do.log1p(do.exp(do.neg(do.abs(apart)))))
    out = do.select_n(do.ne(apart, apart), log_sum, do.add(x, y))
    shares = [do.exp(do.select_n(do.eq(v, np.inf), do.sub(v, out), 0)) for v in (x, y)]
    return out, do.add(do.mul(t, shares[0]), do.mul(s, shares[1]))


def _sum_transpose(ct: Any, x: Any, *, axis: int, reverse: bool) -> list[Any]:
    return [do.cumsum(ct, axis=axis, reverse=not reverse)]


_small_running = later("shardwise.runtime.small", "write_running")
_running_fits = later("shardwise.runtime.small", "running_fits")


def _small_form(op: Op, begin: float | None) -> SmallForm:
    def write(body: Any, eqn: Equation, values: Any, wanted: Any) -> Any:
        return _small_running(body, eqn, values, wanted, op, begin)

    def can(eqn: Equation, spread: Any) -> bool:
        assert op.emit is not None
        return dtype_kind(eqn.inputs[0].aval.dtype) in op.emit.kinds and _running_fits(eqn, spread)

    return SmallForm(write, can)


def _define(name: str, running: RunningReduction, accepts: str, step: Op | None = None, **derivative: Any) -> Op:
    """The op of a running reduction; small programs inline it if a single op is its `step`."""

    def kernel(env: Env, x: Ndarray, *, axis: int, reverse: bool) -> Ndarray:
        return accumulate(running, x, env.lead + axis, reverse)

    return define_op(
        name,
        type_rule=_type(name, accepts),
        kernel=kernel,
        rule=_rule,
        batch=shift_dims_rule(name, "axis"),
        small=None if step is None else _small_form(step, running.begin),
        algorithm=None if step is None else per_result(f"running/{name}"),
        **derivative,
    )


cumsum_p = _define(
    "cumsum",
    SUM,
    "iufc",
    add_p,
    jvp="linear",
    transpose=_sum_transpose,
    partition=_partition(add_p, lambda dtype: 0),
    makes_nan=True,
)
cumprod_p = _define(
    "cumprod",
    PRODUCT,
    "iufc",
    mul_p,
    jvp=_scan_jvp("cumprod", _product),
    partition=_partition(mul_p, lambda dtype: 1),
    makes_nan=True,
)
cummax_p = _define(
    "cummax",
    MAXIMUM,
    "iufc",
    max_p,
    jvp=_tree_jvp("cummax", _extremum("max")),
    partition=_partition(max_p, _least),
    makes_nan=True,
)
cummin_p = _define(
    "cummin",
    MINIMUM,
    "iufc",
    min_p,
    jvp=_tree_jvp("cummin", _extremum("min")),
    partition=_partition(min_p, _greatest),
    makes_nan=True,
)
cumlogsumexp_p = _define(
    "cumlogsumexp",
    LOG_SUM,
    "fc",
    jvp=_scan_jvp("cumlogsumexp", _log_sum),
    partition=_partition(_log_add, _least),
    makes_nan=True,
)


def cumsum(operand: Any, axis: int = 0, reverse: bool = False) -> Array:
    """Sums of the elements of `operand` up to each position along `axis`, or from each position on if `reverse`;
    integers wrap.

    TypeError for bools, ValueError for a missing or negative axis.

    >>> lax.cumsum(jnp.array([1, 2, 3]), reverse=True)
    Array([6, 5, 3], dtype=int32)
    """
    return bind(cumsum_p, _operand("cumsum", operand), axis=int(axis), reverse=bool(reverse))


def cumprod(operand: Any, axis: int = 0, reverse: bool = False) -> Array:
    """Products of the elements of `operand` up to each position along `axis`, or from each position on if `reverse`;
    see `cumsum`.

    >>> lax.cumprod(jnp.array([1, 2, 3]))
    Array([1, 2, 6], dtype=int32)
    """
    return bind(cumprod_p, _operand("cumprod", operand), axis=int(axis), reverse=bool(reverse))


def cummax(operand: Any, axis: int = 0, reverse: bool = False) -> Array:
    """Maxima of the elements of `operand` up to each position along `axis`, or from each position on if `reverse`;
    NaN propagates.

    >>> lax.cummax(jnp.array([1, 3, 2]))
    Array([1, 3, 3], dtype=int32)
    """
    return bind(cummax_p, _operand("cummax", operand), axis=int(axis), reverse=bool(reverse))


def cummin(operand: Any, axis: int = 0, reverse: bool = False) -> Array:
    """Minima of the elements of `operand` up to each position along `axis`, or from each position on if `reverse`;
    NaN propagates.

    >>> lax.cummin(jnp.array([3, 1, 2]))
    Array([3, 1, 1], dtype=int32)
    """
    return bind(cummin_p, _operand("cummin", operand), axis=int(axis), reverse=bool(reverse))


def cumlogsumexp(operand: Any, axis: int = 0, reverse: bool = False) -> Array:
    """``log(cumsum(exp(operand)))`` without overflow, of floats or complex numbers along `axis`, or backwards if
    `reverse`; see `cumsum`.

    >>> lax.cumlogsumexp(jnp.zeros(2)).round(3)
    Array([0.   , 0.693], dtype=float32)
    """
    return bind(cumlogsumexp_p, _operand("cumlogsumexp", operand), axis=int(axis), reverse=bool(reverse))
