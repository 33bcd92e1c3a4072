"""What equations compute and touch."""

import pytest

import shardwise as jax
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.ir import Var, trace_program
from shardwise.ops.elementwise import unary
from shardwise.ops.elementwise.binary import rem_p
from shardwise.ops.elementwise.transcendental import log_p
from shardwise.ops.reductions import arg_extrema
from shardwise.planner.flops import (
    chained_operations,
    operations_of,
    product_flops_of,
    product_of,
    touched_bytes,
    work_of,
)
from tests.planner.device_programs import array, program_of


def equations(f, *shapes, dtype="float32"):
    program, _ = trace_program(
        lambda *xs: [f(*xs)], [jax.core.ShapedArray(s, jnp.dtype(dtype)) for s in shapes], "f", [""] * len(shapes)
    )
    return program.equations


def product(f, *shapes, **kwargs):
    (found,) = [e for e in equations(f, *shapes, **kwargs) if e.op.product]
    return product_of(found)


def test_a_product_is_a_batch_of_matrices():
    found = product(lambda x, w: jnp.einsum("bsd,df->bsf", x, w), (2, 8, 16), (16, 32))
    assert (found.batch, found.m, found.n, found.k) in {(1, 16, 32, 16), (1, 32, 16, 16)}
    assert found.flops == 2 * 16 * 32 * 16
    batched = product(lambda x, y: jnp.einsum("bhqd,bhkd->bhqk", x, y), (2, 4, 8, 16), (2, 4, 32, 16))
    assert batched.batch == 8
    assert sorted((batched.m, batched.n)) == [8, 32]
    assert batched.flops == 2 * 8 * 8 * 32 * 16


def test_a_convolution_sums_over_window_and_channels():
    found = product(
        lambda x, w: lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")),
        (2, 8, 8, 3),
        (3, 3, 3, 16),
    )
    assert found.flops == 2 * (2 * 8 * 8 * 16) * (3 * 3 * 3)


@pytest.mark.parametrize(("precision", "passes"), [(None, 1), ("high", 3), ("highest", 6)])
def test_more_precision_takes_more_passes(precision, passes):
    assert product(lambda x, y: jnp.matmul(x, y, precision=precision), (8, 8), (8, 8)).passes == passes


def test_elementwise_work_is_counted_by_kind():
    work = work_of(equations(lambda x: jnp.exp(x + 1.0).sum(), (4, 8)))
    assert work.transcendentals == 32
    assert work.vector >= 64  # the addition and the sum
    assert not work.products


def test_functions_cost_what_a_machine_measured():
    def f(x):
        return lax.fori_loop(0, 3, lambda i, c: lax.log(lax.rem(c, x)), x)

    work = work_of(equations(f, (4, 8)), function_costs={log_p: 2.0, rem_p: 5.0})
    assert work.transcendentals == 3 * 32 * 7.0
    usual = work_of(equations(f, (4, 8)))
    assert usual.transcendentals == 3 * 32 * 1.2 and usual.vector - work.vector == 3 * 32 * 40
    assert usual.functions == work.functions == 3 * 32  # what XLA's convention counts stays


def touched(f, *shapes):
    eqns = equations(f, *shapes)
    made = {v for e in eqns for v in e.outputs}
    reads = tuple(dict.fromkeys(a for e in eqns for a in e.inputs if isinstance(a, Var) and a not in made))
    found = touched_bytes(eqns, reads, eqns[-1].outputs)
    return [found[v] for v in reads], found[eqns[-1].outputs[0]]


def test_a_slice_reads_what_it_takes():
    assert touched(lambda x: lax.slice(x, (0, 0), (2, 8)), (64, 8)) == ([64], 64)
    reads, written = touched(lambda x, i: lax.dynamic_slice_in_dim(x, i[0].astype(int), 2), (64, 8), (1,))
    assert (sorted(reads), written) == ([4, 64], 64)


