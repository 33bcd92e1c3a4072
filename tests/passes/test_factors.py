"""One op at a time: agreement on a factor, who may claim an axis, and dims made of several factors."""

import pytest

from shardwise.passes.factors import (
    ALL_FACTORS,
    EVERYTHING,
    LEVELS,
    MULTI_USE,
    PASS_THROUGH,
    SINGLE_USE,
    FactorRule,
    agree,
    extend,
)
from shardwise.sharding.reshape_rule import reshape_rule
from shardwise.sharding.rule import make_rule, pointwise_rule
from tests.passes.layouts import layout, text

MESH = {"x": 2, "y": 4, "z": 2}


@pytest.mark.parametrize(
    ("known", "axes", "grow", "expected"),
    [
        ("", "xy", True, ("xy", True)),
        ("x", "xy", True, ("xy", True)),
        ("xy", "x", True, ("xy", True)),
        ("xy", "xz", True, ("x", False)),
        ("x", "y", True, ("", False)),
        ("x", "xy", False, ("x", False)),
        ("x", "", False, ("x", False)),
    ],
)
def test_agreement(known, axes, grow, expected):
    axes_out, grows = agree(tuple(known), tuple(axes), grow)
    assert ("".join(axes_out), grows) == expected


def step(rule, level, layouts, closed=(), banned=(), **options):
    """One visit of an op: the layouts of all tensors afterwards."""
    dims = [layout(where) for where in layouts]
    flow = FactorRule(rule, SINGLE_USE, **options)
    shut = [(t in closed,) * len(d) for t, d in enumerate(dims)]
    bans = [frozenset(banned[t]) if t < len(banned) else frozenset() for t in range(len(dims))]
    for t, grown in extend(flow, level, dims, shut, bans, MESH):
        dims[t] = grown
    return [text(d) for d in dims]


def pointwise(n, *shapes):
    return pointwise_rule(shapes or ((8, 8),) * n, ((8, 8),))


def dot(m=8, k=8, n=8):
    return make_rule("i k, k j -> i j", [(m, k), (k, n)], [(m, n)])


def test_operands_results_and_neighbours_all_learn():
    assert step(pointwise(2), SINGLE_USE, ["x-", "--", "--"]) == ["x-", "x-", "x-"]
    assert step(pointwise(2), SINGLE_USE, ["--", "--", "-y"]) == ["-y", "-y", "-y"]


def test_closed_values_and_banned_axes_stay():
    assert step(pointwise(2), SINGLE_USE, ["x-", "--", "--"], closed=[1]) == ["x-", "--", "x-"]
    assert step(pointwise(1), SINGLE_USE, ["(xz)-", "--"], banned=["", "z"]) == ["(xz)-", "x-"]


def test_an_operand_gains_nothing_that_the_result_cannot_take():
    assert step(pointwise(2), SINGLE_USE, ["x-", "--", "--"], closed=[2]) == ["x-", "--", "--"]


def test_larger_source_wins_then_more_ways_then_order():
    assert step(dot(), EVERYTHING, ["x-", "-x", "--"])[2] == "x-"
    assert step(dot(n=16), EVERYTHING, ["x-", "-x", "--"])[2] == "-x"
    assert step(pointwise(2), SINGLE_USE, ["x-", "-(xy)", "--"], closed=[0, 1])[2] == "-(xy)"


def test_levels_of_a_dot():
    for level in (SINGLE_USE, MULTI_USE):
        assert step(dot(), level, ["xz", "zy", "--"])[2] == "--"
    assert step(dot(), PASS_THROUGH, ["xz", "--", "--"]) == ["xz", "--", "x-"]
    assert step(dot(), ALL_FACTORS, ["xz", "--", "--"]) == ["xz", "z-", "x-"]


def test_broadcasts_go_back_early_and_forward_last():
    rule = make_rule("j -> i j", [(8,)], [(8, 8)])
    assert step(rule, PASS_THROUGH, ["-", "xy"]) == ["y", "xy"]
    assert [step(rule, level, ["y", "--"])[1] for level in LEVELS] == ["--"] * 4 + ["-y"]


def test_dims_of_size_1_are_added_early():
    rule = make_rule("i -> i j", [(8,)], [(8, 1)])
    assert step(rule, SINGLE_USE, ["x", "--"]) == ["x", "x-"]
    assert step(rule, SINGLE_USE, ["-", "x-"]) == ["x", "x-"]


def test_stretched_operands_behave_like_broadcasts():
    rule = pointwise(2, (8, 8), (1, 8))
    assert step(rule, SINGLE_USE, ["x-", "-x", "--"]) == ["x-", "-x", "x-"]
    assert step(rule, PASS_THROUGH, ["-y", "--", "-y"]) == ["-y", "-y", "-y"]
    assert [step(rule, level, ["--", "-y", "--"])[2] for level in LEVELS] == ["--"] * 4 + ["-y"]


def test_forward_first():
    rule = make_rule("i j, -> i j", [(8, 8), ()], [(8, 8)])
    assert step(rule, SINGLE_USE, ["x-", "()", "--"], forward_first=True)[2] == "x-"
    assert step(rule, SINGLE_USE, ["--", "()", "x-"], forward_first=True)[0] == "--"
    assert step(rule, PASS_THROUGH, ["--", "()", "x-"], forward_first=True)[0] == "x-"


def test_blocked_factors_do_not_move():
    rule = make_rule("i j -> i k", [(8, 8)], [(8, 4)], blocked=["i"])
    assert step(rule, EVERYTHING, ["xy", "--"]) == ["xy", "--"]


@pytest.mark.parametrize(
    ("shapes", "before", "after"),
    [
        (((8, 8), (64,)), "xy", "x"),
        (((8, 8), (64,)), "(xy)-", "(xy)"),
        (((8, 8), (64,)), "-y", "-"),
        (((64,), (8, 8)), "(xy)", "(xy)-"),
        (((64,), (2, 32)), "(xy)", "xy"),
        (((64,), (2, 32)), "(yx)", "--"),
        (((64,), (2, 4, 8)), "(xyz)", "xyz"),
        (((2, 4, 8), (64,)), "xyz", "(xyz)"),
        (((2, 4, 8), (64,)), "x-z", "x"),
        (((6, 4), (3, 8)), "x-", "--"),
        (((3, 4), (12,)), "-y", "-"),
    ],
)
def test_reshape_fills_major_factors_first(shapes, before, after):
    source, target = shapes
    assert step(reshape_rule(source, target), SINGLE_USE, [before, "-" * len(target)]) == [before, after]


def test_an_axis_that_does_not_fit_its_factor_blocks_the_dim():
    # 8 = 2 * 4 on the left; "y" (4) straddles both factors and is left where it is.
    rule = reshape_rule((8,), (2, 4))
    assert step(rule, EVERYTHING, ["y", "--"]) == ["y", "--"]
    assert step(rule, EVERYTHING, ["y", "x-"]) == ["y", "x-"]
