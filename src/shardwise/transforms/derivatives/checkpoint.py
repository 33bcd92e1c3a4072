"""`checkpoint` (and `remat`, its older name): reverse mode recomputes a function instead of keeping its intermediate values.

The forward pass keeps the arguments, and those values that a policy asks for. The backward pass records one
equation that holds the program; its transpose runs the program again, behind a barrier that keeps it from being merged with
the first run.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from types import MethodType
from typing import Any, NamedTuple, cast

from shardwise.base.caches import Bounded, at_clear
from shardwise.base.config import context_token
from shardwise.base.errors import ConcretizationTypeError
from shardwise.base.lazy_dataclasses import dataclass
from shardwise.base.signatures import P, R
from shardwise.base.tracebacks import user_facing
from shardwise.base.tree import PyTreeDef, tree_flatten, tree_unflatten
from shardwise.base.wrapping import wraps
from shardwise.ir import (
    Equation,
    Program,
    ShapedArray,
    Shown,
    Tracer,
    bind,
    current_trace,
    define_op,
    eval_program,
    exact,
    is_eager,
    recording_trace,
    subprograms,
    trace_of_operands,
    trace_program,
    tracing,
)
from shardwise.ir.key_uses import called_uses
from shardwise.ir.narrowed import NarrowedEquation, PartOf, narrow_call
from shardwise.ir.op import Params
from shardwise.ir.program import called_effects
from shardwise.ir.reference_arguments import close_over
from shardwise.ir.references import Reference, hold_references, root_of, shows_reference, with_references
from shardwise.ops.devices.barrier import offload_p
from shardwise.ops.rules.convert import as_array, as_value
from shardwise.transforms.bodies.jit_rules import DerivedProgram, with_tangents
from shardwise.transforms.derivatives.other_policy import chosen_policy
from shardwise.transforms.derivatives.policies import RECOMPUTE as RECOMPUTE
from shardwise.transforms.derivatives.policies import SAVEABLE as SAVEABLE
from shardwise.transforms.derivatives.policies import DividedProgram, Policy, ask_policy
from shardwise.transforms.derivatives.policies import Offload as Offload
from shardwise.transforms.derivatives.policies import checkpoint_policies as checkpoint_policies
from shardwise.transforms.derivatives.prevented import PreventedLeaves, among, normalize_prevent_cse, per_leaf
from shardwise.transforms.derivatives.second_run import SecondRun, bind_again
from shardwise.transforms.interpreters.batch_trace import batch_program
from shardwise.transforms.interpreters.jvp import has_tangent
from shardwise.transforms.interpreters.linearize import transpose_linear

# -- public ------------------------------------------------------------------------------------------------------------------


def checkpoint(
    fun: Callable[P, R],
    *,
    prevent_cse: bool | Sequence[Any] = True,
    policy: Policy | None = None,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Sequence[str] = (),
    concrete: bool = False,
) -> Callable[P, R]:
    """`fun`, but reverse mode keeps only its arguments and recomputes the rest.

    Args:
        fun: the function. For a decorator with options write ``functools.partial(checkpoint, policy=...)``.
        prevent_cse: keep the second computation from being merged with the first (unneeded where a loop separates them);
            a tuple says for each positional argument, or each part of it, whether the second computation is held back by it.
        policy: ``policy(primitive, *types, **params) -> bool`` selects results that are kept nonetheless; see `checkpoint_policies`.
        static_argnums: arguments that are constants of the trace, by position;
        static_argnames: and by keyword.
        concrete: not supported any more; use static_argnums.

    Raises:
        NotImplementedError: `concrete` is true. ValueError: a static argument's position is out of range.

    >>> f = jax.checkpoint(jnp.sin)  # sin's operand is computed again in the backward pass
    >>> jax.grad(f)(0.0)
    Array(1., dtype=float32, weak_type=True)
    """
    if concrete:
        raise NotImplementedError(
            "the concrete option of checkpoint does not exist any more: mark arguments static "
            "with static_argnums, or "
            "compute what Python branches on outside."
        )
    static_names = (static_argnames,) if isinstance(static_argnames, str) else tuple(static_argnames)
    static = (static_argnums,) if isinstance(static_argnums, int) else tuple(static_argnums)
    checkpointed_function = _CheckpointedFunction(
        cast(Callable[..., Any], fun), normalize_prevent_cse(prevent_cse), policy, static_names
    )

    @wraps(fun)
    @user_facing
    def remat(*args: Any, **kwargs: Any) -> Any:
        for n in static:
            if not -len(args) <= n < len(args):
                raise ValueError(
                    f"the `static_argnums` argument to `jax.checkpoint` can only take integer values greater than or equal to "
                    f"`-len(args)` and less than `len(args)`, where `args` is the tuple of positional "
                    f"arguments; got {static} for "
                    f"{len(args)} arguments."
                )
        return checkpointed_function.call(_Arguments.of(args, kwargs, static))

    return remat


class _Arguments(NamedTuple):
    """Arguments of a call: how many are `positional`, the static ones by position (`static_args`), and the `rest` of them, in order."""

    positional: int
    static_args: dict[int, Any]
    rest: tuple[Any, ...]
    kwargs: dict[str, Any]

    @classmethod
    def of(cls, args: tuple[Any, ...], kwargs: dict[str, Any], static: Sequence[int]) -> _Arguments:
        static_args = {n % len(args): args[n] for n in static}
        return cls(len(args), static_args, tuple(a for i, a in enumerate(args) if i not in static_args), kwargs)

    def with_rest(self, rest: Sequence[Any]) -> list[Any]:
        """The positional arguments, with others for `rest`."""
        after = iter(rest)
        return [self.static_args[i] if i in self.static_args else next(after) for i in range(self.positional)]


@dataclass(frozen=True, slots=True)
class _CheckpointedFunction:
    """A function, and how it is checkpointed."""

    fun: Callable[..., Any]
    prevented_leaves: Any
    policy: Policy | None
    static_names: tuple[str, ...]

    def call(self, given: _Arguments) -> Any:
        """The function's results. References among the arguments are closed over; their arrays are state."""
        closure = close_over((given.rest, given.kwargs))
        if closure is not None:
            (own, keywords), rebuild = closure

            def over_rest(*rest: Any, **named_args: Any) -> Any:
                rest, named_args = rebuild((rest, named_args))
                return self.fun(*given.with_rest(rest), **named_args)

            prevents_cse = per_leaf(self.prevented_leaves, given.rest, given.kwargs)
            prevents_cse = prevents_cse if isinstance(prevents_cse, bool) else any(prevents_cse)
            return checkpoint(over_rest, prevent_cse=prevents_cse, policy=self.policy)(*own, **keywords)

        def run(references: Sequence[Reference]) -> tuple[Sequence[Any], Any]:
            if not references:
                return (), self.record(given)

            def with_state(values: Sequence[Any], *args: Any, **kwargs: Any) -> Any:
                with hold_references(references, values):
                    result = self.fun(*args, **kwargs)
                    return [r.held() for r in references], result

            static = tuple(i + 1 for i in given.static_args)
            held_leaves = (
                self.prevented_leaves if isinstance(self.prevented_leaves, bool) else (True, *self.prevented_leaves)
            )
            again = checkpoint(
                with_state,
                prevent_cse=held_leaves,
                policy=self.policy,
                static_argnums=static,
                static_argnames=self.static_names,
            )
            return again([r.held() for r in references], *given.with_rest(given.rest), **given.kwargs)

        return with_references(run)

    def record(self, given: _Arguments) -> Any:
        """The results of an equation that holds the function's program."""
        static_kwargs = {k: v for k, v in given.kwargs.items() if k in self.static_names}
        traced_kwargs = {k: v for k, v in given.kwargs.items() if k not in static_kwargs}
        leaves, structure = tree_flatten((given.rest, traced_kwargs))
        values = [as_array(as_value(x)) for x in leaves]
        types = [v.aval for v in values]

        def run(*xs: Any) -> Any:
            rest, keywords = tree_unflatten(structure, xs)
            return self.fun(*given.with_rest(rest), **keywords, **static_kwargs)

        static_keys = [(i, exact(x)) for i, x in given.static_args.items()]
        statics = (given.positional, *static_keys, *[(k, exact(v)) for k, v in static_kwargs.items()])
        held_leaves = per_leaf(self.prevented_leaves, given.rest, traced_kwargs)
        key = (context_token(), structure, statics, *types)
        function_trace = _known_trace(
            self.fun, key, lambda: _trace(run, types, getattr(self.fun, "__name__", "checkpoint"))
        )
        program, operands, out_tree = function_trace.program, [*function_trace.consts, *values], function_trace.out_tree
        trace = trace_of_operands(operands)
        if trace is None and is_eager():
            return tree_unflatten(out_tree, eval_program(program, operands))
        chosen = chosen_policy(self.policy) or None  # many a program calls a policy: `nothing_saveable()` is False
        held_leaves = among(held_leaves, before=len(function_trace.consts))
        with tracing(trace or current_trace()):
            outs = bind(checkpoint_op, *operands, program=program, policy=chosen, prevent_cse=held_leaves)
        return tree_unflatten(out_tree, outs)


