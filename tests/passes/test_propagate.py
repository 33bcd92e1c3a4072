"""Layouts of results in Auto mode: the recorded table on the mesh x=2, y=4, and the rules behind it."""

import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from shardwise import lax
from shardwise.base.shapes import DimAxes
from shardwise.ir import Equation, Program, ShapedArray, Var, bind, define_op, literal, trace_program
from shardwise.ops.devices.layout import sharding_constraint
from shardwise.ops.indexing.scatter import ScatterDimensionNumbers, scatter_add
from shardwise.passes.propagate import Placement, propagate
from shardwise.sharding import AbstractMesh, AxisType
from tests.passes.layouts import MESH, layout, out_layouts, run_propagation, text


def one(x, y):
    """A scalar operand of x's dtype."""
    return literal(y, dtype=x.dtype)


def plus_one(x):
    return lax.add(x, one(x, 1))


def dot(a, b, contract=((1,), (0,)), batch=((), ())):
    return lax.dot_general(a, b, (contract, batch))


def rows(a, v):
    """a + v, broadcast over rows as jnp does it: a row that is stretched by the add."""
    return lax.add(a, lax.expand_dims(v, (0,)))


def take_rows(a, i):
    numbers = lax.GatherDimensionNumbers(offset_dims=(1,), collapsed_slice_dims=(0,), start_index_map=(0,))
    return lax.gather(a, lax.expand_dims(i, (1,)), numbers, slice_sizes=(1, a.shape[1]))


def softmax(x):
    shifted = lax.sub(x, lax.expand_dims(lax.reduce_max(x, axes=(1,)), (1,)))
    e = lax.exp(shifted)
    return lax.div(e, lax.expand_dims(lax.reduce_sum(e, axes=(1,)), (1,)))


def tril(x):
    keep = lax.ge(lax.broadcasted_iota(np.int32, x.shape, 0), lax.broadcasted_iota(np.int32, x.shape, 1))
    return lax.select(keep, x, lax.full_like(x, 0))


def roll(x):
    return lax.concatenate([lax.slice_in_dim(x, 6, 8), lax.slice_in_dim(x, 0, 6)], 0)


def diagonal(x):
    i = lax.broadcasted_iota(np.int32, (8, 2), 0)
    numbers = lax.GatherDimensionNumbers(offset_dims=(), collapsed_slice_dims=(0, 1), start_index_map=(0, 1))
    return lax.gather(x, i, numbers, slice_sizes=(1, 1))


def take_along_axis(x, i):
    numbers = lax.GatherDimensionNumbers(
        offset_dims=(),
        collapsed_slice_dims=(1,),
        start_index_map=(1,),
        operand_batching_dims=(0,),
        start_indices_batching_dims=(0,),
    )
    return lax.gather(x, lax.expand_dims(i, (2,)), numbers, slice_sizes=(1, 1))


def add_rows(x, i, u):
    numbers = ScatterDimensionNumbers(
        update_window_dims=(1,), inserted_window_dims=(0,), scatter_dims_to_operand_dims=(0,)
    )
    return scatter_add(x, lax.expand_dims(i, (1,)), u, numbers)


def one_hot(i):
    return lax.eq(lax.expand_dims(i, (1,)), lax.broadcasted_iota(np.int32, (1, 8), 1))


def conv1d(x, w):
    return lax.conv_general_dilated(x, w, (1,), "SAME")


def mlp(x, w, v):
    return dot(lax.max(dot(x, w), one(x, 0)), v)


def gradient_of_matmul(a, w):
    """d sum(a @ w) / dw: a.T @ ones"""
    ones = lax.full((8, 8), 1, np.float32)
    return dot(a, ones, ((0,), (0,)))


def zero():
    return literal(0, dtype=np.dtype(np.int32))


