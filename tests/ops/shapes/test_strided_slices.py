"""Strided slices and pads between elements along split dims: values, and that nothing is gathered where parts can be equal."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shardwise as sw
from shardwise import lax
from shardwise import numpy as jnp
from shardwise.sharding import Mesh, NamedSharding, P

MESH = Mesh(np.array(sw.devices()).reshape(2, 4), ("x", "y"))
X = np.arange(48 * 8, dtype=np.float32).reshape(48, 8)


ROWS = P("y")


def split(x, spec=ROWS):
    return sw.device_put(x, NamedSharding(MESH, spec))


def transfers(f, *args):
    found = sw.jit(f).lower(*args).compile()._entry.executable.transfers
    return [(t.kind, t.bytes) for t in found]


def test_slices_and_pads_on_every_layout():
    @settings(max_examples=60, deadline=None)
    @given(
        st.sampled_from([P("x"), P("y", "x"), P(("x", "y")), P(None, "y")]),
        st.tuples(st.integers(0, 7), st.integers(0, 7), st.integers(1, 4)),
        st.tuples(st.integers(-3, 5), st.integers(-3, 5), st.integers(0, 3)),
        st.sampled_from(["slice", "pad", "both", "after a slice", "merged"]),
    )
    def check(spec, cut, config, kind):
        start, end, step = cut

        def sliced(v):
            return lax.slice(v, (start, 0), (48 - end, 8), (step, 1))

        def padded(v):
            return lax.pad(v, np.float32(-1), (config, (0, 0, 0)))

        f = {
            "slice": lambda v: 2 * sliced(v),
            "pad": lambda v: padded(2 * v),
            "both": lambda v: padded(sliced(v) + 1),
            "after a slice": lambda v: padded(v[1:]),
            "merged": lambda v: (2 * sliced(v)).reshape(-1),
        }[kind]
        weighted = sw.grad(lambda v: (f(v) ** 2).sum())
        for run in (sw.jit(f), sw.jit(weighted)):
            np.testing.assert_array_equal(np.asarray(run(split(X, spec))), np.asarray(run(X)))

    check()


@pytest.mark.parametrize(
    "cut", [(slice(9, 14, 2), slice(1, 5, 3)), (slice(0, 48, 5), slice(None)), (slice(3, 40, 2), slice(0, 8, 2))]
)
def test_slices_of_both_dims_at_once(cut):
    f = sw.jit(lambda v: v[cut] + 1)
    np.testing.assert_array_equal(np.asarray(f(split(X, P("x", "y")))), X[cut] + 1)


@pytest.mark.parametrize(
    "f",
    [
        lambda v: v[2::2].sum(0),
        lambda v: (v[:-2:2] * v[2::2]).sum(),
        lambda v: lax.pad(v, np.float32(0), ((0, 1, 1), (0, 0, 0))),
        lambda v: lax.pad(v[1:], np.float32(0), ((2, 1, 1), (0, 0, 0))),
        sw.grad(lambda v: (v[2::2] ** 3).sum()),
    ],
)
def test_nothing_is_gathered(f):
    row = 8 * 4
    sent = transfers(f, split(X))
    assert sum(n for kind, n in sent if kind != "all_reduce") <= 3 * row, sent


def test_associative_scans_send_a_few_rows():
    rows = np.random.default_rng(0).uniform(0.5, 1.5, 1 << 11).astype(np.float32)
    whole = 7 * len(rows) // 8 * 4
    place = lambda x: split(x, P(("x", "y")))  # noqa: E731

    def recurrence(v):
        return lax.associative_scan(lambda a, b: (a[0] * b[0], a[1] * b[0] + b[1]), (v / 2, v))[1]

    for f in (
        recurrence,
        sw.grad(lambda v: lax.cummax(v).sum()),
        sw.grad(lambda v: jnp.log(lax.cumprod(v)[:64]).sum()),
    ):
        np.testing.assert_allclose(
            np.asarray(sw.jit(f)(place(rows))), np.asarray(sw.jit(f)(rows)), rtol=1e-5, atol=1e-5
        )
        assert sum(n for _, n in transfers(f, place(rows))) < whole // 4
