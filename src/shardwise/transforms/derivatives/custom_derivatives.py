"""Derivatives given by hand, beyond `custom_jvp` and `custom_vjp`: `custom_gradient`, `closure_convert`, `linear_call`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from shardwise.base.tree import PyTreeDef, register_pytree_node, tree_leaves, tree_unflatten
from shardwise.base.wrapping import wraps
from shardwise.ir import Array, Program, Tracer, bind, eval_program, trace_program
from shardwise.ir.op import UndefinedPrimal
from shardwise.ops.rules.convert import as_array, as_value, given_to_user
from shardwise.ops.rules.derivative import has_tangent
from shardwise.transforms.derivatives.arguments import flat_arrays
from shardwise.transforms.derivatives.custom_jvp import custom_jvp as custom_jvp
from shardwise.transforms.derivatives.custom_rules import CustomVJPPrimal as CustomVJPPrimal
from shardwise.transforms.derivatives.custom_rules import SymbolicZero as SymbolicZero
from shardwise.transforms.derivatives.custom_rules import define_call, function_name
from shardwise.transforms.derivatives.custom_vjp import custom_vjp as custom_vjp
from shardwise.transforms.interpreters.jvp import cotangent_zeros, tangent_type, zeros


class _TracedRule:
    """A backward rule as a program, and its residuals: the values that the rule captured."""

    def __init__(self, residuals: Sequence[Any], program: Program, in_tree: PyTreeDef) -> None:
        self.residuals = residuals
        self.program = program
        self.in_tree = in_tree


register_pytree_node(
    _TracedRule,
    lambda r: (tuple(r.residuals), (r.program, r.in_tree)),
    lambda aux, children: _TracedRule(children, *aux),
)


def custom_gradient(fun: Callable[..., Any]) -> Callable[..., Any]:
    """A function whose `fun` returns ``(result, vjp)``, `vjp` mapping a cotangent of the result to those of the arguments.

    `vjp` returns a tuple of one cotangent per argument, or just that of the only argument.

    >>> @jax.custom_gradient
    ... def clipped(x):
    ...     return x, lambda ct: jnp.clip(ct, -1.0, 1.0)
    >>> jax.grad(lambda x: 5 * clipped(x))(2.0)
    Array(1., dtype=float32, weak_type=True)
    """

    @wraps(fun)
    def primal(*args: Any, **kwargs: Any) -> Any:
        return fun(*args, **kwargs)[0]

    def forward(*args: Any) -> Any:
        out, vjp = fun(*args)
        outs, out_tree = flat_arrays(out)
        in_tree: PyTreeDef | None = None

        def flat(*cts: Any) -> list[Any]:
            nonlocal in_tree
            cotangents = vjp(tree_unflatten(out_tree, cts))
            cotangents = tuple(cotangents) if isinstance(cotangents, (list, tuple)) else (cotangents,)
            if len(cotangents) != len(args):
                raise TypeError(
                    f"custom_gradient: the vjp of {function_name(fun)} must give one cotangent per argument, {len(args)}, but "
                    f"gave {len(cotangents)}."
                )
            leaves, in_tree = flat_arrays(cotangents)
            return leaves

        program, consts = trace_program(flat, [tangent_type(o.aval) for o in outs], function_name(vjp))
        assert in_tree is not None
        return out, _TracedRule(consts, program, in_tree)

    def backward(rule: _TracedRule, ct: Any) -> Any:
        leaves = [as_array(as_value(c)) for c in tree_leaves(ct)]
        return tree_unflatten(rule.in_tree, eval_program(rule.program, [*rule.residuals, *leaves]))

    custom = custom_vjp(primal)
    custom.defvjp(forward, backward)
    return custom


def closure_convert(fun: Callable[..., Any], *example_args: Any) -> tuple[Callable[..., Any], list[Array]]:
    """``(converted, values)`` with ``converted(*args, *values) == fun(*args)`` for arguments like `example_args`. The
    values are the traced floats that `fun` closes over: as arguments, functions with custom derivatives can
    differentiate them.

    >>> f, consts = jax.closure_convert(lambda x: x + 1.0, 2.0)
    >>> f(2.0, *consts)
    Array(3., dtype=float32, weak_type=True)
    """
    return with_arguments_for(lambda c: isinstance(c, Tracer) and has_tangent(c.aval), fun, *example_args)


def with_arguments_for(
    chosen: Callable[[Any], bool], fun: Callable[..., Any], *example_args: Any
) -> tuple[Callable[..., Any], list[Array]]:
    """`closure_convert` for the `chosen` ones of the values that `fun` closes over."""
    leaves, structure = flat_arrays(example_args)
    out_tree: PyTreeDef | None = None

    def flat(*values: Any) -> list[Any]:
        nonlocal out_tree
        outs, out_tree = flat_arrays(fun(*tree_unflatten(structure, values)))
        return outs

    program, consts = trace_program(flat, [x.aval for x in leaves], function_name(fun))
    hoisted_consts = [i for i, c in enumerate(consts) if chosen(c)]

    def converted_call(*args: Any) -> Any:
        count = len(args) - len(hoisted_consts)
        values, given_structure = flat_arrays(args[:count])
        if given_structure != structure:
            raise TypeError(
                f"the converted closure takes arguments of the structure of its examples, {structure}, got {given_structure}."
            )
        captured_values = list(consts)
        for i, value in zip(hoisted_consts, args[count:], strict=True):
            captured_values[i] = value
        assert out_tree is not None
        return tree_unflatten(out_tree, eval_program(program, [*captured_values, *values]))

    return converted_call, [consts[i] for i in hoisted_consts]


# -- linear_call -----------------------------------------------------------------------------------------------------------


def linear_call(
    fun: Callable[..., Any], fun_transpose: Callable[..., Any], residual_args: Any, linear_args: Any
) -> Any:
    """``fun(residual_args, linear_args)``, linear in the latter, with ``fun_transpose(residual_args, ct)`` as its transpose.

    >>> half = lambda scale, x: x / scale
    >>> f = lambda x: jax.custom_derivatives.linear_call(half, lambda scale, ct: ct / scale, 2.0, x)
    >>> jax.grad(f)(3.0)
    Array(0.5, dtype=float32, weak_type=True)
    """
    residuals, residual_tree = flat_arrays(residual_args)
    values, value_tree = flat_arrays(linear_args)
    out_tree: PyTreeDef | None = None

    def flat(*leaves: Any) -> list[Any]:
        nonlocal out_tree
        n = len(residuals)
        outs, out_tree = flat_arrays(
            fun(tree_unflatten(residual_tree, leaves[:n]), tree_unflatten(value_tree, leaves[n:]))
        )
        return outs

    def transpose_call(leaves: Sequence[Any], cts: Sequence[Any]) -> list[Any]:
        assert out_tree is not None
        residuals, given = (
            tree_unflatten(residual_tree, given_to_user(leaves)),
            tree_unflatten(out_tree, given_to_user(cts)),
        )
        cotangents, tree = flat_arrays(fun_transpose(residuals, given))
        if tree != value_tree:
            raise TypeError(
                f"transpose output pytree structure must match that of linear inputs, got output structure {tree} and input "
                f"structure {value_tree}."
            )
        return cotangents

    program, consts = trace_program(flat, [x.aval for x in (*residuals, *values)], function_name(fun))
    assert out_tree is not None
    outs = bind(
        linear_call_op,
        *consts,
        *residuals,
        *values,
        program=program,
        known=len(consts) + len(residuals),
        first=len(consts),
        transposed=transpose_call,
    )
    return tree_unflatten(out_tree, outs)


def _linear_call_jvp(primals: Sequence[Any], tangents: Sequence[Any], *, known: int, **params: Any) -> Any:
    if any(t is not None for t in tangents[:known]):
        raise NotImplementedError("linear_call is not differentiable in its residual arguments; use custom_vjp.")
    given = [zeros(p.aval) if t is None else t for p, t in zip(primals[known:], tangents[known:], strict=True)]
    params["known"] = known
    return bind(linear_call_op, *primals, **params), bind(linear_call_op, *primals[:known], *given, **params)


def _linear_call_transpose(
    cts: Sequence[Any], *args: Any, program: Program, known: int, first: int, transposed: Callable[..., Any]
) -> list[Any]:
    given = [cotangent_zeros(t) if c is None else c for c, t in zip(cts, program.out_types, strict=True)]
    cotangents = transposed(args[first:known], given)
    return [None] * known + [
        c if isinstance(a, UndefinedPrimal) else None for c, a in zip(cotangents, args[known:], strict=True)
    ]


linear_call_op = define_call("linear_call", jvp=_linear_call_jvp, transpose=_linear_call_transpose)