# The seed era's engine gave other layouts in a few rows: its result is noted where a row says "seed".
TABLE = [
    ("unary", lax.sin, ["8,8 xy"], "xy"),
    ("plus constant", plus_one, ["8,8 xy"], "xy"),
    ("astype", lambda a: lax.convert_element_type(a, np.int32), ["8,8 xy"], "xy"),
    ("cumsum", lambda a: lax.cumsum(a, axis=0), ["8,8 xy"], "xy"),
    ("sort", lambda a: lax.sort(a, dimension=1), ["8,8 xy"], "xy"),
    ("softmax", softmax, ["8,8 xy"], "xy"),
    ("tril", tril, ["8,8 xy"], "xy"),
    ("roll", roll, ["8,8 xy"], "xy"),
    ("where", lambda a: lax.select(lax.gt(a, one(a, 0)), a, lax.neg(a)), ["8,8 xy"], "xy"),
    ("outer product", lambda a, b: lax.mul(lax.expand_dims(a, (1,)), lax.expand_dims(b, (0,))), ["8 x", "8 y"], "xy"),
    ("xy + --", lax.add, ["8,8 xy", "8,8 --"], "xy"),
    ("x- + v(y)", rows, ["8,8 x-", "8 y"], "xy"),
    ("x- + -y", lax.add, ["8,8 x-", "8,8 -y"], "xy"),
    ("x- + v(x)", rows, ["8,8 x-", "8 x"], "x-"),
    ("prefix", lax.add, ["8,8 (xy)-", "8,8 x-"], "(xy)-"),
    ("dims conflict", lax.add, ["8,8 xy", "8,8 yx"], "--"),  # seed: xy, the first operand
    ("same dim, other axis", lax.add, ["8,8 x-", "8,8 y-"], "--"),  # seed: y-
    ("same axis, other dim", lax.add, ["8,8 x-", "8,8 -x"], "x-"),
    ("sum of all", lambda a: lax.reduce_sum(a, axes=(0, 1)), ["8,8 xy"], "()"),
    ("sum(0)", lambda a: lax.reduce_sum(a, axes=(0,)), ["8,8 xy"], "y"),
    ("sum(1)", lambda a: lax.reduce_max(a, axes=(1,)), ["8,8 xy"], "x"),
    ("sum(0, keepdims)", lambda a: lax.expand_dims(lax.reduce_sum(a, axes=(0,)), (0,)), ["8,8 xy"], "-y"),
    ("argmax(1)", lambda a: lax.argmax(a, 1, np.int32), ["8,8 xy"], "x"),
    ("top_k", lambda a: lax.top_k(a, 2)[0], ["8,8 xy"], "x-"),  # seed: --
    ("x- @ -y", dot, ["8,8 x-", "8,8 -y"], "xy"),
    ("xy @ --", dot, ["8,8 xy", "8,8 --"], "x-"),
    ("-y @ y-", dot, ["8,8 -y", "8,8 y-"], "--"),
    ("xy @ y-", dot, ["8,8 xy", "8,8 y-"], "x-"),
    ("xy @ xy", dot, ["8,8 xy", "8,8 xy"], "xy"),
    ("xy @ yx", dot, ["8,8 xy", "8,8 yx"], "x-"),
    ("a @ a.T", lambda a: dot(a, lax.transpose(a, (1, 0))), ["8,8 xy"], "x-"),
    ("x- @ x-", dot, ["8,8 x-", "8,8 x-"], "x-"),
    ("-x @ --", dot, ["8,8 -x", "8,8 --"], "--"),
    ("-- @ y-", dot, ["8,8 --", "8,8 y-"], "--"),
    ("x- @ -x, tie", dot, ["8,8 x-", "8,8 -x"], "x-"),
    ("x- @ -x, larger rhs", dot, ["8,8 x-", "8,16 -x"], "-x"),
    ("-x @ -x", dot, ["8,8 -x", "8,8 -x"], "-x"),
    ("xy @ v", lambda a, v: dot(a, v), ["8,8 xy", "8 -"], "x"),
    ("v @ v", lambda a, b: dot(a, b, ((0,), (0,))), ["8 x", "8 x"], "()"),
    ("bij,bjk->bik", lambda a, b: dot(a, b, ((2,), (1,)), ((0,), (0,))), ["8,8,8 x--", "8,8,8 --y"], "x-y"),
    ("bqhd,bkhd->bhqk", lambda q, k: dot(q, k, ((3,), (3,)), ((0, 2), (0, 2))), ["4,8,4,8 x-y-", "4,8,4,8 x-y-"], "xy--"),
    ("transpose", lambda a: lax.transpose(a, (1, 0)), ["8,8 xy"], "yx"),
    ("transpose(2,0,1)", lambda a: lax.transpose(a, (2, 0, 1)), ["8,8,8 x-y"], "yx-"),
    ("ravel xy", lambda a: lax.reshape(a, (64,)), ["8,8 xy"], "x"),
    ("ravel x-", lambda a: lax.reshape(a, (64,)), ["8,8 x-"], "x"),
    ("ravel XY", lambda a: lax.reshape(a, (64,)), ["8,8 (xy)-"], "(xy)"),
    ("ravel -y", lambda a: lax.reshape(a, (64,)), ["8,8 -y"], "-"),
    ("split major dim", lambda a: lax.reshape(a, (2, 4, 8)), ["8,8 xy"], "x-y"),
    ("unravel", lambda a: lax.reshape(a, (8, 8)), ["64 (xy)"], "(xy)-"),
    ("unravel, filling the major", lambda a: lax.reshape(a, (2, 32)), ["64 (xy)"], "xy"),
    ("unravel, not fitting", lambda a: lax.reshape(a, (2, 32)), ["64 y"], "--"),  # seed: a tiling without a spec
    ("(8,8) to (4,16)", lambda a: lax.reshape(a, (4, 16)), ["8,8 xy"], "x-"),
    ("merge y-", lambda a: lax.reshape(a, (4, 2, 8)), ["8,8 y-"], "y--"),
    ("(6,4) to (3,8)", lambda a: lax.reshape(a, (3, 8)), ["6,4 x-"], "--"),
    ("(8,2) to 16", lambda a: lax.reshape(a, (16,)), ["8,2 -x"], "-"),
    ("(4,6) to (8,3)", lambda a: lax.reshape(a, (8, 3)), ["4,6 x-"], "x-"),
    ("(8,3) to (4,6)", lambda a: lax.reshape(a, (4, 6)), ["8,3 (xy)-"], "x-"),  # seed: a tiling without a spec
    ("expand_dims", lambda a: lax.expand_dims(a, (1,)), ["8,8 xy"], "x-y"),
    ("squeeze", lambda a: lax.squeeze(a, (1,)), ["8,1,8 x-y"], "xy"),
    ("broadcast column", lambda a: lax.broadcast_in_dim(a, (8, 8), (0, 1)), ["8,1 x-"], "x-"),
    ("broadcast row", lambda v: lax.broadcast_in_dim(v, (8, 8), (1,)), ["8 y"], "-y"),
    ("broadcast matrix", lambda a: lax.broadcast(a, (3,)), ["8,8 xy"], "-xy"),
    ("concat xy,xy", lambda a, b: lax.concatenate([a, b], 0), ["8,8 xy", "8,8 xy"], "xy"),
    ("concat x-,--", lambda a, b: lax.concatenate([a, b], 0), ["8,8 x-", "8,8 --"], "x-"),
    ("concat other dim", lambda a, b: lax.concatenate([a, b], 1), ["8,8 x-", "8,8 x-"], "x-"),
    ("stack", lambda a, b: lax.concatenate([lax.expand_dims(a, (0,)), lax.expand_dims(b, (0,))], 0),
     ["8,8 xy", "8,8 xy"], "-xy"),
    ("concat x-,y-", lambda a, b: lax.concatenate([a, b], 0), ["8,8 x-", "8,8 y-"], "--"),  # seed: y-
    ("pad rows", lambda a: lax.pad(a, one(a, 0), [(4, 4, 0), (0, 0, 0)]), ["8,8 xy"], "xy"),
    ("a[:4]", lambda a: lax.slice_in_dim(a, 0, 4), ["8,8 xy"], "xy"),
    ("a[2:6]", lambda a: lax.slice_in_dim(a, 2, 6), ["8,8 xy"], "xy"),
    ("a[:,:4]", lambda a: lax.slice_in_dim(a, 0, 4, axis=1), ["8,8 xy"], "xy"),
    ("split", lambda a: lax.split(a, (4, 4), axis=0)[1], ["8,8 xy"], "xy"),
    ("unstack", lambda a: lax.squeeze(lax.slice_in_dim(a, 1, 2), (0,)), ["8,8 xy"], "y"),  # seed: a tiling without a spec
    ("a[0]", lambda a: lax.index_in_dim(a, 0, 0, keepdims=False), ["8,8 xy"], "y"),  # seed: a tiling without a spec
    ("a[:,0]", lambda a: lax.index_in_dim(a, 0, 1, keepdims=False), ["8,8 xy"], "x"),
    ("a[::2]", lambda a: lax.slice(a, (0, 0), (8, 8), (2, 1)), ["8,8 xy"], "xy"),  # seed: -y
    ("a[::-1]", lambda a: lax.rev(a, (0,)), ["8,8 xy"], "xy"),  # seed: a tiling without a spec
    ("tile rows", lambda a: lax.reshape(lax.broadcast_in_dim(a, (2, 8, 8), (1, 2)), (16, 8)), ["8,8 xy"], "-y"),
    ("a[i], i rep", take_rows, ["8,8 xy", "i8 -"], "-y"),
    ("a[i], i x, a rep", take_rows, ["8,8 --", "i8 x"], "x-"),
    ("a[i], i x, a y-", take_rows, ["8,8 y-", "i8 x"], "x-"),
    ("a[i], i x, a -y", take_rows, ["8,8 -y", "i8 x"], "xy"),
    ("take_along_axis", take_along_axis, ["8,8 x-", "i8,8 x-"], "x-"),
    ("dynamic_slice rows", lambda a, i: lax.dynamic_slice(a, (i, zero()), (4, 8)), ["8,8 xy", "i ()"], "-y"),
    ("dynamic_slice cols", lambda a, i: lax.dynamic_slice(a, (zero(), i), (8, 4)), ["8,8 x-", "i ()"], "x-"),
    ("dynamic_update_slice", lambda a, u, i: lax.dynamic_update_slice(a, u, (i, zero())),
     ["8,8 xy", "4,8 --", "i ()"], "xy"),
    ("scatter-add", add_rows, ["8,8 xy", "i4 -", "4,8 --"], "xy"),
    ("one_hot", one_hot, ["i8 x"], "x-"),
    ("repeat rows", lambda a: lax.reshape(lax.broadcast_in_dim(a, (8, 2, 8), (0, 2)), (16, 8)), ["8,8 xy"], "xy"),
    ("diagonal", diagonal, ["8,8 xy"], "-"),
    ("vmap matvec", lambda a, b: dot(a, b, ((1,), (0,))), ["8,8 xy", "8,8 --"], "x-"),
    ("grad of sum(a@w)", gradient_of_matmul, ["8,8 xy", "8,8 --"], "y-"),
    ("DP grad", lambda a, g: dot(a, g, ((0,), (0,))), ["8,8 x-", "8,8 x-"], "--"),
    ("MLP", mlp, ["8,8 x-", "8,8 -y", "8,8 y-"], "x-"),
    ("conv1d over batch", conv1d, ["8,4,8 x--", "4,4,3 ---"], "x--"),
    ("conv1d over space", conv1d, ["1,1,8 --x", "1,1,3 ---"], "--x"),
    ("zeros", lambda a: lax.full((8, 8), 0, np.float32), ["8,8 xy"], "--"),
    ("unsharded + x-", lax.add, ["8,8 ?", "8,8 x-"], "x-"),
    ("a[:3]", lambda a: lax.slice_in_dim(a, 0, 3), ["8,8 xy"], "-y"),  # seed: --, the whole result
    ("a[1:]", lambda a: lax.slice_in_dim(a, 1, 8), ["8,8 xy"], "-y"),  # seed: --, the whole result
    ("XY + y-", lax.add, ["8,8 (xy)-", "8,8 y-"], "--"),  # seed: the first operand
    ("YX + XY", lax.add, ["8,8 (yx)-", "8,8 (xy)-"], "--"),  # seed: the first operand
    ("the more sharded factor", lax.add, ["8,8 x-", "8,8 -(xy)"], "-(xy)"),
]  # fmt: skip


