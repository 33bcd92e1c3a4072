"""`checkpoint` (and `remat`, its older name): reverse mode recomputes a function instead of keeping its intermediate values.

The forward pass keeps the arguments, and those values that a policy asks for. The backward pass records one
equation that holds the program; its transpose runs the program again, behind a barrier that keeps it from being merged with
the first run.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from types import MethodType
from typing import Any, cast

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
    Literal,
    Program,
    Replay,
    ShapedArray,
    Shown,
    Tracer,
    Var,
    bind,
    current_trace,
    define_op,
    eval_program,
    exact,
    in_trace,
    is_eager,
    recording_trace,
    splice,
    subprograms,
    trace_program,
    tracing,
)
from shardwise.ir.key_uses import LEAVES, called_uses
from shardwise.ir.narrowed import Narrowed, PartOf, narrow_call
from shardwise.ir.op import Params
from shardwise.ir.program import Source, called_effects
from shardwise.ir.reference_arguments import closed_over
from shardwise.ir.references import Reference, holding, trace_with_state, with_references
from shardwise.ir.sources import user_source
from shardwise.ops.devices.barrier import offload_p, optimization_barrier_p
from shardwise.ops.random.random_bits import shared
from shardwise.ops.rules.convert import as_array, as_value
from shardwise.transforms.bodies.jit_rules import Made, held, remembered, with_tangents, without_state
from shardwise.transforms.derivatives.other_policy import chosen_policy
from shardwise.transforms.derivatives.policies import RECOMPUTE as RECOMPUTE
from shardwise.transforms.derivatives.policies import SAVEABLE as SAVEABLE
from shardwise.transforms.derivatives.policies import Offload as Offload
from shardwise.transforms.derivatives.policies import Policy, Said, asked
from shardwise.transforms.derivatives.policies import checkpoint_policies as checkpoint_policies
from shardwise.transforms.derivatives.prevented import Prevented, among, as_given, behind_barrier, per_leaf
from shardwise.transforms.interpreters.batch_trace import batch_program
from shardwise.transforms.interpreters.jvp import JVPTrace, JVPTracer, has_tangent, instantiate, jvp_program
from shardwise.transforms.interpreters.linearize import linearize_flat, transpose_linear, transpose_program

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
    prevented = as_given(prevent_cse)
    static_names = (static_argnames,) if isinstance(static_argnames, str) else tuple(static_argnames)
    static = (static_argnums,) if isinstance(static_argnums, int) else tuple(static_argnums)

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
        fixed = {n % len(args): args[n] for n in static}
        closed = closed_over(([a for i, a in enumerate(args) if i not in fixed], kwargs))
        if closed is not None:
            (own, keywords), rebuilt = closed

            def over_rest(*rest: Any, **named: Any) -> Any:
                given, named = rebuilt((rest, named))
                after = iter(given)
                return cast(Callable[..., Any], fun)(
                    *[fixed[i] if i in fixed else next(after) for i in range(len(args))], **named
                )

            rest = tuple(a for i, a in enumerate(args) if i not in fixed)
            held = per_leaf(prevented, rest, kwargs)
            held = held if isinstance(held, bool) else any(held)
            return checkpoint(over_rest, prevent_cse=held, policy=policy)(*own, **keywords)

        def run(references: Sequence[Reference]) -> tuple[Sequence[Any], Any]:
            if not references:
                return (), recorded(fixed, args, kwargs)

            def with_state(values: Sequence[Any], *rest: Any, **named: Any) -> Any:
                with holding(references, values):
                    result = fun(*rest, **named)
                    return [r.held() for r in references], result

            options: dict[str, Any] = {"static_argnums": tuple(i + 1 for i in fixed), "static_argnames": static_names}
            held = prevented if isinstance(prevented, bool) else (True, *prevented)
            again = checkpoint(with_state, prevent_cse=held, policy=policy, **options)
            return again([r.held() for r in references], *args, **kwargs)

        return with_references(run)

    def recorded(fixed: dict[int, Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        dynamic = tuple(a for i, a in enumerate(args) if i not in fixed)
        named = {k: v for k, v in kwargs.items() if k in static_names}
        traced = {k: v for k, v in kwargs.items() if k not in named}
        leaves, structure = tree_flatten((dynamic, traced))
        values = [as_array(as_value(x)) for x in leaves]
        types = [v.aval for v in values]

        def trace() -> _Traced:
            out_tree: PyTreeDef | None = None

            def flat(*xs: Any) -> list[Any]:
                nonlocal out_tree
                given, keywords = tree_unflatten(structure, xs)
                rest = iter(given)
                result = cast(Callable[..., Any], fun)(
                    *[fixed[i] if i in fixed else next(rest) for i in range(len(args))], **keywords, **named
                )
                outs, out_tree = tree_flatten(result)
                return [as_array(as_value(o)) for o in outs]

            name = getattr(fun, "__name__", "checkpoint")
            recording = recording_trace(name)
            try:
                program, consts = trace_program(flat, types, name, trace=recording)
            except ConcretizationTypeError as error:
                error.add_note(
                    "It happened inside a checkpointed function; arguments that Python code branches on can be marked static "
                    "with the static_argnums parameter of checkpoint."
                )
                raise
            assert out_tree is not None
            return _Traced(program, tuple(consts), out_tree, bool(recording.used_references))

        statics = (len(args), *[(i, exact(x)) for i, x in fixed.items()], *[(k, exact(v)) for k, v in named.items()])
        held = per_leaf(prevented, dynamic, traced)
        known = _known_trace(fun, (context_token(), structure, statics, *types), trace)
        program, operands, out_tree = known.program, [*known.consts, *values], known.out_tree
        if is_eager():
            return tree_unflatten(out_tree, eval_program(program, operands))
        chosen = chosen_policy(policy) or None  # many a program calls a policy: `nothing_saveable()` is False
        held = among(held, before=len(known.consts))
        outs = bind(checkpoint_op, *operands, program=program, policy=chosen, prevent_cse=held)
        return tree_unflatten(out_tree, outs)

    return remat


@dataclass(frozen=True, slots=True)
class _Traced:
    """A checkpointed function's program, the values that it captured, and the structure of its results."""

    program: Program
    consts: tuple[Any, ...]
    out_tree: PyTreeDef
    reads_references: bool


