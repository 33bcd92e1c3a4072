"""`shardwise.scipy.spatial`: rotations of three dimensions, in `transform`."""

import typing as _typing

from shardwise.base.doors import open_package as _open_package

if _typing.TYPE_CHECKING:  # names that `__getattr__` imports
    from shardwise.scipy.spatial import transform as transform
else:
    __getattr__, __dir__ = _open_package(__name__, "transform")
