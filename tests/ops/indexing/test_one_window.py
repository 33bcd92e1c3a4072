"""A window of updates at one position is a slice that is written."""

import numpy as np
import pytest

import shardwise as jax
import shardwise.numpy as jnp
from shardwise.ops.indexing.one_window import OneWindow
from shardwise.ops.indexing.window_numbers import ScatterDimensionNumbers
from shardwise.sharding import NamedSharding, PartitionSpec

OPERAND = np.arange(2 * 3 * 4 * 5, dtype=np.float32).reshape(2, 3, 4, 5)
OPS = {
    "set": lambda old, new: new,
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
}
# Which elements are written, and the extent of the dim that the number counts in.
PLACES = {
    "first": (lambda i: (i,), 2),
    "third": (lambda i: (slice(None), slice(None), i), 4),
    "after a known one": (lambda i: (1, slice(None), i), 4),
    "of a run": (lambda i: (slice(None), 0, i, slice(1, 3)), 4),
    "all": (lambda i: (0, 1, i, 2), 4),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("op", OPS)
def test_it_is_written_where_numpy_writes(op, place):
    at, extent = PLACES[place]
    for mode in ("drop", "clip"):
        write = jax.jit(lambda x, i, v, m=mode: getattr(x.at[at(i)], op)(v, mode=m), donate_argnums=0)
        for i in (0, extent - 1, -1, extent, -extent - 1):
            want = OPERAND.copy()
            real = min(max(i + extent if i < 0 else i, 0), extent - 1)
            update = np.full(want[at(real)].shape, 7, np.float32)
            if mode == "clip" or -extent <= i < extent:
                want[at(real)] = OPS[op](want[at(real)], update)
            got = write(jnp.array(OPERAND), i, update)
            np.testing.assert_array_equal(got, want, f"{mode} {i}")


def test_an_operand_that_is_read_again_stays():
    @jax.jit
    def both(x, i):
        return x.at[:, i].set(0.0), x * 2

    x = jnp.array(OPERAND)
    written, doubled = both(x, 2)
    np.testing.assert_array_equal(doubled, OPERAND * 2)
    np.testing.assert_array_equal(x, OPERAND)
    assert not np.asarray(written)[:, 2].any()


@pytest.mark.parametrize("loops", [(3, 3), (3, 1), (1, 3)])  # of the operand and the update
def test_loops_of_one_operand_are_those_of_the_result(loops):
    numbers = ScatterDimensionNumbers((0,), (1,), (1,))
    write = OneWindow(1, (4, 5), (4,), numbers, wrap=True, clip=False, combine=np.add)
    for owned in (False, True):
        operand, update = np.ones((loops[0], 4, 5)), np.full((loops[1], 4), 2.0)
        want = np.ones((3, 4, 5))
        want[:, :, 2] += 2
        np.testing.assert_array_equal(write.write_window(operand, [2], update, owned), want)


def test_devices_write_the_same_into_parts_of_their_own():
    mesh = jax.make_mesh((4,), ("x",))
    x = np.arange(40, dtype=np.float32).reshape(8, 5)

    def body(x, v):
        return jax.lax.fori_loop(0, 3, lambda i, x: jnp.sort(x.at[:, i].set(v), 0), x)

    run = jax.shard_map(
        body, mesh=mesh, in_specs=(PartitionSpec("x"), PartitionSpec()), out_specs=PartitionSpec("x"), check_vma=False
    )
    want = x.copy().reshape(4, 2, 5)
    want[:, :, :3] = 7
    at = jax.device_put(x, NamedSharding(mesh, PartitionSpec("x")))
    np.testing.assert_array_equal(jax.jit(run, donate_argnums=0)(at, np.full(2, 7, np.float32)), want.reshape(8, 5))


@pytest.mark.parametrize("count", [1, 3, 2000])
def test_windows_behind_other_dims_are_written_in_order(count):
    at = np.random.default_rng(0).integers(0, 4, count)
    update = np.random.default_rng(1).integers(0, 9, (2, 3, count, 5)).astype(np.float32)
    for op in ("set", "add", "max"):
        want = OPERAND.copy()
        for k, i in enumerate(at):
            want[:, :, i] = OPS[op](want[:, :, i], update[:, :, k])
        write = jax.jit(lambda x, i, v, o=op: getattr(x.at[:, :, i], o)(v))
        np.testing.assert_array_equal(write(OPERAND, at, update), want)
