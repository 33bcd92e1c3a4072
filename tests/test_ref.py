"""Mutable references: eagerly, and within one traced function."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import shardwise as sw
from shardwise import lax, ref


def test_read_and_write() -> None:
    r = sw.new_ref(np.zeros(3, np.float32))
    r[0] = 1.0
    r[...] += 2.0
    np.testing.assert_array_equal(r[...], [3, 2, 2])
    assert ref.swap(r, 1, 7.0) == 2 and r.shape == (3,) and len(r) == 3
    ref.addupdate(r, slice(1, 3), 1.0)
    np.testing.assert_array_equal(sw.freeze(r), [3, 8, 3])
    with pytest.raises(ValueError, match="frozen"):
        r[0]


def test_in_traced_functions() -> None:
    def f(x):
        r = sw.new_ref(x)
        for i in range(2):
            r[i] = r[i] * 2 + ref.get(r, 2)
        return sw.freeze(r)

    x = np.arange(3, dtype=np.float32)
    np.testing.assert_array_equal(sw.jit(f)(x), [2, 4, 2])
    np.testing.assert_array_equal(sw.jacrev(f)(x), [[2, 0, 1], [0, 2, 1], [0, 0, 1]])


def test_mistakes() -> None:
    def inner(x):
        r = sw.new_ref(x)

        def body(i, carry):
            r[i] = 0.0
            return carry

        return lax.fori_loop(0, 2, body, 0.0)

    with pytest.raises(NotImplementedError, match="carry the array"):
        sw.jit(inner)(np.ones(3))
    with pytest.raises(ValueError, match="dtype"):
        sw.new_ref(np.zeros(3, np.float32))[...] = np.zeros(3, np.int32)


def test_type_of_a_ref():
    ref = sw.new_ref(sw.numpy.ones(3))
    kind: Any = sw.typeof(ref)
    assert repr(kind) == "Ref{float32[3]}"
    assert (kind.shape, kind.inner_aval) == ((3,), sw.numpy.ones(3).aval)
    assert kind == sw.typeof(sw.new_ref(sw.numpy.zeros(3)))
    assert not isinstance(sw.typeof(sw.numpy.ones(3)), type(kind))
