"""The stepped executor and the batched one agree on every program: one runs device by device, the other all at once."""

from __future__ import annotations

import math
from contextlib import nullcontext
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

import shardwise as sw
from shardwise import lax
from shardwise.base import config
from shardwise.base.errors import DivergenceError, JaxRuntimeError
from shardwise.ir import Program, ShapedArray, Source, Var
from shardwise.ir.op import find_op
from shardwise.ops import control
from shardwise.ops.devices import parallel
from shardwise.runtime.env import Env
from shardwise.runtime.exchange import exchange
from shardwise.runtime.rendezvous import CollectiveCall, Rendezvous
from shardwise.runtime.stepped import DeviceEnv, SteppedPlan, run_stepped
from shardwise.sharding import AxisType, Mesh, NamedSharding, use_mesh
from shardwise.sharding import PartitionSpec as P
from tests.differential.programs import FAMILIES, placed

few = settings(
    max_examples=10,
    deadline=None,
    derandomize=True,
    database=None,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=list(HealthCheck),  # type: ignore[arg-type]  # its metaclass has no types
)


def mesh_of(shape, names="xyz", axis_type="Auto"):
    grid = np.array(sw.devices()[: math.prod(shape)]).reshape(shape)
    return Mesh(grid, tuple(names[: len(shape)]), axis_types=(getattr(AxisType, axis_type),) * len(shape))


@pytest.fixture(scope="module")
def mesh():
    return mesh_of((2, 4))


def host(*shape, dtype=np.float32):
    return (np.arange(math.prod(shape)) % 37 - 9).reshape(shape).astype(dtype)


def put(x, mesh, spec):
    return sw.device_put(x, NamedSharding(mesh, spec))


def stepped():
    return config.override("shardwise_stepped", True)


def assert_agree(fun, *args, ulps=8):
    batched = sw.jit(fun)(*args)
    with stepped():
        alone_ = sw.jit(fun)(*args)
    leaves = list(zip(sw.tree.leaves(batched), sw.tree.leaves(alone_), strict=True))
    for a, b in leaves:
        assert a.aval == b.aval
        assert a.sharding == b.sharding
        assert_close(a, b, ulps)
    return batched


def assert_close(a, b, ulps):
    x: Any = np.asarray(a)
    y: Any = np.asarray(b)
    if x.dtype.kind in "iub":
        np.testing.assert_array_equal(x, y)
        return
    if x.dtype.kind == "c":
        assert_close(x.real, y.real, ulps)
        assert_close(x.imag, y.imag, ulps)
        return
    eps = float(ml_dtypes.finfo(x.dtype).eps)
    x, y = x.astype(np.float64), y.astype(np.float64)
    scale = np.abs(x, where=np.isfinite(x), out=np.zeros_like(x)).max(initial=0)
    np.testing.assert_allclose(x, y, rtol=ulps * eps, atol=ulps * eps * scale)


# -- programs that the partitioner makes -------------------------------------------------------------------------------------


class LikeJax:
    """What the programs of the differential tests find under the name `jax`."""

    set_mesh = staticmethod(use_mesh)

    def __getattr__(self, name):
        return getattr(sw, name)


@pytest.mark.parametrize("axis_type", ["Auto", "Explicit"])
@pytest.mark.parametrize("family", FAMILIES)
def test_partitioned_programs(family, axis_type):
    jnp = pytest.importorskip("shardwise.numpy")

    def data(shape, dtype="float32", seed=0):
        rng = np.random.default_rng(seed)
        if dtype == "bool":
            return rng.integers(0, 2, shape).astype(bool)
        whole = rng.integers(0 if dtype.startswith("u") else -9, 10, shape)
        return whole.astype(dtype) if "int" in dtype else np.asarray(0.25 * whole, jnp.dtype(dtype))

    scope = {"jax": LikeJax(), "jnp": jnp, "np": np, "lax": lax, "NamedSharding": NamedSharding, "P": P, "data": data,
             "mesh_of": mesh_of}  # fmt: skip

    @few
    @given(placed(FAMILIES[family]))
    def law(case):
        namespace: dict[str, Any] = dict(scope)
        try:
            exec(case.source(axis_type, "jax.jit(f)(*args)"), namespace)
        except Exception:  # what batched execution refuses is not the matter here
            assume(False)
        with use_mesh(namespace["mesh"]) if axis_type == "Explicit" else nullcontext():
            assert_agree(namespace["f"], *namespace["args"], ulps=max(case.case.ulps, 8))

    law()


