"""Derivatives and batching of `scan`: its body is transformed, and the results are scans again.

Reverse mode makes two: a forward scan that stacks each step's residuals, and one that is linear in the tangents, whose
transpose runs the steps in the opposite order. Values that no step changes are not stacked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shardwise.base.lazy_dataclasses import dataclass
from shardwise.ir import Literal, Program, ShapedArray, UndefinedPrimal, bind, eval_program, live_equations, tracing
from shardwise.ir.axis_scope import SPMD_AXES
from shardwise.ir.op import Params
from shardwise.ir.references import Reference
from shardwise.ops.control.bodies import intern_program, separate
from shardwise.ops.control.scan import scan_p, slice_type
from shardwise.ops.elementwise.binary import add_p
from shardwise.ops.rules.derivative import moved_to_front
from shardwise.ops.shapes.transpose import transpose
from shardwise.passes import common_subexpressions
from shardwise.transforms.bodies.derived_bodies import (
    alive,
    arrange_program,
    batched_body,
    cotangent_like,
    in_front,
    join_masks,
    mask_of,
    pick_items,
    split_body,
    tangent_like,
    trace_body,
    transposed_body,
    where,
    with_tangents,
)
from shardwise.transforms.bodies.jit_rules import DerivedProgram, Mask, cache_made, held_arrays, without_state
from shardwise.transforms.interpreters.jvp import conform_tangent, cotangent_type, jvp_program


def _parts(items: Sequence[Any], num_consts: int, num_carry: int) -> tuple[Sequence[Any], Sequence[Any], Sequence[Any]]:
    """Items, one per operand, for the captured values, the carry and the scanned arrays."""
    end = num_consts + num_carry
    return items[:num_consts], items[num_consts:end], items[end:]


def _bind(
    params: Params,
    body: Program,
    consts: Sequence[Any],
    carry: Sequence[Any],
    xs: Sequence[Any],
    *,
    reverse: bool | None = None,
) -> list[Any]:
    return bind(
        scan_p,
        *consts,
        *carry,
        *xs,
        body=separate(body),
        num_consts=len(consts),
        num_carry=len(carry),
        length=params["length"],
        reverse=params["reverse"] if reverse is None else reverse,
    )


# -- values that no step changes ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _HoistedBody:
    """A body in two: `before` computes from the captured values what is the same in all steps; `body` takes its results, too."""

    before: Program
    body: Program
    consts: tuple[Any, ...] = ()


@cache_made
def _hoist_constants(body: Program, num_consts: int) -> _HoistedBody:
    steady = set(body.inputs[:num_consts])
    first, rest = [], []
    for eqn in body.equations:
        if not eqn.op.has_effects(eqn.params) and all(a in steady for a in eqn.inputs if not isinstance(a, Literal)):
            steady.update(eqn.outputs)
            first.append(eqn)
        else:
            rest.append(eqn)
    used = {a for e in rest for a in e.inputs} | set(body.outputs)
    extra = tuple(v for e in first for v in e.outputs if v in used)
    consts = body.inputs[:num_consts]
    before = Program(consts, tuple(first), extra, 0, body.name)
    inner = Program(
        (*consts, *extra, *body.inputs[num_consts:]), tuple(rest), body.outputs, num_consts + len(extra), body.name
    )
    return _HoistedBody(before, intern_program(inner))


# -- forward mode --------------------------------------------------------------------------------------------------------


@cache_made
def _with_tangents(body: Program, num_consts: int, num_carry: int, live: Mask) -> DerivedProgram:
    """The body with tangents. `results`: the carries with a tangent, then the outputs with one."""
    a, c, x = _parts(live, num_consts, num_carry)
    outputs = len(body.outputs)
    while True:
        mask = (*a, *c, *x)
        pushed_body = with_tangents(body, mask, (*c, *[False] * (outputs - num_carry)))
        after = mask_of(pushed_body.results, outputs)
        if after[:num_carry] == c:
            break
        c = after[:num_carry]
    first = len(pushed_body.consts)
    values = _parts(range(first, first + len(mask)), num_consts, num_carry)
    where_is = dict(zip(where(mask), range(first + len(mask), len(pushed_body.program.inputs)), strict=True))
    tangents = _parts([where_is.get(i) for i in range(len(mask))], num_consts, num_carry)
    inputs = [
        *range(first),
        *[i for v, t in zip(values, tangents, strict=True) for i in (*v, *[j for j in t if j is not None])],
    ]
    moving_count = len([i for i in pushed_body.results if i < num_carry])
    outs = [
        *range(num_carry),
        *range(outputs, outputs + moving_count),
        *range(num_carry, outputs),
        *range(outputs + moving_count, len(pushed_body.program.outputs)),
    ]
    return DerivedProgram(
        arrange_program(pushed_body.program, first, inputs, outs), pushed_body.consts, (c, after[num_carry:])
    )


def scan_jvp(
    primals: Sequence[Any], tangents: Sequence[Any], *, body: Program, num_consts: int, num_carry: int, **params: Any
) -> tuple[list[Any], list[Any]]:
    """One scan of values and tangents."""
    live = alive(tangents, primals)
    pushed_body: DerivedProgram = _with_tangents(intern_program(body), num_consts, num_carry, live)
    live_carries, moving_results = pushed_body.results
    p, t, on = (_parts(items, num_consts, num_carry) for items in (primals, tangents, live))
    types = _parts(body.in_types, num_consts, num_carry)
    outs = _bind(
        params,
        pushed_body.program,
        [*pushed_body.consts, *p[0], *pick_items(t[0], on[0])],
        [*p[1], *[tangent_like(ti, ty) for ti, ty in pick_items(list(zip(t[1], types[1], strict=True)), live_carries)]],
        [*p[2], *pick_items(t[2], on[2])],
    )
    return _with_zeros(outs, num_carry, live_carries, moving_results)


def _with_zeros(outs: Sequence[Any], num_carry: int, carried: Mask, moving: Mask) -> tuple[list[Any], list[Any]]:
    """Results and tangents, None for no tangent. `outs`: carries, their tangents, outputs, their tangents."""
    source = iter(outs)
    take = lambda mask: [next(source) if m else None for m in mask]  # noqa: E731
    carry, carry_ts = take([True] * num_carry), take(carried)
    ys, y_ts = take([True] * len(moving)), take(moving)
    return [*carry, *ys], [*carry_ts, *y_ts]


# -- reverse mode --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Split:
    """A body in two.

    `forward` stacks residuals behind its outputs, where they are not among them. `linear` takes steady residuals (`steady`), then
    tangents of captured values, tangents of carries, stacked residuals (`stacks`), tangents of scanned arrays.
    """

    forward: Program
    forward_consts: tuple[Any, ...]
    linear: Program
    steady: tuple[tuple[str, Any], ...]
    stacks: tuple[tuple[str, Any], ...]
    carry_mask: Mask
    result_mask: Mask
    consts: tuple[Any, ...]


@cache_made
def _split(body: Program, num_consts: int, num_carry: int, live: Mask) -> _Split:
    a, c, x = map(tuple, _parts(live, num_consts, num_carry))
    outputs = len(body.outputs)
    while True:
        mask = (*a, *c, *x)
        halves = split_body(body, mask, (*c, *[False] * (outputs - num_carry)))
        after = mask_of(halves.outs, outputs)
        if after[:num_carry] == c:
            break
        c = after[:num_carry]
    end, first = num_consts + num_carry, len(halves.forward_consts)
    f = common_subexpressions(halves.forward)
    outs: list[Any] = list(f.outputs[:outputs])
    steady, stacks, steady_at, stack_at = [], [], [], []
    for at, (kind, v) in enumerate(halves.sources):
        if kind == "captured" or (kind == "argument" and v < num_consts):
            steady.append((kind, v))
            steady_at.append(at)
            continue
        if kind == "saved" or v < end:  # a carry is stacked as it enters
            atom = f.outputs[outputs + v] if kind == "saved" else f.inputs[first + v]
            if isinstance(atom, Literal) or atom not in outs[num_carry:]:
                outs.append(atom)
            kind, v = "saved", num_carry + next(i for i, o in enumerate(outs[num_carry:]) if o is atom)
        stacks.append((kind, v))
        stack_at.append(at)
    residuals = len(halves.sources)
    t = [range(residuals + s, residuals + s + n) for s, n in ((0, sum(a)), (sum(a), sum(c)), (sum(a) + sum(c), sum(x)))]
    linear = arrange_program(halves.linear, 0, [*steady_at, *t[0], *t[1], *stack_at, *t[2]])
    forward = intern_program(live_equations(Program(f.inputs, f.equations, tuple(outs), first, f.name)))
    return _Split(
        forward,
        halves.forward_consts,
        linear,
        tuple(steady),
        tuple(stacks),
        c,
        after[num_carry:],
        halves.consts,
    )


def scan_linearize(
    trace: Any, primals: Sequence[Any], tangents: Sequence[Any], params: Params
) -> tuple[list[Any], list[Any]]:
    """The forward scan, and the linear one, recorded in `trace`."""
    num_consts, num_carry = params["num_consts"], params["num_carry"]
    ps, ts = _parts(primals, num_consts, num_carry), _parts(tangents, num_consts, num_carry)
    hoisted_body: _HoistedBody = _hoist_constants(intern_program(params["body"]), num_consts)
    body = hoisted_body.body
    more, more_ts = jvp_program(hoisted_body.before, ps[0], ts[0])
    num_consts += len(more)
    primals, tangents = [*ps[0], *more, *ps[1], *ps[2]], [*ts[0], *more_ts, *ts[1], *ts[2]]
    ps, ts = _parts(primals, num_consts, num_carry), _parts(tangents, num_consts, num_carry)
    live = alive(tangents, primals)
    on = _parts(live, num_consts, num_carry)
    split: _Split = _split(body, num_consts, num_carry, live)
    outputs = len(body.outputs)
    with tracing(trace.parent):
        results = _bind(params, split.forward, [*split.forward_consts, *ps[0]], ps[1], ps[2])
    find = {"saved": lambda v: results[v], "argument": lambda v: primals[v], "captured": lambda v: v}
    types = body.in_types[num_consts : num_consts + num_carry]
    touts = _bind(
        params,
        split.linear,
        [*[find[kind](v) for kind, v in split.steady], *pick_items(ts[0], on[0])],
        [tangent_like(t, ty) for t, ty in pick_items(list(zip(ts[1], types, strict=True)), split.carry_mask)],
        [*[find[kind](v) for kind, v in split.stacks], *pick_items(ts[2], on[2])],
    )
    source = iter(touts)
    return results[:outputs], [next(source) if m else None for m in (*split.carry_mask, *split.result_mask)]


@dataclass(frozen=True, slots=True)
class _Back:
    """A step backwards: inputs known captured values, sums, cotangents of carries, known entries, cotangents of outputs."""

    program: Program
    consts: tuple[Any, ...]
    carry_mask: Mask
    input_mask: Mask
    references: tuple[Reference, ...]


@cache_made
def _backwards(
    body: Program, num_consts: int, num_carry: int, known: Mask, live: Mask, ct_types: tuple[ShapedArray, ...]
) -> _Back:
    """`ct_types` of the live outputs behind the carries."""
    carry, y_live = live[:num_carry], live[num_carry:]
    end, types = num_consts + num_carry, body.in_types
    while True:
        cts = (*[cotangent_type(t) for t in pick_items(types[num_consts:end], carry)], *ct_types)
        pulled_body = transposed_body(
            body, known, (*carry, *y_live), cts, (*[False] * num_consts, *carry, *[False] * (len(known) - end))
        )
        live_inputs = mask_of(pulled_body.results, len(known))
        if join_masks(carry, live_inputs[num_consts:end]) == carry:
            break
        carry = join_masks(carry, live_inputs[num_consts:end])
    first = len(pulled_body.consts)
    summed_consts = where(live_inputs[:num_consts])
    known_a, known_x, state = sum(known[:num_consts]), sum(known[end:]), len(pulled_body.references)

    def step(*values: Any) -> list[Any]:
        source = iter(values)
        take = lambda n: [next(source) for _ in range(n)]  # noqa: E731
        consts, steady, sums, carry_values, arrays, entries, ys = map(
            take, (first, known_a, len(summed_consts), sum(carry), state, known_x, len(ct_types))
        )
        results = eval_program(pulled_body.program, [*consts, *steady, *entries, *carry_values, *ys, *arrays])
        n, last = len(sums), len(results) - state
        carry_end = n + len(carry_values)
        new_sums = [bind(add_p, s, r) for s, r in zip(sums, results, strict=False)]
        return [*new_sums, *results[n:carry_end], *results[last:], *results[carry_end:last]]

    avals = pulled_body.program.in_types
    split, last = first + known_a, len(avals) - state
    step_types = [
        *avals[:split],
        *[cotangent_type(types[i]) for i in summed_consts],
        *avals[split + known_x : split + known_x + sum(carry)],
        *avals[last:],
        *avals[split : split + known_x],
        *avals[split + known_x + sum(carry) : last],
    ]
    final = trace_body(step, step_types, body.name)
    program = arrange_program(final.program, len(final.consts), None)
    return _Back(program, (*final.consts, *pulled_body.consts), carry, live_inputs, pulled_body.references)


def scan_transpose(
    cts: Sequence[Any], *args: Any, body: Program, num_consts: int, num_carry: int, **params: Any
) -> list[Any]:
    """The scan in the opposite order, from the cotangents of the last carry and of the outputs.

    Cotangents of captured values are summed up in the carry.
    """
    is_known = tuple(not isinstance(a, UndefinedPrimal) for a in args)
    linear = _linear_carries(body, is_known, num_consts, num_carry)
    if not all(linear):
        return _with_known_carries(linear, cts, args, body, num_consts, num_carry, params)
    end = num_consts + num_carry
    is_known = (*is_known[:num_consts], *[False] * num_carry, *is_known[end:])
    y_cts = [c for c in cts[num_carry:] if c is not None]
    back: _Back = _backwards(
        intern_program(body),
        num_consts,
        num_carry,
        is_known,
        tuple(c is not None for c in cts),
        tuple(slice_type(c.aval) for c in y_cts),
    )
    types = body.in_types
    summed_consts = where(back.input_mask[:num_consts])
    outs = _bind(
        params,
        back.program,
        [*back.consts, *pick_items(args[:num_consts], is_known[:num_consts])],
        [
            *[cotangent_like(None, types[i]) for i in summed_consts],
            *[cotangent_like(cts[i], types[num_consts + i]) for i in where(back.carry_mask)],
            *held_arrays(back.references),
        ],
        [*pick_items(args[end:], is_known[end:]), *y_cts],
        reverse=not params["reverse"],
    )
    first = len(summed_consts) + sum(back.carry_mask)
    last = first + len(back.references)
    outs = [*without_state(outs[:last], back.references), *outs[last:]]
    cotangent_of = dict(
        zip(
            [
                *summed_consts,
                *[num_consts + i for i in where(back.carry_mask)],
                *[i for i in where(back.input_mask) if i >= end],
            ],
            outs,
            strict=True,
        )
    )
    return [cotangent_of.get(i) if isinstance(a, UndefinedPrimal) else None for i, a in enumerate(args)]


def _reached_values(body: Program, inputs: Sequence[bool]) -> set[Any]:
    """The values that depend on these inputs."""
    values: set[Any] = set(pick_items(body.inputs, inputs))
    for eqn in body.equations:
        if any(a in values for a in eqn.inputs):
            values.update(eqn.outputs)
    return values


def _linear_carries(body: Program, known: Mask, num_consts: int, num_carry: int) -> Mask:
    """The carries that depend on linear inputs."""
    end = num_consts + num_carry
    mask = tuple(not k for k in known)
    while True:
        reached_values = _reached_values(body, mask)
        carry = join_masks(mask[num_consts:end], [o in reached_values for o in body.outputs[:num_carry]])
        if carry == mask[num_consts:end]:
            return carry
        mask = (*mask[:num_consts], *carry, *mask[end:])


def _with_known_carries(
    linear: Mask,
    cts: Sequence[Any],
    args: Sequence[Any],
    body: Program,
    num_consts: int,
    num_carry: int,
    params: Params,
) -> list[Any]:
    """Carries that do not depend on linear inputs (counters) are computed first and become scanned arrays."""
    end = num_consts + num_carry
    steady = [i for i in range(num_carry) if not linear[i]]
    linear_at = where(linear)
    known_a = [i for i in range(num_consts) if not isinstance(args[i], UndefinedPrimal)]
    known_x = [i for i in range(end, len(args)) if not isinstance(args[i], UndefinedPrimal)]
    steady_at = [num_consts + i for i in steady]
    inputs = tuple(body.inputs[i] for i in (*known_a, *steady_at, *known_x))
    outputs = (*[body.outputs[i] for i in steady], *[body.inputs[i] for i in steady_at])
    reached_values = _reached_values(body, [v not in inputs for v in body.inputs])
    equations = tuple(e for e in body.equations if not any(a in reached_values for a in e.inputs))
    counting = arrange_program(Program(inputs, equations, outputs, 0, body.name), 0, None)
    outs = _bind(params, counting, *[[args[i] for i in at] for at in (known_a, steady_at, known_x)])
    order = [*range(num_consts), *[num_consts + i for i in linear_at], *steady_at, *range(end, len(args))]
    inner = arrange_program(body, 0, order, [*linear_at, *range(num_carry, len(body.outputs))])
    new_args = [*args[:num_consts], *[args[num_consts + i] for i in linear_at], *outs[len(steady) :], *args[end:]]
    cotangents = scan_transpose(
        [*[cts[i] for i in linear_at], *cts[num_carry:]],
        *new_args,
        body=inner,
        num_consts=num_consts,
        num_carry=len(linear_at),
        **params,
    )
    by_position = dict(zip(order, cotangents, strict=True))
    return [by_position[i] for i in range(len(args))]


# -- batching ------------------------------------------------------------------------------------------------------------


def scan_batch(
    size: int, axis_name: Any, values: Sequence[Any], dims: Sequence[int | None], params: Params
) -> tuple[list[Any], list[int | None]]:
    """One scan whose steps work on all elements; the mapped dim stays behind the scanned one."""
    body, num_consts, num_carry = intern_program(params["body"]), params["num_consts"], params["num_carry"]
    values, dims = list(values), list(dims)
    end = num_consts + num_carry
    for i in range(num_consts, len(values)):
        d = dims[i]
        if i < end and d is not None:
            values[i], dims[i] = moved_to_front(values[i], d), 0
        elif d == 0:
            values[i], dims[i] = _second(values[i]), 1
    outputs = len(body.outputs)
    batched_carries = tuple(d is not None for d in dims[num_consts:end])
    spmd = SPMD_AXES.get()
    types = [v.aval for v in values[:end]] + [slice_type(v.aval) for v in values[end:]]
    entry_dims = [*dims[:end], *[None if d is None else d - 1 for d in dims[end:]]]
    for i in range(num_consts, end):
        types[i] = carry_with_dim(body.in_types[i], types[i]) if dims[i] == 0 else body.in_types[i]
    while True:
        for i in range(num_consts, end):
            if batched_carries[i - num_consts] and entry_dims[i] is None:
                aval = body.in_types[i]
                types[i], entry_dims[i] = aval.update(shape=(size, *aval.shape), spec=((), *aval.spec)), 0
        forced_results = (*batched_carries, *[False] * (outputs - num_carry))
        batched_step: DerivedProgram = batched_body(
            body, size, axis_name, tuple(entry_dims), tuple(types), spmd, forced_results
        )
        after = tuple(d is not None for d in batched_step.results[:num_carry])
        wider = [
            carry_joined(types[num_consts + i], batched_step.program.out_types[i])
            if batched_carries[i]
            else types[num_consts + i]
            for i in range(num_carry)
        ]
        if after == batched_carries and wider == types[num_consts:end]:
            break
        types[num_consts:end], batched_carries = wider, after
    carry = [
        conform_tangent(in_front(size, v, d), t) if b else v
        for v, d, t, b in zip(
            values[num_consts:end], dims[num_consts:end], types[num_consts:end], batched_carries, strict=True
        )
    ]
    outs = _bind(params, batched_step.program, [*batched_step.consts, *values[:num_consts]], carry, values[end:])
    return outs, [
        *batched_step.results[:num_carry],
        *[None if d is None else d + 1 for d in batched_step.results[num_carry:]],
    ]


def _second(x: Any) -> Any:
    """`x` with its first two dims swapped."""
    return transpose(x, (1, 0, *range(2, x.ndim)))


def carry_with_dim(aval: ShapedArray, value: ShapedArray) -> ShapedArray:
    """The carry's type with the mapped dim of an initial value in front."""
    return aval.update(
        shape=value.shape, spec=(value.spec[0], *aval.spec), mesh=aval.mesh or value.mesh, vma=aval.vma | value.vma
    )


def carry_joined(carry: ShapedArray, out: ShapedArray) -> ShapedArray:
    """The carry's type once the body's result is known: its mapped dim has the result's split, and varies over the axes of both."""
    return carry.update(spec=(out.spec[0], *carry.spec[1:]), mesh=carry.mesh or out.mesh, vma=carry.vma | out.vma)
