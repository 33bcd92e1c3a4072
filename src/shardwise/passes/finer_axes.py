"""Mesh axes that reshapes cut in two: a finer grid, on which the parts of an axis split the parts of a dim.

    8 heads over an axis of 4, reshaped to 2 groups of 4 heads     the axis is a grid of (2, 2): the major part splits the groups, the
                                                                   minor one the heads of a group, and nothing moves

Comes in: a program and the layouts of its values. Goes out: the sizes of a finer grid if a reshape needs one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from shardwise.base.shapes import Axes, DimAxes
from shardwise.ir import Equation, ExactParams, Program, Var, subprograms
from shardwise.passes.grid import Grid, MeshKey
from shardwise.sharding.rule import Kind, Rule


def finer_mesh(program: Program, layouts: Mapping[Var, DimAxes], grid: Grid) -> MeshKey | None:
    """A mesh with each axis cut where a reshape of a value split by it needs a cut; None if none does."""
    sizes = grid.axis_sizes
    cuts: dict[str, int] = {}  # axis -> size of its major part
    reshape_keys: set[Any] = set()  # layers of an unrolled model repeat the same reshapes
    for eqn in _reshapes(program, set()):
        x, out = eqn.inputs[0], eqn.outputs[0]
        dims = _layout(x, layouts), layouts.get(out, ())
        if not (any(dims[0]) or any(dims[1])):
            continue
        key = (eqn.op, id(eqn.params), x.aval, out.aval, dims)
        if key in reshape_keys:
            continue
        reshape_keys.add(key)
        for axis, major in _cuts(eqn, dims, sizes):
            cuts.setdefault(axis, major)
    if not cuts:
        return None
    parts = [p for n, size in sizes.items() for p in ((cuts[n], size // cuts[n]) if n in cuts else (size,))]
    return tuple(f"_{i}" for i in range(len(parts))), tuple(parts)


def _reshapes(program: Program, plain: set[int]) -> Iterator[Equation]:
    """The equations that give the elements of one operand another shape. `plain`: ids of params that hold no programs."""
    for eqn in program.equations:
        if len(eqn.inputs) == len(eqn.outputs) == 1 and eqn.op.rule is not None:
            x, out = eqn.inputs[0].aval, eqn.outputs[0].aval
            if x is not out and x.shape != out.shape and x.size == out.size:
                yield eqn
        if id(eqn.params) in plain:
            continue
        inner = subprograms(eqn.params)
        if not inner:
            plain.add(id(eqn.params))
        for _, p in inner:
            yield from _reshapes(p, plain)


def _cuts(eqn: Equation, dims: tuple[DimAxes, DimAxes], sizes: Mapping[str, int]) -> Iterator[tuple[str, int]]:
    """The axes that split a dim made of several factors and that the first of these does not take whole."""
    types = (eqn.inputs[0].aval,), tuple([v.aval for v in eqn.outputs])
    rule = eqn.op.sharding_rule(*types, ExactParams(eqn.params))
    for tensor, layout in zip(rule.tensors, dims, strict=True):
        for factors, axes in zip(tensor, layout, strict=False):
            if len(factors) > 1 and axes:
                yield from _cut_of(rule, factors, axes, sizes)


def _layout(atom: object, layouts: Mapping[Var, DimAxes]) -> DimAxes:
    return layouts.get(atom, ()) if isinstance(atom, Var) else ()


def _cut_of(rule: Rule, factors: tuple[int, ...], axes: Axes, sizes: Mapping[str, int]) -> Iterator[tuple[str, int]]:
    """The first axis that does not fit into what is left of its factor, and the part of it that fills the factor."""
    rest = list(axes)
    for i, f in enumerate(factors):
        room = rule.sizes[f]
        while rest and room % sizes[rest[0]] == 0:
            room //= sizes[rest.pop(0)]
        if not rest or rule.kinds[f] is not Kind.PASS:
            return
        if room > 1:
            size, next_factor = sizes[rest[0]], factors[i + 1 : i + 2]
            fits = [g for g in next_factor if rule.kinds[g] is Kind.PASS and rule.sizes[g] * room % size == 0]
            if size % room == 0 and fits:
                yield rest[0], room
            return
