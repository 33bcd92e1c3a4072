"""`shardwise.lax.linalg`: decompositions and solvers on stacks of matrices, named as in jax.lax.linalg."""

import importlib as _importlib
import typing as _typing

from shardwise.lax.polar import qdwh as qdwh
from shardwise.ops.linalg import decompositions as _decompositions
from shardwise.ops.linalg import reflectors as _reflectors
from shardwise.ops.linalg import spectral as _spectral
from shardwise.ops.linalg.decompositions import *  # noqa: F403
from shardwise.ops.linalg.reflectors import *  # noqa: F403
from shardwise.ops.linalg.spectral import *  # noqa: F403

if _typing.TYPE_CHECKING:
    from shardwise.lax.linalg_primitives import *  # noqa: F403

__all__ = ["qdwh"]
__all__ += _decompositions.__all__
__all__ += _reflectors.__all__
__all__ += _spectral.__all__

for _name in [n for n in globals() if n.endswith("_p")]:
    del globals()[_name]


if not _typing.TYPE_CHECKING:  # checkers know the names; others are mistakes

    def __getattr__(name: str) -> _typing.Any:
        primitive = _importlib.import_module("shardwise.transforms.programs.primitives").named_primitive(name)
        if primitive is None:
            raise AttributeError(f"module 'shardwise.lax.linalg' has no attribute {name!r}")
        return primitive
