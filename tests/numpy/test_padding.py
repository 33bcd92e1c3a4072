"""pad in all its modes: values, dtypes and weak types as JAX has them."""

from __future__ import annotations

import numpy as np
import pytest

import shardwise
import shardwise.numpy as jnp
from tests.numpy.face import cases, check_case, check_error

CASES = """
jnp.pad(m, 1)
jnp.pad(m, (1, 2))
jnp.pad(m, ((1, 2),))
jnp.pad(m, ((1, 2), (0, 3)))
jnp.pad(n, [(1, 0), (0, 0)], constant_values=2.7)
jnp.pad(m, 1, constant_values=(3, 4))
jnp.pad(m, ((1, 2), (3, 0)), constant_values=((1, 2), (3, 4)))
jnp.pad(m, 2, constant_values=[v[0]])
jnp.pad(m, 1, constant_values=v[:2])
jnp.pad(k, 2)
jnp.pad(jnp.asarray(f)[None], 1)
jnp.pad(b, 1)
jnp.pad(z, ((1, 0), (0, 1)))
jnp.pad(h, 3, mode="constant", constant_values=1)
jnp.pad(m, ((1, 2), (3, 0)), mode="edge")
jnp.pad(i, (0, 4), mode="edge")
jnp.pad(m, ((1, 2), (3, 0)), mode="wrap")
jnp.pad(v, (11, 20), mode="wrap")
jnp.pad(m, ((1, 2), (3, 0)), mode="reflect")
jnp.pad(v, (17, 30), mode="reflect")
jnp.pad(m[:1], ((2, 3), (0, 0)), mode="reflect")
jnp.pad(m, ((1, 2), (3, 0)), mode="symmetric")
jnp.pad(v, (17, 30), mode="symmetric")
jnp.pad(m, ((1, 2), (3, 0)), mode="reflect", reflect_type="odd")
jnp.pad(v, (17, 30), mode="reflect", reflect_type="odd")
jnp.pad(i, (7, 9), mode="symmetric", reflect_type="odd")
jnp.pad(v, (17, 30), mode="symmetric", reflect_type="odd")
jnp.pad(m[:1], ((2, 3), (0, 0)), mode="reflect", reflect_type="odd")
jnp.pad(t, ((0, 0), (3, 1), (2, 2)), mode="symmetric")
jnp.pad(m, 3, mode="linear_ramp")
jnp.pad(m, ((1, 2), (3, 0)), mode="linear_ramp", end_values=(5, -5))
jnp.pad(i, (3, 4), mode="linear_ramp", end_values=20)
jnp.pad(m, 2, mode="maximum")
jnp.pad(n, ((1, 2), (3, 0)), mode="minimum", stat_length=2)
jnp.pad(m, 2, mode="mean", stat_length=((2, 3), (1, 50)))
jnp.pad(n, 2, mode="mean")
jnp.pad(m, (1, 2), mode="median")
jnp.pad(n, (1, 2), mode="median", stat_length=3)
jnp.pad(m, 1, mode="empty") * 0
jnp.pad(m, 2, lambda row, width, axis, kwargs: row.at[: width[0]].set(kwargs["a"]).at[-width[1] :].set(axis), a=7)
"""

ERRORS = """
jnp.pad([1, 2], 1)
jnp.pad(m, -1)
jnp.pad(m, 1.5)
jnp.pad(m, (1, 2, 3))
jnp.pad(m, ((1, 2), (3,)))
jnp.pad(m, 1, mode="other")
jnp.pad(m, 1, mode="edge", constant_values=3)
jnp.pad(m, 1, stat_length=3)
jnp.pad(m, 1, constant_values=[1, 2, 3])
jnp.pad(m, 1, mode="mean", stat_length=0)
jnp.pad(z, 1, mode="edge")
jnp.pad(z, 1, mode="wrap")
jnp.pad(z, 1, mode="reflect")
jax.jit(jnp.pad)(m, 1)
"""


@pytest.mark.parametrize("line", cases(CASES))
def test_as_jax(line):
    check_case(line)


@pytest.mark.parametrize("line", cases(ERRORS))
def test_errors(line):
    check_error(line)


@pytest.mark.parametrize("mode", ["edge", "wrap", "reflect", "symmetric"])
def test_own_elements_are_numpys(mode):
    for n in (1, 2, 3, 7):
        for width in ((0, 1), (2, 0), (n, n), (3 * n + 1, 5)):
            x = np.arange(n * 2.0, dtype=np.float32).reshape(n, 2)
            np.testing.assert_array_equal(
                jnp.pad(x, (width, (0, 0)), mode), np.pad(x, (width, (0, 0)), mode), f"{n} {width}"
            )


def test_mirrors_are_few_slices():
    program = shardwise.make_jaxpr(lambda x: jnp.pad(x, (3, 5), "reflect"))(jnp.ones(100))
    assert len(program.eqns) <= 7
