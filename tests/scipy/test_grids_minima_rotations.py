"""Interpolation on grids, minimization and rotations, beside SciPy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.interpolate
import scipy.optimize
import scipy.spatial.transform

import shardwise as sw
import shardwise.numpy as jnp
from shardwise.experimental import enable_x64
from shardwise.scipy.cluster.vq import vq
from shardwise.scipy.interpolate import RegularGridInterpolator
from shardwise.scipy.optimize import minimize
from shardwise.scipy.spatial.transform import Rotation, Slerp

RNG = np.random.default_rng(5)
GRID = (np.array([0.0, 1.0, 3.0]), np.array([0.0, 0.5, 1.0, 4.0]))
VALUES = RNG.standard_normal((3, 4, 2))
POINTS = RNG.uniform(-1, 4, (7, 2))
QUATS = RNG.standard_normal((5, 4))
VECTORS = RNG.standard_normal((5, 3))


@pytest.fixture(autouse=True)
def double_precision():
    with enable_x64():
        yield


@pytest.mark.parametrize("method", ["linear", "nearest"])
@pytest.mark.parametrize("fill", [np.nan, None, 2.5])
def test_interpolation(method: str, fill: Any) -> None:
    theirs = scipy.interpolate.RegularGridInterpolator(GRID, VALUES, method, bounds_error=False, fill_value=fill)
    ours = RegularGridInterpolator(GRID, VALUES, method, fill_value=fill)
    np.testing.assert_allclose(np.asarray(ours(POINTS)), theirs(POINTS), rtol=1e-12)
    columns = (POINTS[:, 0], POINTS[:, 1])
    np.testing.assert_allclose(np.asarray(sw.jit(lambda g, x: g(x))(ours, columns)), theirs(columns), rtol=1e-12)


def test_interpolation_refuses_and_has_derivatives() -> None:
    with pytest.raises(ValueError, match="'cubic' is not defined"):
        RegularGridInterpolator(GRID, VALUES, "cubic")
    with pytest.raises(ValueError, match="values has 1 dimensions"):
        RegularGridInterpolator(GRID, VALUES[0, :, 0])
    with pytest.raises(ValueError, match="dimension 3"):
        RegularGridInterpolator(GRID, VALUES)(np.zeros((2, 3)))
    inside = np.array([[0.5, 0.25]])
    weights = sw.grad(lambda v: RegularGridInterpolator(GRID, v)(inside).sum())(VALUES)
    np.testing.assert_allclose(np.asarray(weights)[:2, :2], 0.25, rtol=1e-12)


def rosenbrock(x):
    return jnp.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


def test_minimization() -> None:
    found = sw.jit(lambda x: minimize(rosenbrock, x, method="BFGS"))(jnp.zeros(4))
    assert bool(found.success) and int(found.status) == 0
    np.testing.assert_allclose(np.asarray(found.x), np.ones(4), rtol=1e-6)
    theirs = scipy.optimize.minimize(scipy.optimize.rosen, np.zeros(4), method="BFGS")
    assert int(found.nit) <= 2 * theirs.nit
    early = minimize(
        lambda x, a: jnp.sum((x - a) ** 4), jnp.zeros(3), (jnp.arange(3.0),), method="bfgs", options={"maxiter": 2}
    )
    assert (int(early.nit), int(early.status), bool(early.success)) == (2, 1, False)
    starts = jnp.asarray([[0.0, 0.0], [2.0, 1.0], [-1.0, 0.5]])
    many = sw.vmap(lambda x: minimize(rosenbrock, x, method="BFGS").x)(starts)
    np.testing.assert_allclose(np.asarray(many), 1, rtol=1e-5)
    with pytest.raises(ValueError, match="Nelder not recognized"):
        minimize(rosenbrock, starts[0], method="Nelder")
    with pytest.raises(TypeError, match="must be a tuple"):
        minimize(rosenbrock, starts[0], 3, method="BFGS")  # type: ignore[arg-type]


LBFGS = "l-bfgs-experimental-do-not-rely-on-this"


def test_minimization_with_limited_memory() -> None:
    """Equal steps to JAX's where its line search goes on."""
    bowl = lambda lib: lambda x: lib.sum((x - 1) ** 2 * lib.arange(1.0, 4.0))  # noqa: E731
    jax = pytest.importorskip("jax")
    theirs = pytest.importorskip("jax.scipy.optimize").minimize
    start = np.zeros(3, np.float32)
    ours, want = minimize(bowl(jnp), jnp.asarray(start), method=LBFGS), theirs(bowl(jax.numpy), start, method=LBFGS)
    assert [int(ours.nit), int(ours.nfev), int(ours.njev), int(ours.status)] == [
        int(want.nit), int(want.nfev), int(want.njev), int(want.status)
    ]  # fmt: skip
    assert bool(ours.success) and ours.hess_inv is None and want.hess_inv is None
    np.testing.assert_allclose(np.asarray(ours.x), np.ones(3), atol=2e-6)

    found = sw.jit(lambda x: minimize(rosenbrock, x, method=LBFGS))(jnp.zeros(4))
    assert int(found.status) in (
        0,
        4,
    )  # 4: in double precision the last step falls by less than ftol before the gradient is small
    np.testing.assert_allclose(np.asarray(found.x), np.ones(4), rtol=1e-5)
    few = minimize(rosenbrock, jnp.zeros(4), method=LBFGS, options={"maxcor": 2, "maxiter": 3})
    assert (int(few.nit), int(few.status), bool(few.success)) == (4, 1, False)
    stopped = minimize(rosenbrock, jnp.zeros(4), method=LBFGS, options={"maxfun": 4})
    assert int(stopped.status) == 2 and 4 <= int(stopped.nfev) < 20


