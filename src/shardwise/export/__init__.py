"""`shardwise.export`: functions traced once, for arguments whose dims may be symbolic, carried as bytes and called elsewhere.

In: a jitted function and the types of its arguments. Out: an `Exported`. Programs are carried in a form of our own: there is no StableHLO,
and `Exported.mlir_module` is refused.
"""

from shardwise.base.listing import package_listing as _listing
from shardwise.base.tree_data import register_namedtuple_serialization as register_namedtuple_serialization
from shardwise.base.tree_data import register_pytree_node_serialization as register_pytree_node_serialization
from shardwise.export.exported import Exported as Exported
from shardwise.export.exported import default_export_platform as default_export_platform
from shardwise.export.exported import deserialize as deserialize
from shardwise.export.exported import export as export
from shardwise.export.exported import (
    maximum_supported_calling_convention_version as maximum_supported_calling_convention_version,
)
from shardwise.export.exported import (
    minimum_supported_calling_convention_version as minimum_supported_calling_convention_version,
)
from shardwise.export.safety_checks import DisabledSafetyCheck as DisabledSafetyCheck
from shardwise.export.scopes import SymbolicScope as SymbolicScope
from shardwise.export.scopes import is_symbolic_dim as is_symbolic_dim
from shardwise.export.scopes import symbolic_args_specs as symbolic_args_specs
from shardwise.export.scopes import symbolic_shape as symbolic_shape

__dir__ = _listing(__name__)
