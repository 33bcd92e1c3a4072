"""What a library makes of an expression: the value, and the derivative in each float operand, forwards and in reverse."""

from __future__ import annotations

import ast
from typing import Any

import numpy as np

from tests.special_points.points import OPERANDS


def operands_of(expression: str) -> list[str]:
    """The operands that an expression names."""
    names = {node.id for node in ast.walk(ast.parse(expression, mode="eval")) if isinstance(node, ast.Name)}
    return [name for name in OPERANDS if name in names]


def direction(jnp: Any, x: Any, one: Any) -> Any:
    """A tangent or cotangent: ones, and numbers that differ along rows; times `one`, so that no compiler knows them."""
    out = np.ones(x.shape, np.float32)
    if len(x.shape) == 2:
        out[:] = np.resize([1.0, 2.0, -3.0], x.shape[1])
    return jnp.multiply(jnp.asarray(out, x.dtype), jnp.asarray(one, x.dtype))


def is_inexact(x: Any) -> bool:
    return x.dtype.kind in "fc" or x.dtype.name == "bfloat16"


def answer(
    jax: Any, scope: dict[str, Any], expression: str, wrap: Any = lambda f: f, forward: bool = True
) -> dict[str, Any]:
    """Arrays by what they are: ``value.0``, ``jvp.a.0``, ``vjp.a``; instead of derivatives ``error``, if there are none."""
    names, jnp = operands_of(expression), scope["jnp"]
    given = {name: jnp.asarray(OPERANDS[name]) for name in names}
    code = compile(expression, expression, "eval")

    def function(**values: Any) -> list[Any]:
        return [leaf for leaf in jax.tree.leaves(eval(code, {**scope, **values})) if hasattr(leaf, "dtype")]

    def value(given: dict[str, Any], one: Any) -> dict[str, Any]:
        return {f"value.{i}": leaf for i, leaf in enumerate(function(**given))}

    def derivatives(given: dict[str, Any], one: Any) -> dict[str, Any]:
        smooth = [name for name in names if is_inexact(given[name])]
        out = value(given, one)
        for name in smooth if forward else ():
            along = lambda v, name=name: function(**{**given, name: v})  # noqa: E731
            _, slopes = jax.jvp(along, (given[name],), (direction(jnp, given[name], one),))
            out |= {f"jvp.{name}.{i}": s for i, s in enumerate(slopes) if is_inexact(s)}
        results, pull = jax.vjp(
            lambda *vs: function(**{**given, **dict(zip(smooth, vs, strict=True))}), *[given[n] for n in smooth]
        )
        if not any(map(is_inexact, results)):
            return value(given, one)
        zero = jax.dtypes.float0
        pulled = pull([direction(jnp, r, one) if is_inexact(r) else np.zeros(r.shape, zero) for r in results])
        return out | {f"vjp.{name}": p for name, p in zip(smooth, pulled, strict=True)}

    try:
        out = wrap(derivatives)(given, np.float32(1))
    except (NotImplementedError, TypeError, ValueError) as error:
        out = wrap(value)(given, np.float32(1))
        out["error"] = type(error).__name__
    return {key: v if isinstance(v, str) else np.asarray(v) for key, v in out.items()}
