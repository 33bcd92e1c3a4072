"""shard_map bodies as plain Python under disable_jit: what works inside, in which order, and how divergence is reported."""

from __future__ import annotations

import functools
import sys
import threading
from typing import Any

import numpy as np
import pytest

import shardwise as sw
from shardwise import lax
from shardwise.base.config import use_dialect
from shardwise.base.errors import DivergenceError
from shardwise.ops.devices import parallel
from shardwise.sharding import AxisType, NamedSharding
from shardwise.sharding import PartitionSpec as P
from shardwise.transforms.manual.pmap import pmap


@pytest.fixture(scope="module")
def mesh():
    return sw.make_mesh((2, 4), ("x", "y"), axis_types=(AxisType.Auto,) * 2)


@pytest.fixture(autouse=True)
def no_thread_stays():
    before = threading.active_count()
    yield
    assert threading.active_count() == before


def host(*shape, dtype=np.float32):
    return (np.arange(np.prod(shape)) % 37 - 9).reshape(shape).astype(dtype)


def put(x, mesh, spec):
    return sw.device_put(x, NamedSharding(mesh, spec))


BOTH = P("x", "y")


def mapped(body, mesh, in_specs: Any = BOTH, out_specs: Any = BOTH, **options):
    return sw.shard_map(body, mesh=mesh, in_specs=in_specs, out_specs=out_specs, **options)


def stepped(fun, *args):
    with sw.disable_jit():
        return fun(*args)


def place():
    return int(parallel.axis_index("x")), int(parallel.axis_index("y"))


# -- what works inside -------------------------------------------------------------------------------------------------------


def test_values_are_concrete(mesh):
    def body(x):
        total = float(lax.reduce_sum(x, (0, 1)))
        assert total == np.asarray(x).sum()
        if total > 100:
            return lax.mul(x, 2.0)
        return x

    x = host(8, 8) * 10
    out = stepped(mapped(body, mesh), put(x, mesh, P("x", "y")))
    blocks = x.reshape(2, 4, 4, 2)
    expected = np.where(blocks.sum((1, 3), keepdims=True) > 100, 2 * blocks, blocks).reshape(8, 8)
    np.testing.assert_array_equal(out, expected)
    assert out.sharding == NamedSharding(mesh, P("x", "y"))
    assert out.committed


def test_devices_run_in_order_each_up_to_its_collective(mesh, capsys):
    def body(x):
        print("before", place(), threading.current_thread().name)
        x = parallel.psum(x, "x")
        print("after", place())
        return x

    stepped(mapped(body, mesh, out_specs=P(None, "y")), put(host(8, 8), mesh, P("x", "y")))
    lines = capsys.readouterr().out.splitlines()
    places = [(i, j) for i in range(2) for j in range(4)]
    # The group at y=0 is complete when device 4 arrives, and goes on when the others have had their turn.
    assert [line.split(" TFRT")[0] for line in lines if line.startswith("before")] == [f"before {p}" for p in places]
    assert sorted(line for line in lines if line.startswith("after")) == [f"after {p}" for p in places]
    assert lines[0].endswith("TFRT_CPU_0")


def test_exactly_one_device_runs_at_a_time(mesh):
    running = []

    def body(x):
        for _ in range(5):
            running.append(1)
            assert len(running) == 1
            running.pop()
            x = parallel.ppermute(x, "y", [(i, (i + 1) % 4) for i in range(4)])
        return x

    stepped(mapped(body, mesh), put(host(8, 8), mesh, P("x", "y")))


def test_breakpoint_stops_on_each_device(mesh, monkeypatch):
    stops = []
    monkeypatch.setattr(sys, "breakpointhook", lambda: stops.append(threading.current_thread().name))

    def body(x):
        breakpoint()
        return x

    stepped(mapped(body, mesh), put(host(8, 8), mesh, P("x", "y")))
    assert stops == [str(d) for d in sw.devices()]


