"""The rules of derivatives and batching that users give their primitives, and the registries where JAX keeps them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from shardwise.base.tree import register_pytree_node
from shardwise.ir import ShapedArray
from shardwise.ir.op import Op, UndefinedPrimal
from shardwise.ops.rules.convert import as_array, as_value, given_to_user
from shardwise.transforms.interpreters.batch_trace import BatchTrace
from shardwise.transforms.interpreters.jvp import zeros
from shardwise.transforms.programs.primitives import Primitive


class Zero:
    """A zero tangent or cotangent that is not computed; `aval` is its type."""

    __slots__ = ("aval",)

    def __init__(self, aval: ShapedArray) -> None:
        self.aval = aval

    def __repr__(self) -> str:
        return f"Zero({self.aval.str_short()})"

    @staticmethod
    def from_primal_value(value: Any) -> Zero:
        """The zero tangent of a value."""
        return Zero(as_array(value).aval)


register_pytree_node(Zero, lambda zero: ((), zero.aval), lambda aval, _: Zero(aval))


def _zeros_in(values: Sequence[Any], like: Sequence[Any]) -> list[Any]:
    return [Zero(x.aval) if v is None else v for v, x in zip(values, like, strict=True)]


def _zeros_out(values: Any) -> Any:
    return [None if v is None or type(v) is Zero else as_array(as_value(v)) for v in values]


class Rules(dict[Primitive, Any]):
    """Rules by primitive. Setting one gives it to the primitive's op, as its `kind`; those that the library's own ops have
    stay as they are."""

    def __init__(self, give: Callable[[Primitive, Op, Any], None], kind: str) -> None:
        super().__init__()
        self._give = give
        self._kind = kind

    def __setitem__(self, primitive: Primitive, rule: Any) -> None:
        if primitive.is_ours and getattr(primitive.op, self._kind) is not None:
            raise TypeError(
                f"{primitive} is an op of the library, whose rules cannot be replaced; wrap it in custom_jvp or custom_vmap."
            )
        super().__setitem__(primitive, rule)
        self._give(primitive, primitive.own_op(), rule)


def _give_jvp(primitive: Primitive, op: Op, rule: Callable[..., Any]) -> None:
    def jvp(primals: Sequence[Any], tangents: Sequence[Any], /, **params: Any) -> Any:
        tangents = _zeros_in(given_to_user(tangents), primals)
        out, tangent = rule(tuple(given_to_user(primals)), tuple(tangents), **params)
        if op.multiple_results:
            return [as_array(as_value(o)) for o in out], _zeros_out(tangent)
        return as_array(as_value(out)), _zeros_out([tangent])[0]

    op.jvp = jvp


def _give_transpose(primitive: Primitive, op: Op, rule: Callable[..., Any]) -> None:
    def transpose(ct: Any, /, *args: Any, **params: Any) -> Any:
        cts = given_to_user(ct if op.multiple_results else [ct])
        cotangents = rule(cts if op.multiple_results else cts[0], *given_to_user(args), **params)
        return _zeros_out(cotangents)

    op.transpose = transpose


def _give_batcher(primitive: Primitive, op: Op, rule: Callable[..., Any]) -> None:
    _give_axis_batcher(
        primitive, op, lambda size, axis_name, kind, values, dims, /, **params: rule(values, dims, **params)
    )


def _give_axis_batcher(primitive: Primitive, op: Op, rule: Callable[..., Any]) -> None:

    def batch(size: int, axis_name: Any, values: Sequence[Any], dims: Sequence[int | None], params: Any) -> Any:
        outs, out_dims = rule(size, axis_name, BatchTrace, tuple(given_to_user(values)), tuple(dims), **params)
        many, many_dims = (outs, out_dims) if op.multiple_results else ([outs], [out_dims])
        return [as_array(as_value(o)) for o in many], list(many_dims)

    op.batch = batch


primitive_jvps = Rules(_give_jvp, "jvp")


primitive_transposes = Rules(_give_transpose, "transpose")


primitive_batchers = Rules(_give_batcher, "batch")


axis_primitive_batchers = Rules(_give_axis_batcher, "batch")


def _without_result(rule: Callable[..., Any]) -> Callable[..., Any]:
    return lambda t, ans, /, *ps, **params: rule(t, *ps, **params)


def defjvp(primitive: Primitive, *rules: Callable[..., Any] | None) -> None:
    """One rule per operand: ``rule(tangent, *primals, **params)``; None where there is no derivative."""
    given = [None if rule is None else _without_result(rule) for rule in rules]
    defjvp2(primitive, *given)


def defjvp2(primitive: Primitive, *rules: Callable[..., Any] | None) -> None:
    """One rule per operand: ``rule(tangent, result, *primals, **params)``."""

    def jvp(primals: Sequence[Any], tangents: Sequence[Any], /, **params: Any) -> Any:
        out = primitive.bind(*primals, **params)
        parts = [
            rule(t, out, *primals, **params)
            for rule, t in zip(rules, tangents, strict=True)
            if rule and type(t) is not Zero
        ]
        total: Any = None
        for part in parts:
            if type(part) is not Zero:
                total = part if total is None else total + part
        return out, Zero(out.aval) if total is None else total

    primitive_jvps[primitive] = jvp


def deflinear2(primitive: Primitive, transpose_rule: Callable[..., Any]) -> None:
    """It is linear in all of its operands: ``transpose_rule(ct, *operands, **params)`` gives a cotangent for each."""

    def jvp(primals: Sequence[Any], tangents: Sequence[Any], /, **params: Any) -> Any:
        out = primitive.bind(*primals, **params)
        return out, primitive.bind(*[instantiate_zeros(t) for t in tangents], **params)

    primitive_jvps[primitive] = jvp
    primitive_transposes[primitive] = transpose_rule


def deflinear(primitive: Primitive, transpose_rule: Callable[..., Any]) -> None:
    """Like `deflinear2`, for ``transpose_rule(ct, **params)``."""
    deflinear2(primitive, lambda ct, /, *_, **params: transpose_rule(ct, **params))


def instantiate_zeros(tangent: Any) -> Any:
    """`tangent` as an array if it is a Zero; other values as they are.

    >>> jax.experimental.hijax.instantiate_zeros(2.0)
    2.0
    """

    return zeros(tangent.aval) if type(tangent) is Zero else tangent


def is_undefined_primal(x: Any) -> bool:
    """Whether a transpose rule is asked for the cotangent of the operand `x`.

    >>> jax.experimental.hijax.is_undefined_primal(2.0)
    False
    """
    return type(x) is UndefinedPrimal
