"""`Primitive`: ops in the form that interpreters of programs use, and new ops defined by users.

In: a name, an `impl`, an abstract evaluation, rules for derivatives, batching and lowering, registered as in JAX.
Out: an `Op` made of them. Compiled programs run what the lowering traces (`mlir.lower_fun`), or call the `impl` back.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np

from shardwise.base import config
from shardwise.base.errors import ConcretizationTypeError, TracerArrayConversionError
from shardwise.base.wrapped_functions import WrappedFun
from shardwise.engine.inspection import ShapeDtypeStruct
from shardwise.ir import (
    Equation,
    Program,
    ShapedArray,
    Trace,
    Tracer,
    bind,
    define_op,
    is_eager,
    trace_program,
    tracing,
)
from shardwise.ir.op import Op, all_ops
from shardwise.ops.control.callback import io_callback, pure_callback
from shardwise.ops.rules.convert import as_array, as_value
from shardwise.ops.shapes.transpose import dim_factors
from shardwise.sharding.rule import Kind, Rule

# How primitives that call functions are applied to functions: ``(functions, args, **params) -> results``.
CALLS: dict[str, Callable[..., Any]] = {}


class Primitive:
    """An operation with a name and `bind`. ``Primitive(name)`` makes a new one, to be given its rules:

    `def_impl` (how it is computed on concrete arrays), `def_abstract_eval` (result types from operand types), and the
    registries of `shardwise.interpreters`: `ad`, `batching`, `mlir`. Two views of one op are equal.
    """

    multiple_results = False
    call_primitive = map_primitive = (
        False  # kinds of primitives that take functions before the operands: there are none here
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.op: Op | None = None
        self.impl: Callable[..., Any] | None = None
        self.abstract_eval: Callable[..., Any] | None = None
        self.lowering: Callable[..., Any] | None = None
        self.is_ours = False

    def own_op(self) -> Op:
        """The op; made at the primitive's first use."""
        if self.op is None:
            self.op = Op(
                self.name,
                self._types,
                multiple_results=self.multiple_results,
                typed=True,
                numeric=True,
                inline=self._program,
                jvp=_without_rule("Differentiation", self.name, "ad.primitive_jvps"),
                batch=_without_rule("Batching", self.name, "batching.primitive_batchers"),
            )
            _primitives[self.op, self.op.name] = self
        elif not self.is_ours:
            self.op.multiple_results = self.multiple_results
        return self.op

    def def_impl(self, impl: Callable[..., Any]) -> Callable[..., Any]:
        """Set the implementation on concrete arrays."""
        self.check_new("def_impl")
        self.impl = impl
        return impl

    def def_abstract_eval(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """Set the rule for the types of results: ``rule(*types, **params)`` gives a ShapedArray, or a tuple of them."""
        self.check_new("def_abstract_eval")
        self.abstract_eval = rule
        return rule

    def def_effectful_abstract_eval(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """Like `def_abstract_eval`, for ``rule(*types, **params)`` that gives the types and a set of effects.

        Where there are effects, equations are kept and their `impl` called even if nobody uses the results.
        """
        self.check_new("def_effectful_abstract_eval")

        def types_alone(*types: ShapedArray, **params: Any) -> Any:
            out_types, effects = rule(*types, **params)
            if effects:
                self.own_op().effects = True
            return out_types

        self.abstract_eval = types_alone
        return rule

    def check_new(self, what: str) -> None:
        """Raise unless the primitive is the user's own; `what` names the call in the error."""
        if self.is_ours:
            raise TypeError(f"{what}: {self.name} is an op of the library; make a Primitive of another name.")

    def bind_with_trace(self, trace: Trace, args: Sequence[Any], *types_and_params: Any) -> Any:
        """Apply it under `trace`; types of the arguments (from JAX 0.9.2 on) come before the params.

        A primitive that calls functions takes them as the param `subfuns`, or before the other arguments.
        """
        with tracing(trace):
            return self.bind(*args, **types_and_params[-1])

    def bind(self, /, *args: Any, **params: Any) -> Any:
        """Apply it: eagerly on concrete arrays, otherwise under the current trace. Functions to call come as for `bind_with_trace`."""
        if self.name in CALLS:
            functions = params.pop("subfuns", None)
            if functions is None:
                functions = tuple(a for a in args if isinstance(a, WrappedFun))
                args = args[len(functions) :]
            if functions:
                return CALLS[self.name](functions, args, **params)
        op = self.own_op()
        values = [as_value(a) for a in args]
        if self.is_ours:
            params = own_params(op, params, len(values))
        if self.is_ours or not is_eager() or any(isinstance(v, Tracer) for v in values):
            return bind(op, *values, **params)
        if self.impl is None:
            if self.lowering is None:
                raise NotImplementedError(
                    f"Evaluation rule for '{self.name}' not implemented; give it one with def_impl."
                )
            return bind(op, *values, **params)
        return self.impl(*[as_array(v) for v in values], **params)

    def get_bind_params(self, params: Mapping[str, Any]) -> Any:
        """The keyword arguments of `bind` for an equation with these params.

        Under the dialect 0.5 they are the second of a pair. The first is a list of functions, for `bind` to take in front of the
        operands: it is empty, because programs stand in the params.
        """
        return ([], dict(params)) if config.dialect.jaxprs.bind_params_have_functions else dict(params)

    def _types(self, /, *types: ShapedArray, **params: Any) -> Any:
        if self.abstract_eval is None:
            raise NotImplementedError(
                f"Abstract evaluation for '{self.name}' not implemented; give it one with def_abstract_eval."
            )
        out_types = self.abstract_eval(*types, **params)
        if isinstance(out_types, list | tuple) != self.multiple_results:
            raise ValueError(
                f"{self.name}.abstract_eval() method should return a tuple or a list iff {self.name}.multiple_results."
            )
        return tuple(map(_type, out_types)) if self.multiple_results else _type(out_types)

    def _program(self, eqn: Equation) -> Program:
        """The program that compiled programs run in its place."""
        types = tuple(a.aval for a in eqn.inputs)
        params = dict(eqn.params)
        if self.lowering is not None:
            return self._trace_function(self.lowering, types, params)
        if self.impl is None:
            raise _not_lowered_error(self.name)
        if self.own_op().effects:  # tracing would run the effect once only
            return self._trace_function(self._call_back, types, params)
        try:
            return self._trace_function(self.impl, types, params)
        except (ConcretizationTypeError, TracerArrayConversionError):
            return self._trace_function(self._call_back, types, params)

    def _trace_function(self, fun: Callable[..., Any], types: Sequence[ShapedArray], params: dict[str, Any]) -> Program:
        def flat(*values: Any) -> list[Any]:
            out = fun(*values, **params)
            return [as_array(as_value(o)) for o in (out if self.multiple_results else [out])]

        program, consts = trace_program(flat, types, self.name)
        return with_constants(program, consts, self.name) if consts else program

    def _call_back(self, /, *values: Any, **params: Any) -> Any:

        assert self.impl is not None
        out_types = self._types(*[v.aval for v in values], **params)
        like = lambda t: ShapeDtypeStruct(t.shape, t.dtype)  # noqa: E731
        results = [like(t) for t in out_types] if self.multiple_results else like(out_types)
        impl = self.impl
        if self.own_op().effects:
            return io_callback(lambda *xs: impl(*xs, **params), results, *values)
        return pure_callback(lambda *xs: impl(*xs, **params), results, *values, vmap_method="sequential")

    def __repr__(self) -> str:
        return self.name

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Primitive) and self.op is not None and self.op is other.op)

    def __hash__(self) -> int:
        return hash(self.name)


