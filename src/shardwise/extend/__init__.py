"""`shardwise.extend`: the pieces that libraries built on programs use, named as in jax.extend."""

import importlib as _importlib
from typing import Any as _Any

from shardwise.base.gone import no_attribute as _no_attribute

_MODULES = ("backend", "core", "ifrt_programs", "linear_util", "source_info_util")


def __getattr__(name: str) -> _Any:
    if name in _MODULES:
        return _importlib.import_module(f"{__name__}.{name}")
    raise _no_attribute(__name__, name)


def __dir__() -> list[str]:
    return list(_MODULES)
