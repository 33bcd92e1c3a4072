"""What a program does with random keys, found without running it. Verdicts beside JAX's are in tests/experimental."""

from __future__ import annotations

import numpy as np
import pytest

import shardwise as sw
from shardwise import lax
from shardwise.base.errors import KeyReuseError
from shardwise.ir import trace_program
from shardwise.ir.key_uses import overlap, union
from shardwise.passes.key_reuse import key_uses

KEY = sw.random.key(0).aval
KEYS = sw.random.split(sw.random.key(0), 4).aval


def uses(f, *types):
    return key_uses(trace_program(f, types or (KEY,))[0])


def test_drawing_consumes():
    found = uses(lambda k: [sw.random.bits(k)])
    assert {i: bool(np.any(m)) for i, m in found.sinks.items()} == {0: True}
    assert found.sources == frozenset()


def test_splitting_consumes_and_gives_fresh_keys():
    found = uses(lambda k: [sw.random.split(k)])
    assert 0 in found.sinks
    assert found.sources == {0}


def test_handing_on_does_neither():
    found = uses(lambda k: [k])
    assert (dict(found.sinks), dict(found.forwards)) == ({}, {0: 0})


def test_twice_is_refused():
    with pytest.raises(KeyReuseError):
        uses(lambda k: [sw.random.bits(k), sw.random.normal(k)])


def test_parts_of_an_array_of_keys_are_apart():
    uses(lambda ks: [sw.random.bits(ks[0]), sw.random.bits(ks[1])], KEYS)
    with pytest.raises(KeyReuseError):
        uses(lambda ks: [sw.random.bits(ks[0]), sw.random.bits(ks[0])], KEYS)


def test_a_loop_that_hands_on_no_fresh_key_is_refused():
    def steps(fresh):
        def step(key, _):
            now, later = sw.random.split(key)
            return (later if fresh else key), sw.random.bits(now)

        return lambda k: list(lax.scan(step, k, None, length=3))

    uses(steps(True))
    with pytest.raises(KeyReuseError, match="runs again"):
        uses(steps(False))


def test_masks():
    first, second = np.array([True, False]), np.array([False, True])
    assert not overlap(first, second)
    assert overlap(first, True)
    assert overlap(first, np.ones(3, bool))  # shapes that say nothing of each other
    np.testing.assert_array_equal(union(first, second), [True, True])
    assert union(first, np.zeros(3, bool)) is True
