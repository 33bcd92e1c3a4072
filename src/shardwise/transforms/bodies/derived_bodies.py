"""Programs derived from loop bodies and branches: with tangents, split in two, transposed, batched.

In: a body and a mask of its inputs. Out: the new body with the values that it captured, made once for equal
bodies. Results that another body or step expects are `forced`: they exist even if they are zero.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from shardwise.base.lazy_dataclasses import dataclass
from shardwise.ir import Array, Literal, Program, ShapedArray, eval_program, live_equations, trace_program
from shardwise.ir.axis_scope import SPMD_AXES
from shardwise.ir.references import Reference
from shardwise.ops.control.bodies import intern_program
from shardwise.ops.rules.convert import as_array
from shardwise.ops.rules.derivative import full_in_front, moved_to_front
from shardwise.transforms.bodies.jit_rules import DerivedProgram, Mask, cache_made, split_program, transpose_program
from shardwise.transforms.interpreters.batch_trace import batch_program
from shardwise.transforms.interpreters.jvp import (
    conform_tangent,
    cotangent_zeros,
    has_tangent,
    instantiate,
    jvp_program,
)
from shardwise.transforms.interpreters.linearize import fit_cotangent


def alive(tangents: Sequence[Any], primals: Sequence[Any]) -> Mask:
    """For each operand, whether it has a tangent."""
    return tuple(t is not None and has_tangent(p.aval) for t, p in zip(tangents, primals, strict=True))


def where(mask: Sequence[bool]) -> list[int]:
    """The positions at which a mask is true."""
    return [i for i, m in enumerate(mask) if m]


def pick_items(items: Sequence[Any], mask: Sequence[bool]) -> list[Any]:
    """The items at which a mask is true."""
    return [x for x, m in zip(items, mask, strict=True) if m]


def join_masks(mask: Mask, also: Sequence[bool]) -> Mask:
    """Either of two masks."""
    return tuple(a or b for a, b in zip(mask, also, strict=True))


def mask_of(positions: Sequence[int], count: int) -> Mask:
    """The mask that is true at these positions."""
    return tuple(i in positions for i in range(count))


def arrange_program(
    program: Program, num_consts: int, inputs: Sequence[int] | None, outputs: Sequence[int] | None = None
) -> Program:
    """`program` with its inputs and outputs in another order, without unused equations."""
    ins = program.inputs if inputs is None else tuple(program.inputs[i] for i in inputs)
    outs = program.outputs if outputs is None else tuple(program.outputs[i] for i in outputs)
    return intern_program(live_equations(Program(ins, program.equations, outs, num_consts, program.name)))


def trace_body(
    fun: Callable[..., Sequence[Any]], types: Sequence[ShapedArray], name: str, results: Sequence[Any] = ()
) -> DerivedProgram:
    """`fun` as a program whose first inputs are its captured values. `results` may be a list that `fun` fills."""
    program, consts = trace_program(fun, types, name)
    return DerivedProgram(live_equations(program), tuple(consts), tuple(results))


def tangent_like(t: Any, aval: ShapedArray) -> Any:
    """A tangent as operand of a loop: with the value's variance and layout; zeros for None."""
    return conform_tangent(instantiate(t, aval), aval)


# -- forward mode --------------------------------------------------------------------------------------------------------


@cache_made
def with_tangents(program: Program, live: Mask, forced: Mask) -> DerivedProgram:
    """Inputs: captured, all, tangents of the live ones. Outputs: all, tangents of those at `results`."""
    positions, count = where(live), len(live)
    moving_results: list[int] = []

    def both(*values: Any) -> list[Any]:
        ts: list[Any] = [None] * count
        for i, t in zip(positions, values[count:], strict=True):
            ts[i] = t
        outs, touts = jvp_program(program, values[:count], ts)
        moving_results[:] = [i for i, t in enumerate(touts) if t is not None or forced[i]]
        return [
            *outs,
            *[tangent_like(touts[i], program.out_types[i]) if forced[i] else touts[i] for i in moving_results],
        ]

    program_types = program.in_types
    body, consts = trace_program(both, [*program_types, *[program_types[i] for i in positions]], program.name)
    return DerivedProgram(body, tuple(consts), tuple(moving_results))


