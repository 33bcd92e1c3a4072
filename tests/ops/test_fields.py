"""What every op says of itself, checked on values where that can be; and that nobody else keeps lists of ops."""

from __future__ import annotations

import importlib
import pkgutil
import re
import warnings
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import shardwise
from shardwise.ir import Branches, Loop, Op, all_ops, literal, region_of, rounds_of, trace_program
from shardwise.ir.trace import bind

for _module in pkgutil.walk_packages(shardwise.__path__, "shardwise."):
    if not _module.name.endswith("__main__"):
        importlib.import_module(_module.name)

OPS = all_ops()
NOT_CHECKED = {"random_gamma_grad"}  # nor does JAX's checkify look at it
POINTS = np.array([-np.inf, -3.5, -1.0, -0.5, -0.0, 0.0, 0.3, 1.0, 2.0, 30.0, np.inf], np.float32)


def arity_of(op: Op) -> int | None:
    """How many float operands an elementwise op without params takes."""
    for n in (1, 2, 3):
        try:
            op.type_rule(*[literal(np.float32(1)).aval] * n)
        except (TypeError, ValueError):
            continue
        return n
    return None


ELEMENTWISE = sorted(name for name, op in OPS.items() if op.ufunc is not None and arity_of(op))


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_who_makes_a_nan_says_so(name):
    op = OPS[name]
    n = arity_of(op)
    assert n is not None
    args = [a.astype(np.float32) for a in np.meshgrid(*[POINTS] * n)]
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # SciPy warns of orders that are no integers
        out = np.asarray(bind(op, *map(shardwise.numpy.asarray, args)))
    if out.dtype.kind in "fc" and np.isnan(out).any():
        assert op.may_give_nan or name in NOT_CHECKED, (
            f"{name} gives NaN for operands without; its definition should say makes_nan=True"
        )


def test_ops_that_call_a_program_have_its_effects():
    program = object()
    silent = []
    for name, op in OPS.items():
        try:
            called = op.inline is not None and op.inline(SimpleNamespace(params={"program": program})) is program
        except (AttributeError, KeyError, TypeError):
            continue
        if called and not op.effects:
            silent.append(name)
    assert silent == []


def test_defaults_are_stated():
    text = Op.__doc__ or ""
    missing = [f.name for f in fields(Op) if not any(line.split()[:1] == [f.name] for line in text.splitlines())]
    assert missing == []


def test_transcendentals():
    """Those that XLA's cost analysis counts apart from flops."""
    assert (
        sorted(name for name, op in OPS.items() if op.transcendental)
        == (
            "acos acosh asin asinh atan atan2 atanh cbrt cos cosh digamma erf erf_inv erfc exp exp2 expm1 lgamma log log1p logistic "
            "pow rsqrt sin sinh sqrt tan tanh"
        ).split()
    )


def test_ops_that_hold_programs_say_how_they_step():
    """The stepped executor runs them device by device: spliced in, by their steps, or as one kernel."""
    holding = {"scan", "while", "cond"}
    assert {name for name, op in OPS.items() if op.steps is not None} == holding
    assert {name for name, op in OPS.items() if op.region is not None} == holding


def traced_equation(f, *args):
    program = trace_program(f, [shardwise.numpy.asarray(a).aval for a in args])[0]
    return next(e for e in program.equations if e.op.region is not None)


def test_regions_say_what_programs_get():
    """The operands that a region names have the types of the inputs of its programs, and its results theirs."""
    lax = shardwise.lax
    n, x, rows = np.int32(3), np.ones(4, np.float32), np.ones((5, 2), np.int32)

    def scanned(n, x, rows):
        return lax.scan(lambda c, r: ((c[0] * n, c[1] + 1), (r + 1, c[0])), (x, n), rows, reverse=True)[0]

    def repeated(n, x, rows):
        return lax.while_loop(lambda c: c[1] < n, lambda c: (c[0] + rows[0, 0], c[1] + 1), (x, n))

    eqn = traced_equation(scanned, n, x, rows)
    loop = region_of(eqn)
    assert isinstance(loop, Loop) and (loop.length, loop.reverse, loop.test) == (5, True, None)
    assert rounds_of(eqn) == 5
    check_operands(eqn, loop)
    assert [t.shape[1:] for t in loop_types(eqn, loop.rows)] == [(2,)]
    assert [v.aval.shape for v in eqn.outputs[loop.num_carry :]] == [(5, 2), (5, 4)]

    eqn = traced_equation(repeated, n, x, rows)
    loop = region_of(eqn)
    assert isinstance(loop, Loop) and loop.test is not None and rounds_of(eqn) is None
    check_operands(eqn, loop)
    inputs = [*loop_types(eqn, loop.test_consts), *loop_types(eqn, loop.carry)]
    assert [t.shape for t in inputs] == [t.shape for t in loop.test.in_types]

    eqn = traced_equation(lambda n, x, rows: lax.switch(n, [lambda x: x, lambda x: -x], x), n, x, rows)
    branches = region_of(eqn)
    assert isinstance(branches, Branches) and rounds_of(eqn) is None
    assert all(p.in_types == tuple(a.aval for a in eqn.inputs[1:]) for p in branches.programs)


def loop_types(eqn, operands):
    return [a.aval for a in eqn.inputs[operands]]


def check_operands(eqn, loop):
    given = [*loop_types(eqn, loop.consts), *loop_types(eqn, loop.carry)]
    found = loop.body.in_types
    assert [(t.shape, t.dtype) for t in found[: len(given)]] == [(t.shape, t.dtype) for t in given]
    assert [t.shape for t in found[len(given) :]] == [t.shape[1:] for t in loop_types(eqn, loop.rows)]
    assert [t.shape for t in loop.body.out_types[: loop.num_carry]] == [v.aval.shape for v in eqn.outputs][
        : loop.num_carry
    ]


def test_each_field_is_read():
    """A field that an op sets and no code reads says nothing."""
    read: set[str] = set()
    for path in Path(shardwise.__path__[0]).rglob("*.py"):
        read |= {name for name in re.findall(r"\.([a-z_]+)", path.read_text())}
    assert not {field.name for field in fields(Op)} - read