_traces: weakref.WeakKeyDictionary[Any, Bounded[Any, _Traced]] = weakref.WeakKeyDictionary()
at_clear(_traces.clear)


def _known_trace(fun: Callable[..., Any], key: tuple[Any, ...], trace: Callable[[], _Traced]) -> _Traced:
    """`trace()`, once per function and key: all layers of an unrolled model share a program, and what is derived from it.

    One that captured tracers is traced anew, as is a static argument that does not hash, and a callable object with an equality of its
    own: equal ones may compute different values, as those that hold 1 and 1.0 do. So is one with loops and branches: a body has one
    layout, and each call may want another.
    """
    if not isinstance(fun, MethodType) and type(fun).__eq__ is not object.__eq__:
        return trace()
    try:
        table = _traces.setdefault(fun, Bounded())
        found = table.get(key)
    except TypeError:
        return trace()
    if found is not None:
        return found
    found = trace()
    passing = found.reads_references or any(isinstance(c, Tracer) for c in found.consts)
    if not passing and not _has_laid_out_bodies(found.program):
        table[key] = found
    return found


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
    primals: Sequence[Any], tangents: Sequence[Any], *, program: Program, prevent_cse: Prevented, **params: Any
) -> tuple[list[Any], list[Any]]:
    """A checkpointed call for values and tangents."""
    made: Made = with_tangents(program, tuple(t is not None for t in tangents))
    moving = [t for t in tangents if t is not None]
    held = among(prevent_cse, before=len(made.consts), after=len(moving))
    outs = bind(checkpoint_op, *made.consts, *primals, *moving, program=made.program, prevent_cse=held, **params)
    count = len(program.outputs)
    found = dict(zip(made.results, outs[count:], strict=True))
    return outs[:count], [found.get(i) for i in range(count)]