@pytest.mark.parametrize(("f", "args", "expected"), [r[1:] for r in TABLE], ids=[r[0] for r in TABLE])
def test_table(f, args, expected):
    assert out_layouts(f, args) == [expected]


# -- fixed values ----------------------------------------------------------------------------------


def constrain(x, where, opened=()):
    """A constraint on a traced value; `opened` dims may be split further."""
    dims = layout(where)
    var = x.owner.emit(sharding_constraint, (x.variable,), {"sharding": None})[0]
    x.owner.equations[-1].params.update(dims=dims, open=tuple(d in opened for d in range(len(dims))))
    return type(x)(x.owner, var)


def test_constraint_and_what_follows():
    assert out_layouts(lambda a: plus_one(constrain(a, "y-")), ["8,8 xy"]) == ["y-"]


def test_open_dims_of_a_constraint_take_the_operands_axes():
    assert out_layouts(lambda a: plus_one(constrain(a, "--", opened=[0])), ["8,8 xy"]) == ["x-"]


def test_constraint_reaches_back():
    def f(a, b):
        c = dot(a, b)
        return c, constrain(c, "-y")

    assert out_layouts(f, ["8,8 --", "8,8 --"]) == ["-y", "-y"]


def test_two_constraints_leave_their_operand_to_propagation():
    def f(a):
        b = lax.sin(a)
        return b, constrain(b, "-y"), constrain(b, "y-")

    assert out_layouts(f, ["8,8 x-"]) == ["xy", "-y", "y-"]  # neither is copied; the first adds what fits


