"""Derivatives and batching of `while_loop`: forward mode only, as reverse mode would need the number of steps in advance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from shardwise.ir import ANY_GOES_ON, Program, ShapedArray, Var, bind, eval_program, tracing
from shardwise.ir.axis_scope import SPMD_AXES
from shardwise.ir.op import Params
from shardwise.ops.control.bodies import intern_program, separate
from shardwise.ops.control.while_loop import while_p, while_parts
from shardwise.ops.reductions.reduce import reduce_or
from shardwise.ops.rules.derivative import moved_to_front
from shardwise.transforms.bodies.branch_rules import select_branches
from shardwise.transforms.bodies.derived_bodies import (
    alive,
    arrange_program,
    batched_body,
    in_front,
    mask_of,
    pick_items,
    tangent_like,
    trace_body,
    with_tangents,
)
from shardwise.transforms.bodies.handed_through import forwarded_inputs
from shardwise.transforms.bodies.held_updates import exchanges, hold_back
from shardwise.transforms.bodies.jit_rules import DerivedProgram, Mask, cache_made
from shardwise.transforms.bodies.scan_rules import carry_joined, carry_with_dim
from shardwise.transforms.interpreters.jvp import conform_tangent


def _bind(
    cond: Program, body: Program, cond_args: Sequence[Any], body_args: Sequence[Any], init: Sequence[Any]
) -> list[Any]:
    return bind(
        while_p,
        *cond_args,
        *body_args,
        *init,
        cond=separate(cond),
        body=separate(body),
        cond_consts=len(cond_args),
        body_consts=len(body_args),
    )


# -- derivatives ---------------------------------------------------------------------------------------------------------


@cache_made
def _with_tangents(body: Program, num_consts: int, live: Mask) -> DerivedProgram:
    """The body with the tangents of some carries (`results`) behind all carries."""
    live_carries = live[num_consts:]
    while True:
        mask = (*live[:num_consts], *live_carries)
        pushed_body = with_tangents(body, mask, live_carries)
        after = mask_of(pushed_body.results, len(live_carries))
        if after == live_carries:
            break
        live_carries = after
    first, count = len(pushed_body.consts), len(mask)
    consts_end, tangents = first + num_consts, first + count
    split = tangents + sum(mask[:num_consts])
    order = [
        *range(consts_end),
        *range(tangents, split),
        *range(consts_end, tangents),
        *range(split, len(pushed_body.program.inputs)),
    ]
    return DerivedProgram(arrange_program(pushed_body.program, first, order), pushed_body.consts, live_carries)


def _push_loop(primals: Sequence[Any], tangents: Sequence[Any], params: Params) -> tuple[list[Any], Mask]:
    """The loop of values and tangents: its results, and the carries that have tangents."""
    body = intern_program(params["body"])
    cond_args, body_args, init = while_parts(primals, params)
    _, body_ts, init_ts = while_parts(tangents, params)
    live = alive([*body_ts, *init_ts], [*body_args, *init])
    n = len(body_args)
    pushed_body: DerivedProgram = _with_tangents(body, n, live)
    live_carries = pushed_body.results
    entry_tangents = [
        tangent_like(t, ty) for t, ty in pick_items(list(zip(init_ts, body.in_types[n:], strict=True)), live_carries)
    ]
    cond = params["cond"]
    longer = Program(
        (*cond.inputs, *[Var(t.aval) for t in entry_tangents]), cond.equations, cond.outputs, cond.num_consts, cond.name
    )
    outs = _bind(
        longer,
        pushed_body.program,
        cond_args,
        [*pushed_body.consts, *body_args, *pick_items(body_ts, live[:n])],
        [*init, *entry_tangents],
    )
    return outs, live_carries


def while_jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> tuple[list[Any], list[Any]]:
    """One loop of values and tangents."""
    outs, live_carries = _push_loop(primals, tangents, params)
    source = iter(outs[len(live_carries) :])
    return outs[: len(live_carries)], [next(source) if c else None for c in live_carries]


def while_linearize(
    trace: Any, primals: Sequence[Any], tangents: Sequence[Any], params: Params
) -> tuple[list[Any], list[Any]]:
    """Run the loop; the loop of the tangents, which recomputes the values, is recorded in `trace`."""
    with tracing(trace.parent):
        results = bind(
            while_p, *primals, **{**params, "cond": separate(params["cond"]), "body": separate(params["body"])}
        )
    outs, live_carries = _push_loop(primals, tangents, params)
    source = iter(outs[len(live_carries) :])
    return results, [next(source) if c else None for c in live_carries]


def while_transpose(cts: Sequence[Any], *args: Any, **params: Any) -> list[Any]:
    """Raises ValueError: the number of steps and their values are unknown."""
    raise ValueError(
        "Reverse-mode differentiation does not work for lax.while_loop, nor for lax.fori_loop with bounds that are traced. "
        "Use lax.scan or lax.fori_loop with static bounds, or forward mode (jvp, jacfwd)."
    )


# -- batching ------------------------------------------------------------------------------------------------------------


def while_batch(
    size: int, axis_name: Any, values: Sequence[Any], dims: Sequence[int | None], params: Params
) -> tuple[list[Any], list[int | None]]:
    """The loop over all elements. A carry that no step changes, the same for all elements, stays so."""
    body, (_, constants, init), (_, _, init_dims) = (
        params["body"],
        while_parts(values, params),
        while_parts(dims, params),
    )
    through = forwarded_inputs(body)
    unmapped_carries = {i for i, d in enumerate(init_dims) if d is None and through[i] == len(constants) + i}
    outs, out_dims = _while_batch(size, axis_name, values, dims, params)
    return [init[i] if i in unmapped_carries else o for i, o in enumerate(outs)], [
        None if i in unmapped_carries else d for i, d in enumerate(out_dims)
    ]


def _while_batch(
    size: int, axis_name: Any, values: Sequence[Any], dims: Sequence[int | None], params: Params
) -> tuple[list[Any], list[int | None]]:
    """One loop whose steps work on all elements. If they stop at different times, it runs until the last one stops; elements that
    have stopped keep their values."""
    cond_args, body_args, init = while_parts(values, params)
    _, body_dims, init_dims = while_parts(dims, params)
    init = [v if d is None else moved_to_front(v, d) for v, d in zip(init, init_dims, strict=True)]
    mapped_loop = _map_programs(size, axis_name, cond_args, body_args, init, while_parts(dims, params), params)
    test, step, batched_carries, types = mapped_loop
    carry = [
        conform_tangent(in_front(size, v, None if d is None else 0), t) if b else v
        for v, d, t, b in zip(init, init_dims, types, batched_carries, strict=True)
    ]
    out_dims = list(after_dims(batched_carries))
    cond_values, body_values = [*test.consts, *cond_args], [*step.consts, *body_args]
    if not mapped_loop.differs:
        return _bind(test.program, step.program, cond_values, body_values, carry), out_dims
    k, n = len(cond_values), len(body_args)
    some = _any(test.program, types, test.program.in_types[:k])
    # A step runs only while the one element continues: none is held back, and carries are updated in place.
    if size == 1:
        return _bind(some.program, step.program, [*some.consts, *cond_values], body_values, carry), out_dims
    body = intern_program(params["body"])
    held_body: DerivedProgram = hold_back(body, (*range(n, n + len(init)),))
    apart = not any(t.mesh is not None for t in types) and not exchanges(body, axis_name)
    if apart and any(held_body.results):
        goes_on_type = test.program.out_types[0]
        step = batched_body(
            held_body.program,
            size,
            axis_name,
            (*[None] * len(held_body.consts), 0, *body_dims, *out_dims),
            (*[c.aval for c in held_body.consts], goes_on_type, *[v.aval for v in body_args], *types),
            SPMD_AXES.get(),
            batched_carries,
        )
        captured_values = [*step.consts, *held_body.consts]
        frozen_step = _freeze_finished(test.program, step.program, k, len(captured_values), n, types, held_body.results)
        body_values = [*captured_values, *body_args]
    else:
        frozen_step = _freeze_finished(test.program, step.program, k, 0, len(body_values), types, None)
    frozen_values = [*frozen_step.consts, *cond_values, *body_values]
    return _bind(some.program, frozen_step.program, [*some.consts, *cond_values], frozen_values, carry), out_dims


class _MappedLoop(NamedTuple):
    """The programs of a loop over all elements: whether they continue, and a step; which carries differ between them, and their types."""

    test: DerivedProgram
    step: DerivedProgram
    batched_carries: Mask
    types: tuple[ShapedArray, ...]

    @property
    def differs(self) -> bool:
        """Whether some elements may stop before others."""
        return self.test.results[0] is not None


def _map_programs(
    size: int,
    axis_name: Any,
    cond_args: Sequence[Any],
    body_args: Sequence[Any],
    init: Sequence[Any],
    dims: Sequence[Sequence[int | None]],
    params: Params,
) -> _MappedLoop:
    """The programs, with as few carries that differ between elements as the steps allow."""
    cond, body = intern_program(params["cond"]), intern_program(params["body"])
    cond_types, body_types = [v.aval for v in cond_args], [v.aval for v in body_args]
    cond_dims, body_dims, init_dims = dims
    spmd, own = SPMD_AXES.get(), body.in_types[len(body_args) :]
    batched_carries = tuple(d is not None for d in init_dims)
    types = [carry_with_dim(t, v.aval) if b else t for t, v, b in zip(own, init, batched_carries, strict=True)]
    while True:
        carry_dims = after_dims(batched_carries)
        test: DerivedProgram = batched_body(
            cond, size, axis_name, (*cond_dims, *carry_dims), (*cond_types, *types), spmd, (False,)
        )
        if test.results[0] is not None and not all(batched_carries):
            batched_carries, types = _batch_all(size, batched_carries, types)
            continue
        step: DerivedProgram = batched_body(
            body, size, axis_name, (*body_dims, *carry_dims), (*body_types, *types), spmd, batched_carries
        )
        after = tuple(d is not None for d in step.results)
        new_carries = tuple(a and not b for a, b in zip(after, batched_carries, strict=True))
        _, types_after = _batch_all(size, tuple(not g for g in new_carries), types)
        types_after = [
            carry_joined(t, o) if a else t for t, o, a in zip(types_after, step.program.out_types, after, strict=True)
        ]
        if after == batched_carries and types_after == types:
            return _MappedLoop(test, step, batched_carries, tuple(types))
        batched_carries, types = after, types_after


def after_dims(batched: Mask) -> tuple[int | None, ...]:
    """The mapped dims of carries: in front."""
    return tuple(0 if b else None for b in batched)


def _batch_all(size: int, batched: Mask, types: Sequence[ShapedArray]) -> tuple[Mask, list[ShapedArray]]:
    wide = [
        t if b else t.update(shape=(size, *t.shape), spec=((), *t.spec)) for t, b in zip(types, batched, strict=True)
    ]
    return (True,) * len(wide), wide


@cache_made
def _any(test: Program, types: tuple[ShapedArray, ...], const_types: tuple[ShapedArray, ...]) -> DerivedProgram:
    """Whether any element continues."""
    return trace_body(lambda *v: [reduce_or(eval_program(test, v)[0], (0,))], [*const_types, *types], ANY_GOES_ON)


@cache_made
def _freeze_finished(
    test: Program,
    step: Program,
    num_test: int,
    num_captured: int,
    num_step: int,
    types: tuple[ShapedArray, ...],
    held: Mask | None,
) -> DerivedProgram:
    """A step of the elements that continue; inputs: the values captured by `test` and by `step`, the carry.

    `held`: `step` takes which elements continue, behind `num_captured` of its values, and keeps these carries of the others itself.
    """
    first = num_test + num_captured
    end = first + num_step

    def run(*values: Any) -> list[Any]:
        test_consts, carry = values[:num_test], values[end:]
        (goes_on,) = eval_program(test, [*test_consts, *carry])
        predicate_args = [] if held is None else [goes_on]
        new = eval_program(step, [*values[num_test:first], *predicate_args, *values[first:]])
        held_carries = held or (False,) * len(types)
        return [
            conform_tangent(n if is_held else select_branches(goes_on, [o, n]), t)
            for o, n, t, is_held in zip(carry, new, types, held_carries, strict=True)
        ]

    steady = [t for i, t in enumerate(step.in_types[: -len(types)]) if held is None or i != num_captured]
    return trace_body(run, [*test.in_types[:num_test], *steady, *types], step.name)