def test_an_update_writes_what_it_puts_in():
    eqns = equations(lambda x, y: lax.dynamic_update_slice(x, y, (0, 0)), (64, 8), (2, 8))
    update = eqns[-1]
    found = touched_bytes((update,), tuple(a for a in update.inputs if isinstance(a, Var)), update.outputs)
    assert found[update.inputs[0]] == 0  # type: ignore[index]
    assert found[update.inputs[1]] == 64  # type: ignore[index]
    assert found[update.outputs[0]] <= 160


def test_other_operands_are_read_as_a_whole():
    assert touched(lambda x, y: x * y, (4, 8), (4, 8)) == ([128, 128], 128)


def test_products_of_programs_count_trips_tests_and_the_heaviest_branch():
    def flops(f):
        program, _ = trace_program(lambda x: [f(x)], [jax.core.ShapedArray((16, 16), jnp.dtype("float32"))], "f", [""])
        return product_flops_of(program) / (2 * 16**3)

    assert flops(lambda x: lax.fori_loop(0, 5, lambda i, c: c @ x, x)) == 5
    assert flops(lambda x: lax.while_loop(lambda c: (c @ x @ x)[0, 0] < 1, lambda c: c @ x, x)) == 3
    assert flops(lambda x: lax.cond(x[0, 0] > 0, lambda c: c @ c, lambda c: c @ c @ c, x)) == 2


def test_of_branches_the_most_of_each_amount():
    def f(p, x):
        return [lax.cond(p, lambda x: lax.dot(x, x), lambda x: lax.add(lax.tanh(x), x), x)]

    work = work_of(program_of(f, array(dtype="bool"), array(8, 8)).equations)
    assert (work.product_flops, work.arithmetic, work.functions) == (2 * 8**3, 64 + 1, 64)  # one of the index


def test_a_loop_of_no_rounds_computes_nothing():
    work = work_of(program_of(lambda x: [lax.fori_loop(0, 0, lambda i, c: lax.dot(c, c), x)], array(8, 8)).equations)
    assert work.flops == 0


def test_a_scatter_that_adds_computes_once_per_element_of_its_updates():
    numbers = lax.ScatterDimensionNumbers((1,), (0,), (0,))
    types = array(64, 8), array(3, 1, dtype="int32"), array(3, 8)

    def arithmetic(scatter):
        program = program_of(lambda x, i, u: [scatter(x, i, u, numbers, mode="promise_in_bounds")], *types)
        return sum(operations_of(e).arithmetic for e in program.equations)

    assert (arithmetic(lax.scatter_add), arithmetic(lax.scatter)) == (24, 0)


def test_operations_that_wait_for_one_another():
    def f(x):
        def step(c, _):
            a, b = c
            return ((a * b + 1) * a, b - 1), None  # three in a chain, and one beside them

        return [*lax.scan(step, (x, x), None, 7)[0]]

    assert chained_operations(program_of(f, array(3)).equations) == 7 * 3
    assert chained_operations(program_of(lambda x: [x + 1], array(3)).equations) == 0


def test_functions_cost_what_was_measured_of_operands_of_their_kind():
    def transcendentals(f, operand, costs):
        return work_of(program_of(lambda x: [f(x)], operand).equations, function_costs=costs).transcendentals

    x, i, z = array(8, 4), array(8, 4, dtype="int32"), array(8, 4, dtype="complex64")
    costs = {arg_extrema.argmax_p: 1.0, (arg_extrema.argmax_p, "down"): 3.0, (unary.abs_p, "c"): 5.0}
    assert transcendentals(lambda x: jnp.argmax(x, 1), x, costs) == 32
    assert transcendentals(lambda x: jnp.argmax(x, 0), x, costs) == 3 * 32
    assert transcendentals(jnp.abs, z, costs) == 5 * 32
    assert transcendentals(jnp.abs, i, costs) == transcendentals(jnp.abs, x, costs) == 0
