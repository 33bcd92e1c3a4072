"""`custom_jvp`: a function whose derivative is given by a rule for tangents.

Outside of differentiation such a function is called directly. While traced it becomes an equation that holds its
program and its rule, so that a later differentiation of that program finds the rule.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, cast

from shardwise.base.dtypes import float0
from shardwise.base.signatures import P, R
from shardwise.base.tree import PyTreeDef, tree_flatten, tree_map, tree_unflatten
from shardwise.base.wrapped_functions import WrappedFun, wrap_init
from shardwise.base.wrapping import name_of
from shardwise.ir import Equation, Program, Shown, bind, current_trace, trace_program, tracing
from shardwise.ir.op import Params
from shardwise.ir.references import Reference, hold_references, over_state
from shardwise.ops.rules.convert import as_array, as_value, given_to_user
from shardwise.ops.rules.derivative import do, has_tangent
from shardwise.transforms.derivatives.arguments import flat_arrays
from shardwise.transforms.derivatives.custom_rules import (
    Custom,
    SymbolicZero,
    call_under_jvp,
    define_call,
    flat_call,
    function_name,
    zero_tangent,
)
from shardwise.transforms.derivatives.mapped_rules import mapped_results
from shardwise.transforms.interpreters.batch_trace import Alike, BatchTrace, BatchTracer, lift_result, mapping_again
from shardwise.transforms.interpreters.jvp import JVPTrace, tangent_type
from shardwise.transforms.interpreters.linearize import transpose_linear
from shardwise.transforms.programs.primitives import CALLS, primitive_of


class custom_jvp(Custom[P, R]):
    """A function whose derivative is given by a rule for tangents.

    >>> @custom_jvp
    ... def f(x): ...
    >>> @f.defjvp
    ... def f_jvp(primals, tangents): return out, tangent

    `nondiff_argnums` (or `nondiff_argnames`) are arguments that the rule gets as they are, before the two tuples.
    """

    def __init__(self, fun: Callable[P, R], nondiff_argnums: Any = (), nondiff_argnames: Sequence[str] = ()) -> None:
        super().__init__(fun, nondiff_argnums, nondiff_argnames)
        self.jvp: Callable[..., Any] | None = None
        self.symbolic_zeros = False

    def defjvp(self, jvp: Callable[..., Any], symbolic_zeros: bool = False) -> Callable[..., Any]:
        """Set the rule ``jvp(*nondiff, primals, tangents) -> (out, tangent_out)``; with `symbolic_zeros` zero tangents are
        `SymbolicZero`s instead of arrays. Returns `jvp`, for use as a decorator."""
        self.jvp = jvp
        self.symbolic_zeros = symbolic_zeros
        return jvp

    def defjvps(self, *jvps: Callable[..., Any] | None) -> None:
        """Set one rule per argument: ``jvp(tangent, result, *primals) -> tangent of the result``; None where there is none."""
        if self.nondiff_argnums:
            raise TypeError("Can't use ``defjvps`` with ``nondiff_argnums``; use defjvp.")

        def jvp(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> Any:
            out = cast(Any, self)(*primals)
            parts = [rule(t, out, *primals) for rule, t in zip(jvps, tangents, strict=True) if rule]
            tangent = (
                functools.reduce(lambda a, b: tree_map(do.add, a, b), parts)
                if parts
                else tree_map(lambda v: zero_tangent(as_array(v)), out)
            )
            return out, tangent

        self.defjvp(jvp)

    def _check_rules(self) -> None:
        if self.jvp is None:
            raise AttributeError(f"No JVP defined for custom_jvp function {function_name(self.fun)} using defjvp.")

    def _over_state(self, references: Sequence[Reference]) -> custom_jvp[..., Any]:
        rule = self.jvp
        assert rule is not None

        def with_state(*args: Any) -> Any:
            *constant, (values, *primals), (_, *tangents) = args
            with hold_references(references, values):
                out, tangent = rule(*constant, tuple(primals), tuple(tangents))
                last = [r.held() for r in references]
            empty = [SymbolicZero.from_primal_value(x) if self.symbolic_zeros else zero_tangent(x) for x in last]
            return (last, out), (empty, tangent)

        over_values = custom_jvp(over_state(self.fun, references), tuple(n + 1 for n in self.nondiff_argnums))
        over_values.defjvp(with_state, self.symbolic_zeros)
        return over_values

    def _record_call(self, args: tuple[Any, ...]) -> Any:
        constant, smooth, join = self._split(args)
        leaves, structure = flat_arrays(smooth)
        note: list[Any] = []
        flat = flat_call(self.fun, structure, join, note)
        rule = functools.partial(_jvp_rule, self, constant, structure)
        trace = current_trace()
        if isinstance(trace, JVPTrace):
            return tree_unflatten(*call_under_jvp(trace, leaves, flat, note, lambda ps, ts: rule(note, ps, ts)))
        process = getattr(trace, "process_custom_jvp_call", None)
        if process is not None:  # a trace of a library
            call, push = wrap_init(flat), wrap_init(functools.partial(_push_rule, functools.partial(rule, note)))
            outs = process(primitive_of(custom_jvp_op), call, push, leaves, symbolic_zeros=self.symbolic_zeros)
            return tree_unflatten(note[0], [as_array(as_value(o)) for o in outs])
        program, consts = trace_program(flat, [x.aval for x in leaves], function_name(self.fun))
        out_tree = note[0]
        outs = bind(
            custom_jvp_op,
            *consts,
            *leaves,
            program=program,
            name=function_name(self.fun),
            count=len(consts),
            rule=functools.partial(rule, [out_tree]),
        )
        return tree_unflatten(out_tree, outs)


def _push_rule(rule: Callable[..., Any], *values: Any) -> list[Any]:
    """A rule from primals and tangents to results and their tangents, flat, as traces of libraries take it."""
    half = len(values) // 2
    given_tangents = [None if isinstance(t, SymbolicZero) or t.dtype == float0 else t for t in values[half:]]
    outs, touts = rule(values[:half], given_tangents)
    return [*outs, *(zero_tangent(o) if t is None else t for o, t in zip(outs, touts, strict=True))]


def _call_flat(functions: Sequence[WrappedFun], args: Sequence[Any], *, symbolic_zeros: bool = False) -> list[Any]:
    """The flat results of a function and its rule, which a trace of a library has wrapped."""
    fun, jvp = functions

    def rule(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        both = jvp.call_wrapped(*primals, *tangents)
        half = len(both) // 2
        return list(both[:half]), list(both[half:])

    rule_function = custom_jvp(lambda *values: list(fun.call_wrapped(*values)))
    rule_function.defjvp(rule, symbolic_zeros)
    return rule_function(*args)


def _jvp_rule(
    custom: custom_jvp[..., Any],
    constant: tuple[Any, ...],
    structure: PyTreeDef,
    note: list[Any],
    primals: Sequence[Any],
    tangents: Sequence[Any],
) -> tuple[list[Any], list[Any]]:
    """The user's rule on flat values; results and tangents, None where zero. `note` holds or gets the results' tree."""
    assert custom.jvp is not None
    primals, tangents = given_to_user(primals), given_to_user(tangents)
    if custom.symbolic_zeros:
        given = [SymbolicZero(tangent_type(p.aval)) if t is None else t for p, t in zip(primals, tangents, strict=True)]
    else:
        given = [zero_tangent(p) if t is None else t for p, t in zip(primals, tangents, strict=True)]
    pair = custom.jvp(*constant, tree_unflatten(structure, primals), tree_unflatten(structure, given))
    name, rule = function_name(custom.fun), function_name(custom.jvp)
    if not isinstance(pair, (list, tuple)) or len(pair) != 2:
        raise TypeError(
            f"Custom JVP rule {rule} for function {name} must produce a pair (list or tuple of length two) representing primal "
            f"and tangent outputs, but got {pair}."
        )
    outs, out_tree = flat_arrays(pair[0])
    touts, tangent_tree = tree_flatten(pair[1], is_leaf=lambda x: isinstance(x, SymbolicZero))
    if out_tree != tangent_tree:
        raise TypeError(
            f"Custom JVP rule {rule} for function {name} must produce primal and tangent outputs with equal container (pytree) "
            f"structures, but got {out_tree} and {tangent_tree} respectively."
        )
    if note and note[0] != out_tree:
        raise TypeError(
            f"Custom JVP rule {rule} for function {name} must produce a pair whose first element has the structure that "
            f"{name} returns, {note[0]}, but got {out_tree}."
        )
    note[:] = [out_tree]
    return outs, [_checked_tangent(o, t, rule, name) for o, t in zip(outs, touts, strict=True)]


def _checked_tangent(out: Any, tangent: Any, rule: str, name: str) -> Any:
    if isinstance(tangent, SymbolicZero) or not has_tangent(out.aval):
        return None
    value = as_array(as_value(tangent))
    if value.shape != out.shape or value.dtype != out.dtype:
        raise TypeError(
            f"Custom JVP rule must produce primal and tangent outputs with corresponding shapes and dtypes. Expected "
            f"{out.aval.str_short()} (tangent type of {out.aval.str_short()}) but got {value.aval.str_short()} from {rule} for "
            f"function {name}."
        )
    return value


def _custom_jvp_jvp(
    primals: Sequence[Any],
    tangents: Sequence[Any],
    *,
    program: Program,
    count: int,
    rule: Callable[..., Any],
    **rest: Any,
) -> tuple[list[Any], list[Any]]:
    # Tangents of values that the function closes over are dropped, as JAX drops them.
    if all(t is None for t in tangents[count:]):
        outs = bind(custom_jvp_op, *primals, program=program, count=count, rule=rule, **rest)
        return outs, [None] * len(outs)
    return rule(primals[count:], tangents[count:])


def _custom_jvp_batch(
    size: int, axis_name: Any, values: Sequence[Any], dims: Sequence[int | None], params: Params
) -> tuple[list[Any], list[int | Alike]]:
    """Function and rule mapped alike, all results with their mapped dim first."""
    count, rule = params["count"], params["rule"]
    own = tuple(dims[count:])
    again = mapping_again()
    program, consts, alike = mapped_results(size, axis_name, values, dims, params["program"])

    def mapped_rule(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        with again:
            trace = BatchTrace(size, axis_name, of_rule=True)
        enter = lambda x, d: x if d is None or x is None else BatchTracer(trace, x, d)  # noqa: E731
        with tracing(trace):
            outs, touts = rule(
                [enter(p, d) for p, d in zip(primals, own, strict=True)],
                [enter(t, d) for t, d in zip(tangents, own, strict=True)],
            )
        for o, t, both in zip(outs, touts, alike, strict=True):
            if isinstance(both, Alike) and any(
                isinstance(x, BatchTracer) and x.owner is trace and x.alike is None for x in (o, t)
            ):
                both.differ()
        return [lift_result(trace, o) for o in outs], [None if t is None else lift_result(trace, t) for t in touts]

    outs = bind(
        custom_jvp_op,
        *consts,
        *values,
        program=program,
        name=params["name"],
        count=len(consts) + count,
        rule=mapped_rule,
    )
    return outs, alike


def _custom_jvp_transpose(cts: Sequence[Any], *args: Any, program: Program, **_: Any) -> list[Any]:
    """For a function that is linear in the operands in question: its own transpose."""
    return transpose_linear(program, args, cts)


def _shown_params(eqn: Equation, shown: dict[str, Any]) -> dict[str, Any]:
    """The rule by its name, and whether it asks for zeros, as in JAX."""
    rule = eqn.params["rule"]
    custom = next((a for a in getattr(rule, "args", ()) if isinstance(a, custom_jvp)), None)
    name = name_of(custom.jvp) if custom is not None and custom.jvp is not None else name_of(rule)
    return {**shown, "jvp": name, "symbolic_zeros": custom is not None and custom.symbolic_zeros}


custom_jvp_op = define_call(
    "custom_jvp_call",
    jvp=_custom_jvp_jvp,
    transpose=_custom_jvp_transpose,
    batch=_custom_jvp_batch,
    shown=Shown(renamed={"program": "call_jaxpr"}, hidden=frozenset({"count", "rule"}), change=_shown_params),
)
CALLS[custom_jvp_op.name] = _call_flat
