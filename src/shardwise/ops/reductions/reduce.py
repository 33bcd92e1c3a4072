"""Reductions over dims: sums, products, extrema, bits.

Every reduced dim is a REDUCE factor: if it is split, each device reduces its part and the monoid `reduction` combines the parts.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shardwise.base import config
from shardwise.base.dtypes import isdtype
from shardwise.base.errors import ShardingTypeError
from shardwise.base.shapes import Axes, Ints, Ndarray
from shardwise.base.small_integers import in_bytes, is_below_byte
from shardwise.ir import Array, Equation, Op, Program, ShapedArray, Shown, Var, bind, define_op
from shardwise.ir.explicit import specs_from_rule
from shardwise.ir.op import Params, Types, find_op
from shardwise.ir.types import Spec
from shardwise.ops.devices.all_reduce import all_reduce
from shardwise.ops.reductions.summing import SMALL, fast_sum
from shardwise.ops.rules.batching import shift_dims_rule
from shardwise.ops.rules.derivative import cotangent_sharding, do
from shardwise.ops.rules.dims import int_tuple
from shardwise.ops.rules.operands import check_kind, dtype_kind, operand
from shardwise.ops.rules.out_sharding import resolve_out_sharding, sharding_spec, with_out_sharding
from shardwise.ops.shapes.pieces import slice_in_dim
from shardwise.ops.shapes.transpose import squeeze_p
from shardwise.runtime.env import Env
from shardwise.runtime.monoids import MONOIDS, Monoid
from shardwise.sharding import NamedSharding
from shardwise.sharding.rule import Kind, Rule, own_factors

__all__ = ["reduce_and", "reduce_max", "reduce_min", "reduce_or", "reduce_prod",
           "reduce_sum", "reduce_xor"]  # fmt: skip

_operand = operand  # functions below have a parameter of that name


# -- one op per monoid -----------------------------------------------------------------------------------------------


def check_axes(name: str, x: ShapedArray, axes: Ints) -> None:
    """ValueError unless `axes` are distinct dims of `x`, counted from the front."""
    if len(set(axes)) != len(axes):
        raise ValueError(f"{name}: duplicate value in 'axes' of reduction: {axes}")
    if any(not 0 <= a < x.ndim for a in axes):
        raise ValueError(f"{name}: reduction axes {axes} contains out-of-bounds indices for {x.str_short(False)}.")


def _reduce_type(name: str, accepts: str) -> Callable[..., ShapedArray]:
    def rule(
        x: ShapedArray, *, axes: Ints, out_sharding: NamedSharding | None = None, sum_axes: Axes = ()
    ) -> ShapedArray:
        check_kind(name, x, accepts)
        check_axes(name, x, axes)
        shape = tuple(n for d, n in enumerate(x.shape) if d not in axes)
        out = with_out_sharding(ShapedArray(shape, x.dtype, x.weak_type), out_sharding)
        return out.update(vma=x.vma - set(sum_axes)) if sum_axes else out

    return rule


def reduce_rule(in_types: Types, out_types: Types, params: Params) -> Rule:
    """Kept dims keep their sharding; reduced dims are REDUCE factors of the operand."""
    shape, axes = in_types[0].shape, params["axes"]
    factors = own_factors(shape)
    kept_factors = tuple(f for d, f in enumerate(factors) if d not in axes)
    kinds = tuple(Kind.REDUCE if d in axes else Kind.PASS for d in range(len(shape)))
    return Rule((factors,), (kept_factors,) * len(out_types), shape, kinds)


def _reduce_explicit(in_types: Types, out_types: Types, params: Params, rule: Rule) -> tuple[Spec, ...]:
    """The operand's spec without the reduced dims and their axes, unless `out_sharding` is given."""
    out_sharding = params.get("out_sharding")
    if out_sharding is not None:
        return (sharding_spec(out_sharding, out_types[0].ndim),)
    return specs_from_rule("reduction", in_types, out_types, rule)


def _localize(params: Params, in_types: Types, out_types: Types) -> Params:
    return {**params, "out_sharding": None}


def _block_dims(env: Env, axes: Ints) -> Ints:
    return tuple([env.lead + a for a in axes])