def test_a_constraint_that_does_not_divide_leaves_its_dim_whole():
    assert out_layouts(lambda a: constrain(a, "xy"), ["6,6 --"]) == ["x-"]
    assert out_layouts(lambda a: constrain(a, "(xy)-"), ["6,6 --"]) == ["x-"]


def test_inputs_left_open_take_what_their_users_say():
    program, dims = run_propagation(dot, ["8,8 x-", "8,8 ?"], outs=["xy"])
    assert [text(dims[v]) for v in program.inputs] == ["x-", "-y"]


def test_wanted_outputs_reach_back_but_never_overrule():
    assert out_layouts(lambda a, b: lax.add(a, b), ["8,8 --", "8,8 --"], outs=["xy"]) == ["xy"]
    assert out_layouts(lambda a: a, ["8,8 --"], outs=["xy"]) == ["--"]
    # The result begins with what is wanted, so that its operand's x finds dim 0 free and joins.
    assert out_layouts(plus_one, ["8,8 x-"], outs=["-y"]) == ["xy"]


def test_fixed_overrides_the_ops():
    program, _ = run_propagation(lambda a: plus_one(lax.sin(a)), ["8,8 x-"])
    middle = program.equations[0].outputs[0]
    dims: dict[Any, DimAxes] = propagate(
        program,
        MESH,
        [Placement(layout("x-"), (False, False))],
        [None],
        fixed={middle: Placement(layout("-y"), (False, False))},
    )
    assert [text(dims[v]) for v in (middle, program.outputs[0])] == ["-y", "-y"]