LAX_PROGRAMS = {
    "elementwise": lambda a, b: lax.add(lax.sin(a), lax.mul(b, 2.0)),
    "matmul": lambda a, b: lax.dot_general(a, b, (((1,), (0,)), ((), ()))),
    "transposed matmul": lambda a, b: lax.dot_general(a, b, (((0,), (1,)), ((), ()))),
    "reduction": lambda a, b: (lax.reduce_sum(a, (0,)), lax.reduce_max(b, (1,)), lax.reduce_sum(a, (0, 1))),
    "transpose": lambda a, b: lax.add(lax.transpose(a, (1, 0)), b),
    "reshape": lambda a, b: (lax.reshape(a, (64,)), lax.reshape(b, (2, 4, 8))),
    "iota": lambda a, b: lax.add(a, lax.broadcasted_iota(np.float32, (8, 8), 0)),
    "slice": lambda a, b: (lax.slice(a, (0, 2), (8, 6)), lax.slice(b, (1, 0), (5, 8))),
    "pad": lambda a, b: lax.pad(a, np.float32(1.5), [(1, 2, 0), (0, 0, 1)]),
    "rev": lambda a, b: lax.rev(a, (0, 1)),
    "cumsum": lambda a, b: lax.cumsum(a, 1),
    "sort": lambda a, b: lax.sort(a, dimension=1),
    "constraint": lambda a, b: lax.add(a, b),
    "concatenate": lambda a, b: lax.concatenate([a, b], 0),
}


@pytest.mark.parametrize("spec_b", [P(), P("y"), P(None, "x"), P(("x", "y"))])
@pytest.mark.parametrize("spec_a", [P("x", "y"), P(("y", "x")), P(None, "y")])
@pytest.mark.parametrize("name", LAX_PROGRAMS)
def test_programs_of_lax(mesh, name, spec_a, spec_b):
    assert_agree(LAX_PROGRAMS[name], put(host(8, 8), mesh, spec_a), put(host(8, 8) * 2, mesh, spec_b))


def test_random_bits(mesh):
    random = pytest.importorskip("shardwise.random")
    sharding = NamedSharding(mesh, P("x", "y"))
    draw = sw.jit(lambda key: random.bits(key, (8, 8)), out_shardings=sharding)
    with stepped():
        alone_ = sw.jit(lambda key: random.bits(key, (8, 8)), out_shardings=sharding)(random.key(3))
    np.testing.assert_array_equal(draw(random.key(3)), alone_)


# -- programs that users write with shard_map ----------------------------------------------------------------------------------

AXES = ["x", "y", ("x", "y"), ("y", "x")]
RING = {"x": 2, "y": 4}


def size_of(axes):
    return math.prod(RING[a] for a in ((axes,) if isinstance(axes, str) else axes))


