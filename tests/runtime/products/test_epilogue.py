"""Products and the groups that use their results, panel by panel: values of NumPy in float64, whatever the shapes and splits."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shardwise as jax
import shardwise.numpy as jnp
from shardwise.runtime import costs
from shardwise.runtime.machine.llvm import available
from shardwise.runtime.memory import pool
from shardwise.runtime.products import blas, epilogue, panels, product, shallow
from shardwise.sharding import NamedSharding, PartitionSpec
from tests.rounding import assert_normwise

pytestmark = pytest.mark.skipif(
    not available() or blas.library() is None, reason="no compiler, or no products of our own"
)

RNG = np.random.default_rng(0)


@contextlib.contextmanager
def panels_from_little_on(size=1 << 14):
    """Steps are used for small results too, with panels of so many bytes; gives the list of specializations that were made."""
    made = []
    jax.clear_caches()  # what other tests compiled would be taken
    specialization = epilogue._Maker.specialization

    def noted(self):
        made.append(specialization(self))
        return made[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(epilogue._Maker, "specialization", noted)
        for name in ("PANELS_FROM", "WIDE_PRODUCTS_FROM"):
            patch.setattr(costs, name, 0)
        for name in ("PANELS_DEEPEST", "PANELS_DEEPEST_FOLLOWED", "PANELS_HIGHEST"):
            patch.setattr(costs, name, 1e9)
        patch.setattr(panels, "BYTES", size)
        patch.setattr(costs, "PANEL_LEAST", size)
        patch.setattr(costs, "PANEL_LEAST_ROWS", 4)
        patch.setattr(costs, "FUSED_FEWEST", 1 << 8)
        yield made


@pytest.fixture
def made():
    with panels_from_little_on() as found:
        yield found


def normal(*shape, dtype="float32"):
    return RNG.normal(size=shape).astype(dtype)


def softmax(x, axis=-1):
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def gelu(x):
    return x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))) / 2


def check(fun, expected, *arguments, made=None, steps=1, tolerance=2e-5):
    """`fun`, compiled, gives what `expected` does in float64, in so many steps of panels."""
    before = len(made) if made is not None else 0
    results = jax.tree.leaves(jax.jit(lambda *values: fun(*values))(*arguments))  # compiled anew
    wide = [np.asarray(a, "float64") if np.asarray(a).dtype.kind == "f" else np.asarray(a) for a in arguments]
    wanted = jax.tree.leaves(expected(*wide))
    assert len(results) == len(wanted)
    for x, y in zip(results, wanted, strict=True):
        np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance * max(1, np.abs(y).max()))
    if made is not None:
        used = made[before:]
        assert len(used) == steps
        assert all(layout is not None for layout in used)


SHAPES = [(256, 32, 256), (257, 33, 261), (64, 40, 511), (1000, 8, 65), (64, 128, 1024)]


@pytest.mark.parametrize(
    ("turned", "shape"),
    [*[("", shape) for shape in SHAPES], ("a", SHAPES[1]), ("b", SHAPES[2]), ("ab", SHAPES[3])],
    ids=str,
)
def test_layers(made, shape, turned):
    """Bias and an activation, and rows of a softmax, over products of operands that lie in any way."""
    m, k, n = shape
    x = normal(k, m).T if "a" in turned else normal(m, k)
    w = normal(n, k).T if "b" in turned else normal(k, n)
    b, y = normal(n), normal(m, n)
    x, w = (jnp.asarray(a.T).T if turned and a.flags.f_contiguous else jnp.asarray(a) for a in (x, w))
    check(lambda x, w, b: jax.nn.relu(x @ w + b), lambda x, w, b: np.maximum(x @ w + b, 0), x, w, b, made=made)
    check(lambda x, w: jax.nn.softmax(x @ w / 3), lambda x, w: softmax(x @ w / 3), x, w, made=made)
    check(lambda x, w, y: jax.nn.gelu(x @ w) + y, lambda x, w, y: gelu(x @ w) + y, x, w, y, made=made)


def test_operands_of_every_layout(made):
    """The product's transpose is another product: here the flags of BLAS say how operands lie."""
    x, w = normal(300, 40), normal(40, 270)
    for left in ("ij", "ji"):
        for right in ("jk", "kj"):
            a = jnp.asarray(x if left == "ij" else np.ascontiguousarray(x.T))
            b = jnp.asarray(w if right == "jk" else np.ascontiguousarray(w.T))
            check(
                lambda a, b, f=f"{left},{right}->ik": jax.nn.softmax(jnp.einsum(f, a, b)),
                lambda a, b, f=f"{left},{right}->ik": softmax(np.einsum(f, a, b)),
                a,
                b,
                made=made,
            )