def _without_rule(what: str, name: str, table: str) -> Callable[..., Any]:
    """The rule of a new primitive until it is given its own: what its `impl` computes is not looked into."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise NotImplementedError(f"{what} rule for '{name}' not implemented; give it one in interpreters.{table}.")

    return refuse


def _not_lowered_error(name: str) -> NotImplementedError:
    return NotImplementedError(
        f"MLIR translation rule for primitive '{name}' not found for platform cpu. Rules that write MLIR are not called, "
        "since programs here are not made of it; give the primitive an impl, or register mlir.lower_fun(function)."
    )


def apply_primitive(prim: Primitive, /, *args: Any, **params: Any) -> Any:
    """The result of `prim` in a compiled program: as its `impl`, this is its lowering.

    NotImplementedError if it has none that is a function.
    """
    if not prim.is_ours and prim.lowering is None:
        raise _not_lowered_error(prim.name)
    return bind(prim.own_op(), *[as_value(a) for a in args], **params)


class _ArrayParam:
    """An array as a param: equal to itself alone."""

    def __init__(self, value: np.ndarray[Any, Any]) -> None:
        self.value = value


_constant_op = define_op(
    "captured_constant",
    type_rule=lambda held, aval: aval,
    kernel=lambda env, held, aval: held.value.reshape((1,) * env.lead + held.value.shape),
    rule=lambda ins, outs, params: Rule(
        (), (dim_factors(outs[0].shape),), outs[0].shape, (Kind.REPLICATE,) * outs[0].ndim
    ),
)


def with_constants(program: Program, consts: Sequence[Any], name: str) -> Program:
    """A program with captured arrays turned into equations."""
    if any(isinstance(c, Tracer) for c in consts):
        raise NotImplementedError(
            f"the primitive {name} closes over traced arrays; give them to bind as operands instead."
        )
    values = [_ArrayParam(np.asarray(c.dense)) for c in consts]
    const_equations = [
        Equation(_constant_op, (), (v,), {"held": h, "aval": v.aval})
        for v, h in zip(program.inputs, values, strict=False)
    ]
    inputs = program.inputs[len(consts) :]
    return Program(inputs, (*const_equations, *program.equations), program.outputs, 0, program.name)


_primitives: dict[tuple[Op, str], Primitive] = {}


def primitive_of(op: Op, name: str | None = None) -> Primitive:
    """The view of an op, the same for all of its equations."""
    name = name or op.name
    primitive = _primitives.get((op, name))
    if primitive is None:
        primitive = _primitives[op, name] = Primitive(name)
        primitive.op = op
        primitive.is_ours = True
        primitive.multiple_results = op.multiple_results
    return primitive


def _type(found: Any) -> ShapedArray:
    return found if isinstance(found, ShapedArray) else ShapedArray(found.shape, found.dtype)


# -- lowerings -------------------------------------------------------------------------------------------------------------


class LowerFun:
    """A lowering given as a function of traced arrays."""

    def __init__(self, fun: Callable[..., Any], multiple_results: bool) -> None:
        self.fun = fun
        self.multiple_results = multiple_results

    def __call__(self, /, *args: Any, **params: Any) -> Any:
        return self.fun(*args, **params)


def register_lowering(
    prim: Primitive, rule: Any, platform: str | None = None, inline: bool = True, cacheable: bool = True
) -> Any:
    """Set the function that compiled programs run for a primitive: ``lower_fun(function)``. It is always spliced in, whatever `inline` and
    `cacheable` say.

    A rule that writes MLIR is not called: compiled programs run the primitive's `impl`, and refuse one that has none.
    """
    del inline, cacheable
    if platform not in (None, "cpu") or not isinstance(rule, LowerFun):
        return rule
    prim.check_new("register_lowering")
    prim.lowering = rule
    return rule


# -- the library's own -------------------------------------------------------------------------------------------------------


def jax_name(op: Op) -> str:
    """JAX's name of an op, if that does not depend on its params."""
    name = op.shown.name
    return op.name if name is None else name() if callable(name) else name


