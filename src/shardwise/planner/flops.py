"""The work of equations: products as matrix sizes, elementwise operations, bytes touched.

In: equations with local types. Out: a `Work`, which `efficiency` turns into seconds, and `cost_analysis` and `roofline` show.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from shardwise.base.caches import recent
from shardwise.base.lazy_dataclasses import dataclass
from shardwise.ir import (
    Atom,
    Branches,
    Equation,
    ExactParams,
    Literal,
    Loop,
    Op,
    Program,
    ShapedArray,
    Var,
    region_of,
    rounds_of,
    subprograms,
    unwrap_op,
)
from shardwise.ir.op import Params, Types
from shardwise.ops.elementwise.elementwise_ir import EXP
from shardwise.passes import sizes_of_product
from shardwise.sharding.rule import Kind


@dataclass(frozen=True, slots=True)
class Product:
    """A batch of matrix products, ``[m, k] @ [k, n]``.

    Attributes:
        batch, m, n, k: sizes; those of several dims multiplied. Of a product that a kernel computes in part, a part of the batch.
        dtypes: of the two operands.
        passes: how often the narrow units run for one result of more precision.
        itemsize: bytes of an element of the wider operand.
        written: bytes of the result.
    """

    batch: float
    m: int
    n: int
    k: int
    dtypes: tuple[np.dtype[np.generic], np.dtype[np.generic]]
    passes: int
    itemsize: int
    written: int

    @property
    def flops(self) -> float:
        """Operations; a multiply-add is two."""
        return 2.0 * self.batch * self.m * self.n * self.k


@dataclass(frozen=True, slots=True)
class Operations:
    """The work of one equation, by XLA's conventions.

    Attributes:
        product: the sizes of a matrix product or convolution.
        arithmetic: elements of results of elementwise arithmetic, or of operands of a reduction: an operation each.
        functions: elements of results of transcendental functions.
    """

    product: Product | None = None
    arithmetic: float = 0.0
    functions: float = 0.0


@dataclass(frozen=True, slots=True)
class Work:
    """The work of equations.

    Attributes:
        products: matrix products and convolutions.
        vector: elementwise operations, relative to an addition.
        transcendentals: elements of exp; log, tanh and their kin count as many of them as they cost.
        arithmetic, functions: as those of `Operations`.
        bytes: of the operands and results of all equations, each a kernel of its own.
    """

    products: tuple[Product, ...]
    vector: float
    transcendentals: float
    arithmetic: float = 0.0
    functions: float = 0.0
    bytes: float = 0.0

    @property
    def product_flops(self) -> float:
        """Operations of products."""
        return math.fsum(p.flops for p in self.products)

    @property
    def flops(self) -> float:
        """Operations of products and elementwise ones."""
        return self.product_flops + self.vector


# A function, alone or with the kind of its first operand; a reduction that goes down columns has the kind "down".
Costly = Op | tuple[Op, str]
_NOT_MEASURED: Mapping[Costly, float] = {}


def work_of(
    equations: Iterable[Equation],
    known: dict[Program, Work] | None = None,
    function_costs: Mapping[Costly, float] = _NOT_MEASURED,
) -> Work:
    """The work of equations; of loops that of all rounds with their tests, one where their number is not known, of branches the most
    of each amount.

    Args:
        equations: with local types.
        known: the work of programs that these equations share with others.
        function_costs: elements of exp that an element of a function costs, by op; others cost what their `Emit` says.
    """
    known = {} if known is None else known
    products: list[Product] = []
    vector = transcendentals = arithmetic = functions = moved = 0.0
    for eqn in equations:
        op, _, _ = unwrap_op(eqn.op, eqn.params)
        simple = op.emit is not None or op.fold is not None or op.product
        inner = [] if simple else _inner_work(eqn, known, function_costs)
        for work, rounds in inner:
            products += [replace(p, batch=p.batch * rounds) for p in work.products]
            vector += rounds * work.vector
            transcendentals += rounds * work.transcendentals
            arithmetic += rounds * work.arithmetic
            functions += rounds * work.functions
            moved += rounds * work.bytes
        if inner:
            continue
        found = operations_of(eqn)
        if found.product is not None:
            products.append(found.product)
        arithmetic += found.arithmetic
        functions += found.functions
        cost = _cost_of(eqn, op, function_costs) if function_costs else None
        if cost is not None:
            transcendentals += cost * (found.functions + found.arithmetic)
        elif op.collective is None:
            vector += found.arithmetic * (1 if op.emit is None else 0 if op.emit.moves else op.emit.cost)
            transcendentals += found.functions * (1 if op.emit is None else op.emit.cost / EXP.cost)
        moved += sum([a.aval.nbytes for a in eqn.inputs]) + sum([v.aval.nbytes for v in eqn.outputs])
    return Work(tuple(products), vector, transcendentals, arithmetic, functions, moved)


def _cost_of(eqn: Equation, op: Op, costs: Mapping[Costly, float]) -> float | None:
    """The elements of exp that one of a function costs, if that was measured: of operands of its kind, or at all."""
    kind = eqn.inputs[0].aval.dtype.kind if eqn.inputs else "f"
    if op.fold is not None and eqn.inputs[0].aval.ndim - 1 not in eqn.params.get("axes", ()):
        kind = DOWN
    cost = costs.get((op, kind))
    return costs.get(op) if cost is None and kind != "c" else cost


DOWN = "down"  # of a reduction of all columns at once


def _inner_work(
    eqn: Equation, known: dict[Program, Work], function_costs: Mapping[Costly, float]
) -> list[tuple[Work, int]]:
    """The work of the programs that an equation holds, with how often they run; none where it holds none."""
    region = region_of(eqn)
    programs = [p for _, p in subprograms(eqn.params)] if region is None else region.programs
    for program in programs:
        if program not in known:
            known[program] = work_of(program.equations, known, function_costs)
    inner = [known[p] for p in programs]
    if region is None:
        return [(work, 1) for work in inner]
    if isinstance(region, Branches):
        return [(_most(inner), 1)]
    rounds = rounds_of(eqn)
    return [(work, 1 if rounds is None else rounds) for work in inner]


def chained_operations(equations: Iterable[Equation]) -> float:
    """How many operations of loops that these equations hold wait for one another, as each round does for the one before."""
    total = 0.0
    for eqn in equations:
        region = region_of(eqn)
        if isinstance(region, Loop):
            own = (_longest_chain(p) + chained_operations(p.equations) for p in region.programs)
            total += (rounds_of(eqn) or 1) * math.fsum(own)
        elif region is None:
            total += math.fsum(chained_operations(p.equations) for _, p in subprograms(eqn.params))
    return total


def _longest_chain(program: Program) -> int:
    """The most operations of one run of a program that wait for one another."""
    behind: dict[Atom, int] = {}
    for eqn in program.equations:
        before = max((behind.get(a, 0) for a in eqn.inputs), default=0)
        behind.update(dict.fromkeys(eqn.outputs, before if _moves(eqn.op) else before + 1))
    return max(behind.values(), default=0)


def _moves(op: Op) -> bool:
    return op.view or op.arranges or op.boxes is not None or (op.emit is not None and op.emit.moves)


def _most(works: Sequence[Work]) -> Work:
    """The maximum of each amount."""
    return Work(
        max(works, key=lambda w: w.product_flops).products,
        max(w.vector for w in works),
        max(w.transcendentals for w in works),
        max(w.arithmetic for w in works),
        max(w.functions for w in works),
        max(w.bytes for w in works),
    )


def operations_of(eqn: Equation) -> Operations:
    """The work of an equation that holds no program."""
    op, _, _ = unwrap_op(eqn.op, eqn.params)
    size = sum([v.aval.size for v in eqn.outputs])
    if op.product:
        return Operations(product=product_of(eqn))
    if op.transcendental:
        return Operations(functions=size)
    if op.collective is not None:
        return Operations(arithmetic=size if op.collective.computes else 0.0)
    if op.rule is None or (op.emit is not None and not op.emit.moves):
        return Operations(arithmetic=size)
    if op.fold is not None:
        return Operations(arithmetic=sum([a.aval.size for a in eqn.inputs]))
    if op.emit is not None or op.view or op.boxes is not None or (op.indexed is not None and not op.updates):
        return Operations()
    rule = eqn.op.sharding_rule(tuple([a.aval for a in eqn.inputs]), tuple([v.aval for v in eqn.outputs]), eqn.params)
    if Kind.REDUCE not in rule.kinds:
        return Operations()
    if op.indexed is not None:  # a scatter that combines computes once per element of its updates
        return Operations(arithmetic=eqn.inputs[-1].aval.size)
    return Operations(arithmetic=sum([a.aval.size for a in eqn.inputs]))


def product_flops_of(program: Program) -> float:
    """FLOPs of a program's products, by which programs are compared."""
    return work_of(filter(_may_have_products, program.equations)).product_flops


