"""Values and derivatives of all public elementwise functions, reductions and distributions at special points, beside JAX of both eras."""

from __future__ import annotations

import re

import numpy as np
import pytest

import shardwise
from tests import oracles
from tests.special_points import bounds, differences, record, table
from tests.special_points.bounds import bound_of
from tests.special_points.comparison import KINDS, differing, kinds, names_of

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

PARTS = 12  # so many tests: each has every twelfth expression
EVERY = 60  # of the record so many are asked again


@pytest.fixture
def dialect():
    before = shardwise.config.shardwise_dialect
    yield lambda era: shardwise.config.update("shardwise_dialect", era)
    shardwise.config.update("shardwise_dialect", before)


def _failures(era, expression, wrap, zeros=True):
    """What is neither JAX's answer nor the known difference. The signs of slopes that are zero count if `zeros`."""
    kept = record.recorded()[expression]
    theirs, accepted = record.answers(kept, era), record.ours(kept, era)
    got = record.evaluated(expression, era, wrap)
    failed = []
    if ("error" in theirs[0]) != ("error" in got) and accepted.get("error") != got.get("error", "none"):
        failed.append(f"{expression}: derivative: JAX {theirs[0].get('error')}, here {got.get('error')}")
    for key, off in differing(expression, got, theirs).items():
        if key in accepted:
            off = np.where(kinds(got[key], accepted[key], bound_of(expression, key)) == 0, 0, off)
        if not (zeros or key.startswith("value")):
            off = np.where(off == 1 + KINDS.index("sign"), 0, off)
        if off.any():
            at = tuple(np.argwhere(off)[0])
            wanted = accepted.get(key, theirs[0][key])
            wanted = wanted[at] if wanted.shape == off.shape else f"shape {wanted.shape}"
            failed.append(
                f"{expression}: {key} differs in {np.count_nonzero(off)} places ({KINDS[off[at] - 1]}), first at {at}: "
                f"{got[key][at]}, not {wanted}"
            )
    return failed


def _check(era, part, wrap, zeros=True):
    failed = [line for e in record.expressions(era)[part::PARTS] for line in _failures(era, e, wrap, zeros)]
    assert not failed, "\n".join(failed)


# Of the dialects each has its own parts, for most of what they compute is the same code.
@pytest.mark.parametrize(("era", "part"), [("seed", 0), ("latest", 4), ("seed", 8)])
def test_eager(dialect, era, part):
    dialect(era)
    _check(era, part, lambda f: f)


@pytest.mark.slow
@pytest.mark.parametrize("era", record.ERAS)
@pytest.mark.parametrize("part", range(PARTS))
def test_eager_further(dialect, era, part):
    dialect(era)
    _check(era, part, lambda f: f)


@pytest.mark.slow
@pytest.mark.parametrize("era", record.ERAS)
@pytest.mark.parametrize("part", range(PARTS))
def test_compiled(dialect, era, part):
    """As eagerly, but that small products begin with 0.0: to which a slope of -0.0 is added."""
    dialect(era)
    _check(era, part, shardwise.jit, zeros=False)


@pytest.mark.parametrize("era", record.ERAS)
def test_modes_agree(dialect, era):
    """Of what is elementwise, forward and reverse mode give the same number, where neither overflows on its way."""
    dialect(era)
    failed = []
    elementwise = set(table.found().values())
    for expression in record.expressions(era)[record.ERAS.index(era) :: 48]:
        if expression not in elementwise:
            continue
        got = record.evaluated(expression, era)
        for name in "xabpqrklmn":
            forward, reverse = got.get(f"jvp.{name}.0"), got.get(f"vjp.{name}")
            if forward is None or reverse is None or f"jvp.{name}.1" in got or forward.shape != reverse.shape:
                continue
            off = kinds(forward, reverse, bound_of(expression, f"vjp.{name}"))
            off = (off == 1 + KINDS.index("digits")) & np.isfinite(forward) & np.isfinite(reverse)
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


def _found(era, expression):
    """What differs in one expression, as the record has it."""
    kept = record.recorded()[expression]
    theirs, accepted = record.answers(kept, era), record.ours(kept, era)
    if "absent" in theirs[0]:
        return set()
    filled = {k: v for k, v in theirs[0].items() if k.startswith("value")} | accepted
    if accepted.get("error") == "none":
        filled.pop("error")
    elif "error" not in accepted and "error" in theirs[0]:
        filled["error"] = theirs[0]["error"]
    return names_of(differing(expression, filled, theirs), filled, theirs[0])


def test_each_difference_has_its_reason_and_each_reason_its_difference():
    found = {e: _found("latest", e) | _found("seed", e) for e in record.recorded()}
    found = {e: names for e, names in found.items() if names}
    listed = {e: set(reasons) for e, reasons in differences.reasons().items()}
    assert found == listed
    rows = [(expression, what) for expression, what, _ in differences.rows()]
    assert len(rows) == len(set(rows)) and all(why for _, _, why in differences.rows())


def test_bounds_are_about_expressions():
    for pattern in bounds.rows():
        assert any(re.match(pattern, expression) for expression in record.recorded()), pattern


def test_everything_is_recorded():
    assert set(table.expressions()) == record.recorded().keys()
    for expression, kept in record.recorded().items():
        assert {"asked/latest", "asked/seed"} <= kept.keys(), expression


@pytest.mark.record
@pytest.mark.parametrize("era", record.ERAS)
def test_record_is_what_jax_gives(era):
    """Some of the record, asked again of the JAX of its era."""
    oracles.require(era)
    some = record.expressions(era)[::EVERY]
    failed = []
    for expression, now in record.ask(era, [(e, False) for e in some]).items():
        known = record.compiled(record.recorded()[expression], era)
        assert known.keys() == now.keys(), expression
        found = {k: kinds(now[k], known[k], bound_of(expression, k)) for k in now if not isinstance(now[k], str)}
        failed += [f"{expression}: {k}" for k, off in found.items() if off.any()]
    assert not failed, "\n".join(failed)
