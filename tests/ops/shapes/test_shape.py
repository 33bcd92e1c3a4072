"""Shape functions: values, types and errors against NumPy and the oracle, the loop law, sharding rules, explicit types."""

from __future__ import annotations

import importlib
import inspect
import itertools

import ml_dtypes
import numpy as np
import pytest

import shardwise as sw
from shardwise.base.config import use_dialect
from shardwise.base.errors import IndivisibleError, ShardingTypeError
from shardwise.ir import ShapedArray, infer_types
from shardwise.ops import shapes as shape
from shardwise.ops.rules.convert import as_value
from shardwise.ops.rules.out_sharding import resolve_out_sharding
from shardwise.runtime.env import SINGLE
from shardwise.sharding import AbstractMesh, AxisType, NamedSharding, make_mesh, use_abstract_mesh
from shardwise.sharding import PartitionSpec as P
from shardwise.sharding.rule import Kind
from tests.ops.loop_law import CASES, check_law, env_of, spread

# The room exports functions under the names of these modules.
broadcast, fill, iota, joining, pieces, reshape, reverse, transpose = (
    importlib.import_module(f"shardwise.ops.shapes.{name}")
    for name in ("broadcast", "fill", "iota", "joining", "pieces", "reshape", "reverse", "transpose")
)

MESH = AbstractMesh((2, 4), ("x", "y"), axis_types=(AxisType.Explicit,) * 2)
AUTO = AbstractMesh((2, 4), ("x", "y"), axis_types=(AxisType.Auto,) * 2)
RNG = np.random.default_rng(0)
X = RNG.normal(size=(3, 4)).astype(np.float32)
F32 = np.dtype("float32")


def typed(shape_, dtype="float32", weak=False):
    return ShapedArray(shape_, np.dtype(dtype), weak)


def split(shape_, *entries):
    """A type on the explicit mesh: ``split((8, 8), 'x', None)``."""
    spec = tuple(() if e is None else (e,) if isinstance(e, str) else e for e in entries)
    return ShapedArray(shape_, F32, mesh=MESH, spec=spec)


def run(op, *blocks, **params):
    return op.block_kernel(SINGLE, *blocks, **params)


# -- values and the loop law --------------------------------------------------------------------------------------------

# op, operands, params, what NumPy makes of them
MOVES = {
    "transpose": (transpose.transpose_p, [X], {"permutation": (1, 0)}, X.T),
    "squeeze": (transpose.squeeze_p, [X[:, None, :, None]], {"dimensions": (1, 3)}, X),
    "squeeze nothing": (transpose.squeeze_p, [X], {"dimensions": ()}, X),
    "rev": (reverse.rev_p, [X], {"dimensions": (0, 1)}, X[::-1, ::-1]),
    "rev nothing": (reverse.rev_p, [X], {"dimensions": ()}, X),
    "reshape": (reshape.reshape_p, [X], {"new_sizes": (2, 6)}, X.reshape(2, 6)),
    "reshape a view": (reshape.reshape_p, [np.ascontiguousarray(X.T).T], {"new_sizes": (12,)}, X.reshape(12)),
    "broadcast a scalar": (broadcast.broadcast_in_dim_p, [X[0, 0, ...]],
                           {"shape": (2, 3), "broadcast_dimensions": ()}, np.full((2, 3), X[0, 0])),
    "broadcast rows": (broadcast.broadcast_in_dim_p, [X[0]], {"shape": (3, 4), "broadcast_dimensions": (1,)},
                       np.broadcast_to(X[0], (3, 4))),
    "grow a dim of 1": (broadcast.broadcast_in_dim_p, [X[:, :1]], {"shape": (2, 3, 5), "broadcast_dimensions": (1, 2)},
                        np.broadcast_to(X[:, :1], (2, 3, 5))),
    "broadcast a view": (broadcast.broadcast_in_dim_p, [X[:, ::2]], {"shape": (2, 3, 2), "broadcast_dimensions": (1, 2)},
                         np.broadcast_to(X[:, ::2], (2, 3, 2))),
    "insert dims": (broadcast.broadcast_in_dim_p, [X], {"shape": (3, 1, 4), "broadcast_dimensions": (0, 2)}, X[:, None]),
    "slice": (pieces.slice_p, [X], {"start_indices": (1, 0), "limit_indices": (3, 4), "strides": (1, 2)}, X[1:3, ::2]),
    "slice to nothing": (pieces.slice_p, [X], {"start_indices": (1, 0), "limit_indices": (1, 4)}, X[1:1]),
    "split": (pieces.split_p, [X], {"sizes": (1, 0, 3), "axis": 1}, (X[:, :1], X[:, :0], X[:, 1:])),
    "concatenate": (joining.concatenate_p, [X, X[:1], X + 1], {"dimension": 0}, np.concatenate([X, X[:1], X + 1])),
    "concatenate columns": (joining.concatenate_p, [X, X[:, :0]], {"dimension": 1}, X),
    "concatenate one": (joining.concatenate_p, [X], {"dimension": 1}, X),
}  # fmt: skip


