"""Loops and branches of small programs: `scan`, `while_loop` and `cond` inside of one function.

A small carry is a register that goes round; a larger one has two pieces of memory that take turns: a round reads the one and
writes the other. A carry that is updated in place has a single piece. Rows of scanned arrays are addresses, and outputs are written
into the stacked result.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from shardwise.base.lazy_dataclasses import dataclass
from shardwise.base.shapes import Shape
from shardwise.ir import Branches, Equation, Loop, Program, Spread, Var, region_of
from shardwise.runtime import costs
from shardwise.runtime.loops import dtype_name
from shardwise.runtime.machine import TYPES, Lane
from shardwise.runtime.small.code import Code, Value
from shardwise.runtime.small.cost import small_cost
from shardwise.runtime.small.in_place import branch_updates, carry_updates, values_handed_on
from shardwise.runtime.small.leads import carry_shapes, entry_of, leads_through, out_leads
from shardwise.runtime.small.loops import dense, store
from shardwise.runtime.small.positions import as_index
from shardwise.runtime.small.rounds import vector_by_vector

if TYPE_CHECKING:
    from shardwise.runtime.small.body import BodyWriter


@dataclass(frozen=True, slots=True, eq=False)
class _Carry:
    """One value that goes round: its first value, and the memory that takes turns; none for a register, or what stays in place.

    A complex register goes round as its `parts`, which no round then takes apart and joins again.
    """

    first: Value
    turns: tuple[Value, ...] = ()
    parts: tuple[Lane, ...] = ()
    chain: tuple[Var, ...] = ()  # its values in the body, if all lie in the first one's memory
    last: Value | None = None  # that memory, after the loop

    def loop_registers(self) -> list[tuple[str, str]]:
        """(type, first value) of the registers that the loop carries for it."""
        if self.chain:
            return []
        if not self.turns:
            return [(f"<{self.first.size} x {part.type}>", part.ref) for part in self.parts]
        return [("ptr", v.place) for v in (self.first, *self.turns)]

    def value(self, code: Code, refs: Sequence[str]) -> Value:
        """The value in a round."""
        if self.chain:
            return self.first
        if not self.turns:
            parts = [Lane(ref, part.dtype) for ref, part in zip(refs, self.parts, strict=True)]
            return replace(self.first, lane=code.at(self.first.size).join_parts(parts))
        owners = (*self.first.owners, *[o for v in self.turns for o in v.owners])
        return replace(self.first, place=refs[0], owners=owners)

    def target(self, refs: Sequence[str]) -> Value | None:
        """Where the round writes the next value."""
        if self.chain:
            return self.first
        if not self.turns:
            return None
        spare = refs[2] if self.turns[2:] else ""
        among = (refs[1], refs[0], *([spare] if spare else []))
        return replace(self.turns[0], place=refs[1], among=among, spare=spare)

    def nexts(self, code: Code, refs: Sequence[str], value: Value) -> list[str]:
        """The registers of the next round."""
        if self.chain:
            return []
        if self.turns:
            return self._next_turns(code, refs, value.place)
        value = code.align_rank(code.settle_value(value), len(self.first.shape))
        return [part.ref for part in code.take_apart(code.lane_of(value, self.first.shape))]

    def _next_turns(self, code: Code, refs: Sequence[str], place: str) -> list[str]:
        """The value's address, those of free memory, and its own again, which is free once the next value has another one."""
        old, target, *free, last = refs
        if place == old:  # handed on in all branches
            return list(refs)
        if place == target:
            return [target, *free, last, target]
        pick, stays = code.pick_address, code.same_address(place, old)
        if not free:
            return [place, pick(stays, target, last), pick(stays, last, place)]
        (spare,) = free
        is_target = code.same_address(place, target)
        return [place, pick(is_target, spare, target), pick(stays, spare, last), pick(stays, last, place)]


def _carry(
    code: Code, value: Value, shape: Shape, chain: tuple[Var, ...], into: Value | None, turns: int = 2
) -> _Carry:
    value = code.align_rank(value, len(shape))
    if math.prod(shape) <= costs.REGISTER_ELEMENTS:
        lane = code.lane_of(value, shape)
        first = code.of_lane(lane, shape, value.dtype, math.prod(shape))
        return _Carry(first, parts=tuple(code.take_apart(lane)))
    if chain:
        memory = code.buffer(shape, value.dtype) if into is None or into.shape != shape else into
        if (value.place, value.steps) != (memory.place, memory.steps):
            store(code, value, memory)
        return _Carry(replace(memory, updated=True), chain=chain, last=memory)
    if value.even:
        first = dense(code, replace(value, shape=shape))
    else:
        value = code.in_memory(value)
        steps = tuple(0 if n != m else s for n, m, s in zip(value.shape, shape, value.steps, strict=True))
        first = dense(code, replace(value, shape=shape, steps=steps))
    return _Carry(first, tuple([code.buffer(shape, value.dtype) for _ in range(turns)]))