def explicit(shape, where, types=(AxisType.Explicit, AxisType.Auto)):
    mesh = AbstractMesh((2, 4), ("x", "y"), axis_types=types)
    return ShapedArray(shape, np.dtype(np.float32), mesh=mesh, spec=layout(where))


def traced(f, avals):
    return trace_program(lambda *xs: [f(*xs)], avals)[0]


def test_automatic_axes_flow_beneath_explicit_ones():
    program = traced(lambda a, b: lax.add(a, b), [explicit((8, 8), "x-"), explicit((8, 8), "x-")])
    dims: dict[Any, DimAxes] = propagate(program, MESH, [None, Placement(layout("xy"), (False, False))], [None])
    assert text(dims[program.outputs[0]]) == "xy"
    assert text(dims[program.inputs[0]]) == "xy"


def test_explicit_axes_stay_where_the_type_says():
    program = traced(lambda a: lax.transpose(a, (1, 0)), [explicit((8, 8), "--")])
    dims: dict[Any, DimAxes] = propagate(program, MESH, [None], [Placement(layout("xy"), (False, False))])
    assert text(dims[program.outputs[0]]) == "-y"


def test_explicit_axes_of_size_one_split_nothing():
    mesh = AbstractMesh((1, 4), ("x", "y"), axis_types=(AxisType.Explicit,) * 2)
    aval = ShapedArray((8, 8), np.dtype(np.float32), mesh=mesh, spec=layout("xy"))
    program = traced(lax.sin, [aval])
    dims: dict[Any, DimAxes] = propagate(program, {"y": 4}, [None], [None])
    assert text(dims[program.outputs[0]]) == "-y"


