"""Ops that need windows of views: pooling and convolutions of padded, dilated and cut values send rims, never images."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import shardwise as sw
from shardwise import lax
from shardwise import numpy as jnp
from shardwise.sharding import Mesh, NamedSharding, PartitionSpec
from tests.rounding import assert_normwise

P = PartitionSpec
MESH = Mesh(np.array(sw.devices()[:8]).reshape(4, 2), ("x", "y"))
RNG = np.random.default_rng(0)
SHAPE = (2, 64, 64, 4)


def pool(kind, window, stride, padding):
    start, op = (0.0, lax.add) if kind == "add" else (-np.inf, lax.max)

    def f(x):
        sizes, strides = (1, window, window, 1), (1, stride, stride, 1)
        return lax.reduce_window(x, start, op, sizes, strides, padding)

    return f


def gradient(f):
    return sw.grad(lambda x: (f(x) ** 2).sum())


def conv(stride, padding, **dilations):
    kernel = np.random.default_rng(1).normal(size=(3, 3, 4, 4)).astype(np.float32)

    def f(x):
        numbers = ("NHWC", "HWIO", "NHWC")
        return lax.conv_general_dilated(x, kernel, (stride, stride), padding, dimension_numbers=numbers, **dilations)

    return f


def kernel_gradient(stride, padding):
    def f(x):
        numbers = ("NHWC", "HWIO", "NHWC")
        loss = lambda k: (lax.conv_general_dilated(x, k, (stride,) * 2, padding, dimension_numbers=numbers) ** 2).sum()  # noqa: E731
        return sw.grad(loss)(jnp.ones((3, 3, 4, 4)))

    return f


CASES = [
    gradient(pool("add", 2, 2, "VALID")),
    gradient(pool("add", 3, 1, "SAME")),
    gradient(pool("add", 3, 2, "SAME")),
    gradient(pool("max", 3, 2, "SAME")),
    gradient(pool("max", 3, 2, "VALID")),
    gradient(pool("add", 4, 3, ((0, 0), (1, 2), (2, 1), (0, 0)))),
    lambda x: pool("max", 3, 1, "VALID")(x).sum(),
    lambda x: pool("add", 3, 1, "VALID")(jnp.pad(x, ((0, 0), (1, 0), (0, 1), (0, 0)))).sum((1, 2)),
    lambda x: pool("max", 3, 1, "SAME")(jnp.pad(x, ((0, 0), (1, 0), (0, 1), (0, 0)))).sum((1, 2)),
    gradient(conv(1, "VALID")),
    gradient(conv(2, "VALID")),
    gradient(conv(1, "VALID", rhs_dilation=(3, 2))),
    gradient(conv(1, ((1, 1), (2, 1)), lhs_dilation=(2, 2))),
    kernel_gradient(1, "VALID"),
    kernel_gradient(2, "VALID"),
    lambda x: lax.pad(x, 0.0, ((0, 0, 0), (1, 0, 1), (0, 2, 2), (0, 0, 0))).sum((1, 2)),
]


@pytest.mark.parametrize("f", CASES)
def test_only_rims_are_sent_and_values_stay(f):
    x = RNG.normal(size=SHAPE).astype(np.float32)
    placed = sw.device_put(x, NamedSharding(MESH, P(None, "x", "y")))
    run = sw.jit(f).lower(placed).compile()
    transfers = run.runtime_executable().transfers
    assert {t.kind for t in transfers} <= {"permute", "all_reduce"}
    assert sum(t.total for t in transfers if t.kind == "permute") < x.nbytes / 6
    assert_normwise(run(placed), sw.jit(f)(x), tolerance=1e-5)


@settings(max_examples=20, deadline=None)
@given(
    st.sampled_from(["add", "max"]),
    st.integers(1, 5),
    st.integers(1, 4),
    st.tuples(st.integers(0, 3), st.integers(0, 3)),
    st.integers(17, 48),
    st.sampled_from([P(None, "x", "y"), P(None, ("x", "y")), P(None, None, "x")]),
)
@example(
    "max", 4, 2, (1, 0), 42, P(None, ("x", "y"))
)  # a frame of an operand's own size, over other axes than the other's
@example("add", 2, 4, (1, 2), 29, P(None, "x", "y"))  # gathered along one dim, windows along the other
def test_windows_of_any_size_see_what_they_saw(kind, window, stride, pads, size, spec):
    def f(x):
        cut = jnp.pad(x, ((0, 0), pads, pads, (0, 0)))[:, : x.shape[1] + sum(pads) - 1]
        out = pool(kind, min(window, size), stride, "SAME")(cut)
        return out, sw.grad(lambda y: (pool(kind, min(window, size), stride, "SAME")(y) ** 2).sum())(x)

    n = size // 8 * 8
    x = RNG.normal(size=(1, n, n, 1)).astype(np.float32)
    placed = sw.device_put(x, NamedSharding(MESH, spec))
    for one, many in zip(sw.jit(f)(x), sw.jit(f)(placed), strict=True):
        assert_normwise(many, one, tolerance=1e-5)


def along(n, d, value, other: Any = 0):
    """`value` at dim `d` of `n`, `other` elsewhere."""
    return tuple(value if e == d else other for e in range(n))


def pooled(x, d, start, op, window, stride, pads):
    sizes, strides = along(x.ndim, d, min(window, x.shape[d]), 1), along(x.ndim, d, stride, 1)
    return lax.reduce_window(x, start, op, sizes, strides, along(x.ndim, d, pads, (0, 0)))


def weighted(x, d, stride, pads, spread):
    kernel = np.array([1, -2, 1], np.float32).reshape(1, 1, *along(x.ndim, d, -1, 1))
    strides, dilation = along(x.ndim, d, stride, 1), along(x.ndim, d, spread, 1)
    return lax.conv_general_dilated(x[None, None], kernel, strides, along(x.ndim, d, pads, (0, 0)), dilation)[0, 0]


def edge(x, d, first, last):
    return lax.slice_in_dim(x, first, x.shape[d] - last, axis=d)


# Of integers, which no order of additions rounds. Along dim d.
STEPS = {
    "sums": lambda x, d: pooled(x, d, 0.0, lax.add, 3, 1, (1, 0)),
    "sums apart": lambda x, d: pooled(x, d, 0.0, lax.add, 2, 3, (2, 1)),
    "largest": lambda x, d: pooled(x, d, -np.inf, lax.max, 4, 2, (1, 2)),
    "weighted": lambda x, d: weighted(x, d, 1, (1, 2), 1),
    "weighted, apart": lambda x, d: weighted(x, d, 2, (3, 0), 1),
    "weighted, spread": lambda x, d: weighted(x, d, 3, (2, 1), 2),
    "padded": lambda x, d: lax.pad(x, 3.0, along(x.ndim, d, (1, 2, 0), (0, 0, 0))),
    "gaps": lambda x, d: lax.pad(x, 0.0, along(x.ndim, d, (2, -1, 1), (0, 0, 0))),
    "cut": lambda x, d: edge(x, d, 1, 2),
    "every third": lambda x, d: lax.slice_in_dim(x, 1, None, 3, d),
    "reversed": lambda x, d: lax.rev(x, (d,)),
    "again": lambda x, d: lax.concatenate([edge(x, d, 0, 1), edge(x, d, 2, 0)], d),
    "rolled": lambda x, d: jnp.roll(x, 3, d),
    "running sums": lambda x, d: lax.cumsum(x, d, reverse=True) % 64,
    "running maxima": lambda x, d: lax.cummax(x, d),
    "written": lambda x, d: lax.dynamic_update_slice(x, edge(x, d, 1, 2) + 1, along(x.ndim, d, 2)),
    "added": lambda x, d: edge(x, d, 1, 0) - edge(x, d, 0, 1),
    "less sums": lambda x, d: x - x.sum(d, keepdims=True) % 8,
    "turned": lambda x, d: x.T,
}
MESHES = {shape: Mesh(np.array(sw.devices()[: np.prod(shape)]).reshape(shape), ("x", "y")[: len(shape)])
          for shape in [(2, 4), (4, 2), (8,), (3, 2)]}  # fmt: skip


LAYOUTS = {
    "rows": lambda axes: P(axes[0]),
    "columns": lambda axes: P(None, axes[0]),
    "rows over all": lambda axes: P(axes),
    "columns over all": lambda axes: P(None, axes[::-1]),
    "both": lambda axes: P(*axes),
    "both, exchanged": lambda axes: P(*axes[::-1]),
}
PROGRAMS = given(
    st.lists(st.tuples(st.sampled_from(list(STEPS)), st.integers(0, 1)), min_size=2, max_size=5),
    st.sampled_from(list(MESHES)),
    st.sampled_from(list(LAYOUTS)),
    st.tuples(st.sampled_from([24, 48]), st.sampled_from([24, 48])),
)


@settings(max_examples=20, deadline=None)
@PROGRAMS
def test_programs_of_windows_and_moves_give_what_one_device_gives(steps, mesh, layout, shape):
    check_program(steps, mesh, layout, shape)


@pytest.mark.slow
@settings(max_examples=1000, deadline=None)
@PROGRAMS
def test_many_programs_of_windows_and_moves(steps, mesh, layout, shape):
    check_program(steps, mesh, layout, shape)


def check_program(steps, mesh, layout, shape):
    """Values and gradients of these steps on a split array are those of the whole array."""

    def values(x):
        """The results of all steps."""
        found = [x]
        for name, d in steps:
            if min(found[-1].shape) > 5:
                found.append(STEPS[name](found[-1], d))
        return found[1:]

    def with_gradient(x):
        outs, back = sw.vjp(values, x)
        return outs, back([out % 16 for out in outs])  # cotangents have the layouts of the results

    x = RNG.permutation(np.prod(shape)).reshape(shape).astype(np.float32) % 61
    placed = sw.device_put(x, NamedSharding(MESHES[mesh], LAYOUTS[layout](MESHES[mesh].axis_names)))
    both = [sw.tree.leaves(sw.jit(with_gradient)(value)) for value in (x, placed)]
    for one, many in zip(*both, strict=True):
        np.testing.assert_array_equal(np.asarray(many), np.asarray(one))
