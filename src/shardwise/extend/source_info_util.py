"""`shardwise.extend.source_info_util`: which frames count as the user's."""

from shardwise.base.tracebacks import EXCLUDED as _EXCLUDED


def register_exclusion(path: str) -> None:
    """Frames of files below `path` are left out of tracebacks and are nobody's source line in programs."""
    _EXCLUDED.append(path)
