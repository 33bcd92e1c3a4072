"""Each op's derivative against finite differences, against JAX in both modes and to second order, and under jit on shards."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.experimental import enable_x64
from shardwise.scipy import special
from tests.transforms import linalg_cases, op_cases
from tests.transforms.op_cases import Case
from tests.transforms.record import both_modes, jax_answers, tangents, weights

CASES = [*op_cases.CASES, *linalg_cases.CASES]

CLOSE: dict[str, Any] = dict(rtol=2e-6, atol=1e-7)


@pytest.fixture(autouse=True)
def double_precision():
    with enable_x64():
        yield


@pytest.mark.parametrize("case", [c for c in CASES if c.oracle], ids=repr)
def test_same_as_jax(case: Case) -> None:
    theirs = jax_answers(case)
    if theirs is None:
        pytest.skip("JAX is not installed, and its answer is not recorded")
    for ours, expected in zip(both_modes(sw, lax, case), theirs, strict=True):
        assert ours.dtype == expected.dtype
        np.testing.assert_allclose(ours, expected, **CLOSE)


@pytest.mark.parametrize("case", [c for c in CASES if c.numeric], ids=repr)
def test_same_as_finite_differences(case: Case) -> None:
    args, along = tuple(map(np.asarray, case.args)), tangents(case)
    value = lambda e: np.asarray(case.function(lax, *[x + e * t for x, t in zip(args, along, strict=True)]))  # noqa: E731
    h = 1e-5
    expected = (8 * (value(h) - value(-h)) - (value(2 * h) - value(-2 * h))) / (12 * h)
    function = lambda *xs: case.function(lax, *xs)  # noqa: E731
    _, tangent = sw.jvp(function, args, along)
    np.testing.assert_allclose(np.asarray(tangent), expected, rtol=2e-8, atol=2e-9)


def test_functions_of_matrices() -> None:
    jax = pytest.importorskip("jax")
    x, t = op_cases.normal(3, 3) / 2, op_cases.normal(3, 3)
    with jax.enable_x64(True):
        theirs = jax.jvp(jax.scipy.linalg.expm, (x,), (t,))[1]
    expm = sw.scipy.linalg.expm
    np.testing.assert_allclose(sw.jvp(expm, (x,), (t,))[1], theirs, rtol=1e-12)
    loss = lambda x: jnp.sum(jnp.sin(expm(x)))  # noqa: E731
    numeric = lambda f, x: (np.asarray(f(x + 1e-5 * t)) - np.asarray(f(x - 1e-5 * t))) / 2e-5  # noqa: E731
    np.testing.assert_allclose(np.sum(sw.grad(loss)(x) * t), numeric(loss, x), rtol=5e-8)
    np.testing.assert_allclose(sw.jvp(sw.grad(loss), (x,), (t,))[1], numeric(sw.grad(loss), x), rtol=5e-7, atol=5e-9)
    definite = x @ x.T + np.eye(3)
    root = lambda x: jnp.real(sw.scipy.linalg.sqrtm(x))  # noqa: E731
    np.testing.assert_allclose(sw.jvp(root, (definite,), (t,))[1], numeric(root, definite), rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(np.sum(sw.grad(lambda x: jnp.sum(root(x) ** 2))(definite) * t), np.trace(t), rtol=1e-12)


REFUSED = {
    "full svd": lambda x: jnp.linalg.svd(x[:, :2])[0],
    "eigenvectors": lambda x: jnp.linalg.eig(x)[1],
    "order of polygamma": lambda x: lax.polygamma(x, x),
    "second derivative in a": lambda x: lax.igamma_grad_a(x, x),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_derivative_says_so(name: str) -> None:
    x = np.abs(op_cases.normal(3, 3)) + 0.1
    with pytest.raises(NotImplementedError, match=r"derivative"):
        sw.jvp(REFUSED[name], (x,), (x,))


# Derivatives far out, where their formulas are differences of large numbers: the first terms of the asymptotic series.
FAR = {
    "log_ndtr": (2, -1.0, lambda x: -1 + x**-2),
    "erfcx": (1, 1.0, lambda x: -(x**-2) / np.sqrt(np.pi) * (1 - 1.5 * x**-2)),
    "dawsn": (1, -1.0, lambda x: -0.5 * x**-2 * (1 + 1.5 * x**-2)),
}


@pytest.mark.parametrize("name", FAR)
def test_slopes_far_out(name: str) -> None:
    order, side, wanted = FAR[name]
    slope = getattr(special, name)
    for _ in range(order):
        slope = sw.grad(slope)
    for size in (1e2, 1e4, 1e9):
        np.testing.assert_allclose(slope(jnp.float32(side * size)), wanted(side * size), rtol=1e-6)
    if name == "log_ndtr":
        assert [float(slope(jnp.float32(x))) for x in (30.0, 1e30, np.inf, -np.inf)] == [0, 0, 0, -1]


_U = lambda low, high: np.linspace(low, high, 5)  # noqa: E731
SCIPY = {
    "expi": _U(0.2, 2), "exp1": _U(0.2, 2), "spence": _U(0.2, 2), "ndtri": _U(0.2, 0.8), "log_ndtr": _U(-2, 2), "gamma": _U(0.5, 3),
    "dawsn": _U(-1, 1), "erfcx": _U(-1, 1), "sici": _U(0.2, 2), "fresnel": _U(0.2, 1), "ndtr": _U(-1, 1), "i0": _U(0.2, 1),
    "poch": (_U(0.5, 2), _U(0.4, 1.9)), "owens_t": (_U(-1, 1), _U(-0.9, 1.2)), "xlogy": (_U(0.2, 1), _U(0.3, 2)),
    "expn": (2.0, _U(0.2, 2)), "hyp1f1": (1.5, 2.5, _U(-1, 1)), "hyp2f1": (1.5, 2.5, 3.0, _U(-0.5, 0.5)),
}  # fmt: skip


@pytest.mark.parametrize("name", SCIPY)
def test_special_functions(name: str) -> None:
    args: Any = SCIPY[name] if isinstance(SCIPY[name], tuple) else (SCIPY[name],)
    smooth = [i for i, a in enumerate(args) if np.ndim(a)]

    def at(h: float, *xs: Any) -> Any:
        full = [a + h if i in smooth else np.full(5, a) for i, a in enumerate(args)]
        for i, x in zip(smooth, xs, strict=False):
            full[i] = x
        return getattr(sw.scipy.special, name)(*full)

    given = tuple(args[i] for i in smooth)
    tangents = sw.tree_util.tree_leaves(sw.jvp(lambda *xs: at(0.0, *xs), given, tuple(np.ones(5) for _ in given))[1])
    h = 1e-4
    rows = [[np.asarray(v) for v in sw.tree_util.tree_leaves(at(s * h))] for s in (-2, -1, 1, 2)]
    for k, tangent in enumerate(tangents):
        far, near = rows[3][k] - rows[0][k], rows[2][k] - rows[1][k]
        np.testing.assert_allclose(np.asarray(tangent), (8 * near - far) / (12 * h), rtol=2e-10, atol=2e-10)


DEVICES = 4


@pytest.mark.parametrize("case", op_cases.CASES[::2], ids=repr)
def test_under_jit_on_shards(case: Case) -> None:
    """Sharding changes no gradient, and each gradient can be laid out as its argument."""
    mesh = sw.make_mesh((DEVICES,), ("x",), axis_types=(sw.sharding.AxisType.Auto,))
    placed, layouts = [], []
    for x in map(np.asarray, case.args):
        dim = next((d for d, n in enumerate(x.shape) if n % DEVICES == 0 and n), None)
        spec = sw.P(*[None] * dim, "x") if dim is not None else sw.P()
        layouts.append(sw.NamedSharding(mesh, spec))
        placed.append(sw.device_put(x, layouts[-1]))
    function = lambda *xs: case.function(lax, *xs)  # noqa: E731

    def gradients(*xs: Any) -> Any:
        out, pull = sw.vjp(function, *xs)
        return pull(weights(out.shape, out.dtype, 5))

    expected = gradients(*map(np.asarray, case.args))
    found = sw.jit(gradients, out_shardings=tuple(layouts))(*placed)
    for ours, theirs, layout in zip(found, expected, layouts, strict=True):
        np.testing.assert_allclose(np.asarray(ours), np.asarray(theirs), rtol=1e-12, atol=1e-12)
        assert ours.sharding == layout


def test_derivatives_at_python_numbers_are_weak_as_these_are() -> None:
    x = np.arange(4.0, dtype=np.float32)
    for slope in (
        sw.grad(lambda w: jnp.sum(w * x))(1.0),
        sw.jit(sw.grad(lambda w: jnp.sum(w * x)))(1.0),
        sw.vjp(lambda w: w * x, 1.0)[1](x)[0],
        sw.jacfwd(lambda w: w * 2)(1.0),
        sw.jacrev(lambda w: w * x)(1.0),
        sw.hessian(lambda w: w**3)(1.0),
    ):
        assert slope.weak_type
    assert not sw.grad(lambda w: jnp.sum(w * x))(np.float32(1)).weak_type


def test_cotangents_through_parts_of_complex_numbers_are_strong() -> None:
    for f in (jnp.real, jnp.imag, jnp.abs, lambda z: jnp.real(z * z)):
        assert not sw.grad(f)(1 + 2j).weak_type
    assert not sw.grad(lambda x: jnp.imag(sw.lax.complex(1.0, x)))(2.0).weak_type
    assert sw.grad(lambda z: z * z, holomorphic=True)(1 + 2j).weak_type


def test_what_is_asked_for_is_checked() -> None:
    with pytest.raises(TypeError, match="callable"):
        sw.grad(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="requires at least 3 positional"):
        sw.grad(lambda x: x, argnums=2)(1.0)
    with pytest.raises(TypeError, match="float0"):
        sw.jvp(lambda x: x, (1,), (1,))
    with pytest.raises(TypeError, match="at"):
        sw.jit(lambda x: x.__setitem__(0, 1))(jnp.ones(2))
    assert isinstance(sw.checkpoint(lambda x: x**2)(2.0), sw.Array)
    assert sw.jit(lambda x: sw.device_get(x))(2.0) == 2


def test_what_a_function_only_hands_on_stays_as_it_was() -> None:
    """JAX gives back the very argument, and constants as the function gave them; only what ops computed is an array."""
    host = np.ones(2, np.float32)
    kinds = lambda tree: [type(x) for x in sw.tree.leaves(tree)]  # noqa: E731
    out, tangent = sw.jvp(lambda x: (x, 2 * x, 3), (1.0,), (0.5,))
    assert kinds(out) == [float, type(jnp.ones(1)), int] and kinds(tangent[:2]) == [float, type(jnp.ones(1))]
    assert sw.jvp(lambda x: x, (host,), (host,))[0] is host
    assert kinds(sw.vjp(lambda x: (x, 1.0, x * 2), 1.0)[0]) == [float, float, type(jnp.ones(1))]
    assert kinds(sw.linearize(lambda x: (x, host), 1.0)[0]) == [float, np.ndarray]
    assert kinds(sw.jit(lambda x: sw.jvp(lambda y: (y, 2.0), (x,), (x,)))(1.0)) == [type(jnp.ones(1))] * 4


def of_an_int(n: Any, x: Any) -> Any:
    return sw.grad(lambda n, x: x * 2.0, (0, 1), allow_int=True)(n, x)


FLOAT0 = np.zeros(3, sw.float0)
TANGENTS_OF_INTEGERS = {
    "grad": (lambda n, x: of_an_int(n[0], x[0])[0], ()),
    "jit": (lambda n, x: sw.jit(of_an_int)(n[0], x[0])[0], ()),
    "vmap": (lambda n, x: sw.vmap(of_an_int)(n, x)[0], (3,)),
    "vmap of jit": (lambda n, x: sw.vmap(sw.jit(of_an_int))(n, x)[0], (3,)),
    "jit of vmap": (lambda n, x: sw.jit(sw.vmap(of_an_int))(n, x)[0], (3,)),
    "handed through": (lambda n, x: sw.vmap(lambda t: t, out_axes=-1)(np.zeros((3, 2), sw.float0)), (2, 3)),
    "jvp": (lambda n, x: sw.vmap(lambda n: sw.jvp(lambda n: n, (n,), (FLOAT0[0],)))(n)[1], (3,)),
    "scan": (lambda n, x: sw.lax.scan(lambda c, n: (c, of_an_int(n, 1.0)[0]), 0.0, n)[1], (3,)),
    "map": (lambda n, x: sw.lax.map(lambda n: of_an_int(n, 1.0)[0], n), (3,)),
    "cond": (lambda n, x: sw.lax.cond(True, lambda: of_an_int(n[0], x[0])[0], lambda: FLOAT0[0]), ()),
    "jacfwd of grad": (
        lambda n, x: sw.jacfwd(lambda x: sw.grad(lambda n: (x * n).sum(), allow_int=True)(n))(x),
        (3, 3),
    ),
}


@pytest.mark.parametrize("name", TANGENTS_OF_INTEGERS)
def test_tangents_of_integers_are_host_arrays(name: str) -> None:
    compute, shape = TANGENTS_OF_INTEGERS[name]
    found = compute(sw.numpy.arange(3), sw.numpy.arange(3.0))
    assert type(found) is np.ndarray
    assert (found.dtype, found.shape) == (sw.float0, shape)
