"""Elementwise selection: `select_n`, `select`, `clamp`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shardwise.base.shapes import Ndarray
from shardwise.base.small_integers import by_bytes, is_below_byte
from shardwise.ir import Array, Equation, ShapedArray, Shown, bind, define_op
from shardwise.ir.explicit import elementwise_error, specs_from_rule
from shardwise.ir.op import Params, Types, find_op
from shardwise.ir.types import Spec
from shardwise.ops.elementwise import elementwise_ir as ir
from shardwise.ops.rules.derivative import along, do, full_cotangent, is_linear, spread, unbroadcast
from shardwise.ops.rules.operands import align_blocks, broadcast_shape, check_same_dtype, dtype_kind, operand, operands
from shardwise.runtime import extrema
from shardwise.runtime.env import Env
from shardwise.sharding.rule import Rule

__all__ = ["clamp", "select", "select_n"]


def _select_type(which: ShapedArray, *cases: ShapedArray) -> ShapedArray:
    """More general than `lax.select_n`: operands of rank 0 and dims of size 1 broadcast."""
    if len(cases) == 0:
        raise ValueError("select_n needs at least one case.")
    kind = dtype_kind(which.dtype)
    if kind not in "biu":
        raise TypeError(f"select_n: `which` must be of bool or integer type, got {which.dtype.name}.")
    if kind == "b" and len(cases) > 2:
        raise TypeError(
            f"select_n: a bool `which` chooses between at most 2 cases, got {len(cases)}. Use an int32 `which`."
        )
    check_same_dtype("select_n", cases)
    shape = broadcast_shape("select_n", [which.shape, *[c.shape for c in cases]])
    return ShapedArray(shape, cases[0].dtype, all(c.weak_type for c in cases))


def _select_explicit(in_types: Types, out_types: Types, params: Params, rule: Rule) -> tuple[Spec, ...]:
    """Cases and `which` have the same sharding; scalars, dims of size 1 and operands without a mesh adapt."""
    if not _agree(in_types[1:]):
        specs_text = ", ".join(str(t.sharding.spec) for t in in_types[1:])
        raise elementwise_error(f"select_n takes cases of one sharding, got [{specs_text}]. Reshard one of them.")
    if not _agree(in_types):
        raise elementwise_error(
            "select_n: `which` must be a scalar or have the sharding of the cases, got "
            f"{in_types[0].sharding.spec} for cases with {in_types[1].sharding.spec}. Reshard it."
        )
    return specs_from_rule("select_n", in_types, out_types, rule)


def _agree(types: Sequence[ShapedArray]) -> bool:
    """Whether all are sharded alike, dim by dim, except for dims of size 1."""
    mesh_types = [t for t in types if t.ndim and t.mesh is not None]
    dims = zip(*[zip(t.shape, t.spec, strict=True) for t in mesh_types], strict=True)
    return all(len({axes for size, axes in dim if size > 1}) <= 1 for dim in dims)


_BIG = 1 << 14  # elements; from here on mispredicted branches cost more than NumPy calls


def _choose(which: Ndarray, no: Ndarray, yes: Ndarray) -> Ndarray:
    """``np.where(which, yes, no)``; for many elements by bit operations, as NumPy's loop branches on each element."""
    if which.size < _BIG or no.dtype.itemsize > 8:
        return np.where(which, yes, no)
    bits = np.dtype(f"i{no.dtype.itemsize}")
    no = no.view(bits)
    mask = np.negative(which.view(np.int8), dtype=bits)  # 0 or all bits
    out = np.bitwise_xor(yes.view(bits), no)
    out = np.bitwise_and(out, mask, out=out) if out.shape == mask.shape else np.bitwise_and(out, mask)
    return np.bitwise_xor(out, no, out=out).view(yes.dtype)


def _select(which: Ndarray, *cases: Ndarray) -> Ndarray:
    if which.dtype.kind == "b":
        return _choose(which, cases[0], cases[-1])
    out = cases[0]
    for i, case in enumerate(cases[1:], 1):  # an index out of range selects the nearest case
        out = _choose(which >= i, out, case)
    return out


