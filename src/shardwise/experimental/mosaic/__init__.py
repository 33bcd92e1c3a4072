"""`shardwise.experimental.mosaic`: the compiler of such kernels, which is not here. Its names can be imported; using one refuses."""

from shardwise.base.listing import package_listing as _package_listing
from shardwise.base.refused import refuse_below, refuse_names

__getattr__ = refuse_names(__name__)
__dir__ = _package_listing(__name__)
refuse_below(__name__, ("dialects", "gpu", *(f"gpu.{part}" for part in "core profiler utils".split())))
