"""Every public function, called in every way: as an object under transformations, with NumPy arrays, by keyword."""

from __future__ import annotations

import functools
import importlib.util
from typing import Any

import pytest

import shardwise as sw
from tests.calls import record, ways
from tests.calls.beside import Failure, Library, difference, outcome
from tests.calls.table import Call, calls, public, tables

SHARE = 12  # the default run takes one call in so many, always the same ones
DERIVED_SHARE = 30
# Ways that differ for a reason.
EXCUSED = {
    "polyfit": "its residuals are what rounding leaves of 0",
    "gelu": "at -3 the tanh form cancels, and an ulp of tanh becomes 200 of the result",
    "cho_factor": "gives back a Python bool, which becomes an array under a transformation",
    "array_repr": "prints the name of the class that it is given",
}
TABLES = tables() if importlib.util.find_spec("jax") else {}


pytestmark = pytest.mark.usefixtures("latest")


@pytest.mark.parametrize("module", TABLES)
def test_every_public_function_is_called_or_skipped_for_a_reason(module: str) -> None:
    lines, skipped = TABLES[module]
    called = {call.name for call in calls(module, lines)}
    assert set(public(importlib.import_module(f"jax.{module}"))) - called - skipped == set()
    assert called & skipped == set()


def chosen(share: int) -> list[Call]:
    every = [call for module, (lines, _) in TABLES.items() for call in calls(module, lines)]
    return every[::share]


@functools.cache
def library(name: str) -> Library:
    return Library(name)


def bound(call: Call, fun: Any) -> tuple[Any, list[Any]]:
    """The function with its static arguments given, and the others; lambdas stand only where a static one comes first."""
    ours = library("shardwise")
    values = [(a, ours.value(a, ours.arrays)) for a in call.arguments]
    dynamic = [v for a, v in values if a.letters]
    if all(a.letters and a.keyword is None for a, _ in values):
        return fun, dynamic

    def rest(*given: Any) -> Any:
        items = iter(given)
        full = [(a, next(items) if a.letters else v) for a, v in values]
        return fun(
            *[v for a, v in full if a.keyword is None], **{a.keyword: v for a, v in full if a.keyword is not None}
        )

    return rest, dynamic


def ways_that_differ(call: Call) -> list[str]:
    """What a call gives in other ways than eagerly with arrays."""
    ours, found = library("shardwise"), []
    eager = outcome(lambda: ours.run(call, ours.arrays))
    host = outcome(lambda: ours.run(call, ours.hosts))
    if any(letter == "h" for a in call.arguments for letter in a.letters):
        host = eager  # an expression of bfloat16 scalars is NumPy's to compute
    others = {}
    if not any(set("[(.+-*/>") & set(a.source) for a in call.arguments if a.letters):
        others["of NumPy arrays"] = eager if call.name in EXCUSED else host
    arrays = not isinstance(eager, Failure) and any(isinstance(x, sw.Array) for x in sw.tree.leaves(eager))
    if not call.then and arrays and call.name not in EXCUSED:
        fun, dynamic = bound(call, ours.function(call.module, call.name))
        traced = outcome(lambda: sw.eval_shape(fun, *dynamic))
        if not isinstance(traced, Failure):  # otherwise values decide about shapes
            others["under jit"] = outcome(lambda: sw.jit(fun)(*dynamic))
            others["under checkpoint"] = outcome(lambda: sw.checkpoint(fun)(*dynamic))
            others["under jit, twice"] = outcome(lambda: sw.jit(sw.jit(fun))(*dynamic))
    for way, result in others.items():
        problem = difference(result, eager, ours, ours, ulps=64)
        if problem:
            found.append(f"{call} {way} {problem}")
    return found


def derived_ways_that_differ(call: Call) -> list[str]:
    """What a call gives in the ways of `ways`, which follow from the eager one."""
    ours = library("shardwise")
    eager = outcome(lambda: ours.run(call, ours.arrays))
    found = []
    if not isinstance(eager, Failure):
        found.append(("by keyword", ways.by_keyword(call, eager, ours, library("jax"))))
    leaves = [] if isinstance(eager, Failure) else sw.tree.leaves(eager)
    if not call.then and leaves and all(isinstance(x, sw.Array) for x in leaves) and call.name not in EXCUSED:
        fun, dynamic = bound(call, ours.function(call.module, call.name))
        if dynamic and not isinstance(outcome(lambda: sw.eval_shape(fun, *dynamic)), Failure):
            found.extend(ways.derived(fun, dynamic, eager, ours))
            found.append(("under vmap", ways.batched(fun, dynamic, eager, ours)))
            found.append(("under differentiation", ways.derivatives(fun, dynamic)))
    return [f"{call} {way} {problem}" for way, problem in found if problem and not _excused(call, way)]


def _excused(call: Call, way: str) -> bool:
    return (call.name, way) in ways.EXCUSED or (repr(call), way) in ways.EXCUSED


def test_every_way_gives_the_same() -> None:
    assert [problem for call in chosen(SHARE) for problem in ways_that_differ(call)] == []


@pytest.mark.slow
def test_every_way_gives_the_same_everywhere() -> None:
    assert [problem for call in chosen(1) for problem in ways_that_differ(call)] == []


def test_derived_ways_give_the_same() -> None:
    assert [problem for call in chosen(DERIVED_SHARE) for problem in derived_ways_that_differ(call)] == []


@pytest.mark.slow
def test_derived_ways_give_the_same_everywhere() -> None:
    assert [problem for call in chosen(1) for problem in derived_ways_that_differ(call)] == []


def calls_unlike_jax(share: int, form_share: int) -> tuple[list[str], set[str]]:
    """What differs from the recorded answers of JAX, and the excuses that were needed."""
    known, found, entries, needed = record.recorded(), [], record.excused(), set[str]()
    asked = [(call, "arrays") for call in chosen(share)]
    asked += [
        (call, form) for call in chosen(form_share) for form in ("scalars", "lists") if record.key(call, form) in known
    ]
    for call, form in asked:
        problem = record.differs(record.answer(library("shardwise"), call, form), known[record.key(call, form)])
        excuse = record.excuse(call, entries)
        if problem and excuse is None:
            found.append(f"{record.key(call, form)} {problem}")
        elif problem and excuse is not None:
            needed.add(excuse)
    return found, needed


def test_calls_give_what_jax_gives() -> None:
    assert calls_unlike_jax(7, 5)[0] == []


@pytest.mark.slow
def test_all_calls_give_what_jax_gives() -> None:
    found, needed = calls_unlike_jax(1, 1)
    assert (found, record.excused(everywhere=True) - needed) == ([], set())


def test_excuses_name_calls() -> None:
    every = record.every_call()
    names = {repr(call) for call in every} | {f"{call.module}.{call.name}" for call in every}
    assert record.excused() <= names
