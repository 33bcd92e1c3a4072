"""Derivatives and batching of `cond` and `switch`: every branch is transformed, and the results are conds again.

All branches have the same operands and results, so a value that one branch alone captures, saves or differentiates is zero in
the others. If elements of a vmap choose different branches, all branches run and the results are selected.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from shardwise.base.caches import recent
from shardwise.base.lazy_dataclasses import dataclass
from shardwise.ir import Literal, Program, ShapedArray, UndefinedPrimal, Var, bind, eval_program, tracing
from shardwise.ir.axis_scope import SPMD_AXES
from shardwise.ir.op import Params
from shardwise.ir.references import Reference
from shardwise.ops.control.bodies import intern_program, separate
from shardwise.ops.control.cond import cond_p
from shardwise.ops.elementwise.selection import guarded_p, select_n_p
from shardwise.ops.random.random_bits import share_value
from shardwise.ops.rules.derivative import do, full_cotangent, moved_to_front, scalar
from shardwise.ops.rules.operands import dtype_kind
from shardwise.ops.shapes.reshape import reshape
from shardwise.transforms.bodies.derived_bodies import (
    alive,
    batched_body,
    in_front,
    mask_of,
    pick_items,
    split_body,
    trace_body,
    transposed_body,
    with_tangents,
)
from shardwise.transforms.bodies.handed_through import forwarded_inputs
from shardwise.transforms.bodies.held_updates import exchanges, hold_back, updated_input
from shardwise.transforms.bodies.jit_rules import DerivedProgram, Mask, cache_made, held_arrays, without_state
from shardwise.transforms.interpreters.jvp import conform_tangent

Programs = tuple[Program, ...]


@dataclass(frozen=True, slots=True)
class _Branches:
    """Branches whose first inputs are the values that any of them captured."""

    programs: Programs
    consts: tuple[Any, ...]
    results: tuple[Any, ...]
    references: tuple[Reference, ...] = ()


def _unify_branches(made: Sequence[Any], results: tuple[Any, ...], references: tuple[Reference, ...] = ()) -> _Branches:
    """Branches (program, consts) with the same inputs."""
    captured_consts: dict[int, Any] = {}
    for _, consts in made:
        captured_consts.update((id(c), c) for c in consts)
    programs = []
    for p, consts in made:
        own = dict(zip(map(id, consts), p.inputs, strict=False))
        first = tuple(own[i] if i in own else Var(c.aval) for i, c in captured_consts.items())
        programs.append(
            intern_program(Program((*first, *p.inputs[len(consts) :]), p.equations, p.outputs, len(first), p.name))
        )
    return _Branches(tuple(programs), tuple(captured_consts.values()), results, references)


def _intern_branches(branches: Programs) -> Programs:
    return tuple(map(intern_program, branches))


def _bind(index: Any, made: _Branches, args: Sequence[Any]) -> list[Any]:
    return bind(cond_p, index, *made.consts, *args, branches=tuple(map(separate, made.programs)))


# -- forward mode --------------------------------------------------------------------------------------------------------


@cache_made
def _with_tangents(branches: Programs, live: Mask) -> _Branches:
    count = len(branches[0].outputs)
    none = (False,) * count
    moving_results = sorted({i for b in branches for i in with_tangents(b, live, none).results})
    tangent_branches = [with_tangents(b, live, mask_of(moving_results, count)) for b in branches]
    return _unify_branches([(m.program, m.consts) for m in tangent_branches], tuple(moving_results))


def cond_jvp(primals: Sequence[Any], tangents: Sequence[Any], *, branches: Programs) -> tuple[list[Any], list[Any]]:
    """One cond of values and tangents."""
    live = alive(tangents[1:], primals[1:])
    tangent_branches: _Branches = _with_tangents(_intern_branches(branches), live)
    outs = _bind(primals[0], tangent_branches, [*primals[1:], *pick_items(tangents[1:], live)])
    count = len(branches[0].outputs)
    tangent_of = dict(zip(tangent_branches.results, outs[count:], strict=True))
    return outs[:count], [tangent_of.get(i) for i in range(count)]


# -- reverse mode --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Split:
    """`forward` returns results and residuals; `linear` takes residuals, all operands, and the tangents."""

    forward: _Branches
    linear: _Branches
    outs: tuple[int, ...]

    @property
    def consts(self) -> tuple[Any, ...]:
        """All captured values."""
        return (*self.forward.consts, *self.linear.consts)


@cache_made
def _split(branches: Programs, live: Mask) -> _Split:
    count = len(branches[0].outputs)
    none = (False,) * count
    moving_results = sorted({i for b in branches for i in split_body(b, live, none).outs})
    split_branches = [split_body(b, live, mask_of(moving_results, count)) for b in branches]
    slots: list[ShapedArray] = []  # types of the residuals: a slot holds one value of each branch
    places = [_slots_for(slots, m.forward.out_types[count:]) for m in split_branches]
    forward, linear = [], []
    for b, m, place in zip(branches, split_branches, places, strict=True):
        slot_numbers = {slot: i for i, slot in enumerate(place)}

        def run(*values: Any, m: Any = m, saved: dict[int, int] = slot_numbers) -> list[Any]:
            outs = eval_program(m.forward, values)
            return [
                *outs[:count],
                *[outs[count + saved[s]] if s in saved else full_cotangent(t) for s, t in enumerate(slots)],
            ]

        full = trace_body(run, m.forward.in_types, b.name)
        forward.append((full.program, [*full.consts, *m.forward_consts]))
        captured_values = m.captured

        def push(*values: Any, m: Any = m, place: Sequence[int] = place, n: int = len(captured_values)) -> list[Any]:
            consts = iter(values[:n])
            first, last = n + len(slots), n + len(slots) + len(live)
            slot_values, args, ts = values[n:first], values[first:last], values[last:]
            find = {
                "captured": lambda _: next(consts),
                "saved": lambda v: slot_values[place[v]],
                "argument": lambda v: args[v],
            }
            return eval_program(m.linear, [*[find[kind](v) for kind, v in m.sources], *ts])

        types = [*[c.aval for c in captured_values], *slots, *b.in_types, *pick_items(b.in_types, live)]
        full = trace_body(push, types, b.name)
        linear.append((full.program, [*full.consts, *captured_values]))
    return _Split(_unify_branches(forward, ()), _unify_branches(linear, ()), tuple(moving_results))


def _slots_for(slots: list[ShapedArray], types: Sequence[ShapedArray]) -> list[int]:
    """A slot of its type for each value; new ones are added if none is free."""
    taken_slots: list[int] = []
    for t in types:
        free = [s for s, have in enumerate(slots) if have == t and s not in taken_slots]
        if not free:
            slots.append(t)
            free = [len(slots) - 1]
        taken_slots.append(free[0])
    return taken_slots


def cond_linearize(
    trace: Any, primals: Sequence[Any], tangents: Sequence[Any], params: Params
) -> tuple[list[Any], list[Any]]:
    """The forward cond, and the linear one, recorded in `trace`."""
    branches = params["branches"]
    live = alive(tangents[1:], primals[1:])
    count = len(branches[0].outputs)
    split: _Split = _split(_intern_branches(branches), live)
    with tracing(trace.parent):
        results = _bind(primals[0], split.forward, primals[1:])
    touts = _bind(primals[0], split.linear, [*results[count:], *primals[1:], *pick_items(tangents[1:], live)])
    tangent_of = dict(zip(split.outs, touts, strict=True))
    return results[:count], [tangent_of.get(i) for i in range(count)]


@cache_made
def _backwards(branches: Programs, known: Mask, live: Mask, ct_types: tuple[ShapedArray, ...]) -> _Branches:
    count = len(known)
    none = (False,) * count
    each = [transposed_body(b, known, live, ct_types, none) for b in branches]
    live_operands = sorted({i for m in each for i in m.results})
    used = tuple({id(r): r for m in each for r in m.references}.values())
    transposed_branches = [
        transposed_body(b, known, live, ct_types, mask_of(live_operands, count), used) for b in branches
    ]
    return _unify_branches([(m.program, m.consts) for m in transposed_branches], tuple(live_operands), used)


def cond_transpose(cts: Sequence[Any], index: Any, *args: Any, branches: Programs) -> list[Any]:
    """A cond of the transposed branches."""
    is_known = tuple(not isinstance(a, UndefinedPrimal) for a in args)
    given = [c for c in cts if c is not None]
    transposed_branches: _Branches = _backwards(
        _intern_branches(branches), is_known, tuple(c is not None for c in cts), tuple(c.aval for c in given)
    )
    outs = _bind(
        index, transposed_branches, [*pick_items(args, is_known), *given, *held_arrays(transposed_branches.references)]
    )
    cotangent_of = dict(
        zip(transposed_branches.results, without_state(outs, transposed_branches.references), strict=True)
    )
    return [None, *[cotangent_of.get(i) for i in range(len(args))]]


# -- batching ------------------------------------------------------------------------------------------------------------


def cond_batch(
    size: int, axis_name: Any, values: Sequence[Any], dims: Sequence[int | None], params: Params
) -> tuple[list[Any], list[int | None]]:
    """One cond of batched branches; if the index is batched too, all branches and a selection.

    An operand that every branch hands through, the same for all elements, stays so.
    """
    branches = _intern_branches(params["branches"])
    index, *args = values
    through = [set(ks) for ks in zip(*[forwarded_inputs(b) for b in branches], strict=True)]
    places = {i: next(iter(ks)) for i, ks in enumerate(through) if len(ks) == 1}
    unmapped_args = {i: args[k] for i, k in places.items() if k is not None and dims[1 + k] is None}
    outs, out_dims = _cond_batch(size, axis_name, index, args, dims, branches)
    return [unmapped_args.get(i, o) for i, o in enumerate(outs)], [
        None if i in unmapped_args else d for i, d in enumerate(out_dims)
    ]


def _cond_batch(
    size: int,
    axis_name: Any,
    index: Any,
    args: Sequence[Any],
    dims: Sequence[int | None],
    branches: Programs,
) -> tuple[list[Any], list[int | None]]:
    spmd, types = SPMD_AXES.get(), tuple(a.aval for a in args)
    count = len(branches[0].outputs)
    batched_branches = [
        batched_body(b, size, axis_name, tuple(dims[1:]), types, spmd, (False,) * count) for b in branches
    ]
    index_dim = dims[0]
    every = index_dim is not None
    mapped_results = tuple(every or any(m.results[i] is not None for m in batched_branches) for i in range(count))
    batched_branches = [
        batched_body(b, size, axis_name, tuple(dims[1:]), types, spmd, mapped_results) for b in branches
    ]
    out_dims = [0 if m else None for m in mapped_results]
    if index_dim is None:
        both = _unify_branches([(m.program, m.consts) for m in batched_branches], ())
        return _bind(index, both, args), out_dims
    which = moved_to_front(index, index_dim)
    updated_operands = _updated_operands(branches)
    if any(i is not None for i in updated_operands) and not any(
        a.aval.mesh is not None or exchanges(b, axis_name) for a in args for b in branches
    ):
        return _one_after_the_other(size, axis_name, which, args, dims[1:], branches, updated_operands), out_dims
    cases = [
        eval_program(
            m.program, [*m.consts, *_guard_operands(which, i, map(share_value, args) if i else args, dims[1:])]
        )
        for i, m in enumerate(batched_branches)
    ]
    return [_select_whole(size, which, column) for column in zip(*cases, strict=True)], out_dims


def _guard_operands(which: Any, number: int, args: Iterable[Any], dims: Sequence[int | None]) -> list[Any]:
    """The operands of branch `number`. Elements that take another one get no slope from it: it may be infinite there, or NaN.

    Operands that the elements share stay as they are: one per element would make products of matrices products of vectors.
    """
    is_chosen: Any = None
    out: list[Any] = []
    for x, dim in zip(args, dims, strict=True):
        if dim is not None and dtype_kind(x.aval.dtype) in "fc":
            is_chosen = do.eq(which, scalar(number, which.dtype)) if is_chosen is None else is_chosen
            shape = [1] * x.ndim
            shape[dim] = which.shape[0]
            x = bind(guarded_p, is_chosen if x.ndim == 1 else reshape(is_chosen, tuple(shape)), x)
        out.append(x)
    return out


def _select_whole(size: int, which: Any, cases: Sequence[Any]) -> Any:
    return select_branches(which, [in_front(size, c, None) if isinstance(c, Literal) else c for c in cases])


@recent(1024)
def _updated_operands(branches: Programs) -> tuple[int | None, ...]:
    """Per result the operand of which it is an update in some branches, and which it is in the others.

    None if there is no such operand, or if it is that of another result, too.
    """
    operand_of_result: list[int | None] = []
    for column in zip(*[b.outputs for b in branches], strict=True):
        ways = [updated_input(b, out) for b, out in zip(branches, column, strict=True)]
        same = len({place for place, _ in ways}) == 1 and any(holds for _, holds in ways)
        operand_of_result.append(ways[0][0] if same else None)
    return tuple(None if i is None or operand_of_result.count(i) > 1 else i for i in operand_of_result)


def _one_after_the_other(
    size: int,
    axis_name: Any,
    which: Any,
    args: Sequence[Any],
    dims: Sequence[int | None],
    branches: Programs,
    updated: tuple[int | None, ...],
) -> list[Any]:
    """Each branch writes its elements' updates into what those before it have left; other results are selected."""
    current, places = list(args), list(dims)
    for i in updated:
        if i is not None:
            current[i], places[i] = in_front(size, args[i], dims[i]), 0
    cases: list[list[Any]] = []
    for number, branch in enumerate(branches):
        held_branch: DerivedProgram = hold_back(branch, updated)
        is_chosen = do.eq(which, scalar(number, which.dtype))
        types = (*[c.aval for c in held_branch.consts], is_chosen.aval, *[a.aval for a in current])
        mapped_dims = (*[None] * len(held_branch.consts), 0, *places)
        step: DerivedProgram = batched_body(
            held_branch.program, size, axis_name, mapped_dims, types, SPMD_AXES.get(), (True,) * len(updated)
        )
        given = [share_value(a) if number and a is old else a for a, old in zip(current, args, strict=True)]
        still = [None if i in updated else dim for i, dim in enumerate(places)]
        given = _guard_operands(which, number, given, still)
        outs = eval_program(step.program, [*step.consts, *held_branch.consts, is_chosen, *given])
        cases.append(outs)
        for out, i in zip(outs, updated, strict=True):
            if i is not None:
                current[i] = out
    return [
        _select_whole(size, which, column) if i is None else current[i]
        for column, i in zip(zip(*cases, strict=True), updated, strict=True)
    ]


def select_branches(which: Any, cases: Sequence[Any]) -> Any:
    """Per element the result of its branch; `which` and the cases have the mapped dim first."""
    spec = next((c.aval for c in cases if c.aval.mesh is not None), None)
    if spec is not None:
        cases = [conform_tangent(c, c.aval.update(mesh=spec.mesh, spec=spec.spec)) for c in cases]
    if cases[0].ndim > 1:
        which = reshape(which, (which.shape[0], *[1] * (cases[0].ndim - 1)))
    return share_value(bind(select_n_p, which, *map(share_value, cases)))