# -- regions ---------------------------------------------------------------------------------------


def loop_edges(eqn):
    """Carries share one layout with the body's; the elements of xs and ys lack the leading dim."""
    body, carries = eqn.params["body"], eqn.params["carries"]
    groups = [[eqn.inputs[i], body.inputs[i], body.outputs[i], eqn.outputs[i]] for i in range(carries)]
    groups += [[(x, 1), (v, 0)] for x, v in zip(eqn.inputs[carries:], body.inputs[carries:], strict=True)]
    groups += [[(v, 1), (y, 0)] for v, y in zip(eqn.outputs[carries:], body.outputs[carries:], strict=True)]
    return groups


def loop_type(*types, body, carries):
    return tuple(t if k < carries else t.update(shape=(8, *t.shape)) for k, t in enumerate(body.out_types))


LOOP = define_op("test_loop", type_rule=loop_type, multiple_results=True, typed=True, edges=loop_edges)


def loop(f, *args, carries=1):
    types = [a.aval if k < carries else a.aval.update(shape=a.shape[1:]) for k, a in enumerate(args)]
    body, _ = trace_program(lambda *xs: list(f(*xs)), types)
    return bind(LOOP, *args, body=body, carries=carries)


def test_scan():
    step = lambda c, x: (lax.add(c, x), lax.mul(c, x))  # noqa: E731
    assert out_layouts(lambda c, xs: loop(step, c, xs), ["8 y", "8,8 xy"]) == ["y", "-y"]
    assert out_layouts(lambda c, xs: loop(step, c, xs), ["8 -", "8,8 -y"]) == ["y", "-y"]


def test_while():
    assert out_layouts(lambda c: loop(lambda x: [dot(x, x)], c), ["8,8 xy"]) == ["xy"]
    assert out_layouts(lambda c: loop(lambda x: [plus_one(x)], c), ["8,8 xy"]) == ["xy"]


def test_body_argument_and_result_of_a_loop_agree():
    def f(c):
        return loop(lambda x: [lax.transpose(x, (1, 0))], c)

    program, dims = run_propagation(f, ["8,8 x-"])
    (eqn,) = program.equations
    (body_in,) = eqn.params["body"].inputs
    assert dims[body_in] == dims[eqn.outputs[0]]
    assert set(dims) >= {body_in, *eqn.params["body"].outputs}


