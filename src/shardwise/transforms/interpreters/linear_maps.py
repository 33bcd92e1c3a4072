"""The results of `vjp` and `linearize`: linear functions whose residuals are their leaves, so that they pass through jit.

In: a `LinearizedProgram` and the trees of arguments and results. Out: a `Partial`, or a `VJP` in today's dialect.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from shardwise.base import config
from shardwise.base.dtypes import float0
from shardwise.base.lazy_dataclasses import dataclass
from shardwise.base.tree import Partial, PyTreeDef, register_pytree_node, tree_flatten, tree_unflatten
from shardwise.ir import Program, ShapedArray, eval_program
from shardwise.ir.program import live_equations
from shardwise.ir.references import Reference
from shardwise.ops.rules.convert import as_array, as_value
from shardwise.transforms.interpreters.accumulation import DontWant, GradValue, accumulate_into
from shardwise.transforms.interpreters.jvp import (
    apart,
    conform_tangent,
    cotangent_zeros,
    has_tangent,
    needs_implicit_sum,
    tangent_type,
    zeros,
)
from shardwise.transforms.interpreters.linearize import LinearizedProgram, pull_back


@dataclass(frozen=True, eq=False)
class LinearMap:
    """The static part of a linearized function: its program, the types of arguments and results, and their trees.

    `ins` and `outs` are the positions of the inputs and results that the program knows; the others have zero tangents. `references` are the
    positions of arguments that are Refs, with their classes; `out_types` has the types of their last arrays after those of the results.
    `returned_references` are the positions of results that are Refs, with their classes and places among the arguments, if they are such.
    """

    program: Program
    ins: tuple[int, ...]
    outs: tuple[int, ...]
    in_types: tuple[ShapedArray, ...]
    out_types: tuple[ShapedArray, ...]
    in_tree: PyTreeDef
    out_tree: PyTreeDef
    references: tuple[tuple[int, type[Reference]], ...] = ()
    returned_references: tuple[tuple[int, type[Reference], int | None], ...] = ()

    def push(self, residuals: Sequence[Any], tangents: Any) -> Any:
        """Tangents of the results from those of the arguments."""
        leaves, tree = tree_flatten(tangents)
        if tree != self.in_tree:
            kind = config.dialect.functions.linearized_tree_error
            raise kind(f"linearized function called on tangent values with structure {tree}, expected {self.in_tree}.")
        given: list[Any] = list(leaves)
        for i, _ in self.references:
            if has_tangent(self.in_types[i]) and not isinstance(leaves[i], Reference):
                raise ValueError(f"the linearized function takes a Ref as the tangent of a Ref, got {leaves[i]!r}.")
            given[i] = leaves[i].held() if has_tangent(self.in_types[i]) else host_zero(self.in_types[i])
        given = [tangent_in(t, x, "the linearized function") for t, x in zip(self.in_types, given, strict=True)]
        outs = eval_program(self.program, [*residuals, *[given[i] for i in self.ins]])
        tangent_of = dict(zip(self.outs, outs, strict=True))
        tangents_out = [tangent_out(t, tangent_of.get(i)) for i, t in enumerate(self.out_types)]
        count = len(tangents_out) - len(self.references)
        for k, (i, _) in enumerate(self.references, count):
            if has_tangent(self.in_types[i]) and tangent_of.get(k) is not given[i]:
                leaves[i].store(tangents_out[k])
        for i, kind, place in self.returned_references:
            tangents_out[i] = kind(tangents_out[i]) if place is None else leaves[place]
        return tree_unflatten(self.out_tree, tangents_out[:count])

    def pull(self, residuals: Sequence[Any], cotangent: Any, into: Sequence[Any] | None = None) -> Any:
        """A tuple of cotangents of the arguments from that of the result. `into`: per argument, what becomes of its cotangent."""
        leaves, tree = tree_flatten(cotangent)
        if tree != self.out_tree:
            raise ValueError(
                f"unexpected tree structure: the argument to a VJP function must be like the result: got {tree}, but expected to "
                f"match {self.out_tree}"
            )
        count = len(leaves)
        for i, *_ in self.returned_references:
            if not isinstance(leaves[i], Reference):
                raise ValueError(
                    f"unexpected JAX type for argument to VJP function: got {leaves[i]!r}, but expected a Ref, as the corresponding "
                    "result is one. Return its array, ref[...], from the function that is differentiated."
                )
            leaves[i] = leaves[i].held()
        cts = [_cotangent_in(t, c) for t, c in zip(self.out_types[:count], leaves, strict=True)]
        cts += [None] * (len(self.out_types) - count)  # of the last arrays of Refs
        cotangents = pull_back(self.program, residuals, [cts[i] for i in self.outs])
        by_input = dict(zip(self.ins, cotangents, strict=True))
        kinds = dict(self.references)
        for i in kinds:
            if by_input.get(i) is not None:
                raise ValueError(
                    f"a cotangent came back to an argument that is a Ref, of type {self.in_types[i].str_short()}: a Ref has none. "
                    "Differentiate a function of its array, ref[...], or write lax.stop_gradient(ref[...])."
                )

        def out(i: int, to: Any) -> Any:
            if to is not None and not isinstance(to, GradValue):
                return accumulate_into(to, by_input.get(i))
            ct = _cotangent_out(self.in_types[i], by_input.get(i))
            return kinds[i](ct) if i in kinds and has_tangent(self.in_types[i]) else ct

        return tree_unflatten(self.in_tree, [out(i, to) for i, to in enumerate(into or [None] * len(self.in_types))])


def linear_map(
    lin: LinearizedProgram,
    primals: Sequence[Any],
    in_tree: PyTreeDef,
    out_tree: PyTreeDef,
    references: Mapping[int, Reference],
    returned: Sequence[tuple[int, type[Reference], int | None]],
) -> LinearMap:
    """The structure of a function linearized at `primals`, of which `references` are Refs. `returned`: its `returned_references`."""
    in_types, out_types = tuple(p.aval for p in primals), tuple(r.aval for r in lin.results)
    kinds = tuple([(i, type(r)) for i, r in references.items()])
    # Values that nobody reads may have no forward derivative.
    return LinearMap(
        live_equations(lin.program), lin.ins, lin.outs, in_types, out_types, in_tree, out_tree, kinds, tuple(returned)
    )


@dataclass(frozen=True)
class _Push:
    """`LinearMap.push` as the function of a Partial."""

    linear: LinearMap

    def __call__(self, residuals: Sequence[Any], *tangents: Any) -> Any:
        return self.linear.push(residuals, tangents)


@dataclass(frozen=True)
class _Pull:
    """`LinearMap.pull` as the function of a Partial."""

    linear: LinearMap

    def __call__(self, residuals: Sequence[Any], cotangent: Any) -> Any:
        return self.linear.pull(residuals, cotangent)


class NotNeeded:
    """Stands in `VJP.args_res` for an argument that is no residual; a tree without leaves."""

    def __repr__(self) -> str:
        return "NotNeeded()"

    def __eq__(self, other: object) -> bool:
        return type(other) is NotNeeded

    def __hash__(self) -> int:
        return hash(NotNeeded)


register_pytree_node(NotNeeded, lambda _: ((), None), lambda _, __: NotNeeded())


class VJP:
    """The result of `vjp` in today's dialect: maps a cotangent of the result to a tuple of cotangents of the arguments.

    A pytree: its leaves are the residuals, the values kept from the forward pass.

    Attributes:
        args_res: per argument its residuals, a tree like the argument: each leaf is the argument's own, or `NotNeeded()`. Entries can be
            replaced, by None too, so that arguments are not kept twice; they have to be back when the function is called.
        opaque_residuals: the other residuals.
    """

    def __init__(
        self, linear: LinearMap, places: Sequence[int | None], args_res: list[Any], opaque_residuals: list[Any]
    ) -> None:
        self._linear = linear
        self._places = tuple(places)  # of each residual: which leaf of the arguments it is, or None
        self.args_res = args_res
        self.opaque_residuals = opaque_residuals

    in_tree = property(lambda self: self._linear.in_tree, doc="The structure of the arguments.")
    out_tree = property(lambda self: self._linear.out_tree, doc="The structure of the result.")
    jaxpr = property(lambda self: self._linear.program, doc="The linear program, residuals first.")

    def _residuals(self) -> list[Any]:
        """The residuals in the order of the program."""
        if not any(place is not None for place in self._places):
            return self.opaque_residuals
        leaves, tree = tree_flatten(tuple(self.args_res), is_leaf=lambda x: isinstance(x, NotNeeded))
        if tree != self.in_tree:
            raise ValueError(
                f"args_res has to be like the arguments when the function is called: put back what was taken out. Its structure is {tree}, "
                f"that of the arguments {self.in_tree}."
            )
        opaque = iter(self.opaque_residuals)
        residual_leaves = [next(opaque) if place is None else leaves[place] for place in self._places]
        return [as_array(as_value(x)) for x in residual_leaves]

    def __call__(self, cotangent: Any) -> Any:
        return self._linear.pull(self._residuals(), cotangent)

    def with_refs(self, *into: Any) -> Callable[[Any], Any]:
        """The same function, which adds cotangents to Refs.

        Args:
            into: a tree like the arguments, of Refs of the cotangents' types, `DontWant()`, and `GradValue()` or anything else (return it).

        Returns:
            a function whose result has `GradRef()` where a cotangent was added to a Ref, and `DidntWant()` where none was wanted.
        """
        leaves, tree = tree_flatten(into, is_leaf=lambda x: isinstance(x, (GradValue, DontWant)))
        if tree != self.in_tree:
            raise ValueError(f"with_refs takes one entry per argument, as a tree like {self.in_tree}, got {tree}.")
        for i, (x, t) in enumerate(zip(leaves, self._linear.in_types, strict=True)):
            if not isinstance(x, (Reference, DontWant)):
                leaves[i] = GradValue()
            elif isinstance(x, Reference) and (x.shape, x.dtype) != (t.shape, t.dtype):  # type: ignore[attr-defined]
                raise ValueError(f"with_refs: a cotangent of type {t.str_short()} cannot be added to a {x.aval}.")
        return lambda cotangent: self._linear.pull(self._residuals(), cotangent, leaves)

    def __repr__(self) -> str:
        return (
            f"VJP(in_tree={self.in_tree}, out_tree={self.out_tree}, args_res={self.args_res}, "
            f"opaque_residuals={self.opaque_residuals})"
        )


register_pytree_node(
    VJP,
    lambda f: ((f.args_res, f.opaque_residuals), (f._linear, f._places)),
    lambda static, children: VJP(*static, *children),
)


def push_function(linear: LinearMap, residuals: Sequence[Any]) -> Callable[..., Any]:
    """The function that `linearize` returns."""
    return Partial(_Push(linear), list(residuals))


def pull_function(linear: LinearMap, residuals: Sequence[Any], primals: Sequence[Any]) -> Callable[[Any], Any]:
    """The function that `vjp` returns, of residuals some of which are `primals` themselves."""
    if not config.dialect.functions.vjp_is_object:
        return Partial(_Pull(linear), list(residuals))
    leaf_of = {id(p): i for i, p in enumerate(primals)}
    places = [leaf_of.get(id(r)) for r in residuals]
    kept_places = set(places)
    args_res = tree_unflatten(linear.in_tree, [p if i in kept_places else NotNeeded() for i, p in enumerate(primals)])
    opaque = [r for r, place in zip(residuals, places, strict=True) if place is None]
    return VJP(linear, places, list(args_res), opaque)


# -- values at both ends ---------------------------------------------------------------------------------------------------


def host_zero(aval: ShapedArray) -> Any:
    """The tangent of an integer: a NumPy array of float0."""
    return np.zeros(aval.shape, float0)


def tangent_in(aval: ShapedArray, tangent: Any, what: str) -> Any:
    """A tangent of a value of type `aval`; None if it has no tangents. TypeError or ValueError if they do not fit."""
    if not has_tangent(aval):
        if getattr(tangent, "dtype", None) != float0:
            kind = TypeError if what == "jax.jvp" else ValueError
            raise kind(
                f"primal and tangent arguments to {what} do not match; values of type {aval.str_short()} have tangents of "
                f"dtype float0 only, such as np.zeros({aval.shape}, float0), but got {tangent!r}."
            )
        return None
    value = as_array(as_value(tangent))
    if value.shape != aval.shape:
        raise ValueError(
            f"{what} called with different primal and tangent shapes; got primal shape {aval.shape} and tangent shape "
            f"{value.shape}."
        )
    if value.dtype != aval.dtype:
        kind = config.dialect.functions.linearized_dtype_error if what == "the linearized function" else TypeError
        raise kind(
            f"primal and tangent arguments to {what} do not match; dtypes must be equal, or in case of int/bool primal dtype the "
            f"tangent dtype must be float0. Got primal dtype {aval.dtype} and so expected tangent dtype {aval.dtype}, but got "
            f"tangent dtype {value.dtype} instead."
        )
    if apart(aval, value.aval):
        if what == "jax.jvp":
            return conform_tangent(value, aval)
        raise ValueError(
            f"{what} called on tangent values inconsistent with the original primal values: got {value.aval.str_short()} for "
            f"{aval.str_short()}; reshard it first."
        )
    return value


def tangent_out(aval: ShapedArray, tangent: Any) -> Any:
    """The tangent of a result in the users' form."""
    if not has_tangent(aval):
        return host_zero(aval)
    return zeros(tangent_type(aval)) if tangent is None else conform_tangent(tangent, aval)


