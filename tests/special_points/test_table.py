"""Values and derivatives of all public elementwise functions, reductions and distributions at special points, beside JAX."""

from __future__ import annotations

import pytest

import shardwise
from tests.special_points import record, table
from tests.special_points.answers import answer
from tests.special_points.comparison import differing
from tests.special_points.differences import reason

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

CANCELS = ("nn.standardize(rows)", "jnp.linalg.norm(rows, ord=0.5, axis=1)")  # rounding is all that is left
PARTS = 12  # so many tests, each of every so manieth expression


@pytest.fixture
def latest():
    before = shardwise.config.shardwise_dialect
    shardwise.config.update("shardwise_dialect", "latest")
    yield
    shardwise.config.update("shardwise_dialect", before)


def _failures(expression, wrap):
    """What differs from the record in one expression."""
    known = record.recorded()[expression]
    got = answer(shardwise, table.library("shardwise"), expression, wrap)
    failed = []
    if "error" in known and "error" not in got and not reason(expression):
        failed.append(f"{expression}: JAX has no derivative ({known['error']})")
    for key in sorted(known.keys() & got.keys()):
        if isinstance(known[key], str):
            continue
        want = known.get(f"ours.{key}", known[key])
        if (off := differing(got[key], want)).any():
            failed.append(
                f"{expression}: {key} differs in {off.sum()} places, first {got[key][off][:1]}, not {want[off][:1]}"
            )
    return failed


def _check(part, wrap):
    failed = [line for e in sorted(record.recorded())[part::PARTS] if e not in CANCELS for line in _failures(e, wrap)]
    assert not failed, "\n".join(failed)


@pytest.mark.parametrize("part", range(0, PARTS, 4))
def test_eager(latest, part):
    _check(part, lambda f: f)


@pytest.mark.slow
@pytest.mark.parametrize("part", [p for p in range(PARTS) if p % 4])
def test_eager_further(latest, part):
    _check(part, lambda f: f)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_compiled(latest, part):
    _check(part, shardwise.jit)


def test_modes_agree(latest):
    """Of what is elementwise, forward and reverse mode give the same number, where neither meets zero times infinity."""
    failed = []
    elementwise = set(table.found().values())
    for expression in sorted(record.recorded())[::24]:
        if expression not in elementwise:
            continue
        got = answer(shardwise, table.library("shardwise"), expression)
        for name in "xabpqrklmn":
            forward, reverse = got.get(f"jvp.{name}.0"), got.get(f"vjp.{name}")
            if forward is None or reverse is None or f"jvp.{name}.1" in got or forward.shape != reverse.shape:
                continue
            off = differing(forward, reverse) & (forward == forward) & (reverse == reverse)
            if off.any():
                failed.append(f"{expression}: {name}: {forward[off][:1]} forwards, {reverse[off][:1]} in reverse")
    assert not failed, "\n".join(failed)


def _is_alias(space, name, named):
    """Whether the same function has a name that is evaluated."""
    functions = table.public_names("shardwise", space)
    return any(
        other != name and functions[other] is functions[name] and f"{space}.{other}" in named for other in functions
    )


def test_every_public_function_is_evaluated_or_skipped_with_a_reason():
    named = set(table.found()) | set(table.SKIPPED) | table.names_in_forms()
    missing = [
        f"{space}.{name}"
        for space in table.SPACES
        for name in table.public_names("shardwise", space)
        if f"{space}.{name}" not in named and not _is_alias(space, name, named)
    ]
    assert not missing, missing


def test_what_differs_has_a_reason():
    lacking = [
        e for e, known in record.recorded().items() if any(k.startswith("ours.") for k in known) and not reason(e)
    ]
    assert not lacking


@pytest.mark.slow
def test_record_is_what_jax_gives():
    """Some of the record, asked again of the installed JAX."""
    pytest.importorskip("jax")
    failed = []
    for expression in sorted(record.recorded())[::10]:
        known, now = record.recorded()[expression], record.ask(expression)
        failed += [
            f"{expression}: {k}" for k in now if not isinstance(now[k], str) and differing(now[k], known[k]).any()
        ]
    assert not failed, "\n".join(failed)
