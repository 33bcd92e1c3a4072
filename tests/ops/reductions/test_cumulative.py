"""Running reductions: values against NumPy and the oracle, the loop law, rules, errors."""

from __future__ import annotations

import itertools
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import shardwise as sw
from shardwise import lax
from shardwise.base.config import use_dialect
from shardwise.base.errors import ShardingTypeError
from shardwise.ir import ShapedArray, infer_types
from shardwise.ops.reductions import cumulative, running
from shardwise.ops.rules.convert import as_value
from shardwise.ops.rules.operands import dtype_kind
from shardwise.runtime.env import SINGLE
from shardwise.runtime.machine.llvm import available
from shardwise.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, P
from shardwise.sharding.rule import Kind
from tests.ops.loop_law import CASES, check_law, spread

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the executor runs kernels with these off

MESH = AbstractMesh((2, 4), ("x", "y"), axis_types=(AxisType.Explicit,) * 2)
RNG = np.random.default_rng(0)
BF16 = np.dtype(ml_dtypes.bfloat16)
OPS = {
    op.name: op
    for op in [
        cumulative.cumsum_p,
        cumulative.cumprod_p,
        cumulative.cummax_p,
        cumulative.cummin_p,
        cumulative.cumlogsumexp_p,
    ]
}


def data(dtype):
    x = RNG.uniform(-3, 3, (3, 5, 2))
    return (x + 1j * x[::-1]).astype(dtype) if dtype.kind == "c" else x.astype(dtype)


@pytest.mark.parametrize("dtype", ["int8", "uint32", "float16", BF16, "float32", "complex64"], ids=str)
def test_values_are_those_of_the_oracle(dtype):
    jax = pytest.importorskip("jax")
    dtype = np.dtype(dtype)
    x = np.abs(data(dtype)) if dtype.kind == "u" else data(dtype)
    x = x.astype(dtype)
    if dtype_kind(dtype) == "f":
        x[0, 2, 1], x[1, 1, 0], x[2, 0, 0] = np.nan, np.inf, -np.inf
    names = [n for n in OPS if n != "cumlogsumexp" or dtype_kind(dtype) in "fc"]
    cases = [(n, a, r) for n in names for a in (0, 1) for r in (False, True)]
    wants = jax.jit(lambda v: [getattr(jax.lax, n)(v, axis=a, reverse=r) for n, a, r in cases])(x)
    for (name, axis, reverse), want in zip(cases, wants, strict=True):
        got = OPS[name].block_kernel(SINGLE, x, axis=axis, reverse=reverse)
        assert got.dtype == want.dtype and got.shape == want.shape
        eps = float(ml_dtypes.finfo(dtype).eps) if dtype_kind(dtype) == "f" else 1e-6
        want = np.asarray(want).astype(np.complex128)
        message = f"{name} along {axis}, {reverse=}"
        np.testing.assert_allclose(got.astype(np.complex128), want, rtol=16 * eps, atol=16 * eps, err_msg=message)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("order", ["C", "F"])
def test_wide_rows(order, reverse):
    """Where whole rows are added, not the elements of a column one by one."""
    x = RNG.normal(size=(20, 300)).astype(np.float32, order=order)
    for axis in (0, 1):
        got = cumulative.cumsum_p.block_kernel(SINGLE, x, axis=axis, reverse=reverse)
        want = np.flip(np.cumsum(np.flip(x, axis), axis), axis) if reverse else np.cumsum(x, axis)
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("lead", "mix"), CASES)
def test_loop_law(lead, mix):
    for op in OPS.values():
        for shape in ((2, 3), (0, 3), (3, 300)):
            block = spread(RNG.normal(size=shape).astype(np.float32), mix[0], lambda v, k: v + k)
            for axis in (0, 1):
                for reverse in (False, True):
                    check_law(op.block_kernel, [block], lead, axis=axis, reverse=reverse)


def test_rules_and_explicit_types():
    t = ShapedArray((8, 8), np.dtype("float32"), mesh=MESH, spec=(("x",), ()))
    for op in OPS.values():
        rule = op.sharding_rule((t,), (t,), {"axis": 0, "reverse": False})
        assert rule.kinds == (Kind.REPLICATE, Kind.PASS) and rule.inputs == rule.outputs
        assert infer_types(op, (t,), {"axis": 1, "reverse": False})[0].spec == t.spec
        with use_dialect("latest"), pytest.raises(ShardingTypeError, match="whole"):
            infer_types(op, (t,), {"axis": 0, "reverse": False})


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda x: cumulative.cumsum(x, 2), ValueError),
        (lambda x: cumulative.cumsum(x, -1), ValueError),
        (lambda x: cumulative.cumsum(True), TypeError),
        (lambda x: cumulative.cumsum(1.0), ValueError),
        (lambda x: cumulative.cummax(as_value(np.ones(3, bool))), TypeError),
        (lambda x: cumulative.cumlogsumexp(as_value(np.ones(3, np.int32))), TypeError),
    ],
)
def test_errors(call, error):
    with pytest.raises(error, match="cum"):
        call(as_value(np.ones((2, 3), np.float32)))


