"""Policies of `checkpoint`: which values of a checkpointed function the forward pass keeps for the backward pass.

In: a program and a policy. Out: `DividedProgram`, the program that gives the kept values as well, and where each of them lies.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import Any

from shardwise.base.lazy_dataclasses import dataclass
from shardwise.ir import (
    Atom,
    Equation,
    Literal,
    Program,
    ProgramTrace,
    Replay,
    Var,
    bind,
    eval_program,
    subprograms,
    trace_program,
)
from shardwise.ir.program import live_equations
from shardwise.ops.devices.barrier import name_p
from shardwise.transforms.bodies.jit_rules import cache_made
from shardwise.transforms.derivatives.custom_vjp import custom_vjp_op
from shardwise.transforms.derivatives.forward_rules import ruled_op, ruled_results, with_forward_rule
from shardwise.transforms.derivatives.kept_inside import keep_inside
from shardwise.transforms.interpreters.linearize import linearize_flat
from shardwise.transforms.programs.jaxpr_text import primitive_name
from shardwise.transforms.programs.primitives import primitive_of

Policy = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Offload:
    """A policy's answer for a value that is kept in the memory `dst` rather than in `src`, where it is computed."""

    src: str
    dst: str


class Verdict:
    """A policy's answer for a value that stays where it is: it is kept, or it is computed again."""

    __slots__ = ("_kept", "_name")

    def __init__(self, name: str, kept: bool) -> None:
        self._name, self._kept = name, kept

    def __bool__(self) -> bool:
        return self._kept

    def __repr__(self) -> str:
        return self._name


SAVEABLE = Verdict("Saveable", True)
RECOMPUTE = Verdict("Recompute", False)


# -- programs divided by a policy ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DividedProgram:
    """A program divided by a policy.

    Attributes:
        program: if there is a policy, without jitted calls, and with the equations of forward rules in the place of calls that have some.
            Its first inputs are `consts`.
        forward: gives the kept values after the results.
        kept_equations: the equations whose results are kept, besides those inside of loops and branches.
        places: per kept value where it is offloaded to, None if it stays.
        inside: how many of the first kept values are of loops and branches inside: `program` takes them as its last inputs.
        still: the equations of forward rules, through which no tangents go.
        consts: values that the forward rules captured, the first inputs of both programs.
    """

    program: Program
    forward: Program
    kept_equations: tuple[int, ...]
    places: tuple[Offload | None, ...]
    inside: int = 0
    still: tuple[int, ...] = ()
    consts: tuple[Any, ...] = ()


def ask_policy(program: Program, policy: Policy | None, live: tuple[bool, ...]) -> DividedProgram:
    """`policy` asked about each equation of a program that is differentiated in its `live` inputs; once if it hashes."""
    return (_cached_policy if isinstance(policy, Hashable) else _ask_policy)(program, policy, live)


def _ask_policy(program: Program, policy: Policy | None, live: tuple[bool, ...]) -> DividedProgram:
    halves = DividedProgram(program, program, (), ()) if policy is None else _divide(program, policy, live)
    return _by_forward_rules(halves, live) if _has_backward_rules(halves.forward) else halves


def _divide(program: Program, policy: Policy, live: tuple[bool, ...]) -> DividedProgram:
    program, still, consts = _inline_calls(program, live)
    keeps = functools.partial(_keeps, policy)
    own = _within_kernels(program)
    opens = [(i, e) for i, e in enumerate(program.equations) if e.source is None or e.source.kernel is None]
    inside = {i: kept_part for i, e in opens if (kept_part := keep_inside(e, keeps)) is not None}
    verdicts = {
        i: False if i in own else keeps(e)
        for i, e in enumerate(program.equations)
        if i not in inside and e.op is not ruled_op
    }
    has_unasked = len(verdicts) + len(inside) < len(program.equations)
    # Equations without results that a policy keeps, such as prints, do not run again.
    kept_equations = tuple(
        i
        for i, verdict in verdicts.items()
        if verdict and not all(v in program.outputs for v in program.equations[i].outputs or (None,))
    )
    saved_pairs = [pair for x in inside.values() for pair in zip(x.saved, x.verdicts, strict=True)]
    saved_pairs += [(v, verdicts[i]) for i in kept_equations for v in program.equations[i].outputs]
    places = tuple([verdict if isinstance(verdict, Offload) else None for _, verdict in saved_pairs])
    rest = (program.num_consts, program.name)
    first = tuple([inside[i].forward if i in inside else e for i, e in enumerate(program.equations)])
    forward = Program(program.inputs, first, (*program.outputs, *[v for v, _ in saved_pairs]), *rest)
    if inside:
        later = tuple([inside[i].again if i in inside else e for i, e in enumerate(program.equations)])
        given = [v for x in inside.values() for v in x.given]
        program = Program((*program.inputs, *given), later, program.outputs, *rest)
    count = sum(len(x.given) for x in inside.values())
    return DividedProgram(
        program,
        _inline_forward_rules(forward) if has_unasked else forward,
        kept_equations,
        places,
        count,
        still,
        consts,
    )


def _has_backward_rules(program: Program) -> bool:
    return any(
        e.op is custom_vjp_op or any(_has_backward_rules(p) for _, p in subprograms(e.params))
        for e in program.equations
    )


