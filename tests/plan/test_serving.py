"""Plans of published latencies of serving (docs/plan-accuracy.md has them all), and that the model served is one."""

import dataclasses
import importlib
import math
import statistics
from pathlib import Path

import numpy as np
import pytest

import shardwise as jax
import shardwise.numpy as jnp
from shardwise.planner.machines import find


@pytest.fixture
def serving(monkeypatch):
    """The section of the benchmark."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    return importlib.import_module("planning.serving")


def test_decoding_takes_about_as_long_as_it_did(serving):
    (row,) = [row for row in serving.ROWS if row.name == "62B, 32 answers"]
    assert abs(serving.error(row)[1]) < 0.25


@pytest.mark.slow
def test_the_median_of_all_is_within_a_fifth(serving):
    assert statistics.median(abs(serving.error(row)[1]) for row in serving.ROWS) <= 0.2


def test_machines_have_as_many_devices_as_meshes(serving):
    for row in serving.ROWS:
        assert find(row.machine).devices == math.prod(row.serving.mesh), row.name


def test_decoding_keeps_and_says_what_the_prompt_as_a_whole_does(serving):
    model, served = serving.Model(2, 16, 8, 16, 8, 32), serving.Serving((2, 2, 2), 8, 3, "int8")
    mesh = jax.make_mesh(served.mesh, ("x", "y", "z"), axis_types=(jax.sharding.AxisType.Auto,) * 3)
    random = np.random.default_rng(0)
    weights = importlib.import_module("planning.serving_model").weights(model, served, mesh)
    params = {
        n: jnp.asarray(random.integers(-3, 4, t.shape) if t.dtype == jnp.int8 else random.normal(size=t.shape), t.dtype)
        for n, t in weights.items()
    }
    tokens = jnp.asarray(random.integers(0, 32, (8, 3)))
    kept: list[object] = []
    token = logits = None
    for gathered in (False, True):
        whole, _ = serving.prefill(model, dataclasses.replace(served, gathered=gathered), mesh)
        logits, caches = whole(params, tokens)
        kept.append(caches)
    step, _ = serving.decode(model, served, mesh)
    held = jnp.zeros((2, 8, 3, 16), jnp.bfloat16)
    for i in range(3):
        token, held = step(params, held, tokens[:, i : i + 1], i)
    np.testing.assert_array_equal(np.argmax(np.asarray(logits, np.float32), -1), token)
    for caches in kept:
        # bfloat16 has 8 bits.
        np.testing.assert_allclose(np.asarray(caches, np.float32), np.asarray(held, np.float32), rtol=0.02, atol=0.02)
