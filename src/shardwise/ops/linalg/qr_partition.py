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

from shardwise.base.shapes import Axes, DimAxes
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
    if region.compute_in_frames(eqn):
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

    region.cheapest(lambda region: region.generic(eqn), lambda region: _by_triangles(region, eqn, local, have))


class _Rows:
    """Local equations on rows of matrices, the dim before the last: `split` over mesh axes."""

    def __init__(self, region: Any, split: Axes) -> None:
        self._region, self.split = region, split
        (place,) = region.emit(axis_index_op, [], {"axes": split})
        (self._first,) = region.emit(eq_p, [place, literal(0, _INT32)], {})

    def cut(self, atom: Atom, begin: int, end: int) -> Atom:
        shape = atom.aval.shape
        params = {
            "start_indices": (*(0,) * (len(shape) - 2), begin, 0),
            "limit_indices": (*shape[:-2], end, shape[-1]),
            "strides": None,
        }
        return self._region.emit(slice_p, [atom], params)[0]

    def stack(self, *atoms: Atom) -> Atom:
        return self._region.emit(concatenate_p, atoms, {"dimension": atoms[0].aval.ndim - 2})[0]

    def select(self, atom: Atom, *, on_first: bool) -> Atom:
        """`atom` on the first device and zeros on the others, or the reverse."""
        zero = literal(0, atom.aval.dtype)
        return self._region.emit(select_n_p, [self._first, *([zero, atom] if on_first else [atom, zero])], {})[0]

    def triangle(self, atom: Atom) -> Atom:
        """The elements on and above the diagonal; zeros below."""
        shape = atom.aval.shape
        given = {"dtype": _INT32, "shape": shape, "out_sharding": None}
        row, column = [self._region.emit(iota_p, [], {**given, "dimension": len(shape) + d})[0] for d in (-2, -1)]
        (above,) = self._region.emit(le_p, [row, column], {})
        return self._region.emit(select_n_p, [above, literal(0, atom.aval.dtype), atom], {})[0]


def _by_triangles(region: Any, eqn: Equation, local: Atom, have: DimAxes) -> None:
    """QR of each device's rows, then of the triangles of all, whose q takes each device's q to its rows of the whole one."""
    (x,) = eqn.inputs
    lay, gathered_layout = (*have[:-1], ()), (*have[:-2], (), ())
    rank, columns = x.aval.ndim, x.aval.shape[-1]
    whole = region.move_value(x, local, have, lay)
    part = whole.aval.shape[-2]
    behind = part - columns
    rows = _Rows(region, have[-2])
    top = rows.cut(whole, 0, columns)
    own = rows.stack(rows.cut(whole, columns, part), rows.select(top, on_first=False))
    packed_factors, taus = region.emit(geqrf_p, [own], {})
    r = rows.triangle(rows.cut(packed_factors, 0, columns))
    top = region.collective(all_reduce, [rows.select(top, on_first=True)], rows.split, top.aval, {"kind": "sum"})
    below = r.aval.update(shape=(*x.aval.shape[:-2], columns * math.prod(region.sizes_of(rows.split)), columns))
    triangles = region.reshard(r, lay, gathered_layout, below)
    z, r = region.emit(eqn.op, [rows.stack(top, triangles)], eqn.params)
    z_top, z_own = rows.cut(z, 0, columns), rows.cut(z, columns, z.aval.shape[-2])
    z_own = region.reshard(z_own, gathered_layout, lay, below)
    (q,) = region.emit(householder_product_p, [packed_factors, taus], {})
    numbers = (((rank - 1,), (rank - 2,)), (tuple(range(rank - 2)),) * 2)
    given = {"precision": None, "preferred_element_type": x.aval.dtype, "out_sharding": None}
    (q,) = region.emit(dot_general_p, [q, z_own], {"dimension_numbers": numbers, **given})
    (front,) = region.emit(add_p, [rows.cut(q, behind, part), rows.select(z_top, on_first=True)], {})
    q = rows.stack(front, rows.cut(q, 0, behind))
    for var, atom, dims in zip(eqn.outputs, (q, r), (lay, gathered_layout), strict=True):
        placement = region.placement(var) if region.is_read(var) else dims
        region.define(var, region.reshard(atom, dims, placement, var.aval), placement)
