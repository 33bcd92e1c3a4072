"""Products in groups: one product per group, or masked ones for compilers that have no kernel for groups."""

from __future__ import annotations

import numpy as np
import pytest

import shardwise as jax
from shardwise import lax
from shardwise.ir import verify
from shardwise.plan import plan
from shardwise.planner.expand import expand_equations
from shardwise.planner.flops import product_of, work_of
from shardwise.planner.masks import with_masked_products
from shardwise.planner.target import CPU_XLA, GPU, HERE, TPU
from shardwise.runtime.env import SINGLE
from shardwise.runtime.plan import kernel_of
from tests.planner.device_programs import array, program_of

FORMS = {  # shapes of lhs and rhs, dimension numbers, sizes
    "rows": ((6, 4), (3, 4, 5), ((((1,), (1,)), ((), ())), [0], [0]), [2, 0, 3]),
    "rows in a batch": ((2, 6, 4), (3, 2, 4, 5), ((((2,), (2,)), ((0,), (1,))), [1], [0]), [[2, 0, 3], [1, 1, 4]]),
    "contracted": ((6, 4), (6, 5), ((((0,), (0,)), ((), ())), [0], []), [2, 0, 3]),
    "contracted in sums": ((6, 2, 4), (2, 6, 5), ((((1, 0), (0, 1)), ((), ())), [0], []), [[2, 0, 3], [1, 1, 4]]),
    "batch": ((6, 4), (6, 4, 5), ((((1,), (1,)), ((0,), (0,))), [0], []), [2, 0, 3]),
}


def program_for(name):
    left, right, given, sizes = FORMS[name]
    numbers = lax.RaggedDotDimensionNumbers(*given)
    types = array(*left), array(*right), array(*np.shape(sizes), dtype="int32")
    return program_of(lambda a, b, s: [lax.ragged_dot_general(a, b, s, numbers)], *types)


def evaluated(program, values):
    known = dict(zip(program.inputs, values, strict=True))
    for eqn in program.equations:
        out = kernel_of(eqn, SINGLE)(*[known[a] if a in known else np.asarray(a.value) for a in eqn.inputs])
        known.update(zip(eqn.outputs, out if eqn.op.multiple_results else [out], strict=True))
    return [known[a] for a in program.outputs]


@pytest.mark.parametrize("name", FORMS)
def test_masked_products_are_the_same_with_all_groups_operations(name):
    program, (left, right, _, sizes) = program_for(name), FORMS[name]
    found = verify(with_masked_products(program, GPU))
    rng = np.random.default_rng(0)
    values = [*(rng.integers(-3, 4, s).astype(np.float32) for s in (left, right)), np.array(sizes, np.int32)]
    np.testing.assert_array_equal(evaluated(found, values)[0], evaluated(program, values)[0])
    own, masked = work_of(program.equations).product_flops, work_of(found.equations).product_flops
    assert masked == own * (1 if name == "batch" else 3)
    assert (found is program) == (name == "batch")
    for target in (TPU, HERE):
        assert with_masked_products(program, target) is program
    assert (with_masked_products(program, CPU_XLA) is program) == (name == "batch")
    assert expand_equations(program, lambda eqn: None) is program


def test_a_product_per_group():
    (rows,), (sums,) = program_for("rows").equations, program_for("contracted").equations
    found = product_of(rows)
    assert (found.batch, found.m, found.n, found.k, found.flops) == (3, 2, 5, 4, 2 * 6 * 4 * 5)
    found = product_of(sums)
    assert (found.batch, found.m, found.n, found.k, found.flops) == (3, 4, 5, 2, 2 * 6 * 4 * 5)


def test_costs_and_plans():
    types = [jax.ShapeDtypeStruct(s, t) for s, t in (((256, 64), "float32"), ((8, 64, 32), "float32"), ((8,), "int32"))]
    once = 2 * 256 * 64 * 32
    assert jax.jit(lax.ragged_dot).lower(*types).compile().cost_analysis()["flops"] == once
    for machine, flops in (("v5e-4", once), ("h100", 8 * once)):
        found = plan(jax.jit(lax.ragged_dot), *types, on=machine).flops
        assert found == flops, machine