def test_several_results(made):
    """The product itself, a value of full shape and those of rows are all used outside."""

    def fun(x, w, xp=jnp):
        s = x @ w
        e = xp.exp(s - s.max(-1, keepdims=True))
        return s, e, e.sum(-1), s.max(-1)

    check(fun, lambda x, w: fun(x, w, np), normal(300, 20), normal(20, 290), made=made)


def test_what_needs_the_whole_result_waits(made):
    """Products of the result with itself, and groups that wait for something else made of it, are no part of the step."""
    x, w = normal(200, 20), normal(20, 200)
    check(lambda x, w: jax.nn.softmax(x @ w) @ (x @ w), lambda x, w: softmax(x @ w) @ (x @ w), x, w, made=made)
    check(lambda x, w: (x @ w) + jnp.sort(x @ w, 0), lambda x, w: (x @ w) + np.sort(x @ w, 0), x, w, made=made, steps=0)

    def square(x, w, xp=jnp, softmax=jax.nn.softmax):
        p = softmax(x @ w)
        return p @ xp.sort(p, 0)

    check(square, lambda x, w: square(x, w, np, softmax), x, w, made=made)


def test_results_for_columns(made):
    """Sums over the product's rows: panels are columns."""
    check(
        lambda x, w: jnp.maximum(x @ w, 0).sum(0),
        lambda x, w: np.maximum(x @ w, 0).sum(0),
        normal(300, 20),
        normal(20, 500),
        made=made,
    )
    x, w = normal(64, 20), normal(20, 700)
    check(lambda x, w: jax.nn.softmax(x @ w, 0), lambda x, w: softmax(x @ w, 0), x, w, made=made)


def test_sums_of_products(made):
    """One product is the panels'; the other is an operand of the group."""
    arguments = normal(300, 20), normal(20, 290), normal(300, 30), normal(30, 290)
    check(lambda a, b, c, d: jnp.tanh(a @ b + c @ d), lambda a, b, c, d: np.tanh(a @ b + c @ d), *arguments, made=made)


def attention(q, k, v, mask=None, xp: Any = jnp, f="bhqd,bhkd->bhqk", g="bhqk,bhkd->bhqd"):
    scores = xp.einsum(f, q, k) / 8
    if mask is not None:
        scores = xp.where(mask, scores, -xp.inf)
    weights = (softmax if xp is np else jax.nn.softmax)(scores)
    return xp.einsum(g, weights, v)


@pytest.mark.parametrize("shape", [(2, 3, 64, 16), (1, 2, 200, 8), (3, 1, 65, 33), (2, 2, 128, 128)], ids=str)
def test_attention(made, shape):
    """Scores never leave the panel; with heads inside, with a mask, and through the derivative."""
    q, k, v = (normal(*shape) for _ in range(3))
    check(attention, lambda q, k, v: attention(q, k, v, xp=np), q, k, v, made=made)
    n = shape[2]
    mask = np.tril(np.ones((n, n), bool))
    inside: Any = {"f": "bqhd,bkhd->bhqk", "g": "bhqk,bkhd->bqhd"}
    turned = [jnp.asarray(np.ascontiguousarray(x.swapaxes(1, 2))) for x in (q, k, v)]
    check(
        lambda *x: attention(*x, mask=mask, **inside),
        lambda *x: attention(*x, mask=mask, xp=np, **inside),
        *turned,
        made=made,
    )


def test_views_in_between(made):
    """The group sees the product's dims in another order, or more of size 1."""
    x, y = normal(3, 70, 20), normal(3, 90, 20)
    check(
        lambda x, y: jax.nn.softmax(jnp.einsum("bik,bjk->bij", x, y).transpose(1, 0, 2)[None]),
        lambda x, y: softmax(np.einsum("bik,bjk->bij", x, y).transpose(1, 0, 2)[None]),
        x,
        y,
        made=made,
    )
    check(
        lambda x, y: jax.nn.softmax(jnp.einsum("bik,bjk->bij", x, y).transpose(2, 0, 1), 0) + 1,
        lambda x, y: softmax(np.einsum("bik,bjk->bij", x, y).transpose(2, 0, 1), 0) + 1,
        x,
        y,
        made=made,
    )
    q, k, v = (normal(2, 64, 3, 16) for _ in range(3))
    check(
        lambda q, k, v: jax.nn.dot_product_attention(q, k, v, scale=1 / 8),
        lambda q, k, v: attention(q, k, v, xp=np, f="bqhd,bkhd->bhqk", g="bhqk,bkhd->bqhd"),
        q,
        k,
        v,
        made=made,
    )
    check(
        lambda x, y: jnp.tanh(jnp.flip(jnp.einsum("bik,bjk->bij", x, y), 1)),
        lambda x, y: np.tanh(np.einsum("bik,bjk->bij", x, y)[:, ::-1]),
        x,
        y,
        made=made,
        steps=0,
    )


