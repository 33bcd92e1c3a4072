"""Which equations run as one kernel."""

from __future__ import annotations

import numpy as np
import pytest

from shardwise import lax
from shardwise.planner.fuse import groups
from shardwise.planner.target import CPU_XLA, TPU
from tests.planner.device_programs import array, device_program, names

X = array(256, 256)


def kernels(f, *types, target=TPU):
    return groups(device_program(f, *types or (X,)), target)


def test_a_chain_of_elementwise_ops_is_one_kernel():
    (one,) = kernels(lambda x: [lax.tanh(lax.mul(lax.exp(x), 2.0))])
    assert one.kind == "fused"
    assert names(one) == ["exp", "mul", "tanh"]


def test_a_reduction_reads_the_chain_before_it():
    (one,) = kernels(lambda x: [lax.reduce_sum(lax.exp(x), axes=(0,))])
    assert names(one) == ["exp", "reduce_sum"]


def test_a_product_computes_its_operand_and_goes_through_the_chain_after_it():
    (one,) = kernels(lambda x, y: [lax.tanh(lax.dot(lax.exp(x), y))], X, X)
    assert one.kind == "product"
    assert names(one) == ["exp", "dot_general", "tanh"]


def test_a_library_takes_operands_from_memory():
    found = kernels(lambda x, y: [lax.tanh(lax.dot(lax.exp(x), y))], X, X, target=CPU_XLA)
    assert [names(g) for g in found] == [["exp"], ["dot_general"], ["tanh"]]


def test_no_epilogue_where_a_later_product_would_have_to_come_first():
    found = kernels(lambda x, y: [lax.add(lax.dot(x, y), lax.dot(y, x))], X, X)
    assert [names(g) for g in found] == [["dot_general"], ["dot_general", "add"]]


def test_results_over_the_same_elements_come_from_one_kernel():
    (one,) = kernels(lambda x, y: [lax.mul(x, y), lax.add(lax.mul(x, y), x)], X, X)
    assert len(one.writes) == 2


@pytest.mark.parametrize("target", [TPU, CPU_XLA], ids=lambda t: t.name)
def test_what_only_its_own_kernel_reads_is_never_in_memory(target):
    def f(x, y):
        z = x
        for _ in range(12):
            z = lax.tanh(z)  # too much to be computed twice
        return [lax.mul(z, lax.add(z, y))]

    (one,) = kernels(f, X, X, target=target)
    assert [v.aval for v in one.writes] == [X]


def test_a_row_that_is_read_elsewhere_in_a_kernel_is():
    def f(x):
        z = x
        for _ in range(12):
            z = lax.tanh(z)
        return [lax.mul(z, lax.rev(z, (0,)))]

    assert sum(len(g.writes) for g in kernels(f)) == 2


def test_a_stopped_gradient_is_no_kernel():
    found = kernels(lambda x: [lax.sub(x, lax.stop_gradient(lax.reduce_max(x, axes=(0, 1))))])
    assert [names(g) for g in found] == [["reduce_max"], ["sub"]]


def test_constants_and_positions_are_never_in_memory():
    def f(x):
        position = lax.broadcasted_iota(np.dtype("float32"), (256, 256), 0)
        return [lax.add(x, lax.mul(position, lax.full((256, 256), 2.0)))]

    (one,) = kernels(f)
    assert [v.aval for v in one.reads] == [X]


def test_a_barrier_ends_a_kernel():
    found = kernels(lambda x: [lax.tanh(lax.optimization_barrier(lax.exp(x)))])
    assert [names(g) for g in found] == [["exp"], ["tanh"]]


def test_the_body_of_a_loop_has_kernels_of_its_own():
    (loop,) = kernels(lambda x: [lax.fori_loop(0, 5, lambda i, c: lax.exp(lax.mul(c, 2.0)), x)])
    assert (loop.kind, loop.trips) == ("loop", 5)
    assert ["mul", "exp"] in [names(g) for g in loop.body]


@pytest.mark.parametrize("axes", [(0,), (1,), (0, 1)])
def test_a_reduction_that_keeps_the_last_dim_takes_its_operand_from_memory(axes):
    found = kernels(lambda x: [lax.reduce_sum(lax.exp(x), axes=axes)], target=CPU_XLA)
    assert [names(g) for g in found] == ([["exp"], ["reduce_sum"]] if axes == (0,) else [["exp", "reduce_sum"]])
