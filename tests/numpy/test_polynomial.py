"""Polynomials, interpolation and cross products: values, dtypes and weak types as JAX has them."""

from __future__ import annotations

import pytest

import shardwise as sw
from tests.numpy.face import cases, check_case, check_error

CASES = """
jnp.polyval(v, k)
jnp.polyval(i, v)
jnp.polyval(m, v)
jnp.polyval(v[:3], h)
jnp.polyval(h[:3], i)
jnp.polyval(v[:0], m)
jnp.polyval(c, w)
jnp.polyadd(v, i[:3])
jnp.polyadd(i, i[:3])
jnp.polyadd(i[:2], v)
jnp.polysub(v[:3], i)
jnp.polysub(i, v[:3])
jnp.polymul(v, i)
jnp.polymul(i, i[:2])
jnp.polymul(c, v)
jnp.polymul(jnp.array([0, 0, 1]), jnp.array([0.0, 2, 3]), trim_leading_zeros=True)
jnp.polymul(v[:0], w)
jnp.polydiv(v, w[1:3])
jnp.polydiv(i, i[:2])
jnp.polydiv(v[1:3], w)
jnp.polydiv(jnp.array([1.0, 3, 2]), jnp.array([1.0, 1]), trim_leading_zeros=True)
jnp.polyder(v)
jnp.polyder(i, 2)
jnp.polyder(v, 0)
jnp.polyder(v, 20)
jnp.polyder(c, 3)
jnp.polyint(v)
jnp.polyint(i, 2, k=3)
jnp.polyint(v, 2, k=w[:2])
jnp.polyint(v, 3, k=w[:1])
jnp.polyint(v, 0)
jnp.poly(v[:3])
jnp.poly(i[:3])
jnp.poly(c[:3])
jnp.poly(v[:0])
jnp.poly(k)
jnp.poly(jnp.array([[2.0, 1], [1, 3]]))
jnp.sort(jnp.roots(jnp.array([1.0, -3, 2])))
jnp.sort(jnp.roots(jnp.array([0, 0, 1, 2, 5])))
jnp.sort(jnp.roots(jnp.array([0.0, 0, 1, -5, 6]), strip_zeros=False))
jnp.roots(w[:1])
jnp.roots(jnp.zeros(3))
jnp.roots(jnp.zeros(3), strip_zeros=False)
jnp.polyfit(v, w, 2)
jnp.polyfit(v, jnp.stack([w, v * v], 1), 1)
jnp.polyfit(v, w, 2, w=w)
jnp.polyfit(v, w, 2, full=True)
jnp.polyfit(v, w, 1, cov=True)
jnp.polyfit(v, w, 1, cov="unscaled")
jnp.polyfit(v, jnp.stack([w, v * v], 1), 1, cov=True)
jnp.interp(v, grid, w)
jnp.interp(m, grid, i)
jnp.interp(f, grid, w)
jnp.interp(k, grid, h)
jnp.interp(v, grid, c)
jnp.interp(i, grid, w, left=-1, right=-2)
jnp.interp(v * 3, grid, w, left="extrapolate", right="extrapolate")
jnp.interp(v * 3, grid, w, left="extrapolate", right=w[0])
jnp.interp(v * 9, i, w, period=6)
jnp.interp(v * 9, w, i, period=f)
jnp.interp(v, jnp.array([0.0, 0.0, 1.0]), jnp.array([1.0, 2.0, 3.0]))
jnp.interp(v, grid[:1], w[:1])
jnp.cross(m[:, :3], t[0, :, 1:4])
jnp.cross(m[:, :2], n[:, 2:4])
jnp.cross(m[:, :3], v[:2])
jnp.cross(m[:, :2], v[:3])
jnp.cross(n[:, :3], n[:, 3:6])
jnp.cross(m[:3], n[:3], axis=0)
jnp.cross(m[:3], n[:3].T, axisa=0, axisb=1, axisc=1)
jnp.cross(h[:3], i[:3])
jnp.cross(v[:3], m[:3, :2])
jax.grad(lambda p, x: jnp.polyval(p, x).sum(), (0, 1))(v[:4], w)
jax.grad(lambda x, p: jnp.interp(x, grid, p).sum(), (0, 1))(v, w)
jax.grad(lambda p, q: (jnp.polymul(p, q) ** 2).sum(), (0, 1))(v[:3], w)
"""

ERRORS = """
jnp.polyval(3, 2)
jnp.polyval([1], 2)
jnp.polyadd(3, v)
jnp.polyadd([1], v)
jnp.polyder(v, -1)
jnp.polyint(v, -1)
jnp.polyint(v, 2, k=w[:3])
jnp.poly(m)
jnp.roots(m)
jnp.roots([1, 2])
jax.jit(jnp.roots)(v)
jnp.polyfit(v, w, -1)
jnp.polyfit(m, w, 1)
jnp.polyfit(v, w[:3], 1)
jnp.polyfit(v, t, 1)
jnp.polyfit(v[:0], w[:0], 1)
jnp.polyfit(v, w, 1, w=w[:3])
jnp.polyfit(v[:2], w[:2], 2, cov=True)
jnp.interp(v, m, m)
jnp.interp(c, grid, w)
jnp.interp(v, grid, w[:3])
jnp.interp(v, grid, w, left="other")
jnp.interp(v, [1], [2])
jnp.interp(v, grid, w, period=v)
jnp.cross(m, m)
jnp.cross([1, 2, 3], [1, 2, 3])
"""


@pytest.mark.parametrize("line", cases(CASES))
def test_as_jax(line):
    check_case(line)


@pytest.mark.parametrize("line", cases(ERRORS))
def test_errors(line):
    check_error(line)


@pytest.mark.parametrize("dialect", ["seed", "latest"])
def test_whole_numbers_in_polynomials(dialect):
    """JAX 0.5.3 gave floats."""
    before = sw.config.shardwise_dialect
    sw.config.update("shardwise_dialect", dialect)
    try:
        got = sw.numpy.polyval(sw.numpy.array([2, 0, -1]), sw.numpy.array([3, -2]))
    finally:
        sw.config.update("shardwise_dialect", before)
    assert got.tolist() == [17, 7]
    assert got.dtype == {"seed": "float32", "latest": "int32"}[dialect]
