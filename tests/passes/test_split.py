"""Splits are worked out once for equations that are alike; types and params are then the device's own."""

from __future__ import annotations

import numpy as np
import pytest

from shardwise import lax
from shardwise.ir import ExactParams, ShapedArray, trace_program
from shardwise.passes import split as module
from shardwise.passes.split import cheaper_split, local_params, local_type, shape_of, split_of
from tests.passes.layouts import MESH, layout, text

X = ShapedArray((8, 16), np.dtype("float32"))
SIZES = tuple(MESH.items())


def equation(f, *types):
    program, _ = trace_program(f, types or (X,))
    return program.equations[-1]


def found(eqn, *layouts):
    types = tuple(a.aval for a in eqn.inputs), tuple(v.aval for v in eqn.outputs)
    return split_of(eqn.op, *types, ExactParams(eqn.params), tuple(map(layout, layouts)), SIZES)


def test_a_contracted_dim_gives_partial_sums():
    eqn = equation(lambda a, b: [lax.dot(a, b)], X, X.update(shape=(16, 8)))
    split = found(eqn, "-y", "y-", "--")
    assert split.partial == ("y",)
    assert split.operands == (((), ("y",)), (("y",), ()))


def test_alike_equations_share_a_split():
    one, other = (equation(lambda x: [lax.sin(x)]) for _ in range(2))
    assert found(one, "xy", "xy") is found(other, "xy", "xy")
    assert found(one, "xy", "xy") is not found(other, "x-", "x-")


def test_local_types():
    local = local_type(X, layout("xy"), MESH, {})
    assert local.shape == (4, 4)
    assert local.vma == {"x", "y"}
    assert local_type(X.update(vma=frozenset({"i"})), layout("x-"), MESH, {"i": ("y",)}).vma == {"x", "y"}
    assert shape_of((8, 16), layout("(xy)-"), SIZES) == (1, 16)


def test_local_params():
    eqn = equation(lambda x: [lax.broadcast_in_dim(x, (2, 8, 16), (1, 2))])
    (out,) = eqn.outputs
    params = local_params(
        eqn.op,
        ExactParams(eqn.params),
        (local_type(X, layout("xy"), MESH, {}),),
        (layout("xy"),),
        (layout("-xy"),),
        (out.aval,),
        SIZES,
        (),
    )
    assert params["shape"] == (2, 4, 4)


def test_what_does_not_hash_is_worked_out_anew():
    calls = []
    make = module.cache_hashable(lambda key: calls.append(key) or len(calls))
    assert (make((1,)), make((1,))) == (1, 1)
    assert (make([1]), make([1])) == (2, 3)


LARGE = ShapedArray((512, 512), np.dtype("float32"))


def product(layouts, readers=(1, 1, 0), rows=512, inner=512, worth=2048, copies=()):
    """The layouts in which a product of large matrices takes its operands and makes its result."""
    eqn = equation(lambda a, b: [lax.dot(a, b)], LARGE.update(shape=(rows, inner)), LARGE.update(shape=(inner, 512)))
    types = tuple(a.aval for a in eqn.inputs), tuple(v.aval for v in eqn.outputs)
    key = eqn.op, *types, ExactParams(eqn.params), tuple(map(layout, layouts)), (("x", 4), ("y", 4))
    assert split_of(*key).moves_much
    there = tuple([tuple(map(layout, layouts)) for layouts in copies])
    split = cheaper_split(*key, readers, worth, None, there)
    return [text(d) for d in split.operands + split.results]


@pytest.mark.parametrize(
    "given, options, chosen",
    [
        (["--", "y-", "--"], {}, ["--", "--", "--"]),  # operand 1 is gathered: a sixteenth of what a sum would send
        (["x-", "y-", "x-"], {}, ["x-", "--", "x-"]),
        (["--", "y-", "--"], {"rows": 512}, ["--", "--", "--"]),  # half of it is enough
        (["--", "y-", "--"], {"worth": 16}, ["-y", "y-", "--"]),  # bytes are cheaper than operations
        (["-y", "y-", "--"], {"inner": 256}, ["-y", "y-", "--"]),  # both operands are split: a third is not few enough
        (["-y", "y-", "--"], {"inner": 64}, ["--", "--", "--"]),  # a fifteenth is
        (["-y", "y-", "--"], {"inner": 64, "readers": (1, 1, 1)}, ["-y", "y-", "--"]),  # another sum may join this one
        (["-y", "y-", "--"], {"inner": 256, "copies": [["--"], []]}, ["--", "--", "--"]),  # one is there as a whole
        (["x-", "--", "--"], {"inner": 64}, ["--", "--", "--"]),  # what all devices want is computed by all
        (["x-", "--", "--"], {"inner": 64, "worth": 16}, ["x-", "--", "x-"]),
    ],
)
def test_operands_are_gathered_where_sums_send_far_more(given, options, chosen):
    assert product(given, **{"rows": 8192, **options}) == chosen


@pytest.mark.parametrize(
    "given, chosen",
    [
        (["(xy)-", "-(xy)", "xy"], ["x-", "-y", "xy"]),  # not all of operand 1, but quarters of both
        (["y-", "y-", "y-"], ["y-", "-x", "yx"]),  # an axis is idle: a column block of operand 1 instead of all of it
        (["-y", "y-", "--"], ["-y", "y-", "--"]),  # parts of a sum: nothing but the sum moves
        (["(xy)-", "(xy)-", "(xy)-"], ["(xy)-", "--", "(xy)-"]),
    ],
)
def test_far_fewer_bytes_win(given, chosen):
    assert product(given) == chosen


def test_what_others_read_as_well_is_not_moved_for_one_alone():
    assert product(["(xy)-", "-(xy)", "xy"], readers=(1, 8, 0)) == ["(xy)-", "--", "(xy)-"]


def test_little_is_moved_as_it_was():
    eqn = equation(lambda a, b: [lax.dot(a, b)], X, X.update(shape=(16, 8)))
    assert not found(eqn, "(xy)-", "-(xy)", "xy").moves_much


def test_few_updates_are_gathered_rather_than_summed_in_all_rows():
    """A sum of tables sends as much as they hold twice; updates are added by every device as soon as by one."""
    numbers = lax.ScatterDimensionNumbers((1,), (0,), (0,))

    def added(rows):
        types = X.update(shape=(rows, 64)), ShapedArray((1024, 1), np.dtype("int32")), X.update(shape=(1024, 64))
        eqn = equation(lambda t, i, u: [lax.scatter_add(t, i, u, numbers, mode="drop")], *types)
        dims = tuple(map(layout, ("--", "x-", "x-", "--")))
        split = cheaper_split(eqn.op, types, (types[0],), ExactParams(eqn.params), dims, SIZES, (1, 1, 1, 0))
        return [text(d) for d in split.operands]

    assert added(8192) == added(1024) == ["--", "--", "--"]
    assert added(64) == ["--", "x-", "x-"]
