"""Diagonals and triangles: values, dtypes and weak types as JAX has them."""

from __future__ import annotations

import numpy as np
import pytest

from shardwise import numpy as jnp
from shardwise.experimental import enable_x64
from tests.numpy.core_record import use
from tests.numpy.face import cases, check_case, check_error

CASES = """
jnp.eye(3)
jnp.eye(2, 3, 1, int)
jnp.eye(3, k=jnp.array(1))
jnp.eye(3, k=-1)
jnp.identity(2)
jnp.tri(3)
jnp.tri(2, 3, 1, int)
jnp.tril(m)
jnp.triu(t, 1)
jnp.triu(bm, -1)
jnp.tril(n, 3)
jnp.vander(a5)
jnp.vander(i)
jnp.vander(v, 2, True)
jnp.diag(v)
jnp.diag(i, 1)
jnp.diag(v, -2)
jnp.diag(m, 1)
jnp.diag(m, -1)
jnp.diag(m, 9)
jnp.diagflat(sq, 1)
jnp.diagonal(t)
jnp.diagonal(t, 1, 1, 2)
jnp.diagonal(t, -1, 2, 0)
jnp.trace(m, 1)
jnp.trace(bm)
jnp.trace(t, axis1=1, axis2=2, dtype="float16")
jnp.tril_indices(3)
jnp.triu_indices(2, m=3)
jnp.tril_indices(3, -1)
jnp.tril_indices_from(m)
jnp.triu_indices_from(m, 2)
jnp.diag_indices(2)
jnp.diag_indices(2, 3)
jnp.diag_indices_from(sq)
jnp.mask_indices(3, jnp.triu)  # static
jnp.fill_diagonal(m, 5, inplace=False)
jnp.fill_diagonal(jnp.zeros((0, 3)), v[:2], inplace=False)
jnp.fill_diagonal(jnp.zeros((3, 0)), sq[:2, :2], inplace=False)
jnp.fill_diagonal(jnp.zeros((0, 0, 0)), v[:2], inplace=False)
jnp.fill_diagonal(sq, v[:4], inplace=False)
jnp.fill_diagonal(sq, v[:2], inplace=False)
"""

ERRORS = """
jnp.eye(-1)
jnp.triu(v)
jnp.diag(t)
jnp.diag(3)
jnp.diagonal(v)
jnp.fill_diagonal(sq, 5)
jnp.fill_diagonal(t, 4, inplace=False)
"""

use()


@pytest.mark.parametrize("line", cases(CASES))
def test_as_jax(line):
    check_case(line)


@pytest.mark.parametrize("line", cases(ERRORS))
def test_errors(line):
    check_error(line)


@pytest.mark.parametrize("name", ["tril", "triu", "diagonal"])
def test_the_number_of_a_diagonal_is_known_while_tracing(name):
    import shardwise as jax
    import shardwise.numpy as jnp

    with pytest.raises(jax.errors.ConcretizationTypeError, match=f"of {name} must be known"):
        jax.jit(getattr(jnp, name))(jnp.ones((3, 3)), 1)


def test_fill_diagonal_wraps():
    import numpy as np

    import shardwise.numpy as jnp

    want = np.zeros((5, 2))
    np.fill_diagonal(want, [1, 2, 3], wrap=True)
    assert np.array_equal(jnp.fill_diagonal(jnp.zeros((5, 2)), jnp.array([1, 2, 3]), wrap=True, inplace=False), want)


def test_tri_is_float32_with_x64_too():
    """As in both eras of JAX; `eye` and `identity` are float64 there."""
    import shardwise as sw
    import shardwise.numpy as jnp

    with sw.enable_x64(True):
        assert (jnp.tri(2).dtype, jnp.tri(2, dtype=float).dtype, jnp.eye(2).dtype) == ("float32", "float64", "float64")


@pytest.mark.parametrize("k", [2**31 - 1, -(2**31), 2**32, -(2**33), 2**62, 2**63, -(2**70)])
def test_diagonals_far_outside_of_the_matrix(k: int) -> None:
    """Whatever integer type holds `k`: none of its bits are lost."""
    beyond = k > 0
    with enable_x64():
        offsets = [k, *(jnp.array(k) for _ in "x" if abs(k) < 2**63), *(np.uint32(k) for _ in "x" if 0 < k < 2**32)]
        for offset in offsets:
            assert jnp.eye(3, k=offset).sum() == 0
            assert jnp.tri(3, k=offset).sum() == (9 if beyond else 0)
            assert jnp.tril(jnp.ones((3, 3)), k=offset).sum() == (9 if beyond else 0)
            assert jnp.triu(jnp.ones((3, 3)), k=offset).sum() == (0 if beyond else 9)
