"""Elements at computed positions are read in the loops that compute the positions and use the elements."""

from __future__ import annotations

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.base import config
from shardwise.ir import ShapedArray, trace_program, verify
from shardwise.passes.element_reads import with_element_reads
from shardwise.passes.schedule import schedule
from shardwise.runtime.env import Env
from shardwise.runtime.machine.llvm import available
from shardwise.sharding import NamedSharding, PartitionSpec

pytestmark = pytest.mark.skipif(not available(), reason="no compiler for loops")
RNG = np.random.default_rng(0)
TABLE = RNG.normal(size=(30, 40)).astype(np.float32)
COUNT = 1 << 14  # enough that loops pay


def scheduled(f, *args):
    """The names of the scheduled program's ops, but for views."""
    program, _ = trace_program(f, tuple(ShapedArray(np.shape(a), np.asarray(a).dtype) for a in args))
    found = verify(schedule(verify(with_element_reads(program, Env())), Env()))
    return [e.op.name for e in found.equations if not e.op.view]


def one_loop(f, *args):
    """The values of a function, which has to run as one loop, eagerly the same."""
    compiled = sw.jit(f).lower(*args).compile()
    program = compiled.runtime_executable().plan.program
    assert [e.op.name for e in program.equations if not e.op.view and e.inputs] == ["fused"], program
    found = compiled(*args)
    np.testing.assert_array_equal(found, f(*map(jnp.asarray, args)))
    return found


def test_positions_reads_and_uses_are_one_loop():
    i, x = RNG.integers(0, 900, COUNT).astype(np.int32), RNG.normal(size=1000).astype(np.float32)
    np.testing.assert_array_equal(one_loop(lambda x, i: x[i + 100] * 2, x, i), x[i + 100] * 2)
    rows = one_loop(lambda x, i: x[i[:, None] + jnp.arange(7)].max(1), x, i)
    np.testing.assert_array_equal(rows, x[i[:, None] + np.arange(7)].max(1))


def test_positions_that_are_read():
    """A table at positions that another table has, as in the nodes of a tree."""
    left, x = RNG.integers(0, 900, 900).astype(np.int32), RNG.normal(size=900).astype(np.float32)
    i = RNG.integers(0, 900, COUNT).astype(np.int32)
    f = lambda left, x, i: x[left[left[i]]] + x[i]  # noqa: E731
    np.testing.assert_array_equal(one_loop(f, left, x, i), x[left[left[i]]] + x[i])


def test_tables_are_finished_before_they_are_read():
    i = RNG.integers(0, COUNT, COUNT).astype(np.int32)
    x = RNG.normal(size=COUNT).astype(np.float32)
    f = lambda x, i: [(x * 2)[i] * 3, x]  # noqa: E731
    assert scheduled(f, x, i) == ["fused", "fused"]
    np.testing.assert_array_equal(sw.jit(f)(x, i)[0], (x * 2)[i] * 3)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32", "uint32"])
@pytest.mark.parametrize("mode", ["clip", "fill", None])
def test_positions_out_of_bounds(dtype, mode):
    """As the op's own kernel has them, which runs eagerly."""
    info = np.iinfo(dtype)
    edges = [info.min, info.max, 0, 29, 30, 39, 40, *([-1, -30, -31, -40, -41] if info.min else [])]
    i, j = (RNG.choice(edges, COUNT).astype(dtype) for _ in range(2))
    fill = {"fill_value": 7} if mode == "fill" else {}
    one_loop(lambda x, i, j: x.at[i, j].get(mode=mode, **fill) + 1, TABLE, i, j)


@pytest.mark.parametrize("dtype", ["uint8", "uint16"])
@pytest.mark.parametrize("size", [1, 255, 256, 65535, 65536])
def test_positions_of_few_bits(dtype, size):
    """A table may have an element for each of them, or not. As the op's own kernel has them, which runs eagerly."""
    x = RNG.normal(size=size).astype(np.float32)
    i = RNG.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, COUNT, endpoint=True, dtype=dtype)
    one_loop(lambda x, i: x.at[i].get(mode="clip") + x.at[i].get(mode="fill", fill_value=7), x, i)


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "float16", "bfloat16", "complex64"])
def test_elements_of_any_type(dtype):
    table = jnp.asarray(np.rint(TABLE * 2)).astype(dtype)
    i = RNG.integers(-60, 60, COUNT).astype(np.int32)
    for mode in ("clip", "fill"):
        one_loop(lambda x, i, mode=mode: x.at[i % 50, i].get(mode=mode) == x[3, 4], table, i)


