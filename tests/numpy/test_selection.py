"""Choosing by conditions and finding what is true: values, dtypes and weak types as JAX has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardwise
import shardwise.numpy as jnp
from shardwise.base.errors import ConcretizationTypeError
from tests.numpy.face import cases, check_case, check_error

CASES = """
jnp.where(b, v, w)
jnp.where(b, v, k)
jnp.where(b, k, f)
jnp.where(i, 1, 2)
jnp.where(1.5, k, 2)
jnp.where(b, m, n)
jnp.where(bm, v, m[:, :1])
jnp.where(b, v[:, None], 1j)
jnp.where(m > 0, h, u)
jnp.where(k, bm, b)
jnp.where(b)  # static
jnp.where(b, size=3)
jnp.where(b, size=6, fill_value=-1)
jnp.where(b, size=6, fill_value=jnp.nan)
jnp.nonzero(bm, size=32, fill_value=(1.5, 2))
jnp.argwhere(bm, size=32, fill_value=np.float32(2.5))
jnp.flatnonzero(b, size=9, fill_value=1j)
jnp.full_like(k, jnp.nan)
jnp.select([b, v > 0], [v, w])
jnp.select([b, v > 0], [v, k], 9)
jnp.select([b], [k], f)
jnp.select([True], [k])
jnp.select([bm, b], [m, i], c)
jnp.select(bm[:2], m[:2], -1)
jnp.choose(i % 2, [v, w])  # static
jnp.choose(i % 2, [k, 2])  # static
jnp.choose(i, [v, f], mode="clip")
jnp.choose(-i, [v, w, i], mode="wrap")
jnp.choose(i % 2, m[:2], mode="clip")
jnp.choose(n % 2, [v, m], mode="wrap")
jnp.choose(k, [m, n, m, m + 1])  # static
jnp.piecewise(v, [v < 0, v > 1], [1, lambda x: x * 2])
jnp.piecewise(v, [v < 0, v > 1], [1, lambda x: x * 2, lambda x: -x])
jnp.piecewise(i, [i > 2], [lambda x: x / 2, lambda x: -x])
jnp.piecewise(m, [bm, m > 1], [lambda x, y: x + y, lambda x, y: x * y, 7], 5)
jnp.piecewise(k, [True], [1])
jnp.piecewise(v, [v < 0, v < 1], [1, 2])
jnp.nonzero(b)  # static
jnp.nonzero(n)  # static
jnp.nonzero(z)  # static
jnp.nonzero(n, size=5)
jnp.nonzero(m > 0, size=40)
jnp.nonzero(bm, size=32, fill_value=9)
jnp.nonzero(bm, size=32, fill_value=(7, -8))
jnp.nonzero(t > 0.5, size=20, fill_value=(0, -1, 2))
jnp.nonzero(b, size=0)
jnp.nonzero(b[:0], size=2)
jnp.nonzero(b & False, size=3, fill_value=4)
jnp.flatnonzero(n)  # static
jnp.flatnonzero(n, size=6)
jnp.argwhere(n)  # static
jnp.argwhere(n, size=4)
jnp.argwhere(bm, size=40, fill_value=-1)
jnp.argwhere(k)
jnp.argwhere(0)
jnp.compress(b, v)  # static
jnp.compress(b, m, axis=1)  # static
jnp.compress(b[:3], m, axis=1)  # static
jnp.compress(b, v, size=2)
jnp.compress(b, m, axis=1, size=7, fill_value=9)
jnp.compress(b[:4], m, axis=0, size=3)
jnp.extract(n > 0, n)  # static
jnp.extract(n > 0, m, size=3)
jnp.extract(n > 0, n, size=30, fill_value=-1)
jnp.place(v, b, w[:3], inplace=False)
jnp.place(m, bm, i, inplace=False)
jnp.place(i, b, f, inplace=False)
jnp.place(v, b, w, inplace=False)
jnp.unravel_index(5, (2, 3))
jnp.unravel_index(i, (2, 4))
jnp.unravel_index(i, 8)
jnp.unravel_index(n, (2, 3, 4))
jnp.unravel_index(jnp.array([-1, -7, 20, -3]), (2, 3))
jnp.ravel_multi_index((i, i), (8, 8))  # static
jnp.ravel_multi_index((i, i), (4, 4), mode="clip")
jnp.ravel_multi_index((i, -i), (4, 3), mode="wrap", order="F")
jnp.ravel_multi_index((1, 2), (4, 4), dtype="int8")
jnp.ravel_multi_index((k, i), (4, 8), mode="clip")
"""

ERRORS = """
jnp.where(b, v)
jnp.where(b, v, w, size=3)
jnp.where([True], 1, 2)
jnp.where(b, m, v[:3])
jnp.select([], [])
jnp.select([b], [1, 2])
jnp.select([[True]], [v])
jnp.choose(i, [v, w])
jnp.choose(i, [v, w], mode="other")
jnp.choose(v, [v, w])
jnp.choose(i, [v, w], out=v)
jnp.piecewise(v, [b], [1, 2, 3])
jnp.nonzero(k)
jnp.nonzero(bm, size=4, fill_value=(7,))
jnp.nonzero([1])
jax.jit(jnp.nonzero)(b)
jax.jit(jnp.argwhere)(b)
jax.jit(jnp.flatnonzero)(b)
jax.jit(jnp.where)(b)
jax.jit(jnp.extract)(b, v)
jax.jit(jnp.compress)(b, v)
jnp.compress(b, m, axis=0)
jnp.compress([True], v)
jnp.compress(bm, m)
jnp.compress(b, v, out=v)
jnp.extract([True], v)
jnp.place(v, b, w)
jnp.place(v, b, z, inplace=False)
jnp.place(v, b[:3], 1.0, inplace=False)
jnp.ravel_multi_index((i, i), (4, 4))
jnp.ravel_multi_index((v,), (4,))
jnp.ravel_multi_index((i,), (4,), mode="other")
jnp.ravel_multi_index((i,), (9,), order="A")
jax.jit(lambda i: jnp.ravel_multi_index((i,), (9,)))(i)
"""


@pytest.mark.parametrize("line", cases(CASES))
def test_as_jax(line):
    check_case(line)


@pytest.mark.parametrize("line", cases(ERRORS))
def test_errors(line):
    check_error(line)


def test_the_way_out_is_named():
    functions: list[Callable[..., Any]] = [
        jnp.nonzero,
        jnp.argwhere,
        jnp.flatnonzero,
        jnp.where,
        lambda x: jnp.extract(x, x),
        lambda x: jnp.compress(x, x),
    ]
    for f in functions:
        with pytest.raises(ConcretizationTypeError, match="size="):
            shardwise.jit(f)(np.ones(3))


def test_choices_are_not_materialised():
    function = shardwise.jit(lambda c, x: jnp.where(c, x, 0.0))
    program = function.trace(np.ones((1000, 1), bool), np.ones(1000, np.float32)).jaxpr
    assert [str(e.op) for e in program.eqns] == ["broadcast_in_dim", "select_n"]


@pytest.mark.parametrize("shape", [(3, 4), (2, 1, 6), (12,)])
def test_sizes_of_unravel_index_may_be_traced(shape):
    import shardwise as sw
    import shardwise.numpy as jnp

    places = jnp.array([-1, -20, 0, 7, 11, 30])
    expected = jnp.unravel_index(places, shape)
    for sizes in (shape, jnp.array(shape)):
        made = sw.jit(jnp.unravel_index)(places, sizes)
        assert len(made) == len(shape)
        assert all((a == b).all() and a.dtype == b.dtype for a, b in zip(made, expected, strict=True))


def test_ravel_multi_index_takes_indices_as_they_are():
    import shardwise.numpy as jnp

    assert jnp.ravel_multi_index((jnp.array([1, 5]), jnp.array([1, -1])), (3, 4), mode="ignore").tolist() == [5, 19]
