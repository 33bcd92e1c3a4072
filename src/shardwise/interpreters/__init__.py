"""`shardwise.interpreters`: rules of new primitives, and paths under which programs of JAX's early years find old types.

In: such a program's imports. Out: `pxla` with the parts of a PmapSharding, and in both modules errors that name what replaces the
old array types.
"""

import typing as _typing

from shardwise.base.doors import open_package as _open_package

if _typing.TYPE_CHECKING:  # names that `__getattr__` imports
    from shardwise.interpreters import ad as ad
    from shardwise.interpreters import batching as batching
    from shardwise.interpreters import mlir as mlir
    from shardwise.interpreters import partial_eval as partial_eval
    from shardwise.interpreters import pxla as pxla
    from shardwise.interpreters import xla as xla
else:
    __getattr__, __dir__ = _open_package(__name__, "ad batching mlir partial_eval pxla xla")
