"""Elements with space between them, over parts that are no whole strides: each device fetches those that belong into its own part.

    a value of 48 elements, every third of which is one of 16, on 3 devices that hold 16 and (6, 6, 4):
    the windows of 7 elements from one before each device's own, spread to 21; from these a device cuts its 16, which begin at
    another place on each device

Comes in: an equation of a pad with interior padding along one split dim. Goes out: an exchange of elements, a local pad, a local cut.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from shardwise.ir import Atom, Equation, literal
from shardwise.ops.devices.axis_index import axis_index_op
from shardwise.ops.devices.halo_exchange import halo_exchange
from shardwise.ops.elementwise.binary import add_p, mul_p
from shardwise.passes.reshard import ways

if TYPE_CHECKING:
    from shardwise.passes.partition import Region

_INDEX = np.dtype(np.int32)


def spread(region: Region, eqn: Equation, whole: Atom) -> bool:
    """Partition the pad so, of whose operand `whole` is an extension that the axes divide; False if that is not possible."""
    from shardwise.ops.indexing.slicing import dynamic_slice_p  # start-up time: reads at computed places

    (x, fill), (out,) = eqn.inputs, eqn.outputs
    config = eqn.params["padding_config"]
    (local, have), placement = region.read(whole), region.placement(out)
    split = [d for d, axes in enumerate(have) if axes and any(config[d])]
    if len(split) != 1 or have != placement:
        return False
    (d,) = split
    count = ways(have[d], region.grid.axis_sizes)
    own, (part, rest) = local.aval.shape[d], divmod(out.aval.shape[d], count)
    (low, _, interior), stride = config[d], config[d][2] + 1
    if rest or not interior:
        return False
    device = np.arange(count)
    first = np.clip(-((low - part * device) // stride), 0, x.aval.shape[d])  # of the elements in each part
    end = np.clip(-((low - part * (device + 1)) // stride), 0, x.aval.shape[d])
    some = first < end
    before = int(np.max(own * device - first, initial=0, where=some))
    behind = int(np.max(end - own * (device + 1), initial=0, where=some))
    ground = region.read(fill)[0]
    width = before + own + behind
    if before or behind:
        params = {"sizes": region.sizes_of(have[d]), "dim": d, "step": own, "start": -before, "width": width}
        params |= {"pieces": ((0, 0, 0, x.aval.shape[d]),), "split": (True,)}
        local = region.collective(halo_exchange, [local, ground], have[d], x.aval, params)
    begin = part * device - low - stride * (own * device - before)  # of a device's part in what it spreads
    front, back = max(0, -int(begin.min())), max(0, int(begin.max()) + part - stride * width)
    around = (*config[:d], (front, interior + back, interior), *config[d + 1 :])
    (local,) = region.emit(eqn.op, [local, ground], {"padding_config": around})
    start = int(begin[0]) + front
    step = part - stride * own
    starts: list[Atom] = [literal(0, _INDEX)] * local.aval.ndim
    starts[d] = literal(start, _INDEX)
    if step:
        (place,) = region.emit(axis_index_op, [], {"axes": have[d]})
        (place,) = region.emit(mul_p, [place, literal(step, _INDEX)], {})
        (starts[d],) = region.emit(add_p, [place, starts[d]], {})
    sizes = tuple(part if e == d else n for e, n in enumerate(local.aval.shape))
    (local,) = region.emit(dynamic_slice_p, [local, *starts], {"slice_sizes": sizes, "wrap": (False,) * len(sizes)})
    region.define(out, local, placement)
    return True
