"""Copies that a target makes before it can compute: of operands of products, of rows of stacks, of what must not be written over.

XLA's compiler for GPUs leaves products to libraries, which read matrices: the dims of a batch, the rows and the columns each side by side,
the batch not last. Other operands it transposes. What a loop takes of a stack for such a call it cuts out, and what a call makes for a
stack it writes there in a second step. Kernels of its own read and write all of these where they lie, so here a copy is an equation
that fusion may merge with what makes its operand.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from shardwise.ir import Atom, Equation, Program, Source, Var, unwrap_op
from shardwise.ops.devices.barrier import optimization_barrier_p
from shardwise.ops.elementwise.casts import convert_element_type_p
from shardwise.planner.flops import product_of
from shardwise.planner.roles import Role, role_of
from shardwise.planner.target import Target
from shardwise.planner.turned import Order, is_turned, order_of

_BATCH, _FREE, _SUMMED = range(3)


def op_name(eqn: Equation) -> str:
    """The name of an equation's op, as reports show it: of a copy that a target makes ``copy``."""
    op = unwrap_op(eqn.op, eqn.params)[0]
    return "copy" if op is convert_element_type_p and eqn.inputs[0].aval.dtype == eqn.outputs[0].aval.dtype else op.name


def with_copies(
    program: Program, target: Target, rows: Sequence[Var] = (), stacked: int = 0, kept: AbstractSet[Atom] = frozenset()
) -> Program:
    """The program with the copies that the target makes.

    Args:
        rows: inputs that are entries of stacks.
        stacked: how many of the last results become entries of stacks.
        kept: inputs that updates must not write over.
    """
    if not target.copies:
        return program
    so_far = _ProgramSoFar(set(rows), set(program.outputs[len(program.outputs) - stacked :]), kept)
    so_far.cut_out(program)
    for eqn in program.equations:
        so_far.take(eqn)
    so_far.write_stacks()
    return Program(program.inputs, tuple(so_far.equations), program.outputs, program.num_consts, program.name)


class _ProgramSoFar:
    """The equations so far, and how the values lie that are views of others."""

    def __init__(self, rows: set[Var], stacked: set[Atom], kept: AbstractSet[Atom]) -> None:
        self.equations: list[Equation] = []
        self._rows = rows
        self._stacked = stacked
        self._made: dict[Atom, Var] = {}  # per entry of a stack the value that is copied there, or from there
        self._kept = kept
        self._orders: dict[Atom, Order] = {}
        self._scattered: set[Atom] = set()  # views that no strides show
        self._roots: dict[Atom, Atom] = {}
        self._copies: dict[Atom, Var] = {}
        self._sources: dict[Atom, Source | None] = {}  # per entry of a stack the line that makes it

    def take(self, eqn: Equation) -> None:
        """Append an equation, with the copies that it needs."""
        role = role_of(eqn)
        own_copies = self._made
        inputs = tuple([own_copies.get(a, a) for a in eqn.inputs]) if own_copies else eqn.inputs
        if inputs != eqn.inputs:
            eqn = Equation(eqn.op, inputs, eqn.outputs, eqn.params, eqn.source)
        if role is Role.VIEW:
            self._see(eqn)
        elif role is Role.PRODUCT and eqn.op.algorithm is None:
            matrices = _are_matrices(eqn, [self._order(a) for a in inputs])
            inputs = tuple(
                [a if fits else self._copy_of(a, eqn.source) for a, fits in zip(inputs, matrices, strict=True)]
            )
        elif _pads_unevenly(eqn) if role is Role.PRODUCT else self._keeps(eqn, role):
            inputs = (self._copy_of(inputs[0], eqn.source), *inputs[1:])
        entries = {v: Var(v.aval) for v in eqn.outputs if v in self._stacked}
        if inputs != eqn.inputs or entries:
            self._made.update(entries.items())
            self._sources.update(dict.fromkeys(entries, eqn.source))
            outputs = tuple([entries.get(v, v) for v in eqn.outputs])
            eqn = Equation(eqn.op, inputs, outputs, eqn.params, eqn.source)
        self.equations.append(eqn)

    def cut_out(self, program: Program) -> None:
        """Copy the rows that a library reads, or several kernels: others are read where they lie."""
        readers: dict[Atom, int] = {}
        lines: dict[Atom, Source | None] = {}
        shown_as: dict[Atom, Atom] = {row: row for row in self._rows}
        for eqn in program.equations if shown_as else ():
            role = role_of(eqn)
            for atom in dict.fromkeys(eqn.inputs):
                row = shown_as.get(atom)
                if row is None:
                    continue
                if role is Role.VIEW:
                    shown_as[eqn.outputs[0]] = row
                else:
                    is_called = role is Role.OTHER or (role is Role.PRODUCT and not is_reduction(eqn))
                    readers[row] = readers.get(row, 0) + (2 if is_called else 1)
                    lines.setdefault(row, eqn.source)
        for row, count in readers.items():
            if count > 1 and isinstance(row, Var):
                cut, copy = Var(row.aval), Var(row.aval)
                self.equations.append(_copy(row, cut, lines[row]))
                self.equations.append(Equation(optimization_barrier_p, (cut,), (copy,), {}))
                self._made[row] = copy

    def write_stacks(self) -> None:
        """Append the copies of what becomes entries of stacks."""
        for entry, own_copy in self._made.items():
            if entry not in self._rows:
                self.equations.append(_copy(own_copy, entry, self._sources[entry]))

    def _see(self, eqn: Equation) -> None:
        operand, out = eqn.inputs[0], eqn.outputs[0]
        self._roots[out] = self._roots.get(operand, operand)
        if eqn.op.rule is None or len(eqn.inputs) != 1:
            return
        order = None if operand in self._scattered else order_of(eqn, self._orders)
        if order is None:
            self._scattered.add(out)
        elif is_turned(order):
            self._orders[out] = order

    def _keeps(self, eqn: Equation, role: Role) -> bool:
        """Whether an update must not write over its operand."""
        return role is Role.UPDATE and self._roots.get(eqn.inputs[0], eqn.inputs[0]) in self._kept

    def _order(self, atom: Atom) -> Order | None:
        if atom in self._scattered:
            return None
        return self._orders.get(atom, tuple(range(atom.aval.ndim)))

    def _copy_of(self, atom: Atom, source: Source | None) -> Atom:
        if not isinstance(atom, Var):
            return atom
        if atom not in self._copies:
            copy = self._copies[atom] = Var(atom.aval)
            self.equations.append(_copy(atom, copy, source))
        return self._copies[atom]


