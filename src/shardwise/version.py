"""`shardwise.version`: this release's number, or under the alias that of the JAX whose behaviour the dialect follows."""

from typing import Any as _Any


def __getattr__(name: str) -> _Any:
    import shardwise

    if name == "__version__":
        return shardwise.__version__
    if name == "__version_info__":
        return tuple(int(part) for part in shardwise.__version__.split("."))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
