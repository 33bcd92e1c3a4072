"""Derivatives and batching of jitted calls: the called program is transformed once, and the results are jitted calls again.

So the gradient of a jitted function runs compiled, and a function that is called many times is differentiated once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from shardwise.base.caches import recent
from shardwise.base.config import Token, context_token
from shardwise.base.lazy_dataclasses import dataclass
from shardwise.ir import (
    Program,
    ProgramTrace,
    ProgramTracer,
    ShapedArray,
    Tracer,
    UndefinedPrimal,
    bind,
    eval_program,
    trace_program,
    tracing,
)
from shardwise.ir.axis_scope import SPMD_AXES
from shardwise.ir.op import Params, find_op
from shardwise.ir.references import Reference, trace_with_state
from shardwise.sharding import NamedSharding, PartitionSpec, Sharding
from shardwise.transforms.interpreters.batch_trace import batch_program
from shardwise.transforms.interpreters.jvp import jvp_program
from shardwise.transforms.interpreters.linearize import linearize_flat, transpose_linear

_CACHE_ENTRIES = 1024
Mask = tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class DerivedProgram:
    """A derived program, the values that it captured, and the positions of its results.

    A transposed program may use `references`, by rules of the user: their arrays are its last inputs and results.
    """

    program: Program
    consts: tuple[Any, ...]
    results: tuple[Any, ...]
    references: tuple[Reference, ...] = ()


def held_arrays(references: Sequence[Reference]) -> list[Any]:
    """The references' arrays."""
    return [r.held() for r in references]


def without_state(results: list[Any], references: Sequence[Reference]) -> list[Any]:
    """The results of a call without the references' new arrays, which the references take."""
    count = len(results) - len(references)
    for reference, value in zip(references, results[count:], strict=True):
        reference.store(value)
    return results[:count]


class _Uncacheable(Exception):
    """The derived program holds values of a trace that will end."""

    def __init__(self, made: Any) -> None:
        super().__init__()
        self.made = made


def cache_made(make: Callable[..., Any]) -> Callable[..., Any]:
    """`make` with cached results; results that captured tracers are not cached."""

    @recent(_CACHE_ENTRIES)
    def make_kept(token: Token, *key: Any) -> Any:
        derived_body = make(*key)
        if any(isinstance(c, Tracer) for c in derived_body.consts):
            raise _Uncacheable(derived_body)
        return derived_body

    def call(*key: Any) -> Any:
        try:
            return make_kept(context_token(), *key)
        except _Uncacheable as found:
            return found.made

    return call


def _call(
    params: Params, made: Any, args: Sequence[Any], ins: Sequence[Sharding | None], outs: Sequence[Sharding | None]
) -> list[Any]:
    return bind(
        find_op("jit"),
        *made.consts,
        *args,
        program=made.program,
        name=params["name"],
        in_shardings=(*[None] * len(made.consts), *ins),
        out_shardings=tuple(outs),
    )


# -- forward mode --------------------------------------------------------------------------------------------------------


@cache_made
def with_tangents(program: Program, live: Mask) -> DerivedProgram:
    """The program for values and tangents of the `live` inputs; its `results` are the outputs that have a tangent."""
    positions = [i for i, alive in enumerate(live) if alive]
    moving_results: list[int] = []

    def both(*values: Any) -> list[Any]:
        ts: list[Any] = [None] * len(live)
        for i, t in zip(positions, values[len(live) :], strict=True):
            ts[i] = t
        outs, touts = jvp_program(program, values[: len(live)], ts)
        moving_results[:] = [i for i, t in enumerate(touts) if t is not None]
        return [*outs, *[touts[i] for i in moving_results]]

    body, consts = trace_program(both, [*program.in_types, *[program.in_types[i] for i in positions]], program.name)
    return DerivedProgram(body, tuple(consts), tuple(moving_results))


