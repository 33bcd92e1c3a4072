"""Planned collectives, run block by block on NumPy, must reproduce the target layout; and must be the expected ones."""

import itertools
import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardwise.ops.devices.all_gather import all_gather_op
from shardwise.ops.devices.all_reduce import all_reduce
from shardwise.ops.devices.all_slice import all_slice
from shardwise.ops.devices.all_to_all import all_to_all_op
from shardwise.ops.devices.ppermute import ppermute_op
from shardwise.ops.devices.reduce_scatter import psum_scatter_op
from shardwise.passes.reshard import local_shape, plan_reshard

MESH = {"x": 2, "y": 4}
X, Y, XY, YX, N = ("x",), ("y",), ("x", "y"), ("y", "x"), ()


class Devices:
    """A reference executor: one block per device, every collective spelled out device by device."""

    def __init__(self, mesh):
        self.mesh = mesh
        self.names = list(mesh)
        self.coords = list(itertools.product(*[range(n) for n in mesh.values()]))

    def position(self, coord, axes):
        p = 0
        for a in axes:
            p = p * self.mesh[a] + coord[self.names.index(a)]
        return p

    def group(self, coord, axes):
        """The devices that differ from `coord` along `axes` only, in joint order."""
        others = [c for c in self.coords if all(c[i] == coord[i] for i, a in enumerate(self.names) if a not in axes)]
        return sorted(others, key=lambda c: self.position(c, axes))

    def ways(self, axes):
        return math.prod(self.mesh[a] for a in axes)

    def shard(self, value, dims):
        return {c: self.block(value, dims, c) for c in self.coords}

    def block(self, value, dims, coord):
        for d, axes in enumerate(dims):
            value = np.split(value, self.ways(axes), axis=d)[self.position(coord, axes)]
        return value

    def run(self, step, blocks):
        n = self.ways(step.axes)
        if step.op is all_slice:
            return {c: np.split(b, n, axis=step.dim)[self.position(c, step.axes)] for c, b in blocks.items()}
        if step.op is all_gather_op:
            return {c: np.concatenate([blocks[g] for g in self.group(c, step.axes)], axis=step.dim) for c in blocks}
        if step.op is all_to_all_op:
            return {
                c: np.concatenate(
                    [
                        np.split(blocks[g], n, axis=step.target_dim)[self.position(c, step.axes)]
                        for g in self.group(c, step.axes)
                    ],
                    axis=step.dim,
                )
                for c in blocks
            }
        assert step.op is ppermute_op
        assert sorted(s for s, _ in step.perm) == sorted(t for _, t in step.perm) == list(range(n))
        sender = {t: s for s, t in step.perm}
        return {c: blocks[self.group(c, step.axes)[sender[self.position(c, step.axes)]]] for c in blocks}


def bytes_sent(op, nbytes, n):
    return op.collective.block_bytes_sent(nbytes, n)


def check(source, target, shape, mesh):
    value = np.arange(math.prod(shape)).reshape(shape)
    devices = Devices(mesh)
    blocks = devices.shard(value, source)
    layout = source
    for step in plan_reshard(source, target, shape, value.itemsize, mesh):
        assert step.result != layout
        local = math.prod(local_shape(shape, layout, mesh)) * value.itemsize
        assert step.bytes_sent == bytes_sent(step.op, local, devices.ways(step.axes))
        blocks, layout = devices.run(step, blocks), step.result
        for c in devices.coords:
            np.testing.assert_array_equal(blocks[c], devices.block(value, layout, c))
    assert layout == target


def layouts(rng, mesh, shape):
    axes = list(mesh)
    rng.shuffle(axes)
    dims = [()] * len(shape)
    for a in axes[: rng.randint(0, len(axes))]:
        d = rng.randrange(len(shape))
        if shape[d] % (math.prod(mesh[b] for b in dims[d]) * mesh[a]) == 0:
            dims[d] = (*dims[d], a)
    return tuple(dims)