@dataclass(frozen=True, slots=True)
class _TracedFunction:
    """A checkpointed function's program, the values that it captured, and the structure of its results."""

    program: Program
    consts: tuple[Any, ...]
    out_tree: PyTreeDef
    reads_references: bool


def _trace(run: Callable[..., Any], types: Sequence[ShapedArray], name: str) -> _TracedFunction:
    """`run`, from flat arguments of these types to a tree."""
    out_tree: PyTreeDef | None = None

    def flat(*xs: Any) -> list[Any]:
        nonlocal out_tree
        outs, out_tree = tree_flatten(run(*xs))
        for o in outs:
            if shows_reference(o):
                raise root_of(o).return_error(name, "checkpoint")
        return [as_array(as_value(o)) for o in outs]

    recorder = recording_trace(name)
    try:
        program, consts = trace_program(flat, types, name, trace=recorder)
    except ConcretizationTypeError as error:
        error.add_note(
            "It happened inside a checkpointed function; arguments that Python code branches on can be marked static "
            "with the static_argnums parameter of checkpoint."
        )
        raise
    assert out_tree is not None
    return _TracedFunction(program, tuple(consts), out_tree, bool(recorder.used_references))


_traces: weakref.WeakKeyDictionary[Any, Bounded[Any, _TracedFunction]] = weakref.WeakKeyDictionary()
at_clear(_traces.clear)


