"""`shardwise.extend.core.primitives`: the library's ops as Primitives: ``sin_p`` is that of ``sin``."""

from typing import Any

from shardwise.transforms.programs.primitives import Primitive, named_primitive

# Calls of functions that are neither compiled nor differentiated by rules of their own: interpreters compare with them, and
# programs of ours have no equation of theirs.
call_p, closed_call_p = Primitive("call"), Primitive("closed_call")
call_p.multiple_results = closed_call_p.multiple_results = True


def __getattr__(name: str) -> Any:
    found = named_primitive(name)
    if found is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return found
