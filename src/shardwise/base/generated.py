"""Functions whose source text a program generates."""

from __future__ import annotations

import marshal
from typing import Any

from shardwise.base.caches import recent


def define(source: str, file: str, names: dict[str, Any]) -> None:
    """Run `source` in the namespace `names`. `file` stands for it in tracebacks.

    Many programs differ in their constants alone: the same text is compiled once. Each gets code of its own: the interpreter
    fits code to the globals that it met last.
    """
    exec(marshal.loads(_code(source, file)), names)


@recent(512)
def _code(source: str, file: str) -> bytes:
    return marshal.dumps(compile(source, file, "exec"))
