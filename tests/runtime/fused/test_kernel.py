"""Fused loops compute what the NumPy kernels do, for every op, dtype, layout and sharding."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shardwise as jax
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.base import config
from shardwise.ir import Program, ShapedArray, all_ops, trace_program
from shardwise.runtime.env import Env
from shardwise.runtime.fused import kernel as fused
from shardwise.runtime.machine.llvm import available
from shardwise.sharding import NamedSharding
from shardwise.sharding import PartitionSpec as P

pytestmark = pytest.mark.skipif(not available(), reason="no compiler for fused loops")

SIZE = 1 << 14
SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, 100.0, -100.0, np.inf, -np.inf, np.nan, 1e-40, -1e-40, 3e38, -3e38, 70000.0,
           2.0**31, -(2.0**31), 2.0**63, 300.0, 0.49999997, 8388609.0]  # fmt: skip
FLOATS = ["float32", "float64", "float16", "bfloat16"]
INTS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]


def numpy_dtype(name: str) -> np.dtype:
    return np.dtype(getattr(ml_dtypes, name, None) or name)


def values(name: str, seed: int, size: int = SIZE) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if name == "bool":
        return rng.integers(0, 2, size).astype(bool)
    if name in INTS:
        info = np.iinfo(name)
        wide = rng.integers(info.min, info.max, size, dtype=name, endpoint=True)
        return np.where(rng.integers(0, 2, size), wide, rng.integers(0, 9, size).astype(name))
    x = rng.normal(size=size) * 10.0 ** rng.integers(-3, 3, size)
    x[: len(SPECIAL)] = rng.permutation(SPECIAL)
    with np.errstate(all="ignore"):
        return x.astype(numpy_dtype(name))


def both(f, *args):
    """The results of `f` under jit, fused and not."""
    out = []
    for choice in ("auto", "off"):
        with config.override("shardwise_fused", choice):
            out.append([np.asarray(y) for y in jax.tree.leaves(jax.jit(lambda *a: f(*a))(*args))])
    return zip(*out, strict=True)


def assert_same(fused_result: np.ndarray, plain: np.ndarray, ulps: float = 0) -> None:
    assert fused_result.dtype == plain.dtype and fused_result.shape == plain.shape
    if plain.dtype.kind in "biu" or not ulps:
        if plain.dtype.kind not in "biu":
            fused_result, plain = fused_result.astype(np.float64), plain.astype(np.float64)
            number = ~np.isnan(plain)
            np.testing.assert_array_equal(np.signbit(fused_result[number]), np.signbit(plain[number]))
        np.testing.assert_array_equal(fused_result, plain)
        return
    info = ml_dtypes.finfo(plain.dtype)
    with np.errstate(all="ignore"):
        a, b = fused_result.astype(np.float64), plain.astype(np.float64)
        np.testing.assert_array_equal(np.isnan(a), np.isnan(b))
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        scale = np.maximum(np.abs(b) * float(info.eps), float(info.smallest_subnormal))
        assert np.all(same | (np.abs(a - b) <= ulps * scale)), np.nanmax(np.where(same, 0, np.abs(a - b) / scale))


# -- op by op --------------------------------------------------------------------------------------------------------

EXACT_UNARY = {
    "neg": "iuf", "sign": "iuf", "floor": "f", "ceil": "f", "is_finite": "f", "abs": "if", "square": "iuf", "sqrt": "f",
    "bitwise_not": "biu", "population_count": "iu", "clz": "iu",
}  # fmt: skip
ROUNDED_UNARY = ["exp", "exp2", "expm1", "log", "log1p", "sin", "cos", "tanh", "logistic", "rsqrt", "erf", "erfc", "tan", "sinh",
                 "cosh", "asin", "acos", "atan", "asinh", "acosh", "atanh", "cbrt", "erf_inv"]  # fmt: skip
BINARY = {
    "add": "iuf", "sub": "iuf", "mul": "iuf", "div": "iuf", "rem": "iuf", "mulhi": "iu", "nextafter": "f",
    "max": "biuf", "min": "biuf", "bitwise_and": "biu", "bitwise_or": "biu",
    "bitwise_xor": "biu", "shift_left": "iu", "shift_right_logical": "iu", "shift_right_arithmetic": "iu",
    "eq": "biuf", "ne": "biuf", "lt": "biuf", "le": "biuf", "gt": "biuf", "ge": "biuf",
}  # fmt: skip


def of_kinds(kinds: str) -> list[str]:
    signed = [n for n in INTS if n[0] == "i"]
    unsigned = [n for n in INTS if n[0] == "u"]
    return [n for k in kinds for n in {"b": ["bool"], "i": signed, "u": unsigned, "f": FLOATS}[k]]


@pytest.fixture
def x64():
    with jax.enable_x64():
        yield


@pytest.mark.parametrize("name", EXACT_UNARY)
def test_exact_functions_of_one_operand(name, x64):
    args = [values(d, 1) for d in of_kinds(EXACT_UNARY[name])]
    for got, plain in both(lambda *xs: [getattr(lax, name)(x) for x in xs], *args):
        assert_same(got, plain)


@pytest.mark.parametrize("name", ROUNDED_UNARY)
def test_rounded_functions_of_one_operand(name, x64):
    args = [values(d, 2) for d in FLOATS]
    for got, plain in both(lambda *xs: [getattr(lax, name)(x) for x in xs], *args):
        if name in ("logistic", "erfc"):  # the plain kernels give 0 sooner
            got, plain = (
                np.where(
                    np.abs(plain.astype(np.float64)) < (1e-37 if plain.dtype != np.float64 else 1e-300),
                    plain.dtype.type(0),
                    y,
                )
                for y in (got, plain)
            )
        ours = 400 if name == "erfc" and plain.itemsize == 8 else 4  # SciPy's is as far off
        assert_same(got, plain, ulps=ours if plain.itemsize > 2 else 1)


def test_sines_are_rounded_from_float64():
    x = values("float32", 3)
    for name in ("sin", "cos"):
        ((got, plain),) = both(getattr(lax, name), x)
        np.testing.assert_array_equal(got, plain)


@pytest.mark.parametrize("name", BINARY)
def test_functions_of_two_operands(name, x64):
    dtypes = of_kinds(BINARY[name])
    xs, ys = [values(d, 4) for d in dtypes], [values(d, 5) for d in dtypes]
    for i in range(len(SPECIAL)):  # meetings of special values
        for x, y in zip(xs, ys, strict=True):
            x[1000 + 50 * i : 1000 + 50 * i + 50] = x[i]
            y[1000 + 50 * i : 1000 + 50 * i + len(SPECIAL)] = y[: len(SPECIAL)]
    for got, plain in both(
        lambda *a: [getattr(lax, name)(x, y) for x, y in zip(a[::2], a[1::2], strict=True)],
        *[v for pair in zip(xs, ys, strict=True) for v in pair],
    ):
        if name in ("max", "min"):  # which zero of two is the larger, NumPy's loops do not agree on
            got, plain = (np.where(y == 0, np.zeros_like(y), y) for y in (got, plain))
        assert_same(got, plain)


@pytest.mark.parametrize("name", ["pow", "atan2"])
def test_rounded_functions_of_two_operands(name, x64):
    """Every meeting of special values, and of others."""
    for dtype in FLOATS:
        x, y = values(dtype, 14), values(dtype, 15)
        with np.errstate(all="ignore"):
            special = np.array([*SPECIAL, 2.0, -2.0, 3.0, -3.0, 0.75, 1e-45, 2.0**24, 2.0**25 + 2]).astype(x.dtype)
        meetings = np.stack(np.meshgrid(special, special)).reshape(2, -1)
        x[: meetings.shape[1]], y[: meetings.shape[1]] = meetings
        x[2000:9000] = np.abs(x[2000:9000])
        ((got, plain),) = both(getattr(lax, name), x, y)
        assert_same(got, plain, ulps=3 if x.itemsize > 2 else 1)
        zero = plain == 0
        np.testing.assert_array_equal(np.signbit(got[zero]), np.signbit(plain[zero]))


def test_casts(x64):
    names = ["bool", *INTS, *FLOATS]
    for source in names:
        x = values(source, 6)
        for got, plain in both(lambda x: [lax.convert_element_type(x, numpy_dtype(n)) for n in names], x):
            assert_same(got, plain)


def test_choices_powers_and_rounding(x64):
    x, y, mask, index = values("float32", 7), values("float32", 8), values("bool", 9), values("int32", 10)

    def f(x, y, mask, index):
        away, even = lax.RoundingMethod
        return [
            lax.select(mask, x, y),
            lax.select_n(index, x, y, x + y),
            lax.clamp(np.float32(-1), x, y),
            lax.round(x, away),
            lax.round(x, even),
            *[lax.integer_pow(x, p) for p in (-3, -1, 0, 1, 2, 5)],
            lax.integer_pow(index, 3),
            lax.stop_gradient(x) + y,
            lax.clamp(np.int32(0), index, np.int32(5)),
        ]

    for got, plain in both(f, x, y, mask, index):
        assert_same(got, plain)


def test_every_emitter_names_kinds_that_its_op_takes():
    for op in all_ops().values():
        if op.emit is not None:
            assert set(op.emit.kinds) <= set("biufwsck"), op


# -- accuracy against float64 ----------------------------------------------------------------------------------------


def references() -> dict[str, Callable[..., Any]]:
    special = pytest.importorskip("scipy.special")
    return {
        "exp": np.exp,
        "exp2": np.exp2,
        "expm1": np.expm1,
        "log": np.log,
        "log1p": np.log1p,
        "sin": np.sin,
        "cos": np.cos,
        "tanh": np.tanh,
        "erf": special.erf,
        "logistic": special.expit,
        "erfc": special.erfc,
        "tan": np.tan,
        "sinh": np.sinh,
        "cosh": np.cosh,
        "asin": np.arcsin,
        "acos": np.arccos,
        "atan": np.arctan,
        "asinh": np.arcsinh,
        "acosh": np.arccosh,
        "atanh": np.arctanh,
        "cbrt": np.cbrt,
        "erf_inv": special.erfinv,
    }


@pytest.mark.parametrize("name", [n for n in ROUNDED_UNARY if n != "rsqrt"])
def test_float32_functions_over_the_whole_range(name):
    """All exponents, both signs, subnormals, infinities and NaN: within 2.5 units of the last place."""
    x = np.arange(0, 2**32, 40009, dtype=np.uint64).astype(np.uint32).view(np.float32)
    got = np.asarray(jax.jit(getattr(lax, name))(jnp.asarray(x)))
    with np.errstate(all="ignore"):
        exact = references()[name](x.astype(np.float64))
        rounded = exact.astype(np.float32)
        unit = np.maximum(np.abs(np.spacing(np.where(np.isfinite(rounded), rounded, 1))), np.float32(1e-45)).astype(
            np.float64
        )
        error = np.where(np.isfinite(rounded), np.abs(got - exact) / unit, 0)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(exact))
    np.testing.assert_array_equal(got[np.isinf(rounded)], rounded[np.isinf(rounded)])
    assert np.nanmax(error) <= (0.501 if name in ("sin", "cos") else 2.5)


@pytest.mark.parametrize(
    "name", ["exp", "exp2", "expm1", "log", "log1p", "sin", "cos", "tanh", "sinh", "cosh", "asin", "acos", "atan"]
)
@pytest.mark.skipif(np.finfo(np.longdouble).nmant < 63, reason="nothing more exact to compare with")
def test_float64_functions(name, x64):
    rng = np.random.default_rng(11)
    x = np.concatenate(
        [
            rng.integers(0, 2**64, SIZE, dtype=np.uint64).view(np.float64),
            rng.normal(size=SIZE),
            rng.normal(size=SIZE) * 300,
            np.arange(-4000, 4000) * (np.pi / 2),
            [0.0, -0.0, np.inf, -np.inf, 5e-324, -1, 709.782712893384, -745.2],
        ]
    )
    got = np.asarray(jax.jit(getattr(lax, name))(jnp.asarray(x)))
    with np.errstate(all="ignore"):
        exact = references()[name](x.astype(np.longdouble))
        rounded = exact.astype(np.float64)
        unit = np.maximum(np.abs(np.spacing(np.where(np.isfinite(rounded), rounded, 1))), 5e-324).astype(np.longdouble)
        error = np.where(np.isfinite(rounded), np.abs(got - exact) / unit, 0)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(rounded))
    zero = rounded == 0
    np.testing.assert_array_equal(np.signbit(got[zero & (x == 0)]), np.signbit(rounded[zero & (x == 0)]))
    assert np.nanmax(error.astype(np.float64)) <= 2.5


# -- graphs of equations ---------------------------------------------------------------------------------------------

STEPS = {
    "add": lambda x, y, m: x + y, "mul": lambda x, y, m: jnp.tanh(x) * y, "sub": lambda x, y, m: x - 0.25 * y,
    "max": lambda x, y, m: jnp.maximum(x, y), "where": lambda x, y, m: jnp.where(m, x, y), "sin": lambda x, y, m: jnp.sin(x),
    "less": lambda x, y, m: jnp.where(x < y, x, -y), "logistic": lambda x, y, m: jax.nn.sigmoid(x) + y,
    "floor": lambda x, y, m: x + m.astype(x.dtype), "sum": lambda x, y, m: x - y.sum(axis=0, keepdims=True) / 256,
    "swap": lambda x, y, m: x[::-1] + y,
}  # fmt: skip

graphs = st.lists(
    st.tuples(st.sampled_from(sorted(STEPS)), st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=8
)


def run_graph(graph, *inputs):
    mask, known = inputs[0], list(inputs[1:])
    for name, i, j in graph:
        known.append(STEPS[name](known[i % len(known)], known[j % len(known)], mask))
    return known[-3:]


@settings(max_examples=25, deadline=None, derandomize=True)
@given(graphs, st.sampled_from(["float32", "bfloat16"]), st.sampled_from(["plain", "rows", "columns", "both", "mixed"]))
def test_graphs_fused_or_not(graph, dtype, layout):
    rng = np.random.default_rng(len(graph))
    shape = (64, 256)
    full = rng.normal(size=shape).astype(numpy_dtype(dtype))
    row = rng.normal(size=(1, 256)).astype(numpy_dtype(dtype))
    turned = np.ascontiguousarray(rng.normal(size=shape).T).T.astype(numpy_dtype(dtype))
    inputs = [rng.integers(0, 2, shape).astype(bool), full, row, turned]
    if layout != "plain":
        mesh = jax.make_mesh((4, 2), ("x", "y"), devices=jax.devices()[:8]) if len(jax.devices()) >= 8 else None
        if mesh is None:
            pytest.skip("needs 8 devices")
        rows, columns = ("x" if layout in ("rows", "both") else None), ("y" if layout in ("columns", "both") else None)
        specs = [P(rows, columns)] * 2 + [P(None, columns), P(rows, columns)]
        if layout == "mixed":
            specs = [P(), P("x", "y"), P(None, ("x", "y")), P("y")]
        inputs = [jax.device_put(v, NamedSharding(mesh, s)) for v, s in zip(inputs, specs, strict=True)]
    graph = [step for step in graph if step != ("swap", 0, 0)]
    for got, plain in both(functools.partial(run_graph, graph), *inputs):
        np.testing.assert_allclose(
            got.astype(np.float64),
            plain.astype(np.float64),
            # A graph may magnify what it rounds: by a unit of bfloat16 and five, or by 160 of float32.
            rtol=2e-5 if dtype == "float32" else 0.01,
            atol=2e-5 if dtype == "float32" else 0.05,
        )


# -- blocks ----------------------------------------------------------------------------------------------------------


def program_of(f, *blocks, lead=0) -> Program:
    axes = frozenset("ab"[:lead])
    return trace_program(f, [ShapedArray(b.shape[lead:], b.dtype, vma=axes) for b in blocks])[0]


LAYOUTS = {
    "leading dims with other extents": lambda r: (1, (r(8, 64, 64), r(1, 64, 64))),
    "scalar per device": lambda r: (1, (r(8, 64, 64), r(8))),
    "columns of a split array": lambda r: (1, (r(64, 4, 96).transpose(1, 0, 2), r(64, 4, 96).transpose(1, 0, 2))),
    "every second": lambda r: (0, (r(64, 512)[:, ::2], r(64, 256))),
    "every third and every seventh": lambda r: (0, (r(30000)[2::3], r(70001)[:-1:7])),
    "every ninth": lambda r: (0, (r(90000)[::9], r(10000))),
    "backwards": lambda r: (0, (r(64, 256)[::-1, ::-1], r(64, 256))),
    "transposed": lambda r: (0, (r(256, 64).T, r(256, 64).T)),
    "one transposed": lambda r: (0, (r(64, 256), r(256, 64).T)),
    "repeated rows and columns": lambda r: (0, (np.broadcast_to(r(1, 256), (64, 256)), np.broadcast_to(r(64, 1), (64, 256)))),
    "odd sizes": lambda r: (0, (r(129, 131), r(129, 131))),
    "odd rows with gaps": lambda r: (0, (r(131, 150)[:, 3:140], r(1, 137))),
    "four dims": lambda r: (2, (r(2, 1, 8, 64, 32), r(1, 3, 8, 1, 32))),
    "unaligned": lambda r: (0, (np.frombuffer(b"\0" + r(20000).tobytes(), np.uint8)[1:].view(np.float32), r(20000))),
    "short rows backwards": lambda r: (0, (r(900, 9, 3)[:, ::-1], r(900, 1, 3))),
    "short rows of longer ones": lambda r: (0, (r(9000, 4)[:, :3], r(9000, 6)[::-1, 1:4])),
    "every second short row": lambda r: (0, (r(500, 35, 5)[:, ::2], r(500, 18, 5))),
    "short rows": lambda r: (0, (r(9000, 5)[:, :3], r(9000, 3))),
}  # fmt: skip


@pytest.mark.parametrize("name", LAYOUTS)
def test_layouts(name):
    """Several results, some that do not depend on all operands, in every way blocks can lie in memory."""
    rng = np.random.default_rng(12)
    lead, blocks = LAYOUTS[name](lambda *shape: rng.normal(size=shape).astype(np.float32))

    def f(x, y):
        doubled = lax.mul(x, 2.0)
        return lax.add(doubled, y), doubled, lax.bitwise_and(lax.gt(doubled, y), lax.ne(x, 0.0))

    program = program_of(f, *blocks, lead=lead)
    run = fused.GroupKernel(
        Env(("a", "b")[:lead], tuple(np.broadcast_shapes(*(b.shape[:lead] for b in blocks)))), program
    )
    kept = [b.copy() for b in blocks]
    outs, plain = run(*blocks), run.plain(*blocks)
    for got, want in zip(outs, plain, strict=True):
        assert got.shape == want.shape and got.dtype == want.dtype
        np.testing.assert_array_equal(got, want)
    for block, before in zip(blocks, kept, strict=True):
        np.testing.assert_array_equal(block, before)
    again = run(*blocks)
    for got, want in zip(again, plain, strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("columns", [2, 3, 5, 8, 12, 17, 31])
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "int8", "bool"])
def test_rows_shorter_than_two_vectors(columns, dtype):
    """Vectors are as short as the rows; results are written over nothing but their own rows."""
    x = values(dtype, 3, 9000 * (columns + 1)).reshape(9000, columns + 1)[:, :-1]
    y = values(dtype, 4)[:columns].reshape(1, columns)

    def f(x, y):
        return lax.select(lax.gt(x, y), x, y), lax.ne(x, y), lax.cos(lax.convert_element_type(x, np.float32))

    run = fused.GroupKernel(Env(), program_of(f, x, np.broadcast_to(y, x.shape)))
    outs, plain = run(x, np.broadcast_to(y, x.shape)), run.plain(x, np.broadcast_to(y, x.shape))
    for got, want, ulps in zip(outs, plain, (0, 0, 4), strict=True):
        assert_same(got, np.asarray(want), ulps)
    assert None not in run._specializations.values()


@pytest.mark.parametrize("columns", [2, 3, 5, 7, 12])
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "int8", "bool", "complex64"])
def test_short_rows_side_by_side_in_vectors(columns, dtype):
    """Rows meet a factor per row and one per column, as colours do."""
    rows, kind = 16387, numpy_dtype(dtype)
    numbers = [np.random.default_rng(k).integers(0, 5, (rows, columns)).astype(kind) for k in range(3)]
    x, per_row, per_column = numbers[0], numbers[1][:, :1], numbers[2][0]

    def f(x, w, b):
        return (x & w) | b if dtype == "bool" else x * w - b, x != b

    blocks = x, np.broadcast_to(per_row, x.shape), np.broadcast_to(per_column, x.shape)
    run = fused.GroupKernel(Env(), program_of(f, *blocks))
    for got, want in zip(run(*blocks), run.plain(*blocks), strict=True):
        np.testing.assert_array_equal(got, want)
    (special,) = run._specializations.values()
    assert special is not None


def test_results_keep_memory_order():
    x = np.ones((4, 64, 96), np.float32).transpose(1, 0, 2)
    run = fused.GroupKernel(Env(), program_of(lambda x: [lax.mul(x, 2.0)], x))
    (out,) = run(x)
    assert out.strides == x.strides


def test_small_calls_are_left_to_numpy():
    x = np.ones((10, 10), np.float32)
    run = fused.GroupKernel(Env(), program_of(lambda x: [lax.mul(x, 2.0)], x))
    run(x)
    assert list(run._specializations.values()) == [None]


# -- the switch ------------------------------------------------------------------------------------------------------


def test_off_leaves_numpy_alone(monkeypatch):
    calls = []
    monkeypatch.setattr(fused.GroupKernel, "__call__", lambda self, *blocks: calls.append(1) or self.plain(*blocks))
    x = jnp.ones(SIZE)
    with config.override("shardwise_fused", "off"):
        jax.jit(lambda x: x * 2 + 1)(x)
    assert not calls
    jax.jit(lambda x: x * 2 + 1)(x)
    assert calls
    with pytest.raises(ValueError, match="shardwise_fused"):
        config.update("shardwise_fused", "sometimes")