# -- loops ---------------------------------------------------------------------------------------------------------------


def region(body: BodyWriter, eqn: Equation, values: list[Value], wanted: list[Value | None]) -> list[Value]:
    """A loop, or one of several branches."""
    held = region_of(eqn)
    if isinstance(held, Branches):
        return _branches(body, held, eqn, values, wanted)
    assert held is not None
    lone = vector_by_vector(body, held, values, wanted, _loop)
    return _loop(body, held, values, wanted) if lone is None else lone


def _loop(body: BodyWriter, loop: Loop, values: list[Value], wanted: list[Value | None]) -> list[Value]:
    if loop.length is None:
        return _loop_until(body, loop, values, wanted)
    return _counted_loop(body, loop, loop.length, values, wanted)


def _counted_loop(
    body: BodyWriter, loop: Loop, length: int, values: list[Value], wanted: list[Value | None]
) -> list[Value]:
    """A loop of known length."""
    code, inner, lead = body.code, loop.body, body.code.lead
    consts, rows, n = values[loop.consts], values[loop.rows], loop.num_carry
    shapes = carry_shapes(loop, values, code.env)
    outs = out_leads(
        inner,
        [v.shape[:lead] for v in consts] + [s[:lead] for s in shapes] + [v.shape[:lead] for v in rows],
        code.env,
    )
    carries = _Carries(code, loop, values[loop.carry], shapes, wanted)
    xs = [x if x.even else code.in_memory(x) for x in rows]
    ys = list[Value]()
    for atom, ext, into in zip(inner.outputs[n:], outs[n:], wanted[n:], strict=True):
        shape = (*ext, length, *atom.aval.shape)
        ys.append(into if into is not None and into.shape == shape else code.buffer(shape, dtype_name(atom.aval)))
    every = _poll_every(inner, length)
    stable = len(consts) if length > 1 else 0  # of one round there is no loop

    def step(i: str, refs: list[str]) -> list[str]:
        row = i
        if loop.reverse and length > 1:
            row = code.integer("sub", length - 1, i)
        given = [*consts, *carries.values(refs), *[code.settle_value(_row(code, x, row)) for x in xs]]
        results = body.inner(inner, given, stable, carries.places()).run(
            [*carries.targets(refs), *[_row(code, y, row) for y in ys]]
        )
        after = carries.nexts(refs, results)
        if every and i != "0":
            code.poll_signals(i, every)
        return after

    with_held = [*carries.memory(), *xs, *ys]
    for v in with_held:
        code.hold(v)
    last = code.loop(0, length, step, carries.loop_registers())
    results = [*carries.results(last), *[code.settle_value(y) for y in ys]]
    for v in with_held:
        code.release(v)
    return results


def map_entries(body: BodyWriter, eqn: Equation, values: list[Value], wanted: list[Value | None]) -> list[Value]:
    """An op applied to each entry along the first own dim of the operands that are mapped: a loop."""
    code, params, lead = body.code, eqn.params, body.code.lead
    which = params["mapped"]
    inner = entry_of(eqn)
    form = inner.op.small
    assert form is not None
    given = [v if not m or v.even else code.in_memory(v) for v, m in zip(values, which, strict=True)]
    leads = leads_through(inner, [v.shape[:lead] for v in values], code.env)
    made = [
        code.memory(ext + v.aval.shape, dtype_name(v.aval), w)
        for ext, v, w in zip(leads, eqn.outputs, wanted, strict=True)
    ]
    held = [*given, *made]
    for v in held:
        code.hold(v)

    def step(i: str, _: list[str]) -> list[str]:
        outs = [_row(code, v, i) for v in made]
        rows = [code.settle_value(_row(code, v, i)) if m else v for v, m in zip(given, which, strict=True)]
        if (given[0].place, given[0].steps) == (made[0].place, made[0].steps):  # updated where it lies
            rows[0] = outs[0]
        for value, out in zip(form.write(body, inner, rows, outs), outs, strict=True):
            if (value.place, value.steps) != (out.place, out.steps):
                store(code, value, out)
        return []

    code.loop(0, params["size"], step)
    for v in held:
        code.release(v)
    return [code.settle_value(v) for v in made]