def _batch(
    size: int, axis_name: Any, values: Sequence[Any], dims: Sequence[int | None], params: Params
) -> tuple[list[Any], list[int | None]]:
    found: list[int | None] = []

    def mapped(*xs: Any) -> list[Any]:
        outs, found[:] = batch_program(params["program"], size, axis_name, xs, dims)
        return outs

    body, consts = trace_program(mapped, [v.aval for v in values], params["program"].name)
    held = among(params["prevent_cse"], before=len(consts))
    return bind(checkpoint_op, *consts, *values, **{**params, "program": body, "prevent_cse": held}), found


def _linearize(
    trace: Any, primals: Sequence[Any], tangents: Sequence[Any], params: Params
) -> tuple[list[Any], list[Any]]:
    """The forward pass with the values that the policy keeps, and an equation that can compute the rest again."""
    live = tuple(t is not None for t in tangents)
    reached = with_tangents(params["program"], live).results
    said: Said = asked(params["program"], params["policy"], live)
    program, kept = said.program, said.kept
    primals = [*said.consts, *primals]
    live = (False,) * len(said.consts) + live
    with tracing(trace.parent):
        held = among(params["prevent_cse"], before=len(said.consts))
        again = {**params, "program": said.forward, "prevent_cse": held}
        outs = eval_program(said.forward, primals) if is_eager() else bind(checkpoint_op, *primals, **again)
        count = len(program.outputs)
        live += (False,) * said.inside
        waiting = [
            x if place is None else bind(offload_p, x, memory_kind=place.dst)
            for x, place in zip(outs[count:], said.places, strict=True)
        ]
    touts = bind(
        remat_op,
        *primals,
        *waiting,
        *[t for t in tangents if t is not None],
        program=program,
        kept=kept,
        still=said.still,
        live=live,
        prevent_cse=held,
    )
    found = iter(touts)
    moved = [next(found) if has_tangent(t) else None for t in program.out_types]
    return outs[:count], [t if i in reached else None for i, t in enumerate(moved)]


def _transpose(cts: Sequence[Any], *args: Any, program: Program, **_: Any) -> list[Any]:
    return transpose_linear(program, args, cts)


def _shown(eqn: Equation, shown: dict[str, Any]) -> dict[str, Any]:
    return {"differentiated": False, "policy": None, **shown}


def _narrow(params: Params, wanted: Sequence[bool], part_of: PartOf) -> Narrowed:
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
    shown=Shown("remat2", aliases=("remat",), renamed={"program": "jaxpr"}, change=_shown),
    keys=called_uses,
    narrow=_narrow,
)


# -- tangents of a checkpointed call, for the backward pass -----------------------------------------------------------------


def _remat_type(*types: ShapedArray, program: Program, **_: Any) -> tuple[ShapedArray, ...]:
    return tuple(t for t in program.out_types if has_tangent(t))


def _given(
    args: Sequence[Any], program: Program, kept: Sequence[int], live: Sequence[bool]
) -> tuple[list[Any], dict[Var, Any], list[Any]]:
    """The primals, the kept values by variable, and the rest: what stands for tangents."""
    count = len(program.inputs)
    names = [v for i in kept for v in program.equations[i].outputs]
    values = dict(zip(names, args[count : count + len(names)], strict=True))
    return list(args[:count]), values, list(args[count + len(names) :])


def _run_again(
    program: Program, kept: Sequence[int], still: Sequence[int], known: dict[Var, Any], values: Sequence[Any]
) -> list[Any]:
    """Evaluate `program` under a JVP trace, taking the values of `known` variables as they are: only their tangents are computed.

    No tangents go through the equations at the positions `still`. Those `kept` that have no results, such as prints, are left out.
    """
    trace = current_trace()
    assert isinstance(trace, JVPTrace)
    env: dict[Var, Any] = dict(zip(program.inputs, values, strict=True))
    alone, done = set(still), {i for i in kept if not program.equations[i].outputs}
    with Replay() as replay:
        for i, eqn in enumerate(program.equations):
            if i in done:
                continue
            replay.source = eqn.source
            args = [a if isinstance(a, Literal) else env[a] for a in eqn.inputs]
            if i in alone:
                args = [trace.unwrap(x)[0] for x in args]
            outs = bind(eqn.op, *args, **eqn.params)
            for var, out in zip(eqn.outputs, outs if eqn.op.multiple_results else [outs], strict=True):
                if var in known:
                    _, tangent = trace.unwrap(out)
                    out = known[var] if tangent is None else JVPTracer(trace, known[var], tangent)
                env[var] = out
    return [in_trace(a) if isinstance(a, Literal) else env[a] for a in program.outputs]


