"""`checkpoint` (and `remat`, its older name): reverse mode recomputes a function instead of keeping its intermediate values.

The forward pass keeps the arguments, and those values that a policy asks for. The backward pass records one
equation that holds the program; its transpose runs the program again, behind a barrier that keeps it from being merged with
the first run.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from shardwise.base.errors import ConcretizationTypeError
from shardwise.base.tracebacks import user_facing
from shardwise.base.tree import PyTreeDef, tree_flatten, tree_unflatten
from shardwise.ir import (
    Equation,
    Literal,
    Program,
    Replay,
    ShapedArray,
    Shown,
    Var,
    bind,
    current_trace,
    define_op,
    eval_program,
    is_eager,
    trace_program,
    tracing,
)
from shardwise.ir.key_uses import LEAVES, called_uses
from shardwise.ir.op import Params
from shardwise.ops.devices.barrier import name_p, offload_p, optimization_barrier_p
from shardwise.ops.random.random_bits import shared
from shardwise.ops.rules.convert import as_array, as_value
from shardwise.transforms.derivatives.other_policy import chosen_policy
from shardwise.transforms.interpreters.batch_trace import batch_program
from shardwise.transforms.interpreters.jvp import JVPTrace, JVPTracer, has_tangent, instantiate, jvp_program
from shardwise.transforms.interpreters.linearize import linearize_flat, transpose_linear, transpose_program
from shardwise.transforms.programs.jaxpr_text import primitive_name
from shardwise.transforms.programs.primitives import primitive_of

Policy = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Offload:
    """What a policy says of a value that is kept in the memory `dst` rather than in `src`, where it is computed."""

    src: str
    dst: str


# -- public ------------------------------------------------------------------------------------------------------------------


def checkpoint(
    fun: Callable[..., Any],
    *,
    prevent_cse: bool = True,
    policy: Policy | None = None,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Sequence[str] = (),
    concrete: bool = False,
) -> Any:
    """`fun`, but reverse mode keeps only its arguments and recomputes the rest.

    Args:
        fun: the function. For a decorator with options write ``functools.partial(checkpoint, policy=...)``.
        prevent_cse: keep the second computation from being merged with the first (unneeded where a loop separates them).
        policy: ``policy(primitive, *types, **params) -> bool`` selects results that are kept nonetheless; see `checkpoint_policies`.
        static_argnums: arguments that are constants of the trace, by position;
        static_argnames: and by keyword.
        concrete: not supported any more; use static_argnums.
    """
    if concrete:
        raise NotImplementedError(
            "the concrete option of checkpoint does not exist any more: mark arguments static "
            "with static_argnums, or "
            "compute what Python branches on outside."
        )
    static_names = (static_argnames,) if isinstance(static_argnames, str) else tuple(static_argnames)
    static = (static_argnums,) if isinstance(static_argnums, int) else tuple(static_argnums)

    @functools.wraps(fun)
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
        dynamic = tuple(a for i, a in enumerate(args) if i not in fixed)
        named = {k: v for k, v in kwargs.items() if k in static_names}
        traced = {k: v for k, v in kwargs.items() if k not in named}
        leaves, structure = tree_flatten((dynamic, traced))
        values = [as_array(as_value(x)) for x in leaves]
        out_tree: PyTreeDef | None = None

        def flat(*xs: Any) -> list[Any]:
            nonlocal out_tree
            given, keywords = tree_unflatten(structure, xs)
            rest = iter(given)
            result = fun(*[fixed[i] if i in fixed else next(rest) for i in range(len(args))], **keywords, **named)
            outs, out_tree = tree_flatten(result)
            return [as_array(as_value(o)) for o in outs]

        try:
            program, consts = trace_program(flat, [v.aval for v in values], getattr(fun, "__name__", "checkpoint"))
        except ConcretizationTypeError as error:
            error.add_note(
                "It happened inside a checkpointed function; arguments that Python code branches on can be marked static "
                "with the static_argnums parameter of checkpoint."
            )
            raise
        assert out_tree is not None
        if is_eager():
            return tree_unflatten(out_tree, eval_program(program, [*consts, *values]))
        chosen = chosen_policy(policy)
        outs = bind(checkpoint_op, *consts, *values, program=program, policy=chosen, prevent_cse=prevent_cse)
        return tree_unflatten(out_tree, outs)

    return remat


def remat(
    fun: Callable[..., Any],
    *,
    prevent_cse: bool = True,
    policy: Policy | None = None,
    static_argnums: int | Sequence[int] = (),
    concrete: bool = False,
) -> Any:
    """The older name of `checkpoint`, and its arguments; those by keyword cannot be static."""
    return checkpoint(fun, prevent_cse=prevent_cse, policy=policy, static_argnums=static_argnums, concrete=concrete)


# -- the op ------------------------------------------------------------------------------------------------------------------


def _type(*types: ShapedArray, program: Program, **_: Any) -> tuple[ShapedArray, ...]:
    return program.out_types


def _jvp(
    primals: Sequence[Any], tangents: Sequence[Any], *, program: Program, **params: Any
) -> tuple[list[Any], list[Any]]:
    """A checkpointed call for values and tangents."""
    live = [i for i, t in enumerate(tangents) if t is not None]
    moving: list[int] = []

    def both(*values: Any) -> list[Any]:
        ts: list[Any] = [None] * len(primals)
        for i, t in zip(live, values[len(primals) :], strict=True):
            ts[i] = t
        outs, touts = jvp_program(program, values[: len(primals)], ts)
        moving[:] = [i for i, t in enumerate(touts) if t is not None]
        return [*outs, *[touts[i] for i in moving]]

    body, consts = trace_program(both, [*program.in_types, *[program.in_types[i] for i in live]], program.name)
    outs = bind(checkpoint_op, *consts, *primals, *[tangents[i] for i in live], program=body, **params)
    count = len(program.outputs)
    found = dict(zip(moving, outs[count:], strict=True))
    return outs[:count], [found.get(i) for i in range(count)]


def _batch(
    size: int, axis_name: Any, values: Sequence[Any], dims: Sequence[int | None], params: Params
) -> tuple[list[Any], list[int | None]]:
    found: list[int | None] = []

    def mapped(*xs: Any) -> list[Any]:
        outs, found[:] = batch_program(params["program"], size, axis_name, xs, dims)
        return outs

    body, consts = trace_program(mapped, [v.aval for v in values], params["program"].name)
    return bind(checkpoint_op, *consts, *values, **{**params, "program": body}), found


def _linearize(
    trace: Any, primals: Sequence[Any], tangents: Sequence[Any], params: Params
) -> tuple[list[Any], list[Any]]:
    """The forward pass with the values that the policy keeps, and an equation that can compute the rest again."""
    program: Program = params["program"]
    policy = params["policy"]
    kept: tuple[int, ...] = ()
    places: dict[int, Offload] = {}
    if policy is not None:
        program = without_jit(program)
        said = {i: _keeps(policy, e) for i, e in enumerate(program.equations)}
        kept = tuple(
            i
            for i, found in said.items()
            if found and not all(v in program.outputs for v in program.equations[i].outputs)
        )
        places = {i: found for i, found in said.items() if isinstance(found, Offload)}
    saved = [(v, places.get(i)) for i in kept for v in program.equations[i].outputs]
    forward = Program(
        program.inputs, program.equations, (*program.outputs, *[v for v, _ in saved]), program.num_consts, program.name
    )
    with tracing(trace.parent):
        again = {**params, "program": forward}
        outs = eval_program(forward, primals) if is_eager() else bind(checkpoint_op, *primals, **again)
        count = len(program.outputs)
        waiting = [
            x if place is None else bind(offload_p, x, memory_kind=place.dst)
            for x, (_, place) in zip(outs[count:], saved, strict=True)
        ]
    live = tuple(t is not None for t in tangents)
    touts = bind(
        remat_op,
        *primals,
        *waiting,
        *[t for t in tangents if t is not None],
        program=program,
        kept=kept,
        live=live,
        prevent_cse=params["prevent_cse"],
    )
    moving = iter(touts)
    return outs[:count], [next(moving) if has_tangent(t) else None for t in program.out_types]


def _keeps(policy: Policy, eqn: Equation) -> bool | Offload:
    found = policy(primitive_of(eqn.op, primitive_name(eqn)), *[a.aval for a in eqn.inputs], **eqn.params)
    if not isinstance(found, (bool, Offload)):
        raise TypeError(
            f"a checkpoint policy must say True or False for each op, but said {found!r} for {eqn.op.name}."
        )
    return found


def without_jit(program: Program) -> Program:
    """`program` with jitted calls inlined: policies see the ops inside."""
    if not any(e.op.call for e in program.equations):
        return program

    def run(called: Program, values: Sequence[Any]) -> list[Any]:
        env: dict[Var, Any] = dict(zip(called.inputs, values, strict=True))
        with Replay() as replay:
            for eqn in called.equations:
                replay.source = eqn.source
                args = [a if isinstance(a, Literal) else env[a] for a in eqn.inputs]
                if eqn.op.call:
                    outs = run(eqn.params["program"], args)
                else:
                    outs = bind(eqn.op, *args, **eqn.params)
                    outs = outs if eqn.op.multiple_results else [outs]
                env.update(zip(eqn.outputs, outs, strict=True))
        return [a if isinstance(a, Literal) else env[a] for a in called.outputs]

    body, _ = trace_program(lambda *xs: run(program, xs), program.in_types, program.name)
    return body


def _transpose(cts: Sequence[Any], *args: Any, program: Program, **_: Any) -> list[Any]:
    return transpose_linear(program, args, cts)


def _shown(eqn: Equation, shown: dict[str, Any]) -> dict[str, Any]:
    return {"differentiated": False, "policy": None, **shown}


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
    effects=lambda params: any(e.op.has_effects(e.params) for e in params["program"].equations),
    shown=Shown("remat2", aliases=("remat",), renamed={"program": "jaxpr"}, change=_shown),
    keys=called_uses,
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


def _run_again(program: Program, known: dict[Var, Any], values: Sequence[Any]) -> list[Any]:
    """Evaluate `program` under a JVP trace, taking the values of `known` variables as they are: only their tangents are computed."""
    trace = current_trace()
    assert isinstance(trace, JVPTrace)
    env: dict[Var, Any] = dict(zip(program.inputs, values, strict=True))
    with Replay() as replay:
        for eqn in program.equations:
            replay.source = eqn.source
            outs = bind(eqn.op, *[a if isinstance(a, Literal) else env[a] for a in eqn.inputs], **eqn.params)
            for var, out in zip(eqn.outputs, outs if eqn.op.multiple_results else [outs], strict=True):
                if var in known:
                    _, tangent = trace.unwrap(out)
                    out = known[var] if tangent is None else JVPTracer(trace, known[var], tangent)
                env[var] = out
    return [a if isinstance(a, Literal) else env[a] for a in program.outputs]


def _remat_transpose(
    cts: Sequence[Any], *args: Any, program: Program, kept: tuple[int, ...], live: tuple[bool, ...], prevent_cse: bool
) -> list[Any]:
    """The second run of the program, linearized and transposed at once."""
    primals, known, tangents = _given(args, program, kept, live)
    primals = [shared(x) for x in primals]  # the second run consumes the keys of the first one again
    values = [*primals, *known.values()]
    if prevent_cse and values and not is_eager():
        values = list(bind(optimization_barrier_p, *values))
        primals, known = values[: len(primals)], dict(zip(known, values[len(primals) :], strict=True))
    lin = linearize_flat(lambda *xs: [as_array(o) for o in _run_again(program, known, xs)], primals, live)
    given = iter(cts)
    full = [next(given) if has_tangent(t) else None for t in program.out_types]
    found = dict(zip(lin.ins, transpose_program(lin.program, lin.residuals, [full[i] for i in lin.outs]), strict=True))
    return [None] * (len(args) - len(tangents)) + [found.get(i) for i, alive in enumerate(live) if alive]


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


# -- policies ------------------------------------------------------------------------------------------------------------------


def everything_saveable(*_: Any, **__: Any) -> bool:
    """Keep all: as without checkpoint."""
    return True


def nothing_saveable(*_: Any, **__: Any) -> bool:
    """Keep only the arguments."""
    return False


def _is_product(primitive: Any) -> bool:
    return primitive.op is not None and primitive.op.product


def dots_saveable(op: Any, *_: Any, **__: Any) -> bool:
    """Keep the results of matrix products and convolutions."""
    return _is_product(op)


def dots_with_no_batch_dims_saveable(op: Any, *_: Any, **params: Any) -> bool:
    """Keep the results of matrix products without batch dims."""
    return _is_product(op) and op.op.contraction is not None and not any(params["dimension_numbers"][1])


def save_anything_except_these_names(*names: str) -> Policy:
    """Keep everything but the values that `checkpoint_name` gave these names."""
    return lambda op, *_, **params: op.op is not name_p or params["name"] not in names


def save_any_names_but_these(*names: str) -> Policy:
    """Keep the values that `checkpoint_name` gave any names but these."""
    return lambda op, *_, **params: op.op is name_p and params["name"] not in names


def save_only_these_names(*names: str) -> Policy:
    """Keep the values that `checkpoint_name` gave these names."""
    return lambda op, *_, **params: op.op is name_p and params["name"] in names


def save_from_both_policies(first: Policy, second: Policy) -> Policy:
    """Keep what either policy keeps."""
    return lambda op, *types, **params: first(op, *types, **params) or second(op, *types, **params)


def offload_dot_with_no_batch_dims(offload_src: str, offload_dst: str) -> Policy:
    """Keep the results of matrix products without batch dims, in the memory `offload_dst` ('pinned_host').

    Here that is keeping: a CPU has one memory. Plans for machines that have two count them there.
    """
    place = Offload(offload_src, offload_dst)
    return lambda op, *types, **params: dots_with_no_batch_dims_saveable(op, *types, **params) and place


def save_and_offload_only_these_names(
    *,
    names_which_can_be_saved: Sequence[str],
    names_which_can_be_offloaded: Sequence[str],
    offload_src: str,
    offload_dst: str,
) -> Policy:
    """Keep the values that `checkpoint_name` gave these names, the second list in the memory `offload_dst` ('pinned_host').

    Here that is keeping as well: a CPU has one memory. Plans for machines that have two count them there.

    ValueError for a name in both lists.
    """
    both = sorted(set(names_which_can_be_saved) & set(names_which_can_be_offloaded))
    if both:
        raise ValueError(
            f"the names {both} are in names_which_can_be_saved and in names_which_can_be_offloaded; choose one."
        )
    place = Offload(offload_src, offload_dst)
    kept, offloaded = (
        save_only_these_names(*names_which_can_be_saved),
        save_only_these_names(*names_which_can_be_offloaded),
    )
    return lambda op, *types, **params: kept(op, *types, **params) or (offloaded(op, *types, **params) and place)


class checkpoint_policies:
    """Policies for `checkpoint`, named as in jax.checkpoint_policies."""

    everything_saveable = staticmethod(everything_saveable)
    nothing_saveable = staticmethod(nothing_saveable)
    dots_saveable = staticmethod(dots_saveable)
    checkpoint_dots = staticmethod(dots_saveable)
    dots_with_no_batch_dims_saveable = staticmethod(dots_with_no_batch_dims_saveable)
    checkpoint_dots_with_no_batch_dims = staticmethod(dots_with_no_batch_dims_saveable)
    save_anything_except_these_names = staticmethod(save_anything_except_these_names)
    save_any_names_but_these = staticmethod(save_any_names_but_these)
    save_only_these_names = staticmethod(save_only_these_names)
    save_from_both_policies = staticmethod(save_from_both_policies)
    offload_dot_with_no_batch_dims = staticmethod(offload_dot_with_no_batch_dims)
    save_and_offload_only_these_names = staticmethod(save_and_offload_only_these_names)