def _row(code: Code, x: Value, i: str) -> Value:
    """Entry `i` along the first own dim."""
    d = code.lead
    shape = x.shape[:d] + x.shape[d + 1 :]
    if x.even:
        return replace(x, shape=shape)
    return replace(
        x, shape=shape, steps=x.steps[:d] + x.steps[d + 1 :], place=code.advance_address(x.place, i, x.steps[d])
    )


class _Carries:
    """The carries of a loop; those that no round changes are constants of it."""

    def __init__(
        self,
        code: Code,
        loop: Loop,
        values: Sequence[Value],
        shapes: Sequence[Shape],
        wanted: Sequence[Value | None],
    ) -> None:
        self.code = code
        first = loop.num_consts
        before, after = loop.body.inputs[first : first + len(values)], loop.body.outputs[: len(values)]
        self.fixed = [v if b is a else None for b, a, v in zip(before, after, values, strict=True)]
        chains = carry_updates(loop, code.env.spread)
        turns = [3 if any(v not in loop.body.inputs for v in values_handed_on(loop.body, a)) else 2 for a in after]
        self.carries = [
            None if f is not None else _carry(code, v, s, c, w, n)
            for f, v, s, c, w, n in zip(self.fixed, values, shapes, chains, wanted, turns, strict=False)
        ]

    def places(self) -> dict[Var, Value]:
        """Where values of the body lie that are updated in place."""
        return {v: c.first for c in self.carries if c is not None for v in c.chain[1:]}

    def memory(self) -> list[Value]:
        """The memory that stays in use while the loop runs."""
        return [v for c in self.carries if c is not None for v in (c.first, *c.turns)]

    def loop_registers(self) -> list[tuple[str, str]]:
        return [item for c in self.carries if c is not None for item in c.loop_registers()]

    def _cut(self, refs: Sequence[str]) -> list[Sequence[str]]:
        out, k = list[Sequence[str]](), 0
        for c in self.carries:
            n = 0 if c is None else len(c.loop_registers())
            out.append(refs[k : k + n])
            k += n
        return out

    def values(self, refs: Sequence[str]) -> list[Value]:
        out = list[Value]()
        for c, f, own in zip(self.carries, self.fixed, self._cut(refs), strict=True):
            value = f if c is None else c.value(self.code, own)
            assert value is not None
            out.append(value)
        return out

    def results(self, refs: Sequence[str]) -> list[Value]:
        """The values after the loop."""
        found = zip(self.carries, self.values(refs), strict=True)
        return [value if c is None or c.last is None else c.last for c, value in found]

    def targets(self, refs: Sequence[str]) -> list[Value | None]:
        return [None if c is None else c.target(own) for c, own in zip(self.carries, self._cut(refs), strict=True)]

    def nexts(self, refs: Sequence[str], results: Sequence[Value]) -> list[str]:
        return [
            ref
            for c, own, v in zip(self.carries, self._cut(refs), results, strict=False)
            if c is not None
            for ref in c.nexts(self.code, own, v)
        ]


def _loop_until(body: BodyWriter, loop: Loop, values: list[Value], wanted: list[Value | None]) -> list[Value]:
    """A loop whose length comes out when it runs; signals are looked at now and then."""
    code, test = body.code, loop.test
    assert test is not None
    consts, test_consts = values[loop.consts], values[loop.test_consts]
    carries = _Carries(code, loop, values[loop.carry], carry_shapes(loop, values, code.env), wanted)
    every = _poll_every(loop.body, None)

    def test_carries(refs: list[str]) -> str:
        (value,) = body.inner(test, [*test_consts, *carries.values(refs[1:])], len(test_consts)).run()
        lane = code.lane_of(code.align_rank(value, 0) if not code.lead else value, value.shape)
        return code.value(f"extractelement <1 x i1> {lane.ref}, i64 0")

    def round_(refs: list[str]) -> list[str]:
        given = [*consts, *carries.values(refs[1:])]
        results = body.inner(loop.body, given, len(consts), carries.places()).run(carries.targets(refs[1:]))
        after = carries.nexts(refs[1:], results)
        code.poll_signals(refs[0], every)
        return [code.integer("add", refs[0], 1), *after]

    for v in carries.memory():
        code.hold(v)
    last = code.repeat([("i64", "0"), *carries.loop_registers()], test_carries, round_)
    results = carries.results(last[1:])
    for v in carries.memory():
        code.release(v)
    return results