# -- reverse mode --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SplitBody:
    """A body in two.

    `forward`: inputs captured and all, outputs all and what is `saved`. `linear`: inputs are the residuals, in the order of
    `sources`, and the tangents of the live inputs; outputs the tangents of those at `outs`.
    A source is ('saved', i), ('argument', i) or ('captured', value).
    """

    forward: Program
    forward_consts: tuple[Any, ...]
    linear: Program
    sources: tuple[tuple[str, Any], ...]
    outs: tuple[int, ...]

    @property
    def consts(self) -> tuple[Any, ...]:
        """All captured values."""
        return (*self.forward_consts, *self.captured)

    @property
    def captured(self) -> tuple[Any, ...]:
        """Residuals that are captured values."""
        return tuple(v for kind, v in self.sources if kind == "captured")


@cache_made
def split_body(program: Program, live: Mask, forced: Mask) -> SplitBody:
    """A body differentiated along its live inputs, all of which have tangents."""
    split = split_program(program, live)
    outs = tuple(sorted({*split.outs, *where(forced)}))
    count = len(split.sources)

    def linear(*values: Any) -> list[Any]:
        tangent_of = dict(zip(split.outs, eval_program(split.linear, values), strict=True))
        return [tangent_like(tangent_of.get(i), program.out_types[i]) if forced[i] else tangent_of[i] for i in outs]

    linear_body = trace_body(linear, split.linear.in_types, program.name)
    sources = split.sources
    if linear_body.consts:  # zeros made by rules outside of the trace
        first = len(linear_body.consts)
        order = [*range(first, first + count), *range(first), *range(first + count, len(linear_body.program.inputs))]
        linear_body = DerivedProgram(arrange_program(linear_body.program, 0, order), linear_body.consts, ())
        sources = (*sources, *[("captured", c) for c in linear_body.consts])
    return SplitBody(live_equations(split.forward), split.forward_consts, linear_body.program, sources, outs)


@cache_made
def transposed_body(
    program: Program,
    known: Mask,
    live: Mask,
    ct_types: tuple[ShapedArray, ...],
    forced: Mask,
    references: tuple[Reference, ...] = (),
) -> DerivedProgram:
    """Inputs: captured values, known inputs, cotangents of the live outputs. Outputs: cotangents of the inputs at `results`.

    The arrays of the references that rules use are the last of both, `references` in any case.
    """
    transposed_program = transpose_program(program, known, live, ct_types, forced, cotangent_like, references)
    return DerivedProgram(
        live_equations(transposed_program.program),
        transposed_program.consts,
        transposed_program.results,
        transposed_program.references,
    )


def cotangent_like(ct: Any, aval: ShapedArray) -> Any:
    """A cotangent as operand of a loop: with the layout of cotangents of this type; zeros for None."""
    return cotangent_zeros(aval) if ct is None else fit_cotangent(ct, aval)


# -- batching ------------------------------------------------------------------------------------------------------------


@cache_made
def batched_body(
    program: Program,
    size: int,
    axis_name: Any,
    dims: tuple[int | None, ...],
    types: tuple[ShapedArray, ...],
    spmd: tuple[str, ...],
    forced: Mask,
) -> DerivedProgram:
    """The body for values of these types with mapped dims; `results` are the mapped dims of its outputs, 0 or None."""
    result_dims: list[int | None] = []

    def map_values(*values: Any) -> list[Any]:
        with SPMD_AXES.override(spmd):
            outs, out_dims = batch_program(program, size, axis_name, values, dims)
        result_dims[:] = [0 if force else d for d, force in zip(out_dims, forced, strict=True)]
        return [in_front(size, o, d) if force else o for o, d, force in zip(outs, out_dims, forced, strict=True)]

    body, consts = trace_program(map_values, types, program.name)
    return DerivedProgram(live_equations(body), tuple(consts), tuple(result_dims))


def in_front(size: int, x: Any, dim: int | None) -> Array:
    """`x` with its mapped dim first; repeated along a new one if it has none."""
    if dim is not None:
        return moved_to_front(x, dim)
    x = as_array(x) if isinstance(x, Literal) else x
    return full_in_front(size, x, None)
