"""Reuse of random keys, found in a program: which operands it consumes, and which results are fresh keys.

Comes in: a traced program. Goes out: its `Uses`, or KeyReuseError where an equation consumes a key that is consumed already. A
program's `Uses` say how a call of it changes the state of the arrays that it is called with, and of those that come out.

A key is consumed by what draws from it or splits it. Whether parts of an array of keys are consumed is known part by part where
they were cut out by static slices. Ops that the table does not know consume the keys that they get, and give used ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from shardwise.base.dtypes import KeyDtype
from shardwise.base.errors import KeyReuseError
from shardwise.ir import Equation, Literal, Program, Var
from shardwise.ir.program import source_text

Mask = Any  # whether keys are consumed: a bool for all of an array, or a bool ndarray of its shape


@dataclass(frozen=True)
class Uses:
    """What an equation or a program does with keys.

    Attributes:
        sinks: per operand that is consumed, which of its keys.
        sources: positions of results that are fresh keys; other keys among the results count as used.
        forwards: per result that is an operand handed on, the operand's position.
    """

    sinks: Mapping[int, Mask] = field(default_factory=dict)
    sources: frozenset[int] = frozenset()
    forwards: Mapping[int, int] = field(default_factory=dict)


def overlap(a: Mask, b: Mask) -> bool:
    """Whether some key is in both; masks of different shapes are compared as wholes."""
    if np.ndim(a) and np.ndim(b) and np.shape(a) != np.shape(b):
        return bool(np.any(a) and np.any(b))
    return bool(np.any(np.logical_and(a, b)))


def union(a: Mask, b: Mask) -> Mask:
    """The keys that are in one of them."""
    if np.ndim(a) and np.ndim(b) and np.shape(a) != np.shape(b):
        return bool(np.any(a) or np.any(b))
    return np.logical_or(a, b)


def is_key(x: Any) -> bool:
    """Whether a value is an array of typed keys."""
    return isinstance(x.aval.dtype, KeyDtype)


def key_uses(program: Program) -> Uses:
    """What `program` does with keys.

    Raises:
        KeyReuseError: it consumes one twice.
    """
    consumed: dict[Var, Mask] = {}
    origin: dict[Var, Var] = {}  # of values that are other values handed on

    def root(atom: Var | Literal) -> Var | None:
        if isinstance(atom, Literal):
            return None
        return origin.get(atom, atom)

    for eqn in program.equations:
        if not any(is_key(a) for a in (*eqn.inputs, *eqn.outputs)) and eqn.op.name not in _BODIES:
            continue
        uses = _of_equation(eqn)
        for out, operand in uses.forwards.items():
            if (found := root(eqn.inputs[operand])) is not None:
                origin[eqn.outputs[out]] = found
        for i, mask in uses.sinks.items():
            var = root(eqn.inputs[i])
            if var is None or not is_key(var):
                continue
            if overlap(consumed.get(var, False), mask):
                where = f" at {source_text(eqn.source)}" if eqn.source else ""
                raise KeyReuseError(
                    f"In {eqn.op.name}{where}, argument {i} is already consumed: a key of type {var.aval.str_short()} was used or split "
                    f"before, in {program.name}. Split keys, and use each part once."
                )
            consumed[var] = union(consumed.get(var, False), mask)
        for i, out in enumerate(eqn.outputs):
            if is_key(out) and out not in origin:
                consumed[out] = i not in uses.sources

    inputs = {v: i for i, v in enumerate(program.inputs)}
    sinks = {i: consumed[v] for v, i in inputs.items() if is_key(v) and np.any(consumed.get(v, False))}
    sources, forwards = set(), {}
    for i, atom in enumerate(program.outputs):
        var = root(atom)
        if var is None or not is_key(var):
            continue
        if var in inputs:
            forwards[i] = inputs[var]
        elif not np.any(consumed.get(var, False)):
            sources.add(i)
    return Uses(sinks, frozenset(sources), forwards)


# -- what single equations do -----------------------------------------------------------------------------------------------------

Rule = Callable[[Equation], Uses]

_HAND_ON: Final = Uses(forwards={0: 0})
_MAKE: Final = Uses(sources=frozenset({0}))
_DRAW: Final = Uses({0: True})

_RULES: Final[dict[str, Uses]] = {
    **dict.fromkeys(("broadcast_in_dim", "copy", "convert_element_type", "reshape", "squeeze", "sharding_constraint", "reshard",
                     "dynamic_slice", "gather", "device_put", "pvary", "pcast", "transpose", "rev"), _HAND_ON),
    **dict.fromkeys(("random_clone", "random_fold_in", "random_seed", "random_wrap"), _MAKE),
    **dict.fromkeys(("random_bits", "random_gamma"), _DRAW),
    **dict.fromkeys(("random_unwrap", "callback", "remat", "eq", "ne"), Uses()),
    "random_split": Uses({0: True}, frozenset({0})),
    "dynamic_update_slice": Uses({1: True}, forwards={0: 0}),
    "scatter": Uses({2: True}, forwards={0: 0}),
}  # fmt: skip


def _of_equation(eqn: Equation) -> Uses:
    name = eqn.op.name
    if name in _RULES:
        return _RULES[name]
    if name in _BODIES:
        return _BODIES[name](eqn)
    return Uses({i: True for i, a in enumerate(eqn.inputs) if is_key(a)})


def _slice(eqn: Equation) -> Uses:
    start, limit, strides = (eqn.params[k] for k in ("start_indices", "limit_indices", "strides"))
    mask = np.zeros(eqn.inputs[0].aval.shape, np.bool_)
    mask[tuple(map(slice, start, limit, strides or (1,) * len(start)))] = True
    return Uses({0: mask}, frozenset({0}))


def _split(eqn: Equation) -> Uses:
    return Uses({0: True}, frozenset(range(len(eqn.outputs))))


def _concatenate(eqn: Equation) -> Uses:
    if len(eqn.inputs) == 1:
        return _HAND_ON
    return Uses(dict.fromkeys(range(len(eqn.inputs)), True), frozenset({0}))


def _called(eqn: Equation) -> Uses:
    return key_uses(eqn.params["program"])


def _mapped(eqn: Equation) -> Uses:
    """An op inside of `vmap`, whose mapped operands have the mapped dim in front."""
    size, mapped = eqn.params["size"], eqn.params["mapped"]
    inner_inputs = tuple(Var(_row(a.aval)) if m else a for a, m in zip(eqn.inputs, mapped, strict=True))
    inner_outputs = tuple(Var(_row(v.aval)) for v in eqn.outputs)
    uses = _of_equation(Equation(eqn.params["op"], inner_inputs, inner_outputs, dict(eqn.params["inner"]), eqn.source))
    sinks = {
        i: np.broadcast_to(mask, (size, *mask.shape)) if mapped[i] and np.ndim(mask) else mask
        for i, mask in uses.sinks.items()
    }
    return Uses(sinks, uses.sources, uses.forwards)


def _row(aval: Any) -> Any:
    return aval.update(shape=aval.shape[1:])


def _cond(eqn: Equation) -> Uses:
    branches: Sequence[Uses] = [key_uses(b) for b in eqn.params["branches"]]
    sinks: dict[int, Mask] = {}
    for branch in branches:
        for i, mask in branch.sinks.items():
            sinks[i + 1] = union(sinks.get(i + 1, False), mask)
    sources = frozenset().union(*(b.sources for b in branches))
    shared = set.intersection(*(set(b.forwards.items()) for b in branches))
    return Uses(sinks, sources, {out: i + 1 for out, i in shared})


def _again(eqn: Equation, part: str, why: str) -> KeyReuseError:
    where = f" at {source_text(eqn.source)}" if eqn.source else ""
    return KeyReuseError(
        f"{eqn.op.name} {part} leads to key reuse when it runs again{where}: {why}. Split the key, or fold the step's number into it "
        "with random.fold_in."
    )


def _scan(eqn: Equation) -> Uses:
    consts, carry = eqn.params["num_consts"], eqn.params["num_carry"]
    uses = key_uses(eqn.params["body"])
    if any(i < consts for i in uses.sinks):
        raise _again(eqn, "body function", "it consumes a key that is the same in each step")
    taken = {i - consts for i in uses.sinks if consts <= i < consts + carry}
    if not taken <= {i for i in uses.sources if i < carry}:
        raise _again(eqn, "body function", "it consumes a key of its carry and hands on no fresh one in its place")
    return uses


def _while(eqn: Equation) -> Uses:
    cond_consts, body_consts = eqn.params["cond_consts"], eqn.params["body_consts"]
    cond, body = key_uses(eqn.params["cond"]), key_uses(eqn.params["body"])
    for part, uses, consts in (("cond function", cond, cond_consts), ("body function", body, body_consts)):
        if any(i < consts for i in uses.sinks):
            raise _again(eqn, part, "it consumes a key that is the same in each step")
        if not {i - consts for i in uses.sinks} <= body.sources:
            raise _again(eqn, part, "it consumes a key of the carry for which the body hands on no fresh one")
    by_cond, by_body = ({i - n for i in u.sinks} for u, n in ((cond, cond_consts), (body, body_consts)))
    if by_cond & by_body:
        raise _again(eqn, "cond and body functions", "both consume the same key")
    sinks = {i + cond_consts: mask for i, mask in body.sinks.items()}
    sinks |= {i + body_consts: mask for i, mask in cond.sinks.items()}
    return Uses(sinks, body.sources, {out: i + cond_consts for out, i in body.forwards.items()})


def _barrier(eqn: Equation) -> Uses:
    return Uses(forwards={i: i for i in range(len(eqn.outputs))})


_BODIES: Final[dict[str, Rule]] = {
    "slice": _slice,
    "split": _split,
    "concatenate": _concatenate,
    "jit": _called,
    "shard_map": _called,
    "vmapped": _mapped,
    "cond": _cond,
    "scan": _scan,
    "while": _while,
    "checkpoint": _called,
    "optimization_barrier": _barrier,
}
