"""What commutes with sums over devices, and what only seems to."""

from __future__ import annotations

import numpy as np
import pytest

import shardwise.numpy as jnp
from shardwise import lax
from shardwise.ir import ShapedArray, trace_program
from shardwise.passes.partial_sums import is_zero, keeps_sums, summed_operands

FLOAT, INT, BYTE = np.float32, np.int32, np.int8

OPS = {  # by name: a function of a matrix, the matrix's type, and whether its last op commutes with sums of it
    "transpose": (lambda x: x.T, FLOAT, True),
    "negative": (lambda x: -x, FLOAT, True),
    "difference": (lambda x: x - x.T, FLOAT, True),
    "pad with zeros": (lambda x: jnp.pad(x, 1), FLOAT, True),
    "pad with ones": (lambda x: jnp.pad(x, 1, constant_values=1), FLOAT, False),
    "rows from a place on": (lambda x: lax.dynamic_slice_in_dim(x, jnp.argmax(x), 2), FLOAT, True),
    "product": (lambda x: x * x, FLOAT, False),
    "absolute value": (lambda x: abs(x), FLOAT, False),
    "wider float": (lambda x: x.astype(FLOAT), np.float16, True),
    "narrower float": (lambda x: x.astype(np.float16), FLOAT, False),
    "wider integer": (lambda x: x.astype(INT), BYTE, False),
    "unsigned integer": (lambda x: x.astype(np.uint32), INT, True),
    "float of an integer": (lambda x: x.astype(FLOAT), INT, False),
    "fewer bits": (lambda x: lax.reduce_precision(x, 5, 2), FLOAT, False),
}


@pytest.mark.parametrize("name", OPS)
def test_ops_that_commute_with_sums(name):
    f, dtype, commutes = OPS[name]
    program = trace_program(lambda x: [f(x)], [ShapedArray((4, 4), np.dtype(dtype))])[0]
    last = program.equations[-1]
    assert keeps_sums(last) is commutes
    if commutes:
        assert last.inputs[0] in summed_operands(last)


def test_zeros_are_partial_sums():
    program = trace_program(
        lambda x: [jnp.pad(x, 1), jnp.pad(x, 1, constant_values=2)], [ShapedArray((4,), np.dtype(FLOAT))]
    )[0]
    zero, two = [e.inputs[1] for e in program.equations if e.op.name == "pad"]
    assert [is_zero(a) for a in (zero, two, program.inputs[0])] == [True, False, False]
