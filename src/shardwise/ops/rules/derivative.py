"""Parts of derivative rules: ops by name, zeros, and cotangents of broadcast operands.

Comes in: from an op's definition, a function per operand that pushes its tangent forward (`push`) and, for linear operands, one
that pulls a cotangent back (`pull`). Goes out: the fields `jvp` and `transpose` of `Op`. A rule refers to ops by name
(`do.mul(t, do.cos(x))`) and looks them up when it runs, which avoids import cycles between files of ops.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import numpy as np

from shardwise.base.dtypes import issubdtype
from shardwise.ir import Array, Literal, ShapedArray, bind, literal
from shardwise.ir.axis_scope import SPMD_AXES
from shardwise.ir.op import Op, UndefinedPrimal, find_op
from shardwise.sharding import NamedSharding, PartitionSpec

Rule = Callable[..., Any]
Pushes = Rule | Sequence[Rule | None]


class _Bound:
    """Functions that bind ops: ``do.add(x, y)``; Python scalars become literals of the arrays' dtype."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        try:
            op = find_op(name.removesuffix("_"))
        except KeyError:
            raise AttributeError(f"there is no op named {name!r}") from None

        def call(*args: Any, **params: Any) -> Any:
            if all(isinstance(a, (Array, Literal)) for a in args):
                return bind(op, *args, **params)
            if any(isinstance(a, UndefinedPrimal) for a in args):
                raise NotImplementedError(
                    "the function is not linear: to transpose it, the value of something is needed that depends on the arguments "
                    f"(an operand of {op.name}). Use vjp, which takes the point to linearize at."
                )
            beside = next(a.aval for a in reversed(args) if isinstance(a, (Array, Literal)))
            return bind(
                op, *[a if isinstance(a, (Array, Literal)) else _rule_literal(a, beside) for a in args], **params
            )

        self.__dict__[name] = call
        return call


do: Any = _Bound()


def scalar(value: Any, dtype: Any) -> Literal:
    """A weakly typed constant: it does not change the weak type of the other operands."""
    return literal(value, dtype, weak_type=True)


def strong(value: Any, dtype: Any) -> Literal:
    """A strongly typed constant: what is computed from it is strongly typed."""
    return literal(value, dtype)


def strongly(x: Any) -> Any:
    """`x` strongly typed."""
    return do.convert_element_type(x, new_dtype=x.dtype, weak_type=False) if x.aval.weak_type else x


def number(value: Any, beside: ShapedArray) -> Literal:
    """A number in a rule that JAX has strongly typed beside arrays with dims, and weakly typed beside scalars."""
    return literal(value, beside.dtype, weak_type=not beside.shape)


def _rule_literal(value: Any, beside: ShapedArray) -> Literal:
    """The number that a rule writes as such: most zeros and ones of JAX's rules are weakly typed everywhere."""
    return scalar(value, beside.dtype) if value in (0, 1) else number(value, beside)


def is_linear(x: Any) -> bool:
    """Whether a transpose rule must give a cotangent for this operand."""
    return isinstance(x, UndefinedPrimal)


# -- types of tangents ---------------------------------------------------------------------------------------------------


def has_tangent(aval: ShapedArray) -> bool:
    """Whether values of this type can be differentiated: floats and complex numbers."""
    return bool(issubdtype(aval.dtype, np.inexact))


def cotangent_sharding(aval: ShapedArray, *others: ShapedArray) -> NamedSharding | None:
    """The sharding over Explicit axes of a cotangent of a value with this type; None if there are no such axes.

    Over axes on which the value is `reduced` its cotangent is a partial sum (unreduced), and vice versa. The cotangent of a value that
    lies on no mesh is whole on that of the `others`, the values that it is made of.
    """
    if aval.mesh is None:
        mesh = next((t.mesh for t in others if t.mesh is not None), None)
        return None if mesh is None else NamedSharding(mesh, PartitionSpec(*[None] * aval.ndim))
    entries = [None if not axes else axes[0] if len(axes) == 1 else axes for axes in aval.spec]
    marks: dict[str, Any] = {}
    if aval.reduced:
        marks["unreduced"] = set(aval.reduced)
    if aval.unreduced:
        marks["reduced"] = set(aval.unreduced)
    return NamedSharding(aval.mesh, PartitionSpec(*entries, **marks))


