"""Decompositions of a few small matrices, which are called as machine code: at once, or from some call on where the bits stay."""

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.runtime import costs

SHAPES = [(3, 3), (25, 25), (2, 4, 4)]


def kernels(f, *args):
    """The ops of the program that runs, and whether it waits for some calls before it is compiled."""
    equations = sw.jit(f).lower(*args).compile().runtime_executable().plan.program.equations
    return [(e.op.name, e.params.get("patient")) for e in equations]


def solve_column(a, b):
    return lax.linalg.triangular_solve(a, b[:, None], left_side=True)[:, 0]


def matrices(shape, dtype, odd=None):
    rng = np.random.default_rng(len(shape) + shape[-1])
    x = rng.normal(size=shape) + (1j * rng.normal(size=shape) if dtype.startswith("complex") else 0)
    if odd is not None:
        x[..., 0, shape[-1] - 1] = odd
    return x.astype(dtype)


def bits(values):
    return [np.asarray(v).tobytes() for v in values]


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64"])
@pytest.mark.parametrize("f", [jnp.linalg.qr, jnp.linalg.eigh, jnp.linalg.eig], ids=["qr", "eigh", "eig"])
def test_compiled_decompositions_have_the_bits_of_the_kernels(f, dtype):
    """Those of finite matrices, and of others, at the calls before and after compilation."""
    with sw.enable_x64(dtype == "float64"):
        for shape in [*SHAPES, *([(40, 6), (4, 9)] if f is jnp.linalg.qr else [])]:
            run = sw.jit(f)
            given = [matrices(shape, dtype, odd) for odd in (None, np.nan, np.inf)]
            before = [bits(run(x)) for x in given]
            for _ in range(costs.SMALL_PATIENCE):
                run(given[0])
            assert [bits(run(x)) for x in given] == before, shape


@pytest.mark.parametrize("f", [jnp.linalg.qr, jnp.linalg.eigh], ids=["qr", "eigh"])
def test_matrices_of_all_devices_count(f):
    """What the kernel does depends on the whole stack, which has more matrices than a device's part of it."""
    n = sw.device_count()
    run = sw.jit(sw.shard_map(f, mesh=sw.make_mesh((n,), ("x",)), in_specs=sw.P("x"), out_specs=sw.P("x")))
    for matrices_of_device in (1, 4):
        x = matrices((matrices_of_device * n, 6, 6), "float32")
        before = bits(run(x))
        for _ in range(costs.SMALL_PATIENCE):
            run(x)
        assert bits(run(x)) == before


@pytest.mark.parametrize(
    ("f", "shapes", "expected"),
    [
        (jnp.linalg.qr, [(100, 8)], [("small", True)]),
        (jnp.linalg.qr, [(8, 16, 16)], [("small", True)]),
        (jnp.linalg.qr, [(17, 6, 6)], [("qr", None)]),  # the kernel computes stacks in float64
        (jnp.linalg.qr, [(64, 64)], [("qr", None)]),  # large enough for threads
        (lambda x: jnp.linalg.eigh(x, symmetrize_input=False), [(16, 16)], [("small", True)]),
        (lambda a, b: lax.linalg.triangular_solve(a, b, left_side=True), [(16, 8, 8), (16, 8, 2)], [("small", False)]),
        (
            lambda a, b: lax.linalg.triangular_solve(a, b, left_side=True),
            [(8, 8), (8, 2)],
            [("triangular_solve", None)],
        ),
        (sw.vmap(jnp.linalg.qr), [(8, 16, 16)], [("small", True)]),
        (sw.vmap(solve_column), [(64, 12, 12), (64, 12)], [("small", False)]),
        (
            sw.vmap(solve_column, (None, 0)),
            [(12, 12), (64, 12)],
            [("broadcast_in_dim", None), ("vmapped", None), ("squeeze", None)],
        ),
    ],
)
def test_which_decompositions_are_compiled(f, shapes, expected):
    """Where the kernel has the same bits it runs first; few calls of it are left to it, too."""
    assert kernels(f, *[matrices(s, "float32") for s in shapes]) == expected


def test_few_triangular_systems_are_solved():
    a, b = matrices((5, 7, 7), "float32") + 7 * np.eye(7, dtype=np.float32), matrices((5, 7, 2), "float32")
    for lower in (True, False):
        x = lax.linalg.triangular_solve(a, b, left_side=True, lower=lower)
        solved = sw.jit(lambda a, b, lower=lower: lax.linalg.triangular_solve(a, b, left_side=True, lower=lower))(a, b)
        expected = np.linalg.solve((np.tril if lower else np.triu)(a).astype(np.float64), b)
        for found in (x, solved):
            np.testing.assert_allclose(found, expected, rtol=2e-5, atol=1e-6)
