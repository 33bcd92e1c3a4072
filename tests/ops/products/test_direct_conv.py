"""Convolutions that read windows where they lie: the sums are those of the definition, in every layout."""

import numpy as np
import pytest

import shardwise as jax
from shardwise import lax
from shardwise.ops.products import direct_conv, im2col, planned_conv
from shardwise.runtime.machine.llvm import available
from tests.rounding import assert_normwise

pytestmark = pytest.mark.skipif(not available(), reason="nothing can be compiled here")
TOLERANCE = 5e-6
LAST, FIRST = ("NHWC", "HWIO", "NHWC"), ("NCHW", "OIHW", "NCHW")


USERS = im2col, planned_conv


@pytest.fixture
def ways(monkeypatch):
    """Whether each convolution that a test computes was done directly."""
    found = []
    before = direct_conv.direct_call
    monkeypatch.setattr(direct_conv, "_LEAST", 1)

    def direct_call(*args):
        call = before(*args)
        found.append(call is not None)
        return call

    for user in USERS:
        monkeypatch.setattr(user, "direct_call", direct_call)
    return found


def operands(layout, n, channels, features, space, taps, dtype=np.float32):
    sizes = {"N": n, "C": channels, "O": features, "I": channels}
    letters = [c for c in layout[0] if c not in "NC"]
    rng = np.random.default_rng(0)
    left = [dict(zip(letters, space, strict=True), **sizes)[c] for c in layout[0]]
    right = [dict(zip(letters, taps, strict=True), **sizes)[c] for c in layout[1]]
    return rng.normal(size=left).astype(dtype), rng.normal(size=right).astype(dtype)


def convolved(x, w, layout, **options):
    """The convolution as it is, and by matrix products."""
    f = lambda x, w: lax.conv_general_dilated(x, w, dimension_numbers=layout, **options)  # noqa: E731
    jax.clear_caches()  # of plans
    got = np.asarray(f(x, w))
    with pytest.MonkeyPatch.context() as patch:
        for user in USERS:
            patch.setattr(user, "direct_call", lambda *args: None)
        jax.clear_caches()
        return got, np.asarray(f(x, w))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("layout", [LAST, FIRST])
@pytest.mark.parametrize("channels", [4, 5])
@pytest.mark.parametrize("features", [16, 33, 48, 72])
@pytest.mark.parametrize("row", [16, 21, 40])
def test_sizes(ways, dtype, layout, channels, features, row):
    with jax.enable_x64():
        x, w = operands(layout, 3, channels, features, (7, row), (3, 3), dtype)
        got, want = convolved(x, w, layout, window_strides=(1, 1), padding="SAME")
    assert ways == [True]
    assert got.dtype == dtype
    assert_normwise(got, want, TOLERANCE if dtype == np.float32 else 1e-14)


@pytest.mark.parametrize("channels, features", [(1, 1), (1, 3), (3, 2), (2, 20), (6, 1)])
@pytest.mark.parametrize("layout, row", [(FIRST, 32), (FIRST, 37), (FIRST, 200), (LAST, 37)])
def test_few_channels_or_features(ways, channels, features, layout, row):
    x, w = operands(layout, 2, channels, features, (5, row), (3, 4))
    got, want = convolved(x, w, layout, window_strides=(2, 1), padding="SAME")
    assert ways == [True]
    assert_normwise(got, want, TOLERANCE)


@pytest.mark.parametrize("layout", [LAST, FIRST])
@pytest.mark.parametrize(
    "options",
    [
        dict(window_strides=(2, 1), padding="VALID"),
        dict(window_strides=(1, 1), padding=((0, 3), (2, 0))),
        dict(window_strides=(1, 1), padding=((-1, 0), (0, -1))),
        dict(window_strides=(1, 1), padding="SAME", rhs_dilation=(2, 3)),
        dict(window_strides=(1, 1), padding=((1, 1), (2, 0)), lhs_dilation=(2, 2)),
        dict(window_strides=(2, 1), padding=((0, 2), (1, 0)), lhs_dilation=(3, 1)),
    ],
)
def test_windows(ways, layout, options):
    x, w = operands(layout, 2, 6, 20, (9, 30), (3, 2))
    got, want = convolved(x, w, layout, **options)
    assert ways == [True]
    assert_normwise(got, want, TOLERANCE)


