"""Symbolic shapes: the scope that variables live in with its constraints, shapes written as text, and sizes found from shapes.

In: texts such as ``"b, 2*h, _"`` and constraints such as ``"b >= 8"``. Out: shapes of `SymbolicDim`s; and for a call with arrays, the
variables' values, or a ValueError that says which shape does not fit.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping, Sequence
from typing import Any

from shardwise.base.dtypes import canonicalize
from shardwise.base.tree import broadcast_prefix, tree_flatten, tree_structure, tree_unflatten
from shardwise.engine.inspection import ShapeDtypeStruct
from shardwise.export.dims import SymbolicDim, evaluate_size, greatest, is_nonnegative, least, simplest
from shardwise.ops.rules.convert import as_value


class SymbolicScope:
    """A set of variables, each a whole number >= 1, and further known facts about them.

    Dims of different scopes do not mix: ValueError.

    Args:
        constraints_str: such as ``"b >= 8"``, ``"h <= w"``, ``"mod(b, 8) == 0"``.

    >>> scope = SymbolicScope(["b <= 64"])
    >>> b, = symbolic_shape("b", scope=scope)
    >>> b <= 100
    True
    """

    def __init__(self, constraints_str: Sequence[str] = ()) -> None:
        if isinstance(constraints_str, str):
            raise ValueError(
                f"The symbolic constraints should be a sequence of strings. Got {constraints_str!r}: put it in a list."
            )
        self.known: list[Any] = []  # sizes that are >= 0
        self.constraints: list[tuple[str, str, Any, Any]] = []
        self._ranges: dict[str, tuple[float, float]] = {}
        for text in constraints_str:
            self._add(text)

    def _add(self, text: str) -> None:
        if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueError(f"Symbolic constraints must be strings, not {text!r}.")
        sign = next((s for s in ("==", ">=", "<=") if s in text), None)
        if sign is None:
            raise ValueError(f"Unsupported symbolic constraint {text!r}: it must hold one of ==, >=, <=.")
        left, right = (_parse_size(part.strip(), self, text) for part in text.split(sign, 1))
        difference = left - right
        if not isinstance(difference, SymbolicDim):
            holds = difference == 0 if sign == "==" else difference >= 0 if sign == ">=" else difference <= 0
            if not holds:
                raise ValueError(f"Unsatisfiable explicit constraint {text!r}.")
            return
        self.constraints.append((text, sign, left, right))
        sides = {"==": (difference, -difference), ">=": (difference,), "<=": (-difference,)}[sign]
        for side in sides:
            self.known.append(side)
            self._narrow(side)

    def _narrow(self, side: SymbolicDim) -> None:
        """The range of a variable, from an inequality that has no other."""
        products = [(p, c) for p, c in side.terms if p]
        constant = sum(c for p, c in side.terms if not p)
        if len(products) != 1 or len(products[0][0]) != 1:
            return
        ((name, power),), c = products[0]
        if not isinstance(name, str) or power != 1:
            return
        low, high = self.range_of(name)
        self._ranges[name] = (max(low, math.ceil(-constant / c)), high) if c > 0 else (low, min(high, constant // -c))
        if self._ranges[name][0] > self._ranges[name][1]:
            raise ValueError(f"The symbolic constraints leave {name!r} no value: {[t for t, *_ in self.constraints]}.")

    def range_of(self, name: str) -> tuple[float, float]:
        """The least and the greatest value of a variable."""
        return self._ranges.get(name, (1, math.inf))

    def same_as(self, other: SymbolicScope) -> bool:
        """Whether dims of both may meet: those of one scope, and of scopes that were loaded from one."""
        return self is other

    def check_same(self, dim: SymbolicDim, what: str) -> None:
        """ValueError unless the dim is of this scope."""
        if not self.same_as(dim.scope):
            raise ValueError(
                f"Invalid mixing of symbolic scopes {what}: '{dim}' is of {dim.scope}, expected {self}. Make all symbolic shapes of a "
                "function by one call of symbolic_shape, or pass scope= to each."
            )

    def violated_constraint(self, env: Mapping[str, int]) -> str | None:
        """The text of a constraint that does not hold for these values."""
        for text, sign, left, right in self.constraints:
            a, b = evaluate_size(left, env), evaluate_size(right, env)
            if not (a == b if sign == "==" else a >= b if sign == ">=" else a <= b):
                return text
        return None

    def __repr__(self) -> str:
        texts = [text for text, *_ in self.constraints]
        return f"SymbolicScope({texts!r})" if texts else f"<SymbolicScope at {id(self):#x}>"


def is_symbolic_dim(p: Any) -> bool:
    """Whether the size `p` is an expression of variables, not a number.

    >>> jax.export.is_symbolic_dim(jax.export.symbolic_shape("b")[0])
    True
    """
    return isinstance(p, SymbolicDim)


def symbolic_shape(
    shape_spec: str | None,
    *,
    constraints: Sequence[str] = (),
    scope: SymbolicScope | None = None,
    like: Sequence[Any] | None = None,
) -> tuple[Any, ...]:
    """The shape that a text such as ``"b, 4, 2*h"`` gives; ``_`` and ``...`` take the dims of `like`.

    Dims are sums, differences and products of names and numbers (``^`` is a power), ``floordiv``, ``mod``, ``max`` and ``min``.

    Args:
        shape_spec: the text; None is ``"..."``.
        constraints: known facts about the variables (`SymbolicScope`), for a scope of its own.
        scope: the scope of the variables; None makes a new one.
        like: the shape that placeholders stand for.

    Raises:
        ValueError: the text names no dims, they do not fit those of `like`, or constraints and scope are both given.

    >>> symbolic_shape("batch, 4")
    (batch, 4)
    """
    if scope is not None and constraints:
        raise ValueError("Cannot specify both a `scope` and `constraints`: give the constraints to the SymbolicScope.")
    scope = SymbolicScope(constraints) if scope is None else scope
    given = None if like is None else tuple(like)
    text = "..." if shape_spec is None else shape_spec
    if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError(f"symbolic_shape takes a text or None, not {shape_spec!r}.")
    words = _words(text)
    if "..." in words:
        at = words.index("...")
        if "..." in words[at + 1 :]:
            raise ValueError(f"symbolic_shape({text!r}): `...` stands there twice. Give it once.")
        if given is None:
            raise ValueError(f"symbolic_shape({text!r}): `...` takes the dims of `like`. Give it, or name each dim.")
        words[at : at + 1] = ["_"] * (len(given) - len(words) + 1)
    dims: list[Any] = []
    for i, word in enumerate(words):
        if word == "_":
            if given is None or i >= len(given):
                raise ValueError(
                    f"symbolic_shape({text!r}): the placeholder of dim {i} takes its size of like={given}. Give one that has it."
                )
            dims.append(given[i])
            continue
        dims.append(_parse_size(word, scope, text))
        if isinstance(dims[i], int) and given is not None and i < len(given) and given[i] != dims[i]:
            raise ValueError(
                f"symbolic_shape({text!r}): dim {i} is {word}, and {given[i]} in like={given}. Give one size, or `_`."
            )
    return tuple(dims)


def symbolic_args_specs(
    args: Any,
    shapes_specs: Any,
    constraints: Sequence[str] = (),
    scope: SymbolicScope | None = None,
) -> Any:
    """ShapeDtypeStructs of arguments, with symbolic shapes.

    Args:
        args: a tree of arrays or ShapeDtypeStructs, which give dtypes and the dims of placeholders.
        shapes_specs: a tree of texts for `symbolic_shape` that is a prefix of `args`; None keeps a shape.
        constraints: as for `symbolic_shape`.
        scope: the scope of the variables; None makes a new one for all of them.

    Raises:
        ValueError: `shapes_specs` is no prefix of `args`, or a text does not fit.

    >>> import numpy as np
    >>> symbolic_args_specs((1.0, {"x": np.ones((2, 3))}), ("", {"x": "b, _"}))[1]["x"].shape
    (b, 3)
    """
    if scope is not None and constraints:
        raise ValueError("Cannot specify both a `scope` and `constraints`: give the constraints to the SymbolicScope.")
    scope = SymbolicScope(constraints) if scope is None else scope
    leaves, tree = tree_flatten(args)
    if shapes_specs is None or isinstance(shapes_specs, str):
        specs: list[Any] = [shapes_specs] * len(leaves)
    else:
        specs = broadcast_prefix(shapes_specs, args, is_leaf=lambda x: x is None)
    if len(specs) != len(leaves):
        raise ValueError(
            f"symbolic_args_specs: the specs {tree_structure(shapes_specs)} are no prefix of the arguments {tree}."
        )
    structs: list[ShapeDtypeStruct] = []
    for leaf, spec in zip(leaves, specs, strict=True):
        typed_leaf = leaf if hasattr(leaf, "shape") and hasattr(leaf, "dtype") else as_value(leaf)
        shape = symbolic_shape(spec, scope=scope, like=typed_leaf.shape)
        structs.append(ShapeDtypeStruct(shape, canonicalize(typed_leaf.dtype)))
    return tree_unflatten(tree, structs)


def _words(text: str) -> list[str]:
    """The dims of a text, split at the commas outside of parentheses."""
    inner = text.strip()
    if inner.startswith("(") and inner.endswith(")"):
        inner = inner[1:-1]
    words, depth = [""], 0
    for letter in inner:
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if letter == "," and depth == 0:
            words.append("")
        else:
            words[-1] += letter
    words = [word.strip() for word in words]
    if not words[-1]:  # a comma may end the text
        words.pop()
    for i, word in enumerate(words):
        if not word:
            raise ValueError(
                f"syntax error in symbolic shape {text!r}: dim {i} is empty. Separate dims with single commas."
            )
    return words


def _parse_size(word: str, scope: SymbolicScope, text: str) -> Any:
    """The size that an expression gives."""
    try:
        node = ast.parse(word.replace("^", "**"), mode="eval").body
    except (SyntaxError, ValueError) as error:
        raise ValueError(f"syntax error in symbolic shape {text!r}: {word!r} is no expression.") from error
    return _size(node, scope, text)


def _size(node: ast.expr, scope: SymbolicScope, text: str) -> Any:
    match node:
        case ast.Constant(value=int(value)) if type(value) is int:
            return value
        case ast.Name(id=name) if name != "_":
            return SymbolicDim.variable(name, scope)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_size(operand, scope, text)
        case ast.BinOp(left=left, op=op, right=right):
            a, b = _size(left, scope, text), _size(right, scope, text)
            match op:
                case ast.Add():
                    return a + b
                case ast.Sub():
                    return a - b
                case ast.Mult():
                    return a * b
                case ast.FloorDiv():
                    return a // b
                case ast.Mod():
                    return a % b
                case ast.Pow() if isinstance(b, int) and b >= 0:
                    return a**b
                case _:
                    pass
        case ast.Call(func=ast.Name(id=name), args=[left, right], keywords=[]):
            a, b = _size(left, scope, text), _size(right, scope, text)
            if name in ("floordiv", "mod"):
                return a // b if name == "floordiv" else a % b
            if name in ("max", "min"):
                return greatest(a, b) if name == "max" else least(a, b)
        case _:
            pass
    raise ValueError(
        f"syntax error in symbolic shape {text!r}: {ast.unparse(node)!r} is no size. Write names, numbers, + - * ^ floordiv mod max min."
    )


def solve_sizes(
    shapes: Sequence[Sequence[Any]], sizes: Sequence[Sequence[int]], names: Sequence[str]
) -> dict[str, int]:
    """The variables' values by which the symbolic `shapes` become `sizes`.

    Args:
        shapes: one per argument, of numbers and dims.
        sizes: the shapes of the arguments of a call, of the same ranks.
        names: how errors name the arguments.

    Raises:
        ValueError: there are none, or they break a constraint.
    """
    pairs = [(dim, n) for shape, size in zip(shapes, sizes, strict=True) for dim, n in zip(shape, size, strict=True)]
    env: dict[str, int] = {}
    specs = ", ".join(
        f"{name}.shape = {shape}".replace("'", "") for name, shape in zip(names, map(tuple, shapes), strict=True)
    )

    def refuse(why: str) -> ValueError:
        return ValueError(
            f"Input shapes do not match the polymorphic shapes specification. {why} Using the following polymorphic shapes "
            f"specifications: {specs}. Called with shapes {[tuple(s) for s in sizes]}."
        )

    open_pairs = [(dim, n) for dim, n in pairs if isinstance(dim, SymbolicDim)]
    while open_pairs:
        rest = [(dim, n) for dim, n in open_pairs if not _solve(dim, n, env, refuse)]
        if len(rest) == len(open_pairs):
            raise unsolvable(rest[0][0], specs)
        open_pairs = rest
    for dim, n in pairs:
        if evaluate_size(dim, env) != n:
            raise refuse(f"'{dim}' should be {evaluate_size(dim, env)} where {_values(env)}, and is {n}.")
    for name, value in env.items():
        if value < 1:
            raise refuse(f"Expected value >= 1 for dimension variable '{name}', and it is {value}.")
    for dim, _ in pairs:
        broken = dim.scope.violated_constraint(env) if isinstance(dim, SymbolicDim) else None
        if broken is not None:
            raise refuse(f"The constraint {broken!r} does not hold where {_values(env)}.")
    return env


def unsolvable(dim: Any, specs: str) -> ValueError:
    """The error for variables that no shape determines."""
    return ValueError(
        f"Cannot solve for values of dimension variables {sorted(dim.variables())}. '{dim}' does not determine them; let each variable be "
        f"a dim of some argument, alone or times a number. Using the following polymorphic shapes specifications: {specs}."
    )


def _solve(dim: SymbolicDim, size: int, env: dict[str, int], refuse: Any) -> bool:
    """Whether the variables of the dim are known; finds the value of a single one that is not and of which the dim is linear."""
    unknown = dim.variables() - env.keys()
    if not unknown:
        return True
    if len(unknown) > 1:
        return False
    (name,) = unknown
    constant, slope = 0, 0
    for product, c in dim.terms:
        powers = [(f, n) for f, n in product if f == name]
        others = SymbolicDim({tuple((f, n) for f, n in product if f != name): c}, dim.scope)
        if name in others.variables() or any(n != 1 for _, n in powers):
            return False
        value = evaluate_size(simplest(others), env)
        constant, slope = (constant, slope + value) if powers else (constant + value, slope)
    if slope == 0:
        return False
    value, remainder = divmod(size - constant, slope)
    if remainder:
        raise refuse(f"Division had remainder {remainder} when computing the value of '{name}'.")
    env[name] = value
    return True


def _values(env: Mapping[str, int]) -> str:
    return ", ".join(f"{k} = {v}" for k, v in env.items())


__all__ = ["SymbolicScope", "is_nonnegative", "is_symbolic_dim", "solve_sizes", "symbolic_args_specs", "symbolic_shape"]