def _copy(operand: Var, result: Atom, source: Source | None) -> Equation:
    """A copy on behalf of a line of the user's: a cast to the same type, since `copy` itself moves nothing."""
    assert isinstance(result, Var)
    params = {"new_dtype": operand.aval.dtype, "weak_type": operand.aval.weak_type}
    return Equation(convert_element_type_p, (operand,), (result,), params, source)


def _pads_unevenly(eqn: Equation) -> bool:
    """Whether a convolution wants other pads before a dim than behind it, which libraries do not have: its operand is padded first."""
    return any(before != behind for before, behind in eqn.params.get("padding", ()))


def is_reduction(eqn: Equation) -> bool:
    """Whether a product is many of a matrix and a vector: a reduction then, which reads its operands however they lie."""
    product = product_of(eqn)
    return product.batch > 1 and (product.m == 1 or product.n == 1)


def _are_matrices(eqn: Equation, orders: Sequence[Order | None]) -> list[bool]:
    """Per operand of a product whether it can be read as it lies."""
    if is_reduction(eqn):
        return [True] * len(eqn.inputs)
    rule = eqn.op.sharding_rule(tuple([a.aval for a in eqn.inputs]), (eqn.outputs[0].aval,), eqn.params)
    left, right = ({f for dim in rule.inputs[i] for f in dim} for i in range(2))
    result_factors = {f for dim in rule.outputs[0] for f in dim}
    found: list[bool] = []
    for atom, dims, order in zip(eqn.inputs, rule.inputs, orders, strict=True):
        if order is None:
            found.append(False)
            continue
        factors = [f for d in order for f in dims[d] if rule.sizes[f] > 1]
        parts = [_FREE if (f in left) != (f in right) else _BATCH if f in result_factors else _SUMMED for f in factors]
        runs = [part for i, part in enumerate(parts) if i == 0 or parts[i - 1] != part]
        last = runs[-1] if len(runs) > 1 else None
        narrow = atom.aval.itemsize == 1 and last is not None  # tensor cores sum bytes along the last dim
        found.append(len(runs) == len(set(runs)) and last != _BATCH and (not narrow or last == _SUMMED))
    return found