def test_strides_along_rows(ways):
    for layout, direct in ((LAST, True), (FIRST, False)):
        x, w = operands(layout, 2, 6, 20, (9, 60), (3, 3))
        got, want = convolved(x, w, layout, window_strides=(2, 2), padding="SAME")
        assert ways.pop() is direct
        assert_normwise(got, want, TOLERANCE)


@pytest.mark.parametrize(
    ("layout", "space", "taps"),
    [
        (("NWC", "WIO", "NWC"), (40,), (5,)),
        (("NCW", "OIW", "NCW"), (40,), (5,)),
        (("NDHWC", "DHWIO", "NDHWC"), (4, 5, 20), (2, 3, 3)),
        (("NCDHW", "OIDHW", "NCDHW"), (4, 5, 20), (2, 3, 3)),
        (("NHWC", "HWIO", "NCHW"), (6, 20), (3, 3)),
        (("NCHW", "HWIO", "NHWC"), (6, 20), (3, 3)),
        (("HWNC", "HWIO", "HWNC"), (6, 20), (3, 3)),
    ],
)
def test_ranks_and_layouts(ways, layout, space, taps):
    x, w = operands(layout, 2, 6, 20, space, taps)
    for padding in ("SAME", "VALID"):
        got, want = convolved(x, w, layout, window_strides=(1,) * len(space), padding=padding)
        assert_normwise(got, want, TOLERANCE)
    assert any(ways)


@pytest.mark.parametrize("layout", [LAST, FIRST])
def test_one_sample_is_shared_by_threads(ways, layout, monkeypatch):
    x, w = operands(layout, 1, 8, 16, (33, 34), (3, 3))
    monkeypatch.setattr(direct_conv, "thread_count", lambda: 2)
    got, want = convolved(x, w, layout, window_strides=(1, 1), padding="SAME")
    assert ways == [True]
    assert_normwise(got, want, TOLERANCE)


@pytest.mark.parametrize("layout", [LAST, FIRST])
def test_over_devices_and_under_vmap(ways, layout):
    x, w = operands(layout, 8, 8, 16, (10, 20), (3, 3))
    f = lambda x, w: lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=layout)  # noqa: E731
    want = convolved(x, w, layout, window_strides=(1, 1), padding="SAME")[1]
    mesh = jax.make_mesh((8,), ("x",))
    split = jax.device_put(x, jax.NamedSharding(mesh, jax.P("x")))
    assert_normwise(jax.jit(f)(split, w), want, TOLERANCE)
    got = jax.vmap(lambda x: f(x[None], w)[0])(x)
    assert_normwise(got, want, TOLERANCE)
    assert any(ways)


def test_short_rows_are_left_to_matrix_products(ways):
    x, w = operands(LAST, 2, 8, 32, (8, 4), (3, 3))
    got, want = convolved(x, w, LAST, window_strides=(1, 1), padding="SAME")
    assert_normwise(got, want, TOLERANCE)
    assert not any(ways)


@pytest.mark.parametrize("layout", [LAST, FIRST])
def test_nan_stays_in_its_windows(layout):
    """In memory beside it are zeros of pads and features that fill vectors."""
    x, w = operands(layout, 2, 3, 5, (6, 40), (3, 3))
    x[0, 0, 0, 0], x[1, -1, -1, -1], w[0, 0, 0, 0] = np.nan, np.inf, -0.0
    got, want = convolved(x, w, layout, window_strides=(1, 1), padding="SAME")
    assert 0 < np.isnan(got).sum() < got.size / 10
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))


def test_plans_go_by_how_operands_lie():
    """One compiled function, called with operands that lie otherwise."""
    f = jax.jit(lambda x, w: lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=LAST))
    x, w = operands(LAST, 2, 8, 8, (24, 24), (3, 3))
    want = np.asarray(f(x, w))
    for turned in (x, np.asfortranarray(x), np.ascontiguousarray(x[:, :, ::-1])[:, :, ::-1], x):
        assert_normwise(np.asarray(f(turned, np.asfortranarray(w))), want, TOLERANCE)
    assert_normwise(np.asarray(f(2 * x, w)), 2 * want, TOLERANCE)
