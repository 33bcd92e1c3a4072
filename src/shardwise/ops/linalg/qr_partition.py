"""QR of tall matrices whose rows are split: devices exchange triangles rather than rows (TSQR).

Each device factors its rows, A_i = Q_i R_i, and all of them factor the triangles beneath each other. A factorization is unique but for the
signs of R's diagonal, which LAPACK takes from the first n rows of A and from A's products with itself. Therefore these rows go to all
devices, too, and stand above the triangles instead of in the first one:

    M = [top; R_0; R_1; ...] = [Z_top; Z_0; Z_1; ...] R        R as LAPACK has it; Q has the rows Z_top, then Q_i Z_i

Comes in: an equation of `qr` whose rows are split. Goes out: local factorizations and collectives, where they send less than the rows.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from shardwise.ir import Atom, Equation, literal
from shardwise.ops.devices.all_reduce import all_reduce
from shardwise.ops.devices.axis_index import axis_index_op
from shardwise.ops.elementwise.binary import add_p
from shardwise.ops.elementwise.comparison import eq_p, le_p
from shardwise.ops.elementwise.selection import select_n_p
from shardwise.ops.linalg.decompositions import householder_product_p
from shardwise.ops.linalg.reflectors import geqrf_p
from shardwise.ops.products.contract import dot_general_p
from shardwise.ops.shapes.iota import iota_p
from shardwise.ops.shapes.joining import concatenate_p
from shardwise.ops.shapes.pieces import slice_p

_INT32 = np.dtype(np.int32)


def qr_partition(region: Any, eqn: Equation) -> None:
    """Partition by the triangles of the devices' rows, or by gathering the rows."""
    (x,), params = eqn.inputs, eqn.params
    if region.framed(eqn):
        return None
    local, have = region.read(x)
    rows, columns = x.aval.shape[-2:]
    split = have[-2] if have else ()
    part = rows // math.prod(region.sizes_of(split))
    # Below a device's own rows stand n rows of zeros on the first one: reflectors leave these as they are if as many rows are above them.
    tall = part >= 2 * columns > 0 and x.aval.size > 0
    plain = not params["pivoting"] and not params["full"] and x.aval.dtype.itemsize >= 4
    if not split or not tall or not plain:
        return region.generic(eqn)

    def along(region: Any) -> None:
        lay = (*have[:-1], ())
        rank = x.aval.ndim
        whole = region.moved(x, local, have, lay)

        def cut(atom: Atom, begin: int, end: int) -> Atom:
            shape = atom.aval.shape
            params = {
                "start_indices": (*(0,) * (rank - 2), begin, 0),
                "limit_indices": (*shape[:-2], end, shape[-1]),
                "strides": None,
            }
            return region.emit(slice_p, [atom], params)[0]

        def stacked(*atoms: Atom) -> Atom:
            return region.emit(concatenate_p, atoms, {"dimension": rank - 2})[0]

        def on_first(other: bool, atom: Atom) -> Atom:
            """`atom` on the first device and zeros on the others, or the reverse."""
            zero = literal(0, atom.aval.dtype)
            cases = [atom, zero] if other else [zero, atom]
            return region.emit(select_n_p, [first, *cases], {})[0]

        def above() -> Atom:
            """Where a triangle has its elements."""
            shape = (*whole.aval.shape[:-2], columns, columns)
            given = {"dtype": _INT32, "shape": shape, "out_sharding": None}
            row, column = [region.emit(iota_p, [], {**given, "dimension": d})[0] for d in (rank - 2, rank - 1)]
            return region.emit(le_p, [row, column], {})[0]

        (place,) = region.emit(axis_index_op, [], {"axes": split})
        (first,) = region.emit(eq_p, [place, literal(0, _INT32)], {})
        top = cut(whole, 0, columns)
        own = stacked(cut(whole, columns, part), on_first(True, top))
        packed, taus = region.emit(geqrf_p, [own], {})
        r = region.emit(select_n_p, [above(), literal(0, own.aval.dtype), cut(packed, 0, columns)], {})[0]
        top = region.collective(all_reduce, [on_first(False, top)], split, top.aval, {"kind": "sum"})
        below = r.aval.update(shape=(*x.aval.shape[:-2], columns * math.prod(region.sizes_of(split)), columns))
        gathered = (*lay[:-2], (), ())
        triangles = region.reshard(r, lay, gathered, below)
        z, r = region.emit(eqn.op, [stacked(top, triangles)], params)
        z_top, z_own = cut(z, 0, columns), cut(z, columns, z.aval.shape[-2])
        z_own = region.reshard(z_own, gathered, lay, below)
        (q,) = region.emit(householder_product_p, [packed, taus], {})
        batch = tuple(range(rank - 2))
        numbers = (((rank - 1,), (rank - 2,)), (batch, batch))
        given = {"precision": None, "preferred_element_type": x.aval.dtype, "out_sharding": None}
        (q,) = region.emit(dot_general_p, [q, z_own], {"dimension_numbers": numbers, **given})
        behind = part - columns
        (front,) = region.emit(add_p, [cut(q, behind, part), on_first(False, z_top)], {})
        q = stacked(front, cut(q, 0, behind))
        for var, atom, dims in zip(eqn.outputs, (q, r), (lay, gathered), strict=True):
            placed = region.placement(var) if region.is_read(var) else dims
            region.define(var, region.reshard(atom, dims, placed, var.aval), placed)

    region.cheapest(lambda region: region.generic(eqn), along)