def dims_sharding(sharding: NamedSharding | None, dims: Sequence[int]) -> NamedSharding | None:
    """`sharding` with its dims permuted."""
    if sharding is None:
        return None
    entries = sharding.spec.partitions
    marks = {k: set(v) for k in ("unreduced", "reduced") if (v := getattr(sharding.spec, k, None))}
    return NamedSharding(sharding.mesh, PartitionSpec(*[entries[d] for d in dims], **marks))


# -- shapes --------------------------------------------------------------------------------------------------------------


def full_cotangent(aval: ShapedArray, value: Any = 0) -> Array:
    """An array of this type's shape and dtype, filled with one value and laid out as cotangents are."""
    result = do.broadcast_in_dim(
        literal(value, aval.dtype, weak_type=aval.weak_type),
        shape=aval.shape,
        broadcast_dimensions=(),
        out_sharding=cotangent_sharding(aval),
    )
    if aval.mesh is None and not value:  # zeros are partial sums of zeros
        for axes, to in ((aval.reduced, "unreduced"), (aval.unreduced, "reduced")):
            result = do.pcast(result, axes=tuple(sorted(axes)), to=to) if axes else result
    return result


def positions(aval: ShapedArray, dim: int) -> Array:
    """int32: each element's index along `dim`, in this type's shape and layout."""
    sharding = None if aval.mesh is None else aval.sharding
    return do.iota(dtype=np.dtype(np.int32), shape=aval.shape, dimension=dim, out_sharding=sharding)


def spread(x: Any, aval: ShapedArray) -> Any:
    """`x` broadcast to the shape of an elementwise result."""
    shape = aval.shape
    if x.shape == shape:
        return x
    dims = tuple(range(len(shape))) if x.ndim else ()
    return do.broadcast_in_dim(x, shape=shape, broadcast_dimensions=dims, out_sharding=cotangent_sharding(aval))


def unbroadcast(ct: Array, aval: ShapedArray) -> Array:
    """The cotangent of an operand of this type that was broadcast to the shape of `ct`: `ct` summed over the repeated dims."""
    shape = aval.shape
    if ct.shape == shape:
        return ct
    if not shape:
        return do.reduce_sum(ct, axes=tuple(range(ct.ndim)))
    axes = tuple(d for d, n in enumerate(shape) if n == 1 and ct.shape[d] != 1)
    kept_dims = tuple(d for d in range(len(shape)) if d not in axes)
    return do.broadcast_in_dim(
        do.reduce_sum(ct, axes=axes), shape=shape, broadcast_dimensions=kept_dims, out_sharding=None
    )


def moved_to_front(x: Any, dim: int) -> Any:
    """`x` with dim `dim` first."""
    return x if dim == 0 else do.transpose(x, permutation=(dim, *(d for d in range(x.ndim) if d != dim)))


def full_in_front(size: int, x: Any, dim: int | None) -> Any:
    """`x` with its mapped dim first; without one, `x` repeated along a new dim, sharded over `SPMD_AXES`."""
    if dim is not None:
        return moved_to_front(x, dim)
    return do.broadcast_in_dim(
        x,
        shape=(size, *x.shape),
        broadcast_dimensions=tuple(range(1, x.ndim + 1)),
        out_sharding=repeated_sharding(size, x.aval, SPMD_AXES.get()),
    )