COLLECTIVES = {
    "psum": lambda x, ax: parallel.psum(x, ax),
    "pmean": lambda x, ax: parallel.pmean(x, ax),
    "pmax": lambda x, ax: parallel.pmax(x, ax),
    "pmin": lambda x, ax: parallel.pmin(x, ax),
    "all_gather": lambda x, ax: parallel.all_gather(x, ax, axis=1),
    "all_gather tiled": lambda x, ax: parallel.all_gather(x, ax, axis=1, tiled=True),
    "psum_scatter": lambda x, ax: parallel.psum_scatter(x, ax, scatter_dimension=1, tiled=True),
    "all_to_all": lambda x, ax: parallel.all_to_all(x, ax, 1, 0, tiled=True),
    "ppermute": lambda x, ax: parallel.ppermute(x, ax, [(i, (i + 1) % size_of(ax)) for i in range(size_of(ax))]),
    "ppermute part": lambda x, ax: parallel.ppermute(x, ax, [(1, 0)]),
    "axis_index": lambda x, ax: lax.add(x, lax.convert_element_type(parallel.axis_index(ax), np.float32)),
    "pbroadcast": lambda x, ax: parallel.pbroadcast(x, ax, 1),
}


@pytest.mark.parametrize("axes", AXES, ids=str)
@pytest.mark.parametrize("name", COLLECTIVES)
def test_each_collective(mesh, name, axes):
    body = lambda x: COLLECTIVES[name](x, axes)  # noqa: E731
    mapped = sw.shard_map(body, mesh=mesh, in_specs=P("x", "y"), out_specs=P(("x", "y")), check_vma=False)
    assert_agree(mapped, put(host(16, 128), mesh, P("x", "y")))


@pytest.mark.parametrize("dtype", [np.int8, np.uint32, ml_dtypes.bfloat16, np.complex64, np.bool_])
def test_collectives_on_dtypes(mesh, dtype):
    mapped = sw.shard_map(
        lambda x: (parallel.psum(x, "x"), parallel.all_gather(x, "x", tiled=True)),
        mesh=mesh,
        in_specs=P("x", "y"),
        out_specs=(P(None, "y"), P(None, "y")),
        check_vma=False,
    )
    assert_agree(mapped, put(host(4, 8, dtype=dtype), mesh, P("x", "y")))


@pytest.mark.parametrize("groups", [[[0, 1], [2, 3]], [[0, 3], [2, 1]], [[0, 1, 2, 3]], [[0, 1, 2], [3]]])
def test_axis_groups(mesh, groups):
    equal = len({len(g) for g in groups}) == 1

    def body(x):
        outs = [parallel.psum(x, "y", axis_index_groups=groups)]
        if equal:
            n = len(groups[0])
            outs.append(parallel.psum_scatter(x, "y", axis_index_groups=groups, tiled=True))
            outs.append(parallel.all_gather(x, "y", axis_index_groups=groups, tiled=True))
            outs.append(parallel.all_to_all(x, "y", 0, 1, axis_index_groups=groups, tiled=True))
            assert outs[-1].shape[1] == n * x.shape[1]
        return tuple(lax.reshape(o, (1, o.size)) for o in outs)

    mapped = sw.shard_map(body, mesh=mesh, in_specs=P("x", "y"), out_specs=P(("x", "y")), check_vma=False)
    assert_agree(mapped, put(host(8, 16), mesh, P("x", "y")))


def test_unmentioned_axes_take_the_first_device(mesh):
    mapped = sw.shard_map(lambda x: x, mesh=mesh, in_specs=P("x", "y"), out_specs=P("x"), check_vma=False)
    out = assert_agree(mapped, put(host(4, 8), mesh, P("x", "y")))
    np.testing.assert_array_equal(out, host(4, 8)[:, :2])


def test_partly_manual(mesh):
    def body(x):
        y = parallel.psum(lax.dot_general(x, x, (((1,), (1,)), ((), ()))), "x")
        return lax.add(y, parallel.pmax(lax.reduce_sum(x, (0, 1)), "x"))

    mapped = sw.shard_map(body, mesh=mesh, in_specs=P("x"), out_specs=P("x"), axis_names={"x"}, check_vma=False)
    assert_agree(mapped, put(host(8, 8), mesh, P("x", "y")))


