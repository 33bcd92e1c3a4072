"""Products that sum over nothing."""

from __future__ import annotations

import numpy as np
import pytest

import shardwise.numpy as jnp
from shardwise import lax
from shardwise.ir import verify
from shardwise.planner.outer_products import with_outer_products
from shardwise.planner.target import GPU, HERE, TPU
from shardwise.runtime.env import SINGLE
from shardwise.runtime.plan import kernel_of
from tests.planner.device_programs import array, program_of

CASES = {
    "outer": (jnp.outer, [array(3), array(4)]),
    "column and row": (lambda x, y: x @ y, [array(3, 1), array(1, 4)]),
    "batch": (lambda x, y: jnp.einsum("bi,bj->bij", x, y), [array(2, 3), array(2, 4)]),
    "batch behind": (lambda x, y: jnp.einsum("ib,jb->ijb", x, y), [array(3, 2), array(4, 2)]),
    "narrow": (
        lambda x, y: lax.dot(x, y, preferred_element_type="float32"),
        [array(3, 1, dtype="bfloat16"), array(1, 4, dtype="bfloat16")],
    ),
}


def evaluated(program, values):
    known = dict(zip(program.inputs, values, strict=True))
    for eqn in program.equations:
        out = kernel_of(eqn, SINGLE)(*[known[a] for a in eqn.inputs])
        known.update(zip(eqn.outputs, out if eqn.op.multiple_results else [out], strict=True))
    return [known[a] for a in program.outputs]


@pytest.mark.parametrize("case", CASES)
def test_they_are_multiplications(case):
    f, types = CASES[case]
    program = program_of(lambda x, y: [f(x, y)], *types)
    found = verify(with_outer_products(program, GPU))
    assert not any(e.op.product for e in found.equations)
    values = [np.random.default_rng(0).standard_normal(t.shape).astype(t.dtype) for t in types]
    for one, other in zip(evaluated(found, values), evaluated(program, values), strict=True):
        np.testing.assert_array_equal(one, other)


def test_others_stay_and_our_engine_multiplies_by_its_own_rules():
    sums = program_of(lambda x, y: [x @ y], array(3, 2), array(2, 4))
    assert with_outer_products(sums, TPU) is sums
    outer = program_of(lambda x, y: [jnp.outer(x, y)], array(3), array(4))
    assert with_outer_products(outer, HERE) is outer