@pytest.mark.parametrize("case", MOVES, ids=str)
def test_values(case):
    op, blocks, params, want = MOVES[case]
    got = run(op, *[np.asarray(b) for b in blocks], **params)
    for g, w in zip(
        got if isinstance(want, tuple) else [got], want if isinstance(want, tuple) else [want], strict=True
    ):
        assert g.dtype == w.dtype and g.shape == w.shape
        np.testing.assert_array_equal(g, w)
    types = op.type_rule(*[typed(np.shape(b)) for b in blocks], **params)
    shapes = [t.shape for t in types] if isinstance(types, tuple) else types.shape
    assert shapes == ([w.shape for w in want] if isinstance(want, tuple) else want.shape)


@pytest.mark.parametrize("case", MOVES, ids=str)
def test_loop_law(case):
    op, blocks, params, _ = MOVES[case]
    for lead, mix in CASES:
        spreads = [spread(np.asarray(b), m, lambda v, k: v + k) for b, m in zip(blocks, mix, strict=False)]
        check_law(op.block_kernel, spreads, lead, **params)


PADS = [((0, 0, 0),), ((1, 2, 0),), ((-1, 1, 0),), ((-1, -1, 1),), ((2, 0, 2),), ((0, -2, 1),), ((-3, 3, 0),), ((3, -3, 0),),
        ((-2, 5, 2),), ((1, 1, 3),), ((-7, 0, 3),), ((0, -7, 3),), ((-5, 8, 1),)]  # fmt: skip


def padded(x, value, config):
    """What XLA's pad means, element by element."""
    sizes = [lo + hi + n + max(n - 1, 0) * i for n, (lo, hi, i) in zip(x.shape, config, strict=True)]
    out = np.full(sizes, value, x.dtype)
    for at in np.ndindex(x.shape):
        to = tuple(lo + i * (inner + 1) for i, (lo, _, inner) in zip(at, config, strict=True))
        if all(0 <= t < n for t, n in zip(to, sizes, strict=True)):
            out[to] = x[at]
    return out


def test_pad_values():
    x, value = np.arange(1, 4, dtype=np.float32), np.asarray(np.float32(9))
    for config in PADS:
        if pad_size(3, config[0]) >= 0:
            np.testing.assert_array_equal(
                run(pieces.pad_p, x, value, padding_config=config), padded(x, 9, config), str(config)
            )
    for first, second in itertools.product(PADS, PADS):
        config = (first[0], second[0])
        if pad_size(3, first[0]) >= 0 and pad_size(4, second[0]) >= 0:
            got = run(pieces.pad_p, X, value, padding_config=config)
            np.testing.assert_array_equal(got, padded(X, 9, config), str(config))
            assert pieces.pad_p.type_rule(typed(X.shape), typed(()), padding_config=config).shape == got.shape
    empty = np.zeros((0, 2), np.float32)
    np.testing.assert_array_equal(
        run(pieces.pad_p, empty, value, padding_config=((2, 1, 5), (0, 0, 0))), np.full((3, 2), 9)
    )


def pad_size(n, config):
    return config[0] + config[1] + n + max(n - 1, 0) * config[2]


@pytest.mark.parametrize(("lead", "mix"), CASES)
def test_pad_loop_law(lead, mix):
    for config in [((1, 1, 0), (0, 0, 1)), ((0, 0, 0), (-1, 2, 0))]:
        blocks = [spread(X, mix[0], lambda v, k: v + k), spread(np.asarray(X[0, 0]), mix[1], lambda v, k: v - k)]
        check_law(pieces.pad_p.block_kernel, blocks, lead, padding_config=config)