def _select_kernel(env: Env, *blocks: Ndarray) -> Ndarray:
    return _select(*align_blocks(blocks))


def _select_jvp(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
    which, *cases = primals
    out = bind(select_n_p, which, *cases)
    if all(t is None for t in tangents):
        return out, None
    return out, spread(do.select_n(which, *[0 if t is None else t for t in tangents[1:]]), out.aval)


def _select_transpose(ct: Any, which: Any, *cases: Any) -> list[Any]:
    def pull_case(i: int) -> Any:
        aval = cases[i].aval
        zero = (
            full_cotangent(aval) if aval.reduced and aval.shape == ct.shape else 0
        )  # partial sums, like the cotangent
        return unbroadcast(do.select_n(which, *[ct if j == i else zero for j in range(len(cases))]), aval)

    return [None, *(pull_case(i) if is_linear(c) else None for i, c in enumerate(cases))]


def _select_parts(values: tuple[Any, ...], params: dict[str, Any]) -> Any:
    """JAX's cases are of one shape: smaller ones are broadcast."""
    which, *cases = values
    shape = np.broadcast_shapes(*[v.aval.shape for v in values])
    if all(c.aval.shape == shape for c in cases) or any(v.aval.mesh is not None for v in values):
        return None
    return bind(select_n_p, which, *[_wide(c, shape) for c in cases], **params)


def _wide(case: Any, shape: tuple[int, ...]) -> Any:
    dims = tuple(range(len(shape) - len(case.aval.shape), len(shape)))
    if case.aval.shape == shape:
        return case
    return do.broadcast_in_dim(case, shape=shape, broadcast_dimensions=dims, out_sharding=None)


select_n_p = define_op(
    "select_n",
    type_rule=_select_type,
    kernel=_select_kernel,
    ufunc=_select,
    emit=ir.SELECT_N,
    additive=(1, None),
    explicit=_select_explicit,
    shown=Shown(parts=_select_parts),
    jvp=_select_jvp,
    transpose=_select_transpose,
)


# -- operands of branches that were not taken ----------------------------------------------------------------------------


def _guarded_type(taken: ShapedArray, x: ShapedArray) -> ShapedArray:
    return x


def _guarded_jvp(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
    is_taken, x = primals
    out, t = bind(guarded_p, is_taken, x), tangents[1]
    return out, None if t is None else spread(do.select_n(is_taken, 0, t), out.aval)


def _guarded_parts(values: tuple[Any, ...], params: dict[str, Any]) -> Any:
    is_taken, x = values
    shape = x.aval.shape
    still = do.stop_gradient(x)
    if x.aval.mesh is not None:
        return bind(select_n_p, is_taken, still, x)
    return bind(select_n_p, _wide(is_taken, shape), still, x)


def _drop_guard(eqn: Equation) -> Equation:
    """In a program to be compiled nothing more is differentiated."""
    return Equation(find_op("copy"), eqn.inputs[1:], eqn.outputs, {}, eqn.source)


# `x`, whose derivative is zero where not `taken`, whatever slope comes back: infinity and NaN included.
guarded_p = define_op(
    "guarded",
    type_rule=_guarded_type,
    kernel=lambda env, taken, x: x,
    explicit=lambda in_types, out_types, params, rule: (in_types[1].spec,),
    shown=Shown(parts=_guarded_parts),
    jvp=_guarded_jvp,
    static=_drop_guard,
)


def select_n(which: Any, *cases: Any) -> Array:
    """Elementwise ``cases[which]``.

    Args:
        which: bool (case 0 or 1) or integer, a scalar or of the cases' shape.
        cases: values of one shape and dtype.

    Raises:
        TypeError: shapes or dtypes differ, or a bool `which` meets more than two cases.

    >>> lax.select_n(jnp.array([0, 1]), jnp.array([1, 2]), jnp.array([10, 20]))
    Array([ 1, 20], dtype=int32)
    """
    chooser, values = operand("select_n", which), operands("select_n", *cases)
    shapes = [v.shape for v in values]
    if any(s != shapes[0] for s in shapes):
        raise TypeError(
            f"select_n takes cases of one shape, got {', '.join(map(str, shapes))}. Use jnp.where to broadcast."
        )
    if values and chooser.shape not in ((), shapes[0]):
        raise TypeError(
            f"select_n: `which` must be scalar or have the same shape as cases, {shapes[0]}, got {chooser.shape}."
        )
    return bind(select_n_p, chooser, *values)


def select(pred: Any, on_true: Any, on_false: Any) -> Array:
    """Elementwise `on_true` where `pred` is true, else `on_false`; see `select_n`.

    >>> lax.select(jnp.array([True, False]), jnp.array([1, 2]), jnp.array([10, 20]))
    Array([ 1, 20], dtype=int32)
    """
    return select_n(pred, on_false, on_true)


def _clamp_type(low: ShapedArray, x: ShapedArray, high: ShapedArray) -> ShapedArray:
    check_same_dtype("clamp", (low, x, high))
    if dtype_kind(x.dtype) in "ck0":
        raise TypeError(f"clamp does not accept dtype {x.dtype.name}; expected bool, integer or floating.")
    shape = broadcast_shape("clamp", [low.shape, x.shape, high.shape])
    return ShapedArray(shape, x.dtype, low.weak_type and x.weak_type and high.weak_type)


@functools.cache
def _clamp_of(dtype: Any) -> Callable[[Ndarray, Ndarray, Ndarray], Ndarray]:
    """The kernel for blocks of `dtype`."""
    if is_below_byte(dtype):
        return by_bytes(_clamp)
    maximum, minimum = extrema.function("max", dtype), extrema.function("min", dtype)
    simple = not extrema.has_signs(dtype)

    def clamp(low: Ndarray, x: Ndarray, high: Ndarray) -> Ndarray:
        if x.size >= _BIG and dtype.kind in "iuf" and np.all(low) and np.all(high):  # one pass, but slow to start
            return np.clip(x, low, high)
        out = np.minimum(np.maximum(x, low), high)
        if simple or extrema.no_zeros(out):
            return out
        return minimum(maximum(x, low), high)

    return clamp


def _clamp(low: Ndarray, x: Ndarray, high: Ndarray) -> Ndarray:
    return _clamp_of(x.dtype)(low, x, high)


def _clamp_kernel(env: Env, low: Ndarray, x: Ndarray, high: Ndarray) -> Ndarray:
    return _clamp(*align_blocks((low, x, high)))


_CLAMP_PUSHES = (
    lambda t, out, low, x, high: do.select_n(do.and_(do.gt(low, x), do.lt(low, high)), 0, t),
    lambda t, out, low, x, high: do.select_n(do.and_(do.gt(x, low), do.lt(x, high)), 0, t),
    lambda t, out, low, x, high: do.select_n(do.lt(high, x), 0, t),
)
clamp_p = define_op(
    "clamp",
    type_rule=_clamp_type,
    kernel=_clamp_kernel,
    ufunc=_clamp,
    ufunc_of=lambda low, x, high: _clamp_of(x),
    emit=ir.CLAMP,
    jvp=along("clamp", _CLAMP_PUSHES),
)


def clamp(min: Any, x: Any, max: Any) -> Array:
    """Elementwise `x` limited to the range from `min` to `max` (scalars or of the shape of `x`); NaN stays NaN.

    Raises:
        TypeError: a bound has dims and another shape than `x`, or dtypes differ.

    >>> lax.clamp(0, jnp.array([-3, 1, 9]), 5)
    Array([0, 1, 5], dtype=int32)
    """
    low, value, high = operands("clamp", min, x, max)
    for name, bound in (("min", low), ("max", high)):
        if bound.shape not in ((), value.shape):
            raise TypeError(
                f"clamp: {name} must be a scalar or have the operand's shape {value.shape}, got {bound.shape}."
            )
    return bind(clamp_p, low, value, high)
