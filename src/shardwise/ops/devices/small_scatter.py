"""`reduce_scatter` in small programs: a reduction over devices, of which each takes its part."""

from __future__ import annotations

from collections.abc import Sequence

from shardwise.base.shapes import Ndarray
from shardwise.ir import Equation, Spread
from shardwise.ops.devices.all_slice import all_slice
from shardwise.runtime.loops import dtype_name
from shardwise.runtime.monoids import MONOIDS
from shardwise.runtime.small import (
    BodyWriter,
    Value,
    Wanted,
    moves_fit,
    over_devices,
    reduction_fits,
    relocate_elements,
)


def fits(eqn: Equation, spread: Spread) -> bool:
    """Whether both can be written."""
    return reduction_fits(eqn, eqn.params.get("kind", "sum")) and moves_fit(eqn, spread)


def write_scatter(body: BodyWriter, eqn: Equation, values: Sequence[Value], wanted: Wanted) -> list[Value]:
    """The devices' parts."""
    params, code, (out,) = eqn.params, body.code, eqn.outputs
    axes, sizes, dim = params["axes"], params["sizes"], params["dim"]

    def parts(total: Ndarray) -> Ndarray:
        own_slice = all_slice.block_kernel(code.env, total, axes=axes, sizes=sizes, dim=dim)
        return own_slice if params["tiled"] else own_slice.squeeze(code.lead + dim)

    total = over_devices(code, MONOIDS[params.get("kind", "sum")], values[0], axes, (), dtype_name(out.aval))
    return [relocate_elements(code, out, [total], parts, wanted[0])]
