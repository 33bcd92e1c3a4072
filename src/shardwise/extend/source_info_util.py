"""`shardwise.extend.source_info_util`: the frames that count as user code."""

from shardwise.base.tracebacks import EXCLUDED as _EXCLUDED


def register_exclusion(path: str) -> None:
    """Frames of files below `path` are hidden from tracebacks and are no source lines of programs."""
    _EXCLUDED.append(path)