def test_attention_backwards(made):
    """The derivative of softmax has the product and the weights as operands; its result is used twice."""
    q, k, v = (normal(2, 3, 96, 16) for _ in range(3))
    loss = lambda q, k, v: (attention(q, k, v) ** 2).sum()  # noqa: E731

    def expected(q, k, v):
        p = softmax(q @ k.swapaxes(-1, -2) / 8)
        o = 2 * (p @ v)
        dp = o @ v.swapaxes(-1, -2)
        ds = p * (dp - (dp * p).sum(-1, keepdims=True)) / 8
        return ds @ k, ds.swapaxes(-1, -2) @ q, p.swapaxes(-1, -2) @ o

    check(jax.grad(loss, (0, 1, 2)), expected, q, k, v, made=made, steps=2)


def test_float64(made):
    with jax.enable_x64(True):
        x, w = jnp.asarray(normal(300, 20, dtype="float64")), jnp.asarray(normal(20, 290, dtype="float64"))
        check(lambda x, w: jax.nn.softmax(x @ w), lambda x, w: softmax(x @ w), x, w, made=made, tolerance=1e-12)


HALF_A_UNIT = 2.0**-8  # of bfloat16


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_16_bits(made, dtype):
    """Products in float32 between groups in 16 bits: rounded as the equations one after the other are."""
    q, k, v = (jnp.asarray(normal(2, 3, 80, 16), dtype) for _ in range(3))
    mixed = lambda q, k, v: attention(q, k, v).astype("float32") + 1  # noqa: E731
    for fun in (attention, mixed):
        found = jax.jit(fun)(q, k, v)
        with jax.disable_jit():
            expected = fun(q, k, v)
        assert found.dtype == expected.dtype
        assert_normwise(found, expected, HALF_A_UNIT)
    assert len(made) == 2
    assert None not in made
    x, w = jnp.asarray(normal(128, 64), dtype), jnp.asarray(normal(64, 256), dtype)
    layer = lambda x, w: jax.nn.gelu(x @ w)  # noqa: E731
    with jax.disable_jit():
        expected = layer(x, w)
    assert_normwise(jax.jit(layer)(x, w), expected, HALF_A_UNIT)


@pytest.mark.parametrize("what", ["convention", "library"])
def test_without_a_library_of_our_own(made, monkeypatch, what):
    monkeypatch.setattr(blas, what, lambda: None)
    monkeypatch.setattr(shallow, "fits", lambda *_: False)
    q, k, v = (normal(2, 3, 64, 16) for _ in range(3))
    check(attention, lambda q, k, v: attention(q, k, v, xp=np), q, k, v)
    assert made == [None]


SPLITS = [
    (("x", None), (None, None)),
    ((None, None), (None, "x")),
    (("x", None), (None, "y")),
    ((None, "x"), ("x", None)),
    (("y", "x"), ("x", None)),
]