def test_along_a_split_dim_each_device_runs_over_its_part() -> None:
    """What is sent is one element per row and device, and the result lies as the operand."""
    mesh = Mesh(np.array(sw.devices()).reshape(2, 4), ("x", "y"))
    x = np.random.default_rng(0).integers(-3, 4, (8, 16)).astype(np.float32)
    for spec in (P("x"), P(None, "y"), P("y", "x"), P(None, ("x", "y"))):
        split = sw.device_put(x, NamedSharding(mesh, spec))
        for name in ("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"):
            for axis in (0, 1):
                for reverse in (False, True):
                    run = sw.jit(partial(getattr(lax, name), axis=axis, reverse=reverse))
                    found = run(split)
                    assert found.sharding == split.sharding
                    np.testing.assert_allclose(found, run(x), rtol=5e-6)
    for run in (lax.cumsum, lax.cumlogsumexp):
        compiled = sw.jit(partial(run, axis=1)).lower(sw.device_put(x, NamedSharding(mesh, P(None, "y")))).compile()
        (sent,) = compiled._entry.executable.transfers
        assert sent.kind == "all_gather" and sent.bytes == 3 * 8 * 4
    for name in ("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"):  # narrow floats run, and are joined, in f32
        narrow = (x / 4).astype(BF16)
        run = sw.jit(partial(getattr(lax, name), axis=1))
        parts = sw.device_put(narrow, NamedSharding(mesh, P(None, "y")))
        np.testing.assert_allclose(
            run(parts).astype(np.float32), run(narrow).astype(np.float32), rtol=float(ml_dtypes.finfo(BF16).eps)
        )
        (sent,) = run.lower(parts).compile()._entry.executable.transfers
        assert sent.kind == "all_gather" and sent.bytes == 3 * 8 * 4
    x[:, ::3], x[1, 5], x[2, 7], x[3] = -np.inf, np.nan, np.inf, -np.inf
    for reverse in (False, True):
        run = sw.jit(partial(lax.cumlogsumexp, axis=1, reverse=reverse))
        np.testing.assert_allclose(run(sw.device_put(x, NamedSharding(mesh, P(None, "y")))), run(x), rtol=2e-6)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("name", ["SUM", "PRODUCT", "MAXIMUM", "MINIMUM", "LOG_SUM"])
def test_large_blocks_run_in_machine_code(monkeypatch, name, reverse):
    """Rows, columns, few long rows in pieces, in both orders of memory; as exact as NumPy at least."""
    if not available():
        pytest.skip("no compiler")
    monkeypatch.setattr(running, "thread_count", lambda: 3)
    monkeypatch.setattr(running, "_PIECE", 1 << 10)
    monkeypatch.setattr(running, "_THREADS_FROM", 1 << 14)
    kind = getattr(running, name)
    rng = np.random.default_rng(0)
    dtypes: list[Any] = [np.float32, np.float64, np.int32, np.uint8]
    for dtype, shape in itertools.product(dtypes, [(64, 257), (3, 50, 77), (1, 20001), (7000, 3), (2, 9000)]):
        if name == "LOG_SUM" and dtype not in (np.float32, np.float64):
            continue
        x = rng.normal(size=shape) * 0.1 + 1 if name == "PRODUCT" else rng.normal(size=shape) * 5
        x = np.abs(x).astype(dtype)
        for dim, order in itertools.product([d for d, n in enumerate(shape) if n > 1], "CF"):
            given = np.asfortranarray(x) if order == "F" else np.ascontiguousarray(x)
            turned = np.flip(given, dim) if reverse else given
            got = running.accumulate_dim(kind, given, dim, reverse)
            assert got is not None and got.dtype == dtype
            got = np.flip(got, dim) if reverse else got
            plain = kind.ufunc.accumulate(turned, axis=dim, dtype=dtype)
            if plain.dtype.kind != "f":
                np.testing.assert_array_equal(got, plain)
                continue
            want = kind.ufunc.accumulate(turned, axis=dim, dtype=np.longdouble)
            kept = (np.abs(want) < np.finfo(dtype).max) & (np.abs(want) > np.finfo(np.float32).tiny)
            errors = [np.max(np.where(kept, np.abs(y - want) / np.abs(want), 0)) for y in (got, plain)]
            assert errors[0] <= 4 * errors[1] + 8 * np.finfo(dtype).eps


def test_running_reductions_of_special_values():
    x = np.zeros((4, 5000), np.float32)
    x[0, 3], x[1, 4000], x[2] = np.nan, -np.inf, -0.0
    for f, want in ((lax.cummax, np.maximum), (lax.cummin, np.minimum), (lax.cumsum, np.add)):
        np.testing.assert_array_equal(f(x, 1), want.accumulate(x, axis=1))
        assert np.all(np.signbit(f(x, 1)[2]) == (f is not lax.cumsum))  # sums begin with 0.0
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(lax.cumlogsumexp(x, 1), np.logaddexp.accumulate(x, axis=1), rtol=1e-5)


@pytest.mark.parametrize("name", ["cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"])
@pytest.mark.parametrize("reverse", [False, True])
def test_along_an_empty_dim_on_a_mesh(name, reverse):
    mesh = Mesh(np.array(sw.devices()[:8]), ("x",))
    run = lambda x, axis: getattr(lax, name)(x, axis=axis, reverse=reverse)  # noqa: E731
    for shape, spec in (((8, 0), P("x")), ((0, 8), P(None, "x")), ((0, 8), P("x"))):
        x = sw.device_put(np.ones(shape, np.float32), NamedSharding(mesh, spec))
        for axis in (0, 1):
            assert run(x, axis).shape == sw.jit(run, static_argnums=1)(x, axis).shape == shape
            assert sw.grad(lambda x, axis=axis: run(x, axis).sum())(x).shape == shape
