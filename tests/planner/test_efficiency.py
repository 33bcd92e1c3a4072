"""Seconds of kernels: rooflines, tiles, waves."""

import dataclasses

import numpy as np
import pytest
from ml_dtypes import bfloat16, float8_e4m3fn

from shardwise.planner.curves import PlaceCosts, Rates
from shardwise.planner.efficiency import (
    kernel_seconds,
    peak_flops,
    product_seconds,
    reach_of,
    stays_near,
)
from shardwise.planner.flops import Product, Work
from shardwise.planner.machines import find
from shardwise.planner.work import Lookups

BF16 = np.dtype(bfloat16)
IDLE = Work((), 0.0, 0.0)


def matmul(m, n, k, dtype=BF16, batch=1, passes=1):
    return Product(batch, m, n, k, (dtype, dtype), passes, dtype.itemsize, batch * m * n * dtype.itemsize)


def rate(product, chip):
    return product.flops / product_seconds(product, chip) / peak_flops(product, chip) / reach_of(chip).products


def test_large_products_reach_what_the_platform_reaches():
    for name in ("v5p-8", "v6e-8", "h100-8", "a100-8"):
        assert rate(matmul(16384, 16384, 8192), find(name).chip) == pytest.approx(1, rel=0.02)  # and the last wave


def test_a_systolic_array_is_padded_to_its_sides():
    v5e, v6e = find("v5e-8").chip, find("v6e-8").chip
    assert rate(matmul(8192, 8192, 128), v5e) == pytest.approx(1)
    assert rate(matmul(8192, 8192, 128), v6e) == pytest.approx(0.5)  # its array is 256 wide
    assert rate(matmul(8192, 8192, 64), v5e) == pytest.approx(0.5)
    assert rate(matmul(1, 8192, 8192), v5e) == pytest.approx(1 / 128)  # one row passes while 128 could
    assert rate(matmul(200, 8192, 8192), v5e) == pytest.approx(1)  # rows pass eight at a time


def test_a_gpu_runs_tiles_in_waves():
    chip = find("h100-8").chip
    full = matmul(128 * 132, 128, 4096)
    one_more = matmul(128 * 133, 128, 4096)
    assert rate(full, chip) == pytest.approx(1)
    assert rate(one_more, chip) == pytest.approx(133 / 264)
    assert rate(matmul(128, 128, 512), chip) == pytest.approx(1 / 132)
    assert rate(matmul(128, 128, 512 * 132), chip) == pytest.approx(1)  # split over k


def test_dtypes_have_their_own_peaks():
    v5p, tpu7x, h100 = (find(n).chip for n in ("v5p-8", "tpu7x-8", "h100-8"))
    f8, f32, i8 = np.dtype(float8_e4m3fn), np.dtype("float32"), np.dtype("int8")
    assert peak_flops(matmul(8, 8, 8, f8), tpu7x) == 2 * peak_flops(matmul(8, 8, 8), tpu7x)
    assert peak_flops(matmul(8, 8, 8, i8), v5p) == 918e12
    assert peak_flops(matmul(8, 8, 8, f32), v5p) == 459e12  # one pass in bfloat16 by default
    assert peak_flops(matmul(8, 8, 8, f32, passes=6), v5p) == 459e12 / 6
    assert peak_flops(matmul(8, 8, 8, f32), h100) == 494.7e12


def test_the_slowest_unit_decides():
    chip = find("v5e-8").chip
    idle = Work((), 0.0, 0.0)
    copy = kernel_seconds(idle, 1e9, 0, chip)
    assert (copy.bound, copy.total) == ("memory", pytest.approx(1e9 / 8.19e11 / reach_of(chip).memory + chip.overhead))
    assert kernel_seconds(Work((matmul(8192, 8192, 8192),), 0.0, 0.0), 1e8, 0, chip).bound == "flops"
    assert kernel_seconds(Work((), 1e12, 0.0), 1e6, 0, chip).bound == "flops"
    assert kernel_seconds(idle, 8, 0, chip).bound == "latency"
    exp = kernel_seconds(Work((), 0.0, 1e9), 8, 0, chip)
    assert exp.total == pytest.approx(1e9 / chip.transcendental + chip.overhead)


def test_on_chip_values_are_read_fast():
    chip = find("v5e-8").chip
    assert stays_near(2**24, chip)
    assert not stays_near(2**28, chip)
    idle = Work((), 0.0, 0.0)
    assert kernel_seconds(idle, 0, 1e9, chip).total < kernel_seconds(idle, 1e9, 0, chip).total / 10
    assert not stays_near(8, dataclasses.replace(chip, vmem_bytes=0))


def test_processors_pack_operands_before_they_multiply():
    chip = dataclasses.replace(find("cpu-1x16").chip, overhead=0.0)
    work = Work((matmul(64, 64, 64),), 0.0, 0.0)
    apart = kernel_seconds(work, 0, 0, chip).total + kernel_seconds(Work((), 0.0, 0.0), 1e6, 0, chip).total
    assert kernel_seconds(work, 1e6, 0, chip).total == pytest.approx(apart)


