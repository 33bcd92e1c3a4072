"""Reductions: values, dtypes and weak types as JAX has them."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise.base.config import use_dialect
from tests.numpy.core_record import use
from tests.numpy.face import cases, check_case, check_error, over

CASES = (
    over(
        "sum prod max min mean var std any all nansum "
        "nanprod nanmax nanmin nanmean nanvar nanstd count_nonzero average argmax argmin",
        """
jnp.@(v)
jnp.@(m)
jnp.@(t)
jnp.@(n)
jnp.@(b)
jnp.@(gap)
jnp.@(h)
jnp.@(k)
jnp.@(t, axis=1)
jnp.@(n, axis=-1, keepdims=True)
""",
    )
    + over(
        "sum prod max min mean var std any all "
        "nansum nanprod nanmax nanmin nanmean nanvar nanstd count_nonzero average",
        """
jnp.@(t, axis=(0, 2))
jnp.@(m, axis=None, keepdims=True)
""",
    )
    + over(
        "sum prod mean var std any all nansum nanmean",
        """
jnp.@(m, where=bm)
jnp.@(n, axis=0, where=bm)
jnp.@(m, axis=1, where=b)
""",
    )
    + over(
        "sum prod mean var std",
        """
jnp.@(c)
jnp.@(n, dtype="float32")
jnp.@(m, dtype="float16", axis=0)
jnp.@(bf)
""",
    )
    + over(
        "sum prod",
        """
jnp.@(n, dtype="int8")
jnp.@(u)
jnp.@(u, promote_integers=False)
jnp.@(n, initial=3)
jnp.@(b, dtype=bool)
jnp.@(z)
jnp.@(z, axis=0)
""",
    )
    + over(
        "max min",
        """
jnp.@(m, where=bm, initial=1)
jnp.@(n, axis=0, where=bm, initial=1)
jnp.@(m, axis=1, where=b, initial=1)
""",
    )
    + over(
        "ptp",
        """
jnp.@(v)
jnp.@(m)
jnp.@(t)
jnp.@(n)
jnp.@(gap)
jnp.@(h)
jnp.@(k)
jnp.@(t, axis=1)
jnp.@(n, axis=-1, keepdims=True)
jnp.@(t, axis=(0, 2))
jnp.@(m, axis=None, keepdims=True)
""",
    )
    + """