def _known_trace(
    fun: Callable[..., Any], key: tuple[Any, ...], trace: Callable[[], _TracedFunction]
) -> _TracedFunction:
    """`trace()`, once per function and key: all layers of an unrolled model share a program, and what is derived from it.

    Traced anew each time: a function that captured tracers; one with a static argument that does not hash; a callable object with its own
    `__eq__`, since equal objects may compute different values (they may hold 1 and 1.0); a function with loops and branches, since a body
    has one layout and each call may want another.
    """
    if not isinstance(fun, MethodType) and type(fun).__eq__ is not object.__eq__:
        return trace()
    try:
        table = _traces.setdefault(fun, Bounded())
        known_trace = table.get(key)
    except TypeError:
        return trace()
    if known_trace is not None:
        return known_trace
    known_trace = trace()
    is_transient = known_trace.reads_references or any(isinstance(c, Tracer) for c in known_trace.consts)
    if not is_transient and not _has_laid_out_bodies(known_trace.program):
        table[key] = known_trace
    return known_trace


def remat(
    fun: Callable[P, R],
    *,
    prevent_cse: bool | Sequence[Any] = True,
    policy: Policy | None = None,
    static_argnums: int | Sequence[int] = (),
    concrete: bool = False,
) -> Callable[P, R]:
    """`checkpoint` under its older name: `fun`, recomputed in reverse mode. `prevent_cse`, `policy`, `static_argnums`
    and `concrete` as there; arguments by keyword cannot be static.

    >>> jax.grad(jax.remat(jnp.sin))(0.0)
    Array(1., dtype=float32, weak_type=True)
    """
    return checkpoint(fun, prevent_cse=prevent_cse, policy=policy, static_argnums=static_argnums, concrete=concrete)


def _has_laid_out_bodies(program: Program) -> bool:
    """Whether propagation gives layouts to values of loops and branches inside: of those that stand in no fully manual region."""
    return any(
        e.op.edges is not None or any(_has_laid_out_bodies(p) for _, p in subprograms(e.params))
        for e in program.equations
        if not (e.op.boundary and e.params["manual"].issuperset(e.params["mesh"].axis_names))
    )


# -- the op ------------------------------------------------------------------------------------------------------------------