def test_nested(mesh):
    def inner(x):
        return lax.add(parallel.psum(x, "y"), parallel.psum(x, "x"))

    def body(x):
        return sw.shard_map(inner, in_specs=P(None, "y"), out_specs=P(None, "y"), axis_names={"y"}, check_vma=False)(
            lax.sin(x)
        )

    mapped = sw.shard_map(body, mesh=mesh, in_specs=P("x"), out_specs=P("x"), axis_names={"x"}, check_vma=False)
    assert_agree(mapped, put(host(8, 8), mesh, P("x", "y")))


def ring_scan(x):
    def step(carry, row):
        carry = parallel.ppermute(lax.add(carry, row), "y", [(i, (i + 1) % 4) for i in range(4)])
        return carry, parallel.psum(row, "x")

    carry, ys = control.scan(step, lax.mul(lax.index_in_dim(x, 0, keepdims=False), 0.0), x, reverse=True)
    return lax.add(ys, lax.broadcast_in_dim(carry, ys.shape, (1,)))


def halving(x):
    """Each device goes on for its own number of steps."""
    limit = lax.convert_element_type(parallel.axis_index("y"), np.float32)
    state = control.while_loop(
        lambda s: lax.gt(lax.reduce_max(s[0], (0, 1)), limit),
        lambda s: (lax.mul(s[0], 0.5), lax.add(s[1], 1)),
        (x, lax.convert_element_type(parallel.axis_index("x"), np.int32)),
    )
    return lax.add(state[0], lax.convert_element_type(state[1], np.float32))


def together(x):
    """All devices go on while any must: the predicate is reduced, and the body communicates."""
    going = lambda v: lax.gt(parallel.pmax(lax.reduce_max(v, (0, 1)), ("x", "y")), np.float32(3))  # noqa: E731
    return control.while_loop(going, lambda v: lax.mul(parallel.ppermute(v, "x", [(0, 1), (1, 0)]), 0.5), x)


def branching(x):
    index = lax.rem(parallel.axis_index(("x", "y")), np.int32(3))
    return control.switch(index, [lax.sin, lambda v: lax.mul(v, 2.0), lax.neg], x)


def branching_together(x):
    big = lax.gt(parallel.psum(lax.reduce_sum(x, (0, 1)), ("x", "y")), np.float32(0))
    return control.cond(big, lambda v: parallel.psum(v, "x"), lambda v: parallel.pmax(v, "x"), x)


@pytest.mark.parametrize("body", [ring_scan, halving, together, branching, branching_together])
def test_control_flow_in_bodies(mesh, body):
    mapped = sw.shard_map(body, mesh=mesh, in_specs=P("x", "y"), out_specs=P("x", "y"), check_vma=False)
    assert_agree(mapped, put(host(8, 8), mesh, P("x", "y")), ulps=64)


def test_scan_over_sharded_arrays(mesh):
    def f(x, w):
        step = lambda c, row: (lax.add(c, row), lax.dot_general(row, w, (((0,), (0,)), ((), ()))))  # noqa: E731
        return control.scan(step, lax.index_in_dim(x, 0, keepdims=False), x)

    assert_agree(f, put(host(8, 8), mesh, P("x", "y")), put(host(8, 8), mesh, P("y", "x")), ulps=64)


def test_collectives_under_vmap(mesh):
    vmap = pytest.importorskip("shardwise.transforms.interpreters.vmap").vmap

    def loop(row):
        return control.scan(
            lambda c, v: (lax.add(c, parallel.psum(v, "y")), c), lax.index_in_dim(row, 0, keepdims=False), row
        )[1]

    for body in (lambda row: parallel.psum(row, "y"), lambda row: parallel.all_gather(row, "x"), loop):
        mapped = sw.shard_map(vmap(body), mesh=mesh, in_specs=P("x", "y"), out_specs=P(("x", "y")), check_vma=False)
        assert_agree(mapped, put(host(16, 8), mesh, P("x", "y")))