def _remat_transpose(
    cts: Sequence[Any],
    *args: Any,
    program: Program,
    kept: tuple[int, ...],
    still: tuple[int, ...],
    live: tuple[bool, ...],
    prevent_cse: Prevented,
) -> list[Any]:
    """The second run of the program, linearized and transposed at once."""
    count = sum(live)
    values = [*args[: len(args) - count], *[c for c in cts if c is not None]]
    options = (program, kept, still, live, prevent_cse)
    if is_eager():
        found = _pull(*options, args, cts)
    else:  # once for all layers that share the program
        alive = tuple(c is not None for c in cts)
        made: Made = _pulled(*options, alive, tuple([v.aval for v in values]), user_source())
        results = list(splice(made.program, [*made.consts, *values, *held(made.references)]))
        outs = iter(without_state(results, made.references))
        found = [next(outs) if there else None for there in made.results]
    return [None] * (len(args) - count) + found


@remembered
def _pulled(
    program: Program,
    kept: tuple[int, ...],
    still: tuple[int, ...],
    live: tuple[bool, ...],
    prevent_cse: Prevented,
    alive: tuple[bool, ...],
    types: tuple[ShapedArray, ...],
    source: Source | None,
) -> Made:
    """`_pull` as a program of values of these types: those that are no tangents, and the cotangents that are `alive`.

    `source` is that of the equations which have no other.
    """
    there: tuple[bool, ...] = ()

    def run(*values: Any) -> list[Any]:
        nonlocal there
        given = iter(values[len(values) - sum(alive) :])
        cts = [next(given) if a else None for a in alive]
        args = [*values[: len(values) - sum(alive)], *[None] * sum(live)]
        found = _pull(program, kept, still, live, prevent_cse, args, cts)
        there = tuple(x is not None for x in found)
        return [x for x in found if x is not None]

    body, consts, used = trace_with_state(run, types, program.name)
    return Made(body, tuple(consts), there, used)


def _pull(
    program: Program,
    kept: tuple[int, ...],
    still: tuple[int, ...],
    live: tuple[bool, ...],
    prevent_cse: Prevented,
    args: Sequence[Any],
    cts: Sequence[Any],
) -> list[Any]:
    """The cotangents of the tangents among `args`."""
    primals, known, _ = _given(args, program, kept, live)
    primals = [shared(x) for x in primals]  # the second run consumes the keys of the first one again
    values = [*primals, *known.values()]
    held = behind_barrier(prevent_cse, len(primals), len(known))
    if held and not is_eager():
        for i, value in zip(held, bind(optimization_barrier_p, *[values[i] for i in held]), strict=True):
            values[i] = value
        primals, known = values[: len(primals)], dict(zip(known, values[len(primals) :], strict=True))
    lin = linearize_flat(lambda *xs: [as_array(o) for o in _run_again(program, kept, still, known, xs)], primals, live)
    given = iter(cts)
    full = [next(given) if has_tangent(t) else None for t in program.out_types]
    found = dict(zip(lin.ins, transpose_program(lin.program, lin.residuals, [full[i] for i in lin.outs]), strict=True))
    return [found.get(i) for i, alive in enumerate(live) if alive]


def _remat_inline(eqn: Equation) -> Program:
    """If the tangents themselves are needed, they are computed together with the values, a second time."""
    program, live = eqn.params["program"], eqn.params["live"]

    def pushed(*args: Any) -> list[Any]:
        primals, _, tangents = _given(args, program, eqn.params["kept"], live)
        ts = iter(tangents)
        _, touts = jvp_program(program, primals, [next(ts) if alive else None for alive in live])
        return [instantiate(t, aval) for t, aval in zip(touts, program.out_types, strict=True) if has_tangent(aval)]

    body, _ = trace_program(pushed, [a.aval for a in eqn.inputs], program.name)
    return body


remat_op = define_op(
    "remat",
    type_rule=_remat_type,
    multiple_results=True,
    typed=True,
    transpose=_remat_transpose,
    inline=_remat_inline,
    keys=LEAVES,
)