def _by_forward_rules(halves: DividedProgram, live: tuple[bool, ...]) -> DividedProgram:
    """What runs forward when the program is differentiated: forward rules in the place of the functions, in loops and branches, too."""
    alive = (*[False] * len(halves.consts), *live)

    def run(*values: Any) -> list[Any]:
        return linearize_flat(lambda *xs: eval_program(halves.forward, xs), values, alive).results

    body, consts = trace_program(run, halves.forward.in_types, halves.forward.name)
    inputs = (*[Var(v.aval) for v in body.inputs[: len(consts)]], *halves.program.inputs)
    program = Program(inputs, halves.program.equations, halves.program.outputs, len(consts), halves.program.name)
    return replace(halves, program=program, forward=live_equations(body), consts=(*consts, *halves.consts))


def _within_kernels(program: Program) -> set[int]:
    """Positions of equations of kernels (`Source.kernel`) whose results nobody else reads: there is nothing to keep of them."""
    kernel_of = {i: e.source.kernel for i, e in enumerate(program.equations) if e.source is not None}
    kernels = {i: kernel for i, kernel in kernel_of.items() if kernel is not None}
    if not kernels:
        return set()
    makers: dict[Atom, int] = {v: i for i in kernels for v in program.equations[i].outputs}
    read = {makers[a] for a in program.outputs if a in makers}
    for j, eqn in enumerate(program.equations):
        read.update(i for a in eqn.inputs if (i := makers.get(a)) is not None and kernels[i] is not kernels.get(j))
    return kernels.keys() - read


def _inline_forward_rules(program: Program) -> Program:
    """The program with the results of forward rules in the place of those of the calls."""
    results: dict[Var, Atom] = {}
    equations: list[Equation] = []

    def read(atom: Atom) -> Atom:
        return results.get(atom, atom) if isinstance(atom, Var) else atom

    for eqn in program.equations:
        inputs = tuple(map(read, eqn.inputs))
        if eqn.op is ruled_op:
            results.update(zip(eqn.outputs, ruled_results(eqn, inputs), strict=True))
        else:
            equations.append(Equation(eqn.op, inputs, eqn.outputs, eqn.params, eqn.source))
    outputs = tuple(map(read, program.outputs))
    return Program(program.inputs, tuple(equations), outputs, program.num_consts, program.name)


_cached_policy = cache_made(_ask_policy)


def _keeps(policy: Policy, eqn: Equation) -> bool | Verdict | Offload:
    verdict = policy(primitive_of(eqn.op, primitive_name(eqn)), *[a.aval for a in eqn.inputs], **eqn.params)
    if not isinstance(verdict, (bool, Verdict, Offload)):
        raise TypeError(
            f"a checkpoint policy must say True or False for each op, but said {verdict!r} for {eqn.op.name}."
        )
    return verdict


def _inline_calls(program: Program, live: Sequence[bool]) -> tuple[Program, tuple[int, ...], tuple[Any, ...]]:
    """`program` with jitted calls and forward rules inlined, as policies see the ops inside; the positions of the equations of
    forward rules; and their captured values, its first inputs."""
    if not any(e.op.call or e.op is custom_vjp_op for e in program.equations):
        return program, (), ()
    still: list[int] = []
    trace = ProgramTrace(program.name)

    def run(called: Program, values: Sequence[Any], live: Sequence[bool]) -> tuple[list[Any], list[bool]]:
        env: dict[Var, Any] = dict(zip(called.inputs, values, strict=True))
        moving_vars = {v for v, alive in zip(called.inputs, live, strict=True) if alive}
        with Replay() as replay:
            for eqn in called.equations:
                replay.source = eqn.source
                args = [a if isinstance(a, Literal) else env[a] for a in eqn.inputs]
                tangents = [a in moving_vars for a in eqn.inputs]
                start = len(trace.equations)
                rule_outs = with_forward_rule(eqn, args) if any(tangents) else None
                if rule_outs is not None:
                    outs, alive = rule_outs, [True] * len(rule_outs)
                    still.extend(range(start, len(trace.equations) - 1))
                elif eqn.op.call:
                    outs, alive = run(eqn.params["program"], args, tangents)
                else:
                    outs = bind(eqn.op, *args, **eqn.params)
                    outs = outs if eqn.op.multiple_results else [outs]
                    alive = [any(tangents)] * len(outs)
                env.update(zip(eqn.outputs, outs, strict=True))
                moving_vars.update(v for v, moves in zip(eqn.outputs, alive, strict=True) if moves)
        results = [a if isinstance(a, Literal) else env[a] for a in called.outputs]
        return results, [a in moving_vars for a in called.outputs]

    body, consts = trace_program(lambda *xs: run(program, xs, live)[0], program.in_types, program.name, trace=trace)
    return body, tuple(still), tuple(consts)


# -- policies ------------------------------------------------------------------------------------------------------------------


def everything_saveable(*_: Any, **__: Any) -> bool:
    """Keep all: as without checkpoint."""
    return True


def nothing_saveable(*_: Any, **__: Any) -> bool:
    """Keep only the arguments."""
    return False


def _is_product(primitive: Any) -> bool:
    return primitive.op is not None and primitive.op.product and primitive.op.grouped is None


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
    """Keep the values that either policy keeps."""
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
    keeps, offloads = (
        save_only_these_names(*names_which_can_be_saved),
        save_only_these_names(*names_which_can_be_offloaded),
    )
    return lambda op, *types, **params: keeps(op, *types, **params) or (offloads(op, *types, **params) and place)


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
