"""`shardwise.extend`: the pieces that libraries built on programs use, named as in jax.extend."""

import typing as _typing

from shardwise.base.doors import open_package as _open_package
from shardwise.base.refused import refuse_below as _refuse_below

if _typing.TYPE_CHECKING:  # names that `__getattr__` imports
    from shardwise.extend import backend as backend
    from shardwise.extend import core as core
    from shardwise.extend import ifrt_programs as ifrt_programs
    from shardwise.extend import linear_util as linear_util
    from shardwise.extend import random as random
    from shardwise.extend import source_info_util as source_info_util

_DIALECTS = "arith builtin chlo func math memref mpmd scf sdy sparse_tensor stablehlo vector"
# Libraries of kernels import it beside functions that need none of it.
_refuse_below(
    __name__,
    (
        "ffi",
        "mlir",
        "mlir.ir",
        "mlir.passmanager",
        "mlir.dialects",
        *(f"mlir.dialects.{name}" for name in _DIALECTS.split()),
    ),
)

if not _typing.TYPE_CHECKING:
    __getattr__, __dir__ = _open_package(__name__, "backend core ifrt_programs linear_util random source_info_util")