jnp.var(m, ddof=1)
jnp.std(m, axis=1, ddof=1)
jnp.var(n, correction=1)
jnp.var(a5, ddof=9)
jnp.var(m, axis=0, mean=m[:1])
jnp.nanvar(gap[:4], ddof=1)
jnp.average(m, weights=v, axis=1)
jnp.average(m, weights=m * m)
jnp.average(n, weights=i, axis=1, returned=True)
jnp.average(n, returned=True)
jnp.average(t, weights=m, axis=(1, 2))
jnp.nanargmax(gap)
jnp.nanargmin(gap)
jnp.nanargmax(m, axis=1)
jnp.argmax(m, keepdims=True)
jnp.argmin(m, axis=0, keepdims=True)
jnp.max(z, axis=1)
jnp.max(z, initial=2)
jnp.max(n, initial=100)
jnp.max(c)
jnp.amax(m, axis=1)
jnp.amin(m)
"""
)

ERRORS = """
jnp.sum([1, 2])
jnp.sum(m, axis=5)
jnp.sum(m, axis=(0, 0))
jnp.mean(m, axis=2)
jnp.max(z)
jnp.argmax(z)
jnp.argmax(m, axis=2)
jnp.max(m, where=bm)
jnp.sum(m, out=m)
jnp.var(m, ddof=1, correction=1)
jnp.average(m, weights=v)
jnp.average(m, weights=v, axis=0)
jnp.average(t, weights=m, axis=0)
jnp.mean(n, dtype=bool)
"""

use()


@pytest.mark.parametrize("line", cases(CASES))
def test_as_jax(line):
    check_case(line)


@pytest.mark.parametrize("line", cases(ERRORS))
def test_errors(line):
    check_error(line)


def test_axes_that_are_names() -> None:
    name, both, split_rows = cast(Any, ("i", ("i", 0), ("d", 0)))
    x = np.random.default_rng(0).standard_normal((4, 3))
    over = lambda f: sw.vmap(f, axis_name="i", out_axes=None)(x)  # noqa: E731
    for reduction in ("sum", "mean", "max", "min", "var", "std"):
        reduce, expected = getattr(jnp, reduction), getattr(np, reduction)
        np.testing.assert_allclose(np.asarray(over(lambda r, f=reduce: f(r, axis="i"))), expected(x, 0), rtol=1e-5)
        np.testing.assert_allclose(np.asarray(over(lambda r, f=reduce: f(r, axis=(0, "i")))), expected(x), rtol=5e-6)
    masked = over(lambda r: jnp.mean(r, axis=both, where=r > 0))
    np.testing.assert_allclose(float(masked), x[x > 0].mean(), rtol=1e-6)
    rows = sw.P("d")
    split = sw.shard_map(
        lambda r: jnp.mean(r, split_rows), mesh=sw.make_mesh((2,), ("d",)), in_specs=rows, out_specs=sw.P()
    )
    np.testing.assert_allclose(np.asarray(split(x)), x.mean(0), rtol=1e-5)
    shares = sw.vmap(lambda r: sw.nn.softmax(r, axis=name), axis_name="i")(x)
    np.testing.assert_allclose(np.asarray(shares), np.exp(x) / np.exp(x).sum(0), rtol=5e-6)
    for logsumexp in (sw.nn.logsumexp, sw.scipy.special.logsumexp):
        np.testing.assert_allclose(
            np.asarray(over(lambda r, f=logsumexp: f(r, axis=both))), np.log(np.exp(x).sum()), rtol=2e-6
        )
    with pytest.raises(NotImplementedError, match="all_gather"):
        over(lambda r: jnp.prod(r, axis=name))
    with pytest.raises(NameError, match="unbound axis name"):
        jnp.sum(x, axis=name)


def test_what_is_no_mask_or_loses_a_part() -> None:
    with pytest.warns(DeprecationWarning, match="boolean array"):
        assert float(jnp.sum(jnp.arange(3.0), where=np.array([1, 0, 1]))) == 2
    with pytest.warns(np.exceptions.ComplexWarning, match="imaginary part"):
        assert float(jnp.sum(jnp.asarray([1 + 2j, 3]), dtype=np.float32)) == 4
    assert jnp.median(jnp.zeros((0, 3)), axis=1).shape == (0,)
    assert jnp.cumsum(jnp.asarray([2, 0, -2]), dtype=bool).tolist() == [True, True, True]


@pytest.mark.parametrize("name", ["sum", "max", "mean", "any", "std", "nansum", "count_nonzero", "flip"])
def test_axes_may_be_a_range(name):
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    got = getattr(jnp, name)(jnp.asarray(x), axis=range(1, 3))
    np.testing.assert_allclose(got, getattr(np, name)(x, axis=(1, 2)), rtol=1e-6)


def test_a_range_of_axes_is_checked():
    with pytest.raises(ValueError, match="out of bounds"):
        jnp.sum(jnp.ones((2, 3)), axis=range(3))


@pytest.mark.parametrize(
    "name",
    [
        "max",
        "min",
        "nanmax",
        "nanmin",
        "mean",
        "nanmean",
        "std",
        "nanstd",
        "var",
        "nanvar",
        "sum",
        "nansum",
        "prod",
        "nanprod",
        "all",
        "any",
    ],
)
def test_what_is_no_mask_is_refused_by_the_name_that_was_called(name):
    mask = jnp.ones(3, int)
    message = rf"jnp\.{name}: where must be None or a boolean array; got where\.dtype="
    with use_dialect("latest"), pytest.raises(ValueError, match=message):
        getattr(jnp, name)(jnp.arange(3.0), where=mask)


@pytest.mark.parametrize("name", ["sum", "mean", "var", "std", "nanvar", "nanstd", "max"])
def test_a_mask_of_lower_rank_is_no_promotion_of_ranks(name):
    import shardwise
    import shardwise.numpy as jnp

    x = jnp.arange(12.0).reshape(3, 4)
    mask = jnp.array([True, False, True, True])
    reduce = getattr(jnp, name)
    given = {"initial": -1.0} if name == "max" else {}
    expected = reduce(x, where=jnp.broadcast_to(mask, (3, 4)), **given)
    with shardwise.numpy_rank_promotion("raise"):
        assert reduce(x, where=mask, **given) == expected


def test_a_repeated_axis_is_named():
    import shardwise.numpy as jnp

    for f in (jnp.sum, jnp.size):
        with pytest.raises(ValueError, match=r"duplicate value in 'axis': \(0, -2\) has a repeated axis"):
            f(jnp.ones((2, 3)), axis=(0, -2))