def test_values_are_those_of_the_oracle():
    lax = pytest.importorskip("jax").lax
    for config in PADS:
        if pad_size(4, config[0]) >= 0:
            full = ((0, 1, 0), config[0])
            want = lax.pad(X, np.float32(2), full)
            np.testing.assert_array_equal(run(pieces.pad_p, X, np.asarray(np.float32(2)), padding_config=full), want)
    for dtype in ("int8", "uint32", "float16", "bfloat16", "float32", "complex64"):
        dtype = np.dtype(getattr(ml_dtypes, dtype, dtype))
        got = run(iota.iota_p, dtype=dtype, shape=(2, 300), dimension=1)
        want = lax.broadcasted_iota(dtype, (2, 300), 1)
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got, want)


def test_broadcast_is_a_readonly_view():
    x = np.zeros((1, 1, 5), np.float32)
    for shape_ in ((8, 5), (1, 5)):
        env = env_of(2)
        got = broadcast.broadcast_in_dim_p.block_kernel(env, x, shape=shape_, broadcast_dimensions=(1,))
        assert got.shape == (1, 1, *shape_) and np.shares_memory(got, x)
    assert not broadcast.stretch_view(x, (1, 3, 5)).flags.writeable
    half = np.zeros((1, 5), ml_dtypes.bfloat16)
    assert broadcast.stretch_view(half, (4, 5)).strides == (0, 2)


@pytest.mark.parametrize("lead", [0, 1, 2])
def test_iota_counts_on_from_device_to_device(lead):
    """With `shard_axes`, device i of n starts at i times the local size."""
    env = env_of(lead)
    got = run(iota.iota_p, dtype=np.dtype("int32"), shape=(2, 3), dimension=1)
    np.testing.assert_array_equal(got, [[0, 1, 2], [0, 1, 2]])
    local = iota.iota_p.block_kernel(env, dtype=np.dtype("int32"), shape=(2, 3), dimension=0)
    assert local.shape == (1,) * lead + (2, 3)
    if lead == 2:
        for axes in (("x",), ("y",), ("x", "y"), ("y", "x")):
            local = iota.iota_p.block_kernel(env, dtype=np.dtype("int32"), shape=(2, 3), dimension=1, shard_axes=axes)
            first = env.index(axes) * 3
            np.testing.assert_array_equal(local[..., 1, :], first[..., None] + np.arange(3))
            assert local.shape[:2] == first.shape
    params = {"dtype": F32, "shape": (8,), "dimension": 0, "out_sharding": None}
    assert iota.iota_p.place(params, (), ((("x",),),))["shard_axes"] == ("x",)
    assert iota.iota_p.localize(params, (), (typed((4,)),))["shape"] == (4,)


# -- sharding rules -----------------------------------------------------------------------------------------------------


def rule_of(op, *types, **params):
    out = op.type_rule(*types, **params)
    return op.sharding_rule(types, out if isinstance(out, tuple) else (out,), params)


def test_rules():
    rule = rule_of(transpose.transpose_p, typed((2, 1, 4)), permutation=(2, 0, 1))
    assert rule.inputs == (((0,), (1,), (2,)),) and rule.outputs == (((2,), (0,), (1,)),)
    rule = rule_of(transpose.squeeze_p, typed((1, 4)), dimensions=(0,))
    assert rule.outputs == (((1,),),)
    rule = rule_of(reverse.rev_p, typed((3, 4)), dimensions=(1,))
    assert rule.kinds == (Kind.PASS, Kind.PERMUTE)
    rule = rule_of(broadcast.broadcast_in_dim_p, typed((3, 1)), shape=(2, 3, 4), broadcast_dimensions=(1, 2))
    assert rule.inputs == (((1,), ()),) and rule.outputs == (((0,), (1,), (2,)),) and set(rule.kinds) == {Kind.PASS}
    rule = rule_of(reshape.reshape_p, typed((8, 4)), new_sizes=(2, 16))
    assert rule.inputs == (((0, 1), (2,)),) and rule.outputs == (((0,), (1, 2)),)
    rule = rule_of(pieces.slice_p, typed((8, 4)), start_indices=(0, 0), limit_indices=(4, 4))
    assert rule.kinds == (Kind.PERMUTE, Kind.PASS) and rule.inputs == rule.outputs and rule.sizes == (8, 4)
    rule = rule_of(pieces.split_p, typed((8, 4)), sizes=(1, 3), axis=1)
    assert rule.kinds == (Kind.PASS, Kind.PERMUTE) and rule.outputs == (((0,), ()), ((0,), (1,)))
    rule = rule_of(pieces.pad_p, typed((8, 4)), typed(()), padding_config=((1, -1, 0), (0, 0, 0)))
    assert rule.kinds == (Kind.PERMUTE, Kind.PASS) and rule.inputs[1] == () and rule.sizes == (8, 4)
    rule = rule_of(joining.concatenate_p, typed((8, 4)), typed((1, 4)), dimension=0)
    assert rule.kinds == (Kind.REPLICATE, Kind.PASS) and rule.inputs == (((0,), (1,)), ((), (1,)))
    rule = rule_of(iota.iota_p, dtype=F32, shape=(8, 1), dimension=0)
    assert rule.inputs == () and rule.outputs == (((0,), ()),)