def test_windows_and_dims_that_go_along():
    i = RNG.integers(0, 30, 512).astype(np.int32)
    wide = RNG.normal(size=(30, 64)).astype(np.float32)
    np.testing.assert_array_equal(one_loop(lambda x, i: x[i] + 1, wide, i), wide[i] + 1)
    np.testing.assert_array_equal(one_loop(lambda x, i: x[:, i] + 1, wide.T, i), wide.T[:, i] + 1)
    several = RNG.integers(0, 64, (30, 1024)).astype(np.int32)
    along = one_loop(lambda x, i: jnp.take_along_axis(x, i, 1) + 1, wide, several)
    np.testing.assert_array_equal(along, np.take_along_axis(wide, several, 1) + 1)
    image = RNG.normal(size=(30, 64, 3)).astype(np.float32)  # rows shorter than a vector
    colours = one_loop(lambda x, i, j: x[i[:, None], j[None]] * 2, image, i[:90], several[0, :100])
    np.testing.assert_array_equal(colours, image[i[:90, None], several[0, :100]] * 2)
    starts = RNG.integers(-9, 70, COUNT // 8).astype(np.int32)
    windows = sw.vmap(lambda x, i: lax.dynamic_slice(x, (i,), (8,)), (None, 0))
    numbers = lax.GatherDimensionNumbers((1,), (), (0,))
    read = lambda x, i: lax.gather(x, i[:, None], numbers, (8,), mode="clip") * 2  # noqa: E731
    np.testing.assert_array_equal(one_loop(read, wide[0], starts), windows(wide[0], np.maximum(starts, 0)) * 2)


@pytest.mark.parametrize(
    ("columns", "dtype"),
    [(3, "float32"), (3, "uint8"), (4, "bfloat16"), (4, "float32"), (5, "complex64"), (12, "float32")],
)
def test_rows_shorter_than_vectors(columns, dtype):
    """Colours at positions in bounds and beyond: along both dims, given or computed; a table of one colour; what all pixels have."""
    image = jnp.asarray(RNG.normal(size=(31, 33, columns)) * 99).astype(dtype)
    i, j = (RNG.integers(-99, 99, n).astype(np.int32) for n in ((170, 1), (1, 131)))
    at = RNG.integers(-99, 99, (170, 131)).astype(np.int16)

    def read(x, i, j, at):
        near, far = x.at[i, j].get(mode="fill", fill_value=7), x[i, jnp.minimum(at + 1, 9)]
        grey = jnp.broadcast_to(x[:, :, :1], x.shape)[i, j]
        return jnp.where(near == far, grey, near + x[2, at])

    np.testing.assert_array_equal(sw.jit(read)(image, i, j, at), read(image, i, j, at))


def test_few_elements_and_copies_of_rows_stay():
    """Kernels copy rows; a loop reads elements, and rows of a few."""
    i = np.zeros(COUNT, np.int32)
    assert scheduled(lambda x, i: [x[i] + 1], TABLE[0], i[:9]) == ["gather", "add"]
    assert scheduled(lambda x, i: [x[i]], TABLE, i) == ["gather"]
    assert scheduled(lambda x, i: [x[i]], TABLE[0].astype(np.float16), i) == ["gather"]
    for f in (lambda x, i: [x[0][i]], lambda x, i: [x[:, :3][i]], lambda x, i: [jnp.take(x, i, 1)]):
        assert "fused" in scheduled(f, TABLE, i)


@pytest.mark.parametrize("mode", ["clip", "fill", "wrap", "promise_in_bounds"])
@pytest.mark.parametrize("dtype", ["float32", "int8"])
@pytest.mark.parametrize("index", ["int8", "uint8", "int32"])
def test_elements_that_are_only_copied(dtype, index, mode):
    bits = RNG.integers(0, 256, (30, 40 * np.dtype(dtype).itemsize), np.uint8).view(dtype)
    bits = np.concatenate([bits, np.array([[np.nan, -0.0, np.inf, 0] * 10]).astype(dtype)]) if dtype[0] == "f" else bits
    limit = 40 if mode == "promise_in_bounds" else 1 << 20
    i = RNG.integers(-limit if index[0] == "i" else 0, limit, COUNT).astype(index)
    along = np.broadcast_to(i[: bits.shape[0], None], (bits.shape[0], 700))
    along_mode, take_mode = "fill" if mode == "wrap" else mode, "clip" if mode == "promise_in_bounds" else mode
    functions = {
        "elements": lambda x, i: x.at[0, i].get(mode=along_mode),
        "columns": lambda x, i: jnp.take(x, i, 1, mode=take_mode),
        "short rows": lambda x, i: x[:, :3].at[i].get(mode=along_mode),
        "along": lambda x, i: jnp.take_along_axis(x, jnp.asarray(along), 1, mode=along_mode),
        "along the first": lambda x, i: jnp.take_along_axis(x.T, jnp.asarray(along.T), 0, mode=along_mode),
    }
    for name, f in functions.items():
        found = np.asarray(sw.jit(f)(bits, i))
        with config.override("shardwise_fused", "off"):
            expected = np.asarray(sw.jit(f)(bits, i))
        assert found.tobytes() == expected.tobytes(), name


def test_results_are_not_written_over_tables():
    x, i = np.arange(COUNT, dtype=np.float32), np.arange(COUNT, dtype=np.int32)[::-1].copy()
    f = sw.jit(lambda x, i: x[i] + 1, donate_argnums=0)
    np.testing.assert_array_equal(f(jnp.array(x), i), x[::-1] + 1)


def test_a_products_result_that_is_a_table():
    """Panels of the product are no whole table."""
    a, b = RNG.normal(size=(2048, 32)).astype(np.float32), RNG.normal(size=(32, 256)).astype(np.float32)
    i = RNG.integers(0, 2048, (2048, 256)).astype(np.int32)
    f = sw.jit(lambda a, b, i: jnp.take_along_axis(a @ b, i, 0) * 2).lower(a, b, i).compile()
    names = [e.op.name for e in f.runtime_executable().plan.program.equations]
    assert names == ["dot_general", "fused"]
    np.testing.assert_allclose(f(a, b, i), np.take_along_axis(a @ b, i, 0) * 2, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("spec", [("x",), ("y", "x"), (("x", "y"),)])
def test_on_a_mesh(spec):
    """Devices that have other positions, or other parts of the table."""
    mesh = sw.make_mesh((2, 2), ("x", "y"))
    put = lambda a, *spec: sw.device_put(a, NamedSharding(mesh, PartitionSpec(*spec)))  # noqa: E731
    x, i = RNG.normal(size=(128, 64)).astype(np.float32), RNG.integers(-64, 64, (128, 256)).astype(np.int32)
    f = sw.jit(lambda x, i: (jnp.take_along_axis(x, i, 1) + 1, x[i, 3].sum(1), x[i[:, :8].reshape(-1)] + 1))
    for table in (x, put(x, "x")):
        for found, want in zip(f(table, put(i, *spec)), f(x, i), strict=True):
            np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-5)


def test_under_vmap_and_derivatives():
    x, i = TABLE[0], RNG.integers(0, 40, (16, COUNT // 16)).astype(np.int32)
    f = lambda x, i: (x[i] ** 2).sum()  # noqa: E731
    want = np.zeros_like(x)
    np.add.at(want, i, 2 * x[i])
    np.testing.assert_allclose(sw.jit(sw.grad(f))(x, i), want, rtol=1e-5)
    np.testing.assert_allclose(sw.jit(sw.vmap(f, (None, 0)))(x, i), (x[i] ** 2).sum(1), rtol=1e-5)