def _type(*types: ShapedArray, program: Program, **_: Any) -> tuple[ShapedArray, ...]:
    return program.out_types


def _jvp(
    primals: Sequence[Any], tangents: Sequence[Any], *, program: Program, prevent_cse: PreventedLeaves, **params: Any
) -> tuple[list[Any], list[Any]]:
    """A checkpointed call for values and tangents."""
    pushed_program: DerivedProgram = with_tangents(program, tuple(t is not None for t in tangents))
    live_tangents = [t for t in tangents if t is not None]
    held_leaves = among(prevent_cse, before=len(pushed_program.consts), after=len(live_tangents))
    outs = bind(
        checkpoint_op,
        *pushed_program.consts,
        *primals,
        *live_tangents,
        program=pushed_program.program,
        prevent_cse=held_leaves,
        **params,
    )
    count = len(program.outputs)
    tangent_of = dict(zip(pushed_program.results, outs[count:], strict=True))
    return outs[:count], [tangent_of.get(i) for i in range(count)]


def _batch(
    size: int, axis_name: Any, values: Sequence[Any], dims: Sequence[int | None], params: Params
) -> tuple[list[Any], list[int | None]]:
    result_dims: list[int | None] = []

    def map_values(*xs: Any) -> list[Any]:
        outs, result_dims[:] = batch_program(params["program"], size, axis_name, xs, dims)
        return outs

    body, consts = trace_program(map_values, [v.aval for v in values], params["program"].name)
    held_leaves = among(params["prevent_cse"], before=len(consts))
    return bind(checkpoint_op, *consts, *values, **{**params, "program": body, "prevent_cse": held_leaves}), result_dims


def _linearize(
    trace: Any, primals: Sequence[Any], tangents: Sequence[Any], params: Params
) -> tuple[list[Any], list[Any]]:
    """The forward pass with the values that the policy keeps, and an equation that can compute the rest again."""
    live = tuple(t is not None for t in tangents)
    derived_program: DerivedProgram = with_tangents(params["program"], live)
    division: DividedProgram = ask_policy(params["program"], params["policy"], live)
    program, kept_equations = division.program, division.kept_equations
    primals = [*division.consts, *primals]
    live = (False,) * len(division.consts) + live
    with tracing(trace.parent):
        held_leaves = among(params["prevent_cse"], before=len(division.consts))
        again = {**params, "program": division.forward, "prevent_cse": held_leaves}
        outs = eval_program(division.forward, primals) if is_eager() else bind(checkpoint_op, *primals, **again)
        count = len(program.outputs)
        live += (False,) * division.inside
        waiting_values = [
            x if place is None else bind(offload_p, x, memory_kind=place.dst)
            for x, place in zip(outs[count:], division.places, strict=True)
        ]
    run = SecondRun(program, kept_equations, division.still, live, held_leaves, None)
    live_inputs = [t for t in tangents if t is not None]
    touts = bind_again(run, primals, waiting_values, live_inputs, captures=bool(derived_program.consts))
    live_tangents = iter(touts)
    tangents_out = [next(live_tangents) if has_tangent(t) else None for t in program.out_types]
    return outs[:count], [t if i in derived_program.results else None for i, t in enumerate(tangents_out)]


def _transpose(cts: Sequence[Any], *args: Any, program: Program, **_: Any) -> list[Any]:
    return transpose_linear(program, args, cts)


def _shown_params(eqn: Equation, shown: dict[str, Any]) -> dict[str, Any]:
    return {"differentiated": False, "policy": None, **shown}


def _narrow(params: Params, wanted: Sequence[bool], part_of: PartOf) -> NarrowedEquation:
    return narrow_call(
        params, wanted, part_of, per_operand="" if isinstance(params["prevent_cse"], bool) else "prevent_cse"
    )


checkpoint_op = define_op(
    "checkpoint",
    type_rule=_type,
    multiple_results=True,
    typed=True,
    jvp=_jvp,
    linearize=_linearize,
    transpose=_transpose,
    batch=_batch,
    inline=lambda eqn: eqn.params["program"],
    effects=called_effects,
    shown=Shown("remat2", aliases=("remat",), renamed={"program": "jaxpr"}, change=_shown_params),
    keys=called_uses,
    narrow=_narrow,
)
