"""Sums of padded values are the sums of the pads, to the bit, and each element is written once."""

from __future__ import annotations

import math

import numpy as np
import pytest

from shardwise.ir import ShapedArray
from shardwise.ops.shapes.padded_sum import cells, count_cells, padded_sum_p
from shardwise.runtime import costs
from shardwise.runtime.env import Env

RNG = np.random.default_rng(0)


def case(seed):
    """A shape, and operands with their pads."""
    rng = np.random.default_rng(seed)
    shape = tuple(int(n) for n in rng.integers(1, 12, rng.integers(1, 4)))
    operands = []
    for _ in range(rng.integers(1, 5)):
        sizes, config = [], []
        for n in shape:
            between = int(rng.choice([0, 0, 1, 2, 3]))
            size = int(rng.integers(1, (n - 1) // (between + 1) + 2))
            low = int(rng.integers(0, n - (size - 1) * (between + 1)))
            sizes.append(size)
            config.append((low, n - low - (size - 1) * (between + 1) - 1, between))
        operands.append((tuple(sizes), tuple(config)))
    return shape, operands


def padded(x, shape, config):
    out = np.zeros((*x.shape[: x.ndim - len(shape)], *shape), x.dtype)
    out[
        (..., *[np.s_[low : n - high : between + 1] for n, (low, high, between) in zip(shape, config, strict=True)])
    ] = x
    return out


@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.complex64])
@pytest.mark.parametrize("seed", range(24))
def test_to_the_bit(seed, dtype):
    shape, operands = case(seed)
    xs = [RNG.choice([-0.0, -1.5, 3.0, 1e-3, np.inf], size).astype(np.float32) for size, _ in operands]
    with np.errstate(all="ignore"):
        xs = [np.nan_to_num(x, posinf=7.25).astype(dtype) for x in xs]
        want = padded(xs[0], shape, operands[0][1])
        for x, (_, config) in zip(xs[1:], operands[1:], strict=True):
            want = want + padded(x, shape, config)
    params = {"shape": shape, "configs": tuple(config for _, config in operands)}
    got = padded_sum_p.block_kernel(Env(), *xs, **params)
    assert (got.dtype, got.tobytes()) == (want.dtype, want.tobytes())


ROWS = 0, 0, 0  # no pad along a dim
LARGE = {  # the extents along the grid, the shape, and operands with their pads: cells of three, two and one, some of which are short
    "interleaved": (
        (),
        (64, 48),
        [
            ((31, 48), ((2, 1, 1), ROWS)),
            ((1, 48), ((0, 63, 0), ROWS)),
            ((32, 48), ((1, 0, 1), ROWS)),
            ((32, 48), ((0, 1, 1), ROWS)),
        ],
    ),
    "along both dims": ((), (32, 99), [((16, 50), ((0, 1, 1), (0, 0, 1))), ((32, 49), (ROWS, (1, 1, 1)))]),
    "shared by devices": ((4,), (8, 64), [((4, 64), ((0, 1, 1), ROWS)), ((8, 64), (ROWS, ROWS))]),
}


@pytest.mark.parametrize("name", LARGE)
def test_to_the_bit_once_code_is_made(name, monkeypatch):
    monkeypatch.setattr(costs, "COPY_CODE_FROM", 1)
    monkeypatch.setattr(costs, "FUSED_FEWEST", 64)
    lead, shape, operands = LARGE[name]
    params = {"shape": shape, "configs": tuple(config for _, config in operands)}
    env = Env(("x",), lead) if lead else Env()
    for dtype in (np.float32, np.float16, np.int8, np.complex64, np.float64, np.complex128):
        shares = [lead if k % 2 == 0 else (1,) * len(lead) for k in range(len(operands))]
        xs = [
            RNG.choice([-0.0, -1.5, 3.0, 1e-3, 7.25], (*share, *size)).astype(dtype)
            for share, (size, _) in zip(shares, operands, strict=True)
        ]
        xs[-1] = xs[-1][..., ::-1]
        types = [ShapedArray(size, dtype) for size, _ in operands]
        assert padded_sum_p.compile is not None
        kernel = padded_sum_p.compile(env, types, [ShapedArray(shape, dtype)], params)
        want = padded(xs[0], shape, operands[0][1])
        for x, (_, config) in zip(xs[1:], operands[1:], strict=True):
            want = want + padded(x, shape, config)
        first, then = kernel(*xs), kernel(*xs)
        assert first.tobytes() == then.tobytes() == want.tobytes()


def test_operands_that_devices_share():
    x, y = (RNG.normal(size=(n, 3)).astype(np.float32) for n in (4, 1))
    configs = ((0, 1, 1),), ((1, 0, 1),)
    got = padded_sum_p.block_kernel(Env(("x",), (4,)), x, y, shape=(6,), configs=configs)
    assert np.array_equal(got, padded(x, (6,), configs[0]) + padded(y, (6,), configs[1]))


@pytest.mark.parametrize("seed", range(24))
def test_cells_are_all_positions_once(seed):
    shape, operands = case(seed)
    counts = np.zeros(shape, np.int64)
    sizes, configs = zip(*operands, strict=True)
    found = cells(shape, sizes, configs)
    for at, _ in found:
        assert counts[at].size
        counts[at] += 1
    assert (counts == 1).all()
    assert len(found) == count_cells(shape, sizes, configs) <= math.prod(shape)
