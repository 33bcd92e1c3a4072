"""Expressions found from values at sampled sizes."""

from __future__ import annotations

import pytest

from shardwise.export import symbolic_shape
from shardwise.export.dims import evaluate_size
from shardwise.export.samples import Samples

A, B = symbolic_shape("a, b")


@pytest.mark.parametrize("more", [False, True])
@pytest.mark.parametrize(
    "size", [3, A, 2 * A * B + B, A * A - 1, A * (A + 1) // 2, symbolic_shape("min(a, 5)", scope=A.scope)[0]]
)
def test_polynomials(size, more):
    samples = Samples(["a", "b"], A.scope, more)
    values = [evaluate_size(size, env) for env in (*samples.envs, *samples.small)]
    found = samples.fit(values)
    for env in ({"a": 977, "b": 6}, {"a": 3, "b": 1001}, {"a": 1, "b": 1}):
        assert evaluate_size(found, env) == evaluate_size(size, env)


@pytest.mark.parametrize("size", [(A + 1) // 2, (B + 7) // 8 * 8, B % 3, A - A // 4, 3 * (A // 16) + 1])
def test_quotients(size):
    samples = Samples(["a", "b"], A.scope, more=True)
    found = samples.fit([size.evaluate(env) for env in samples.envs])
    for env in ({"a": 977, "b": 6}, {"a": 44, "b": 1001}):
        assert found.evaluate(env) == size.evaluate(env)


def test_what_no_expression_gives():
    samples = Samples(["a"], A.scope, more=True)
    assert samples.fit([env["a"] ** 5 for env in samples.envs]) is None
    assert samples.fit([env["a"].bit_length() for env in samples.envs]) is None


def test_samples_keep_constraints():
    h, _ = symbolic_shape("h, w", constraints=["h <= w", "mod(w, 8) == 0", "h >= 2"])
    samples = Samples(["h", "w"], h.scope, more=True)
    assert len(samples.envs) > 9
    for env in (*samples.envs, *samples.small):
        assert 2 <= env["h"] <= env["w"] and env["w"] % 8 == 0
    (n,) = symbolic_shape("n", constraints=["n == 3"])
    assert Samples(["n"], n.scope).envs == [{"n": 3}]
