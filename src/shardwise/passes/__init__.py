"""Passes: Program in, Program out. `pipeline` lists them; `propagate` gives every value a layout, `partition` makes communication explicit.

The package also exports the module `propagate`.
"""

from typing import TYPE_CHECKING

from shardwise.base.doors import open_door

if TYPE_CHECKING:
    from shardwise.passes.device_work import device_work as device_work
    from shardwise.passes.finer_axes import finer_mesh as finer_mesh
    from shardwise.passes.grid import Grid as Grid
    from shardwise.passes.grid import MeshKey as MeshKey
    from shardwise.passes.grid import PartForm as PartForm
    from shardwise.passes.grid import make_grid as make_grid
    from shardwise.passes.inline import inline_calls as inline_calls
    from shardwise.passes.key_reuse import key_uses as key_uses
    from shardwise.passes.late_sums import with_late_sums as with_late_sums
    from shardwise.passes.live_results import LiveResults as LiveResults
    from shardwise.passes.pipeline import DEVICE_PROGRAM as DEVICE_PROGRAM
    from shardwise.passes.pipeline import PARTITIONING as PARTITIONING
    from shardwise.passes.pipeline import PLACING as PLACING
    from shardwise.passes.pipeline import Context as Context
    from shardwise.passes.pipeline import Module as Module
    from shardwise.passes.pipeline import run_passes as run_passes
    from shardwise.passes.pipeline import schedule_module as schedule_module
    from shardwise.passes.product_sizes import ProductSizes as ProductSizes
    from shardwise.passes.product_sizes import sizes_of_product as sizes_of_product
    from shardwise.passes.simplify import common_subexpressions as common_subexpressions
    from shardwise.passes.transfers import Transfer as Transfer
    from shardwise.passes.transfers import transfer_cost as transfer_cost
    from shardwise.passes.transfers import transfers_of as transfers_of

__getattr__ = open_door(
    __name__,
    device_work="device_work",
    finer_axes="finer_mesh",
    grid="Grid MeshKey PartForm make_grid",
    inline="inline_calls",
    key_reuse="key_uses",
    late_sums="with_late_sums",
    live_results="LiveResults",
    pipeline="Context DEVICE_PROGRAM Module PARTITIONING PLACING run_passes schedule_module",
    product_sizes="ProductSizes sizes_of_product",
    simplify="common_subexpressions",
    transfers="Transfer transfer_cost transfers_of",
)