# Modules that define ops, for names looked up before anything has imported these.
_OP_MODULES = (
    "lax",
    "lax.linalg",
    "transforms.derivatives.checkpoint",
    "transforms.derivatives.implicit",
    "transforms.bodies.jit_rules",
)


# Primitives of JAX for which the functions here use others, or which only one of its compilers' back ends has. Tables of
# interpreters name them, and programs of ours have no equation of theirs.
_WITHOUT_EQUATIONS = frozenset(
    "after_all create_token eq_to le_to lt_to ragged_all_to_all select_and_gather_add select_and_scatter select_and_scatter_add "
    "stage".split()
)


@functools.cache
def _without_equations(name: str) -> Primitive:
    primitive = Primitive(name)

    def refuse(*types: ShapedArray, **params: Any) -> Any:
        raise NotImplementedError(
            f"the primitive {name} is here for tables of interpreters only, and cannot be bound; use the functions of lax and numpy."
        )

    primitive.def_impl(refuse)
    primitive.def_abstract_eval(refuse)
    return primitive


def named_primitive(name: str) -> Primitive | None:
    """The Primitive that JAX calls ``<name>_p``; None if the library has no such op."""
    import importlib

    if not name.endswith("_p"):
        return None
    for module in _OP_MODULES:
        importlib.import_module(f"shardwise.{module}")
    stem = name[:-2]
    ops = all_ops()
    op = next((op for op in ops.values() if stem in op.shown.aliases), None) or ops.get(stem)
    if op is None:
        return _without_equations(stem) if stem in _WITHOUT_EQUATIONS else None
    return primitive_of(op, jax_name(op) if op.shown.name_of is None else stem)


def own_params(op: Op, params: Mapping[str, Any], operands: int) -> dict[str, Any]:
    """The op's params from those that an equation shows: copies of these have the names that it shows, and ClosedJaxprs."""
    ours = {theirs: name for name, theirs in op.shown.renamed.items()}
    absent = {name: value(operands) if callable(value) else value for name, value in op.shown.absent.items()}
    return {**absent, **{ours.get(name, name): as_program(value) for name, value in params.items()}}


def as_program(value: Any) -> Any:
    """ClosedJaxprs as the programs that they show, in tuples too; other values as they are."""
    if type(value) is tuple:  # named tuples hold no programs
        return tuple(map(as_program, cast("tuple[Any, ...]", value)))
    program = getattr(value, "program", None)
    return program if isinstance(program, Program) else value
