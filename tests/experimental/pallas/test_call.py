"""`pallas_call`: what it refuses, what it takes, and where it runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import shardwise as jax
import shardwise.numpy as jnp
from shardwise.base.config import use_dialect
from shardwise.experimental import pallas as pl
from shardwise.experimental.pallas import tpu as pltpu
from shardwise.sharding import Mesh, NamedSharding
from shardwise.sharding import PartitionSpec as P

X = np.arange(8, dtype=np.float32)
OUT = jax.ShapeDtypeStruct((8,), np.float32)
HALF = pl.BlockSpec((4,), lambda i: (i,))


def double(x_ref, o_ref):
    o_ref[...] = x_ref[...] * 2


def nothing(x_ref, o_ref):
    pass


def captured(x_ref, o_ref):
    o_ref[...] = x_ref[...] + X


def returned(x_ref, o_ref):
    return x_ref[...]


def second_axis(x_ref, o_ref):
    o_ref[...] = x_ref[...] * pl.program_id(1)


def spec(index_map, block=(4,)) -> dict[str, Any]:
    return {"grid": (2,), "in_specs": [pl.BlockSpec(block, index_map)], "out_specs": HALF}


@pytest.mark.parametrize(
    ("kernel", "options", "said"),
    [
        (captured, {}, r"captured captures constants \[f32\[8\]\]. You should pass them as inputs"),
        (returned, {}, "returned should return None"),
        (second_axis, {"grid": (2,)}, r"Axis 1 is out of bounds for grid \(2,\)"),
        (double, spec(lambda i: (i, 0), (4, 1)), r"args\[0\].* same number of dimensions as the array shape \(8,\)"),
        (double, spec(lambda i: (i, 0)), r"for args\[0\] must return 1 values.*Currently returning 2"),
        (double, spec(lambda i: 1.0), r"for args\[0\] must return integer scalars"),
        (double, spec(lambda i: jnp.asarray(X)[0].astype(int)), r"must not capture constants: \[f32\[8\]\]"),
        (double, spec(lambda i: i, (object(),)), "Unsupported block dimension type"),
        (double, {"grid": (2,), "in_specs": [HALF, HALF]}, "Pytree for `in_specs` and `inputs` do not match.*tuple of length 2"),
        (double, {"grid": (2,), "in_specs": HALF}, "`in_specs` must be a tuple or a list"),
        (double, {"grid": ("x",)}, "Grid must be a tuple of integers"),
        (double, {"grid": (2,), "out_specs": (HALF, HALF)}, "Pytree for `out_specs` and `out_shape`"),
        (double, {"grid": (2,), "grid_spec": pl.GridSpec(grid=(2,))}, r"then `grid` must be `\(\)`"),
        (nothing, {"input_output_aliases": {1: 0}}, r"input index 1 outside the range \[0, 1\)"),
        (nothing, {"input_output_aliases": {0: 2}}, r"output index 2 outside the range \[0, 1\)"),
    ],
)  # fmt: skip
def test_mistakes_are_named(kernel, options, said):
    with pytest.raises(ValueError, match=f"(?s){said}"):
        pl.pallas_call(kernel, OUT, **options)(X)


def test_aliases_of_another_type_are_named():
    with pytest.raises(ValueError, match=r"'0:0' referring to input\[0\].*to output with a different"):
        pl.pallas_call(nothing, jax.ShapeDtypeStruct((3,), np.float32), input_output_aliases={0: 0})(X)


@pytest.mark.parametrize("block", [(pl.BoundedSlice(4),), (pl.Indirect(4),)])
def test_dims_that_are_not_interpreted(block):
    with pytest.raises(NotImplementedError, match=r"args\[0\] has the block dim.*Use pl\.Element"):
        pl.pallas_call(double, OUT, **spec(lambda i: (i,), block))(X)


def test_memory_without_a_value_to_show():
    with pytest.raises(NotImplementedError, match="memory of complex64 that is not written yet"):
        pl.pallas_call(nothing, jax.ShapeDtypeStruct((3,), np.complex64))(X)


def test_outside_of_kernels():
    for function in (pl.program_id, pl.num_programs):
        with pytest.raises(AssertionError, match="outside of a kernel"):
            function(0)


def test_what_only_such_a_machine_gives_a_meaning():
    for call in (*(getattr(pl, name) for name in ("core_map", "kernel")), pltpu.emit_pipeline, pltpu.prng_seed):
        with pytest.raises(NotImplementedError, match="is not supported"):
            call(None)
    for call in (pltpu.make_async_remote_copy, pltpu.async_remote_copy):
        with pytest.raises(NotImplementedError, match="a kernel stays on its device"):
            call(None, None, None, None, 1)
    with pytest.raises(NotImplementedError, match="detect_races"):
        pltpu.InterpretParams(detect_races=True)


def test_hints_change_nothing():
    hints: dict[str, Any] = {
        "interpret": pltpu.InterpretParams(),
        "compiler_params": pltpu.CompilerParams(dimension_semantics=("parallel",)),
        "cost_estimate": pl.CostEstimate(flops=8, transcendentals=0, bytes_accessed=64),
        "metadata": {"a": "b"},
        "name": "doubling",
    }
    call = pl.pallas_call(double, OUT, grid=(2,), in_specs=[HALF], out_specs=HALF, **hints)
    np.testing.assert_array_equal(call(X), X * 2)
    assert call.__name__ == "doubling"


def test_debug_prints_the_program(capsys):
    pl.pallas_call(double, OUT, debug=True)(X)
    said = capsys.readouterr().out
    assert "pallas_call double" in said and "mul" in said


def test_a_kernel_is_traced_once():
    count = 0

    def kernel(x_ref, o_ref):
        nonlocal count
        count += 1
        o_ref[...] = x_ref[...]

    call = pl.pallas_call(kernel, OUT, grid=(2,), in_specs=[HALF], out_specs=HALF)
    call(X)
    call(X)
    assert count == 1


def test_split_arrays():
    mesh = Mesh(np.array(jax.devices()[:4]), ("x",))
    x = jax.device_put(X, NamedSharding(mesh, P("x")))
    call = pl.pallas_call(double, OUT, grid=(2,), in_specs=[HALF], out_specs=HALF)
    np.testing.assert_array_equal(call(x), X * 2)
    np.testing.assert_array_equal(jax.jit(lambda x: call(x) + 1)(x), X * 2 + 1)


@pytest.mark.parametrize("checked", [False, True])
def test_in_shard_map(checked):
    mesh = Mesh(np.array(jax.devices()[:2]), ("x",))
    call = pl.pallas_call(
        double, jax.ShapeDtypeStruct((4,), np.float32), grid=(2,), in_specs=[pl.BlockSpec((2,), lambda i: (i,))],
        out_specs=pl.BlockSpec((2,), lambda i: (i,)),
    )  # fmt: skip
    with use_dialect("0.10"):
        f = jax.shard_map(call, mesh=mesh, in_specs=P("x"), out_specs=P("x"), check_vma=checked)
        np.testing.assert_array_equal(f(X), X * 2)


def test_reverse_mode():
    call = pl.pallas_call(double, OUT, grid=(2,), in_specs=[HALF], out_specs=HALF)
    np.testing.assert_array_equal(jax.grad(lambda x: (call(x) ** 2).sum())(X), 8 * X)


def test_prints_of_each_step(capsys):
    def kernel(x_ref, o_ref):
        pl.debug_print("step {}", pl.program_id(0))
        o_ref[...] = x_ref[...]

    pl.pallas_call(kernel, OUT, grid=(2,), in_specs=[HALF], out_specs=HALF)(X)
    assert capsys.readouterr().out.splitlines() == ["step 0", "step 1"]


def test_an_older_way_to_say_elements():
    spec = pl.BlockSpec((4,), lambda i: (2 * i,), indexing_mode=pl.unblocked)
    call = pl.pallas_call(double, OUT, grid=(2,), in_specs=[spec], out_specs=HALF)
    np.testing.assert_array_equal(call(X), np.concatenate([X[0:4], X[2:6]]) * 2)


def test_masks_of_other_shapes_are_named():
    def kernel(x_ref, o_ref):
        o_ref[...] = pl.load(x_ref, (pl.ds(0, 8),), mask=jnp.ones(3, bool))

    with pytest.raises(ValueError, match=r"Cannot broadcast mask shape \(3,\) to load shape \(8,\)"):
        pl.pallas_call(kernel, OUT)(X)


def test_atomic_updates():
    def kernel(x_ref, o_ref, p_ref):
        o_ref[...] = jnp.zeros_like(o_ref)
        pl.atomic_add(o_ref, jnp.array(0) + jnp.arange(8) // 4, x_ref[...])
        p_ref[0] = pl.atomic_max(o_ref, 0, jnp.float32(100))
        p_ref[1] = pl.atomic_xchg(o_ref, 1, jnp.float32(7), mask=False)
        p_ref[2] = pl.atomic_cas(o_ref.at[2], 0, 5)

    o, p = pl.pallas_call(kernel, (OUT, jax.ShapeDtypeStruct((3,), np.float32)))(X)
    np.testing.assert_array_equal(o, [100, 22, 5, 0, 0, 0, 0, 0])
    np.testing.assert_array_equal(p, [6, 22, 0])


def test_estimates():
    cost = pl.estimate_cost(lambda a, b: jnp.exp(a @ b), jnp.ones((4, 8)), jnp.ones((8, 2)))
    assert cost == pl.CostEstimate(flops=128, transcendentals=8, bytes_accessed=224)
    assert cost.to_json().startswith(b'{"flops": 128, "transcendentals": 8,')
    with pytest.raises(ValueError, match="flops is not an int"):
        pl.CostEstimate(1.5, 0, 0)  # type: ignore[arg-type]


def test_bits_of_rows():
    x = np.arange(8, dtype=np.int16).reshape(4, 2)
    joined = pltpu.bitcast(x, np.int32)
    assert joined.shape == (2, 2) and int(joined[0, 1]) == 1 + (3 << 16)
    np.testing.assert_array_equal(pltpu.bitcast(joined, np.int16), x)
