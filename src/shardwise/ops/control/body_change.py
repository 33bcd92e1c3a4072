"""The change that planned runs make to scans: to their bodies, before they are traced.

In: a body and the change in force, if there is one. Out: the body that `scan` traces.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shardwise.base.config import Setting

Body = Callable[..., Any]
BODY_CHANGE: Setting[Callable[[Body], Body] | None] = Setting("scan_body_change", None)


def changed_body(body: Body) -> Body:
    """The body that a scan traces in the place of one that it was given."""
    change = BODY_CHANGE.get()
    return body if change is None else change(body)
