"""`shardwise.interpreters.xla`: `apply_primitive`, and the former place of `DeviceArray`, whose error names the replacement."""

from typing import TYPE_CHECKING, Any

from shardwise.base.gone import no_attribute
from shardwise.core import pytype_aval_mappings as pytype_aval_mappings
from shardwise.transforms.programs.primitives import apply_primitive as apply_primitive

__all__ = ["apply_primitive", "canonicalize_dtype_handlers", "pytype_aval_mappings"]


def _identity(x: Any) -> Any:
    return x


canonicalize_dtype_handlers = dict.fromkeys(pytype_aval_mappings, _identity)


if not TYPE_CHECKING:  # checkers know the names; others are mistakes

    def __getattr__(name: str) -> Any:
        raise no_attribute(__name__, name)