def _may_have_products(eqn: Equation) -> bool:
    """Whether an equation is a product, or holds programs."""
    if eqn.op.emit is not None or eqn.op.fold is not None or not eqn.params:
        return False
    return unwrap_op(eqn.op, eqn.params)[0].product or eqn.op.region is not None or bool(subprograms(eqn.params))


def product_of(eqn: Equation) -> Product:
    """The sizes of a product or convolution."""
    types = tuple([a.aval for a in eqn.inputs]), eqn.outputs[0].aval
    try:
        return _known_product(eqn.op, *types, ExactParams(eqn.params))
    except TypeError as error:
        if "unhashable" not in str(error):
            raise
        return _product(eqn.op, *types, eqn.params)


def _product(op: Op, in_types: Types, out: ShapedArray, params: Params) -> Product:
    dtypes = in_types[0].dtype, in_types[1].dtype
    itemsize = max(d.itemsize for d in dtypes)
    passes = _passes(unwrap_op(op, params)[1].get("precision"))
    return Product(*sizes_of_product(op, in_types, out, params), dtypes, passes, itemsize, out.nbytes)


HIGHEST = 6  # products of halves for one of float32 in full
_known_product = recent()(_product)  # layers of a network repeat a few


def _passes(precision: object) -> int:
    """How often narrow matrix units run: 'high' takes three products of halves, 'highest' six (XLA's operand precision)."""
    words = str(precision).lower()
    return HIGHEST if "highest" in words else 3 if "high" in words else 1


