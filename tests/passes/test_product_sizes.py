"""Sizes of products: one count, by which devices' work is compared and plans are made."""

from __future__ import annotations

import numpy as np
import pytest

import shardwise.numpy as jnp
from shardwise import lax
from shardwise.ir import ShapedArray, trace_program
from shardwise.passes import device_work, sizes_of_product
from shardwise.planner import product_flops_of
from shardwise.runtime import costs


def floats(*shape):
    return ShapedArray(shape, np.dtype(np.float32))


@pytest.mark.parametrize(
    ("f", "types", "want"),
    [
        (jnp.matmul, (floats(2, 3, 5), floats(2, 5, 7)), (2, 3, 7, 5)),
        (lambda x, w: lax.dot_general(x, w, (((2,), (0,)), ((), ()))), (floats(2, 3, 5), floats(5, 7)), (1, 6, 7, 5)),
        (lambda x, w: lax.conv(x, w, (1, 1), "VALID"), (floats(2, 3, 8, 8), floats(5, 3, 3, 3)), (1, 72, 5, 27)),
        (lambda x, w: lax.ragged_dot(x, w, jnp.array([2, 2, 2, 2])), (floats(8, 5), floats(4, 5, 7)), (4, 2, 7, 5)),
    ],
    ids=["batch", "two dims", "convolution", "groups"],
)
def test_sizes(f, types, want):
    program, _ = trace_program(lambda *xs: [f(*xs)], types)
    (eqn,) = [e for e in program.equations if e.op.product]
    sizes = sizes_of_product(eqn.op, tuple([a.aval for a in eqn.inputs]), eqn.outputs[0].aval, eqn.params)
    assert sizes == want
    assert product_flops_of(program) == 2 * sizes.multiplications
    made_bytes = sum(v.aval.nbytes for e in program.equations for v in e.outputs if not e.op.view)
    assert device_work(program) == pytest.approx(
        made_bytes / costs.MADE_PER_SENT + sizes.multiplications / costs.MULTIPLIED_PER_SENT
    )