def jit_jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> tuple[list[Any], list[Any]]:
    """One call for values and tangents."""
    ins, shardings = params["in_shardings"], params["out_shardings"]
    live = [i for i, t in enumerate(tangents) if t is not None]
    pushed_program: DerivedProgram = with_tangents(params["program"], tuple(t is not None for t in tangents))
    outs = _call(
        params,
        pushed_program,
        [*primals, *[tangents[i] for i in live]],
        [*ins, *[ins[i] for i in live]],
        [*shardings, *[shardings[i] for i in pushed_program.results]],
    )
    tangent_of = dict(zip(pushed_program.results, outs[len(shardings) :], strict=True))
    return outs[: len(shardings)], [tangent_of.get(i) for i in range(len(shardings))]


# -- reverse mode --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SplitProgram:
    """A program in two: `forward` gives results and residuals, `linear` maps residuals and tangents to tangents.

    `sources` locates each residual: ('saved', i-th extra result of `forward`), ('argument', i) or ('captured', value).
    """

    forward: Program
    forward_consts: tuple[Any, ...]
    linear: Program
    sources: tuple[tuple[str, Any], ...]
    ins: tuple[int, ...]
    outs: tuple[int, ...]

    @property
    def consts(self) -> tuple[Any, ...]:
        """All captured values."""
        return (*self.forward_consts, *[v for kind, v in self.sources if kind == "captured"])


@cache_made
def split_program(program: Program, live: Mask) -> SplitProgram:
    """`program` differentiated along its `live` inputs."""
    forward = ProgramTrace(program.name)
    with tracing(forward):
        args = [forward.new_arg(t) for t in program.in_types]
        lin = linearize_flat(lambda *xs: eval_program(program, xs), args, live)
        given = {id(a): i for i, a in enumerate(args)}
        saved_values: list[Any] = []
        sources: list[tuple[str, Any]] = []
        for r in lin.residuals:
            if id(r) in given:
                sources.append(("argument", given[id(r)]))
            elif isinstance(r, ProgramTracer) and r.owner is forward:
                sources.append(("saved", len(saved_values)))
                saved_values.append(r)
            else:
                sources.append(("captured", r))
        body, consts = forward.finish([*lin.results, *saved_values])
    return SplitProgram(body, tuple(consts), lin.program, tuple(sources), lin.ins, lin.outs)


def jit_linearize(
    trace: Any, primals: Sequence[Any], tangents: Sequence[Any], params: Params
) -> tuple[list[Any], list[Any]]:
    """The forward call, and the linear one, recorded in `trace`."""
    program, ins, outs = params["program"], params["in_shardings"], params["out_shardings"]
    split: SplitProgram = split_program(program, tuple(t is not None for t in tangents))
    count = len(outs)
    saved_count = len(split.forward.outputs) - count
    forward = DerivedProgram(split.forward, split.forward_consts, ())
    results = _call(params, forward, primals, ins, [*outs, *[None] * saved_count])
    residuals = [
        results[count + v] if kind == "saved" else primals[v] if kind == "argument" else v for kind, v in split.sources
    ]
    touts = _call(
        params,
        DerivedProgram(split.linear, (), ()),
        [*residuals, *[tangents[i] for i in split.ins]],
        [*[None] * len(residuals), *[ins[i] for i in split.ins]],
        [outs[i] for i in split.outs],
    )
    tangent_of = dict(zip(split.outs, touts, strict=True))
    return results[:count], [tangent_of.get(i) for i in range(count)]


def transpose_program(
    program: Program,
    known: Mask,
    live: Mask,
    ct_types: tuple[ShapedArray, ...],
    forced: Mask,
    finished: Callable[[Any, ShapedArray], Any],
    references: Sequence[Reference] = (),
) -> DerivedProgram:
    """Inputs: captured values, known inputs, cotangents of the live outputs. Outputs: cotangents of the inputs at `results`.

    Those are the inputs that get one, and the `forced`; each cotangent is `finished` for its input's type. The `references` and
    others that rules use follow.
    """
    positions = [i for i, k in enumerate(known) if k]
    given = [i for i, alive in enumerate(live) if alive]
    live_inputs: list[int] = []

    def pull_values(*values: Any) -> list[Any]:
        args: list[Any] = [UndefinedPrimal(t) for t in program.in_types]
        cts: list[Any] = [None] * len(live)
        for i, v in zip(positions, values, strict=False):
            args[i] = v
        for i, v in zip(given, values[len(positions) :], strict=True):
            cts[i] = v
        results = transpose_linear(program, args, cts)
        live_inputs[:] = [i for i, c in enumerate(results) if c is not None or forced[i]]
        return [finished(results[i], program.in_types[i]) for i in live_inputs]

    types = [*[program.in_types[i] for i in positions], *ct_types]
    body, consts, used = trace_with_state(pull_values, types, program.name, references)
    return DerivedProgram(body, tuple(consts), tuple(live_inputs), used)


