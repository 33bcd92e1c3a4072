"""The pipeline is a list that one can read, stop in the middle of, and look into between passes."""

from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.base import config
from shardwise.ir import Equation, Program, ProgramError, ShapedArray, Var, trace_program, verify
from shardwise.passes import pipeline
from shardwise.passes.grid import make_grid
from shardwise.passes.inline import inline_calls
from shardwise.passes.pipeline import (
    FUSING,
    JOINING,
    PARTITIONING,
    PIPELINE,
    Context,
    Module,
    run_passes,
    schedule_module,
)
from shardwise.runtime import costs

X = ShapedArray((64, 64), np.dtype("float32"))


def compiled_for(axes=(("x", 8),)):
    """A product and its loss, with operands split over these axes, before the first pass."""

    def f(a, w):
        return [lax.reduce_sum(lax.tanh(lax.dot(a, w)), (0, 1))]

    program = inline_calls(trace_program(f, [X, X])[0])
    names, sizes = zip(*axes, strict=True)
    grid = make_grid(sw.devices()[: int(np.prod(sizes))], [(names, sizes)])
    dims = ((grid.names[:1], ()), ((), ()))
    context = Context(grid, (False, False), (None,))
    return Module(program, program, program, dims), context


def test_each_pass_has_a_name_and_leaves_its_input_alone():
    module, context = compiled_for()
    for name, rewrite in PIPELINE:
        before = str(module.program), module.in_dims, module.layouts
        after = rewrite(module, context)
        assert (str(module.program), module.in_dims, module.layouts) == before, name
        verify(after.program, after=name)
        module = after


def test_the_first_part_ends_with_explicit_collectives():
    module, context = compiled_for()
    seconds: dict[str, float] = {}
    done = run_passes(PARTITIONING, module, context, seconds)
    names = ["on_grid", "propagate", "merged_dims", "partition", "hoist", "late_sums", "simplify", "join_reductions"]
    names += ["collective_matmul", "fold_reductions", "whole_values"]
    assert list(seconds) == names
    assert done.global_program is not done.device_program is not done.program
    (product,) = [e for e in done.program.equations if e.op.name == "dot_general"]
    assert [v.aval.shape for v in product.outputs] == [(8, 64)]
    assert [e.op.name for e in done.device_program.equations] == ["dot_general", "tanh", "reduce_sum", "all_reduce"]
    assert [e.op.name for e in done.program.equations] == ["dot_general", "tanh", "reduce_sum"]


def test_the_second_half_changes_what_runs_and_not_what_is_shown(monkeypatch):
    module, context = compiled_for()
    shown = run_passes(PARTITIONING, module, context, {})
    seconds: dict[str, float] = {}
    monkeypatch.setattr(costs, "FUSED_FEWEST", 1 << 20)
    assert schedule_module(shown, context, seconds) is shown  # too small for any of it
    monkeypatch.setattr(costs, "FUSED_FEWEST", 8)
    monkeypatch.setattr(costs, "SMALL_FEWEST", 1)
    done = schedule_module(shown, context, seconds)
    assert list(seconds) == [name for name, _ in FUSING + JOINING]
    assert done.device_program is shown.device_program
    assert done.in_dims == shown.in_dims
    with config.override("shardwise_fused", "off"):
        assert schedule_module(shown, context, seconds) is shown


SPECIAL = {  # programs with equations that passes look for
    "conv_products": lambda x: lax.conv_general_dilated(
        x[None], x[None], (1,), "VALID", dimension_numbers=("NWC", "WIO", "NWC")
    ),
    "wide_products": lambda x: lax.tanh(lax.dot(x.astype(jnp.bfloat16), x.astype(jnp.bfloat16))),
    "outer_products": lambda x: lax.tanh(lax.dot_general(x, x[0], (((), ()), ((), ())))),
    "pad_sums": lambda x: (
        lax.pad(x, jnp.float32(0), [(0, 1, 1), (0, 0, 0)]) + lax.pad(x, jnp.float32(0), [(1, 0, 1), (0, 0, 0)])
    ),
    "scatter_sums": lambda x: jnp.zeros_like(x).at[1, 2].add(x[0, 0]) + jnp.sin(x),
    "joined_pads": lambda x: jnp.sin(jnp.pad(x, 3)),
    "cut_pieces": lambda x: jnp.sin(jnp.concatenate([x, x])[7:100]),
    "dims_apart": lambda x: (q := x[:, :3] * 2)[:, 0] + q[:, 1],
    "columns_apart": lambda x: x.at[jnp.arange(64) % 7, jnp.arange(64)].add(x[0]),
    "element_reads": lambda x: x[jnp.arange(64) % 5, jnp.arange(64) % 3] * 2,
    "epilogues": lambda x: lax.tanh(lax.dot(x, x)),
    "computed_windows": lambda x: x.at[1:, 1:].add(jnp.sin(x.T[1:, 1:])),
    "short_rows": lambda x: x.reshape(16, 16, 2, 8).sum((1, 3)) * 2,
    "loop_pieces": lambda x: lax.fori_loop(0, 3, lambda _, c: jnp.sin(c) + x, x),
}


