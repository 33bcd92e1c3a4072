"""Equal equations are partitioned once, if propagation wants their results in the same layout."""

from __future__ import annotations

import numpy as np

import shardwise as sw
from shardwise import lax
from shardwise import numpy as jnp
from shardwise.ir import ShapedArray, trace_program
from shardwise.passes.equals import merge_equal
from shardwise.sharding import Mesh, NamedSharding, PartitionSpec

P = PartitionSpec


def names(equations):
    return [e.op.name for e in equations]


def twice(x):
    return [jnp.sin(x) + lax.mul(jnp.sin(x), jnp.cos(jnp.sin(x)))]


def test_the_first_of_equal_equations_is_left():
    program, *_ = trace_program(twice, [ShapedArray((8,), np.dtype(np.float32))])
    kept, left = merge_equal(program.equations, {})
    assert names(kept) == ["sin", "cos", "mul", "add"]
    assert set(left.values()) == {kept[0].outputs[0]}


def test_results_in_other_layouts_are_computed_for_themselves():
    program, *_ = trace_program(twice, [ShapedArray((8,), np.dtype(np.float32))])
    first, second, third = [e.outputs[0] for e in program.equations if e.op.name == "sin"]
    kept, left = merge_equal(program.equations, {first: (("x",),), second: ((),), third: ((),)})
    assert names(kept).count("sin") == 2
    assert first not in left


def test_what_is_left_is_a_result_like_the_others():
    mesh = Mesh(np.array(sw.devices()[:8]), ("x",))
    x = np.arange(64, dtype=np.float32).reshape(16, 4)

    def f(x):
        return x[1:], x[1:], jnp.sin(x), jnp.sin(x), lax.scan(lambda c, r: (c + r, (c * r, c * r)), x[0], x)

    got = sw.jit(f)(sw.device_put(x, NamedSharding(mesh, P("x"))))
    for a, b in zip(sw.tree.leaves(got), sw.tree.leaves(f(x)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_a_value_looked_up_twice_is_gathered_once():
    """Indices of equal value make equal lookups: the rows of a sorted batch go to their experts and back."""
    mesh = Mesh(np.array(sw.devices()[:8]), ("x",))

    def f(x, w, ids):
        order = jnp.argsort(ids)
        expert, place = ids[order], jnp.arange(128) - jnp.searchsorted(ids[order], ids[order])
        rows = jnp.zeros((8, 64, 16)).at[expert, place].set(x[order], mode="drop")
        return jnp.tanh(rows @ w).at[expert, place].get(mode="fill", fill_value=0)[jnp.argsort(order)]

    x, w = (np.random.default_rng(0).standard_normal(s).astype(np.float32) for s in [(128, 16), (8, 16, 16)])
    ids = np.random.default_rng(1).integers(0, 8, 128).astype(np.int32)
    placed = [sw.device_put(a, NamedSharding(mesh, s)) for a, s in [(x, P("x")), (w, P()), (ids, P("x"))]]
    compiled = sw.jit(f).lower(*placed).compile()
    np.testing.assert_allclose(compiled(*placed), f(x, w, ids), rtol=5e-5, atol=1e-5)
    gathered = [t.value for t in compiled.runtime_executable().transfers if t.kind == "all_gather" and t.bytes > 4096]
    assert gathered == ["f32[128,16]"]
