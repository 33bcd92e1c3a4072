"""Loops and branches of which only some results are wanted (`Op.narrow`).

In: params, which results are wanted, and a function that gives the parts of programs. Out: params of the smaller equation, with the
operands and results that it keeps. A carry stays while its last value is wanted, or the next values of others or the test follow from it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from shardwise.ir import NarrowedEquation, PartOf, ProgramPart
from shardwise.ir.op import Params

WantedResults = Sequence[bool]  # per result


def narrow_scan(params: Params, wanted: WantedResults, part_of: PartOf) -> NarrowedEquation:
    """The scan of the wanted stacked results, and of the carries that they and the wanted last carries follow from."""
    body, first, count = params["body"], params["num_consts"], params["num_carry"]
    stacked_results = [i for i in range(count, len(wanted)) if wanted[i]]
    carry, part = _close_carries(
        {i for i in range(count) if wanted[i]},
        lambda carry: part_of(body, (*carry, *stacked_results)),
        range(first, first + count),
    )
    read = {*part.inputs, *[first + i for i in carry]}
    operands = tuple([i for i in range(len(body.inputs)) if i in read])
    new_params = {
        "body": part.program(operands),
        "num_consts": sum(i < first for i in operands),
        "num_carry": len(carry),
    }
    return NarrowedEquation({**params, **new_params}, operands, (*carry, *stacked_results))


def narrow_while(params: Params, wanted: WantedResults, part_of: PartOf) -> NarrowedEquation:
    """The loop over the carries that its test and the wanted results follow from."""
    cond, body = params["cond"], params["body"]
    for_test, for_body = params["cond_consts"], params["body_consts"]
    test = part_of(cond, (0,))
    tested_carries = {i - for_test for i in test.inputs if i >= for_test}
    carry, step = _close_carries(
        {i for i in range(len(wanted)) if wanted[i]} | tested_carries,
        lambda carry: part_of(body, carry),
        range(for_body, for_body + len(wanted)),
    )
    test_consts = [i for i in test.inputs if i < for_test]
    step_consts = [i for i in step.inputs if i < for_body]
    new_params = {
        "cond": test.program([*test_consts, *[for_test + i for i in carry]]),
        "body": step.program([*step_consts, *[for_body + i for i in carry]]),
        "cond_consts": len(test_consts),
        "body_consts": len(step_consts),
    }
    given = [*test_consts, *[for_test + i for i in step_consts], *[for_test + for_body + i for i in carry]]
    return NarrowedEquation({**params, **new_params}, tuple(given), carry)


def narrow_cond(params: Params, wanted: WantedResults, part_of: PartOf) -> NarrowedEquation:
    """The branches with the wanted results, and the operands that one of them reads."""
    results = tuple([i for i, w in enumerate(wanted) if w])
    parts = [part_of(branch, results) for branch in params["branches"]]
    inside = sorted({i for part in parts for i in part.inputs})
    branches = tuple([part.program(inside) for part in parts])
    return NarrowedEquation({**params, "branches": branches}, (0, *[1 + i for i in inside]), results)


def _close_carries(
    carry: set[int], part_of: Callable[[tuple[int, ...]], ProgramPart], inputs: range
) -> tuple[tuple[int, ...], ProgramPart]:
    """A closed set of carries, `carry` among them: all that their next values depend on; and the part of the body that computes these."""
    while True:
        kept_carries = tuple(sorted(carry))
        part = part_of(kept_carries)
        read = {i - inputs.start for i in part.inputs if i in inputs}
        if read <= carry:
            return kept_carries, part
        carry = carry | read