@pytest.mark.parametrize("name", SPECIAL)
def test_a_pass_that_is_left_out_would_change_nothing(monkeypatch, name):
    for limit in ("FUSED_FEWEST", "WIDE_PRODUCTS_FROM"):
        monkeypatch.setattr(costs, limit, 8)
    program = inline_calls(trace_program(lambda x: [SPECIAL[name](x)], [X])[0])
    context = Context(make_grid(sw.devices()[:1], []), (False,), (None,))
    module = run_passes(PARTITIONING, Module(program, program, program, (((), ()),)), context, {})
    for one, rewrite in FUSING:
        function = next(f for f in (f"with_{one}", one, "with_loops_in_pieces") if hasattr(_pass(one), f))
        expected = getattr(_pass(one), function)(module.program, context.env)
        module = rewrite(module, context)
        assert str(module.program) == str(expected), one


def _pass(name):
    return importlib.import_module(f"shardwise.passes.{name}")


@pytest.mark.parametrize("name", [name for name, _ in PIPELINE])
def test_a_pass_that_breaks_the_laws_is_named(monkeypatch, name):
    def broken(module, context):
        eqn = module.program.equations[0]
        twice = Program(module.program.inputs, (eqn, *module.program.equations), module.program.outputs, 0, "f")
        return Module(twice, twice, twice, module.in_dims)

    module, context = compiled_for()
    with pytest.raises(ProgramError, match=f"defined twice after {name}"):
        run_passes(((name, broken),), module, context, {})


def test_the_verifier_knows_types():
    program, _ = trace_program(lambda x: [lax.sin(x)], [X])
    (eqn,) = program.equations
    wrong = Var(X.update(shape=(64, 63)))
    lies = Program(program.inputs, (Equation(eqn.op, eqn.inputs, (wrong,), eqn.params),), (wrong,), 0, "f")
    with pytest.raises(ProgramError, match=r"type rule of sin gives f32\[64,64\] after anything"):
        verify(lies, after="anything")
    other = Var(X.update(dtype=np.dtype("int32")))
    lies = Program(program.inputs, (Equation(eqn.op, eqn.inputs, (other,), eqn.params),), (other,), 0, "f")
    with pytest.raises(ProgramError, match="type rule of sin"):
        verify(lies, before=program)
    assert verify(lies, before=lies) is lies  # what was verified is not asked again, unless it stands elsewhere
    with pytest.raises(ProgramError, match="defined twice"):
        verify(Program(lies.inputs, lies.equations * 2, lies.outputs, 0, "f"), before=lies)
    few = Program(program.inputs, (Equation(eqn.op, eqn.inputs, (), eqn.params),), (), 0, "f")
    with pytest.raises(ProgramError, match="gives 1 results, not 0"):
        verify(few)


def test_compiling_verifies_where_asked(monkeypatch):
    seen = []

    def noted(program, after="", before=None):
        seen.append(after)
        return program

    monkeypatch.setattr(pipeline, "verify", noted)
    for wanted in (True, False):
        with sw.enable_checks(wanted):
            sw.jit(lambda x, more=wanted: jnp.sin(x) + more)(np.ones(costs.FUSED_FEWEST, np.float32))
        assert (set(seen) == {name for name, _ in PARTITIONING + FUSING}) is wanted
        seen.clear()


def test_every_pass_has_a_test_file_of_its_name():
    folder = Path(pipeline.__file__).parent
    here = {path.stem.removeprefix("test_") for path in Path(__file__).parent.glob("test_*.py")}
    modules = {path.stem for path in folder.glob("*.py")} - {"__init__"}
    assert modules <= here
    for name, _ in FUSING + JOINING:
        importlib.import_module(f"shardwise.passes.{name}")


def test_what_kernels_need_is_loaded_while_the_passes_run(monkeypatch):
    compiler = importlib.import_module("shardwise.engine.compile")
    order: list[str] = []
    monkeypatch.setattr(compiler, "look_ahead", lambda program: order.append("ahead"))
    monkeypatch.setattr(compiler, "run_passes", lambda *given: order.append("passes") or run_passes(*given))
    lowered = sw.jit(lambda x: x @ x).lower(np.ones((64, 64), np.float32))
    assert "ahead" not in order  # it may never run
    order.clear()
    sw.jit(lambda x: x @ x - 1)(np.ones((64, 64), np.float32))
    assert order[:2] == ["ahead", "passes"]
    assert lowered.compile()