def test_lookups_begin_late_and_take_time_for_each_place():
    chip = dataclasses.replace(find("cpu-1x16").chip, lookups_overhead=1e-3, lookup=1e-5, element=1e-6)
    took = kernel_seconds(Work((), 0.0, 0.0), 0, 0, chip, lookups=Lookups(10, 100))
    assert took.total == pytest.approx(1e-3 + 10 * 1e-5 + 100 * 1e-6)


@pytest.mark.parametrize(
    ("lookups", "seconds"),
    [
        (Lookups(0, 100, 1 << 16, width=4), 1e-4),
        (Lookups(0, 100, 1 << 18, width=4), 2e-4),
        (Lookups(0, 100, 1 << 26, width=4), 4e-4),
        (Lookups(100, 0, 1 << 16, width=34), 2e-4),
        (Lookups(100, 0, 1 << 16, width=128), 6e-4),
        (Lookups(10, 0, 1 << 16, updates=True, width=4), 3e-5),
    ],
)
def test_places_take_longer_in_what_no_cache_holds_where_they_are_wide_and_others_to_write(lookups, seconds):
    taken = PlaceCosts((4, 64), (((1 << 16, 1e-6), (1 << 20, 4e-6)), ((1 << 16, 3e-6), (1 << 20, 3e-6))))
    put = PlaceCosts((4,), (((1 << 16, 3e-6),),))
    chip = dataclasses.replace(find("cpu-1x16").chip, overhead=0.0, taken=taken, put=put)
    assert kernel_seconds(IDLE, 0, 0, chip, lookups=lookups).total == pytest.approx(seconds)
    late = kernel_seconds(IDLE, 1e12, 0, chip, lookups=lookups).total  # places wait for the bytes beside them
    assert late == pytest.approx(kernel_seconds(IDLE, 1e12, 0, chip).total)


def with_rates(**kinds):
    same = ((1e6, 3e9), (16e6, 3e9))
    rates = Rates(**{name: kinds.get(name, same) for name in Rates._fields})
    return dataclasses.replace(find("cpu-1x16").chip, overhead=0.0, rates=rates)


def test_reads_and_writes_have_rates_of_their_own():
    chip = with_rates(read=((1e6, 2e9),), written=((1e6, 1e9),))
    seconds = [kernel_seconds(IDLE, 3e6, 0, chip, written=n).total for n in (0.0, 1e6, 2e6, 3e6)]
    assert seconds == pytest.approx([1.5e-3, 1e-3, 2e-3, 3e-3])
    assert kernel_seconds(IDLE, 3e6, 0, with_rates(), written=3e6).total == pytest.approx(1e-3)


def test_what_caches_hold_is_fast():
    chip = with_rates(copied=((1e6, 4e9), (16e6, 1e9)))
    seconds = [kernel_seconds(IDLE, n, 0, chip).total for n in (1e6, 4e6, 16e6, 32e6)]
    assert seconds == pytest.approx([1 / 3e3, 2e-3, 16e-3, 32e-3])


def test_sums_down_columns_read_as_fast_as_was_measured():
    chip = with_rates(down=((1e6, 1e9),))
    assert kernel_seconds(IDLE, 3e6, 0, chip, down=3e6).total == pytest.approx(3e-3)


def test_large_operands_of_products_with_few_rows_are_packed():
    chip = dataclasses.replace(with_rates(packed=((1e6, 1e9),)), flops={"float32": 1e15})
    f32 = np.dtype(np.float32)
    sizes = (4, 1000, 1000), (1000, 4, 1000), (1, 1000, 1000), (4, 64, 64)
    seconds = [kernel_seconds(Work((matmul(*size, f32),), 0.0, 0.0), 0, 0, chip).total for size in sizes]
    assert seconds == pytest.approx([4e-3, 4e-3, 0, 0], abs=1e-6)


def test_algorithms_take_time_while_their_bytes_move():
    chip = dataclasses.replace(find("cpu-1x16").chip, overhead=0.0)
    alone = kernel_seconds(Work((), 0.0, 0.0), 1e6, 0, chip).total
    assert kernel_seconds(Work((), 0.0, 0.0), 1e6, 0, chip, own=0.5).total == pytest.approx(0.5)
    assert kernel_seconds(Work((), 0.0, 0.0), 1e6, 0, chip, own=alone / 2).total == pytest.approx(alone)


def test_products_of_few_elements_are_written_out():
    chip = dataclasses.replace(find("cpu-1x16").chip, product_overhead=1e-6)
    f32 = np.dtype(np.float32)
    small, large = (product_seconds(matmul(n, n, n, f32), chip) for n in (4, 256))
    assert small == pytest.approx(4 * 128 / chip.vector_flops) and small < 1e-6 < large
