"""What equations compute: products as matrix sizes, elementwise work in operations, bytes that are really touched.

In: equations with local types. Out: a `Work`, which `efficiency` turns into seconds. Loops are the caller's.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from shardwise.base.caches import recent
from shardwise.ir import (
    Atom,
    Branches,
    Equation,
    ExactParams,
    Literal,
    Op,
    Program,
    ShapedArray,
    Var,
    region_of,
    rounds_of,
    unwrapped,
)
from shardwise.ir.op import Params, Types
from shardwise.ops.elementwise.elementwise_ir import EXP


@dataclass(frozen=True, slots=True)
class Product:
    """A batch of matrix products, ``[m, k] @ [k, n]``.

    Attributes:
        batch, m, n, k: sizes; those of several dims multiplied.
        dtypes: of the two operands.
        passes: how often the narrow units run for one result of more precision.
        itemsize: bytes of an element of the wider operand.
        written: bytes of the result.
    """

    batch: int
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
class Work:
    """What a group of equations computes.

    Attributes:
        products: its matrix products and convolutions.
        vector: elementwise operations, relative to an addition.
        transcendentals: elements of exp; log, tanh and their kin count as many of them as they cost.
    """

    products: tuple[Product, ...]
    vector: float
    transcendentals: float

    @property
    def flops(self) -> float:
        """Operations of products and elementwise ones."""
        return math.fsum(p.flops for p in self.products) + self.vector


def work_of(equations: Iterable[Equation]) -> Work:
    """The work of equations; of loops that of all rounds with their tests, one where their number is not known, of branches the most."""
    products: list[Product] = []
    vector = transcendentals = 0.0
    for eqn in equations:
        region = region_of(eqn)
        if region is not None:
            rounds = rounds_of(eqn) or 1
            inner = [work_of(p.equations) for p in region.programs]
            if isinstance(region, Branches):
                inner = [max(inner, key=lambda w: w.flops + w.transcendentals)]
            for work in inner:
                products += [replace(p, batch=p.batch * rounds) for p in work.products]
                vector += rounds * work.vector
                transcendentals += rounds * work.transcendentals
            continue
        op, _, _ = unwrapped(eqn.op, eqn.params)
        size = sum(v.aval.size for v in eqn.outputs)
        if op.product:
            products.append(product_of(eqn))
        elif op.transcendental:
            transcendentals += size if op.emit is None else size * op.emit.cost / EXP.cost
        elif op.fold is not None:
            vector += sum(a.aval.size for a in eqn.inputs)
        elif op.emit is not None:
            vector += 0 if op.emit.moves else size * op.emit.cost
        elif op.rule is None and op.collective is None:
            vector += size
    return Work(tuple(products), vector, transcendentals)


def product_flops_of(program: Program) -> float:
    """FLOPs of a program's products, by which programs are compared."""
    return math.fsum(p.flops for p in work_of(program.equations).products)


def product_of(eqn: Equation) -> Product:
    """The sizes of a product or convolution: a dim of the result belongs to the operand from which its factor comes."""
    types = tuple([a.aval for a in eqn.inputs]), eqn.outputs[0].aval
    try:
        return _known_product(eqn.op, *types, ExactParams(eqn.params))
    except TypeError as error:
        if "unhashable" not in str(error):
            raise
        return _product(eqn.op, *types, eqn.params)


def _product(op: Op, in_types: Types, out: ShapedArray, params: Params) -> Product:
    rule = op.sharding_rule(in_types, (out,), params)
    left, right = ({f for dim in rule.inputs[i] for f in dim} for i in range(2))
    batch = m = n = 1
    for size, dim in zip(out.shape, rule.outputs[0], strict=True):
        if left & set(dim) and right & set(dim):
            batch *= size
        elif right & set(dim):
            n *= size
        else:
            m *= size
    kept = {f for dim in rule.outputs[0] for f in dim}
    k = math.prod(size for size, dim in zip(in_types[1].shape, rule.inputs[1], strict=True) if not kept & set(dim))
    dtypes = in_types[0].dtype, in_types[1].dtype
    _, inner, _ = unwrapped(op, params)
    itemsize = max(d.itemsize for d in dtypes)
    return Product(batch, m, n, k, dtypes, _passes(inner.get("precision")), itemsize, out.nbytes)


_known_product = recent()(_product)  # layers of a network repeat a few


def _passes(precision: object) -> int:
    """How often narrow matrix units run: 'high' takes three products of halves, 'highest' six (XLA's operand precision)."""
    words = str(precision).lower()
    return 6 if "highest" in words else 3 if "high" in words else 1


def touched_bytes(equations: Sequence[Equation], reads: Sequence[Atom], writes: Sequence[Var]) -> dict[Var, int]:
    """The bytes of each value that a group of equations reads from memory or writes there.

    Of an operand that is only sliced or looked up in, what is taken; of a result that is an operand with something written into it,
    what is written.
    """
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
        taken = sum(_bytes_read(eqn, i) for eqn, i in users.get(atom, ())) if atom in users else atom.aval.nbytes
        touched[atom] = touched.get(atom, 0) + min(atom.aval.nbytes, taken)
    for var in writes:
        eqn = makers.get(var)
        written = var.aval.nbytes
        if eqn is not None and unwrapped(eqn.op, eqn.params)[0].updates:
            written = min(written, 2 * sum(a.aval.nbytes for a in eqn.inputs[1:]))
        touched[var] = touched.get(var, 0) + written
    return touched


def _bytes_read(eqn: Equation, index: int) -> int:
    """The bytes of an operand that an equation reads."""
    op, params, _ = unwrapped(eqn.op, eqn.params)
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