def touched_bytes(equations: Sequence[Equation], reads: Sequence[Atom], writes: Sequence[Var]) -> dict[Var, int]:
    """The bytes of each value that a group of equations reads from memory or writes there.

    Of an operand that is only sliced or looked up in, what is taken, also where that is computed from others; of a result that is an
    operand with something written into it, what is written.
    """
    taken_of = _parts_taken(equations, writes)
    users: dict[Var, list[tuple[Equation, int]]] = {}
    makers: dict[Var, Equation] = {}
    for eqn in equations:
        for i, atom in enumerate(eqn.inputs):
            if isinstance(atom, Var):
                users.setdefault(atom, []).append((eqn, i))
        for var in eqn.outputs:
            makers[var] = eqn
    touched: dict[Var, int] = {}
    for atom in reads:
        if isinstance(atom, Literal):
            continue
        found = [_part(taken_of, eqn) * _bytes_read(eqn, i) for eqn, i in users.get(atom, ())]
        taken = math.ceil(sum(found)) if found else atom.aval.nbytes
        touched[atom] = touched.get(atom, 0) + min(atom.aval.nbytes, taken)
    for var in writes:
        eqn = makers.get(var)
        written = var.aval.nbytes
        if eqn is not None and unwrap_op(eqn.op, eqn.params)[0].updates:
            written = min(written, 2 * sum(a.aval.nbytes for a in eqn.inputs[1:]))
        touched[var] = touched.get(var, 0) + written
    return touched


def _parts_taken(equations: Sequence[Equation], writes: Sequence[Var]) -> dict[Var, float]:
    """The fraction of elements computed of each value that a group makes and does not write, where that is less than all."""
    parts: dict[Atom, float] = {}
    written = set(writes)
    found: dict[Var, float] = {}
    for eqn in reversed(equations):
        own = 1.0 if written.intersection(eqn.outputs) else min(1.0, _part(parts, eqn))
        if own < 1:
            found[eqn.outputs[0]] = own
        for i, atom in enumerate(eqn.inputs):
            if isinstance(atom, Var):
                whole = max(atom.aval.nbytes, 1)
                parts[atom] = parts.get(atom, 0.0) + own * _bytes_read(eqn, i) / whole
    return found


def _part(parts: Mapping[Any, float], eqn: Equation) -> float:
    """The part of an equation's result that `parts` names; all of an equation without results, such as a callback."""
    return parts.get(eqn.outputs[0], 1.0) if eqn.outputs else 1.0


def _bytes_read(eqn: Equation, index: int) -> int:
    """The bytes of an operand that an equation reads."""
    op, params, _ = unwrap_op(eqn.op, eqn.params)
    whole = eqn.inputs[index].aval.nbytes
    if index:
        return whole
    if op.updates:
        return 0
    types = tuple(a.aval for a in eqn.inputs)
    if (
        op.view
        or op.extracts
        or op.boxes is not None
        or (op.indexed is not None and op.indexed(params, types) is not None)
    ):
        return min(whole, sum(v.aval.size for v in eqn.outputs) * eqn.inputs[index].aval.itemsize)
    return whole