def test_numpy_in_the_middle(mesh):
    def body(x):
        y = np.sort(np.asarray(x), axis=None)[::-1].reshape(x.shape)
        return parallel.psum(y, "x")

    x = host(8, 8)
    out = stepped(mapped(body, mesh, out_specs=P(None, "y")), put(x, mesh, P("x", "y")))
    blocks = np.sort(x.reshape(2, 4, 4, 2).swapaxes(1, 2).reshape(2, 4, 8))[..., ::-1].sum(0)
    np.testing.assert_array_equal(out, blocks.reshape(4, 4, 2).swapaxes(0, 1).reshape(4, 8))


def test_captured_arrays_are_whole_on_every_device(mesh):
    spread, single, on_host = put(host(8), mesh, P("x")), sw.device_put(host(8), sw.devices()[3]), host(8)

    def body(x):
        return lax.add(
            lax.add(x, lax.reduce_sum(spread, (0,))), lax.mul(lax.reduce_sum(single, (0,)), float(on_host.sum()))
        )

    x = host(8, 8)
    out = stepped(mapped(body, mesh), put(x, mesh, P("x", "y")))
    np.testing.assert_array_equal(out, x + host(8).sum() + host(8).sum() ** 2)


def test_jit_and_jitted_callers_run_as_python(mesh):
    seen = []

    @sw.jit
    def inner(x):
        seen.append(float(lax.reduce_sum(x, (0, 1))))
        return lax.neg(x)

    whole = sw.jit(lambda x: lax.mul(mapped(inner, mesh)(x), 2.0))
    np.testing.assert_array_equal(stepped(whole, put(host(8, 8), mesh, P("x", "y"))), -2 * host(8, 8))
    assert len(seen) == 8


def test_trees_scalars_and_replicated_results(mesh):
    def body(tree):
        return {"sum": parallel.psum(lax.reduce_sum(tree["a"], (0, 1)), ("x", "y")), "two": 2.0, "b": tree["b"]}

    specs = {"sum": P(), "two": P(), "b": P("x")}
    out = stepped(mapped(body, mesh, ({"a": P("x", "y"), "b": P("x")},), specs), {"a": host(8, 8), "b": host(4)})
    assert float(out["sum"]) == host(8, 8).sum()
    assert (float(out["two"]), out["two"].weak_type) == (2.0, True)
    np.testing.assert_array_equal(out["b"], host(4))
    assert out["b"].sharding.spec == P("x")


def test_types_show_the_varying_axes(mesh):
    with use_dialect("latest"):
        shown = []

        def body(x):
            shown.append((str(sw.typeof(x)), str(sw.typeof(parallel.psum(lax.sin(x), "x")))))
            return x

        stepped(mapped(body, mesh, P("x"), P("x")), put(host(8), mesh, P("x")))
        assert set(shown) == {("float32[4]{V:x}", "float32[4]")}


def test_pmap_steps_too():
    def body(x):
        return parallel.psum(x, "i") if float(lax.reduce_sum(x, (0,))) > -1e9 else x

    out = stepped(pmap(body, axis_name="i"), host(8, 2))
    np.testing.assert_array_equal(out, np.tile(host(8, 2).sum(0), (8, 1)))


def test_vmap_inside(mesh):
    vmap = pytest.importorskip("shardwise.transforms.interpreters.vmap").vmap
    body = lambda x: vmap(lambda row: parallel.psum(lax.reduce_sum(row, (0,)), "y"))(x)  # noqa: E731
    fun = mapped(body, mesh, out_specs=P("x"), check_vma=False)
    np.testing.assert_array_equal(stepped(fun, put(host(8, 8), mesh, P("x", "y"))), host(8, 8).sum(1))


def test_grad_inside(mesh):
    grad = pytest.importorskip("shardwise.transforms.derivatives.autodiff").grad

    def body(x):
        return grad(lambda v: lax.reduce_sum(lax.mul(lax.sin(v), v), (0, 1)))(x)

    x = put(host(8, 8), mesh, P("x", "y"))
    np.testing.assert_allclose(stepped(mapped(body, mesh), x), mapped(body, mesh)(x), rtol=1e-6)


