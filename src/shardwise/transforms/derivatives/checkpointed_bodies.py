"""Scans as if their bodies were checkpointed: what would the program need if the user wrapped them?

In: a policy. Out: a context in which `scan` traces its body as a checkpointed function, and the lines of these scans. Scans within the
body of one stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from shardwise.ir.sources import user_source
from shardwise.ops.control.body_change import BODY_CHANGE
from shardwise.transforms.derivatives.checkpoint import checkpoint

Line = tuple[str, int]  # a file, and a line in it


@contextmanager
def checkpointed_bodies(policy: Callable[..., Any] | None) -> Generator[list[Line]]:
    """Trace scans as if the function of each outermost one had been wrapped in `checkpoint` with `policy`. Gives their lines."""
    lines: list[Line] = []

    def change(body: Callable[..., Any]) -> Callable[..., Any]:
        source = user_source()
        if source is not None and source.place is not None and source.place not in lines:
            lines.append(source.place)

        def alone(*args: Any) -> Any:
            with BODY_CHANGE.override(None):
                return body(*args)

        return checkpoint(alone, policy=policy, prevent_cse=False)

    with BODY_CHANGE.override(change):
        yield lines