def _sum_kernel(env: Env, x: Ndarray, *, axes: Ints, out_sharding: Any = None, sum_axes: Axes = ()) -> Ndarray:
    """Sum over `axes`, and over the loop dims of `sum_axes`, which keep extent 1: a psum in the same pass."""
    dims = _block_dims(env, axes)
    if not sum_axes:
        return fast_sum(x, dims)
    loops = tuple(env.dim(a) for a in sum_axes)
    copies = 1
    for axis, d in zip(sum_axes, loops, strict=True):
        if x.shape[d] == 1:  # equal on all devices: multiplied by their number
            copies *= env.extent(axis)
    out = fast_sum(x, loops + dims)
    out = out.reshape(tuple(1 if d in loops else n for d, n in enumerate(x.shape) if d not in dims))
    return out if copies == 1 else np.multiply(out, out.dtype.type(copies))


def _folding_kernel(reduction: str) -> Callable[..., Ndarray]:
    def kernel(env: Env, x: Ndarray, *, axes: Ints, out_sharding: Any = None, sum_axes: Axes = ()) -> Ndarray:
        """Fold over `axes`, and over the loop dims of `sum_axes`, which keep extent 1; for idempotent folds."""
        dims, loops = _block_dims(env, axes), tuple(env.dim(a) for a in sum_axes)
        out = fold(reduction, x, loops + dims)
        if not loops:
            return out
        return out.reshape(tuple(1 if d in loops else n for d, n in enumerate(x.shape) if d not in dims))

    return kernel


def fold(reduction: str, x: Ndarray, dims: Ints) -> Ndarray:
    """`x` reduced over `dims` in its own dtype; the identity for empty dims."""
    if not dims:
        return x
    monoid = MONOIDS[reduction]
    ufunc: Any = monoid.merge
    if not x.size:
        if any(x.shape[d] == 0 for d in dims):
            shape = tuple(n for d, n in enumerate(x.shape) if d not in dims)
            return np.full(shape, monoid.identity(x.dtype), x.dtype)
        return ufunc.reduce(x, axis=dims, dtype=x.dtype, initial=monoid.identity(x.dtype))
    if is_below_byte(x.dtype):
        return np.asarray(fold(reduction, in_bytes(x), dims)).astype(x.dtype)
    if reduction == "prod" and x.dtype.itemsize < 4 and dtype_kind(x.dtype) == "f":
        return np.asarray(ufunc.reduce(x, axis=dims, dtype=np.float32)).astype(x.dtype)
    if reduction in ("and", "or") and x.dtype.kind == "b":  # the logical ufuncs stop early
        ufunc = np.logical_and if reduction == "and" else np.logical_or
        return ufunc.reduce(x, axis=dims, dtype=x.dtype)
    return monoid.reducer(x.dtype)(x, dims, x.dtype)


def _folding_compile(monoid: Monoid, kernel: Callable[..., Ndarray]) -> Callable[..., Callable[[Ndarray], Ndarray]]:
    """The kernel specialised to one operand type: small blocks call NumPy directly."""

    def prepare(env: Env, in_types: Types, out_types: Types, params: Params) -> Callable[[Ndarray], Ndarray]:
        general = functools.partial(kernel, env, **params)
        x, dims = in_types[0], _block_dims(env, params["axes"])
        dtype = x.dtype
        loops = tuple([env.dim(a) for a in params.get("sum_axes", ())])
        if not (dims or loops) or not x.size or dtype.kind not in "iuf" or dtype.itemsize < 4:
            return general
        reduce = monoid.reducer(dtype)

        def small_first(x: Ndarray) -> Ndarray:
            return reduce(x, dims, dtype) if x.size < SMALL else general(x)

        if not loops:
            return small_first
        every, kept_shape = loops + dims, out_types[0].shape
        others = [d for d in range(env.lead) if d not in loops]
        alone = (1,) * env.lead + kept_shape

        def small_over_devices_first(x: Ndarray) -> Ndarray:
            shape = x.shape
            if x.size >= SMALL or 1 in [shape[d] for d in loops]:  # equal on all devices of an axis
                return general(x)
            if not others:
                return reduce(x, every, dtype).reshape(alone)
            return reduce(x, every, dtype).reshape(
                [1 if d in loops else shape[d] for d in range(env.lead)] + [*kept_shape]
            )

        return small_over_devices_first

    return prepare


def _of_single_elements(eqn: Equation, devices: int) -> Program | None:
    """A reduction over dims of size 1 as a view, so that it does not end a fused loop."""
    (x,), (out,) = eqn.inputs, eqn.outputs
    axes: Ints = eqn.params["axes"]
    if eqn.params.get("sum_axes") or any(x.aval.shape[d] != 1 for d in axes):
        return None
    old, new = Var(x.aval), Var(out.aval)
    view = Equation(squeeze_p, (old,), (new,), {"dimensions": axes}, eqn.source)
    return Program((old,), (view,), (new,), 0, eqn.op.name)


