"""Equations on dims apart: each gives, reshaped, what the equation gives on merged dims; those that need these give None."""

import math

import numpy as np
import pytest

import shardwise as jax
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.ir import Equation, Literal, Program, ShapedArray, Var, trace_program
from shardwise.passes.dim_groups import equation_apart, is_merged, merged_groups, sizes
from shardwise.runtime.env import Env
from shardwise.runtime.plan import Plan

MERGED = ((2, 3), (4,))  # f32[6, 4]
PLACES = np.array([[1], [0], [3], [2], [1], [9]], np.int32)
RNG = np.random.default_rng(3)
WHOLE = RNG.normal(size=(6, 4)).astype(np.float32)

GIVE = {
    "elementwise": lax.tanh,
    "stretched rows": lambda x: lax.mul(x, lax.iota(np.float32, 4)[None]),
    "sum along the merged dim": lambda x: lax.reduce_sum(x, (0,)),
    "max along the other": lambda x: lax.reduce_max(x, (1,)),
    "place of the max": lambda x: lax.argmax(x, 1, np.int32),
    "transposed": lambda x: lax.transpose(x, (1, 0)),
    "split": lambda x: lax.reshape(x, (2, 3, 4)),
    "split further": lambda x: lax.reshape(x, (2, 3, 2, 2)),
    "merged further": lambda x: lax.reshape(x, (24,)),
    "a dim of size 1": lambda x: lax.reshape(x, (6, 1, 4)),
    "stretched": lambda x: lax.broadcast_in_dim(x, (6, 5, 4), (0, 2)),
    "slice of the other dim": lambda x: lax.slice(x, (0, 1), (6, 4), (1, 2)),
    "padded": lambda x: lax.pad(x, np.float32(7), ((0, 0, 0), (1, 2, 1))),
    "joined": lambda x: lax.concatenate([x, x], 1),
    "elements of rows": lambda x: jnp.take_along_axis(x, PLACES, 1, mode="fill"),
    "a column, read": lambda x: x[:, jnp.asarray(2)],
    "a column, written": lambda x: lax.scatter_add(
        x, jnp.array([1]), jnp.full(6, 2.0), lax.ScatterDimensionNumbers((0,), (1,), (1,))
    ),
    "rows of a table": lambda x: jnp.asarray(WHOLE)[lax.convert_element_type(x, np.int32)],
    "product": lambda x: lax.dot_general(x, x, (((0,), (0,)), ((), ()))),
    "product of rows": lambda x: lax.dot_general(x, x, (((1,), (1,)), ((0,), (0,)))),
    "product of all pairs": lambda x: lax.dot_general(x, x, (((1,), (1,)), ((), ()))),
}
NONE = {
    "slice": lambda x: lax.slice(x, (1, 0), (4, 4)),
    "padded": lambda x: lax.pad(x, np.float32(0), ((1, 0, 0), (0, 0, 0))),
    "joined": lambda x: lax.concatenate([x, x], 0),
    "place of the max": lambda x: lax.argmax(x, 0, np.int32),
    "other dims": lambda x: lax.reshape(x, (3, 8)),
    "sorted": lambda x: lax.sort(x, dimension=0),
    "sum so far": lambda x: lax.cumsum(x, 0),
    "rows, read": lambda x: x[jnp.asarray([1, 2])],
    "two results": lambda x: lax.top_k(x, 2),
}


def reader(f):
    """The first equation of `f` that reads its argument, and the values of its operands."""
    program, consts = trace_program(lambda x: jax.tree.leaves(f(x)), [ShapedArray((6, 4), WHOLE.dtype)])
    x = program.inputs[-1]
    place = next(i for i, e in enumerate(program.equations) if x in e.inputs)
    eqn = program.equations[place]
    before = Program(program.inputs, program.equations[:place], eqn.inputs, 0, "f")
    return x, eqn, [np.asarray(v) for v in Plan(before, Env()).run(*map(np.asarray, consts), WHOLE)]


def outcome(eqn, values):
    """The result of an equation of operands."""
    inputs = tuple([Var(a.aval) for a in eqn.inputs])
    program = Program(inputs, (Equation(eqn.op, inputs, eqn.outputs, eqn.params),), eqn.outputs, 0, "f")
    return np.asarray(Plan(program, Env()).run(*values)[0])


@pytest.mark.parametrize("f", GIVE.values(), ids=GIVE)
def test_an_equation_gives_the_same_on_dims_apart(f):
    x, eqn, values = reader(f)
    apart = equation_apart(eqn, [MERGED if a is x else None for a in eqn.inputs])
    assert apart is not None
    assert next(g for a, g in zip(eqn.inputs, apart.operands, strict=True) if a is x) == MERGED
    inputs = [
        a if isinstance(a, Literal) else Var(a.aval.update(shape=sizes(g)))
        for a, g in zip(eqn.inputs, apart.operands, strict=True)
    ]
    (out,) = eqn.outputs
    result = Var(out.aval.update(shape=sizes(apart.result)))
    values_apart = [v.reshape(sizes(g)) for v, g in zip(values, apart.operands, strict=True)]
    made = outcome(Equation(eqn.op, tuple(inputs), (result,), apart.params), values_apart)
    assert tuple(map(math.prod, apart.result)) == out.aval.shape
    assert made.shape == sizes(apart.result)
    np.testing.assert_allclose(made.reshape(out.aval.shape), outcome(eqn, values), rtol=1e-6)


@pytest.mark.parametrize("f", NONE.values(), ids=NONE)
def test_an_equation_that_needs_the_merged_dim(f):
    x, eqn, _ = reader(f)
    assert equation_apart(eqn, [MERGED if a is x else None for a in eqn.inputs]) is None


@pytest.mark.parametrize(("shape", "merged", "groups"), [
    ((2, 3, 4), (6, 4), ((2, 3), (4,))),
    ((2, 1, 3), (6, 1), ((2, 3), (1,))),
    ((1, 4), (4,), ((4,),)),
    ((4, 6), (3, 8), None),
    ((6,), (2, 3), None),
])  # fmt: skip
def test_dims_that_a_reshape_merges(shape, merged, groups):
    assert merged_groups(shape, merged) == groups
    assert groups is None or is_merged(groups) == any(len(g) > 1 for g in groups)


def test_the_groups_of_a_result_say_those_of_its_operands():
    _, eqn, _ = reader(lambda x: lax.broadcast_in_dim(x, (6, 5, 4), (0, 2)))
    apart = equation_apart(eqn, [None], ((3, 2), (5,), (4,)))
    assert apart is not None
    assert apart.operands == (((3, 2), (4,)),)
    assert apart.params["broadcast_dimensions"] == (0, 1, 3)
