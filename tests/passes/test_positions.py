"""Values that the mesh axes do not divide lie in their frames where the whole program sends least."""

from __future__ import annotations

import numpy as np
import pytest

import shardwise as sw
from shardwise import numpy as jnp
from shardwise.ir import ShapedArray, Var, trace_program
from shardwise.passes.positions import positions_of
from shardwise.sharding import Mesh, NamedSharding, PartitionSpec

P = PartitionSpec
N = 64


def variation(x):
    """The isotropic total variation of an image: differences along both dims meet in one root."""
    down, right = x[1:, :-1] - x[:-1, :-1], x[:-1, 1:] - x[:-1, :-1]
    return jnp.sum(jnp.sqrt(down * down + right * right + 1e-6))


def variation_of_three(x):
    corner = x[:-1, :-1, :-1]
    steps = x[1:, :-1, :-1], x[:-1, 1:, :-1], x[:-1, :-1, 1:]
    return jnp.sum(jnp.sqrt(sum((s - corner) ** 2 for s in steps) + 1e-6))


def on_grid(shape, mesh, *spec):
    rng = np.random.default_rng(0)
    return sw.device_put(rng.standard_normal(shape).astype(np.float32), NamedSharding(mesh, P(*spec)))


@pytest.mark.parametrize(
    "f, shape, axes, rims",
    [
        (sw.grad(variation), (N, N), (4, 2), 2 * (N // 2 + N // 4)),  # a row of x, a row of its cotangent; along both dims
        (sw.grad(variation), (N, N), (8,), 2 * N),
        (sw.grad(variation_of_three), (16, 16, 16), (2, 2, 2), 6 * 64),
        (variation, (N, N), (4, 2), N // 2 + N // 4),
    ],
)  # fmt: skip
def test_differences_that_meet_send_a_row_each(f, shape, axes, rims):
    mesh = Mesh(np.array(sw.devices()[:8]).reshape(axes), ("x", "y", "z")[: len(axes)])
    x = on_grid(shape, mesh, *mesh.axis_names)
    compiled = sw.jit(f).lower(x).compile()
    sent = sum(t.total for t in compiled.runtime_executable().transfers if t.kind == "permute")
    assert sent <= 4 * rims
    np.testing.assert_allclose(compiled(x), f(np.asarray(x)), rtol=5e-5, atol=5e-5)


def cut_apart(x):
    """Two rows are aligned with row 0 of x and one with row 1; a value that alone is padded may lie anywhere."""
    near = jnp.tanh(x[1:, 1:]) + jnp.sin(x[:-1, 1:])
    return near, jnp.exp(near) * x[:-1, :-1], jnp.pad(near, ((0, 1), (1, 0)))


def test_a_band_lies_where_it_sends_least():
    program, _ = trace_program(cut_apart, [ShapedArray((N, N), np.dtype(np.float32))])
    x, last = program.inputs[0], program.outputs[2]
    assert isinstance(last, Var)
    positions = positions_of(program.equations, {x: (("x",), ("y",)), last: (("x",), ("y",))})
    assert [[positions.low(v, d) for d in (0, 1)] for v in (x, *program.outputs)] == [[0, 0], [0, 1], [0, 1], [0, 0]]


def test_values_that_are_not_split_have_no_position():
    program, _ = trace_program(cut_apart, [ShapedArray((N, N), np.dtype(np.float32))])
    assert positions_of(program.equations, {}).low(program.outputs[0], 0) is None
