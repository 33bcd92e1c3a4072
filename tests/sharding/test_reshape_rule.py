"""The factors that a reshape's two shapes have in common."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwise.sharding.reshape_rule import reshape_rule
from shardwise.sharding.rule import Kind


def shown(source, target):
    """Both sides as lists of factor sizes per dim."""
    rule = reshape_rule(source, target)
    side = lambda t: [[rule.sizes[f] for f in dim] for dim in t]  # noqa: E731
    return side(rule.inputs[0]), side(rule.outputs[0])


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ((2, 4, 32), (8, 32), ([[2], [4], [32]], [[2, 4], [32]])),
        ((8, 4), (2, 16), ([[2, 4], [4]], [[2], [4, 4]])),
        ((6, 4), (3, 8), ([[3, 2], [4]], [[3], [2, 4]])),
        ((4, 6), (8, 3), ([[4], [2, 3]], [[4, 2], [3]])),
        ((8, 3), (4, 6), ([[4, 2], [3]], [[4], [2, 3]])),
        ((1, 8, 1), (8,), ([[], [8], []], [[8]])),
        ((), (1, 1), ([], [[], []])),
        ((8,), (8,), ([[8]], [[8]])),
    ],
)
def test_factors(source, target, expected):
    assert shown(source, target) == expected
    assert all(k is Kind.PASS for k in reshape_rule(source, target).kinds)


def test_without_a_common_piece_both_sides_need_the_whole():
    rule = reshape_rule((5, 2, 3), (5, 3, 2))
    assert rule.inputs == (((0,), (1,), (3,)),)
    assert rule.outputs == (((0,), (2,), (4,)),)
    assert rule.kinds == (Kind.PASS, *[Kind.REPLICATE] * 4)


def test_empty_arrays_share_nothing():
    rule = reshape_rule((0, 4), (2, 0))
    assert set(rule.kinds) == {Kind.REPLICATE}
    assert not {f for d in rule.inputs[0] for f in d} & {f for d in rule.outputs[0] for f in d}


@given(st.lists(st.sampled_from([1, 2, 2, 3, 4, 6]), min_size=1, max_size=5), st.randoms(use_true_random=False))
def test_factors_multiply_to_dims_and_keep_row_major_order(dims, random):
    target, rest = [], math.prod(dims)
    while rest > 1:
        n = random.choice([k for k in range(2, rest + 1) if rest % k == 0])
        target.append(n)
        rest //= n
    rule = reshape_rule(tuple(dims), tuple(target))
    for shape, tensor in ((dims, rule.inputs[0]), (target, rule.outputs[0])):
        assert [math.prod(rule.sizes[f] for f in dim) for dim in tensor] == list(shape)
    if all(k is Kind.PASS for k in rule.kinds):
        x = np.arange(math.prod(dims))
        split = x.reshape(rule.sizes)
        assert (split.reshape(dims).reshape(target) == x.reshape(target)).all()
        assert [f for dim in rule.inputs[0] for f in dim] == [f for dim in rule.outputs[0] for f in dim]