@given(st.data())
@few
def test_random_bodies(data):
    """Chains of collectives and local ops, over random meshes of three axes."""
    mesh = mesh_of((2, 2, 2))
    steps = data.draw(
        st.lists(
            st.tuples(
                st.sampled_from(["psum", "pmax", "gather", "scatter", "swap", "shift", "local", "place"]),
                st.sampled_from(["x", "y", "z", ("z", "x")]),
            ),
            min_size=1,
            max_size=5,
        )
    )

    def body(x):
        for kind, ax in steps:
            n = 2 if isinstance(ax, str) else 4
            if kind in ("psum", "pmax"):
                x = lax.add(x, getattr(parallel, kind)(x, ax))
            elif kind == "gather":
                x = lax.slice(parallel.all_gather(x, ax, tiled=True), (n - 1, 0), (n - 1 + x.shape[0], x.shape[1]))
            elif kind == "scatter":
                part = parallel.psum_scatter(x, ax, scatter_dimension=1, tiled=True)
                x = lax.concatenate([part] * n, 1)
            elif kind == "swap":
                x = lax.reshape(parallel.all_to_all(x, ax, 1, 0, tiled=True), x.shape)
            elif kind == "shift":
                x = parallel.ppermute(x, ax, [(i, (i + 1) % n) for i in range(n)])
            elif kind == "local":
                x = lax.mul(lax.rev(x, (1,)), 0.5)
            else:
                x = lax.add(x, lax.convert_element_type(parallel.axis_index(ax), np.float32))
        return x

    mapped = sw.shard_map(body, mesh=mesh, in_specs=P("x", ("y", "z")), out_specs=P("x", ("y", "z")), check_vma=False)
    assert_agree(mapped, put(host(8, 32), mesh, P("z", "x")))


def test_eager_ops_run_stepped_too(mesh):
    x = put(host(8, 8), mesh, P("x", "y"))
    with stepped():
        np.testing.assert_array_equal(lax.reduce_sum(x, (0,)), host(8, 8).sum(0))


def test_run_stepped_gives_blocks(mesh):
    x = put(host(8, 8), mesh, P("x", "y"))
    executable = sw.jit(lambda x: lax.reduce_sum(x, (0,))).lower(x).compile().runtime_executable()
    (block,) = run_stepped(executable, [x])
    (batched,) = executable.plan.run(*executable.blocks([x]))
    assert block.shape == (1, 4, 2)
    np.testing.assert_array_equal(block, batched)


# -- the pieces ------------------------------------------------------------------------------------------------------------------


def vectors(n):
    return [(np.arange(4) + 10 * i,) for i in range(n)]


def test_exchange_gives_each_device_its_own():
    total = sum(x for (x,) in vectors(2))
    for out in exchange(find_op("all_reduce"), vectors(2), {"kind": "sum"}):
        np.testing.assert_array_equal(out, total)
    first, second = exchange(find_op("reduce_scatter"), vectors(2), {"dim": 0, "tiled": True})
    np.testing.assert_array_equal(np.concatenate([first, second]), total)
    np.testing.assert_array_equal(
        exchange(find_op("all_gather"), vectors(2), {"dim": 0, "tiled": False})[1], [x for (x,) in vectors(2)]
    )
    first, second = exchange(find_op("all_to_all"), vectors(2), {"split": 0, "concat": 0, "tiled": True})
    np.testing.assert_array_equal(first, [0, 1, 10, 11])
    np.testing.assert_array_equal(second, [2, 3, 12, 13])
    first, second = exchange(find_op("ppermute"), vectors(2), {"perm": ((0, 1),)})
    np.testing.assert_array_equal(first, np.zeros(4))
    np.testing.assert_array_equal(second, np.arange(4))
    halo = {"dim": 0, "step": 4, "start": -1, "width": 6, "pieces": ((0, 0, 0, 8),), "split": (True,)}
    first, second = exchange(find_op("halo_exchange"), [(x, np.asarray(7)) for (x,) in vectors(2)], halo)
    np.testing.assert_array_equal(first, [7, 0, 1, 2, 3, 10])
    np.testing.assert_array_equal(second, [3, 10, 11, 12, 13, 7])
    both = [(x, np.arange(4) + 100, np.asarray(7)) for (x,) in vectors(2)]  # the second source is whole on either
    halo = {"dim": 0, "step": 4, "start": 0, "width": 4, "pieces": ((1, 3, 0, 1), (0, 2, 2, 6)), "split": (True, False)}
    first, second = exchange(find_op("halo_exchange"), both, halo)
    np.testing.assert_array_equal(first, [103, 7, 2, 3])
    np.testing.assert_array_equal(second, [10, 11, 12, 13])