@cache_made
def _transpose_program(program: Program, known: Mask, live: Mask, ct_types: tuple[ShapedArray, ...]) -> DerivedProgram:
    return transpose_program(program, known, live, ct_types, (False,) * len(program.in_types), lambda ct, aval: ct)


def jit_transpose(cts: Sequence[Any], *args: Any, **params: Any) -> list[Any]:
    """A call that maps cotangents of the results to those of the linear operands."""
    ins, outs = params["in_shardings"], params["out_shardings"]
    is_known = tuple(not isinstance(a, UndefinedPrimal) for a in args)
    given = [c for c in cts if c is not None]
    transposed_program: DerivedProgram = _transpose_program(
        params["program"], is_known, tuple(c is not None for c in cts), tuple(c.aval for c in given)
    )
    values = [a for a, k in zip(args, is_known, strict=True) if k]
    shardings = [s for s, k in zip(ins, is_known, strict=True) if k] + [
        s for s, c in zip(outs, cts, strict=True) if c is not None
    ]
    no_shardings = [None] * len(transposed_program.references)
    results = _call(
        params,
        transposed_program,
        [*values, *given, *held_arrays(transposed_program.references)],
        [*shardings, *no_shardings],
        [*[ins[i] for i in transposed_program.results], *no_shardings],
    )
    results = without_state(results, transposed_program.references)
    cotangent_of = dict(zip(transposed_program.results, results, strict=True))
    return [cotangent_of.get(i) for i in range(len(args))]


# -- batching ------------------------------------------------------------------------------------------------------------


@cache_made
def _batch_made(
    program: Program,
    size: int,
    axis_name: Any,
    dims: tuple[int | None, ...],
    types: tuple[ShapedArray, ...],
    spmd: tuple[str, ...],
) -> DerivedProgram:
    result_dims: list[int | None] = []

    def map_values(*values: Any) -> list[Any]:
        with SPMD_AXES.override(spmd):
            outs, result_dims[:] = batch_program(program, size, axis_name, values, dims)
        return outs

    body, consts = trace_program(map_values, types, program.name)
    return DerivedProgram(body, tuple(consts), tuple(result_dims))


def jit_batch(
    size: int, axis_name: Any, values: Sequence[Any], dims: Sequence[int | None], params: Params
) -> tuple[list[Any], list[int | None]]:
    """One call for all elements."""
    spmd = SPMD_AXES.get()
    batched_program: DerivedProgram = _batch_made(
        params["program"], size, axis_name, tuple(dims), tuple(v.aval for v in values), spmd
    )
    ins = [_with_dim(s, v.ndim, d, spmd) for s, v, d in zip(params["in_shardings"], values, dims, strict=True)]
    outs = [
        _with_dim(s, t.ndim, d, spmd)
        for s, t, d in zip(
            params["out_shardings"], batched_program.program.out_types, batched_program.results, strict=True
        )
    ]
    return _call(params, batched_program, values, ins, outs), list(batched_program.results)


def _with_dim(sharding: Sharding | None, ndim: int, dim: int | None, spmd: tuple[str, ...]) -> Sharding | None:
    """`sharding` for a value with one more dim, which is left to propagation unless vmap names axes for it."""
    if sharding is None or dim is None:
        return sharding
    if not isinstance(sharding, NamedSharding):
        return None
    entries = list(sharding.spec.partitions) + [None] * (ndim - 1 - len(sharding.spec))
    entries.insert(dim, spmd or PartitionSpec.UNCONSTRAINED)
    return NamedSharding(sharding.mesh, PartitionSpec(*entries))
