"""Collective matmuls: a product beside a gather or a scatter as a ring of small products and transfers.

Comes in: a device program. Goes out: the program in which a product of a gathered operand multiplies the part that a device has, then the
next one, which `ppermute` brings from its neighbour, and in which a product whose result is scattered passes partial sums on likewise.
Two parts are stored, never the whole gathered operand or partial result. A device sends as many bytes as before. Integers stay equal;
floats are sums in another order, over a free dim only as far as small products add in another order than large ones.

The data would allow a transfer beside each product, but an exchange ends before the next equation begins: rings save memory and no time,
and the option `shardwise_collective_matmul` is "off" unless it is set. Only collectives that the partitioner inserted become rings, never
those that a user wrote.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import field
from itertools import chain
from typing import Any

import numpy as np

from shardwise.base.config import context_token
from shardwise.base.lazy_dataclasses import dataclass
from shardwise.base.shapes import Axes
from shardwise.ir import Atom, Equation, ExactParams, Literal, Program, ProgramMap, Var, literal
from shardwise.ir.op import Op
from shardwise.ir.program import Source
from shardwise.ops.devices.all_gather import all_gather_op
from shardwise.ops.devices.axis_index import axis_index_op
from shardwise.ops.devices.ppermute import ppermute_op
from shardwise.ops.devices.reduce_scatter import psum_scatter_op
from shardwise.ops.elementwise.binary import add_p, mul_p, rem_p
from shardwise.ops.elementwise.casts import convert_element_type_p
from shardwise.ops.indexing.slicing import dynamic_slice_p, dynamic_update_slice_p
from shardwise.ops.products.contract import dot_general_p
from shardwise.ops.products.dot_sharding import free_dims
from shardwise.ops.shapes.broadcast import broadcast_in_dim_p
from shardwise.passes.parts import makers, users
from shardwise.passes.split import local_results
from shardwise.runtime import costs

_INDEX = np.dtype(np.int32)


@dataclass(frozen=True, slots=True)
class Ring:
    """A collective and the product beside it.

    Attributes:
        axes: those that the collective runs over.
        devices: in one group.
        bytes: of the gathered operand, or of the result before it is scattered, which no device stores.
        held: what each device stores instead, beside operands and result: parts on their way, and partial results.
        operations: of the product, additions and multiplications.
    """

    axes: Axes
    devices: int
    bytes: int
    held: int
    operations: int


def collective_matmul(program: Program, pays: Callable[[Ring], bool] = lambda ring: True) -> Program:
    """The same program with rings where `pays` says so, in loop bodies and branches too."""
    ring_map = ProgramMap(lambda p: _make_rings(ring_map.inside(p), pays))
    return ring_map.of(program)


def pays_between(crossing: frozenset[str]) -> Callable[[Ring], bool]:
    """Whether a ring pays where these axes lie across processes: it saves much memory, its products outweigh the messages."""

    def pays(ring: Ring) -> bool:
        enough = ring.operations >= costs.RING_OPERATIONS_PER_BYTE * ring.bytes
        return not crossing.isdisjoint(ring.axes) and ring.bytes - ring.held >= costs.RING_BYTES and enough

    return pays


def _make_rings(program: Program, pays: Callable[[Ring], bool]) -> Program:
    if not any(e.op is all_gather_op or e.op is psum_scatter_op for e in program.equations):
        return program
    producers, used = makers(program), users(program)
    result_vars = {v for v in program.outputs if isinstance(v, Var)}
    equations: list[Sequence[Equation]] = [(e,) for e in program.equations]
    ring_places: set[int] = set()  # products that are rings already

    def alone(var: Var) -> int | None:
        """The one equation that reads a value."""
        readers = used.get(var, [])
        return readers[0] if len(readers) == 1 and var not in result_vars else None

    largest = sorted(enumerate(program.equations), key=lambda found: -_bytes(found[1]))
    for i, eqn in largest:
        product, at = None, i
        if _is_gather(eqn):
            product = at = alone(eqn.outputs[0])
        elif _is_scatter(eqn) and isinstance(operand := eqn.inputs[0], Var) and alone(operand) == i:
            product = producers.get(operand)
        if (
            product is None
            or at is None
            or product in ring_places
            or program.equations[product].op is not dot_general_p
        ):
            continue
        dot = program.equations[product]
        devices = math.prod(eqn.params["sizes"])
        ring = Ring(eqn.params["axes"], devices, _bytes(eqn), _ring_bytes(eqn, dot, devices), _operations(dot))
        if not 1 < devices <= costs.RING_DEVICES or dot.params.get("sum_axes") or not pays(ring):
            continue
        steps = _gather_ring(eqn, dot) if at == product else _scatter_ring(eqn, dot)
        if steps is not None:
            ring_places.add(product)
            equations[i] = equations[product] = ()
            equations[at] = steps
    if not ring_places:
        return program
    return Program(program.inputs, tuple(chain(*equations)), program.outputs, program.num_consts, program.name)


def _is_gather(eqn: Equation) -> bool:
    return eqn.op is all_gather_op and _is_plain(eqn)


def _is_scatter(eqn: Equation) -> bool:
    return eqn.op is psum_scatter_op and _is_plain(eqn) and eqn.params.get("kind", "sum") == "sum"


def _is_plain(eqn: Equation) -> bool:
    """Whether the partitioner inserted a collective, which is of whole groups."""
    is_implicit = eqn.source is not None and eqn.source.need is not None and eqn.source.need.implicit
    return is_implicit and eqn.params["tiled"] and eqn.params.get("groups") is None


def _bytes(eqn: Equation) -> int:
    """Of the larger side."""
    return max([a.aval.nbytes for a in (*eqn.inputs, *eqn.outputs)], default=0)


def _ring_bytes(eqn: Equation, dot: Equation, n: int) -> int:
    """The bytes that a ring stores: two parts, and a part of the other operand, or of the result, or sums as large as the result."""
    parts, result = 2 * _bytes(eqn) // n, dot.outputs[0].aval
    if eqn.op is psum_scatter_op:
        return parts + max(a.aval.nbytes for a in dot.inputs) // n
    side = dot.inputs.index(eqn.outputs[0])
    if _result_dim(dot, side, eqn.params["dim"]) is not None:
        return parts + result.nbytes // n
    # the sum, what is added to it, and their sum
    return parts + dot.inputs[1 - side].aval.nbytes // n + 3 * result.size * max(result.itemsize, 4)


def _operations(dot: Equation) -> int:
    lhs = dot.inputs[0].aval
    return 2 * dot.outputs[0].aval.size * math.prod(lhs.shape[d] for d in dot.params["dimension_numbers"][0][0])


def _gather_ring(gather: Equation, dot: Equation) -> list[Equation] | None:
    """The product of a gathered operand, part by part; None where it is the same on all devices, or both operands are gathered."""
    (out,), axes, n = dot.outputs, gather.params["axes"], math.prod(gather.params["sizes"])
    if dot.inputs[0] is dot.inputs[1] or not out.aval.vma.issuperset(axes):
        return None
    side, dim = dot.inputs.index(gather.outputs[0]), gather.params["dim"]
    other = dot.inputs[1 - side]
    contracted_dims, batch = dot.params["dimension_numbers"]
    if dim in batch[side] or out.aval.dtype == np.dtype(bool):
        return None
    steps = _Steps(gather, axes, n)
    part: Atom = gather.inputs[0]
    width = part.aval.shape[dim]
    total: Var | None = None
    at = _result_dim(dot, side, dim)
    is_summed = at is None
    for k in range(n):
        start = steps.start(k, width, gather.source)
        # The next part is asked for before this one is multiplied.
        ahead = steps.pass_on(part) if k + 1 < n else part
        if is_summed:
            other_dim = contracted_dims[1 - side][contracted_dims[side].index(dim)]
            piece = steps.cut(other, other_dim, start, width, dot.source)
            params = {**dot.params, "preferred_element_type": _sum_type(out.aval.dtype, dot)}
            product = steps.product(dot, side, part, piece, params)
            total = product if total is None else steps.emit(add_p, (total, product), {}, dot.source)
        else:
            product = steps.product(dot, side, part, other, dot.params)
            total = steps.zeros(out, dot.source) if total is None else total
            total = steps.write_part(total, product, at, start, dot.source)
        part = ahead
    assert total is not None
    if total.aval.dtype != out.aval.dtype:
        params = {"new_dtype": out.aval.dtype, "weak_type": out.aval.weak_type}
        total = steps.emit(convert_element_type_p, (total,), params, dot.source)
    return steps.end_with(total, out)


def _scatter_ring(scatter: Equation, dot: Equation) -> list[Equation] | None:
    """A product of which each device keeps its part of the sum over devices: the sum of a part passes all of them."""
    (out,), axes, n, dim = (
        scatter.outputs,
        scatter.params["axes"],
        math.prod(scatter.params["sizes"]),
        scatter.params["dim"],
    )
    pairs = [(s, d) for s in (0, 1) for d in range(dot.inputs[s].aval.ndim) if _result_dim(dot, s, d) == dim]
    if not pairs or out.aval.dtype == np.dtype(bool):
        return None
    ((side, free),) = pairs
    steps = _Steps(scatter, axes, n)
    width = out.aval.shape[dim]
    total: Var | None = None
    for k in range(n):
        # What a device has after k steps reaches its owner in n - 1 - k more.
        ahead = steps.pass_on(total) if total is not None else None
        piece = steps.cut(dot.inputs[side], free, steps.start(k + 1, width, dot.source), width, dot.source)
        product = steps.product(dot, side, piece, dot.inputs[1 - side], dot.params)
        total = product if ahead is None else steps.emit(add_p, (ahead, product), {}, scatter.source)
    assert total is not None
    return steps.end_with(total, out)


def _result_dim(dot: Equation, side: int, dim: int) -> int | None:
    """The result's dim of an operand's free dim; None for other dims."""
    dims = dot.params["dimension_numbers"]
    free = free_dims(dims, *[a.aval.ndim for a in dot.inputs])
    if dim not in free[side]:
        return None
    return len(dims[1][0]) + (len(free[0]) if side else 0) + free[side].index(dim)


def _sum_type(dtype: np.dtype[Any], dot: Equation) -> np.dtype[Any] | None:
    """The type in which parts of a sum are added: one product would not round to 16 bits in between."""
    return np.dtype(np.float32) if dtype.name in ("float16", "bfloat16") else dot.params["preferred_element_type"]


@dataclass(slots=True)
class _Steps:
    """The equations of a ring. `collective` is the one that it takes the place of, whose source its transfers have."""

    collective: Equation
    axes: Axes
    devices: int
    equations: list[Equation] = field(default_factory=list[Equation])
    place: Var | None = None  # the device's own position

    def emit(self, op: Op, atoms: Sequence[Atom], params: dict[str, Any], source: Source | None) -> Var:
        (aval,) = local_results(op, tuple([a.aval for a in atoms]), ExactParams(params), frozenset(), context_token())
        out = Var(aval)
        self.equations.append(Equation(op, tuple(atoms), (out,), params, source))
        return out

    def pass_on(self, part: Atom) -> Var:
        """The part that the next device has: parts go down the ring, so that a device has those of higher and higher positions."""
        n = self.devices
        perm = tuple([(i, (i - 1) % n) for i in range(n)])
        return self.emit(ppermute_op, (part,), {"axes": self.axes, "perm": perm}, self.collective.source)

    def start(self, k: int, width: int, source: Source | None) -> Var:
        """Where the part of the device that is `k` places further begins."""
        if self.place is None:
            self.place = self.emit(axis_index_op, (), {"axes": self.axes}, source)
        place = self.place
        if k % self.devices:
            place = self.emit(add_p, (place, literal(k, _INDEX)), {}, source)
            place = self.emit(rem_p, (place, literal(self.devices, _INDEX)), {}, source)
        return self.emit(mul_p, (place, literal(width, _INDEX)), {}, source)

    def cut(self, whole: Atom, dim: int, start: Var, width: int, source: Source | None) -> Var:
        """A part of a dim."""
        shape = whole.aval.shape
        params = {"slice_sizes": (*shape[:dim], width, *shape[dim + 1 :]), "wrap": (False,) * len(shape)}
        return self.emit(dynamic_slice_p, (whole, *_starts(len(shape), dim, start)), params, source)

    def write_part(self, whole: Var, part: Var, dim: int | None, start: Var, source: Source | None) -> Var:
        """`whole` with a part of a dim written."""
        assert dim is not None
        ndim = whole.aval.ndim
        params = {"wrap": (False,) * ndim, "operand_axes": None}
        return self.emit(dynamic_update_slice_p, (whole, part, *_starts(ndim, dim, start)), params, source)

    def zeros(self, like: Var, source: Source | None) -> Var:
        """Zeros of the type of a value."""
        zero = literal(np.zeros((), like.aval.dtype)[()], like.aval.dtype, weak_type=like.aval.weak_type)
        params = {"shape": like.aval.shape, "broadcast_dimensions": (), "out_sharding": None}
        return self.emit(broadcast_in_dim_p, (zero,), params, source)

    def product(self, dot: Equation, side: int, mine: Atom, other: Atom, params: Any) -> Var:
        """The product with `mine` in the place of the operand on that side."""
        return self.emit(dot_general_p, (other, mine) if side else (mine, other), dict(params), dot.source)

    def end_with(self, last: Var, out: Var) -> list[Equation] | None:
        """The equations, of which the last gives `out`; None if its type is another one."""
        if last.aval is not out.aval:
            return None
        *rest, end = self.equations
        assert end.outputs == (last,)
        return [*rest, Equation(end.op, end.inputs, (out,), end.params, end.source)]


def _starts(ndim: int, dim: int, start: Var) -> list[Var | Literal]:
    return [start if d == dim else literal(0, _INDEX) for d in range(ndim)]
