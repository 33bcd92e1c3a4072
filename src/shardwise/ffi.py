"""`shardwise.ffi`: XLA's custom calls, which are not here. Libraries import it and register their calls; making one refuses."""

from shardwise.base.listing import package_listing as _package_listing
from shardwise.base.refused import refuse_names as _refuse_names

__getattr__ = _refuse_names(__name__)
__dir__ = _package_listing(__name__)