# -- agreement with the batched executor ---------------------------------------------------------------------------------------

SIZES = {"x": 2, "y": 4}


def size_of(axes):
    return int(np.prod([SIZES[a] for a in ((axes,) if isinstance(axes, str) else axes)]))


COLLECTIVES = {
    "psum": parallel.psum,
    "pmean": parallel.pmean,
    "pmax": parallel.pmax,
    "all_gather": functools.partial(parallel.all_gather, axis=1),
    "all_gather tiled": functools.partial(parallel.all_gather, axis=1, tiled=True),
    "psum_scatter": functools.partial(parallel.psum_scatter, scatter_dimension=1, tiled=True),
    "all_to_all": functools.partial(parallel.all_to_all, split_axis=1, concat_axis=0, tiled=True),
    "ppermute": lambda x, ax: parallel.ppermute(x, ax, [(i, (i + 1) % size_of(ax)) for i in range(size_of(ax) - 1)]),
    "axis_index": lambda x, ax: lax.add(x, lax.convert_element_type(parallel.axis_index(ax), np.float32)),
    "pbroadcast": lambda x, ax: parallel.pbroadcast(x, ax, 1),
    "python scalar": lambda x, ax: lax.mul(x, float(parallel.psum(1, ax))),
}


@pytest.mark.parametrize("axes", ["x", "y", ("x", "y"), ("y", "x")], ids=str)
@pytest.mark.parametrize("name", COLLECTIVES)
def test_each_collective(mesh, name, axes):
    fun = mapped(lambda x: COLLECTIVES[name](x, axes), mesh, out_specs=P(("x", "y")), check_vma=False)
    x = put(host(16, 128), mesh, P("x", "y"))
    ours, batched = stepped(fun, x), fun(x)
    assert (ours.aval, ours.sharding) == (batched.aval, batched.sharding)
    np.testing.assert_allclose(ours, batched, rtol=1e-6)


@pytest.mark.parametrize("groups", [[[0, 1], [2, 3]], [[0, 3], [2, 1]]])
def test_axis_groups(mesh, groups):
    fun = mapped(lambda x: parallel.psum(x, "y", axis_index_groups=groups), mesh, check_vma=False)
    x = put(host(8, 8), mesh, P("x", "y"))
    np.testing.assert_array_equal(stepped(fun, x), fun(x))


@pytest.mark.parametrize("axis_type", [AxisType.Auto, AxisType.Explicit])
def test_partly_manual_bodies_run_once_per_sub_mesh(axis_type):
    mesh = sw.make_mesh((2, 4), ("x", "y"), axis_types=(AxisType.Auto, axis_type))
    names = []

    def body(x):
        names.append(threading.current_thread().name)
        assert x.shape == (4, 8)
        return parallel.psum(lax.sin(x), "x")

    fun = mapped(body, mesh, P("x"), P(), axis_names={"x"})
    out = stepped(fun, put(host(8, 8), mesh, P("x", "y")))
    np.testing.assert_allclose(out, np.sin(host(8, 8)).reshape(2, 4, 8).sum(0), rtol=1e-6)
    assert names == ["TFRT_CPU_0..TFRT_CPU_3", "TFRT_CPU_4..TFRT_CPU_7"]
    assert out.sharding.is_equivalent_to(NamedSharding(mesh, P(None, "y")), 2)
    assert out.aval.spec == ((), ("y",) if axis_type is AxisType.Explicit else ())


def test_constraints_inside_partly_manual_bodies(mesh):
    from shardwise.transforms.jit.constraints import with_sharding_constraint

    def body(x):
        y = with_sharding_constraint(x, NamedSharding(mesh, P(None, "y")))
        return lax.neg(with_sharding_constraint(y, P("y", None)))

    fun = mapped(body, mesh, P("x"), P("x"), axis_names={"x"})
    np.testing.assert_array_equal(stepped(fun, put(host(8, 8), mesh, P("x"))), -host(8, 8))