def test_params_fit_local_shapes():
    params = {"start_indices": (0, 1), "limit_indices": (8, 3), "strides": None}
    local = pieces.slice_p.localize(params, (typed((4, 6)),), (typed((4, 2)),))
    assert local["limit_indices"] == (4, 3)
    sharding = NamedSharding(MESH, P("x"))
    params = {"shape": (8, 2), "broadcast_dimensions": (0,), "out_sharding": sharding}
    local = broadcast.broadcast_in_dim_p.localize(params, (typed((4,)),), (typed((4, 2)),))
    assert local["shape"] == (4, 2) and local["out_sharding"] is None
    local = reshape.reshape_p.localize(
        {"new_sizes": (8, 8), "out_sharding": sharding}, (typed((4, 8)),), (typed((4, 8)),)
    )
    assert local == {"new_sizes": (4, 8), "out_sharding": None}


# -- explicit types -----------------------------------------------------------------------------------------------------


def spec_of(op, *types, **params):
    out = infer_types(op, types, params)
    return [tuple(t.sharding.spec) for t in out] if op.multiple_results else tuple(out[0].sharding.spec)


RESHAPES = [
    (((8, 8), "x", "y"), (64,), (("x", "y"),)), (((8, 8), "x", None), (64,), ("x",)), (((8, 8), None, "y"), (64,), None),
    (((8, 8), None, None), (64,), (None,)), (((8, 8), "x", "y"), (8, 1, 8), ("x", None, "y")),
    (((8, 8), "x", "y"), (8, 2, 4), None), (((8, 8), "x", "y"), (4, 2, 8), ("x", None, "y")),
    (((8, 8), "x", "y"), (2, 4, 8), ("x", None, "y")), (((8, 8), ("x", "y"), None), (2, 4, 8), ("x", "y", None)),
    (((8, 8), ("x", "y"), None), (4, 2, 8), None), (((64,), ("x", "y")), (2, 32), ("x", "y")),
    (((64,), ("x", "y")), (8, 8), (("x", "y"), None)), (((64,), ("x", "y")), (2, 4, 8), ("x", "y", None)),
    (((64,), ("x", "y")), (1, 64), (None, ("x", "y"))), (((64,), ("x", "y")), (1, 8, 8), (None, ("x", "y"), None)),
    (((64,), ("x", "y")), (4, 16), None), (((64,), ("x", "y")), (2, 2, 16), None),
    (((64,), ("x", "y")), (2, 16, 2), ("x", "y", None)), (((8,), "y"), (2, 4), None), (((8,), "y"), (4, 2), ("y", None)),
    (((2, 3, 8), "x", None, None), (6, 8), ("x", None)), (((2, 3, 8), "x", None, "y"), (6, 8), ("x", "y")),
    (((2, 3, 8), "x", None, "y"), (48,), None), (((2, 4, 8), "x", "y", None), (8, 8), (("x", "y"), None)),
    (((4, 4, 8), "x", "y", None), (16, 2, 4), None), (((4, 4, 8), None, None, "y"), (16, 2, 4), None),
    (((4, 4, 8), None, None, "y"), (4, 32), None), (((4, 4, 8), None, None, "y"), (2, 2, 4, 8), (None, None, None, "y")),
    (((4, 4, 8), None, None, "y"), (16, 8), (None, "y")), (((4, 4, 8), None, "x", "y"), (8, 2, 8), None),
    (((4, 6), "x", None), (8, 3), None), (((4, 6), "x", None), (2, 12), None), (((4, 1, 6), "x", None, None), (4, 6), ("x", None)),
    (((4, 1, 6), "x", None, None), (4, 6, 1, 1), ("x", None, None, None)), (((8, 1), "x", None), (8,), ("x",)),
]  # fmt: skip


