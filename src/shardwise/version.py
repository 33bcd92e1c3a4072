"""`shardwise.version`: this release's number, or under the alias that of the JAX whose behaviour the dialect follows."""

import typing as _typing

import shardwise as _shardwise

if _typing.TYPE_CHECKING:
    __version__: str
    __version_info__: tuple[int, ...]

if not _typing.TYPE_CHECKING:  # checkers know the names; others are mistakes

    def __getattr__(name: str) -> _typing.Any:
        if name == "__version__":
            return _shardwise.__version__
        if name == "__version_info__":
            return tuple(int(part) for part in _shardwise.__version__.split("."))
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