def test_nested(mesh):
    calls = []

    def inner(x):
        calls.append(threading.current_thread().name)
        return lax.add(parallel.psum(x, "y"), parallel.psum(x, "x"))  # an outer axis too

    def body(x):
        return sw.shard_map(inner, in_specs=P(None, "y"), out_specs=P(None, "y"), axis_names={"y"}, check_vma=False)(
            lax.sin(x)
        )

    fun = mapped(body, mesh, P("x"), P("x"), axis_names={"x"}, check_vma=False)
    x = put(host(8, 8), mesh, P("x", "y"))
    with sw.sharding.use_mesh(mesh):
        ours, batched = stepped(fun, x), fun(x)
    np.testing.assert_allclose(ours, batched, rtol=1e-6, atol=1e-6)
    assert sorted(set(calls) & {str(d) for d in sw.devices()}) == sorted(str(d) for d in sw.devices())


# -- checks and divergence -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", ["seed", "latest"])
def test_replication_is_checked_by_type(mesh, dialect):
    with (
        use_dialect(dialect),
        pytest.raises(ValueError, match="require replication which can't be statically inferred"),
    ):
        stepped(mapped(lambda x: x, mesh, out_specs=P("x")), put(host(8, 8), mesh, P("x", "y")))


def test_replication_is_checked_by_value(mesh):
    def body(x):  # NumPy hides from the types that the value varies
        return np.asarray(x)

    with pytest.raises(ValueError, match="require replication"):
        stepped(mapped(body, mesh, out_specs=P("x")), put(host(8, 8), mesh, P("x", "y")))
    out = stepped(mapped(body, mesh, out_specs=P("x"), check_vma=False), put(host(8, 8), mesh, P("x", "y")))
    np.testing.assert_array_equal(out, host(8, 8)[:, :2])


def diverging(mesh, body, message, kind: type[Exception] = DivergenceError):
    with pytest.raises(kind, match=message) as error:
        stepped(mapped(body, mesh, check_vma=False), put(host(8, 8), mesh, P("x", "y")))
    return error.value


def test_different_collectives(mesh):
    def body(x):
        return parallel.psum(x, "x") if place()[0] == 0 else parallel.pmax(x, "x")

    error = diverging(
        mesh,
        body,
        r"TFRT_CPU_0 at \(x=0, y=0\) waits in psum over 'x' of f32\[4,2\] at .*test_stepping.py:\d+, but "
        r"TFRT_CPU_4 at \(x=1, y=0\) is in pmax over 'x' of f32\[4,2\] at .*test_stepping.py:\d+",
    )
    assert isinstance(error, RuntimeError)


def test_collective_that_one_device_skips(mesh):
    diverging(
        mesh,
        lambda x: parallel.psum(x, "y") if place() != (1, 2) else x,
        r"waits in psum over 'y'.*TFRT_CPU_6 at \(x=1, y=2\) has returned from the function without calling it",
    )


def test_collectives_in_another_order(mesh):
    def body(x):
        if place() == (0, 0):
            return parallel.psum(parallel.pmax(x, "x"), "x")
        return parallel.pmax(parallel.psum(x, "x"), "x")

    diverging(mesh, body, r"TFRT_CPU_0 .* waits in pmax over 'x'.*TFRT_CPU_4 .* is in psum over 'x'")


def test_operands_of_other_shapes(mesh):
    body = lambda x: parallel.psum(x if place()[0] else lax.slice(x, (0, 0), (1, 1)), "x")  # noqa: E731
    diverging(mesh, body, r"waits in psum over 'x' of f32\[1,1\].*is in psum over 'x' of f32\[4,2\]")


def test_other_permutations(mesh):
    diverging(mesh, lambda x: parallel.ppermute(x, "x", [(0, 1), (1, 0)] if place()[0] else [(0, 1)]), "with perm=")