@pytest.mark.parametrize(("operand", "sizes", "want"), RESHAPES, ids=str)
def test_explicit_reshape(operand, sizes, want):
    """As JAX 0.10.2 answers (None: ambiguous)."""
    x = split(*operand)
    if want is not None:
        assert spec_of(reshape.reshape_p, x, new_sizes=sizes) == want
        return
    for dialect, error in (("latest", ShardingTypeError), ("seed", ValueError)):
        with use_dialect(dialect), pytest.raises(error, match="reshape is not supported"):
            spec_of(reshape.reshape_p, x, new_sizes=sizes)


def test_explicit_reshape_with_out_sharding():
    sharding = NamedSharding(MESH, P("x"))
    assert spec_of(reshape.reshape_p, split((8, 8), None, "y"), new_sizes=(64,), out_sharding=sharding) == ("x",)


def test_explicit_moves():
    xy, v = split((8, 8), "x", "y"), split((8,), "x")
    assert spec_of(transpose.transpose_p, xy, permutation=(1, 0)) == ("y", "x")
    assert spec_of(transpose.squeeze_p, split((1, 8), None, "y"), dimensions=(0,)) == ("y",)
    assert spec_of(reverse.rev_p, xy, dimensions=(0,)) == ("x", "y")
    params = {"shape": (8, 4), "broadcast_dimensions": (0,)}
    assert spec_of(broadcast.broadcast_in_dim_p, v, **params) == ("x", None)
    for want in (("x", "y"), ("y", None), (None, None)):
        sharding = NamedSharding(MESH, P(*want))
        assert spec_of(broadcast.broadcast_in_dim_p, v, **params, out_sharding=sharding) == want
    assert spec_of(pieces.slice_p, xy, start_indices=(0, 0), limit_indices=(4, 8)) == ("x", "y")
    assert spec_of(pieces.split_p, xy, sizes=(4, 4), axis=1) == [("x", "y")] * 2
    assert spec_of(pieces.pad_p, xy, typed(()), padding_config=((1, 1, 0), (0, 0, 0))) == ("x", "y")
    assert spec_of(joining.concatenate_p, xy, xy, dimension=0) == ("x", "y")
    assert spec_of(joining.concatenate_p, xy, typed((8, 8)), dimension=0) == ("x", "y")


def test_explicit_errors():
    xy, xn = split((8, 8), "x", "y"), split((8, 8), "x", None)
    with pytest.raises(ShardingTypeError, match="not divisible"):
        spec_of(pieces.slice_p, xy, start_indices=(0, 0), limit_indices=(3, 8))
    with pytest.raises(ShardingTypeError, match="not divisible"):
        spec_of(pieces.split_p, xy, sizes=(2, 6), axis=1)
    assert spec_of(pieces.split_p, xn, sizes=(2, 6), axis=1) == [("x", None)] * 2
    with pytest.raises(ShardingTypeError, match="not divisible"):
        spec_of(pieces.pad_p, xy, typed(()), padding_config=((1, 0, 0), (0, 0, 0)))
    with pytest.raises(ShardingTypeError, match="one sharding"):
        spec_of(joining.concatenate_p, xy, xn, dimension=0)