@pytest.mark.parametrize("seq", ["xyz", "ZYX", "zxz", "YXY"])
def test_euler_angles(seq: str) -> None:
    theirs = scipy.spatial.transform.Rotation
    np.testing.assert_allclose(
        np.asarray(Rotation.from_euler(seq, VECTORS).as_matrix()),
        theirs.from_euler(seq, VECTORS).as_matrix(),
        atol=1e-12,
    )
    np.testing.assert_allclose(
        np.asarray(Rotation.from_quat(QUATS).as_euler(seq, degrees=True)),
        theirs.from_quat(QUATS).as_euler(seq, True),
        rtol=5e-12,
    )


def test_rotations() -> None:
    theirs, ours = scipy.spatial.transform.Rotation.from_quat(QUATS), Rotation.from_quat(QUATS)
    for one, other in [
        (ours.as_matrix(), theirs.as_matrix()),
        (ours.as_rotvec(), theirs.as_rotvec()),
        (ours.as_mrp(), theirs.as_mrp()),
        (ours.magnitude(), theirs.magnitude()),
        (ours.apply(VECTORS, inverse=True), theirs.apply(VECTORS, inverse=True)),
        ((ours * Rotation(ours.inv().quat[::-1])).as_matrix(), (theirs * theirs.inv()[::-1]).as_matrix()),
        (ours.mean(np.arange(5)).as_matrix(), theirs.mean(np.arange(5)).as_matrix()),
        (Rotation.from_matrix(ours.as_matrix()).as_quat(canonical=True), theirs.as_quat(canonical=True)),
        (Rotation.from_rotvec(1e-5 * VECTORS).as_rotvec(), 1e-5 * VECTORS),
        (Rotation.from_mrp(ours.as_mrp()).as_matrix(), theirs.as_matrix()),
    ]:
        np.testing.assert_allclose(np.asarray(one), other, rtol=2e-12, atol=1e-12)
    times = np.array([0, 0.5, 1.2, 3.9])
    between = scipy.spatial.transform.Slerp(np.arange(5), theirs)(times).as_matrix()
    np.testing.assert_allclose(
        np.asarray(Slerp.init(np.arange(5), ours)(times).as_matrix()), between, atol=1e-12, rtol=1e-12
    )
    assert np.all(np.isfinite(np.asarray(sw.jacrev(lambda v: Rotation.from_rotvec(v).as_matrix())(jnp.zeros(3)))))
    with pytest.raises(TypeError, match="not subscriptable"):
        ours[0][0]
    with pytest.raises(ValueError, match="consecutive axes"):
        Rotation.from_euler("xx", VECTORS[0, :2])


def test_under_strict_promotion() -> None:
    """Inside of the functions no dtype and no rank is promoted."""
    quat = np.array([[0, 0, 0.6, 0.8], [0, 0.6, 0, 0.8]], np.float32)
    ours, theirs = Rotation.from_quat(quat), scipy.spatial.transform.Rotation.from_quat(quat)
    points = np.arange(6, dtype=np.int32).reshape(2, 3)
    with sw.numpy_dtype_promotion("strict"), sw.numpy_rank_promotion("raise"):
        np.testing.assert_allclose(Rotation.from_matrix(ours.as_matrix()).as_quat(), quat, atol=1e-6)
        np.testing.assert_allclose(ours.inv().as_quat(), theirs.inv().as_quat(), atol=1e-6)
        np.testing.assert_allclose(ours.mean().as_matrix(), theirs.mean().as_matrix(), atol=1e-6)
        turned = Slerp.init(jnp.arange(2.0), ours)(jnp.array([0.5]))
        code, distance = vq(points, points)
        target = jnp.asarray([1 + 2j, 3j], jnp.complex64)
        lowest = minimize(lambda z: jnp.sum(jnp.abs(z - target) ** 2), jnp.zeros(2, jnp.complex64), method=LBFGS)
    np.testing.assert_allclose(np.asarray(lowest.x), np.asarray(target), atol=1e-5)
    np.testing.assert_allclose(
        turned.as_matrix(), scipy.spatial.transform.Slerp([0, 1], theirs)([0.5]).as_matrix(), atol=1e-6
    )
    np.testing.assert_array_equal(code, [0, 1])
    np.testing.assert_array_equal(distance, [0, 0])