def branch_edges(eqn):
    branches = eqn.params["branches"]
    groups = [[x, *(b.inputs[i] for b in branches)] for i, x in enumerate(eqn.inputs)]
    return groups + [[*(b.outputs[i] for b in branches), y] for i, y in enumerate(eqn.outputs)]


BRANCH = define_op(
    "test_branch",
    type_rule=lambda *types, branches: branches[0].out_types,
    multiple_results=True,
    typed=True,
    edges=branch_edges,
)


def branch(fs, *args):
    programs = tuple(trace_program(lambda *xs, f=f: [f(*xs)], [a.aval for a in args])[0] for f in fs)
    return bind(BRANCH, *args, branches=programs)


def test_cond():
    f = lambda a, b: branch([lambda x, y: x, lambda x, y: y], a, b)  # noqa: E731
    assert out_layouts(f, ["8,8 xy", "8,8 --"]) == ["xy"]
    assert out_layouts(f, ["8,8 x-", "8,8 y-"]) == ["--"]
    assert out_layouts(lambda a, b: branch([lax.add, dot], a, b), ["8,8 x-", "8,8 -y"]) == ["xy"]


def test_carries_that_change_places():
    swap = lambda a, b: loop(lambda x, y: (y, x), a, b, carries=2)  # noqa: E731
    assert out_layouts(swap, ["8,8 x-", "8,8 -y"]) == ["xy", "xy"]


def test_a_literal_may_enter_a_loop():
    def f(x):
        return loop(lambda c, w: (lax.add(c, lax.reduce_sum(w, axes=(0, 1))), w), one(x, 0), x, carries=2)[1]

    assert out_layouts(f, ["8,8 xy"]) == ["xy"]


def test_shard_map_gives_its_results_and_pulls_its_operands():
    a, b, out = (Var(ShapedArray((8, 8), np.dtype(np.float32))) for _ in range(3))
    sine = traced(lax.sin, [a.aval]).equations[0].op
    params = {"grid_in_dims": (layout("x-"),), "grid_out_dims": (layout("-x"),), "auto": ()}
    op: Any = SimpleNamespace(name="shard_map", edges=None, constrains=None, boundary=True)
    manual = Equation(op, (b,), (out,), params)
    program = Program((a,), (Equation(sine, (a,), (b,)), manual), (out,))
    dims: dict[Any, DimAxes] = propagate(program, MESH, [Placement(layout("--"), (False, False))], [None])
    assert [text(dims[v]) for v in (a, b, out)] == ["--", "x-", "-x"]
    dims = propagate(program, MESH, [Placement(layout("-y"), (False, False))], [None])
    assert [text(dims[v]) for v in (a, b, out)] == ["-y", "x-", "-x"]


# -- whole programs --------------------------------------------------------------------------------


def test_uneven_middles_do_not_stop_a_layout():
    f = lambda a: lax.pad(lax.slice_in_dim(a, 1, 8), one(a, 0), [(0, 1, 0), (0, 0, 0)])  # noqa: E731
    assert out_layouts(f, ["8,8 xy"]) == ["xy"]


def test_no_dim_is_split_by_axes_that_do_not_divide_it():
    def f(a):
        b = lax.slice_in_dim(a, 0, 4)
        return b, lax.slice_in_dim(b, 1, 4)

    program, dims = run_propagation(f, ["8,8 (xy)-"])
    assert [text(dims[v]) for v in program.outputs] == ["x-", "--"]


def test_larger_programs_are_fast():
    def f(x, w):
        for _ in range(250):
            x = lax.tanh(lax.add(dot(x, w), lax.mul(lax.reduce_max(x, axes=(0, 1)), one(x, 2))))
        return x

    program, _ = run_propagation(f, ["8,8 x-", "8,8 -y"])
    placements = [Placement(layout("x-"), (False,) * 2), Placement(layout("-y"), (False,) * 2)]
    assert len(program.equations) >= 1250
    start = time.perf_counter()
    propagate(program, MESH, placements, [None])
    assert time.perf_counter() - start < 0.5  # some 20 ms; a quadratic search would take seconds
