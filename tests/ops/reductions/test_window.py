"""Windows: values against the oracle, loop dims, rules, errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import shardwise as sw
from shardwise import lax as core
from shardwise.ir import ShapedArray, infer_types
from shardwise.ops.reductions import window
from shardwise.runtime import costs
from shardwise.runtime.env import SINGLE, Env
from shardwise.runtime.monoids import MONOIDS
from shardwise.sharding import NamedSharding, PartitionSpec
from shardwise.sharding.rule import Kind
from tests.rounding import assert_normwise

RNG = np.random.default_rng(0)

CASES: list[dict[str, Any]] = [
    dict(window_dimensions=(1, 3, 2)),
    dict(window_dimensions=(2, 3, 2), window_strides=(1, 2, 3)),
    dict(window_dimensions=(1, 3, 3), window_strides=(1, 1, 1), padding="SAME"),
    dict(window_dimensions=(1, 3, 3), window_strides=(1, 2, 2), padding="SAME_LOWER"),
    dict(window_dimensions=(1, 2, 2), padding=((0, 0), (1, 2), (2, 0))),
    dict(window_dimensions=(1, 2, 2), window_dilation=(1, 3, 2)),
    dict(window_dimensions=(1, 4, 3), base_dilation=(1, 2, 3), padding=((0, 0), (1, 0), (0, 2))),
    dict(window_dimensions=(1, 9, 11), window_strides=(1, 1, 1), padding="SAME"),
    dict(window_dimensions=(1, 8, 8), window_strides=(1, 1, 2)),
    dict(window_dimensions=(4, 12, 11)),
    dict(window_dimensions=(5, 1, 1)),
]
SHAPE = (4, 12, 11)


def monoids(module):
    return {
        "add": (module.add, 0.0),
        "max": (module.max, -np.inf),
        "min": (module.min, np.inf),
        "mul": (module.mul, 1.0),
    }


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", ["add", "max", "min", "mul"])
def test_values_are_those_of_the_oracle(case, name):
    jax = pytest.importorskip("jax")
    x = RNG.uniform(0.8, 1.2, SHAPE).astype("f") * RNG.choice([-1, 1], SHAPE).astype("f")
    theirs, init = monoids(jax.lax)[name]
    want = jax.lax.reduce_window(x, np.float32(init), theirs, **case)
    ours, _ = monoids(core)[name]
    got = window.reduce_window(x, np.float32(init), ours, **case)
    assert got.shape == want.shape and got.dtype == want.dtype
    assert_normwise(got, want, 5e-6)


def params(**case):
    x = ShapedArray(SHAPE, np.dtype("f"))
    program_params = (
        dict(
            window_dimensions=None,
            window_strides=(1, 1, 1),
            padding=((0, 0),) * 3,
            base_dilation=(1, 1, 1),
            window_dilation=(1, 1, 1),
        )
        | case
    )
    return x, program_params


@pytest.mark.parametrize("lead", [(2,), (1,), (2, 3), (1, 3)])
def test_loop_dims_are_independent(lead):
    x = RNG.normal(size=(*lead, *SHAPE))
    for case in CASES:
        if isinstance(case.get("padding"), str):
            continue
        _, p = params(**case)
        for op in (window.reduce_window_sum_p, window.reduce_window_max_p):
            got = op.block_kernel(Env(tuple("xy"[: len(lead)]), lead), x, **p)
            for at in np.ndindex(*lead):
                np.testing.assert_allclose(got[at], op.block_kernel(SINGLE, x[at], **p), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "bool", "bfloat16", "float16", "complex64"])
def test_other_types(dtype):
    import ml_dtypes

    dtype = np.dtype(getattr(ml_dtypes, dtype, dtype))
    x = (RNG.normal(size=(4, 30)) * 20).astype(dtype)
    init = {"max": False if dtype.kind == "b" else None, "add": 0}
    # Sums in float32 round to narrow numbers once; those of nine complex64 by eight units at most.
    tolerance = 0 if dtype.kind in "biu" else (1 if dtype.itemsize == 2 else 8) * float(ml_dtypes.finfo(dtype).eps)
    for name in ("add", "max"):
        if (name == "add" and dtype.kind == "b") or (name == "max" and dtype.kind == "c"):
            continue
        op = window.reduce_window_sum_p if name == "add" else window.reduce_window_max_p
        p = dict(
            window_dimensions=(1, 9),
            window_strides=(1, 1),
            padding=((0, 0), (2, 1)),
            base_dilation=(1, 1),
            window_dilation=(1, 1),
        )
        got = op.block_kernel(SINGLE, x, **p)
        assert got.dtype == dtype and init is not None
        wide = x.astype("c16" if dtype.kind == "c" else "f4" if dtype.itemsize == 2 else dtype)
        low = 0 if name == "add" or dtype.kind == "b" else (np.iinfo(dtype).min if dtype.kind in "iu" else -np.inf)
        padded = np.pad(wide, ((0, 0), (2, 1)), constant_values=low)
        windows = np.lib.stride_tricks.sliding_window_view(padded, 9, axis=1)
        with np.errstate(over="ignore"):
            want = windows.sum(-1, dtype=wide.dtype) if name == "add" else windows.max(-1)
        assert_normwise(got, want.astype(dtype), tolerance)


def test_the_first_of_ties_wins_row_by_row():
    """In the slopes of `max` and `min` and in computations that keep positions, as in JAX: windows were folded columns first."""
    x = np.stack(np.meshgrid(*[[0.0, 1.0]] * 4, indexing="ij"), -1).reshape(16, 2, 2).astype("f")
    places = np.broadcast_to(np.arange(4, dtype="f").reshape(2, 2), x.shape)
    windows: dict[str, Any] = dict(window_dimensions=(1, 2, 2), window_strides=(1, 1, 1), padding="VALID")
    for op, init, first in ((core.max, -np.inf, np.argmax), (core.min, np.inf, np.argmin)):
        want = first(x.reshape(16, 4), axis=1)

        def extremum(x, op=op, init=init):
            return window.reduce_window(x, np.float32(init), op, **windows)

        moved = sw.jvp(extremum, (x,), (places,))[1]
        np.testing.assert_array_equal(np.asarray(moved).ravel(), want)
        slopes = sw.vjp(extremum, x)[1](np.ones((16, 1, 1), "f"))[0]
        np.testing.assert_array_equal(np.asarray(slopes).reshape(16, 4), np.eye(4)[want])

    def earlier(a, b):
        return tuple(core.select(core.ge(a[0], b[0]), p, q) for p, q in zip(a, b, strict=True))

    found = window.reduce_window((x, places), (np.float32(-9), np.float32(-1)), earlier, **windows)[1]
    np.testing.assert_array_equal(np.asarray(found).ravel(), np.argmax(x.reshape(16, 4), axis=1))


def test_any_computation():
    jax = pytest.importorskip("jax")
    x, y = RNG.normal(size=(3, 9)).astype("f"), RNG.normal(size=(3, 9)).astype("f")
    case: dict[str, Any] = dict(window_dimensions=(1, 3), window_strides=(1, 2), padding=((0, 0), (1, 1)))

    def first_larger(lax):
        def pick(a, b):
            keep = lax.ge(a[0], b[0])
            return lax.select(keep, a[0], b[0]), lax.select(keep, a[1], b[1])

        return pick

    inits = np.float32(-np.inf), np.float32(0)
    want = jax.lax.reduce_window((x, y), inits, first_larger(jax.lax), **case)
    got = window.reduce_window((x, y), inits, first_larger(core), **case)
    for g, w in zip(got, want, strict=True):
        np.testing.assert_allclose(np.asarray(g), w)
    plus = window.reduce_window(x, np.float32(2), core.add, (1, 3))
    np.testing.assert_allclose(
        np.asarray(plus), jax.lax.reduce_window(x, np.float32(2), jax.lax.add, (1, 3)), rtol=1e-5
    )


@pytest.mark.parametrize(
    ("args", "options", "error"),
    [
        ((np.ones((3, 4)), 0.0, core.add, (1,)), {}, TypeError),
        ((np.ones((3, 4)), 0.0, core.add, (1, 2)), dict(window_strides=(1,)), TypeError),
        ((np.ones((3, 4)), 0.0, core.add, (1, 0)), {}, TypeError),
        ((np.ones((3, 4)), np.int32(2), core.add, (1, 1)), {}, TypeError),
        ((np.ones((3, 4), "f"), np.zeros(3, "f"), core.add, (1, 1)), {}, TypeError),
        ((np.ones((3, 4)), (0.0, 0.0), core.add, (1, 1)), {}, ValueError),
        (((), (), core.add, (1, 1)), {}, ValueError),
    ],
)
def test_errors(args, options, error):
    with pytest.raises(error):
        window.reduce_window(*args, **options)


def test_rule():
    x, p = params(window_dimensions=(4, 1, 3))
    (out,) = infer_types(window.reduce_window_sum_p, (x,), p)
    rule = window.reduce_window_sum_p.sharding_rule((x,), (out,), p)
    assert rule.kinds == (Kind.REDUCE, Kind.PASS, Kind.PERMUTE)
    assert rule.outputs == (((), (1,), (2,)),)


@pytest.mark.parametrize("spec", [("x",), (None, "x"), (None, None, "x"), ("x", "y")])
def test_sharding_never_changes_values(spec):
    mesh = sw.sharding.Mesh(np.array(sw.devices()).reshape(2, 4), ("x", "y"))
    x = RNG.normal(size=(4, 12, 8)).astype("f")
    split = sw.device_put(x, NamedSharding(mesh, PartitionSpec(*spec)))
    cases: list[dict[str, Any]] = [
        CASES[0],
        CASES[2],
        {"window_dimensions": (1, 12, 8)},
        {"window_dimensions": (4, 12, 8)},
    ]
    for case in cases:
        for name in ("add", "max"):
            computation, init = monoids(core)[name]
            f = lambda v: window.reduce_window(v, np.float32(init), computation, **case)  # noqa: B023, E731
            np.testing.assert_allclose(np.asarray(sw.jit(f)(split)), np.asarray(f(x)), rtol=5e-6, atol=5e-6)


@pytest.mark.parametrize("dtype", ["int8", "bfloat16", "float32"])
@pytest.mark.parametrize(
    ("name", "init"),
    [
        ("add", 0.0),
        ("add", 1.0),
        ("max", -np.inf),
        ("max", np.float32(-np.inf)),
        ("max", np.array(-np.inf)),
        ("max", -(2**31)),
        ("max", -100.0),
        ("min", np.inf),
        ("mul", 1.0),
    ],
)
def test_the_identity_of_a_reduction_may_have_any_dtype(name: str, init: Any, dtype: str):
    """Under mixed precision, pooling begins the maximum of bfloat16 values with the Python number -inf."""
    jax = pytest.importorskip("jax")
    x = np.arange(12).reshape(3, 4).astype(jax.numpy.dtype(dtype))
    calls: list[tuple[str, Any, Any, tuple[Any, ...]]] = [
        ("reduce_window", core.reduce_window, jax.lax.reduce_window, ((1, 2), (1, 1), "VALID")),
        ("reduce", core.reduce, jax.lax.reduce, ((1,),)),
    ]
    for api, ours, theirs, args in calls:
        try:
            want = theirs(x, init, getattr(jax.lax, name), *args)
        except TypeError:
            with pytest.raises(TypeError, match=f"{api}.*inconsistent dtypes"):
                ours(x, init, getattr(core, name), *args)
            continue
        got = ours(x, init, getattr(core, name), *args)
        assert got.dtype == want.dtype == dtype
        np.testing.assert_array_equal(np.asarray(got), np.asarray(want))


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("sum", "float32"),
        ("max", "float32"),
        ("sum", "bfloat16"),
        ("prod", "float16"),
        ("min", "int32"),
        ("max", "uint8"),
    ],
)
def test_loops_give_the_bits_of_the_kernel(monkeypatch, name, dtype):
    """In the order of the kernel, also for NaNs and zeros of both signs."""
    x = RNG.normal(size=(4, 60, 12)) * 3
    x.flat[::7] = np.resize([0.0, -0.0, np.inf, np.nan] if dtype[0] in "fb" else [0, 1], len(x.flat[::7]))
    x = sw.numpy.asarray(x if dtype != "uint8" else abs(x)).astype(dtype)
    function = {"sum": core.add, "prod": core.mul, "max": core.max, "min": core.min}[name]
    init = sw.numpy.asarray(MONOIDS[name].identity(np.dtype(x.dtype)))
    cases: list[dict[str, Any]] = [
        dict(window_dimensions=(1, 3, 3), window_strides=(1, 2, 1), padding="SAME"),
        dict(window_dimensions=(1, 9, 1), window_dilation=(1, 2, 1)),
        dict(window_dimensions=(2, 2, 2), window_strides=(2, 1, 1), padding=((0, 0), (1, 0), (0, 2))),
        dict(window_dimensions=(1, 1, 1)),  # nothing to combine
        dict(window_dimensions=(1, 1, 1), window_strides=(1, 3, 1), padding=((0, 0), (1, 0), (0, 2))),
    ]
    for case in cases:
        found = []
        for fewest in (0, 1 << 30):
            monkeypatch.setattr(costs, "FUSED_FEWEST", fewest)
            sw.clear_caches()
            found.append(np.asarray(core.reduce_window(x, init, function, **case)))
        nan = np.isnan(found[0].astype(np.float32))
        assert (nan == np.isnan(found[1].astype(np.float32))).all()
        assert found[0][~nan].tobytes() == found[1][~nan].tobytes()
