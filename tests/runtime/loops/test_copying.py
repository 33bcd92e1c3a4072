"""Loops that copy short, repeated and crossing rows write what NumPy would, and nothing beside it."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from shardwise.runtime.address import address
from shardwise.runtime.loops import copy_call
from shardwise.runtime.machine import available

pytestmark = pytest.mark.skipif(not available(), reason="no compiler for loops")


def copies(into: np.ndarray, source: np.ndarray) -> bool:
    call = copy_call(into.shape, into.strides, source.strides, into.itemsize)
    if call is not None:
        call(address(into), address(source))
    return call is not None


def laid_out(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Elements in some order of dims, with gaps, reversed, or repeated along a dim."""
    order = rng.permutation(len(shape))
    gaps = rng.integers(0, 2, len(shape))
    whole = rng.integers(0, 255, [shape[d] + gaps[d] for d in order]).astype(dtype)
    x = whole.transpose(np.argsort(order))[tuple(slice(0, n) for n in shape)]
    if rng.random() < 0.3:
        x = x[::-1]
    if rng.random() < 0.4:
        d = rng.integers(len(shape))
        x = np.broadcast_to(x[(slice(None),) * d + (slice(0, 1),)], shape)
    return x


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "float32", "float64"])
def test_random_layouts(dtype):
    rng, ours = np.random.default_rng(len(dtype)), 0
    for _ in range(16):
        shape = tuple(int(n) for n in rng.choice([1, 2, 3, 4, 5, 7, 8, 12, 17, 33], rng.integers(1, 5)))
        source = laid_out(rng, shape, dtype)
        whole = np.zeros([n + rng.integers(0, 2) for n in shape], dtype)
        into = whole[tuple(slice(0, n) for n in shape)]
        if copies(into, source):
            ours += 1
            np.testing.assert_array_equal(into, source)
            into[...] = 0
            assert not whole.any(), "wrote beside the copy"
    assert ours > 5


@pytest.mark.parametrize("dtype", ["uint16", "float32", "int64"])
@pytest.mark.parametrize("shape", [(16, 16), (17, 40), (130, 19), (3, 33, 21), (2, 18, 5, 34), (1500, 36)])
def test_squares_of_vectors(shape, dtype):
    """Rows that are columns of the source, whatever divides them, between bytes that nobody may write."""
    rng = np.random.default_rng(0)
    for gaps in (0, 3):
        for order in {tuple(rng.permutation(len(shape))) for _ in range(4)} | {tuple(range(len(shape)))[::-1]}:
            whole = rng.integers(0, 255, [shape[d] + gaps for d in order]).astype(dtype)
            source = whole.transpose(np.argsort(order))[tuple(slice(0, n) for n in shape)]
            memory = np.full(source.nbytes + 8192, 0xAB, np.uint8)
            into = memory[4096:-4096].view(dtype).reshape(shape)
            if copies(into, source):
                np.testing.assert_array_equal(into, source)
            else:
                assert order[-1] == len(shape) - 1 or dtype == "uint16", "rows are columns of the source"
            assert (memory[:4096] == 0xAB).all() and (memory[-4096:] == 0xAB).all()


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "float32", "float64"])
def test_every_so_manieth_element(dtype):
    """The last vector that is read ends with the last element that is copied: what lies behind it may be no memory of ours."""
    for step in (2, 3, 5, 8, 9, -1, -2):
        for n in (1, 5, 16, 33, 130):
            whole = np.random.default_rng(n).integers(0, 255, (3, n * abs(step))).astype(dtype)
            source = whole[:, ::step]
            into = np.zeros(source.shape, dtype)
            if not copies(into, source):
                np.copyto(into, source)
            np.testing.assert_array_equal(into, source)


@pytest.mark.parametrize("threads", [1, 2])
def test_large_copies_are_cut_into_pieces(threads):
    x = np.arange(1 << 17, dtype=np.float32).reshape(-1, 2, 4)
    for source in (x.transpose(1, 0, 2), np.broadcast_to(x[..., None], (*x.shape, 3)), x.reshape(512, -1).T):
        into = np.empty(source.shape, source.dtype)
        call = copy_call(into.shape, into.strides, source.strides, 4)
        assert call is not None
        before, call.threads = call.threads, threads
        call(address(into), address(source))
        call.threads = before
        np.testing.assert_array_equal(into, source)


def test_long_rows_are_left_to_numpy():
    x = np.ones((16, 8, 512), np.float32)
    assert not copies(np.empty_like(x), x)
    assert not copies(np.empty((8, 16, 512), np.float32), x.transpose(1, 0, 2))
    assert not copies(np.empty((16, 8), np.complex128), np.ones((8, 16), np.complex128).T)


def test_what_is_one_array_in_other_dims_is_not_copied():
    """`reshaped` copies exactly where NumPy would."""
    from shardwise.runtime.copies import _is_view

    x = np.ones((2, 3, 4, 6), np.float32)
    views = [
        x.transpose(o)[s] for o in itertools.permutations(range(4)) for s in (..., slice(0, 1), slice(None, None, -1))
    ]
    views += [np.broadcast_to(x[:, :1], x.shape), np.broadcast_to(x[..., :1], x.shape), x[:, :2], x[..., ::2]]
    for view, shape in itertools.product(
        views, [(-1,), (6, -1), (-1, 6), (-1, 1, 24), (2, 3, -1), (-1, 2, 3), (3, -1, 4, 1)]
    ):
        if view.size % -int(np.prod(shape)) == 0:
            seen = view.reshape(shape)
            assert _is_view(view.shape, view.strides, seen.shape) == np.shares_memory(seen, x)