@pytest.mark.parametrize("split", SPLITS, ids=str)
def test_on_devices(made, split):
    """Blocks of split operands: rows, columns, and a contracted dim, whose sum is part of the product."""
    mesh = jax.make_mesh((4, 2), ("x", "y"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    put = lambda x, spec: jax.device_put(x, NamedSharding(mesh, PartitionSpec(*spec)))  # noqa: E731
    x, w, b = put(normal(256, 32), split[0]), put(normal(32, 256), split[1]), normal(256)
    check(lambda x, w: jax.nn.softmax(x @ w), lambda x, w: softmax(x @ w), x, w)
    check(lambda x, w, b: jnp.tanh(x @ w + b), lambda x, w, b: np.tanh(x @ w + b), x, w, b, made=made)


def test_batches_on_devices(made):
    mesh = jax.make_mesh((4, 2), ("x", "y"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    q, k, v = (jax.device_put(normal(8, 2, 64, 16), NamedSharding(mesh, PartitionSpec("x", "y"))) for _ in range(3))
    check(attention, lambda q, k, v: attention(q, k, v, xp=np), q, k, v, made=made)


def test_inside_loops(made):
    """Bodies of scans are scheduled, too."""
    x, w = normal(128, 32), normal(3, 32, 32)

    def step(h, w):
        return jax.nn.softmax(jnp.tile(h, (1, 8)) @ jnp.tile(w, (8, 8)))[:, :32], None

    def fun(x, w):
        return jax.lax.scan(step, x, w)[0]

    def expected(x, w):
        for a in w:
            x = softmax(np.tile(x, (1, 8)) @ np.tile(a, (8, 8)))[:, :32]
        return x

    check(fun, expected, x, w, made=made)


def test_operands_are_never_written_over(made):
    x, w, y = jnp.asarray(normal(300, 20)), jnp.asarray(normal(20, 290)), jnp.asarray(normal(300, 290))
    before = [np.array(a) for a in (x, w, y)]
    f = jax.jit(lambda x, w, y: jax.nn.softmax(x @ w + y))
    first = f(x, w, y)
    kept = np.array(first)
    f(x + 1, w, y)
    for a, b in zip((x, w, y, first), (*before, kept), strict=True):
        np.testing.assert_array_equal(a, b)
    assert made[0] is not None


STEPS = {
    "scale": (lambda s, xp: s * 0.5),
    "bias": (lambda s, xp: s + xp.arange(s.shape[-1], dtype=s.dtype)),
    "tanh": (lambda s, xp: xp.tanh(s)),
    "center": (lambda s, xp: s - s.mean(-1, keepdims=True)),
    "largest": (lambda s, xp: s / (1 + abs(s).max(-1, keepdims=True))),
    "mask": (lambda s, xp: xp.where(xp.arange(s.shape[-1]) % 3 > 0, s, 0 * s)),
    "down": (lambda s, xp: s - s.max(0, keepdims=True)),
}


@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    st.lists(st.integers(1, 4), max_size=2),
    st.integers(1, 150),
    st.integers(2, 40),
    st.integers(40, 200),
    st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=4),
    st.booleans(),
    st.booleans(),
    st.integers(12, 17),
)
def test_any_chain(batch, m, k, n, names, follows, shows, size):
    """Steps, or the equations one after the other, whatever the group does."""
    a, b, c = normal(*batch, m, k), normal(*batch, k, n), normal(n, 7)

    def fun(a, b, c, xp=jnp):
        s = product = a @ b
        for name in names:
            s = STEPS[name](s, xp)
        return (s @ c if follows else s, product) if shows else (s @ c if follows else s)

    with panels_from_little_on(1 << size):
        check(fun, lambda a, b, c: fun(a, b, c, np), a, b, c, tolerance=5e-5)


THREADS = """
import hashlib, json, sys
import numpy as np, shardwise as jax, shardwise.numpy as jnp
rng = np.random.default_rng(0)
q, k, v = (rng.normal(size=(2, 4, 256, 32)).astype(np.float32) for _ in range(3))
f = jax.jit(lambda q, k, v: jax.nn.softmax(q @ k.swapaxes(-1, -2)) @ v)
g = jax.jit(lambda x, w: jnp.tanh(x @ w + 1))
out = [f(q, k, v), g(q.reshape(-1, 32), k.reshape(32, -1))]
print(json.dumps([hashlib.sha256(np.asarray(x).tobytes()).hexdigest() for x in out]))
"""


def test_results_do_not_depend_on_threads(shell):
    runs = [shell("-c", THREADS, OPENBLAS_NUM_THREADS=n, OMP_NUM_THREADS=n) for n in ("1", "2", "2")]
    found = [json.loads(run.stdout) for run in runs]
    assert found[0] == found[1] == found[2]


def test_scores_take_no_memory():
    """The peak of attention is that of its operands, its result and the threads' panels; so it is said, and so it is."""
    q, k, v = (jnp.asarray(normal(4, 4, 1024, 32)) for _ in range(3))
    f = jax.jit(lambda q, k, v: jax.nn.softmax(q @ k.swapaxes(-1, -2)) @ v)
    said = f.lower(q, k, v).compile().memory_analysis()
    assert said.temp_size_in_bytes <= 2 * product.product_threads() * panels.BYTES
    f(q, k, v)
    pool.trim(0)
    before = pool.stats()["bytes_in_use"]
    pool.peak = before
    f(q, k, v)
    took = pool.stats()["peak_bytes_in_use"] - before
    assert took <= 1.25 * (said.temp_size_in_bytes + said.output_size_in_bytes) + (1 << 20)
