"""Plans of published training steps come near to what was measured (docs/plan-accuracy.md has them all)."""

import importlib
import math
import statistics
from pathlib import Path

import pytest

from shardwise.planner.machines import find

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def published(monkeypatch):
    """The section of the benchmark."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("planning.published")


def error(published, step):
    plan = published.planned(step.model, step.recipe, step.machine)
    return published.Outcome(step, plan).error


@pytest.mark.parametrize("name", ["Llama 3.1 8B on 16 v6e", "MaxText 16B on 256 v5e", "Llama 3.1 70B on 64 tpu7x"])
def test_a_step_takes_about_as_long_as_it_did(published, name):
    (step,) = [s for s in published.STEPS if s.name == name]
    assert abs(error(published, step)) < 0.15


@pytest.mark.slow
def test_the_median_of_all_is_within_twelve_percent(published):
    errors = [error(published, step) for step in published.STEPS]
    assert statistics.median(map(abs, errors)) <= 0.12
    pairs = [(s.measured, s.measured * (1 + e)) for s, e in zip(published.STEPS, errors, strict=True)]
    assert published.kendall_tau(pairs) >= 0.9


def test_kendalls_tau_counts_pairs_in_order(published):
    assert published.kendall_tau([(1, 10), (2, 20), (3, 30)]) == 1
    assert published.kendall_tau([(1, 30), (2, 20), (3, 10)]) == -1
    assert published.kendall_tau([(1, 10), (2, 30), (3, 20)]) == pytest.approx(1 / 3)


def test_names_are_unique_and_machines_have_as_many_devices_as_meshes(published):
    assert len({s.name for s in published.STEPS}) == len(published.STEPS)
    for step in published.STEPS:
        assert find(step.machine).devices == math.prod(step.recipe.axes.values()), step.name
