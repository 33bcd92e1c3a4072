"""The second run of a checkpointed program, which computes its tangents in the backward pass, from its arguments and the kept values.

In: the arguments, the kept values and the tangents of the call. Out: tangents of its results; transposed, the program runs again, behind a
barrier that keeps it from being merged with the first run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from shardwise.ir import (
    Equation,
    Literal,
    Program,
    Replay,
    ShapedArray,
    Var,
    bind,
    current_trace,
    define_op,
    in_trace,
    is_eager,
    splice,
    trace_program,
)
from shardwise.ir.key_uses import LEAVES
from shardwise.ir.program import Source, live_equations
from shardwise.ir.references import trace_with_state
from shardwise.ir.sources import user_source
from shardwise.ops.devices.barrier import optimization_barrier_p
from shardwise.ops.random.random_bits import share_value
from shardwise.ops.rules.convert import as_array
from shardwise.transforms.bodies.jit_rules import DerivedProgram, cache_made, held_arrays, without_state
from shardwise.transforms.derivatives.prevented import PreventedLeaves, behind_barrier
from shardwise.transforms.interpreters.jvp import JVPTrace, JVPTracer, has_tangent, instantiate, jvp_program
from shardwise.transforms.interpreters.linearize import linearize_flat, transpose_program


class SecondRun(NamedTuple):
    """A program that runs again: the params of the op.

    Attributes:
        kept: the positions of the equations whose results are operands, after the program's inputs. Some have none, such as prints.
        still: the positions of the equations that no tangents go through.
        live: which inputs have tangents.
        prevent_cse: the operands that go through the barrier.
        push: the program of the tangents, if rules captured values for it: these are operands before the tangents, and its first inputs.
    """

    program: Program
    kept: tuple[int, ...]
    still: tuple[int, ...]
    live: tuple[bool, ...]
    prevent_cse: PreventedLeaves
    push: Program | None

    def split(self, args: Sequence[Any]) -> tuple[list[Any], dict[Var, Any], list[Any]]:
        """The primals, the kept values by variable, and the rest, which stand for tangents."""
        count = len(self.program.inputs)
        names = [v for i in self.kept for v in self.program.equations[i].outputs]
        values = dict(zip(names, args[count : count + len(names)], strict=True))
        return list(args[:count]), values, list(args[count + len(names) :])

    def again(self, known: dict[Var, Any], values: Sequence[Any]) -> list[Any]:
        """Evaluate the program under a JVP trace, taking the values of `known` variables as they are: only their tangents are computed."""
        program, trace = self.program, current_trace()
        assert isinstance(trace, JVPTrace)
        env: dict[Var, Any] = dict(zip(program.inputs, values, strict=True))
        alone, done_equations = set(self.still), {i for i in self.kept if not program.equations[i].outputs}
        with Replay() as replay:
            for i, eqn in enumerate(program.equations):
                if i in done_equations:
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

    def pull(self, args: Sequence[Any], cts: Sequence[Any]) -> list[Any]:
        """The cotangents of the tangents among `args`."""
        primals, known_values, _ = self.split(args)
        primals = [share_value(x) for x in primals]  # the second run consumes the keys of the first one again
        values = [*primals, *known_values.values()]
        held_places = behind_barrier(self.prevent_cse, len(primals), len(known_values))
        if held_places and not is_eager():
            for i, value in zip(
                held_places, bind(optimization_barrier_p, *[values[i] for i in held_places]), strict=True
            ):
                values[i] = value
            primals, known_values = values[: len(primals)], dict(zip(known_values, values[len(primals) :], strict=True))
        lin = linearize_flat(lambda *xs: [as_array(o) for o in self.again(known_values, xs)], primals, self.live)
        given = iter(cts)
        full = [next(given) if has_tangent(t) else None for t in self.program.out_types]
        input_cotangents = transpose_program(lin.program, lin.residuals, [full[i] for i in lin.outs])
        cotangent_of = dict(zip(lin.ins, input_cotangents, strict=True))
        return [cotangent_of.get(i) for i, alive in enumerate(self.live) if alive]


def _type(*types: ShapedArray, program: Program, **_: Any) -> tuple[ShapedArray, ...]:
    return tuple(t for t in program.out_types if has_tangent(t))


def _transpose(cts: Sequence[Any], *args: Any, **params: Any) -> list[Any]:
    """The second run of the program, linearized and transposed at once."""
    run = SecondRun(**params)
    count = sum(run.live)
    if is_eager():
        cotangents = run.pull(args, cts)
    else:  # once for all layers that share the program
        values = [*args[: len(args) - count], *[c for c in cts if c is not None]]
        alive = tuple(c is not None for c in cts)
        pulled_program: DerivedProgram = _pull_program(run, alive, tuple([v.aval for v in values]), user_source())
        results = list(
            splice(pulled_program.program, [*pulled_program.consts, *values, *held_arrays(pulled_program.references)])
        )
        outs = iter(without_state(results, pulled_program.references))
        cotangents = [next(outs) if there else None for there in pulled_program.results]
    return [None] * (len(args) - count) + cotangents


@cache_made
def _pull_program(
    run: SecondRun, alive: tuple[bool, ...], types: tuple[ShapedArray, ...], source: Source | None
) -> DerivedProgram:
    """`SecondRun.pull` as a program of values of these types: the inputs without the tangents, and the cotangents that are `alive`.

    `source`: the user's line, for equations without one of their own.
    """
    there: tuple[bool, ...] = ()

    def flat(*values: Any) -> list[Any]:
        nonlocal there
        given = iter(values[len(values) - sum(alive) :])
        cts = [next(given) if a else None for a in alive]
        args = [*values[: len(values) - sum(alive)], *[None] * sum(run.live)]
        cotangents = run.pull(args, cts)
        there = tuple(x is not None for x in cotangents)
        return [x for x in cotangents if x is not None]

    body, consts, used = trace_with_state(flat, types, run.program.name)
    return DerivedProgram(body, tuple(consts), there, used)


def bind_again(
    run: SecondRun, primals: Sequence[Any], saved_values: Sequence[Any], tangents: Sequence[Any], captures: bool
) -> list[Any]:
    """The tangents of the results, by an equation of `remat_op`. `captures`: whether rules capture values when tangents are computed."""
    consts: tuple[Any, ...] = ()
    if captures:
        derived_program: DerivedProgram = _push_program(
            run, tuple([v.aval for v in (*primals, *saved_values, *tangents)])
        )
        run, consts = run._replace(push=derived_program.program), derived_program.consts
    return bind(remat_op, *primals, *saved_values, *consts, *tangents, **run._asdict())


@cache_made
def _push_program(run: SecondRun, types: tuple[ShapedArray, ...]) -> DerivedProgram:
    """Tangents of the results from operands of these types: they are computed together with the values, a second time."""

    def push_values(*args: Any) -> list[Any]:
        primals, _, tangents = run.split(args)
        ts = iter(tangents)
        _, touts = jvp_program(run.program, primals, [next(ts) if alive else None for alive in run.live])
        types = run.program.out_types
        return [instantiate(t, aval) for t, aval in zip(touts, types, strict=True) if has_tangent(aval)]

    body, consts = trace_program(push_values, types, run.program.name)
    return DerivedProgram(live_equations(body), tuple(consts), ())  # what nobody reads may have no forward derivative


def _inline(eqn: Equation) -> Program:
    """Where the tangents themselves are needed."""
    run = SecondRun(**eqn.params)
    if run.push is None:
        derived_program: DerivedProgram = _push_program(run, tuple([a.aval for a in eqn.inputs]))
        assert not derived_program.consts
        return derived_program.program
    body, tangents = run.push, sum(run.live)
    count = body.num_consts
    consts, rest = body.inputs[:count], body.inputs[count:]
    inputs = (*rest[: len(rest) - tangents], *consts, *rest[len(rest) - tangents :])
    return Program(inputs, body.equations, body.outputs, 0, body.name)


remat_op = define_op(
    "remat",
    type_rule=_type,
    multiple_results=True,
    typed=True,
    transpose=_transpose,
    inline=_inline,
    keys=LEAVES,
)