def test_what_needs_no_exchange():
    def alone(name: str, *args: Any) -> Any:
        collective = find_op(name).collective
        assert collective is not None and collective.alone is not None
        return collective.alone(*args)

    assert alone("axis_index", 3, (), {}) == 3
    np.testing.assert_array_equal(alone("all_slice", 1, (np.arange(4),), {"sizes": (2,), "dim": 0}), [2, 3])
    all_reduce = find_op("all_reduce").collective
    assert all_reduce is not None and all_reduce.alone is None


def test_a_device_knows_its_place():
    env = DeviceEnv(("x", "y"), (2, 4), 0, (1, 2))
    assert (env.lead, env.size("y")) == (0, 4)
    assert env.index(("y", "x")) == 2 * 2 + 1
    assert env.index(()) == 0
    assert env.place == {("x", 1), ("y", 2)}
    with pytest.raises(JaxRuntimeError, match="mesh axis 'x'"):
        env.dim("x")


def call(name, x, line, **params):
    return CollectiveCall(find_op(name), (x,), {"axes": ("x",), **params}, Source("prog.py", line))


def test_meeting_names_the_two_that_disagree():
    rendezvous = Rendezvous({"x": 2})
    here, there = frozenset({("x", 0)}), frozenset({("x", 1)})
    rendezvous.labels[here] = "cpu:0"
    x = np.zeros(3, np.float32)
    assert rendezvous.arrive(here, call("all_reduce", x, 4, kind="sum")) == []
    assert rendezvous.arrive(there, call("all_reduce", x, 9, kind="max")) == []
    error = rendezvous.stuck_error()
    assert isinstance(error, DivergenceError)
    assert "cpu:0 at (x=0) waits in psum over 'x' of f32[3] at prog.py:4" in str(error)
    assert "the device at (x=1) is in pmax over 'x' of f32[3] at prog.py:9" in str(error)


def test_meeting_names_who_left():
    rendezvous = Rendezvous({"x": 2})
    rendezvous.end(frozenset({("x", 1)}))
    rendezvous.arrive(frozenset({("x", 0)}), call("all_gather", np.zeros(3), 4, dim=0, tiled=True))
    assert "returned from the function without" in str(rendezvous.stuck_error())


def test_meeting_lets_groups_pass_on_their_own():
    rendezvous = Rendezvous({"x": 2, "y": 2})
    place = lambda i, j: frozenset({("x", i), ("y", j)})  # noqa: E731
    assert rendezvous.arrive(place(0, 1), call("all_reduce", np.ones(1), 1, kind="sum")) == []
    done = rendezvous.arrive(place(1, 1), call("all_reduce", np.ones(1), 2, kind="sum"))
    assert {p for p, _ in done} == {place(0, 1), place(1, 1)}
    assert [float(x[0]) for _, x in done] == [2, 2]
    assert not rendezvous.waiting


def test_values_typed_alike_must_be_alike():
    aval = ShapedArray((2,), np.float32)
    var = Var(aval.update(vma=frozenset({"x"})))
    env = Env(("x",), (2,))
    block = np.array([[1, 2], [3, 4]], np.float32)
    np.testing.assert_array_equal(SteppedPlan(Program((var,), (), (var,)), env).run(block)[0], block)
    claimed = Var(aval)
    with pytest.raises(JaxRuntimeError, match="should be the same on all devices along 'x'"):
        SteppedPlan(Program((claimed,), (), (claimed,)), env).run(block)