def test_results_of_other_types(mesh):
    diverging(
        mesh, lambda x: x if place() != (0, 1) else (x, x), r"TFRT_CPU_0 .* returned .* but TFRT_CPU_1", ValueError
    )
    diverging(mesh, lambda x: x if place() != (0, 1) else lax.reduce_sum(x, (0,)), r"float32\[2\]", ValueError)


def test_the_first_exception_wins_and_says_where(mesh):
    ran_on = []

    def body(x):
        if place() == (0, 2):
            raise KeyError("wrong")
        x = parallel.psum(x, "y")
        ran_on.append(place())
        raise ZeroDivisionError

    error = diverging(mesh, body, "wrong", KeyError)
    assert "Raised on TFRT_CPU_2 at (x=0, y=2)" in error.__notes__[0]
    assert ran_on == []
    names = [frame.name for frame in _frames(error)]
    assert "body" in names


def _frames(error):
    import traceback

    return traceback.extract_tb(error.__traceback__)


def test_finally_blocks_run_on_devices_that_are_stopped(mesh):
    closed = []

    def body(x):
        try:
            return parallel.psum(x, "x")
        finally:
            closed.append(place_text())

    def place_text():
        return threading.current_thread().name

    def failing(x):
        if place() == (1, 3):
            raise ValueError("no")
        return body(x)

    diverging(mesh, failing, "no", ValueError)
    assert sorted(closed) == [f"TFRT_CPU_{i}" for i in range(7)]


def test_errors_in_nested_bodies_end_all_threads(mesh):
    def inner(x):
        if place() == (1, 1):
            raise ValueError("deep")
        return parallel.psum(x, ("x", "y"))

    def body(x):
        return sw.shard_map(inner, in_specs=P(None, "y"), out_specs=P(None, "y"), axis_names={"y"}, check_vma=False)(x)

    fun = mapped(body, mesh, P("x"), P("x"), axis_names={"x"}, check_vma=False)
    with sw.sharding.use_mesh(mesh), pytest.raises(ValueError, match="deep"):
        stepped(fun, put(host(8, 8), mesh, P("x", "y")))


def test_interrupts_pass_through(mesh):
    def body(x):
        if place() == (0, 3):
            raise KeyboardInterrupt
        return parallel.psum(x, "y")

    with pytest.raises(KeyboardInterrupt):
        stepped(mapped(body, mesh), put(host(8, 8), mesh, P("x", "y")))


def test_explicitly_sharded_captures_are_refused():
    explicit = sw.make_mesh((8,), ("x",), axis_types=(AxisType.Explicit,))
    w = put(host(8), explicit, P("x"))
    fun = mapped(lambda x: lax.add(x, w), explicit, P(), P())
    with pytest.raises(NotImplementedError, match="closes over an explicitly sharded array"):
        stepped(fun, put(host(8), explicit, P()))


def test_hundreds_of_devices(shell):
    program = """
import numpy as np, shardwise as sw
from shardwise import lax
from shardwise.ops.devices import parallel
from shardwise.sharding import NamedSharding, PartitionSpec as P
mesh = sw.make_mesh((64, 8), ("x", "y"))
x = sw.device_put(np.arange(1024, dtype=np.float32).reshape(128, 8), NamedSharding(mesh, P("x", "y")))
def body(x):
    if float(lax.reduce_max(x, (0, 1))) > 500:
        x = lax.neg(x)
    return parallel.psum(x, ("x", "y"))
with sw.disable_jit():
    out = sw.shard_map(body, mesh=mesh, in_specs=P("x", "y"), out_specs=P())(x)
host = np.asarray(x).reshape(64, 2, 8)
print(np.array_equal(out, (host * np.where(host.max(1, keepdims=True) > 500, -1, 1)).sum((0, 2))[:, None]))
"""
    done = shell("-c", program, JAX_NUM_CPU_DEVICES="512")
    assert done.stdout == "True\n", done.stderr