def _shown_sharding(eqn: Equation, shown: dict[str, Any]) -> dict[str, Any]:
    return {"out_sharding": None, **shown} if config.dialect.jaxprs.reduction_shows_out_sharding else shown


WITH_SHARDING = Shown(change=_shown_sharding)


_any_sum_type = _reduce_type("reduce_sum", "iufc")


def _sum_type(x: ShapedArray, *, axes: Ints, **params: Any) -> ShapedArray:
    out_type = _any_sum_type(x, axes=axes, **params)
    narrow = x.dtype.itemsize == 2 and isdtype(x.dtype, "real floating")
    if narrow and not config.jax_allow_f16_reductions and any(x.shape[d] != 1 for d in axes):
        raise ValueError(
            f"reduce_sum of {x.str_short()} is not allowed where jax_allow_f16_reductions is False. Convert it to float32, or sum it "
            "with jnp.sum, which does."
        )
    return out_type


def _define(name: str, reduction: str, accepts: str, **fields: Any) -> Op:
    is_sum = reduction == "sum"
    monoid = MONOIDS[reduction]
    kernel = _sum_kernel if is_sum else _folding_kernel(reduction)
    return define_op(
        name,
        type_rule=_sum_type if is_sum else _reduce_type(name, accepts),
        rule=reduce_rule,
        reduction=reduction,
        fold=monoid.fold,
        kernel=kernel,
        compile=_folding_compile(monoid, kernel),
        absorbs=all_reduce if is_sum else None,
        crosses=monoid.repeated is None,
        explicit=_reduce_explicit,
        localize=_localize if is_sum else None,
        rewrite=_of_single_elements,
        batch=shift_dims_rule(name, "axes"),
        **fields,
    )


def _sum_transpose(ct: Any, x: Any, *, axes: Ints, **_: Any) -> list[Any]:
    kept_dims = tuple(d for d in range(x.aval.ndim) if d not in axes)
    sharding = cotangent_sharding(x.aval)
    return [do.broadcast_in_dim(ct, shape=x.aval.shape, broadcast_dimensions=kept_dims, out_sharding=sharding)]


def _extremum_jvp(name: str) -> Callable[..., Any]:
    """The mean of the tangents at the positions of the extremum."""

    def jvp(primals: Sequence[Any], tangents: Sequence[Any], *, axes: Ints, **_: Any) -> tuple[Any, Any]:
        (x,), (t,) = primals, tangents
        out = bind(find_op(name), x, axes=axes)
        kept_dims = tuple(d for d in range(x.ndim) if d not in axes)
        shape = tuple(1 if d in axes else n for d, n in enumerate(x.shape))
        full = do.broadcast_in_dim(out, shape=shape, broadcast_dimensions=kept_dims, out_sharding=None)
        chosen = do.convert_element_type(do.eq(x, full), new_dtype=x.dtype, weak_type=False)
        count = do.reduce_sum(chosen, axes=axes)
        return out, do.div(do.reduce_sum(do.mul(t, chosen), axes=axes), count)

    return jvp


def _product_jvp(primals: Sequence[Any], tangents: Sequence[Any], *, axes: Ints, **_: Any) -> tuple[Any, Any]:
    """Pairs (value, tangent) multiplied pairwise, without a division that zeros among the values would break."""
    (x,), (t,) = primals, tangents
    out = do.reduce_prod(x, axes=axes)
    for d in axes:
        while x.shape[d] > 1:
            n, half = x.shape[d], x.shape[d] // 2
            (a, b), (ta, tb) = ([slice_in_dim(v, i * half, (i + 1) * half, 1, d) for i in (0, 1)] for v in (x, t))
            rest = [slice_in_dim(v, 2 * half, n, 1, d) for v in (x, t)] if n % 2 else None
            x, t = do.mul(a, b), do.add(do.mul(ta, b), do.mul(a, tb))
            if rest:
                x, t = (do.concatenate(v, r, dimension=d) for v, r in zip((x, t), rest, strict=True))
    return out, do.reduce_sum(t, axes=axes)