def test_out_sharding():
    assert resolve_out_sharding(None, "f", 2) is None
    with pytest.raises(ValueError, match="not under a mesh context"):
        resolve_out_sharding(P("x"), "f", 2)
    with pytest.raises(TypeError, match="takes a NamedSharding or a PartitionSpec"):
        resolve_out_sharding("x", "f", 2)
    with use_abstract_mesh(MESH):
        assert resolve_out_sharding(P("x"), "f", 2) == NamedSharding(MESH, P("x", None))
        with pytest.raises(ValueError, match="3 entries"):
            resolve_out_sharding(P(None, None, "x"), "f", 2)
        with pytest.raises(ValueError, match="z"):
            resolve_out_sharding(P("z"), "f", 2)
        x = NamedSharding(MESH, P("x", None))
        (out,) = infer_types(iota.iota_p, (), {"dtype": F32, "shape": (8, 4), "dimension": 0, "out_sharding": x})
        assert out.spec == (("x",), ()) and out.mesh is MESH
        (out,) = infer_types(iota.iota_p, (), {"dtype": F32, "shape": (8, 4), "dimension": 0})
        assert out.spec == ((), ()) and out.mesh is MESH
        with pytest.raises(IndivisibleError, match="partitioned 2 times"):
            infer_types(iota.iota_p, (), {"dtype": F32, "shape": (7, 4), "dimension": 0, "out_sharding": x})
    with use_abstract_mesh(AUTO):
        with pytest.raises(ValueError, match="Auto or Manual"):
            resolve_out_sharding(P("x"), "f", 2)
        assert resolve_out_sharding(P(), "f", 1) is not None
        (out,) = infer_types(iota.iota_p, (), {"dtype": F32, "shape": (8, 4), "dimension": 0})
        assert out.mesh is None
        sharding = resolve_out_sharding(P(), "f", 1)
        (out,) = infer_types(reshape.reshape_p, (typed((8, 8)),), {"new_sizes": (64,), "out_sharding": sharding})
        assert out.mesh is None


# -- errors -------------------------------------------------------------------------------------------------------------

T = np.ones((3, 4), np.float32)
ERRORS = [
    (lambda x: shape.reshape(x, (4, 4)), TypeError), (lambda x: shape.reshape(x, (2, -1)), TypeError),
    (lambda x: shape.reshape(x, (12,), (1, 1)), TypeError), (lambda x: shape.reshape(x, (3.0, 4)), TypeError),
    (lambda x: shape.broadcast_in_dim(x, (3, 4), (1,)), TypeError),
    (lambda x: shape.broadcast_in_dim(x, (3, 5), (0, 1)), TypeError),
    (lambda x: shape.broadcast_in_dim(x, (3, 4), (0, 2)), TypeError),
    (lambda x: shape.broadcast_in_dim(x, (4,), (0, 1)), TypeError),
    (lambda x: shape.broadcast(x, (-2,)), TypeError), (lambda x: shape.transpose(x, (0, 0)), TypeError),
    (lambda x: shape.transpose(x, (-1, 0)), TypeError), (lambda x: shape.transpose(x, 1), TypeError),  # pyright: ignore[reportArgumentType]
    (lambda x: shape.squeeze(x, (0,)), ValueError), (lambda x: shape.squeeze(x, (5,)), ValueError),
    (lambda x: shape.squeeze(x, (0, 0)), ValueError), (lambda x: shape.expand_dims(x, (0, 0)), ValueError),
    (lambda x: shape.expand_dims(x, (7,)), ValueError), (lambda x: shape.rev(x, (-1,)), TypeError),
    (lambda x: shape.rev(x, (0, 0)), TypeError), (lambda x: shape.rev(x, (2,)), TypeError),
    (lambda x: shape.slice(x, (0,), (2, 2)), TypeError), (lambda x: shape.slice(x, (0, 0), (5, 2)), TypeError),
    (lambda x: shape.slice(x, (2, 0), (1, 2)), TypeError), (lambda x: shape.slice(x, (0, 0), (2, 2), (0, 1)), TypeError),
    (lambda x: shape.slice_in_dim(x, 0, 9), TypeError), (lambda x: shape.pad(x, 0, ((0, 0, 0),) * 2), TypeError),
    (lambda x: shape.pad(x, 0.0, ((-2, -2, 0), (0, 0, 0))), ValueError),
    (lambda x: shape.pad(x, 0.0, ((0, 1, -1), (0, 0, 0))), ValueError),
    (lambda x: shape.pad(x, 0.0, ((0, 1, 0),)), ValueError), (lambda x: shape.pad(x, 0.0, ((0, 1), (0, 0))), ValueError),  # pyright: ignore[reportArgumentType]
    (lambda x: shape.concatenate([], 0), ValueError), (lambda x: shape.concatenate([x, x], 2), TypeError),
    (lambda x: shape.concatenate([x, x], -1), TypeError), (lambda x: shape.concatenate([2.0, 3.0], 0), TypeError),
    (lambda x: shape.split(x, (1, 1)), ValueError), (lambda x: shape.split(x, (1, 2), axis=2), ValueError),
    (lambda x: shape.split(x, (-1, 4)), ValueError), (lambda x: shape.iota(bool, 3), TypeError),
    (lambda x: shape.iota(np.int8, -1), TypeError), (lambda x: shape.iota(int, 2.5), TypeError),  # pyright: ignore[reportArgumentType]
    (lambda x: shape.broadcasted_iota(np.int32, (2, 3), 2), ValueError),
    (lambda x: shape.broadcasted_iota(np.int32, (), 0), ValueError), (lambda x: shape.tile(x, (2,)), TypeError),
    (lambda x: fill.full((2,), x), TypeError), (lambda x: fill.full((2.0,), 1), TypeError),
    (lambda x: fill.full((-1,), 1), TypeError), (lambda x: shape.broadcast_shapes((2,), (3,)), ValueError),
]  # fmt: skip


