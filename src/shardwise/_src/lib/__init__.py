"""What `jaxlib` is to JAX, as far as libraries look at it: its version, classes that are ours, too, and the names of MLIR.

Those of MLIR refuse when they are used.
"""

import importlib
from typing import Any

from shardwise.base import config
from shardwise.base.refused import refuse_below

_DIALECTS = (
    "arith builtin cf chlo func gpu llvm math memref mhlo mpmd nvgpu nvvm scf sdy sparse_tensor stablehlo vector"
)
refuse_below(
    __name__,
    ("mlir", "mlir.ir", "mlir.passmanager", "mlir.dialects", *(f"mlir.dialects.{name}" for name in _DIALECTS.split())),
)


def __getattr__(name: str) -> Any:
    if name in ("__version__", "version_str"):
        return config.dialect.jax_version
    if name == "version":
        return tuple(map(int, config.dialect.jax_version.split(".")))
    if name == config.dialect.jaxlib_revision[0]:
        return config.dialect.jaxlib_revision[1]
    if name in ("xla_client", "xla_extension", "_jax"):
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(
        f"module 'jaxlib' has no attribute {name!r}: its kernels are NumPy's under shardwise; use the documented names of jax."
    )
