"""Programs over small values as one machine function, loops and branches included."""

from typing import TYPE_CHECKING

from shardwise.base.doors import open_door

if TYPE_CHECKING:
    from shardwise.runtime.small.body import BodyWriter as BodyWriter
    from shardwise.runtime.small.code import Code as Code
    from shardwise.runtime.small.code import Value as Value
    from shardwise.runtime.small.control import map_entries as map_entries
    from shardwise.runtime.small.cost import small_cost as small_cost
    from shardwise.runtime.small.devices import all_reduce_fits as all_reduce_fits
    from shardwise.runtime.small.devices import move_elements as move_elements
    from shardwise.runtime.small.devices import moves_fit as moves_fit
    from shardwise.runtime.small.devices import over_devices as over_devices
    from shardwise.runtime.small.devices import reduction_fits as reduction_fits
    from shardwise.runtime.small.devices import relocate_elements as relocate_elements
    from shardwise.runtime.small.devices import write_all_reduce as write_all_reduce
    from shardwise.runtime.small.forms import mapped_fits as mapped_fits
    from shardwise.runtime.small.forms import writable as writable
    from shardwise.runtime.small.in_place import carry_updates as carry_updates
    from shardwise.runtime.small.kernel import available as available
    from shardwise.runtime.small.kernel import small as small
    from shardwise.runtime.small.loops import dense as dense
    from shardwise.runtime.small.loops import pointwise as pointwise
    from shardwise.runtime.small.loops import running_fits as running_fits
    from shardwise.runtime.small.loops import several_pointwise as several_pointwise
    from shardwise.runtime.small.loops import store as store
    from shardwise.runtime.small.loops import write_running as write_running
    from shardwise.runtime.small.moves import Wanted as Wanted
    from shardwise.runtime.small.moves import constant as constant
    from shardwise.runtime.small.moves import recast as recast
    from shardwise.runtime.small.moves import recast_fits as recast_fits
    from shardwise.runtime.small.moves import view as view
    from shardwise.runtime.small.moves import write_concatenate as write_concatenate
    from shardwise.runtime.small.moves import write_pad as write_pad
    from shardwise.runtime.small.pieces import Pieces as Pieces
    from shardwise.runtime.small.pieces import in_pieces as in_pieces
    from shardwise.runtime.small.positions import axes_joined as axes_joined
    from shardwise.runtime.small.positions import dynamic_slice as dynamic_slice
    from shardwise.runtime.small.positions import dynamic_update as dynamic_update
    from shardwise.runtime.small.positions import part_fits as part_fits
    from shardwise.runtime.small.positions import starts_fit as starts_fit
    from shardwise.runtime.small.positions import updated_window as updated_window
    from shardwise.runtime.small.positions import window_part as window_part
    from shardwise.runtime.small.product import axes_contracted as axes_contracted
    from shardwise.runtime.small.product import matrix_product as matrix_product
    from shardwise.runtime.small.product import product_fits as product_fits
    from shardwise.runtime.small.triangular import Substitution as Substitution
    from shardwise.runtime.small.triangular import systems_fit as systems_fit
    from shardwise.runtime.small.triangular import transpose_view as transpose_view
    from shardwise.runtime.small.triangular import triangular_solve as triangular_solve
    from shardwise.runtime.small.ufunc_loops import by_gufunc as by_gufunc
    from shardwise.runtime.small.windows import gather as gather
    from shardwise.runtime.small.windows import scatter as scatter
    from shardwise.runtime.small.windows import windows_fit as windows_fit

__getattr__ = open_door(
    __name__,
    body="BodyWriter",
    code="Code Value",
    control="map_entries",
    cost="small_cost",
    devices="all_reduce_fits write_all_reduce move_elements moves_fit over_devices reduction_fits relocate_elements",
    forms="mapped_fits writable",
    in_place="carry_updates",
    kernel="available small",
    loops="dense pointwise write_running running_fits several_pointwise store",
    moves="Wanted write_concatenate constant write_pad recast recast_fits view",
    pieces="Pieces in_pieces",
    positions="axes_joined dynamic_slice dynamic_update part_fits starts_fit updated_window window_part",
    product="axes_contracted matrix_product product_fits",
    triangular="Substitution systems_fit triangular_solve transpose_view",
    ufunc_loops="by_gufunc",
    windows="gather scatter windows_fit",
)