# -- branches ------------------------------------------------------------------------------------------------------------


def _branches(
    body: BodyWriter, held: Branches, eqn: Equation, values: list[Value], wanted: list[Value | None]
) -> list[Value]:
    """The branch that an index names; one out of range takes the nearest."""
    code, branches, lead = body.code, held.programs, body.code.lead
    index, *operands = values
    leads = [v.shape[:lead] for v in operands]
    shapes = [
        np.broadcast_shapes(*each_lead) + v.aval.shape
        for v, *each_lead in zip(eqn.outputs, *[out_leads(b, leads, code.env) for b in branches], strict=True)
    ]
    made: list[Value | None] = []
    for shape, v, into in zip(shapes, eqn.outputs, wanted, strict=True):
        if math.prod(shape) <= costs.REGISTER_ELEMENTS:
            made.append(None)
        else:
            made.append(into if into is not None and into.shape == shape else code.buffer(shape, dtype_name(v.aval)))
    made = [m and _or_handed_on(held, k, operands, m, m is wanted[k]) for k, m in enumerate(made)]
    memory = [m for m in made if m is not None]
    for m in memory:
        code.hold(m)
    places = _places_in_branches(held, operands, made, code.env.spread)

    def way(branch: Program, own: dict[Var, Value]) -> Callable[[], list[str]]:
        def run() -> list[str]:
            results = body.inner(branch, operands, 0, own).run(made)
            return [
                code.lane_of(code.align_rank(code.settle_value(r), len(s)), s).ref if m is None else r.place
                for r, s, m in zip(results, shapes, made, strict=True)
                if m is None or m.among
            ]

        return run

    items = [(s, dtype_name(v.aval), m) for s, v, m in zip(shapes, eqn.outputs, made, strict=True)]
    kinds = ["ptr" if m else f"<{math.prod(s)} x {TYPES[dtype]}>" for s, dtype, m in items if not m or m.among]
    refs = iter(code.choose(as_index(code, index), list(map(way, branches, places)), kinds))
    out = list[Value]()
    for s, dtype, m in items:
        if m is None:
            out.append(code.of_lane(Lane(next(refs), dtype), s, dtype, math.prod(s)))
        else:
            out.append(replace(m, place=next(refs)) if m.among else m)
    for m in memory:
        code.release(m)
    return out


def _or_handed_on(held: Branches, k: int, operands: Sequence[Value], made: Value, is_wanted: bool) -> Value:
    """The memory of a large result, or that of an operand which some branch hands on as it: then nothing is copied. Where the result is
    wanted, only if that is among the places.
    """
    fits = [
        v
        for p in held.programs
        for out in (p.outputs[k], *values_handed_on(p, p.outputs[k]))
        if out in p.inputs and (v := operands[p.inputs.index(out)]).place and not v.updated
        if (v.shape, v.steps) == (made.shape, made.steps)
    ]
    others = [v for v in fits if v.place != made.place and (not is_wanted or v.lies_in(made))]
    if not others:
        return replace(made, among=(), spare="")
    places = [p for v in (made, *others) for p in v.among or (v.place,)]
    owners = [o for v in (made, *others) for o in v.owners]
    return replace(made, among=tuple(dict.fromkeys(places)), owners=tuple(dict.fromkeys(owners)), spare="")


def _places_in_branches(
    held: Branches, operands: Sequence[Value], made: Sequence[Value | None], spread: Spread
) -> list[dict[Var, Value]]:
    """For each branch, the places of values that update an operand in place, because the operand lies where the result is wanted."""
    places = [dict[Var, Value]() for _ in held.programs]
    at = {(v.place, v.steps) for v in operands if v.place}
    for k, into in enumerate(made):
        if into is None or (into.place, into.steps) not in at:
            continue
        found = branch_updates(held, k, spread)
        if found is not None and (operands[found[0]].place, operands[found[0]].steps) == (into.place, into.steps):
            for own, chain in zip(places, found[1], strict=True):
                own.update(dict.fromkeys(chain[1:], into))
    return places


def _poll_every(body: Program, length: int | None) -> int:
    """After how many rounds a loop looks at signals again: a power of two; 0 for never."""
    once = small_cost(body) + 1
    if length is not None and length * once < costs.POLL_FROM:
        return 0
    return 1 << max(0, int(math.log2(max(1.0, costs.POLL_EVERY / once))))
