"""How one op is split: what tensors agree on, who wins where they do not, what must stay whole."""

from __future__ import annotations

import pytest

from shardwise.passes.choose import choose_factors, compose, decompose, other_choices, with_idle_axes
from shardwise.sharding.rule import make_rule
from tests.passes.layouts import MESH, layout, text

MATMUL = "i k, k j -> i j"


def split(signature, shapes, layouts, windows=None, **kinds):
    """The layouts in which an op takes its operands and makes its result."""
    count = signature.partition("->")[0].count(",") + 1
    rule = make_rule(signature, shapes[:count], shapes[count:], **kinds)
    factors = choose_factors(rule, tuple(map(layout, layouts)), shapes, MESH, windows)
    return [text(compose(tensor, factors)) for tensor in rule.tensors]


@pytest.mark.parametrize(
    "given, chosen",
    [
        (["--", "--", "--"], ["--", "--", "--"]),
        (["x-", "-y", "xy"], ["x-", "-y", "xy"]),
        (["-x", "x-", "--"], ["-x", "x-", "--"]),  # parts of a sum
        (["x-", "--", "--"], ["x-", "--", "x-"]),
        (["--", "--", "-y"], ["--", "-y", "-y"]),
    ],
)
def test_agreement(given, chosen):
    assert split(MATMUL, [(8, 8)] * 3, given) == chosen


def test_the_most_elements_win():
    assert split(MATMUL, [(8, 8), (8, 64), (8, 64)], ["-x", "-x", "-x"]) == ["--", "-x", "-x"]
    assert split(MATMUL, [(64, 64), (64, 8), (64, 8)], ["-x", "-x", "--"]) == ["-x", "x-", "--"]


def test_dims_that_must_be_whole_give_their_axes_to_a_batch_dim():
    shapes = [(8, 8), (8, 8)]
    assert split("b n -> b n", shapes, ["-x", "-x"], replicate="n") == ["x-", "x-"]
    assert split("b n -> b n", [(7, 8), (7, 8)], ["-x", "-x"], replicate="n") == ["--", "--"]


def test_windows_may_stay_split():
    shapes = [(8, 8), (8, 8)]
    assert split("b n -> b n", shapes, ["-x", "-x"], {1: 8}, permute="n") == ["-x", "-x"]
    assert split("b n -> b n", shapes, ["-x", "-x"], {1: 7}, permute="n") == ["x-", "x-"]


def test_a_minor_factor_is_split_only_if_its_majors_are():
    rule = make_rule("a b -> (a b)", [(4, 4)], [(16,)], sizes={"a": 4, "b": 4})
    factors = choose_factors(rule, (layout("-x"), layout("-")), [(4, 4), (16,)], MESH)
    assert compose(rule.outputs[0], factors) == ((),)
    factors = choose_factors(rule, (layout("yx"), layout("-")), [(4, 4), (16,)], MESH)
    assert compose(rule.outputs[0], factors) == (("y", "x"),)


def test_decompose_deals_axes_major_first():
    rule = make_rule("(a b) -> a b", [(16,)], [(4, 4)], sizes={"a": 4, "b": 4})
    assert decompose(rule, rule.inputs[0], layout("(yx)"), MESH) == {0: ("y",), 1: ("x",)}
    assert decompose(rule, rule.inputs[0], layout("(xy)"), MESH) == {0: ("x",)}


def test_values_that_pass_together_are_split_on_their_own():
    """Two values of one barrier over the same axis, in different dims."""
    assert (
        split("a b, c d -> a b, c d", [(8, 8), (8, 64), (8, 8), (8, 64)], ["x-", "-x", "x-", "-x"]) == ["x-", "-x"] * 2
    )
    assert (
        split("a b, c d -> a b, c d", [(8, 8), (8, 64), (8, 8), (8, 64)], ["xy", "y-", "x-", "--"]) == ["xy", "y-"] * 2
    )
    assert split("a b, c d -> a d", [(8, 8), (8, 64), (8, 64)], ["x-", "-x", "--"])[0] != "x-"  # one result holds both


def test_one_tensor_keeps_its_layout_in_other_choices():
    shapes, layouts = [(8, 8)] * 3, tuple(map(layout, ["(xy)-", "-(xy)", "xy"]))
    rule = make_rule(MATMUL, shapes[:2], shapes[2:])
    chosen = choose_factors(rule, layouts, shapes, MESH)
    others = [
        [text(compose(t, f)) for t in rule.tensors] for f in other_choices(rule, layouts, shapes, MESH, None, chosen)
    ]
    assert [text(compose(t, chosen)) for t in rule.tensors] == ["(xy)-", "--", "(xy)-"]
    assert others == [["--", "-(xy)", "-(xy)"], ["x-", "-y", "xy"]]


def test_idle_axes_split_one_more_factor():
    rule = make_rule(MATMUL, [(8, 8), (8, 6)], [(8, 6)])
    i, k, j = (rule.tensors[0][0][0], rule.tensors[0][1][0], rule.tensors[1][1][0])
    assert list(with_idle_axes(rule, {i: ("x",)}, MESH)) == [{i: ("x", "y")}]  # 4 does not divide 6
    assert list(with_idle_axes(rule, {i: ("y",)}, MESH)) == [{i: ("y", "x")}, {i: ("y",), j: ("x",)}]
    assert list(with_idle_axes(rule, {i: ("x",), k: ("y",)}, MESH)) == []