def _cotangent_in(aval: ShapedArray, ct: Any) -> Any:
    if not has_tangent(aval) or (isinstance(ct, np.ndarray) and ct.dtype == float0):
        return None
    value = as_array(as_value(ct))
    if value.shape != aval.shape:
        raise ValueError(
            f"unexpected JAX type (e.g. shape/dtype) for argument to VJP function: got {value.aval.str_short()}, but "
            f"expected {aval.str_short()}, the type of the corresponding result."
        )
    if value.dtype != aval.dtype:
        raise ValueError(
            f"unexpected JAX type (e.g. shape/dtype) for argument to VJP function: got {value.aval.str_short()}, but expected "
            f"{aval.str_short()} because the corresponding output of the differentiated function had that type."
        )
    if apart(aval, value.aval):
        raise ValueError(
            f"the cotangent {value.aval.str_short()} is laid out otherwise than the result {aval.str_short()}; "
            "reshard it first."
        )
    if needs_implicit_sum(aval, value.aval):
        raise ValueError(
            f"unexpected JAX type (e.g. shape/dtype) for argument to VJP function: got {value.aval.str_short()}, which varies over "
            f"mesh axes over which the corresponding result {aval.str_short()} does not. Sum it with lax.psum first, or make the "
            "result vary with lax.pcast(..., to='varying')."
        )
    return value


def _cotangent_out(aval: ShapedArray, ct: Any) -> Any:
    if not has_tangent(aval):
        return host_zero(aval)
    return cotangent_zeros(tangent_type(aval)) if ct is None else as_array(ct)