def repeated_sharding(size: int, aval: ShapedArray, split: tuple[str, ...]) -> NamedSharding | None:
    """The sharding of a value of that type repeated along a new first dim; None unless Explicit axes `split` divide that dim."""
    mesh = aval.mesh
    if not split or mesh is None or not set(split) <= set(mesh.explicit_axes):
        return None
    if size % math.prod(mesh.axis_size(a) for a in split):
        return None
    spec = aval.sharding.spec
    return NamedSharding(mesh, spec.update(partitions=(split, *spec.partitions)))


def with_dtype(x: Any, aval: ShapedArray) -> Any:
    """`x` converted to the dtype of `aval`."""
    if x.dtype == aval.dtype:
        return x
    return do.convert_element_type(x, new_dtype=aval.dtype, weak_type=aval.weak_type)


# -- rules ---------------------------------------------------------------------------------------------------------------


def along(name: str, push: Pushes) -> Rule:
    """The jvp rule of an elementwise op: the sum of the operands' tangents, each pushed forward by its entry of `push`.

    An entry of `push` is ``(tangent, result, *operands, **params) -> tangent of the result``, or None where the op does not
    depend smoothly on that operand. Without entries the derivative is zero everywhere.
    """
    pushes = (push,) if callable(push) else tuple(push)

    def jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> tuple[Any, Any]:
        out = bind(find_op(name), *primals, **params)
        if not has_tangent(out.aval):
            return out, None
        total = None
        for one, t in zip(pushes, tangents, strict=False):
            if t is not None and one is not None:
                part = one(t, out, *primals, **params)
                total = part if total is None else do.add(total, part)
        return out, None if total is None else spread(total, out.aval)

    return jvp


def back(pull: Pushes) -> Rule:
    """The transpose rule of an elementwise op: `pull` has ``(ct, *operands, **params) -> ct`` per operand, None if not linear."""
    pulls = (pull,) if callable(pull) else tuple(pull)

    def transpose(ct: Any, *args: Any, **params: Any) -> list[Any]:
        return [
            unbroadcast(one(ct, *args, **params), a.aval) if one is not None and is_linear(a) else None
            for one, a in zip(pulls, args, strict=False)
        ] + [None] * (len(args) - len(pulls))

    return transpose


def unknown_derivative(name: str, operand: str) -> Rule:
    """An entry of `push` for an operand without a known derivative: raises NotImplementedError."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise NotImplementedError(f"{name} has no derivative in {operand}. Use stop_gradient there, or custom_jvp.")

    return refuse


def later(module: str, name: str) -> Rule:
    """A rule defined in another module, which is imported when the rule first runs."""
    loaded_rules: list[Rule] = []

    def rule(*args: Any, **params: Any) -> Any:
        if not loaded_rules:
            loaded_rules.append(getattr(import_module(module), name))
        return loaded_rules[0](*args, **params)

    return rule


def linear_jvp(name: str, only: Sequence[int] | None = None) -> Rule:
    """The jvp rule of an op that is jointly linear in its operands `only` (all if None): the op applied to their tangents."""

    def jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> tuple[Any, Any]:
        op = find_op(name)
        outs = bind(op, *primals, **params)
        chosen = range(len(primals)) if only is None else only
        if all(tangents[i] is None for i in chosen):
            return outs, [None] * len(outs) if op.multiple_results else None
        args = list(primals)
        for i in chosen:
            args[i] = full_cotangent(primals[i].aval) if tangents[i] is None else tangents[i]
        return outs, bind(op, *args, **params)

    return jvp


def multilinear_jvp(name: str, operands: Sequence[int]) -> Rule:
    """The jvp rule of an op that is linear in each of `operands` separately: the product rule."""

    def jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> tuple[Any, Any]:
        op: Op = find_op(name)
        out = bind(op, *primals, **params)
        total = None
        for i in operands:
            if tangents[i] is not None:
                part = bind(op, *[tangents[i] if j == i else p for j, p in enumerate(primals)], **params)
                total = part if total is None else do.add(total, part)
        return out, total

    return jvp
