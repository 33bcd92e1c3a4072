"""Simplification of per-device programs: merge equal equations, drop dead ones, use cheaper forms."""

from __future__ import annotations

from typing import Any

import numpy as np

from shardwise.base.dtypes import is_key_dtype, physical
from shardwise.ir import Atom, Branches, Equation, Literal, Loop, Program, ProgramMap, Var, region_of
from shardwise.passes.equals import Equals, key_of
from shardwise.passes.held_updates import held_updates
from shardwise.passes.live_results import LiveResults
from shardwise.runtime.env import SINGLE
from shardwise.runtime.plan import kernel_of


def simplify(program: Program, devices: int = 1) -> Program:
    """The same program for `devices` devices simplified, loop bodies and branches included."""
    live = LiveResults()
    simplify_map = ProgramMap(
        lambda p: live(
            common_subexpressions(held_updates(cheaper_forms(known_scalars(simplify_map.inside(p)), devices)))
        )
    )
    return simplify_map.of(program)


def known_scalars(program: Program) -> Program:
    """Compute what follows from constant scalars, or from devices being alone, by arithmetic, which rounds alike wherever it runs."""
    scalar_by_var: dict[Var, Atom] = {}
    kept_equations: list[Equation] = []
    for eqn in program.equations:
        inputs = eqn.inputs
        if scalar_by_var and not scalar_by_var.keys().isdisjoint(inputs):
            inputs = tuple([a if isinstance(a, Literal) else scalar_by_var.get(a, a) for a in inputs])
            eqn = Equation(eqn.op, inputs, eqn.outputs, eqn.params, eqn.source)
        is_candidate = not inputs or isinstance(inputs[0], Literal)  # most have no constant first: do not look further
        if is_candidate and all(isinstance(a, Literal) for a in inputs) and (_is_arithmetic(eqn) or _is_alone(eqn)):
            scalar_by_var[eqn.outputs[0]] = _compute_constant(eqn)
        else:
            kept_equations.append(eqn)
    if not scalar_by_var:
        return program
    outputs = tuple([a if isinstance(a, Literal) else scalar_by_var.get(a, a) for a in program.outputs])
    return Program(program.inputs, tuple(kept_equations), outputs, program.num_consts, program.name)


def _is_arithmetic(eqn: Equation) -> bool:
    op = eqn.op
    if op.emit is None or not eqn.inputs or op.transcendental or op.has_effects(eqn.params):
        return False
    out = eqn.outputs[0].aval  # elementwise ops have one result
    return not out.shape and not is_key_dtype(out.dtype) and out.mesh is None


def _is_alone(eqn: Equation) -> bool:
    """Whether it says of a device that is alone where it is, or what it has."""
    collective = eqn.op.collective
    alone = collective is not None and collective.alone is not None and not eqn.params["axes"]
    return alone and not eqn.outputs[0].aval.shape


def _compute_constant(eqn: Equation) -> Literal:
    with np.errstate(all="ignore"):
        value = kernel_of(eqn, SINGLE)(*[a.value for a in eqn.inputs if isinstance(a, Literal)])
    aval = eqn.outputs[0].aval
    return Literal(np.asarray(value, physical(aval.dtype)).reshape(()), aval)


def cheaper_forms(program: Program, devices: int) -> Program:
    """Replace equations by the cheaper forms that their ops offer (`Op.rewrite`)."""
    if all(e.op.rewrite is None for e in program.equations):
        return program
    names: dict[Var, Atom] = {}
    equations: list[Equation] = []
    # By op, id of the params and types: equal equations of later layers share the form, and the programs in it. The values keep the params.
    form_by_key: dict[Any, tuple[Equation, Program | None]] = {}

    def read(a: Atom) -> Atom:
        return a if isinstance(a, Literal) else names.get(a, a)

    for eqn in program.equations:
        if not names.keys().isdisjoint(eqn.inputs):
            eqn = Equation(eqn.op, tuple(map(read, eqn.inputs)), eqn.outputs, eqn.params, eqn.source)
        if eqn.op.rewrite is None:
            equations.append(eqn)
            continue
        key = (eqn.op, id(eqn.params), eqn.source, tuple([a.aval for a in eqn.inputs]))
        if key not in form_by_key:
            form_by_key[key] = eqn, eqn.op.rewrite(eqn, devices)
        cheaper = form_by_key[key][1]
        if cheaper is None:
            equations.append(eqn)
            continue
        names.update(zip(cheaper.inputs, eqn.inputs, strict=True))
        for e in cheaper.equations:
            outputs = tuple([Var(v.aval) for v in e.outputs])
            equations.append(Equation(e.op, tuple(map(read, e.inputs)), outputs, e.params, e.source or eqn.source))
            names.update(zip(e.outputs, outputs, strict=True))
        names.update(zip(eqn.outputs, map(read, cheaper.outputs), strict=True))
    outputs = tuple(map(read, program.outputs))
    return Program(program.inputs, tuple(equations), outputs, program.num_consts, program.name)


def common_subexpressions(program: Program) -> Program:
    """Merge equations with the same op, params and operands."""
    replacements: dict[Var, Atom] = {}
    equals = Equals()
    kept_equations: list[Equation] = []

    def read(a: Atom) -> Atom:
        return a if isinstance(a, Literal) else replacements.get(a, a)

    for eqn in program.equations:
        inputs = eqn.inputs
        if not replacements.keys().isdisjoint(inputs):
            inputs = tuple(map(read, inputs))
            eqn = Equation(eqn.op, inputs, eqn.outputs, eqn.params, eqn.source)
        first = equals.of(eqn, inputs)
        if first is not None:
            replacements.update(zip(eqn.outputs, first.outputs, strict=True))
            continue
        kept_equations.append(eqn)
        if eqn.op.region is not None and not eqn.op.has_effects(eqn.params):
            replacements.update(_equal_results(eqn))
    return Program(
        program.inputs, tuple(kept_equations), tuple(read(a) for a in program.outputs), program.num_consts, program.name
    )


def _equal_results(eqn: Equation) -> dict[Var, Atom]:
    """Results of a loop or of branches that equal earlier ones: those that all its programs give twice."""
    region = region_of(eqn)
    if isinstance(region, Branches):
        columns, first = zip(*[p.outputs for p in region.programs], strict=True), 0
    elif isinstance(region, Loop) and region.test is None:
        columns, first = zip(region.body.outputs), region.num_carry  # a carry has a first value of its own
    else:
        return {}
    var_by_key: dict[Any, Var] = {}
    equal: dict[Var, Atom] = {}
    for i, (var, column) in enumerate(zip(eqn.outputs, columns, strict=True)):
        same = var_by_key.setdefault((var.aval, *map(key_of, column)), var) if i >= first else var
        if same is not var:
            equal[var] = same
    return equal
