"""Elements that are read at positions become part of the loops that compute the positions, and of those that use the elements.

Comes in: a per-device program. Goes out: the program in which gathers of many elements are equations of `read_elements`, whose
positions are operands in the shape of the result, as elementwise ops have them. `schedule` puts them into groups.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shardwise.base.shapes import Shape
from shardwise.ir import Atom, ElementRead, Equation, Literal, Op, Program, ShapedArray, Source, Var
from shardwise.ops.indexing.element_reads import copies_elements, reading_elements
from shardwise.ops.shapes.broadcast import broadcast_in_dim_p
from shardwise.ops.shapes.pieces import slice_p
from shardwise.ops.shapes.transpose import squeeze_p
from shardwise.passes.parts import makers, users
from shardwise.passes.schedule import map_large
from shardwise.runtime import costs
from shardwise.runtime.env import Env
from shardwise.runtime.fused import fits
from shardwise.runtime.machine import available


def with_element_reads(program: Program, env: Env) -> Program:
    """`program` with gathers as reads of elements."""
    return _read(program, env) if available() else program


def _read(program: Program, env: Env) -> Program:
    program = map_large(program, env, lambda inner: _read(inner, env))
    if all(e.op.element_read is None for e in program.equations):
        return program
    positions, used = _Positions(program), users(program)
    equations: list[Equation] = []
    for eqn in program.equations:
        out = eqn.outputs[0] if eqn.outputs else None
        if eqn.op.element_read is None or out is None or not fits(out.aval, "biufc"):
            equations.append(eqn)
            continue
        read = eqn.op.element_read(eqn) if env.spread.elements(out.aval) >= costs.FUSED_FEWEST else None
        if read is None or isinstance(eqn.inputs[0], Literal):
            equations.append(eqn)
            continue
        in_loops = positions.are_computed(eqn) or _is_computed_with(out, program, used)
        if not in_loops and not copies_elements(read, eqn.inputs[0].aval, out.aval.shape):
            equations.append(eqn)
            continue
        new_equation = positions.of(eqn, read)
        equations += [*positions.new, reading_elements(eqn, read, new_equation)]
        positions.new.clear()
    return Program(program.inputs, tuple(equations), program.outputs, program.num_consts, program.name)


def _computes(eqn: Equation) -> bool:
    """Whether a loop over elements computes the equation. A copy of elements alone has kernels of its own."""
    emit = eqn.op.emit
    return (emit is not None and not emit.moves) or eqn.op.fold is not None or eqn.op.element_read is not None


def _is_computed_with(value: Var, program: Program, used: Mapping[Var, Sequence[int]]) -> bool:
    """Whether loops over elements compute with the value, or with what is broadcast of it."""
    readers = [program.equations[i] for i in used.get(value, ())]
    movers = [e for e in readers if e.op.emit is not None and e.op.emit.moves]
    return any(map(_computes, readers)) or any(_is_computed_with(e.outputs[0], program, used) for e in movers)


class _Positions:
    """Positions as operands of their own, in the rank of the result; `new` are equations that make them."""

    def __init__(self, program: Program) -> None:
        self.program, self.made = program, makers(program)
        self.new: list[Equation] = []
        self._done: dict[object, Var] = {}

    def are_computed(self, eqn: Equation) -> bool:
        """Whether a loop could compute the positions that the equation reads at."""
        any_computed = False
        for atom in eqn.inputs[1:]:
            while not any_computed and isinstance(atom, Var) and atom in self.made:
                maker = self.program.equations[self.made[atom]]
                any_computed = _computes(maker)
                if not maker.inputs:
                    break
                atom = maker.inputs[0]
        return any_computed

    def of(self, eqn: Equation, read: ElementRead) -> list[Atom]:
        """The positions of an equation."""
        rank = eqn.outputs[0].aval.ndim
        window = {o for d, o in enumerate(read.along) if o is not None and d not in read.aligned}
        batch = tuple(d for d in range(rank) if d not in window)
        columns = [(a, k) for a in eqn.inputs[1:] for k in range(a.aval.shape[-1])]
        return [self._position(atom, k, batch, rank, eqn.source) for atom, k in columns]

    def _position(self, atom: Atom, k: int, batch: Shape, rank: int, source: Source | None) -> Atom:
        """Number `k` of the vectors of positions, whose dims `batch` are those of the result."""
        last = atom.aval.ndim - 1
        if atom.aval.shape[-1] != 1:
            starts, limits = [0] * last + [k], [*atom.aval.shape[:-1], k + 1]
            params = {"start_indices": tuple(starts), "limit_indices": tuple(limits), "strides": None}
            atom = self._emit_once(slice_p, atom, (*atom.aval.shape[:-1], 1), params, source)
        dims: tuple[int | None, ...] = (*batch, None)
        while isinstance(atom, Var) and atom in self.made:
            maker = self.program.equations[self.made[atom]]
            if maker.op is not broadcast_in_dim_p:
                break
            dims, atom = tuple(dims[d] for d in maker.params["broadcast_dimensions"]), maker.inputs[0]
        if isinstance(atom, Literal) and not atom.aval.shape:
            return atom
        missing_dims = tuple(i for i, d in enumerate(dims) if d is None)
        if missing_dims:
            shape = tuple(n for i, n in enumerate(atom.aval.shape) if i not in missing_dims)
            atom, dims = (
                self._emit_once(squeeze_p, atom, shape, {"dimensions": missing_dims}, source),
                tuple(d for d in dims if d is not None),
            )
        target = [1] * rank
        for d, n in zip(dims, atom.aval.shape, strict=True):
            assert d is not None
            target[d] = n
        if tuple(target) == atom.aval.shape:
            return atom
        params = {"shape": tuple(target), "broadcast_dimensions": dims, "out_sharding": None}
        return self._emit_once(broadcast_in_dim_p, atom, tuple(target), params, source)

    def _emit_once(self, op: Op, atom: Atom, shape: Shape, params: dict[str, Any], source: Source | None) -> Var:
        key = (op, atom, *params.values())
        if key not in self._done:
            aval = atom.aval
            self._done[key] = out = Var(ShapedArray(shape, aval.dtype, aval.weak_type, vma=aval.vma))
            self.new.append(Equation(op, (atom,), (out,), params, source))
        return self._done[key]
