"""Products of 16-bit floats in float32."""

from __future__ import annotations

from shardwise import lax
from shardwise.ir import verify
from shardwise.planner.target import CPU_XLA, TPU
from shardwise.planner.widen import with_wide_products
from tests.planner.device_programs import array, program_of

X = array(256, 256, dtype="bfloat16")


def widened(f, *types, target=CPU_XLA):
    return verify(with_wide_products(program_of(f, *types), target))


def ops(program):
    return [e.op.name for e in program.equations]


def test_operands_and_results_are_cast():
    program = widened(lambda x, y: [lax.dot(x, y)], X, X)
    assert ops(program) == ["convert_element_type"] * 2 + ["dot_general", "convert_element_type"]
    assert [v.aval.dtype.name for v in program.equations[2].inputs] == ["float32", "float32"]
    assert [v.aval for v in program.outputs] == [X]


def test_an_operand_of_several_products_is_cast_once():
    assert ops(widened(lambda x, y: [lax.dot(x, y), lax.dot(y, x)], X, X)).count("convert_element_type") == 4


def test_not_where_products_take_them_as_they_are():
    assert ops(widened(lambda x, y: [lax.dot(x, y)], X, X, target=TPU)) == ["dot_general"]


def test_stacked_weights_are_cast_before_the_loop():
    def f(x, stack):
        return [lax.scan(lambda c, w: (lax.dot(c, w), None), x, stack)[0]]

    program = widened(f, X, array(4, 256, 256, dtype="bfloat16"))
    assert ops(program) == ["convert_element_type", "scan"]
    assert program.equations[0].outputs[0].aval.shape == (4, 256, 256)
