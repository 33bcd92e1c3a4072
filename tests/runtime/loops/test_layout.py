"""How loops meet memory: their order, those that are one, tiles, and results."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from shardwise.runtime.loops.layout import (
    MemoryLoops,
    Met,
    Result,
    align_block,
    dense_strides,
    memory_order,
    merge_loops,
    place_result,
)


def met(full, reduced, order, *strides):
    return Met(full, reduced, order, tuple(range(len(strides))), (full,) * len(strides), strides, ())


def test_merging_dims():
    assert merge_loops([2, 3, 4], [[48, 16, 4], [0, 0, 4]]) == ([6, 4], [[16, 4], [0, 4]])
    assert merge_loops([2, 1, 4], [[16, 0, 4]]) == ([8], [[4]])
    assert merge_loops([1, 1], [[0, 0]]) == ([1], [[0]])


def test_loops_of_one_kind_are_merged():
    dense = (48, 16, 4)
    assert MemoryLoops.of(met((2, 3, 4), (False,) * 3, (0, 1, 2), dense)) == MemoryLoops([24], [False], [[4]])
    assert MemoryLoops.of(met((2, 3, 4), (False, True, True), (0, 1, 2), dense)) == MemoryLoops(
        [2, 12], [False, True], [[48, 4]]
    )
    assert MemoryLoops.of(met((2, 3, 4), (False, True, False), (0, 1, 2), dense)).extents == [2, 3, 4]
    assert MemoryLoops.of(met((3, 2, 4), (False,) * 3, (1, 0, 2), (16, 48, 4))) == MemoryLoops([24], [False], [[4]])


def test_loops_that_are_left_when_all_have_extent_1():
    assert MemoryLoops.of(met((1, 1), (False, False), (0, 1), (0, 0))) == MemoryLoops([1], [False], [[0]])
    assert MemoryLoops.of(met((1, 8), (True, False), (0, 1), (0, 4))) == MemoryLoops([8, 1], [False, True], [[4, 0]])


def test_memory_order_follows_the_largest_operand():
    assert memory_order((4, 5), [(4, 5), (4, 1)], [(4, 16), (4, 0)]) == [1, 0]
    assert memory_order((4, 1, 5), [(4, 1, 5)], [(20, 0, 4)]) == [0, 1, 2]
    assert dense_strides((4, 1, 5), [2, 1, 0], 8) == (8, 0, 32)


def test_blocks_along_loops():
    x = np.zeros((2, 1, 5), np.float32)
    assert align_block(x, (None, 1), 1, 3) == ((2, 1, 5), (20, 0, 4))
    assert align_block(np.zeros(2, np.float32), (), 1, 3) == ((2, 1, 1), (4, 0, 0))


@pytest.mark.parametrize("reduced", [(False, False), (True, True), (True, False)])
def test_tiles_visit_every_element_once(reduced):
    """A transposed operand cuts loops of one kind into tiles, in which it and the others have the elements that they had."""
    loops = MemoryLoops([64, 96], list(reduced), [[384, 4], [4, 256]])
    tiled = loops.cut_into_tiles([4, 4], 16)
    assert (tiled == loops) == (reduced[0] != reduced[1])
    for k in range(2):
        places = sum(
            np.arange(n).reshape([-1 if d == e else 1 for e in range(len(tiled.extents))]) * tiled.strides[k][d]
            for d, n in enumerate(tiled.extents)
        )
        assert np.array_equal(np.sort(np.ravel(places)), np.arange(64 * 96) * 4)


def test_loops_without_fitting_divisors_stay_whole():
    loops = MemoryLoops([61, 97], [False, False], [[388, 4], [4, 244]])
    assert loops.cut_into_tiles([4, 4], 16) is loops


@pytest.mark.parametrize("dtype", ["float32", "int8"])
@pytest.mark.parametrize("extents", [(), (3,), (2, 3, 4), (1, 3, 1, 4)])
def test_an_array_without_memory_lies_as_the_block(extents, dtype):
    for order in itertools.permutations(range(len(extents))):
        result = place_result(np.dtype(dtype), extents, order, tuple(n for n in extents if n != 1))
        block, hollow = result.empty(), result.hollow()
        assert (hollow.shape, hollow.dtype, hollow.nbytes) == (block.shape, block.dtype, block.nbytes)
        assert hollow.strides == block.strides
        assert not hollow.flags.writeable


def test_large_ones_take_no_memory():
    result = Result(np.dtype("float64"), (1 << 20, 1 << 20), (1, 0), (1 << 20, 1 << 20))
    assert result.hollow().strides == (8, 8 << 20)