@pytest.mark.parametrize(("call", "error"), ERRORS, ids=[f"{i}" for i in range(len(ERRORS))])
def test_errors_are_those_of_the_oracle(call, error):
    with pytest.raises(error):
        call(as_value(T))


def test_signatures_are_those_of_the_oracle():
    lax = pytest.importorskip("jax").lax
    for name in sorted({*shape.__all__} - {"zeros_like_array"}):  # which today's JAX has no more
        ours = list(inspect.signature(getattr(shape, name)).parameters)
        assert ours == list(inspect.signature(getattr(lax, name)).parameters), name


def test_broadcast_shapes():
    assert shape.broadcast_shapes((2, 1), (1, 3), (3,)) == (2, 3)


def test_full_lies_where_it_is_told():
    mesh = make_mesh((2, 4), ("x", "y"), axis_types=(AxisType.Auto,) * 2)
    split = NamedSharding(mesh, P("x"))
    x = fill.full((8, 4), 1.0, sharding=split)
    assert x.sharding == split and x.weak_type
    assert fill.full_like(x, 2).sharding == split
    assert fill.full_like(x, 2, shape=(3,)).sharding != split
    typed_split = NamedSharding(make_mesh((2, 4), ("x", "y"), axis_types=(AxisType.Explicit,) * 2), P("x"))
    x = fill.full((8, 4), 1, np.float32, sharding=typed_split)
    assert x.aval.spec == (("x",), ()) and fill.full_like(x, 2).aval.spec == x.aval.spec
    with pytest.raises(ValueError, match="7"):
        fill.full((7, 4), 1.0, sharding=split)
    with pytest.raises(TypeError, match="Sharding"):
        fill.full((7, 4), 1.0, sharding="x")
    assert fill.empty((2,), np.int8).dtype == np.int8
    assert fill.dtype(2.0) == np.float32 and fill.dtype(np.int64(2)) == np.int32


def test_broadcast_like():
    x = as_value(np.arange(4, dtype=np.int8))
    got = shape.broadcast_like(x, as_value(np.ones((3, 4), np.float32)))
    np.testing.assert_array_equal(np.asarray(got), np.broadcast_to(np.arange(4), (3, 4)))
    with pytest.raises(ValueError, match="does not broadcast"):
        shape.broadcast_like(got, x)


def test_broadcast_dims_in_any_order():
    x, weights = np.arange(6, dtype=np.float32).reshape(3, 1, 2), np.arange(48, dtype=np.float32).reshape(2, 3, 8)
    f = lambda x: sw.lax.broadcast_in_dim(x, (2, 3, 8), (1, 2, 0))  # noqa: E731
    want = np.broadcast_to(x.transpose(2, 0, 1), (2, 3, 8))
    for g in (f, sw.jit(f)):
        np.testing.assert_array_equal(g(x), want)
    np.testing.assert_array_equal(sw.vmap(f, 1, 1)(np.stack([x, x], 1)), np.stack([want, want], 1))
    slope = sw.grad(lambda x: (f(x) * weights).sum())(x)
    np.testing.assert_array_equal(slope, weights.sum(2).T[:, None])
    with pytest.raises(TypeError, match="must not contain duplicates"):
        sw.lax.broadcast_in_dim(x, (2, 3, 8), (1, 1, 0))