reduce_sum_p = _define(
    "reduce_sum",
    "sum",
    "iufc",
    additive=True,
    jvp="linear",
    transpose=_sum_transpose,
    shown=WITH_SHARDING,
    makes_nan=True,
)
reduce_prod_p = _define("reduce_prod", "prod", "iufc", jvp=_product_jvp, makes_nan=True)
reduce_max_p = _define("reduce_max", "max", "biufc", jvp=_extremum_jvp("reduce_max"))
reduce_min_p = _define("reduce_min", "min", "biufc", jvp=_extremum_jvp("reduce_min"))
reduce_and_p = _define("reduce_and", "and", "biu")
reduce_or_p = _define("reduce_or", "or", "biu")
reduce_xor_p = _define("reduce_xor", "xor", "biu")


def _bind_reduction(op: Op, x: Any, axes: Sequence[int]) -> Array:
    return bind(op, operand(op.name, x), axes=int_tuple(axes, f"{op.name} axes"))


def reduce_sum(operand: Any, axes: Sequence[int], *, out_sharding: Any = None) -> Array:
    """Sum of `operand` over the dims `axes`: f[a, b] with (0,) -> f[b]. TypeError for bools, ValueError for repeated
    or missing dims.

    float16 and bfloat16 add up in float32; integers wrap. `out_sharding`: a spec over Explicit axes; ShardingTypeError if it leaves
    unreduced an axis that splits none of the summed dims, and over which the operand is reduced.

    >>> lax.reduce_sum(jnp.array([[1, 5], [7, 0]]), (0,))
    Array([8, 5], dtype=int32)
    """
    x, dims = _operand("reduce_sum", operand), int_tuple(axes, "reduce_sum axes")
    if out_sharding is None:
        return bind(reduce_sum_p, x, axes=dims)
    sharding = resolve_out_sharding(out_sharding, "reduce_sum", x.ndim - len(dims))
    assert sharding is not None
    summed_axes = {a for d in dims if -x.ndim <= d < x.ndim for a in x.aval.spec[d]} | x.aval.unreduced
    if beside := sorted(sharding.spec.unreduced - summed_axes):
        raise ShardingTypeError(
            f"out_sharding's unreduced axes should be in operand's specs that were summed over: {beside} split none of the dims {dims} "
            f"of {x.aval.str_short()}. Got {sharding.spec}."
        )
    return bind(reduce_sum_p, x, axes=dims, out_sharding=sharding)


def reduce_prod(operand: Any, axes: Sequence[int]) -> Array:
    """Product of `operand` over the dims `axes`; integers wrap. TypeError for bools.

    >>> lax.reduce_prod(jnp.array([2, 3, 4]), (0,))
    Array(24, dtype=int32)
    """
    return _bind_reduction(reduce_prod_p, operand, axes)


def reduce_max(operand: Any, axes: Sequence[int]) -> Array:
    """Maximum of `operand` over the dims `axes`; NaN if any element is, the dtype's least value over empty dims.

    >>> lax.reduce_max(jnp.array([[1, 5], [7, 0]]), (1,))
    Array([5, 7], dtype=int32)
    """
    return _bind_reduction(reduce_max_p, operand, axes)


def reduce_min(operand: Any, axes: Sequence[int]) -> Array:
    """Minimum of `operand` over the dims `axes`; NaN if any element is, the dtype's greatest value over empty dims.

    >>> lax.reduce_min(jnp.array([[1, 5], [7, 0]]), (1,))
    Array([1, 0], dtype=int32)
    """
    return _bind_reduction(reduce_min_p, operand, axes)


def reduce_and(operand: Any, axes: Sequence[int]) -> Array:
    """And of `operand` over the dims `axes`, of bools or of integers' bits.

    >>> lax.reduce_and(jnp.array([True, False]), (0,))
    Array(False, dtype=bool)
    """
    return _bind_reduction(reduce_and_p, operand, axes)


def reduce_or(operand: Any, axes: Sequence[int]) -> Array:
    """Or of `operand` over the dims `axes`, of bools or of integers' bits.

    >>> lax.reduce_or(jnp.array([True, False]), (0,))
    Array(True, dtype=bool)
    """
    return _bind_reduction(reduce_or_p, operand, axes)


def reduce_xor(operand: Any, axes: Sequence[int]) -> Array:
    """Exclusive or of `operand` over the dims `axes`, of bools or of integers' bits.

    >>> lax.reduce_xor(jnp.array([6, 3]), (0,))
    Array(5, dtype=int32)
    """
    return _bind_reduction(reduce_xor_p, operand, axes)
