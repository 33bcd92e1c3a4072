"""`shardwise.extend.core.primitives`: the library's ops as Primitives: ``sin_p`` is that of ``sin``."""

from typing import Any

from shardwise.transforms.primitives import named_primitive


def __getattr__(name: str) -> Any:
    found = named_primitive(name)
    if found is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return found
