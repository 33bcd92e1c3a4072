"""`shardwise.scipy.cluster`: vector quantization, in `vq`."""

import typing as _typing

from shardwise.base.doors import open_package as _open_package

if _typing.TYPE_CHECKING:  # names that `__getattr__` imports
    from shardwise.scipy.cluster import vq as vq
else:
    __getattr__, __dir__ = _open_package(__name__, "vq")
