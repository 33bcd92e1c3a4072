"""How tracebacks are shortened."""

from collections.abc import Callable
from typing import Any

from shardwise.base import tracebacks

_exclude_paths: list[str] = tracebacks.EXCLUDED_PATHS


def api_boundary(fun: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """`fun`, of whose errors the frames inside the library and below the registered paths are left out."""
    del options  # how much of the frames is kept for repros
    return tracebacks.user_facing(fun)


include_frame = tracebacks.is_users


def register_exclusion(path: str) -> None:
    """Leave frames of files below `path` out of tracebacks."""
    _exclude_paths.append(path)