@settings(max_examples=120, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_steps_reproduce_the_target(seed):
    rng = random.Random(seed)
    mesh = {name: rng.choice([1, 2, 2, 3, 4]) for name in "abcd"[: rng.randint(1, 4)]}
    shape = tuple(rng.choice([1, 2, 4, 6, 8, 12, 24]) for _ in range(rng.randint(1, 3)))
    check(layouts(rng, mesh, shape), layouts(rng, mesh, shape), shape, mesh)


def steps(source, target, mesh=None, shape=(8, 8)):
    """The plan as text: A2A(y), AG(x), CP, slice(x)."""
    short = {all_gather_op: "AG", all_to_all_op: "A2A", all_slice: "slice"}
    return [
        "permute" if s.op is ppermute_op else f"{short[s.op]}({','.join(s.axes)})"
        for s in plan_reshard(source, target, shape, 4, mesh or MESH)
    ]


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ((X, N), (N, N), ["AG(x)"]),
        ((N, N), (X, N), ["slice(x)"]),
        ((X, N), (X, Y), ["slice(y)"]),
        ((X, N), (XY, N), ["slice(y)"]),
        ((X, Y), (N, N), ["AG(y)", "AG(x)"]),
        ((X, Y), (X, N), ["AG(y)"]),
        ((X, Y), (N, Y), ["AG(x)"]),
        ((X, N), (N, X), ["A2A(x)"]),
        ((Y, N), (N, Y), ["A2A(y)"]),
        ((X, Y), (XY, N), ["A2A(y)"]),
        ((XY, N), (X, Y), ["A2A(y)"]),
        ((X, Y), (N, XY), ["A2A(x)", "permute"]),
        ((XY, N), (YX, N), ["permute"]),
        ((XY, N), (Y, X), ["permute", "A2A(x)"]),
        ((XY, N), (X, N), ["AG(y)"]),
        ((XY, N), (Y, N), ["permute", "AG(x)"]),
        ((XY, N), (N, N), ["AG(x,y)"]),
        ((X, Y), (Y, N), ["AG(x)", "A2A(y)"]),
        ((Y, N), (X, N), ["slice(x)", "permute", "AG(y)"]),
        ((X, N), (Y, N), ["slice(y)", "permute", "AG(x)"]),
        ((N, X), (X, Y), ["slice(y)", "permute", "A2A(x)"]),
    ],
)
def test_sequences(source, target, expected):
    assert steps(source, target) == expected
    check(source, target, (8, 8), MESH)


@pytest.mark.parametrize(("source", "target"), [((X, Y), (Y, X)), ((X, N), (Y, N)), ((XY, N), (YX, N))])
def test_axes_of_equal_size_are_renamed_by_one_permute(source, target):
    mesh = {"x": 2, "y": 2}
    assert steps(source, target, mesh) == ["permute"]
    check(source, target, (4, 4), mesh)


def test_devices_that_have_their_block_keep_it():
    (step,) = plan_reshard((X, N), (Y, N), (4, 4), 4, {"x": 2, "y": 2})
    assert step.axes == ("x", "y")
    assert {(s, t) for s, t in step.perm if s != t} == {(1, 2), (2, 1)}


def test_gathers_where_no_move_divides():
    # 8-way x cannot move to a dim of size 6, so the value is gathered and split anew.
    mesh = {"x": 4, "y": 3}
    assert steps((("x",), ()), ((), ("y",)), mesh, (8, 6)) == ["slice(y)", "AG(x)"]
    check((("x",), ()), ((), ("y",)), (8, 6), mesh)
    check((("x", "y"), ()), (("y",), ("x",)), (12, 4), mesh)


def test_bytes():
    assert bytes_sent(all_gather_op, 100, 4) == 300
    assert bytes_sent(psum_scatter_op, 100, 4) == 75
    assert bytes_sent(all_reduce, 100, 4) == 150
    assert bytes_sent(all_to_all_op, 100, 4) == 75
    assert bytes_sent(ppermute_op, 100, 4) == 100
    assert bytes_sent(all_slice, 100, 4) == 0
    assert all(bytes_sent(op, 100, 1) == 0 for op in (all_gather_op, all_reduce, ppermute_op))


def test_local_shape():
    assert local_shape((8, 6, 3), (XY, X, N), MESH) == (1, 3, 3)
    with pytest.raises(ValueError, match="4 does not divide 6"):
        local_shape((6,), (Y,), MESH)


def test_empty_dims_and_unit_axes():
    check((("x",), ()), ((), ("x",)), (0, 4), {"x": 2})
    check((("x",),), (("u",),), (4,), {"x": 2, "u": 1})


def test_large_meshes_plan_quickly():
    mesh = {"a": 16, "b": 16, "c": 16}
    plan = plan_reshard((("a", "b"), ("c",), ()), (("c",), (), ("b", "a")), (4096, 4096, 4096), 4, mesh)
    assert plan[-1].result == (("c",), (), ("b", "a"))
